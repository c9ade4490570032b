"""Numbers behind the report's pictures: collected only when a page or a figure is wanted, so renderers just draw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drrej.core.calibration import ECE_BINS, CalibrationTally
from drrej.core.curves import Curve
from drrej.documents.rejector import Rejector
from drrej.documents.words import describe_sections

Report = dict[str, Any]

MOST_ROWS = 30
"""Classes or groups that get a row of their own; the others share one."""

MOST_CONFUSIONS = 15
LOSS_BINS = 48
_DECADES = 6.0
"""A logarithmic histogram reaches so far below the largest loss; smaller losses are in its first bin."""

_LINEAR_RANGE = 100.0
"""Losses that spread less than this are shown on a linear scale."""


def ideal_curve(errors: int, rows: int) -> list[Report]:
    """Accuracy against coverage if every right row came before every wrong one."""
    right = rows - errors
    steps = sorted({right, *(rows * step // ECE_BINS for step in range(1, ECE_BINS + 1))} - {0})
    return [{"coverage": kept / rows, "accuracy": min(right / kept, 1.0)} for kept in steps if kept >= right]


def reliability(tally: CalibrationTally) -> list[Report]:
    """Accuracy against mean confidence in the bins of the ECE that have rows."""
    bins = []
    for number in map(int, np.flatnonzero(tally.bin_rows)):
        confidence, accuracy = tally.bin(number)
        rows = int(tally.bin_rows[number])
        bins.append(
            {
                "lower": number / ECE_BINS,
                "upper": (number + 1) / ECE_BINS,
                "rows": rows,
                "share": rows / tally.rows,
                "confidence": confidence,
                "accuracy": accuracy,
            }
        )
    return bins


def loss_histogram(points: Curve, labelled: bool = True) -> Report:
    """Rows by expected loss, right and wrong ones apart; the last bin holds its upper edge."""
    smallest, largest = points.range
    linear = smallest < 0 or largest <= _LINEAR_RANGE * smallest or largest == 0
    if linear:
        edges = np.linspace(min(smallest, 0.0), largest or 1.0, LOSS_BINS + 1)
    else:
        low = max(np.log10(largest) - _DECADES, np.log10(smallest) if smallest > 0 else -np.inf)
        edges = np.logspace(low, np.log10(largest), LOSS_BINS + 1)
        edges[-1] = largest
    counts = np.array([points.below(float(edge)) for edge in edges[1:-1]] + [(points.rows, points.total_errors)])
    rows, wrong = np.diff(counts, axis=0, prepend=0).T
    histogram: Report = {"scale": "linear" if linear else "log", "edges": [float(edge) for edge in edges]}
    if not labelled:
        return {**histogram, "rows": rows.tolist()}
    return {**histogram, "right": (rows - wrong).tolist(), "wrong": wrong.tolist()}


def confusions(codes: NDArray[np.int64], classes: int, names: Sequence[str] | None) -> Report:
    """The commonest errors among the accepted rows, each coded as label * classes + prediction."""
    pairs, rows = np.unique(codes, return_counts=True)
    order = np.argsort(-rows, kind="stable")[:MOST_CONFUSIONS]
    top: list[Report] = [
        {
            "label": _name(int(pairs[i]) // classes, names),
            "prediction": _name(int(pairs[i]) % classes, names),
            "rows": int(rows[i]),
            "share": int(rows[i]) / int(codes.size),
        }
        for i in order
    ]
    rest = int(codes.size) - sum(row["rows"] for row in top)
    return {"errors": int(codes.size), "top": top, "other_pairs": int(pairs.size) - len(top), "other_rows": rest}


def _name(number: int, names: Sequence[str] | None) -> str:
    return str(number) if names is None else names[number]


def worst_rows(cells: Sequence[tuple[str, Sequence[int]]]) -> Report:
    """Rows of a table by class or group, the lowest accuracy first; beyond `MOST_ROWS` the rest is summed up.

    Each item is a name with its counts (wrong rejected, right rejected, wrong accepted, right accepted).
    """
    made = [_counted(name, counts) for name, counts in cells]
    made.sort(key=lambda row: (row["accuracy"] is not None, row["accuracy"], row["coverage"]))
    highest = max((row["error_rate"] or 0.0 for row in made), default=0.0)
    by_name = dict(cells)
    others = [by_name[row["name"]] for row in made[MOST_ROWS:]]
    rest = {**_counted("", np.sum(others, axis=0).tolist()), "members": len(others)} if others else None
    for row in [*made, *([rest] if rest else [])]:
        row["of_highest"] = row["error_rate"] / highest if row["error_rate"] else 0.0
    return {"shown": made[:MOST_ROWS], "rest": rest}


def _counted(name: str, counts: Sequence[int]) -> Report:
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


def made_by(rejector: Rejector, words: Sequence[str], commands: Sequence[str]) -> Report:
    """How the rejector came to be: in words, those of the document unless others are given, and as commands."""
    return {"words": list(words) or describe_sections(rejector), "commands": list(commands)}
