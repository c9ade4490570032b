"""The figures of a report, each computed in one place, from columns in the order of the rows and from curves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from drrej._version import __version__
from drrej.core.curves import CONVENTIONS, Curve
from drrej.core.drift import RatioMoments, RatioSums, loss_shift, ratio_shift
from drrej.core.intervals import proportion
from drrej.core.paired import area_intervals
from drrej.core.ratio import DensityRatio
from drrej.core.ratio_error import FITTED_ROWS
from drrej.core.sums import Total
from drrej.core.types import Booleans, Floats, Integers
from drrej.documents.document import entries
from drrej.documents.figures import Accuracy, Change, Coverage, CurvePoint, PointFigure, Where
from drrej.documents.rejector import Ratio, Rejector
from drrej.documents.report import (
    Area,
    Calibration,
    ClassRow,
    ConfusionMatrix,
    ConfusionRow,
    Drift,
    Example,
    Examples,
    ExpectedAccuracy,
    GroupLook,
    GroupRow,
    MeanRatio,
    Ranking,
    WorstGroup,
)
from drrej.pipeline.collect import curve_of
from drrej.pipeline.groups import numbered
from drrej.pipeline.score import Scored
from drrej.pipeline.shares import Tally, against_the_rest, moved_parts, since_fit

CURVE_STEPS = 50
CONFIDENCE = 0.95
RANKINGS = ("naurc", "failure_auroc", "fpr_at_95_tpr")
AREAS = ("aurc", "e_aurc", "augrc")
"""Those of every score."""


_PIECE = 1 << 20


def _pieces(rows: int) -> Iterator[slice]:
    """Rows that are looked at together: columns beyond memory are read in pieces."""
    return (slice(start, start + _PIECE) for start in range(0, rows, _PIECE))


def decision(rejector: Rejector) -> dict[str, Any]:
    """What every report says about how rows are decided, and by which version."""
    threshold = rejector.need_threshold()
    cutoffs = {"tau": threshold.tau, "cutoff": threshold.cutoff, "cutoff_by": threshold.by}
    return {"drrej_version": __version__, **cutoffs}


def coverage_figure(accepted: int, rows: int) -> Coverage:
    """Coverage with its interval and count.

    >>> coverage_figure(8, 10).value
    0.8
    """
    return Coverage(**proportion(accepted, rows), accepted=accepted)


def accuracy_figure(errors: int, rows: int) -> Accuracy:
    """Accuracy with its interval and count; undefined without rows.

    >>> accuracy_figure(1, 4).value, accuracy_figure(0, 0).value
    (0.75, None)
    """
    return Accuracy(**proportion(rows - errors, rows), errors=errors)


# Points, curves and areas


def accuracy_near(curve: Curve, accepted: int) -> PointFigure:
    """Accuracy at the smallest coverage that accepts at least so many rows; undefined for none."""
    kept, errors = curve.reaching(accepted) if accepted else (0, 0)
    return PointFigure(**proportion(kept - errors, kept), accepted=kept, errors=errors)


def tau_curve(density: DensityRatio, curve: Curve) -> tuple[CurvePoint, ...]:
    """Coverage and accuracy at the paper's 50 steps of tau in (0, 1]."""
    taus = [step / CURVE_STEPS for step in range(1, CURVE_STEPS + 1)]
    return tuple(CurvePoint(tau=tau, **_at(curve, *curve.below(density.cutoff(tau)))) for tau in taus)


