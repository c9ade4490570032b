"""Several runs with the same targets at once: `python -m tests.campaigns race_campaign RACES SEED [COMMAND...]`.

Three runs start within the time that one takes; two have the same options. Each ends with exit 0, or with exit 2 and
one line that says so. At least one has to succeed, every target is whole, that of one run or the other, and
nothing hidden is left.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from kill_campaign import COMMANDS, Campaign, make_job
from running import environment

RUNS = 3
REFUSALS = ("another run", "another process", "already a batch with this name")
IN_TURN = ("reject --update", "monitor")
"""What these write depends on what is there, so all of their runs have the same options."""


class Race(Campaign):
    """One command, run several times at once."""

    def race(self) -> list[int]:
        """The exit codes of a race; what is wrong is noted in the row."""
        self._restore()
        variants = [self.command.new, self.command.new, self.command.old]
        if self.row.command in IN_TURN:
            variants[-1] = self.command.new
        self.random.shuffle(variants)
        runs = []
        for variant in variants:
            runs.append(
                subprocess.Popen(
                    self.command.line(variant),
                    cwd=self.folder,
                    env=environment(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
            time.sleep(self.random.random() * self.seconds / RUNS)
        messages = [run.communicate()[1].strip() for run in runs]
        codes = [run.returncode for run in runs]
        for code, message in zip(codes, messages, strict=True):
            refused = code == 2 and "\n" not in message and any(words in message for words in REFUSALS)
            if code != 0 and not refused:
                self.row.broken.append(f"exit {code}: {message}")
        if 0 not in codes:
            self.row.broken.append("no run succeeded")
        if self._hidden():
            self.row.broken.append(f"left: {self._hidden()}")
        self._judge()
        return codes


def main(races: int, seed: int, names: list[str]) -> int:
    """Print a line for each command; the number of things that were broken."""
    broken = 0
    with tempfile.TemporaryDirectory() as scratch:
        make_job(Path(scratch), 60_000)
        for name in names:
            race = Race(name, Path(scratch), random.Random(f"{seed} {name}"))
            codes = Counter(code for _ in range(max(1, races // len(names))) for code in race.race())
            row = race.finish()
            broken += len(row.broken)
            ends = f"{row.old} old, {row.new} new, {row.mixed} mixed"
            sys.stdout.write(f"{name:26} exits {dict(sorted(codes.items()))}: {ends}, {len(row.broken)} broken\n")
            sys.stdout.write("".join(f"  {what}\n" for what in row.broken))
            sys.stdout.flush()
    return broken


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:] or list(COMMANDS)) > 0)
