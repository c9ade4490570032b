"""The shell steps of examples/ci run as they are written, on the sample data."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from worlds import SAMPLE

CI = Path(__file__).resolve().parents[2] / "examples" / "ci"


@pytest.fixture
def workspace(tmp_path, program):
    """A working directory with three dumps and `drrej` and `pip` on the path; pip does nothing."""
    dumps, tools = tmp_path / "dumps", tmp_path / "bin"
    dumps.mkdir()
    tools.mkdir()
    test = pq.read_table(SAMPLE / "test.parquet")
    pq.write_table(pq.read_table(SAMPLE / "val.parquet"), dumps / "val.parquet")
    pq.write_table(test.slice(0, 1000), dumps / "choose.parquet")
    pq.write_table(test.slice(1000), dumps / "test.parquet")
    for name, text in (("drrej", program), ("pip", "#!/bin/sh\nexit 0\n")):
        (tools / name).write_text(text, encoding="utf-8")
        (tools / name).chmod(stat.S_IRWXU)
    return tmp_path


def shell(workspace: Path, script: str, **variables: str) -> subprocess.CompletedProcess[str]:
    path = f"{workspace / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, **variables}
    words = ["bash", "-e", "-c", script]
    return subprocess.run(words, cwd=workspace, env=environment, capture_output=True, text=True)


def test_shell_script(workspace):
    variables = {name.upper(): str(workspace / "dumps" / f"{name}.parquet") for name in ("val", "choose", "test")}
    done = shell(workspace, str(CI / "gate.sh"), OUT="out", **variables)
    assert done.returncode == 0, done.stderr
    report = json.loads((workspace / "out" / "report.json").read_text(encoding="utf-8"))
    assert all(gate["passed"] for gate in report["gates"])
    again = shell(workspace, str(CI / "gate.sh"), OUT="again", BASELINE="out/report.json", **variables)
    assert again.returncode == 0, again.stderr
    infeasible = shell(workspace, str(CI / "gate.sh"), OUT="no", RISK="0.0001", **variables)
    assert infeasible.returncode == 1
    assert not (workspace / "no" / "rejector.json").exists()


def test_github_workflow(workspace):
    job = yaml.safe_load((CI / "github-actions.yml").read_text(encoding="utf-8"))["jobs"]["gate"]
    summary = workspace / "summary.md"
    said = ""
    for step in job["steps"]:
        if "run" in step:
            done = shell(workspace, step["run"], GITHUB_STEP_SUMMARY=str(summary), **job["env"])
            assert done.returncode == 0, (step["name"], done.stderr)
            said += done.stdout
    assert said.count("::notice title=drrej gate passed::") == 3
    assert summary.read_text(encoding="utf-8").startswith("## drrej report")
    assert (workspace / "rejector.json").exists()


def test_gitlab_job(workspace):
    (job,) = yaml.safe_load((CI / "gitlab-ci.yml").read_text(encoding="utf-8")).values()
    done = shell(workspace, "\n".join([*job["before_script"], *job["script"]]), **job["variables"])
    assert done.returncode == 0, done.stderr
    cases = ET.parse(workspace / job["artifacts"]["reports"]["junit"]).findall("testsuite/testcase")
    assert [case.get("name") for case in cases] == ["accuracy >= 0.95", "coverage >= 0.5"]
