"""Whether the values of a report go together: shares and intervals are computed again from their counts.

Checks work on the tree of the document. Intervals of areas need not hold the value.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from drrej.core.intervals import exact_decimal, proportion
from drrej.core.thresholds import MEAN_RULES, Claim, Judgement, together
from drrej.documents.costs import cost_findings, cost_verdict
from drrej.documents.findings import NEAR, RANGE, Finding, is_near
from drrej.documents.gates import Gate, lookup
from drrej.documents.points import Point
from drrej.documents.targets import Counts, judged
from drrej.errors import GateError

Tree = Mapping[str, Any]

_LABELLED = ("accuracy", "base_accuracy", "nll", "ece", "brier", "aurc", "e_aurc", "augrc", "points", "curve",
             "coverage_curve", "per_class")  # fmt: skip
_WAYS = ("accepting", "rejecting")
_COUNTS = "is not what its counts say"
_WHOLE = "is no share of a whole number of rows"
_SUM = "does not add up to the counts of all rows"


def report_findings(report: Tree) -> Iterator[Finding]:
    """A report of `evaluate`, with labels or without."""
    yield from decision_findings(report)
    labelled = "base_accuracy" in report
    for key in _LABELLED:
        yield key, (key in report) == labelled, "is there without labels, or missing with them"
    if labelled:
        yield from _labelled(report)
    for key in ("risk", "errors", "confusion"):
        yield key, labelled or key not in report, "is there without labels"
    yield from target_findings(report)
    yield from _drift(report)
    if "total_cost" in report:
        yield from cost_findings(report["total_cost"])
    yield from _groups(report)
    for number, mask in enumerate(report.get("masks", ())):
        yield from _mask(f"masks[{number}]", mask, report["rows"])
    if "difference" in report:
        yield from _difference(report, report["difference"])
    for number, row in enumerate(report["gates"]):
        yield from _gate(f"gates[{number}]", row, report)


def decision_findings(report: Tree) -> Iterator[Finding]:
    """Coverage, and the threshold that led to it."""
    rows, accepted, cutoff = report["rows"], report["coverage"]["accepted"], report["cutoff"]
    yield from _share("coverage", report["coverage"], accepted, rows)
    coverages = [(point["tau"], point["coverage"]) for point in report.get("curve", ())]
    steps = [(step + 1) / len(coverages) for step in range(len(coverages))]
    yield "curve", [tau for tau, _ in coverages] == steps, "has other taus than equal steps up to 1"
    yield "curve", all(x >= y for (_, x), (_, y) in pairwise(coverages)), "does not fall as tau rises"
    grouped = "cutoff_by" in report
    for key in ("tau", "cutoff"):
        yield key, not grouped or report[key] is None, "is there, but each group has its own ('cutoff_by')"
    if grouped:
        return
    yield "coverage.accepted", cutoff is not None or accepted == rows, "contradicts 'cutoff': nothing is rejected"
    yield "coverage.accepted", cutoff is None or cutoff > 0 or not accepted, "contradicts 'cutoff': all is rejected"
    yield "tau", cutoff is not None or report["tau"] == 0, "contradicts 'cutoff': nothing is rejected"
    tau, coverage = report["tau"], accepted / rows
    above = tau is None or all(at >= coverage for point, at in coverages if point < tau * (1 - NEAR))
    below = tau is None or all(at <= coverage for point, at in coverages if point > tau * (1 + NEAR))
    yield "tau", above and below, "contradicts 'coverage' on the curve"


def _share(key: str, share: Tree, hits: int, rows: int) -> Iterator[Finding]:
    """A share of rows with its exact interval; undefined without rows."""
    yield key, 0 <= hits <= rows and share["value"] == (hits / rows if rows else None), _COUNTS
    exact = proportion(hits, rows)
    for end in ("lower", "upper"):
        yield f"{key}.{end}", is_near(share[end], exact[end]), _COUNTS


def target_findings(report: Tree) -> Iterator[Finding]:
    """The verdicts on the target, from the counts of all rows or of each group."""
    if "target" not in report:
        return
    target = report["target"]
    promises = target["promises"]
    groups = {row["group"]: row for row in report.get("per_group", ())}
    for number, promise in enumerate(promises):
        key, group = f"target.promises[{number}]", promise.get("group")
        if promise["what"] == "cost":
            yield key, _is_cost_promise(promise, report.get("total_cost")), "contradicts 'total_cost'"
            continue
        if promise["what"] in MEAN_RULES:
            yield key, _is_mean_promise(promise, report), "contradicts the mean of accepted rows"
            continue
        yield f"{key}.group", group is None or group in groups, "is none of 'per_group'"
        counts = _target_counts(report if group is None else groups[group], "cutoff" in report and group is None)
        sure = dataclasses.replace(counts, certain=counts.accepted == counts.rows)
        again = [judged(promise["what"], promise["wanted"], each, len(promises)) for each in (counts, sure)]
        yield key, any(_is_judgement(promise, judgement) for judgement in again), "is not the verdict on this report"
    verdict = together(promise["verdict"] for promise in promises)
    yield "target.verdict", bool(promises) and target["verdict"] == verdict, "is not that of its promises"


def _is_cost_promise(promise: Tree, cost: Tree | None) -> bool:
    if cost is None:
        return promise["value"] is None and promise["verdict"] == "not shown"
    savings = [(cost[f"saved_over_{way}"]["lower"], cost[f"saved_over_{way}"]["upper"]) for way in _WAYS]
    same = all(promise[key] == cost[key] for key in ("value", "lower", "upper"))
    wanted = min(cost["accepting_all"], cost["rejecting_all"])
    return same and promise["wanted"] == wanted and promise["verdict"] == cost_verdict(*savings)


def _is_mean_promise(promise: Tree, report: Tree) -> bool:
    """Of a clipped error the report has no mean of its own."""
    value, lower, upper = (promise[key] for key in ("value", "lower", "upper"))
    if lower is None or upper is None:
        return bool(promise["verdict"] == "not shown")
    cost = report.get("cost") if promise["what"] == "mean-cost" else None
    if cost is not None and [cost["value"], cost.get("lower"), cost.get("upper")] != [value, lower, upper]:
        return False
    inside = value is not None and lower <= value * (1 + NEAR) and value <= upper * (1 + NEAR)
    return inside and promise["verdict"] == Claim(promise["wanted"], at_least=False).verdict(lower, upper)


def _target_counts(row: Tree, whole: bool) -> Counts:
    errors = row["accuracy"]["errors"] if "accuracy" in row else None
    certain = whole and row["cutoff"] is None and "cutoff_by" not in row
    return Counts(row["rows"], row["coverage"]["accepted"], errors, certain=certain)


def _is_judgement(promise: Tree, again: Judgement) -> bool:
    same = all(is_near(promise[key], getattr(again, key)) for key in ("value", "lower", "upper"))
    chance = (promise["p_value"] is None) == (again.p_value is None) and math.isclose(
        promise["p_value"] or 0.0, again.p_value or 0.0, rel_tol=1e-6, abs_tol=1e-300
    )
    return same and chance and promise["verdict"] == again.verdict


def _labelled(report: Tree) -> Iterator[Finding]:
    rows, accepted = report["rows"], report["coverage"]["accepted"]
    errors, all_errors = report["accuracy"]["errors"], report["base_accuracy"]["errors"]
    yield from _share("accuracy", report["accuracy"], accepted - errors, accepted)
    yield from _share("base_accuracy", report["base_accuracy"], rows - all_errors, rows)
    if "risk" in report:  # reports of older versions do not have it
        yield from _share("risk", report["risk"], errors, accepted)
    yield "errors", report.get("errors", errors) == errors, "is not 'accuracy.errors'"
    rejected_errors = all_errors - errors
    yield "accuracy.errors", 0 <= rejected_errors <= rows - accepted, "contradicts 'base_accuracy.errors'"
    yield from _areas("", report, all_errors / rows)
    yield from _rankings(report, all_errors / rows)
    yield from _points("points", report["points"], rows, all_errors)
    yield from _curve("curve", report["curve"], rows, all_errors)
    yield from _curve("coverage_curve", report["coverage_curve"], rows, all_errors)
    yield from _ends_with_all("coverage_curve", report)
    yield from _classes(report)
    if "confusion" in report:
        yield from _confusion(report)
    for number, row in enumerate(report.get("scores", ())):
        key = f"scores[{number}]"
        yield from _areas(f"{key}.", row, all_errors / rows)
        yield from _points(f"{key}.points", row["points"], rows, all_errors)
        yield from _curve(f"{key}.coverage_curve", row["coverage_curve"], rows, all_errors)
        at = row["accuracy"]
        yield from _share(f"{key}.accuracy", at, at["accepted"] - at["errors"], at["accepted"])
    for key, most in (("nll", math.inf), ("ece", 1.0), ("classwise_ece", 1.0), ("brier", 2.0)):
        for part, value in report.get(key, {}).items():
            yield f"{key}.{part}", value is None or value <= most * (1 + NEAR), RANGE


def _areas(prefix: str, row: Tree, error: float) -> Iterator[Finding]:
    """E-AURC is AURC above that of the best order; AUGRC lies between those of the best and of the worst order."""
    ideal = 1.0 if error == 1.0 else 0.5 * error * error
    aurc, e_aurc, augrc = (row[name]["value"] for name in ("aurc", "e_aurc", "augrc"))
    yield f"{prefix}aurc", None not in (aurc, e_aurc, augrc), "is undefined"
    yield f"{prefix}e_aurc", abs(e_aurc - max(aurc - ideal, 0.0)) <= NEAR, f"contradicts '{prefix}aurc'"
    inside = 0.5 * error * error - NEAR <= augrc <= error * (1.0 - 0.5 * error) + NEAR
    yield f"{prefix}augrc", inside, f"{RANGE} for such an accuracy"


def _rankings(report: Tree, error: float) -> Iterator[Finding]:
    """Figures that follow from the areas; reports of older versions do not have them."""
    aurc, augrc, right = report["aurc"]["value"], report["augrc"]["value"], 1.0 - error
    ideal = error + (right * math.log1p(-error) if right else 0.0)
    mixed = 0 < error < 1
    again = {
        "standard_e_aurc": aurc - ideal,
        "naurc": (aurc - ideal) / (error - ideal) if mixed else None,
        "failure_auroc": 1.0 - (augrc - 0.5 * error * error) / (error * right) if mixed else None,
    }
    for key, value in again.items():
        stored = report[key]["value"] if key in report else value
        same = stored is value or (
            None not in (stored, value) and math.isclose(stored, value, rel_tol=1e-6, abs_tol=NEAR)
        )
        yield key, bool(same), "contradicts the areas"
    fpr = report.get("fpr_at_95_tpr", {}).get("value")
    yield "fpr_at_95_tpr", fpr is None or mixed, "is there without errors or without right rows"


def _points(key: str, points: Tree, rows: int, all_errors: int) -> Iterator[Finding]:
    for name, found in points.items():
        at = f"{key}.{name}"
        try:
            point, part = Point.parse(name)
        except GateError:
            yield at, False, "is not a point of the curve"
            return
        yield at, part is None and point.name == name, "is not a point of the curve"
        accepted, errors = found["accepted"], found["errors"]
        yield at, errors <= min(accepted, all_errors) and accepted - errors <= rows - all_errors, _COUNTS
        if point.figure == "coverage":
            yield at, accepted <= rows and found["value"] == accepted / rows, _COUNTS
            yield at, errors <= point.risk * accepted, "has more errors than its risk allows"
            continue
        yield at, exact_decimal(point.at) * rows <= accepted <= rows, "does not reach its coverage"
        yield from _share(at, found, errors if point.figure == "risk" else accepted - errors, accepted)


def _curve(key: str, curve: Sequence[Tree], rows: int, all_errors: int) -> Iterator[Finding]:
    for number, point in enumerate(curve):
        at = f"{key}[{number}]"
        accepted = round(point["coverage"] * rows)
        yield f"{at}.coverage", accepted / rows == point["coverage"], _WHOLE
        right = round((point["accuracy"] or 0.0) * accepted)
        yield f"{at}.accuracy", accepted - right <= all_errors and right <= rows - all_errors, "contradicts all rows"
        yield from _share(at, {**point, "value": point["accuracy"]}, right, accepted)


def _ends_with_all(key: str, report: Tree) -> Iterator[Finding]:
    curve = report[key]
    ends = bool(curve) and (curve[-1]["coverage"], curve[-1]["accuracy"]) == (1, report["base_accuracy"]["value"])
    yield key, ends, "does not end with all rows"
    steps = [point["coverage"] for point in curve]
    reached = all(at * len(steps) >= (step + 1) * (1 - NEAR) for step, at in enumerate(steps))
    yield key, reached and steps == sorted(steps), "does not reach its coverages"


def _classes(report: Tree) -> Iterator[Finding]:
    table, number_of = report["per_class"], report["classes"]
    names = [row["class"] for row in table]
    yield "per_class", len({*map(str, names)}) == len(names) <= number_of, "names a class twice, or too many"
    numbers = [name for name in names if isinstance(name, int)]
    yield "per_class", all(0 <= name < number_of for name in numbers), "has a class that is none of 'classes'"
    totals = [0, 0, 0]
    for number, row in enumerate(table):
        key, rows = f"per_class[{number}]", row["rows"]
        accepted = round(row["coverage"] * rows)
        right = round((row["accuracy"] or 0.0) * accepted)
        yield f"{key}.coverage", rows > 0 and accepted / rows == row["coverage"], _WHOLE
        yield f"{key}.accuracy", row["accuracy"] == (right / accepted if accepted else None), _WHOLE
        totals = [a + b for a, b in zip(totals, (rows, accepted, accepted - right), strict=True)]
    wanted = [report["rows"], report["coverage"]["accepted"], report["accuracy"]["errors"]]
    yield "per_class", totals == wanted, _SUM


def _confusion(report: Tree) -> Iterator[Finding]:
    """The matrix adds up to the counts of all rows; without other classes its diagonal is what is right."""
    matrix = report["confusion"]
    rows, accepted, errors = report["rows"], report["coverage"]["accepted"], report["accuracy"]["errors"]
    shown = len(matrix["rows"]) - (matrix["others"] > 0)
    yield "confusion.others", shown + matrix["others"] == report["classes"], "contradicts 'classes'"
    square = all(len(row["predicted"]) == len(matrix["rows"]) for row in matrix["rows"])
    yield "confusion.rows", square, "are not as long as there are classes"
    yield "confusion.rows", sum(row["rejected"] for row in matrix["rows"]) == rows - accepted, _SUM
    yield "confusion.rows", sum(sum(row["predicted"]) for row in matrix["rows"]) == accepted, _SUM
    right = sum(row["predicted"][number] for number, row in enumerate(matrix["rows"]))
    whole = right == accepted - errors if not matrix["others"] else right >= accepted - errors
    yield "confusion.rows", whole, "contradicts 'accuracy.errors'"
    of_class = {str(row["class"]): row["rows"] for row in report["per_class"]}
    for number, row in enumerate(matrix["rows"][:shown]):
        same = of_class.get(row["class"], 0) == sum(row["predicted"]) + row["rejected"]
        yield f"confusion.rows[{number}]", same, "contradicts 'per_class'"


def _groups(report: Tree) -> Iterator[Finding]:
    for key in ("per_group", "worst_group"):
        yield key, (key in report) == ("by" in report and "looks" not in report), "goes with 'by'"
    looks = report.get("looks", ())
    if "looks" in report:
        yield "looks", "by" in report and "accuracy" not in report, "goes with 'by', without labels"
        yield "looks", len({row["group"] for row in looks}) == len(looks), "names a group twice"
        totals = [sum(row["rows"] for row in looks), sum(row["coverage"]["accepted"] for row in looks)]
        yield "looks", totals == [report["rows"], report["coverage"]["accepted"]], _SUM
    table = report.get("per_group", ())
    yield "per_group", len({row["group"] for row in table}) == len(table), "names a group twice"
    totals = [0, 0, 0, 0]
    for number, row in enumerate(table):
        key, rows, accepted = f"per_group[{number}]", row["rows"], row["coverage"]["accepted"]
        errors, all_errors = row["accuracy"]["errors"], row["base_accuracy"]["errors"]
        yield from _share(f"{key}.coverage", row["coverage"], accepted, rows)
        yield from _share(f"{key}.accuracy", row["accuracy"], accepted - errors, accepted)
        yield from _share(f"{key}.base_accuracy", row["base_accuracy"], rows - all_errors, rows)
        totals = [a + b for a, b in zip(totals, (rows, accepted, errors, all_errors), strict=True)]
    if not table:
        return
    whole = ("rows", "coverage.accepted", "accuracy.errors", "base_accuracy.errors")
    yield "per_group", totals == [lookup(report, path) for path in whole], _SUM
    for key, worst in report["worst_group"].items():
        defined = [row[key]["value"] for row in table if row[key]["value"] is not None]
        lowest = min(defined, default=None)
        same = [row for row in table if row["group"] == worst["group"]]
        figures = {name: value for name, value in worst.items() if name != "group"}
        right = worst["value"] == lowest and (lowest is None or (bool(same) and figures == same[0][key]))
        yield f"worst_group.{key}", right, "is not the lowest of 'per_group'"


def _mask(key: str, mask: Tree, rows: int) -> Iterator[Finding]:
    accepted, at = mask["coverage"]["accepted"], mask["loss_accuracy"]
    yield from _share(f"{key}.coverage", mask["coverage"], accepted, rows)
    yield from _share(f"{key}.accuracy", mask["accuracy"], accepted - mask["accuracy"]["errors"], accepted)
    yield from _share(f"{key}.loss_accuracy", at, at["accepted"] - at["errors"], at["accepted"])


def _drift(report: Tree) -> Iterator[Finding]:
    """P-values come with what they are about; how large they are depends on rows that are not in the report."""
    mean, error, p_value = (report["ratio"][key] for key in ("mean", "std_error", "p_value"))
    yield "ratio.p_value", p_value is None or None not in (mean, error), "is there without a mean and its error"
    distance, chance = report["drift"]["distance"], report["drift"]["p_value"]
    yield "drift", (distance is None) == (chance is None), "has a distance or a p-value alone"


def _difference(report: Tree, difference: Tree) -> Iterator[Finding]:
    paired = difference["kind"] == "paired"
    yield "difference.rows", difference.get("rows") == (report["rows"] if paired else None), "contradicts its kind"
    for key, change in difference.items():
        value = change["value"] if isinstance(change, Mapping) else None
        if value is None:
            continue
        now = report[key]["value"] if key in report else None
        yield f"difference.{key}", now is not None and -NEAR <= now - value <= 1 + NEAR, f"contradicts '{key}'"
        held = paired or change["lower"] is None or change["lower"] <= value <= change["upper"]
        yield f"difference.{key}", held, "is outside its interval"


def _gate(key: str, row: Tree, report: Tree) -> Iterator[Finding]:
    try:
        again = Gate.parse(row["gate"]).judge(report)
    except GateError:
        yield f"{key}.gate", False, "is no gate on this report"
        return
    same = (again.value, again.limit, again.passed) == (row["value"], row["limit"], row["passed"])
    yield key, same, "is not the verdict on this report"
