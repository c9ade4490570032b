"""Evidence in three parts, each with one command: `python -m benchmarks.paper`, `.selective` and `.speed`."""
