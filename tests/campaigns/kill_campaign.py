"""SIGKILL at random moments, over all commands that write, with --force on existing targets, or updating them.

`python -m tests.campaigns kill_campaign KILLS SEED [COMMAND...]` prints a table. After each kill every target must
be the old or
the new one, whole; what the killed runs leave behind stays for the next ones, and a last run that nobody kills must
succeed and leave nothing hidden.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from conftest import environment, make_model, make_rejector, source, write_dump

from drrej import RatioOptions
from drrej.outputs.dataset import MANIFEST

Content = dict[str, bytes]
"""The files of a target by name; a plain file has the name ''."""

MOMENTS = ("any time", "while it writes", "when a target changes")
ONE_STEP = "from drrej.__main__ import main; main()"
TWO_STEPS = f"from drrej.outputs import atomic; atomic._exchange = lambda *_: False; {ONE_STEP}"


@dataclass(frozen=True)
class Command:
    """A command with the words that make the old and the new outputs, and its targets."""

    words: str
    old: str
    new: str
    targets: tuple[str, ...]
    program: str = ONE_STEP
    flag: str = "--force"

    def line(self, variant: str, force: bool = True) -> list[str]:
        """The command line."""
        words = self.words.format(variant).split()
        return [
            sys.executable,
            "-c",
            self.program,
            *words,
            "--jobs",
            "2",
            "-q",
            *([self.flag] if force and self.flag else []),
        ]


_EVALUATED = ("report.json", "report.md", "report.txt", "report.xml")
_RUN = ("run/rejector.json", "run/report.json", "run/report.txt", "run/mask.parquet", "candidates.csv")
_CASCADE = ("cascade/cascade.json", "cascade/cascade.txt", "cascade/s.json", "cascade/routing.parquet")

COMMANDS = {
    "calibrate": Command("calibrate ../d.parquet -o c.json {}", "--precision float64", "", ("c.json",)),
    "fit": Command("fit ../d.parquet -r ../a.json -o f.json {}", "--loss brier", "--loss log", ("f.json",)),
    "threshold --mask --table": Command(
        "threshold ../d.parquet {} --coverage 0.7 -o t.json --mask tm.parquet --table tt.csv",
        "-r ../a.json",
        "-r ../b.json",
        ("t.json", "tm.parquet", "tt.csv"),
    ),
    "evaluate -o, four": Command(
        "evaluate ../d.parquet {} " + " ".join(f"-o {name}" for name in _EVALUATED),
        "-r ../a.json --gate coverage>=0.4",
        "-r ../b.json --gate coverage>=0.6",
        _EVALUATED,
    ),
    "reject FILE": Command("reject ../d.parquet {} -o m.parquet", "-r ../a.json", "-r ../b.json", ("m.parquet",)),
    "reject DIR/": Command("reject ../parts {} -o masks/", "-r ../a.json", "-r ../b.json", ("masks",)),
    "reject DIR/, two steps": Command(
        "reject ../parts {} -o steps/", "-r ../a.json", "-r ../b.json", ("steps",), program=TWO_STEPS
    ),
    "reject --update": Command(
        "reject {} -r ../a.json -o update/", "../early", "../parts", ("update",), flag="--update"
    ),
    "monitor": Command(
        "monitor state.json {} -o history.json -o history.md",
        "../d.parquet -r ../a.json --batch one --max-risk 0.9",
        "../e.parquet -r ../a.json --batch two",
        ("state.json", "history.json", "history.md"),
    ),
    "cascade": Command(
        "cascade --stage s=../noisy.parquet:1 --stage l=../d.parquet:9 --join-on id -o cascade {}",
        "--accuracy 0.5",
        "--accuracy 0.55",
        _CASCADE,
    ),
    "run": Command(
        "run --val ../d.parquet --test ../d.parquet -o run --table candidates.csv {}",
        "--coverage 0.5 --loss brier",
        "--coverage 0.8",
        _RUN,
    ),
}


@dataclass
class Row:
    """What became of the targets of a command. `mixed`: several, some old and some new, each whole."""

    command: str
    kills: int = 0
    too_late: int = 0
    old: int = 0
    new: int = 0
    mixed: int = 0
    recovered: int = 0
    left_hidden: int = 0
    broken: list[str] = field(default_factory=list)


def make_job(folder: Path, rows: int) -> None:
    """A dump, the same in three parts and by a worse model, another of the same kind, and two rejectors."""
    logits, labels = make_model(rows, 10, seed=5)
    dump = write_dump(folder / "d.parquet", logits, labels, row_group=rows // 8)
    noise = random.Random(5)
    worse = logits + logits[[noise.randrange(rows) for _ in range(rows)]] / 2
    write_dump(folder / "noisy.parquet", worse, labels, row_group=rows // 8)
    (folder / "parts").mkdir()
    for number in range(3):
        third = slice(number * rows // 3, (number + 1) * rows // 3)
        write_dump(folder / "parts" / f"{number}.parquet", logits[third], labels[third])
    (folder / "early").mkdir()
    for number in range(2):  # the same files, as they were before the third came
        os.link(folder / "parts" / f"{number}.parquet", folder / "early" / f"{number}.parquet")
    logits, labels = make_model(rows, 10, seed=6)
    write_dump(folder / "e.parquet", logits, labels, row_group=rows // 8)
    for name, coverage, loss in (("a", 0.5, "log"), ("b", 0.8, "brier")):
        rejector = make_rejector(source(dump), ("coverage", coverage), RatioOptions(loss=loss))
        (folder / f"{name}.json").write_text(rejector.to_json())


class Campaign:
    """Kills one command again and again."""

    def __init__(self, name: str, folder: Path, moments: random.Random) -> None:
        self.command = COMMANDS[name]
        self.row = Row(name)
        self.folder = folder / name.translate(str.maketrans(" /", "__"))
        self.folder.mkdir()
        self.saved = self.folder.with_suffix(".saved")
        self.random = moments
        self.versions: list[list[Content]] = []
        for variant in (self.command.old, self.command.new):
            self.seconds = self._run(variant)
            self.versions.append(self._contents())
            if not self.saved.exists():
                shutil.copytree(self.folder, self.saved)
        assert all(old != new for old, new in zip(*self.versions, strict=True)), "old and new are the same"

    def _run(self, variant: str) -> float:
        started = time.monotonic()
        done = subprocess.run(
            self.command.line(variant), cwd=self.folder, env=environment(), capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return time.monotonic() - started

    def _contents(self) -> list[Content]:
        return [content(self.folder / name) for name in self.command.targets]

    def _restore(self) -> None:
        """The old targets again; what killed runs have left stays."""
        for name in self.command.targets:
            if (self.folder / name).is_dir():
                shutil.rmtree(self.folder / name)
        shutil.copytree(self.saved, self.folder, dirs_exist_ok=True)

    def kill(self) -> None:
        """One run, killed."""
        self._restore()
        before = self._inodes()
        hidden = set(self._hidden())
        process = subprocess.Popen(
            self.command.line(self.command.new),
            cwd=self.folder,
            env=environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        moment = self.random.choice(MOMENTS)
        share = self.random.random()
        if moment == "any time":
            _wait(process, share * self.seconds)
        else:
            while process.poll() is None and not set(self._hidden()) - hidden:
                time.sleep(0.001)
            if moment == "while it writes":
                _wait(process, share * self.seconds / 2)
            else:
                while process.poll() is None and self._inodes() == before:
                    pass
                time.sleep(share * 0.003)
        process.kill()
        _, errors = process.communicate()
        self.row.kills += process.returncode == -9
        self.row.too_late += process.returncode != -9
        if process.returncode not in (0, -9):
            self.row.broken.append(f"exit {process.returncode}: {errors.decode()}")
        self._judge()

    def _judge(self) -> None:
        self.row.left_hidden += bool(self._hidden())
        found = self._contents()
        if not found[0] and self.command.program is TWO_STEPS:
            self._fail()  # the next run gives the old directory its name back
            self.row.recovered += 1
            found = self._contents()
        old = [now == then for now, then in zip(found, self.versions[0], strict=True)]
        new = [now == then for now, then in zip(found, self.versions[1], strict=True)]
        if all(old):
            self.row.old += 1
        elif all(new):
            self.row.new += 1
        elif all(a or b for a, b in zip(old, new, strict=True)):
            self.row.mixed += 1
        else:
            self.row.broken.append(f"{[sorted(files) for files in found]}")

    def _fail(self) -> None:
        """A run that fails: the target exists, and it has no --force."""
        line = self.command.line(self.command.new, force=False)
        done = subprocess.run(line, cwd=self.folder, env=environment(), capture_output=True, check=False)
        assert done.returncode == 2, done.stderr

    def _inodes(self) -> list[int]:
        found = []
        for name in self.command.targets:
            try:
                found.append(os.stat(self.folder / name).st_ino)
            except FileNotFoundError:
                found.append(0)
        return found

    def _hidden(self) -> list[str]:
        names = {Path(name).parent for name in self.command.targets}
        return [
            str(path)
            for place in names
            for path in (self.folder / place).glob(".*drrej-*")
            if not path.name.endswith(MANIFEST)
        ]

    def finish(self) -> Row:
        """A last run that nobody kills."""
        self._restore()
        self._run(self.command.new)
        if self._contents() != self.versions[1]:
            self.row.broken.append("the last run did not write what it should")
        if self._hidden():
            self.row.broken.append(f"left for good: {self._hidden()}")
        return self.row


def content(path: Path) -> Content:
    """What a target holds; nothing if it is not there."""
    if path.is_file():
        return {"": path.read_bytes()}
    return {str(f.relative_to(path)): f.read_bytes() for f in sorted(path.rglob("*")) if f.is_file()}


def _wait(process: subprocess.Popen[bytes], seconds: float) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)


def run_campaign(kills: int, seed: int, folder: Path, names: list[str], rows: int = 120_000) -> list[Row]:
    """So many kills in turns over the commands; an interrupt ends them early."""
    make_job(folder, rows)
    moments = random.Random(seed)
    campaigns = [Campaign(name, folder, moments) for name in names]
    with contextlib.suppress(KeyboardInterrupt):
        for number in range(kills):
            campaign = campaigns[number % len(campaigns)]
            while campaign.row.kills <= number // len(campaigns) and not campaign.row.broken:
                campaign.kill()
    return [campaign.finish() for campaign in campaigns]


def table(rows: list[Row]) -> str:
    """The rows as text, with their sums."""
    heads = ("kills", "too_late", "old", "new", "mixed", "recovered", "left_hidden", "broken")
    lines = [f"{'':26}" + "".join(f"{head.replace('_', ' '):>13}" for head in heads)]
    figures = [[len(row.broken) if head == "broken" else getattr(row, head) for head in heads] for row in rows]
    sums = [sum(column) for column in zip(*figures, strict=True)]
    for row, values in zip([*rows, Row("all")], [*figures, sums], strict=True):
        lines.append(f"{row.command:26}" + "".join(f"{value:13}" for value in values))
    lines += [f"{row.command}: {what}" for row in rows for what in row.broken]
    return "\n".join(lines)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory() as scratch:
        wanted = sys.argv[3:] or list(COMMANDS)
        found = run_campaign(int(sys.argv[1]), int(sys.argv[2]), Path(scratch), wanted)
    sys.stdout.write(table(found) + "\n")
    sys.exit(any(row.broken for row in found))
