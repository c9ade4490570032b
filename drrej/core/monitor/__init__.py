"""Monitors that may be looked at every day: `rate`, `drift`, their `restarts`, and `where` it moved."""
