"""What the steps share: opening a dump as a rejector remembers it, and passes that collect losses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from drrej.core.fingerprint import RowHashes, row_keys
from drrej.core.losses.rowloss import RowLoss
from drrej.core.types import Floats, Precision
from drrej.data import Block, Dump, DumpOptions, open_dump
from drrej.data.sources import Spools
from drrej.documents.rejector import Columns, Rejector
from drrej.engines.threads import Engine, Notes, Pass, map_blocks
from drrej.errors import DumpError
from drrej.pipeline.groups import Grouping
from drrej.pipeline.scoring import score


@dataclass(frozen=True)
class Source:
    """A dump to read: what the user named and how to read it."""

    paths: Sequence[str]
    options: DumpOptions = field(default_factory=DumpOptions)
    engine: Engine = field(default_factory=Engine)
    notes: Notes = field(default_factory=Notes)
    spools: Spools = field(default_factory=dict)

    def open(self, rejector: Rejector | None, labelled: bool) -> Dump:
        """Open it; what the options leave open is taken from the rejector."""
        options = self.options
        if rejector is not None:
            options = replace(
                options,
                logits=options.logits or rejector.columns.logits,
                label=options.label or rejector.columns.label,
                input=options.input or rejector.input,
                binary=rejector.binary if options.binary is None else options.binary,
                classes=options.classes or rejector.class_names,
            )
        dump = open_dump(self.paths, options, labelled, self.spools)
        if rejector is not None and dump.classes != rejector.classes:
            raise DumpError(
                f"{dump.parts[0].name}: column '{dump.columns.pattern}' has {dump.classes} scores per row but the "
                f"rejector was made for {rejector.classes} classes; is it the same model?"
            )
        return dump

    def start(self, dump: Dump, precision: Precision) -> Rejector:
        """A rejector that has nothing yet but remembers how this dump is read."""
        return Rejector(
            classes=dump.classes,
            input=dump.input,
            columns=Columns(dump.columns.pattern, self.options.label or dump.label),
            class_names=dump.names,
            binary=dump.binary,
            precision=precision,
        )


@dataclass(frozen=True)
class Losses:
    """L' of every row in order; with labels, whether its prediction is wrong; with a grouping, its group's number."""

    values: Floats
    wrong: NDArray[np.bool_] | None
    hashes: RowHashes
    groups: NDArray[np.int64] | None = None
    names: Sequence[str] = ()


def collect_losses(
    source: Source, dump: Dump, rejector: Rejector, loss: RowLoss, run: Pass, grouping: Grouping | None = None
) -> Losses:
    """One pass that keeps L' of each row (8 bytes, 9 with labels, 8 more with groups)."""
    run = replace(run, keep=(*run.keep, *loss.columns))
    loss.check(dump.schema.names, dump.parts[0].name)

    def of_block(block: Block) -> Losses:
        scores = score(block, rejector, loss)
        wrong = None if block.labels is None else scores.prediction != block.labels
        groups, names = (None, []) if grouping is None else grouping.of(block, scores.prediction)
        return Losses(scores.losses, wrong, RowHashes.of(row_keys(block.logits, scores.sums)), groups, names)

    blocks = list(map_blocks(dump, of_block, run, source.engine, source.notes))
    if not blocks:
        raise DumpError(f"{dump.parts[0].name}: no row has a label in {dump.join.file if dump.join else 'the dump'}")
    hashes = blocks[0].hashes
    for block in blocks[1:]:
        hashes = hashes + block.hashes
    wrong = [block.wrong for block in blocks if block.wrong is not None]
    return Losses(
        np.concatenate([block.values for block in blocks]),
        np.concatenate(wrong) if wrong else None,
        hashes,
        *_merged_groups(blocks),
    )


def _merged_groups(blocks: Sequence[Losses]) -> tuple[NDArray[np.int64] | None, list[str]]:
    """Group numbers that mean the same in every block, and the names of the groups that have rows, sorted."""
    used = {block.names[number] for block in blocks if block.groups is not None for number in np.unique(block.groups)}
    names = sorted(used)
    if not names:
        return None, []
    place = {name: number for number, name in enumerate(names)}
    tables = [np.array([place.get(name, -1) for name in block.names], np.int64) for block in blocks]
    return np.concatenate([table[block.groups] for table, block in zip(tables, blocks, strict=True)]), names
