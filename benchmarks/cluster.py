"""One machine against a local cluster: `python -m benchmarks.cluster FOLDER [KILLS]`; prints times, checks the bytes.

Times are after start-up: connected, modules loaded. Runs of the engines are interleaved, the best of three counts.
"""

from __future__ import annotations

import contextlib
import filecmp
import os
import random
import resource
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from distributed import Client, LocalCluster

import drrej
from benchmarks.data import Shape
from drrej.engines.dask import DaskEngine
from drrej.engines.local import LocalEngine
from drrej.outputs.dataset import LocalDataset
from drrej.outputs.destinations import OutputFile

ROUNDS = 3
LOG = drrej.RatioOptions(loss="log")
KILLS = 20


def main(folder: Path, kills: int) -> None:
    """Measure and print."""
    started = time.monotonic()
    engines: dict[str, Any] = {"--jobs 2": LocalEngine(2, processes=True), "two threads": LocalEngine(2)}
    for workers in (1, 2):
        engines[f"cluster of {workers}"] = DaskEngine(local_client(workers))
        say(f"start-up of a cluster of {workers}: {time.monotonic() - started:.1f} s")
        started = time.monotonic()
    for shape in (Shape(50_000, 1000), Shape(50_000, 1000, "list", 4096), Shape(1_000_000, 100)):
        compare(shape, str(shape.make(folder)), engines, folder)
    memory(engines)
    if kills:
        survive(folder, kills)
    for engine in list(engines.values())[2:]:
        engine.client.shutdown()


def local_client(workers: int) -> Client:
    """The client of a cluster of processes on this machine."""
    return Client(LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None), set_as_default=False)


def compare(shape: Shape, path: str, engines: dict[str, Any], folder: Path) -> None:
    """Seconds of each step on each engine, and whether all made the same."""
    steps: dict[str, Callable[[drrej.Source], str]] = {"calibrate": lambda dump: drrej.calibrate(dump).to_json()}
    calibrated = drrej.calibrate(drrej.Source([path]))
    fitted = drrej.fit(drrej.Source([path]), calibrated, LOG)
    rejector = drrej.threshold(drrej.Source([path]), fitted, drrej.Rule("coverage", 0.8))
    steps["fit"] = lambda dump: drrej.fit(dump, calibrated, LOG).to_json()
    steps["threshold"] = lambda dump: drrej.threshold(dump, fitted, drrej.Rule("risk", 0.1)).to_json()
    steps["evaluate"] = lambda dump: drrej.evaluate(dump, rejector).to_json()
    steps["reject"] = lambda dump: mask(dump, rejector, folder / "mask.parquet")
    say(shape.name)
    for step, function in steps.items():
        best = dict.fromkeys(engines, (float("inf"), 0.0, 0.0))
        made = set()
        for _ in range(ROUNDS):
            for name, engine in engines.items():
                before, started = spent(engine), time.monotonic()
                made.add(function(drrej.Source([path], engine=engine)))
                wall = time.monotonic() - started
                here, workers = (after - first for after, first in zip(spent(engine), before, strict=True))
                best[name] = min(best[name], (wall, here, workers))
        times = ", ".join(
            f"{name} {wall:.2f} s (processor: {here:.2f} s here, {workers:.2f} s by workers)"
            for name, (wall, here, workers) in best.items()
        )
        say(f"  {step}: {times}; {'the same bytes' if len(made) == 1 else 'DIFFERENT BYTES'}")


def spent(engine: Any) -> tuple[float, float]:
    """Processor time of this process and of all workers so far."""
    if isinstance(engine, DaskEngine):
        return time.process_time(), sum(engine.client.run(time.process_time).values())
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time(), ended.ru_utime + ended.ru_stime


def mask(dump: drrej.Source, rejector: drrej.Rejector, target: Path) -> str:
    """Write a mask; its content."""
    with OutputFile(str(target), force=True) as file:
        drrej.reject(dump, rejector, file)
        file.commit()
    return target.read_bytes().hex()


def memory(engines: dict[str, Any]) -> None:
    """The peak of each worker process."""
    for name, engine in list(engines.items())[2:]:
        peaks = engine.client.run(peak).values()
        say(f"peak memory per worker of {name}: {', '.join(f'{peak >> 20} MB' for peak in peaks)}")


def peak() -> int:
    """Largest resident size of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def survive(folder: Path, kills: int) -> None:
    """Reject a dataset again and again while a worker is killed at a random moment."""
    dataset = folder / "dataset"
    dataset.mkdir(exist_ok=True)
    for number in range(8):
        made = Shape(125_000 + number, 100).make(folder / "parts")
        if not (dataset / f"{number}.parquet").exists():
            os.link(made, dataset / f"{number}.parquet")
    source = drrej.Source([str(dataset)], engine=LocalEngine(2))
    rejector = drrej.threshold(source, drrej.fit(source, drrej.calibrate(source), LOG), drrej.Rule("coverage", 0.8))
    seconds = scored(source, rejector, folder / "expected")
    random_ = random.Random(0)  # noqa: S311 - moments of kills
    same = 0
    for run in range(kills):
        client = local_client(2)
        pids = list(client.run(os.getpid).values())
        timer = threading.Timer(random_.uniform(0, seconds), _kill, [random_.choice(pids)])
        timer.start()
        scored(
            drrej.Source([str(dataset)], engine=DaskEngine(client)),
            rejector,
            folder / f"killed-{run}",
        )
        timer.join()
        names = [f"{number}.parquet" for number in range(8)]
        equal, _, _ = filecmp.cmpfiles(folder / "expected", folder / f"killed-{run}", names, shallow=False)
        same += len(equal) == len(names)
        shutil.rmtree(folder / f"killed-{run}")
        client.shutdown()
    say(f"{kills} runs of reject with a worker killed at a random moment: {same} complete and identical")


def scored(source: drrej.Source, rejector: drrej.Rejector, target: Path) -> float:
    """Write the masks of a dataset; seconds."""
    started = time.monotonic()
    with LocalDataset(str(target), force=True) as place:
        drrej.reject(source, rejector, place)
        place.commit()
    return time.monotonic() - started


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def say(line: str) -> None:
    """One line of the result."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else KILLS)
