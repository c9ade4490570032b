"""Passes that keep the loss of every row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from drrej.core.fingerprint import RowHashes, row_keys
from drrej.core.types import Booleans, Floats, Integers
from drrej.data.dump import Block, Dump
from drrej.engines.passes import map_blocks
from drrej.engines.protocol import Pass
from drrej.pipeline.groups import Grouping
from drrej.pipeline.scoring import Scoring
from drrej.pipeline.source import Source, no_labels


@dataclass(frozen=True)
class Losses:
    """L' of every row in order; with labels, whether its prediction is wrong; with a grouping, its group's number."""

    values: Floats
    wrong: Booleans | None
    hashes: RowHashes
    groups: Integers | None = None
    names: Sequence[str] = ()


def collect_losses(source: Source, dump: Dump, scoring: Scoring, run: Pass, grouping: Grouping | None = None) -> Losses:
    """One pass that keeps L' of each row (8 bytes, 9 with labels, 8 more with groups)."""
    run = replace(run, keep=(*run.keep, *scoring.columns, *(() if grouping is None else grouping.columns)))

    def of_block(block: Block) -> Losses:
        scored = scoring(block)
        wrong = None if block.labels is None else scored.prediction != block.labels
        groups, names = (None, []) if grouping is None else grouping.of(block, scored.prediction)
        return Losses(scored.loss, wrong, RowHashes.of(row_keys(scored.rows.raw)), groups, names)

    blocks = list(map_blocks(dump, of_block, run, source.engine, source.notes))
    if not blocks:
        raise no_labels(dump)
    wrong = [block.wrong for block in blocks if block.wrong is not None]
    return Losses(
        np.concatenate([block.values for block in blocks]),
        np.concatenate(wrong) if wrong else None,
        sum((block.hashes for block in blocks), RowHashes.empty()),
        *_merged_groups(blocks),
    )


def _merged_groups(blocks: Sequence[Losses]) -> tuple[Integers | None, list[str]]:
    """Group numbers that mean the same in every block, and the names of the groups that have rows, sorted."""
    used = {block.names[number] for block in blocks if block.groups is not None for number in np.unique(block.groups)}
    names = sorted(used)
    if not names:
        return None, []
    place = {name: number for number, name in enumerate(names)}
    tables = [np.array([place.get(name, -1) for name in block.names], np.int64) for block in blocks]
    return np.concatenate([table[block.groups] for table, block in zip(tables, blocks, strict=True)]), names
