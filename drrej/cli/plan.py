"""drrej plan."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Literal

from drrej.cli.console import in_flags, say_notes, show, warn
from drrej.cli.input_options import InputOptions, OptionalDumps, read_rejector, rejector_option
from drrej.cli.options import STREAM, EngineOptions, Options, OutputOptions, open_files, option, write_files
from drrej.cli.report_options import format_of
from drrej.cli.rule_options import RuleOptions, by_class
from drrej.errors import OptionError

if TYPE_CHECKING:
    from drrej.core.thresholds import Rule
    from drrej.documents.summaries import Plan

ENDINGS = (".txt", ".json", ".md")


class PlanOptions(Options):
    """What is to be promised and what is expected, the rejector whose rows are planned with, where the plan goes."""

    accuracy: list[str] | None = option("Accuracy of accepted rows to guarantee; CLASS=A. Repeatable.", "A")
    risk: list[str] | None = option("The same as an error rate: 1 - A, or CLASS=R. Repeatable.", "R")
    max_missed: list[str] | None = RuleOptions.max_missed
    overall_risk: float | None = RuleOptions.overall_risk
    class_share: list[str] | None = option(
        "Without DUMP: the share of rows that belong to a class. Repeatable.", "CLASS=P"
    )
    confidence: float = option("Probability that the guarantee holds.", "P", default=0.95)
    coverage: float | None = option("The coverage to reach.", "C", show_default="0.8; with a dump, all")
    error: list[float] | None = option(
        "Expected error rate among accepted rows. Repeatable.", "E", show_default="0, 1/4, 1/2 and 3/4 of R"
    )
    power: float | None = option("Desired probability that the rows certify it.", "Q", show_default="0.8")
    rejector: str | None = rejector_option()
    output: list[str] | None = option("Also write .txt .json .md. Repeatable.", "FILE")
    force: bool = OutputOptions.force
    format: Literal["text", "json", "markdown"] = option("Format of standard output.", default="text")

    def rule(self) -> Rule | None:
        """What is to be promised."""
        from drrej.core.thresholds import one_rule

        names = ("accuracy", "risk", "max_missed")
        targets: dict[str, Any] = {name: by_class(name, getattr(self, name)) for name in names}
        targets["overall_risk"] = self.overall_risk
        if not any(targets.values()):
            return None
        alone = one_rule(targets, confidence=self.confidence)
        return one_rule({**targets, "coverage": self.coverage}, confidence=self.confidence) if alone.promises else alone


def plan(options: PlanOptions, input: InputOptions, engine: EngineOptions, dumps: OptionalDumps = None) -> None:
    """Show how many labelled rows a guarantee takes, or what the rows of a file can guarantee.

    DUMP: none, or labelled parquet files, directories, globs or URIs; - is standard input.

    Examples:
    drrej plan --accuracy 0.98 --coverage 0.8
    drrej plan --risk 0.02 --confidence 0.9 --error 0.01 --power 0.9 -o plan.md
    drrej plan fresh.parquet -r fitted.json --risk 0.02

    """
    from drrej.pipeline.plan import COVERAGE, POWER, plan_from, plan_promises
    from drrej.pipeline.plan import plan as step
    from drrej.pipeline.threshold import plan_promises_from

    power = POWER if options.power is None else options.power
    _check(bool(dumps), options, [*input.given(), *engine.given()])
    rule = options.rule()
    risk = None if rule is None or rule.promises else rule.risk
    paths = options.output or []
    kinds = [format_of(path, options.format, ENDINGS) for path in paths]
    with ExitStack() as stack:
        places = open_files(stack, paths, options.force)
        if dumps and options.rejector is not None:
            source = input.source(dumps, engine.start())
            start = read_rejector(options.rejector, source, "ratio")
            if rule is not None and rule.promises:
                found, caution = plan_promises_from(source, start, rule)
            else:
                found, caution = plan_from(source, start, risk, options.confidence, options.coverage, power)
            say_notes(source, engine.quiet)
            warn(caution, engine.quiet)
        elif rule is not None and rule.promises:
            found = plan_promises(rule, by_class("class_share", options.class_share) or {}, options.confidence, power)
        else:
            coverage = COVERAGE if options.coverage is None else options.coverage
            found = step(risk, options.confidence, coverage, power, options.error or None)
        write_files(places, [_rendered(found, kind) for kind in kinds])
    if STREAM not in paths:
        show(_rendered(found, options.format).decode())


def _check(dumps: bool, options: PlanOptions, reading: Sequence[str]) -> None:
    """Raise when options contradict each other."""
    if options.accuracy and options.risk:
        raise OptionError("--accuracy and --risk are the same promise; give one of them")
    if dumps and options.rejector is None:
        raise OptionError("DUMP requires -r REJECTOR (from 'drrej fit'), which orders its rows")
    if dumps and options.error:
        raise OptionError("--error cannot be combined with DUMP, whose rows show the error rate")
    if dumps and not options.risk and not options.accuracy and options.power is not None:
        raise OptionError("--power requires --risk R: it is the probability of certifying R")
    if not dumps and (options.rejector is not None or set(reading) - {"quiet", "cluster"}):
        raise OptionError("-r, --jobs and the options on how to read require a DUMP; name one, or leave them out")


def _rendered(plan: Plan, kind: str) -> bytes:
    from drrej.report import render

    content = render(plan, kind)
    return in_flags(content.decode()).encode() if kind in ("text", "markdown") else content
