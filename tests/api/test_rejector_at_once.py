"""The quick way of arrays: the same bits as by way of files, its checks, and what it imports."""

from __future__ import annotations

import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import environment, make_model
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import drrej
from drrej.core.calibrators import Temperature, Vector
from drrej.core.one_row import Unusual, row_scores
from drrej.errors import DrrejWarning, DumpError

CLASSES = 5
LOGITS, LABELS = make_model(2000, CLASSES, 3)
NEEDS = frozenset({"runner_up", "squares", "moment"})


def by_files(rejector: drrej.Rejector, scores: Any) -> dict[str, np.ndarray]:
    """What the way of files gives."""
    return rejector._columns(
        scores,
        lambda rows: {
            "prediction": rows.prediction,
            "loss": rows.loss,
            "ratio": rejector.need_ratio().density.ratio(rows.loss),
            "rejected": ~rows.accepted,
        },
    )


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits.astype(float) - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def scores_of(kind: str, logits: np.ndarray) -> np.ndarray:
    if kind == "binary":
        return logits[:, 1] - logits[:, 0]
    if kind == "logits":
        return logits
    with np.errstate(divide="ignore"):
        return softmax(logits) if kind == "probs" else np.log(softmax(logits))


@pytest.mark.parametrize(
    ("loss", "calibrator", "kind"),
    [  # every kind with every loss, and each of both with both calibrators
        (loss, ("temperature", "vector")[(i + j) % 2], kind)
        for i, kind in enumerate(("logits", "probs", "log-probs", "binary"))
        for j, loss in enumerate(("zero-one", "log", "brier", "margin", "logit-margin", "learned"))
    ],
)
def test_rows_alone_and_together_have_the_bits_of_files(loss: str, calibrator: str, kind: str) -> None:
    labels = LABELS > 1 if kind == "binary" else LABELS
    input: Any = "logits" if kind == "binary" else kind
    wide = LOGITS.astype(np.float64) * 1.1
    rejector = drrej.fit_rejector(
        scores_of(kind, wide),
        labels,
        coverage=0.8,
        loss=loss,
        calibrator=calibrator,
        input=input,  # type: ignore[arg-type]
    )
    new = make_model(120, CLASSES, 5)[0]
    mixed = np.concatenate([new.astype(float), new * 1.1, np.round(new.astype(float)), 30 * new.astype(float)])
    for rows in (scores_of(kind, new), scores_of(kind, mixed)):
        expected = by_files(rejector, rows)
        together = rejector.score(rows)
        for name, values in expected.items():
            np.testing.assert_array_equal(getattr(together, name), values)
        for number in range(0, len(rows), 13):
            alone = rejector.score(rows[number : number + 1])
            for name, values in expected.items():
                np.testing.assert_array_equal(getattr(alone, name), values[number : number + 1])


FLOATS = st.floats(-800, 800) | st.floats(-3, 3, width=32) | st.sampled_from([0.0, -0.0, 1.0, 5e-324, 1e300, -1e300])


@settings(max_examples=200, deadline=None)
@given(
    row=st.integers(2, 12).flatmap(lambda k: arrays(np.float64, k, elements=FLOATS)),
    scale=st.floats(0.05, 20),
    vector=st.booleans(),
    precision=st.sampled_from(["auto", "float64"]),
)
def test_the_sums_of_one_row_are_those_of_a_block(row: np.ndarray, scale: float, vector: bool, precision: Any) -> None:
    calibrator: Any = Temperature(scale)
    if vector:
        calibrator = Vector(tuple(scale + 0.1 * k for k in range(row.size)), tuple(0.3 * k for k in range(row.size)))
    with np.errstate(over="ignore"):
        single = row.astype(np.float32)
    for rows in (row, single):
        with np.errstate(all="ignore"):
            block, _ = calibrator.scores(rows[None], NEEDS, precision)
            others = block.log_odds(1.5)
        try:
            one, largest = row_scores(calibrator, rows, NEEDS, precision)
            alone = one.log_odds(1.5)
        except Unusual:
            continue
        assert (one.prediction, one.largest) == (block.prediction[0], block.largest[0])
        assert largest == rows.max()
        for name in ("odds", *NEEDS):
            assert getattr(one.sums, name) == getattr(block.sums, name)[0], name
        assert alone == others[0]


