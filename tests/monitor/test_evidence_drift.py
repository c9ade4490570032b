"""Drift of the losses batch by batch: the law of the scores by exact enumeration, tails, bins, and where it moved."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from conftest import more_trials, thorough
from hypothesis import given
from hypothesis import strategies as st
from msgspec import convert, to_builtins
from scipy import stats
from simulate_monitor import choose_edges

from drrej.core.drift import bin_counts, stored_bins
from drrej.monitor.evidence import (
    LossDrift,
    Split,
    Tally,
    drift_factors,
    fisher_tails,
    log_weights,
    splits,
    start_share,
    unspent,
)
from drrej.monitor.report import moved_parts

# Tails


@given(*[st.integers(0, 40)] * 4)
def test_tails_of_small_counts_in_fractions(k, l, a, b):  # noqa: E741
    """By counting the ways to pick the rows of the batch."""
    left, drawn, total = a + k, k + l, a + b + k + l
    if not drawn or not a + b:
        assert fisher_tails(k, l, a, b) == (1.0, 1.0)
        return
    ways = {x: math.comb(left, x) * math.comb(total - left, drawn - x) for x in range(drawn + 1)}
    up = Fraction(sum(n for x, n in ways.items() if x >= k), math.comb(total, drawn))
    down = Fraction(sum(n for x, n in ways.items() if x <= k), math.comb(total, drawn))
    assert fisher_tails(k, l, a, b) == pytest.approx((float(up), float(down)), rel=1e-12)


@pytest.mark.parametrize(
    ("k", "l", "a", "b"),
    [
        *[(50_300, 49_700, 5 * 10**6, 5 * 10**6), (10**6 + 4000, 10**6, 10**6, 10**6), (0, 900, 10**4, 10**7)],
        *[(5 * 10**9 + 10**5, 5 * 10**9, 5 * 10**9, 5 * 10**9), (3_100_000, 10**10, 3 * 10**6, 10**10)],
    ],
)
def test_tails_of_large_counts(k, l, a, b):  # noqa: E741
    """Both tails share the term at k, which mpmath knows; and they are nearly normal."""
    up, down = fisher_tails(k, l, a, b)
    with mpmath.workdps(40):
        term = mpmath.binomial(a + k, k) * mpmath.binomial(b + l, l) / mpmath.binomial(a + b + k + l, k + l)
    assert up + down - 1.0 == pytest.approx(float(term), rel=1e-6, abs=1e-15)
    total, left, drawn = a + b + k + l, a + k, k + l
    mean = drawn * left / total
    spread = math.sqrt(mean * (total - left) / total * (total - drawn) / (total - 1))
    if spread > 100:
        assert up == pytest.approx(stats.norm.sf((k - 0.5 - mean) / spread), rel=0.02)


@pytest.mark.parametrize(("k", "l"), [(900, 0), (0, 900), (10**7, 0)])
def test_tails_far_out(k, l):  # noqa: E741
    up, down = fisher_tails(k, l, 10**6, 10**6)
    assert (up, down) == pytest.approx((0.0, 1.0) if k else (1.0, 0.0), abs=1e-200)


@given(*[st.integers(1, 30)] * 2, *[st.integers(0, 30)] * 2)
def test_tails_are_those_of_a_beta_binomial(a, b, k, l):  # noqa: E741
    """The identities of the second case of the proof."""
    if not k + l:
        return
    up, down = fisher_tails(k, l, a, b)
    assert up == pytest.approx(stats.betabinom.sf(k - 1, k + l, a + 1, b), rel=1e-9)
    assert down == pytest.approx(stats.betabinom.cdf(k, k + l, a, b + 1), rel=1e-9)


# The claim: the p̃ of all splits and batches are independent and uniform


def counts_of(rows: int, bins: int) -> list[tuple[int, ...]]:
    """All ways to put rows into bins."""
    if bins == 1:
        return [(rows,)]
    return [(first, *rest) for first in range(rows + 1) for rest in counts_of(rows - first, bins - 1)]


def chance_below(u: float, more: float, here: float) -> float:
    """P(p̃ ≤ u) over U, for p̃ = more + U here."""
    return min(max((u - more) / here, 0.0), 1.0)


def hypergeometric(k: int, l: int, a: int, b: int) -> tuple[float, float]:  # noqa: E741
    """(P(H > k), P(H = k)), by counting."""
    ways = [math.comb(a + k, x) * math.comb(b + l, k + l - x) for x in range(k + l + 1)]
    return sum(ways[k + 1 :]) / sum(ways), ways[k] / sum(ways)


def urn(k: int, l: int, a: int, b: int) -> tuple[float, float]:  # noqa: E741
    """(P(X > k), P(X = k)) for X beta-binomial of k + l rows with whole parameters a and b, by counting."""
    ways = [math.comb(a - 1 + x, x) * math.comb(b - 1 + k + l - x, k + l - x) for x in range(k + l + 1)]
    return sum(ways[k + 1 :]) / sum(ways), ways[k] / sum(ways)


def node_sums(counts: tuple[int, ...], node: Split) -> tuple[int, int]:
    return sum(counts[node[0] : node[1]]), sum(counts[node[1] : node[2]])


@pytest.mark.parametrize("chances", [(1 / 3, 1 / 3, 1 / 3), (0.7, 0.05, 0.25)])
def test_fixed_edges_give_independent_uniform_p_values(chances):
    """P(all p̃ below given numbers) is their product: over all counts of first batch and batches, U integrated."""
    bounds = iter(np.random.default_rng(0).uniform(0.1, 0.9, 6))
    tree, sizes = splits(3), (3, 2, 1, 2)
    wanted = {(batch, node): float(next(bounds)) for batch in (1, 2, 3) for node in tree}
    laws = [[(c, stats.multinomial.pmf(c, n, chances)) for c in counts_of(n, 3)] for n in sizes]
    total = 0.0
    for outcome in itertools.product(*laws):
        pool, chance = outcome[0]
        for batch in (1, 2, 3):
            counts, weight = outcome[batch]
            chance *= weight
            for node in tree:
                law = hypergeometric(*node_sums(counts, node), *node_sums(pool, node))
                chance *= chance_below(wanted[batch, node], *law)
            pool = tuple(np.add(pool, counts).tolist())
        total += chance
    assert total == pytest.approx(math.prod(wanted.values()), rel=1e-9)


def test_given_the_past_they_are_not_uniform():
    """Why a batch may not be judged given the pool itself: the proof goes through the unions, backwards."""
    pool, chances = (3, 0, 0), (1 / 3, 1 / 3, 1 / 3)
    below = 0.0
    for counts in counts_of(2, 3):
        law = hypergeometric(*node_sums(counts, splits(3)[0]), *node_sums(pool, splits(3)[0]))
        below += stats.multinomial.pmf(counts, 2, chances) * chance_below(0.5, *law)
    assert abs(below - 0.5) > 0.02


def test_edges_from_the_first_batch_give_independent_uniform_p_values():
    """All orders of 4 first rows and batches of 2 and 1 rows are equally likely; edges: the 2nd and 3rd first row."""
    tree, gaps = splits(3), (2, 1, 1 + 1)
    wanted = dict(zip(itertools.product((0, 1), tree), (0.3, 0.62, 0.45, 0.81), strict=True))
    total = orders = 0.0
    for places in itertools.permutations(range(7)):
        fit, batches = np.sort(places[:4]).astype(float), (np.array(places[4:6], float), np.array(places[6:], float))
        edges = (fit[1], fit[2])
        pool, parameters, chance = bin_counts(fit, edges), gaps, 1.0
        assert pool == (gaps[0] - 1, *gaps[1:])
        for t, losses in enumerate(batches):
            counts = bin_counts(losses, edges)
            for node in tree:
                k, l = node_sums(counts, node)  # noqa: E741
                more, here = urn(k, l, *node_sums(parameters, node))
                chance *= chance_below(wanted[t, node], more, here)
                up, down = fisher_tails(k, l, *node_sums(pool, node))
                assert up >= (more + here) * (1 - 1e-12)
                assert down >= (1 - more) * (1 - 1e-12)
            pool, parameters = (tuple(np.add(x, counts).tolist()) for x in (pool, parameters))
        total += chance
        orders += 1
    assert total / orders == pytest.approx(math.prod(wanted.values()), rel=1e-9)


@pytest.mark.parametrize("chances", [thorough((0.5, 0.5)), more_trials((0.9, 0.1)), (0.02, 0.98)])
def test_chance_of_an_e_value_so_large(chances):
    """Exactly, for two bins, over all counts of a first batch and three batches: Ville's inequality at every level."""
    peaks, weights = [], []
    laws = [[((n - k, k), stats.binom.pmf(k, n, chances[1])) for k in range(n + 1)] for n in (6, 5, 5, 5)]
    for first, *batches in itertools.product(*laws):
        monitor, weight, peak = started(first[0]), first[1], (0.0, 0.0)
        for counts, chance in batches:
            monitor, weight = monitor.update(counts), weight * chance
            peak = max(peak[0], monitor.log_e_value), max(peak[1], monitor.restarts_log_e_value)
        peaks.append(peak)
        weights.append(weight)
    found, mass = np.exp(peaks), np.array(weights)
    assert mass.sum() == pytest.approx(1.0)
    for level in (1.2, 1.5, 2.0, 3.0, 5.0):
        total, restarts = (mass[found[:, i] >= level].sum() for i in range(2))
        assert total <= 1.0 / level
        assert restarts <= 1.0 / level
    assert found[:, 0].max() > 3.0