def coverage_curve(curve: Curve) -> tuple[CurvePoint, ...]:
    """Accuracy at 50 steps of coverage in (0, 1], each the smallest coverage that is reached there."""
    wanted = [-(-step * curve.rows // CURVE_STEPS) for step in range(1, CURVE_STEPS + 1)]
    return tuple(CurvePoint(**_at(curve, *curve.reaching(rows))) for rows in wanted)


def _at(curve: Curve, accepted: int, errors: int) -> dict[str, Any]:
    accuracy = accuracy_figure(errors, accepted)
    ends = {"lower": accuracy.lower, "upper": accuracy.upper}
    return {"coverage": accepted / curve.rows, "accuracy": accuracy.value, **ends}


def areas_of(curve: Curve, intervals: bool) -> dict[str, dict[str, Any]]:
    """The areas under a curve, with their intervals if asked for."""
    ends = area_intervals(curve) if intervals else {}
    areas = {}
    for name in AREAS:
        lower, upper = ends.get(name, (None, None))
        areas[name] = {"value": getattr(curve, name)(), "lower": lower, "upper": upper}
    return areas


def order_sections(curve: Curve, intervals: bool) -> dict[str, Area | Change | Ranking]:
    """How well the loss orders the rows: areas and rankings, each with its convention."""
    areas: dict[str, Area | Change | Ranking] = {}
    for name, area in areas_of(curve, intervals).items():
        areas[name] = (Change if name == "e_aurc" else Area)(**area, convention=CONVENTIONS[name])
    for name in RANKINGS:
        areas[name] = Ranking(value=getattr(curve, name)(), convention=CONVENTIONS[name])
    return areas


def calibration_sections(columns: Mapping[str, Any]) -> dict[str, Calibration | ExpectedAccuracy]:
    """How good the probabilities are before calibration, after it, and after it on the accepted rows."""
    tallies = {"uncalibrated": "uncalibrated", "all": "all", "accepted": "accepted rows"}
    parts = {part: columns[name] for part, name in tallies.items()}
    sections: dict[str, Calibration | ExpectedAccuracy] = {
        "expected_accuracy": ExpectedAccuracy(
            value=parts["accepted"].mean_confidence, all=parts["all"].mean_confidence
        ),
        "nll": Calibration(**{part: tally.mean_nll for part, tally in parts.items()}),
        "ece": Calibration(**{part: tally.ece for part, tally in parts.items()}),
        "brier": Calibration(**{part: tally.mean_brier for part, tally in parts.items()}),
    }
    if "classwise all" in columns:
        sections["classwise_ece"] = Calibration(**{part: columns[f"classwise {part}"].ece for part in parts})
    return sections


# What the probabilities promise, and drift


def expected_accuracy(doubt: Floats, accepted: Booleans) -> ExpectedAccuracy:
    """From the probability of an error in each row."""
    of_accepted = sum((Total.of(doubt[part][accepted[part]]) for part in _pieces(doubt.size)), Total())
    means = of_accepted.mean(int(np.count_nonzero(accepted))), Total.of(doubt).mean(doubt.size)
    value, of_all = (None if mean is None else 1.0 - mean for mean in means)
    return ExpectedAccuracy(value=value, all=of_all)


def ratio_figure(sums: RatioSums, rows: int, ratio: Ratio) -> MeanRatio:
    """The mean ratio; no p-value where the loss was fitted to the rows of the ratio, so that its mean need not be 1."""
    fit = None if ratio.variance is None else RatioMoments(ratio.rows, 1.0, ratio.variance, ratio.third)
    shift = {**ratio_shift(sums.moments(rows), fit), "mean": sums.mean(rows)}
    error = next((bound.value for bound in ratio.bounds or () if bound.theorem == FITTED_ROWS), None)
    figure = MeanRatio(**shift, error=error)
    return figure if ratio.loss.drift_loss is None else replace(figure, p_value=None)


_FAR, _SURE = 0.1, 0.001
"""A distance from the fit's losses, and a p-value, from which on a learned order is in doubt."""


def tied_rows(losses: Floats, accepted: Booleans) -> int | None:
    """How many rows have the largest loss that is accepted, if that is more than half of them: they are as one.

    >>> tied_rows(np.array([0.0, 0.0, 0.0, 0.3]), np.array([True, True, True, False]))
    3
    """
    if not accepted.any():
        return None
    tied = int(np.count_nonzero(losses == np.max(losses, where=accepted, initial=-np.inf)))
    return tied if 2 * tied > losses.size else None


def unsure_order(drift: Drift, ratio: Ratio) -> str | None:
    """The plain loss beneath a learned one, where the rows are so unlike those of the fit that its order may not hold.

    Small drifts, which many rows make certain, do not count.
    """
    base = ratio.loss.drift_loss
    if base is None or not ratio.loss.reorders or drift.distance is None or drift.p_value is None:
        return None
    return base.name if drift.distance >= _FAR and drift.p_value < _SURE else None


def drift_figure(curve: Curve, ratio: Ratio) -> Drift:
    """How far losses have moved since the fit; rejectors of an older version do not keep what a fitted loss needs."""
    quantiles = ratio.loss_quantiles if ratio.loss.drift_loss is None else ratio.drift_quantiles
    if quantiles is None:
        return Drift(distance=None, p_value=None)
    return Drift(**loss_shift(curve, quantiles, ratio.rows))


def group_looks(columns: Mapping[str, Any], doubt: Floats, drift: Floats, ratio: Ratio) -> tuple[GroupLook, ...]:
    """Without labels: coverage, expected accuracy and drift of each group, the largest drift first."""
    numbers, names = numbered(columns["group"])
    order = np.argsort(numbers, kind="stable")
    members = np.split(order, np.searchsorted(numbers[order], np.arange(1, len(names))))
    looks = []
    for name, rows in zip(names, members, strict=True):
        accepted = columns["accepted"][rows]
        shift = drift_figure(curve_of(drift[rows]), ratio)
        if shift.p_value is not None:
            shift = replace(shift, p_value=min(1.0, shift.p_value * len(names)))
        looks.append(
            GroupLook(
                group=name,
                rows=int(rows.size),
                coverage=coverage_figure(int(np.count_nonzero(accepted)), int(rows.size)),
                expected_accuracy=expected_accuracy(doubt[rows], accepted).value,
                drift=shift,
            )
        )
    known = all(look.drift.p_value is not None for look in looks)
    return tuple(sorted(looks, key=attrgetter("drift.p_value", "group") if known else attrgetter("group")))


def where_moved(losses: Floats, ratio: Ratio, by: str | None, looks: Sequence[GroupLook]) -> Where | None:
    """The regions of the loss that hold more or fewer rows than in the fit, and groups that are not like the rest."""
    tables = since_fit(losses, ratio)
    if by is not None and len(looks) > 1:
        tables.append(against_the_rest(by, {look.group: Tally(look.coverage.accepted, look.rows) for look in looks}))
    if not tables:
        return None
    return Where(compared=sum(len(table.names) for table in tables), parts=moved_parts(tables, 1 - CONFIDENCE))


# Classes and groups, from counts of (wrong rejected, right rejected, wrong accepted, right accepted) rows

Cells = NDArray[np.int64]


def count_cells(numbers: Integers, kinds: int, wrong: Booleans, accepted: Booleans) -> Cells:
    """The counts (kinds x 4) of the rows of each number."""
    counts = np.zeros(4 * kinds, np.int64)
    for part in _pieces(wrong.size):
        cell = 2 * accepted[part].astype(np.int64) + ~wrong[part]
        counts += np.bincount(4 * numbers[part].astype(np.int64) + cell, minlength=counts.size)
    return counts.reshape(-1, 4)


def per_class(counts: Cells, names: Sequence[str] | None) -> tuple[ClassRow, ...]:
    """By true label; classes without rows are left out."""
    rows = []
    for number in np.flatnonzero(counts.sum(axis=1)).tolist():
        *_, wrong, right = cells = counts[number].tolist()
        rows.append(
            ClassRow(
                class_=number if names is None else names[number],
                rows=sum(cells),
                coverage=(wrong + right) / sum(cells),
                accuracy=right / (wrong + right) if wrong + right else None,
            )
        )
    return tuple(rows)


def per_group(by_group: Sequence[tuple[str, Cells]]) -> tuple[GroupRow, ...]:
    """From the counts of each group, in the order given."""
    rows = []
    for name, counts in by_group:
        wrong_rejected, _, wrong, right = cells = counts.tolist()
        rows.append(
            GroupRow(
                group=name,
                rows=sum(cells),
                coverage=coverage_figure(wrong + right, sum(cells)),
                accuracy=accuracy_figure(wrong, wrong + right),
                base_accuracy=accuracy_figure(wrong_rejected + wrong, sum(cells)),
            )
        )
    return tuple(rows)


def worst_group(groups: Sequence[GroupRow]) -> WorstGroup:
    """Of each figure of the groups the lowest that is defined, for gates."""
    worst: dict[str, Any] = {}
    for entry in entries(WorstGroup):
        shares = [(row.group, getattr(row, entry.name)) for row in groups]
        defined = [(group, share) for group, share in shares if share.value is not None]
        group, lowest = min(defined, key=lambda pair: pair[1].value, default=(None, None))
        nothing = Accuracy(**proportion(0, 0), errors=0)  # every group has a coverage
        worst[entry.name] = replace(lowest or nothing, group=group)
    return WorstGroup(**worst)


MOST_CLASSES = 12
"""More classes do not fit a page: those with the most errors are shown, the others as one."""


def confusion_matrix(counts: Cells, confused: Integers, names: Sequence[str] | None) -> ConfusionMatrix:
    """From the counts by class and the accepted errors, each coded as label * classes + prediction.

    >>> counts = np.array([[1, 0, 2, 5], [0, 3, 0, 4]])
    >>> [(row.predicted, row.rejected) for row in confusion_matrix(counts, np.array([1, 1]), None).rows]
    [((5, 2), 1), ((0, 4), 3)]
    """
    classes = len(counts)
    labels, predictions = np.divmod(confused, classes)
    errors = np.bincount(labels, minlength=classes) + np.bincount(predictions, minlength=classes)
    shown = np.arange(classes)
    if classes > MOST_CLASSES:
        shown = np.sort(np.argsort(-errors, kind="stable")[: MOST_CLASSES - 1])
    others = classes - shown.size
    size = shown.size + (others > 0)
    place = np.full(classes, size - 1)
    place[shown] = np.arange(shown.size)
    matrix = np.bincount(place[labels] * size + place[predictions], minlength=size * size).reshape(size, size)
    rejected = np.zeros(size, np.int64)
    np.add.at(rejected, place, counts[:, 0] + counts[:, 1])
    np.add.at(matrix, (place, place), counts[:, 3])
    titles = [str(number) if names is None else names[number] for number in shown.tolist()]
    titles += [f"{others} others"] if others else []
    return ConfusionMatrix(
        rows=tuple(
            ConfusionRow(class_=title, predicted=tuple(row.tolist()), rejected=int(left))
            for title, row, left in zip(titles, matrix, rejected, strict=True)
        ),
        others=others,
    )


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
