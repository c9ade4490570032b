"""How figures are written for people, and what a report says in sentences: warnings, the target, the gates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from drrej.documents.document import Document, GateRow
from drrej.documents.figures import MEANS, Promise, Spread, Target, TotalCost
from drrej.documents.gates import DRIFT, DRIFT_LEVEL, FRESH, TARGET, VERDICTS
from drrej.documents.report import RegressionReport, Report
from drrej.errors import printable

if TYPE_CHECKING:
    from drrej.documents.summaries import MaskSummary

# Figures


def figure(value: Any, digits: int = 4) -> str:
    """A figure with `digits` decimals, or in scientific notation where those would show too little of it.

    Whole numbers are counts and are written out; None is a dash.

    >>> figure(0.97573), figure(0.0099), figure(2060), figure(None)
    ('0.9757', '9.900e-03', '2060', '-')
    """
    if value is None:
        return "-"
    if isinstance(value, int):
        return str(value)
    if value != 0 and abs(value) < 10.0 ** (2 - digits):
        return f"{value:.{digits - 1}e}"
    return f"{value:.{digits}f}"


def plain(value: float | None) -> str:
    """A number with three significant digits and no exponent; None is a dash.

    >>> plain(0.0022571), plain(0.9911), plain(2.44e-05), plain(None)
    ('0.00226', '0.991', '0.0000244', '-')
    """
    return "-" if value is None else f"{Decimal(f'{value:.3g}'):f}"


def money(value: float | None) -> str:
    """A cost with one decimal, or with three significant digits where that shows more; None is a dash.

    >>> money(1213.592), money(251.456), money(0.02513), money(0.0)
    ('1,213.6', '251.5', '0.0251', '0.0')
    """
    return plain(value) if value is None or 0 < abs(value) < 10 else f"{value:,.1f}"


def against(value: float, limit: float) -> str:
    """A value with enough digits to tell it from a limit.

    >>> against(0.969999, 0.97), against(0.5, 0.97)
    ('0.969999', '0.5')
    """
    for digits in range(4, 17):
        text = f"{value:.{digits}g}"
        if (float(text) > limit, float(text) < limit) == (value > limit, value < limit):
            return text
    return repr(value)


def interval(spread: Spread) -> str:
    """Lower - upper; a dash for none."""
    return "-" if spread.lower is None else f"{figure(spread.lower)} - {figure(spread.upper)}"


def percent(value: float | None, least: int = 1) -> str:
    """A share as a percentage with `least` decimals, or as many more as keep it from looking like 0 or 100 %.

    >>> percent(0.5), percent(0.99996), percent(None)
    ('50.0 %', '99.996 %', '-')
    """
    if value is None:
        return "-"
    for digits in range(least, 7):
        text = f"{100 * value:.{digits}f}"
        whole = float(text)
        if (whole == 100) == (value == 1) and (whole == 0) == (value == 0):
            break
    return f"{text} %"


def percents(spread: Spread) -> str:
    """An interval of shares as percentages; a dash for none."""
    lower, upper = spread.lower, spread.upper
    if lower is None or upper is None:
        return "-"
    for digits in range(1, 7):
        low, high = f"{100 * lower:.{digits}f}", f"{100 * upper:.{digits}f}"
        if low != high or lower == upper:
            break
    return f"{low}\N{EN DASH}{high} %"


def counted(number: int, what: str) -> str:
    """`1 error`, `2 errors`, `2 batches`."""
    ending = "es" if what.endswith(("ch", "ss")) else "s"
    return f"{number:,} {what}{'' if number == 1 else ending}"


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


def aligned(header: Sequence[str], rows: Sequence[Sequence[str]], remark: str = "") -> list[str]:
    """Aligned columns: the first to the left, the others to the right. A remark is a line below."""
    cells = [header, *rows] if header else rows
    first, *others = (max(map(len, column)) for column in zip(*cells, strict=True))
    lines = []
    for name, *values in cells:
        right = [value.rjust(width) for value, width in zip(values, others, strict=True)]
        lines.append("  ".join([name.ljust(first), *right]).rstrip())
    return [*lines, f"({remark})"] if remark else lines


# Sentences


def warnings_of(report: Document) -> list[str]:
    """What a report is to be read with care for: used rows, a doubtful order, ties, labels that look swapped."""
    if not isinstance(report, Report | RegressionReport):
        return []
    lines = [other_model(report)] if report.rejector_model else []
    if report.seen_by is not None:
        lines.append(f"{seen_by(report)}, and intervals and p-values do not hold; report on rows that no step has seen")
    if isinstance(report, RegressionReport):
        return lines
    if report.unsure_order is not None:
        plain = next((row for row in report.scores or () if row.score == "max_probability"), None)
        compared = ""
        if plain is not None and report.augrc is not None:
            areas = figure(report.augrc.value), figure(plain.augrc.value)
            compared = f"here its AUGRC is {areas[0]} and that of max probability {areas[1]}; "
        lines.append(f"{unsure_order(report)}; {compared}fit again on rows like these, or with `loss=log`")
    if report.tied_rows is not None:
        lines.append(
            f"{report.tied_rows} of {report.rows} rows have the same loss and can only be accepted or rejected "
            "together; scores with more digits, or logits in place of probabilities, tell them apart"
        )
    if report.repeated_rows is not None:
        lines.append(
            f"about {report.repeated_rows} of {report.rows} rows have the same scores as another row and count once in "
            "the intervals of coverage and accuracy and in the verdict on the target; other intervals and p-values do "
            "not hold; drop the copies, or if they are different examples name a column that tells them apart with "
            "`group`"
        )
    if report.below_chance is not None:
        lines.append(report.below_chance)
    if report.target is not None:
        for promise in report.target.promises:
            lines += _hidden(report, promise)
    return lines


def _hidden(report: Report, promise: Promise) -> Iterator[str]:
    """Warnings where an error rate of all accepted rows asks for nothing, or hides a class that does far worse."""
    if promise.what not in ("accuracy", "risk") or promise.group is not None or report.base_accuracy is None:
        return
    if _met_by_all(report, promise):
        right = percent(report.base_accuracy.value, 2)
        yield f"{limit_words(promise, ASCII)}: met even without rejection; {right} of all rows are right"
    risk = 1.0 - promise.wanted if promise.what == "accuracy" else promise.wanted
    far = [
        (row.missed.value or 0.0, row.class_)
        for row in report.per_class or ()
        if row.missed is not None and row.recall is not None and (row.recall.upper or 0.0) < 1 - _FAR * risk
    ]
    if far and promise.verdict != "missed":
        missed, name = max(far, key=lambda pair: pair[0])
        others = f", and so on for {counted(len(far) - 1, 'more class')}" if len(far) > 1 else ""
        yield (
            f"{limit_words(promise, ASCII)} hides that {percent(missed)} of the rows of class '{name}' are accepted as "
            f"another class{others}; limit that with `max_missed={name}=S`, or the errors among the rows predicted as "
            "a class with `accuracy=CLASS=A`"
        )


_FAR = 3.0
"""A class is far below a target if its error rate surely is more than so many times the limit."""


def review_words(report: Report) -> str:
    """How many rows go to review: their number, the share and, if it is known how long one takes, the hours."""
    reviews = report.reviews
    hours = "" if reviews.hours is None else f"; {reviews.hours:,.1f} hours"
    return counted(reviews.value, "row") + (f" ({reviews.per_1000:.3g} per 1,000{hours})" if reviews.value else "")


def model_words(report: Report | RegressionReport) -> str:
    """Which model the predictions are of, if that is known."""
    made_for = "" if report.rejector_model is None else f"; the rejector was made for {report.rejector_model}"
    return "" if report.model is None else printable(f"predictions of {report.model}{made_for}")


def other_model(report: Report | RegressionReport | MaskSummary) -> str:
    """A warning where the predictions are not of the model that the rejector was made for."""
    if report.rejector_model is None:
        return ""
    return (
        f"these predictions are of {report.model}, but the rejector was made for {report.rejector_model}: its "
        "guarantees are about that version; gate on drift, target and coverage.drop to see whether it still fits"
    )


def _steps(report: Report | RegressionReport) -> str:
    *others, last = report.seen_by or ("no step",)
    return f"{', '.join(others)} and {last}" if others else last


def seen_by(report: Report | RegressionReport) -> str:
    """A warning where the rows are no test: steps that made the rejector have used some of them."""
    return "" if report.seen_by is None else f"some of these rows were used by {_steps(report)}: new rows may do worse"


def unsure_order(report: Report) -> str:
    """A warning where a learned loss may not rank these rows."""
    if report.unsure_order is None:
        return ""
    return (
        "these rows are unlike those that the loss was learned from: it may no longer rank them better than the plain "
        f"loss '{report.unsure_order}'"
    )


Signs = tuple[str, str, str]
"""How at least, at most, and an interval are written."""

ASCII: Signs = (">=", "<=", " - ")
TYPESET: Signs = ("\N{GREATER-THAN OR EQUAL TO}", "\N{LESS-THAN OR EQUAL TO}", "\N{EN DASH}")

_MOST_MORE = 100_000
"""More rows than that are not a thing to wait for."""

_MOST_PROMISES = 5
"""Promises that are told one by one when there are more; those that were missed come first."""


def target_of(report: Document) -> Target | None:
    """The target of a report that has one."""
    target = getattr(report, "target", None)
    return target if isinstance(target, Target) else None


def target_lines(report: Document, signs: Signs = ASCII) -> list[str]:
    """A sentence for each promise of the target; of many groups a summary and those that were missed."""
    target = target_of(report)
    if target is None:
        return []
    sentences = [sentence(report, target, promise, signs) for promise in target.promises]
    if len(sentences) <= _MOST_PROMISES:
        return sentences
    lines: list[str] = []
    for wish in dict.fromkeys(wish_words(target, promise, signs) for promise in target.promises):
        mine = [(row, line) for row, line in zip(target.promises, sentences, strict=True) if line.startswith(wish)]
        if len(mine) == 1:
            lines.append(mine[0][1])
            continue
        numbers = Counter(row.verdict for row, _ in mine)
        summary = ", ".join(f"{verdict} in {numbers[verdict]}" for verdict in ("met", "inconclusive", "missed"))
        lines.append(f"{wish} in each of {counted(len(mine), 'group')}: {summary}")
        lines += [line for row, line in mine if row.verdict == "missed"][:_MOST_PROMISES]
    return lines


def sentence(report: Document, target: Target, promise: Promise, signs: Signs = ASCII) -> str:
    """What was wanted, what came out, and what that says."""
    by = "the label" if promise.what == "missed" else getattr(report, "cutoff_by", None) or report.get("by")
    whose = "" if promise.group is None else f" where {by} is '{promise.group}'"
    here = "; on these rows" if target.confidence is not None else ""
    return f"{wish_words(target, promise, signs)}{whose}{here}: {_outcome(report, target, promise, signs)}"


def wish_words(target: Target, promise: Promise, signs: Signs) -> str:
    """What was asked for, in a few words."""
    limit = limit_words(promise, signs)
    if target.confidence is None:
        return f"wanted {limit}"
    return f"{limit} is certified for new rows with confidence {exact_percent(target.confidence)}"


def limit_words(promise: Promise, signs: Signs) -> str:
    """A figure and its limit."""
    if promise.what == "cost":
        return "the least cost"
    at_least, at_most, _ = signs
    sign = at_least if promise.what in ("accuracy", "coverage") else at_most
    what = {"missed": "missed cases", "overall-risk": "errors among all rows"}.get(promise.what, promise.what)
    limit = f"{what} {sign} {exact_percent(promise.wanted)}"
    if promise.what in MEANS:
        clipped = "" if promise.clip is None else f" (of at most {promise.clip:g} a row)"
        limit = f"{MEANS[promise.what]}{clipped} {sign} {promise.wanted:g}"
    return limit


def found_words(promise: Promise, signs: Signs) -> str:
    """What came out, with its interval; nothing where that is not known."""
    if promise.value is None or promise.lower is None or promise.upper is None:
        return ""
    numbers, is_mean = [promise.value, promise.lower, promise.upper], promise.what in (*MEANS, "cost")
    texts = [figure(number) for number in numbers] if is_mean else percents_against(numbers, promise.wanted)
    unit = "" if is_mean else " %"
    return f"{texts[0]}{unit} ({texts[1]}{signs[2]}{texts[2]}{unit})"


def _outcome(report: Document, target: Target, promise: Promise, signs: Signs) -> str:
    cost, is_mean, (*_, to) = getattr(report, "total_cost", None), promise.what in MEANS, signs
    if promise.what == "cost" and isinstance(cost, TotalCost):
        interval = f"({money(cost.lower)}{to}{money(cost.upper)})"
        others = f"{money(cost.accepting_all)} accepting all, {money(cost.rejecting_all)} reviewing all"
        return f"{money(cost.value)} per 1000 rows {interval}, against {others}: {promise.verdict}"
    if promise.what in MEANS and promise.value is None:
        return "inconclusive, no row is accepted or there are no labels"
    if promise.what in MEANS and promise.lower is None:
        return f"{figure(promise.value)}: inconclusive, there is no interval for unbounded errors"
    if promise.value is None or promise.lower is None:
        labelled = promise.what in ("coverage", "reviews") or "accuracy" in report
        return f"inconclusive, {'no row is accepted' if labelled else 'there are no labels'}"
    limit = f"{promise.wanted:g}" if is_mean else exact_percent(promise.wanted)
    came_out = found_words(promise, signs)
    if promise.verdict == "missed" and target.confidence is not None:
        chance = promise.p_value or 0.0
        p_value = "" if promise.p_value is None else f" (p {'below 1e-300' if chance < 1e-300 else f'= {chance:.1g}'})"
        return f"{came_out}: these rows contradict it{p_value}; are they like the rows it was chosen on?"
    if tied := tie_words(promise):
        return f"{came_out}: inconclusive, {tied}"
    if promise.verdict == "inconclusive":
        more = settling_words(promise)
        return f"{came_out}: inconclusive{f'; {more}' if more else f', the interval contains {limit}'}"
    return f"{came_out}: {promise.verdict}{_met_by_all(report, promise)}"


def tie_words(promise: Promise) -> str:
    """Why a coverage that is reached is not met."""
    tied = promise.verdict == "inconclusive" and promise.what == "coverage" and (promise.lower or 0.0) >= promise.wanted
    return "most rows have the same loss and are accepted together" if tied else ""


def settling_words(promise: Promise) -> str | None:
    """What would give a verdict."""
    if promise.more_rows is None:
        return None
    if promise.more_rows > _MOST_MORE:
        return "too close to the limit for more rows to settle it"
    rows = float(f"{promise.more_rows:.1g}" if promise.more_rows < 100 else f"{promise.more_rows:.2g}")
    kind = "more row" if promise.what == "coverage" else "more labelled row"
    return f"about {counted(int(rows), kind)} would settle it"


def _met_by_all(report: Document, promise: Promise) -> str:
    """That a target asks for nothing: all rows together meet it."""
    base = getattr(report, "base_accuracy", None)
    if promise.what not in ("accuracy", "risk") or promise.group is not None or base is None or base.value is None:
        return ""
    wanted = promise.wanted if promise.what == "accuracy" else 1.0 - promise.wanted
    return f"; also met without rejection: {percent(base.value)} of all rows are right" if base.value >= wanted else ""


def gate_state(report: Document, gate: GateRow) -> str:
    """`passed`, `failed`, or `inconclusive` for a target that these rows neither show nor contradict."""
    target = target_of(report)
    if gate.gate == TARGET and target is not None and target.verdict == "inconclusive":
        return "inconclusive"
    return "passed" if gate.passed else "failed"


def gate_value(report: Document, gate: GateRow) -> str:
    """What a gate met, in few words: for the target its verdict, for others the value."""
    target = target_of(report)
    if gate.gate == TARGET and target is not None:
        return target.verdict
    if gate.gate == FRESH and isinstance(report, Report | RegressionReport):
        return "no step has used these rows" if gate.passed else f"used by {_steps(report)}"
    if gate.gate == DRIFT:
        return f"{'not ' if gate.passed else ''}detected since the fit (p = {gate.value:.2g}, level {DRIFT_LEVEL:g})"
    return against(gate.value, gate.limit)


def gate_words(report: Document, gate: GateRow, signs: Signs = ASCII) -> str:
    """What a gate met, in words: for the target its sentence, for others the value."""
    target = target_of(report)
    if gate.gate == TARGET and target is not None:
        return sentence(report, target, target.deciding, signs)
    if gate.gate == FRESH and isinstance(report, Report | RegressionReport) and report.seen_by is not None:
        return f"{FRESH}: {seen_by(report)}"
    return f"{gate.gate}: {'' if gate.gate in VERDICTS else 'the value is '}{gate_value(report, gate)}"
