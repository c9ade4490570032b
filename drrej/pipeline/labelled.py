"""The report on rows with labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drrej.core.curves import Curve
from drrej.core.intervals import proportion
from drrej.core.paired import OrderDifference, order_difference
from drrej.data.dump import Dump
from drrej.documents.costs import TotalCost
from drrej.documents.pictures import BaselineCurve, Pictures, Reliability
from drrej.documents.points import Point, Proportion
from drrej.documents.rejector import Rejector
from drrej.documents.report import Area, Calibration, Change, Excess, ExpectedAccuracy, Ranking, Report
from drrej.engines.protocol import Pass
from drrej.pipeline import figures, pictures
from drrej.pipeline.baseline import baseline_curve, keyed_rows, paired_differences, report_differences
from drrej.pipeline.collect import collect, curve_of
from drrej.pipeline.compare import AREAS, areas_of, mask_row, score_row
from drrej.pipeline.costs import total_cost
from drrej.pipeline.evaluate_options import EvaluateOptions
from drrej.pipeline.figures import Picked, Picking, confusion_matrix
from drrej.pipeline.freshness import Seen
from drrej.pipeline.groups import Grouping, check_columns
from drrej.pipeline.ood import Ranked, of_class, outside_figures
from drrej.pipeline.reject import left_out
from drrej.pipeline.score import Scorer
from drrej.pipeline.source import Source
from drrej.pipeline.tally import EvaluatedBlock, Evaluator, KeyedRows, PricedRows, Tally
from drrej.records import dataclass


@dataclass(frozen=True)
class _Found:
    """What the pass over the rows brought: what adds up, curves by loss and by other scores, and what is per row."""

    tally: Tally
    points: Curve
    drift: Curve
    scores: Mapping[str, Curve]
    differences: Mapping[str, OrderDifference]
    keyed: list[KeyedRows]
    confused: NDArray[np.int64]
    priced: list[PricedRows]
    picked: list[Picked]
    data: str
    seen_by: tuple[str, ...] | None


Names = tuple[str, ...] | None


def labelled_report(source: Source, rejector: Rejector, options: EvaluateOptions, wanted: Sequence[Point]) -> Report:
    """The report without its gates; `wanted` are the points of the curve that it has."""
    found = _pass(source if options.ood is None else of_class(source, options.ood), rejector, options)
    names = _named(rejector, source.options.classes).class_names
    report = replace(_figures(rejector, found, wanted, options.intervals, names), left_out=left_out(source))
    if options.by is not None:
        groups = figures.per_group(found.tally.by_group)
        report = replace(report, by=options.by, per_group=groups, worst_group=figures.worst_group(groups))
    if found.scores:
        curves, accepted = {"loss": found.points, **found.scores}, report.coverage.accepted
        rows = [score_row(name, curve, accepted, wanted, options.intervals) for name, curve in curves.items()]
        compared = {name: Change(**vars(difference)) for name, difference in found.differences.items()}
        report = replace(report, scores=tuple(replace(row, augrc_difference=compared.get(row.score)) for row in rows))
    if options.ood is not None:
        ranked = Ranked(found.points, found.scores, *found.tally.counts[1:])
        report = replace(report, ood=outside_figures(source, rejector, options, ranked))
    if options.rivals.masks:
        cells = {name: figures.cells_of(found.tally.masks, name) for name in options.rivals.masks}
        report = replace(report, masks=tuple(mask_row(name, cells[name], found.points) for name in cells))
    if options.examples is not None:
        report = replace(report, examples=Picking(options.examples, names).together(found.picked))
    if found.priced:
        report = replace(report, total_cost=_total_cost(rejector, PricedRows.joined(found.priced)))
    report, then = _compared(report, found, options)
    if options.pictures:
        report = replace(report, pictures=_pictures(rejector, names, found, options, then))
    return report


def _pass(source: Source, rejector: Rejector, options: EvaluateOptions) -> _Found:
    dump = source.open(rejector, labelled=True)
    seen = Seen((), ()) if options.known_fresh else Seen.of(rejector)
    evaluator = _evaluator(rejector, dump, options, seen)
    run = Pass("evaluating", labelled=True, keep=evaluator.columns, scores=evaluator.scorer.columns)
    columns = collect(source, dump, evaluator, run)
    losses, wrong = columns["loss"], columns["wrong"]
    order = np.argsort(wrong, kind="stable")
    scores = {name.removeprefix("score "): values for name, values in columns.items() if name.startswith("score ")}
    differences = {
        name: order_difference(losses[order], values[order], int(np.count_nonzero(~wrong)), len(scores))
        for name, values in scores.items()
    }
    points = curve_of(losses, wrong)
    rest: list[EvaluatedBlock] = columns["rest"]
    return _Found(
        columns["tally"],
        points,
        curve_of(columns["drift"]) if "drift" in columns else points,
        {name: curve_of(values, wrong) for name, values in scores.items()},
        differences,
        [block.keyed for block in rest if block.keyed is not None],
        np.concatenate([block.confused for block in rest]),
        [block.priced for block in rest if block.priced is not None],
        [block.picked for block in rest if block.picked is not None],
        pictures.data_name(dump),
        seen.among(block.sightings for block in rest),
    )


def _named(rejector: Rejector, names: Names) -> Rejector:
    """With these names of its classes if it has none: what a report calls them. Groups of its threshold keep theirs."""
    return rejector if rejector.class_names or not rejector.has_classes else replace(rejector, class_names=names)


def _evaluator(rejector: Rejector, dump: Dump, options: EvaluateOptions, seen: Seen) -> Evaluator:
    grouping = None
    if options.by is not None:
        grouping = Grouping(options.by, _named(rejector, dump.names), dump, files=True, truth=True)
    key = None if options.baseline_dump is None else options.baseline_dump.key
    options.rivals.check(dump)
    check_columns(dump, [key] if key else [], "`join_on`")
    check_columns(dump, options.examples or (), "`examples`")
    picking = None if options.examples is None else Picking(options.examples, _named(rejector, dump.names).class_names)
    needs = Evaluator.NEEDS | options.rivals.needs
    scorer = Scorer(rejector, dump, on_unseen=options.on_unseen_group, needs=needs, raw=Evaluator.NEEDS)
    return Evaluator(scorer, seen, options.rivals, grouping, key, picking, options.classwise)


def _figures(rejector: Rejector, found: _Found, wanted: Sequence[Point], intervals: bool, names: Names) -> Report:
    """What every report on rows with labels has."""
    ratio, tally, points = rejector.need_ratio(), found.tally, found.points
    rows, accepted, errors = tally.counts
    parts = {"uncalibrated": tally.uncalibrated, "all": tally.all, "accepted": tally.accepted}
    areas: dict[str, Any] = {
        name: (Excess if name == "standard_e_aurc" else Area)(**area, convention=figures.CONVENTIONS[name])
        for name, area in areas_of(points, intervals, {**AREAS, "standard_e_aurc": Curve.standard_e_aurc}).items()
    }
    rankings: dict[str, Any] = {
        name: Ranking(value=ranking(points), convention=figures.CONVENTIONS[name])
        for name, ranking in figures.RANKINGS.items()
    }
    drift = figures.drift_figure(found.drift, ratio)
    return Report(
        **figures.decision(rejector),
        seen_by=found.seen_by,
        unsure_order=figures.unsure_order(drift, ratio),
        rows=rows,
        classes=rejector.classes,
        coverage=figures.coverage_figure(accepted, rows),
        accuracy=figures.accuracy_figure(errors, accepted),
        risk=Proportion(**proportion(errors, accepted)),
        errors=errors,
        base_accuracy=figures.accuracy_figure(points.total_errors, rows),
        expected_accuracy=_expected(rejector, tally),
        nll=Calibration(**{name: part.mean_nll for name, part in parts.items()}),
        ece=Calibration(**{name: part.ece for name, part in parts.items()}),
        classwise_ece=Calibration(**{name: part.ece for name, part in tally.classwise.items()})
        if tally.classwise
        else None,
        brier=Calibration(**{name: part.mean_brier for name, part in parts.items()}),
        **areas,
        **rankings,
        points={point.name: point.row(points, intervals) for point in wanted},
        ratio=figures.ratio_figure(tally.ratio, rows, ratio),
        drift=drift,
        curve=figures.tau_curve(ratio.density, points),
        coverage_curve=figures.coverage_curve(points),
        per_class=figures.per_class(tally.by_class, names),
        confusion=confusion_matrix(tally.by_class, found.confused, names),
        cost=None if tally.cost is None else tally.cost.figures(rejector.need_ratio().loss.prices),
        gates=(),
    )


def _total_cost(rejector: Rejector, rows: PricedRows) -> TotalCost:
    rule, loss = rejector.need_threshold().rule, rejector.need_ratio().loss
    prices = [0.0, rule.error_cost] if rule.error_cost is not None else loss.prices
    return total_cost(rows.losses, rows.costs, rows.accepted, rule.target, prices)


def _expected(rejector: Rejector, tally: Tally) -> ExpectedAccuracy:
    """By the loss where that was fitted to be the probability of an error, else by the largest probability."""
    if rejector.need_ratio().loss.is_error_probability:
        rows, accepted, _ = tally.counts
        return figures.expected_accuracy(tally.loss_accepted.mean(accepted), tally.loss.mean(rows))
    return ExpectedAccuracy(value=tally.accepted.mean_confidence, all=tally.all.mean_confidence)


def _compared(report: Report, found: _Found, options: EvaluateOptions) -> tuple[Report, BaselineCurve | None]:
    """The report with its differences to a baseline, and the baseline's curve if it has one."""
    then, other = options.baseline, options.baseline_dump
    if then is not None:
        curve = None
        if then.coverage_curve is not None and then.accuracy is not None:
            curve = BaselineCurve(coverage_curve=then.coverage_curve, coverage=then.coverage, accuracy=then.accuracy)
        return replace(report, difference=report_differences(report, then)), curve
    if other is None:
        return report, None
    rows = keyed_rows(other.source, other.rejector, other.key, options.on_unseen_group)
    difference = paired_differences(KeyedRows.joined(found.keyed), rows, other.key)
    return replace(report, difference=difference), baseline_curve(rows)


def _pictures(
    rejector: Rejector, names: Names, found: _Found, options: EvaluateOptions, then: BaselineCurve | None
) -> Pictures:
    tally, points = found.tally, found.points
    classes = [(str(k) if names is None else names[k], tally.by_class[k]) for k in range(rejector.classes)]
    groups = sorted({group for group, _ in tally.by_group})
    by_group = [(group, figures.cells_of(tally.by_group, group)) for group in groups]
    return Pictures(
        ideal=pictures.ideal_curve(points.total_errors, points.rows),
        reliability=Reliability(
            uncalibrated=pictures.reliability(tally.uncalibrated), calibrated=pictures.reliability(tally.all)
        ),
        losses=pictures.loss_histogram(points),
        classes=pictures.worst_rows([(name, counts) for name, counts in classes if counts.any()]),
        confusions=pictures.confusions(found.confused, rejector.classes, names),
        groups=None if options.by is None else pictures.worst_rows(by_group),
        baseline=then,
        made=pictures.made_by(rejector, options, found.data),
    )