# Factors and weights


@pytest.mark.parametrize("scale", [0.01, thorough(1.0), thorough(30.0), 1e4])
def test_factors_have_expectation_one(scale):
    """Of each split alone, by quadrature over the score; at the upper end the splits are multiplied."""
    z, weight = score_grid()
    tails = np.stack([stats.norm.sf(z), stats.norm.cdf(z)], -1)[:, None, :].repeat(2, 1)
    factors = np.exp(drift_factors(tails, scale))
    expected = np.einsum("i,i...->...", weight, factors[:, 1:])
    assert expected == pytest.approx(np.ones((2, 2, 11)), rel=1e-9)
    assert factors[:, 0] == pytest.approx(factors[:, 1] * factors[:, 2], rel=1e-12)


@pytest.mark.parametrize("bins", [2, 3, 16])
def test_weights_sum_to_one(bins):
    weights = np.exp(log_weights(bins))
    assert weights.shape == (bins, 2, 11)
    assert weights.sum() == pytest.approx(1.0, rel=1e-12)
    assert weights[0].sum() == pytest.approx(0.5, rel=1e-12)


def test_every_range_is_split_once():
    for bins in (1, 2, 7, 16):
        tree = splits(bins)
        assert len(tree) == bins - 1
        assert {middle for _, middle, _, _ in tree} == set(range(1, bins))
        assert all(first < middle < end for first, middle, end, _ in tree)


