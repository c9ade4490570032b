"""Importing this module registers the commands, in the order of the pipeline: that of `drrej --help`."""

from importlib import import_module

for _name in (
    *("calibrate", "fit", "threshold", "evaluate", "reject", "run"),
    *("sweep", "weights", "inspect", "schema"),
):
    import_module(f"drrej.cli.{_name}")
