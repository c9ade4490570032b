"""Dumps in: sources, readers, columns, labels, blocks."""
