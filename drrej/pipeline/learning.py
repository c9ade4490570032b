"""Which loss a fit uses: a given one, or one that is learned or chosen from the labelled rows of the dump."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Protocol

import numpy as np

from drrej.core.choice import Candidate, folds_of, preferred, table_of
from drrej.core.learning import LearningRows
from drrej.core.losses import PLAIN, LearnedLoss, Loss
from drrej.core.losses.learned import FEATURES, needs_of
from drrej.core.row_keys import Keys, key_limit
from drrej.core.sketch import Sketch
from drrej.core.strengths import candidates, learn
from drrej.core.types import Floats, SortedLosses
from drrej.data.dump import Block, Dump
from drrej.documents.rejector import Rejector
from drrej.engines.protocol import Pass
from drrej.errors import DumpError, OptionError
from drrej.pipeline.losses import Collecting, collect_losses
from drrej.pipeline.passes import map_blocks
from drrej.pipeline.scoring import Scoring
from drrej.pipeline.source import Source, no_labels
from drrej.records import dataclass

MOST_ROWS = 1 << 16
"""Rows that a loss is learned from; more are drawn from by content, so that their order does not matter."""

_ALL_NEEDS = reduce(or_, (loss.needs for loss in PLAIN.values()), needs_of(FEATURES))


@dataclass(frozen=True)
class FittedLoss:
    """The loss, L' of every row (sorted), and the table it was chosen from if it was.

    `drift` is the loss by which drift will be looked for, of every row, where that is another.
    """

    loss: Loss
    ordered: SortedLosses
    sketch: Sketch
    choice: tuple[Candidate, ...] | None = None
    drift: Floats | None = None


class Chooser(Protocol):
    """Settles on a loss for the rows of a dump."""

    def choose(self, source: Source, rejector: Rejector) -> FittedLoss:
        """The loss and its values on these rows."""


@dataclass(frozen=True)
class Given:
    """The loss that was asked for; no labels are needed."""

    loss: Loss

    def choose(self, source: Source, rejector: Rejector) -> FittedLoss:
        """The loss and its values."""
        self.loss.check(rejector.classes)
        dump = source.open(rejector, labelled=False)
        scoring, run = Scoring(rejector, self.loss, dump), Pass("fitting", labelled=False)
        losses = collect_losses(source, dump, scoring, run, Collecting(ranked=True))
        assert losses.curve is not None
        return FittedLoss(self.loss, losses.curve.ordered, losses.sketch)


@dataclass(frozen=True)
class Learned:
    """A loss learned from labelled rows; with `auto`, only if it beats the plain losses, else the best of those."""

    auto: bool = False

    def choose(self, source: Source, rejector: Rejector) -> FittedLoss:
        """The loss and its values: those of rows that were learned from come from models that had not seen them."""
        if not rejector.has_classes:
            name = "auto" if self.auto else "learned"
            raise OptionError(f"`loss={name}` needs logits, but this rejector only has a loss column")
        dump = source.open(rejector, labelled=True)
        limit = key_limit(MOST_ROWS / dump.rows)
        rows, keys, sketch = _rows_to_learn_from(source, dump, rejector, limit)
        fold = folds_of(rows, keys)
        first = preferred(rows)
        learning = learn(rows, fold, first)
        choice = None
        if self.auto:
            name, choice = table_of(candidates(rows, fold, first, learning), learning.model.strength)
            if name in PLAIN:
                run = Pass("fitting", labelled=True)
                scoring = Scoring(rejector, PLAIN[name], dump)
                losses = collect_losses(source, dump, scoring, run, Collecting(sketch=False, ranked=True))
                assert losses.curve is not None
                return FittedLoss(PLAIN[name], losses.curve.ordered, sketch, choice)
        loss = LearnedLoss(learning.model)
        others = _others(source, dump, Scoring(rejector, loss, dump), limit) if sketch.rows > rows.rows else []
        values = np.sort(np.concatenate([learning.losses, *(learned for learned, _ in others)]))
        drift = np.concatenate([rows.plain[learning.model.base], *(plain for _, plain in others)])
        return FittedLoss(loss, values, sketch, choice, drift)


CHOOSERS: dict[str, Chooser] = {"learned": Learned(), "auto": Learned(auto=True)}
"""Names that stand for a search instead of a loss."""


@dataclass(frozen=True)
class _Sampled:
    """What a pass takes from a block: the rows to learn from (those with keys up to the limit), and all hashes."""

    rows: LearningRows
    keys: Keys
    sketch: Sketch


def _rows_to_learn_from(
    source: Source, dump: Dump, rejector: Rejector, limit: np.uint64
) -> tuple[LearningRows, Keys, Sketch]:
    scoring = Scoring(rejector, PLAIN["zero-one"], dump)

    def of_block(block: Block) -> _Sampled:
        assert block.labels is not None
        scored = scoring(block)
        keys = scoring.keys(block, scored.rows)
        chosen = np.flatnonzero(keys <= limit)
        # Only these need all the sums, and those of a row do not depend on its neighbours.
        rows = scoring.calibrator.rows(scored.rows.raw.scores[chosen], _ALL_NEEDS, scoring.precision).calibrated
        return _Sampled(LearningRows.of(rows, block.labels[chosen]), keys[chosen], Sketch.of(keys))

    sampled = list(map_blocks(source, dump, of_block, Pass("learning", labelled=True)))
    if not sampled:
        raise no_labels(dump)
    rows, keys = _ordered([part.rows for part in sampled], np.concatenate([part.keys for part in sampled]))
    if not rows.rows:
        raise DumpError(f"{dump.parts[0].name}: too few different rows to learn a loss from")
    return rows, keys, sum((part.sketch for part in sampled), Sketch())


def _ordered(parts: list[LearningRows], keys: Keys) -> tuple[LearningRows, Keys]:
    """Rows in an order of their own, so that sums over them do not depend on the order of the dump."""
    rows = LearningRows.join(parts)
    order = np.lexsort((rows.base["zero-one"], rows.prediction, rows.wrong, keys))
    return rows.take(order), keys[order]


def _others(source: Source, dump: Dump, scoring: Scoring, limit: np.uint64) -> list[tuple[Floats, Floats]]:
    """L' of the rows that were not learned from, and their loss for drift."""

    def of_block(block: Block) -> tuple[Floats, Floats]:
        scored = scoring(block)
        left = scoring.keys(block, scored.rows) > limit
        return scored.loss[left], scoring.drift_values(scored)[left]

    return list(map_blocks(source, dump, of_block, Pass("fitting", labelled=True)))