@pytest.mark.parametrize("temperature", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize("width", [np.float32, np.float64])
def test_one_row_near_the_end_of_float32_is_left_to_a_block(temperature: float, width: type) -> None:
    """After the scale: of a low temperature already numbers that are far from it."""
    row = np.array([8e29, -9e29, 0.0, 5.0], width)
    if temperature < 1.0:
        with pytest.raises(Unusual):
            row_scores(Temperature(temperature), row, NEEDS, "auto")
        row = row / width(1e13)
    one, _ = row_scores(Temperature(temperature), row, NEEDS, "auto")
    block, _ = Temperature(temperature).scores(row[None], NEEDS, "auto")
    for name in ("odds", *NEEDS):
        assert getattr(one.sums, name) == getattr(block.sums, name)[0], name


@pytest.mark.parametrize("bad", [np.nan, np.inf, "all -inf", "width"])
def test_bad_rows_are_refused_in_the_words_of_files(bad: Any) -> None:
    rejector = drrej.fit_rejector(LOGITS, LABELS, coverage=0.8)
    for rows in (LOGITS[:1].copy(), LOGITS[:50].copy()):
        if bad == "width":
            rows = rows[:, :-1]
        else:
            rows[-1] = -np.inf if bad == "all -inf" else [*rows[-1][:-1], bad]
        with pytest.raises(DumpError) as told:
            by_files(rejector, rows)
        for method in (rejector.predict, rejector.reject, rejector.score):
            with pytest.raises(DumpError) as quick:
                method(rows)
            assert str(quick.value) == str(told.value)


def test_impossible_classes_and_equal_scores_are_decided_as_in_files() -> None:
    rejector = drrej.fit_rejector(LOGITS, LABELS, coverage=0.8)
    rows = np.array([[2.0, 2.0, -np.inf, 0.0, 0.0], [1.0] * 5, [-np.inf, 3.0, -np.inf, -np.inf, -np.inf]])
    expected = by_files(rejector, rows)
    for number in range(3):
        found = rejector.score(rows[number : number + 1])
        assert [found.loss[0], found.rejected[0]] == [expected["loss"][number], expected["rejected"][number]]


def test_probabilities_taken_for_logits_are_told_to_the_caller() -> None:
    rejector = drrej.fit_rejector(LOGITS, LABELS, coverage=0.8)
    for rows in (softmax(LOGITS[:1]), softmax(LOGITS[:99])):
        for method in (rejector.predict, rejector.reject, rejector.score):
            with pytest.warns(DrrejWarning, match="these are probabilities") as told:
                method(rows)
            assert [each.filename for each in told] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rejector.predict(np.clip(LOGITS, -0.9, 0.9))


def test_cutoffs_by_prediction_and_threads(tmp_path: Path) -> None:
    names = list("abcde")
    rejector = drrej.fit_rejector(LOGITS, np.array(names)[LABELS], coverage=0.8, classes=names)
    chosen = rejector.need_threshold()
    from msgspec.structs import replace

    from drrej.documents.rejector import GroupThreshold

    groups = tuple(
        GroupThreshold(name, None, None if name == "c" else 0.1 * k, 400, 100, 0.25) for k, name in enumerate(names)
    )
    own = replace(rejector, threshold=replace(chosen, by="prediction", tau=None, cutoff=None, groups=groups))
    found, expected = own.score(LOGITS), by_files(own, LOGITS)
    np.testing.assert_array_equal(found.rejected, expected["rejected"])
    assert not found.rejected[found.prediction == "c"].any()
    wrong: list[int] = []

    def work(start: int) -> None:
        for number in range(start, 400, 8):
            one = own.score(LOGITS[number : number + 1])
            some = own.score(LOGITS[number : number + 60])
            if one.loss[0] != expected["loss"][number] or (some.loss != expected["loss"][number : number + 60]).any():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(start,)) for start in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_service_imports_numpy_and_msgspec_alone(tmp_path: Path) -> None:
    drrej.fit_rejector(LOGITS, LABELS, coverage=0.8).save(tmp_path / "r.json")
    code = (
        "import sys, drrej, numpy\n"
        f"r = drrej.Rejector.load({str(tmp_path / 'r.json')!r})\n"
        "r.predict(numpy.zeros((1, 5)) + [3.0, 1, 0, 0, -2]); r.score([[3.0, 1, 0, 0, -2]] * 9)\n"
        "print(*sorted({name.split('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment(), timeout=60)
    assert done.returncode == 0, done.stderr
    assert not set(done.stdout.split()) & {"pyarrow", "typer", "rich", "scipy", "pandas", "pydantic", "click"}


def test_promises_are_decided_as_in_files() -> None:
    """Cutoffs by prediction, with classes of which nothing is rejected or nothing accepted."""
    rejector = drrej.fit_rejector(LOGITS, LABELS, max_missed={"1": 0.2}, accuracy={"0": 0.75, "2": 0.999})
    cutoffs = {group.cutoff for group in rejector.need_threshold().groups or ()}
    assert None in cutoffs
    for rows in (LOGITS[:400], LOGITS[:400].astype(float) * 1.1):
        expected = by_files(rejector, rows)
        np.testing.assert_array_equal(rejector.reject(rows), expected["rejected"])
        alone = [rejector.reject(rows[number : number + 1])[0] for number in range(0, 400, 9)]
        assert alone == expected["rejected"][::9].tolist()


def test_scores_of_any_kind_go_the_way_of_files() -> None:
    trust = np.linspace(0.01, 0.99, 200)
    rejector = drrej.fit_rejector(scores=trust, correct=np.random.default_rng(3).random(200) < trust, coverage=0.5)
    expected = by_files(rejector, trust)
    found = rejector.score(trust)
    for name, values in expected.items():
        np.testing.assert_array_equal(getattr(found, name), values)
    assert [bool(rejector.reject(trust[n : n + 1])[0]) for n in (0, 199)] == [True, False]
    assert rejector.reject([]).size == 0
