"""A table of texts, and how shares are written in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial, singledispatch
from typing import Any, NamedTuple

from drrej.documents.codec import Entry, entries
from drrej.documents.costs import Saving, TotalCost
from drrej.documents.document import GateRow, Judged
from drrej.documents.fields import Unit
from drrej.documents.gates import TARGET
from drrej.documents.points import Proportion
from drrej.documents.regression import ErrorFigures, RegressionReport
from drrej.documents.report import (
    Area,
    Calibration,
    Change,
    Difference,
    Example,
    Excess,
    GroupRow,
    Ranking,
    Report,
    ScoreRow,
)
from drrej.documents.targets import Promise, Target
from drrej.documents.words import MEANS
from drrej.records import dataclass
from drrej.report.numbers import Spread, against, counted, figure, interval, money, percent, percents, plain


@dataclass(frozen=True)
class Style:
    """How a share and its interval, and other numbers, are written."""

    share: Callable[[Any], str]
    interval: Callable[[Spread], str]
    number: Callable[[Any], str]
    fine: Callable[[Any], str]


DECIMALS = Style(figure, interval, figure, partial(figure, digits=6))
PERCENT = Style(percent, percents, plain, plain)
"""As logs and pages have them."""


@dataclass(frozen=True)
class Table:
    """A header, rows of as many cells, and a remark below. Without a header the rows are plain lines."""

    id: str
    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    remark: str = ""
    notes: Sequence[str] = ()
    """A sentence on each row, for those who have room."""


MOST_CLASSES = 20
MOST_LOOKS = 50
MOST_MOVES = 20
_CURVE_EVERY = 5


def tables(report: Judged) -> list[Table]:
    """Every table that this report has."""
    return [table for table in table_list(report) if table is not None]


@singledispatch
def heading(report: Judged) -> str:
    """The rows and the decision in one line."""
    raise TypeError(type(report))


@singledispatch
def table_list(report: Judged) -> list[Table | None]:
    """The tables of a report of a kind, None for those that it lacks; see `tables`."""
    raise TypeError(type(report))


def _decision(report: Report | RegressionReport) -> str:
    if report.cutoff_by is not None:
        return f"each group by {report.cutoff_by} has a cutoff of its own"
    return "rejects nothing" if report.cutoff is None else f"rejects a loss of {figure(report.cutoff, 6)} or more"


def seen_by(report: Report | RegressionReport) -> str:
    """A warning where the rows are no test: steps that made the rejector have used some of them."""
    if report.seen_by is None:
        return ""
    *others, last = report.seen_by
    steps = f"{', '.join(others)} and {last}" if others else last
    return f"some of these rows were used by {steps}: new rows may do worse"


def unsure_order(report: Report) -> str:
    """A warning where a learned loss may not rank these rows."""
    if report.unsure_order is None:
        return ""
    return (
        "these rows are unlike those that the loss was learned from: it may no longer rank them better than the plain "
        f"loss '{report.unsure_order}'"
    )


def _fields(kind: type, section: type) -> list[Entry]:
    """The fields of a dataclass that are sections of a kind."""
    return [entry for entry in entries(kind) if isinstance(entry.section, type) and issubclass(entry.section, section)]


def _label(entry: Entry) -> str:
    return entry.about.label or entry.name.replace("_", " ")


def _note(entry: Entry) -> str:
    """What a figure is, as a sentence."""
    return entry.about.meaning[:1].upper() + entry.about.meaning[1:] + "."


# Classification


@heading.register
def _(report: Report) -> str:
    tau = f" (ratio of {figure(report.tau, 6)} or less)" if report.cutoff is not None and report.tau is not None else ""
    return f"{report.rows} rows, {report.classes} classes; {_decision(report)}{tau}"


@table_list.register
def _(report: Report) -> list[Table | None]:
    return report_tables(report, DECIMALS)


def report_tables(report: Report, style: Style) -> list[Table | None]:
    """The tables of a classification, with shares in a style."""
    return [
        _proportions(report, style),
        _groups(report, style),
        _looks(report),
        _scores(report, style),
        *_outside(report, style),
        _masks(report, style),
        _differences(report, style),
        _points(report, style),
        _calibration(report, style),
        _areas(report, style),
        total_cost_table(report),
        _costs(report, style),
        _drift(report, style),
        _where(report),
        _curve(report),
        _per_class(report),
        confusion_table(report),
        *example_tables(report),
        _left_out(report),
    ]


def _proportions(report: Report, style: Style) -> Table:
    rows = [_proportion(style, "coverage", report.coverage, f"{report.coverage.accepted} of {report.rows} accepted")]
    if report.accuracy is not None:
        rows.append(_proportion(style, "accuracy", report.accuracy, f"{report.accuracy.errors} errors"))
    if report.base_accuracy is not None:
        rows.append(_proportion(style, "base accuracy", report.base_accuracy, f"{report.base_accuracy.errors} errors"))
    rows.append(
        ["expected accuracy", style.share(report.expected_accuracy.value), "-", "its own guess, blind to shift"]
    )
    header = ["", "value", "95 % interval", "counts"]
    return Table("proportions", "Coverage and accuracy", header, rows, seen_by(report))


def _proportion(style: Style, name: str, share: Proportion, count: str) -> list[str]:
    return [name, style.share(share.value), style.interval(share), count]


def _with_interval(style: Style, share: Proportion) -> tuple[str, str]:
    return style.share(share.value), style.interval(share)


def _groups(report: Report, style: Style) -> Table | None:
    if report.per_group is None or report.by is None:
        return None
    shares = _fields(GroupRow, Proportion)
    header = [report.by, "rows"]
    for entry in shares:
        header += [_label(entry), *(["95 % interval"] if entry.name == "accuracy" else [])]
    return Table("groups", f"By {report.by}", header, [_group(style, row, shares) for row in report.per_group])


def _group(style: Style, row: GroupRow, shares: Sequence[Entry]) -> list[str]:
    cells = [row.group, str(row.rows)]
    for entry in shares:
        share: Proportion = getattr(row, entry.name)
        cells += [style.share(share.value), *([style.interval(share)] if entry.name == "accuracy" else [])]
    return cells


def _looks(report: Report) -> Table | None:
    if report.looks is None or report.by is None:
        return None
    header = [report.by, "rows", "coverage", "95 % interval", "expected accuracy", "drift", "p-value"]
    rows = [
        [
            look.group,
            str(look.rows),
            *_with_interval(DECIMALS, look.coverage),
            figure(look.expected_accuracy),
            figure(look.drift.distance),
            figure(look.drift.p_value),
        ]
        for look in report.looks[:MOST_LOOKS]
    ]
    left = len(report.looks) - len(rows)
    more = f"; {left} with less drift are not shown" if left > 0 else ""
    remark = f"drift since the fit, largest first; its p-value is times {len(report.looks)}, the number of groups{more}"
    return Table("looks", f"By {report.by}", header, rows, remark)


def _where(report: Report) -> Table | None:
    where = report.where
    if where is None or not where.parts:
        return None
    rows = [
        [
            f"{part.what}: {part.part}",
            figure(part.old),
            figure(part.new),
            f"{figure(part.lower)} - {figure(part.upper)}",
        ]
        for part in where.parts[:MOST_MOVES]
    ]
    left = len(where.parts) - len(rows)
    more = f"; {left} more are not shown" if left > 0 else ""
    remark = (
        "elsewhere: in the fit, or in the other rows; most first; "
        f"the intervals hold for all {where.compared} shares together, at 95 %{more}"
    )
    return Table("where", "What surely moved", ["moved", "elsewhere", "here", "difference"], rows, remark)


def _left_out(report: Report) -> Table | None:
    left = report.left_out
    if left is None:
        return None
    rows = [
        [
            f"{found.rows} {'row' if found.rows == 1 else 'rows'}: {found.reason}",
            f"{found.first_file}, {found.first_row}",
        ]
        for found in left.reasons
    ]
    rows += [[f"file: {_without(bad.reason, bad.file)}", bad.file] for bad in left.files]
    return Table("left_out", "Left out", ["left out", "first: file, row from 0"], rows)


def _without(reason: str, file: str) -> str:
    """A reason without the file's name before it and the advice after it."""
    return reason.removeprefix(f"{file}: ").partition("; ")[0]


