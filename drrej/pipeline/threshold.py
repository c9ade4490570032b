"""Step 3: the cutoff on the loss, by one of the rules, for all rows or for each group, with a guarantee if asked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import asdict, replace

from drrej._version import __version__
from drrej.core import thresholds
from drrej.core.certify import (
    Candidates,
    certify_both,
    certify_coverage,
    certify_mean,
    certify_risk,
    joint_candidates,
    needed_rows,
    risk_candidates,
)
from drrej.core.curves import Curve, MeanCurve
from drrej.core.intervals import CONFIDENCE, exact_decimal
from drrej.core.promises import PromiseRows, by_class, choose_cutoffs, path_of
from drrej.core.reuse import MOST_REPEATS, Sketch, repeats
from drrej.core.thresholds import REJECT_ALL, Rule
from drrej.data.dump import Dump
from drrej.data.problems import shown
from drrej.documents.gates import near
from drrej.documents.rejector import GroupThreshold, Ratio, Rejector, Threshold
from drrej.documents.summaries import CertifiedNow, Plan
from drrej.errors import Infeasible, OptionError
from drrej.pipeline import score
from drrej.pipeline.collect import collect_scored, curve_of
from drrej.pipeline.figures import below_chance
from drrej.pipeline.plan import plan_from
from drrej.pipeline.source import Source, without_bad_files

UNNOTICEABLE = (
    "so many of these rows repeat that drrej cannot tell whether 'calibrate' or 'fit' has seen them; the guarantee "
    "holds only if they have not"
)


class ThresholdOptions(Struct, frozen=True):
    """Groups with their own cutoffs (a column or "prediction"), and whether rows that were seen may be used.

    `known_fresh`: the caller has set these rows apart from those of the steps before, so it need not be looked for;
    rows that repeat could not be told from others that were seen. Rows with the same scores count once in a guarantee,
    unless they differ in the column `group`.
    """

    by: str | None = None
    allow_reuse: bool = False
    known_fresh: bool = False
    group: str | None = None


class ChosenThreshold(Struct, frozen=True):
    """The rejector with its threshold, all candidates as a table, and what to be cautious about.

    `why_not` says why there is no guarantee, where `certify_if_possible` was to make one.
    """

    rejector: Rejector
    candidates: pa.Table
    caution: str | None = None
    why_not: str | None = None


@without_bad_files
def choose_threshold(
    source: Source, rejector: Rejector, rule: Rule, options: ThresholdOptions | None = None, table: bool = False
) -> ChosenThreshold:
    """Add the threshold that a rule picks on these rows; list the candidates if a `table` is wanted.

    >>> from drrej import calibrate, fit
    >>> val = Source("sample_data/val.parquet")
    >>> found = choose_threshold(val, fit(val, calibrate(val)), Rule("coverage", 0.8)).rejector.need_threshold()
    >>> found.accepted, found.rows  # at least 80 % of them
    (1319, 1648)
    """
    options, rejector = options or ThresholdOptions(), source.named(rejector)
    _check(rule, rejector, options)
    if table and rule.promises:
        raise OptionError(f"`table` lists the cutoffs of a single target; it cannot be combined with {rule.asked}")
    dump = source.open(rejector, rule.needs_labels)
    if options.by is not None and options.by == dump.label:
        raise OptionError(
            f"cutoffs by '{options.by}': a new row has no label, so no cutoff can depend on it; use 'prediction'"
        )
    labelled = rule.needs_labels or (table and dump.label_kind is not None)
    columns = _collect(source, dump, rejector, rule, labelled, options)
    repeated, doubt = _repeated(rule, columns, options.group), None
    countable = "wrong" in columns and not rejector.is_scored
    if (rule.limits_errors or rule.promises) and countable and not source.cautions:
        right, rows = int(np.count_nonzero(~columns["wrong"])), len(columns["wrong"])
        doubt = below_chance(right, rows, rejector.classes)
    remark, by, tables, whole = doubt or repeated, options.by, list[pa.Table](), None
    try:
        if rule.promises:
            groups, by, whole = _promised(rule, rejector, columns)
        else:
            groups, tables = _decisions(rule, rejector.need_ratio(), columns, by, table)
    except Infeasible as verdict:
        raise Infeasible(f"{verdict}; {remark}" if remark else str(verdict)) from None
    decision = asdict(groups[0])
    if by is not None:  # all groups as one
        rows, accepted = sum(group.rows for group in groups), sum(group.accepted for group in groups)
        hits = [round(group.accepted * group.accuracy) for group in groups if group.accuracy is not None]
        accuracy = sum(hits) / accepted if hits else None
        decision = asdict(GroupThreshold("", None, None, rows, accepted, accepted / rows, accuracy))
    del decision["group"]
    finished = rejector.with_sections(
        rejector.calibration,
        rejector.ratio,
        Threshold(
            **decision,
            rule=replace(rule, method=rule.certified_by, reused=None if rule.confidence is None else columns["reused"]),
            fingerprint=columns["sketch"].fingerprint().text() if rule.kind not in thresholds.FIXED else None,
            by=by,
            groups=None if by is None else groups,
        ),
    )
    listed = pa.concat_tables(tables) if tables else pa.table({})
    cautions = [doubt or (repeated if columns["noticeable"] else UNNOTICEABLE), whole]
    return ChosenThreshold(finished, listed, "; ".join(filter(None, cautions)) or None)


def _check(rule: Rule, rejector: Rejector, options: ThresholdOptions) -> None:
    """Raise for a rule that this rejector, or these options, cannot have."""
    loss = rejector.need_ratio().loss
    if rule.needs_labels and not rejector.has_classes:
        raise OptionError(f"`{rule.parameter}` counts wrong predictions, but this rejector is for rows without logits")
    names = rejector.class_titles
    for goal in rule.promises:
        if goal.group is not None and goal.group not in names:
            raise OptionError(f"{goal.asked}: there is no class '{goal.group}'{near(goal.group, names)}")
    if options.by is not None and rule.promises:
        raise OptionError(f"cutoffs by '{options.by}' cannot be combined with {rule.asked}, which are by prediction")
    if options.by is not None and not (rule.limits_errors or rule.kind == "coverage"):
        raise OptionError(
            "a cutoff for each group requires `accuracy`, `risk` or `coverage`: "
            f"`{rule.parameter}` is the same cutoff for every group"
        )
    if rule.kind == "mean-cost" and not loss.is_cost:
        raise OptionError("`mean_cost` is by a cost matrix; fit with `loss=cost`")
    if rule.kind in ("mse", "mae") and rejector.has_classes:
        raise OptionError(f"`{rule.kind}` is the error of a regression, but this rejector is for a classification")
    if rule.review_cost is not None and rule.error_cost is None and not loss.is_cost:
        raise OptionError("`review_cost` needs `error_cost=E`, what an accepted error costs; or fit with `loss=cost`")
    if rule.error_cost is not None and loss.is_cost:
        raise OptionError("the cost matrix of the loss says what errors cost; leave out `error_cost`")
    if options.allow_reuse and rule.confidence is None:
        raise OptionError("`allow_reuse=True` requires `confidence`")


def _collect(
    source: Source,
    dump: Dump,
    rejector: Rejector,
    rule: Rule,
    labelled: bool,
    options: ThresholdOptions,
) -> Mapping[str, Any]:
    """The columns loss, wrong (with labels), value (what a row loses), group and once, and which rows these are.

    `once` is false for a row that repeats an earlier one. For a guarantee, `reused` tells whether rows were used before
    and `noticeable` whether that could be seen; raises where they were and must not be.
    """
    seen = {} if rule.confidence is None or options.known_fresh else score.seen_rows(rejector, for_guarantee=True)
    grouping = None if options.by is None else score.Grouping(options.by, rejector, dump, "the cutoffs")
    examples = () if (example := options.group) is None else (example,)
    score.check_columns(dump, examples, "`group`")
    scorer = score.Scorer(rejector, dump, decide=False)
    residual: Sequence[str] = ()
    if rule.kind in ("mse", "mae"):
        columns, missing = rejector.columns, f"`{rule.kind}` needs `prediction=COL` and `target=COL` in 'drrej fit'"
        residual = score.residual_columns(dump, {"prediction": columns.prediction, "target": columns.target}, missing)

    def of_rows(scored: score.Scored) -> dict[str, Any]:
        columns: dict[str, Any] = {"loss": scored.loss}
        if scored.block.labels is not None:
            columns["wrong"] = scored.wrong
        if rule.promises:
            columns["prediction"] = scored.prediction
            columns["label"] = scored.prediction if scored.block.labels is None else scored.block.labels
        if residual:
            columns["value"] = thresholds.regression_errors(
                score.residual_of(scored.block, residual), rule.kind, rule.clip
            )
        elif rule.error_cost is not None:
            columns["value"] = scored.wrong * np.float64(rule.error_cost)
        elif rule.review_cost is not None or rule.kind == "mean-cost":
            columns["value"] = scored.cost
        if grouping is not None:
            columns["group"] = grouping.column(scored.block, scored.prediction)
        if rule.kind not in thresholds.FIXED:
            columns["sketch"] = Sketch.of(scored.keys, scored.coarse)
        if rule.confidence is not None and not (rejector.is_scored and example is None):  # scores tie by nature
            columns["key"] = score.copy_keys(scored.block, example)
        return columns | scored.look_up(seen)

    keep = (*(() if grouping is None else grouping.columns), *residual, *examples)
    found = collect_scored(source, dump, scorer, of_rows, "choosing", labelled, keep)
    found["reused"], found["noticeable"] = score.check_fresh(seen, found, options.allow_reuse)
    found["once"] = ~repeats(found.pop("key")) if "key" in found else np.ones(found["loss"].size, bool)
    return found


def _repeated(rule: Rule, columns: Mapping[str, Any], example: str | None) -> str | None:
    """What to say of rows that repeat, where they are many; raises for a guarantee that cannot allow for them."""
    again, rows = int(np.count_nonzero(~columns["once"])), len(columns["loss"])
    if again <= MOST_REPEATS * rows:
        return None
    if example is not None:
        return f"{again} of {rows} rows have the same scores and the same '{example}' as another row and count once"
    words = f"{again} of {rows} rows have the same scores as another row"
    remedy = "if they are different examples, name a column that tells them apart with `group`"
    only_errors = (rule.limits_errors or rule.promises) and rule.coverage is None
    if rule.kind != "coverage" and not (only_errors and not any(goal.is_lower for goal in rule.promises)):
        raise OptionError(f"{words}, so this guarantee would not hold; drop the repeats, or {remedy}")
    return f"{words} and count once; {remedy}"


def uncertified_words(rejector: Rejector) -> str | None:
    """A warning of groups that are rejected as a whole, because no cutoff could be certified."""
    found = rejector.need_threshold()
    groups = [group.group for group in found.groups or () if group.cutoff == REJECT_ALL and not found.rule.promises]
    words = f"no cutoff meets the risk in {len(groups)} groups ({shown(groups, 5)}); all their rows are rejected"
    return words if groups else None


def vacuous_words(rejector: Rejector) -> str | None:
    """A note of a target that asks for nothing, as all rows meet it."""
    found = rejector.need_threshold()
    words = f"{found.rule.asked}: met even without rejection; {100 * (found.accuracy or 0.0):.1f} % are right"
    return words if found.rule.limits_errors and found.accepted == found.rows else None


def _decisions(
    rule: Rule, ratio: Ratio, columns: Mapping[str, Any], by: str | None, table: bool
) -> tuple[tuple[GroupThreshold, ...], list[pa.Table]]:
    """The decision for each group, or the one for all rows, and the candidates if asked for.

    All of a group is rejected where nothing is certified for an error rate; raises where that is so for each group.
    """
    kept = {name: columns[name] for name in ("loss", "wrong", "value", "once") if name in columns}
    tables: list[pa.Table] = []
    if by is None:
        return (decide(rule, ratio, kept, tables=tables if table else None),), tables
    numbers, names = score.numbered(columns["group"])
    groups, infeasible = [], []
    for number, name in enumerate(names):
        inside = {column: values[numbers == number] for column, values in kept.items()}
        try:
            groups.append(decide(rule, ratio, inside, name, len(names), tables if table else None))
        except Infeasible as verdict:
            if not rule.limits_errors or rule.coverage is not None:
                raise Infeasible(f"group '{name}': {verdict}") from None
            infeasible.append(f"'{name}': {verdict}")
            groups.append(GroupThreshold(name, None, REJECT_ALL, inside["loss"].size, 0, 0.0))
    if len(infeasible) == len(names):
        raise Infeasible(f"{by} = {infeasible[0]}; and so for each of {len(names)} groups")
    return tuple(groups), tables


def plan_promises_from(source: Source, rejector: Rejector, rule: Rule) -> tuple[Plan, str | None]:
    """What labelled rows at hand certify of several promises, and what to be cautious about."""
    certified, why_not, caution = None, None, None
    try:
        chosen = choose_threshold(source, rejector, rule, ThresholdOptions(allow_reuse=True))
        caution, found = chosen.caution, chosen.rejector.need_threshold()
        errors = found.accepted - round(found.accepted * (found.accuracy or 0.0)) if rule.needs_labels else 0
        certified = CertifiedNow(coverage=found.coverage, accepted=found.accepted, errors=errors)
        if found.rule.reused:
            caution = "'calibrate' or 'fit' has seen some of these rows, so fresh ones will look worse"
    except Infeasible as verdict:
        why_not = str(verdict)
    assert rule.confidence is not None
    made = Plan(
        drrej_version=__version__, confidence=rule.confidence, certified=certified, why_not=why_not, promises=()
    )
    return made, caution


def _promised(
    rule: Rule, rejector: Rejector, columns: Mapping[str, Any]
) -> tuple[tuple[GroupThreshold, ...], str | None, str | None]:
    """The decision for each predicted class, or the one for all rows; by what; and which classes are rejected."""
    ratio, names, losses = rejector.need_ratio(), rejector.class_titles, columns["loss"]
    flat, wrong = ratio.density.flat_start, columns.get("wrong", np.zeros(losses.size, bool))
    limit = math.inf if flat is None else flat
    cost = None if rule.review_cost is None else columns["value"] - rule.review_cost
    rows = PromiseRows(losses, columns["prediction"], columns["label"], columns["once"], limit, cost)
    confusions = None
    if ratio.confusions is not None:
        confusions = np.zeros((len(names), len(names)), np.int64)
        guess, truth, count = np.array(ratio.confusions).T
        confusions[guess, truth] = count
    delta = None if rule.confidence is None else float(1 - exact_decimal(rule.confidence))
    path = path_of(rule.promises, names, confusions, losses.size, delta or 1.0 - CONFIDENCE)
    try:
        found = choose_cutoffs(rule.promises, names, rows, path, delta, ratio.error_blocks)
    except Infeasible as verdict:
        sure = "" if rule.confidence is None else f" `confidence={rule.confidence:g}`"
        words = str(verdict).removeprefix(rule.asked)
        raise Infeasible(f"{rule.asked}{sure}{words if str(verdict) != words else f': {words}'}") from None
    whole = "; ".join(f"all rows predicted '{name}' are rejected: {why}" for name, why in found.rejected.items())

    def group(name: str, cutoff: float, chosen: Any) -> GroupThreshold:
        inside = losses[chosen] < cutoff
        accepted, count, errors = int(inside.sum()), inside.size, int(np.count_nonzero(inside & wrong[chosen]))
        return GroupThreshold(
            group=name,
            tau=None if cutoff == REJECT_ALL else ratio.density.tau(None if math.isinf(cutoff) else cutoff),
            cutoff=None if math.isinf(cutoff) else cutoff,
            rows=count,
            accepted=accepted,
            coverage=accepted / count if count else 0.0,
            accuracy=(accepted - errors) / accepted if accepted and rule.needs_labels else None,
        )

    named = any(goal.limits_errors and goal.group is not None for goal in rule.promises)
    if not named and (found.cutoffs == found.cutoffs[0]).all():
        return (group("", float(found.cutoffs[0]), slice(None)),), None, None
    groups = map(group, names, found.cutoffs.tolist(), by_class(rows.prediction, len(names)))
    return tuple(groups), score.PREDICTION, whole or None


def decide(
    rule: Rule,
    ratio: Ratio,
    columns: Mapping[str, Any],
    group: str | None = None,
    groups: int = 1,
    tables: list[pa.Table] | None = None,
) -> GroupThreshold:
    """The decision for one of so many groups, or for all rows; `tables` gets its candidates. Raises Infeasible.

    The column of losses may be sorted in place.

    A row counts `once` in a guarantee where it repeats and is right, a wrong one every time. If equal rows are copies,
    that adds errors to the distinct rows; if they are different examples that look alike, it leaves out right ones.
    Either way the error rate of what is counted is no lower and the rows are no more.
    """
    losses, wrong, once, density = columns["loss"], columns.get("wrong"), columns["once"], ratio.density
    delta = 1.0 - CONFIDENCE if rule.confidence is None else float(1 - exact_decimal(rule.confidence)) / groups
    curve = counted = curve_of(losses, wrong, in_place="value" not in columns and bool(once.all()))
    if not once.all():
        once = once if wrong is None else once | wrong
        counted = curve_of(losses[once], None if wrong is None else wrong[once])
    candidates = _candidates(rule, ratio, counted, delta, groups, tables is not None)
    if tables is not None and candidates is not None:
        listed = _listed(candidates, rule, ratio, counted, wrong is not None)
        tables.append(listed if group is None else listed.add_column(0, "group", [[group] * listed.num_rows]))
    costs = MeanCurve.of(losses, columns["value"]) if "value" in columns else None
    cutoff: float | None
    if rule.confidence is not None:
        cutoff = _certified(rule, ratio, counted, candidates, columns, delta)
        if rule.kind == "coverage" and counted is not curve:  # that of all rows must hold as well
            other = _certified(rule, ratio, curve, candidates, columns, delta)
            cutoff = None if cutoff is None or other is None else max(cutoff, other)
    elif costs is None:
        cutoff = thresholds.choose_cutoff(rule, density, curve)
    elif rule.kind in thresholds.MEAN_RULES:
        cutoff = thresholds.mean_cutoff(rule, costs, density.flat_start)
    else:
        cutoff = thresholds.least_cost_cutoff(costs, rule.target, density)
    accepted, errors = curve.below(cutoff)
    return GroupThreshold(
        group=group or "",
        tau=rule.target if rule.kind == "tau" else density.tau(cutoff),
        cutoff=cutoff,
        rows=curve.rows,
        accepted=accepted,
        coverage=accepted / curve.rows,
        accuracy=(accepted - errors) / accepted if rule.needs_labels and accepted else None,
        mean=costs.below(cutoff)[1] if costs is not None and rule.kind in thresholds.MEAN_RULES else None,
    )


def _certified(
    rule: Rule, ratio: Ratio, curve: Curve, candidates: Candidates | None, columns: Mapping[str, Any], delta: float
) -> float | None:
    """The certified cutoff; None accepts every row. Raises Infeasible."""
    density, asked = ratio.density, f"{rule.asked} `confidence={rule.confidence:g}`"
    if rule.kind == "coverage":
        return certify_coverage(curve, density, rule.target, delta, asked).cutoff
    if candidates is not None and rule.limits_errors and rule.coverage is None:
        return certify_risk(candidates, curve.rows, rule.risk, asked).cutoff
    try:
        if candidates is not None and rule.coverage is not None:
            return certify_both(curve, candidates, rule.risk, rule.coverage).cutoff
        limit = rule.clip if rule.clip is not None else max(ratio.loss.prices)
        if rule.target >= limit:
            raise OptionError(f"{rule.asked}: no row can lose more than {limit:g}; there is nothing to certify")
        return certify_mean(columns["loss"], columns["value"], rule.target, limit, delta, density.flat_start).cutoff
    except Infeasible as verdict:
        raise Infeasible(f"{asked}: {verdict}") from None


def _candidates(rule: Rule, ratio: Ratio, curve: Curve, delta: float, groups: int, table: bool) -> Candidates | None:
    """The cutoffs that are tested; else, where a table is wanted, every cutoff that the rows tell apart."""
    density = ratio.density
    if rule.confidence is not None and rule.limits_errors:
        if rule.coverage is None:
            blocks = ratio.error_blocks if groups == 1 else None
            return risk_candidates(curve, density, rule.risk, delta, blocks, ratio.loss_quantiles)
        try:
            return joint_candidates(curve, density, rule.risk, rule.coverage, delta)
        except Infeasible as verdict:
            raise Infeasible(f"{rule.asked} `confidence={rule.confidence:g}`: {verdict}") from None
    if not table:
        return None
    reachable, _ = curve.below(density.flat_start)
    count = max(1, int(np.searchsorted(curve.accepted, reachable, side="right")))
    last = thresholds.capped(curve.following(int(curve.accepted[count - 1])), density)
    cutoffs = np.append(curve.losses[1:count], np.inf if last is None else last)
    counts = curve.accepted[:count], curve.errors[:count]
    return Candidates(cutoffs, *counts, np.full(count, delta), np.zeros(count, bool))


def _listed(candidates: Candidates, rule: Rule, ratio: Ratio, curve: Curve, labelled: bool) -> pa.Table:
    """The candidates as a table; the upper bound of each is at its `delta`."""
    cutoffs, accepted = candidates.cutoffs, candidates.accepted
    finite = np.isfinite(cutoffs)
    tau = np.where(finite, ratio.density.ratio(np.where(finite, cutoffs, 0.0)), 0.0)
    columns = {
        "cutoff": pa.array(cutoffs, mask=~finite),
        "tau": pa.array(tau, mask=~np.isfinite(tau)),
        "accepted": pa.array(accepted),
        "coverage": pa.array(accepted / curve.rows),
    }
    if labelled:
        with np.errstate(invalid="ignore", divide="ignore"):
            risk = candidates.errors / accepted
        columns["errors"] = pa.array(candidates.errors)
        columns["risk"] = pa.array(risk, mask=~np.isfinite(risk))
        columns["upper_bound"] = pa.array(candidates.bounds)
        columns["delta"] = pa.array(candidates.levels)
    if rule.confidence is not None and rule.limits_errors:
        columns["certified"] = pa.array(candidates.certified)
    return pa.table(columns)


def certify_if_possible(
    source: Source, rejector: Rejector, rule: Rule, options: ThresholdOptions | None = None, table: bool = False
) -> ChosenThreshold:
    """Choose the threshold with the usual confidence if that can be done, else as if none had been asked for.

    Rules that no confidence goes with are taken as they are. How many rows it would take is said as `plan` says it.
    """
    options = options or ThresholdOptions()
    if rule.confidence is not None or not rule.can_be_certified:
        return choose_threshold(source, rejector, rule, options, table)
    certain = replace(rule, confidence=CONFIDENCE)
    try:
        chosen = choose_threshold(source, rejector, certain, options, table)
        why_not = _short(chosen.rejector.need_threshold(), certain)
        if why_not is None:
            return chosen
    except Infeasible as verdict:
        why_not = f"{verdict}; it was chosen without a guarantee. {_advice(source, rejector, rule, options)}"
    return replace(
        choose_threshold(source, rejector, rule, replace(options, allow_reuse=False), table), why_not=why_not
    )


def _advice(source: Source, rejector: Rejector, rule: Rule, options: ThresholdOptions) -> str:
    """How many rows would be enough."""
    if not rule.limits_errors or options.by is not None:
        return "More rows to choose on may be enough"
    found, _ = plan_from(source, rejector, rule.risk, CONFIDENCE)
    assert found.rows is not None
    known = [(row.needed, row.coverage) for row in found.at_hand or () if row.needed is not None]
    if not known:
        return "The observed error rate is nowhere low enough for more rows to help"
    needed, coverage = min(((rows, at) for rows, at in known if rows > found.rows), default=(2 * found.rows, None))
    where = "" if coverage is None else f" at coverage {coverage:.2g} (with a chance of 80 %, by these rows)"
    return f"About {needed} rows to choose on would certify it{where}; there are {found.rows}"


def _short(threshold: Threshold, rule: Rule) -> str | None:
    """Of a coverage: whether rows were so few that accepting everything was the only sure way."""
    assert rule.confidence is not None
    if rule.kind != "coverage" or rule.target == 1:
        return None
    parts = threshold.groups or (threshold,)
    delta = float(1 - exact_decimal(rule.confidence)) / len(parts)
    if all(needed_rows(rule.target, part.rows, delta) <= part.rows for part in parts):
        return None
    least = math.ceil(math.log(delta) / math.log(rule.target))
    fewest = min(part.rows for part in parts)
    return (
        f"`coverage={rule.target:g}` `confidence={rule.confidence:g}` takes at least {least} rows to choose on, and "
        f"there are {fewest}; it was chosen without a guarantee"
    )
