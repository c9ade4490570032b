"""Options that commands share, in groups.

A command takes a group as one parameter: `grouped` shows typer the fields of the dataclass as options and hands the
command an instance.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import os
import re
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional

import typer

from drrej.errors import OptionError

if TYPE_CHECKING:
    from drrej.documents.rejector import Rejector
    from drrej.engines.protocol import Engine
    from drrej.outputs.files import OutputFile
    from drrej.pipeline.source import Source

Section = Literal["calibration", "ratio", "threshold"]

Dumps = Annotated[
    list[str],
    typer.Argument(metavar="DUMP...", help="Parquet files, directories, globs or URIs; - is standard input."),
]
RejectorIn = Annotated[
    str, typer.Option("-r", "--rejector", metavar="FILE", help="The rejector so far; - is standard input.")
]


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Spread parameters that are dataclasses into one option per field."""
    hints = typing.get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if dataclasses.is_dataclass(hint)}
    parameters = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name not in groups:
            parameters.append(parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        types = typing.get_type_hints(groups[name], include_extras=True)
        for field in dataclasses.fields(groups[name]):
            parameters.append(
                inspect.Parameter(
                    field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=types[field.name]
                )
            )

    @functools.wraps(command)
    def spread(**values: Any) -> None:
        arguments = {
            name: group(**{field.name: values.pop(field.name) for field in dataclasses.fields(group)})
            for name, group in groups.items()
        }
        command(**arguments, **values)

    spread.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # read by inspect
    del spread.__wrapped__  # typer would look through it
    spread.__annotations__ = {p.name: p.annotation for p in parameters}
    return spread


@dataclass(frozen=True)
class Reading:
    """How dumps are read."""

    logits: Annotated[
        Optional[str], typer.Option("--logits", metavar="COL", help="Logit column, or a glob such as 'logit_*'.")
    ] = None
    label: Annotated[Optional[str], typer.Option("--label", metavar="COL", help="Label column [label].")] = None
    labels_from: Annotated[
        Optional[str], typer.Option("--labels-from", metavar="FILE", help="Labels kept in another parquet file.")
    ] = None
    join_on: Annotated[
        Optional[str], typer.Option("--join-on", metavar="COL", help="Key column shared with --labels-from.")
    ] = None
    on_missing_label: Annotated[
        Literal["error", "skip"], typer.Option("--on-missing-label", help="Rows that the label file lacks.")
    ] = "error"
    input: Annotated[
        Optional[Literal["logits", "probs"]],
        typer.Option("--input", help="What the scores are (log-probabilities are logits) [logits]."),
    ] = None
    binary: Annotated[
        Optional[bool], typer.Option("--binary", help="One score per row: that of class 1.", show_default=False)
    ] = None
    classes: Annotated[
        Optional[str],
        typer.Option("--classes", metavar="NAMES", help="Class names in logit order: a file or a comma list."),
    ] = None
    jobs: Annotated[int, typer.Option("--jobs", metavar="N", min=0, help="Worker threads; 0 is all cores.")] = 0
    cluster: Annotated[
        Optional[str],
        typer.Option(
            "--cluster",
            metavar="ADDRESS",
            envvar="DASK_SCHEDULER_ADDRESS",
            show_envvar=False,
            help="Work on a Dask cluster: tcp://HOST:8786, or local:N processes [DASK_SCHEDULER_ADDRESS].",
        ),
    ] = None
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="No progress, no warnings.")] = False

    def source(self, dumps: list[str]) -> Source:
        """The dump to read."""
        from drrej.data.dump import DumpOptions
        from drrej.engines.memory import prefer_jemalloc
        from drrej.pipeline.source import Source

        prefer_jemalloc()
        options = DumpOptions(
            logits=self.logits,
            label=self.label,
            input=self.input,
            binary=self.binary,
            classes=_class_names(self.classes),
            labels_from=self.labels_from,
            join_on=self.join_on,
            on_missing_label=self.on_missing_label,
        )
        source = Source(dumps, options, self._engine())
        check_one_stdin([], source)
        return source

    def _engine(self) -> Engine:
        from drrej.cli.console import progress
        from drrej.engines.threads import ThreadEngine

        if self.cluster is None:
            return ThreadEngine(self.jobs, progress(self.quiet))
        from drrej.engines.dask import DaskEngine
        from drrej.engines.dask_cluster import connection

        return DaskEngine(connection(self.cluster), self.jobs, progress(self.quiet))


