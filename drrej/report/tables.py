"""The tables of a report, a plan or a cascade: figures as texts, by id; every format shows the same ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, singledispatch
from typing import Any

from msgspec import Struct

from drrej.documents.document import Document, Entry, Unit, entries
from drrej.documents.figures import Change, Outside, OutsideScore, PointFigure, Proportion
from drrej.documents.report import (
    Area,
    Calibration,
    ClassRow,
    ConfusionMatrix,
    Cost,
    Difference,
    Drift,
    ErrorFigures,
    Example,
    Examples,
    GroupLook,
    GroupRow,
    MaskRow,
    Ranking,
    RegressionReport,
    Report,
    ScoreRow,
)
from drrej.documents.summaries import Cascade, CascadePoint, LeftOut, Plan, Question, StageAlone
from drrej.documents.targets import Saving, TotalCost
from drrej.report.words import Spread, figure, interval, money, percent, percents, plain, seen_by, short, unsure_order


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


@heading.register
def _(report: Report) -> str:
    tau = f" (ratio of {figure(report.tau, 6)} or less)" if report.cutoff is not None and report.tau is not None else ""
    return f"{report.rows} rows, {report.classes} classes; {_decision(report)}{tau}"


@heading.register
def _(report: RegressionReport) -> str:
    return f"{report.rows} rows, regression; {_decision(report)}"


def _decision(report: Report | RegressionReport) -> str:
    if report.cutoff_by is not None:
        return f"each group by {report.cutoff_by} has a cutoff of its own"
    return "rejects nothing" if report.cutoff is None else f"rejects a loss of {figure(report.cutoff, 6)} or more"


def _declared(document: Report | RegressionReport | Difference, *kinds: type) -> list[tuple[Entry, Any]]:
    """The sections of these kinds that a document has, with what is declared about them."""
    declared = [(entry, getattr(document, entry.name)) for kind in kinds for entry in _fields(type(document), kind)]
    return [(entry, section) for entry, section in declared if section is not None]


def _fields(document: type, kind: type) -> list[Entry]:
    return [entry for entry in entries(document) if isinstance(entry.section, type) and issubclass(entry.section, kind)]


def _label(entry: Entry) -> str:
    return entry.about.label or entry.name.replace("_", " ")


def _notes(declared: Sequence[tuple[Entry, Any]]) -> list[str]:
    """What each figure is, as a sentence."""
    return [entry.about.meaning[:1].upper() + entry.about.meaning[1:] + "." for entry, _ in declared]


def _shown(rows: Sequence[Any], most: int, which: str = "more are") -> tuple[Sequence[Any], str]:
    """The first rows, and how many there are besides."""
    left = len(rows) - most
    return rows[:most], f"; {left} {which} not shown" if left > 0 else ""


# Coverage and accuracy


def _proportions(_: Any, report: Report, style: Style) -> Table:
    shares: dict[str, tuple[Proportion | None, str]] = {
        "coverage": (report.coverage, f"{report.coverage.accepted} of {report.rows} accepted"),
        "accuracy": (report.accuracy, f"{report.accuracy.errors} errors" if report.accuracy else ""),
        "base accuracy": (
            report.base_accuracy,
            f"{report.base_accuracy.errors} errors" if report.base_accuracy else "",
        ),
    }
    rows = [[name, *_spread(share, style), count] for name, (share, count) in shares.items() if share is not None]
    rows.append(
        ["expected accuracy", style.share(report.expected_accuracy.value), "-", "its own guess, blind to shift"]
    )
    header = ["", "value", "95 % interval", "counts"]
    remark = "; ".join(filter(None, [seen_by(report), report.below_chance]))
    return Table("proportions", "Coverage and accuracy", header, rows, remark)


def _spread(share: Proportion | Change, style: Style) -> list[str]:
    return [style.share(share.value), style.interval(share)]


def _points(points: dict[str, PointFigure], _: Report, style: Style) -> Table:
    rows = [
        [name, *_spread(point, style), f"{point.errors} errors in {point.accepted}"] for name, point in points.items()
    ]
    return Table("points", "Points of the curve", ["", "value", "95 % interval", "counts"], rows)


_CURVE_EVERY = 5


def _curve(_: Any, report: Report, __: Style) -> Table:
    rows = [
        [f"{point.tau:.2f}", figure(point.coverage), figure(point.accuracy)]
        for point in (report.curve or ())[_CURVE_EVERY - 1 :: _CURVE_EVERY]
    ]
    return Table("curve", "Curve", ["tau", "coverage", "accuracy"], rows)


# Groups and classes

MOST_CLASSES = 20
_MOST_LOOKS = 50
_MOST_MOVES = 20
_SHORT = 9
"""Signs of a class name that heads a column; longer ones are numbered."""


def _groups(groups: Sequence[GroupRow], report: Report, style: Style) -> Table:
    header = [str(report.by), "rows", "coverage", "accuracy", "95 % interval", "base accuracy"]
    rows = [
        [
            group.group,
            str(group.rows),
            style.share(group.coverage.value),
            *_spread(group.accuracy, style),
            style.share(group.base_accuracy.value),
        ]
        for group in groups
    ]
    return Table("groups", f"By {report.by}", header, rows)


def _looks(looks: Sequence[GroupLook], report: Report, _: Style) -> Table:
    header = [str(report.by), "rows", "coverage", "95 % interval", "expected accuracy", "drift", "p-value"]
    shown, more = _shown(looks, _MOST_LOOKS, "with less drift are")
    rows = [
        [
            look.group,
            str(look.rows),
            *_spread(look.coverage, DECIMALS),
            figure(look.expected_accuracy),
            figure(look.drift.distance),
            figure(look.drift.p_value),
        ]
        for look in shown
    ]
    remark = f"drift since the fit, largest first; its p-value is times {len(looks)}, the number of groups{more}"
    return Table("looks", f"By {report.by}", header, rows, remark)


def _where(moves: Sequence[Any], report: Report, _: Style) -> Table:
    assert report.where is not None
    shown, more = _shown(moves, _MOST_MOVES)
    rows = [
        [
            f"{move.what}: {move.part}",
            figure(move.old),
            figure(move.new),
            f"{figure(move.lower)} - {figure(move.upper)}",
        ]
        for move in shown
    ]
    remark = (
        "elsewhere: in the fit, or in the other rows; most first; "
        f"the intervals hold for all {report.where.compared} shares together, at 95 %{more}"
    )
    return Table("where", "What surely moved", ["moved", "elsewhere", "here", "difference"], rows, remark)


def _classes(classes: Sequence[ClassRow], _: Report, __: Style) -> Table:
    shown, remark = classes, ""
    if len(classes) > MOST_CLASSES:
        shown = sorted(classes, key=lambda row: (row.accuracy is not None, row.accuracy))[:MOST_CLASSES]
        remark = f"the {MOST_CLASSES} of {len(classes)} classes with the lowest accuracy"
    rows = [[str(row.class_), str(row.rows), figure(row.coverage), figure(row.accuracy)] for row in shown]
    return Table("classes", "By class", ["class", "rows", "coverage", "accuracy"], rows, remark)


def _confusion(matrix: ConfusionMatrix, _: Report, __: Style) -> Table:
    names = [row.class_ for row in matrix.rows]
    columns = names
    if max(map(len, names)) > _SHORT:
        columns = [str(number) for number in range(1, len(names) + 1)]
        names = [f"{number} {name}" for number, name in zip(columns, names, strict=True)]
    rows = [[name, *map(str, row.predicted), str(row.rejected)] for name, row in zip(names, matrix.rows, strict=True)]
    remark = "accepted rows by true class and prediction"
    remark += "; the classes with the most errors, and the others together" if matrix.others else ""
    return Table("confusion", "Confusion matrix", ["true class", *columns, "rejected"], rows, remark)


# Single rows


def _rejected(examples: Examples, _: Report, __: Style) -> Table:
    remark = "the largest expected losses first"
    return Table("rejected", "Rejected rows", *_cells(examples, examples.rejected), remark)


def _wrong(examples: Examples, _: Report, __: Style) -> Table:
    cells = _cells(examples, examples.wrongly_accepted)
    return Table("wrong", "Errors that were accepted", *cells, "the surest errors first")


def _cells(examples: Examples, rows: Sequence[Example]) -> tuple[list[str], list[list[str]]]:
    header = [*examples.columns, "true class", "predicted", "expected loss"]
    return header, [[*row.values, row.label, row.prediction, figure(row.loss, 6)] for row in rows]


def _left_out(left: LeftOut, _: Report, __: Style) -> Table:
    rows = [
        [f"{bad.rows} {'row' if bad.rows == 1 else 'rows'}: {bad.reason}", f"{bad.first_file}, {bad.first_row}"]
        for bad in left.reasons
    ]
    for file in left.files:  # without the file's name before the reason and the advice after it
        reason = file.reason.removeprefix(f"{file.file}: ").partition("; ")[0]
        rows.append([f"file: {reason}", file.file])
    return Table("left_out", "Left out", ["left out", "first: file, row from 0"], rows)


# Other scores, masks and reports; rows of no class


def _scores(scores: Sequence[ScoreRow], _: Report, style: Style) -> Table:
    areas = _fields(Report, Area)
    header = ["score", *(_label(area) for area in areas), "accuracy", "95 % interval"]
    rows = [
        [
            row.score,
            *(style.fine(getattr(row, area.name).value) for area in areas),
            *_spread(row.accuracy, style),
        ]
        for row in scores
    ]
    remark = f"accuracy: at the coverage of this rejector{_better(scores, style)}"
    return Table("scores", "Scores", header, rows, remark)


def _better(scores: Sequence[ScoreRow], style: Style) -> str:
    """Which scores order these rows better than the loss, the best of them with its figures; nothing if none does."""
    better = sorted((row for row in scores if row.is_better), key=lambda row: row.augrc.value or 0.0)
    if not better:
        return ""
    best, *others = better
    assert best.augrc_difference is not None
    value, upper, lower = (
        style.fine(-(end or 0.0))
        for end in (best.augrc_difference.value, best.augrc_difference.upper, best.augrc_difference.lower)
    )
    names = ", ".join(row.score for row in scores if row.is_better and row is not best)
    more = f"; so {'do' if len(others) > 1 else 'does'} {names}" if others else ""
    return (
        f"; '{best.score}' orders these rows better than the loss, beyond noise: its AUGRC is lower by {value} "
        f"({upper} - {lower}){more}"
    )


def _masks(masks: Sequence[MaskRow], _: Report, style: Style) -> Table:
    header = ["mask", "coverage", "accuracy", "95 % interval", "loss, same coverage"]
    rows = [
        [
            row.mask,
            style.share(row.coverage.value),
            *_spread(row.accuracy, style),
            style.share(row.loss_accuracy.value),
        ]
        for row in masks
    ]
    return Table("masks", "Masks", header, rows)


def _difference(difference: Difference, _: Report, style: Style) -> Table:
    rows = [[entry.key, *_spread(change, style)] for entry, change in _declared(difference, Change)]
    how = "paired rows" if difference.kind == "paired" else "two reports"
    header = ["", "difference", "95 % interval"]
    return Table("difference", "Difference to the baseline", header, rows, f"new - old, {how}")


def _ood(ood: Outside, _: Report, style: Style) -> Table:
    rows = [
        ["rows", str(ood.rows), f"'{ood.column}' is true"],
        ["accepted", *_spread(ood.accepted, style)],
        ["joint risk", style.share(ood.joint_risk), f"{style.share(ood.joint_risk_all)} if all were accepted"],
        ["AUROC", style.fine(ood.auroc), "of the loss, telling them from rows of a class"],
        ["FPR at 95 % TPR", style.fine(ood.fpr_at_95_tpr), "of them are accepted where 95 % of the others are"],
        ["AURC, AUGRC", f"{style.fine(ood.aurc)}, {style.fine(ood.augrc)}", "of the joint risk"],
    ]
    remark = (
        f"accepting such a row costs {ood.cost_ratio:g} times an error in the joint risk; all other figures are "
        "about rows that have a class"
    )
    return Table("ood", "Rows of no class", ["", "value", ""], rows, remark)


def _ood_scores(scores: Sequence[OutsideScore], _: Report, style: Style) -> Table:
    rows = [[row.score, *map(style.fine, (row.auroc, row.fpr_at_95_tpr, row.aurc, row.augrc))] for row in scores]
    header = ["score", "AUROC", "FPR at 95 % TPR", "AURC", "AUGRC"]
    return Table("ood_scores", "Scores and rows of no class", header, rows, "areas: of the joint risk")


# Calibration, areas, costs, drift


def _calibration(_: Any, report: Report, style: Style) -> Table:
    parts = [entry.name for entry in entries(Calibration)]
    measured = _declared(report, Calibration)
    rows = []
    for entry, value in measured:
        written = style.share if entry.about.unit is Unit.SHARE else style.number
        rows.append([_label(entry), *(written(getattr(value, part)) for part in parts)])
    return Table("calibration", "Calibration", ["", *parts], rows, notes=_notes(measured))


def _areas(_: Any, report: Report, style: Style) -> Table:
    measured = _declared(report, Area, Change, Ranking)
    rows = []
    for entry, area in measured:
        lower, upper = getattr(area, "lower", None), getattr(area, "upper", None)
        ends = "-" if lower is None else f"{style.fine(lower)} - {style.fine(upper)}"
        rows.append([_label(entry), style.fine(area.value), ends])
    return Table("areas", "Areas", ["", "value", "95 % interval"], rows, notes=_notes(measured))


def _total_cost(cost: TotalCost, _: Report, __: Style) -> Table:
    def saving(saving: Saving) -> str:
        return f"{money(saving.value)} ({money(saving.lower)} - {money(saving.upper)})"

    rows = [
        ["this rejector", money(cost.value), f"{money(cost.lower)} - {money(cost.upper)}", "-"],
        ["accepting all", money(cost.accepting_all), "-", saving(cost.saved_over_accepting)],
        ["reviewing all", money(cost.rejecting_all), "-", saving(cost.saved_over_rejecting)],
        ["best cutoff here", money(cost.best_cutoff), "-", "-"],
        ["oracle", money(cost.oracle), "-", "-"],
    ]
    header = ["cost per 1000 rows", "cost", "95 % interval", "saved over it"]
    remark = "errors and reviews; the oracle knows which rows to review; both savings hold with 95 %"
    return Table("total-cost", "Cost of errors and reviews", header, rows, remark)


def _costs(cost: Cost, _: Report, style: Style) -> Table:
    rows = [
        ["realised", style.fine(cost.value), style.fine(cost.all.value)],
        ["expected", style.fine(cost.expected), style.fine(cost.all.expected)],
    ]
    return Table("cost", "Cost per row", ["cost", "accepted", "all"], rows)


def _drift(drift: Drift, report: Report, style: Style) -> Table:
    ratio = report.ratio
    rows = [
        ["mean ratio", f"{style.number(ratio.mean)} +- {style.number(ratio.std_error)}", style.number(ratio.p_value)],
        ["loss distribution", f"distance {style.number(drift.distance)}", style.number(drift.p_value)],
    ]
    if ratio.error is not None:
        rows.append(["fitted ratio", f"error at most {style.number(ratio.error)}", "-"])
    remark = "; ".join(filter(None, ["without drift the mean ratio is 1", unsure_order(report)]))
    return Table("drift", "Drift since the fit", ["drift", "value", "p-value"], rows, remark)


_SECTIONS: tuple[tuple[str, Callable[[Any, Report, Style], Table]], ...] = (
    ("coverage", _proportions),
    ("per_group", _groups),
    ("looks", _looks),
    ("scores", _scores),
    ("ood", _ood),
    ("ood.scores", _ood_scores),
    ("masks", _masks),
    ("difference", _difference),
    ("points", _points),
    ("nll", _calibration),
    ("aurc", _areas),
    ("total_cost", _total_cost),
    ("cost", _costs),
    ("drift", _drift),
    ("where.parts", _where),
    ("curve", _curve),
    ("per_class", _classes),
    ("confusion", _confusion),
    ("examples", _rejected),
    ("examples", _wrong),
    ("left_out", _left_out),
)
"""Which section of a report has which table; the order is that of the page."""


@tables.register
def _(report: Report, style: Style = DECIMALS) -> list[Table]:
    made = []
    for path, table_of in _SECTIONS:
        section: Any = report
        for name in path.split("."):
            section = None if section is None else getattr(section, name)
        if section not in (None, ()):
            made.append(table_of(section, report, style))
    return made


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


# Plans


@heading.register
def _(plan: Plan) -> str:
    if plan.at_hand is not None or plan.question is None:
        return f"{plan.rows} labelled rows, {plan.errors} of them wrong; bounds with confidence {plan.confidence:g}"
    question = plan.question
    return (
        f"Fresh labelled rows for a risk of at most {question.risk:g} with confidence {question.confidence:g}, at "
        f"coverage {question.coverage:g},\ncertified with a chance of {question.power:g} (power):"
    )


@tables.register
def _(plan: Plan, _: Style = DECIMALS) -> list[Table]:
    if plan.at_hand is not None:
        return [_at_hand(plan), *([] if plan.question is None else [_certified(plan, plan.question)])]
    assert plan.needed is not None
    assert plan.question is not None
    rows = [
        [f"{row.error:g}", *(_count(number) for number in (row.fixed_cutoff, row.risk_and_coverage))]
        for row in plan.needed
    ]
    remark = f"even without an error, at least {plan.question.least_accepted} rows must be accepted"
    header = ["expected error rate", "fixed cutoff", "risk and coverage"]
    terms = [
        ["- fixed cutoff: one look at a cutoff that was chosen on other rows"],
        ["- risk and coverage: both are promised together"],
    ]
    return [Table("needed", "Rows that are needed", header, rows, remark), Table("terms", "", [], terms)]


def _at_hand(plan: Plan) -> Table:
    rows = [
        [
            percent(row.coverage),
            str(row.accepted),
            str(row.errors),
            *(percent(share, 2) for share in (row.risk, row.asked, row.any_cutoff)),
            *([] if plan.question is None else [_count(row.needed)]),
        ]
        for row in plan.at_hand or ()
    ]
    header = ["coverage", "accepted", "errors", "risk", "bound, if asked", "bound, any cutoff"]
    remark = "'if asked': had this coverage been asked for before looking; 'any cutoff': also after looking at all"
    if plan.question is not None:
        header.append("fresh rows")
        remark += (
            f"; 'fresh rows' would certify a risk of {plan.question.risk:g} and this coverage with power "
            f"{plan.question.power:g}, if these risks are the true ones"
        )
    return Table("at_hand", "What these rows can promise", header, rows, remark)


def _certified(plan: Plan, question: Question) -> Table:
    line = f"these rows certify no cutoff: {plan.why_not}"
    if plan.certified is not None:
        line = (
            f"these rows certify a risk of at most {question.risk:g} at a coverage of "
            f"{percent(plan.certified.coverage)} ({plan.certified.accepted} accepted, {plan.certified.errors} errors)"
        )
    return Table("certified", "", [], [[line]])


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
        "chosen on these rows themselves: nothing is promised for others (give `confidence`)",
    ]
    if cascade.confidence is not None:
        lines[1] = (
            "certified on these rows, which nothing else has seen: new rows are answered with an accuracy of at least "
            f"{target}, confidence {cascade.confidence:g}"
        )
    if cascade.saved is not None:
        lines.append(f"{percent(cascade.saved)} of the cost of '{cascade.saved_over}' alone saved, which keeps it too")
    elif cascade.saved_over is None:
        lines.append(f"no stage alone keeps an accuracy of {target}")
    return "\n".join(lines)


@tables.register
def _(cascade: Cascade, _: Style = DECIMALS) -> list[Table]:
    stages = []
    for stage in cascade.stages:
        answers = "left out" if not stage.used else "all" if stage.cutoff is None else f"loss < {short(stage.cutoff)}"
        stages.append([stage.name, money(stage.cost), answers, str(stage.reached), str(stage.answered)])
    ways: dict[str, CascadePoint | StageAlone] = {"this cascade": cascade.chosen}
    ways |= {f"{stage.name} alone": stage for stage in cascade.alone}
    alone = [[name, money(way.cost), percent(way.accuracy, 2), str(way.errors)] for name, way in ways.items()]
    step = max(1, -(-len(cascade.frontier) // _MOST_PLANS))
    plans = [
        [
            money(plan.cost) + (" *" if plan == cascade.chosen else ""),
            percent(plan.accuracy, 2),
            str(plan.errors),
            " > ".join(plan.stages),
        ]
        for place, plan in enumerate(cascade.frontier)
        if place % step == 0 or plan == cascade.chosen
    ]
    remark = "the plans that were tested, the safest first; * is the one that was chosen, the cheapest that passed"
    if cascade.confidence is None:
        remark = "plans that no other beats, the safest first; * is the one that was chosen"
    return [
        Table("stages", "Stages", ["stage", "cost", "answers", "rows seen", "rows answered"], stages),
        Table("alone", "Against each stage alone", ["", "cost per row", "accuracy", "errors"], alone),
        Table("frontier", "Cost and accuracy", ["cost per row", "accuracy", "errors", "stages"], plans, remark),
    ]