def _scores(report: Report, style: Style) -> Table | None:
    if report.scores is None:
        return None
    areas = _fields(Report, Area)
    header = ["score", *(_label(area) for area in areas), "accuracy", "95 % interval"]
    rows = [_score(style, row, areas) for row in report.scores]
    return Table(
        "scores", "Scores", header, rows, "accuracy: at the coverage of this rejector" + better_scores(report, style)
    )


def _outside(report: Report, style: Style) -> list[Table | None]:
    found = report.ood
    if found is None:
        return []
    rows = [
        ["rows", str(found.rows), f"'{found.column}' is true"],
        ["accepted", *_with_interval(style, found.accepted)],
        ["joint risk", style.share(found.joint_risk), f"{style.share(found.joint_risk_all)} if all were accepted"],
        ["AUROC", style.fine(found.auroc), "of the loss, telling them from rows of a class"],
        ["FPR at 95 % TPR", style.fine(found.fpr_at_95_tpr), "of them are accepted where 95 % of the others are"],
        ["AURC, AUGRC", f"{style.fine(found.aurc)}, {style.fine(found.augrc)}", "of the joint risk"],
    ]
    remark = (
        f"accepting such a row costs {found.cost_ratio:g} times an error in the joint risk; all other figures are "
        "about rows that have a class"
    )
    table = Table("ood", "Rows of no class", ["", "value", ""], rows, remark)
    if found.scores is None:
        return [table]
    scores = [
        [row.score, *map(style.fine, (row.auroc, row.fpr_at_95_tpr, row.aurc, row.augrc))] for row in found.scores
    ]
    header = ["score", "AUROC", "FPR at 95 % TPR", "AURC", "AUGRC"]
    return [table, Table("ood_scores", "Scores and rows of no class", header, scores, "areas: of the joint risk")]


