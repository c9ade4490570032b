"""One night of a monitor: a pass over its dump that counts rows, accepted rows, labels, errors and losses by bin."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from drrej.core.monitor.bins import bin_counts
from drrej.core.sketch import Fingerprint, Sighting, Sketch
from drrej.core.types import Booleans, Integers
from drrej.data.columns import column_of, field_of, root_of
from drrej.data.dump import Block, Dump
from drrej.documents.rejector import Rejector
from drrej.engines.protocol import Pass
from drrej.errors import OptionError
from drrej.pipeline.application import Application
from drrej.pipeline.groups import Grouping, OnUnseen
from drrej.pipeline.passes import map_blocks
from drrej.pipeline.source import Source
from drrej.records import dataclass

MOST_PARTS = 2000
"""Predicted classes or groups that are looked at one by one."""


@dataclass(frozen=True)
class NightLook:
    """What is looked for: losses between `edges`, groups by a column, and rows of the night `before`."""

    edges: Sequence[float] | None
    by: str | None
    before: Fingerprint | None
    on_unseen_group: OnUnseen = "error"


@dataclass(frozen=True)
class NightCounts:
    """Counts of a night; they add up over blocks in any order.

    `labels` are the accepted rows whose label is known, `errors` those among them. `by_class` has rows and accepted
    rows of each predicted class, `by_group` those of each group.
    """

    rows: int
    accepted: int
    labels: int
    errors: int
    bins: NDArray[np.int64]
    by_class: NDArray[np.int64]
    by_group: Counter[tuple[str, bool]]
    sketch: Sketch
    sighting: Sighting | None

    def __add__(self, other: NightCounts) -> NightCounts:
        seen = self.sighting
        if seen is not None and other.sighting is not None:
            seen += other.sighting
        return NightCounts(
            self.rows + other.rows,
            self.accepted + other.accepted,
            self.labels + other.labels,
            self.errors + other.errors,
            self.bins + other.bins,
            self.by_class + other.by_class,
            self.by_group + other.by_group,
            self.sketch + other.sketch,
            seen,
        )

    @property
    def fingerprint(self) -> str:
        """The number of rows and the sum of their keys: the same for the same rows in any order."""
        return f"{self.rows:x}.{self.sketch.total:016x}"


def count_night(source: Source, rejector: Rejector, look: NightLook) -> NightCounts:
    """Count a night; labels count where the dump or the file of labels has them."""
    if not rejector.has_classes:
        raise OptionError("a monitor watches predictions of classes; the rejector is for a regression")
    dump, labelled = _open(source, rejector)
    application = Application(rejector, dump, look.on_unseen_group)
    grouping = None if look.by is None else Grouping(look.by, rejector, dump)
    labels = _Labels(dump, source.options.on_missing_label == "skip") if labelled else None

    def of_block(block: Block) -> NightCounts:
        scored = application(block)
        keys = application.scoring.keys(block, scored.rows)
        known = errors = np.zeros(block.rows, bool)
        if labels is not None:
            truth, known = labels.of(block)
            known = known & scored.accepted
            errors = known & (truth != scored.prediction)
        cells = scored.prediction * 2 + scored.accepted
        by_class = np.bincount(cells, minlength=2 * rejector.classes).reshape(-1, 2)
        return NightCounts(
            block.rows,
            int(np.count_nonzero(scored.accepted)),
            int(np.count_nonzero(known)),
            int(np.count_nonzero(errors)),
            np.array([] if look.edges is None else bin_counts(scored.drift, look.edges), np.int64),
            np.stack([by_class.sum(axis=1), by_class[:, 1]], axis=1),
            Counter() if grouping is None else _by_group(grouping, block, scored.prediction, scored.accepted),
            Sketch.of(keys),
            None if look.before is None else look.before.look_up(keys),
        )

    wanted = [*application.columns, *(() if grouping is None else grouping.columns)]
    wanted += [] if labels is None else [root_of(dump.schema, labels.column)]
    run = Pass("counting", labelled=False, keep=tuple(dict.fromkeys(wanted)), scores=application.columns)
    blocks = list(map_blocks(source, dump, of_block, run))
    night = sum(blocks[1:], blocks[0])
    groups = {name for name, _ in night.by_group}
    if len(groups) > MOST_PARTS:
        raise OptionError(f"`by={look.by}`: the night has {len(groups)} groups; a monitor keeps at most {MOST_PARTS}")
    return night


def _open(source: Source, rejector: Rejector) -> tuple[Dump, bool]:
    """The dump, and whether it has labels. Those that were asked for must be there."""
    asked = source.options.labels_from is not None or source.options.label is not None
    dump = source.open(rejector, labelled=asked)
    if dump.beside is not None:
        raise OptionError(
            f"`labels_from={dump.beside.file}`: a monitor matches labels by key; name the key column with `join_on=COL`"
        )
    known = None if dump.label is None else field_of(dump.schema, dump.label)
    if asked or known is None or pa.types.is_null(known.type):
        return dump, asked
    return source.open(rejector, labelled=True), True  # labels that are there must be readable


class _Labels:
    """Labels of rows of which not all need to have one."""

    def __init__(self, dump: Dump, skip_missing: bool) -> None:
        self.dump = dump
        self.skip_missing = skip_missing
        name = dump.label if dump.join is None else dump.join.on
        assert name is not None
        self.column: str = name

    def of(self, block: Block) -> tuple[Integers, Booleans]:
        """The label of each row, and whether it is known; missing ones are reported unless they may be."""
        join, array = self.dump.join, column_of(block.columns, self.column)
        if join is not None:
            found = block.joined = join.positions(array, block)  # the pass looks for keys that occur twice
            return join.labels[np.maximum(found, 0)], found >= 0
        known = np.asarray(array.is_valid()) if self.skip_missing else np.ones(block.rows, bool)
        there = np.flatnonzero(known)

        def report(rows: NDArray[np.intp], what: str, remedy: str, example: str = "") -> None:
            if what.startswith("no label"):
                remedy = "use `on_missing_label=skip` if they come later or not at all"
            block.report(there[rows], what, remedy, example, column=self.column)

        kind = self.dump.label_kind
        assert kind is not None
        labels = np.zeros(block.rows, np.int64)
        labels[there] = kind.encode(array if known.all() else array.filter(pa.array(known)), self.dump.classes, report)
        return labels, known


def _by_group(grouping: Grouping, block: Block, prediction: Integers, accepted: Booleans) -> Counter[tuple[str, bool]]:
    numbers, names = grouping.of(block, prediction)
    counts = np.bincount(numbers * 2 + accepted, minlength=2 * len(names)).reshape(-1, 2)
    return Counter({(names[i], bool(j)): int(counts[i, j]) for i, j in zip(*np.nonzero(counts), strict=True)})
