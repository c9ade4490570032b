"""Run the tutorial and write its outputs into it, and the same as a notebook: python docs/make_tutorial.py [FOLDER].

The blocks of a page run one after the other in a fresh folder; a block of text after one holds its output.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
_BLOCK = re.compile(r"^```(python|bash)\n(.*?)^```\n(?:\n```text\n.*?^```\n)?", re.DOTALL | re.MULTILINE)


def outputs(page: str) -> list[tuple[str, str, str]]:
    """The kind, the code and the output of each block, run in the working directory."""
    names: dict[str, Any] = {}
    found = []
    for kind, code in ((match[1], match[2]) for match in _BLOCK.finditer(page)):
        if kind == "python":
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(code, names)
            text = out.getvalue()
        else:
            environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "NO_COLOR": "1"}
            done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, env=environment, check=False)
            if done.returncode:
                raise SystemExit(f"{code}: exit {done.returncode}: {done.stderr}")
            text = done.stdout
        found.append((kind, code, text))
    return found


def filled(page: str, found: list[tuple[str, str, str]]) -> str:
    """The page with these outputs."""
    left = iter(found)

    def block(_: re.Match[str]) -> str:
        kind, code, text = next(left)
        shown = f"\n```text\n{text.rstrip()}\n```\n" if text.strip() else ""
        return f"```{kind}\n{code}```\n{shown}"

    return _BLOCK.sub(block, page)


def notebook(page: str, found: list[tuple[str, str, str]]) -> str:
    """The same as a notebook without outputs: prose in markdown cells, commands with an exclamation mark."""
    cells, end, left = [], 0, iter(found)
    for match in _BLOCK.finditer(page):
        kind, code, _ = next(left)
        if prose := page[end : match.start()].strip():
            cells.append({"cell_type": "markdown", "metadata": {}, "source": prose})
        lines = code.strip() if kind == "python" else "\n".join(f"!{line}" for line in code.strip().splitlines())
        cells.append({"cell_type": "code", "metadata": {}, "execution_count": None, "outputs": [], "source": lines})
        end = match.end()
    cells.append({"cell_type": "markdown", "metadata": {}, "source": page[end:].strip()})
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return json.dumps({"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}, indent=1) + "\n"


def main() -> None:
    """Write both files."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS
    page = (DOCS / "tutorial.md").read_text(encoding="utf-8")
    here = os.getcwd()
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        try:
            found = outputs(page)
        finally:
            os.chdir(here)
    page = filled(page, found)
    (folder / "tutorial.md").write_text(page, encoding="utf-8")
    (folder / "tutorial.ipynb").write_text(notebook(page, found), encoding="utf-8")


if __name__ == "__main__":
    main()
