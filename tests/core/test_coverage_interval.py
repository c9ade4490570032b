"""The interval of the coverage at a risk: against a plain search, and by adding up every outcome there can be."""

from __future__ import annotations

import functools
import math
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
import simulate_intervals as simulate
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, multinomial

from drrej.core import curves as coverage_interval
from drrej.core.curves import Curve, coverage_at_risk
from drrej.core.intervals import lower_bound, upper_bound

ROWS = st.lists(st.tuples(st.integers(0, 40), st.booleans()), min_size=1, max_size=120)


def plain_interval(points: Curve, risk: float) -> tuple[float, float]:
    """As the proof says it, test by test."""
    rows, last = points.rows, points.accepted.size - 1
    too_many = binom.sf(points.errors - 1, points.accepted, risk)
    so_few = binom.cdf(points.errors, points.accepted, risk)
    upper = upper_bound(int(points.accepted[too_many > 0.02].max(initial=0)), rows, 0.005)
    starts = [rows]
    while starts[-1] > 1 and (1 - risk) ** math.isqrt(starts[-1] ** 2 // 2) <= 0.01 / (len(starts) + 1):
        starts.append(math.isqrt(starts[-1] ** 2 // 2))
    reached = 0
    for start in starts:
        inside = np.flatnonzero(points.accepted <= start)
        if not inside.size or so_few[inside[-1]] > 0.01 / len(starts):
            continue
        point = int(inside[-1])
        while point < last and so_few[point + 1] <= 0.01:
            point += 1
        reached = max(reached, int(points.accepted[point]))
    return (1.0 if reached == rows else lower_bound(reached, rows, 0.005)), upper


@given(ROWS, st.sampled_from(["0.02", "0.05", "0.2", "0.5", "0.9"]), st.integers(1, 5), st.integers(0, 300))
def test_the_interval_is_that_of_a_plain_search(
    rows: list[tuple[int, bool]], limit: str, piece: int, easy: int
) -> None:
    losses = np.array([float(loss) for loss, _ in rows] + [-1.0 - i / 2 for i in range(easy)])
    wrong = np.array([wrong for _, wrong in rows] + [False] * easy)
    points = Curve.of(losses[~wrong], losses[wrong])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coverage_interval, "_PIECE", piece)
        found = coverage_at_risk(points, Fraction(limit))
    assert found == pytest.approx(plain_interval(points, float(limit)), rel=1e-9)
    value = points.largest_at_risk(Fraction(limit))[0] / points.rows
    assert found[0] <= value <= found[1]


@pytest.mark.parametrize(
    ("shares", "risks", "limit"),
    [
        ((0.4, 0.3, 0.3), (0.2, 0.5, 0.9), 0.5),
        ((0.4, 0.3, 0.3), (0.61, 0.6, 0.6), 0.6),  # just too risky everywhere
        ((0.3, 0.3, 0.4), (0.9, 0.3, 0.65), 0.6),  # down and up again
        ((0.5, 0.1, 0.4), (0.5, 0.9, 0.62), 0.6),
    ],
)
def test_the_ends_miss_with_the_chance_that_was_promised(
    shares: tuple[float, ...], risks: tuple[float, ...], limit: float
) -> None:
    """Three losses and 12 rows: the chance of every outcome, no simulation."""
    cells = np.array([(s * (1 - r), s * r) for s, r in zip(shares, risks, strict=True)]).ravel()
    coverage, errors = np.cumsum(shares), np.cumsum(np.multiply(shares, risks))
    truth = max((c for c, e in zip(coverage, errors, strict=True) if e <= limit * c + 1e-12), default=0.0)
    outcomes = every_outcome(12, 6)
    chances = multinomial.pmf(outcomes, 12, cells)
    assert chances.sum() == pytest.approx(1)
    lower, upper = known_intervals(limit)
    assert chances[truth < lower - 1e-12].sum() <= 0.025
    assert chances[truth > upper + 1e-12].sum() <= 0.025


def every_outcome(rows: int, cells: int) -> np.ndarray:
    """All ways to spread rows over cells."""
    bars = np.array(list(combinations(range(rows + cells - 1), cells - 1)))
    ends = np.pad(bars, ((0, 0), (1, 1)), constant_values=((0, 0), (-1, rows + cells - 1)))
    return np.diff(ends, axis=1) - 1


@functools.cache
def known_intervals(limit: float) -> tuple[np.ndarray, np.ndarray]:
    ends = []
    for outcome in every_outcome(12, 6):
        right, wrong = (np.repeat([0.0, 1.0, 2.0], outcome[kind::2]) for kind in (0, 1))
        ends.append(coverage_at_risk(Curve.of(right, wrong), Fraction(str(limit))))
    return np.array(ends)[:, 0], np.array(ends)[:, 1]


def test_what_can_be_certain() -> None:
    easy = Curve.of(np.arange(1000.0), np.empty(0))
    assert coverage_at_risk(easy, Fraction("0.05")) == (1, 1)
    assert coverage_at_risk(easy, Fraction(1)) == (1, 1)
    assert coverage_at_risk(easy, Fraction(0)) == (0, 1)  # no number of rows shows that there are no errors
    hopeless = Curve.of(np.empty(0), np.arange(1000.0))
    lower, upper = coverage_at_risk(hopeless, Fraction("0.05"))  # one error in one row is no news, two in two are
    assert (lower, binom.cdf(1, 1000, upper)) == (0, pytest.approx(0.005))
    few = Curve.of(np.arange(20.0), np.empty(0))
    assert coverage_at_risk(few, Fraction("0.05")) == (0, 1)


@pytest.mark.parametrize("name", ["flat above", "flat below", "slowly over", "over in steps", "down, then up", "steep"])
def test_intervals_cover_the_truth_where_the_risk_is_near_its_limit(name: str) -> None:
    """300 trials, each end within three standard errors of 2.5 %: plain resampling covers 27 % of such truths."""
    world = simulate.limit_worlds(0.05)[name]
    for rows in (100, 1000):
        assert simulate.coverage_misses(world, rows, "0.05", 300).allowed()


@pytest.mark.parametrize(("share", "least"), [(0.8, 0.7), (0.5, 0.4), (0.25, 0.15)])
def test_a_part_without_errors_is_found_however_small(share: float, least: float) -> None:
    """One test of all rows would find nothing: the search starts from fewer rows too."""
    losses = np.arange(3000.0)
    wrong = (losses >= share * losses.size) & (losses % 3 == 0)
    lower, upper = coverage_at_risk(Curve.of(losses[~wrong], losses[wrong]), Fraction("0.02"))
    truth = share / (1 - 3 * 0.02)  # a third of the rows above the share is wrong
    assert least < lower < truth < upper < truth + 0.1
