"""The guide on serving runs as it stands there, in the engines that are here."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from conftest import ROOT, SAMPLE
from running import drrej as command

import drrej

TEXT = (ROOT / "docs" / "guide-serving.md").read_text(encoding="utf-8")


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: Any) -> Path:
    """Where all commands of the guide were run."""
    found: Path = tmp_path_factory.mktemp("serving")
    for name in ("val", "test"):
        shutil.copy(SAMPLE / f"{name}.parquet", found)
    for block in blocks("bash"):
        for line in block.replace("\\\n", " ").splitlines():
            program, *words = shlex.split(line)
            if program == "drrej":
                done = command(*words, cwd=found)
                assert done.code == 0, done.err
    return found


@pytest.mark.filterwarnings("ignore:Using `httpx` with")  # starlette wishes for its successor
def test_the_fastapi_service_decides_as_drrej_does(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fastapi")
    pytest.importorskip("httpx")
    from fastapi.testclient import TestClient

    monkeypatch.chdir(folder)
    names: dict[str, Any] = {"__name__": "service"}
    code, _ = blocks("py")
    exec(compile(code.replace("from __future__", "#"), "service", "exec", dont_inherit=True), names)
    client, rejector = TestClient(names["app"]), drrej.Rejector.load("out/rejector.json")
    rows = np.array(pq.read_table("test.parquet")["logits"].to_pylist())[:40]
    own = rejector.score(rows)
    for number, row in enumerate(rows.tolist()):
        answer = client.post("/decide", json={"logits": row}).json()
        assert answer == {
            "prediction": own.prediction[number],
            "loss": own.loss[number],
            "rejected": own.rejected[number],
            "model": "digits@1",
        }
    assert client.post("/decide", json={"logits": [1.0, 2.0]}).status_code == 422


def test_duckdb_decides_as_the_mask_does(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    duckdb = pytest.importorskip("duckdb")
    monkeypatch.chdir(folder)
    connection = duckdb.connect()
    connection.execute((folder / "decide.sql").read_text())
    view, counts, check = (each for each in blocks("sql")[0].split(";") if each.strip())
    connection.execute(view)
    found = connection.execute(counts).fetchall()
    assert connection.execute(check).fetchall() == [(12, 0)]
    mask = pq.read_table("out/mask.parquet")
    assert sum(rows for *_, rows in found) == mask.num_rows
    assert sum(rows for _, rejected, rows in found if rejected) == mask["rejected"].to_pylist().count(True)


def test_python_and_node_check_themselves(folder: Path) -> None:
    asked = ["python3", "decide.py"]
    done = subprocess.run(asked, cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.stdout == "100 golden rows, 0 different\n", done.stderr
    assert len((folder / "decide.golden.jsonl").read_text().splitlines()) == 100
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    (code,) = blocks("js")
    (folder / "page.mjs").write_text(code)
    done = subprocess.run(["node", "page.mjs"], cwd=folder, capture_output=True, text=True, timeout=60)
    prediction, rejected = drrej.Rejector.load(folder / "out" / "rejector.json").predict(
        np.array([[4.1, 0.2, -1.3, 0.4, 0.9, -2.0]])
    )
    assert done.stdout.split() == [str(prediction[0]), str(rejected[0]).lower()], done.stderr


def test_onnxruntime_decides_as_the_mask_does(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    monkeypatch.chdir(folder)
    assert command("export", "out/rejector.json", "--to", "onnx", "-o", "decide.onnx", cwd=folder).code == 0
    found: dict[str, Any] = {"new_logits": np.array(pq.read_table("test.parquet")["logits"].to_pylist())}
    exec(blocks("py")[1], found)
    assert found["rejected"].tolist() == pq.read_table("out/mask.parquet")["rejected"].to_pylist()
    assert 0 < found["rejected"].sum() < len(found["rejected"])