def better_scores(report: Report, style: Style) -> str:
    """Which scores order these rows better than the loss, the best of them with its figures; nothing if none does."""
    better = [row for row in report.scores or () if row.is_better and row.augrc_difference is not None]
    if not better:
        return ""
    best = min(better, key=lambda row: row.augrc.value or 0.0)
    assert best.augrc_difference is not None
    more = f"; so {'do' if len(better) > 2 else 'does'} {', '.join(r.score for r in better if r is not best)}"
    return (
        f"; '{best.score}' orders these rows better than the loss, beyond noise: its AUGRC is lower by "
        f"{style.fine(-(best.augrc_difference.value or 0.0))} "
        f"({style.fine(-(best.augrc_difference.upper or 0.0))} - {style.fine(-(best.augrc_difference.lower or 0.0))})"
        f"{more if len(better) > 1 else ''}"
    )


def _score(style: Style, row: ScoreRow, areas: Sequence[Entry]) -> list[str]:
    return [
        row.score,
        *(style.fine(getattr(row, area.name).value) for area in areas),
        *_with_interval(style, row.accuracy),
    ]


def _masks(report: Report, style: Style) -> Table | None:
    if report.masks is None:
        return None
    header = ["mask", "coverage", "accuracy", "95 % interval", "loss, same coverage"]
    rows = [
        [
            row.mask,
            style.share(row.coverage.value),
            *_with_interval(style, row.accuracy),
            style.share(row.loss_accuracy.value),
        ]
        for row in report.masks
    ]
    return Table("masks", "Masks", header, rows)


def _differences(report: Report, style: Style) -> Table | None:
    if report.difference is None:
        return None
    changes = {entry.key: getattr(report.difference, entry.name) for entry in _fields(Difference, Change)}
    rows = [[name, style.share(change.value), style.interval(change)] for name, change in changes.items()]
    how = "paired rows" if report.difference.kind == "paired" else "two reports"
    header = ["", "difference", "95 % interval"]
    return Table("difference", "Difference to the baseline", header, rows, f"new - old, {how}")


def _points(report: Report, style: Style) -> Table | None:
    if report.points is None:
        return None
    rows = [
        _proportion(style, name, point, f"{point.errors} errors in {point.accepted}")
        for name, point in report.points.items()
    ]
    return Table("points", "Points of the curve", ["", "value", "95 % interval", "counts"], rows)


def _calibration(report: Report, style: Style) -> Table | None:
    parts = [entry.name for entry in entries(Calibration)]
    found = [(entry, getattr(report, entry.name)) for entry in _fields(Report, Calibration)]
    measured = [(entry, value) for entry, value in found if value is not None]
    rows = []
    for entry, value in measured:
        written = style.share if entry.about.unit is Unit.SHARE else style.number
        rows.append([_label(entry), *(written(getattr(value, part)) for part in parts)])
    notes = [_note(entry) for entry, _ in measured]
    return Table("calibration", "Calibration", ["", *parts], rows, notes=notes) if rows else None


