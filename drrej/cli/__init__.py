"""The command line: options in, library called, exit code out."""
