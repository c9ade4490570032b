"""drrej cascade."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from drrej.cli import options
from drrej.cli.command import Command
from drrej.cli.console import say_notes, show
from drrej.cli.flags import in_flags
from drrej.cli.main import app
from drrej.cli.reading import Certificates, Reading, check_one_stdin, engine_of
from drrej.cli.writing import check_spared
from drrej.errors import OptionError

if TYPE_CHECKING:
    from drrej.pipeline.cascade import Stage
    from drrej.pipeline.source import Source

EXAMPLES = """
Examples:

drrej cascade --accuracy 0.9 --join-on id --stage s=small:1 --stage l=large:9

drrej cascade --accuracy 0.99 --join-on id --stage s=small:1 --review-cost 9
"""


@app.command(cls=Command, epilog=EXAMPLES)
def cascade(
    stage: Annotated[
        list[str],
        typer.Option(
            "--stage", metavar="NAME=DUMP:COST", help="A model: a dump of its scores, and what a row costs. Repeatable."
        ),
    ],
    accuracy: Annotated[float, typer.Option("--accuracy", metavar="A", help="The accuracy of all answers to keep.")],
    join_on: options.PairedOn,
    confidence: Annotated[
        float | None,
        typer.Option("--confidence", metavar="P", help="Certify the accuracy on new rows, with half of the rows."),
    ] = None,
    review_cost: Annotated[
        float | None,
        typer.Option("--review-cost", metavar="COST", help="People may answer what is left, at this cost a row."),
    ] = None,
    calibrator: options.Calibrator = None,
    loss: Annotated[
        Literal["zero-one", "log", "brier", "margin", "logit-margin", "learned", "auto"],
        typer.Option("--loss", metavar="NAME", help="By which a stage passes rows on: log, margin, auto, ..."),
    ] = "zero-one",
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Another seed, other halves.")] = 0,
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", metavar="DIR", help="Directory for the report, rejectors and routing."),
    ] = None,
    force: options.Force = False,
    format: Annotated[Literal["text", "json"], typer.Option("--format", help="What goes to standard output.")] = "text",
    logits: options.Logits = None,
    label: options.Label = None,
    labels_from: options.LabelsFrom = None,
    on_missing_label: options.OnMissingLabel = None,
    input: options.Input = None,
    normalize: options.Normalize = False,
    binary: options.Binary = False,
    classes: options.Classes = None,
    jobs: options.Jobs = 0,
    cluster: options.ClusterAddress = None,
    tls_ca: options.TlsAuthority = None,
    tls_cert: options.TlsCertificate = None,
    tls_key: options.TlsKey = None,
    quiet: options.Quiet = False,
) -> None:
    """Let a cheap model answer what it is sure of and a dearer one the rest, at least cost for an accuracy.

    Stages are asked in the order given, with labelled dumps of the same rows.
    """
    from drrej.outputs.destinations import OutputFile, prepare_directory
    from drrej.outputs.masks import write_table
    from drrej.pipeline.cascade import CascadeOptions
    from drrej.pipeline.cascade import cascade as step
    from drrej.report.cascade import render_cascade

    wanted = CascadeOptions(accuracy, join_on, confidence, review_cost, loss, calibrator or "temperature", seed)
    shared = (labels_from, None if labels_from is None else join_on, on_missing_label)
    reading = Reading(logits, label, *shared, input, binary, classes, normalize)
    engine = engine_of(jobs, cluster, quiet, Certificates(tls_ca, tls_cert, tls_key))
    stages = [_stage(text, lambda dump: reading.source([dump], engine)) for text in stage]
    check_one_stdin(*(each.source for each in stages))
    with ExitStack() as stack:
        files = {}
        if output is not None:
            stack.enter_context(prepare_directory(output))
            names = [*(f"{each.name}.json" for each in stages), "cascade.json", "cascade.txt", "routing.parquet"]
            if len(set(names)) < len(names):
                raise OptionError("--stage cascade: the report has this name; choose another")
            files = {name: stack.enter_context(OutputFile(os.path.join(output, name), force)) for name in names}
        check_spared(classes)
        found = step(stages, wanted)
        text = in_flags(render_cascade(found.report))
        if output is not None:
            contents = {f"{name}.json": rejector.to_json() for name, rejector in found.rejectors.items()}
            contents |= {"cascade.json": found.report.to_json(), "cascade.txt": text}
            for name, content in contents.items():
                files[name].write_text(content)
            routing = files["routing.parquet"]
            write_table(found.routing, routing.path, routing.target)
            for name in (*contents, "routing.parquet"):
                files[name].commit()
    for each in stages:
        say_notes(each.source, quiet)
    show(found.report.to_json() if format == "json" else text)


def _stage(text: str, source_of: Callable[[str], Source]) -> Stage:
    """NAME=DUMP:COST as a stage; a DUMP may have colons."""
    from drrej.pipeline.cascade import Stage

    name, _, rest = text.partition("=")
    dump, _, price = rest.rpartition(":")
    try:
        cost = float(price)
    except ValueError:
        name = ""
    if not (name and dump):
        raise OptionError(f"--stage {text}: write NAME=DUMP:COST, such as small=small.parquet:1")
    return Stage(name, source_of(dump), cost)
