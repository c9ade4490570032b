"""drrej threshold."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, Optional

import typer

from drrej.cli.console import complain, say_notes
from drrej.cli.main import app
from drrej.cli.options import Dumps, Output, Reading, RejectorIn, RuleChoice, grouped, read_rejector
from drrej.cli.parameters import Command
from drrej.errors import OptionError

if TYPE_CHECKING:
    from drrej.core.thresholds import Rule
    from drrej.documents.rejector import Rejector
    from drrej.pipeline.threshold import ThresholdOptions


@dataclass(frozen=True)
class Guarantee:
    """Whether and how the rule is a guarantee, and for which groups."""

    confidence: Annotated[
        Optional[float],
        typer.Option(
            "--confidence", metavar="P", help="Make --risk or --coverage hold on new rows with probability P."
        ),
    ] = None
    method: Annotated[
        Optional[Literal["fixed-sequence", "sgr"]],
        typer.Option(
            "--method",
            help="How a risk is certified [fixed-sequence]; sgr assumes that risk grows with coverage.",
        ),
    ] = None
    by: Annotated[
        Optional[str],
        typer.Option("--by", metavar="COL", help="A cutoff for each value of a column, or of 'prediction'."),
    ] = None
    allow_reuse: Annotated[
        bool, typer.Option("--allow-reuse", help="Allow rows that calibrate or fit have seen (recorded).")
    ] = False

    def rule(self, choice: RuleChoice) -> Rule:
        """The rule that was given, with its guarantee."""
        from drrej.core.thresholds import Rule

        plain = choice.rule()
        return Rule(plain.kind, plain.target, self.confidence, self.method)

    def options(self) -> ThresholdOptions:
        """As the library takes them."""
        from drrej.pipeline.threshold import ThresholdOptions

        return ThresholdOptions(self.by, self.allow_reuse)


@app.command(cls=Command)
@grouped
def threshold(
    dumps: Dumps,
    rejector: RejectorIn,
    rule: RuleChoice = RuleChoice(),
    guarantee: Guarantee = Guarantee(),
    mask: Annotated[
        Optional[str], typer.Option("--mask", metavar="FILE", help="Also write the mask of these rows.")
    ] = None,
    table: Annotated[
        Optional[str],
        typer.Option("--table", metavar="FILE", help="Also write all candidates, as .parquet or .csv."),
    ] = None,
    output: Output = Output(),
    reading: Reading = Reading(),
) -> None:
    """Add the threshold: exactly one of --tau, --coverage, --risk, --max-loss."""
    from drrej.outputs.files import OutputFile
    from drrej.outputs.masks import write_table
    from drrej.pipeline.reject import reject
    from drrej.pipeline.threshold import choose_threshold

    chosen = guarantee.rule(rule)
    if table is not None and not table.lower().endswith((".parquet", ".csv")):
        raise OptionError(f"--table {table}: the ending says the format; use .parquet or .csv")
    source = reading.source(dumps)
    with ExitStack() as files:
        document = files.enter_context(output.open(same_as=rejector))
        mask_file = None if mask is None else files.enter_context(OutputFile(mask, output.force))
        table_file = None if table is None else files.enter_context(OutputFile(table, output.force))
        start = read_rejector(rejector, source, "ratio")
        found = choose_threshold(source, start, chosen, guarantee.options(), table_file is not None)
        say_notes(source, reading.quiet)
        warn_uncertified(found.rejector, reading.quiet)
        document.write_text(found.rejector.to_json())
        if mask_file is not None:
            reject(source, found.rejector, mask_file)
            mask_file.commit()
        if table_file is not None:
            write_table(found.candidates, table_file.path, table_file.target)
            table_file.commit()
        document.commit()


def warn_uncertified(rejector: Rejector, quiet: bool) -> None:
    """Tell of groups that are rejected as a whole."""
    from drrej.pipeline.threshold import uncertified_groups

    groups = uncertified_groups(rejector)
    if groups and not quiet:
        shown = ", ".join(f"'{group}'" for group in groups[:5]) + (", ..." if len(groups) > 5 else "")
        complain(f"no cutoff meets the risk in {len(groups)} groups ({shown}); all their rows are rejected", "warning")
