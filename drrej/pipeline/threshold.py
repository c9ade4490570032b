"""Step 3: the cutoff on L', by one of the rules, for all rows or for each group; with a guarantee if asked for."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pyarrow as pa

from drrej.core.certify import (
    Certified,
    JointPromise,
    Looks,
    best_look,
    best_of_both,
    certified_coverage,
    joint_looks,
    needed_rows,
    risk_looks,
    sgr,
    split_delta,
)
from drrej.core.certify_mean import MEAN_METHODS, MeanPromise, certified_mean
from drrej.core.costs import CostCurve
from drrej.core.curves import Curve, RankedLosses, RiskCoverage
from drrej.core.intervals import CONFIDENCE, exact_decimal
from drrej.core.thresholds import (
    COVERAGE_METHOD,
    JOINT_METHOD,
    METHODS,
    REJECT_ALL,
    Rule,
    SelectiveRisk,
    choose_cutoff,
    cutoff_after,
    least_cost_cutoff,
    mean_cutoff,
)
from drrej.core.types import Floats
from drrej.data.dump import Dump
from drrej.documents.rejector import Bound, GroupThreshold, Ratio, Rejector, RuleRecord, Threshold
from drrej.engines.protocol import Pass
from drrej.errors import DumpError, Infeasible, OptionError
from drrej.pipeline.collect import Collecting, Losses, Residuals, collect_losses
from drrej.pipeline.freshness import Freshness
from drrej.pipeline.groups import Grouping
from drrej.pipeline.plan import PlanOptions, plan_from
from drrej.pipeline.score import Scorer
from drrej.pipeline.source import Source, without_bad_files
from drrej.records import dataclass

UNNOTICEABLE = (
    "these rows repeat so much that it cannot be told whether 'calibrate' or 'fit' has seen them; the guarantee holds "
    "only if they have not"
)


@dataclass(frozen=True)
class ThresholdOptions:
    """Groups with their own cutoffs (a column or "prediction"), and whether rows that were seen may be used.

    `known_fresh`: the caller has set these rows apart from those of the steps before, so it need not be looked for;
    rows that repeat could not be told from others that were seen.
    """

    by: str | None = None
    allow_reuse: bool = False
    known_fresh: bool = False


@dataclass(frozen=True)
class Chosen:
    """The rejector with its threshold, all candidates as a table, and what to be cautious about."""

    rejector: Rejector
    candidates: pa.Table
    caution: str | None = None


def threshold(source: Source, rejector: Rejector, rule: Rule, options: ThresholdOptions | None = None) -> Rejector:
    """Add the threshold that a rule picks on these rows.

    >>> from drrej import calibrate, fit
    >>> val = Source("sample_data/val.parquet")
    >>> found = threshold(val, fit(val, calibrate(val)), Rule("coverage", 0.8)).need_threshold()
    >>> found.accepted, found.rows  # at least 80 % of them
    (1319, 1648)
    """
    return choose_threshold(source, rejector, rule, options).rejector


@without_bad_files
def choose_threshold(
    source: Source, rejector: Rejector, rule: Rule, options: ThresholdOptions | None = None, table: bool = False
) -> Chosen:
    """Add the threshold that a rule picks on these rows; list the candidates if a `table` is wanted."""
    options = options or ThresholdOptions()
    ratio = rejector.need_ratio()
    if rule.needs_labels and not rejector.has_classes:
        raise OptionError(f"`{rule.parameter}` counts wrong predictions, but this rejector is for rows without logits")
    if options.by is not None and not (rule.limits_errors or rule.kind == "coverage"):
        raise OptionError(
            "a cutoff for each group goes with `accuracy`, `risk` or `coverage`: "
            f"`{rule.parameter}` is the same cutoff for every group"
        )
    if rule.limits_a_mean:
        _check_mean(rule, rejector)
    if rule.kind == "cost":
        _check_prices(rule, ratio)
    dump = source.open(rejector, rule.needs_labels)
    if options.by is not None and options.by == dump.label:
        raise OptionError(
            f"cutoffs by '{options.by}': a row to come has no label, so no cutoff can depend on it; use 'prediction'"
        )
    labelled = rule.needs_labels or (table and dump.label_kind is not None)
    if options.allow_reuse and rule.confidence is None:
        raise OptionError("`allow_reuse=True` goes with `confidence`")
    freshness = Freshness({}) if rule.confidence is None or options.known_fresh else Freshness.of(rejector)
    grouping = None if options.by is None else Grouping(options.by, rejector, dump, "the cutoffs")
    ranked = grouping is None and rule.kind != "cost" and not rule.limits_a_mean
    collecting = Collecting(
        grouping, tuple(freshness.seen.values()), rule.uses_rows, residuals_of(rule, rejector, dump), ranked
    )
    scorer = Scorer(rejector, dump, decide=False)
    losses = collect_losses(source, dump, scorer, Pass("choosing", labelled), collecting)
    verdict = freshness.check(losses, options.allow_reuse)
    picker = _Picker(rule, ratio, len(losses.names) or 1, labelled, table)
    if rule.kind == "cost":
        picker.costs = priced(rule, losses)
    if rule.limits_a_mean:
        assert losses.costs is not None
        picker.rows = losses.values.copy(), losses.costs  # the curve sorts its losses where they are
    groups = None
    if options.by is None:
        decision = picker.pick("", _curve(losses, None), must=True).decision
    else:
        picked = [picker.pick(name, _curve(losses, number)) for number, name in enumerate(losses.names)]
        _check_any(picked, options.by)
        groups = tuple(pick.decision for pick in picked)
        decision = _together(groups)
    reused = None if rule.confidence is None else verdict.reused
    record = RuleRecord(
        rule.kind, rule.target, rule.confidence, picker.method, reused, rule.error_cost, rule.coverage, rule.clip
    )
    finished = rejector.with_threshold(
        Threshold(
            tau=decision.tau,
            cutoff=decision.cutoff,
            rule=record,
            rows=decision.rows,
            accepted=decision.accepted,
            coverage=decision.coverage,
            accuracy=decision.accuracy,
            bound=decision.bound,
            fingerprint=losses.sketch.fingerprint().text() if rule.uses_rows else None,
            by=options.by,
            groups=groups,
            mean=decision.mean,
        )
    )
    candidates = picker.table(options.by is not None) if table else pa.table({})
    return Chosen(finished, candidates, None if verdict.noticeable else UNNOTICEABLE)


def priced(rule: Rule, losses: Losses) -> CostCurve:
    """What accepting costs, from the price of an error or from the rows' own costs."""
    costs = losses.costs
    if rule.error_cost is not None and losses.wrong is not None:
        costs = losses.wrong * np.float64(rule.error_cost)
    assert costs is not None
    return CostCurve.of(losses.values, costs, rule.target)


