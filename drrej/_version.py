"""The version of drrej."""

__version__ = "0.2.0"