def _ends(style: Style, spread: Spread) -> str:
    return "-" if spread.lower is None else f"{style.fine(spread.lower)} - {style.fine(spread.upper)}"


def _areas(report: Report, style: Style) -> Table | None:
    found = [(entry, getattr(report, entry.name)) for kind in (Area, Excess) for entry in _fields(Report, kind)]
    rows = [[_label(entry), style.fine(area.value), _ends(style, area)] for entry, area in found if area is not None]
    ranked = [(entry, getattr(report, entry.name)) for entry in _fields(Report, Ranking)]
    rows += [[_label(entry), style.fine(ranking.value), "-"] for entry, ranking in ranked if ranking is not None]
    notes = [_note(entry) for entry, value in [*found, *ranked] if value is not None]
    return Table("areas", "Areas", ["", "value", "95 % interval"], rows, notes=notes) if rows else None


def _costs(report: Report, style: Style) -> Table | None:
    cost = report.cost
    if cost is None:
        return None
    rows = [
        ["realised", style.fine(cost.value), style.fine(cost.all.value)],
        ["expected", style.fine(cost.expected), style.fine(cost.all.expected)],
    ]
    return Table("cost", "Cost per row", ["cost", "accepted", "all"], rows)


def _drift(report: Report, style: Style) -> Table:
    ratio, drift = report.ratio, report.drift
    rows = [
        ["mean ratio", f"{style.number(ratio.mean)} +- {style.number(ratio.std_error)}", style.number(ratio.p_value)],
        ["loss distribution", f"distance {style.number(drift.distance)}", style.number(drift.p_value)],
    ]
    if ratio.error is not None:
        rows.append(["fitted ratio", f"error at most {style.number(ratio.error)}", "-"])
    header = ["drift", "value", "p-value"]
    remark = "; ".join(filter(None, ["without drift the mean ratio is 1", unsure_order(report)]))
    return Table("drift", "Drift since the fit", header, rows, remark)


def _curve(report: Report) -> Table | None:
    if report.curve is None:
        return None
    rows = [
        [f"{point.tau:.2f}", figure(point.coverage), figure(point.accuracy)]
        for point in report.curve[_CURVE_EVERY - 1 :: _CURVE_EVERY]
    ]
    return Table("curve", "Curve", ["tau", "coverage", "accuracy"], rows)


def _per_class(report: Report) -> Table | None:
    classes = report.per_class
    if classes is None:
        return None
    worst = sorted(classes, key=lambda row: (row.accuracy is not None, row.accuracy))
    shown = classes if len(classes) <= MOST_CLASSES else worst[:MOST_CLASSES]
    rows = [[str(row.class_), str(row.rows), figure(row.coverage), figure(row.accuracy)] for row in shown]
    remark = ""
    if len(shown) < len(classes):
        remark = f"the {MOST_CLASSES} of {len(classes)} classes with the lowest accuracy"
    return Table("classes", "By class", ["class", "rows", "coverage", "accuracy"], rows, remark)


# Regression


@heading.register
def _(report: RegressionReport) -> str:
    return f"{report.rows} rows, regression; {_decision(report)}"


@table_list.register
def _(report: RegressionReport) -> list[Table | None]:
    coverage = report.coverage
    said = f"coverage  {figure(coverage.value)}  ({interval(coverage)}), {coverage.accepted} accepted"
    errors = [(entry, getattr(report, entry.name)) for entry in _fields(RegressionReport, ErrorFigures)]
    curve = [
        [figure(point.tau, 2), figure(point.coverage), figure(point.mse), figure(point.mae)]
        for point in report.curve[_CURVE_EVERY - 1 :: _CURVE_EVERY]
    ]
    return [
        Table("proportions", "Coverage", [], [[said]], seen_by(report)),
        Table(
            "errors",
            "Errors",
            ["", "accepted", "all", "AURC", "AUGRC"],
            [[_label(entry), *_error(error)] for entry, error in errors],
        ),
        Table("curve", "Curve", ["tau ", "coverage", "MSE", "MAE"], curve),
    ]


def _error(error: ErrorFigures) -> list[str]:
    return [figure(value, 6) for value in (error.value, error.all, error.aurc.value, error.augrc.value)]


_SHORT = 9
"""Signs of a class name that heads a column; longer ones are numbered."""


