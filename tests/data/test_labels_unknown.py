"""Labels that name none of the model's classes: refused, counted as errors, or left out; of joined rows only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import make_model, make_rejector, source, write_dump, write_mask
from running import fail, succeed

import drrej
from drrej.errors import DumpError, OptionError
from drrej.monitor.step import MonitorOptions, monitor

CLASSES, ROWS = 4, 400


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A dump without labels, and labels of which every fifth is of a class that the model does not know."""
    folder = tmp_path_factory.mktemp("world")
    val = write_dump(folder / "val.parquet", *make_model(2000, CLASSES, seed=1))
    rejector = make_rejector(source(val))
    rejector.save(folder / "r.json")
    logits, labels = make_model(ROWS, CLASSES, seed=2)
    new = np.arange(ROWS) % 5 == 0
    labels = np.where(new, CLASSES + 3, labels)
    dump = write_dump(folder / "d.parquet", logits)
    pq.write_table(pa.table({"id": np.arange(ROWS), "label": labels}), folder / "labels.parquet")
    write_dump(folder / "own.parquet", logits, labels)
    mask = write_mask(source(dump), rejector, folder / "mask.parquet")
    return {"folder": folder, "rejector": rejector, "labels": labels, "new": new, "mask": mask}


def joined(world: dict[str, Any], **options: Any) -> drrej.Source:
    folder = world["folder"]
    return source(folder / "d.parquet", labels_from=str(folder / "labels.parquet"), join_on="id", **options)


def sources(world: dict[str, Any], **options: Any) -> list[drrej.Source]:
    """The same rows with labels of their own and with labels of another file."""
    return [joined(world, **options), source(world["folder"] / "own.parquet", **options)]


def test_wrong_counts_them_as_errors_and_skip_leaves_them_out(world: dict[str, Any]) -> None:
    accepted, wrong = ~world["mask"]["rejected"], world["mask"]["prediction"] != world["labels"]
    for dump in sources(world, on_unknown_label="wrong"):
        report = drrej.evaluate(dump, world["rejector"])
        assert (report.rows, report.coverage.accepted) == (ROWS, accepted.sum())
        assert report.errors == (accepted & wrong).sum() > (accepted & world["new"]).sum() > 0
        assert report.base_accuracy.errors == wrong.sum()
        assert sum(row.rows for row in report.per_class) == (~world["new"]).sum()  # they are of no class
    known = ~world["new"]
    for dump in sources(world, on_unknown_label="skip"):
        report = drrej.evaluate(dump, world["rejector"])
        assert (report.rows, report.errors) == (known.sum(), (accepted & wrong & known).sum())


def test_calibration_is_that_of_the_rows_that_have_a_class(world: dict[str, Any]) -> None:
    wrong, skip = (
        drrej.evaluate(
            joined(world, on_unknown_label=how), world["rejector"], options=drrej.EvaluateOptions(classwise=True)
        )
        for how in ("wrong", "skip")
    )
    assert (wrong.nll, wrong.ece, wrong.brier) == (skip.nll, skip.ece, skip.brier)
    assert wrong.confusion.rows[0].predicted == skip.confusion.rows[0].predicted


def test_a_threshold_takes_them_for_errors(world: dict[str, Any]) -> None:
    fitted = drrej.threshold(joined(world, on_unknown_label="wrong"), world["rejector"], drrej.Rule("accuracy", 0.6))
    report = drrej.evaluate(joined(world, on_unknown_label="wrong"), fitted)
    assert report.accuracy.value >= 0.6
    other = drrej.threshold(joined(world, on_unknown_label="skip"), world["rejector"], drrej.Rule("accuracy", 0.6))
    assert (other.threshold.cutoff is None, fitted.threshold.cutoff is None) == (True, False)  # None accepts every row


def test_the_error_says_which_class_is_new_and_what_to_do(world: dict[str, Any]) -> None:
    with pytest.raises(DumpError, match=r"80 rows have a label in .*labels.parquet that is not among the classes") as e:
        drrej.evaluate(joined(world), world["rejector"])
    assert "such as 7; the first is row 0" in str(e.value)
    assert "if it is a new class" in str(e.value)
    folder = world["folder"]
    message = fail("evaluate", folder / "own.parquet", "-r", folder / "r.json")
    assert "80 rows have a label outside 0 to 3" in message
    assert "--on-unknown-label wrong" in message
    succeed("evaluate", folder / "own.parquet", "-r", folder / "r.json", "--on-unknown-label", "wrong")


def test_unknown_labels_of_other_rows_do_not_matter(world: dict[str, Any], tmp_path: Path) -> None:
    """A file with the labels of all batches is not refused for each of them because of one."""
    first = np.arange(ROWS) % 5 != 0
    rows = pq.read_table(world["folder"] / "d.parquet").filter(pa.array(first))
    pq.write_table(rows, tmp_path / "n.parquet")
    labels = str(world["folder"] / "labels.parquet")
    dump = source(tmp_path / "n.parquet", labels_from=labels, join_on="id")
    assert drrej.evaluate(dump, world["rejector"]).rows == first.sum()
    state, _ = monitor(dump, world["rejector"])
    assert state.batches[0].labels == state.batches[0].accepted


@pytest.mark.parametrize("late", [False, True])
def test_a_monitor_counts_them_as_errors(world: dict[str, Any], late: bool) -> None:
    accepted, wrong = ~world["mask"]["rejected"], world["mask"]["prediction"] != world["labels"]
    counts = {}
    for how in ("wrong", "skip"):
        state, options = None, MonitorOptions(batch="a")
        if late:
            state, _ = monitor(source(world["folder"] / "d.parquet"), world["rejector"], None, options)
            options = MonitorOptions(late="a")
        batch = monitor(joined(world, on_unknown_label=how), world["rejector"], state, options)[0].batches[0]
        counts[how] = (batch.rows, batch.accepted, batch.labels, batch.errors)
    known = accepted & ~world["new"]
    assert counts["wrong"] == (ROWS, accepted.sum(), accepted.sum(), (accepted & wrong).sum())
    assert counts["skip"] == (ROWS, accepted.sum(), known.sum(), (known & wrong).sum())


def test_what_needs_the_class_refuses_them(world: dict[str, Any]) -> None:
    options = drrej.EvaluateOptions(by="label")
    with pytest.raises(OptionError, match="`by=label` cannot be combined with `on_unknown_label=wrong`"):
        drrej.evaluate(joined(world, on_unknown_label="wrong"), world["rejector"], options=options)
