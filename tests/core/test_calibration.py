"""When calibration has made its own rows worse."""

from __future__ import annotations

import doctest
import math

import numpy as np
import pytest
import reference

from drrej.core import calibration as module
from drrej.core.calibration import CalibrationTally, Rises, calibration_tallies, rises
from drrej.core.calibrators import Temperature
from drrej.documents.rejector import BeforeAfter, Calibration
from drrej.documents.words import worse_figures


def test_doctests() -> None:
    results = doctest.testmod(module)
    assert results.failed == 0
    assert results.attempted >= 2


@pytest.mark.parametrize("rows", [40, 70_000])
def test_figures_of_all_rows_and_of_parts(rows: int) -> None:
    """Also of more rows than are looked at at once."""
    rng = np.random.default_rng(rows)
    logits = rng.normal(size=(rows, 5)) * 2.0
    labels = np.where(rng.random(rows) < 0.6, logits.argmax(axis=1), rng.integers(0, 5, rows))
    part = rng.random(rows) < 0.3
    scores, _ = Temperature(1.7).scores(logits, frozenset({"squares"}), "auto")
    of_part, of_others, of_all = calibration_tallies(scores, labels, part, ~part, None)
    for tally, chosen in ((of_part, part), (of_others, ~part), (of_all, np.ones(rows, bool))):
        assert tally.rows == np.count_nonzero(chosen)
        for name in ("nll", "ece", "brier"):
            expected = getattr(reference, name)(logits[chosen], labels[chosen], 1.7)
            assert tally.figures[name] == pytest.approx(expected, rel=1e-7), name
        largest = reference.softmax(logits[chosen], 1.7).max(axis=1)
        assert tally.mean_confidence == pytest.approx(largest.mean(), rel=1e-8)
    assert (of_part + of_others).figures == of_all.figures
    assert CalibrationTally().mean_confidence is None


def risen(logits: np.ndarray, labels: np.ndarray, temperature: float) -> Rises:
    """What the temperature made worse."""
    ece, brier = (
        (figure(logits, labels, 1.0), figure(logits, labels, temperature))
        for figure in (reference.ece, reference.brier)
    )
    return rises(ece, brier, labels.size)


@pytest.mark.parametrize(("classes", "spread"), [(2, 3.0), (10, 4.0)])
@pytest.mark.parametrize("rows", [50, 1000])
def test_a_calibrated_model_gives_no_warning(rows: int, classes: int, spread: float) -> None:
    rng = np.random.default_rng(rows)
    for _ in range(25):
        logits = rng.normal(size=(rows, classes)) * spread
        p = reference.softmax(logits, 1.0)
        labels = (p.cumsum(axis=1) > rng.random((rows, 1))).argmax(axis=1)
        assert risen(logits, labels, reference.temperature(logits, labels)) == {}


def test_zeros_at_labels_with_a_tiny_floor_give_one() -> None:
    """Some labels have a probability of 1e-45: the NLL wants a hot temperature that spoils all other rows."""
    rng = np.random.default_rng(0)
    p = np.full((2000, 3), 1e-45)
    p[:, 0], p[:, 1] = 0.9, 0.1
    labels = rng.choice(3, 2000, p=[0.88, 0.1, 0.02])
    logits = np.log(p)
    found = risen(logits, labels, reference.temperature(logits, labels))
    assert list(found) == ["ECE", "Brier score"]
    ece, brier = (BeforeAfter(*found[name]) for name in found)
    text = worse_figures(Calibration("temperature", 3.0, rows=2000, ece=ece, brier=brier, floor=1e-45))
    assert text is not None
    assert "`temperature=1`" in text
    assert "`floor` other than 1e-45" in text
    assert "\n" not in text


def test_limits() -> None:
    """s = sqrt(0.08 / 800) = 0.01: the ECE may rise by 0.015 and the Brier score by 0.003."""
    assert rises((0.05, 0.0649), (0.08, 0.0829), 400) == {}
    assert rises((0.05, 0.0651), (0.08, 0.08), 400) == {"ECE": (0.05, 0.0651)}
    assert rises((0.05, 0.05), (0.08, 0.0831), 400) == {"Brier score": (0.08, 0.0831)}
    many = 10**9
    assert rises((0.05, 0.0519), (0.08, 0.0804), many) == {}
    assert len(rises((0.05, 0.0521), (0.08, 0.0806), many)) == 2


def test_undefined_figures_say_nothing() -> None:
    assert rises((None, 1.0), (None, 2.0), 10) == rises((0.0, None), (0.0, None), 10) == {}
    assert rises((None, None), (None, None), 0) == {}
    assert math.isfinite(module.ECE_LIMIT)
