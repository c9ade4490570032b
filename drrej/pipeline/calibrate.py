"""Step 1: the temperature, from labelled rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from drrej.core.calibration import CalibrationTally
from drrej.core.calibrators import IDENTITY, Calibrator, Temperature
from drrej.core.fingerprint import RowHashes, key_limit, row_keys
from drrej.core.kernels import Need
from drrej.core.temperature import NllSums, SumOfRows, fit_temperature
from drrej.core.types import AnyFloats, Precision
from drrej.data.dump import Block, Dump
from drrej.documents.rejector import BeforeAfter, Calibration, Rejector
from drrej.engines.cache import SMALL
from drrej.engines.passes import map_blocks
from drrej.engines.pool import in_order
from drrej.engines.protocol import Mapper, Pass
from drrej.pipeline.source import Source, no_labels

T = TypeVar("T")

SAMPLE_LOGITS = 1 << 21
"""Logits in the sample from which the search starts; a dump no larger than that is solved in one go."""


@dataclass(frozen=True)
class Labelled:
    """Logits and labels of some rows."""

    logits: AnyFloats
    labels: NDArray[np.int64]


def joined(parts: Sequence[Labelled]) -> list[Labelled]:
    """The same rows in fewer pieces: a sample has a few rows of each block."""
    logits = [part.logits for part in parts]
    bounds = np.cumsum([rows.size for rows in logits]) // SMALL
    starts = [0, *(np.flatnonzero(np.diff(bounds)) + 1), len(parts)]
    return [
        Labelled(np.concatenate(logits[a:b]), np.concatenate([part.labels for part in parts[a:b]]))
        for a, b in pairwise(starts)
    ]


@dataclass(frozen=True)
class _First:
    """What the first pass takes from a block: figures at T = 1, row hashes, some rows."""

    tally: CalibrationTally
    hashes: RowHashes
    sample: Labelled


def calibrate(source: Source, precision: Precision = "auto", memory: int | None = None) -> Rejector:
    """Start a rejector: fit the temperature that minimises the NLL.

    The search starts from a sample; full passes follow until it has converged. Blocks are kept while they fit in
    `memory` bytes (default: a quarter of what there is) and read again otherwise. On a cluster each worker keeps what
    fits in that much of its own memory.
    """
    dump = source.open(None, labelled=True)
    with source.engine.keeping(memory) as engine:
        return _calibrate(source, dump, engine, precision)


def _calibrate(source: Source, dump: Dump, engine: Mapper, precision: Precision) -> Rejector:
    share = SAMPLE_LOGITS / (dump.rows * dump.classes)
    limit = key_limit(share)

    def first(block: Block) -> _First:
        assert block.labels is not None
        tally, keys = _first_look(block, precision)
        chosen = np.flatnonzero(keys <= limit)
        return _First(tally, RowHashes.of(keys), Labelled(block.logits[chosen], block.labels[chosen]))

    blocks = list(map_blocks(dump, first, Pass("reading", labelled=True), engine, source.notes))
    if not blocks:
        raise no_labels(dump)
    before = sum((block.tally for block in blocks), CalibrationTally.empty())
    hashes = sum((block.hashes for block in blocks), RowHashes.empty())
    sample = _Sample(joined([block.sample for block in blocks]), engine.workers)
    rows = _Rows(dump, engine, precision)

    fit = fit_temperature(sample.total, rows.total if share < 1 else None, precision)
    after = rows.tally(Temperature(fit.temperature))
    return source.new_rejector(dump, precision).with_calibration(
        Calibration(
            method="temperature",
            temperature=fit.temperature,
            converged=fit.converged,
            rows=before.rows,
            fingerprint=hashes.fingerprint(),
            nll=BeforeAfter(before.mean_nll, after.mean_nll),
            ece=BeforeAfter(before.ece, after.ece),
        )
    )


def _first_look(block: Block, precision: Precision) -> tuple[CalibrationTally, NDArray[np.uint64]]:
    """Figures at T = 1 and the keys of the rows; reports rows that no temperature can explain."""
    assert block.labels is not None
    rows = IDENTITY.rows(block.logits, Need.Q, precision).calibrated
    if not block.check_largest(rows.largest):
        rows = IDENTITY.rows(block.without_bad(), Need.Q, precision).calibrated
    labelled = rows.labelled(block.labels)
    impossible = np.flatnonzero(np.isneginf(labelled.label_gap) & ~block.bad)
    block.report(impossible, "-inf at the label's class", "the NLL is infinite for every temperature; drop or fix them")
    return labelled.tally()[0], row_keys(rows)


@dataclass(frozen=True)
class _Sample:
    """Some rows, held by this process."""

    pieces: list[Labelled]
    threads: int

    def total(self, function: SumOfRows) -> NllSums:
        """The sum of a function of logits and labels over the sample."""
        sums = in_order([lambda: iter(self.pieces)], lambda rows: function(rows.logits, rows.labels), self.threads)
        return sum(sums, NllSums())


@dataclass(frozen=True)
class _Rows:
    """All rows of the dump, kept between passes as far as they fit."""

    dump: Dump
    engine: Mapper
    precision: Precision

    def total(self, function: SumOfRows) -> NllSums:
        """The sum of a function of logits and labels over all rows: a pass of the search."""
        return sum(self._each(function), NllSums())

    def tally(self, calibrator: Calibrator) -> CalibrationTally:
        """Calibration figures under a calibrator."""
        precision = self.precision  # not self: the function goes to workers elsewhere

        def of_rows(logits: AnyFloats, labels: NDArray[np.int64]) -> CalibrationTally:
            return calibrator.rows(logits, Need.Q, precision).calibrated.labelled(labels).tally()[0]

        return sum(self._each(of_rows), CalibrationTally.empty())

    def _each(self, function: Callable[[AnyFloats, NDArray[np.int64]], T]) -> Iterator[T]:
        def of_block(block: Block) -> T:
            assert block.labels is not None
            return function(block.logits, block.labels)

        return map_blocks(self.dump, of_block, Pass("calibrating", labelled=True), self.engine)
