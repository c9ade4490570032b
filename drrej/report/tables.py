"""The tables of a report, a plan or a cascade: figures as texts, by id; every format shows the same ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial, singledispatch
from typing import Any

from msgspec import Struct

from drrej.documents.document import Document, Entry, entries
from drrej.documents.figures import Change, Proportion, Spread
from drrej.documents.report import Calibration, Difference, ErrorFigures, Ranking, RegressionReport, Report
from drrej.documents.summaries import Cascade, Plan
from drrej.errors import printable
from drrej.report.words import (
    counted,
    exact_percent,
    figure,
    interval,
    model_words,
    money,
    percent,
    percents,
    plain,
    review_words,
    seen_by,
    unsure_order,
)


class Style(Struct, frozen=True):
    """How a share and its interval, and other numbers, are written."""

    share: Callable[[Any], str]
    interval: Callable[[Spread], str]
    number: Callable[[Any], str]
    fine: Callable[[Any], str]


DECIMALS = Style(figure, interval, figure, partial(figure, digits=6))
PERCENT = Style(percent, percents, plain, plain)
"""As logs and pages have them."""


class Table(Struct, frozen=True):
    """A header, rows of as many cells, and a remark below. Without a header the rows are plain lines."""

    id: str
    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    remark: str = ""
    notes: Sequence[str] = ()
    """A sentence on each row, for those who have room."""


@singledispatch
def heading(report: Document) -> str:
    """The rows and the decision in one line."""
    raise TypeError(report)


@singledispatch
def tables(report: Document, style: Style = DECIMALS) -> list[Table]:
    """Every table that a report has."""
    raise TypeError(report, style)


# Reports


@heading.register
def _(report: Report | RegressionReport) -> str:
    what = size_words(report) if isinstance(report, Report) else "regression"
    decision = "rejects nothing"
    if report.cutoff_by is not None:
        decision = f"each group by {printable(report.cutoff_by)} has its own cutoff"
    elif report.cutoff is not None:
        decision = f"rejects rows with a loss of {figure(report.cutoff, 6)} or more"
        if isinstance(report, Report) and report.tau is not None:
            decision += f" (ratio of {figure(report.tau, 6)} or less)"
    if isinstance(report, Report) and report.accepts is not None:
        decision = f"accepts {printable(report.accepts)}; {decision}"
    if isinstance(report, Report) and report.reviews.hours is not None:
        decision += f"; to review: {review_words(report)}"
    model = "" if report.model is None else f"\n{model_words(report)}"
    return f"{report.rows} rows, {what}; {decision}{model}"


@tables.register
def _(report: Report, style: Style = DECIMALS) -> list[Table]:
    makers = (_shares, _comparisons, _measures, _costs, _drift, _classes, _rows)
    return [table for made_by in makers for table in made_by(report, style)]


@tables.register
def _(report: RegressionReport, _: Style = DECIMALS) -> list[Table]:
    share = report.coverage
    coverage = f"coverage  {figure(share.value)}  ({interval(share)}), {share.accepted} accepted"
    errors = [
        [_label(entry), *(figure(value, 6) for value in (error.value, error.all, error.aurc.value, error.augrc.value))]
        for entry, error in _declared(report, ErrorFigures)
    ]
    curve = [
        [figure(point.tau, 2), figure(point.coverage), figure(point.mse), figure(point.mae)]
        for point in report.curve[_CURVE_EVERY - 1 :: _CURVE_EVERY]
    ]
    return [
        Table("proportions", "Coverage", [], [[coverage]], seen_by(report)),
        Table("errors", "Errors", ["", "accepted", "all", "AURC", "AUGRC"], errors),
        Table("curve", "Curve", ["tau ", "coverage", "MSE", "MAE"], curve),
    ]


def _declared(document: Report | RegressionReport | Difference, *kinds: type) -> list[tuple[Entry, Any]]:
    """The sections of these kinds that a document has, with what is declared about them."""
    fields = [
        entry
        for kind in kinds
        for entry in entries(type(document))
        if entry.section is not None and issubclass(entry.section, kind)
    ]
    return [(entry, section) for entry in fields if (section := getattr(document, entry.name)) is not None]


def _label(entry: Entry) -> str:
    return entry.about.label or entry.name.replace("_", " ")


def _notes(declared: Sequence[tuple[Entry, Any]]) -> list[str]:
    """What each figure is, as a sentence."""
    return [entry.about.meaning[:1].upper() + entry.about.meaning[1:] + "." for entry, _ in declared]


def _spread(share: Spread, style: Style) -> list[str]:
    return [style.share(share.value), style.interval(share)]


MOST_CLASSES = 20
_MOST_LOOKS = 50
_CURVE_EVERY = 5
_SHORT = 9
"""Signs of a class name that heads a column; longer ones are numbered."""


def _shares(report: Report, style: Style) -> Iterator[Table]:
    """Coverage and accuracy, of all rows and by group."""
    counts = f"{report.coverage.accepted} of {report.rows} accepted"
    rows = [["coverage", *_spread(report.coverage, style), counts]]
    for name, share in (("accuracy", report.accuracy), ("base accuracy", report.base_accuracy)):
        rows += [] if share is None else [[name, *_spread(share, style), f"{share.errors} errors"]]
    rows.append(
        ["expected accuracy", style.share(report.expected_accuracy.value), "-", "without labels; ignores drift"]
    )
    header = ["", "value", "95 % interval", "counts"]
    remark = "; ".join(filter(None, [seen_by(report), report.below_chance]))
    yield Table("proportions", "Coverage and accuracy", header, rows, remark)
    by = str(report.by)
    if report.per_group:
        rows = []
        for group in report.per_group:
            coverage, base = style.share(group.coverage.value), style.share(group.base_accuracy.value)
            rows.append([group.group, str(group.rows), coverage, *_spread(group.accuracy, style), base])
        header = [by, "rows", "coverage", "accuracy", "95 % interval", "base accuracy"]
        yield Table("groups", f"By {by}", header, rows)
    if report.looks:
        rows = []
        for look in report.looks[:_MOST_LOOKS]:
            figures = map(figure, (look.expected_accuracy, look.drift.distance, look.drift.p_value))
            rows.append([look.group, str(look.rows), *_spread(look.coverage, DECIMALS), *figures])
        header = [by, "rows", "coverage", "95 % interval", "expected accuracy", "drift", "p-value"]
        number, left = len(report.looks), len(report.looks) - _MOST_LOOKS
        remark = f"drift since the fit, largest first; p-values are Bonferroni-corrected for {number} groups"
        remark += f"; {left} with less drift are not shown" if left > 0 else ""
        yield Table("looks", f"By {by}", header, rows, remark)


def _comparisons(report: Report, style: Style) -> Iterator[Table]:
    """Other scores, rows of no class and an earlier report."""
    if report.scores:
        areas = [entry for entry in entries(Report) if entry.name in ("aurc", "augrc")]
        header = ["score", *map(_label, areas), "accuracy", "95 % interval"]
        rows = [
            [row.score, *(style.fine(getattr(row, area.name).value) for area in areas), *_spread(row.accuracy, style)]
            for row in report.scores
        ]
        better = ", ".join(row.score for row in report.scores if row.is_better)
        remark = "accuracy: at the coverage of this rejector"
        remark += f"; significantly better than the loss at ordering these rows: {better}" if better else ""
        yield Table("scores", "Scores", header, rows, remark)
    if report.ood is not None:
        ood = report.ood
        rows = [
            ["rows", str(ood.rows), f"'{ood.column}' is true"],
            ["accepted", *_spread(ood.accepted, style)],
            ["joint risk", style.share(ood.joint_risk), f"{style.share(ood.joint_risk_all)} if all were accepted"],
            ["AUROC", style.fine(ood.auroc), "of the loss, separating them from rows of a class"],
            ["FPR at 95 % TPR", style.fine(ood.fpr_at_95_tpr), "of them are accepted when 95 % of the others are"],
            ["AURC, AUGRC", f"{style.fine(ood.aurc)}, {style.fine(ood.augrc)}", "of the joint risk"],
        ]
        remark = (
            f"accepting such a row costs {ood.cost_ratio:g} times an error in the joint risk; all other figures are "
            "about rows that have a class"
        )
        yield Table("ood", "Rows of no class", ["", "value", ""], rows, remark)
        if ood.scores is not None:
            rows = [[name, *map(style.fine, areas.values())] for name, areas in ood.scores.items()]
            header = ["score", "AUROC", "FPR at 95 % TPR", "AURC", "AUGRC"]
            yield Table("ood_scores", "Scores and rows of no class", header, rows, "areas: of the joint risk")
    if report.difference is not None:
        rows = [[entry.key, *_spread(change, style)] for entry, change in _declared(report.difference, Change)]
        how = "paired rows" if report.difference.kind == "paired" else "two reports"
        header = ["", "difference", "95 % interval"]
        yield Table("difference", "Difference from the baseline", header, rows, f"new - old, {how}")


def _measures(report: Report, style: Style) -> Iterator[Table]:
    """Points of the curve, calibration, and how well the loss orders the rows."""
    if report.points:
        rows = [
            [name, *_spread(point, style), f"{point.errors} errors in {point.accepted}"]
            for name, point in report.points.items()
        ]
        yield Table("points", "Points of the curve", ["", "value", "95 % interval", "counts"], rows)
    parts = [entry.name for entry in entries(Calibration)]
    if calibration := _declared(report, Calibration):
        rows = []
        for entry, section in calibration:
            written = style.share if entry.about.unit == "share" else style.number
            rows.append([_label(entry), *(written(getattr(section, part)) for part in parts)])
        yield Table("calibration", "Calibration", ["", *parts], rows, notes=_notes(calibration))
    measured = _declared(report, Proportion, Change, Ranking)
    if areas := [(entry, area) for entry, area in measured if getattr(area, "convention", None) is not None]:
        rows = []
        for entry, area in areas:
            lower, upper = getattr(area, "lower", None), getattr(area, "upper", None)
            ends = "-" if lower is None else f"{style.fine(lower)} - {style.fine(upper)}"
            rows.append([_label(entry), style.fine(area.value), ends])
        yield Table("areas", "Areas", ["", "value", "95 % interval"], rows, notes=_notes(areas))


def _costs(report: Report, style: Style) -> Iterator[Table]:
    """What errors and reviews cost, and what the predictions cost."""
    if report.total_cost is not None:
        cost = report.total_cost
        accepting, rejecting = (
            f"{money(saving.value)} ({money(saving.lower)} - {money(saving.upper)})"
            for saving in (cost.saved_over_accepting, cost.saved_over_rejecting)
        )
        rows = [
            ["this rejector", money(cost.value), f"{money(cost.lower)} - {money(cost.upper)}", "-"],
            ["accepting all", money(cost.accepting_all), "-", accepting],
            ["reviewing all", money(cost.rejecting_all), "-", rejecting],
            ["best cutoff here", money(cost.best_cutoff), "-", "-"],
            ["oracle", money(cost.oracle), "-", "-"],
        ]
        header = ["cost per 1000 rows", "cost", "95 % interval", "saved over it"]
        remark = "errors and reviews; the oracle knows which rows to review; both savings hold with 95 %"
        yield Table("total-cost", "Cost of errors and reviews", header, rows, remark)
    if report.cost is not None:
        rows = [
            ["realised", style.fine(report.cost.value), style.fine(report.cost.all.value)],
            ["expected", style.fine(report.cost.expected), style.fine(report.cost.all.expected)],
        ]
        yield Table("cost", "Cost per row", ["cost", "accepted", "all"], rows)


def _drift(report: Report, style: Style) -> Iterator[Table]:
    """How far these rows are from those of the fit, and what other thresholds would do."""
    ratio, drift, number = report.ratio, report.drift, style.number
    rows = [
        ["mean ratio", f"{number(ratio.mean)} +- {number(ratio.std_error)}", number(ratio.p_value)],
        ["loss distribution", f"distance {number(drift.distance)}", number(drift.p_value)],
    ]
    remark = "; ".join(filter(None, ["without drift the mean ratio is 1", unsure_order(report)]))
    yield Table("drift", "Drift since the fit", ["drift", "value", "p-value"], rows, remark)
    if report.curve:
        rows = [
            [f"{point.tau:.2f}", figure(point.coverage), figure(point.accuracy)]
            for point in report.curve[_CURVE_EVERY - 1 :: _CURVE_EVERY]
        ]
        yield Table("curve", "Curve", ["tau", "coverage", "accuracy"], rows)


def size_words(report: Report) -> str:
    """The classes that rows have, or the score in their place."""
    return f"{report.classes} classes" if report.score is None else f"score '{report.score}', no classes"


def _classes(report: Report, style: Style) -> Iterator[Table]:
    """By true class, and which class is taken for which."""
    if report.per_class:
        shown, remark = report.per_class, ""
        if len(shown) > MOST_CLASSES:
            remark = f"the {MOST_CLASSES} of {len(shown)} classes with the lowest accuracy; "
            shown = tuple(sorted(shown, key=lambda row: (row.accuracy is not None, row.accuracy))[:MOST_CLASSES])
        header, rows = ["class", "rows", "coverage", "accuracy"], list[list[str]]()
        for row in shown:
            shares = [share for share in (row.missed, row.precision) if share is not None]
            ends = [text for share in shares for text in _spread(share, style)]
            rows.append([str(row.class_), str(row.rows), style.share(row.coverage), style.share(row.accuracy), *ends])
        if shown[0].precision is not None:
            header += ["missed", "95 % interval", "precision", "95 % interval"]
            remark += "missed: accepted as another class; precision: of the rows accepted as it; intervals hold jointly"
        yield Table("classes", "By class", header, rows, remark.removesuffix("; "))
    if report.audit is not None:
        drawn = [("all", report.coverage.accepted, report.audit.labels, report.audit.accuracy)]
        drawn += [(row.group, row.accepted, row.labels, row.accuracy) for row in report.audit.per_group]
        rows = [[name, str(kept), str(labels), *_spread(share, style)] for name, kept, labels, share in drawn]
        by, remark = report.cutoff_by or "prediction", "the intervals of the parts hold for all of them together"
        yield Table("audit", "Audit", [by, "accepted", "labelled", "right", "95 % interval"], rows, remark)
    if report.confusion is not None:
        names = columns = [row.class_ for row in report.confusion.rows]
        if max(map(len, names)) > _SHORT:
            columns = [str(number) for number in range(1, len(names) + 1)]
            names = [f"{number} {name}" for number, name in zip(columns, names, strict=True)]
        rows = [
            [name, *map(str, row.predicted), str(row.rejected)]
            for name, row in zip(names, report.confusion.rows, strict=True)
        ]
        remark = "accepted rows by true class and prediction"
        remark += "; the classes with the most errors, and the others together" if report.confusion.others else ""
        yield Table("confusion", "Confusion matrix", ["true class", *columns, "rejected"], rows, remark)


def _rows(report: Report, _: Style) -> Iterator[Table]:
    """Single rows: examples, and what was left out."""
    if report.examples is not None:
        header = [*report.examples.columns, "true class", "predicted", "expected loss"]
        rejected, wrong = (
            [[*row.values, row.label, row.prediction, figure(row.loss, 6)] for row in rows]
            for rows in (report.examples.rejected, report.examples.wrongly_accepted)
        )
        yield Table("rejected", "Rejected rows", header, rejected, "the largest expected losses first")
        yield Table("wrong", "Accepted errors", header, wrong, "the most confident errors first")
    if report.left_out is not None:
        rows = [
            [f"{bad.rows} {'row' if bad.rows == 1 else 'rows'}: {bad.reason}", f"{bad.first_file}, {bad.first_row}"]
            for bad in report.left_out.reasons
        ]
        for file in report.left_out.files:  # without the file's name before the reason and the advice after it
            reason = file.reason.removeprefix(f"{file.file}: ").partition("; ")[0]
            rows.append([f"file: {reason}", file.file])
        yield Table("left_out", "Left out", ["left out", "first: file, row from 0"], rows)


# Plans


@heading.register
def _(plan: Plan) -> str:
    """The answer, in a sentence."""
    question, sure = plan.question, f"with confidence {exact_percent(plan.confidence)}"
    what = "all promises" if question is None else f"a risk of at most {exact_percent(question.risk)}"
    if plan.certified is not None:
        errors = "" if question is None else f", {counted(plan.certified.errors, 'error')}"
        accepted = f"{percent(plan.certified.coverage)} ({plan.certified.accepted:,} accepted{errors})"
        return f"These rows certify {what} at a coverage of {accepted}, {sure}."
    if plan.why_not is not None:
        return f"These rows do not certify {what}: {plan.why_not}."
    if plan.promises is not None:
        counts = [row.needed[_HALF].fixed_cutoff for row in plan.promises]
        known = [count for count in counts if count is not None]
        if len(known) < len(counts):
            return f"No number of rows certifies {what} {sure}, if errors use half of each limit."
        rows = _count(max(known))
        return f"{rows} fresh labelled rows should certify {what}, {sure}, if errors use half of each limit."
    if question is None:
        return f"{counted(plan.rows or 0, 'labelled row')}, {plan.errors:,} of them wrong; bounds {sure}."
    planned = [row for row in plan.needed or () if row.fixed_cutoff is not None]
    row = min(planned, key=lambda row: abs(row.error - question.risk / 2))
    return (
        f"{_count(row.fixed_cutoff)} fresh labelled rows certify {what} at a coverage of "
        f"{exact_percent(question.coverage)}, {sure},\nwith a chance of {exact_percent(question.power)}, if "
        f"{exact_percent(row.error)} of the accepted rows are wrong."
    )


_HALF = 2
"""The place of the expected error rate that is half of the limit."""


@tables.register
def _(plan: Plan, _: Style = DECIMALS) -> list[Table]:
    found = partial(Table, "needed", "Rows that are needed")
    if plan.promises:
        parts = ["none", "1/4 of it", "1/2 of it", "3/4 of it"]
        rows = [
            [row.promise, f"{row.share:g}", str(row.least), *(_count(each.fixed_cutoff) for each in row.needed)]
            for row in plan.promises
        ]
        remark = "fresh rows of all kinds, by how much of the limit is expected to be used up"
        return [found(["promise", "share of rows", "at least", *parts], rows, remark)]
    if plan.at_hand is not None:
        header = ["coverage", "accepted", "errors", "risk", "bound, if asked", "bound, any cutoff"]
        remark = "'if asked': valid if you chose this coverage before looking; 'any cutoff': valid for any choice"
        if plan.question is not None:
            header.append("fresh rows")
            remark += (
                f"; 'fresh rows' would certify a risk of {plan.question.risk:g} and this coverage with power "
                f"{plan.question.power:g}, if these risks are the true ones"
            )
        rows = []
        for row in plan.at_hand:
            shares = [percent(share, 2) for share in (row.risk, row.asked, row.any_cutoff)]
            cells = [percent(row.coverage), str(row.accepted), str(row.errors), *shares, _count(row.needed)]
            rows.append(cells[: len(header)])
        return [Table("at_hand", "What these rows can guarantee", header, rows, remark)]
    if plan.needed is None or plan.question is None:
        return []
    rows = [[f"{row.error:g}", _count(row.fixed_cutoff), _count(row.risk_and_coverage)] for row in plan.needed]
    remark = (
        "fixed cutoff: one that was chosen on other rows; risk and coverage: promised together; even without an error, "
        f"at least {plan.question.least_accepted} rows must be accepted"
    )
    return [found(["expected error rate", "fixed cutoff", "risk and coverage"], rows, remark)]


def _count(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


# Cascades

_MOST_PLANS = 12


@heading.register
def _(cascade: Cascade) -> str:
    chosen, target = cascade.chosen, percent(cascade.target, 2)
    accuracy = f"{percent(chosen.accuracy, 2)} right ({chosen.errors} errors)"
    lines = [
        f"{cascade.rows} rows at {money(chosen.cost)} each, {accuracy}",
        "chosen on these same rows: nothing is guaranteed for others (pass `confidence`)",
    ]
    if cascade.confidence is not None:
        lines[1] = (
            "certified on these rows, which nothing else has used: on new rows the accuracy is at least "
            f"{target}, with confidence {cascade.confidence:g}"
        )
    if cascade.saved is not None:
        lines.append(f"saves {percent(cascade.saved)} of the cost of '{cascade.saved_over}' alone, which suffices too")
    elif cascade.saved_over is None:
        lines.append(f"no single stage reaches an accuracy of {target}")
    return "\n".join(lines)


@tables.register
def _(cascade: Cascade, _: Style = DECIMALS) -> list[Table]:
    stages = []
    for stage in cascade.stages:
        answers = "left out" if not stage.used else "all" if stage.cutoff is None else f"loss < {stage.cutoff:.6g}"
        stages.append([stage.name, money(stage.cost), answers, str(stage.reached), str(stage.answered)])
    ways = [("this cascade", cascade.chosen), *((f"{way.stages[0]} alone", way) for way in cascade.alone)]
    alone = [[name, money(way.cost), percent(way.accuracy, 2), str(way.errors)] for name, way in ways]
    step = max(1, -(-len(cascade.frontier) // _MOST_PLANS))
    plans = []
    for place, plan in enumerate(cascade.frontier):
        if place % step == 0 or plan == cascade.chosen:
            cost = money(plan.cost) + (" *" if plan == cascade.chosen else "")
            plans.append([cost, percent(plan.accuracy, 2), str(plan.errors), " > ".join(plan.stages)])
    remark = "the plans that were tested, the safest first; * is the one that was chosen, the cheapest that passed"
    if cascade.confidence is None:
        remark = "plans that no other beats, the safest first; * is the one that was chosen"
    return [
        Table("stages", "Stages", ["stage", "cost", "answers", "rows seen", "rows answered"], stages),
        Table("alone", "Against each stage alone", ["", "cost per row", "accuracy", "errors"], alone),
        Table("frontier", "Cost and accuracy", ["cost per row", "accuracy", "errors", "stages"], plans, remark),
    ]
