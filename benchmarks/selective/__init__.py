"""Which score orders rows best, and which rule certifies most: every score on every dump at hand."""
