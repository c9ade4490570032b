"""The documentation: every shell and Python block runs as it stands there, and pages that are made are up to date.

Each page has a workspace of its own with the files that the pages name. Blocks run in their order: `bash` blocks in one
directory, `python` blocks in one namespace. Text, TOML and YAML are looked at by tests of their own.
"""

from __future__ import annotations

import re
import runpy
import stat
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from conftest import ROOT, SAMPLE, environment

DOCS = ROOT / "docs"
ELSEWHERE = {"tutorial.md", "monitoring.md", "formats.md", "scale.md"}
"""Pages with tests of their own."""
KINDS = {"bash", "python", "text", "toml", "yaml", "bibtex", "json", "py", "sql", "js"}  # the last: test_serving_doc.py


class _Loader(yaml.SafeLoader):
    """mkdocs.yml may have tags of Python's."""


_Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)
SITE = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), _Loader)


def _pages(tree: Any) -> list[str]:
    if isinstance(tree, str):
        return [tree]
    return [page for branch in (tree.values() if isinstance(tree, dict) else tree) for page in _pages(branch)]


def _blocks(page: str) -> list[tuple[str, str]]:
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


PAGES = _pages(SITE["nav"])
README = "../README.md"
RUN = [
    page
    for page in [*PAGES, README]
    if page not in ELSEWHERE and page != "commands.md" and any(kind in ("bash", "python") for kind, _ in _blocks(page))
]


def test_the_tutorial_shows_what_its_commands_print(tmp_path: Path) -> None:
    """The page and the notebook are made by running every block."""
    pytest.importorskip("sklearn")
    pytest.importorskip("matplotlib")
    done = subprocess.run([sys.executable, DOCS / "make_tutorial.py", tmp_path], capture_output=True, env=environment())
    assert done.returncode == 0, done.stderr.decode()
    for name in ("tutorial.md", "tutorial.ipynb"):
        assert (tmp_path / name).read_text() == (DOCS / name).read_text(), "run docs/make_tutorial.py"


def test_every_page_is_in_the_navigation() -> None:
    made = {path.name for path in DOCS.glob("*.md")}
    assert set(PAGES) == made
    assert len(PAGES) == len(made)


@pytest.mark.parametrize("page", PAGES)
def test_blocks_say_what_they_are(page: str) -> None:
    if page not in ELSEWHERE:
        assert {kind for kind, _ in _blocks(page)} <= KINDS
    fences = re.findall(r"^```", (DOCS / page).read_text(encoding="utf-8"), re.MULTILINE)
    assert len(fences) == 2 * len(_blocks(page))


def _with_regions(table: pa.Table) -> pa.Table:
    return table.append_column("region", pa.array(["north", "south"] * (table.num_rows // 2)))


@pytest.fixture
def workspace(tmp_path: Path, program: str) -> Path:
    """The sample data under the names that the pages use, and `drrej` on the path."""
    val, test = (_with_regions(pq.read_table(SAMPLE / name)) for name in ("val.parquet", "test.parquet"))
    pq.write_table(val.slice(0, 900), tmp_path / "val.parquet")
    pq.write_table(val.slice(900), tmp_path / "fresh.parquet")
    for name in ("test", "predictions"):
        pq.write_table(test, tmp_path / f"{name}.parquet")
    logits = np.stack(test["logits"].to_numpy(zero_copy_only=False))
    noisy = (logits + np.random.default_rng(0).normal(0.0, logits.std() / 2, logits.shape)).astype(np.float32)
    small = pa.FixedSizeListArray.from_arrays(pa.array(noisy.ravel()), noisy.shape[1])
    pq.write_table(test, tmp_path / "large.parquet")
    pq.write_table(test.set_column(test.column_names.index("logits"), "logits", small), tmp_path / "small.parquet")
    (tmp_path / "sample_data").symlink_to(SAMPLE)
    (tmp_path / "nightly").mkdir()
    for name, start in (("a", 0), ("b", 1000)):
        pq.write_table(test.slice(start, 1000).drop_columns(["label"]), tmp_path / "nightly" / f"{name}.parquet")
    rng = np.random.default_rng(0)
    for name in ("forecasts", "fresh-forecasts", "new-forecasts"):
        variance, mean = rng.gamma(1.0, 0.5, 2000), rng.normal(size=2000)
        columns = {"variance": variance, "mean": mean, "value": rng.normal(mean, np.sqrt(variance))}
        pq.write_table(pa.table(columns), tmp_path / f"{name}.parquet")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "drrej").write_text(program)
    (tmp_path / "bin" / "drrej").chmod(stat.S_IRWXU)
    return tmp_path


def _shell(workspace: Path, script: str) -> None:
    env = environment()
    env["PATH"] = f"{workspace / 'bin'}:{env['PATH']}"
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", script], cwd=workspace, env=env, capture_output=True, timeout=300
    )
    assert done.returncode == 0, (script, done.stderr.decode())
    assert b"error:" not in done.stderr


def _names(workspace: Path) -> dict[str, Any]:
    """What the Python of the pages takes as given."""

    def arrays(name: str) -> tuple[Any, Any]:
        table = pq.read_table(workspace / name)
        return np.stack(table["logits"].to_numpy(zero_copy_only=False)), table["label"].to_numpy()

    logits, labels = arrays("val.parquet")
    test_logits, test_labels = arrays("test.parquet")
    return {
        "logits": logits,
        "labels": labels,
        "new_logits": test_logits,
        "test_logits": test_logits,
        "test_labels": test_labels,
        "X": logits,
        "y": labels,
        "X_test": test_logits,
        "y_test": test_labels,
    }


@pytest.mark.parametrize("page", RUN)
def test_the_blocks_of_a_page_run(page: str, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workspace)
    names: dict[str, Any] = {}
    for kind, text in _blocks(page):
        if kind == "bash":
            _shell(workspace, text)
        elif kind == "python":
            names = names or _names(workspace)
            exec(text, names)


def test_the_configuration_of_the_page_is_one(workspace: Path) -> None:
    (text,) = [text for kind, text in _blocks("start-command-line.md") if kind == "toml"]
    assert tomllib.loads(text)["jobs"] == 4
    (workspace / "drrej.toml").write_text(text)
    _shell(workspace, "drrej config")


@pytest.mark.parametrize(
    ("script", "page"),
    [("make_commands.py", "commands.md"), ("make_metrics.py", "metrics.md"), ("make_man.py", "drrej.1")],
)
def test_pages_that_are_made_are_up_to_date(script: str, page: str) -> None:
    made = runpy.run_path(str(DOCS / script))["page"]()
    assert made == (DOCS / page).read_text(encoding="utf-8"), f"run docs/{script}"


def test_figures_are_up_to_date() -> None:
    pytest.importorskip("matplotlib")
    figures = {*runpy.run_path(str(DOCS / "make_figures.py"))["FIGURES"], "selective.svg", "paper.svg"}  # of benchmarks
    assert figures == {path.name for path in (DOCS / "figures").iterdir()}
    used = {name for page in PAGES for name in re.findall(r"\(figures/(.*?)\)", (DOCS / page).read_text("utf-8"))}
    assert used == figures
