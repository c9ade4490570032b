"""What is read: the groups of options that say how a dump is read, and the rejector of `-r`."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from drrej.cli.options import READING, STREAM, Options, option, rare, rare_flag
from drrej.errors import OptionError, RejectorError

if TYPE_CHECKING:
    from drrej.documents.rejector import Rejector
    from drrej.engines.protocol import Engine
    from drrej.pipeline.source import Source

OnBad = Literal["error", "skip"]
OnUnseen = Literal["error", "reject"]

Dumps = Annotated[list[str], typer.Argument(metavar="DUMP", hidden=True)]  # the help would say <list[str]>
OptionalDumps = Annotated[list[str] | None, typer.Argument(metavar="DUMP", hidden=True)]

rejector_option = partial(option, "The rejector so far; - is standard input.", "FILE")


class InputOptions(Options):
    """How scores and labels are found in a dump."""

    logits: str | None = option("Columns of the scores: a name, path, glob ('prob_*') or list A,B.", "COL", READING)
    label: str | None = option("Label column.", "COL", READING, show_default="label")
    input: Literal["logits", "probs", "log-probs"] | None = option(
        "What the scores are; log-probs if a class may have probability 0.", panel=READING, show_default="logits"
    )
    normalize: bool = rare_flag("With --input probs: divide each row by its sum.", panel=READING)
    binary: bool = rare_flag("One score per row: that of class 1.", panel=READING)
    classes: str | None = rare("Class names in logit order: a file, or names separated by commas.", "NAMES", READING)
    score: str | None = option(
        "A score of any kind instead of logits, with --correct COL: a column, a path or a list.", "COL", READING
    )
    correct: str | None = rare("With --score: whether each row was right (true, 1, correct, ...).", "COL", READING)
    prediction: str | None = rare("With --score: right if equal to the label; or a regression's.", "COL", READING)
    lower_is_better: bool = rare_flag("With --score: low values are good, as for a distance.", panel=READING)
    labels_from: str | None = rare("Labels kept in another file, of any format.", "FILE", READING)
    on_missing_label: OnBad | None = rare(
        "How to handle rows without a label (null, or not in --labels-from).", panel=READING, show_default="error"
    )
    join_on: str | None = rare("Key column shared with --labels-from; arrays are matched row by row.", "COL", READING)

    def source(self, dumps: list[str], engine: Engine, paired: bool = False) -> Source:
        """The dump to read; a group that also has options for bad rows and files brings them along.

        Where dumps are `paired` by --join-on, it is no key of labels unless they are in another file.
        """
        from drrej.data.dump import DumpOptions
        from drrej.engines.local import reuse_memory
        from drrej.pipeline.source import Source

        reuse_memory()
        given = {name: vars(self)[name] for name in self.not_default() if name in DumpOptions.__struct_fields__}
        if "max_bad" in given and not given.keys() & {"on_bad_row", "on_bad_file"}:
            raise OptionError(
                "--max-bad requires --on-bad-row or --on-bad-file: without them the first bad row or file is an error"
            )
        if self.score is None:  # what is configured for such scores, or for regressions, has no meaning here
            for name in {"correct", "prediction", "lower_is_better"} - {*self.given()}:
                given.pop(name, None)
        if given.get("on_bad_row") == "reject":  # by the mask: nothing is left out
            del given["on_bad_row"]
        if paired and self.labels_from is None:
            del given["join_on"]
        if self.classes is not None:
            given["classes"] = _class_names(self.classes)
            check_spared(self.classes)
        source = Source(dumps, DumpOptions(**given), engine)
        check_one_stdin(source)
        return source


class JudgedInput(InputOptions):
    """How a dump is read whose labels are compared with predictions, and how bad rows and files are handled."""

    on_bad_row: OnBad = rare(
        "How to handle rows without usable scores; skip leaves them out.", panel=READING, default="error"
    )
    on_bad_file: OnBad = rare(
        "How to handle files that cannot be read; skip leaves them out.", panel=READING, default="error"
    )
    max_bad: float | None = rare(
        "Exit 2 if more than this share of the rows or files is bad.", "SHARE", READING, show_default="no limit"
    )
    model: str | None = rare(
        "Model that made the predictions, recorded in rejectors, masks and reports.", "NAME@VERSION", READING
    )
    on_unknown_label: Literal["error", "wrong", "skip"] | None = rare(
        "How to handle labels that are not classes of the model; wrong counts them as errors.",
        panel=READING,
        show_default="error",
    )


_unlabelled = rare(
    "How to handle rows without a label; skip ignores them in the risk only.", panel=READING, show_default="error"
)
BatchInput = Annotated[JudgedInput, {"model": None, "on_missing_label": _unlabelled}]
"""How the dump of a batch is read that is monitored: rows without a label count for all but the risk."""


class MaskInput(InputOptions):
    """How a dump is read, and how its rows are handled in the mask."""

    keep: str | None = option("Columns to copy, separated by commas.", "COLS", show_default="all except the logits")
    on_bad_row: Literal["error", "reject", "skip"] = option(
        "How to handle rows without usable scores; skip leaves them out.", default="error"
    )
    on_unseen_group: OnUnseen = rare("How to handle rows of groups that have no cutoff.", default="error")
    on_bad_file: OnBad = JudgedInput.on_bad_file
    max_bad: float | None = JudgedInput.max_bad
    model: str | None = JudgedInput.model


class RegressionOptions(Options):
    """The columns of a regression: rows with a loss of their own and no logits.

    The task is the rejector's; `task` only says what it is expected to be.
    """

    target: str | None = rare("The true value.", "COL", "Regression")
    task: Literal["classification", "regression"] | None = rare(
        "Check that the rejector is for classification or regression.", "TASK", "Regression"
    )

    def refuse(self) -> None:
        """Raise when they were given for a classification."""
        for name in self.given():
            if name != "task":
                raise OptionError(f"--{name}: it is for a regression (rows with a loss of their own and no logits)")


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


def check_one_stdin(*sources: Source, rejector: str | None = None) -> None:
    """Standard input can be read for one thing only."""
    named = [rejector]
    for source in sources:
        named += [*source.arguments, source.options.labels_from]
    if named.count(STREAM) > 1:
        raise OptionError("only one input can be read from standard input; give the others as files")


def check_spared(*inputs: str | None) -> None:
    """Raise when an output would replace one of these files, which are inputs besides the dumps."""
    from drrej.outputs.destinations import check_inputs

    check_inputs(name for name in inputs if name is not None and ("://" in name or os.path.isfile(name)))


def read_rejector(path: str, source: Source, needs: Literal["calibration", "ratio", "threshold"]) -> Rejector:
    """The rejector document behind `-r`, checked to have a section (and those before it)."""
    from drrej.documents.rejector import Rejector

    check_one_stdin(source, rejector=path)
    check_spared(path)
    where = "standard input" if path == STREAM else path
    try:
        if path == STREAM:
            if sys.stdin is None:
                raise RejectorError("standard input: it is closed; name a file with -r")
            raw = sys.stdin.buffer.read()
        elif "://" in path:
            import pyarrow.fs as pafs

            filesystem, key = pafs.FileSystem.from_uri(path)
            with filesystem.open_input_stream(key) as stream:
                raw = bytes(stream.read())
        else:
            raw = Path(path).read_bytes()
    except OSError as error:
        reason = error.strerror or " ".join(str(error).split())[:300]
        raise RejectorError(f"{path}: cannot be read ({reason})") from None
    if not raw.strip():
        reason = "; the step before it in the pipe failed" if path == STREAM else ""
        raise RejectorError(f"{where}: it is empty{reason}")
    rejector = Rejector.from_json(raw, where)
    try:
        getattr(rejector, f"need_{needs}")()
    except RejectorError as error:
        raise RejectorError(f"{where}: {error}") from None
    return rejector
