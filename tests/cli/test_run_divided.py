"""drrej run on one dump: which rows do what, what is promised by default, and what is said when it cannot be."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import fail, load_json, make_model, read_columns, source, succeed, write_dump
from running import drrej as run

import drrej
from drrej.pipeline.split import SplitOptions, split

DUMP = make_model(1500, 4, seed=11)


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> str:
    who = np.arange(1500) // 5
    return write_dump(tmp_path_factory.mktemp("divided") / "d.parquet", *DUMP, extra={"who": who})


@pytest.mark.parametrize(("words", "shares"), [("", (14, 56, 30)), ("--split 40,20,20,20 --seed 3", (40, 20, 20, 20))])
def test_it_is_the_steps_on_the_parts(tmp_path: Path, dump: str, words: str, shares: tuple[float, ...]) -> None:
    out = tmp_path / "out"
    text = succeed("run", dump, "--accuracy", "0.85", *words.split(), "-o", out, "--quiet", "--verbose").decode()
    assert sorted(os.listdir(out)) == ["mask.parquet", "rejector.json", "report.html", "report.json", "report.txt"]
    parts = split(source(dump), SplitOptions(shares, len(shares) - 2, seed=3 if words else 0))
    rejector = drrej.fit(parts[-3], drrej.calibrate(parts[0]), drrej.RatioOptions(loss="auto"))
    rejector = drrej.threshold(parts[-2], rejector, drrej.Rule("accuracy", 0.85, 0.95))
    assert (out / "rejector.json").read_text() == rejector.to_json()
    assert load_json(out / "report.json") == drrej.evaluate(parts[-1], rejector)
    assert (out / "report.txt").read_text() == text
    mask = read_columns(out / "mask.parquet")
    assert len(mask["id"]) == parts[-1].options.split.rows  # type: ignore[union-attr]
    threshold = load_json(out / "rejector.json")["threshold"]
    assert threshold["rule"] == {
        "kind": "accuracy",
        "target": 0.85,
        "confidence": 0.95,
        "method": "fixed-sequence",
        "reused": False,
    }


def test_the_split_is_said(tmp_path: Path, dump: str) -> None:
    outcome = run("run", dump, "--coverage", "0.7", "-o", str(tmp_path / "out"))
    assert outcome.code == 0
    expected = "1500 rows are divided by their content: 210 to calibrate and fit, 840 to choose, 450 to test"
    assert f"drrej: note: {expected}" in outcome.lines
    assert load_json(tmp_path / "out" / "rejector.json")["threshold"]["rule"]["confidence"] == 0.95
    outcome = run("run", dump, "--coverage", "0.7", "-o", str(tmp_path / "quiet"), "--quiet")
    assert outcome.lines == []


def test_rows_of_a_group_stay_together(tmp_path: Path, dump: str) -> None:
    outcome = run("run", dump, "--accuracy", "0.85", "--group", "who", "-o", str(tmp_path / "out"))
    assert outcome.code == 0
    assert "rows are divided by 'who': 210 to calibrate and fit, 840 to choose, 450 to test" in outcome.err
    assert "assumes independent rows, but those of one 'who' may be alike" in outcome.err
    alone = run("run", dump, "--accuracy", "0.85", "--group", "id", "-o", str(tmp_path / "alone"))
    assert "rows are divided by 'id'" in alone.err
    assert "may be alike" not in alone.err  # each has one row
    _, counts = np.unique(read_columns(tmp_path / "out" / "mask.parquet")["who"], return_counts=True)
    assert set(counts.tolist()) == {5}


def knn(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(probabilities, labels): few different scores, as those of a kNN."""
    rng = np.random.default_rng(seed)
    votes = rng.multinomial(5, [0.5, 0.3, 0.2], size=rows) / 5
    labels = (rng.random((rows, 1)) > votes.cumsum(axis=1)).sum(axis=1).clip(0, 2)
    return votes.astype(np.float32), labels


