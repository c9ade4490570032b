"""Monitors of batches over time: mathematics, state, step and report of `drrej monitor`."""
