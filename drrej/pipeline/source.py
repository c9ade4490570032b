"""A dump to read, opened as a rejector remembers it."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import Concatenate, ParamSpec, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from drrej.core.inputs import WORDS
from drrej.core.types import Precision
from drrej.data.dump import Dump, DumpOptions, Notes
from drrej.data.files import DumpFile
from drrej.data.listing import Spools
from drrej.data.open import Unneeded, open_dump
from drrej.data.problems import Problems, check_bad_rows
from drrej.documents.document import BadFile, BadRows, LeftOut
from drrej.documents.rejector import Columns, Rejector
from drrej.engines.local import LocalEngine
from drrej.engines.protocol import Engine, PassSummary
from drrej.errors import BadFileError, DumpError, OptionError
from drrej.outputs.destinations import check_inputs


class Source(Struct, frozen=True):
    """A predictions file to read: one or several paths, and how to read them."""

    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
    options: DumpOptions = field(default_factory=DumpOptions)
    engine: Engine = field(default_factory=LocalEngine)
    notes: Notes = field(default_factory=Notes)
    passed: Problems = field(default_factory=Problems)
    """What is wrong with rows that were let through or left out."""
    bad_files: dict[str, str] = field(default_factory=dict)
    """Files that were left out, and why."""
    cautions: list[str] = field(default_factory=list)
    """What a step doubts about the rows as a whole."""
    spools: Spools = field(default_factory=dict)
    found: list[DumpFile] = field(default_factory=list)
    """The files that were there when it was first opened: a command that opens it again must find the same."""

    @property
    def arguments(self) -> list[str]:
        """The paths, globs and URIs that were named."""
        named = [self.paths] if isinstance(self.paths, (str, os.PathLike)) else self.paths
        return [os.fspath(path) for path in named]

    def open(self, rejector: Rejector | None, labelled: bool, unneeded: Unneeded | None = None) -> Dump:
        """Open it; what the options leave open is taken from the rejector."""
        options = self.options if rejector is None else remembered(self.options, rejector)
        labelled = labelled or (options.split is not None and options.split.by_label)
        classes = None if rejector is None else rejector.classes
        dump = open_dump(self.arguments, options, labelled, self.spools, self.bad_files, classes, unneeded)
        check_inputs([*dump.parts, *([] if dump.labels_file is None else [dump.labels_file])])
        if not self.found:
            self.found.extend(dump.parts)
        if self.found != list(dump.parts):
            names = [part.name for part in sorted({*self.found} ^ {*dump.parts}, key=lambda part: part.name)]
            raise DumpError(
                f"{names[0]}: the file was changed, added or removed since the dump was first opened; "
                "wait until the dump is complete, then start again"
            )
        if rejector is not None and dump.columns.layout == "choices" and dump.classes < rejector.classes:
            dump = replace(dump, classes=rejector.classes)  # none of these questions has as many choices
        if rejector is not None and rejector.is_scored:
            known = rejector.columns.logits
            own, fitted = ([part.endswith(WORDS) for part in each.split(",")] for each in (dump.columns.pattern, known))
            if own != fitted:  # more, fewer, or words in place of numbers
                kinds = ", ".join("words" if is_words else "numbers" for is_words in fitted)
                raise DumpError(
                    f"{dump.parts[0].name}: '{dump.columns.pattern}' cannot take the place of '{known}' ({kinds}), "
                    "which the rejector was made for"
                )
        if rejector is not None:
            check_classes(dump.parts[0].name, dump.columns.pattern, dump.classes, rejector)
        return dump

    def see(self, summary: PassSummary) -> None:
        """Keep what a pass noticed; raises when more rows are bad than the options allow."""
        self.notes.see(summary.notes)
        self.passed.see(summary.passed)
        check_bad_rows(summary.notes.bad_rows, summary.notes.rows, self.options.max_bad, summary.passed)

    def models(self, rejector: Rejector) -> dict[str, str | None]:
        """The model that made the predictions, and that of the rejector where it is another."""
        model = self.options.model or rejector.model
        return {"model": model, "rejector_model": None if rejector.model == model else rejector.model}

    def named(self, rejector: Rejector) -> Rejector:
        """A rejector that goes on being made, with the model of these predictions; raises if it has another."""
        models = self.models(rejector)
        if models["rejector_model"] is not None:
            raise OptionError(
                f"`model={self.options.model}`: the rejector was started on predictions of {rejector.model}; calibrate "
                "again on those of the new version"
            )
        return rejector if models["model"] == rejector.model else replace(rejector, model=models["model"])

    def new_rejector(self, dump: Dump, precision: Precision) -> Rejector:
        """A rejector that has nothing yet but remembers how this dump is read."""
        columns = Columns(dump.columns.pattern, self.options.label or dump.label)
        if dump.input == "scores":
            prediction = self.options.prediction
            label = None if prediction is None else self.options.label or dump.label
            correct = (self.options.correct or dump.label) if prediction is None else None
            columns = Columns(dump.columns.pattern, label, prediction, correct=correct)
        return Rejector(
            classes=dump.classes,
            input=dump.input,
            columns=columns,
            class_names=dump.names,
            binary=dump.binary,
            precision=precision,
            normalize=bool(dump.options.normalize),
            model=self.options.model,
        )


P = ParamSpec("P")
T = TypeVar("T")


def without_bad_files(step: Callable[Concatenate[Source, P], T]) -> Callable[Concatenate[Source, P], T]:
    """A step that starts again without a file that turns out to be damaged on the way, where the options say so."""

    def again(source: Source, /, *args: P.args, **options: P.kwargs) -> T:
        while True:
            try:
                return step(source, *args, **options)
            except BadFileError as error:
                known = not error.file or error.file in source.bad_files
                if source.options.on_bad_file == "error" or known or source.options.split is not None:
                    raise  # also of a part of a dump: it was divided with the rows of that file
                source.bad_files[error.file] = str(error)
                source.found.clear()

    functools.update_wrapper(again, step)
    return again


def remembered(options: DumpOptions, rejector: Rejector) -> DumpOptions:
    """How to read a dump, where what the options leave open is taken from the rejector.

    Raises when class names are given that contradict those that the rejector remembers.
    """
    if rejector.is_scored:
        return _scores_remembered(options, rejector)
    if options.score is not None:
        raise OptionError("`score`: the rejector was made for rows with logits; leave it out")
    if options.prediction is not None and not rejector.has_classes:
        options = replace(options, prediction=None)  # of a regression
    given, known = options.classes, rejector.class_names
    if given is not None and known is not None and len(given) != len(known):
        raise OptionError(
            f"`classes` names {len(given)} classes but the rejector has names for {len(known)}; leave it out"
        )
    for place, (name, own) in enumerate(zip(given or (), known or (), strict=False)):
        if name != own:
            raise OptionError(
                f"`classes` calls class {place} '{name}' but the rejector calls it '{own}'; leave it out, or make the "
                "rejector again"
            )
    input = options.input or (None if rejector.input == "logits" else rejector.input)
    normalize = rejector.normalize and input not in (None, "logits")
    return replace(
        options,
        logits=options.logits or rejector.columns.logits,
        label=options.label or rejector.columns.label,
        input=input,
        normalize=normalize if options.normalize is None else options.normalize,
        binary=rejector.binary if options.binary is None else options.binary,
        classes=options.classes or rejector.class_names,
    )


def _scores_remembered(options: DumpOptions, rejector: Rejector) -> DumpOptions:
    known, fitted = rejector.columns, rejector.need_calibration().score
    if options.lower_is_better and fitted is not None and not fitted.lower:
        raise OptionError("`lower_is_better`: the rejector was made without it; make it again, with 'drrej calibrate'")
    options = replace(options, score=options.score or known.logits)
    if options.correct is not None:
        return options
    if options.prediction is None and options.label is None and known.correct is not None:
        return replace(options, correct=known.correct)
    return replace(options, prediction=options.prediction or known.prediction, label=options.label or known.label)


def check_classes(where: str, column: str, classes: int, rejector: Rejector) -> None:
    """Raise when rows have another number of scores than the rejector was made for."""
    if classes != rejector.classes:
        raise DumpError(
            f"{where}: column '{column}' has {classes} scores per row but the rejector was made for "
            f"{rejector.classes} classes; is it the same model?"
        )


def left_out(source: Source) -> LeftOut | None:
    """The bad rows and files of a dump that was read; None if there were none."""
    rows, files = source.passed.values(), source.bad_files
    if not rows and not files:
        return None
    return LeftOut(
        rows=source.notes.bad_rows,
        reasons=tuple(
            BadRows(
                reason=problem.what,
                column=problem.column,
                rows=problem.count,
                first_file=problem.file,
                first_row=problem.row,
            )
            for problem in rows
        ),
        files=tuple(BadFile(file=file, reason=reason) for file, reason in files.items()),
    )
