"""drrej ensemble."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from drrej.cli import options
from drrej.cli.command import Command
from drrej.cli.console import say_notes
from drrej.cli.main import app
from drrej.cli.reading import Certificates, Reading, check_one_stdin, engine_of, read_rejector
from drrej.cli.writing import check_spared
from drrej.errors import OptionError

if TYPE_CHECKING:
    from drrej.pipeline.ensemble import Member
    from drrej.pipeline.source import Source

EXAMPLES = """
Examples:

drrej ensemble --member small --member large --join-on id -o both.parquet

drrej ensemble --member a --member b --join-on id --mean log -o ab.parquet
"""


@app.command(cls=Command, epilog=EXAMPLES)
def ensemble(
    member: Annotated[
        list[str],
        typer.Option(
            "--member",
            metavar="DUMP",
            help="A model's dump; DUMP:FILE.json with its rejector to calibrate it. Repeatable.",
        ),
    ],
    join_on: options.PairedOn,
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="FILE", help="The dump of the ensemble, as parquet.")
    ],
    mean: Annotated[
        Literal["prob", "log"], typer.Option("--mean", help="Mean of probabilities, or of their logarithms.")
    ] = "prob",
    force: options.Force = False,
    no_labels: Annotated[
        bool, typer.Option("--no-labels", metavar=options.FLAG, help="The dumps have no labels.")
    ] = False,
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
    """Make one dump of those of several models: the mean of what they say of each row.

    The other commands read it like any dump of logits.
    """
    from drrej.outputs.destinations import OutputFile
    from drrej.outputs.masks import write_table
    from drrej.pipeline.ensemble import ensemble as step

    if not output.endswith(".parquet"):
        raise OptionError(f"-o {output}: the ensemble is written as .parquet; 'drrej convert' makes other formats")
    shared = (labels_from, None if labels_from is None else join_on, on_missing_label)
    reading = Reading(logits, label, *shared, input, binary, classes, normalize)
    engine = engine_of(jobs, cluster, quiet, Certificates(tls_ca, tls_cert, tls_key))
    members = [_member(text, lambda dump: reading.source([dump], engine)) for text in member]
    check_one_stdin(*(each.source for each in members))
    with OutputFile(output, force) as file:
        check_spared(classes)
        write_table(step(members, join_on, mean, not no_labels), file.path, file.target)
        file.commit()
    for each in members:
        say_notes(each.source, quiet)


def _member(text: str, source_of: Callable[[str], Source]) -> Member:
    """DUMP, or DUMP:FILE.json; a DUMP may have colons."""
    from drrej.pipeline.ensemble import Member

    dump, colon, rejector = text.rpartition(":")
    if not (colon and dump and rejector.endswith(".json")):
        return Member(source_of(text))
    source = source_of(dump)
    return Member(source, read_rejector(rejector, source, "calibration"))
