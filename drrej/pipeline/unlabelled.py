"""What can be said without labels: coverage, the accuracy that the probabilities promise, and drift."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from drrej.core.curves import RankedLosses
from drrej.core.drift import loss_shift, mean_ratio
from drrej.core.exact import Total
from drrej.core.losses.plain import zero_one_loss
from drrej.core.types import Floats
from drrej.data import Block
from drrej.documents.rejector import Rejector
from drrej.engines.threads import Pass, map_blocks
from drrej.pipeline.common import Source
from drrej.pipeline.figures import coverage_figure
from drrej.pipeline.groups import Decision, OnUnseen
from drrej.pipeline.pictures import loss_histogram
from drrej.pipeline.scoring import score


@dataclass(frozen=True)
class _Look:
    losses: Floats
    accepted: int
    doubt: Total
    doubt_accepted: Total
    ratio: Total
    ratio_squared: Total

    def __add__(self, other: _Look) -> _Look:
        """Sums; losses stay with the blocks."""
        return _Look(
            self.losses,
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
    loss, density = ratio.row_loss, ratio.density
    loss.check(dump.schema.names, dump.parts[0].name)
    decision = Decision(rejector, dump, on_unseen)

    def look(block: Block) -> _Look:
        scores = score(block, rejector, loss)
        losses = scores.losses
        accepted = decision.accepts(block, losses, scores.prediction)
        doubt = zero_one_loss(scores.sums.at[0])
        with np.errstate(over="ignore"):
            rho = density.ratio(losses)
            squared = np.square(rho)
        return _Look(
            losses,
            int(np.count_nonzero(accepted)),
            Total.of(doubt),
            Total.of(doubt[accepted]),
            Total.of(rho),
            Total.of(squared),
        )

    run = Pass("evaluating", labelled=False, keep=(*decision.columns, *loss.columns))
    blocks = list(map_blocks(dump, look, run, source.engine, source.notes))
    points = RankedLosses.of(np.concatenate([block.losses for block in blocks]), np.empty(0))
    merged = blocks[0]
    for block in blocks[1:]:
        merged = merged + block
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
