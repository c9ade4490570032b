"""sample_data/llm, which docs/guide-judge.md uses, is what its script makes."""

from __future__ import annotations

import contextlib
import runpy
from pathlib import Path

from conftest import ROOT


def test_the_sample_is_what_its_script_makes(tmp_path: Path) -> None:
    make = runpy.run_path(str(ROOT / "sample_data" / "make_llm.py"))
    with contextlib.chdir(tmp_path):
        make["main"]()
    for name in make["FILES"]:
        assert (tmp_path / "llm" / name).read_bytes() == (ROOT / "sample_data" / "llm" / name).read_bytes()
