"""The risk-coverage curve against counting, and the interval of the coverage at a risk."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
import simulate_intervals as simulate
from conftest import more_trials, thorough
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import beta, binom, multinomial

from drrej.core import curves
from drrej.core.curves import Curve, MeanCurve, coverage_at_risk
from drrej.core.intervals import lower_bound, upper_bound

ROWS = st.lists(st.tuples(st.integers(0, 12), st.booleans()), min_size=1, max_size=60)


def split(rows: list[tuple[int, bool]]) -> tuple[np.ndarray, np.ndarray]:
    """Losses of right and of wrong rows."""
    losses, wrong = np.array([loss / 4 for loss, _ in rows]), np.array([wrong for _, wrong in rows])
    return losses[~wrong], losses[wrong]


@pytest.fixture(autouse=True, scope="module")
def short_stretches() -> Iterator[None]:
    """Several stretches in curves of a few rows."""
    patch = pytest.MonkeyPatch()
    patch.setattr(curves, "STRETCH", 5)
    yield
    patch.undo()


@given(ROWS)
def test_points_are_counts(rows: list[tuple[int, bool]]) -> None:
    right, wrong = split(rows)
    points = Curve.of(right, wrong)
    everything = np.concatenate([right, wrong])
    assert points.losses.tolist() == sorted(set(everything))
    assert points.accepted.tolist() == [int(np.sum(everything <= loss)) for loss in points.losses]
    assert points.errors.tolist() == [int(np.sum(wrong <= loss)) for loss in points.losses]


@given(ROWS, st.integers(-1, 14), st.fractions(0, 1, max_denominator=50))
def test_what_a_curve_says_is_counted(rows: list[tuple[int, bool]], at: int, limit: Fraction) -> None:
    right, wrong = split(rows)
    curve, everything = Curve.of(right, wrong), np.sort(np.concatenate([right, wrong]))
    assert (curve.rows, curve.total_errors) == (len(rows), wrong.size)
    assert curve.below(None) == (len(rows), wrong.size)
    for cutoff in (at / 4, at / 4 + 0.1):
        assert curve.below(cutoff) == (int(np.sum(everything < cutoff)), int(np.sum(wrong < cutoff)))
    points = list(zip(curve.accepted.tolist(), curve.errors.tolist(), strict=True))
    for wanted in range(1, len(rows) + 1):
        assert curve.reaching(wanted) == next(point for point in points if point[0] >= wanted)
    held = [point for point in points if Fraction(point[1], point[0]) <= limit]
    for most in (*range(len(rows) + 1), None):
        allowed = [point for point in held if most is None or point[0] <= most]
        assert curve.largest_at_risk(limit, most) == (allowed[-1] if allowed else (0, 0))
    for number, (accepted, _) in enumerate(points):
        assert curve.following(accepted) == (None if accepted == len(rows) else curve.losses[number + 1])


@given(ROWS)
def test_areas_are_sums_of_trapezoids(rows: list[tuple[int, bool]]) -> None:
    points = Curve.of(*split(rows))
    accepted = [Fraction(int(a)) for a in points.accepted]
    errors = [Fraction(int(e)) for e in points.errors]
    risks = [e / a for e, a in zip(errors, accepted, strict=True)]
    widths = [a - b for a, b in zip(accepted, [0, *accepted], strict=False)]
    aurc = sum(w * (r + s) for w, r, s in zip(widths, risks, [risks[0], *risks], strict=False)) / (2 * len(rows))
    augrc = sum(w * (e + f) for w, e, f in zip(widths, errors, [0, *errors], strict=False)) / (2 * len(rows) ** 2)
    assert points.aurc() == pytest.approx(float(aurc), rel=1e-14, abs=1e-300)
    assert points.augrc() == float(augrc)


@given(ROWS)
def test_auroc_of_failure_detection_counts_pairs(rows: list[tuple[int, bool]]) -> None:
    right, wrong = split(rows)
    for curve in (Curve.of(right, wrong),):
        if not right.size or not wrong.size:
            assert curve.failure_auroc() is None
            continue
        pairs = [Fraction(1 if w > r else 0) + Fraction(1, 2) * bool(w == r) for w in wrong for r in right]
        assert curve.failure_auroc() == float(sum(pairs) / len(pairs))


@given(ROWS)
def test_fpr_at_95_tpr_is_that_of_the_first_cutoff_that_keeps_95_percent_of_the_right_rows(
    rows: list[tuple[int, bool]],
) -> None:
    right, wrong = split(rows)
    for curve in (Curve.of(right, wrong),):
        if not right.size or not wrong.size:
            assert curve.fpr_at_95_tpr() is None
            continue
        kept = [
            cutoff
            for cutoff in sorted({*right, *wrong})
            if Fraction(int(np.sum(right <= cutoff)), right.size) >= Fraction(95, 100)
        ]
        assert curve.fpr_at_95_tpr() == np.sum(wrong <= kept[0]) / wrong.size


def test_95_percent_of_the_right_rows_is_an_integer_matter() -> None:
    """Of 20 right rows 19 are enough, of 21 it takes 20."""
    for count, needed in ((20, 19), (21, 20), (40, 38), (100, 95), (101, 96)):
        right = np.arange(count, dtype=np.float64)
        wrong = right + 0.5  # the wrong row after each right one
        accepted_wrong = needed - 1
        assert Curve.of(right, wrong).fpr_at_95_tpr() == accepted_wrong / count


def test_areas_above_the_published_ideal() -> None:
    """A perfect order of 2000 rows: the area under 1 - (1 - err) / c from 1 - err on, by quadrature."""
    rows = 2000
    for errors in (1, 20, 400, 1000, 1999):
        losses = np.arange(rows, dtype=np.float64)
        curve = Curve.of(losses[: rows - errors], losses[rows - errors :])
        right = 1 - errors / rows
        ideal, _ = quad(lambda c, right=right: 1 - right / c, right, 1, epsabs=1e-14)
        assert curve.e_aurc() == pytest.approx(curve.aurc() - ideal, abs=1e-13)
        assert abs(curve.e_aurc()) < 2 / rows
        naurc = curve.naurc()
        assert naurc == pytest.approx((curve.aurc() - ideal) / (errors / rows - ideal), rel=1e-9)
    random = np.random.default_rng(0).permutation(losses)
    assert Curve.of(random[:1600], random[1600:]).naurc() == pytest.approx(1, abs=0.15)


def test_areas_above_the_ideal_at_the_ends() -> None:
    losses = np.linspace(0, 1, 30)
    all_right, all_wrong = Curve.of(losses, losses[:0]), Curve.of(losses[:0], losses)
    assert (all_right.e_aurc(), all_right.naurc()) == (0, None)
    assert (all_wrong.e_aurc(), all_wrong.naurc()) == (pytest.approx(0, abs=1e-14), None)
    one_block = Curve.of(np.zeros(75), np.zeros(25))
    assert one_block.naurc() == pytest.approx(1, rel=1e-14)
    assert (one_block.failure_auroc(), one_block.fpr_at_95_tpr()) == (0.5, 1)


GRADED = st.lists(st.tuples(st.integers(0, 40), st.booleans()), min_size=1, max_size=120)


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


@given(
    GRADED,
    st.sampled_from(["0.02", "0.05", "0.2", "0.5", "0.9"]),
    st.integers(1, 5),
    st.integers(0, 300),
)
def test_the_interval_is_that_of_a_plain_search(
    rows: list[tuple[int, bool]], limit: str, piece: int, easy: int
) -> None:
    losses = np.array([float(loss) for loss, _ in rows] + [-1.0 - i / 2 for i in range(easy)])
    wrong = np.array([wrong for _, wrong in rows] + [False] * easy)
    points = Curve.of(losses[~wrong], losses[wrong])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(curves, "_PIECE", piece)
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
@pytest.mark.parametrize("rows", [9, thorough(12)])
def test_the_ends_miss_with_the_chance_that_was_promised(
    shares: tuple[float, ...], risks: tuple[float, ...], limit: float, rows: int
) -> None:
    """Three losses and a few rows: the chance of every outcome, no simulation."""
    cells = np.array([(s * (1 - r), s * r) for s, r in zip(shares, risks, strict=True)]).ravel()
    coverage, errors = np.cumsum(shares), np.cumsum(np.multiply(shares, risks))
    truth = max((c for c, e in zip(coverage, errors, strict=True) if e <= limit * c + 1e-12), default=0.0)
    outcomes = every_outcome(rows, 6)
    chances = multinomial.pmf(outcomes, rows, cells)
    assert chances.sum() == pytest.approx(1)
    lower, upper = known_intervals(rows, limit)
    assert chances[truth < lower - 1e-12].sum() <= 0.025
    assert chances[truth > upper + 1e-12].sum() <= 0.025


def every_outcome(rows: int, cells: int) -> np.ndarray:
    """All ways to spread rows over cells."""
    bars = np.array(list(combinations(range(rows + cells - 1), cells - 1)))
    ends = np.pad(bars, ((0, 0), (1, 1)), constant_values=((0, 0), (-1, rows + cells - 1)))
    return np.diff(ends, axis=1) - 1


@functools.cache
def known_intervals(rows: int, limit: float) -> tuple[np.ndarray, np.ndarray]:
    ends = []
    for outcome in every_outcome(rows, 6):
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
@pytest.mark.parametrize("trials", [80, more_trials(300)])
def test_intervals_cover_the_truth_where_the_risk_is_near_its_limit(name: str, trials: int) -> None:
    """Each end within three standard errors of 2.5 %: plain resampling covers 27 % of such truths."""
    world = simulate.limit_worlds(0.05)[name]
    for rows in (100, 1000):
        assert simulate.coverage_misses(world, rows, "0.05", trials).allowed()


@pytest.mark.parametrize(("share", "least"), [(0.8, 0.7), (0.5, 0.4), (0.25, 0.15)])
def test_a_part_without_errors_is_found_however_small(share: float, least: float) -> None:
    """One test of all rows would find nothing: the search starts from fewer rows too."""
    losses = np.arange(3000.0)
    wrong = (losses >= share * losses.size) & (losses % 3 == 0)
    lower, upper = coverage_at_risk(Curve.of(losses[~wrong], losses[wrong]), Fraction("0.02"))
    truth = share / (1 - 3 * 0.02)  # a third of the rows above the share is wrong
    assert least < lower < truth < upper < truth + 0.1


def test_a_part_that_is_just_large_enough_is_certified() -> None:
    """Of 400 rows 150 are right: searches from 400, 282, 199 and 140 rows on could pass, each with a fourth of 1 %."""
    losses = np.arange(400.0)
    lower, _ = coverage_at_risk(Curve.of(losses[:150], losses[150:]), Fraction("0.05"))
    assert binom.cdf(0, 140, 0.05) < 0.01 / 4
    most = max(rows for rows in range(150, 400) if binom.cdf(rows - 150, rows, 0.05) <= 0.01)
    assert lower == pytest.approx(beta.ppf(0.005, most, 401 - most))


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 9)), min_size=1, max_size=30), st.integers(0, 5))
def test_a_curve_of_costs_is_counted(rows: list[tuple[int, int]], review: int) -> None:
    """Accepted rows with what they lose below each cutoff, the areas of the lines between, and the cheapest cutoff."""
    losses, costs = np.array(rows, np.float64).T
    curve = MeanCurve.of(losses, costs)
    assert curve.rows == len(rows)
    for cutoff in (None, -0.5, 0.0, 2.5, 3.0, 6.0, 7.0):
        inside = costs[losses < (math.inf if cutoff is None else cutoff)]
        assert curve.below(cutoff) == (inside.size, inside.mean() if inside.size else None)
    points = [(int(np.sum(losses <= at)), float(costs[losses <= at].sum())) for at in np.unique(losses)]
    coverage = np.array([0, *(count for count, _ in points)]) / len(rows)
    means = [total / count for count, total in points]
    assert curve.aurc() == pytest.approx(np.trapezoid([means[0], *means], coverage))
    assert curve.augrc() == pytest.approx(np.trapezoid([0.0, *(total / len(rows) for _, total in points)], coverage))
    totals = [total + review * (len(rows) - count) for count, total in points]
    assert curve.totals(review).tolist() == [*totals, review * len(rows)]
    least = min(*totals, review * len(rows))
    best = [place for place, total in enumerate(totals) if total == least]
    assert curve.cheapest(review) == (best[-1] if best else -1)
