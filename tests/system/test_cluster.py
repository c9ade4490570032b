"""The commands on a Dask cluster: the same bits as on one machine, whole results, one line when something is wrong."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from conftest import make_model, make_rejector, run_drrej, source, succeed, write_dump
from dask_processes import DaskProcesses, dask_processes
from hypothesis import given
from hypothesis import strategies as st

import drrej
import drrej.pipeline.calibrate as drrej_calibrate
from drrej.data.dump import Block, RowGroup
from drrej.engines import Progress
from drrej.engines.protocol import Pass, map_blocks
from drrej.errors import DumpError, OutputError
from drrej.outputs.dataset import LocalDataset
from drrej.outputs.destinations import OutputFile

pytest.importorskip("distributed", reason="the extra 'cluster' is not installed: pip install 'drrej[cluster]'")

from drrej.engines import dask as dask_module
from drrej.engines.dask import DaskEngine, connect
from drrej.engines.local import cut
from drrej.outputs.dataset import MANIFEST

pytestmark = pytest.mark.filterwarnings("default")  # Dask's own warnings are not ours to mend


@pytest.fixture(scope="module")
def dask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskProcesses]:
    with dask_processes(tmp_path_factory.mktemp("dask"), workers=2) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def engine(dask: DaskProcesses) -> DaskEngine:
    client = connect(dask.address)
    client.wait_for_workers(2, timeout=60)
    return DaskEngine(client)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five files of several row groups."""
    folder = tmp_path_factory.mktemp("dataset")
    for number in range(5):
        logits, labels = make_model(1800, 60, seed=number)
        (folder / f"day={number}").mkdir()
        path = folder / f"day={number}" / "part.parquet"
        write_dump(path, logits, labels, layout=["fixed", "list"][number % 2], row_group=800)
    return folder