def test_batches_against_the_first_batch_use_all_information():
    """The squares of s N_1 / N add up to those of one test of all batches."""
    first, sizes = 2000, [200, 50, 1000, 1]
    total = used = 0
    for n in sizes:
        before = first + total
        used += n * before / (n + before) * (first / before) ** 2
        total += n
    assert used == pytest.approx(total * first / (total + first), rel=1e-12)


# The state


def test_the_state_by_the_definition():
    """Against the formulas of the module, written out for two bins."""
    pool, batches = [400, 600], [(30, 70), (60, 40), (25, 75)]
    monitor = started(pool)
    shifts = 2.0 ** np.arange(1, -10, -1)
    weights = 1 / (1 + np.abs(np.log2(shifts) + 2))
    weights = weights / weights.sum() / 2
    product, starts = np.zeros((2, 11)), []
    for k, l in batches:  # noqa: E741
        before, rows = sum(pool), k + l
        law = stats.hypergeom(before + rows, pool[0] + k, rows)
        z = np.clip(stats.norm.isf([law.sf(k - 1), law.cdf(k)]), -3, 8)[:, None]
        spread = math.sqrt(0.25 * rows * before / (rows + before))
        product += log_factor(z, np.minimum(shifts * spread * 1000 / before, 4))
        starts = [value + log_factor(z, np.minimum(shifts * spread, 4)) for value in (*starts, np.zeros((2, 11)))]
        pool = [pool[0] + k, pool[1] + l]
        monitor = monitor.update((k, l))
        assert monitor.pool == tuple(pool)
        assert monitor.log_e_value == pytest.approx(math.log((np.exp(product) * weights).sum()), abs=1e-7)
        shares = [(np.exp(value) * weights).sum() * start_share(j) for j, value in enumerate(starts, 1)]
        assert monitor.restarts_log_e_value == pytest.approx(math.log(sum(shares) + unspent(len(starts))), abs=1e-7)