def _check_prices(rule: Rule, ratio: Ratio) -> None:
    if rule.error_cost is None and not ratio.loss.is_cost:
        raise OptionError("`review_cost` needs `error_cost=E`, what an accepted error costs; or fit with `loss=cost`")
    if rule.error_cost is not None and ratio.loss.is_cost:
        raise OptionError("the cost matrix of the loss says what errors cost; leave out `error_cost`")


def _check_mean(rule: Rule, rejector: Rejector) -> None:
    if rule.kind == "mean-cost" and not rejector.need_ratio().loss.is_cost:
        raise OptionError("`mean_cost` is by a cost matrix; fit with `loss=cost`")
    if rule.kind != "mean-cost" and rejector.has_classes:
        raise OptionError(f"`{rule.kind}` is the error of a regression, but this rejector is for a classification")


def residuals_of(rule: Rule | RuleRecord, rejector: Rejector, dump: Dump) -> Residuals | None:
    """The errors that a rule for a regression limits the mean of; None for other rules."""
    if rule.kind not in ("mse", "mae"):
        return None
    columns = []
    for parameter in ("prediction", "target"):
        name = getattr(rejector.columns, parameter)
        if name is None:
            raise OptionError(f"`{rule.kind}` needs `prediction=COL` and `target=COL` in 'drrej fit'")
        if name not in dump.schema.names:
            raise DumpError(f"{dump.parts[0].name}: there is no column '{name}', the `{parameter}` of the rejector")
        columns.append(name)
    return Residuals((columns[0], columns[1]), rule.kind, rule.clip)