@pytest.fixture
def from_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search for the temperature starts from a sample, as with many more rows."""
    monkeypatch.setattr(drrej_calibrate, "SAMPLE_LOGITS", 1 << 18)


def elsewhere(local: drrej.Source, engine: DaskEngine) -> drrej.Source:
    """The same dump, read by the workers."""
    return drrej.Source(local.paths, local.options, engine)


def pipeline(dump: Callable[[], drrej.Source], folder: Path) -> list[str]:
    """Every document as text, and every mask written to the folder."""
    rejector = drrej.calibrate(dump())
    documents = [rejector.to_json()]
    rejector = drrej.fit(dump(), rejector)
    documents.append(rejector.to_json())
    documents.append(drrej.fit(dump(), rejector, drrej.RatioOptions(loss="auto")).to_json())
    vector = drrej.calibrate(dump(), drrej.CalibrateOptions(calibrator="vector"))
    documents += [vector.to_json(), drrej.fit(dump(), vector).to_json()]
    rejector = drrej.threshold(dump(), rejector, drrej.Rule("risk", 0.2))
    documents += [rejector.to_json(), drrej.evaluate(dump(), rejector).to_json()]
    figures = drrej.EvaluateOptions(by="day", intervals=True), drrej.EvaluateOptions(labels=False)
    documents += [drrej.evaluate(dump(), rejector, options=options).to_json() for options in figures]
    folder.mkdir()
    with OutputFile(str(folder / "mask.parquet")) as file:
        drrej.reject(dump(), rejector, file)
        file.commit()
    with LocalDataset(str(folder / "masks")) as directory:
        drrej.reject(dump(), rejector, directory)
        directory.commit()
    return documents


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(f.relative_to(folder)): f.read_bytes()
        for f in sorted(folder.rglob("*"))
        if f.is_file() and not f.name.endswith(MANIFEST)
    }


@pytest.mark.usefixtures("from_a_sample")
def test_documents_and_masks_are_the_same_to_the_bit(dataset: Path, engine: DaskEngine, tmp_path: Path) -> None:
    here = pipeline(lambda: source(dataset, jobs=2), tmp_path / "here")
    there = pipeline(lambda: elsewhere(source(dataset), engine), tmp_path / "there")
    assert here == there
    assert contents(tmp_path / "here") == contents(tmp_path / "there")
    assert len(contents(tmp_path / "there")) == 6
    assert [p.name for p in (tmp_path / "there").iterdir() if p.name.startswith(".")] == [f".masks{MANIFEST}"]


@pytest.mark.usefixtures("from_a_sample")
def test_small_tasks_and_rows_that_are_not_kept_change_nothing(
    dataset: Path, engine: DaskEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = drrej.calibrate(source(dataset)).to_json()
    monkeypatch.setattr(dask_module, "TASK_BYTES", 1)
    assert drrej.calibrate(elsewhere(source(dataset), engine), drrej.CalibrateOptions(memory=0)).to_json() == expected
    assert (
        drrej.calibrate(elsewhere(source(dataset), engine), drrej.CalibrateOptions(memory=600_000)).to_json()
        == expected
    )


def test_a_file_that_changes_between_commands_is_read_again(tmp_path: Path, engine: DaskEngine) -> None:
    """Workers keep blocks for the passes of one command only."""
    for seed in (1, 2):
        path = write_dump(tmp_path / "d.parquet", *make_model(500, 5, seed=seed))
        assert drrej.calibrate(elsewhere(source(path), engine)).to_json() == drrej.calibrate(source(path)).to_json()


def test_a_pass_of_two_tasks_has_two_workers(tmp_path: Path, engine: DaskEngine) -> None:
    logits, labels = make_model(120_000, 16, seed=9)
    path = write_dump(tmp_path / "one.parquet", logits, labels, "list")
    dump = source(path).open(None, labelled=True)

    def who(_block: Block) -> int:
        return os.getpid()

    for _ in range(3):
        assert len(set(map_blocks(dump, who, Pass("testing", labelled=False), engine))) == 2


def test_one_row_group_is_shared_by_the_workers(tmp_path: Path, engine: DaskEngine) -> None:
    logits, labels = make_model(9000, 1000, seed=9)
    path = write_dump(tmp_path / "d.parquet", logits, labels)
    dump = source(path).open(None, labelled=True)
    assert len(list(cut(dump, 2, dask_module.TASK_BYTES))) == 2
    expected = drrej.calibrate(source(path)).to_json()
    assert drrej.calibrate(elsewhere(source(path), engine)).to_json() == expected


@given(
    rows=st.lists(st.integers(1, 90), min_size=1, max_size=30),
    threads=st.integers(1, 40),
    task_bytes=st.sampled_from([1, 4000, 1 << 26]),
)
def test_tasks_hold_every_row_once_and_in_order(rows: list[int], threads: int, task_bytes: int) -> None:
    groups = tuple(RowGroup(0, i, sum(rows[:i]), n) for i, n in enumerate(rows))
    dump = _Shape(groups, sum(rows))
    found = []
    for task in cut(dump, threads, task_bytes):  # type: ignore[arg-type]
        for stretch in task:
            assert stretch.skipped % dump.block_rows == 0
            found += range(stretch.first_row, stretch.first_row + stretch.rows)
    assert found == list(range(sum(rows)))


@dataclasses.dataclass(frozen=True)
class _Shape:
    """What `cut` looks at of a dump."""

    row_groups: tuple[RowGroup, ...]
    rows: int
    block_rows: int = 10
    classes: int = 3


def test_bad_rows_are_told_as_on_one_machine(tmp_path: Path, engine: DaskEngine) -> None:
    logits, labels = make_model(5000, 20, seed=3)
    logits[[1234, 4000], 7] = np.nan
    path = write_dump(tmp_path / "d.parquet", logits, labels, row_group=1000)
    rejector = _any_rejector(20)
    messages = []
    for dump in (source(path), elsewhere(source(path), engine)):
        for target in ("mask.parquet", "masks/"):
            place: Any = OutputFile if target == "mask.parquet" else LocalDataset
            with pytest.raises(DumpError) as caught, place(str(tmp_path / target)) as output:
                drrej.reject(dump, rejector, output)
            messages.append(str(caught.value))
    assert "d.parquet: column 'logits': 2 rows have NaN among the scores; the first is row 1234" in messages[0]
    assert set(messages) == {messages[0]}
    assert [p.name for p in tmp_path.iterdir()] == ["d.parquet"]


def _any_rejector(classes: int) -> drrej.Rejector:
    logits, labels = make_model(200, classes, seed=0)
    with tempfile.TemporaryDirectory() as folder:
        return make_rejector(source(write_dump(f"{folder}/d.parquet", logits, labels)))


class _Interrupts(Progress):
    """Ctrl-C when a certain number of rows is done."""

    def __init__(self, after: int) -> None:
        self.left = after

    def advance(self, rows: int) -> None:
        self.left -= rows
        if self.left <= 0:
            raise KeyboardInterrupt


def test_a_rerun_takes_up_what_an_interrupted_run_has_finished(
    dataset: Path, engine: DaskEngine, tmp_path: Path
) -> None:
    rejector = _any_rejector(60)
    target = str(tmp_path / "masks")
    stopped = msgspec.structs.replace(engine, progress=_Interrupts(after=5_000))
    with pytest.raises(KeyboardInterrupt), LocalDataset(target) as output:
        drrej.reject(elsewhere(source(dataset), stopped), rejector, output)
    assert not Path(target).exists()

    with LocalDataset(target) as output:
        counts = drrej.reject(elsewhere(source(dataset), engine), rejector, output)
        output.commit()
    assert (counts.rows, counts.reused >= 2) == (9_000, True)
    with LocalDataset(str(tmp_path / "here")) as output:
        assert drrej.reject(source(dataset), rejector, output).rejected == counts.rejected
        output.commit()
    assert contents(tmp_path / "here") == contents(tmp_path / "masks")


def test_another_rejector_or_input_is_not_reused(dataset: Path, engine: DaskEngine, tmp_path: Path) -> None:
    logits, labels = make_model(300, 60, seed=77)
    for name in "ab":
        write_dump(tmp_path / f"{name}.parquet", logits, labels)
    rejector = _any_rejector(60)

    def interrupted(with_rejector: drrej.Rejector) -> int:
        dump = elsewhere(source(tmp_path / "a.parquet", tmp_path / "b.parquet"), engine)
        with contextlib.suppress(KeyboardInterrupt), LocalDataset(str(tmp_path / "masks")) as output:
            counts = drrej.reject(dump, with_rejector, output)
            raise KeyboardInterrupt
        return counts.reused

    assert [interrupted(rejector), interrupted(rejector)] == [0, 2]
    half = msgspec.structs.replace(rejector.need_threshold(), cutoff=rejector.need_threshold().cutoff / 2)
    other = rejector.with_sections(rejector.calibration, rejector.ratio, half)
    assert interrupted(other) == 0
    write_dump(tmp_path / "b.parquet", logits[:200], labels[:200])
    assert interrupted(other) == 1


def test_two_runs_do_not_write_one_dataset(tmp_path: Path) -> None:
    with LocalDataset(str(tmp_path / "masks")), pytest.raises(OutputError, match="another run is writing it"):
        LocalDataset(str(tmp_path / "masks"))
    assert list(tmp_path.iterdir()) == []


def test_work_in_flight_is_bounded(tmp_path: Path, engine: DaskEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow consumer is not buried: at most a few tasks per thread are under way or waiting to be taken."""
    logits, labels = make_model(2000, 5, seed=1)
    dump = source(write_dump(tmp_path / "d.parquet", logits, labels, row_group=20)).open(None, labelled=True)
    monkeypatch.setattr(dask_module, "TASK_BYTES", 1)
    client = engine.client
    submitted = []
    submit = client.submit
    monkeypatch.setattr(client, "submit", lambda *args, **kwargs: submitted.append(1) or submit(*args, **kwargs))
    results = map_blocks(dump, lambda block: block.rows, Pass("testing", labelled=True), engine)
    for taken in range(1, 50):
        next(results)
        assert len(submitted) <= taken + 3 * 2
    results.close()  # type: ignore[attr-defined]
    assert sum(map_blocks(dump, lambda block: block.rows, Pass("testing", labelled=True), engine)) == 2000


