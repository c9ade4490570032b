"""Rejectors for arrays: the same documents and the same bits as by way of files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import make_model, make_rejector, source, write_dump, write_mask

import drrej

LOGITS, LABELS = make_model(3000, 4, 3)
NEW, TRUE = make_model(1500, 4, 4)


class HasArray:
    """Something that numpy can read."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self.values.astype(dtype) if dtype else self.values


class HasDlpack:
    """Something that only hands out its memory."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def __dlpack__(self, **options: Any) -> Any:
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.values.__dlpack_device__()


def by_files(tmp_path: Path, rule: tuple[str, float], loss: str) -> tuple[drrej.Rejector, dict[str, np.ndarray], Any]:
    """The same rejector, mask and report by way of parquet."""
    val = source(write_dump(tmp_path / "val.parquet", LOGITS, LABELS))
    test = source(write_dump(tmp_path / "test.parquet", NEW, TRUE))
    rejector = make_rejector(val, rule, drrej.RatioOptions(loss=loss))
    return rejector, write_mask(test, rejector, tmp_path / "mask.parquet"), drrej.evaluate(test, rejector)


@pytest.mark.parametrize("loss", ["log", "zero-one", "learned", "auto"])
def test_the_same_bits_as_by_way_of_files(tmp_path: Path, loss: str) -> None:
    document, mask, report = by_files(tmp_path, ("accuracy", 0.9), loss)
    rejector = drrej.fit_rejector(LOGITS, LABELS, accuracy=0.9, loss=loss)
    assert rejector.document.to_json() == document.to_json()
    scored = rejector.score(NEW)
    for name in ("prediction", "loss", "ratio", "rejected"):
        np.testing.assert_array_equal(getattr(scored, name), mask[name])
    np.testing.assert_array_equal(rejector.reject(NEW), mask["rejected"])
    assert rejector.evaluate(NEW, TRUE).to_json() == report.to_json()


@pytest.mark.parametrize("wrap", [np.asarray, np.ndarray.tolist, HasArray, HasDlpack, np.asfortranarray])
def test_whatever_holds_the_numbers(wrap: Any) -> None:
    wide = LOGITS.astype(np.float64)  # as a list holds them
    expected = drrej.fit_rejector(wide, LABELS, coverage=0.7).document.to_json()
    assert drrej.fit_rejector(wrap(wide), wrap(LABELS), coverage=0.7).document.to_json() == expected


def test_torch_tensors_even_those_that_are_trained() -> None:
    torch = pytest.importorskip("torch")
    expected = drrej.fit_rejector(LOGITS, LABELS, coverage=0.7).document
    tensor = torch.tensor(LOGITS, requires_grad=True)
    assert drrej.fit_rejector(tensor, torch.tensor(LABELS), coverage=0.7).document == expected


def test_probabilities_and_class_names(tmp_path: Path) -> None:
    p = np.exp(LOGITS - LOGITS.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    names = ["ant", "bee", "cat", "dog"]
    rejector = drrej.fit_rejector(p, np.array(names)[LABELS], input="probs", classes=names, coverage=0.8)
    predicted, rejected = rejector.predict(p)
    assert predicted.tolist() == [names[k] for k in p.argmax(axis=1)]
    assert rejected.mean() == pytest.approx(0.2, abs=0.01)
    rejector.save(tmp_path / "r.json")
    again = drrej.ArrayRejector.load(tmp_path / "r.json")
    assert again == rejector
    np.testing.assert_array_equal(again.reject(p), rejected)


def test_one_score_per_row_is_a_binary_classifier() -> None:
    logits, labels = make_model(800, 2, 9)
    score = logits[:, 1] - logits[:, 0]
    rejector = drrej.fit_rejector(score, labels, coverage=0.6)
    assert rejector.document.binary
    np.testing.assert_array_equal(rejector.predict(score)[0], (score > 0).astype(int))


def test_a_promise_uses_half_of_the_rows_to_choose() -> None:
    order = np.random.default_rng(0).permutation(len(LABELS))
    rejector = drrej.fit_rejector(LOGITS, LABELS, accuracy=0.9, confidence=0.9)
    chosen = rejector.document.need_threshold()
    assert chosen.rows == len(LABELS) // 2
    assert chosen.rule.confidence == 0.9
    assert chosen.rule.reused is False
    assert drrej.fit_rejector(LOGITS[order], LABELS[order], accuracy=0.9, confidence=0.9) == rejector


@pytest.mark.parametrize(
    ("scores", "labels", "options", "said"),
    [
        (LOGITS[0], LABELS, {}, "rows of scores but"),
        (LOGITS[None], LABELS, {}, r"scores have the shape \(1, 3000, 4\)"),
        (LOGITS.astype(str), LABELS, {}, "scores are <U"),
        (LOGITS, np.eye(4)[LABELS], {}, "not one-hot"),
        (LOGITS, LABELS + 1, {}, "label outside 0 to 3"),
        (np.where(np.arange(3000)[:, None] == 7, np.nan, LOGITS), LABELS, {}, "row 7, counted from 0"),
        (LOGITS, LABELS, {"risk": 0.1}, "exactly one of"),
        (LOGITS, LABELS, {"coverage": None, "accuracy": 98}, "above 0 and at most 1"),
        ([[1.0, 2.0], [1.0]], [0, 1], {}, "scores cannot be read as an array"),
    ],
)
def test_bad_arrays_get_plain_errors(scores: Any, labels: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(drrej.DrrejError, match=said):
        drrej.fit_rejector(scores, labels, **({"coverage": 0.8} | options))


def test_the_document_is_that_of_the_command_line(tmp_path: Path) -> None:
    rejector = drrej.fit_rejector(LOGITS, LABELS, coverage=0.8)
    tree = json.loads(rejector.document.to_json())
    assert tree["columns"] == {"logits": "logits", "label": "label"}
    mask = write_mask(source(write_dump(tmp_path / "d.parquet", NEW, TRUE)), rejector.document, tmp_path / "m.parquet")
    np.testing.assert_array_equal(mask["rejected"], rejector.reject(NEW))
