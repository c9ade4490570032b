"""Exact sums against fractions and math.fsum."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drrej.core import types as exact
from drrej.core.types import Total

finite = st.floats(allow_nan=False, allow_infinity=False)


def exact_sum(values: list[float]) -> Fraction:
    return sum((Fraction(x) for x in values), Fraction(0))


@given(st.lists(finite, min_size=1, max_size=60))
def test_a_sum_is_exact(values: list[float]) -> None:
    """From the largest to the smallest denormal numbers."""
    total = Total.of(np.array(values))
    assert Fraction(total.units, 1 << exact.UNIT_BITS) == exact_sum(values)
    assert total.mean(len(values)) == float(exact_sum(values) / len(values))


@given(st.lists(finite, min_size=1, max_size=60), st.randoms(use_true_random=False))
def test_order_and_grouping_do_not_matter(values: list[float], random: object) -> None:
    whole = Total.of(np.array(values))
    random.shuffle(values)  # type: ignore[attr-defined]
    parts = Total.of(np.array(values[:7])) + Total.of(np.array(values[7:]))
    assert (parts.units, parts.finite) == (whole.units, whole.finite)


def test_many_ordinary_values_agree_with_fsum() -> None:
    rng = np.random.default_rng(3)
    for values in (rng.gamma(0.3, 2.0, 300_000), rng.normal(size=300_000) * 1e6, 10.0 ** rng.uniform(-300, 6, 50_000)):
        assert Total.of(values).mean(1) == math.fsum(values)


def test_blocks_of_a_million_values() -> None:
    values = np.full((1 << 20) + 5, 1048575.999)
    assert Fraction(Total.of(values).units, 1 << exact.UNIT_BITS) == Fraction(1048575.999) * values.size


def test_infinite_and_missing_terms_have_no_mean() -> None:
    for bad in (math.inf, -math.inf, math.nan):
        total = Total.of(np.array([1.0, bad]))
        assert not total.finite
        assert total.mean(2) is None
        assert (Total.of(np.array([1.0])) + total).mean(3) is None
    assert Total.of(np.array([])).mean(0) is None
    assert Total.of(np.array([])).mean(1) == 0.0


def test_a_sum_beyond_the_largest_float_still_has_a_mean() -> None:
    largest = np.finfo(np.float64).max
    assert Total.of(np.array([largest, largest])).mean(2) == largest
    assert Total.of(np.array([largest, largest])).mean(1) is None


@pytest.mark.parametrize("rows", [1, 100, 40_000])
@pytest.mark.parametrize("kind", ["usual", "tiny", "huge", "mixed", "edges"])
def test_sums_are_those_of_fractions(rows: int, kind: str) -> None:
    rng = np.random.default_rng(rows)
    low, high = {"usual": (-6, 3), "tiny": (-320, -15), "huge": (2, 300), "mixed": (-320, 300), "edges": (0, 0)}[kind]
    values = 10.0 ** rng.uniform(low, high, rows) * rng.choice([-1, 1], rows)
    if kind == "edges":
        values = rng.choice([0.0, -0.0, 1024.0, np.nextafter(1024.0, 0), -1023.5, 2.0**-58, 2.0**-1074], rows)
    assert Fraction(Total.of(values).units, 1 << exact.UNIT_BITS) == exact_sum(values.tolist())
