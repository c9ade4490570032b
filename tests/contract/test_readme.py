"""The Python of the README runs as it stands there."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, SAMPLE
from running import drrej

BLOCKS = re.findall(
    r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
)


def test_there_are_examples_for_arrays_and_for_estimators() -> None:
    assert len(BLOCKS) == 2
    assert "fit_rejector" in BLOCKS[0]
    assert "RejectingClassifier" in BLOCKS[1]


@pytest.mark.parametrize("block", BLOCKS, ids=["arrays", "estimator"])
def test_the_python_of_the_readme_runs(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(SAMPLE, tmp_path / "sample_data")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    if "sklearn" in block:
        pytest.importorskip("sklearn")
        exec(block, names)
        assert names["model"].score(names["X_test"], names["y_test"]) > 0.95
        return
    exec(block, names)
    assert {path.name for path in tmp_path.iterdir()} & {"rejector.json", "mask.parquet"}


def test_the_output_of_the_first_command_is_what_it_prints(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    command, shown = (
        re.findall(rf"^```{kind}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)[0] for kind in ("sh", "text")
    )
    shutil.copytree(SAMPLE, tmp_path / "sample_data")
    words = shlex.split(command.split(".venv/bin/drrej ")[1])
    assert drrej(*words, cwd=tmp_path).out.decode() == shown
