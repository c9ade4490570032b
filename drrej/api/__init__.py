"""The front door for Python, as `cli` is for shells: arrays, and one call per step.

Everything here hands on to the steps of `pipeline`; what it adds is what Python users have at hand: arrays, paths,
notebooks.
"""
