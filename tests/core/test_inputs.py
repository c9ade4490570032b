"""Rows of probabilities: their rounding, their sums, what is wrong with them, and their floor."""

from __future__ import annotations

import doctest
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax

from drrej.core import inputs as module
from drrej.core.inputs import (
    TOLERATED,
    Positives,
    ScoreLook,
    Verdict,
    are_log_probabilities,
    choose_floor,
    floored,
    floored_logits,
    level_words,
    read_binary_probabilities,
    read_log_probabilities,
    read_probabilities,
    row_logits,
    row_sums,
)

seeds = st.integers(0, 2**32)


def softmax_rows(rows: int, classes: int, seed: int, spread: float = 4.0) -> np.ndarray:
    z = np.random.default_rng(seed).normal(size=(rows, classes)) * spread
    p = np.exp(z - z.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


def bfloat16(values: np.ndarray) -> np.ndarray:
    """Rounded to the 8 bits of bfloat16, to nearest."""
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).view(np.float32)


def test_doctests() -> None:
    results = doctest.testmod(module)
    assert results.failed == 0
    assert results.attempted >= 4


# Sums


@given(seeds, st.integers(1, 300), st.sampled_from([1.0, 1e-9, 1e-200]))
def test_sums_are_exact_and_have_no_order(seed: int, classes: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    values = rng.random((4, classes)) ** 8 * rng.choice([1.0, scale], (4, classes))
    sums = row_sums(values)
    for row, total in zip(values, sums.tolist(), strict=True):
        exact = sum((Fraction(x) for x in row.tolist()), Fraction(0))
        assert abs(Fraction(total) - exact) <= exact * Fraction(2) ** -53 + classes * Fraction(2) ** -61
    order = rng.permutation(classes)
    assert row_sums(values[:, order]).tobytes() == sums.tobytes()
    assert row_sums(np.asfortranarray(values)).tobytes() == sums.tobytes()
    assert row_sums(values[2:3]).tobytes() == sums[2:3].tobytes()


# Rounding


def test_rows_with_few_decimals_need_normalize() -> None:
    """Which class is missing and which digits are, nobody can tell apart; a row whose decimals sum to 1 is as good."""
    stored = np.round(softmax_rows(200, 5, seed=1), 3)
    read = read_probabilities(stored)
    right = np.abs(stored.sum(axis=1) - 1) <= 1e-6
    assert 0 < right.sum() < 200
    assert ((read.verdicts == Verdict.GOOD) == right).all()
    assert set(read.verdicts[~right].tolist()) == {Verdict.OFF_SUM}
    normalized = read_probabilities(stored, normalize=True)
    assert not normalized.verdicts.any()
    np.testing.assert_allclose(normalized.values, stored / stored.sum(axis=1, keepdims=True), rtol=1e-15)


@pytest.mark.parametrize("narrow", [np.float16, np.float32, bfloat16])
@pytest.mark.parametrize("classes", [2, 10, 100, 1000])
def test_narrow_rows_are_good_in_every_wider_type(narrow: object, classes: int) -> None:
    stored = softmax_rows(200, classes, seed=classes)
    stored = narrow(stored) if narrow is bfloat16 else stored.astype(narrow)  # type: ignore[operator, call-overload]
    expected = read_probabilities(stored)
    assert not expected.verdicts.any()
    for width in (np.float32, np.float64):
        for order in ("C", "F"):
            again = read_probabilities(np.array(stored, width, order=order))
            assert again.values.tobytes() == expected.values.tobytes()
            assert again.verdicts.tobytes() == expected.verdicts.tobytes()


@given(seeds, st.sampled_from([2e-6, -2e-6, 1e-3, -1e-2, 0.09]))
def test_rows_with_all_their_digits_have_no_excuse(seed: int, excess: float) -> None:
    p = softmax_rows(20, 5, seed)
    p[::2, 0] += excess * (1 + np.random.default_rng(seed).random(10))
    p[::2] = np.abs(p[::2])
    off = np.abs(p.sum(axis=1) - 1) > 1e-6
    assert (read_probabilities(p).verdicts == np.where(off, Verdict.OFF_SUM, Verdict.GOOD)).all() or (p > 1).any()


BAD = {
    "NaN": ([0.5, math.nan, 0.5], Verdict.NOT_FINITE),
    "+inf": ([0.5, math.inf, 0.5], Verdict.NOT_FINITE),
    "-inf": ([0.5, -math.inf, 0.5], Verdict.NOT_FINITE),
    "negative, sums to 1": ([1.25, -0.25, 0.0], Verdict.NEGATIVE),
    "negative": ([0.5, -0.25, 0.5], Verdict.NEGATIVE),
    "percent": ([50.0, 30.0, 20.0], Verdict.ABOVE_ONE),
    "counts": ([7.0, 8.0, 0.0], Verdict.ABOVE_ONE),
    "a class is missing": ([0.5, 0.25, 0.125], Verdict.OFF_SUM),
    "each its own": ([0.9, 0.8, 0.1], Verdict.OFF_SUM),
    "two decimals": ([0.67, 0.17, 0.17], Verdict.OFF_SUM),
    "three decimals": ([0.333, 0.333, 0.333], Verdict.OFF_SUM),
    "nothing": ([0.0, 0.0, 0.0], Verdict.NO_MASS),
    "huge": ([1e308, 1e308, 1e308], Verdict.ABOVE_ONE),
    "seventeen ones in place of one": ([1.0, 1.0, 15.0], Verdict.ABOVE_ONE),
}
GOOD = {
    "exact": [0.5, 0.25, 0.25],
    "sure": [1.0, 0.0, 0.0],
    "minus zero": [1.0, -0.0, 0.0],
    "above 1 by rounding": [1.0000001, 0.0, 0.0],
}


@pytest.mark.parametrize("name", BAD)
def test_bad_rows(name: str) -> None:
    row, verdict = BAD[name]
    read = read_probabilities(np.array([[0.5, 0.25, 0.25], row, [0.0, 1.0, 0.0]]))
    assert read.verdicts.tolist() == [Verdict.GOOD, verdict, Verdict.GOOD]
    assert read.values.tolist() == [[0.5, 0.25, 0.25], [1 / 3] * 3, [0.0, 1.0, 0.0]]
    ((rows, _, remedy, _),) = read.bad_rows()
    assert rows.tolist() == [1]
    assert "`input=probs`" not in remedy
    assert ("logits" in remedy) == (verdict in (Verdict.NEGATIVE, Verdict.ABOVE_ONE))  # others are no logits


@pytest.mark.parametrize("name", GOOD)
def test_good_rows(name: str) -> None:
    read = read_probabilities(np.array([GOOD[name]]))
    assert read.verdicts.tolist() == [Verdict.GOOD]
    assert list(read.bad_rows()) == []
    assert math.fsum(read.values[0]) == pytest.approx(1, abs=1e-15)
    assert read.values[0].argmax() == np.argmax(GOOD[name])


def test_the_sum_of_the_first_bad_row_is_told() -> None:
    ((_, _, remedy, example),) = read_probabilities(np.array([[0.5, 0.5], [0.5, 0.625], [0.25, 0.25]])).bad_rows()
    assert example == "its sum is 1.125"
    assert "`normalize=True`" in remedy


# A row by itself


def mixed_rows(classes: int) -> np.ndarray:
    """Good and bad rows of every kind, rounded and not."""
    p = softmax_rows(300, classes, seed=5)
    p[::7] = np.round(p[::7], 3)
    p[1::7] = p[1::7].astype(np.float16)
    p[2::31, 0] = np.nan
    p[3::31, 1] = np.inf
    p[4::31, 0] -= 2
    p[5::31] *= 7
    return p


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("classes", [2, 3, 31, 32, 500])
def test_a_row_does_not_depend_on_its_neighbours(classes: int, normalize: bool) -> None:
    p = mixed_rows(classes)
    whole = read_probabilities(p, normalize)
    for start, stop in ((0, 1), (17, 18), (5, 40), (100, 300)):
        part = read_probabilities(np.asfortranarray(p[start:stop]), normalize)
        assert part.values.tobytes() == whole.values[start:stop].tobytes()
        assert part.verdicts.tobytes() == whole.verdicts[start:stop].tobytes()
    shuffled = np.random.default_rng(0).permutation(300)
    assert read_probabilities(p[shuffled], normalize).values.tobytes() == whole.values[shuffled].tobytes()
    classes_shuffled = np.random.default_rng(1).permutation(classes)
    assert read_probabilities(p[:, classes_shuffled], normalize).values.tobytes() == (
        np.ascontiguousarray(whole.values[:, classes_shuffled]).tobytes()
    )


@given(seeds, st.sampled_from([1.0, 100.0, 1e-300, 1e300, 3.0]))
def test_normalize_divides_whatever_the_sum(seed: int, scale: float) -> None:
    weights = np.random.default_rng(seed).random((5, 4)) * scale
    weights[0, 0] = 0
    read = read_probabilities(weights, normalize=True)
    assert not read.verdicts.any()
    for row, values in zip(weights.tolist(), read.values.tolist(), strict=True):
        total = sum((Fraction(x) for x in row), Fraction(0))
        assert values == pytest.approx([float(Fraction(x) / total) for x in row], rel=1e-15)


def test_normalize_leaves_good_rows_as_they_are_and_saves_no_bad_one() -> None:
    p = mixed_rows(6)
    plain, normalized = read_probabilities(p), read_probabilities(p, normalize=True)
    good = plain.verdicts == Verdict.GOOD
    np.testing.assert_allclose(normalized.values[good], plain.values[good], rtol=1e-15)
    assert set(normalized.verdicts.tolist()) == {Verdict.GOOD, Verdict.NEGATIVE, Verdict.NOT_FINITE}
    assert read_probabilities(np.zeros((1, 3)), normalize=True).verdicts.tolist() == [Verdict.NO_MASS]


def test_no_rows() -> None:
    assert read_probabilities(np.empty((0, 4))).values.shape == (0, 4)
    assert ScoreLook.of(np.empty((0, 4))) == ScoreLook()


# Logarithms, one score


@pytest.mark.parametrize("width", [np.float16, np.float32, np.float64])
def test_logarithms_are_read_as_their_probabilities(width: type) -> None:
    p = softmax_rows(200, 6, seed=8)
    p[:, 2] = 0
    p /= p.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore"):
        logs = np.log(p).astype(width)
    read = read_log_probabilities(logs)
    assert not read.verdicts.any()
    assert (read.values[:, 2] == 0).all()
    exponent_error = 40 * float(np.finfo(width).eps)
    np.testing.assert_allclose(read.values, p, rtol=2 * exponent_error + 1e-14, atol=1e-7 if width is np.float16 else 0)


def test_logarithms_of_something_else() -> None:
    rows = [
        [-1.0, -2.0, -3.0],
        [1.0, -5.0, -5.0],
        [math.nan, 0.0, -1.0],
        [-math.inf] * 3,
        [0.0, -math.inf, -math.inf],
        [math.inf, 0.0, 0.0],
    ]
    read = read_log_probabilities(np.array(rows))
    expected = [
        Verdict.OFF_SUM,
        Verdict.ABOVE_ONE,
        Verdict.NOT_FINITE,
        Verdict.NO_MASS,
        Verdict.GOOD,
        Verdict.NOT_FINITE,
    ]
    assert read.verdicts.tolist() == expected
    normalized = read_log_probabilities(np.array(rows), normalize=True)
    z = np.exp(np.array(rows[0]))
    assert normalized.values[0] == pytest.approx(z / z.sum(), rel=1e-15)
    assert normalized.verdicts.tolist() == [0, 0, *expected[2:]]


def test_one_probability_per_row() -> None:
    read = read_binary_probabilities(np.array([0.25, 0.0, 1.0, 1.0000001, -0.1, 1.5, math.nan], np.float32))
    assert read.verdicts.tolist() == [0, 0, 0, 0, Verdict.NEGATIVE, Verdict.NO_SHARE, Verdict.NOT_FINITE]
    assert read.values[:4].tolist() == [[0.75, 0.25], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]
    assert (read.values[4:] == 0.5).all()
    p = np.float32(0.1)
    assert read_binary_probabilities(np.array([p])).values.tolist() == [[1 - float(p), float(p)]]


# Scores that look like probabilities


@given(seeds, st.lists(st.integers(0, 60), max_size=5), st.booleans())
def test_a_look_is_the_same_for_any_blocks(seed: int, cuts: list[int], known: bool) -> None:
    rng = np.random.default_rng(seed)
    scores = np.where(rng.random((60, 1)) < 0.5, softmax_rows(60, 3, seed), rng.normal(size=(60, 3)))
    scores[7] = [np.nan, 0, 1]
    scores[9] = [np.inf, 0, 1]
    scores[11] = [-np.inf, 0.5, 0.5]
    scores[20:30] = 100 * softmax_rows(10, 3, seed)
    scores[30:35] = np.abs(scores[30:35]) + 1.5
    whole = ScoreLook.of(scores)
    parts = ScoreLook()
    for part in np.split(scores, sorted(cuts)):
        parts = ScoreLook.of(part, part.max(axis=1) if known else None) + parts
    assert parts == whole
    finite = [row for row in scores.tolist() if not math.isnan(sum(row)) and max(row) < math.inf]
    inside = [row for row in finite if min(row) >= 0 and max(row) <= 1]
    summing = [row for row in inside if abs(math.fsum(row) - 1) <= 0.1]
    hundreds = [row for row in finite if min(row) >= 0 and max(row) > 1 and abs(math.fsum(row) - 100) <= 2]
    exact = [row for row in summing if abs(math.fsum(row) - 1) <= 1e-3]
    assert whole == ScoreLook(len(finite), len(inside), len(summing), len(hundreds), len(exact))


@pytest.mark.parametrize("decimals", [2, 3, 6, 17])
@pytest.mark.parametrize("width", [np.float16, np.float32, np.float64])
def test_probabilities_are_recognised_rounded_or_not(width: type, decimals: int) -> None:
    p = np.round(softmax_rows(300, 5, seed=1), decimals).astype(width)
    assert ScoreLook.of(p).kind() == "probabilities"
    p[:3] *= 5  # a few damaged rows hide nothing
    assert ScoreLook.of(p).kind() == "probabilities"


def test_other_scores() -> None:
    rng = np.random.default_rng(2)
    assert ScoreLook.of(rng.normal(size=(300, 5)) * 3).kind() == "logits"
    assert ScoreLook.of(np.log(softmax_rows(300, 5, seed=2))).kind() == "logits"
    assert ScoreLook.of(rng.random((300, 5))).kind() == "unit interval"
    assert ScoreLook.of(rng.random((19, 5)) * 0.1).kind() == "logits"  # too few rows to say
    assert ScoreLook().kind() == "logits"
    assert {"probabilities", "unit interval", "scaled", "mixed"} == set(module.DOUBTS)


def test_one_score_per_row() -> None:
    rng = np.random.default_rng(3)
    p = rng.random(500).astype(np.float32)
    assert ScoreLook.of_binary(p).kind(binary=True) == "probabilities"
    p[:5] = 7
    assert ScoreLook.of_binary(p).kind(binary=True) == "probabilities"
    p[5] = 7
    assert ScoreLook.of_binary(p).kind(binary=True) == "scaled"  # none is negative
    p[:6] = -7
    assert ScoreLook.of_binary(p).kind(binary=True) == "logits"
    p[:6] = np.nan
    look = ScoreLook.of_binary(p[:100]) + ScoreLook.of_binary(p[100:])
    assert look == ScoreLook.of_binary(p) == ScoreLook(494, 494, 494)
    assert look.kind(binary=True) == "probabilities"
    assert ScoreLook.of_binary(rng.normal(size=500) * 3).kind(binary=True) == "logits"
    assert ScoreLook.of_binary(np.full(8, 0.3)).kind(binary=True) == "probabilities"
    assert ScoreLook.of_binary(np.full(7, 0.3)).kind(binary=True) == "logits"  # a batch of a few doubtful rows


def test_percentages_and_counts_are_no_logits() -> None:
    p = softmax_rows(300, 5, seed=4)
    assert ScoreLook.of(100 * p).kind() == "scaled"
    assert ScoreLook.of(np.round(100 * p)).kind() == "scaled"
    votes = np.random.default_rng(5).multinomial(15, np.full(5, 0.2), 300).astype(np.float32)
    assert ScoreLook.of(votes).kind() == "scaled"
    assert ScoreLook.of(votes[:19]).kind() == "logits"  # too few rows to say
    assert ScoreLook.of(np.maximum(np.random.default_rng(6).normal(size=(300, 5)) * 9, 0)).kind() == "logits"
    assert ScoreLook.of_binary(100 * p[:, 0]).kind(binary=True) == "scaled"


def test_logarithms_of_probabilities_are_told_from_logits() -> None:
    rng = np.random.default_rng(4)
    p = softmax_rows(200, 6, seed=4)
    p[:, 1] = 0
    with np.errstate(divide="ignore"):
        logs = np.log(p / p.sum(axis=1, keepdims=True))
    for stored in (logs, logs.astype(np.float32), logs.astype(np.float16), np.round(logs, 2)):
        assert are_log_probabilities(stored).all()
    logits = rng.normal(size=(200, 6)) * 3
    logits[:, 1] = -np.inf
    sums = np.exp(logits).sum(axis=1)
    assert (are_log_probabilities(logits) == (np.abs(sums - 1) <= 0.01)).all()
    assert are_log_probabilities(logits).mean() < 0.05
    assert not are_log_probabilities(np.array([[np.nan, 0.0], [np.inf, 0.0], [-np.inf, -np.inf]])).any()


def test_whole_numbers_with_negative_ones_among_them_are_logits() -> None:
    rows = np.array([[3.0, 1.0], [5.0, 0.0], [2.0, 7.0], [-4.0, 1.0]] * 10)
    assert ScoreLook.of(rows).kind() == "logits"
    assert ScoreLook.of(np.abs(rows)).kind() == "scaled"


probability = st.one_of(st.floats(0, 1), st.floats(0, 1e-6), st.just(0.0), st.floats(0, 1e-300))
exponent = st.integers(1, 1074)


@given(st.lists(probability, min_size=2, max_size=30), exponent)
def test_the_floor_is_the_exact_formula_correctly_rounded(values: list[float], power: int) -> None:
    floor = math.ldexp(1.0, -power)
    got = floored(np.array(values), floor)
    for p, g in zip(values, got.tolist(), strict=True):
        exact = max(Fraction(p), Fraction(floor) + Fraction(p) / 2)
        assert abs(Fraction(g) - exact) <= Fraction(math.ulp(g)) / 2 + Fraction(5e-324)


@given(st.lists(probability, min_size=2, max_size=30), exponent)
def test_no_order_changes_and_values_above_twice_the_floor_keep_their_bits(values: list[float], power: int) -> None:
    floor = math.ldexp(1.0, -power)
    p = np.sort(np.array(values))
    g = floored(p, floor)
    assert (np.diff(g) >= 0).all()
    assert (g >= floor).all()
    large = p >= 2 * floor
    assert (g[large] == p[large]).all()
    told_apart = np.diff(p) > 8 * np.spacing(g[1:])  # further apart than the rounding of the results
    assert (np.diff(g)[told_apart] > 0).all()


def test_positive_values_below_the_floor_stay_above_zero_and_in_order() -> None:
    p = np.array([0.0, 1e-9, 1e-6, 1e-3, 0.0625, 0.0626])
    g = floored(p, 2.0**-5)
    assert (np.diff(g) > 0).all()
    assert g[0] == 2.0**-5
    assert g[4:].tolist() == [0.0625, 0.0626]


def test_without_a_floor_zeros_are_impossible() -> None:
    assert floored_logits(np.array([[1.0, 0.0]]), 0.0).tolist() == [[0.0, -math.inf]]


def test_at_face_value_nothing_but_zeros_moves() -> None:
    p = np.array([0.0, 5e-324, 1e-323, 1e-300, 1e-3, 1.0])
    assert floored(p, module.FACE_VALUE).tolist() == [5e-324, 5e-324, 1e-323, 1e-300, 1e-3, 1.0]


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("width", [np.float16, np.float32, np.float64])
def test_the_type_and_the_layout_do_not_matter(width: type, order: str) -> None:
    p = np.random.default_rng(0).dirichlet(np.full(7, 0.2), 500).astype(np.float16)
    expected = floored_logits(p.astype(np.float64), 2.0**-9)
    got = floored_logits(np.array(p, width, order=order), 2.0**-9)
    assert got.dtype == np.float64
    assert got.tobytes() == expected.tobytes()
    assert floored_logits(p[3:4], 2.0**-9).tobytes() == expected[3:4].tobytes()


@given(st.lists(st.lists(probability, min_size=3, max_size=3), max_size=12), st.integers(0, 12))
def test_positives_add_up_over_blocks(rows: list[list[float]], cut: int) -> None:
    values = np.array(rows, np.float64).reshape(-1, 3)
    whole = Positives.of(values)
    assert whole.zeros == sum(x == 0 for row in rows for x in row)
    assert whole.smallest == min((x for row in rows for x in row if x > 0), default=math.inf)
    parts = Positives.of(values[:cut]), Positives.of(values[cut:])
    assert parts[0] + parts[1] == parts[1] + parts[0] == whole
    assert Positives() + whole == whole


# The choice


def by_brute_force(nll: Callable[[float], float], rows: int, classes: int, smallest: float) -> float:
    """The rule of `choose_floor`, with every floor tried."""
    grid = module._floors(classes)
    totals = [rows * nll(f) for f in grid]
    enough = min(totals) + TOLERATED
    keeping = [i for i, f in enumerate(grid) if 2 * f <= 1.1 * smallest] or [len(grid) - 1]
    good = [i for i in keeping if totals[i] <= enough]
    return grid[good[0]] if good else grid[int(np.argmin(totals))]


@given(
    best=st.floats(1, 1074),
    steep=st.floats(0.001, 100),
    left=st.floats(0.1, 10),
    smallest=st.floats(1e-320, 1),
    classes=st.integers(2, 2000),
)
def test_the_search_finds_what_trying_every_floor_finds(
    best: float, steep: float, left: float, smallest: float, classes: int
) -> None:
    def nll(f: float) -> float:
        away = math.log(-math.log2(f) / best)
        return 0.3 + steep * away * away * (left if away < 0 else 1)

    tried = []
    floor = choose_floor(lambda f: tried.append(f) or nll(f), 1000, classes, smallest)
    assert floor == by_brute_force(nll, 1000, classes, smallest)
    assert len(set(tried)) == len(tried) <= 25


def test_where_the_rows_tell_nothing_the_floor_leaves_their_positive_values_alone() -> None:
    assert choose_floor(lambda f: 0.5, 1000, 3, smallest=1 / 15) == 2.0**-5
    assert choose_floor(lambda f: 0.5, 1000, 3, smallest=1e-30) == pytest.approx(5e-31, rel=0.9)
    assert choose_floor(lambda f: 0.5, 1000, 3, smallest=1.0) == 1 / 8  # at most half of chance
    assert choose_floor(lambda f: 0.5, 1000, 100, smallest=1.0) == 1 / 256


def fit(p: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """The floor and the temperature of calibration rows."""

    def nll(f: float) -> float:
        z = floored_logits(p, f)
        return reference.nll(z, labels, reference.temperature(z, labels))

    floor = choose_floor(nll, *p.shape, Positives.of(p).smallest)
    return floor, reference.temperature(floored_logits(p, floor), labels)


def keeps_positives(floor: float, p: np.ndarray) -> bool:
    """Whether the floor leaves (but for a few per cent of the very smallest) every positive probability as it is."""
    return 2 * floor <= 1.1 * Positives.of(p).smallest


@pytest.mark.parametrize("width", [np.float16, np.float32, np.float64])
def test_one_row_many_times_has_a_closed_form(width: type) -> None:
    """p = (.7, .3, 0) and labels 750, 240, 10: p' = (.75, .24, .01) is reached, so beta = ln(.75/.24) / ln(.7/.3)."""
    p = np.tile([0.7, 0.3, 0.0], (1000, 1)).astype(width).astype(np.float64)
    labels = np.repeat([0, 1, 2], [750, 240, 10])
    floor, temperature = fit(p, labels)
    beta = math.log(0.75 / 0.24) / math.log(0.7 / 0.3)
    best_floor = 0.3 * (0.01 / 0.24) ** (1 / beta)
    assert floor == 2.0**-5
    assert abs(math.log2(best_floor / floor)) < 0.5
    assert temperature == pytest.approx(1 / beta, rel=0.02)  # the floor is a power of 2
    assert temperature == pytest.approx(0.7333406, rel=2e-4)  # in every type
    assert reference.nll(floored_logits(p, floor), labels, temperature) == pytest.approx(
        -(0.75 * math.log(0.75) + 0.24 * math.log(0.24) + 0.01 * math.log(0.01)), abs=1e-4
    )


def neighbours(rows: int, seed: int, votes: int = 15) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities like those of kNN: counts of `votes` draws from the truth, from which the label is drawn too."""
    rng = np.random.default_rng(seed)
    truth = rng.dirichlet(np.full(5, 0.15), rows)
    counts = np.stack([rng.multinomial(votes, q) for q in truth])
    return counts / votes, (truth.cumsum(axis=1) > rng.random((rows, 1))).argmax(axis=1)


def test_counts_give_one_result_in_every_storage() -> None:
    p, labels = neighbours(1500, seed=1)
    assert (p[np.arange(1500), labels] == 0).sum() > 20
    expected, temperature = fit(p, labels)
    assert keeps_positives(expected, p)
    for stored in (p.astype(np.float32), p.astype(np.float16), np.round(p, 3), np.exp(np.log(np.maximum(p, 1e-320)))):
        wide = stored.astype(np.float64)
        floor, other = fit(wide / wide.sum(axis=1, keepdims=True), labels)
        assert floor == expected
        assert other == pytest.approx(temperature, rel=2e-3)
    after = floored_logits(p, expected)
    assert reference.ece(after, labels, temperature) < reference.ece(floored_logits(p, 0.0), labels, 1.0)
    assert reference.brier(after, labels, temperature) < reference.brier(floored_logits(p, 0.0), labels, 1.0)


def test_a_sound_model_is_left_as_it_is() -> None:
    """No label had a surprisingly small probability: the temperature is that of the logits, to the last digits."""
    rng = np.random.default_rng(3)
    z = rng.normal(size=(800, 6)) * 3
    q = reference.softmax(z, 1.7)
    labels = (q.cumsum(axis=1) > rng.random((800, 1))).argmax(axis=1)
    floor, temperature = fit(reference.softmax(z, 1.0), labels)
    assert keeps_positives(floor, reference.softmax(z, 1.0))
    assert temperature == pytest.approx(reference.temperature(z, labels), rel=1e-9)


def test_underflow_is_not_taken_at_its_word() -> None:
    """Many labels lie where a careless model says 1e-300: the floor is far above, and the rows are calibrated."""
    rng = np.random.default_rng(4)
    z = rng.normal(size=(1000, 4)) * 4
    p = reference.softmax(z, 1.0)
    labels = (p.cumsum(axis=1) > rng.random((1000, 1))).argmax(axis=1)
    wild = rng.random(1000) < 0.2
    labels[wild] = rng.integers(0, 4, wild.sum())
    p = reference.softmax(60 * z, 1.0)
    floor, temperature = fit(p, labels)
    assert Positives.of(p).smallest < 1e-290
    assert floor > 1e-100
    assert not keeps_positives(floor, p)
    assert reference.nll(floored_logits(p, floor), labels, temperature) < reference.nll(
        floored_logits(p, 5e-324), labels, reference.temperature(floored_logits(p, 5e-324), labels)
    )
    assert reference.ece(floored_logits(p, floor), labels, temperature) < 0.1


def test_rows_of_every_kind_as_logits() -> None:
    """Their softmax is the probabilities; one score per row is that of the second of two classes."""
    logits, single = np.array([[0.5, -1.0, 2.0], [2.0, 3.0, 0.0]]), np.array([0.3, -2.0])
    assert row_logits(logits, "logits", False, None) is logits
    assert np.asarray(row_logits(single, "logits", False, None)).tolist() == [[0.0, 0.3], [0.0, -2.0]]
    shares, chances = softmax(logits, axis=1), np.array([0.2, 0.9])
    for scores, kind, expected in [
        (shares, "probs", shares),
        (np.log(shares), "log-probs", shares),
        (chances, "probs", np.stack([1.0 - chances, chances], axis=1)),
        (np.log(chances), "log-probs", np.stack([1.0 - chances, chances], axis=1)),
    ]:
        found = row_logits(scores, kind, False, None)  # type: ignore[arg-type]
        np.testing.assert_allclose(softmax(np.asarray(found), axis=1), expected, rtol=1e-12)
    assert row_logits(np.array([[0.2, 0.8], [0.6, 0.6]]), "probs", False, None) is None  # one of them is none
    assert row_logits(np.array([0.5, 1.5]), "probs", False, None) is None


def test_scores_in_words_are_shown_in_words() -> None:
    shown = [level_words("sure:words", value) for value in (0.1, 0.25, 0.5, 0.75, 0.9, 0.6)]
    assert shown == ["very low", "low", "medium", "high", "very high", "medium"]
    assert level_words("sure", 0.75) == "0.75"
