"""The floor of probabilities: what a probability of 0 counts as.

The logarithm of 0 is -inf, and a label there makes the NLL infinite at every temperature. kNN, forests and rounded
files give 0 for "rare", naive Bayes and a narrow type for "too small to hold". One number f, the floor, serves both:

    g(p) = max(p, f + p / 2)

so 0 becomes f, what is at least 2 f keeps its value to the bit, and g rises throughout: no two probabilities change
their order, also in rows that the choice of f has not seen. g is computed in float64 from the value of p alone, so
that the type in which p is stored does not matter.

f is chosen with the temperature, by the likelihood of the calibration rows (`choose_floor`). Where they tell nothing,
because no label had a probability near 0, it is the largest floor that leaves their positive probabilities alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drrej.core.types import Floats
from drrej.records import dataclass

TOLERATED = 2.0
"""Nats of total NLL by which two floors must differ before the rows prefer one: about a 95 % likelihood interval."""

_SLACK = 1.1
"""2 f may exceed the smallest positive probability by this factor, so that its own rounding does not decide."""

_COARSE = 4
_LAST = 1074

_HALF_PRECISION = 2.0**-24
"""The smallest positive float16."""

FACE_VALUE = 2.0**-_LAST
"""The smallest positive float64, for a temperature that was given: a 0 is all but impossible, nothing else moves."""


@dataclass(frozen=True)
class Positives:
    """What some probabilities tell of the floor: how many are 0, and the smallest of the others; adds up exactly.

    >>> Positives.of(np.array([[0.75, 0.25, 0.0]])) + Positives.of(np.array([[0.5, 0.4, 0.1]]))
    Positives(zeros=1, smallest=0.1)
    """

    zeros: int = 0
    smallest: float = math.inf

    @classmethod
    def of(cls, probabilities: Floats) -> Positives:
        """From rows of probabilities, without bad rows."""
        zeros = probabilities.size - int(np.count_nonzero(probabilities))
        if not zeros:
            return cls(0, float(probabilities.min(initial=math.inf)))
        return cls(zeros, float(np.min(probabilities, initial=math.inf, where=probabilities > 0)))

    @property
    def may_vanish(self) -> bool:
        """Whether some are 0, or would be in float16: then all types must come to the same floor."""
        return self.zeros > 0 or self.smallest < _HALF_PRECISION

    def __add__(self, other: Positives) -> Positives:
        return Positives(self.zeros + other.zeros, min(self.smallest, other.smallest))


@dataclass(frozen=True)
class FloorChoice:
    """The chosen floor, the mean NLL there, and how many floors were tried.

    `keeps_positives` tells whether the floor leaves (but for a few per cent of the very smallest) every positive
    probability of the calibration rows as it is. Otherwise the rows say that the smallest ones cannot be trusted.
    """

    floor: float
    nll: float
    keeps_positives: bool
    trials: int


def floored(probabilities: NDArray[np.floating[Any]], floor: float) -> Floats:
    """Probabilities (any shape) with none below the floor: g of the module's text, not normalised again.

    >>> floored(np.array([0.75, 0.25, 0.0]), 0.015625).tolist()
    [0.75, 0.25, 0.015625]
    """
    raised: Floats = np.multiply(probabilities, 0.5, dtype=np.float64)
    np.add(raised, floor, out=raised)
    np.maximum(raised, probabilities, out=raised)
    return raised


def floored_logits(probabilities: NDArray[np.floating[Any]], floor: float) -> Floats:
    """Logits of rows of probabilities: the logarithms of `floored`; -inf at a 0 when the floor is 0.

    >>> floored_logits(np.array([[0.5, 0.5, 0.0]]), 0.125).round(3).tolist()
    [[-0.693, -0.693, -2.079]]
    """
    raised = floored(probabilities, floor)
    with np.errstate(divide="ignore"):
        logits: Floats = np.log(raised, out=raised)
    return logits


def choose_floor(nll: Callable[[float], float], rows: int, classes: int, smallest: float) -> FloorChoice:
    """The floor for calibration rows whose smallest positive probability is `smallest`.

    `nll(f)` is the mean NLL of the rows with the floor f at the best temperature for it. Powers of 2 are tried, from
    half the uniform probability 1 / K down to the smallest float64; a larger floor would lift a 0 above chance. Of the
    floors that keep every positive probability, the largest that is as good as the best floor of all is taken; if none
    is as good, the best. "As good" is within `TOLERATED` nats over all rows.

    Deterministic, and about 20 calls of `nll` (25 at most).

    >>> choose_floor(lambda f: (math.log2(f) + 6) ** 2 / 100, rows=1000, classes=3, smallest=0.1).floor == 2**-6
    True
    """
    grid = _floors(classes)
    known: dict[int, float] = {}

    def total(place: int) -> float:
        if place not in known:
            known[place] = rows * nll(grid[place])
        return known[place]

    coarse = [*range(0, len(grid) - 1, _COARSE), len(grid) - 1]
    near = min(coarse, key=total)
    best = min(range(max(0, near - _COARSE + 1), min(len(grid), near + _COARSE)), key=total)
    enough = total(best) + TOLERATED
    keeping = next((i for i, floor in enumerate(grid) if 2.0 * floor <= _SLACK * smallest), len(grid) - 1)
    if best > keeping:
        best = _first_within(total, keeping, best, enough)
    elif total(keeping) <= enough:
        best = keeping
    return FloorChoice(grid[best], total(best) / rows, best >= keeping, len(known))


def _first_within(total: Callable[[int], float], low: int, high: int, enough: float) -> int:
    """The first place from `low` to `high` that is good enough, given that `high` is; the totals fall towards it."""
    while low < high:
        middle = (low + high) // 2
        if total(middle) <= enough:
            high = middle
        else:
            low = middle + 1
    return high


@cache
def _floors(classes: int) -> tuple[float, ...]:
    """Powers of 2 in falling order, by factors of 2 at first and then by steps of an eighth of the exponent."""
    exponents = []
    exponent = 1 + math.ceil(math.log2(classes))
    while exponent < _LAST:
        exponents.append(exponent)
        exponent += max(1, exponent // 8)
    return tuple(math.ldexp(1.0, -exponent) for exponent in [*exponents, _LAST])
