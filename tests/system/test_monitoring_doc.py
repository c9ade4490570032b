"""docs/monitoring.md: its commands run as they are written, in their order."""

from __future__ import annotations

import re
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import ROOT, environment, make_model, make_rejector, source, write_dump

from drrej.monitor.state import MonitorState

PAGE = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def workspace(tmp_path: Path, program: str) -> Path:
    """The files that the page names, and `drrej` and `mail` on the path."""
    val = write_dump(tmp_path / "val.parquet", *make_model(3000, 3, 1))
    (tmp_path / "rejector.json").write_text(make_rejector(source(val), ("coverage", 0.9)).to_json())
    (tmp_path / "batches").mkdir()
    for day in range(1, 6):
        logits, labels = make_model(200, 3, 10 + day)
        labels = logits.argmax(axis=1)  # right throughout: the limits hold
        known = None if day == 4 else labels
        write_dump(tmp_path / "batches" / f"2026-03-0{day}.parquet", logits, known)
        if day == 4:
            pq.write_table(pa.table({"id": np.arange(0, 200, 3), "label": labels[::3]}), tmp_path / "labels.parquet")
    (tmp_path / "bin").mkdir()
    for name, line in {
        "python": f'exec "{sys.executable}" "$@"',
        "mail": "echo mailed: $2 >> mails",
        "date": "echo 2026-03-05",
    }.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{line}\n")
    (tmp_path / "bin" / "drrej").write_text(program)
    for path in (tmp_path / "bin").iterdir():
        path.chmod(stat.S_IRWXU)
    return tmp_path


def run(workspace: Path, script: str) -> None:
    env = environment()
    env["PATH"] = f"{workspace / 'bin'}:{env['PATH']}"
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", script], cwd=workspace, env=env, capture_output=True, timeout=300
    )
    assert (done.returncode, done.stderr) == (0, b""), (script, done.stderr.decode())


def test_the_commands_of_the_page_run(workspace: Path) -> None:
    kinds = [kind for kind, _ in BLOCKS]
    assert kinds == ["sh", "sh", "text", "text", "sh", "cron", "sh"]
    for kind, text in [block for block in BLOCKS if block[0] != "text"]:
        if kind == "cron":
            when, command = text.strip().split("  ", 1)
            assert re.fullmatch(r"\d+ \d+ \* \* \*", when)
            run(workspace, command.replace("\\%", "%").replace("/srv/drrej", str(workspace)))
        else:
            run(workspace, text)
    state = MonitorState.from_json((workspace / "state.json").read_text())
    assert [batch.name for batch in state.batches] == ["2026-03-03", "2026-03-04", "2026-03-05"]
    assert 0 < state.batches[1].labels < 67
    assert [reset.why for reset in state.resets] == ["camera 3 replaced"]
    figures = dict(line.rsplit(" ", 1) for line in (workspace / "drrej.prom").read_text().splitlines())
    assert figures["drrej_monitor_batches"] == "3"
    assert figures['drrej_monitor_alarm{monitor="risk"}'] == "0"
    assert float(figures["drrej_monitor_coverage_value"]) == state.total.accepted / state.total.rows
    assert (workspace / "history.html").exists()
    assert not (workspace / "mails").exists()
    batch = "flock state.lock drrej monitor state.json batches/2026-03-05.parquet -r rejector.json -q"
    again = f'{batch} 2> said || mail -s "drrej: exit $?" ops'
    run(workspace, again)
    assert (workspace / "mails").read_text() == "mailed: drrej: exit 2\n"
    assert "already been counted, as the batch '2026-03-05'" in (workspace / "said").read_text()
