"""The decision of a rejector as a list of steps, which the exports write in their languages.

A step is a name and an expression in Python's grammar. `u[] = (z - top) * 2.0` has a value for each class, all others
one for each row. `j` is the number of the class. Functions are abs, exp, log, log1p, of all classes sum, max and first
(the first class of the largest value), and `pick(LIST, class)`.
"""

from __future__ import annotations

import ast
import math
from itertools import pairwise
from typing import Any

from msgspec import Struct

from drrej.core.confidence import FLAT, ScoreMap
from drrej.core.inputs import BFLOAT16_TOLERANCE, FACE_VALUE, LOG_TOLERANCE, TOLERANCE
from drrej.core.ratio import DensityRatio, expm1
from drrej.documents.rejector import Rejector
from drrej.errors import OptionError

BAND = 1e-12
"""Cutoffs are lowered by this share: a row that lies on the cutoff is rejected however an engine rounds its loss."""


Expression = float | str | tuple[Any, ...]
"""A number, a name, or a function with its arguments; operators are called as `ast` has them."""


class Step(Struct, frozen=True):
    """A step: its name, whether it has a value for each class, and the expression."""

    name: str
    each: bool
    value: Expression

    @classmethod
    def of(cls, text: str) -> Step:
        """Read a line."""
        name, _, value = text.partition(" = ")
        return cls(name.removesuffix("[]"), name.endswith("[]"), _read(ast.parse(value, mode="eval").body))


def _read(node: Any) -> Expression:
    if isinstance(node, ast.Constant | ast.Name):
        return node.id if isinstance(node, ast.Name) else node.value  # type: ignore[return-value]
    parts = tuple(_read(child) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr))
    if isinstance(node, ast.Call):
        return parts  # its name is the first
    operator = getattr(node, "op", None) or getattr(node, "ops", [node])[0]  # a choice is an operator of its own
    return type(operator).__name__, *parts


class Decision(Struct, frozen=True):
    """All that an export needs: the steps in their order, the lists they use, and the cutoffs.

    The step `bad` tells rows that nothing can be said of. `cutoffs` is a number, or has one for each predicted class
    or for each group of the column `by`. `width` is how many values a step for each class has: as many as classes or,
    where a row brings scores of any kind, as these or the lines between knots. `single`: a row is one number.
    """

    rejector: Rejector
    steps: tuple[Step, ...]
    lists: dict[str, Any]
    cutoffs: float | list[float] | dict[str, float]
    by: str | None
    width: int
    single: bool


def decision_of(rejector: Rejector) -> Decision:
    """The decision of a rejector; raises for one that needs more than the scores of a row."""
    rejector.need_threshold()
    rejector = Rejector.read(rejector.to_json(), "rejector")  # with Python's numbers, whoever made it
    threshold, ratio = rejector.need_threshold(), rejector.need_ratio()
    lists: dict[str, Any] = {}
    of_loss = ratio.loss.steps(lists)
    width, single, fitted = rejector.classes, rejector.binary, rejector.need_calibration().score
    if fitted is not None:
        lines, width, single = _scored(fitted, lists), len(lists["WIDTHS"]), len(fitted.forms) == 1
    else:
        lines = [*_logits(rejector, lists), *_calibrated(rejector, lists)]
        lines += ["prediction = first(y)", "e[] = 0.0 if j == prediction else exp(u)", "odds = sum(e)"]
    lines += [*of_loss, *_ratio(ratio.density)]
    own = {group.group: _lowered(group.cutoff) for group in threshold.groups or ()}
    cutoffs: Any = _lowered(threshold.cutoff) if threshold.by is None else own
    by = None if threshold.by == "prediction" and not rejector.is_scored else threshold.by
    if threshold.by is not None and by is None:
        names = rejector.class_titles
        for name in [name for name in names if name not in own]:
            raise OptionError(f"there is no cutoff for the class {name}: no row that chose the threshold was of it")
        cutoffs = [own[name] for name in names]
    return Decision(rejector, tuple(map(Step.of, lines)), lists, cutoffs, by, width, single)


