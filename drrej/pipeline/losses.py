"""Passes that keep the loss of every row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial, reduce
from operator import add

import numpy as np

from drrej.core.curves import RankedLosses
from drrej.core.sketch import Fingerprint, Sighting, Sketch
from drrej.core.types import Booleans, Floats, Integers
from drrej.data.dump import Block, Dump
from drrej.engines.protocol import Pass
from drrej.pipeline.groups import Grouping
from drrej.pipeline.loss_files import loss_sorter
from drrej.pipeline.passes import map_blocks
from drrej.pipeline.scoring import Scoring, column_values
from drrej.pipeline.source import Source, no_labels
from drrej.records import dataclass


@dataclass(frozen=True)
class Losses:
    """L' of every row in order; with labels, whether its prediction is wrong; with a grouping, its group's number.

    `sketch` tells these rows from others, `sightings` which rows of some earlier sets are among them.
    """

    values: Floats
    wrong: Booleans | None
    sketch: Sketch
    sightings: tuple[Sighting, ...] = ()
    groups: Integers | None = None
    names: Sequence[str] = ()
    costs: Floats | None = None
    """What each row costs if it is accepted, for a loss that knows."""
    curve: RankedLosses | None = None
    """All there is of the losses where `Collecting.ranked` says so."""


_NO_LOSSES = np.empty(0)


@dataclass(frozen=True)
class Residuals:
    """The error of a regression in each row, squared or not (`kind` is "mse" or "mae"), at most `clip`."""

    columns: tuple[str, str]
    kind: str
    clip: float | None = None

    def of(self, block: Block) -> Floats:
        """The errors of a block."""
        predicted, true = (column_values(block, name) for name in self.columns)
        return self.of_values(predicted - true)

    def of_values(self, residuals: Floats) -> Floats:
        """From the differences of predictions and targets."""
        with np.errstate(over="ignore"):
            errors = np.square(residuals) if self.kind == "mse" else np.abs(residuals)
        return errors if self.clip is None else np.minimum(errors, self.clip)


@dataclass(frozen=True)
class Collecting:
    """What a pass that collects losses looks for besides."""

    grouping: Grouping | None = None
    earlier: Sequence[Fingerprint] = ()
    sketch: bool = True
    residuals: Residuals | None = None
    ranked: bool = False
    """Whether the curve of all rows is wanted in place of their losses: those need not be in memory then."""

    def of(self, block: Block, scoring: Scoring) -> Losses:
        """The losses of a block."""
        scored = scoring(block)
        wrong = None if block.labels is None else scored.prediction != block.labels
        groups, names = (None, []) if self.grouping is None else self.grouping.of(block, scored.prediction)
        sketch, sightings = Sketch(), tuple[Sighting, ...]()
        if self.sketch or self.earlier:
            keys = scoring.keys(block, scored.rows)
            sketch = Sketch.of(keys) if self.sketch else sketch
            sightings = tuple(fingerprint.look_up(keys) for fingerprint in self.earlier)
        costs = None if block.labels is None else scoring.loss.realised(scored.prediction, block.labels)
        if self.residuals is not None:
            costs = self.residuals.of(block)
        return Losses(scored.loss, wrong, sketch, sightings, groups, names, costs)


def collect_losses(
    source: Source, dump: Dump, scoring: Scoring, run: Pass, collecting: Collecting | None = None
) -> Losses:
    """One pass that keeps L' of each row (8 bytes, 9 with labels, 8 more with groups), or the curve of all rows."""
    collecting = collecting or Collecting()
    grouped = () if collecting.grouping is None else collecting.grouping.columns
    errors = () if collecting.residuals is None else collecting.residuals.columns
    run = replace(run, keep=(*run.keep, *scoring.columns, *grouped, *errors), scores=scoring.columns)
    if collecting.ranked:
        return _collect_curve(source, dump, partial(collecting.of, scoring=scoring), run)
    values, blocks, rows = np.empty(dump.rows), list[Losses](), 0
    for block in map_blocks(source, dump, partial(collecting.of, scoring=scoring), run):
        # Copied at once: so the memory of a block is that of the one before, which need not be cleared.
        values[rows : rows + block.values.size] = block.values
        rows += block.values.size
        blocks.append(replace(block, values=_NO_LOSSES))
    if not blocks:
        raise no_labels(dump)
    wrong = [block.wrong for block in blocks if block.wrong is not None]
    costs = [block.costs for block in blocks if block.costs is not None]
    return Losses(
        values[:rows],
        np.concatenate(wrong) if wrong else None,
        sum((block.sketch for block in blocks), Sketch()),
        tuple(reduce(add, found) for found in zip(*(block.sightings for block in blocks), strict=True)),
        *_merged_groups(blocks),
        costs=np.concatenate(costs) if costs else None,
    )


def _collect_curve(source: Source, dump: Dump, function: Callable[[Block], Losses], run: Pass) -> Losses:
    """Nothing of a row is kept but its loss, in a file if there are many."""
    losses, sketch = loss_sorter(dump.rows), Sketch()
    sightings: tuple[Sighting, ...] | None = None
    for block in map_blocks(source, dump, function, run):
        if block.wrong is None:
            losses.add(block.values, _NO_LOSSES)
        else:
            losses.add(block.values[np.flatnonzero(~block.wrong)], block.values[np.flatnonzero(block.wrong)])
        sketch += block.sketch
        sightings = block.sightings if sightings is None else tuple(map(add, sightings, block.sightings))
    if sightings is None:
        raise no_labels(dump)
    return Losses(_NO_LOSSES, None, sketch, sightings, curve=losses.ranked())


def _merged_groups(blocks: Sequence[Losses]) -> tuple[Integers | None, list[str]]:
    """Group numbers that mean the same in every block, and the names of the groups that have rows, sorted."""
    used = {block.names[number] for block in blocks if block.groups is not None for number in np.unique(block.groups)}
    names = sorted(used)
    if not names:
        return None, []
    place = {name: number for number, name in enumerate(names)}
    tables = [np.array([place.get(name, -1) for name in block.names], np.int64) for block in blocks]
    return np.concatenate([table[block.groups] for table, block in zip(tables, blocks, strict=True)]), names
