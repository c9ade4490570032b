"""From options to the files that are written."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from drrej.errors import OptionError

if TYPE_CHECKING:
    from drrej.outputs.destinations import OutputFile


def output_file(path: str, force: bool, rejector: str | None = None) -> OutputFile:
    """The file to be written; `-r R -o R` needs no --force."""
    from drrej.outputs.destinations import OutputFile

    return OutputFile(path, force, updates=rejector)


def check_spared(*inputs: str | None) -> None:
    """Raise when an output would replace one of these files, which are inputs besides the dumps."""
    from drrej.outputs.conflicts import check_inputs

    check_inputs(name for name in inputs if name is not None and ("://" in name or os.path.isfile(name)))


def check_table(path: str | None) -> None:
    """Raise unless the ending of --table is one of a table."""
    if path is not None and not path.lower().endswith((".parquet", ".csv")):
        raise OptionError(f"--table {path}: the ending says the format; use .parquet or .csv")


def format_of(path: str) -> str:
    """The renderer for a file name."""
    from drrej.report import ENDINGS

    ending = os.path.splitext(path)[1].lower()
    if ending not in ENDINGS and (os.path.isfile(path) or not os.path.exists(path)):
        raise OptionError(f"-o {path}: the ending says the format; use one of {', '.join(ENDINGS)}")
    return ENDINGS.get(ending, "json")


def can_draw(kind: str) -> bool:
    """Whether what a drawn format needs is installed."""
    from drrej.report import need_libraries

    try:
        need_libraries(kind, kind)
    except OptionError:
        return False
    return True
