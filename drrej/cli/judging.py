"""Options of the report, which `evaluate` and `run` share."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, Optional

import typer

from drrej.cli.console import complain, show_curve
from drrej.cli.options import Reading, read_rejector
from drrej.errors import OptionError

if TYPE_CHECKING:
    from drrej.documents.document import Judged
    from drrej.documents.gates import Gate
    from drrej.documents.rejector import Rejector
    from drrej.pipeline.compare import Rivals
    from drrej.pipeline.evaluate import BaselineDump, EvaluateOptions

Format = Literal["text", "json", "markdown", "github", "junit"]


@dataclass(frozen=True)
class Judging:
    """What the report holds and what it is judged by."""

    gate: Annotated[
        Optional[list[str]],
        typer.Option(
            "--gate", metavar="EXPR", help="Exit 1 unless METRIC OP NUMBER holds, e.g. 'accuracy >= 0.97'. Repeatable."
        ),
    ] = None
    metric: Annotated[
        Optional[list[str]],
        typer.Option(
            "--metric", metavar="POINT", help="Also report a point such as accuracy@coverage=0.9. Repeatable."
        ),
    ] = None
    intervals: Annotated[bool, typer.Option("--intervals", help="Also give the intervals of the areas.")] = False
    compare: Annotated[
        bool, typer.Option("--compare", help="Also judge the usual scores: max probability, entropy, margin, ...")
    ] = False
    score: Annotated[
        Optional[list[str]], typer.Option("--score", metavar="COL", help="Also judge a column as score. Repeatable.")
    ] = None
    score_order: Annotated[
        Optional[list[str]],
        typer.Option(
            "--score-order",
            metavar="high|low",
            help="Which end of --score is accepted first [high]; once, or once for each.",
        ),
    ] = None
    rejected: Annotated[
        Optional[list[str]],
        typer.Option("--rejected", metavar="COL", help="Also judge another rejector's mask. Repeatable."),
    ] = None
    baseline: Annotated[
        Optional[str],
        typer.Option("--baseline", metavar="FILE", help="Also report differences to an earlier report (JSON)."),
    ] = None
    baseline_dump: Annotated[
        Optional[list[str]],
        typer.Option(
            "--baseline-dump", metavar="DUMP", help="Differences to a dump of the same rows, paired by --join-on."
        ),
    ] = None
    baseline_rejector: Annotated[
        Optional[str],
        typer.Option("--baseline-rejector", metavar="FILE", help="Rejector of --baseline-dump [the same]."),
    ] = None
    on_unseen_group: Annotated[
        Literal["error", "reject"],
        typer.Option("--on-unseen-group", help="A row of a group that the threshold does not know."),
    ] = "error"

    def gates(self) -> list[Gate]:
        """Gates, read before any work."""
        from drrej.documents.gates import Gate

        return [Gate.parse(text) for text in self.gate or []]

    def options(self, reading: Reading, by: str | None = None, labels: bool = True) -> EvaluateOptions:
        """As the library takes them, all but the baseline's dump; gates are checked against them."""
        from drrej.documents.points import Point
        from drrej.pipeline.baseline import read_baseline
        from drrej.pipeline.evaluate import EvaluateOptions, check_gates

        if self.baseline_dump and reading.join_on is None:
            raise OptionError("--baseline-dump needs --join-on COL: the key column that pairs the rows")
        if self.baseline_rejector and not self.baseline_dump:
            raise OptionError("--baseline-rejector goes with --baseline-dump")
        options = EvaluateOptions(
            points=[Point.parse(text)[0] for text in self.metric or []],
            intervals=self.intervals,
            by=by,
            rivals=self._rivals(),
            labels=labels,
            on_unseen_group=self.on_unseen_group,
            baseline=None if self.baseline is None else read_baseline(self.baseline),
        )
        if not self.baseline_dump:
            check_gates(self.gates(), options)
        return options

    def _rivals(self) -> Rivals:
        from drrej.pipeline.compare import Rivals, Score

        scores, orders = self.score or [], self.score_order or ["high"]
        if not set(orders) <= {"high", "low"}:
            raise OptionError("--score-order: it must be high or low")
        if len(orders) not in (1, len(scores)):
            raise OptionError(f"--score-order: give it once, or once for each of the {len(scores)} --score columns")
        if self.score_order and not scores:
            raise OptionError("--score-order goes with --score COL")
        orders = orders * len(scores) if len(orders) == 1 else orders
        chosen = tuple(
            Score(column, "low" if order == "low" else "high") for column, order in zip(scores, orders, strict=True)
        )
        return Rivals(self.compare, chosen, tuple(self.rejected or ()))

    def with_baseline_dump(self, options: EvaluateOptions, reading: Reading, rejector: Rejector) -> EvaluateOptions:
        """The options with the dump to compare with."""
        from drrej.pipeline.evaluate import BaselineDump

        if not self.baseline_dump:
            return options
        assert reading.join_on is not None
        source = self.reading(reading).source(self.baseline_dump)
        other = rejector
        if self.baseline_rejector is not None:
            other = read_rejector(self.baseline_rejector, source, "threshold")
        dump: BaselineDump = BaselineDump(source, other, reading.join_on)
        return dataclasses.replace(options, baseline_dump=dump)

    def reading(self, reading: Reading) -> Reading:
        """How dumps are read: without --labels-from, --join-on only pairs rows."""
        if self.baseline_dump and reading.labels_from is None:
            return dataclasses.replace(reading, join_on=None)
        return reading


def show_report(report: Judged, format: Format) -> None:
    """The report on standard output; on a terminal the text comes with its curve."""
    from drrej.report import RENDERERS

    typer.echo(RENDERERS[format](report), nl=False)
    if format == "text" and "coverage_curve" in report:
        chosen = (report["coverage"]["value"], report["accuracy"]["value"])
        show_curve(report["coverage_curve"], None if chosen[1] is None else chosen)


def exit_by_gates(report: Judged) -> None:
    """A line per failed gate, and exit 1 if there is one."""
    from drrej.pipeline.evaluate import failed_gates
    from drrej.report.numbers import against

    failed = failed_gates(report)
    for gate in failed:
        complain(f"{gate['gate']}: the value is {against(gate['value'], gate['limit'])}", "gate failed")
    if failed:
        raise typer.Exit(1)
