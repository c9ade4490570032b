"""The version of drrej."""

__version__ = "0.1.0"
