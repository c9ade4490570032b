"""Worse than before? Differences to an earlier report, or to another dump of the same rows."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import numpy as np

from drrej.core import paired
from drrej.core.paired import Results
from drrej.data.dump import Block
from drrej.documents.codec import entries
from drrej.documents.pictures import BaselineCurve
from drrej.documents.points import Proportion
from drrej.documents.rejector import Rejector
from drrej.documents.report import Change, Difference, Report
from drrej.engines.protocol import Pass
from drrej.errors import OptionError
from drrej.pipeline.collect import curve_of
from drrej.pipeline.figures import accuracy_figure, coverage_curve, coverage_figure
from drrej.pipeline.groups import OnUnseen, check_columns
from drrej.pipeline.pairing import block_keys, check_unique, partners
from drrej.pipeline.passes import map_blocks
from drrej.pipeline.score import Scorer
from drrej.pipeline.source import Source
from drrej.pipeline.tally import KeyedRows

FIGURES = tuple(entry.name for entry in entries(Difference) if entry.section is Change)
"""What is compared; a difference is the new value minus the old one."""


def read_baseline(path: str) -> Report:
    """An earlier report with labels."""
    where = f"`baseline={path}`"
    try:
        with open(path, encoding="utf-8") as stream:
            report = Report.from_json(stream.read(), where)
    except OSError as error:
        raise OptionError(f"{where}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise OptionError(f"{where}: not a JSON document; give a report.json of 'drrej evaluate'") from None
    if report.base_accuracy is None:
        raise OptionError(f"{where}: a report without labels; there is no accuracy to compare with")
    return report


def check_same_classes(then: Report, rejector: Rejector) -> None:
    """Raise when an earlier report is about other classes than the rejector's."""
    names = rejector.class_names
    if then.classes != rejector.classes:
        raise OptionError(f"`baseline`: a report on {then.classes} classes; the rejector has {rejector.classes}")
    strange = [row.class_ for row in then.per_class or () if isinstance(row.class_, str)]
    strange = [name for name in strange if names is not None and name not in names]
    if strange:
        raise OptionError(f"`baseline`: a report on other classes; the rejector has no class '{strange[0]}'")


def report_differences(now: Report, then: Report) -> Difference:
    """Differences of two reports on independent rows.

    The interval joins the two reports' own: the lower end of a - b lies sqrt((a - lower a)^2 + (upper b - b)^2) below
    it (Newcombe's square-and-add). On the same rows it is wider than need be; pairing them is sharper.
    """
    changes: dict[str, Any] = {name: _square_and_add(getattr(now, name), getattr(then, name)) for name in FIGURES}
    return Difference(kind="reports", **changes)


def _square_and_add(a: Proportion | None, b: Proportion | None) -> Change:
    if a is None or b is None or a.value is None or b.value is None:
        return Change(value=None, lower=None, upper=None)
    value = a.value - b.value
    if a.lower is None or a.upper is None or b.lower is None or b.upper is None:
        return Change(value=value, lower=None, upper=None)
    return Change(
        value=value,
        lower=value - math.hypot(a.value - a.lower, b.upper - b.value),
        upper=value + math.hypot(a.upper - a.value, b.value - b.lower),
    )


def keyed_rows(source: Source, rejector: Rejector, key: str, on_unseen: OnUnseen) -> KeyedRows:
    """The rows of the baseline's dump under its rejector."""
    dump = source.open(rejector, labelled=True)
    check_columns(dump, [key], "`join_on`")
    scorer = Scorer(rejector, dump, on_unseen=on_unseen)

    def of_block(block: Block) -> KeyedRows:
        scored = scorer(block)
        return KeyedRows(block_keys(block, key), scored.loss, scored.wrong, scored.accepted)

    run = Pass("baseline", labelled=True, keep=(key, *scorer.columns))
    return KeyedRows.joined(map_blocks(source, dump, of_block, run))


def paired_differences(now: KeyedRows, then: KeyedRows, key: str) -> Difference:
    """Differences on the same rows, paired by key."""
    check_unique(now.keys, key, "the dump")
    check_unique(then.keys, key, "`baseline_dump`")
    rows = partners(now.keys, then.keys, key, "`baseline_dump`")
    new, old = (
        Results(now.losses, now.wrong, now.accepted),
        Results(then.losses[rows], then.wrong[rows], then.accepted[rows]),
    )
    found = paired.paired_differences(new, old)
    changes: dict[str, Any] = {name: Change(**asdict(difference)) for name, difference in found.items()}
    return Difference(kind="paired", rows=int(now.losses.size), **changes)


def baseline_curve(then: KeyedRows) -> BaselineCurve:
    """The curve and the decision of the baseline's dump."""
    points = curve_of(then.losses, then.wrong)
    accepted = int(np.count_nonzero(then.accepted))
    return BaselineCurve(
        coverage_curve=coverage_curve(points),
        coverage=coverage_figure(accepted, points.rows),
        accuracy=accuracy_figure(int(np.count_nonzero(then.accepted & then.wrong)), accepted),
    )
