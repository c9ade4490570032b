"""The paper's bounds with their conditions."""

from __future__ import annotations

import math

import pytest

from drrej.core.ratio_error import bounds


def test_theorem_4_3_at_the_value_of_the_notes() -> None:
    """lambda = 1, ten classes, 10 000 rows and as many points: the bound is 251, which says nothing."""
    ratio, variation = bounds(1.0, 1.0, math.log(10), 10_000, 2.0)
    assert ratio.theorem == "theorem 4.3"
    assert ratio.value == pytest.approx(251, abs=0.5)
    assert ratio.value == pytest.approx(1000 * math.sinh(math.log(10)) * math.sqrt(2e-4 * math.log(20_000 / 0.05)))
    assert ratio.holds
    assert ratio.vacuous
    assert variation.vacuous


def test_theorem_4_9_needs_a_large_lambda() -> None:
    for lam in (1.0, 2 * math.log(10)):
        ratio, variation = bounds(3.0, lam, math.log(10), 10_000, 2.0)
        assert (ratio.value, ratio.holds, ratio.vacuous) == (None, False, False)
        assert "lambda above 2 B" in ratio.condition
        assert not variation.holds
    ratio, _ = bounds(3.0, 5.0, math.log(10), 10_000, 2.0)
    assert ratio.theorem == "theorem 4.9"
    assert ratio.value == pytest.approx(math.log(10) / 5 * math.sqrt(2e-4 * math.log(20_000 / 0.05)))
    assert ratio.holds
    assert not ratio.vacuous


def test_few_rows_are_vacuous_and_huge_exponents_are_no_number() -> None:
    assert bounds(3.0, 5.0, 1.0, 3, 1.0)[0].vacuous
    ratio, _ = bounds(1.0, 1e-3, math.log(10), 10_000, 2.0)
    assert (ratio.value, ratio.vacuous) == (None, True)


def test_total_variation_adds_the_error_of_the_ratio_and_of_the_data() -> None:
    _, variation = bounds(3.0, 5.0, 1.0, 100, 1.5)
    log = math.log(4 * 100 / 0.05)
    expected = 50 * (0.2 * math.sqrt(2 / 100 * log) + 1.5 * math.sqrt(log / 200))
    assert variation.value == pytest.approx(expected)
    assert variation.vacuous


def test_other_alphas_and_unbounded_losses_have_no_bound() -> None:
    assert bounds(2.0, 1.0, 1.0, 100, 1.0) == []
    ratio, variation = bounds(1.0, 1.0, None, 100, 1.0)
    assert not ratio.holds
    assert not variation.holds
    assert ratio.value is None
