"""The report of a regression with rejection: selective squared and absolute error, their curves and areas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from drrej._version import __version__
from drrej.core.curves import AURC_CONVENTION
from drrej.core.intervals import json_number, proportion
from drrej.core.selective import SelectiveRisk
from drrej.core.types import Floats
from drrej.data import Block
from drrej.documents.gates import Gate, metrics_of
from drrej.documents.rejector import Rejector
from drrej.engines.threads import Pass, map_blocks
from drrej.errors import DumpError
from drrej.pipeline.common import Source
from drrej.pipeline.scoring import column_values, score

FORMAT = "drrej-regression-report/1"
"""1: the first format."""

CURVE_STEPS = 50
AUGRC_CONVENTION = "trapezoid of (sum of accepted errors) / rows over distinct losses, from (0, 0)"

Report = dict[str, Any]

_ERROR: Report = {"value": None, "all": None, "aurc": {"value": None}, "augrc": {"value": None}}
REGRESSION_METRICS = frozenset(
    metrics_of(
        {
            "rows": None,
            "tau": None,
            "cutoff": None,
            "coverage": {"value": None, "lower": None, "upper": None, "accepted": None},
            "mse": _ERROR,
            "mae": _ERROR,
            "ratio": {"mean": None},
        }
    )
)
"""Every metric that a gate may name, known before any work."""


@dataclass(frozen=True)
class _Taken:
    losses: Floats
    residuals: Floats


def evaluate_regression(
    source: Source, rejector: Rejector, prediction: str, target: str, gates: Sequence[Gate] = ()
) -> Report:
    """The report as a plain tree of numbers; `mse` and `mae` stand for those of the accepted rows."""
    rejector.need_threshold()
    for gate in gates:
        gate.check_known(REGRESSION_METRICS)
    dump = source.open(rejector, labelled=False)
    loss = rejector.need_ratio().row_loss
    loss.check(dump.schema.names, dump.parts[0].name)
    for option, name in (("`prediction`", prediction), ("`target`", target)):
        if name not in dump.schema.names:
            raise DumpError(f"{dump.parts[0].name}: there is no column '{name}' ({option})")

    def of_block(block: Block) -> _Taken:
        losses = score(block, rejector, loss).losses
        return _Taken(losses, column_values(block, prediction) - column_values(block, target))

    run = Pass("evaluating", labelled=False, keep=(prediction, target, *loss.columns))
    taken = list(map_blocks(dump, of_block, run, source.engine, source.notes))
    losses = np.concatenate([part.losses for part in taken])
    residuals = np.concatenate([part.residuals for part in taken])
    report = _report(rejector, losses, residuals)
    report["gates"] = [gate.judge(report) for gate in gates]
    return report


def _report(rejector: Rejector, losses: Floats, residuals: Floats) -> Report:
    threshold, density = rejector.need_threshold(), rejector.need_ratio().density
    with np.errstate(over="ignore"):
        squared, absolute = (SelectiveRisk.of(losses, e) for e in (np.square(residuals), np.abs(residuals)))
    accepted, _ = squared.below(threshold.cutoff)
    rows = squared.rows
    weights = np.diff(squared.accepted, prepend=0)
    with np.errstate(over="ignore", invalid="ignore"):
        ratio = float(np.sum(weights * density.ratio(squared.losses)) / rows)
    return {
        "format": FORMAT,
        "drrej_version": __version__,
        "task": "regression",
        "rows": rows,
        "tau": threshold.tau,
        "cutoff": threshold.cutoff,
        "coverage": {**proportion(accepted, rows), "accepted": accepted},
        "mse": _error(squared, threshold.cutoff),
        "mae": _error(absolute, threshold.cutoff),
        "ratio": {"mean": json_number(ratio)},
        "curve": [
            _curve_point(step / CURVE_STEPS, density.cutoff(step / CURVE_STEPS), squared, absolute)
            for step in range(1, CURVE_STEPS + 1)
        ],
    }


def _error(risk: SelectiveRisk, cutoff: float | None) -> Report:
    return {
        "value": risk.below(cutoff)[1],
        "all": risk.below(None)[1],
        "aurc": {"value": json_number(risk.aurc()), "convention": AURC_CONVENTION},
        "augrc": {"value": json_number(risk.augrc()), "convention": AUGRC_CONVENTION},
    }


def _curve_point(tau: float, cutoff: float | None, squared: SelectiveRisk, absolute: SelectiveRisk) -> Report:
    accepted, mse = squared.below(cutoff)
    return {"tau": tau, "coverage": accepted / squared.rows, "mse": mse, "mae": absolute.below(cutoff)[1]}
