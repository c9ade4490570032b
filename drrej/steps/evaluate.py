"""Step 4: the coverage report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drrej._version import __version__
from drrej.dumps import Block, Dump
from drrej.errors import DumpError
from drrej.exact import Total
from drrej.gates import Gate, metrics_of
from drrej.losses import LOSSES, Floats
from drrej.metrics import (
    AUGRC_CONVENTION,
    AURC_CONVENTION,
    E_AURC_CONVENTION,
    CalibrationTally,
    LabelledRows,
    RiskCoverage,
    json_number,
    proportion,
)
from drrej.rejector import Rejector
from drrej.steps.common import Source
from drrej.stream import Pass, map_blocks
from drrej.temperature import label_gaps

FORMAT = "drrej-report/1"
"""1: the first format."""

CURVE_STEPS = 50

Report = dict[str, Any]


@dataclass(frozen=True)
class _Partial:
    """What evaluation takes from a block."""

    right: Floats
    wrong: Floats
    uncalibrated: CalibrationTally
    all: CalibrationTally
    accepted: CalibrationTally
    by_class: NDArray[np.int64]  # class x (wrong rejected, right rejected, wrong accepted, right accepted)
    ratio: Total
    ratio_squared: Total


def evaluate(source: Source, rejector: Rejector, gates: Sequence[Gate] = ()) -> Report:
    """The report of labelled rows as a plain tree of numbers; gates are judged last, see `failed_gates`."""
    rejector.need_threshold()
    for gate in gates:
        gate.check_known(KNOWN_METRICS)
    dump = source.open(rejector, labelled=True)
    evaluator = _Evaluator(rejector, dump.classes)
    partials = list(map_blocks(dump, evaluator, Pass("evaluating", labelled=True), source.engine, source.notes))
    if not partials:
        raise DumpError(f"{dump.parts[0].name}: no row has a label")
    report = _report(rejector, dump, partials)
    report["gates"] = [gate.judge(report) for gate in gates]
    return report


def failed_gates(report: Report) -> list[dict[str, Any]]:
    """The rows of gates that did not pass."""
    return [gate for gate in report["gates"] if not gate["passed"]]


class _Evaluator:
    def __init__(self, rejector: Rejector, classes: int) -> None:
        self.rejector = rejector
        self.classes = classes

    def __call__(self, block: Block) -> _Partial:
        assert block.labels is not None
        rejector, ratio = self.rejector, self.rejector.need_ratio()
        kind = LOSSES[ratio.loss]
        needs = kind.needs if "q" in kind.needs else kind.needs + "q"
        betas = [rejector.beta, 1.0]
        sums = block.sums(betas, [needs, "q"], rejector.precision)
        losses = kind.expected(sums.at[0])
        accepted = rejector.need_threshold().accepts(losses)
        right = sums.prediction == block.labels
        gaps = label_gaps(block.logits, block.labels, sums.largest)
        everything, kept = LabelledRows(sums.at[0], gaps, right).tally(betas[0], accepted)
        (raw,) = LabelledRows(sums.at[1], gaps, right).tally(1.0)
        cell = block.labels * 4 + accepted * 2 + right
        with np.errstate(over="ignore"):
            rho = ratio.density.ratio(losses)
            squared = np.square(rho)
        return _Partial(
            right=losses[right],
            wrong=losses[~right],
            uncalibrated=raw,
            all=everything,
            accepted=kept,
            by_class=np.bincount(cell, minlength=4 * self.classes).reshape(self.classes, 4),
            ratio=Total.of(rho),
            ratio_squared=Total.of(squared),
        )


def _merge(partials: list[_Partial]) -> _Partial:
    first, *others = partials
    merged = first
    for other in others:
        merged = _Partial(
            right=first.right,
            wrong=first.wrong,
            uncalibrated=merged.uncalibrated + other.uncalibrated,
            all=merged.all + other.all,
            accepted=merged.accepted + other.accepted,
            by_class=merged.by_class + other.by_class,
            ratio=merged.ratio + other.ratio,
            ratio_squared=merged.ratio_squared + other.ratio_squared,
        )
    return merged


def _report(rejector: Rejector, dump: Dump, partials: list[_Partial]) -> Report:
    threshold, ratio = rejector.need_threshold(), rejector.need_ratio()
    merged = _merge(partials)
    right = np.concatenate([partial.right for partial in partials])
    wrong = np.concatenate([partial.wrong for partial in partials])
    partials.clear()
    points = RiskCoverage.of(right, wrong)
    rows = points.rows
    accepted, errors = points.below(threshold.cutoff)
    tallies = {"uncalibrated": merged.uncalibrated, "all": merged.all, "accepted": merged.accepted}
    return {
        "format": FORMAT,
        "drrej_version": __version__,
        "rows": rows,
        "classes": dump.classes,
        "tau": threshold.tau,
        "cutoff": threshold.cutoff,
        "coverage": {**proportion(accepted, rows), "accepted": accepted},
        "accuracy": {**proportion(accepted - errors, accepted), "errors": errors},
        "base_accuracy": {**proportion(rows - points.total_errors, rows), "errors": points.total_errors},
        "nll": {name: tally.mean_nll for name, tally in tallies.items()},
        "ece": {name: tally.ece for name, tally in tallies.items()},
        "brier": {name: tally.mean_brier for name, tally in tallies.items()},
        "aurc": {"value": points.aurc(), "convention": AURC_CONVENTION},
        "e_aurc": {"value": points.e_aurc(), "convention": E_AURC_CONVENTION},
        "augrc": {"value": points.augrc(), "convention": AUGRC_CONVENTION},
        "ratio": _drift(merged, rows, ratio.variance, ratio.rows),
        "curve": [
            _curve_point(ratio.density.cutoff(step / CURVE_STEPS), step, points) for step in range(1, CURVE_STEPS + 1)
        ],
        "per_class": _per_class(merged.by_class, rejector.class_names),
    }


def _drift(merged: _Partial, rows: int, fit_variance: float | None, fit_rows: int) -> Report:
    """The mean ratio, 1 in expectation without drift; its standard error includes that of the fit."""
    mean, square = merged.ratio.mean(rows), merged.ratio_squared.mean(rows)
    if mean is None or square is None or fit_variance is None:
        return {"mean": mean, "std_error": None}
    variance = max(square - mean * mean, 0.0)
    return {"mean": mean, "std_error": json_number(np.sqrt(variance / rows + fit_variance / fit_rows))}


def _curve_point(cutoff: float | None, step: int, points: RiskCoverage) -> Report:
    accepted, errors = points.below(cutoff)
    return {
        "tau": step / CURVE_STEPS,
        "coverage": accepted / points.rows,
        "accuracy": (accepted - errors) / accepted if accepted else None,
    }


def _per_class(counts: NDArray[np.int64], names: Sequence[str] | None) -> list[Report]:
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


_CALIBRATION: Report = {"uncalibrated": None, "all": None, "accepted": None}
_PROPORTION: Report = {"value": None, "lower": None, "upper": None}
_SKELETON: Report = {
    "rows": None,
    "classes": None,
    "tau": None,
    "cutoff": None,
    "coverage": {**_PROPORTION, "accepted": None},
    "accuracy": {**_PROPORTION, "errors": None},
    "base_accuracy": {**_PROPORTION, "errors": None},
    "nll": _CALIBRATION,
    "ece": _CALIBRATION,
    "brier": _CALIBRATION,
    "aurc": {"value": None},
    "e_aurc": {"value": None},
    "augrc": {"value": None},
    "ratio": {"mean": None, "std_error": None},
}
KNOWN_METRICS = frozenset(metrics_of(_SKELETON))
"""Every metric that a gate may name, known before any work."""
