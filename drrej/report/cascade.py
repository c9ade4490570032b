"""What `drrej cascade` says, as plain text."""

from __future__ import annotations

from drrej.documents.cascade import Cascade
from drrej.report.numbers import money, percent, short
from drrej.report.tables import Table
from drrej.report.text import aligned

_MOST_POINTS = 12


def render_cascade(found: Cascade) -> str:
    """Plain text."""
    sections = [_heading(found), aligned(_stages(found)), aligned(_against(found)), aligned(_frontier(found))]
    return "\n\n".join("\n".join(lines) for lines in sections) + "\n"


def _heading(found: Cascade) -> list[str]:
    chosen = found.chosen
    lines = [
        f"{found.rows} rows at {money(chosen.cost)} each, {percent(chosen.accuracy, 2)} right ({chosen.errors} errors)"
    ]
    if found.confidence is not None:
        lines.append(
            f"certified on these rows, which nothing else has seen: new rows are answered with an accuracy of at least "
            f"{percent(found.target, 2)}, confidence {found.confidence:g}"
        )
    else:
        lines.append("chosen on these rows themselves: nothing is promised for others (give `confidence`)")
    if found.saved is not None:
        lines.append(f"{percent(found.saved)} of the cost of '{found.saved_over}' alone saved, which keeps it too")
    elif found.saved_over is None:
        lines.append(f"no stage alone keeps an accuracy of {percent(found.target, 2)}")
    return lines


def _stages(found: Cascade) -> Table:
    rows = []
    for stage in found.stages:
        answers = "left out" if not stage.used else "all" if stage.cutoff is None else f"loss < {short(stage.cutoff)}"
        rows.append([stage.name, money(stage.cost), answers, str(stage.reached), str(stage.answered)])
    return Table("stages", "Stages", ["stage", "cost", "answers", "rows seen", "rows answered"], rows)


def _against(found: Cascade) -> Table:
    rows = [["this cascade", money(found.chosen.cost), percent(found.chosen.accuracy, 2), str(found.chosen.errors)]]
    rows += [
        [f"{stage.name} alone", money(stage.cost), percent(stage.accuracy, 2), str(stage.errors)]
        for stage in found.alone
    ]
    return Table("alone", "Against each stage alone", ["", "cost per row", "accuracy", "errors"], rows)


def _frontier(found: Cascade) -> Table:
    points = found.frontier
    step = max(1, -(-len(points) // _MOST_POINTS))
    shown = [point for place, point in enumerate(points) if place % step == 0 or point == found.chosen]
    rows = [
        [
            money(point.cost) + (" *" if point == found.chosen else ""),
            percent(point.accuracy, 2),
            str(point.errors),
            " > ".join(point.stages),
        ]
        for point in shown
    ]
    remark = "the plans that were tested, the safest first; * is the one that was chosen, the cheapest that passed"
    if found.confidence is None:
        remark = "plans that no other beats, the safest first; * is the one that was chosen"
    return Table("frontier", "Cost and accuracy", ["cost per row", "accuracy", "errors", "stages"], rows, remark)
