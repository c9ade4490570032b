"""Step 4: the coverage report. Columns of rows in, figures out: each report has those that its columns allow."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from msgspec import Struct, field
from msgspec.structs import asdict, replace

from drrej._version import __version__
from drrej.core.calibration import ClasswiseTally, calibration_tallies
from drrej.core.curves import PER, Curve
from drrej.core.drift import loss_shift
from drrej.core.intervals import proportion
from drrej.core.losses import PLAIN
from drrej.core.reuse import LOOKED_AT, MOST_REPEATS, key_limit, repeated_rows
from drrej.core.softmax import NOTHING
from drrej.data.dump import Dump
from drrej.documents.document import When
from drrej.documents.figures import DEFAULT_POINTS, ClassCounts, CoverageHere, Point, Proportion
from drrej.documents.gates import Gate, check_gate, near, of_member
from drrej.documents.rejector import Rejector
from drrej.documents.report import Drift, RegressionReport, Report, Reviews, WorstClass, WorstGroup
from drrej.documents.words import accepted_scores
from drrej.errors import GateError, OptionError
from drrej.pipeline import compare, figures, pictures, score
from drrej.pipeline.collect import collect_scored, curve_of
from drrej.pipeline.compare import BaselineDump, Rivals
from drrej.pipeline.source import Source, left_out, without_bad_files


class EvaluateOptions(Struct, frozen=True):
    """What the report holds besides the figures that every report has.

    `intervals` adds those of the areas and of coverages at a risk, `classwise` the classwise calibration error.
    Unless `on_bad_row="error"`, rows without usable scores, which a mask rejects or lacks, are left out of the report.
    `examples` names columns: these, and the classes, of up to 25 rejected rows and up to 25 accepted errors are in the
    report then. `pictures` adds what a page or a plot shows. On that page, `title` is the heading, `model` is what it
    calls a model that was not named, `words` say what the rejector does where the caller has other words than the
    document's own, and `commands` are those that made the report.
    """

    points: Sequence[Point] = ()
    intervals: bool = False
    classwise: bool = False
    by: str | None = None
    rivals: Rivals = field(default_factory=Rivals)
    labels: bool = True
    audited: bool = False
    """Labels are those of a random sample of the accepted rows that `reject` drew, and maybe of rejected rows."""
    minutes: float | None = None
    """What the review of a row takes."""
    ood: str | None = None
    """A column that is true for rows that belong to no class: these have a section of their own and no label."""
    ood_cost: float = 1.0
    """What it costs to accept such a row, as a multiple of an error."""
    on_unseen_group: score.OnUnseen = "error"
    on_bad_row: Literal["error", "reject", "skip"] = "error"
    baseline: Report | None = None
    baseline_dump: BaselineDump | None = None
    pictures: bool = False
    examples: Sequence[str] | None = None
    title: str | None = None
    model: str | None = None
    words: Sequence[str] = ()
    commands: Sequence[str] = ()
    group: str | None = None
    """A column that tells rows with the same scores apart; else they count as copies."""
    known_fresh: bool = False
    """The caller has set these rows apart from those that made the rejector, so it need not be looked for."""

    def __post_init__(self) -> None:
        if self.audited and self.labels:
            raise OptionError("`audited=True` requires `labels=False`: figures that need every label are left out")
        if self.minutes is not None and not (math.isfinite(self.minutes) and self.minutes > 0):
            raise OptionError(f"`minutes={self.minutes:g}`: it must be above 0")
        if self.baseline is not None and self.baseline_dump is not None:
            raise OptionError("give either `baseline` or `baseline_dump`")
        needs_labels = {
            "`intervals=True`": self.intervals,
            "`classwise=True`": self.classwise,
            "`examples`": self.examples is not None,
            "`compare`": self.rivals.usual,
            "`rival`": bool(self.rivals.scores),
            "`metric`": bool(self.points),
            "`ood`": self.ood is not None,
            "`baseline`": self.baseline is not None,
            "`baseline_dump`": self.baseline_dump is not None,
        }
        if not (math.isfinite(self.ood_cost) and self.ood_cost >= 0):
            raise OptionError(f"`ood_cost={self.ood_cost:g}`: it is a multiple of the cost of an error, from 0 on")
        if self.ood is not None and self.baseline_dump is not None:
            raise OptionError(
                "`ood` cannot be combined with `baseline_dump`; report on the rows that have a class for that"
            )
        for option, asked in needs_labels.items():
            if asked and not self.labels:
                raise OptionError(f"{option} needs labels; it cannot be combined with `labels=False`")

    def conditions(self, rejector: Rejector | None = None) -> frozenset[When]:
        """What metrics of the report may depend on; a rejector that is not known yet may have costs."""
        then, paired = self.baseline, self.baseline_dump is not None
        both = then is not None and then.aurc is not None and then.aurc.lower is not None and self.intervals
        held = {
            When.LABELS: self.labels,
            When.COSTS: self.labels and (rejector is None or rejector.need_ratio().loss.is_cost),
            When.PRICES: self.labels and (rejector is None or rejector.need_threshold().rule.review_cost is not None),
            When.OUTSIDE: self.ood is not None,
            When.AUDIT: self.audited,
            When.MINUTES: self.minutes is not None,
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
    """Report on a dump with a finished rejector; gates are checked last, see `Report.failed_gates`.

    The report compares the target of the rejector with the result, see `Report.target`. If each group has its own
    cutoff, the report is by these groups unless `options.by` names others.

    >>> from drrej import Rule, calibrate, fit, threshold
    >>> val = Source("sample_data/val.parquet")
    >>> rejector = threshold(val, fit(val, calibrate(val)), Rule("coverage", 0.8))
    >>> report = evaluate(Source("sample_data/test.parquet"), rejector, [Gate.parse("accuracy >= 0.97")])
    >>> report.coverage.accepted, report.rows, report.failed_gates
    (1625, 2060, ())
    """
    options = options or EvaluateOptions()
    threshold = rejector.need_threshold()
    if options.labels and options.by is None:
        options = replace(options, by=threshold.by)
    if not rejector.has_classes:
        raise OptionError("the rejector was made for rows without logits; use evaluate_regression")
    if rejector.is_scored and (options.classwise or options.rivals.usual):
        name = "classwise=True" if options.classwise else "compare"
        raise OptionError(f"`{name}` needs the scores of all classes; these rows bring a score of their own")
    check_gates(gates, options, rejector, source.options.classes)
    if options.baseline is not None:
        compare.check_same_classes(options.baseline, rejector)
    if options.on_bad_row != "error":
        source = replace(source, options=replace(source.options, on_bad_row="skip"))
    if options.labels:
        named = [Point.parse(text)[0] for text in DEFAULT_POINTS]
        named += [*options.points, *(gate.point for gate in gates if gate.point is not None)]
        options = replace(options, points=list(dict.fromkeys(named)))
    of_classes = source if options.ood is None else compare.rows_where(source, options.ood, ood=False)
    if options.audited:
        by = score.drawn_by(rejector) or options.by
        if options.by not in (None, by):
            raise OptionError(f"the audit was drawn by '{by}', as the cutoffs are; leave out `by={options.by}`")
        options = replace(options, by=by)
        of_classes = replace(
            of_classes, options=replace(of_classes.options, keep_unlabelled=True, on_missing_label="skip")
        )
    dump = of_classes.open(rejector, labelled=options.labels or options.audited)
    columns, sections = _columns(of_classes, dump, rejector, options)
    ratio, curve = rejector.need_ratio(), curve_of(columns["loss"], columns.get("wrong"))
    drifted = curve_of(columns["drift"]) if "drift" in columns else curve
    moved = Drift(**loss_shift(drifted, ratio.drift_reference, ratio.rows))
    sections |= {
        "ratio": figures.ratio_figure(curve, ratio),
        "unsure_order": figures.unsure_order(moved, ratio),
        "tied_rows": figures.tied_rows(columns["loss"], columns["accepted"]),
        "classes": rejector.classes,
        "score": rejector.columns.logits if rejector.is_scored else None,
        "accepts": accepted_scores(rejector) if rejector.is_scored else None,
        "drift": moved,
        "by": options.by,
        "left_out": left_out(source),
    }
    rejected = sections["rows"] - sections["coverage"].accepted
    sections["reviews"] = Reviews(
        value=rejected,
        per_1000=PER * rejected / sections["rows"],
        hours=None if options.minutes is None else rejected * options.minutes / 60,
    )
    drawn: dict[str, Any] = {}
    if options.labels:
        if sections["unsure_order"] is not None and options.ood is None:  # what the plain order makes of these rows
            columns[f"{compare.SCORE}max_probability"] = columns["drift"]
        labelled, drawn = _with_labels(source, columns, curve, rejector, options)
        sections |= labelled
    else:
        doubt, losses = columns.get("doubt", columns["loss"]), columns.get("drift", columns["loss"])
        looks = None if options.by is None else figures.group_looks(columns, doubt, losses, ratio)
        sections["expected_accuracy"] = figures.expected_accuracy(doubt, columns["accepted"])
        sections["looks"] = looks
    if options.pictures:
        drawn = drawn or {"losses": pictures.loss_histogram(curve, labelled=False)}
        sections["pictures"] = drawn | {"made": pictures.made_by(rejector, options, dump)}
    report = Report(**sections)
    if options.audited:
        audit, target = figures.audited(columns, report, rejector)
        report = replace(report, audit=audit, target=target)
    else:
        report = replace(report, target=figures.target_of(report, rejector, by_class=columns.get("classes")))
    return replace(report, gates=tuple(gate.judge(report) for gate in gates))


@without_bad_files
def evaluate_regression(
    source: Source,
    rejector: Rejector,
    prediction: str | None = None,
    target: str | None = None,
    gates: Sequence[Gate] = (),
    on_unseen_group: score.OnUnseen = "error",
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
    known = rejector.columns
    named = {"prediction": prediction or known.prediction, "target": target or known.target}
    missing = "a regression is evaluated with `prediction=COL` and `target=COL`; `{}` is missing"
    residual = score.residual_columns(dump, named, missing)
    options = EvaluateOptions(labels=False, on_unseen_group=on_unseen_group)
    columns, sections = _columns(source, dump, rejector, options, residual)
    sections["ratio"] = figures.ratio_figure(curve_of(columns["loss"]), rejector.need_ratio())
    report = RegressionReport(**sections, **figures.error_sections(columns, rejector.need_ratio().density))
    mean = figures.limited_mean(columns, rejector.need_threshold().rule)
    report = replace(report, target=figures.target_of(report, rejector, mean))
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
        _, kind, member = of_member(gate.metric) or ("", "", "")
        if rejector is not None and kind == "class":
            known = list(rejector.class_names or names or rejector.class_titles)
            if rejector.is_scored:
                raise GateError(f"gate '{gate.text}': there are no classes: the rows bring a score of their own")
            if member not in known:
                raise GateError(f"gate '{gate.text}': there is no class '{member}'{near(member, known)}")


# What a report is made of

Columns = Mapping[str, Any]


def _columns(
    source: Source, dump: Dump, rejector: Rejector, options: EvaluateOptions, residual: Sequence[str] = ()
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a report takes of each row, in the order of the rows, with sums over all rows; and what every report says.

    `residual` are the columns of predictions and true values of a regression.
    """
    key = None if options.baseline_dump is None else options.baseline_dump.key
    names = rejector.class_names or dump.names
    grouping = None
    if options.by is not None:
        named = replace(rejector, class_names=names)
        grouping = score.Grouping(options.by, named, dump, files=True, truth=options.labels)
    rivals, classwise, examples = options.rivals, options.classwise, options.examples
    rivals.check(dump, rejector)
    score.check_columns(dump, [key] if key else [], "`join_on`")
    score.check_columns(dump, examples or (), "`examples`")
    score.check_columns(dump, [options.group] if options.group else [], "`group`")
    squares = frozenset({"squares"})
    needs, raw = (squares | rivals.needs, squares) if options.labels else (NOTHING, None)
    scorer = score.Scorer(rejector, dump, on_unseen=options.on_unseen_group, needs=needs, raw=raw)
    seen = {} if options.known_fresh else score.seen_rows(rejector)
    limit = key_limit(LOOKED_AT / dump.rows)

    def of_rows(scored: score.Scored) -> dict[str, Any]:
        block = scored.block
        columns: dict[str, Any] = {"loss": scored.loss, "accepted": scored.accepted, **scored.look_up(seen)}
        if residual:
            return columns | {"residual": score.residual_of(block, residual)}
        if options.group is not None or not rejector.is_scored:  # scores of any kind tie by nature
            columns["copies"] = [score.copy_keys(block, options.group, (scored.coarse <= limit) & ~block.bad)]
        if scored.drift is not scored.loss:
            columns["drift"] = scored.drift
        if grouping is not None:
            columns["group"] = grouping.column(block, scored.prediction)
        if options.audited:
            columns |= {"label": block.labels, "prediction": scored.prediction}
        elif block.labels is not None:
            columns |= _labelled_columns(scored, rivals, classwise)
        if not options.labels and not scored.loss_function.is_error_probability:
            columns["doubt"] = PLAIN["zero-one"].expected(scored.calibrated.sums)
        if key is not None:
            columns["key"] = compare.block_keys(block, key)
        if examples is not None:
            columns |= pictures.block_examples(scored, examples, ("right", "wrong") if rejector.is_scored else names)
        return columns

    others = [*rivals.scores, *(name for name in (key, options.group) if name), *(examples or ()), *residual]
    keep = (*(() if grouping is None else grouping.columns), *others)
    columns = collect_scored(source, dump, scorer, of_rows, "evaluating", options.labels or options.audited, keep)
    accepted, threshold = columns["accepted"], rejector.need_threshold()
    repeated = repeated_rows(columns.pop("copies"), accepted.size) if "copies" in columns else 0
    found = {"repeated_rows": repeated} if repeated > MOST_REPEATS * accepted.size else {}
    columns["independent"] = 1.0 - repeated / accepted.size if found else 1.0
    coverage = figures.coverage_figure(int(np.count_nonzero(accepted)), accepted.size, columns["independent"])
    return columns, {
        **found,
        "drrej_version": __version__,
        "tau": threshold.tau,
        "cutoff": threshold.cutoff,
        "cutoff_by": threshold.by,
        "seen_by": tuple(step for step, reuse in score.judge_rows(seen, columns).items() if reuse.reused) or None,
        "rows": int(accepted.size),
        "coverage": CoverageHere(**asdict(coverage), drop=threshold.coverage - (coverage.value or 0.0)),
        **source.models(rejector),
        "gates": (),
    }


