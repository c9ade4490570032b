"""The demonstration runs on the sample data that come with the package."""

from __future__ import annotations

from pathlib import Path

import pyarrow.csv as pc
from running import drrej as run_main

from drrej.cli.tools import STEPS


def test_the_demo_shows_each_command_and_leaves_its_results(tmp_path: Path) -> None:
    done = run_main("demo", "-o", "here", cwd=tmp_path)
    assert done.code == 0, done.err
    shown = done.out.decode()
    for title, command in STEPS:
        assert f"# {title}\n$ drrej {command}\n" in shown
    assert (tmp_path / "here" / "out" / "report.json").exists()
    assert pc.read_csv(tmp_path / "here" / "mask.csv").num_rows == 2060


def test_a_directory_that_exists_is_used_only_with_force(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    refused = run_main("demo", "-o", "here", cwd=tmp_path)
    assert refused.code == 2
    assert "exists already" in refused.err
    assert not list((tmp_path / "here").iterdir())
    assert run_main("demo", "-o", "here", "--force", cwd=tmp_path).code == 0
