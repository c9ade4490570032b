"""Step 4: the coverage report. Columns of rows in, figures out: each report has those that its columns allow."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal, TypeVar

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from drrej._version import __version__
from drrej.core.calibration import ClasswiseTally
from drrej.core.curves import Curve
from drrej.core.drift import RatioSums
from drrej.core.intervals import proportion
from drrej.core.losses import PLAIN
from drrej.core.reuse import Fingerprint
from drrej.core.softmax import NOTHING
from drrej.data.dump import Dump
from drrej.documents.document import When
from drrej.documents.figures import DEFAULT_POINTS, Point, Proportion
from drrej.documents.gates import Gate, check_gate, near
from drrej.documents.rejector import Rejector, Threshold
from drrej.documents.report import Made, Pictures, RegressionReport, Report
from drrej.errors import DumpError, GateError, OptionError
from drrej.pipeline import compare, drift, figures, pictures
from drrej.pipeline.collect import collect_scored, curve_of
from drrej.pipeline.compare import BaselineDump, Rivals
from drrej.pipeline.figures import MeanError
from drrej.pipeline.groups import Grouping, OnUnseen, check_columns, numbered
from drrej.pipeline.score import Scored, Scorer, column_values, seen_rows
from drrej.pipeline.source import Source, left_out, without_bad_files


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
        compare.check_same_classes(options.baseline, rejector)
    if options.on_bad_row != "error":
        source = replace(source, options=replace(source.options, on_bad_row="skip"))
    points = [Point.parse(text)[0] for text in DEFAULT_POINTS]
    points += [*options.points, *(gate.point for gate in gates if gate.point is not None)]
    report = _report(source, rejector, options, list(dict.fromkeys(points)))
    return _judged(report, threshold, gates)


AnyReport = TypeVar("AnyReport", Report, RegressionReport)


def _judged(
    report: AnyReport, threshold: Threshold, gates: Sequence[Gate], mean: MeanError = (None, None)
) -> AnyReport:
    """The report with what became of the target, and of the gates; for `mean` see `target_of`."""
    report = replace(report, target=figures.target_of(report, threshold, mean))
    return replace(report, gates=tuple(gate.judge(report) for gate in gates))


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
    residual = [
        _named(dump, "prediction", prediction or rejector.columns.prediction),
        _named(dump, "target", target or rejector.columns.target),
    ]
    options = EvaluateOptions(labels=False, on_unseen_group=on_unseen_group)
    columns, common = _columns(source, dump, rejector, options, residual)
    threshold = rejector.need_threshold()
    report = RegressionReport(**common, **figures.error_sections(columns, rejector.need_ratio().density))
    return _judged(report, threshold, gates, figures.limited_mean(columns, threshold.rule))


def _named(dump: Dump, parameter: str, name: str | None) -> str:
    if name is None:
        raise OptionError(f"a regression is evaluated with `prediction=COL` and `target=COL`; `{parameter}` is missing")
    if name not in dump.schema.names:
        raise DumpError(f"{dump.parts[0].name}: there is no column '{name}' (`{parameter}`)")
    return name


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
        kind, member = gate.member or ("", "")
        if rejector is not None and kind == "class":
            known = list(rejector.class_names or names or map(str, range(rejector.classes)))
            if member not in known:
                raise GateError(f"gate '{gate.text}': there is no class '{member}'{near(member, known)}")


# The columns

Columns = Mapping[str, Any]


def _columns(
    source: Source, dump: Dump, rejector: Rejector, options: EvaluateOptions, residual: Sequence[str] = ()
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a report takes of each row, in the order of the rows, with sums over all rows; and what every report says.

    `residual` are the columns of predictions and true values of a regression.
    """
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
    others = [*options.rivals.columns, *([key] if key else []), *(options.examples or ()), *residual]
    seen = {} if options.known_fresh else seen_rows(rejector)
    of_rows = partial(
        _row_columns,
        seen=seen,
        grouping=grouping,
        key=key,
        options=replace(options, baseline=None, baseline_dump=None),  # no worker needs these
        names=rejector.class_names or dump.names,
        residual=residual,
    )
    keep = (*grouped, *others)
    columns = collect_scored(source, dump, scorer, of_rows, "evaluating", options.labels, keep)
    accepted, threshold = columns["accepted"], rejector.need_threshold()
    reused = [step for step, known in seen.items() if known and known.judge(columns[f"seen by {step}"]).reused]
    return columns, {
        "drrej_version": __version__,
        "tau": threshold.tau,
        "cutoff": threshold.cutoff,
        "cutoff_by": threshold.by,
        "seen_by": tuple(reused) or None,
        "rows": int(accepted.size),
        "coverage": figures.coverage_figure(int(np.count_nonzero(accepted)), int(accepted.size)),
        "gates": (),
    }


