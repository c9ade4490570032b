"""What `run` and `evaluate` print: the answer, the verdicts, and what to do next; the whole report is in `text`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from drrej.documents.gates import DRIFT_LEVEL, TARGET
from drrej.documents.report import Report
from drrej.errors import printable
from drrej.report.words import (
    TYPESET,
    aligned,
    counted,
    exact_percent,
    found_words,
    gate_value,
    limit_words,
    model_words,
    money,
    percent,
    percents,
    review_words,
    settling_words,
    target_of,
    tie_words,
)

_COLOURS = {"met": 32, "pass": 32, "certified": 32, "missed": 31, "fail": 31, "inconclusive": 33, "detected": 33}
"""ANSI colours of verdicts: green, red and yellow."""
_BOLD, _DIM = 1, 2
_MOST_PROMISES, _LONG = 5, 50


def render_brief(report: Report, heading: str, last: Sequence[tuple[str, str]] = (), colour: bool = False) -> str:
    """The heading, the answer and a line for each verdict; the `last` lines, each with its label, come at the end."""

    def painted(text: str, code: int) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if colour and text.strip() else text

    model = [f"  {model_words(report)}"] if report.model else []
    lines = [painted(printable(heading), _BOLD), *model, "", painted(f"  {_answer(report)}", _BOLD)]
    if report.accepts is not None:
        by = "" if report.cutoff_by is None else f", by {report.cutoff_by},"
        lines.append(f"  {printable(f'A row is accepted{by} when {report.accepts}')}.")
    lines.append("")
    lines += [f"  {line}" for line in _shares(report)]
    verdicts = list(_verdicts(report))
    width = max((len(what) for _, what, _, _ in verdicts), default=0)
    if verdicts:
        lines.append("")
    for label, what, verdict, found in verdicts:
        mark = painted(f"{verdict.upper():12}", _COLOURS.get(verdict, _DIM))
        lines.append(f"  {label:7}  {what:{width}}  {mark}  {found}".rstrip())
    rows = [*worst_lines(report), *last]
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


def _shares(report: Report) -> list[str]:
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
    rows.append(["sent to review", "-", review_words(report)])
    if report.total_cost is not None:
        rows.append(["cost per 1,000 rows", money(report.total_cost.accepting_all), money(report.total_cost.value)])
    return aligned(["", "without rejection", "with rejection"], rows, remark)


def _verdicts(report: Report) -> Iterator[tuple[str, str, str, str]]:
    """What each target, each gate and the test for drift came to."""
    target = target_of(report)
    if target is not None:
        promises = sorted(target.promises, key=lambda each: each.verdict != target.verdict)
        wishes = []
        for promise in promises:
            of = "class" if promise.what == "missed" else report.cutoff_by
            whose = "" if promise.group is None else f"{of} {promise.group}: "
            wishes.append(printable(f"{whose}{limit_words(promise, TYPESET)}"))
        if target.confidence is not None:  # what holds for new rows, and what these rows say of it, are two things
            limits = {limit_words(promise, TYPESET) for promise in promises}
            limit = "both limits" if len(wishes) == 2 else f"all {len(wishes)} limits"
            if len(limits) == 1 < len(wishes):
                limit = f"{printable(*limits)} in each group"
            elif len(shown := ", ".join(wishes)) < _LONG:
                limit = shown
            sure = f"for new rows, with confidence {exact_percent(target.confidence)}"
            yield "Target", limit, "certified", sure
        for promise, wish in zip(promises[:_MOST_PROMISES], wishes, strict=False):
            label, here = ("Target", "") if target.confidence is None else ("Check", " on these rows")
            more = settling_words(promise) or tie_words(promise)
            found = found_words(promise, TYPESET) + (f"; {more}" if more else "")
            yield label, f"{wish}{here}", promise.verdict, found
        if len(promises) > _MOST_PROMISES:
            yield "", f"and {len(promises) - _MOST_PROMISES} more", "", ""
    for gate in report.gates:
        if gate.gate != TARGET:
            yield "Gate", printable(gate.gate), "pass" if gate.passed else "fail", printable(gate_value(report, gate))
    p_value = report.drift.p_value
    if p_value is not None:
        found = "detected" if p_value < DRIFT_LEVEL else "not detected"
        yield "Drift", "since the fit", found, f"p = {p_value:.2g}, level {DRIFT_LEVEL:g}"


def worst_lines(report: Report) -> Iterator[tuple[str, str]]:
    """The class and the group that do worst, each line after its heading."""
    if (worst := report.worst_class) is not None:
        lines = [
            (worst.missed, 0, "of its rows are accepted as another class (missed)"),
            (worst.precision, 1, "of the rows accepted as this class are right (precision)"),
            (worst.reviewed, 0, "of its rows are rejected"),
        ]
        for share, best, words in lines:
            if share.value not in (None, best):
                yield "Worst", f"class {share.group}: {percent(share.value)} {words}"
    group = None if report.worst_group is None else report.worst_group.accuracy
    if group is not None and group.group is not None and report.by != "prediction":  # whose precision is there
        yield "Worst", f"{report.by} {group.group}: {percent(group.value)} of its accepted rows are right"
