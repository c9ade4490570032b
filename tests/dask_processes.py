"""A Dask cluster of real processes on loopback."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from conftest import environment

_OWN = ["--no-dashboard"]


class DaskProcesses:
    """A scheduler and its workers; workers can be killed and added."""

    def __init__(self, folder: Path, env: Mapping[str, str] | None = None, protocol: str = "tcp") -> None:
        self.folder = folder
        self.file = folder / "scheduler.json"
        self.env = environment() | dict(env or {})
        self.workers: list[subprocess.Popen[bytes]] = []
        self.scheduler = self._start("dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--protocol", protocol)
        while not self.file.exists() or not self.file.read_text().strip():
            assert self.scheduler.poll() is None
            time.sleep(0.05)

    def _start(self, module: str, *args: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", f"distributed.cli.{module}", "--scheduler-file", str(self.file), *_OWN, *args]
        with (self.folder / f"{module}.log").open("ab") as log:  # several may write at its end
            return subprocess.Popen(
                command, cwd=self.folder, env=self.env | dict(env or {}), stdout=subprocess.DEVNULL, stderr=log
            )

    @property
    def address(self) -> str:
        """Of the scheduler."""
        import json

        address: str = json.loads(self.file.read_text())["address"]
        return address

    def add_worker(self, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        """One more worker with one thread."""
        worker = self._start(
            "dask_worker", "--nthreads", "1", "--no-nanny", "--local-directory", str(self.folder), env=env
        )
        self.workers.append(worker)
        return worker

    def wait_for(self, workers: int) -> None:
        """Wait until so many workers say that they are known: on a busy machine they take their time."""
        log, end = self.folder / "dask_worker.log", time.monotonic() + 120
        while log.read_text().count("Registered to:") < workers:
            assert time.monotonic() < end, log.read_text()
            assert all(worker.poll() is None for worker in self.workers), log.read_text()
            time.sleep(0.05)

    def close(self) -> None:
        """End every process."""
        for process in [*self.workers, self.scheduler]:
            process.kill()
            process.wait()


@contextmanager
def dask_processes(
    folder: Path, workers: int, env: Mapping[str, str] | None = None, protocol: str = "tcp"
) -> Iterator[DaskProcesses]:
    """A cluster that ends with the block."""
    cluster = DaskProcesses(folder, env, protocol)
    try:
        for _ in range(workers):
            cluster.add_worker()
        if workers:
            cluster.wait_for(workers)
        yield cluster
    finally:
        cluster.close()
