"""Columns of all rows in their order: in memory or in temporary files, with the same values."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from conftest import environment, make_model, source, write_dump

import drrej
from drrej.data.dump import Block
from drrej.engines.protocol import Pass
from drrej.errors import OutputError
from drrej.pipeline import collect as collecting
from drrej.pipeline.collect import collect, curve_of


def of_block(block: Block) -> dict[str, Any]:
    rows = block.row_numbers()
    return {
        "first": block.scores[:, 0],
        "row": rows,
        "text": np.array([f"{10**row % 1000007}" for row in rows.tolist()]),
        "group": pa.array([f"{row // 40}" for row in rows.tolist()]).dictionary_encode(),
        "rows": block.rows,
    }


@pytest.mark.parametrize("most", [1 << 26, 0])
def test_columns_in_the_order_of_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Arrays are joined, text as wide as the widest, groups with one dictionary; anything else is added up."""
    monkeypatch.setattr(collecting, "MOST_IN_MEMORY", most)
    logits, labels = make_model(130, 3, 1)
    dump = source(write_dump(tmp_path / "d.parquet", logits, labels, row_group=30))
    found = collect(dump, dump.open(None, labelled=True), of_block, Pass("reading", labelled=True))
    assert isinstance(found["first"], np.memmap) == (most == 0)
    np.testing.assert_array_equal(found["first"], logits[:, 0])
    np.testing.assert_array_equal(found["row"], np.arange(130))
    assert found["text"].tolist() == [f"{10**row % 1000007}" for row in range(130)]
    assert found["group"].to_pylist() == [f"{row // 40}" for row in range(130)]
    assert found["rows"] == 130


def test_too_little_room_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "MOST_IN_MEMORY", 0)

    def full(*_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    with pytest.raises(OutputError, match=r"the columns of 1000 rows cannot be kept in .*No space left.*set TMPDIR"):
        collecting.scratch((1000,), np.dtype(np.float64))


def test_a_curve_beyond_memory_has_the_bits_of_one_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    losses = np.where(rng.random(200_000) < 0.6, 0.0, rng.gamma(0.3, 1.0, 200_000))
    wrong = rng.random(losses.size) < np.minimum(0.9, 0.02 + losses)
    memory = curve_of(losses, wrong)
    monkeypatch.setattr(collecting, "MOST_IN_MEMORY", 0)
    files = curve_of(losses, wrong)
    assert isinstance(files.ordered, np.memmap)
    for name in ("aurc", "augrc", "failure_auroc", "fpr_at_95_tpr"):
        assert getattr(files, name)() == getattr(memory, name)()
    assert files.largest_at_risk(Fraction(1, 20)) == memory.largest_at_risk(Fraction(1, 20))


def test_documents_are_the_same_beyond_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_dump(tmp_path / "d.parquet", *make_model(5_000, 6, seed=5), row_group=1700)
    calibrated = drrej.calibrate(source(path))
    rejector = drrej.fit(source(path), calibrated)

    def documents() -> Iterator[str]:
        for options in (drrej.RatioOptions(), drrej.RatioOptions(alpha=3.0, lam=0.3)):
            yield drrej.fit(source(path), calibrated, options).to_json()
        for rule in (drrej.Rule("coverage", 0.8), drrej.Rule("risk", 0.1), drrej.Rule("tau", 0.3)):
            chosen = drrej.threshold(source(path), rejector, rule)
            yield chosen.to_json()
            yield drrej.evaluate(source(path), chosen).to_json()

    expected = list(documents())
    monkeypatch.setattr(collecting, "MOST_IN_MEMORY", 0)
    assert list(documents()) == expected


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_when_the_process_is_ended(tmp_path: Path, number: signal.Signals) -> None:
    text = (
        "import numpy as np, time; from drrej.pipeline import collect as c; c.MOST_IN_MEMORY = 0;"
        "curve = c.curve_of(np.arange(900.0)); print('x', flush=True); time.sleep(60)"
    )
    env = environment() | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", text], env=env, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert str(tmp_path) in Path(f"/proc/{process.pid}/maps").read_text()  # it is there, without a name
        process.send_signal(number)
        process.wait()
    assert list(tmp_path.iterdir()) == []
