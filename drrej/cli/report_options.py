"""Groups of options that say what a report holds, what it is judged by and compared with, and how it is shown."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import Struct
from msgspec.structs import replace

from drrej.cli.console import complain, in_flags, warn
from drrej.cli.input_options import InputOptions, MaskRowOptions, SkipOptions, read_rejector
from drrej.cli.options import option, rare, rare_flag
from drrej.errors import OptionError
from drrej.report import TextFormat

if TYPE_CHECKING:
    from drrej.documents.document import Judged
    from drrej.documents.gates import Gate
    from drrej.documents.rejector import Rejector
    from drrej.documents.report import RegressionReport, Report
    from drrej.engines.protocol import Engine
    from drrej.pipeline.compare import BaselineDump, Rivals
    from drrej.pipeline.evaluate import EvaluateOptions

REPORT, COMPARISONS = "Report", "Comparisons"

Format = Annotated[TextFormat, option("--format FORMAT", "On standard output: text, json, markdown, github or junit.")]
Gates = Annotated[
    list[str] | None,
    option("--gate EXPR", "Exit 1 unless METRIC OP NUMBER holds, e.g. 'accuracy >= 0.97'. Repeatable.", REPORT),
]


def gates_of(texts: list[str] | None) -> list[Gate]:
    """The gates of --gate, read before any work."""
    from drrej.documents.gates import Gate

    return [Gate.parse(text) for text in texts or []]


class ComparisonOptions(Struct, frozen=True):
    """Other scores, masks and reports to judge besides."""

    compare: Annotated[
        bool, rare_flag("--compare", "Also judge the usual scores: max probability, entropy, margin, ...", COMPARISONS)
    ] = False
    score: Annotated[
        list[str] | None, rare("--score COL", "Also judge a column as score. Repeatable.", COMPARISONS)
    ] = None
    score_order: Annotated[
        list[str] | None,
        rare(
            "--score-order high|low",
            "Which end of --score is accepted first; once, or once for each.",
            COMPARISONS,
            show_default="high",
        ),
    ] = None
    rejected: Annotated[
        list[str] | None, rare("--rejected COL", "Also judge another rejector's mask. Repeatable.", COMPARISONS)
    ] = None
    baseline: Annotated[
        str | None, rare("--baseline FILE", "Also report differences to an earlier report (JSON).", COMPARISONS)
    ] = None
    baseline_dump: Annotated[
        list[str] | None,
        rare(
            "--baseline-dump DUMP",
            "Differences to a dump of the same rows, paired by --join-on. Repeatable.",
            COMPARISONS,
        ),
    ] = None
    baseline_rejector: Annotated[
        str | None,
        rare("--baseline-rejector FILE", "Rejector of --baseline-dump.", COMPARISONS, show_default="the same"),
    ] = None

    def check(self, input: InputOptions) -> None:
        """Raise when one option lacks another."""
        if self.baseline_dump and input.join_on is None:
            raise OptionError("--baseline-dump needs --join-on COL: the key column that pairs the rows")
        if self.baseline_rejector and not self.baseline_dump:
            raise OptionError("--baseline-rejector goes with --baseline-dump")

    def rivals(self) -> Rivals:
        """The other scores and masks to judge."""
        from drrej.pipeline.compare import Rivals, Score

        scores, orders = self.score or [], self.score_order or ["high"]
        if not set(orders) <= {"high", "low"}:
            raise OptionError("--score-order: it must be high or low")
        if self.score_order and not scores:
            raise OptionError("--score-order goes with --score COL")
        if len(orders) not in (1, len(scores)):
            raise OptionError(f"--score-order: give it once, or once for each of the {len(scores)} --score columns")
        orders = orders * len(scores) if len(orders) == 1 else orders
        chosen = tuple(
            Score(column, "low" if order == "low" else "high") for column, order in zip(scores, orders, strict=True)
        )
        return Rivals(self.compare, chosen, tuple(self.rejected or ()))

    def input(self, input: InputOptions) -> InputOptions:
        """How dumps are read: without --labels-from, --join-on only pairs rows."""
        if self.baseline_dump and input.labels_from is None:
            return replace(input, join_on=None)
        return input

    def dump(
        self, input: InputOptions, bad: SkipOptions | MaskRowOptions, engine: Engine, rejector: Rejector
    ) -> BaselineDump | None:
        """The dump to compare with, paired by key."""
        from drrej.pipeline.compare import BaselineDump

        if not self.baseline_dump:
            return None
        assert input.join_on is not None
        source = self.input(input).source(self.baseline_dump, engine, bad)
        other = rejector
        if self.baseline_rejector is not None:
            other = read_rejector(self.baseline_rejector, source, "threshold")
        return BaselineDump(source, other, input.join_on)


class ReportOptions(Struct, frozen=True):
    """What a report holds and what it is judged by."""

    gate: Gates = None
    metric: Annotated[
        list[str] | None,
        rare("--metric POINT", "Also report a point such as accuracy@coverage=0.9. Repeatable.", REPORT),
    ] = None
    report_by: Annotated[
        str | None, option("--report-by COL", "Also report by a column, by 'prediction' or by 'label'.", REPORT)
    ] = None
    intervals: Annotated[
        bool, rare_flag("--intervals", "Also give intervals of the areas and of coverages at a risk.", REPORT)
    ] = False
    classwise: Annotated[
        bool, rare_flag("--classwise", "Also give the calibration error of each class's probability.", REPORT)
    ] = False
    title: Annotated[str | None, rare("--title TEXT", "Heads the page.", REPORT)] = None
    model: Annotated[str | None, rare("--model NAME", "What was judged, for the page.", REPORT)] = None

    def options(
        self, comparisons: ComparisonOptions, formats: Collection[str], rejector: str, **more: Any
    ) -> EvaluateOptions:
        """As the library takes them, with `more` of its fields; raises when there is no page to head.

        The page of a model without a name has that of its rejector's file.
        """
        from drrej.documents.figures import Point
        from drrej.pipeline.compare import read_baseline
        from drrej.pipeline.evaluate import EvaluateOptions

        for name in ("title", "model"):
            if getattr(self, name) is not None and "html" not in formats:
                raise OptionError(f"--{name} is for a page; it goes with -o FILE.html")
        file = None if rejector == "-" else rejector.rsplit("/", 1)[-1]
        baseline = comparisons.baseline
        return EvaluateOptions(
            points=[Point.parse(text)[0] for text in self.metric or []],
            intervals=self.intervals,
            classwise=self.classwise,
            by=self.report_by,
            rivals=comparisons.rivals(),
            baseline=None if baseline is None else read_baseline(baseline),
            title=self.title,
            model=self.model or file,
            **more,
        )


def format_of(path: str) -> str:
    """The renderer for a file name."""
    from drrej.report import ENDINGS

    ending = os.path.splitext(path)[1].lower()
    if ending not in ENDINGS and (os.path.isfile(path) or not os.path.exists(path)):
        raise OptionError(f"-o {path}: the ending says the format; use one of {', '.join(ENDINGS)}")
    return ENDINGS.get(ending, "json")


def with_words(wanted: EvaluateOptions, rejector: Rejector) -> EvaluateOptions:
    """The options with what a page says of the rejector, in flags, and this command line."""
    from drrej.documents.words import describe_sections

    if not wanted.pictures:
        return wanted
    words = [in_flags(line) for line in describe_sections(rejector)]
    return replace(wanted, words=words, commands=[shlex.join(["drrej", *sys.argv[1:]])])


def warn_of_report(report: Report | RegressionReport, quiet: bool) -> None:
    """Tell that steps that made the rejector have used some of the rows, or that a learned loss may not rank them."""
    from drrej.documents.report import Report
    from drrej.report.words import seen_by, tied_rows, unsure_order

    if words := seen_by(report):
        warn(f"{words}, and intervals and p-values do not hold; report on rows that no step has seen", quiet)
    if isinstance(report, Report) and (words := unsure_order(report)):
        warn(f"{words}; see --compare on rows with labels, or fit again on rows like these", quiet)
    if isinstance(report, Report) and (words := tied_rows(report)):
        warn(f"{words}; scores with more digits, or logits in place of probabilities, tell them apart", quiet)


def exit_by_gates(report: Judged, and_target: bool = False) -> None:
    """A line per failed gate, and exit 1 if there is one; `and_target` holds the target to be a gate too."""
    from drrej.documents.gates import TARGET
    from drrej.report.words import gate_words, sentence, target_of

    for gate in report.failed_gates:
        complain(gate_words(report, gate), "gate failed")
    target = target_of(report) if and_target and all(gate.gate != TARGET for gate in report.gates) else None
    missed = target is not None and target.verdict == "missed"
    if target is not None and missed:
        complain(sentence(report, target, target.deciding), "target missed")
    if report.failed_gates or missed:
        raise typer.Exit(1)
