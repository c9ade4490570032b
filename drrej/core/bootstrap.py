"""Bootstrap intervals: rows drawn again with replacement, all figures computed on each draw.

Rows are put in an order that only their content decides and every batch of draws has a seed of its own, so the
intervals are the same for any order of the rows and any number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drrej.core.curves import Curve, RiskCoverage
from drrej.core.intervals import CONFIDENCE
from drrej.core.types import Floats

_BATCH = 20

Interval = tuple[float, float]
Figures = Mapping[str, Callable[[Curve], float]]
Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Bootstrap:
    """How many times the rows are drawn, from which seed, and on how many threads."""

    resamples: int
    seed: int = 0
    workers: int = 1

    def intervals(self, points: Curve, figures: Figures) -> dict[str, Interval]:
        """The 95 % percentile interval of each figure of a labelled set."""
        rows = OrderedRows.of(points.points())

        def measure(drawn: Counts) -> list[float]:
            resampled = rows.resampled(drawn)
            return [figure(resampled) for figure in figures.values()]

        return self.spread(points.rows, list(figures), measure)

    def spread(self, rows: int, names: list[str], measure: Callable[[Counts], list[float]]) -> dict[str, Interval]:
        """Percentile intervals of what `measure` makes of how often each row was drawn."""

        def batch(number: int) -> list[list[float]]:
            generator = np.random.default_rng([self.seed, number])
            count = min(_BATCH, self.resamples - number * _BATCH)
            return [measure(_draw(generator, rows)) for _ in range(count)]

        batches = range(-(-self.resamples // _BATCH))
        with ThreadPoolExecutor(self.workers) as pool:
            values = np.array([figures for drawn in pool.map(batch, batches) for figures in drawn])
        tail = (1.0 - CONFIDENCE) / 2
        lower, upper = np.quantile(values, [tail, 1.0 - tail], axis=0)
        return {name: (float(a), float(b)) for name, a, b in zip(names, lower, upper, strict=True)}


def _draw(generator: np.random.Generator, rows: int) -> Counts:
    return np.bincount(generator.integers(0, rows, rows), minlength=rows)


@dataclass(frozen=True)
class OrderedRows:
    """Rows by loss, ties together: where each tie block ends and which rows are wrong."""

    losses: Floats
    ends: NDArray[np.int64]
    wrong: NDArray[np.bool_]

    @classmethod
    def of(cls, points: RiskCoverage) -> OrderedRows:
        """The rows behind a curve; in a tie block the right ones come first."""
        errors = np.diff(points.errors, prepend=0)
        right = np.diff(points.accepted, prepend=0) - errors
        wrong = np.repeat(np.tile([False, True], errors.size), np.stack([right, errors], axis=1).ravel())
        return cls(points.losses, points.accepted - 1, wrong)

    def resampled(self, drawn: Counts) -> RiskCoverage:
        """The curve when each row counts as often as it was drawn."""
        accepted = np.cumsum(drawn)[self.ends]
        errors = np.cumsum(drawn * self.wrong)[self.ends]
        present = np.flatnonzero(np.diff(accepted, prepend=0))
        return RiskCoverage(self.losses[present], accepted[present], errors[present])
