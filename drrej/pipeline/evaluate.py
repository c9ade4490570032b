"""Step 4: the coverage report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from drrej.documents.gates import Gate, near
from drrej.documents.metrics import check_gate
from drrej.documents.points import DEFAULT_POINTS, Point
from drrej.documents.regression import RegressionReport
from drrej.documents.rejector import Rejector, Threshold
from drrej.documents.report import GroupRow, Report
from drrej.documents.targets import Counts, Target, judge, judge_cost, judge_mean, wanted_of
from drrej.errors import GateError, OptionError
from drrej.pipeline.baseline import check_same_classes
from drrej.pipeline.evaluate_options import BaselineDump, EvaluateOptions
from drrej.pipeline.labelled import labelled_report
from drrej.pipeline.source import Source, without_bad_files
from drrej.pipeline.unlabelled import unlabelled_report

__all__ = ["BaselineDump", "EvaluateOptions", "check_gates", "evaluate"]


@without_bad_files
def evaluate(
    source: Source, rejector: Rejector, gates: Sequence[Gate] = (), options: EvaluateOptions | None = None
) -> Report:
    """Report on a dump under a finished rejector; gates are judged last, see `Report.failed_gates`.

    The target of the rejector is held against the result, see `Report.target`. Where each group has its own cutoff,
    the report is by these groups unless `options.by` says otherwise.

    >>> from drrej import Rule, calibrate, fit, threshold
    >>> val = Source("sample_data/val.parquet")
    >>> rejector = threshold(val, fit(val, calibrate(val)), Rule("coverage", 0.8))
    >>> report = evaluate(Source("sample_data/test.parquet"), rejector, [Gate.parse("accuracy >= 0.97")])
    >>> report.coverage.accepted, report.rows, report.failed_gates
    (1617, 2060, ())
    """
    options = options or EvaluateOptions()
    threshold = rejector.need_threshold()
    if options.labels and options.by is None:
        options = replace(options, by=threshold.by)
    if not rejector.has_classes:
        raise OptionError("the rejector was made for rows without logits; use evaluate_regression")
    check_gates(gates, options, rejector, source.options.classes)
    if options.baseline is not None:
        check_same_classes(options.baseline, rejector)
    if options.on_bad_row != "error":
        source = replace(source, options=replace(source.options, on_bad_row="skip"))
    if options.labels:
        usual = [Point.parse(text)[0] for text in DEFAULT_POINTS]
        asked = [gate.point for gate in gates if gate.point is not None]
        report = labelled_report(source, rejector, options, list(dict.fromkeys([*usual, *options.points, *asked])))
    else:
        report = unlabelled_report(source, rejector, options)
    report = replace(report, target=target_of(report, threshold))
    return replace(report, gates=tuple(gate.judge(report) for gate in gates))


def check_gates(
    gates: Sequence[Gate],
    options: EvaluateOptions,
    rejector: Rejector | None = None,
    names: Sequence[str] | None = None,
) -> None:
    """Raise when a gate names what this report will not have; without the rejector, as far as can be said.

    `names` are those of the classes, if the rejector has none.
    """
    for gate in gates:
        check_gate(gate, options.conditions(rejector))
        member = gate.slice
        if rejector is not None and member is not None and member.kind == "class":
            known = list(rejector.class_names or names or map(str, range(rejector.classes)))
            if member.member not in known:
                raise GateError(f"gate '{gate.text}': there is no class '{member.member}'{near(member.member, known)}")


Ends = tuple[float, float]


def target_of(
    report: Report | RegressionReport, threshold: Threshold, mean: tuple[float | None, Ends | None] = (None, None)
) -> Target | None:
    """What the threshold was chosen for, and whether these rows show it; None where nothing was promised.

    Where each group has its own cutoff and the report has these groups, each of them is judged, but for those that the
    threshold does not know. A confidence counts only where no row was used that the fit has seen. `mean` is the mean
    error that a rule for a regression limits, with its interval.
    """
    rule = threshold.rule
    if rule.kind == "cost":
        return judge_cost(report.total_cost if isinstance(report, Report) else None, rule.target)
    confidence = None if rule.reused else rule.confidence
    if rule.kind in ("mse", "mae"):
        return judge_mean(rule, *mean, confidence)
    if rule.kind == "mean-cost":
        cost = report.cost if isinstance(report, Report) else None
        ends = None if cost is None or cost.lower is None or cost.upper is None else (cost.lower, cost.upper)
        return judge_mean(rule, None if cost is None else cost.value, ends, confidence)
    return judge(wanted_of(rule), _counts(report, threshold), confidence)


def _counts(report: Report | RegressionReport, threshold: Threshold) -> list[Counts]:
    if isinstance(report, Report) and report.per_group is not None and report.by == threshold.by:
        cutoffs = {group.group: group.cutoff for group in threshold.groups or ()}
        known = [row for row in report.per_group if row.group in cutoffs]
        if known:
            return [_of_group(row, cutoffs[row.group] is None) for row in known]
    errors = report.accuracy.errors if isinstance(report, Report) and report.accuracy is not None else None
    nothing_rejected = threshold.by is None and threshold.cutoff is None
    return [Counts(report.rows, report.coverage.accepted, errors, certain=nothing_rejected)]


def _of_group(row: GroupRow, certain: bool) -> Counts:
    return Counts(row.rows, row.coverage.accepted, row.accuracy.errors, row.group, certain)
