"""Command lines as text: those that make a rejector again, and how to go on."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from drrej.cli.flags import flag_of

if TYPE_CHECKING:
    from drrej.data.dump import DumpOptions
    from drrej.documents.rejector import Calibration, Ratio, Rejector, Threshold

_LONG = 200
"""Signs that a list of class names may have on a command line."""


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


def commands_of(rejector: Rejector) -> list[str]:
    """What makes a finished rejector again, as one pipe; options that are the default are left out.

    Capitals stand for files that the rejector does not name.
    """
    calibration = rejector.need_calibration()
    reading, objective = _reading_of(rejector), _objective_of(rejector.need_ratio())
    if calibration.method == "given":
        start = [["fit", "VAL", "--temperature", repr(calibration.temperature), *objective, *reading]]
    else:
        start = [["calibrate", "VAL", *_calibrator_of(calibration), *reading], ["fit", "VAL", "-r", "-", *objective]]
    choice = ["threshold", "VAL", "-r", "-", *_rule_of(rejector.need_threshold()), "-o", "rejector.json"]
    return [" |\n  ".join(shlex.join(["drrej", *words]) for words in [*start, choice])]


def _calibrator_of(calibration: Calibration) -> list[str]:
    name = "auto" if calibration.choice else calibration.method
    return _flags({"--calibrator": name if name != "temperature" else None})


def _reading_of(rejector: Rejector) -> list[str]:
    from drrej.core.inputs import FACE_VALUE

    floor = rejector.floor
    return _flags(
        {
            "--logits": rejector.columns.logits,
            "--label": rejector.columns.label or None,
            "--input": rejector.input if rejector.input != "logits" else None,
            "--normalize": rejector.normalize or None,
            "--binary": rejector.binary or None,
            "--classes": _classes(rejector.class_names) if rejector.class_names else None,
            "--floor": None if floor in (None, FACE_VALUE) else repr(floor),
            "--precision": rejector.precision if rejector.precision != "auto" else None,
        }
    )


def _classes(names: Sequence[str]) -> str:
    """A comma list where that is possible and short; else CLASSES stands for the file with the names."""
    text = ",".join(names)
    return text if text.count(",") == len(names) - 1 and len(text) <= _LONG else "CLASSES"


def _objective_of(ratio: Ratio) -> list[str]:
    loss = {"loss": "auto"} if ratio.choice else ratio.loss.arguments
    return _flags(
        {
            "--alpha": _number(ratio.alpha) if ratio.alpha != 1.0 else None,
            "--lambda": _number(ratio.lam) if ratio.lam != 1.0 and ratio.effective_sample is None else None,
            "--effective-sample": None if ratio.effective_sample is None else _number(ratio.effective_sample),
            **{flag_of(name): value for name, value in loss.items() if (name, value) != ("loss", "log")},
        }
    )


def _rule_of(threshold: Threshold) -> list[str]:
    rule = threshold.rule
    return _flags(
        {
            "--review-cost" if rule.kind == "cost" else f"--{rule.kind}": repr(rule.target),
            "--error-cost": None if rule.error_cost is None else repr(rule.error_cost),
            **({} if rule.coverage is None else {"--coverage": repr(rule.coverage)}),  # beside another rule
            "--confidence": None if rule.confidence is None else repr(rule.confidence),
            "--clip": None if rule.clip is None else repr(rule.clip),
            "--method": rule.method if (rule.limits_errors or rule.limits_a_mean) and rule.coverage is None else None,
            "--by": threshold.by or None,
            "--allow-reuse": rule.reused or None,
        }
    )


def _number(value: float) -> str:
    """With all its digits: lambda may have been solved for."""
    return f"{value:g}" if float(f"{value:g}") == value else repr(value)


def _flags(given: dict[str, str | bool | None]) -> list[str]:
    """Flags with their values; None: left out; True: without a value."""
    return [
        word
        for flag, value in given.items()
        if value is not None
        for word in ([flag] if value is True else [flag, str(value)])
    ]
