"""The report of a regression with rejection: selective squared and absolute error, their curves and areas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from msgspec.structs import replace

from drrej.core.certify_mean import mean_upper_bound
from drrej.core.curves import CONVENTIONS, MeanCurve
from drrej.core.intervals import CONFIDENCE, json_number
from drrej.core.thresholds import regression_errors
from drrej.data.dump import Block, Dump
from drrej.documents.gates import Gate, check_gate
from drrej.documents.rejector import Rejector
from drrej.documents.report import ErrorFigures, ErrorPoint, Ranking, RatioMean, RegressionReport
from drrej.engines.protocol import Pass
from drrej.errors import DumpError, OptionError
from drrej.pipeline.collect import collect
from drrej.pipeline.evaluate import Ends, target_of
from drrej.pipeline.figures import CURVE_STEPS, coverage_figure, decision
from drrej.pipeline.freshness import ALL_STEPS, SeenRows
from drrej.pipeline.groups import OnUnseen
from drrej.pipeline.score import Scorer, column_values
from drrej.pipeline.source import Source, without_bad_files

AUGRC_CONVENTION = "trapezoid of (sum of accepted errors) / rows over distinct losses, from (0, 0)"


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
    >>> from drrej import RatioOptions, Rule, fit, threshold
    >>> from drrej.core.losses import ColumnLoss
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
    seen, scorer = SeenRows.of(rejector, ALL_STEPS), Scorer(rejector, dump, on_unseen=on_unseen_group)
    names = [
        _named(dump, "prediction", prediction or rejector.columns.prediction),
        _named(dump, "target", target or rejector.columns.target),
    ]
    run = Pass("evaluating", labelled=False, keep=(*names, *scorer.columns), scores=scorer.columns)
    columns = collect(source, dump, partial(_row_columns, scorer=scorer, seen=seen, names=names), run)
    loss, accepted, density = columns["loss"], columns["accepted"], rejector.need_ratio().density
    curves = {kind: MeanCurve.of(loss, regression_errors(columns["residual"], kind)) for kind in ("mse", "mae")}
    distinct, rows = np.diff(curves["mse"].accepted, prepend=0), curves["mse"].rows
    with np.errstate(over="ignore", invalid="ignore"):
        ratio = float(np.sum(distinct * density.ratio(curves["mse"].losses)) / rows)
    taus = [step / CURVE_STEPS for step in range(1, CURVE_STEPS + 1)]
    report = RegressionReport(
        **decision(rejector),
        seen_by=seen.steps(columns),
        rows=rows,
        coverage=coverage_figure(int(np.count_nonzero(accepted)), rows),
        mse=_error_figures(curves["mse"], _mean_accepted(columns, "mse")),
        mae=_error_figures(curves["mae"], _mean_accepted(columns, "mae")),
        ratio=RatioMean(mean=json_number(ratio)),
        curve=tuple(_curve_point(tau, density.cutoff(tau), **curves) for tau in taus),
        gates=(),
    )
    report = replace(report, target=target_of(report, rejector.need_threshold(), _limited_mean(columns, rejector)))
    return replace(report, gates=tuple(gate.judge(report) for gate in gates))


def _named(dump: Dump, parameter: str, name: str | None) -> str:
    if name is None:
        raise OptionError(f"a regression is evaluated with `prediction=COL` and `target=COL`; `{parameter}` is missing")
    if name not in dump.schema.names:
        raise DumpError(f"{dump.parts[0].name}: there is no column '{name}' (`{parameter}`)")
    return name


def _row_columns(block: Block, scorer: Scorer, seen: SeenRows, names: Sequence[str]) -> dict[str, Any]:
    scored = scorer(block)
    predicted, true = (column_values(block, name) for name in names)
    columns = {"loss": scored.loss, "accepted": scored.accepted, "residual": predicted - true}
    return columns | (seen.look_up(scored.keys[~scored.block.bad]) if seen.sets else {})


def _mean_accepted(columns: Mapping[str, Any], kind: str, clip: float | None = None) -> float | None:
    """The mean error of the accepted rows, added up in the order of the curve; None if there is none."""
    accepted = columns["accepted"]
    errors = regression_errors(columns["residual"][accepted], kind, clip)
    return MeanCurve.of(columns["loss"][accepted], errors).below(None)[1] if errors.size else None


def _limited_mean(columns: Mapping[str, Any], rejector: Rejector) -> tuple[float | None, Ends | None]:
    """The mean error of the accepted rows as the rule has it, with its 95 % interval where errors have a limit."""
    rule = rejector.need_threshold().rule
    if rule.kind not in ("mse", "mae"):
        return None, None
    mean, clip = _mean_accepted(columns, rule.kind, rule.clip), rule.clip
    if clip is None or mean is None:
        return mean, None
    errors, tail = regression_errors(columns["residual"][columns["accepted"]], rule.kind, clip), (1.0 - CONFIDENCE) / 2
    lower = clip - mean_upper_bound(clip - errors, clip, tail)
    return mean, (min(max(lower, 0.0), mean), max(mean_upper_bound(errors, clip, tail), mean))


def _error_figures(curve: MeanCurve, of_accepted: float | None) -> ErrorFigures:
    return ErrorFigures(
        value=of_accepted,
        all=curve.below(None)[1],
        aurc=Ranking(value=json_number(curve.aurc()), convention=CONVENTIONS["aurc"]),
        augrc=Ranking(value=json_number(curve.augrc()), convention=AUGRC_CONVENTION),
    )


def _curve_point(tau: float, cutoff: float | None, mse: MeanCurve, mae: MeanCurve) -> ErrorPoint:
    accepted, squared = mse.below(cutoff)
    return ErrorPoint(tau=tau, coverage=accepted / mse.rows, mse=squared, mae=mae.below(cutoff)[1])
