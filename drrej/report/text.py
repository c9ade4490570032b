"""The report as plain text, for terminals and logs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from drrej.report.numbers import against, figure, interval

MOST_CLASSES = 20
_CURVE_EVERY = 5


def render_text(report: dict[str, Any]) -> str:
    """Sections separated by empty lines; no line is wider than about 80 columns."""
    sections = [
        _heading(report),
        _proportions(report),
        _calibration(report),
        _areas(report),
        _curve(report["curve"]),
        _per_class(report["per_class"]),
        gate_lines(report["gates"]),
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def gate_lines(gates: Sequence[dict[str, Any]]) -> list[str]:
    """One line per gate."""
    return [
        f"{'PASS' if gate['passed'] else 'FAIL'}  {gate['gate']}  (value {against(gate['value'], gate['limit'])})"
        for gate in gates
    ]


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Aligned columns: the first to the left, the others to the right."""
    widths = [max(len(line[i]) for line in [header, *rows]) for i in range(len(header))]
    return [
        "  ".join(
            cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in [header, *rows]
    ]


def _heading(report: dict[str, Any]) -> list[str]:
    cutoff = (
        "rejects nothing" if report["cutoff"] is None else f"rejects a loss of {figure(report['cutoff'], 6)} or more"
    )
    tau = "" if report["tau"] is None else f" (ratio of {figure(report['tau'], 6)} or less)"
    return [f"{report['rows']} rows, {report['classes']} classes; {cutoff}{tau}"]


def _proportions(report: dict[str, Any]) -> list[str]:
    coverage, accuracy, base = report["coverage"], report["accuracy"], report["base_accuracy"]
    counts = {
        "coverage": (coverage, f"{coverage['accepted']} of {report['rows']} accepted"),
        "accuracy": (accuracy, f"{accuracy['errors']} errors"),
        "base accuracy": (base, f"{base['errors']} errors"),
    }
    rows = [[name, figure(group["value"]), interval(group), count] for name, (group, count) in counts.items()]
    return table(["", "value", "95 % interval", "counts"], rows)


def _calibration(report: dict[str, Any]) -> list[str]:
    rows = [
        [name, *(figure(report[key][part]) for part in ("uncalibrated", "all", "accepted"))]
        for name, key in {"NLL": "nll", "ECE": "ece", "Brier": "brier"}.items()
    ]
    return table(["", "uncalibrated", "all", "accepted"], rows)


def _areas(report: dict[str, Any]) -> list[str]:
    ratio = report["ratio"]
    rows = [
        [name, figure(report[key]["value"], 6)]
        for name, key in {"AURC": "aurc", "E-AURC": "e_aurc", "AUGRC": "augrc"}.items()
    ]
    rows.append(["mean ratio", f"{figure(ratio['mean'])} +- {figure(ratio['std_error'])} (1 without drift)"])
    width = max(len(name) for name, _ in rows)
    return [f"{name.ljust(width)}  {text}" for name, text in rows]


def _curve(curve: Sequence[dict[str, Any]]) -> list[str]:
    rows = [
        [f"{point['tau']:.2f}", figure(point["coverage"]), figure(point["accuracy"])]
        for point in curve[_CURVE_EVERY - 1 :: _CURVE_EVERY]
    ]
    return table(["tau", "coverage", "accuracy"], rows)


def _per_class(classes: Sequence[dict[str, Any]]) -> list[str]:
    worst = sorted(classes, key=lambda row: (row["accuracy"] is not None, row["accuracy"]))
    shown = classes if len(classes) <= MOST_CLASSES else worst[:MOST_CLASSES]
    rows = [[str(row["class"]), str(row["rows"]), figure(row["coverage"]), figure(row["accuracy"])] for row in shown]
    lines = table(["class", "rows", "coverage", "accuracy"], rows)
    if len(shown) < len(classes):
        lines.append(f"(the {MOST_CLASSES} of {len(classes)} classes with the lowest accuracy)")
    return lines
