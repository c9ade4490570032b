"""Tables that not every report has: costs of errors and reviews, the confusion matrix, examples."""

from __future__ import annotations

from collections.abc import Sequence

from drrej.documents.costs import Saving
from drrej.documents.report import Example, Report
from drrej.report.numbers import figure, money
from drrej.report.table import Table

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
