"""Passes over a dump as the steps make them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import pyarrow as pa

from drrej.data.dump import Block, Dump
from drrej.engines import passes
from drrej.engines.passes import Noticed
from drrej.engines.protocol import Mapper, Parts, Pass
from drrej.outputs.records import Finished
from drrej.pipeline.intake import check_kind
from drrej.pipeline.source import Source

T = TypeVar("T")


def map_blocks(
    source: Source,
    dump: Dump,
    function: Callable[[Block], T],
    run: Pass,
    engine: Mapper | None = None,
    noticed: Noticed | None = None,
) -> Iterator[T]:
    """The results of `function` on every block, in order.

    At the end it raises for bad rows, counted over the whole dump, and for scores that are not what they are taken for.
    `noticed` takes what was noticed; the source gets it anyway. `engine` is the source's own unless one that keeps
    rows.
    """
    noticed = Noticed() if noticed is None else noticed
    yield from passes.map_blocks(dump, function, run, engine or source.engine, noticed)
    source.see(noticed)
    check_kind(dump, noticed.notes)


def write_parts(
    source: Source, dump: Dump, function: Callable[[Block], pa.RecordBatch], run: Pass, parts: Parts
) -> list[Finished]:
    """Write what `function` makes of every block to a file per part; raises at the end as `map_blocks` does."""
    noticed = Noticed()
    files = passes.write_parts(dump, function, run, source.engine, parts, noticed)
    source.see(noticed)
    check_kind(dump, noticed.notes)
    return files
