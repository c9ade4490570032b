"""Rows that are given more than once never lift a guarantee, however they come twice."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import numpy as np
import pytest
from conftest import Many, load_json, make_model, source, write_dump
from running import drrej as run

import drrej
from drrej.core.reuse import near_keys, repeats

FIT, FIT_LABELS = make_model(1500, 4, 1)
ROWS, LABELS = make_model(1500, 4, 2)
PROMISES = (["--risk", "0.15"], ["--coverage", "0.7"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fitted rejector, fresh rows, and the same rows again in several ways."""
    folder = tmp_path_factory.mktemp("repeated")
    fitted = source(write_dump(folder / "fit.parquet", FIT, FIT_LABELS))
    (folder / "fit.json").write_text(drrej.fit(fitted, drrej.calibrate(fitted)).to_json())
    write_dump(folder / "fresh.parquet", ROWS, LABELS)
    shutil.copy(folder / "fresh.parquet", folder / "copy.parquet")
    write_dump(folder / "double.parquet", ROWS.astype(np.float64), LABELS, layout="list")
    write_dump(folder / "five.parquet", np.repeat(ROWS, 5, axis=0), np.repeat(LABELS, 5))
    write_dump(folder / "errors.parquet", *_errors_again())
    wide = ROWS.astype(np.float64)
    (folder / "link.parquet").symlink_to(folder / "fresh.parquet")
    write_dump(folder / "first.parquet", ROWS[:700], LABELS[:700])
    write_dump(folder / "second.parquet", ROWS[700:], LABELS[700:])
    write_dump(folder / "choose.parquet", *make_model(1500, 4, 3))
    write_dump(folder / "half.parquet", ROWS.astype(np.float16), LABELS)
    write_dump(folder / "shifted.parquet", wide - np.log(np.exp(wide).sum(axis=1, keepdims=True)), LABELS)
    write_dump(folder / "noise.parquet", wide + np.random.default_rng(3).normal(0, 1e-7, wide.shape), LABELS)
    return folder


def _errors_again() -> tuple[np.ndarray, np.ndarray]:
    """The rows, with the right ones three times."""
    right = ROWS.argmax(axis=1) == LABELS
    return np.concatenate([ROWS, ROWS[right], ROWS[right]]), np.concatenate([LABELS, LABELS[right], LABELS[right]])


def _coverage(folder: Path, promise: list[str], *dumps: str) -> float:
    """What is accepted of the fresh rows by the cutoff that these dumps certify."""
    words = ["-r", str(folder / "fit.json"), "--confidence", "0.9", "-o", str(folder / "made.json"), "-f"]
    outcome = run("threshold", *(folder / dump for dump in dumps), *words, *promise)
    assert outcome.code == 0, outcome.err
    rejector = drrej.Rejector.load(folder / "made.json")
    return 1.0 - float(np.mean(rejector.reject(ROWS)))


@pytest.mark.parametrize("promise", PROMISES, ids=["risk", "coverage"])
@pytest.mark.parametrize(
    "dumps",
    [
        ("fresh.parquet", "copy.parquet"),
        ("fresh.parquet", "double.parquet"),
        ("five.parquet",),
        ("errors.parquet",),
        ("fresh.parquet", "half.parquet", "shifted.parquet", "noise.parquet"),
    ],
    ids=["a copy", "another type and layout", "five times", "right rows three times", "stored in other ways"],
)
def test_rows_that_repeat_certify_no_more(folder: Path, promise: list[str], dumps: tuple[str, ...]) -> None:
    once, again = _coverage(folder, promise, "fresh.parquet"), _coverage(folder, promise, *dumps)
    if promise[0] == "--risk":
        assert 0 < again <= once
    else:
        assert again >= once


def test_many_repeats_are_mentioned(folder: Path) -> None:
    words = ["-r", folder / "fit.json", "--risk", "0.15", "--confidence", "0.9"]
    outcome = run("threshold", folder / "five.parquet", *words)
    assert outcome.code == 0
    assert "6000 of 7500 rows have the same scores as another row and count once" in outcome.err
    assert "--group" in outcome.err


def test_what_tells_examples_apart_makes_them_count(folder: Path, tmp_path: Path) -> None:
    words = ["-r", str(folder / "fit.json"), "--risk", "0.15", "--confidence", "0.9", "--group", "id"]
    outcome = run("threshold", folder / "five.parquet", *words, "-o", tmp_path / "r.json")
    assert "count once" not in outcome.err
    assert load_json(tmp_path / "r.json")["threshold"]["rows"] == 7500
    outcome = run("threshold", folder / "five.parquet", *words[:4], "--group", "id")
    assert (outcome.code, "--group requires --confidence" in outcome.err) == (2, True)


def test_promises_that_cannot_allow_for_repeats_are_refused(folder: Path) -> None:
    words = ["-r", str(folder / "fit.json"), "--risk", "0.2", "--coverage", "0.3", "--confidence", "0.9"]
    outcome = run("threshold", folder / "five.parquet", *words)
    assert outcome.code == 2
    assert "6000 of 7500 rows have the same scores as another row, so this guarantee would not hold" in outcome.err


WAYS = {
    "a copy": ("fresh.parquet", "copy.parquet"),
    "a symlink": ("fresh.parquet", "link.parquet"),
    "another type and layout": ("fresh.parquet", "double.parquet"),
    "five times": ("five.parquet",),
    "stored in other ways": ("fresh.parquet", "half.parquet", "shifted.parquet", "noise.parquet"),
    "in two files": ("first.parquet", "second.parquet"),
}
"""The same rows, given in other ways."""