def _row_columns(
    scored: Scored,
    seen: Mapping[str, Fingerprint | None],
    grouping: Grouping | None,
    key: str | None,
    options: EvaluateOptions,
    names: Sequence[str] | None,
    residual: Sequence[str],
) -> dict[str, Any]:
    block = scored.block
    columns: dict[str, Any] = {"loss": scored.loss, "accepted": scored.accepted, **scored.look_up(seen)}
    if residual:
        predicted, true = (column_values(block, name) for name in residual)
        return columns | {"residual": predicted - true}
    columns["ratio"] = RatioSums.of(scored.log_ratio)
    if scored.drift is not scored.loss:
        columns["drift"] = scored.drift
    if grouping is not None:
        columns["group"] = grouping.column(block, scored.prediction)
    labels = block.labels
    if labels is None and scored.loss_function.is_error_probability:
        return columns
    if labels is None:
        return columns | {"doubt": PLAIN["zero-one"].expected(scored.calibrated.sums)}
    # calibration is about the likeliest class, whatever the prediction, of rows whose label is one of the classes
    classes, known, kept = scored.rejector.classes, labels >= 0, scored.accepted & (labels >= 0)
    chosen = None if known.all() else known
    of_all, of_accepted = scored.calibrated.tallies(np.maximum(labels, 0), chosen, kept)
    number = np.min_scalar_type(classes)
    columns |= {
        "wrong": scored.wrong,
        "label": np.where(known, labels, classes).astype(number),
        "prediction": scored.prediction.astype(number),
        "uncalibrated": scored.raw.tallies(np.maximum(labels, 0), chosen)[0],
        "all": of_all,
        "accepted rows": of_accepted,
        **options.rivals.score_columns(scored),
        **options.rivals.mask_columns(block),
    }
    if scored.cost is not None:
        columns["cost"] = scored.cost
    if key is not None:
        columns["key"] = compare.block_keys(block, key)
    if options.classwise:
        before, after = scored.raw.probabilities(), scored.calibrated.probabilities()
        columns["classwise uncalibrated"] = ClasswiseTally.of(before[known], labels[known])
        columns["classwise all"] = ClasswiseTally.of(after[known], labels[known])
        columns["classwise accepted"] = ClasswiseTally.of(after[kept], labels[kept])
    if options.examples is not None:
        columns |= pictures.block_examples(scored, options.examples, names)
    return columns


# The sections