def test_rows_with_equal_scores_need_a_column_that_tells_them_apart(tmp_path: Path) -> None:
    """Those of a kNN. Kept together they would be drawn as one, and a promise would not hold."""
    votes, labels = knn(1500, 5)
    dump = write_dump(tmp_path / "knn.parquet", votes, labels, extra={"id": np.arange(1500)})
    words = ("run", dump, "--input", "probs", "--accuracy", "0.55", "--loss", "zero-one")
    assert "1479 of 1500 rows have the same scores" in fail(*words, "-q", "--confidence", "0.9", "-o", tmp_path / "no")
    outcome = run(*words, "--group", "id", "-o", str(tmp_path / "out"))
    assert not any("have the same scores as another row" in line for line in outcome.lines)
    assert load_json(tmp_path / "out" / "rejector.json")["threshold"]["rule"]["confidence"] == 0.95
    assert "seen_by" not in load_json(tmp_path / "out" / "report.json")


def test_repeated_rows_stay_together(tmp_path: Path) -> None:
    """Every row twice with its label: what is tested on must not be what was fitted on, and nothing is certified."""
    logits, labels = make_model(600, 4, seed=3)
    twice = np.random.default_rng(0).permutation(np.repeat(np.arange(600), 2))
    dump = write_dump(tmp_path / "twice.parquet", logits[twice], labels[twice], extra={"row": twice})
    words = ("run", dump, "--accuracy", "0.85", "--keep", "row")
    outcome = run(*words, "-o", str(tmp_path / "out"))
    assert any("have the same scores as another row" in line and "--group ID" in line for line in outcome.lines)
    assert "confidence" not in load_json(tmp_path / "out" / "rejector.json")["threshold"]["rule"]
    assert "have the same scores as another row" in fail(
        *words, "-q", "--confidence", "0.9", "-o", str(tmp_path / "no")
    )
    _, counts = np.unique(read_columns(tmp_path / "out" / "mask.parquet")["row"], return_counts=True)
    assert set(counts.tolist()) == {2}


def test_too_few_rows_for_a_guarantee(tmp_path: Path) -> None:
    """The threshold is that of the plain rule, nothing is promised, and how many rows it would take is said."""
    few = write_dump(tmp_path / "few.parquet", *make_model(300, 4, seed=3))
    outcome = run("run", few, "--accuracy", "0.97", "-o", str(tmp_path / "out"))
    (warning,) = [line for line in outcome.lines if "guarantee" in line]
    assert warning.startswith("drrej: warning: --accuracy 0.97 --confidence 0.95 cannot be certified on 160 rows: ")
    assert "it was chosen without a guarantee. About " in warning
    assert warning.endswith("there are 160")
    plain = run("run", few, "--accuracy", "0.97", "--confidence", "0", "-o", str(tmp_path / "plain"))
    assert not any("guarantee" in line for line in plain.lines)
    assert (tmp_path / "out" / "rejector.json").read_text() == (tmp_path / "plain" / "rejector.json").read_text()
    assert load_json(tmp_path / "out" / "rejector.json")["threshold"]["rule"] == {"kind": "accuracy", "target": 0.97}
    words = ["run", few, "--accuracy", "0.97", "--confidence", "0.95", "-o", tmp_path / "no"]
    assert "cannot be certified on 160 rows" in fail(*words, code=1)


def test_too_few_rows_for_a_coverage(tmp_path: Path) -> None:
    few = write_dump(tmp_path / "few.parquet", *make_model(60, 3, seed=3))
    outcome = run("run", few, "--coverage", "0.9", "-o", str(tmp_path / "out"))
    said = "--coverage 0.9 --confidence 0.95 takes at least 29 rows to choose on, and there are 21; it was chosen"
    assert f"drrej: warning: {said} without a guarantee" in outcome.lines
    assert load_json(tmp_path / "out" / "rejector.json")["threshold"]["rule"] == {"kind": "coverage", "target": 0.9}


