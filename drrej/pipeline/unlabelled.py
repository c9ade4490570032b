"""What can be said without labels: coverage, the accuracy that the probabilities promise, and drift."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from drrej.core.curves import RankedLosses
from drrej.core.drift import loss_shift, mean_ratio
from drrej.core.exact import Total
from drrej.core.losses.plain import zero_one_loss
from drrej.core.types import Floats
from drrej.data.dump import Block
from drrej.documents.rejector import Rejector
from drrej.engines.passes import map_blocks
from drrej.engines.protocol import Pass
from drrej.pipeline.application import Application
from drrej.pipeline.figures import coverage_figure
from drrej.pipeline.groups import OnUnseen
from drrej.pipeline.pictures import loss_histogram
from drrej.pipeline.source import Source


@dataclass(frozen=True)
class _Sums:
    """What is added up over blocks: accepted rows, 1 - max p of all and of accepted rows, ratios and their squares."""

    accepted: int = 0
    doubt: Total = field(default_factory=Total)
    doubt_accepted: Total = field(default_factory=Total)
    ratio: Total = field(default_factory=Total)
    ratio_squared: Total = field(default_factory=Total)

    def __add__(self, other: _Sums) -> _Sums:
        return _Sums(
            self.accepted + other.accepted,
            self.doubt + other.doubt,
            self.doubt_accepted + other.doubt_accepted,
            self.ratio + other.ratio,
            self.ratio_squared + other.ratio_squared,
        )


def unlabelled_figures(
    source: Source, rejector: Rejector, on_unseen: OnUnseen, pictures: bool = False
) -> dict[str, Any]:
    """The figures of a report on rows without labels."""
    dump = source.open(rejector, labelled=False)
    ratio = rejector.need_ratio()
    application = Application(rejector, dump, on_unseen)

    def of_block(block: Block) -> tuple[_Sums, Floats]:
        scored = application(block)
        doubt = zero_one_loss(scored.rows.calibrated.sums)
        with np.errstate(over="ignore"):
            squared = np.square(scored.ratio)
        sums = _Sums(
            int(np.count_nonzero(scored.accepted)),
            Total.of(doubt),
            Total.of(doubt[scored.accepted]),
            Total.of(scored.ratio),
            Total.of(squared),
        )
        return sums, scored.loss

    run = Pass("evaluating", labelled=False, keep=application.columns)
    blocks = list(map_blocks(dump, of_block, run, source.engine, source.notes))
    points = RankedLosses.of(np.concatenate([losses for _, losses in blocks]), np.empty(0))
    merged = sum((sums for sums, _ in blocks), _Sums())
    rows, accepted = points.rows, merged.accepted
    return {
        **({"pictures": {"losses": loss_histogram(points, labelled=False)}} if pictures else {}),
        "rows": rows,
        "coverage": coverage_figure(accepted, rows),
        "expected_accuracy": {
            "value": _complement(merged.doubt_accepted.mean(accepted)),
            "all": _complement(merged.doubt.mean(rows)),
        },
        "ratio": mean_ratio(merged.ratio, merged.ratio_squared, rows, ratio.variance, ratio.rows),
        "drift": loss_shift(points, ratio.loss_quantiles, ratio.rows),
    }


def _complement(share: float | None) -> float | None:
    return None if share is None else 1.0 - share
