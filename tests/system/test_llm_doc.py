"""docs/llm.md: its commands run as they are written, in their order."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

from conftest import ROOT
from running import drrej

PAGE = (ROOT / "docs" / "llm.md").read_text(encoding="utf-8")


def test_the_commands_of_the_page_run(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "sample_data" / "llm", tmp_path / "sample_data" / "llm")
    blocks = re.findall(r"^```bash\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    assert len(lines) == 10
    for line in lines:
        words = shlex.split(line)
        assert words[0] == "drrej"
        outcome = drrej(*words[1:], cwd=tmp_path)
        assert outcome.code == 0, (line, outcome.err)


def test_the_sample_is_what_its_script_makes(tmp_path: Path) -> None:
    import runpy

    make = runpy.run_path(str(ROOT / "sample_data" / "make_llm.py"))
    import contextlib

    with contextlib.chdir(tmp_path):
        make["main"]()
    for name in make["FILES"]:
        assert (tmp_path / "llm" / name).read_bytes() == (ROOT / "sample_data" / "llm" / name).read_bytes()
