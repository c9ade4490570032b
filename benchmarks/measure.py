"""Child processes, measured from outside: wall time, processor time and peak memory."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Cost:
    """What a run cost. `figures` is what the child printed as JSON, such as times that leave imports out."""

    wall: float
    cpu: float
    peak_mb: float
    figures: dict[str, float]


def run(command: Sequence[str]) -> Cost:
    """Run a command to its end."""
    start = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stderr is not None
    output = child.stdout.read()
    errors = child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    wall = time.perf_counter() - start
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"{' '.join(command)}: exit {child.returncode}: {errors.decode(errors='replace')[-500:]}")
    figures = json.loads(output) if output.startswith(b'{"wall"') else {}
    return Cost(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, figures)


def interleaved(commands: dict[str, Sequence[str]], repeat: int) -> dict[str, Cost]:
    """Run each command `repeat` times, in turns, so that a slow minute of the machine hits all; medians."""
    costs: dict[str, list[Cost]] = {name: [] for name in commands}
    for _ in range(repeat):
        for name, command in commands.items():
            costs[name].append(run(command))
    return {name: _median(runs) for name, runs in costs.items()}


def _median(runs: Sequence[Cost]) -> Cost:
    return Cost(
        wall=statistics.median(run.wall for run in runs),
        cpu=statistics.median(run.cpu for run in runs),
        peak_mb=max(run.peak_mb for run in runs),
        figures={key: statistics.median(run.figures[key] for run in runs) for key in runs[0].figures},
    )


def drrej(*arguments: str) -> list[str]:
    """Our command line."""
    return [sys.executable, "-m", "drrej", *arguments]


def peer(name: str, *arguments: str) -> list[str]:
    """A peer of `benchmarks.peers`."""
    return [sys.executable, "-m", "benchmarks.peers", name, *arguments]


def has_module(name: str) -> bool:
    """Whether a peer's library is installed."""
    import importlib.util

    return importlib.util.find_spec(name) is not None
