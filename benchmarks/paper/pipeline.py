"""drrej's own commands on the dumps of a fold: calibrate, fit, threshold, evaluate.

Commands run inside the work directory and in this process, which spares an interpreter for each of some hundred calls;
`commands.log` there lists them, and each line runs in a shell just as well.
"""

import contextlib
import io
import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drrej.cli.app import main as command_line

TARGETS = (80, 90)
"""Coverages of the paper's tables, in percent."""

Report = dict[str, Any]


class CommandError(Exception):
    """A drrej command ended with something else than 0; 1 means that the data say no."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Variant:
    """A density-ratio rejector of the table."""

    title: str
    options: tuple[str, ...]
    optional: bool = False  # older versions of drrej lack it


VARIANTS: Mapping[str, Variant] = {
    "kl": Variant("KL", ("--loss", "log")),
    "alpha3": Variant("α = 3", ("--alpha", "3", "--loss", "log")),
    "zero_one": Variant("KL, zero-one loss", ("--loss", "zero-one")),
    "auto": Variant("KL, `auto`", ("--loss", "auto"), optional=True),
}


class Shell:
    """Runs drrej in a work directory and keeps a log of what it ran."""

    def __init__(self, work: Path) -> None:
        self.work = work.resolve()
        self.log: list[str] = []

    def drrej(self, *arguments: str) -> None:
        """Run one command line; raise unless it exits with 0."""
        self.log.append("drrej " + shlex.join(arguments))
        said, errors = io.TextIOWrapper(io.BytesIO()), io.StringIO()
        before = sys.argv
        sys.argv = ["drrej", *arguments]
        try:
            with contextlib.chdir(self.work), contextlib.redirect_stdout(said), contextlib.redirect_stderr(errors):
                command_line()
        except SystemExit as exit_:
            if exit_.code:
                raise CommandError(int(exit_.code), f"{self.log[-1]}: {errors.getvalue().strip()}") from None
        finally:
            sys.argv = before

    def path(self, path: Path) -> str:
        """A path as the commands are given it."""
        full = path.resolve()
        return str(full.relative_to(self.work) if full.is_relative_to(self.work) else full)

    def save_log(self, name: str) -> None:
        """Write the commands so far."""
        (self.work / name).write_text("\n".join(self.log) + "\n")


def judge_base(shell: Shell, dumps: Path, out: Path, variants: Sequence[str]) -> dict[str, dict[int, Report | None]]:
    """Reports of a fold by variant and target; None where no τ reaches the target.

    The temperature, the ratio and the honest τ come from `val`; the report, with the paper's grid of τ as its curve, is
    about `test`.
    """
    val, test = (shell.path(dumps / f"{part}.parquet") for part in ("val", "test"))
    (shell.work / shell.path(out)).mkdir(parents=True, exist_ok=True)
    start = shell.path(out / "calibrated.json")
    shell.drrej("calibrate", val, "-o", start, "-f")
    return {name: _judge_variant(shell, out, name, (val, test, start)) for name in variants}


def _judge_variant(shell: Shell, out: Path, name: str, files: tuple[str, str, str]) -> dict[int, Report | None]:
    val, test, start = files
    fitted = shell.path(out / f"{name}.json")
    reports: dict[int, Report | None] = {}
    try:
        shell.drrej("fit", val, "-r", start, *VARIANTS[name].options, "-o", fitted, "-f")
    except CommandError:
        if not VARIANTS[name].optional:
            raise
        return dict.fromkeys(TARGETS)
    for target in TARGETS:
        finished = shell.path(out / f"{name}-{target}.json")
        try:
            shell.drrej("threshold", val, "-r", fitted, "--coverage", str(target / 100), "-o", finished, "-f")
        except CommandError as failure:
            if failure.code != 1:
                raise
            reports[target] = None
            continue
        reports[target] = evaluate(shell, test, finished, out / f"{name}-{target}-report.json")
    return reports


def evaluate(shell: Shell, dump: str, rejector: str, report: Path, *options: str) -> Report:
    """The coverage report of a dump."""
    shell.drrej("evaluate", dump, "-r", rejector, *options, "-o", shell.path(report), "-f")
    document: Report = json.loads(report.read_text())
    return document


def judge_mask(shell: Shell, folder: Path) -> Report:
    """The row of the report about a baseline's own mask.

    `evaluate` always judges a rejector and the mask beside it: here the plainest, that the mask does not depend on.
    """
    dump, rejector = shell.path(folder / "test.parquet"), shell.path(folder / "rejector.json")
    shell.drrej("fit", dump, "--temperature", "1", "--loss", "log", "-o", rejector, "-f")
    shell.drrej("threshold", dump, "-r", rejector, "--tau", "0.5", "-o", rejector, "-f")
    report = evaluate(shell, dump, rejector, folder / "report.json", "--rejected", "rejected")
    row: Report = report["masks"][0]
    return row


def sweep(shell: Shell, dumps: Path, out: Path, options: Sequence[str]) -> Report:
    """The report of one α and λ, by `drrej run`; only its curve is of interest."""
    out.parent.mkdir(parents=True, exist_ok=True)
    parts = ("--val", shell.path(dumps / "val.parquet"), "--test", shell.path(dumps / "test.parquet"))
    shell.drrej("run", *parts, *options, "--tau", "0.5", "-o", shell.path(out), "-f")
    document: Report = json.loads((out / "report.json").read_text())
    return document
