"""A rejector applied to a dump: the only place where a row is accepted or rejected."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from drrej.core.calibrators import Rows
from drrej.core.kernels import Need
from drrej.core.ratio import DensityRatio
from drrej.core.sketch import Fingerprint, Sighting
from drrej.core.types import Booleans, Floats, Integers
from drrej.data.dump import Block, Dump
from drrej.documents.rejector import Rejector
from drrej.errors import DumpError
from drrej.pipeline.groups import Grouping, OnUnseen
from drrej.pipeline.scoring import ScoredBlock, Scoring
from drrej.records import dataclass


@dataclass(frozen=True)
class ScoredRows:
    """What a rejector makes of each row of a block.

    `rows` is what the predictions and losses come from; bad rows have placeholders there and are never accepted.
    """

    prediction: Integers
    loss: Floats
    accepted: Booleans
    rows: Rows
    density: DensityRatio
    drift: Floats
    """The loss by which drift is looked for."""
    sightings: tuple[Sighting, ...] = ()
    """Which rows of the sets that were looked for are among these."""

    @property
    def log_ratio(self) -> Floats:
        """The logarithm of the density ratio."""
        return self.density.log_ratio(self.loss)

    @cached_property
    def ratio(self) -> Floats:
        """The density ratio."""
        return self.density.ratio(self.loss)


class Application:
    """Applies a finished rejector to the blocks of a dump.

    Made before any work: it knows the columns it needs besides logits and labels and raises when one is missing.
    `needs` and `raw` ask for more gap sums, see `Scoring`. Rows of the sets `earlier` are looked for.
    """

    def __init__(
        self,
        rejector: Rejector,
        dump: Dump,
        on_unseen: OnUnseen = "error",
        needs: Need = Need.NOTHING,
        raw: Need | None = None,
        earlier: Sequence[Fingerprint] = (),
    ) -> None:
        ratio, threshold = rejector.need_ratio(), rejector.need_threshold()
        self.rejector = rejector
        self.earlier = tuple(earlier)
        self.density = ratio.density
        self.scoring = Scoring(rejector, ratio.loss, dump, needs, raw)
        self.threshold = threshold
        self.on_unseen = on_unseen
        self.grouping = None
        if threshold.by is not None:
            self.grouping = Grouping(threshold.by, rejector, dump, "the threshold's groups")
        self.columns = (*self.scoring.columns, *(() if self.grouping is None else self.grouping.columns))
        self._cutoffs = {
            group.group: np.inf if group.cutoff is None else group.cutoff for group in threshold.groups or ()
        }

    def __call__(self, block: Block) -> ScoredRows:
        """Score and decide the rows of a block; reports bad rows."""
        scored = self.scoring(block)
        accepted = self._accepted(block, scored)
        if block.bad.any():
            accepted = accepted & ~block.bad
        drift = self.scoring.drift_values(scored)
        sightings: tuple[Sighting, ...] = ()
        if self.earlier:
            keys = self.scoring.keys(block, scored.rows)[~block.bad]
            sightings = tuple(fingerprint.look_up(keys) for fingerprint in self.earlier)
        return ScoredRows(scored.prediction, scored.loss, accepted, scored.rows, self.density, drift, sightings)

    def _accepted(self, block: Block, scored: ScoredBlock) -> Booleans:
        if self.grouping is None:
            return self.threshold.accepts(scored.loss)
        numbers, names = self.grouping.of(block, scored.prediction)
        cutoffs = np.array([self._cutoffs.get(name, np.nan) for name in names])[numbers]
        unseen = np.isnan(cutoffs) & ~block.bad
        if self.on_unseen == "error" and unseen.any():
            row = int(np.argmax(unseen))
            raise DumpError(
                f"{block.part.name}: row {block.row_numbers()[row]} (counted from 0) is of the group "
                f"{self.grouping.by} = '{names[numbers[row]]}', for which the rejector has no threshold; "
                "use `on_unseen_group=reject`, or choose the threshold again on rows of every group"
            )
        accepted: Booleans = scored.loss < cutoffs
        return accepted
