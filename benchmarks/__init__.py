"""Benchmarks: drrej and its peers in the same run, on the same generated data. `python -m benchmarks --help`."""
