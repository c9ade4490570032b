"""Sections of the report, from tallies and curves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drrej._version import __version__
from drrej.core import curves
from drrej.core.curves import Curve
from drrej.core.drift import RatioMoments, RatioSums, loss_shift, ratio_shift
from drrej.core.intervals import proportion
from drrej.core.ratio import DensityRatio
from drrej.core.ratio_error import FITTED_ROWS
from drrej.core.types import Booleans, Floats, Integers
from drrej.data.dump import Block
from drrej.documents.codec import entries
from drrej.documents.points import Accuracy, Coverage, CurvePoint, TauPoint
from drrej.documents.rejector import Ratio, Rejector
from drrej.documents.report import (
    ClassRow,
    ConfusionMatrix,
    ConfusionRow,
    Drift,
    Example,
    Examples,
    ExpectedAccuracy,
    GroupRow,
    MeanRatio,
    WorstGroup,
)
from drrej.records import dataclass

CURVE_STEPS = 50
CONVENTIONS = {
    "aurc": curves.AURC_CONVENTION,
    "e_aurc": curves.E_AURC_CONVENTION,
    "augrc": curves.AUGRC_CONVENTION,
    "standard_e_aurc": curves.STANDARD_E_AURC_CONVENTION,
    "naurc": curves.NAURC_CONVENTION,
    "failure_auroc": curves.FAILURE_AUROC_CONVENTION,
    "fpr_at_95_tpr": curves.FPR_AT_95_TPR_CONVENTION,
}
"""What exactly is computed, for figures that others compute in other ways."""

RANKINGS = {
    "naurc": Curve.naurc,
    "failure_auroc": Curve.failure_auroc,
    "fpr_at_95_tpr": Curve.fpr_at_95_tpr,
}


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


def expected_accuracy(doubt_accepted: float | None, doubt: float | None) -> ExpectedAccuracy:
    """From the mean probability of an error of the accepted rows and of all."""
    value, of_all = (None if mean is None else 1.0 - mean for mean in (doubt_accepted, doubt))
    return ExpectedAccuracy(value=value, all=of_all)


def ratio_figure(sums: RatioSums, rows: int, ratio: Ratio) -> MeanRatio:
    """The mean ratio; no p-value where the loss was fitted to the rows of the ratio, so that its mean need not be 1."""
    fit = None if ratio.variance is None else RatioMoments(ratio.rows, 1.0, ratio.variance, ratio.third)
    found = {**ratio_shift(sums.moments(rows), fit), "mean": sums.mean(rows)}
    told = next((bound for bound in ratio.bounds or () if bound.theorem == FITTED_ROWS), None)
    figure = MeanRatio(**found, error=None if told is None else told.value)
    return figure if ratio.loss.drift_loss is None else replace(figure, p_value=None)


_FAR, _SURE = 0.1, 0.001
"""A distance from the fit's losses, and a p-value, from which on a learned order is in doubt."""


def unsure_order(drift: Drift, ratio: Ratio) -> str | None:
    """The plain loss beneath a learned one, where the rows are so unlike those of the fit that its order may not hold.

    Small drifts, which many rows make certain, do not count.
    """
    base = ratio.loss.drift_loss
    if base is None or not ratio.loss.reorders or drift.distance is None or drift.p_value is None:
        return None
    return base.name if drift.distance >= _FAR and drift.p_value < _SURE else None


def drift_figure(points: Curve, ratio: Ratio) -> Drift:
    """How far losses have moved since the fit; rejectors of an older version do not keep what a fitted loss needs."""
    if ratio.loss.drift_loss is None:
        return Drift(**loss_shift(points, ratio.loss_quantiles, ratio.rows))
    if ratio.drift_quantiles is None:
        return Drift(distance=None, p_value=None)
    return Drift(**loss_shift(points, ratio.drift_quantiles, ratio.rows))


def tau_curve(density: DensityRatio, points: Curve) -> tuple[TauPoint, ...]:
    """Coverage and accuracy at the paper's 50 steps of tau in (0, 1]."""
    taus = [step / CURVE_STEPS for step in range(1, CURVE_STEPS + 1)]
    return tuple(TauPoint(tau=tau, **_at(points, *points.below(density.cutoff(tau)))) for tau in taus)