def total_cost_table(report: Report) -> Table | None:
    """What errors and reviews cost together, against other ways to decide."""
    cost = report.total_cost
    if cost is None:
        return None
    rows = [
        ["this rejector", money(cost.value), f"{money(cost.lower)} - {money(cost.upper)}", "-"],
        ["accepting all", money(cost.accepting_all), "-", _saving(cost.saved_over_accepting)],
        ["reviewing all", money(cost.rejecting_all), "-", _saving(cost.saved_over_rejecting)],
        ["best cutoff here", money(cost.best_cutoff), "-", "-"],
        ["oracle", money(cost.oracle), "-", "-"],
    ]
    header = ["cost per 1000 rows", "cost", "95 % interval", "saved over it"]
    remark = "errors and reviews; the oracle knows which rows to review; both savings hold with 95 %"
    return Table("total-cost", "Cost of errors and reviews", header, rows, remark)


def _saving(saving: Saving) -> str:
    return f"{money(saving.value)} ({money(saving.lower)} - {money(saving.upper)})"


def confusion_table(report: Report) -> Table | None:
    """Accepted rows by true class and prediction, and the rejected ones."""
    matrix = report.confusion
    if matrix is None:
        return None
    names = [row.class_ for row in matrix.rows]
    columns = names
    if max(map(len, names)) > _SHORT:
        columns = [str(number) for number in range(1, len(names) + 1)]
        names = [f"{number} {name}" for number, name in zip(columns, names, strict=True)]
    rows = [[name, *map(str, row.predicted), str(row.rejected)] for name, row in zip(names, matrix.rows, strict=True)]
    remark = "accepted rows by true class and prediction"
    remark += "; the classes with the most errors, and the others together" if matrix.others else ""
    return Table("confusion", "Confusion matrix", ["true class", *columns, "rejected"], rows, remark)


def example_tables(report: Report) -> list[Table]:
    """Rejected rows, and errors that were accepted."""
    found = report.examples
    if found is None:
        return []
    header = [*found.columns, "true class", "predicted", "expected loss"]
    return [
        Table("rejected", "Rejected rows", header, _cells(found.rejected), "the largest expected losses first"),
        Table("wrong", "Errors that were accepted", header, _cells(found.wrongly_accepted), "the surest errors first"),
    ]


def _cells(rows: Sequence[Example]) -> list[list[str]]:
    return [[*row.values, row.label, row.prediction, figure(row.loss, 6)] for row in rows]


_MOST = 5
"""Promises that are told one by one when there are more; those that were missed come first."""


class Signs(NamedTuple):
    """How limits and intervals are written."""

    at_least: str
    at_most: str
    to: str


ASCII = Signs(">=", "<=", " - ")
TYPESET = Signs("\N{GREATER-THAN OR EQUAL TO}", "\N{LESS-THAN OR EQUAL TO}", "\N{EN DASH}")


def target_of(report: Judged) -> Target | None:
    """The target of a report that has one."""
    found: Target | None = getattr(report, "target", None)
    return found


def target_lines(report: Judged, signs: Signs = ASCII) -> list[str]:
    """A sentence for each promise of the target; of many groups a summary and those that were missed."""
    target = target_of(report)
    if target is None:
        return []
    sentences = [sentence(report, target, promise, signs) for promise in target.promises]
    if len(sentences) <= _MOST:
        return sentences
    numbers = Counter(promise.verdict for promise in target.promises)
    summary = ", ".join(f"{verdict} in {numbers[verdict]}" for verdict in ("met", "not shown", "missed"))
    first = target.promises[0]
    missed = [line for line, row in zip(sentences, target.promises, strict=True) if row.verdict == "missed"]
    start = f"{_start(target, first, signs)} in each of {counted(len(sentences), 'group')}"
    return [f"{start}: {summary}", *missed[:_MOST]]


def sentence(report: Judged, target: Target, promise: Promise, signs: Signs = ASCII) -> str:
    """What was wanted, what came out, and what that says."""
    whose = "" if promise.group is None else f" where {report['by']} is '{promise.group}'"
    return f"{_start(target, promise, signs)}{whose}: {_result(report, target, promise, signs)}"


