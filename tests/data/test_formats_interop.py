"""Dumps as other libraries write them: files that they made, the libraries themselves, and the recipes of the docs."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from dumps_zoo import drrej, fixed_list, make_rejector, read_mask, same_decisions, small_rows, succeed, write

DATA = Path(__file__).parents[1] / "files"
DOCS = Path(__file__).parents[2] / "docs" / "formats.md"
ROWS = small_rows()

_spec = importlib.util.spec_from_file_location("make_interop", DATA / "make_interop.py")
assert _spec is not None
assert _spec.loader is not None
make_interop = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(make_interop)

LIBRARY = {"duckdb": "duckdb", "hf": "datasets", "pandas": "pandas", "polars": "polars", "timm": "pandas"}
FLAGS = {
    "duckdb_wide": ["--logits", "z*"],
    "pandas_wide": ["--logits", "*"],
    "polars_wide": ["--logits", "logit_*"],
    "timm_inference": ["--logits", "logit"],
    "timm_inference_separate": ["--logits", "logit_*"],
}
TEXT = {"polars_list", "polars_wide", "pandas_wide", "duckdb_array"}


def _check(dump: Path, name: str, folder: Path) -> None:
    """Calibration and mask are those of the same rows in the plainest layout."""
    base = write(folder / "base.parquet", {"logits": fixed_list(ROWS.logits), "label": ROWS.labels})
    rejector = make_rejector(base, folder)
    succeed("reject", base, "-r", rejector, "-o", folder / "expected.parquet")
    named = ["--classes", ",".join(ROWS.names)] if name in TEXT else []
    succeed("reject", dump, "-r", rejector, "-o", folder / "mask.parquet", *FLAGS.get(name, []), *named)
    mask, expected = read_mask(folder / "mask.parquet"), read_mask(folder / "expected.parquet")
    same_decisions(mask, expected)
    predictions = expected.column("prediction").to_pylist()
    if named:
        predictions = [ROWS.names[number] for number in predictions]
    assert mask.column("prediction").to_pylist() == predictions
    labels: list[object] = []
    if name.startswith("timm"):
        files = [f"val/{i}.jpg" for i in range(60)]
        truth = write(folder / "truth.parquet", {"filename": files[::-1], "label": ROWS.labels[::-1]})
        labels = ["--labels-from", truth, "--join-on", "filename"]
    document = json.loads(succeed("calibrate", dump, *named, *labels).out)
    assert document["calibration"] == json.loads((folder / "calibrated.json").read_text())["calibration"]


@pytest.mark.parametrize("name", make_interop.WRITERS)
def test_files_made_by_others(tmp_path: Path, name: str) -> None:
    _check(DATA / "interop" / f"{name}.parquet", name, tmp_path)


@pytest.mark.filterwarnings("default")  # theirs
@pytest.mark.parametrize("name", make_interop.WRITERS)
def test_the_libraries_of_today(tmp_path: Path, name: str) -> None:
    library = LIBRARY[name.partition("_")[0]]
    pytest.importorskip(library, reason=f"{library} comes with the extra 'interop'")
    make_interop.WRITERS[name](tmp_path / "dump.parquet")
    _check(tmp_path / "dump.parquet", name, tmp_path)


def test_a_timm_dump_with_predictions_as_labels(tmp_path: Path) -> None:
    """With --topk the scores are sorted and `label` is the prediction: inspect warns of both."""
    order = np.argsort(-ROWS.logits, axis=1, kind="stable")
    scores = np.take_along_axis(ROWS.logits, order, axis=1)
    dump = write(tmp_path / "d.parquet", {"logit": pa.array(list(scores)), "label": pa.array(list(order))})
    text = succeed("inspect", dump).out.decode()
    assert "sorted scores (top-k) are not in class order" in text
    refused = drrej("calibrate", dump)
    assert refused.code == 2
    assert "column 'label': labels are list<" in refused.err


# The recipes


def _recipes() -> dict[str, tuple[str, str]]:
    """Heading to (python, shell)."""
    sections = re.split(r"^### ", DOCS.read_text(encoding="utf-8"), flags=re.M)[1:]
    recipes = {}
    for section in sections:
        section = section.partition("\n### ")[0]
        blocks = dict(re.findall(r"^```(python|bash)\n(.*?)^```$", section, flags=re.M | re.S))
        recipes[section.splitlines()[0]] = (
            blocks.get("python", ""),
            blocks.get("bash", "drrej calibrate val.parquet\n"),
        )
    return recipes


RECIPES = _recipes()


class _Model:
    """What a fitted scikit-learn classifier offers here; its classes are text."""

    classes_ = np.array(ROWS.names)

    def predict_proba(self, rows: np.ndarray) -> np.ndarray:
        powers = np.exp(rows.astype(float))
        return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def _given(name: str) -> dict[str, object]:
    """What the reader of a recipe has at hand."""
    if name == "torch":
        import torch

        halves = slice(0, 30), slice(30, 60)
        logits, labels = torch.from_numpy(ROWS.logits), torch.from_numpy(ROWS.labels)
        return {"logits": [logits[h] for h in halves], "labels": [labels[h] for h in halves]}
    if name == "scikit-learn":
        return {"model": _Model(), "X": ROWS.logits, "labels": np.array(ROWS.text_labels)}
    np.save("logits.npy", ROWS.logits)
    np.save("labels.npy", ROWS.labels)
    lines = [",".join(map(str, [*row, label])) for row, label in zip(ROWS.logits, ROWS.labels, strict=True)]
    Path("predictions.csv").write_text("\n".join(["z0,z1,z2,z3,z4,label", *lines]) + "\n")
    if name == "timm":
        Path("timm.parquet").write_bytes((DATA / "interop" / "timm_inference.parquet").read_bytes())
        write(Path("truth.parquet"), {"filename": [f"val/{i}.jpg" for i in range(60)], "label": ROWS.labels})
    return {"logits": ROWS.logits, "labels": ROWS.labels}


NEEDS = {
    "torch": "torch",
    "pandas": "pandas",
    "polars": "polars",
    "DuckDB": "duckdb",
    "Hugging Face datasets": "datasets",
}


def test_there_is_a_recipe_for_every_framework() -> None:
    assert {*NEEDS, "numpy, .npy and .npz", "scikit-learn", "timm"} == set(RECIPES)
    assert all(len(list(filter(None, python.splitlines()))) <= 3 for python, _ in RECIPES.values())


@pytest.mark.filterwarnings("default")  # theirs
@pytest.mark.parametrize("name", RECIPES)
def test_recipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name], reason=f"{NEEDS[name]} is not installed")
    monkeypatch.chdir(tmp_path)
    python, shell = RECIPES[name]
    exec(compile(python, f"{DOCS.name}: {name}", "exec"), _given(name))
    (command,) = shell.strip().splitlines()
    program, *arguments = shlex.split(command)
    assert program == "drrej"
    # Probabilities have a floor that is chosen with the temperature; without one they are the logits again.
    floor = ["--floor", "1e-30"] if name == "scikit-learn" else []
    temperature = json.loads(succeed(*arguments, *floor).out)["calibration"]["temperature"]
    base = write(tmp_path / "base.parquet", {"logits": fixed_list(ROWS.logits), "label": ROWS.labels})
    expected = json.loads(succeed("calibrate", base).out)["calibration"]["temperature"]
    assert temperature == pytest.approx(expected, rel=1e-9 if name != "scikit-learn" else 1e-6)
