"""Command lines as text: those that make a rejector again, and how to go on."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drrej.data.dump import DumpOptions


def this_command() -> str:
    """The command line of this process."""
    return shlex.join(["drrej", *sys.argv[1:]])


def reading_flags(options: DumpOptions) -> list[str]:
    """The flags that make a command read a dump with these options."""
    return _flags(
        {
            "--logits": options.logits,
            "--label": options.label,
            "--labels-from": options.labels_from,
            "--join-on": options.join_on,
            "--on-missing-label": "skip" if options.on_missing_label == "skip" else None,
            "--on-bad-row": "skip" if options.on_bad_row == "skip" else None,
            "--on-bad-file": "skip" if options.on_bad_file == "skip" else None,
            "--max-bad": None if options.max_bad is None else f"{options.max_bad:g}",
            "--filter": options.filter,
            "--per-length": options.per_length or None,
            "--input": options.input,
            "--normalize": options.normalize or None,
            "--classes": ",".join(options.classes) if options.classes else None,
            "--binary": options.binary or None,
        }
    )


def _flags(given: dict[str, str | bool | None]) -> list[str]:
    """Flags with their values; None: left out; True: without a value."""
    return [
        word
        for flag, value in given.items()
        if value is not None
        for word in ([flag] if value is True else [flag, str(value)])
    ]