def _scored(fitted: ScoreMap, lists: dict[str, Any]) -> list[str]:
    """From scores of any kind to the log-odds x that a row is wrong, see `drrej.core.confidence`."""
    places, told = [list(each) for each in zip(*fitted.knots, strict=True)] or [[0.0], [0.0]]
    widths = [after - before for before, after in pairwise(places)] or [0.0]
    if len(places) > 1 and min(widths) <= 0.0:
        raise OptionError("the steps of the isotonic map coincide: they cannot be exported exactly")
    if len(fitted.forms) == 1:
        share, (least, most) = fitted.forms == ("share",), fitted.floors[0]
        lines = ["bad = not (score >= 0.0 and score <= 1.0)" if share else "bad = not (abs(score) < inf)"]
        lines += ["safe = 0.5 if bad else score", f"p = safe + {least!r}", f"q = 1.0 - safe + {most!r}"]
        inputs = (["log(q)", "-log(p)"] if fitted.lower else ["log(p)", "-log(q)"]) if share else ["safe"]
        inputs = ["-safe"] if inputs == ["safe"] and fitted.lower else inputs
        parts = [f"{t.weight!r} * ({i} - {t.center!r})" for t, i in zip(fitted.terms, inputs, strict=True)]
        lines.append(f"line = -({fitted.intercept!r} + {' + '.join(parts)})")
    else:
        widths, terms = [0.0] * len(fitted.forms), fitted.terms
        lists |= {"SHARES": [float(form == "share") for form in fitted.forms]}
        lists |= {"LEAST": [least for least, _ in fitted.floors], "MOST": [most for _, most in fitted.floors]}
        lists |= {"LOWS": [t.low for t in terms], "HIGHS": [t.high for t in terms]}
        lists |= {"WEIGHTS": [t.weight for t in terms], "CENTERS": [t.center for t in terms]}
        sign = "-" if fitted.lower else ""
        lines = [
            "odd[] = 0.0 if abs(s) < inf and (SHARES == 0.0 or (s >= 0.0 and s <= 1.0)) else 1.0",
            "bad = sum(odd) > 0.0",
            "safe[] = 0.5 if bad else s",
            "p[] = safe + LEAST if SHARES > 0.0 else 1.0",
            "q[] = 1.0 - safe + MOST if SHARES > 0.0 else 1.0",
            f"value[] = {sign}(log(p) - log(q) if SHARES > 0.0 else safe)",
            "inside[] = LOWS if value < LOWS else HIGHS if value > HIGHS else value",
            "part[] = (inside - CENTERS) * WEIGHTS",
            f"line = -({fitted.intercept!r} + sum(part))",
        ]
    lists |= {"WIDTHS": widths, "STARTS": places[: len(widths)] if fitted.knots else [0.0] * len(widths)}
    slopes = [(b - a) / width if width else 0.0 for (a, b), width in zip(pairwise(told), widths, strict=False)]
    lists["SLOPES"] = slopes or [0.0] * len(widths)
    lines += ["same[] = 0.0 if bad else 0.0", "prediction = first(same)"]
    if not fitted.knots:
        return [*lines, "x = line"]
    low, high = f"line - {places[0]!r}", f"line - {places[-1]!r}"
    return [
        *lines,
        "past[] = line - STARTS",
        "walked[] = (0.0 if past < 0.0 else WIDTHS if past > WIDTHS else past) * SLOPES",
        f"beyond = {low} if {low} < 0.0 else {high} if {high} > 0.0 else 0.0",
        f"x = {told[0]!r} + sum(walked) + {FLAT!r} * beyond",
    ]


def _lowered(cutoff: float | None) -> float:
    return math.inf if cutoff is None else cutoff * (1 - BAND) if cutoff > 0 else cutoff - 5e-324


