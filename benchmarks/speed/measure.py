"""Child processes, measured from outside: wall time, processor time and peak memory."""

from __future__ import annotations

import ast
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Cost:
    """What a run cost. `figures` is what the child printed as JSON, such as times that leave imports out."""

    wall: float
    cpu: float
    peak_mb: float
    figures: dict[str, float]


_STARTER = """
import os, sys, time
start = time.perf_counter()
child = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ)
_, status, usage = os.wait4(child, 0)
wall = time.perf_counter() - start
cost = (os.waitstatus_to_exitcode(status), wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)
os.write(int(sys.argv[1]), repr(cost).encode())
"""
"""Started by a small process: on Linux a child's peak memory is at least what its parent held when it started it."""


def run(command: Sequence[str]) -> Cost:
    """Run a command (its program as a path) to its end."""
    ours, theirs = os.pipe()
    starter = [sys.executable, "-I", "-S", "-c", _STARTER, str(theirs), *command]
    done = subprocess.run(starter, capture_output=True, pass_fds=[theirs], check=True)
    os.close(theirs)
    with open(ours, "rb") as told:
        code, wall, cpu, peak_mb = ast.literal_eval(told.read().decode())
    if code:
        raise RuntimeError(f"{' '.join(command)}: exit {code}: {done.stderr.decode(errors='replace')[-500:]}")
    figures = json.loads(done.stdout) if done.stdout.startswith(b'{"wall"') else {}
    return Cost(wall, cpu, peak_mb, figures)


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
    """A peer of `benchmarks.speed.peers`."""
    return [sys.executable, "-m", "benchmarks.speed.peers", name, *arguments]
