"""Mean ranks of scores over dumps, with Nemenyi's critical difference (Demšar 2006)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from benchmarks.selective.dumps import Array

LEVEL = 0.05


@dataclass(frozen=True)
class Ranking:
    """Mean rank of each score (1 is best), and what difference counts."""

    names: tuple[str, ...]
    mean: tuple[float, ...]
    blocks: int
    critical_difference: float


def ranking(names: list[str], values: Array) -> Ranking:
    """Rank the scores in each block (row) of values, low is best; ties share their ranks.

    >>> ranking(["a", "b"], np.array([[1.0, 2.0], [1.0, 1.0], [3.0, 4.0]])).mean
    (1.1666666666666667, 1.8333333333333333)
    """
    from scipy.stats import rankdata

    blocks, count = values.shape
    mean = rankdata(values, axis=1).mean(axis=0).tolist()
    return Ranking(tuple(names), tuple(mean), blocks, critical_difference(count, blocks))


def critical_difference(count: int, blocks: int, level: float = LEVEL) -> float:
    """Nemenyi's: mean ranks of `count` scores over `blocks` dumps that are further apart differ significantly.

    >>> round(critical_difference(4, 14), 3)
    1.254
    """
    from scipy.stats import studentized_range

    quantile = float(studentized_range.ppf(1 - level, count, math.inf)) / math.sqrt(2)
    return quantile * math.sqrt(count * (count + 1) / (6 * blocks))
