"""The report as tables of texts: what the text, markdown and page renderers share. A table is known by its id."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch

from drrej.documents.codec import Entry, entries
from drrej.documents.document import Judged
from drrej.documents.proportions import Proportion
from drrej.documents.regression import ErrorFigures, RegressionReport
from drrej.documents.report import Area, Calibration, Change, Difference, Excess, GroupRow, Ranking, Report, ScoreRow
from drrej.report.numbers import figure, interval

MOST_CLASSES = 20
_CURVE_EVERY = 5


@dataclass(frozen=True)
class Table:
    """A header, rows of as many cells, and a remark below. Without a header the rows are plain lines."""

    id: str
    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    remark: str = ""


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


def _fields(kind: type, section: type) -> list[Entry]:
    """The fields of a dataclass that are sections of a kind."""
    return [entry for entry in entries(kind) if isinstance(entry.section, type) and issubclass(entry.section, section)]


def _label(entry: Entry) -> str:
    return entry.about.label or entry.name.replace("_", " ")


# Classification


@heading.register
def _(report: Report) -> str:
    tau = f" (ratio of {figure(report.tau, 6)} or less)" if report.cutoff is not None and report.tau is not None else ""
    return f"{report.rows} rows, {report.classes} classes; {_decision(report)}{tau}"


@table_list.register
def _(report: Report) -> list[Table | None]:
    return [
        _proportions(report),
        _groups(report),
        _scores(report),
        _masks(report),
        _differences(report),
        _points(report),
        _calibration(report),
        _areas(report),
        _costs(report),
        _drift(report),
        _curve(report),
        _per_class(report),
    ]


def _proportions(report: Report) -> Table:
    rows = [_proportion("coverage", report.coverage, f"{report.coverage.accepted} of {report.rows} accepted")]
    if report.accuracy is not None:
        rows.append(_proportion("accuracy", report.accuracy, f"{report.accuracy.errors} errors"))
    if report.base_accuracy is not None:
        rows.append(_proportion("base accuracy", report.base_accuracy, f"{report.base_accuracy.errors} errors"))
    rows.append(["expected accuracy", figure(report.expected_accuracy.value), "-", "from the probabilities"])
    return Table("proportions", "Coverage and accuracy", ["", "value", "95 % interval", "counts"], rows)


def _proportion(name: str, share: Proportion, count: str) -> list[str]:
    return [name, figure(share.value), interval(share), count]


def _with_interval(share: Proportion) -> tuple[str, str]:
    return figure(share.value), interval(share)


def _groups(report: Report) -> Table | None:
    if report.per_group is None or report.by is None:
        return None
    shares = _fields(GroupRow, Proportion)
    header = [report.by, "rows"]
    for entry in shares:
        header += [_label(entry), *(["95 % interval"] if entry.name == "accuracy" else [])]
    return Table("groups", f"By {report.by}", header, [_group(row, shares) for row in report.per_group])


def _group(row: GroupRow, shares: Sequence[Entry]) -> list[str]:
    cells = [row.group, str(row.rows)]
    for entry in shares:
        share: Proportion = getattr(row, entry.name)
        cells += [figure(share.value), *([interval(share)] if entry.name == "accuracy" else [])]
    return cells


def _scores(report: Report) -> Table | None:
    if report.scores is None:
        return None
    areas = _fields(Report, Area)
    header = ["score", *(_label(area) for area in areas), "accuracy", "95 % interval"]
    rows = [_score(row, areas) for row in report.scores]
    return Table("scores", "Scores", header, rows, "accuracy: at the coverage of this rejector" + better_scores(report))


def better_scores(report: Report) -> str:
    """Which scores order these rows better than the loss, the best of them with its figures; nothing if none does."""
    better = [row for row in report.scores or () if row.is_better and row.augrc_difference is not None]
    if not better:
        return ""
    best = min(better, key=lambda row: row.augrc.value or 0.0)
    assert best.augrc_difference is not None
    more = f"; so {'do' if len(better) > 2 else 'does'} {', '.join(r.score for r in better if r is not best)}"
    return (
        f"; '{best.score}' orders these rows better than the loss, beyond noise: its AUGRC is lower by "
        f"{figure(-(best.augrc_difference.value or 0.0), 6)} "
        f"({figure(-(best.augrc_difference.upper or 0.0), 6)} - {figure(-(best.augrc_difference.lower or 0.0), 6)})"
        f"{more if len(better) > 1 else ''}"
    )


def _score(row: ScoreRow, areas: Sequence[Entry]) -> list[str]:
    return [row.score, *(figure(getattr(row, area.name).value, 6) for area in areas), *_with_interval(row.accuracy)]


def _masks(report: Report) -> Table | None:
    if report.masks is None:
        return None
    header = ["mask", "coverage", "accuracy", "95 % interval", "loss, same coverage"]
    rows = [
        [row.mask, figure(row.coverage.value), *_with_interval(row.accuracy), figure(row.loss_accuracy.value)]
        for row in report.masks
    ]
    return Table("masks", "Masks", header, rows)


def _differences(report: Report) -> Table | None:
    if report.difference is None:
        return None
    changes = {entry.key: getattr(report.difference, entry.name) for entry in _fields(Difference, Change)}
    rows = [[name, figure(change.value), interval(change)] for name, change in changes.items()]
    how = "paired rows" if report.difference.kind == "paired" else "two reports"
    header = ["", "difference", "95 % interval"]
    return Table("difference", "Difference to the baseline", header, rows, f"new - old, {how}")


def _points(report: Report) -> Table | None:
    if report.points is None:
        return None
    rows = [
        _proportion(name, point, f"{point.errors} errors in {point.accepted}") for name, point in report.points.items()
    ]
    return Table("points", "Points of the curve", ["", "value", "95 % interval", "counts"], rows)


def _calibration(report: Report) -> Table | None:
    parts = [entry.name for entry in entries(Calibration)]
    measured = [(_label(entry), getattr(report, entry.name)) for entry in _fields(Report, Calibration)]
    rows = [[name, *(figure(getattr(value, part)) for part in parts)] for name, value in measured if value is not None]
    return Table("calibration", "Calibration", ["", *parts], rows) if rows else None


def _areas(report: Report) -> Table | None:
    found = [(_label(entry), getattr(report, entry.name)) for kind in (Area, Excess) for entry in _fields(Report, kind)]
    rows = [[name, figure(area.value, 6), interval(area, 6)] for name, area in found if area is not None]
    ranked = [(_label(entry), getattr(report, entry.name)) for entry in _fields(Report, Ranking)]
    rows += [[name, figure(ranking.value, 6), "-"] for name, ranking in ranked if ranking is not None]
    return Table("areas", "Areas", ["", "value", "95 % interval"], rows) if rows else None


def _costs(report: Report) -> Table | None:
    cost = report.cost
    if cost is None:
        return None
    rows = [
        ["realised", figure(cost.value, 6), figure(cost.all.value, 6)],
        ["expected", figure(cost.expected, 6), figure(cost.all.expected, 6)],
    ]
    return Table("cost", "Cost per row", ["cost", "accepted", "all"], rows)


def _drift(report: Report) -> Table:
    ratio, drift = report.ratio, report.drift
    rows = [
        ["mean ratio", f"{figure(ratio.mean)} +- {figure(ratio.std_error)}", figure(ratio.p_value)],
        ["loss distribution", f"distance {figure(drift.distance)}", figure(drift.p_value)],
    ]
    header = ["drift", "value", "p-value"]
    return Table("drift", "Drift since the fit", header, rows, "without drift the mean ratio is 1")


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
        Table("proportions", "Coverage", [], [[said]]),
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
