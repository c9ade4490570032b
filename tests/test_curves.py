"""The curve as sorted losses against the curve as arrays, and both against counting."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drrej.core import curves
from drrej.core.curves import LossStore, RankedLosses, RiskCoverage

ROWS = st.lists(st.tuples(st.integers(0, 12), st.booleans()), min_size=1, max_size=60)


def split(rows: list[tuple[int, bool]]) -> tuple[np.ndarray, np.ndarray]:
    """Losses of right and of wrong rows."""
    losses, wrong = np.array([loss / 4 for loss, _ in rows]), np.array([wrong for _, wrong in rows])
    return losses[~wrong], losses[wrong]


@pytest.fixture(autouse=True, scope="module")
def short_stretches() -> Iterator[None]:
    """Several stretches in curves of a few rows."""
    patch = pytest.MonkeyPatch()
    patch.setattr(curves, "_STRETCH", 5)
    yield
    patch.undo()


@given(ROWS)
def test_points_are_counts(rows: list[tuple[int, bool]]) -> None:
    right, wrong = split(rows)
    points = RiskCoverage.of(right, wrong)
    everything = np.concatenate([right, wrong])
    assert points.losses.tolist() == sorted(set(everything))
    assert points.accepted.tolist() == [int(np.sum(everything <= loss)) for loss in points.losses]
    assert points.errors.tolist() == [int(np.sum(wrong <= loss)) for loss in points.losses]


@given(ROWS, st.integers(-1, 14), st.fractions(0, 1, max_denominator=50))
def test_sorted_losses_say_what_the_arrays_say(rows: list[tuple[int, bool]], at: int, limit: Fraction) -> None:
    ranked = RankedLosses.of(*split(rows))
    points = ranked.points()
    assert points.points() is points
    for curve in (ranked, points):
        assert (curve.rows, curve.total_errors) == (len(rows), sum(wrong for _, wrong in rows))
        assert curve.range == (points.losses[0], points.losses[-1])
    for cutoff in (at / 4, at / 4 + 0.1, None):
        assert ranked.below(cutoff) == points.below(cutoff)
    for wanted in range(1, len(rows) + 1):
        assert ranked.reaching(wanted) == points.reaching(wanted)
    known = np.array([at / 4, at / 4 + 0.1, 0.5])
    assert ranked.ranks(known, "left").tolist() == points.ranks(known, "left").tolist()
    assert ranked.ranks(known, "right").tolist() == points.ranks(known, "right").tolist()
    held = [
        (int(a), int(e))
        for a, e in zip(points.accepted, points.errors, strict=True)
        if Fraction(int(e), int(a)) <= limit
    ]
    assert ranked.largest_at_risk(limit) == points.largest_at_risk(limit) == (held[-1] if held else (0, 0))
    assert ranked.augrc() == points.augrc()
    assert ranked.aurc() == pytest.approx(points.aurc(), rel=1e-14)


@given(ROWS)
def test_areas_are_sums_of_trapezoids(rows: list[tuple[int, bool]]) -> None:
    points = RankedLosses.of(*split(rows)).points()
    accepted = [Fraction(int(a)) for a in points.accepted]
    errors = [Fraction(int(e)) for e in points.errors]
    risks = [e / a for e, a in zip(errors, accepted, strict=True)]
    widths = [a - b for a, b in zip(accepted, [0, *accepted], strict=False)]
    aurc = sum(w * (r + s) for w, r, s in zip(widths, risks, [risks[0], *risks], strict=False)) / (2 * len(rows))
    augrc = sum(w * (e + f) for w, e, f in zip(widths, errors, [0, *errors], strict=False)) / (2 * len(rows) ** 2)
    assert points.aurc() == pytest.approx(float(aurc), rel=1e-14, abs=1e-300)
    assert points.augrc() == float(augrc)


@given(st.lists(ROWS, min_size=1, max_size=5), st.integers(0, 9))
def test_a_store_keeps_every_loss(blocks: list[list[tuple[int, bool]]], spare: int) -> None:
    """Whatever the blocks, and with room to spare."""
    store = LossStore(sum(map(len, blocks)) + spare)
    for block in blocks:
        store.add(*split(block))
    found, expected = store.ranked(), RankedLosses.of(*split([row for block in blocks for row in block]))
    assert found.ordered.tolist() == expected.ordered.tolist()
    assert found.wrong.tolist() == expected.wrong.tolist()
