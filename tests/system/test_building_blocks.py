"""The action, the hooks, the component and the image: as far as they can be tried without their services."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import ROOT, SAMPLE, environment, succeed

ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))


@pytest.fixture
def workspace(tmp_path: Path, program: str) -> Path:
    shutil.copy(SAMPLE / "test.parquet", tmp_path / "test.parquet")
    succeed("run", "--val", SAMPLE / "val.parquet", "--test", SAMPLE / "test.parquet", "--coverage", "0.8",
            "-o", tmp_path / "out", "-q")  # fmt: skip
    shutil.copy(tmp_path / "out" / "rejector.json", tmp_path / "rejector.json")
    (tmp_path / "bin").mkdir()
    for name, text in (("drrej", program), ("python3", f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')):
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(stat.S_IRWXU)
    return tmp_path


def _environment(workspace: Path) -> dict[str, str]:
    return {**environment(), "PATH": f"{workspace / 'bin'}:{os.environ['PATH']}"}


def _judge(workspace: Path, **inputs: str) -> subprocess.CompletedProcess[bytes]:
    """The step of the action as a runner does it: inputs become variables."""
    (step,) = [step for step in ACTION["runs"]["steps"] if step["name"] == "judge"]
    values = {name: str(about.get("default", "")) for name, about in ACTION["inputs"].items()} | inputs
    given = {name: values[re.fullmatch(r"\$\{\{ inputs\.(\w+) \}\}", text)[1]] for name, text in step["env"].items()}  # type: ignore[index]
    files = {"GITHUB_OUTPUT": str(workspace / "outputs"), "GITHUB_STEP_SUMMARY": str(workspace / "summary.md")}
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", step["run"]],
        cwd=workspace, env=_environment(workspace) | given | files, capture_output=True,
    )  # fmt: skip


def test_the_action_passes_and_fails_with_its_gates(workspace: Path) -> None:
    inputs = {"dump": "test.parquet", "rejector": "rejector.json"}
    done = _judge(workspace, **inputs, gates="accuracy >= 0.9\ncoverage >= 0.5\n", options="--intervals")
    assert done.returncode == 0, done.stderr
    report = json.loads((workspace / "drrej-report" / "report.json").read_text())
    assert [gate["passed"] for gate in report["gates"]] == [True, True]
    assert "accuracy" in (workspace / "summary.md").read_text()
    assert (workspace / "outputs").read_text() == "report=drrej-report/report.json\n"
    done = _judge(workspace, **inputs, gates="coverage >= 0.99")
    assert done.returncode == 1
    assert b"::error" in done.stdout
    done = _judge(workspace, dump="none.parquet", rejector="rejector.json")
    assert done.returncode == 2


def test_inputs_of_the_action_are_never_part_of_a_script(workspace: Path) -> None:
    """`${{ }}` inside a script is how a pull request runs code of its own."""
    for step in ACTION["runs"]["steps"]:
        assert "${{" not in step["run"]
    _judge(workspace, dump="test.parquet", rejector="rejector.json", gates="$(touch evil) >= 1\n`touch evil` >= 1")
    assert not (workspace / "evil").exists()


def test_the_hooks_run(workspace: Path) -> None:
    hooks = {hook["id"]: hook for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))}
    (workspace / "drrej.toml").write_text('label = "label"\n')

    def run(name: str, *files: str) -> int:
        script = f"{hooks[name]['entry']} {' '.join(files)}"
        env = _environment(workspace)
        return subprocess.run(["bash", "-c", script], cwd=workspace, env=env, capture_output=True).returncode

    assert re.search(hooks["drrej-check"]["files"], "models/rejector-v2.json")
    assert run("drrej-check", "rejector.json") == 0
    broken = json.loads((workspace / "rejector.json").read_text())
    broken["threshold"]["coverage"] = -3
    (workspace / "broken.json").write_text(json.dumps(broken))
    assert run("drrej-check", "rejector.json", "broken.json") == 2
    assert run("drrej-config") == 0
    (workspace / "drrej.toml").write_text('lable = "label"\n')
    assert run("drrej-config") == 2


def test_the_component_judges(workspace: Path) -> None:
    header, jobs = yaml.safe_load_all((ROOT / "examples" / "ci" / "gitlab-component.yml").read_text(encoding="utf-8"))
    (job,) = jobs.values()
    inputs = header["spec"]["inputs"]
    values = {"dump": "test.parquet", "rejector": "rejector.json", "gates": "coverage >= 0.5\naccuracy >= 0.9"}

    def filled(text: str) -> str:
        for name in re.findall(r"\$\[\[ inputs\.(\w+) \]\]", text):
            assert name in inputs
            text = text.replace(f"$[[ inputs.{name} ]]", values.get(name, str(inputs[name].get("default", ""))))
        return text

    variables: dict[str, Any] = {name: filled(text) for name, text in job["variables"].items()}
    done = subprocess.run(
        ["bash", "-e", "-c", "\n".join(map(filled, job["script"]))],
        cwd=workspace, env=_environment(workspace) | variables, capture_output=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert re.search(rb"Gate +coverage >= 0.5 +PASS", done.stdout)
    assert (workspace / job["artifacts"]["reports"]["junit"]).exists()


def test_workflows_may_read_and_no_more() -> None:
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        assert yaml.safe_load(path.read_text(encoding="utf-8"))["permissions"] == {"contents": "read"}


def test_the_image_is_pinned_and_not_root() -> None:
    text = (ROOT / "examples" / "docker" / "Dockerfile").read_text(encoding="utf-8")
    assert all(re.fullmatch(r"python:\d+\.\d+\.\d+-slim", image) for image in re.findall(r"^FROM (\S+)", text, re.M))
    assert "--require-hashes" in text
    assert re.search(r"^USER drrej$", text, re.M)
    kept = (ROOT / "examples" / "docker" / "Dockerfile.dockerignore").read_text(encoding="utf-8").split()
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.M)
    for name in " ".join(copied).split():
        assert f"!{name}" in kept
        assert (ROOT / name).exists()


def test_the_lock_holds_what_the_project_needs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    locked = set(
        re.findall(
            r"^([A-Za-z0-9_.-]+)==",
            (ROOT / "examples" / "docker" / "requirements.lock").read_text(encoding="utf-8"),
            re.M,
        )
    )
    assert {re.match(r"[A-Za-z0-9_.-]+", requirement)[0] for requirement in project["dependencies"]} <= locked  # type: ignore[index]


def test_the_citation_is_the_papers() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert cited["preferred-citation"]["title"] == "Rejection via Learning Density Ratios"
    assert [author["family-names"] for author in cited["preferred-citation"]["authors"]] == [
        *("Soen", "Husain", "Schulz", "Nguyen")
    ]
