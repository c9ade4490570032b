"""Learning a loss from the labelled rows of a dump: which rows it learns from, and L' of every row afterwards."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drrej.core.choice import Candidate, folds_of, learn, plain_trials, table_of
from drrej.core.fingerprint import RowHashes, key_limit, row_keys
from drrej.core.losses.learned import NEEDS, LearningRows
from drrej.core.losses.plain import LOSSES
from drrej.core.losses.rowloss import RowLoss
from drrej.core.types import Floats
from drrej.data import Block, Dump
from drrej.documents.rejector import Rejector
from drrej.engines.threads import Pass, map_blocks
from drrej.errors import DumpError
from drrej.pipeline.common import Source, collect_losses
from drrej.pipeline.scoring import score

MOST_ROWS = 1 << 16
"""Rows that a loss is learned from; more are drawn from by content, so that their order does not matter."""

_ALL_NEEDS = "".join(sorted({*NEEDS, *(letter for loss in LOSSES.values() for letter in loss.needs)}))


@dataclass(frozen=True)
class LearnedFit:
    """The loss that was learned or chosen, L' of every row (in no order), and the table it was chosen from."""

    loss: RowLoss
    values: Floats
    hashes: RowHashes
    choice: tuple[Candidate, ...] | None


@dataclass(frozen=True)
class _Taken:
    """What a pass takes from a block: the rows to learn from, the others' keys being above the limit."""

    rows: LearningRows
    keys: NDArray[np.uint64]
    hashes: RowHashes


def learn_loss(source: Source, dump: Dump, rejector: Rejector, auto: bool) -> LearnedFit:
    """Learn a loss from labelled rows; with `auto`, take it only if it beats the plain losses.

    The values of rows that were learned from come from models that had not seen them (the other folds').
    """
    limit = key_limit(MOST_ROWS / dump.rows)

    def of_block(block: Block) -> _Taken:
        scores = score(block, rejector, RowLoss("zero-one"), needs=_ALL_NEEDS)
        assert block.labels is not None
        keys = row_keys(block.logits, scores.sums)
        chosen = np.flatnonzero(keys <= limit)
        rows = LearningRows.of(
            scores.sums.at[0], scores.prediction, scores.prediction != block.labels, block.logits.shape[1]
        )
        return _Taken(rows.take(chosen), keys[chosen], RowHashes.of(keys))

    taken = list(map_blocks(dump, of_block, Pass("learning", labelled=True), source.engine, source.notes))
    if not taken:
        raise DumpError(f"{dump.parts[0].name}: no row has a label in {dump.join.file if dump.join else 'the dump'}")
    hashes = taken[0].hashes
    for part in taken[1:]:
        hashes = hashes + part.hashes
    rows, keys = _ordered([part.rows for part in taken], np.concatenate([part.keys for part in taken]))
    if not rows.rows:
        raise DumpError(f"{dump.parts[0].name}: too few different rows to learn a loss from")
    fold = folds_of(rows, keys)
    plain = plain_trials(rows, fold)
    learning = learn(rows, fold, plain)
    choice = None
    if auto:
        name, choice = table_of({**plain, "learned": learning.trial}, learning.model.strength)
        if name != "learned":
            losses = collect_losses(source, dump, rejector, RowLoss(name), Pass("fitting", labelled=True))
            return LearnedFit(RowLoss(name), losses.values, hashes, choice)
    loss = RowLoss("learned", learning.model)
    others = _others(source, dump, rejector, loss, limit) if hashes.rows > rows.rows else []
    return LearnedFit(loss, np.concatenate([learning.losses, *others]), hashes, choice)


def _ordered(parts: list[LearningRows], keys: NDArray[np.uint64]) -> tuple[LearningRows, NDArray[np.uint64]]:
    """Rows in an order of their own, so that sums over them do not depend on the order of the dump."""
    rows = LearningRows.join(parts)
    order = np.lexsort((rows.base["zero-one"], rows.prediction, rows.wrong, keys))
    return rows.take(order), keys[order]


def _others(source: Source, dump: Dump, rejector: Rejector, loss: RowLoss, limit: np.uint64) -> list[Floats]:
    """L' of the rows that were not learned from."""

    def of_block(block: Block) -> Floats:
        scores = score(block, rejector, loss)
        return scores.losses[row_keys(block.logits, scores.sums) > limit]

    return list(map_blocks(dump, of_block, Pass("fitting", labelled=True), source.engine))
