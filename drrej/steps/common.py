"""What the steps share: opening a dump as a rejector remembers it, and passes that collect losses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from drrej.dumps import Block, Dump, DumpOptions, open_dump
from drrej.dumps.sources import Spools
from drrej.errors import DumpError
from drrej.fingerprint import RowHashes
from drrej.losses import LOSSES, Floats
from drrej.rejector import Rejector
from drrej.stream import Engine, Notes, Pass, map_blocks


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


@dataclass(frozen=True)
class Losses:
    """L' of every row in order and, with labels, whether its prediction is right."""

    values: Floats
    wrong: np.ndarray[tuple[int], np.dtype[np.bool_]] | None
    hashes: RowHashes


def collect_losses(source: Source, dump: Dump, rejector: Rejector, loss: str, run: Pass) -> Losses:
    """One pass that keeps L' of each row (8 bytes, 9 with labels)."""
    kind, beta = LOSSES[loss], rejector.beta

    def of_block(block: Block) -> Losses:
        sums = block.sums([beta], needs=kind.needs, precision=rejector.precision)
        wrong = None if block.labels is None else sums.prediction != block.labels
        return Losses(kind.expected(sums.at[0]), wrong, RowHashes.of(block.logits, sums))

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
    )