def coverage_curve(points: Curve) -> tuple[CurvePoint, ...]:
    """Accuracy at 50 steps of coverage in (0, 1], each the smallest coverage that is reached there."""
    wanted = [-(-step * points.rows // CURVE_STEPS) for step in range(1, CURVE_STEPS + 1)]
    return tuple(CurvePoint(**_at(points, *points.reaching(rows))) for rows in wanted)


def _at(points: Curve, accepted: int, errors: int) -> dict[str, Any]:
    accuracy = accuracy_figure(errors, accepted)
    ends = {"lower": accuracy.lower, "upper": accuracy.upper}
    return {"coverage": accepted / points.rows, "accuracy": accuracy.value, **ends}


def per_class(counts: NDArray[np.int64], names: Sequence[str] | None) -> tuple[ClassRow, ...]:
    """By true label; classes without rows are left out."""
    present = map(int, np.flatnonzero(counts.sum(axis=1)))
    return tuple(_class(number if names is None else names[number], counts[number].tolist()) for number in present)


def _class(name: int | str, cells: Sequence[int]) -> ClassRow:
    _, _, wrong, right = cells
    accepted, rows = wrong + right, sum(cells)
    accuracy = right / accepted if accepted else None
    return ClassRow(class_=name, rows=rows, coverage=accepted / rows, accuracy=accuracy)


def cells_of(counts: Counter[tuple[str, int]], name: str) -> list[int]:
    """The counts (wrong rejected, right rejected, wrong accepted, right accepted) under a name."""
    return [counts[name, cell] for cell in range(4)]


def per_group(counts: Counter[tuple[str, int]]) -> tuple[GroupRow, ...]:
    """By group, sorted by name."""
    return tuple(_group(name, cells_of(counts, name)) for name in sorted({name for name, _ in counts}))


def _group(name: str, cells: Sequence[int]) -> GroupRow:
    wrong_rejected, _, wrong, right = cells
    rows, accepted = sum(cells), wrong + right
    return GroupRow(
        group=name,
        rows=rows,
        coverage=coverage_figure(accepted, rows),
        accuracy=accuracy_figure(wrong, accepted),
        base_accuracy=accuracy_figure(wrong_rejected + wrong, rows),
    )


def worst_group(groups: Sequence[GroupRow]) -> WorstGroup:
    """Of each figure of the groups the lowest that is defined, for gates."""
    worst = {}
    for entry in entries(WorstGroup):
        found = [(row.group, getattr(row, entry.name)) for row in groups]
        defined = [(group, share) for group, share in found if share.value is not None]
        group, lowest = min(defined, key=lambda pair: pair[1].value, default=(None, None))
        figures = proportion(0, 0) if lowest is None else vars(lowest)
        worst[entry.name] = entry.section(group=group, **figures)
    return WorstGroup(**worst)


MOST_CLASSES = 12
"""More classes do not fit a page: those with the most errors are shown, the others as one."""


def confusion_matrix(
    by_class: NDArray[np.int64], confused: NDArray[np.int64], names: Sequence[str] | None
) -> ConfusionMatrix:
    """From counts (classes x wrong rejected, right rejected, wrong accepted, right accepted) and accepted errors.

    Each error is coded as label * classes + prediction.

    >>> counts = np.array([[1, 0, 2, 5], [0, 3, 0, 4]])
    >>> [(row.predicted, row.rejected) for row in confusion_matrix(counts, np.array([1, 1]), None).rows]
    [((5, 2), 1), ((0, 4), 3)]
    """
    classes = len(by_class)
    labels, predictions = np.divmod(confused, classes)
    errors = np.bincount(labels, minlength=classes) + np.bincount(predictions, minlength=classes)
    shown = np.arange(classes)
    if classes > MOST_CLASSES:
        shown = np.sort(np.argsort(-errors, kind="stable")[: MOST_CLASSES - 1])
    others = classes - shown.size
    size = shown.size + (others > 0)
    place = np.full(classes, size - 1)
    place[shown] = np.arange(shown.size)
    counts = np.bincount(place[labels] * size + place[predictions], minlength=size * size).reshape(size, size)
    rejected = np.zeros(size, np.int64)
    np.add.at(rejected, place, by_class[:, 0] + by_class[:, 1])
    np.add.at(counts, (place, place), by_class[:, 3])
    titles = [str(number) if names is None else names[number] for number in shown.tolist()]
    titles += [f"{others} others"] if others else []
    return ConfusionMatrix(
        rows=tuple(
            ConfusionRow(class_=title, predicted=tuple(row.tolist()), rejected=int(left))
            for title, row, left in zip(titles, counts, rejected, strict=True)
        ),
        others=others,
    )


MOST = 25
"""Of each kind."""

_LONGEST = 60


@dataclass(frozen=True)
class Picked:
    """The rows of a block that may be shown, in order: the largest losses first, or the smallest."""

    rejected: tuple[Example, ...]
    wrong: tuple[Example, ...]


@dataclass(frozen=True)
class Picking:
    """The columns to show, and the names of classes."""

    columns: Sequence[str]
    names: Sequence[str] | None

    def of(self, block: Block, labels: Integers, prediction: Integers, loss: Floats, accepted: Booleans) -> Picked:
        """Those of a block; of equal losses the first rows."""
        wrong = np.flatnonzero(accepted & (prediction != labels))
        rejected = np.flatnonzero(~accepted)

        def shown(rows: NDArray[np.int64]) -> tuple[Example, ...]:
            cells = [block.columns.column(name).take(rows).to_pylist() for name in self.columns]
            texts = zip(*cells, strict=True) if cells else ((),) * len(rows)
            return tuple(
                Example(
                    label=self._name(int(labels[row])),
                    prediction=self._name(int(prediction[row])),
                    loss=float(loss[row]),
                    values=tuple(_text(value) for value in values),
                )
                for row, values in zip(rows.tolist(), texts, strict=True)
            )

        return Picked(
            shown(rejected[np.argsort(-loss[rejected], kind="stable")[:MOST]]),
            shown(wrong[np.argsort(loss[wrong], kind="stable")[:MOST]]),
        )

    def together(self, blocks: Sequence[Picked]) -> Examples:
        """Those of all rows, from blocks in order."""
        rejected = [example for block in blocks for example in block.rejected]
        wrong = [example for block in blocks for example in block.wrong]
        return Examples(
            columns=tuple(self.columns),
            rejected=tuple(sorted(rejected, key=lambda example: -example.loss)[:MOST]),
            wrongly_accepted=tuple(sorted(wrong, key=lambda example: example.loss)[:MOST]),
        )

    def _name(self, number: int) -> str:
        return str(number) if self.names is None else self.names[number]


def _text(value: Any) -> str:
    """A value as short text; null is empty."""
    text = "" if value is None else str(value)
    text = text.encode(errors="replace").decode()
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