def _labelled_columns(scored: score.Scored, rivals: Rivals, classwise: bool) -> dict[str, Any]:
    """What labels add; calibration is about the likeliest class, whatever the prediction, of rows that have a class."""
    labels, classes = scored.block.labels, scored.rejector.classes
    assert labels is not None
    known = labels >= 0
    chosen, kept = None if known.all() else known, scored.accepted & known
    of_accepted, of_others = calibration_tallies(scored.calibrated, np.maximum(labels, 0), kept, known & ~kept)
    number = np.min_scalar_type(classes)
    columns: dict[str, Any] = {
        "wrong": scored.wrong,
        "label": np.where(known, labels, classes).astype(number),
        "prediction": scored.prediction.astype(number),
        "uncalibrated": calibration_tallies(scored.raw, np.maximum(labels, 0), chosen)[0],
        "all": of_accepted + of_others,
        "accepted rows": of_accepted,
        **rivals.columns_of(scored),
    }
    if scored.cost is not None:
        columns["cost"] = scored.cost
    if classwise:
        before, after = scored.raw.probabilities(), scored.calibrated.probabilities()
        columns["classwise uncalibrated"] = ClasswiseTally.of(before[known], labels[known])
        columns["classwise all"] = ClasswiseTally.of(after[known], labels[known])
        columns["classwise accepted"] = ClasswiseTally.of(after[kept], labels[kept])
    return columns


