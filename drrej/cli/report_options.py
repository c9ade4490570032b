"""Groups of options that say what a report holds, what it is judged by and compared with, and how it is shown."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import typer
from msgspec.structs import replace

from drrej.cli.console import complain, in_flags, is_terminal, show, warn
from drrej.cli.input_options import InputOptions, MaskInput, OnUnseen, names_of, read_rejector
from drrej.cli.options import STREAM, Options, flag, option, rare, rare_flag
from drrej.data.problems import redacted
from drrej.errors import DrrejError, OptionError

if TYPE_CHECKING:
    from drrej.documents.document import Document
    from drrej.documents.gates import Gate
    from drrej.documents.rejector import Rejector
    from drrej.engines.protocol import Engine
    from drrej.pipeline.compare import Order, Rivals
    from drrej.pipeline.evaluate import EvaluateOptions

REPORT, COMPARISONS = "Report", "Comparisons"


def gates_of(texts: list[str] | None) -> list[Gate]:
    """The gates of --gate, read before any work."""
    from drrej.documents.gates import Gate

    return [Gate.parse(text) for text in texts or []]


class ReportOptions(Options):
    """What a report holds, what it is judged by and compared with."""

    gate: list[str] | None = option(
        "Exit 1 unless METRIC OP NUMBER holds, e.g. 'accuracy >= 0.97'. Repeatable.", "EXPR", REPORT
    )
    metric: list[str] | None = rare("Also report a point such as accuracy@coverage=0.9. Repeatable.", "POINT", REPORT)
    report_by: str | None = option("Also report by a column, by 'prediction' or by 'label'.", "COL", REPORT)
    intervals: bool = rare_flag("Also report intervals for the areas and for coverages at a risk.", panel=REPORT)
    classwise: bool = rare_flag("Also report the calibration error of each class's probability.", panel=REPORT)
    title: str | None = rare("Report title.", "TEXT", REPORT)
    compare: bool = rare_flag("Also evaluate the usual scores: max probability, entropy, ...", panel=COMPARISONS)
    score_list: str | None = rare("Scores to --compare: entropy,margin,...", "NAMES", COMPARISONS, show_default="all")
    rival: list[str] | None = rare("Also evaluate a column as a score. Repeatable.", "COL", COMPARISONS)
    rival_order: list[str] | None = rare(
        "Which end of --rival is accepted first; once, or once for each.", "high|low", COMPARISONS, show_default="high"
    )
    baseline: str | None = rare("Also report differences from an earlier report (JSON).", "FILE", COMPARISONS)
    baseline_dump: list[str] | None = rare(
        "Differences from another file of the same rows, paired by --join-on. Repeatable.", "DUMP", COMPARISONS
    )
    baseline_rejector: str | None = rare("Rejector of --baseline-dump.", "FILE", COMPARISONS, show_default="the same")
    no_labels: bool = flag("Report only what needs no labels: coverage, expected accuracy, drift.", panel=REPORT)
    audited: bool = rare_flag(
        "The labels come from 'drrej reject --audit': a random sample of the accepted rows.", panel=REPORT
    )
    minutes: float | None = rare("Minutes that one review takes; reports the hours too.", "M", REPORT)
    examples: str | None = rare("Also show these columns of some rejected rows and accepted errors.", "COLS", REPORT)
    ood: str | None = rare("Column that is true for rows of no class: report on them separately.", "COL", REPORT)
    ood_cost: float | None = rare(
        "Cost of accepting a row of no class, as a multiple of an error.", "X", REPORT, show_default="1"
    )
    on_unseen_group: OnUnseen = MaskInput.on_unseen_group
    group: str | None = rare(
        "Column that tells rows with equal scores apart, such as an id; otherwise they count once.", "COL", REPORT
    )

    def options(self, rejector: str, kinds: Collection[str], join_on: str | None) -> EvaluateOptions:
        """As the library takes them; raises when one option lacks another.

        `kinds` are the formats of the files. The page of a model without a name has that of its rejector's file.
        """
        from drrej.documents.figures import Point
        from drrej.pipeline.compare import read_baseline
        from drrej.pipeline.evaluate import EvaluateOptions
        from drrej.report import DRAWN

        examples = names_of(self.examples)
        if self.title is not None and "html" not in kinds:
            raise OptionError("--title is for a page; it requires -o FILE.html")
        if self.baseline_dump and join_on is None:
            raise OptionError("--baseline-dump requires --join-on COL: the key column that pairs the rows")
        self.check_needs(baseline_rejector="baseline_dump", ood_cost="ood", rival_order="rival")
        if examples == []:
            raise OptionError("--examples: name the columns to show, e.g. --examples id")
        return self.into(
            EvaluateOptions,
            points=[Point.parse(text)[0] for text in self.metric or []],
            by=self.report_by,
            rivals=self.rivals(),
            labels=not (self.no_labels or self.audited),
            baseline=None if self.baseline is None else read_baseline(self.baseline),
            baseline_dump=None,  # it is opened later
            pictures=not set(kinds).isdisjoint(DRAWN),
            examples=examples,
            model=None if rejector == STREAM else rejector.rsplit("/", 1)[-1],
        )

    def rivals(self) -> Rivals:
        """The other scores and masks to judge."""
        from drrej.pipeline.compare import Rivals

        scores, orders = self.rival or [], self.rival_order or ["high"]
        if not set(orders) <= {"high", "low"}:
            raise OptionError("--rival-order: it must be high or low")
        if len(orders) not in (1, len(scores)):
            raise OptionError(f"--rival-order: give it once, or once for each of the {len(scores)} --rival columns")
        pairs = zip(scores, orders * len(scores) if len(orders) == 1 else orders, strict=True)
        chosen: dict[str, Order] = {name: "low" if order == "low" else "high" for name, order in pairs}
        return Rivals(self.compare or self.score_list is not None, chosen, names_of(self.score_list) or ())

    def completed(
        self, options: EvaluateOptions, rejector: Rejector, input: InputOptions, engine: Engine
    ) -> EvaluateOptions:
        """The options with the dump to compare with, and what a page says: of the rejector, and this command line."""
        from drrej.documents.words import describe_sections
        from drrej.pipeline.compare import BaselineDump

        if options.pictures:
            words = [in_flags(line) for line in describe_sections(rejector)]
            options = replace(options, words=words, commands=[redacted(shlex.join(["drrej", *sys.argv[1:]]))])
        if self.baseline_dump:
            assert input.join_on is not None
            source = input.source(self.baseline_dump, engine, paired=True)
            if self.baseline_rejector is not None:
                rejector = read_rejector(self.baseline_rejector, source, "threshold")
            options = replace(options, baseline_dump=BaselineDump(source, rejector, input.join_on))
        return options


def format_of(path: str, shown: str, endings: Collection[str]) -> str:
    """The format of a file by its ending; `-o -` has the one that is `shown`. Raises when it cannot be made."""
    from drrej.report import ENDINGS, need_libraries

    ending, kind = os.path.splitext(path)[1].lower(), shown
    if path != STREAM:
        if ending not in endings and (os.path.isfile(path) or not os.path.exists(path)):  # no device
            raise OptionError(f"-o {path}: the ending determines the format; use one of {', '.join(endings)}")
        kind = ENDINGS.get(ending, "json")
    need_libraries(kind, f"-o {path}")
    return kind


def report_error(message: str, format: str, outputs: Sequence[str], force: bool) -> None:
    """Write an error where CI looks: on standard output as its format has it, and in place of JUnit files."""
    from drrej.outputs.destinations import OutputFile
    from drrej.report.ci import command, junit_error

    message = in_flags(redacted(message))
    with suppress(DrrejError, OSError):  # what is reported is the first error
        if format in ("github", "junit"):
            show(command("error", "drrej", message) if format == "github" else junit_error(message))
        for path in outputs:
            with OutputFile(path, force) as file:
                file.write_text(junit_error(message))
                file.commit()


def shown(report: Document, format: str, verbose: bool, heading: str, last: Sequence[tuple[str, str]]) -> str:
    """What goes to standard output: as text the summary, unless the whole report is wanted."""
    from drrej.documents.report import Report
    from drrej.report import render
    from drrej.report.brief import render_brief

    if format != "text" or verbose or not isinstance(report, Report):
        return render(report, format).decode()
    colour = is_terminal(sys.stdout) and "NO_COLOR" not in os.environ
    kind = f"{report.classes} classes" if report.score is None else f"score '{report.score}'"
    return render_brief(report, f"{heading}, {kind}", last, colour)


def rows_words(dumps: Sequence[str], rows: int) -> str:
    """A predictions file, or how many, and its rows."""
    name = redacted(dumps[0]) if len(dumps) == 1 else f"{len(dumps)} inputs"
    return f"{'standard input' if name == STREAM else name}: {rows:,} {'row' if rows == 1 else 'rows'}"


def written(paths: Sequence[str], rejector: str | None, dumps: Sequence[str] = ()) -> list[tuple[str, str]]:
    """The lines that name the files that were written and the next command; new rows come as the `dumps` did."""
    lines = [("Wrote", redacted("  ".join(paths)))] if paths else []
    if rejector is not None:
        ending = own_ending(dumps)
        lines.append(("Next", redacted(f"drrej reject NEW{ending} -r {shlex.quote(rejector)} -o mask{ending}")))
    return lines


def own_ending(dumps: Sequence[str]) -> str:
    """The ending of the first dump where a mask can have it too, else that of parquet."""
    from drrej.outputs.masks import PARQUET, ending_of

    return (ending_of(dumps[0]) if dumps else None) or PARQUET


def finish(report: Document, text: str | None, quiet: bool, and_target: bool = False) -> None:
    """Show a report after its warnings; then a line for each failed gate, and exit 1 if there is one.

    Without a text nothing is shown. `and_target` holds the target to be a gate too.
    """
    from drrej.documents.gates import TARGET
    from drrej.report.words import gate_words, sentence, target_of, warnings_of

    for words in warnings_of(report):
        warn(words, quiet)
    if text is not None:
        show(text)
    for gate in report.failed_gates:
        complain(gate_words(report, gate), "gate failed")
    target = target_of(report) if and_target and all(gate.gate != TARGET for gate in report.gates) else None
    missed = target is not None and target.verdict == "missed"
    if target is not None and missed:
        complain(sentence(report, target, target.deciding), "target missed")
    if report.failed_gates or missed:
        raise typer.Exit(1)
