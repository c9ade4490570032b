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
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=self.env | dict(env or {}),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
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
        """Wait until so many workers are there: on a busy machine they take their time."""
        code = f"from distributed import Client; Client('{self.address}').wait_for_workers({workers}, timeout=120)"
        subprocess.run([sys.executable, "-c", code], env=self.env, check=True, stderr=subprocess.DEVNULL)

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