@dataclass(frozen=True)
class Output:
    """Where the result goes."""

    output: Annotated[
        str, typer.Option("-o", "--output", metavar="FILE", help="Where to write; - is standard output.")
    ] = "-"
    force: Annotated[bool, typer.Option("-f", "--force", help="Overwrite what exists.")] = False

    def open(self, same_as: str | None = None) -> OutputFile:
        """The file to be written; `-r R -o R` needs no --force."""
        from drrej.outputs.files import OutputFile

        same = same_as not in (None, "-") and os.path.realpath(self.output) == os.path.realpath(str(same_as))
        return OutputFile(self.output, self.force or same)


@dataclass(frozen=True)
class Precision:
    """How sums over classes are computed."""

    precision: Annotated[
        Optional[Literal["auto", "float64"]],
        typer.Option("--precision", help="auto: float32 sums for float16 and float32 logits [auto]."),
    ] = None

    @property
    def chosen(self) -> Literal["auto", "float64"]:
        """The one that was given, or the default."""
        return self.precision or "auto"


@dataclass(frozen=True)
class Memory:
    """How much is kept between passes."""

    memory: Annotated[
        Optional[str],
        typer.Option(
            "--memory", metavar="SIZE", help="Keep rows in memory up to this size, e.g. 4G [a quarter of it]."
        ),
    ] = None

    def bytes(self) -> int | None:
        """--memory in bytes."""
        if self.memory is None:
            return None
        match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([KMGT]?)(?:I?B)?\s*", self.memory.upper(), re.ASCII)
        if match is None:
            raise OptionError(f"--memory '{self.memory}': write a size such as 500M or 4G")
        return int(float(match[1]) * 1024 ** " KMGT".index(match[2] or " "))


@dataclass(frozen=True)
class Start:
    """The rejector to start from, or a temperature in its place."""

    rejector: Annotated[
        Optional[str],
        typer.Option("-r", "--rejector", metavar="FILE", help="The rejector so far; - is standard input."),
    ] = None
    temperature: Annotated[
        Optional[float], typer.Option("--temperature", metavar="T", help="Instead of -r: use this temperature.")
    ] = None

    def rejector_for(self, source: Source, loss_column: str | None, precision: Precision) -> Rejector:
        """A calibrated rejector. Rows that bring their own loss need neither -r nor --temperature."""
        from drrej.pipeline.fit import uncalibrated, without_logits

        if self.rejector is not None and self.temperature is None:
            if precision.precision is not None:
                raise OptionError("--precision is remembered in the rejector of -r; give it to 'drrej calibrate'")
            return read_rejector(self.rejector, source, "calibration")
        if self.temperature is not None and self.rejector is None:
            return uncalibrated(source, self.temperature, precision.chosen)
        if loss_column is not None and self.rejector is None:
            return without_logits(loss_column, precision.chosen)
        raise OptionError("give either -r REJECTOR (from 'drrej calibrate') or --temperature T (1 for none)")


@dataclass(frozen=True)
class RatioChoice:
    """Divergence, lambda and loss."""

    divergence: Annotated[
        Optional[Literal["kl", "chi2"]], typer.Option("--divergence", help="Divergence of the objective [kl].")
    ] = None
    alpha: Annotated[
        Optional[float], typer.Option("--alpha", metavar="A", help="Any alpha-divergence (1 is kl, 3 is chi2).")
    ] = None
    lam: Annotated[
        Optional[float],
        typer.Option("--lambda", metavar="L", help="Weight of the divergence against the loss [1]."),
    ] = None
    loss: Annotated[
        str,
        typer.Option(
            "--loss", metavar="NAME", help="log, zero-one, brier, learned, auto (these use labels), cost, column."
        ),
    ] = "log"
    cost_matrix: Annotated[
        Optional[str],
        typer.Option("--cost-matrix", metavar="FILE", help="For --loss cost: true class x action; csv, json, parquet."),
    ] = None
    loss_column: Annotated[
        Optional[str], typer.Option("--loss-column", metavar="COL", help="For --loss column: each row's own loss.")
    ] = None

    def options(self, class_names: Sequence[str] | None = None) -> Any:
        """As the library takes them; a cost matrix that has names is put in the order of `class_names`."""
        from drrej.core.losses import ColumnLoss, CostLoss, Loss
        from drrej.data.matrix import read_cost_matrix
        from drrej.pipeline.fit import DIVERGENCES, RatioOptions

        alpha = DIVERGENCES[self.divergence or "kl"] if self.alpha is None else self.alpha
        if self.divergence is not None and alpha != DIVERGENCES[self.divergence]:
            raise OptionError(
                f"--divergence {self.divergence} is --alpha {DIVERGENCES[self.divergence]:g}, "
                f"which contradicts --alpha {alpha:g}; give one of them"
            )
        if (self.loss == CostLoss.name) != (self.cost_matrix is not None):
            raise OptionError("--loss cost and --cost-matrix FILE go together; give both or neither")
        if (self.loss == ColumnLoss.name) != (self.loss_column is not None):
            raise OptionError("--loss column and --loss-column COL go together; give both or neither")
        loss: str | Loss = self.loss
        if self.cost_matrix is not None:
            loss = CostLoss(read_cost_matrix(self.cost_matrix, class_names))
        elif self.loss_column is not None:
            loss = ColumnLoss(self.loss_column)
        return RatioOptions(alpha, 1.0 if self.lam is None else self.lam, loss)