READ_ONCE = ("a symlink", "in two files")


def _evaluated(folder: Path, *dumps: str, more: tuple[str, ...] = ()) -> tuple[drrej.Report, str]:
    """The report on these dumps under a rejector with a certified risk, and what was said."""
    rejector = folder / "judged.json"
    if not rejector.exists():
        words = ["-r", folder / "fit.json", "--risk", "0.15", "--confidence", "0.9", "-o", rejector]
        assert run("threshold", folder / "choose.parquet", *words).code == 0
    out = folder / "report.json"
    outcome = run("evaluate", *(folder / dump for dump in dumps), "-r", rejector, "-o", out, "-f", *more)
    assert outcome.code == 0, outcome.err
    return drrej.Report.from_json(out.read_text()), outcome.err


@pytest.mark.parametrize("way", WAYS)
def test_rows_that_repeat_show_no_more(folder: Path, way: str) -> None:
    """Intervals are no narrower, p-values no smaller and the verdict is the same, whatever way rows come twice."""
    once, _ = _evaluated(folder, "fresh.parquet")
    again, said = _evaluated(folder, *WAYS[way])
    assert (
        ("have the same scores as another row" in said) == (again.repeated_rows is not None) == (way not in READ_ONCE)
    )
    for figure in ("coverage", "accuracy", "risk", "base_accuracy"):
        one, other = once[figure], again[figure]
        assert other["value"] == pytest.approx(one["value"], abs=0.001)
        assert other["upper"] - other["lower"] > 0.99 * (one["upper"] - one["lower"])
    assert once.target is not None
    assert again.target is not None
    (one,), (other,) = once.target.promises, again.target.promises
    assert (one.verdict, other.verdict) == ("inconclusive", "inconclusive")
    assert other.p_value == pytest.approx(one.p_value, rel=0.05)


def test_what_tells_examples_apart_makes_them_count_in_a_report(folder: Path) -> None:
    report, said = _evaluated(folder, "five.parquet", more=("--group", "id"))
    assert report.repeated_rows is None
    assert "same scores" not in said
    once, _ = _evaluated(folder, "fresh.parquet")
    assert report.coverage.upper < once.coverage.upper


@pytest.mark.parametrize("way", [way for way in WAYS if way not in READ_ONCE])
def test_run_certifies_nothing_on_rows_that_repeat(folder: Path, tmp_path: Path, way: str) -> None:
    words = ["--risk", "0.15", "--confidence", "0.9", "-o", tmp_path / "out", "-q"]
    outcome = run("run", *(folder / dump for dump in WAYS[way]), *words)
    assert outcome.code == 2
    assert "have the same scores as another row" in outcome.err


@pytest.mark.parametrize("copy", [ROWS, ROWS.astype(np.float16), ROWS + 1.0], ids=["exact", "float16", "shifted"])
def test_fit_rejector_certifies_nothing_on_rows_that_repeat(copy: np.ndarray) -> None:
    scores, labels = np.concatenate([ROWS, copy.astype(ROWS.dtype)]), np.concatenate([LABELS, LABELS])
    with pytest.raises(drrej.DrrejError, match="have the same scores as another row"):
        drrej.fit_rejector(scores, labels, risk=0.15, confidence=0.9)


@pytest.mark.parametrize("classes", [4, 5, 20])
def test_near_keys_are_those_of_copies_and_of_no_other_rows(classes: int) -> None:
    logits, _ = make_model(20_000, classes, 5)
    assert repeats(near_keys(logits)).mean() < 0.001
    for copy in (logits.astype(np.float16), logits + 1.0, logits + np.float64(1e-7)):
        assert repeats(np.concatenate([near_keys(logits), near_keys(copy)]))[20_000:].mean() > 0.98
    probs = np.exp(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True))
    probs[:100, 2:] = 0.0
    again = repeats(np.concatenate([near_keys(probs, True), near_keys(probs.astype(np.float64) * (1 + 1e-7), True)]))
    assert again[20_000:].mean() > 0.99
    assert near_keys(logits[:, :3]).shape == (20_000, 0)


@pytest.mark.parametrize("noise", [0.0, 1e-7], ids=["exact", "with noise"])
def test_copies_break_no_more_promises_than_single_rows(noise: float, many: Many) -> None:
    """With the true risk a little above the limit every certificate is wrong: 1 in 10 at most, also with copies."""
    rng = np.random.default_rng(0)
    broken, trials = 0, many(60)
    for _ in range(trials):
        logits, labels = _world(rng, 400, 0.1)
        copies = np.repeat(logits, 4, axis=0), np.repeat(labels, 4)
        copies[0][:] += rng.normal(0, noise, copies[0].shape)
        try:
            drrej.fit_rejector(*_world(rng, 400, 0.1), fresh=copies, risk=0.095, confidence=0.9, loss="zero-one")
            broken += 1
        except drrej.Infeasible:
            pass
    assert broken <= 0.1 * trials + 3 * math.sqrt(0.09 * trials)


def _world(rng: np.random.Generator, rows: int, risk: float) -> tuple[np.ndarray, np.ndarray]:
    """Scores that say nothing about errors, which are as many as `risk` says everywhere."""
    margin = rng.normal(3.0, 0.5, size=rows)
    logits = np.column_stack([margin, np.zeros(rows), rng.normal(size=(rows, 2)) - 3.0])
    return logits, (rng.random(rows) < risk).astype(np.int64)
