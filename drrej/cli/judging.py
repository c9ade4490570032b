"""From options to the report: what it holds, what it is judged by, and how it is shown."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import TYPE_CHECKING

import typer

from drrej.cli.console import complain, show
from drrej.cli.reading import Reading, names_of, read_rejector
from drrej.errors import OptionError
from drrej.records import dataclass

if TYPE_CHECKING:
    from drrej.documents.document import Judged
    from drrej.documents.gates import Gate
    from drrej.documents.regression import RegressionReport
    from drrej.documents.rejector import Rejector
    from drrej.documents.report import Report
    from drrej.engines.protocol import Engine
    from drrej.pipeline.compare import Rivals
    from drrej.pipeline.evaluate import BaselineDump, EvaluateOptions
    from drrej.pipeline.groups import OnUnseen
    from drrej.report import TextFormat


@dataclass(frozen=True)
class Comparisons:
    """The options under "Comparisons"."""

    compare: bool
    score: list[str] | None
    score_order: list[str] | None
    rejected: list[str] | None
    baseline: str | None
    baseline_dump: list[str] | None
    baseline_rejector: str | None

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

    def dump(self, reading: Reading, engine: Engine, rejector: Rejector) -> BaselineDump | None:
        """The dump to compare with, paired by key."""
        from drrej.pipeline.evaluate import BaselineDump

        if not self.baseline_dump:
            return None
        assert reading.join_on is not None
        source = self.reading(reading).source(self.baseline_dump, engine)
        other = rejector
        if self.baseline_rejector is not None:
            other = read_rejector(self.baseline_rejector, source, "threshold")
        return BaselineDump(source, other, reading.join_on)

    def reading(self, reading: Reading) -> Reading:
        """How dumps are read: without --labels-from, --join-on only pairs rows."""
        if self.baseline_dump and reading.labels_from is None:
            return dataclasses.replace(reading, join_on=None)
        return reading


@dataclass(frozen=True)
class Judging:
    """The options under "Report"; `by` is the column of groups."""

    gate: list[str] | None
    metric: list[str] | None
    intervals: bool
    by: str | None
    no_labels: bool = False
    classwise: bool = False
    ood: str | None = None
    ood_cost: float | None = None

    def gates(self) -> list[Gate]:
        """Gates, read before any work."""
        from drrej.documents.gates import Gate

        return [Gate.parse(text) for text in self.gate or []]

    def options(self, comparisons: Comparisons, reading: Reading, on_unseen_group: OnUnseen) -> EvaluateOptions:
        """As the library takes them, all but the baseline's dump; raises when one option lacks another."""
        from drrej.documents.points import Point
        from drrej.pipeline.baseline import read_baseline
        from drrej.pipeline.evaluate import EvaluateOptions

        if comparisons.baseline_dump and reading.join_on is None:
            raise OptionError("--baseline-dump needs --join-on COL: the key column that pairs the rows")
        if comparisons.baseline_rejector and not comparisons.baseline_dump:
            raise OptionError("--baseline-rejector goes with --baseline-dump")
        if self.ood_cost is not None and self.ood is None:
            raise OptionError("--ood-cost goes with --ood COL")
        baseline = comparisons.baseline
        return EvaluateOptions(
            points=[Point.parse(text)[0] for text in self.metric or []],
            intervals=self.intervals,
            classwise=self.classwise,
            by=self.by,
            rivals=comparisons.rivals(),
            labels=not self.no_labels,
            ood=self.ood,
            ood_cost=1.0 if self.ood_cost is None else self.ood_cost,
            on_unseen_group=on_unseen_group,
            baseline=None if baseline is None else read_baseline(baseline),
        )


@dataclass(frozen=True)
class Shown:
    """What is shown besides figures: columns of some rows, and what heads a page."""

    examples: str | None
    title: str | None
    model: str | None

    def options(self, wanted: EvaluateOptions, formats: Collection[str], rejector: str) -> EvaluateOptions:
        """The options with these; raises when there is no page to head. A model without a name has its rejector's."""
        for name in ("title", "model"):
            if getattr(self, name) is not None and "html" not in formats:
                raise OptionError(f"--{name} is for a page; it goes with -o FILE.html")
        columns = names_of(self.examples)
        if columns == []:
            raise OptionError("--examples: name the columns to show, e.g. --examples id")
        file = None if rejector == "-" else rejector.rsplit("/", 1)[-1]
        return dataclasses.replace(wanted, examples=columns, title=self.title, model=self.model or file)


def show_report(report: Judged, format: TextFormat) -> None:
    """The report on standard output."""
    from drrej.report import RENDERERS

    show(RENDERERS[format](report))


def warn_seen(report: Report | RegressionReport, quiet: bool) -> None:
    """Tell that the rows are no test, because steps that made the rejector have used some of them."""
    from drrej.report.words import seen_by

    words = seen_by(report)
    if words and not quiet:
        complain(f"{words}, and intervals and p-values do not hold; report on rows that no step has seen", "warning")


def warn_order(report: Report | RegressionReport, quiet: bool) -> None:
    """Tell that a learned loss may not rank these rows."""
    from drrej.documents.report import Report
    from drrej.report.words import unsure_order

    words = unsure_order(report) if isinstance(report, Report) else ""
    if words and not quiet:
        complain(f"{words}; see --compare on rows with labels, or fit again on rows like these", "warning")


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