@dataclass(frozen=True)
class RuleChoice:
    """How the cutoff is chosen."""

    tau: Annotated[Optional[float], typer.Option("--tau", metavar="T", help="Reject where the ratio is at most T.")] = (
        None
    )
    coverage: Annotated[
        Optional[float], typer.Option("--coverage", metavar="C", help="Accept at least this share of the rows.")
    ] = None
    risk: Annotated[
        Optional[float],
        typer.Option("--risk", metavar="R", help="Accept as many rows as keep their error rate at or below R."),
    ] = None
    max_loss: Annotated[
        Optional[float], typer.Option("--max-loss", metavar="L", help="Reject where the expected loss is L or more.")
    ] = None

    def rule(self) -> Any:
        """The one rule that was given."""
        from drrej.core.thresholds import Rule

        given = {
            kind: target
            for kind, target in (
                ("tau", self.tau),
                ("coverage", self.coverage),
                ("risk", self.risk),
                ("max-loss", self.max_loss),
            )
            if target is not None
        }
        if len(given) != 1:
            found = " and ".join(f"--{kind}" for kind in given) or "none"
            raise OptionError(f"give exactly one rule: --tau, --coverage, --risk or --max-loss (found: {found})")
        ((kind, target),) = given.items()
        return Rule(kind, target)


def read_rejector(path: str, source: Source, needs: Section) -> Rejector:
    """The rejector document behind `-r`, checked to have a section (and those before it)."""
    import sys

    from drrej.documents.rejector import Rejector
    from drrej.errors import RejectorError

    if path == "-":
        check_one_stdin([path], source)
        if sys.stdin is None:
            raise RejectorError("standard input: it is closed; name a file with -r")
        where, raw = "standard input", sys.stdin.buffer.read()
    else:
        where = path
        try:
            raw = _content(path)
        except OSError as error:
            reason = error.strerror or " ".join(str(error).split())[:300]
            raise RejectorError(f"{path}: cannot be read ({reason})") from None
    if not raw.strip():
        reason = "; the step before it in the pipe failed" if path == "-" else ""
        raise RejectorError(f"{where}: no rejector: it is empty{reason}")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise RejectorError(f"{where}: not a JSON document; is it a rejector?") from None
    rejector = Rejector.from_json(text, where)
    try:
        getattr(rejector, f"need_{needs}")()
    except RejectorError as error:
        raise RejectorError(f"{where}: {error}") from None
    return rejector


def _content(path: str) -> bytes:
    if "://" not in path:
        with open(path, "rb") as stream:
            return stream.read()
    import pyarrow.fs as pafs

    filesystem, key = pafs.FileSystem.from_uri(path)
    with filesystem.open_input_stream(key) as remote:
        content: bytes = remote.read()
    return content


def check_one_stdin(others: Sequence[str], *sources: Source) -> None:
    """Standard input can be read for one thing only."""
    named = [*others]
    for source in sources:
        named += [*source.arguments, source.options.labels_from or ""]
    if named.count("-") > 1:
        raise OptionError("standard input cannot be both of two inputs; give all but one of them as files")


def _class_names(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    if os.path.isfile(text):
        try:
            with open(text, encoding="utf-8") as stream:
                names = [line.rstrip("\r\n") for line in stream if line.strip()]
        except (OSError, UnicodeDecodeError):
            raise OptionError(f"--classes {text}: the file cannot be read as lines of text") from None
    else:
        names = [name.strip() for name in text.split(",")]
    if len(set(names)) < len(names):
        repeated = next(name for name in names if names.count(name) > 1)
        raise OptionError(f"--classes: the name '{repeated}' occurs twice")
    if len(names) < 2 or "" in names:
        hint = "" if "," in text else " (or is it a file that does not exist?)"
        raise OptionError(f"--classes {text}: name at least two classes, none of them empty{hint}")
    return tuple(names)
