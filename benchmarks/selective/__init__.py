"""Which score orders rows best, and which certifies most: every score on every dump at hand."""
