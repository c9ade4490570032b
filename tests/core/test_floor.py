"""The floor of probabilities: what it does to values, and how it is chosen."""

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

from drrej.core import inputs as module
from drrej.core.inputs import TOLERATED, FloorChoice, Positives, choose_floor, floored, floored_logits

probability = st.one_of(st.floats(0, 1), st.floats(0, 1e-6), st.just(0.0), st.floats(0, 1e-300))
exponent = st.integers(1, 1074)


def test_doctests() -> None:
    results = doctest.testmod(module)
    assert results.failed == 0
    assert results.attempted >= 4


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

    choice = choose_floor(nll, 1000, classes, smallest)
    assert choice.floor == by_brute_force(nll, 1000, classes, smallest)
    assert choice.nll == pytest.approx(nll(choice.floor), rel=1e-12)
    assert choice.trials <= 25


def test_where_the_rows_tell_nothing_the_floor_leaves_their_positive_values_alone() -> None:
    flat = choose_floor(lambda f: 0.5, 1000, 3, smallest=1 / 15)
    assert flat == FloorChoice(2.0**-5, 0.5, True, flat.trials)
    assert choose_floor(lambda f: 0.5, 1000, 3, smallest=1e-30).floor == pytest.approx(5e-31, rel=0.9)
    assert choose_floor(lambda f: 0.5, 1000, 3, smallest=1.0).floor == 1 / 8  # at most half of chance
    assert choose_floor(lambda f: 0.5, 1000, 100, smallest=1.0).floor == 1 / 256


def fit(p: np.ndarray, labels: np.ndarray) -> tuple[FloorChoice, float]:
    """The floor and the temperature of calibration rows."""

    def nll(f: float) -> float:
        z = floored_logits(p, f)
        return reference.nll(z, labels, reference.temperature(z, labels))

    choice = choose_floor(nll, *p.shape, Positives.of(p).smallest)
    return choice, reference.temperature(floored_logits(p, choice.floor), labels)


@pytest.mark.parametrize("width", [np.float16, np.float32, np.float64])
def test_one_row_many_times_has_a_closed_form(width: type) -> None:
    """p = (.7, .3, 0) and labels 750, 240, 10: p' = (.75, .24, .01) is reached, so beta = ln(.75/.24) / ln(.7/.3)."""
    p = np.tile([0.7, 0.3, 0.0], (1000, 1)).astype(width).astype(np.float64)
    labels = np.repeat([0, 1, 2], [750, 240, 10])
    choice, temperature = fit(p, labels)
    beta = math.log(0.75 / 0.24) / math.log(0.7 / 0.3)
    best_floor = 0.3 * (0.01 / 0.24) ** (1 / beta)
    assert choice.floor == 2.0**-5
    assert abs(math.log2(best_floor / choice.floor)) < 0.5
    assert temperature == pytest.approx(1 / beta, rel=0.02)  # the floor is a power of 2
    assert temperature == pytest.approx(0.7333406, rel=2e-4)  # in every type
    assert choice.nll == pytest.approx(
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
    assert expected.keeps_positives
    for stored in (p.astype(np.float32), p.astype(np.float16), np.round(p, 3), np.exp(np.log(np.maximum(p, 1e-320)))):
        wide = stored.astype(np.float64)
        choice, other = fit(wide / wide.sum(axis=1, keepdims=True), labels)
        assert choice.floor == expected.floor
        assert other == pytest.approx(temperature, rel=2e-3)
    after = floored_logits(p, expected.floor)
    assert reference.ece(after, labels, temperature) < reference.ece(floored_logits(p, 0.0), labels, 1.0)
    assert reference.brier(after, labels, temperature) < reference.brier(floored_logits(p, 0.0), labels, 1.0)


def test_a_sound_model_is_left_as_it_is() -> None:
    """No label had a surprisingly small probability: the temperature is that of the logits, to the last digits."""
    rng = np.random.default_rng(3)
    z = rng.normal(size=(800, 6)) * 3
    q = reference.softmax(z, 1.7)
    labels = (q.cumsum(axis=1) > rng.random((800, 1))).argmax(axis=1)
    choice, temperature = fit(reference.softmax(z, 1.0), labels)
    assert choice.keeps_positives
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
    choice, temperature = fit(p, labels)
    smallest = Positives.of(p).smallest
    assert smallest < 1e-290
    assert choice.floor > 1e-100
    assert not choice.keeps_positives
    assert choice.nll < reference.nll(
        floored_logits(p, 5e-324), labels, reference.temperature(floored_logits(p, 5e-324), labels)
    )
    assert reference.ece(floored_logits(p, choice.floor), labels, temperature) < 0.1
