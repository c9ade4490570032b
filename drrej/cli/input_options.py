"""Groups of options that say what is read and what reads it: dumps, rejectors and the engine."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Struct
from msgspec.structs import asdict

from drrej.cli.console import progress, warn
from drrej.cli.options import flag, option, rare, rare_flag
from drrej.errors import OptionError, RejectorError

if TYPE_CHECKING:
    from drrej.documents.rejector import Rejector
    from drrej.engines import Progress
    from drrej.engines.protocol import Engine
    from drrej.pipeline.source import Source

STDIN = "-"
READING, ENGINE = "Reading", "Engine"
Section = Literal["calibration", "ratio", "threshold"]


class ScoreOptions(Struct, frozen=True):
    """How scores and labels are found in a dump."""

    logits: Annotated[
        str | None, option("--logits COL", "A column, a path, a glob such as 'prob_*', or a list: A,B.", READING)
    ] = None
    label: Annotated[str | None, option("--label COL", "Label column.", READING, show_default="label")] = None
    input: Annotated[
        Literal["logits", "probs", "log-probs"] | None,
        option(
            "--input", "What the scores are; log-probs only where a class may have 0.", READING, show_default="logits"
        ),
    ] = None
    normalize: Annotated[
        bool, rare_flag("--normalize", "Divide each row of --input probs by its sum, whatever that is.", READING)
    ] = False
    binary: Annotated[bool, rare_flag("--binary", "One score per row: that of class 1.", READING)] = False
    classes: Annotated[
        str | None, rare("--classes NAMES", "Class names in logit order: a file or a comma list.", READING)
    ] = None

    def source(self, dumps: list[str], engine: Engine, bad: SkipOptions | MaskRowOptions | None = None) -> Source:
        """The dump to read."""
        from drrej.data.dump import DumpOptions
        from drrej.engines.local import reuse_memory
        from drrej.pipeline.source import Source

        reuse_memory()
        given = {name: value for name, value in asdict(self).items() if value not in (None, False)}
        if self.classes is not None:
            given["classes"] = _class_names(self.classes)
        if bad is not None:
            if bad.max_bad is not None and bad.on_bad_row == bad.on_bad_file == "error":
                raise OptionError(
                    "--max-bad goes with --on-bad-row or --on-bad-file: without them the first bad row or file is an "
                    "error"
                )
            on_bad_row = "skip" if bad.on_bad_row == "skip" else "error"
            given |= {"on_bad_row": on_bad_row, "on_bad_file": bad.on_bad_file, "max_bad": bad.max_bad}
        source = Source(dumps, DumpOptions(**given), engine)
        check_one_stdin(source)
        return source


class LabelOptions(ScoreOptions, frozen=True):
    """How scores are found in a dump, and labels in it or beside it."""

    labels_from: Annotated[
        str | None, rare("--labels-from FILE", "Labels kept in another file, of any format.", READING)
    ] = None
    on_missing_label: Annotated[
        Literal["error", "skip"] | None,
        rare(
            "--on-missing-label",
            "What becomes of rows without a label (null, or not in --labels-from).",
            READING,
            show_default="error",
        ),
    ] = None


class InputOptions(LabelOptions, frozen=True):
    """How a dump is read."""

    join_on: Annotated[
        str | None, rare("--join-on COL", "Key column shared with --labels-from; arrays go row by row.", READING)
    ] = None


class LayoutOptions(InputOptions, frozen=True):
    """How dumps and logs of lm-evaluation-harness are read."""

    filter: Annotated[
        str | None, rare("--filter NAME", "Of a log of lm-evaluation-harness with several filters.", READING)
    ] = None
    per_length: Annotated[
        bool, rare_flag("--per-length", "Divide log-likelihoods of choices by their length in characters.", READING)
    ] = False


OnBadFile = Annotated[
    Literal["error", "skip"],
    rare("--on-bad-file", "What becomes of a file that cannot be read; skip: it is left out.", READING),
]
MaxBad = Annotated[
    float | None,
    rare("--max-bad SHARE", "Exit 2 if more of the rows, or files, are bad.", READING, show_default="no limit"),
]


class SkipOptions(Struct, frozen=True):
    """What becomes of bad rows and files where there is no mask that could reject them."""

    on_bad_row: Annotated[
        Literal["error", "skip"],
        rare("--on-bad-row", "What becomes of a row without usable scores; skip: it is left out.", READING),
    ] = "error"
    on_bad_file: OnBadFile = "error"
    max_bad: MaxBad = None


OnUnseenGroup = Annotated[
    Literal["error", "reject"],
    rare("--on-unseen-group", "What becomes of a row of a group that the threshold does not know."),
]


class MaskRowOptions(Struct, frozen=True):
    """What a mask holds, and what becomes of bad rows, bad files and unknown groups."""

    keep: Annotated[
        str | None, option("--keep COLS", "Comma list of columns to copy.", show_default="all but the logits")
    ] = None
    on_bad_row: Annotated[
        Literal["error", "reject", "skip"],
        option("--on-bad-row", "What becomes of a row without usable scores; skip: it is left out."),
    ] = "error"
    on_unseen_group: OnUnseenGroup = "error"
    on_bad_file: OnBadFile = "error"
    max_bad: MaxBad = None

    @property
    def columns(self) -> list[str] | None:
        """The columns of --keep."""
        return names_of(self.keep)


class EngineOptions(Struct, frozen=True):
    """What runs the passes, and whether it may say something."""

    jobs: Annotated[int, rare("--jobs N", "Workers on this machine; 0 is all cores.", ENGINE)] = 0
    cluster: Annotated[
        str | None,
        rare(
            "--cluster ADDRESS",
            "Work on a Dask cluster: tls://HOST:8786 or tcp://HOST:8786.",
            ENGINE,
            envvar="DASK_SCHEDULER_ADDRESS",
        ),
    ] = None
    quiet: Annotated[bool, flag("-q --quiet", "No progress, no warnings.")] = False

    def start(self, log: Progress | None = None) -> Engine:
        """What runs the passes: this machine, or a cluster; `log` is told how far they are."""
        if self.jobs < 0:
            raise OptionError(f"--jobs {self.jobs}: it must be 0 (all cores) or more")
        shown = log or progress(self.quiet)
        if self.cluster is None:
            from drrej.engines.local import LocalEngine

            return LocalEngine(self.jobs, shown, processes=True)
        from drrej.engines.dask import DaskEngine, connect, is_open_to_strangers

        client = connect(self.cluster)
        if is_open_to_strangers(self.cluster):
            warn(
                f"{self.cluster} is not encrypted: whoever reaches it can read the rows and run code as you", self.quiet
            )
        return DaskEngine(client, shown)


def _class_names(text: str) -> tuple[str, ...]:
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


def names_of(text: str | None) -> list[str] | None:
    """The columns of a comma list."""
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def bytes_of(memory: str | None) -> int | None:
    """The size of --memory."""
    if memory is None:
        return None
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([KMGT]?)(?:I?B)?\s*", memory.upper(), re.ASCII)
    if match is None:
        raise OptionError(f"--memory '{memory}': write a size such as 500M or 4G")
    return int(float(match[1]) * 1024 ** " KMGT".index(match[2] or " "))


def check_one_stdin(*sources: Source, rejector: str | None = None) -> None:
    """Standard input can be read for one thing only."""
    named = [rejector]
    for source in sources:
        named += [*source.arguments, source.options.labels_from]
    if named.count(STDIN) > 1:
        raise OptionError("standard input cannot be both of two inputs; give all but one of them as files")


def check_spared(*inputs: str | None) -> None:
    """Raise when an output would replace one of these files, which are inputs besides the dumps."""
    from drrej.outputs.destinations import check_inputs

    check_inputs(name for name in inputs if name is not None and ("://" in name or os.path.isfile(name)))


def read_rejector(path: str, source: Source, needs: Section) -> Rejector:
    """The rejector document behind `-r`, checked to have a section (and those before it)."""
    from drrej.documents.rejector import Rejector

    check_one_stdin(source, rejector=path)
    check_spared(path)
    where = "standard input" if path == STDIN else path
    raw = _content(path)
    if not raw.strip():
        reason = "; the step before it in the pipe failed" if path == STDIN else ""
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
    if path == STDIN:
        if sys.stdin is None:
            raise RejectorError("standard input: it is closed; name a file with -r")
        return sys.stdin.buffer.read()
    try:
        if "://" not in path:
            with open(path, "rb") as stream:
                return stream.read()
        import pyarrow.fs as pafs

        filesystem, key = pafs.FileSystem.from_uri(path)
        with filesystem.open_input_stream(key) as remote:
            content: bytes = remote.read()
        return content
    except OSError as error:
        reason = error.strerror or " ".join(str(error).split())[:300]
        raise RejectorError(f"{path}: cannot be read ({reason})") from None
