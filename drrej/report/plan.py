"""What `drrej plan` says, as plain text, markdown and a picture."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from drrej.documents.plan import Plan, Question
from drrej.report.numbers import percent
from drrej.report.tables import Table
from drrej.report.text import aligned

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_FIXED = "fixed cutoff: one look at a cutoff that was chosen on other rows"
_BOTH = "risk and coverage: both are promised together"


def render_plan(plan: Plan) -> str:
    """Plain text."""
    return _rendered(plan, aligned)


def render_plan_markdown(plan: Plan) -> str:
    """GitHub's markdown."""
    from drrej.report.markdown import section_lines

    return "## drrej plan\n\n" + _rendered(plan, section_lines)


def _rendered(plan: Plan, lines_of: Callable[[Table], list[str]]) -> str:
    sections = []
    if plan.needed is not None and plan.question is not None:
        sections += [
            [_promise(plan.question)],
            lines_of(_needed(plan)),
            [f"- {text}" for text in (_FIXED, _BOTH)],
        ]
    if plan.at_hand is not None:
        rows = f"{plan.rows} labelled rows, {plan.errors} of them wrong; bounds with confidence {plan.confidence:g}"
        sections += [[rows], lines_of(_at_hand(plan))]
        if plan.question is not None:
            sections += [[_certified(plan, plan.question)]]
    return "\n\n".join("\n".join(lines) for lines in sections) + "\n"


def _promise(question: Question) -> str:
    return (
        f"Fresh labelled rows for a risk of at most {question.risk:g} with confidence {question.confidence:g}, at "
        f"coverage {question.coverage:g},\ncertified with a chance of {question.power:g} (power):"
    )


def _needed(plan: Plan) -> Table:
    assert plan.needed is not None
    assert plan.question is not None
    rows = [
        [f"{row.error:g}", *(_count(number) for number in (row.fixed_cutoff, row.risk_and_coverage))]
        for row in plan.needed
    ]
    remark = f"even without an error, at least {plan.question.least_accepted} rows must be accepted"
    header = ["expected error rate", "fixed cutoff", "risk and coverage"]
    return Table("needed", "Rows that are needed", header, rows, remark)


def _at_hand(plan: Plan) -> Table:
    assert plan.at_hand is not None
    asked = plan.question is not None
    rows = [
        [
            percent(row.coverage),
            str(row.accepted),
            str(row.errors),
            *(percent(share, 2) for share in (row.risk, row.asked, row.any_cutoff)),
            *([_count(row.needed)] if asked else []),
        ]
        for row in plan.at_hand
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


def _certified(plan: Plan, question: Question) -> str:
    found = plan.certified
    if found is None:
        return f"these rows certify no cutoff: {plan.why_not}"
    return (
        f"these rows certify a risk of at most {question.risk:g} at a coverage of {percent(found.coverage)} "
        f"({found.accepted} accepted, {found.errors} errors)"
    )


def _count(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


# The picture


def render_plan_plot(plan: Plan, kind: str) -> bytes:
    """Power against rows, or risk and its bounds against coverage, as png, svg or pdf."""
    from drrej.report.plots import figure_of, quiet, saved, settings

    with settings(), quiet():
        plot = figure_of(620, 440)
        (_powers if plan.needed is not None else _bounds)(plan, plot, plot.subplots())
        return saved(plot, kind)


def _powers(plan: Plan, plot: Figure, axes: Axes) -> None:
    from drrej.report.plots import MAIN, MUTED, RIVALS, percent_axes

    assert plan.needed is not None
    assert plan.question is not None
    colors = (MAIN, *RIVALS)
    for number, row in enumerate(plan.needed):
        color, label = colors[number % len(colors)], f"error rate {row.error:g}"
        axes.plot([p.rows for p in row.powers], [p.power for p in row.powers], color=color, label=label)
    axes.axhline(plan.question.power, color=MUTED, lw=1.2, ls=(0, (4, 3)), label="wanted")
    axes.set(xlabel="fresh labelled rows, logarithmic", ylabel="chance to certify (fixed cutoff)", ylim=(0, 1.02))
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_title(_promise(plan.question).split(",\n")[0], loc="left")
    percent_axes(axes, "y")
    plot.legend(loc="outside lower center", ncols=3, columnspacing=1.2)


def _bounds(plan: Plan, plot: Figure, axes: Axes) -> None:
    from drrej.report.plots import INK, MAIN, RIVALS, WRONG, percent_axes

    assert plan.at_hand is not None
    x = [row.coverage for row in plan.at_hand]
    style = "o" if len(x) == 1 else "-"
    axes.plot(x, [row.any_cutoff for row in plan.at_hand], style, color=WRONG, label="bound, any cutoff")
    axes.plot(x, [row.asked for row in plan.at_hand], style, color=RIVALS[0], label="bound, if asked before")
    axes.plot(x, [row.risk for row in plan.at_hand], style, color=MAIN, label="observed error rate")
    if plan.question is not None:
        axes.axhline(plan.question.risk, color=INK, lw=1.2, ls=(0, (4, 3)), label=f"risk {plan.question.risk:g}")
    if plan.certified is not None:
        axes.axvline(plan.certified.coverage, color=INK, lw=0.9, ls=(0, (2, 3)), label="certified on these rows")
    highest = max(row.risk for row in plan.at_hand)
    limit = max(1.3 * highest, 3.0 * (plan.question.risk if plan.question is not None else 0.0), 0.01)
    axes.set(xlim=(0, 1), ylim=(0, min(1.0, limit)))
    axes.set(xlabel="coverage: share of the rows that are accepted", ylabel="error rate of the accepted rows")
    percent_axes(axes, "xy")
    plot.legend(loc="outside lower center", ncols=3, columnspacing=1.2)