def _logits(rejector: Rejector, lists: dict[str, Any]) -> list[str]:
    """From the scores s to the logits z; their largest is `top`."""
    if rejector.input == "logits":
        pair = "score if j == 1 else 0.0" if rejector.binary else "s"
        lines = [f"given[] = {pair}", "odd[] = 0.0 if given < inf else 1.0"]
        return [*lines, "bad = sum(odd) > 0.0 or max(given) == -inf", "z[] = 0.0 if bad else given", "top = max(z)"]
    floor, logs = FACE_VALUE if rejector.floor is None else rejector.floor, rejector.input == "log-probs"
    lists["FLOORS"] = [floor] * rejector.classes  # onnxruntime drops the addition of one number below float32's least
    raised = ["raised[] = q * 0.5 + FLOORS"]
    raised += ["z[] = log(q if q > raised else raised)", "top = max(z)"]
    if rejector.binary:
        lines = [
            "score1 = exp(score)" if logs else "score1 = score",
            "bad = not (score1 >= 0.0 and score1 <= 1.000001)",
        ]
        lines += ["share = 1.0 if bad or score1 > 1.0 else score1", "q[] = share if j == 1 else 1.0 - share"]
        return [*lines, *raised]
    shift = ["best = max(s)"] if logs and rejector.normalize else []
    lines = ["p[] = " + ("s" if not logs else "exp(s - best)" if shift else "exp(s)")]
    lines += ["odd[] = 0.0 if p >= 0.0 and p < inf else 1.0", "total = sum(p)"]
    if not logs and not rejector.normalize:
        lines += [*_narrow("single", 24, -149), *_narrow("half", 11, -24), *_narrow("brain", 8, -133)]
        wide = f"{TOLERANCE[32]!r} if sum(single) == 0.0 else {TOLERANCE[64]!r}"
        narrow = f"{TOLERANCE[16]!r} if sum(half) == 0.0 else {wide}"
        lines.append(f"slack = {BFLOAT16_TOLERANCE!r} if sum(brain) == 0.0 else {narrow}")
    slack = repr(LOG_TOLERANCE) if logs else "slack"
    off = "not total > 0.0" if rejector.normalize else f"not abs(total - 1.0) <= {slack}"
    return [*shift, *lines, f"bad = sum(odd) > 0.0 or {off}", "q[] = 1.0 if bad else p / total", *raised]


def _narrow(name: str, bits: int, least: int) -> list[str]:
    """Tell the values p that a type of so many bits, with multiples of 2**least, does not hold: by what it rounds."""
    split, small, grid = 2.0 ** (53 - bits) + 1.0, 2.0 ** (least + bits - 1), 1.5 * 2.0 ** (least + 52)
    return [
        f"{name}_high[] = p * {split!r}",
        f"{name}_fits[] = {name}_high - ({name}_high - p)",
        f"{name}_grid[] = p + {grid!r} - {grid!r}",
        f"{name}[] = 0.0 if {name}_fits == p and (p >= {small!r} or {name}_grid == p) else 1.0",
    ]


def _calibrated(rejector: Rejector, lists: dict[str, Any]) -> list[str]:
    """From the logits to the calibrated scores y and their gaps u to the largest, as shares of T."""
    vector = rejector.need_calibration().vector
    if vector is None:
        return ["y[] = z", f"u[] = (z - top) * {1.0 / rejector.need_calibration().temperature!r}"]
    lists |= {"WEIGHTS": list(vector.weights), "BIASES": list(vector.biases)}
    return [
        "likeliest = first(z)",
        "rest[] = 0.0 if j == likeliest else exp(z - top)",
        "others = sum(rest)",
        "weight = log1p(others)",
        "y[] = -inf if z == -inf else ((z - top) - weight) * WEIGHTS + BIASES",
        "highest = max(y)",
        "u[] = y - highest",
    ]


def _ratio(ratio: DensityRatio) -> list[str]:
    """The density ratio of the loss, see `drrej.core.ratio`."""
    c, g = ratio.c, ratio.log_max_ratio
    lines = [f"rise = (loss - {ratio.min_loss!r}) / {ratio.lam!r}"]
    if c == 0:
        return [*lines, f"power_of = {g!r} - rise", "ratio = exp(power_of)"]
    end = "0.0" if c > 0 else "inf"
    if c * g < 0 and c < 0 and math.exp(c * g) < 0.5:
        top = math.exp(c * g)
        lines.append(f"inner = {top!r} - {c!r} * rise")
        lines += [f"power_of = {g!r} if rise == 0.0 else log(1.0 if inner <= 0.0 else inner) / {c!r}"]
        return [*lines, f"ratio = {end} if inner <= 0.0 and rise > 0.0 else exp(power_of)"]
    if math.isinf(start := expm1(c * g)):
        raise OptionError(f"alpha = {ratio.alpha:g}: the density ratio is beyond what other engines can compute")
    lines += [f"inner = {start!r} - {c!r} * rise", "held_inner = 0.0 if inner <= -1.0 else inner"]
    return [*lines, f"power_of = log1p(held_inner) / {c!r}", f"ratio = {end} if inner <= -1.0 else exp(power_of)"]
