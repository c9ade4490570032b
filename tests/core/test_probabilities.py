"""Rows of probabilities: their rounding, their sums, and what is wrong with them."""

from __future__ import annotations

import doctest
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drrej.core import inputs as module
from drrej.core import inputs as score_kinds
from drrej.core.inputs import (
    ScoreLook,
    Verdict,
    are_log_probabilities,
    read_binary_probabilities,
    read_log_probabilities,
    read_probabilities,
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


@pytest.mark.parametrize("tested", [module, score_kinds])
def test_doctests(tested: object) -> None:
    results = doctest.testmod(tested)
    assert results.failed == 0
    assert results.attempted >= 2


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
    (bad,) = read.bad_rows()
    assert bad.rows.tolist() == [1]
    assert "`input=probs`" not in bad.remedy
    assert ("logits" in bad.remedy) == (verdict in (Verdict.NEGATIVE, Verdict.ABOVE_ONE))  # others are no logits


@pytest.mark.parametrize("name", GOOD)
def test_good_rows(name: str) -> None:
    read = read_probabilities(np.array([GOOD[name]]))
    assert read.verdicts.tolist() == [Verdict.GOOD]
    assert list(read.bad_rows()) == []
    assert math.fsum(read.values[0]) == pytest.approx(1, abs=1e-15)
    assert read.values[0].argmax() == np.argmax(GOOD[name])


def test_the_sum_of_the_first_bad_row_is_told() -> None:
    (bad,) = read_probabilities(np.array([[0.5, 0.5], [0.5, 0.625], [0.25, 0.25]])).bad_rows()
    assert bad.example == "its sum is 1.125"
    assert "`normalize=True`" in bad.remedy


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
    assert read.verdicts.tolist() == [0, 0, 0, 0, Verdict.NEGATIVE, Verdict.ABOVE_ONE, Verdict.NOT_FINITE]
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
    assert whole == ScoreLook(len(finite), len(inside), len(summing), len(hundreds))


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
    assert {"probabilities", "unit interval", "scaled"} == set(score_kinds.REASONS) == set(score_kinds.REMEDIES)


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
