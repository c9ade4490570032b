"""`evaluate` tells when steps that made the rejector have used some of its rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import ROOT, make_model, write_dump
from running import drrej as run

import drrej
from drrej.errors import DrrejWarning
from drrej.pipeline.fit import uncalibrated

WARNING = "drrej: warning: some of these rows were used by "
STEPS = ("calibrate", "fit", "threshold")


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A dump of its own for each step, and fresh rows."""
    folder = tmp_path_factory.mktemp("seen")
    made = {}
    for number, name in enumerate((*STEPS, "fresh")):
        made[name] = write_dump(folder / f"{name}.parquet", *make_model(400, 4, seed=number + 10))
    return made


def source(path: str) -> drrej.Source:
    return drrej.Source([path])


@pytest.fixture(scope="module")
def rejector(dumps: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    fitted = drrej.fit(source(dumps["fit"]), drrej.calibrate(source(dumps["calibrate"])))
    finished = drrej.threshold(source(dumps["threshold"]), fitted, drrej.Rule("risk", 0.1))
    path = tmp_path_factory.mktemp("made") / "r.json"
    path.write_text(finished.to_json())
    return path


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("labels", [True, False])
def test_rows_of_each_step_are_known(dumps: dict[str, str], rejector: Path, step: str, labels: bool) -> None:
    done = run("evaluate", dumps[step], "-r", rejector, "--verbose", *([] if labels else ["--no-labels"]))
    assert done.code == 0
    assert done.err.startswith(f"{WARNING}{step}: new rows may do worse")
    assert f"(some of these rows were used by {step}: new rows may do worse)" in done.out.decode()
    silent = run("evaluate", dumps[step], "-r", rejector, "--format", "json", "--quiet")
    assert (silent.code, silent.err) == (0, "")
    assert json.loads(silent.out)["seen_by"] == [step]


def test_fresh_rows_are_not_spoken_of(dumps: dict[str, str], rejector: Path, tmp_path: Path) -> None:
    done = run("evaluate", dumps["fresh"], "-r", rejector, "--format", "json")
    assert done.err == ""
    assert "seen_by" not in json.loads(done.out)
    page = tmp_path / "seen.html"
    run("evaluate", dumps["fit"], "-r", rejector, "-o", page)
    assert page.read_text().count("Some of these rows were used by fit: new rows may do worse.") == 1


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_a_part_of_the_rows_in_another_order_is_enough(
    dumps: dict[str, str], rejector: Path, tmp_path: Path, share: float
) -> None:
    rng = np.random.default_rng(1)
    fresh, old = pq.read_table(dumps["fresh"]), pq.read_table(dumps["threshold"])
    some = old.take(rng.permutation(old.num_rows)[: int(share * old.num_rows)])
    mixed = pa.concat_tables([fresh, some])
    pq.write_table(mixed.take(rng.permutation(mixed.num_rows)), tmp_path / "mixed.parquet")
    document = drrej.Rejector.from_json(rejector.read_text())
    assert drrej.evaluate(source(str(tmp_path / "mixed.parquet")), document).seen_by == ("threshold",)


def test_all_steps_and_run(dumps: dict[str, str], tmp_path: Path) -> None:
    words = ["--val", dumps["fit"], "--coverage", "0.8"]
    done = run("run", *words, "--test", dumps["fit"], "-o", tmp_path / "same")
    assert f"{WARNING}calibrate, fit and threshold: " in done.err
    done = run("run", *words, "--test", dumps["fresh"], "-o", tmp_path / "other")
    assert done.err == ""


def test_a_cutoff_that_does_not_depend_on_the_rows_keeps_nothing_of_them(dumps: dict[str, str]) -> None:
    fitted = drrej.fit(source(dumps["fit"]), uncalibrated(source(dumps["fit"]), 2.0))
    for kind, target in (("tau", 0.9), ("max-loss", 0.3)):
        finished = drrej.threshold(source(dumps["threshold"]), fitted, drrej.Rule(kind, target))
        assert finished.need_threshold().fingerprint is None
        assert drrej.evaluate(source(dumps["threshold"]), finished).seen_by is None
        assert drrej.evaluate(source(dumps["fit"]), finished).seen_by == ("fit",)


def test_regressions(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    paths = []
    for name in ("a", "b"):
        columns = {"v": rng.gamma(0.5, 1.0, 300), "p": rng.normal(size=300), "y": rng.normal(size=300)}
        paths.append(str(tmp_path / f"{name}.parquet"))
        pq.write_table(pa.table(columns), paths[-1])
    made = ["--loss", "column", "--loss-column", "v", "--prediction", "p", "--target", "y"]
    run("fit", paths[0], *made, "-o", tmp_path / "f.json")
    run("threshold", paths[0], "-r", tmp_path / "f.json", "--coverage", "0.8", "-o", tmp_path / "r.json")
    done = run("evaluate", paths[0], "-r", tmp_path / "r.json")
    assert done.err.startswith(f"{WARNING}fit and threshold: ")
    assert run("evaluate", paths[1], "-r", tmp_path / "r.json").err == ""


def test_rejectors_of_the_first_version_say_nothing_of_the_threshold(tmp_path: Path) -> None:
    document = drrej.Rejector.from_json((ROOT / "tests" / "files" / "old" / "rejector.json").read_text())
    logits, labels = make_model(300, document.classes, seed=5)
    columns = document.columns
    table = {columns.logits: pa.FixedSizeListArray.from_arrays(pa.array(logits.ravel()), document.classes)}
    pq.write_table(pa.table({**table, columns.label or "label": labels}), tmp_path / "new.parquet")
    assert drrej.evaluate(source(str(tmp_path / "new.parquet")), document).seen_by is None


def _softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares: np.ndarray = powers / powers.sum(axis=1, keepdims=True)
    return shares


@pytest.mark.parametrize(
    "changed",
    [
        lambda logits: logits.astype(np.float16),
        lambda logits: logits.round(6),
        lambda logits: logits + 1,
        lambda logits: np.log(_softmax(logits)),
        lambda logits: logits + np.random.default_rng(0).normal(0, 1e-7, logits.shape),
    ],
    ids=["float16", "six digits", "shifted", "log-softmax", "noise"],
)
def test_rows_in_another_form_are_not_fresh(changed: Callable[[np.ndarray], np.ndarray], tmp_path: Path) -> None:
    logits, labels = make_model(1000, 4, seed=1)
    made = tmp_path / "made.json"
    fitted = source(write_dump(tmp_path / "fit.parquet", logits, labels))
    made.write_text(drrej.fit(fitted, drrej.calibrate(fitted)).to_json())
    dump = write_dump(tmp_path / "again.parquet", changed(logits.astype(np.float64)), labels)
    done = run("threshold", dump, "-r", made, "--risk", "0.2", "--confidence", "0.9", "--input", "logits")
    assert done.code == 2
    assert "needs fresh rows, but 'fit' has seen some of these" in done.err


@pytest.mark.parametrize("binary", [False, True])
def test_probabilities_are_known_by_any_type(binary: bool, tmp_path: Path) -> None:
    """Zeros among them get a floor after they were first seen: it has no say."""
    logits, labels = make_model(1000, 2 if binary else 4, seed=2)
    shares = _softmax(logits.astype(np.float64))
    shares[:20] = np.eye(shares.shape[1])[labels[:20]]
    rejectors = {"probs": shares, "log-probs": np.log(np.maximum(shares, 1e-9))}
    for kind, scores in rejectors.items():
        stored = scores[:, 1] if binary else scores
        fitted = drrej.fit_rejector(stored, labels, input=kind, coverage=0.8)
        with pytest.warns(DrrejWarning, match="some of these rows were used by"):
            report = fitted.evaluate(stored.astype(np.float32), labels)
        assert report.seen_by == ("calibrate", "fit", "threshold")
