"""Expected losses against mpmath, and the bits of a row whatever surrounds it."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from conftest import thorough
from hypothesis import given
from hypothesis import strategies as st
from reference import mp_losses

from drrej.core import softmax
from drrej.core.losses import PLAIN as LOSSES
from drrej.core.losses import expected_losses
from drrej.core.softmax import GapSums, block_sums
from drrej.core.types import Precision

ALL_SUMS = frozenset(GapSums.__annotations__) - {"odds"}

CLASSES = [2, 3, 10, 31, 32, 33, 100, 1000, 5000]


def rows_of_every_kind(classes: int, seed: int) -> np.ndarray:
    """Plain rows, rows with losses from 1e-30 on, ties at the top, impossible classes, huge gaps."""
    rng = np.random.default_rng(seed)
    plain = rng.normal(size=(2, classes)) * 3
    sure = rng.normal(size=(4, classes)) * 0.5
    sure[:, 0] += [20.0, 40.0, 55.0, 66.0]
    tied = np.zeros((2, classes))
    tied[0, -2:] = 9.5
    impossible = rng.normal(size=(2, classes))
    impossible[0, 1:] = -np.inf
    impossible[1, classes // 2 :] = -np.inf
    huge = rng.normal(size=(2, classes))
    huge[0, -1] = 3e38
    huge[1, :] = -3e38
    huge[1, 0], huge[1, -1] = 3e38, 3e38
    return np.concatenate([plain, sure, tied, impossible, huge])


def largest_errors(
    logits: np.ndarray, temperature: float, exact: list[dict[str, mp.mpf]], precision: str = "auto"
) -> float:
    """The largest relative error over rows and losses; losses below 1e-32 need only be that small."""
    worst = 0.0
    for loss in LOSSES:
        for value, row in zip(expected_losses(logits, loss, temperature, precision), exact, strict=True):
            if row[loss] < 1e-32:
                assert value <= 1e-32
            else:
                worst = max(worst, float(abs(mp.mpf(float(value)) - row[loss]) / row[loss]))
    return worst


def mp_rows(logits: np.ndarray, temperature: float) -> list[dict[str, mp.mpf]]:
    # The reference has beta in float64 for every storage type: the rounding of beta counts as an error.
    return [mp_losses(row, 1 / temperature) for row in logits.astype(np.float64).tolist()]


@pytest.mark.parametrize("classes", [*CLASSES[:-1], thorough(CLASSES[-1])])
def test_losses_agree_with_mpmath(classes: int) -> None:
    logits = rows_of_every_kind(classes, classes).astype(np.float32)[:: 1 if classes < 1000 else 3]
    exact = mp_rows(logits, 1.7)
    assert largest_errors(logits, 1.7, exact) < 2e-5
    assert largest_errors(logits, 1.7, exact, "float64") < 1e-12
    half = logits[:2].astype(np.float16)
    assert largest_errors(half, 1.7, mp_rows(half, 1.7)) < 2e-5
    double = logits[:2].astype(np.float64) + 1e-9  # float64 numbers are not rounded to float32 on the way
    assert largest_errors(double, 1.7, mp_rows(double, 1.7)) < 1e-12


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.88256, 10.0])
def test_a_row_of_loss_1e_30_keeps_its_digits(temperature: float) -> None:
    rng = np.random.default_rng(5)
    gaps = np.linspace(1, 69, 40)
    logits = (rng.normal(size=(40, 10)) * 0.3 - gaps[:, None]) * temperature
    logits[:, 3] = 0
    logits = logits.astype(np.float32)
    exact = mp_rows(logits, temperature)
    assert min(row["zero-one"] for row in exact) < 1e-28
    assert largest_errors(logits, temperature, exact) < 2e-5
    assert largest_errors(logits, temperature, exact, "float64") < 1e-12


def test_confident_rows_do_not_tie() -> None:
    """Where 1 - max p of a float32 softmax is 0 for all of them."""
    logits = np.zeros((50, 10), np.float32)
    logits[:, 4] = np.linspace(30, 80, 50)
    for loss in LOSSES:
        values = expected_losses(logits, loss)
        assert (np.diff(values) < 0).all()
        assert values.min() > 0


def test_ties_go_to_the_lowest_class() -> None:
    for classes in (2, 31, 32, 100):
        logits = np.zeros((3, classes))
        logits[1, [1, classes - 1]] = 2.0
        logits[2, classes - 1] = 2.0
        prediction, _, _ = block_sums(logits, [1.0], [frozenset({"moment"})])
        assert prediction.tolist() == [0, 1, classes - 1]


@pytest.mark.parametrize("classes", [5, 40])
def test_bad_rows_are_seen_by_their_largest_logit(classes: int) -> None:
    logits = np.zeros((5, classes))
    logits[1, 2] = np.nan
    logits[2, 3] = np.inf
    logits[3] = -np.inf
    logits[4, 1:] = -np.inf
    _, largest, _ = block_sums(logits, [1.0], [frozenset({"moment"})])
    assert np.isfinite(largest).tolist() == [True, False, False, False, True]


def test_uniform_rows_have_the_largest_loss() -> None:
    for classes in (2, 7, 32, 1000):
        uniform = np.full((1, classes), 3.25)
        largest = {"log": math.log(classes), "margin": 1.0, "logit-margin": 1.0}
        for name in LOSSES:
            expected = largest.get(name, 1.0 - 1.0 / classes)
            assert expected_losses(uniform, name)[0] == pytest.approx(expected, rel=1e-6)


# The result of a row depends on that row alone


@st.composite
def blocks(draw: st.DrawFn) -> np.ndarray:
    classes = draw(st.sampled_from([2, 3, 7, 8, 9, 31, 32, 33, 65, 130]))
    rows = draw(st.integers(1, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    scale = draw(st.sampled_from([0.1, 3.0, 40.0]))
    logits = (rng.normal(size=(rows, classes)) * scale).astype(np.float32)
    if draw(st.booleans()):
        logits[rng.random(logits.shape) < 0.2] = -np.inf
        logits[:, 0] = 0
    if draw(st.booleans()):
        logits[rng.integers(rows)] = np.round(logits[rng.integers(rows)])  # ties
    return logits


def all_sums(logits: np.ndarray, precision: str = "auto") -> list[np.ndarray]:
    prediction, largest, sums = block_sums(logits, [0.37, 1.0], [ALL_SUMS] * 2, precision)
    arrays = [prediction, largest]
    for at in sums:
        arrays += [at.odds, at.moment, at.squares, at.second_moment, at.runner_up]
    return arrays


def same_bits(a: list[np.ndarray], b: list[np.ndarray]) -> bool:
    return all((x + 0.0).tobytes() == (y + 0.0).tobytes() for x, y in zip(a, b, strict=True))  # + 0.0: one zero


@given(blocks(), st.data())
def test_rows_have_the_same_bits_whatever_surrounds_them(logits: np.ndarray, data: st.DataObject) -> None:
    together = all_sums(logits)
    order = np.random.default_rng(data.draw(st.integers(0, 99))).permutation(len(logits))
    assert same_bits([a[order] for a in together], all_sums(logits[order]))
    alone = [all_sums(row[None]) for row in logits]
    assert same_bits(together, [np.concatenate(parts) for parts in zip(*alone, strict=True)])


@given(blocks(), st.integers(1, 5000))
def test_rows_have_the_same_bits_in_any_chunk(logits: np.ndarray, size: int) -> None:
    expected = all_sums(logits)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(softmax, "_CHUNK_BYTES", size)
        assert same_bits(expected, all_sums(logits))


@given(blocks())
def test_rows_have_the_same_bits_in_any_memory_order_and_storage_type(logits: np.ndarray) -> None:
    expected = all_sums(logits)
    assert same_bits(expected, all_sums(np.asfortranarray(logits)))
    assert same_bits(expected, all_sums(np.repeat(logits, 2, axis=1)[:, ::2]))
    assert same_bits(expected, all_sums(logits.astype(np.float64)))
    with np.errstate(over="ignore"):
        half = logits.astype(np.float16)
    assert same_bits(all_sums(half), all_sums(half.astype(np.float32)))


@given(blocks(), st.data())
def test_a_row_that_needs_float64_does_not_change_the_others(logits: np.ndarray, data: st.DataObject) -> None:
    mixed = logits.astype(np.float64)
    rows = data.draw(st.lists(st.integers(0, len(logits) - 1), unique=True))
    mixed[rows, 0] += 1e-11
    together = all_sums(mixed)
    assert same_bits(together, [np.concatenate(p) for p in zip(*(all_sums(r[None]) for r in mixed), strict=True)])
    others = np.setdiff1d(np.arange(len(logits)), rows)
    assert same_bits([a[others] for a in together], [a[others] for a in all_sums(logits)])
    assert same_bits([a[rows] for a in together], [a[rows] for a in all_sums(mixed, "float64")])


def test_long_rows_are_summed_in_pieces_of_fixed_length() -> None:
    """Beyond 10 000 values a BLAS dot may be split between threads."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(3, 30_000)).astype(np.float32)
    together = all_sums(logits)
    assert same_bits(together, [np.concatenate(p) for p in zip(*(all_sums(r[None]) for r in logits), strict=True)])
    p = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    np.testing.assert_allclose(together[7], p.sum(axis=1) - 1, rtol=1e-6)


