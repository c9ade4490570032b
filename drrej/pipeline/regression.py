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
from drrej.core.types import Booleans, Floats
from drrej.data.dump import Block, Dump
from drrej.documents.gates import Gate, metrics_of
from drrej.documents.rejector import Rejector
from drrej.engines.passes import map_blocks
from drrej.engines.protocol import Pass
from drrej.errors import DumpError, OptionError
from drrej.pipeline.application import Application
from drrej.pipeline.groups import OnUnseen
from drrej.pipeline.scoring import column_values
from drrej.pipeline.source import Source

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
class _Residuals:
    losses: Floats
    accepted: Booleans
    residuals: Floats


def evaluate_regression(
    source: Source,
    rejector: Rejector,
    prediction: str | None = None,
    target: str | None = None,
    gates: Sequence[Gate] = (),
    on_unseen_group: OnUnseen = "error",
) -> Report:
    """The report as a plain tree of numbers; `mse` and `mae` stand for those of the accepted rows.

    `prediction` and `target` are columns of the dump; without them those that the rejector remembers.
    """
    for gate in gates:
        gate.check_known(REGRESSION_METRICS)
    dump = source.open(rejector, labelled=False)
    application = Application(rejector, dump, on_unseen_group)
    columns = [
        _named(dump, "prediction", prediction or rejector.columns.prediction),
        _named(dump, "target", target or rejector.columns.target),
    ]

    def of_block(block: Block) -> _Residuals:
        scored = application(block)
        predicted, true = (column_values(block, name) for name in columns)
        return _Residuals(scored.loss, scored.accepted, predicted - true)

    run = Pass("evaluating", labelled=False, keep=(*columns, *application.columns))
    blocks = list(map_blocks(dump, of_block, run, source.engine, source.notes))
    everything = _Residuals(
        np.concatenate([block.losses for block in blocks]),
        np.concatenate([block.accepted for block in blocks]),
        np.concatenate([block.residuals for block in blocks]),
    )
    report = _report(rejector, everything)
    report["gates"] = [gate.judge(report) for gate in gates]
    return report


def _named(dump: Dump, parameter: str, name: str | None) -> str:
    if name is None:
        raise OptionError(f"a regression is evaluated with `prediction=COL` and `target=COL`; `{parameter}` is missing")
    if name not in dump.schema.names:
        raise DumpError(f"{dump.parts[0].name}: there is no column '{name}' (`{parameter}`)")
    return name


def _report(rejector: Rejector, rows: _Residuals) -> Report:
    threshold, density = rejector.need_threshold(), rejector.need_ratio().density
    with np.errstate(over="ignore"):
        errors = [np.square(rows.residuals), np.abs(rows.residuals)]
    squared, absolute = (SelectiveRisk.of(rows.losses, error) for error in errors)
    mse, mae = (_mean_error(rows, error) for error in errors)
    accepted = int(np.count_nonzero(rows.accepted))
    weights = np.diff(squared.accepted, prepend=0)
    with np.errstate(over="ignore", invalid="ignore"):
        ratio = float(np.sum(weights * density.ratio(squared.losses)) / squared.rows)
    return {
        "format": FORMAT,
        "drrej_version": __version__,
        "task": "regression",
        "rows": squared.rows,
        "tau": threshold.tau,
        "cutoff": threshold.cutoff,
        "coverage": {**proportion(accepted, squared.rows), "accepted": accepted},
        "mse": _error(squared, mse),
        "mae": _error(absolute, mae),
        "ratio": {"mean": json_number(ratio)},
        "curve": [
            _curve_point(step / CURVE_STEPS, density.cutoff(step / CURVE_STEPS), squared, absolute)
            for step in range(1, CURVE_STEPS + 1)
        ],
    }


def _mean_error(rows: _Residuals, errors: Floats) -> float | None:
    """The mean error of the accepted rows, added up in the order of the curve."""
    if not rows.accepted.any():
        return None
    return SelectiveRisk.of(rows.losses[rows.accepted], errors[rows.accepted]).below(None)[1]


def _error(risk: SelectiveRisk, of_accepted: float | None) -> Report:
    return {
        "value": of_accepted,
        "all": risk.below(None)[1],
        "aurc": {"value": json_number(risk.aurc()), "convention": AURC_CONVENTION},
        "augrc": {"value": json_number(risk.augrc()), "convention": AUGRC_CONVENTION},
    }


def _curve_point(tau: float, cutoff: float | None, squared: SelectiveRisk, absolute: SelectiveRisk) -> Report:
    accepted, mse = squared.below(cutoff)
    return {"tau": tau, "coverage": accepted / squared.rows, "mse": mse, "mae": absolute.below(cutoff)[1]}
