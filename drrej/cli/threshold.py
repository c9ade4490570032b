"""drrej threshold."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from drrej.cli.console import say_notes, warn
from drrej.cli.options import (
    Dumps,
    EngineOptions,
    JudgedInput,
    OutputOptions,
    RejectorOptions,
    check_spared,
    rare,
    read_rejector,
)
from drrej.cli.rule_options import GUARANTEE, RULE, RuleOptions, check_table, table_option
from drrej.errors import OptionError

if TYPE_CHECKING:
    pass


class AllRuleOptions(RuleOptions):
    """The rules, with those for a regression."""

    mse: float | None = rare("Mean squared error at most M, of a regression.", "M", RULE)
    mae: float | None = rare("Mean absolute error at most M, of a regression.", "M", RULE)
    group: str | None = rare(
        "Tells rows with the same scores apart, as an id does; else they count once.", "COL", GUARANTEE
    )
    clip: float | None = rare("With --mse or --mae: the error of a row counts as B at most.", "B", GUARANTEE)

    @property
    def targets(self) -> dict[str, float | None]:
        """The target of each rule, None where it was not given."""
        return {**super().targets, "mse": self.mse, "mae": self.mae}


class ThresholdFiles(OutputOptions, RejectorOptions):
    """The rejector, before and after, and what is written besides."""

    mask: str | None = rare("Also write the mask of these rows.", "FILE")
    table: str | None = table_option()


def threshold(
    dumps: Dumps, files: ThresholdFiles, rule: AllRuleOptions, input: JudgedInput, engine: EngineOptions
) -> None:
    """Add the threshold by exactly one rule: --accuracy, --coverage, --risk, a cost, an error, --tau or --max-loss.

    DUMP: parquet files, directories, globs or URIs; - is standard input.

    Examples:
    drrej threshold fresh.parquet -r fitted.json --accuracy 0.98 --confidence 0.95
    drrej threshold val.parquet -r fitted.json --risk 0.02 --cutoff-by prediction
    drrej threshold val.parquet -r fitted.json --error-cost 50 --review-cost 2

    """
    from drrej.outputs.destinations import OutputFile
    from drrej.outputs.masks import write_table
    from drrej.pipeline.reject import reject
    from drrej.pipeline.threshold import ThresholdOptions, choose_threshold, uncertified_words

    chosen_by = rule.rule(rule.clip)
    if rule.group is not None and rule.confidence is None:
        raise OptionError("--group requires --confidence: it says which rows of the same scores count once")
    check_table(files.table)
    source = input.source(dumps, engine.start())
    with ExitStack() as stack:
        document = stack.enter_context(files.file(files.rejector))
        mask_file = None if files.mask is None else stack.enter_context(OutputFile(files.mask, files.force))
        table_file = None if files.table is None else stack.enter_context(OutputFile(files.table, files.force))
        check_spared(input.classes)
        start = read_rejector(files.rejector, source, "ratio")
        options = ThresholdOptions(rule.cutoff_by, rule.allow_reuse, group=rule.group)
        found = choose_threshold(source, start, chosen_by, options, table_file is not None)
        say_notes(source, engine.quiet, found.rejector.floor)
        warn(found.caution, engine.quiet)
        warn(uncertified_words(found.rejector), engine.quiet)
        document.write_text(found.rejector.to_json())
        if mask_file is not None:
            reject(source, found.rejector, mask_file)
            mask_file.commit()
        if table_file is not None:
            write_table(found.candidates, table_file.path, table_file.target)
            table_file.commit()
        document.commit()
