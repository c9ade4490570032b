"""Sections of the report, from tallies and curves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drrej.core.curves import AUGRC_CONVENTION, AURC_CONVENTION, E_AURC_CONVENTION, Curve
from drrej.core.intervals import proportion
from drrej.core.ratio import DensityRatio

Report = dict[str, Any]

CURVE_STEPS = 50
CONVENTIONS = {"aurc": AURC_CONVENTION, "e_aurc": E_AURC_CONVENTION, "augrc": AUGRC_CONVENTION}


def coverage_figure(accepted: int, rows: int) -> Report:
    """Coverage with its interval and count."""
    return {**proportion(accepted, rows), "accepted": accepted}


def accuracy_figure(errors: int, rows: int) -> Report:
    """Accuracy with its interval and count."""
    return {**proportion(rows - errors, rows), "errors": errors}


def tau_curve(density: DensityRatio, points: Curve) -> list[Report]:
    """Coverage and accuracy at the paper's 50 steps of tau in (0, 1]."""
    curve = []
    for step in range(1, CURVE_STEPS + 1):
        accepted, errors = points.below(density.cutoff(step / CURVE_STEPS))
        accuracy = proportion(accepted - errors, accepted)
        curve.append(
            {
                "tau": step / CURVE_STEPS,
                "coverage": accepted / points.rows,
                "accuracy": accuracy["value"],
                "lower": accuracy["lower"],
                "upper": accuracy["upper"],
            }
        )
    return curve


def coverage_curve(points: Curve) -> list[Report]:
    """Accuracy at 50 steps of coverage in (0, 1], each the smallest coverage that is reached there."""
    curve = []
    for step in range(1, CURVE_STEPS + 1):
        wanted = -(-step * points.rows // CURVE_STEPS)
        accepted, errors = points.reaching(wanted)
        accuracy = proportion(accepted - errors, accepted)
        curve.append(
            {
                "coverage": accepted / points.rows,
                "accuracy": accuracy["value"],
                "lower": accuracy["lower"],
                "upper": accuracy["upper"],
            }
        )
    return curve


def per_class(counts: NDArray[np.int64], names: Sequence[str] | None) -> list[Report]:
    """By true label; classes without rows are left out."""
    table = []
    for number in map(int, np.flatnonzero(counts.sum(axis=1))):
        wrong_rejected, right_rejected, wrong_accepted, right_accepted = map(int, counts[number])
        accepted = wrong_accepted + right_accepted
        rows = accepted + wrong_rejected + right_rejected
        table.append(
            {
                "class": number if names is None else names[number],
                "rows": rows,
                "coverage": accepted / rows,
                "accuracy": right_accepted / accepted if accepted else None,
            }
        )
    return table


def per_group(counts: Counter[tuple[str, int]]) -> list[Report]:
    """By group, sorted by name."""
    table = []
    for group in sorted({name for name, _ in counts}):
        cells = [counts[group, cell] for cell in range(4)]
        accepted = cells[2] + cells[3]
        table.append(
            {
                "group": group,
                "rows": sum(cells),
                "coverage": coverage_figure(accepted, sum(cells)),
                "accuracy": accuracy_figure(cells[2], accepted),
                "base_accuracy": accuracy_figure(cells[0] + cells[2], sum(cells)),
            }
        )
    return table


def worst_group(groups: Sequence[Report]) -> Report:
    """The groups with the lowest coverage and the lowest accuracy, for gates."""
    worst: Report = {}
    for figure in ("coverage", "accuracy", "base_accuracy"):
        defined = [row for row in groups if row[figure]["value"] is not None]
        if defined:
            row = min(defined, key=lambda row: row[figure]["value"])
            worst[figure] = {"group": row["group"], **row[figure]}
        else:
            worst[figure] = {"group": None, **proportion(0, 0)}
    return worst


def mask_row(name: str, counts: Counter[tuple[str, int]]) -> Report:
    """A foreign mask."""
    cells = [counts[name, cell] for cell in range(4)]
    accepted = cells[2] + cells[3]
    return {
        "mask": name,
        "coverage": coverage_figure(accepted, sum(cells)),
        "accuracy": accuracy_figure(cells[2], accepted),
    }
