"""What can go wrong, as a tree.

DrrejError                 exit 2: something is wrong and can be mended by the user
├── OptionError            parameters that contradict each other or are out of range
├── DumpError              a parquet dump that cannot be read as logits and labels
│   ├── BadFileError       one of its files, which `on_bad_file=skip` leaves out
│   └── BadRowsError       rows without usable scores, which `on_bad_row=skip` leaves out
├── ShortageError          too little memory, room or open files, or a failing disk: no file is to blame
├── RejectorError          a rejector document that is missing, damaged or not ready
├── ReportError            a report document that is damaged, or of another kind than is needed
├── MonitorError           a monitor's state that is damaged, or belongs to other batches or another rejector
├── GateError              a gate that cannot be parsed or has nothing to compare
├── OutputError            a place that cannot be written
├── ClusterError           workers that cannot be reached, or cannot do the work: a Dask cluster's, or processes here
└── Infeasible             exit 1: the data say no (a target that no threshold reaches)

A message is one line: what is wrong, where, what to do. It names parameters in backquotes, as Python has them:
`on_missing_label=skip`; the command line turns them into flags.
"""

from __future__ import annotations

import re

__all__ = [
    "BadFileError",
    "BadRowsError",
    "ClusterError",
    "DrrejError",
    "DrrejWarning",
    "DumpError",
    "GateError",
    "Infeasible",
    "MonitorError",
    "OptionError",
    "OutputError",
    "RejectorError",
    "ReportError",
    "ShortageError",
    "printable",
]

_ACTS = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    r"""Text on one line, with what would act on a terminal or in a log escaped, such as names that files bring along.

    >>> print(printable("cat\n::error::\x1b[31m"))
    cat\n::error::\x1b[31m
    """
    return _ACTS.sub(lambda found: repr(found[0])[1:-1], text)


class DrrejWarning(UserWarning):
    """What the command line says on standard error, for Python: rows that were used before, a search at its end."""


class DrrejError(Exception):
    """Base of every error that drrej raises on purpose."""

    exit_code = 2


class OptionError(DrrejError, ValueError):
    """Parameters that contradict each other or are out of range."""


class Infeasible(DrrejError):  # noqa: N818 - a verdict, not an error
    """A verdict of the data: no threshold meets the target."""

    exit_code = 1


class DumpError(DrrejError):
    """A dump that cannot be read as logits and labels."""


class BadFileError(DumpError):
    """A file of a dump that cannot be read; `file` is what messages call it."""

    file = ""

    @classmethod
    def of(cls, file: str, message: str) -> BadFileError:
        """The error of a file; the message begins with its name."""
        error = cls(message)
        error.file = file
        return error


class BadRowsError(DumpError):
    """Rows of a dump without usable scores."""


class ShortageError(DrrejError):
    """The machine is short of memory, room or open files, or its disk fails; no file is left out for that."""


class RejectorError(DrrejError):
    """A rejector document that is missing, damaged, or lacks a step."""


class ReportError(DrrejError):
    """A report document that is damaged, contradicts itself, or is of another kind than is needed."""


class MonitorError(DrrejError):
    """A state of a monitor that is damaged, belongs to another rejector, or has seen the batch already."""


class GateError(DrrejError):
    """A gate that cannot be parsed, names no metric, or meets an undefined value."""


class OutputError(DrrejError):
    """An output that exists already or cannot be written."""


class ClusterError(DrrejError):
    """A cluster that cannot be reached, runs other versions, or loses its workers."""
