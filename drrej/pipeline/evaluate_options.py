"""What a report is asked for, and which metrics it will have."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field
from typing import Literal

from drrej.documents.fields import When
from drrej.documents.points import Point
from drrej.documents.rejector import Rejector
from drrej.documents.report import Report
from drrej.errors import OptionError
from drrej.pipeline.compare import Rivals
from drrej.pipeline.groups import OnUnseen
from drrej.pipeline.source import Source
from drrej.records import dataclass


@dataclass(frozen=True)
class BaselineDump:
    """The same rows, scored by the model to compare with; `key` is the column that pairs them."""

    source: Source
    rejector: Rejector
    key: str


@dataclass(frozen=True)
class EvaluateOptions:
    """What the report holds besides the figures that every report has.

    `intervals` adds those of the areas and of coverages at a risk, `classwise` the classwise calibration error.
    Unless `on_bad_row="error"`, rows without usable scores, which a mask rejects or lacks, are left out of the report.
    `examples` names columns: these, and the classes, of up to 25 rejected rows and up to 25 accepted errors are in the
    report then. `pictures` adds what a page or a plot shows. On that page, `title` is the heading, `model` names what
    was judged, `words` say what the rejector does where the caller has other words than the document's own, and
    `commands` how to make it and the report again.
    """

    points: Sequence[Point] = ()
    intervals: bool = False
    classwise: bool = False
    by: str | None = None
    rivals: Rivals = field(default_factory=Rivals)
    labels: bool = True
    ood: str | None = None
    """A column that is true for rows that belong to no class: these have a section of their own and no label."""
    ood_cost: float = 1.0
    """What it costs to accept such a row, as a multiple of an error."""
    on_unseen_group: OnUnseen = "error"
    on_bad_row: Literal["error", "reject", "skip"] = "error"
    baseline: Report | None = None
    baseline_dump: BaselineDump | None = None
    pictures: bool = False
    examples: Sequence[str] | None = None
    title: str | None = None
    model: str | None = None
    words: Sequence[str] = ()
    commands: Sequence[str] = ()
    known_fresh: bool = False
    """The caller has set these rows apart from those that made the rejector, so it need not be looked for."""

    def __post_init__(self) -> None:
        if self.baseline is not None and self.baseline_dump is not None:
            raise OptionError("give either `baseline` or `baseline_dump`")
        needs_labels = {
            "`intervals=True`": self.intervals,
            "`classwise=True`": self.classwise,
            "`examples`": self.examples is not None,
            "`compare`": self.rivals.usual,
            "`score`": bool(self.rivals.scores),
            "`rejected`": bool(self.rivals.masks),
            "`metric`": bool(self.points),
            "`ood`": self.ood is not None,
            "`baseline`": self.baseline is not None,
            "`baseline_dump`": self.baseline_dump is not None,
        }
        if not (math.isfinite(self.ood_cost) and self.ood_cost >= 0):
            raise OptionError(f"`ood_cost={self.ood_cost:g}`: it is a multiple of the cost of an error, from 0 on")
        if self.ood is not None and (self.rivals.masks or self.baseline_dump is not None):
            other = "`rejected`" if self.rivals.masks else "`baseline_dump`"
            raise OptionError(f"`ood` does not go with {other}; report on the rows that have a class for that")
        given = [option for option, asked in needs_labels.items() if asked]
        if not self.labels and given:
            raise OptionError(f"{given[0]} needs labels; it does not go with `labels=False`")

    def conditions(self, rejector: Rejector | None = None) -> frozenset[When]:
        """What metrics of the report may depend on; a rejector that is not known yet may have costs."""
        then, paired = self.baseline, self.baseline_dump is not None
        both = then is not None and then.aurc is not None and then.aurc.lower is not None and self.intervals
        held = {
            When.LABELS: self.labels,
            When.COSTS: self.labels and (rejector is None or rejector.need_ratio().loss.is_cost),
            When.PRICES: self.labels and (rejector is None or rejector.need_threshold().rule.kind == "cost"),
            When.OUTSIDE: self.ood is not None,
            When.GROUPS: self.by is not None and self.labels,
            When.INTERVALS: self.intervals,
            When.CLASSWISE: self.classwise,
            When.BASELINE: then is not None or paired,
            When.PAIRS: paired,
            When.BOTH_INTERVALS: both or paired,
        }
        return frozenset(condition for condition, holds in held.items() if holds)
