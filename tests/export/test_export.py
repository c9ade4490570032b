"""Exports in their real engines: the decisions of drrej, row for row."""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from conftest import make_model, succeed
from msgspec.structs import replace
from running import drrej as command

import drrej
from drrej.core.losses import CostLoss
from drrej.documents.rejector import GroupThreshold
from drrej.errors import OptionError
from drrej.export import decided, export, golden_rows, random_scores
from drrej.export.steps import decision_of

LOGITS, LABELS = make_model(600, 4, 3)
ROWS = 300
CASES = [  # every kind with every loss, and each of both with both calibrators
    (kind, ("temperature", "vector")[(i + j) % 2], loss)
    for i, kind in enumerate(("logits", "probs", "log-probs", "binary"))
    for j, loss in enumerate(("zero-one", "log", "brier", "margin", "logit-margin", "learned"))
]


@functools.cache
def rejector_for(kind: str, calibrator: str, loss: Any, **more: Any) -> drrej.Rejector:
    wide = LOGITS.astype(float) * 1.1
    powers = np.exp(wide - wide.max(axis=1, keepdims=True))
    shares = powers / powers.sum(axis=1, keepdims=True)
    scores: Any = {"logits": wide, "probs": shares, "log-probs": np.log(shares), "binary": wide[:, 1] - wide[:, 0]}[
        kind
    ]
    labels = LABELS > 1 if kind == "binary" else LABELS
    input: Any = "logits" if kind == "binary" else kind
    made: Any = {"calibrator": calibrator, "loss": loss, "input": input, "coverage": 0.7}
    return drrej.fit_rejector(scores, labels, **(made | more))


def assert_same(rejector: drrej.Rejector, scores: np.ndarray, found: dict[str, Any]) -> None:
    """The same predictions, losses and decisions as drrej's own, in float64."""
    own = replace(rejector, precision="float64").score(scores)
    assert np.asarray(found["prediction"]).tolist() == own.prediction.tolist()
    np.testing.assert_allclose(np.asarray(found["loss"], float), own.loss, rtol=1e-12)
    np.testing.assert_allclose(np.asarray(found["ratio"], float), own.ratio, rtol=1e-9)
    cutoff = rejector.need_threshold().cutoff
    outside = np.abs(own.loss - cutoff) > 1e-12 * cutoff if cutoff else np.ones(len(own.loss), bool)
    assert (np.asarray(found["rejected"]) == own.rejected)[outside].all()


def module_of(content: bytes) -> dict[str, Any]:
    space: dict[str, Any] = {"__name__": "exported"}
    exec(compile(content, "exported", "exec"), space)
    return space


@pytest.mark.parametrize(("kind", "calibrator", "loss"), CASES)
def test_python_and_numpy(kind: str, calibrator: str, loss: str) -> None:
    rejector = rejector_for(kind, calibrator, loss)
    module, scores = module_of(export(rejector, "python")), random_scores(rejector, ROWS, 5)
    assert module["check"]() == 0
    assert_same(rejector, scores, module["decide_many"](scores))
    one = [module["decide"](row) for row in scores[:60].tolist()]
    assert_same(rejector, scores[:60], {key: [row[key] for row in one] for key in one[0]})
    bad = np.nan if kind == "binary" else [np.nan] * 4
    for call in (module["decide"], lambda row: module["decide_many"]([row])):
        with pytest.raises(ValueError, match="no usable scores"):
            call(bad)


@pytest.mark.parametrize(("kind", "calibrator", "loss"), CASES)
def test_duckdb(kind: str, calibrator: str, loss: str) -> None:
    duckdb = pytest.importorskip("duckdb")
    rejector = rejector_for(kind, calibrator, loss)
    scores, connection = random_scores(rejector, ROWS, 5), duckdb.connect()
    connection.execute(export(rejector, "sql", scores="s").decode())
    assert connection.execute("from drrej_check").fetchall() == [(12, 0)]
    connection.register("dump", pa.table({"row": np.arange(ROWS), "s": pa.array(list(scores))}))
    found = connection.execute(
        "select prediction, loss, ratio, rejected from drrej_decide('dump') order by row"
    ).fetchnumpy()
    assert_same(rejector, scores, found)


@pytest.mark.parametrize(("kind", "calibrator", "loss"), CASES)
def test_onnxruntime(kind: str, calibrator: str, loss: str) -> None:
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    rejector = rejector_for(kind, calibrator, loss)
    session = runtime.InferenceSession(export(rejector, "onnx"), providers=["CPUExecutionProvider"])
    scores, names = random_scores(rejector, ROWS, 5), ["prediction", "loss", "ratio", "rejected"]
    assert_same(rejector, scores, dict(zip(names, session.run(names, {"scores": scores}), strict=True)))
    bad = np.full_like(scores[:1], np.nan)
    assert session.run(["rejected"], {"scores": bad})[0].tolist() == [True]


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_node(tmp_path: Path) -> None:
    """Every case in one process, each beside a copy with wrong decisions among its golden rows."""
    names = {"-".join(case): export(rejector_for(*case), "js", golden=ROWS) for case in CASES}
    code = "const found = {};\n"
    for name, content in names.items():
        (tmp_path / f"{name}.mjs").write_bytes(content)
        (tmp_path / f"{name}-wrong.mjs").write_bytes(content.replace(b'"rejected": true', b'"rejected": false'))
        for one in (name, f"{name}-wrong"):
            code += f'found["{one}"] = (await import("./{one}.mjs")).check();\n'
    (tmp_path / "all.mjs").write_text(code + "console.log(JSON.stringify(found));\n")
    done = subprocess.run(["node", "all.mjs"], cwd=tmp_path, capture_output=True, timeout=60)
    found = json.loads(done.stdout or b"{}")
    assert {name: found.get(name) for name in names} == dict.fromkeys(names, 0), done.stderr
    assert all(found[f"{name}-wrong"] > 0 for name in names)
    for name, ends, says in (("", 0, f"{ROWS} golden rows, 0 different\n"), ("-wrong", 1, " different\n")):
        done = subprocess.run(["node", f"logits-vector-log{name}.mjs"], cwd=tmp_path, capture_output=True, timeout=60)
        assert (done.returncode, done.stdout.decode().endswith(says)) == (ends, True), done.stderr