def test_fresh_rows_beside_val(tmp_path: Path, dump: str) -> None:
    """--choose, or a part of --val, is fresh: a confidence is the default there too."""
    other = write_dump(tmp_path / "other.parquet", *make_model(800, 4, seed=12))
    words = ["run", "--val", dump, "--test", other, "--accuracy", "0.9"]
    hint = "describes the rows it was chosen on, which the fit has seen; for a guarantee on new rows give --split 60,40"
    for more, certified in (([], False), (["--split", "60,40"], True), (["--split", "40,20,40"], True)):
        outcome = run(*words, *more, "-o", str(tmp_path / f"out{len(more)}"), "--force")
        rule = load_json(tmp_path / f"out{len(more)}" / "rejector.json")["threshold"]["rule"]
        assert ("confidence" in rule) == certified
        assert any(hint in line for line in outcome.lines) != certified
    choose = write_dump(tmp_path / "choose.parquet", *make_model(700, 4, seed=13))
    run(*words, "--choose", choose, "-o", str(tmp_path / "chosen"))
    assert load_json(tmp_path / "chosen" / "rejector.json")["threshold"]["rule"]["confidence"] == 0.95


def test_test_rows_that_contradict_the_target(tmp_path: Path, dump: str) -> None:
    """A target that was met where it was chosen, on rows like others, is missed here: exit 1, and all is written."""
    logits, labels = make_model(800, 4, seed=12)
    worse = write_dump(tmp_path / "worse.parquet", logits, np.where(np.arange(800) % 4, labels, (labels + 1) % 4))
    outcome = run(
        "run", "--val", dump, "--test", worse, "--split", "1,1", "--accuracy", "0.9", "-o", str(tmp_path / "o")
    )
    assert outcome.code == 1
    assert load_json(tmp_path / "o" / "report.json")["target"]["verdict"] == "missed"
    assert len(os.listdir(tmp_path / "o")) == 5


def test_without_matplotlib_there_is_no_page(tmp_path: Path, dump: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert run("run", dump, "--coverage", "0.7", "-o", str(tmp_path / "out")).code == 0
    assert sorted(os.listdir(tmp_path / "out")) == ["mask.parquet", "rejector.json", "report.json", "report.txt"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "give one DUMP, which is split, or --val DUMP and --test DUMP"),
        ("--val d.parquet", "give one DUMP, which is split, or --val DUMP and --test DUMP"),
        ("d.parquet --test d.parquet", "--test DUMP, not both"),
        ("d.parquet --split 50", "--split 50: give 3 or 4 shares, of the rows to fit, choose and test (or"),
        ("d.parquet --split 1,2,3,4,5", "give 3 or 4 shares"),
        ("d.parquet --split 1,x,3", "--split 1,x,3: write shares separated by commas"),
        ("d.parquet --split 1,0,3", "--split 1,0,3: give the share of each part, numbers above 0"),
        ("d.parquet --seed -3", "--seed -3: it must be a whole number from 0 up"),
        ("d.parquet --group nobody", "--group: there is no column 'nobody'"),
        ("d.parquet --on-bad-row reject", "--on-bad-row reject requires --test"),
        ("--val d.parquet --test d.parquet --split 1,2,3,4", "give 2 or 3 shares, of the rows to fit and choose (or"),
        ("--val d.parquet --test d.parquet --seed 3", "--seed splits a single DUMP"),
        ("--val d.parquet --test d.parquet --group who", "--group splits a single DUMP"),
        ("--val d.parquet --test d.parquet --choose d.parquet --split 1,1", "leave out --choose"),
    ],
)
def test_what_is_refused(dump: str, monkeypatch: pytest.MonkeyPatch, words: str, said: str) -> None:
    folder = Path(dump).parent
    monkeypatch.chdir(folder)
    before = sorted(os.listdir(folder))
    assert said in fail("run", *words.split(), "--accuracy", "0.9", "-o", "out")
    assert sorted(os.listdir(folder)) == before


def test_standard_input_is_read_once(tmp_path: Path, dump: str) -> None:
    with open(dump, "rb") as stream:
        content = stream.read()
    succeed("run", "-", "--coverage", "0.7", "-q", "-o", tmp_path / "one", stdin=content)
    succeed("run", dump, "--coverage", "0.7", "-q", "-o", tmp_path / "two")
    for name in ("rejector.json", "report.json"):
        assert (tmp_path / "one" / name).read_text() == (tmp_path / "two" / name).read_text()