@pytest.mark.parametrize("precision", ["auto", "float64"])
@pytest.mark.parametrize("classes", [3, 6, 10, 31, 32, 100])
def test_the_order_of_the_classes_does_not_matter(classes: int, precision: Precision) -> None:
    """To the bit: else rows with the same probabilities for other classes would not tie."""
    rng = np.random.default_rng(classes)
    for logits in (
        4.0 * rng.standard_normal((300, classes)).astype(np.float32),
        4.0 * rng.standard_normal((300, classes)),
        np.log(rng.multinomial(15, np.full(classes, 1 / classes), 300) / 15 + 1e-4),
        30.0 * rng.standard_normal((300, classes)) + 1e4,
    ):
        moved = np.take_along_axis(logits, rng.permuted(np.tile(np.arange(classes), (300, 1)), axis=1), axis=1)
        for name in LOSSES:
            of_rows = expected_losses(logits, name, 1.3, precision)
            assert of_rows.tobytes() == expected_losses(moved, name, 1.3, precision).tobytes(), name


def test_sums_between_two_float32_numbers_are_told() -> None:
    """Terms that float64 drops one by one say together how the sum is rounded."""
    terms = np.array([1.0, 2.0**-24 - 2.0**-38, *[2.0**-54] * 8])
    one_by_one, together = sum(terms.tolist()), math.fsum(terms)
    sums, ambiguous = softmax.rounded(np.array([one_by_one, together, 1.0]), terms.size)
    assert sums.tolist() == [1 + 2.0**-23] * 2 + [1.0]
    assert ambiguous.tolist() == [True, True, False]
    rounded = (np.array([one_by_one, together]) * softmax.NUDGE).astype(np.float32)
    assert rounded.tolist() == [1.0, 1 + 2.0**-23]


@pytest.mark.parametrize("classes", [3, 31, 32, 100])
def test_sums_in_ascending_order_are_rounded_alike(classes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    logits = 4.0 * np.random.default_rng(classes).standard_normal((20_000, classes)).astype(np.float32)
    needs = frozenset({"squares", "moment", "second_moment", "runner_up"})
    usual = softmax.block_sums(logits, [0.7, 1.0], [needs, needs])
    every_second = np.arange(len(logits)) % 2 == 1
    monkeypatch.setattr(softmax, "rounded", lambda sums, classes: (sums.astype(np.float32), every_second))
    ordered = softmax.block_sums(logits, [0.7, 1.0], [needs, needs])
    for expected, found in zip(usual[2], ordered[2], strict=True):
        for name, values in vars(expected).items():
            assert values[1::2].tobytes() == getattr(found, name)[1::2].tobytes(), name
