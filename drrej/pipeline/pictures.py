"""What a page shows besides figures, made only when it is wanted: numbers behind its pictures, and single rows."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from drrej.core.calibration import ECE_BINS, CalibrationTally
from drrej.core.curves import Curve
from drrej.core.types import Integers
from drrej.data.dump import Dump
from drrej.data.problems import redacted
from drrej.documents.rejector import Rejector
from drrej.documents.report import Example, Examples
from drrej.documents.words import describe_sections
from drrej.pipeline.score import Scored

if TYPE_CHECKING:
    from drrej.pipeline.evaluate import EvaluateOptions

LOSS_BINS = 48
_DECADES = 6.0
"""A logarithmic histogram reaches so far below the largest loss; smaller losses are in its first bin."""

_LINEAR_RANGE = 100.0
"""Losses that spread less than this are shown on a linear scale."""


def ideal_curve(errors: int, rows: int) -> list[dict[str, float]]:
    """Accuracy against coverage if every right row came before every wrong one."""
    right = rows - errors
    steps = sorted({right, *(rows * step // ECE_BINS for step in range(1, ECE_BINS + 1))} - {0})
    return [{"coverage": step / rows, "accuracy": min(right / step, 1.0)} for step in steps if step >= right]


def reliability(tally: CalibrationTally) -> list[dict[str, float]]:
    """Accuracy against mean confidence in the bins (lower, upper] of the ECE that have rows."""
    bins = []
    for number in np.flatnonzero(tally.bin_rows).tolist():
        confidence, accuracy = tally.bin(number)
        rows, ends = int(tally.bin_rows[number]), {"lower": number / ECE_BINS, "upper": (number + 1) / ECE_BINS}
        share = rows / tally.rows
        bins.append(ends | {"rows": rows, "share": share, "confidence": confidence, "accuracy": accuracy})
    return bins


def loss_histogram(points: Curve, labelled: bool = True) -> dict[str, Any]:
    """Rows by expected loss, right and wrong ones apart if there are labels; the last bin holds its upper edge."""
    smallest, largest = float(points.ordered[0]), float(points.ordered[-1])
    linear = smallest < 0 or largest <= _LINEAR_RANGE * smallest or largest == 0
    if linear:
        edges = np.linspace(min(smallest, 0.0), largest or 1.0, LOSS_BINS + 1)
    else:
        low = max(np.log10(largest) - _DECADES, np.log10(smallest) if smallest > 0 else -np.inf)
        edges = np.logspace(low, np.log10(largest), LOSS_BINS + 1)
        edges[-1] = largest
    counts = np.array([points.below(float(edge)) for edge in edges[1:-1]] + [(points.rows, points.total_errors)])
    rows, wrong = np.diff(counts, axis=0, prepend=0).T
    kinds = {"right": (rows - wrong).tolist(), "wrong": wrong.tolist()} if labelled else {"rows": rows.tolist()}
    return {"scale": "linear" if linear else "log", "edges": edges.tolist(), **kinds}


def made_by(rejector: Rejector, options: EvaluateOptions, dump: Dump) -> dict[str, Any]:
    """What heads the page, and how the rejector came to be: in words, the document's own unless others are given.

    The day is that in UTC, or of SOURCE_DATE_EPOCH, as for other reproducible documents.
    """
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    moment = datetime.fromtimestamp(int(epoch), UTC) if epoch.isdecimal() else datetime.now(UTC)
    first = redacted(dump.parts[0].name).partition("?")[0].replace("\\", "/").rsplit("/", 1)[-1]
    more = len(dump.parts) - 1
    others = f" and {more} more file{'s' if more > 1 else ''}" if more else ""
    made = {"title": options.title, "date": moment.date().isoformat(), "data": first + others, "model": options.model}
    return {key: text for key, text in made.items() if text is not None} | {
        "words": list(options.words) or describe_sections(rejector),
        "commands": list(options.commands),
    }


# Single rows

MOST_EXAMPLES = 25
"""Of each kind."""

_LONGEST = 60


def block_examples(scored: Scored, columns: Sequence[str], names: Sequence[str] | None) -> dict[str, list[Example]]:
    """The rejected rows of a block with the largest losses, its accepted errors with the smallest; ties in order."""
    block, loss = scored.block, scored.loss
    labels = block.labels
    assert labels is not None
    wrong, rejected = np.flatnonzero(scored.accepted & scored.wrong), np.flatnonzero(~scored.accepted)
    titles = [*(names or scored.rejector.class_titles), "none of the classes"]  # the last, -1

    def examples(rows: Integers) -> list[Example]:
        values = [map(_short, block.columns.column(column).take(rows).to_pylist()) for column in columns]
        return [
            Example(label=titles[label], prediction=titles[prediction], loss=row_loss, values=tuple(cells))
            for label, prediction, row_loss, *cells in zip(
                np.maximum(labels[rows], -1), scored.prediction[rows], loss[rows].tolist(), *values, strict=True
            )
        ]

    return {
        "rejected rows": examples(rejected[np.argsort(-loss[rejected], kind="stable")[:MOST_EXAMPLES]]),
        "wrong rows": examples(wrong[np.argsort(loss[wrong], kind="stable")[:MOST_EXAMPLES]]),
    }


def examples(columns: Mapping[str, Any], shown: Sequence[str]) -> Examples:
    """Those of all rows, from blocks in order; `shown` are the columns that each has."""
    rejected = sorted(columns["rejected rows"], key=lambda example: -example.loss)
    wrong = sorted(columns["wrong rows"], key=lambda example: example.loss)
    return Examples(
        columns=tuple(shown), rejected=tuple(rejected[:MOST_EXAMPLES]), wrongly_accepted=tuple(wrong[:MOST_EXAMPLES])
    )


def _short(value: Any) -> str:
    """A value as short text; null is empty."""
    text = "" if value is None else str(value)
    text = text.encode(errors="replace").decode()
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