def log_factor(z: np.ndarray, lambdas: np.ndarray) -> np.ndarray:
    """λ z - ln E[exp(λ Z)], by quadrature."""

    x, w = score_grid()
    return z * lambdas - np.log(w @ np.exp(np.clip(x, -3, 8)[:, None] * lambdas))


def score_grid() -> tuple[np.ndarray, np.ndarray]:
    """Points and weights for expectations over a standard normal, with the cuts between the points."""
    x, w = np.polynomial.legendre.leggauss(300)
    spans = list(itertools.pairwise((-14, -8, -3, 3, 8, 14)))
    z = np.concatenate([(b - a) / 2 * x + (a + b) / 2 for a, b in spans])
    return z, np.concatenate([(b - a) / 2 * w for a, b in spans]) * stats.norm.pdf(z)


def revived(monitor: LossDrift) -> LossDrift:
    return convert(json.loads(json.dumps(to_builtins(monitor), allow_nan=False)), LossDrift)


def started(counts: Sequence[int]) -> LossDrift:
    """In bins between whole numbers."""
    return LossDrift.start(range(1, len(counts)), counts)


def alarms(monitor: LossDrift, delta: float) -> tuple[bool, bool]:
    """Whether the evidence against the first rows, and that of the restarts, has reached 1 / delta."""
    return monitor.log_e_value >= -math.log(delta), monitor.restarts_log_e_value >= -math.log(delta)


def test_a_thousand_batches_stay_small():
    rng = np.random.default_rng(0)
    monitor = started([100] * 16)
    for counts in rng.multinomial(300, [1 / 16] * 16, 1000).tolist():
        monitor = monitor.update(counts)
    assert revived(monitor) == monitor
    assert sum(monitor.pool) == 1600 + 300 * 1000
    assert len(json.dumps(to_builtins(monitor), allow_nan=False)) < 30_000
    assert alarms(monitor, 0.05) == (False, False)


def test_large_batches_stay_finite():
    rng = np.random.default_rng(0)
    monitor = started([10**9] * 4)
    for counts in rng.multinomial(10**10, [1 / 4] * 4, 3).tolist():
        monitor = monitor.update(counts)
    assert alarms(monitor, 0.05) == (False, False)
    monitor = monitor.update([10**10, 0, 0, 0])
    assert revived(monitor) == monitor
    assert alarms(monitor, 1e-6)[1]


@pytest.mark.parametrize("shift", [1.5, 0.66])
def test_a_late_change_is_seen(shift):
    rng = np.random.default_rng(3)
    fit = np.sort(rng.gamma(0.4, 0.5, 2000))
    edges = choose_edges(fit)
    monitor = started(bin_counts(fit, edges))
    for batch in range(130):
        losses = rng.gamma(0.4, 0.5, 200) * (shift if batch >= 120 else 1.0)
        assert not alarms(monitor, 0.05)[1] or batch > 120
        monitor = monitor.update(bin_counts(losses, edges))
    assert alarms(monitor, 0.05)[1]


def test_empty_batches_and_no_first_batch():
    monitor = started((0, 0)).update((0, 0)).update((30, 70))
    assert (monitor.pool, monitor.first_rows, monitor.restarts.looks) == ((30, 70), 100, 0)
    assert (monitor.log_e_value, monitor.restarts_log_e_value) == (0.0, 0.0)
    assert monitor.update((0, 0)).pool == monitor.pool
    assert monitor.update((70, 30)).log_e_value > 0.0
    assert started((5,)).update((7,)).pool == (12,)


