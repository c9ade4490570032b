"""The report as titled tables of texts: what the text and markdown renderers share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from drrej.report.numbers import figure, interval

MOST_CLASSES = 20
_CURVE_EVERY = 5
_COSTS = {"realised": "value", "expected": "expected"}
_AREAS = {"AURC": "aurc", "E-AURC": "e_aurc", "AUGRC": "augrc"}

Report = dict[str, Any]


@dataclass(frozen=True)
class Table:
    """A header, rows of as many cells, and a remark below."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    remark: str = ""


def heading(report: Report) -> str:
    """The rows and the decision in one line."""
    start = f"{report['rows']} rows, {report['classes']} classes; "
    if "cutoff_by" in report:
        return f"{start}each group by {report['cutoff_by']} has a cutoff of its own"
    if report["cutoff"] is not None:
        tau = "" if report["tau"] is None else f" (ratio of {figure(report['tau'], 6)} or less)"
        return f"{start}rejects a loss of {figure(report['cutoff'], 6)} or more{tau}"
    return start + "rejects nothing"


def tables(report: Report) -> list[Table]:
    """Every table that this report has."""
    made = [
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
    return [table for table in made if table is not None]


def _proportions(report: Report) -> Table:
    rows = [
        _proportion("coverage", report["coverage"], f"{report['coverage']['accepted']} of {report['rows']} accepted")
    ]
    if "accuracy" in report:
        for name in ("accuracy", "base_accuracy"):
            rows.append(_proportion(name.replace("_", " "), report[name], f"{report[name]['errors']} errors"))
    rows.append(["expected accuracy", figure(report["expected_accuracy"]["value"]), "-", "from the probabilities"])
    return Table("Coverage and accuracy", ["", "value", "95 % interval", "counts"], rows)


def _proportion(name: str, group: Report, count: str) -> list[str]:
    return [name, figure(group["value"]), interval(group), count]


def _value(group: Report) -> str:
    return figure(group["value"])


def _accuracy(row: Report) -> tuple[str, str]:
    return _value(row["accuracy"]), interval(row["accuracy"])


def _groups(report: Report) -> Table | None:
    if "per_group" not in report:
        return None
    rows = [
        [row["group"], str(row["rows"]), _value(row["coverage"]), *_accuracy(row), _value(row["base_accuracy"])]
        for row in report["per_group"]
    ]
    header = [report["by"], "rows", "coverage", "accuracy", "95 % interval", "base accuracy"]
    return Table(f"By {report['by']}", header, rows)


def _scores(report: Report) -> Table | None:
    if "scores" not in report:
        return None
    rows = [
        [row["score"], *(figure(row[key]["value"], 6) for key in _AREAS.values()), *_accuracy(row)]
        for row in report["scores"]
    ]
    header = ["score", *_AREAS, "accuracy", "95 % interval"]
    return Table("Scores", header, rows, "accuracy: at the coverage of this rejector")


def _masks(report: Report) -> Table | None:
    if "masks" not in report:
        return None
    rows = [
        [row["mask"], _value(row["coverage"]), *_accuracy(row), _value(row["loss_accuracy"])] for row in report["masks"]
    ]
    return Table("Masks", ["mask", "coverage", "accuracy", "95 % interval", "loss, same coverage"], rows)


def _differences(report: Report) -> Table | None:
    if "difference" not in report:
        return None
    difference = report["difference"]
    rows = [
        [name, figure(group["value"]), interval(group)] for name, group in difference.items() if isinstance(group, dict)
    ]
    how = "paired rows" if difference["kind"] == "paired" else "two reports"
    return Table("Difference to the baseline", ["", "difference", "95 % interval"], rows, f"new - old, {how}")


def _points(report: Report) -> Table | None:
    if "points" not in report:
        return None
    rows = [
        [name, figure(point["value"]), interval(point), f"{point['errors']} errors in {point['accepted']}"]
        for name, point in report["points"].items()
    ]
    return Table("Points of the curve", ["", "value", "95 % interval", "counts"], rows)


def _calibration(report: Report) -> Table | None:
    if "nll" not in report:
        return None
    rows = [
        [name, *(figure(report[key][part]) for part in ("uncalibrated", "all", "accepted"))]
        for name, key in {"NLL": "nll", "ECE": "ece", "Brier": "brier"}.items()
    ]
    return Table("Calibration", ["", "uncalibrated", "all", "accepted"], rows)


def _costs(report: Report) -> Table | None:
    if "cost" not in report:
        return None
    cost = report["cost"]
    rows = [[name, figure(cost[key], 6), figure(cost["all"][key], 6)] for name, key in _COSTS.items()]
    return Table("Cost per row", ["cost", "accepted", "all"], rows)


def _areas(report: Report) -> Table | None:
    if "aurc" not in report:
        return None
    rows = [[name, figure(report[key]["value"], 6), interval(report[key], 6)] for name, key in _AREAS.items()]
    remark = ""
    if "bootstrap" in report:
        remark = f"{report['bootstrap']['resamples']} resamples, seed {report['bootstrap']['seed']}"
    return Table("Areas", ["", "value", "95 % interval"], rows, remark)


def _drift(report: Report) -> Table:
    ratio, drift = report["ratio"], report["drift"]
    rows = [
        ["mean ratio", f"{figure(ratio['mean'])} +- {figure(ratio['std_error'])}", figure(ratio["p_value"])],
        ["loss distribution", f"distance {figure(drift['distance'])}", figure(drift["p_value"])],
    ]
    return Table("Drift since the fit", ["drift", "value", "p-value"], rows, "without drift the mean ratio is 1")


def _curve(report: Report) -> Table | None:
    if "curve" not in report:
        return None
    rows = [
        [f"{point['tau']:.2f}", figure(point["coverage"]), figure(point["accuracy"])]
        for point in report["curve"][_CURVE_EVERY - 1 :: _CURVE_EVERY]
    ]
    return Table("Curve", ["tau", "coverage", "accuracy"], rows)


def _per_class(report: Report) -> Table | None:
    if "per_class" not in report:
        return None
    classes = report["per_class"]
    worst = sorted(classes, key=lambda row: (row["accuracy"] is not None, row["accuracy"]))
    shown = classes if len(classes) <= MOST_CLASSES else worst[:MOST_CLASSES]
    rows = [[str(row["class"]), str(row["rows"]), figure(row["coverage"]), figure(row["accuracy"])] for row in shown]
    remark = ""
    if len(shown) < len(classes):
        remark = f"the {MOST_CLASSES} of {len(classes)} classes with the lowest accuracy"
    return Table("By class", ["class", "rows", "coverage", "accuracy"], rows, remark)