def test_golden_rows_have_ties_infinities_and_both_sides_of_the_cutoff() -> None:
    rejector = rejector_for("logits", "temperature", "log")
    rows = golden_rows(decision_of(rejector), 100)
    assert {row["rejected"] for row in rows} == {True, False}
    assert any("-inf" in row["scores"] for row in rows)
    assert any(len(set(row["scores"])) < 4 for row in rows)
    cutoff = rejector.need_threshold().cutoff
    assert cutoff is not None
    near = [row for row in rows if abs(row["loss"] / cutoff - 1) < 0.05]
    assert {row["rejected"] for row in near} == {True, False}
    _, losses = decided(rejector, np.array([[float(v) for v in row["scores"]] for row in rows]))
    assert losses.tolist() == [row["loss"] for row in rows]


@pytest.mark.parametrize("by", ["prediction", "region"])
def test_cutoffs_of_groups(by: str) -> None:
    names = list("abcd")
    rejector = drrej.fit_rejector(LOGITS, np.array(names)[LABELS], coverage=0.7, loss="log", classes=names)
    cutoffs = {"a": -1.0, "b": 0.2, "c": None, "d": 0.6}  # nothing is accepted, and nothing rejected
    groups = tuple(GroupThreshold(name, None, cutoff, 9, 3, 0.3) for name, cutoff in cutoffs.items())
    chosen = replace(rejector.need_threshold(), by=by, tau=None, cutoff=None, groups=groups)
    rejector = replace(rejector, threshold=chosen)
    module = module_of(export(rejector, "python"))
    assert module["check"]() == 0
    rows = LOGITS[:200].astype(float)
    for row in rows.tolist():
        found = module["decide"](row, "b")
        group = found["prediction"] if by == "prediction" else "b"
        limit = cutoffs[group]
        assert found["rejected"] == (limit is not None and not found["loss"] < limit)
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect()
    connection.execute(export(rejector, "sql", golden=200).decode())
    assert connection.execute("from drrej_check").fetchall() == [(200, 0)]
    if by == "region":
        with pytest.raises(ValueError, match="no cutoff for the group region = 'x'"):
            module["decide"]([1.0, 2, 3, 4], "x")
        with pytest.raises(OptionError, match="cutoffs by the column 'region'"):
            export(rejector, "onnx")


def test_promises_of_classes_are_exported() -> None:
    """Cutoffs by prediction as several promises leave them, in every engine that is here."""
    promises: Any = {"max_missed": {"1": 0.2}, "accuracy": {"0": 0.75, "2": 0.999}}
    rejector = drrej.fit_rejector(LOGITS.astype(float), LABELS, loss="log", **promises)
    assert {group.cutoff for group in rejector.need_threshold().groups or ()} >= {None}
    scores = random_scores(rejector, ROWS, 5)
    own = replace(rejector, precision="float64").score(scores)
    assert module_of(export(rejector, "python"))["decide_many"](scores)["rejected"].tolist() == own.rejected.tolist()
    if shutil.which("node"):
        code = export(rejector, "js", golden=ROWS)
        done = subprocess.run(
            ["node", "--input-type=module", "-"], input=code + b"console.log(check())", capture_output=True, timeout=60
        )
        assert done.stdout.split()[-1:] == [b"0"], done.stderr
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(export(rejector, "onnx"), providers=["CPUExecutionProvider"])
    assert session.run(["rejected"], {"scores": scores})[0].tolist() == own.rejected.tolist()


def test_what_cannot_be_exported_exactly_is_refused() -> None:
    costs = CostLoss(tuple(tuple(float(a != b) for a in range(4)) for b in range(4)))
    with pytest.raises(OptionError, match="cost matrix cannot be exported exactly"):
        export(rejector_for("logits", "temperature", costs), "python")
    trust = np.linspace(0.01, 0.99, 200)
    scored = drrej.fit_rejector(scores=trust, correct=np.random.default_rng(3).random(200) < trust, coverage=0.5)
    with pytest.raises(OptionError, match="made of the score 'score': an export needs classes"):
        export(scored, "js")


def test_the_header_tells_of_float32() -> None:
    rejector = rejector_for("logits", "temperature", "log")
    assert b"drrej itself sums rows of float32 in float32" in export(rejector, "js")
    assert b"in float32" not in export(replace(rejector, precision="float64"), "js")


def test_the_command_writes_a_file_that_needs_no_numpy(tmp_path: Path) -> None:
    rejector_for("logits", "temperature", "learned").save(tmp_path / "r.json")
    out = tmp_path / "decide.py"
    succeed("export", str(tmp_path / "r.json"), "--to", "python", "-o", str(out), "--golden", "40")
    done = subprocess.run([sys.executable, "-S", "-I", str(out)], capture_output=True, text=True, timeout=60)
    assert done.stdout == "40 golden rows, 0 different\n", done.stderr
    refused = command("export", str(tmp_path / "r.json"), "--to", "js", "--scores", "s")
    assert (refused.code, "--scores requires --to sql" in refused.err) == (2, True)
