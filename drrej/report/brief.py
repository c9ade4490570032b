"""What `run` and `evaluate` print: the answer, the verdicts, and what to do next; the whole report is in `text`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from drrej.documents.gates import DRIFT_LEVEL, TARGET
from drrej.documents.report import Report
from drrej.errors import printable
from drrej.report.tables import Table
from drrej.report.text import aligned
from drrej.report.words import (
    TYPESET,
    counted,
    found_words,
    gate_value,
    limit_words,
    model_words,
    money,
    percent,
    percents,
    settling_words,
    target_of,
    tie_words,
)

_COLOURS = {"met": 32, "pass": 32, "missed": 31, "fail": 31, "inconclusive": 33, "detected": 33}
"""ANSI colours of verdicts: green, red and yellow."""
_BOLD, _DIM = 1, 2
_MOST_PROMISES = 5


def render_brief(report: Report, heading: str, last: Sequence[tuple[str, str]] = (), colour: bool = False) -> str:
    """The heading, the answer and a line for each verdict; the `last` lines, each with its label, come at the end."""

    def painted(text: str, code: int) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if colour and text.strip() else text

    model = [f"  {model_words(report)}"] if report.model else []
    lines = [painted(printable(heading), _BOLD), *model, "", painted(f"  {_answer(report)}", _BOLD), ""]
    lines += [f"  {line}" for line in aligned(_shares(report))]
    verdicts = list(_verdicts(report))
    width = max((len(what) for _, what, _, _ in verdicts), default=0)
    if verdicts:
        lines.append("")
    for label, what, verdict, found in verdicts:
        mark = painted(f"{verdict.upper():12}", _COLOURS.get(verdict, _DIM))
        lines.append(f"  {label:7}  {what:{width}}  {mark}  {found}".rstrip())
    rows = [*_lowest(report), *last]
    if rows:
        lines.append("")
    for (label, text), (before, _) in zip(rows, [("", ""), *rows], strict=False):
        lines.append(f"  {painted(f'{label if label != before else str():7}', _DIM)}  {printable(text)}")
    return "\n".join(lines) + "\n"


def _answer(report: Report) -> str:
    accepted = report.coverage.accepted
    if not accepted:
        return "Accepts no row."
    share = f"Accepts {percent(report.coverage.value)} of rows"
    if report.accuracy is None:
        return f"{share} ({accepted:,} of {report.rows:,})."
    return f"{share}; {counted(report.accuracy.errors, 'error')} among {accepted:,} accepted."


def _shares(report: Report) -> Table:
    """Accuracy, errors and reviews, with and without rejection."""
    remark = ""
    if report.accuracy is None or report.base_accuracy is None:
        expected = report.expected_accuracy
        rows = [["expected accuracy", percent(expected.all), percent(expected.value)]]
        remark = "estimated without labels; does not account for drift"
    else:
        accuracy, base = report.accuracy, report.base_accuracy
        interval = "" if accuracy.lower is None else f" (95 % CI {percents(accuracy)})"
        rows = [
            ["accuracy", percent(base.value), f"{percent(accuracy.value)}{interval}"],
            ["errors", f"{base.errors:,}", f"{accuracy.errors:,}"],
        ]
    rejected = report.rows - report.coverage.accepted
    rows.append(["sent to review", "-", counted(rejected, "row")])
    if report.total_cost is not None:
        rows.append(["cost per 1,000 rows", money(report.total_cost.accepting_all), money(report.total_cost.value)])
    return Table("brief", "", ["", "without rejection", "with rejection"], rows, remark)


def _verdicts(report: Report) -> Iterator[tuple[str, str, str, str]]:
    """What each target, each gate and the test for drift came to."""
    target = target_of(report)
    if target is not None:
        promises = sorted(target.promises, key=lambda each: each.verdict != target.verdict)
        for promise in promises[:_MOST_PROMISES]:
            by = "class" if promise.what == "missed" else report.cutoff_by
            whose = "" if promise.group is None else f"{by} {promise.group}: "
            sure = "" if target.confidence is None else ", certified"
            more = settling_words(promise) or tie_words(promise)
            found = found_words(promise, TYPESET) + (f"; {more}" if more else "")
            yield "Target", printable(f"{whose}{limit_words(promise, TYPESET)}{sure}"), promise.verdict, found
        if len(promises) > _MOST_PROMISES:
            yield "", f"and {len(promises) - _MOST_PROMISES} more", "", ""
    for gate in report.gates:
        if gate.gate != TARGET:
            yield "Gate", printable(gate.gate), "pass" if gate.passed else "fail", printable(gate_value(report, gate))
    p_value = report.drift.p_value
    if p_value is not None:
        detected = p_value < DRIFT_LEVEL
        yield "Drift", "since the fit", "detected" if detected else "not detected", f"p = {p_value:.2g}"


def _lowest(report: Report) -> Iterator[tuple[str, str]]:
    """The class and the group that do worst."""
    rows = [row for row in report.per_class or () if row.rows]
    right = [row for row in rows if row.accuracy is not None]
    if right:
        worst = min(right, key=lambda row: (row.accuracy, row.coverage))
        if worst.accuracy != 1:
            yield "Lowest", f"class {worst.class_}: {percent(worst.accuracy)} of its accepted rows are right"
        least = min(rows, key=lambda row: row.coverage)
        if least.coverage != 1:
            yield "Lowest", f"class {least.class_}: {percent(least.coverage)} of its rows are accepted"
    group = None if report.worst_group is None else report.worst_group.accuracy
    if group is not None and group.group is not None:
        yield "Lowest", f"{report.by} {group.group}: {percent(group.value)} of its accepted rows are right"