def _with_labels(
    source: Source, columns: dict[str, Any], curve: Curve, rejector: Rejector, options: EvaluateOptions
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What labels add to a report, and to its pictures if these are wanted."""
    wrong, accepted, labels, classes = columns["wrong"], columns["accepted"], columns["label"], rejector.classes
    names, density = rejector.class_names or source.options.classes, rejector.need_ratio().density
    titles = names or rejector.class_titles
    cells = figures.count_cells(labels, classes + 1, wrong, accepted)
    _, _, errors, right = cells.sum(axis=0).tolist()
    independent = columns["independent"]
    cells = cells[:-1]  # the last are labels that name none of the classes
    accepted_errors = np.flatnonzero(accepted & wrong)
    taken = np.bincount(columns["prediction"][accepted_errors], minlength=classes)  # accepted errors by prediction
    by_class = (cells.sum(1), cells[:, 2], cells[:, 3] + taken, taken)
    columns["classes"] = seen = ClassCounts(*(each.tolist() for each in by_class))
    accepted_errors = accepted_errors[labels[accepted_errors] < classes]
    confused = labels[accepted_errors].astype(np.int64) * classes + columns["prediction"][accepted_errors]
    curves = {"loss": curve}
    curves |= {name: curve_of(values, wrong) for name, values in columns.items() if name.startswith(compare.SCORE)}
    sections: dict[str, Any] = {
        "below_chance": figures.swapped(labels, columns["prediction"], titles),
        "accuracy": figures.accuracy_figure(errors, errors + right, independent),
        "risk": Proportion(**proportion(errors, errors + right, independent)),
        "errors": errors,
        "base_accuracy": figures.accuracy_figure(curve.total_errors, curve.rows, independent),
        **figures.calibration_sections(columns),
        **figures.order_sections(curve, options.intervals),
        "points": {point.name: point.row(curve, options.intervals) for point in options.points},
        "curve": tuple(figures.curve_point(curve, *curve.below(density.cutoff(tau)), tau) for tau in figures.TAUS),
        "coverage_curve": figures.coverage_curve(curve),
        "per_class": figures.per_class(cells, seen, names, independent),
        "confusion": figures.confusion_matrix(cells, confused, titles),
        **figures.cost_sections(columns, rejector),
    }
    if rejector.is_scored:
        sections |= dict.fromkeys(("per_class", "confusion"))  # right and wrong are no classes
        sections["below_chance"] = figures.inverted(wrong, accepted)
    elif sections["per_class"]:
        sections["worst_class"] = figures.worst_of(WorstClass, sections["per_class"], "class_")
    if rejector.need_ratio().loss.is_error_probability:
        sections["expected_accuracy"] = figures.expected_accuracy(columns["loss"], accepted)
    if options.by is not None:
        numbers, groups = score.numbered(columns["group"])
        counts = figures.count_cells(numbers, len(groups), wrong, accepted)
        sections["per_group"] = figures.per_group(groups, counts)
        sections["worst_group"] = figures.worst_of(WorstGroup, sections["per_group"], "group")
    if len(curves) > 1:
        sections["scores"] = compare.score_rows(columns, curves, options.points, options.intervals)
    if options.ood is not None:
        sections["ood"] = compare.ood_figures(source, rejector, options, curves, errors + right, errors)
    if options.examples is not None:
        sections["examples"] = pictures.examples(columns, options.examples)
    baseline: dict[str, Any] = {}
    if options.baseline is not None:
        now = {"coverage": figures.coverage_figure(errors + right, curve.rows, independent), **sections}
        sections["difference"], baseline = compare.report_differences(now, options.baseline)
    elif options.baseline_dump is not None:
        other, unseen = options.baseline_dump, options.on_unseen_group
        sections["difference"], baseline = compare.paired_differences(columns, other, unseen, titles)
    if not options.pictures:
        return sections, {}
    before, after = (pictures.reliability(columns[name]) for name in ("uncalibrated", "all"))
    drawn = {
        "ideal": pictures.ideal_curve(curve.total_errors, curve.rows),
        "reliability": {"uncalibrated": before, "calibrated": after},
        "losses": pictures.loss_histogram(curve),
    }
    return sections, drawn | ({"baseline": baseline} if baseline else {})
