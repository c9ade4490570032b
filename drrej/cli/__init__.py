"""The command line: options in, library called, exit code out."""

from drrej.cli.main import main

__all__ = ["main"]
