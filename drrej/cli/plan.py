"""drrej plan."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Struct

from drrej.cli.console import in_flags, say_notes, show, warn
from drrej.cli.input_options import EngineOptions, InputOptions, check_spared, read_rejector
from drrej.cli.options import Force, OptionalDumps, OptionalRejector, option
from drrej.errors import OptionError

if TYPE_CHECKING:
    from drrej.documents.summaries import Plan

EXAMPLES = """
drrej plan --accuracy 0.98 --coverage 0.8
drrej plan --risk 0.02 --confidence 0.9 --error 0.01 --power 0.9 -o plan.png
drrej plan fresh.parquet -r fitted.json --risk 0.02 -o plan.svg
"""

PLOTS = (".png", ".svg", ".pdf")
TEXTS = {".txt": "text", ".json": "json", ".md": "markdown"}


class PromiseOptions(Struct, frozen=True):
    """What is to be promised, and what is expected."""

    accuracy: Annotated[float | None, option("--accuracy A", "The accuracy of accepted rows to promise.")] = None
    risk: Annotated[float | None, option("--risk R", "The same as an error rate: 1 - A.")] = None
    confidence: Annotated[float, option("--confidence P", "The probability that the promise is kept.")] = 0.95
    coverage: Annotated[
        float | None, option("--coverage C", "The coverage to reach.", show_default="0.8; with a dump, all")
    ] = None
    error: Annotated[
        list[float] | None,
        option(
            "--error E",
            "Error rate that is expected among accepted rows. Repeatable.",
            show_default="0, 1/4, 1/2 and 3/4 of R",
        ),
    ] = None
    power: Annotated[
        float | None, option("--power Q", "The wanted chance that the rows certify it.", show_default="0.8")
    ] = None

    def target(self) -> float | None:
        """The promise as a risk."""
        from drrej.core.thresholds import Rule

        if self.accuracy is not None and self.risk is not None:
            raise OptionError("--accuracy and --risk are the same promise; give one of them")
        return self.risk if self.accuracy is None else Rule("accuracy", self.accuracy).risk


def plan(
    promise: PromiseOptions,
    input: InputOptions,
    engine: EngineOptions,
    dumps: OptionalDumps = None,
    rejector: OptionalRejector = None,
    output: Annotated[
        list[str] | None, option("-o --output FILE", "Also write .txt .json .md .png .svg .pdf. Repeatable.")
    ] = None,
    force: Force = False,
    format: Annotated[
        Literal["text", "json", "markdown"], option("--format", "What goes to standard output.")
    ] = "text",
) -> None:
    """Say how many labelled rows a promise takes, or what the rows of a dump can promise.

    DUMP: none, or labelled parquet files, directories, globs or URIs; - is standard input.
    """
    from drrej.outputs.destinations import OutputFile
    from drrej.pipeline.plan import COVERAGE, POWER, plan_from
    from drrej.pipeline.plan import plan as step

    risk, power = promise.target(), POWER if promise.power is None else promise.power
    _check(bool(dumps), rejector, promise, input, engine.jobs)
    renderers = {path: _renderer(path) for path in output or []}
    with ExitStack() as stack:
        files = [(stack.enter_context(OutputFile(path, force)), renderer) for path, renderer in renderers.items()]
        if dumps and rejector is not None:
            check_spared(input.classes)
            source = input.source(dumps, engine.start())
            start = read_rejector(rejector, source, "ratio")
            found, caution = plan_from(source, start, risk, promise.confidence, promise.coverage, power)
            say_notes(source, engine.quiet)
            warn(caution, engine.quiet)
        else:
            coverage = COVERAGE if promise.coverage is None else promise.coverage
            found = step(risk, promise.confidence, coverage, power, promise.error or None)
        for file, renderer in files:
            file.write_bytes(renderer(found))
        for file, _ in files:
            file.commit()
    show(_text(found, format))


def _check(dumps: bool, rejector: str | None, promise: PromiseOptions, input: InputOptions, jobs: int) -> None:
    """Raise when options do not go together."""
    if dumps and rejector is None:
        raise OptionError("a dump needs -r REJECTOR (from 'drrej fit'), whose losses order its rows")
    if dumps and promise.error:
        raise OptionError("--error is for a plan without a dump: here the rows say it")
    if dumps and promise.risk is promise.accuracy is None and promise.power is not None:
        raise OptionError("--power goes with --risk R: the chance to certify it")
    if not dumps and (rejector is not None or input != InputOptions()):
        raise OptionError("-r and the options on how to read go with a DUMP; name one, or leave them out")
    if not dumps and jobs:
        raise OptionError("--jobs goes with a DUMP; name one, or leave it out")


def _renderer(path: str) -> Callable[[Plan], bytes]:
    """How a file is made, by its ending."""
    ending = os.path.splitext(path)[1].lower()
    if ending in PLOTS:
        from drrej.report import need_libraries, render

        need_libraries(ending[1:], f"-o {path}")
        return lambda plan: render(plan, ending[1:])
    if ending not in TEXTS:
        raise OptionError(f"-o {path}: the ending says the format; use one of {', '.join([*TEXTS, *PLOTS])}")
    return lambda plan: _text(plan, TEXTS[ending]).encode()


def _text(plan: Plan, format: str) -> str:
    from drrej.report import RENDERERS

    return RENDERERS[format](plan) if format == "json" else in_flags(RENDERERS[format](plan))
