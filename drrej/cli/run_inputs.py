"""Which rows of `run` do what: dumps of their own, or parts of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from msgspec import Struct

from drrej.cli.options import option, rare
from drrej.errors import OptionError

if TYPE_CHECKING:
    from drrej.pipeline.source import Source
    from drrej.pipeline.split import SplitOptions

WAYS = "give one DUMP, which is divided, or --val DUMP and --test DUMP"
ROWS = "Rows: one DUMP, or --val and --test"


class RowOptions(Struct, frozen=True):
    """Dumps with a task of their own, or how one dump is divided."""

    val: Annotated[
        list[str] | None, option("--val DUMP", "Rows to calibrate, fit and choose on. Repeatable.", ROWS)
    ] = None
    test: Annotated[list[str] | None, option("--test DUMP", "Rows to report on and to mask. Repeatable.", ROWS)] = None
    choose: Annotated[
        list[str] | None,
        rare("--choose DUMP", "Fresh rows to choose the threshold on. Repeatable.", ROWS, show_default="--val"),
    ] = None
    split: Annotated[
        str | None,
        option(
            "--split A,B,C",
            "Shares of DUMP to fit, choose and test; of four the first is to calibrate. With --val: A,B of it.",
            ROWS,
            show_default="40,30,30",
        ),
    ] = None
    seed: Annotated[int | None, rare("--seed N", "Another seed, another split.", ROWS, show_default="0")] = None
    group: Annotated[
        str | None, rare("--group COL", "Rows with the same value, such as a patient, stay together.", ROWS)
    ] = None

    def division(self, dumps: list[str] | None) -> SplitOptions | None:
        """How rows are divided, if they are; raises when options do not go together."""
        from drrej.pipeline.split import DEFAULT_SHARES, SplitOptions

        if dumps and (self.val or self.test or self.choose):
            raise OptionError(f"{WAYS}, not both")
        if not dumps and not (self.val and self.test):
            raise OptionError(WAYS)
        if self.split is not None and self.choose:
            raise OptionError("--split divides --val into rows to fit and rows to choose on; leave out --choose")
        if not dumps and self.split is None:
            if self.seed is not None or self.group is not None:
                option = "--seed" if self.group is None else "--group"
                raise OptionError(f"{option} says how one dump is divided; give one DUMP, or --split A,B for --val")
            return None
        shares = DEFAULT_SHARES if self.split is None else _shares(self.split)
        most = 4 if dumps else 3
        if len(shares) not in (most - 1, most):
            steps = "fit, choose and test (or calibrate, fit, choose and test)"
            if not dumps:
                steps = "fit and choose (or calibrate, fit and choose)"
            raise OptionError(f"--split {self.split}: give {most - 1} or {most} shares, of the rows to {steps}")
        return SplitOptions(shares, len(shares) - (2 if dumps else 1), self.seed or 0, self.group)


class RunInputs(Struct, frozen=True):
    """What to calibrate on, to fit on, to choose the threshold on, and to test on.

    `fresh` says that the rows to choose on were not fitted on, `note` how rows were divided, `no_sample` why they are
    no random sample.
    """

    calibrate: Source
    fit: Source
    choose: Source
    test: Source
    fresh: bool
    note: str | None = None
    no_sample: str | None = None

    @property
    def sources(self) -> list[Source]:
        """All of them, each once."""
        return list({id(source): source for source in (self.calibrate, self.fit, self.choose, self.test)}.values())


def run_inputs(sources: Sequence[Source], options: SplitOptions | None) -> RunInputs:
    """Which rows do what; divides the first of the dumps (one pass) where that is wanted."""
    from drrej.pipeline.split import split, why_no_sample

    first, *others = sources
    if options is None:
        test, choose = others[0], others[1] if len(others) > 1 else first
        return RunInputs(calibrate=first, fit=first, choose=choose, test=test, fresh=len(others) > 1)
    divided = [*split(first, options), *others]
    counts = [source.options.split.rows for source in divided if source.options.split is not None]
    tasks = ["calibrate and fit", "choose", "test"] if len(divided) == 3 else ["calibrate", "fit", "choose", "test"]
    said = ", ".join(f"{rows} to {task}" for rows, task in zip(counts, tasks, strict=False))
    how = "by their content" if options.group is None else f"by '{options.group}'"
    note = f"{sum(counts)} rows are divided {how}: {said}"
    fit, choose, test = divided[-3:]
    return RunInputs(
        calibrate=divided[0], fit=fit, choose=choose, test=test, fresh=True, note=note, no_sample=why_no_sample(divided)
    )


def _shares(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise OptionError(f"--split {text}: write shares separated by commas, such as 40,30,30") from None