def uncertified_groups(rejector: Rejector) -> list[str]:
    """Groups of which every row is rejected because no cutoff could be certified."""
    return [group.group for group in rejector.need_threshold().groups or () if group.cutoff == REJECT_ALL]


def _curve(losses: Losses, group: int | None) -> Curve:
    """The curve of a group, or of all rows: their losses are in another order then."""
    if losses.curve is not None:
        return losses.curve
    values, wrong = losses.values, losses.wrong
    if group is not None:
        inside = losses.groups == group
        values, wrong = values[inside], None if wrong is None else wrong[inside]
    if wrong is None:
        return RankedLosses.in_place(values, values.size)
    right = np.flatnonzero(~wrong)
    return RankedLosses.in_place(values[np.concatenate([right, np.flatnonzero(wrong)])], right.size)


@dataclass(frozen=True)
class _Picked:
    decision: GroupThreshold
    infeasible: Infeasible | None = None


class _Picker:
    """Picks the cutoff of each group and keeps the candidates, where they are to be listed."""

    def __init__(self, rule: Rule, ratio: Ratio, groups: int, labelled: bool, listing: bool = True) -> None:
        self.rule = rule
        self.listing = listing
        self.ratio = ratio
        self.labelled = labelled
        self.method: str | None = None
        self.delta = None
        if rule.confidence is not None:
            self.delta = split_delta(float(1 - exact_decimal(rule.confidence)), groups)
            self.method = COVERAGE_METHOD if rule.kind == "coverage" else rule.method or METHODS[0]
            self.method = self.method if rule.coverage is None else JOINT_METHOD
            self.method = (rule.method or MEAN_METHODS[0]) if rule.limits_a_mean else self.method
        self.costs: CostCurve | None = None
        self.rows: tuple[Floats, Floats] | None = None
        self.looks: list[tuple[str, int, Looks]] = []

    def pick(self, group: str, points: Curve, must: bool = False) -> _Picked:
        """The decision for a group; where nothing is certified all of it is rejected, unless one `must` be found."""
        try:
            certified, cutoff = self._choose(group, points)
        except Infeasible as verdict:
            if must:
                raise
            if not self.rule.limits_errors or self.rule.coverage is not None:
                raise Infeasible(f"group '{group}': {verdict}") from None
            return _Picked(GroupThreshold(group, None, REJECT_ALL, points.rows, 0, 0.0), verdict)
        accepted, errors = points.below(cutoff)
        bound = None
        if certified is not None:
            counted = errors if self.rule.limits_errors else None
            bound = Bound(certified.bound, certified.level, points.rows, accepted, counted)
        tau = self.rule.target if self.rule.kind == "tau" else self.ratio.density.tau(cutoff)
        accuracy = (accepted - errors) / accepted if self.labelled and self.rule.needs_labels and accepted else None
        mean = None
        if self.rows is not None:
            _, mean = SelectiveRisk.of(*self.rows).below(cutoff)
        return _Picked(
            GroupThreshold(group, tau, cutoff, points.rows, accepted, accepted / points.rows, accuracy, bound, mean)
        )

    def _choose(self, group: str, curve: Curve) -> tuple[Certified | None, float | None]:
        rule, density = self.rule, self.ratio.density
        if self.rows is not None:
            if self.listing:
                level = self.delta or 1.0 - CONFIDENCE
                self.looks.append((group, curve.rows, _every_cutoff(self.ratio, curve.points(), level)))
            return self._mean(*self.rows)
        if self.delta is None or rule.confidence is None:
            if self.listing:
                self.looks.append((group, curve.rows, _every_cutoff(self.ratio, curve.points(), 1.0 - CONFIDENCE)))
            if self.costs is not None:
                return None, least_cost_cutoff(self.costs, density, curve.points())
            return None, choose_cutoff(rule, density, curve)
        points = curve.points()
        if rule.kind == "coverage":
            if self.listing:
                self.looks.append((group, points.rows, _every_cutoff(self.ratio, points, self.delta)))
            certified = certified_coverage(points, density, rule.target, self.delta, rule.confidence)
            return certified, certified.cutoff
        if rule.coverage is not None:
            certified = self._both(group, points, JointPromise(rule.risk, rule.coverage, self.delta))
            return certified, certified.cutoff
        if self.method == "sgr":
            looks = sgr(points, density, rule.risk, self.delta)
        else:
            looks = risk_looks(points, density, rule.risk, self.delta)
        self.looks.append((group, points.rows, looks))
        certified = best_look(looks, points.rows, rule.risk, rule.confidence, rule.asked)
        return certified, certified.cutoff

    def _mean(self, losses: Floats, values: Floats) -> tuple[Certified | None, float | None]:
        """The mean of what accepted rows lose, with a guarantee or without."""
        rule, last = self.rule, self.ratio.density.flat_start
        if self.delta is None:
            return None, mean_cutoff(rule, losses, values, last)
        limit = rule.clip if rule.clip is not None else max(self.ratio.loss.prices)
        if rule.target >= limit:
            raise OptionError(f"{rule.asked}: no row can lose more than {limit:g}; nothing is to be certified")
        assert self.method is not None
        try:
            found = certified_mean(losses, values, MeanPromise(rule.target, limit, self.delta, self.method), last)
        except Infeasible as verdict:
            raise Infeasible(f"{rule.asked} `confidence={rule.confidence:g}`: {verdict}") from None
        return Certified(found.cutoff, found.accepted, 0, found.bound, self.delta, found.bound), found.cutoff

    def _both(self, group: str, points: RiskCoverage, promise: JointPromise) -> Certified:
        """A risk and a coverage together; `level` is the chance that either is not kept."""
        try:
            looks = joint_looks(points, self.ratio.density, promise)
            self.looks.append((group, points.rows, looks))
            best = best_of_both(looks, points, promise)
        except Infeasible as verdict:
            raise Infeasible(f"{self.rule.asked} `confidence={self.rule.confidence:g}`: {verdict}") from None
        return Certified(best.cutoff, best.accepted, best.errors, promise.risk, promise.delta, promise.risk)

    def table(self, grouped: bool) -> pa.Table:
        """All candidates; the upper bound of each is at its `delta`."""
        parts = [self._rows(group, rows, looks, grouped) for group, rows, looks in self.looks]
        return pa.concat_tables(parts)

    def _rows(self, group: str, rows: int, looks: Looks, grouped: bool) -> pa.Table:
        density = self.ratio.density
        finite = np.isfinite(looks.cutoffs)
        tau = np.where(finite, density.ratio(np.where(finite, looks.cutoffs, 0.0)), 0.0)
        with np.errstate(invalid="ignore", divide="ignore"):
            risk = looks.errors / looks.accepted
        columns = {
            "cutoff": pa.array(looks.cutoffs, mask=~finite),
            "tau": pa.array(tau, mask=~np.isfinite(tau)),
            "accepted": pa.array(looks.accepted),
            "coverage": pa.array(looks.accepted / rows),
        }
        if self.labelled:
            columns["errors"] = pa.array(looks.errors)
            columns["risk"] = pa.array(risk, mask=~np.isfinite(risk))
            columns["upper_bound"] = pa.array(looks.bounds)
            columns["delta"] = pa.array(looks.levels)
        if self.method in (*METHODS, JOINT_METHOD):
            columns["certified"] = pa.array(looks.certified)
        named = {"group": pa.array([group] * looks.cutoffs.size)} if grouped else {}
        return pa.table(named | columns)