def test_joined_labels_travel(tmp_path: Path, engine: DaskEngine) -> None:
    logits, labels = make_model(4000, 6, seed=5)
    path = write_dump(tmp_path / "d.parquet", logits, row_group=500)
    write_dump(tmp_path / "labels.parquet", np.zeros((4000, 1)), labels)
    options = {"labels_from": str(tmp_path / "labels.parquet"), "join_on": "id"}
    here = source(path, **options)
    assert drrej.calibrate(elsewhere(here, engine)).to_json() == drrej.calibrate(here).to_json()


def test_a_large_table_is_sent_once(tmp_path: Path, engine: DaskEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_module, "_SENT_WITH_EACH", 0)
    test_joined_labels_travel(tmp_path, engine)


def test_the_command_line(dask: DaskProcesses, dataset: Path, tmp_path: Path) -> None:
    arguments = ["run", "--val", dataset, "--test", dataset, "--coverage", "0.8", "-q", "--verbose", "-o"]
    report = succeed(*arguments, tmp_path / "here")
    done = run_drrej(*arguments, tmp_path / "there", "--cluster", dask.address)
    assert (done.returncode, done.stdout, done.stderr) == (0, report, b"")
    here, there = (contents(tmp_path / name) for name in ("here", "there"))
    for files in (here, there):
        for name, text in files.items():  # a page names the command, which says where the workers are
            files[name] = b"".join(line for line in text.split(b"\n") if b"drrej run" not in line)
    assert here == there


def test_the_address_may_be_in_the_environment(dask: DaskProcesses, dataset: Path) -> None:
    env = {"DASK_SCHEDULER_ADDRESS": dask.address}
    done = run_drrej("inspect", dataset, env=env)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == succeed("inspect", dataset)
