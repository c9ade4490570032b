"""Outputs that appear whole or not at all: files, datasets, object storage."""