def _every_cutoff(ratio: Ratio, points: RiskCoverage, delta: float) -> Looks:
    """Every cutoff that the rows tell apart, each bounded on its own."""
    density = ratio.density
    reachable, _ = points.below(density.flat_start)
    count = max(1, int(np.searchsorted(points.accepted, reachable, side="right")))
    last = cutoff_after(count - 1, density, points)
    cutoffs = np.append(points.losses[1:count], np.inf if last is None else last)
    return Looks(cutoffs, points.accepted[:count], points.errors[:count], np.full(count, delta), np.zeros(count, bool))


def _check_any(picked: list[_Picked], by: str) -> None:
    """Raise when no group has a cutoff."""
    verdicts = [pick.infeasible for pick in picked if pick.infeasible is not None]
    if len(verdicts) == len(picked):
        raise Infeasible(f"{by} = '{picked[0].decision.group}': {verdicts[0]}; and so for each of {len(picked)} groups")


def _together(groups: tuple[GroupThreshold, ...]) -> GroupThreshold:
    """All groups as one."""
    rows, accepted = sum(group.rows for group in groups), sum(group.accepted for group in groups)
    right = [round(group.accepted * group.accuracy) for group in groups if group.accuracy is not None]
    return GroupThreshold("", None, None, rows, accepted, accepted / rows, sum(right) / accepted if right else None)


