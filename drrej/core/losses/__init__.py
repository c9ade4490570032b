"""Losses: what the model expects to lose on a row."""
