"""The examples in docstrings are what the code does."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import drrej

PACKAGE = Path(drrej.__file__).parent
EXAMPLES = sorted(path for path in PACKAGE.rglob("*.py") if ">>> " in path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_examples_run(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(PACKAGE.parent)  # where the sample data are
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    results = doctest.testmod(importlib.import_module(".".join(parts).removesuffix(".__init__")))
    assert results.attempted > 0
    assert results.failed == 0
