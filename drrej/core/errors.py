"""What the mathematics can say no to. A message is one line; parameters are named in backquotes: `risk=0.02`."""

from __future__ import annotations


class DrrejError(Exception):
    """Base of every error that drrej raises on purpose."""

    exit_code = 2


class OptionError(DrrejError):
    """Parameters that contradict each other or are out of range."""


class Infeasible(DrrejError):  # noqa: N818 - a verdict, not an error
    """A verdict of the data: no threshold meets the target."""

    exit_code = 1