def _report(source: Source, rejector: Rejector, options: EvaluateOptions, points: Sequence[Point]) -> Report:
    """The report without target and gates: what its columns allow, `points` of the curve among it."""
    labelled = source if options.ood is None else compare.rows_where(source, options.ood, ood=False)
    dump = labelled.open(rejector, labelled=options.labels)
    columns, common = _columns(labelled, dump, rejector, options)
    ratio, curve = rejector.need_ratio(), curve_of(columns["loss"], columns.get("wrong"))
    moved = drift.drift_figure(curve_of(columns["drift"]) if "drift" in columns else curve, ratio)
    sections = {
        **common,
        "unsure_order": drift.unsure_order(moved, ratio),
        "tied_rows": figures.tied_rows(columns["loss"], columns["accepted"]),
        "classes": rejector.classes,
        "ratio": drift.ratio_figure(columns["ratio"], curve.rows, ratio),
        "drift": moved,
        "by": options.by,
        "left_out": left_out(source),
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
    looks = None if options.by is None else drift.group_looks(columns, doubt, losses, ratio)
    return {
        "expected_accuracy": drift.expected_accuracy(doubt, columns["accepted"]),
        "looks": looks,
        "where": drift.where_moved(losses, ratio, options.by, looks or ()),
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
    cells = figures.count_cells(labels, rejector.classes + 1, wrong, accepted)
    _, _, errors, right = cells.sum(axis=0).tolist()
    cells = cells[:-1]  # the last are labels that name none of the classes
    accepted_errors = np.flatnonzero(accepted & wrong & (labels < rejector.classes))
    confused = labels[accepted_errors].astype(np.int64) * rejector.classes + columns["prediction"][accepted_errors]
    sections: dict[str, Any] = {
        "below_chance": figures.below_chance(labels, columns["prediction"], rejector.classes, names),
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
        sections["expected_accuracy"] = drift.expected_accuracy(columns["loss"], accepted)
    by_group: list[tuple[str, Any]] | None = None
    if options.by is not None:
        numbers, groups = numbered(columns["group"])
        by_group = list(zip(groups, figures.count_cells(numbers, len(groups), wrong, accepted), strict=True))
        sections["per_group"] = figures.per_group(by_group)
        sections["worst_group"] = figures.worst_group(sections["per_group"])
    curves = {name: curve_of(values, wrong) for name, values in compare.scores_of(columns).items() if name != "loss"}
    if curves:
        sections["scores"] = compare.score_rows(columns, {"loss": curve, **curves}, points, options.intervals)
    if options.ood is not None:
        rows = compare.ood_columns(source, rejector, options.ood, options.rivals, options.on_unseen_group)
        every = {"loss": curve, **curves}
        sections["ood"] = compare.ood_figures(rows, options.ood, options.ood_cost, every, errors + right, errors)
    if options.rivals.masks:
        masks = options.rivals.masks
        sections["masks"] = tuple(compare.mask_row(name, columns[f"mask {name}"], wrong, curve) for name in masks)
    if options.examples is not None:
        sections["examples"] = pictures.examples(columns, options.examples)
    baseline = None
    if options.baseline is not None:
        now = {"coverage": figures.coverage_figure(errors + right, curve.rows), **sections}
        sections["difference"] = compare.report_differences(now, options.baseline)
        baseline = compare.report_curve(options.baseline)
    elif options.baseline_dump is not None:
        known = names or tuple(map(str, range(rejector.classes)))
        difference = compare.paired_differences(columns, options.baseline_dump, options.on_unseen_group, known)
        sections["difference"], baseline = difference
    if made is not None:
        by_class = [(str(k) if names is None else names[k], counts) for k, counts in enumerate(cells) if counts.any()]
        sections["pictures"] = Pictures(
            ideal=pictures.ideal_curve(curve.total_errors, curve.rows),
            reliability={
                "uncalibrated": pictures.reliability(columns["uncalibrated"]),
                "calibrated": pictures.reliability(columns["all"]),
            },
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
        sections["cost"] = figures.cost_per_row(costs, columns["loss"], columns["accepted"], prices)
    if rule.kind == "cost" and rule.error_cost is not None:
        costs, prices = np.where(columns["wrong"], rule.error_cost, 0.0), [0.0, rule.error_cost]
    if rule.kind == "cost":
        assert costs is not None
        sections["total_cost"] = figures.total_cost(columns["loss"], costs, columns["accepted"], rule.target, prices)
    return sections
