"""From options to what the library reads: dumps with their engine, and rejectors."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING, Literal

from drrej.cli.regression import refuse_columns
from drrej.cli.writing import check_spared
from drrej.core import special
from drrej.errors import OptionError, RejectorError
from drrej.records import dataclass

if TYPE_CHECKING:
    from drrej.documents.rejector import Rejector
    from drrej.engines.dask_security import Tls
    from drrej.engines.protocol import Engine, Progress
    from drrej.pipeline.source import Source

STDIN = "-"
Section = Literal["calibration", "ratio", "threshold"]


@dataclass(frozen=True)
class Bad:
    """The options --on-bad-row, --on-bad-file and --max-bad."""

    rows: Literal["error", "reject", "skip"] = "error"
    files: Literal["error", "skip"] = "error"
    most: float | None = None

    def check(self) -> None:
        """Raise when a share is given of what is not allowed at all."""
        if self.most is not None and self.rows == self.files == "error":
            raise OptionError(
                "--max-bad goes with --on-bad-row or --on-bad-file: without them the first bad row or file is an error"
            )


@dataclass(frozen=True)
class Reading:
    """The options under "Reading"."""

    logits: str | None = None
    label: str | None = None
    labels_from: str | None = None
    join_on: str | None = None
    on_missing_label: Literal["error", "skip"] | None = None
    input: Literal["logits", "probs", "log-probs"] | None = None
    binary: bool = False
    classes: str | None = None
    normalize: bool = False
    bad: Bad = Bad()
    filter: str | None = None
    per_length: bool = False

    def source(self, dumps: list[str], engine: Engine) -> Source:
        """The dump to read."""
        from drrej.data.dump import DumpOptions
        from drrej.engines.memory import prefer_jemalloc
        from drrej.pipeline.source import Source

        self.bad.check()
        prefer_jemalloc()
        options = DumpOptions(
            logits=self.logits,
            label=self.label,
            input=self.input,
            normalize=self.normalize or None,
            binary=self.binary or None,
            classes=_class_names(self.classes),
            labels_from=self.labels_from,
            join_on=self.join_on,
            on_missing_label=self.on_missing_label or "error",
            on_bad_row="skip" if self.bad.rows == "skip" else "error",
            on_bad_file=self.bad.files,
            max_bad=self.bad.most,
            filter=self.filter,
            per_length=self.per_length,
        )
        source = Source(dumps, options, engine)
        check_one_stdin(source)
        return source


@dataclass(frozen=True)
class Certificates:
    """The options --tls-ca, --tls-cert and --tls-key."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None

    def tls(self, cluster: str | None) -> Tls | None:
        """As the library takes them."""
        if self == Certificates():
            return None
        if cluster is None:
            raise OptionError("--tls-ca, --tls-cert and --tls-key go with --cluster tls://HOST:8786")
        if self.ca is None or self.cert is None:
            raise OptionError("--tls-ca FILE and --tls-cert FILE go together; give both")
        from drrej.engines.dask_security import Tls  # imports asyncio, which takes long

        return Tls(self.ca, self.cert, self.key)


def engine_of(
    jobs: int, cluster: str | None, quiet: bool, certificates: Certificates, log: Progress | None = None
) -> Engine:
    """What runs the passes: this machine, or a cluster; `log` is told how far they are."""
    from drrej.cli.console import complain, progress

    if jobs < 0:
        raise OptionError(f"--jobs {jobs}: it must be 0 (all cores) or more")
    tls = certificates.tls(cluster)
    if cluster is None:
        if special.alone:
            from drrej.engines.processes import ProcessEngine

            return ProcessEngine(jobs, log or progress(quiet))
        from drrej.engines.threads import ThreadEngine

        return ThreadEngine(jobs, log or progress(quiet))
    from drrej.engines.dask import DaskEngine
    from drrej.engines.dask_cluster import connection

    connected = connection(cluster, tls)
    if connected.is_open_to_strangers and not quiet:
        complain(f"{cluster} is not encrypted: whoever reaches it can read the rows and run code as you", "warning")
    return DaskEngine(connected, log or progress(quiet))


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


def names_of(keep: str | None) -> list[str] | None:
    """The columns of --keep."""
    return None if keep is None else [name.strip() for name in keep.split(",") if name.strip()]


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


@dataclass(frozen=True)
class Start:
    """What a command starts from: a rejector, a temperature in its place, or the own loss of rows without logits."""

    rejector: str | None
    temperature: float | None
    precision: Literal["auto", "float64"] | None
    loss_column: str | None = None
    prediction: str | None = None
    target: str | None = None
    floor: float | None = None

    def rejector_for(self, source: Source) -> Rejector:
        """A calibrated rejector."""
        from drrej.pipeline.fit import uncalibrated, without_logits

        precision = self.precision or "auto"
        if self.floor is not None and self.temperature is None:
            raise OptionError(
                "--floor is remembered in the rejector; give it to 'drrej calibrate', or with --temperature"
            )
        if self.loss_column is not None and self.rejector is None and self.temperature is None:
            return without_logits(self.loss_column, precision, self.prediction, self.target)
        refuse_columns(self.prediction, self.target)
        if self.rejector is not None and self.temperature is None:
            if self.precision is not None:
                raise OptionError("--precision is remembered in the rejector of -r; give it to 'drrej calibrate'")
            return read_rejector(self.rejector, source, "calibration")
        if self.temperature is not None and self.rejector is None:
            return uncalibrated(source, self.temperature, precision, self.floor)
        raise OptionError("give either -r REJECTOR (from 'drrej calibrate') or --temperature T (1 for none)")


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
