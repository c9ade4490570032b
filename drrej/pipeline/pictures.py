"""What a page shows besides figures, made only when it is wanted: numbers behind its pictures, and single rows."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from drrej.core.calibration import ECE_BINS, CalibrationTally
from drrej.core.curves import Curve
from drrej.core.types import Integers
from drrej.data.dump import Dump
from drrej.data.problems import redacted
from drrej.documents.rejector import Rejector
from drrej.documents.report import (
    Bin,
    Confusion,
    Confusions,
    Example,
    Examples,
    IdealPoint,
    LossHistogram,
    Made,
    Member,
    Members,
)
from drrej.documents.words import describe_sections
from drrej.pipeline.score import Scored

if TYPE_CHECKING:
    from drrej.pipeline.evaluate import EvaluateOptions

MOST_ROWS = 30
"""Classes or groups that get a row of their own; the others share one."""

MOST_CONFUSIONS = 15
LOSS_BINS = 48
_DECADES = 6.0
"""A logarithmic histogram reaches so far below the largest loss; smaller losses are in its first bin."""

_LINEAR_RANGE = 100.0
"""Losses that spread less than this are shown on a linear scale."""


def ideal_curve(errors: int, rows: int) -> tuple[IdealPoint, ...]:
    """Accuracy against coverage if every right row came before every wrong one."""
    right = rows - errors
    steps = sorted({right, *(rows * step // ECE_BINS for step in range(1, ECE_BINS + 1))} - {0})
    kept = [step for step in steps if step >= right]
    return tuple(IdealPoint(coverage=step / rows, accuracy=min(right / step, 1.0)) for step in kept)


def reliability(tally: CalibrationTally) -> tuple[Bin, ...]:
    """Accuracy against mean confidence in the bins of the ECE that have rows."""
    return tuple(_bin(tally, number) for number in map(int, np.flatnonzero(tally.bin_rows)))


def _bin(tally: CalibrationTally, number: int) -> Bin:
    confidence, accuracy = tally.bin(number)
    rows = int(tally.bin_rows[number])
    return Bin(
        lower=number / ECE_BINS,
        upper=(number + 1) / ECE_BINS,
        rows=rows,
        share=rows / tally.rows,
        confidence=confidence,
        accuracy=accuracy,
    )


def loss_histogram(points: Curve, labelled: bool = True) -> LossHistogram:
    """Rows by expected loss, right and wrong ones apart; the last bin holds its upper edge."""
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
    empty = LossHistogram(scale="linear" if linear else "log", edges=tuple(edges.tolist()))
    if not labelled:
        return replace(empty, rows=tuple(rows.tolist()))
    return replace(empty, right=tuple((rows - wrong).tolist()), wrong=tuple(wrong.tolist()))


def confusions(codes: NDArray[np.int64], classes: int, names: Sequence[str] | None) -> Confusions:
    """The commonest errors among the accepted rows, each coded as label * classes + prediction."""
    pairs, rows = np.unique(codes, return_counts=True)
    order = np.argsort(-rows, kind="stable")[:MOST_CONFUSIONS]
    errors = int(codes.size)
    top = tuple(
        Confusion(
            label=_name(int(pairs[i]) // classes, names),
            prediction=_name(int(pairs[i]) % classes, names),
            rows=int(rows[i]),
            share=int(rows[i]) / errors,
        )
        for i in order
    )
    rest = errors - sum(row.rows for row in top)
    return Confusions(errors=errors, top=top, other_pairs=int(pairs.size) - len(top), other_rows=rest)


def _name(number: int, names: Sequence[str] | None) -> str:
    return str(number) if names is None else names[number]


def worst_rows(cells: Sequence[tuple[str, Sequence[int]]]) -> Members:
    """Rows of a table by class or group, the lowest accuracy first; beyond `MOST_ROWS` the rest is summed up.

    Each item is a name with its counts (wrong rejected, right rejected, wrong accepted, right accepted).
    """
    made = [(_counted(name, counts), counts) for name, counts in cells]
    made.sort(key=lambda pair: (pair[0]["accuracy"] is not None, pair[0]["accuracy"], pair[0]["coverage"]))
    highest = max((row["error_rate"] or 0.0 for row, _ in made), default=0.0)

    def relative(row: dict[str, Any]) -> float:
        return row["error_rate"] / highest if row["error_rate"] else 0.0

    shown = tuple(Member(**row, of_highest=relative(row)) for row, _ in made[:MOST_ROWS])
    others = [counts for _, counts in made[MOST_ROWS:]]
    if not others:
        return Members(shown=shown, rest=None)
    together = _counted("", np.sum(others, axis=0).tolist())
    return Members(shown=shown, rest=Member(**together, members=len(others), of_highest=relative(together)))


def _counted(name: str, counts: Sequence[int]) -> dict[str, Any]:
    """What every `Member` has."""
    wrong_rejected, right_rejected, wrong, right = map(int, counts)
    accepted, rows = wrong + right, wrong_rejected + right_rejected + wrong + right
    return {
        "name": name,
        "rows": rows,
        "accepted": accepted,
        "errors": wrong,
        "coverage": accepted / rows,
        "accuracy": right / accepted if accepted else None,
        "error_rate": wrong / accepted if accepted else None,
        "base_accuracy": (right_rejected + right) / rows,
    }


def made_by(rejector: Rejector, options: EvaluateOptions, dump: Dump) -> Made:
    """What heads the page, and how the rejector came to be: in words, the document's own unless others are given."""
    return Made(
        title=options.title,
        date=_today(),
        data=_data_name(dump),
        model=options.model,
        words=tuple(options.words) or tuple(describe_sections(rejector)),
        commands=tuple(options.commands),
    )


def _today() -> str:
    """The day in UTC, or that of SOURCE_DATE_EPOCH, as for other reproducible documents."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    moment = datetime.fromtimestamp(int(epoch), UTC) if epoch.isdecimal() else datetime.now(UTC)
    return moment.date().isoformat()


def _data_name(dump: Dump) -> str:
    """The file of a dump, or the first of several."""
    first = redacted(dump.parts[0].name).partition("?")[0].replace("\\", "/").rsplit("/", 1)[-1]
    more = len(dump.parts) - 1
    return first if not more else f"{first} and {more} more files" if more > 1 else f"{first} and 1 more file"


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

    def name(number: int) -> str:
        if number < 0:
            return "none of the classes"
        return str(number) if names is None else names[number]

    def examples(rows: Integers) -> list[Example]:
        values = [
            [_short(value) for value in block.columns.column(column).take(rows).to_pylist()] for column in columns
        ]
        return [
            Example(
                label=name(int(labels[row])),
                prediction=name(int(scored.prediction[row])),
                loss=float(loss[row]),
                values=tuple(cells[place] for cells in values),
            )
            for place, row in enumerate(rows.tolist())
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
        columns=tuple(shown),
        rejected=tuple(rejected[:MOST_EXAMPLES]),
        wrongly_accepted=tuple(wrong[:MOST_EXAMPLES]),
    )


def _short(value: Any) -> str:
    """A value as short text; null is empty."""
    text = "" if value is None else str(value)
    text = text.encode(errors="replace").decode()
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
