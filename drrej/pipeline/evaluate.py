"""Step 4: the coverage report. Columns of rows in, figures out: each report has those that its columns allow."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from drrej.core.calibration import ClasswiseTally
from drrej.core.curves import Curve
from drrej.core.drift import RatioSums
from drrej.core.intervals import proportion
from drrej.core.losses import zero_one_loss
from drrej.core.softmax import NOTHING
from drrej.data.dump import Block, Dump
from drrej.documents.document import When
from drrej.documents.figures import DEFAULT_POINTS, Point, Proportion
from drrej.documents.gates import Gate, check_gate, near
from drrej.documents.rejector import Rejector, Threshold
from drrej.documents.report import Made, Pictures, RegressionReport, Reliability, Report
from drrej.documents.targets import Counts, Target, judge, judge_cost, judge_mean, wanted_of
from drrej.engines.protocol import Pass
from drrej.errors import GateError, OptionError
from drrej.pipeline import figures, pictures
from drrej.pipeline.collect import collect, curve_of
from drrej.pipeline.compare import (
    BaselineDump,
    Rivals,
    block_keys,
    check_same_classes,
    mask_row,
    ood_columns,
    ood_figures,
    paired_differences,
    report_curve,
    report_differences,
    rows_where,
    score_rows,
    scores_of,
)
from drrej.pipeline.costs import cost_per_row, total_cost
from drrej.pipeline.freshness import ALL_STEPS, SeenRows
from drrej.pipeline.groups import Grouping, OnUnseen, check_columns, numbered
from drrej.pipeline.reject import left_out
from drrej.pipeline.score import Scorer
from drrej.pipeline.source import Source, without_bad_files


class EvaluateOptions(Struct, frozen=True):
    """What the report holds besides the figures that every report has.

    `intervals` adds those of the areas and of coverages at a risk, `classwise` the classwise calibration error.
    Unless `on_bad_row="error"`, rows without usable scores, which a mask rejects or lacks, are left out of the report.
    `examples` names columns: these, and the classes, of up to 25 rejected rows and up to 25 accepted errors are in the
    report then. `pictures` adds what a page or a plot shows. On that page, `title` is the heading, `model` names what
    was judged, `words` say what the rejector does where the caller has other words than the document's own, and
    `commands` are those that made the report.
    """

    points: Sequence[Point] = ()
    intervals: bool = False
    classwise: bool = False
    by: str | None = None
    rivals: Rivals = field(default_factory=Rivals)
    labels: bool = True
    ood: str | None = None
    """A column that is true for rows that belong to no class: these have a section of their own and no label."""
    ood_cost: float = 1.0
    """What it costs to accept such a row, as a multiple of an error."""
    on_unseen_group: OnUnseen = "error"
    on_bad_row: Literal["error", "reject", "skip"] = "error"
    baseline: Report | None = None
    baseline_dump: BaselineDump | None = None
    pictures: bool = False
    examples: Sequence[str] | None = None
    title: str | None = None
    model: str | None = None
    words: Sequence[str] = ()
    commands: Sequence[str] = ()
    known_fresh: bool = False
    """The caller has set these rows apart from those that made the rejector, so it need not be looked for."""

    def __post_init__(self) -> None:
        if self.baseline is not None and self.baseline_dump is not None:
            raise OptionError("give either `baseline` or `baseline_dump`")
        needs_labels = {
            "`intervals=True`": self.intervals,
            "`classwise=True`": self.classwise,
            "`examples`": self.examples is not None,
            "`compare`": self.rivals.usual,
            "`score`": bool(self.rivals.scores),
            "`rejected`": bool(self.rivals.masks),
            "`metric`": bool(self.points),
            "`ood`": self.ood is not None,
            "`baseline`": self.baseline is not None,
            "`baseline_dump`": self.baseline_dump is not None,
        }
        if not (math.isfinite(self.ood_cost) and self.ood_cost >= 0):
            raise OptionError(f"`ood_cost={self.ood_cost:g}`: it is a multiple of the cost of an error, from 0 on")
        if self.ood is not None and (self.rivals.masks or self.baseline_dump is not None):
            other = "`rejected`" if self.rivals.masks else "`baseline_dump`"
            raise OptionError(f"`ood` does not go with {other}; report on the rows that have a class for that")
        given = [option for option, asked in needs_labels.items() if asked]
        if not self.labels and given:
            raise OptionError(f"{given[0]} needs labels; it does not go with `labels=False`")

    def conditions(self, rejector: Rejector | None = None) -> frozenset[When]:
        """What metrics of the report may depend on; a rejector that is not known yet may have costs."""
        then, paired = self.baseline, self.baseline_dump is not None
        both = then is not None and then.aurc is not None and then.aurc.lower is not None and self.intervals
        held = {
            When.LABELS: self.labels,
            When.COSTS: self.labels and (rejector is None or rejector.need_ratio().loss.is_cost),
            When.PRICES: self.labels and (rejector is None or rejector.need_threshold().rule.kind == "cost"),
            When.OUTSIDE: self.ood is not None,
            When.GROUPS: self.by is not None and self.labels,
            When.INTERVALS: self.intervals,
            When.CLASSWISE: self.classwise,
            When.BASELINE: then is not None or paired,
            When.PAIRS: paired,
            When.BOTH_INTERVALS: both or paired,
        }
        return frozenset(condition for condition, holds in held.items() if holds)


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
    points = [Point.parse(text)[0] for text in DEFAULT_POINTS]
    points += [*options.points, *(gate.point for gate in gates if gate.point is not None)]
    report = _report(source, rejector, options, list(dict.fromkeys(points)))
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
        member = gate.of_group
        if rejector is not None and member is not None and member.kind == "class":
            known = list(rejector.class_names or names or map(str, range(rejector.classes)))
            if member.member not in known:
                raise GateError(f"gate '{gate.text}': there is no class '{member.member}'{near(member.member, known)}")


# The columns

Columns = Mapping[str, Any]


def _columns(
    source: Source, dump: Dump, rejector: Rejector, options: EvaluateOptions, seen: SeenRows
) -> dict[str, Any]:
    """What the report takes of each row, in the order of the rows, and sums over all rows."""
    key = None if options.baseline_dump is None else options.baseline_dump.key
    grouping = None
    if options.by is not None:
        named = replace(rejector, class_names=rejector.class_names or dump.names)
        grouping = Grouping(options.by, named, dump, files=True, truth=options.labels)
    options.rivals.check(dump)
    check_columns(dump, [key] if key else [], "`join_on`")
    check_columns(dump, options.examples or (), "`examples`")
    squares = frozenset({"squares"})
    needs, raw = (squares | options.rivals.needs, squares) if options.labels else (NOTHING, None)
    scorer = Scorer(rejector, dump, on_unseen=options.on_unseen_group, needs=needs, raw=raw)
    grouped = () if grouping is None else grouping.columns
    keep = [*scorer.columns, *grouped, *options.rivals.columns, *([key] if key else []), *(options.examples or ())]
    run = Pass("evaluating", labelled=options.labels, keep=keep, scores=scorer.columns)
    known = replace(options, baseline=None, baseline_dump=None)  # no worker needs these
    names = rejector.class_names or dump.names
    of_block = partial(_row_columns, scorer=scorer, seen=seen, grouping=grouping, key=key, options=known, names=names)
    return collect(source, dump, of_block, run)


def _row_columns(
    block: Block,
    scorer: Scorer,
    seen: SeenRows,
    grouping: Grouping | None,
    key: str | None,
    options: EvaluateOptions,
    names: Sequence[str] | None,
) -> dict[str, Any]:
    scored = scorer(block)
    columns: dict[str, Any] = {
        "loss": scored.loss,
        "accepted": scored.accepted,
        "ratio": RatioSums.of(scored.log_ratio),
        **(seen.look_up(scored.keys[~scored.block.bad]) if seen.sets else {}),
    }
    if scored.drift is not scored.loss:
        columns["drift"] = scored.drift
    if grouping is not None:
        columns["group"] = grouping.column(block, scored.prediction)
    labels = block.labels
    if labels is None and scorer.loss.is_error_probability:
        return columns
    if labels is None:
        return columns | {"doubt": zero_one_loss(scored.calibrated.sums)}
    # calibration is about the likeliest class, whatever the prediction
    calibrated, raw = scored.calibrated.labelled(labels), scored.raw.labelled(labels)
    number = np.min_scalar_type(scorer.rejector.classes)
    columns |= {
        "wrong": scored.wrong,
        "label": labels.astype(number),
        "prediction": scored.prediction.astype(number),
        "uncalibrated": raw.tally(),
        "all": calibrated.tally(),
        "accepted rows": calibrated.tally(scored.accepted),
        **options.rivals.score_columns(scored),
        **options.rivals.mask_columns(block),
    }
    if scored.cost is not None:
        columns["cost"] = scored.cost
    if key is not None:
        columns["key"] = block_keys(block, key)
    if options.classwise:
        before, after, kept = scored.raw.probabilities(), scored.calibrated.probabilities(), scored.accepted
        columns["classwise uncalibrated"] = ClasswiseTally.of(before, labels)
        columns["classwise all"] = ClasswiseTally.of(after, labels)
        columns["classwise accepted"] = ClasswiseTally.of(after[kept], labels[kept])
    if options.examples is not None:
        columns |= figures.block_examples(scored, options.examples, names)
    return columns


# The sections


def _report(source: Source, rejector: Rejector, options: EvaluateOptions, points: Sequence[Point]) -> Report:
    """The report without target and gates: what its columns allow, `points` of the curve among it."""
    labelled = source if options.ood is None else rows_where(source, options.ood, ood=False)
    dump = labelled.open(rejector, labelled=options.labels)
    seen = SeenRows() if options.known_fresh else SeenRows.of(rejector, ALL_STEPS)
    columns = _columns(labelled, dump, rejector, options, seen)
    ratio, curve = rejector.need_ratio(), curve_of(columns["loss"], columns.get("wrong"))
    drift = figures.drift_figure(curve_of(columns["drift"]) if "drift" in columns else curve, ratio)
    sections = {
        **figures.decision(rejector),
        "seen_by": seen.steps(columns),
        "unsure_order": figures.unsure_order(drift, ratio),
        "tied_rows": figures.tied_rows(columns["loss"], columns["accepted"]),
        "rows": curve.rows,
        "classes": rejector.classes,
        "coverage": figures.coverage_figure(int(np.count_nonzero(columns["accepted"])), curve.rows),
        "ratio": figures.ratio_figure(columns["ratio"], curve.rows, ratio),
        "drift": drift,
        "by": options.by,
        "left_out": left_out(source),
        "gates": (),
    }
    made = pictures.made_by(rejector, options, dump) if options.pictures else None
    if options.labels:
        return Report(**sections, **_with_labels(source, columns, curve, rejector, options, points, made))
    return Report(**sections, **_without_labels(columns, curve, rejector, options, made))


def _without_labels(
    columns: Columns, curve: Curve, rejector: Rejector, options: EvaluateOptions, made: Made | None
) -> dict[str, Any]:
    """What can be said without labels: the accuracy that the probabilities promise, and where losses have moved."""
    ratio, doubt = rejector.need_ratio(), columns.get("doubt", columns["loss"])
    losses = columns.get("drift", columns["loss"])
    looks = None if options.by is None else figures.group_looks(columns, doubt, losses, ratio)
    return {
        "expected_accuracy": figures.expected_accuracy(doubt, columns["accepted"]),
        "looks": looks,
        "where": figures.where_moved(losses, ratio, options.by, looks or ()),
        "pictures": made and Pictures(losses=pictures.loss_histogram(curve, labelled=False), made=made),
    }


def _with_labels(
    source: Source,
    columns: Columns,
    curve: Curve,
    rejector: Rejector,
    options: EvaluateOptions,
    points: Sequence[Point],
    made: Made | None,
) -> dict[str, Any]:
    """What labels add: accuracy, calibration, curves, classes and groups, and what was asked for besides."""
    wrong, accepted, labels = columns["wrong"], columns["accepted"], columns["label"]
    names = rejector.class_names or source.options.classes
    cells = figures.count_cells(labels, rejector.classes, wrong, accepted)
    _, _, errors, right = cells.sum(axis=0).tolist()
    accepted_errors = np.flatnonzero(accepted & wrong)
    confused = labels[accepted_errors].astype(np.int64) * rejector.classes + columns["prediction"][accepted_errors]
    sections: dict[str, Any] = {
        "accuracy": figures.accuracy_figure(errors, errors + right),
        "risk": Proportion(**proportion(errors, errors + right)),
        "errors": errors,
        "base_accuracy": figures.accuracy_figure(curve.total_errors, curve.rows),
        **figures.calibration_sections(columns),
        **figures.order_sections(curve, options.intervals),
        "points": {point.name: point.row(curve, options.intervals) for point in points},
        "curve": figures.tau_curve(rejector.need_ratio().density, curve),
        "coverage_curve": figures.coverage_curve(curve),
        "per_class": figures.per_class(cells, names),
        "confusion": figures.confusion_matrix(cells, confused, names),
        **_costs(columns, rejector),
    }
    if rejector.need_ratio().loss.is_error_probability:
        sections["expected_accuracy"] = figures.expected_accuracy(columns["loss"], accepted)
    by_group: list[tuple[str, Any]] | None = None
    if options.by is not None:
        numbers, groups = numbered(columns["group"])
        by_group = list(zip(groups, figures.count_cells(numbers, len(groups), wrong, accepted), strict=True))
        sections["per_group"] = figures.per_group(by_group)
        sections["worst_group"] = figures.worst_group(sections["per_group"])
    curves = {name: curve_of(values, wrong) for name, values in scores_of(columns).items() if name != "loss"}
    if curves:
        sections["scores"] = score_rows(columns, {"loss": curve, **curves}, points, options.intervals)
    if options.ood is not None:
        rows = ood_columns(source, rejector, options.ood, options.rivals, options.on_unseen_group)
        every = {"loss": curve, **curves}
        sections["ood"] = ood_figures(rows, options.ood, options.ood_cost, every, errors + right, errors)
    if options.rivals.masks:
        masks = options.rivals.masks
        sections["masks"] = tuple(mask_row(name, columns[f"mask {name}"], wrong, curve) for name in masks)
    if options.examples is not None:
        sections["examples"] = figures.examples(columns, options.examples)
    baseline = None
    if options.baseline is not None:
        now = {"coverage": figures.coverage_figure(errors + right, curve.rows), **sections}
        sections["difference"] = report_differences(now, options.baseline)
        baseline = report_curve(options.baseline)
    elif options.baseline_dump is not None:
        difference = paired_differences(columns, options.baseline_dump, options.on_unseen_group)
        sections["difference"], baseline = difference
    if made is not None:
        by_class = [(str(k) if names is None else names[k], counts) for k, counts in enumerate(cells) if counts.any()]
        sections["pictures"] = Pictures(
            ideal=pictures.ideal_curve(curve.total_errors, curve.rows),
            reliability=Reliability(
                uncalibrated=pictures.reliability(columns["uncalibrated"]),
                calibrated=pictures.reliability(columns["all"]),
            ),
            losses=pictures.loss_histogram(curve),
            classes=pictures.worst_rows(by_class),
            confusions=pictures.confusions(confused, rejector.classes, names),
            groups=None if by_group is None else pictures.worst_rows(by_group),
            baseline=baseline,
            made=made,
        )
    return sections


def _costs(columns: Columns, rejector: Rejector) -> dict[str, Any]:
    """What accepted rows cost, for a loss that knows; what errors and reviews cost, for a rule that asks."""
    rule, loss = rejector.need_threshold().rule, rejector.need_ratio().loss
    sections: dict[str, Any] = {}
    costs, prices = columns.get("cost"), loss.prices
    if costs is not None:
        sections["cost"] = cost_per_row(costs, columns["loss"], columns["accepted"], prices)
    if rule.kind == "cost" and rule.error_cost is not None:
        costs, prices = np.where(columns["wrong"], rule.error_cost, 0.0), [0.0, rule.error_cost]
    if rule.kind == "cost":
        assert costs is not None
        sections["total_cost"] = total_cost(columns["loss"], costs, columns["accepted"], rule.target, prices)
    return sections


# What became of the target

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
    tied = isinstance(report, Report) and report.tied_rows is not None
    if isinstance(report, Report) and report.per_group is not None and report.by == threshold.by:
        cutoffs = {group.group: group.cutoff for group in threshold.groups or ()}
        known = [row for row in report.per_group if row.group in cutoffs]
        if known:
            return [
                Counts(
                    row.rows, row.coverage.accepted, row.accuracy.errors, row.group, cutoffs[row.group] is None, tied
                )
                for row in known
            ]
    errors = report.accuracy.errors if isinstance(report, Report) and report.accuracy is not None else None
    nothing_rejected = threshold.by is None and threshold.cutoff is None
    return [Counts(report.rows, report.coverage.accepted, errors, certain=nothing_rejected, tied=tied)]