@pytest.mark.parametrize("batch", [(1,), (1, 2, 3), (-1, 5)])
def test_counts_that_do_not_fit(batch):
    with pytest.raises(ValueError, match="`batch`"):
        started((5, 5)).update(batch)


# Bins


@pytest.mark.parametrize("rows", [1, 2, 9, 150, 201, 5000])
def test_stored_quantiles_give_the_counts(rows):
    ordered = np.sort(np.random.default_rng(rows).random(rows))
    kept = min(rows, 201)
    ranks = np.arange(kept) * (rows - 1) // max(kept - 1, 1)
    edges, counts = stored_bins(ordered[ranks], rows)
    assert counts == bin_counts(ordered, edges)


def test_stored_quantiles_that_tie_give_no_counts():
    edges, counts = stored_bins([0.0, 0.0, 1.0, 1.0, 2.0], 101, 4)
    assert edges == (1.0,)
    assert counts is None


# Where


def moves(new: list[Tally], old: list[Tally], delta: float) -> dict[int, Any]:
    """What surely moved, by number."""
    table = ("x", [(str(part), *pair) for part, pair in enumerate(zip(new, old, strict=True))])
    return {int(move.part): move for move in moved_parts([table], delta)}


def test_intervals_are_exact_and_bonferroni():
    new, old = [Tally(30, 100), Tally(0, 50), Tally(7, 7)], [Tally(900, 1000), Tally(3, 10**6), Tally(0, 0)]
    table = moves(new, old, 0.06)
    assert list(table) == [0]
    ends = [
        (stats.beta.ppf(0.005, t.events, t.rows - t.events + 1), stats.beta.isf(0.005, t.events + 1, t.rows - t.events))
        for t in (new[0], old[0])
    ]
    expected = (ends[0][0] - ends[1][1], ends[0][1] - ends[1][0])
    assert (table[0].lower, table[0].upper) == pytest.approx(expected, rel=1e-9)
    assert table[0].at_least == table[0].upper < 0


def test_those_that_surely_moved_most_come_first():
    new = [Tally(9, 10), Tally(610, 1000), Tally(400, 1000), Tally(5, 10), Tally(5, 10)]
    table = moves(new, [Tally(5000, 10000)] * 5, 0.05)
    assert [(part, np.sign(move.at_least)) for part, move in table.items()] == [(1, 1), (2, -1)]


def test_all_intervals_hold_together():
    """By simulation: 30 classes that share the rows, new and old from the same chances."""
    rng = np.random.default_rng(5)
    chances = rng.dirichlet(np.ones(30))
    delta, broken = 0.2, 0
    for _ in range(200):
        new, old = rng.multinomial(300, chances).tolist(), rng.multinomial(2000, chances).tolist()
        broken += bool(moves([Tally(k, 300) for k in new], [Tally(k, 2000) for k in old], delta))
    assert broken <= stats.binom.ppf(0.999, 200, delta)


def test_a_moved_class_is_found():
    rng = np.random.default_rng(6)
    before, after = np.full(50, 0.02), np.full(50, 0.98 * 0.02)
    after[17] += 0.02
    new, old = rng.multinomial(20000, after).tolist(), rng.multinomial(50000, before).tolist()
    table = moves([Tally(k, 20000) for k in new], [Tally(k, 50000) for k in old], 0.05)
    assert list(table) == [17]
    assert table[17].at_least > 0.005


def test_moved_parts_hold_all_together() -> None:
    """Two tables of shares that have not moved: any claim at all has a chance of at most delta."""
    rng = np.random.default_rng(5)
    claims = 0
    for _ in range(400):
        tables = []
        for parts in (6, 3):
            chances = rng.dirichlet(np.ones(parts))
            new, old = rng.multinomial(300, chances), rng.multinomial(900, chances)
            pairs = zip(new.tolist(), old.tolist(), strict=True)
            tables.append(("x", [(f"{part}", Tally(n, 300), Tally(m, 900)) for part, (n, m) in enumerate(pairs)]))
        claims += bool(moved_parts(tables, 0.2))
    assert claims <= 0.2 * 400
