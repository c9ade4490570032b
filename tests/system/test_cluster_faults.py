"""What goes wrong on a cluster: whole results or one line, never a hang or half a dataset."""

from __future__ import annotations

import functools
import importlib.util
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import environment, fail, make_model, only_line, run_drrej, write_dump
from dask_processes import DaskProcesses, dask_processes

import drrej
from drrej.engines import dask as dask_module
from drrej.outputs.dataset import MANIFEST


def test_without_the_extra_the_message_names_it(tmp_path: Path) -> None:
    (tmp_path / "distributed.py").write_text("raise ImportError('not here')")
    env = {"PYTHONPATH": f"{tmp_path}:{environment()['PYTHONPATH']}"}
    done = run_drrej("inspect", "x.parquet", "--cluster", "tcp://127.0.0.1:1", env=env)
    assert only_line(done, 2) == "--cluster needs the package distributed: pip install 'drrej[cluster]'"


needs_dask = pytest.mark.skipif(
    importlib.util.find_spec("distributed") is None,
    reason="the extra 'cluster' is not installed: pip install 'drrej[cluster]'",
)


@needs_dask
@pytest.mark.parametrize("address", ["localhost", "2"])
def test_addresses_that_are_none(address: str) -> None:
    assert "write the address of a Dask scheduler" in fail("inspect", "x.parquet", "--cluster", address)


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dump")
    for number in range(4):
        logits, labels = make_model(6000, 100, seed=number)
        write_dump(folder / f"{number}.parquet", logits, labels, row_group=2000)
    return folder


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short waits, and a connection of the test's own."""
    monkeypatch.setattr(dask_module, "CONNECT_SECONDS", 1)
    monkeypatch.setattr(dask_module, "LONELY_SECONDS", 1)
    monkeypatch.setattr(dask_module, "SILENT_SECONDS", 3)
    monkeypatch.setattr(dask_module, "connect", dask_module.connect.__wrapped__)


@needs_dask
@pytest.mark.filterwarnings("default")
@pytest.mark.usefixtures("hasty")
def test_no_scheduler(dump: Path) -> None:
    message = fail("calibrate", dump, "--cluster", "tcp://127.0.0.1:9")
    assert message.startswith("tcp://127.0.0.1:9: no Dask scheduler answers (")


@pytest.fixture(scope="module")
def dask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskProcesses]:
    with dask_processes(tmp_path_factory.mktemp("dask"), workers=0) as cluster:
        yield cluster


@needs_dask
@pytest.mark.filterwarnings("default")
@pytest.mark.usefixtures("hasty")
def test_a_scheduler_without_workers(dask: DaskProcesses, dump: Path) -> None:
    message = fail("calibrate", dump, "--cluster", dask.address)
    assert f"the scheduler has no workers; start some with 'dask worker {dask.address}'" in message


@needs_dask
def test_workers_of_another_version(dask: DaskProcesses, dump: Path, tmp_path: Path) -> None:
    shutil.copytree(Path(drrej.__file__).parent, tmp_path / "drrej")
    (tmp_path / "drrej" / "_version.py").write_text('__version__ = "9.9.9"\n')
    worker = dask.add_worker({"PYTHONPATH": str(tmp_path)})
    try:
        message = only_line(run_drrej("calibrate", dump, "--cluster", dask.address), 2)
    finally:
        worker.kill()
        worker.wait()
    expected = rf"tcp://.*: the worker has drrej 9\.9\.9 but this client has {re.escape(drrej.__version__)}; .*"
    assert re.fullmatch(expected, message), message


def start(*args: str | Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "drrej", *map(str, args)],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def contents(path: Path) -> dict[str, bytes]:
    if path.is_file():
        return {"": path.read_bytes()}
    files = [file for file in sorted(path.rglob("*")) if file.is_file() and not file.name.endswith(MANIFEST)]
    return {str(file.relative_to(path)): file.read_bytes() for file in files}  # records hold times


COMMANDS = {
    "calibrate": ["-o", "{out}/r.json"],
    "reject": ["-r", "{rejector}", "-o", "{out}/masks/", "-q"],
}


@pytest.fixture(scope="module")
def rejector(dump: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rejector") / "r.json"
    fitted = run_drrej("fit", dump, "--temperature", "2").stdout
    path.write_bytes(run_drrej("threshold", dump, "-r", "-", "--coverage", "0.8", stdin=fitted).stdout)
    return path


@needs_dask
@pytest.mark.parametrize("command", COMMANDS)
def test_a_worker_killed_at_a_random_moment(
    dask: DaskProcesses, dump: Path, rejector: Path, tmp_path: Path, command: str
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    workers = [dask.add_worker(), dask.add_worker()]
    options = [[word.format(out=out, rejector=rejector) for word in COMMANDS[command]] for out in (here, there)]
    assert run_drrej(command, dump, *options[0]).returncode == 0
    process = start(command, dump, *options[1], "--cluster", dask.address)
    time.sleep(random.Random(command).uniform(1.0, 2.5))
    workers[0].kill()
    try:
        _, errors = process.communicate(timeout=100)
    finally:
        process.kill()
        for worker in workers:
            worker.kill()
            worker.wait()
    assert (process.returncode, errors) == (0, b"")
    assert contents(there) == contents(here)


@pytest.fixture
def at_the_first_result(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """What happens when the command waits for its first task."""
    events: list[Callable[[], None]] = []
    result = dask_module.DaskEngine._result

    def after_events(self: dask_module.DaskEngine, future: object) -> object:
        while events:
            events.pop()()
        return result(self, future)

    monkeypatch.setattr(dask_module.DaskEngine, "_result", after_events)
    return events


@needs_dask
@pytest.mark.filterwarnings("default")
@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("what", ["scheduler", "silent scheduler", "worker"])
def test_a_cluster_that_goes_away(
    at_the_first_result: list[Callable[[], None]],
    dump: Path,
    rejector: Path,
    tmp_path: Path,
    what: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The scheduler with its workers, the scheduler without a word, or the last worker alone."""
    monkeypatch.setattr(dask_module, "CONNECT_SECONDS", 60)  # the worker may be slow to start
    with dask_processes(tmp_path, workers=1) as cluster:
        stop = functools.partial(cluster.scheduler.send_signal, signal.SIGSTOP)
        events = {"scheduler": cluster.close, "silent scheduler": stop, "worker": cluster.workers[0].kill}
        at_the_first_result.append(events[what])
        arguments = ["reject", dump, "-r", rejector, "-o", f"{tmp_path}/masks/"]
        message = fail(*arguments, "--cluster", cluster.address)
    lost = "the connection to the scheduler was lost"
    reason = "there has been no worker for 1 seconds" if what == "worker" else lost
    assert message.startswith(f"{cluster.address}: {reason}")
    assert not (tmp_path / "masks").exists()


@needs_dask
def test_ctrl_c_ends_the_command(
    dask: DaskProcesses, dump: Path, rejector: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    worker = dask.add_worker()
    many = tmp_path_factory.mktemp("many")
    for number in range(600):
        shutil.copy(dump / "0.parquet", many / f"{number}.parquet")
    process = start("reject", many, "-r", rejector, "-o", tmp_path / "mask.parquet", "--cluster", dask.address)
    time.sleep(3)
    process.send_signal(signal.SIGINT)
    try:
        _, errors = process.communicate(timeout=60)
    finally:
        worker.kill()
        worker.wait()
    assert (process.returncode, errors) == (130, b"")
    assert list(tmp_path.iterdir()) == []