@dataclass(frozen=True)
class Promised:
    """The threshold, and why it has no guarantee (None: it has one)."""

    chosen: Chosen
    why_not: str | None = None


def certify_if_possible(
    source: Source, rejector: Rejector, rule: Rule, options: ThresholdOptions | None = None, table: bool = False
) -> Promised:
    """Choose the threshold with the usual confidence if that can be done, else as if none had been asked for.

    Rules that no confidence goes with are taken as they are. How many rows it would take is said as `plan` says it.
    """
    options = options or ThresholdOptions()
    if rule.confidence is not None or not rule.can_be_certified:
        return Promised(choose_threshold(source, rejector, rule, options, table))
    certain = replace(rule, confidence=CONFIDENCE)
    try:
        chosen = choose_threshold(source, rejector, certain, options, table)
    except Infeasible as verdict:
        found = choose_threshold(source, rejector, rule, replace(options, allow_reuse=False), table)
        advice = _advice(source, rejector, rule, options)
        return Promised(found, f"{verdict}; it was chosen without a guarantee. {advice}")
    short = _short(chosen.rejector.need_threshold(), certain)
    if short is None:
        return Promised(chosen)
    return Promised(choose_threshold(source, rejector, rule, replace(options, allow_reuse=False), table), short)


def _advice(source: Source, rejector: Rejector, rule: Rule, options: ThresholdOptions) -> str:
    """How many rows would be enough."""
    if not rule.limits_errors or options.by is not None:
        return "More rows to choose on may be enough"
    found, _ = plan_from(source, rejector, PlanOptions(rule.risk, CONFIDENCE))
    assert found.rows is not None
    known = [(row.needed, row.coverage) for row in found.at_hand or () if row.needed is not None]
    if not known:
        return "The observed error rate is nowhere low enough for more rows to be of use"
    needed, coverage = min(((rows, at) for rows, at in known if rows > found.rows), default=(2 * found.rows, None))
    where = "" if coverage is None else f" at coverage {coverage:.2g} (with a chance of 80 %, by these rows)"
    return f"About {needed} rows to choose on would certify it{where}; there are {found.rows}"


def _short(threshold: Threshold, rule: Rule) -> str | None:
    """Of a coverage: whether rows were so few that accepting everything was the only sure way."""
    assert rule.confidence is not None
    if rule.kind != "coverage" or rule.target == 1:
        return None
    parts = threshold.groups or (threshold,)
    delta = split_delta(float(1 - exact_decimal(rule.confidence)), len(parts))
    if all(needed_rows(rule.target, part.rows, delta) <= part.rows for part in parts):
        return None
    least = math.ceil(math.log(delta) / math.log(rule.target))
    fewest = min(part.rows for part in parts)
    return (
        f"`coverage={rule.target:g}` `confidence={rule.confidence:g}` takes at least {least} rows to choose on, and "
        f"there are {fewest}; it was chosen without a guarantee"
    )