def _start(target: Target, promise: Promise, signs: Signs) -> str:
    if promise.what == "cost":
        return "wanted the least cost"
    sign = signs.at_most if promise.what in ("risk", *MEANS) else signs.at_least
    limit = f"{promise.what} {sign} {exact_percent(promise.wanted)}"
    if promise.what in MEANS:
        clipped = "" if promise.clip is None else f" (of at most {promise.clip:g} a row)"
        limit = f"{MEANS[promise.what]}{clipped} {sign} {promise.wanted:g}"
    if target.confidence is None:
        return f"wanted {limit}"
    return f"certified {limit} with confidence {exact_percent(target.confidence)}"


def _result(report: Judged, target: Target, promise: Promise, signs: Signs) -> str:
    cost = getattr(report, "total_cost", None)
    if promise.what == "cost" and isinstance(cost, TotalCost):
        return _cost_result(cost, promise, signs)
    if promise.what in MEANS:
        return _mean_result(target, promise, signs)
    if promise.value is None or promise.lower is None or promise.upper is None:
        labelled = promise.what == "coverage" or "accuracy" in report
        return f"not shown, {'no row is accepted' if labelled else 'it takes labels'}"
    value, lower, upper = percents_against([promise.value, promise.lower, promise.upper], promise.wanted)
    found = f"{value} % ({lower}{signs.to}{upper} %)"
    if promise.verdict == "missed" and target.confidence is not None:
        chance = promise.p_value or 0.0
        p_value = "below 1e-300" if chance < 1e-300 else f"= {chance:.1g}"
        return f"{found}: these rows contradict it (p {p_value}); are they like the rows it was chosen on?"
    if promise.verdict == "not shown":
        return f"{found}: not shown, the interval contains {exact_percent(promise.wanted)}"
    return f"{found}: {promise.verdict}"


def _mean_result(target: Target, promise: Promise, signs: Signs) -> str:
    if promise.value is None:
        return "not shown, no row is accepted or it takes labels"
    if promise.lower is None or promise.upper is None:
        return f"{figure(promise.value)}: not shown, there is no interval for errors of any size"
    found = f"{figure(promise.value)} ({figure(promise.lower)}{signs.to}{figure(promise.upper)})"
    if promise.verdict == "missed" and target.confidence is not None:
        return f"{found}: these rows contradict it; are they like the rows it was chosen on?"
    if promise.verdict == "not shown":
        return f"{found}: not shown, the interval contains {promise.wanted:g}"
    return f"{found}: {promise.verdict}"


def _cost_result(cost: TotalCost, promise: Promise, signs: Signs) -> str:
    found = f"{money(cost.value)} per 1000 rows ({money(cost.lower)}{signs.to}{money(cost.upper)})"
    others = f"{money(cost.accepting_all)} accepting all, {money(cost.rejecting_all)} reviewing all"
    return f"{found}, against {others}: {promise.verdict}"


def gate_value(report: Judged, gate: GateRow) -> str:
    """What a gate met, in few words: for the target its verdict, for others the value."""
    target = target_of(report)
    if gate.gate == TARGET and target is not None:
        return target.verdict
    return against(gate.value, gate.limit)


def gate_words(report: Judged, gate: GateRow, signs: Signs = ASCII) -> str:
    """What a gate met, in words: for the target its sentence, for others the value."""
    target = target_of(report)
    if gate.gate == TARGET and target is not None:
        return sentence(report, target, target.deciding, signs)
    return f"{gate.gate}: the value is {against(gate.value, gate.limit)}"


def exact_percent(share: float) -> str:
    """A share that a user wrote, as the percentage with the same digits.

    >>> exact_percent(0.98), exact_percent(0.07), exact_percent(0.9995), exact_percent(1.0)
    ('98 %', '7 %', '99.95 %', '100 %')
    """
    digits = f"{Decimal(repr(share)) * 100:f}"
    return f"{digits.rstrip('0').rstrip('.') if '.' in digits else digits} %"


def percents_against(shares: Sequence[float], limit: float) -> list[str]:
    """Shares in percent with one decimal, or as many more as tell each of them from a limit.

    >>> percents_against([0.961, 0.952], 0.98), percents_against([0.97996, 0.97], 0.98)
    (['96.1', '95.2'], ['97.996', '97.000'])
    """
    exact = Decimal(repr(limit)) * 100
    for digits in range(1, 15):
        texts = [f"{100 * share:.{digits}f}" for share in shares]
        sides = [(Decimal(text) > exact, Decimal(text) < exact) for text in texts]
        if sides == [(share > limit, share < limit) for share in shares]:
            break
    return texts
