"""Passes over a dump as the steps make them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from drrej.data.dump import Block, Dump
from drrej.engines import protocol
from drrej.engines.protocol import Engine, Pass, PassSummary
from drrej.pipeline.score import check_kind
from drrej.pipeline.source import Source

T = TypeVar("T")


def map_blocks(
    source: Source,
    dump: Dump,
    function: Callable[[Block], T],
    run: Pass,
    engine: Engine | None = None,
    summary: PassSummary | None = None,
) -> Iterator[T]:
    """The results of `function` on every block, in order.

    At the end it raises for bad rows, counted over the whole dump, and for scores that are not what they are taken for.
    `summary` takes what was noticed; the source gets it anyway. `engine` is the source's own unless one that keeps
    rows.
    """
    summary = PassSummary() if summary is None else summary
    yield from protocol.map_blocks(dump, function, run, engine or source.engine, summary)
    check_summary(source, dump, summary)


def check_summary(source: Source, dump: Dump, summary: PassSummary) -> None:
    """Tell the source what a pass noticed; raise where that is more, or something else, than is allowed."""
    source.see(summary)
    check_kind(dump, summary.notes)
