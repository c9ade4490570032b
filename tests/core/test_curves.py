"""The risk-coverage curve against counting."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad

from drrej.core import curves
from drrej.core.curves import Curve

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
    assert curve.range == (everything[0], everything[-1])
    assert curve.below(None) == (len(rows), wrong.size)
    for cutoff in (at / 4, at / 4 + 0.1):
        assert curve.below(cutoff) == (int(np.sum(everything < cutoff)), int(np.sum(wrong < cutoff)))
    known = np.array([at / 4, at / 4 + 0.1, 0.5])
    assert curve.ranks(known, "left").tolist() == [int(np.sum(everything < loss)) for loss in known]
    assert curve.ranks(known, "right").tolist() == [int(np.sum(everything <= loss)) for loss in known]
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
