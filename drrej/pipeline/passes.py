"""Passes over a dump as the steps make them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import pyarrow as pa

from drrej.data.dump import Block, Dump
from drrej.data.notes import Notes
from drrej.engines import passes
from drrej.engines.protocol import Mapper, Parts, Pass
from drrej.outputs.parts import PartCounts
from drrej.pipeline.intake import check_kind
from drrej.pipeline.source import Source

T = TypeVar("T")


def map_blocks(
    source: Source,
    dump: Dump,
    function: Callable[[Block], T],
    run: Pass,
    engine: Mapper | None = None,
    notes: Notes | None = None,
) -> Iterator[T]:
    """The results of `function` on every block, in order.

    At the end it raises for bad rows, counted over the whole dump, and for scores that are not what they are taken for.
    `notes` takes what was noticed; the source gets it anyway. `engine` is the source's own unless one that keeps rows.
    """
    notes = Notes() if notes is None else notes
    yield from passes.map_blocks(dump, function, run, engine or source.engine, notes)
    source.notes.see(notes)
    check_kind(dump, notes)


def write_parts(
    source: Source, dump: Dump, function: Callable[[Block], pa.RecordBatch], run: Pass, parts: Parts
) -> PartCounts:
    """Write what `function` makes of every block to a file per part; raises at the end as `map_blocks` does."""
    notes = Notes()
    counts = passes.write_parts(dump, function, run, source.engine, parts, notes)
    source.notes.see(notes)
    check_kind(dump, notes)
    return counts
