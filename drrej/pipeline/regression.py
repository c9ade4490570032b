"""The report of a regression with rejection: selective squared and absolute error, their curves and areas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from drrej.core.certify_mean import mean_upper_bound
from drrej.core.curves import AURC_CONVENTION, MeanCurve
from drrej.core.intervals import CONFIDENCE, json_number
from drrej.core.reuse import Sighting
from drrej.core.thresholds import regression_errors
from drrej.core.types import Booleans, Floats
from drrej.data.dump import Block, Dump
from drrej.documents.gates import Gate
from drrej.documents.metrics import check_gate
from drrej.documents.regression import ErrorArea, ErrorFigures, ErrorPoint, RatioMean, RegressionReport
from drrej.documents.rejector import Rejector, Threshold
from drrej.engines.protocol import Pass
from drrej.errors import DumpError, OptionError
from drrej.pipeline.evaluate import target_of
from drrej.pipeline.figures import CURVE_STEPS, coverage_figure, decision
from drrej.pipeline.freshness import Seen
from drrej.pipeline.groups import OnUnseen
from drrej.pipeline.passes import map_blocks
from drrej.pipeline.score import Scorer, column_values
from drrej.pipeline.source import Source, without_bad_files
from drrej.records import dataclass

AUGRC_CONVENTION = "trapezoid of (sum of accepted errors) / rows over distinct losses, from (0, 0)"


@dataclass(frozen=True)
class _Residuals:
    losses: Floats
    accepted: Booleans
    residuals: Floats
    sightings: tuple[Sighting, ...] = ()


@without_bad_files
def evaluate_regression(
    source: Source,
    rejector: Rejector,
    prediction: str | None = None,
    target: str | None = None,
    gates: Sequence[Gate] = (),
    on_unseen_group: OnUnseen = "error",
) -> RegressionReport:
    """Report on a dump under a finished rejector; `mse` and `mae` stand for those of the accepted rows.

    `prediction` and `target` are columns of the dump; without them those that the rejector remembers. `mse` is in
    squared units of the target, `mae` in its units.

    >>> import tempfile, numpy as np, pyarrow as pa, pyarrow.parquet as pq
    >>> from drrej import ColumnLoss, RatioOptions, Rule, fit, threshold
    >>> from drrej.pipeline.fit import without_logits
    >>> rows = {"variance": np.arange(1.0, 5.0), "mean": np.zeros(4), "value": np.arange(1.0, 5.0)}
    >>> with tempfile.NamedTemporaryFile(suffix=".parquet") as file:
    ...     pq.write_table(pa.table(rows), file.name)
    ...     dump = Source(file.name)
    ...     fitted = fit(dump, without_logits("variance"), RatioOptions(loss=ColumnLoss("variance")))
    ...     report = evaluate_regression(dump, threshold(dump, fitted, Rule("coverage", 0.5)), "mean", "value")
    >>> report.coverage.accepted, report.mse.value, report.mae.value  # of the values 1 and 2
    (2, 2.5, 1.5)
    """
    for gate in gates:
        check_gate(gate, frozenset(), RegressionReport)
    dump = source.open(rejector, labelled=False)
    seen = Seen.of(rejector)
    scorer = Scorer(rejector, dump, on_unseen=on_unseen_group)
    columns = [
        _named(dump, "prediction", prediction or rejector.columns.prediction),
        _named(dump, "target", target or rejector.columns.target),
    ]

    def of_block(block: Block) -> _Residuals:
        scored = scorer(block)
        predicted, true = (column_values(block, name) for name in columns)
        return _Residuals(scored.loss, scored.accepted, predicted - true, seen.look_up(scored))

    run = Pass("evaluating", labelled=False, keep=(*columns, *scorer.columns), scores=scorer.columns)
    blocks = list(map_blocks(source, dump, of_block, run))
    everything = _Residuals(
        np.concatenate([block.losses for block in blocks]),
        np.concatenate([block.accepted for block in blocks]),
        np.concatenate([block.residuals for block in blocks]),
    )
    report = replace(_report(rejector, everything), seen_by=seen.among(block.sightings for block in blocks))
    chosen = rejector.need_threshold()
    report = replace(report, target=target_of(report, chosen, _limited_mean(chosen, everything)))
    return replace(report, gates=tuple(gate.judge(report) for gate in gates))


def _limited_mean(threshold: Threshold, rows: _Residuals) -> tuple[float | None, tuple[float, float] | None]:
    """The mean error of the accepted rows as the rule has it, with its 95 % interval where errors have a limit."""
    rule = threshold.rule
    if rule.kind not in ("mse", "mae") or not rows.accepted.any():
        return None, None
    errors = regression_errors(rows.residuals, rule.kind, rule.clip)
    mean = _mean_error(rows, errors)
    if rule.clip is None or mean is None:
        return mean, None
    kept, tail = errors[rows.accepted], (1.0 - CONFIDENCE) / 2
    lower = rule.clip - mean_upper_bound(rule.clip - kept, rule.clip, tail)
    return mean, (min(max(lower, 0.0), mean), max(mean_upper_bound(kept, rule.clip, tail), mean))


def _named(dump: Dump, parameter: str, name: str | None) -> str:
    if name is None:
        raise OptionError(f"a regression is evaluated with `prediction=COL` and `target=COL`; `{parameter}` is missing")
    if name not in dump.schema.names:
        raise DumpError(f"{dump.parts[0].name}: there is no column '{name}' (`{parameter}`)")
    return name


def _report(rejector: Rejector, rows: _Residuals) -> RegressionReport:
    density = rejector.need_ratio().density
    with np.errstate(over="ignore"):
        errors = [np.square(rows.residuals), np.abs(rows.residuals)]
    squared, absolute = (MeanCurve.of(rows.losses, error) for error in errors)
    mse, mae = (_mean_error(rows, error) for error in errors)
    weights = np.diff(squared.accepted, prepend=0)
    with np.errstate(over="ignore", invalid="ignore"):
        ratio = float(np.sum(weights * density.ratio(squared.losses)) / squared.rows)
    taus = [step / CURVE_STEPS for step in range(1, CURVE_STEPS + 1)]
    return RegressionReport(
        **decision(rejector),
        rows=squared.rows,
        coverage=coverage_figure(int(np.count_nonzero(rows.accepted)), squared.rows),
        mse=_error(squared, mse),
        mae=_error(absolute, mae),
        ratio=RatioMean(mean=json_number(ratio)),
        curve=tuple(_curve_point(tau, density.cutoff(tau), squared, absolute) for tau in taus),
        gates=(),
    )


def _mean_error(rows: _Residuals, errors: Floats) -> float | None:
    """The mean error of the accepted rows, added up in the order of the curve."""
    if not rows.accepted.any():
        return None
    return MeanCurve.of(rows.losses[rows.accepted], errors[rows.accepted]).below(None)[1]


def _error(risk: MeanCurve, of_accepted: float | None) -> ErrorFigures:
    return ErrorFigures(
        value=of_accepted,
        all=risk.below(None)[1],
        aurc=ErrorArea(value=json_number(risk.aurc()), convention=AURC_CONVENTION),
        augrc=ErrorArea(value=json_number(risk.augrc()), convention=AUGRC_CONVENTION),
    )


def _curve_point(tau: float, cutoff: float | None, squared: MeanCurve, absolute: MeanCurve) -> ErrorPoint:
    accepted, mse = squared.below(cutoff)
    return ErrorPoint(tau=tau, coverage=accepted / squared.rows, mse=mse, mae=absolute.below(cutoff)[1])
