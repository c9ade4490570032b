"""docs/scale.md, on batches: its commands and recipes run as they are written."""

from __future__ import annotations

import csv
import json
import re
import shutil
import stat
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from conftest import ROOT, environment, make_model, make_rejector, source, write_dump
from running import LOG_LINE

PAGE = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8").partition("\n## Clusters")[0]
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
NIGHT = "2026-03-02"


def block(kind: str, number: int = 0) -> str:
    return [text for name, text in BLOCKS if name == kind][number]


@pytest.fixture
def srv(tmp_path: Path, program: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the page calls /srv/drrej, and `drrej`, `date` and `mail` on the path."""
    (tmp_path / "nights").mkdir()
    for day in (1, 2):
        logits, labels = make_model(300, 3, day)
        write_dump(tmp_path / "nights" / f"2026-03-0{day}.parquet", logits, labels)
    shutil.copy(tmp_path / "nights" / "2026-03-01.parquet", tmp_path / "test.parquet")
    logits, labels = make_model(600, 3, 3)
    rejector = make_rejector(source(write_dump(tmp_path / "val.parquet", logits, labels)), ("coverage", 0.8))
    (tmp_path / "rejector.json").write_text(rejector.to_json())
    (tmp_path / "bin").mkdir()
    for name, line in {
        "python": f'exec "{sys.executable}" "$@"',
        "mail": "echo mailed: $2 >> mails",
        "date": f"echo {NIGHT}",
    }.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{line}\n")
    (tmp_path / "bin" / "drrej").write_text(program)
    for path in (tmp_path / "bin").iterdir():
        path.chmod(stat.S_IRWXU)
    env = environment()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{env['PATH']}")
    monkeypatch.setenv("PYTHONPATH", env.get("PYTHONPATH", str(ROOT)))
    return tmp_path


def run(srv: Path, script: str) -> None:
    line = ["bash", "-e", "-o", "pipefail", "-c", script.replace("/srv/drrej", str(srv))]
    done = subprocess.run(line, cwd=srv, capture_output=True, timeout=300)
    assert (done.returncode, LOG_LINE.sub("", done.stderr.decode())) == (0, ""), script


def check_scored(srv: Path, nights: int = 2) -> None:
    masks = sorted((srv / "scored").iterdir())
    assert [pq.ParquetFile(mask).metadata.num_rows for mask in masks] == [300] * nights


def test_shell_and_prometheus(srv: Path) -> None:
    assert [kind for kind, _ in BLOCKS] == ["sh", "cron", "ini", "ini", "airflow", "dagster", "python", "sh", "yaml"]
    run(srv, block("sh"))
    check_scored(srv)
    (srv / "masks.prom.py").write_text(block("python"))
    run(srv, block("sh", 1))
    figures = dict(line.split(" ") for line in (srv / "masks.prom").read_text().splitlines())
    assert (figures["drrej_masks_files"], figures["drrej_masks_rows"]) == ("2", "600")
    assert float(figures["drrej_masks_coverage"]) == 1 - int(figures["drrej_masks_rejected"]) / 600


def test_cron(srv: Path) -> None:
    when, command = block("cron").strip().split("  ", 1)
    assert re.fullmatch(r"\d+ \d+ \* \* \*", when)
    run(srv, command)
    check_scored(srv)
    assert [json.loads(line)["event"] for line in (srv / "drrej.log").read_text().splitlines()] == [
        "file", "file", "summary",
    ]  # fmt: skip
    assert not (srv / "mails").exists()
    (srv / "nights" / "2026-03-03.parquet").write_bytes(b"cut off")
    run(srv, command)
    assert (srv / "mails").read_text() == "mailed: drrej: exit 2\n"
    check_scored(srv)


def test_systemd(srv: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    service = block("ini")
    for line in re.findall(r"^ExecStart=(.*)$", service, re.MULTILINE):
        run(srv, line.replace("$$", "$").replace("%%", "%") + " > /dev/null")
    check_scored(srv)
    assert json.loads((srv / "state.json").read_text())["batches"][0]["name"] == NIGHT
    if shutil.which("systemd-analyze") is None:
        pytest.skip("the units are not verified: there is no systemd-analyze")
    units = tmp_path_factory.mktemp("units")
    (units / "drrej.service").write_text(service)
    (units / "drrej.timer").write_text(block("ini", 1))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(units / "drrej.service"), str(units / "drrej.timer")],
        capture_output=True,
        text=True,
    )
    assert "drrej" not in done.stderr.replace("/srv/drrej", ""), done.stderr


class FakeBash:
    """An operator of Airflow as far as the recipe needs it: `>>`, and the command that it runs."""

    made: list[FakeBash] = []  # noqa: RUF012

    def __init__(self, task_id: str, bash_command: str, cwd: str) -> None:
        self.task_id, self.command, self.cwd, self.after = task_id, bash_command, cwd, []
        self.made.append(self)

    def __rshift__(self, other: FakeBash) -> FakeBash:
        other.after.append(self.task_id)
        return other


class FakeDag:
    """A DAG that takes what the recipe says."""

    def __init__(self, dag_id: str, **options: Any) -> None:
        assert (dag_id, set(options)) == ("drrej", {"schedule", "start_date", "catchup", "max_active_runs"})

    def __enter__(self) -> FakeDag:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing."""


def modules(monkeypatch: pytest.MonkeyPatch, **made: dict[str, Any]) -> None:
    """Modules of packages that are not installed."""
    for name, content in made.items():
        dotted = name.replace("__", ".")
        for end in range(1, dotted.count(".") + 2):
            part = ".".join(dotted.split(".")[:end])
            monkeypatch.setitem(sys.modules, part, types.ModuleType(part))
        vars(sys.modules[dotted]).update(content)


def test_airflow(srv: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands run, by stand-ins for the classes of Airflow."""
    FakeBash.made.clear()
    modules(monkeypatch, airflow__providers__standard__operators__bash={"BashOperator": FakeBash})
    sdk = types.ModuleType("airflow.sdk")
    vars(sdk)["DAG"] = FakeDag
    monkeypatch.setitem(sys.modules, "airflow.sdk", sdk)
    exec(block("airflow"), {})
    assert [(task.task_id, task.after) for task in FakeBash.made] == [("score", []), ("watch", ["score"])]
    for task in FakeBash.made:
        assert task.cwd == "/srv/drrej"
        run(srv, task.command.replace("{{ ds }}", NIGHT) + " > /dev/null")
    check_scored(srv)


def test_dagster(srv: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = block("dagster").replace("/srv/drrej", str(srv))
    try:
        import dagster
    except ImportError:
        plain = {"asset": lambda **_: lambda f: f, "DailyPartitionsDefinition": dict, "AssetExecutionContext": object}
        modules(monkeypatch, dagster=plain)
        scope: dict[str, Any] = {}
        exec(code, scope)
        scope["masks"](types.SimpleNamespace(partition_key=NIGHT))
    else:
        scope = {}
        exec(code, scope)
        assert dagster.materialize([scope["masks"]], partition_key=NIGHT).success
    check_scored(srv, nights=1)
    assert json.loads((srv / "state.json").read_text())["batches"][0]["name"] == NIGHT


def test_dvc(srv: Path) -> None:
    yaml = pytest.importorskip("yaml")
    stage = yaml.safe_load(block("yaml"))["stages"]["evaluate"]
    assert all((srv / name).exists() for name in stage["deps"])
    run(srv, stage["cmd"] + " > /dev/null")
    report = json.loads((srv / "report.json").read_text())
    plot = yaml.safe_load(block("yaml"))["plots"][0]["accuracy against coverage"]
    with open(srv / "curve.csv", newline="") as stream:
        points = list(csv.DictReader(stream))
    assert [{key: float(value) for key, value in point.items()} for point in points] == report["coverage_curve"]
    assert {plot["x"]["curve.csv"], plot["y"]["curve.csv"]} <= points[0].keys()
    if shutil.which("dvc") is None:
        pytest.skip("dvc is not installed")
    (srv / "report.json").unlink()
    (srv / "curve.csv").unlink()
    (srv / "dvc.yaml").write_text(block("yaml"))
    run(srv, "dvc init --no-scm -q; dvc repro -q; dvc plots show -q; dvc metrics show --json > shown.json 2> said")
    assert json.loads((srv / "shown.json").read_text())[""]["data"]["report.json"]["data"]["rows"] == 300
