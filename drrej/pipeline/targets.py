"""The target of a rejector against the figures of a report."""

from __future__ import annotations

from drrej.documents.regression import RegressionReport
from drrej.documents.rejector import Threshold
from drrej.documents.report import GroupRow, Report
from drrej.documents.targets import Counts, Target, judge, judge_cost, judge_mean, wanted_of

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
