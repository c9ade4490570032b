"""Step 1: the temperature, from labelled rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from drrej.core.calibration import CalibrationTally
from drrej.core.calibrators import IDENTITY, Calibrator, Temperature
from drrej.core.fingerprint import RowHashes, key_limit, row_keys
from drrej.core.kernels import Need
from drrej.core.temperature import NllSums, Summing, SumOfRows, fit_temperature
from drrej.core.types import AnyFloats, Precision
from drrej.data.dump import Block, Dump
from drrej.documents.rejector import BeforeAfter, Calibration, Rejector
from drrej.engines.memory import available_memory
from drrej.engines.threads import Engine, Pass, map_blocks
from drrej.pipeline.source import Source, no_labels

T = TypeVar("T")

SAMPLE_LOGITS = 1 << 21
"""Logits in the sample from which the search starts; a dump no larger than that is solved in one go."""


GATHERED_LOGITS = 1 << 17


@dataclass(frozen=True)
class Labelled:
    """Logits and labels of some rows."""

    logits: AnyFloats
    labels: NDArray[np.int64]


def gathered(blocks: Iterable[Labelled]) -> list[Labelled]:
    """The same rows in fewer pieces: a pass over thousands of tiny row groups would be all overhead."""
    pieces: list[Labelled] = []
    run: list[Labelled] = []
    for block in blocks:
        run.append(block)
        if sum(rows.logits.size for rows in run) >= GATHERED_LOGITS:
            pieces.append(_joined(run))
            run = []
    return [*pieces, _joined(run)] if run else pieces


def _joined(run: list[Labelled]) -> Labelled:
    if len(run) == 1:
        return run[0]
    return Labelled(np.concatenate([rows.logits for rows in run]), np.concatenate([rows.labels for rows in run]))


@dataclass(frozen=True)
class _First:
    """What the first pass takes from a block: figures at T = 1, row hashes, some rows, all rows if there is room."""

    tally: CalibrationTally
    hashes: RowHashes
    sample: Labelled
    kept: Labelled | None


def calibrate(source: Source, precision: Precision = "auto", memory: int | None = None) -> Rejector:
    """Start a rejector: fit the temperature that minimises the NLL.

    The search starts from a sample; full passes follow until it has converged. Blocks are kept while they fit in
    `memory` bytes (default: a quarter of what there is) and read again otherwise. On a cluster each worker keeps what
    fits in that much of its own memory.
    """
    dump = source.open(None, labelled=True)
    budget = available_memory() // 4 if memory is None else memory
    keep = source.engine.in_process and dump.rows * dump.classes * 4 <= budget
    share = SAMPLE_LOGITS / (dump.rows * dump.classes)
    limit = key_limit(share)

    def first(block: Block) -> _First:
        assert block.labels is not None
        tally, keys = _first_look(block, precision)
        rows = Labelled(block.logits, block.labels)
        chosen = np.flatnonzero(keys <= limit)
        sample = Labelled(rows.logits[chosen], rows.labels[chosen])
        return _First(tally, RowHashes.of(keys), sample, rows if keep else None)

    blocks = list(
        map_blocks(
            dump, first, Pass("reading", labelled=True, read_again=True, memory=memory), source.engine, source.notes
        )
    )
    if not blocks:
        raise no_labels(dump)
    before = sum((block.tally for block in blocks), CalibrationTally.empty())
    hashes = sum((block.hashes for block in blocks), RowHashes.empty())
    kept = gathered(block.kept for block in blocks if block.kept is not None)
    sample = gathered(block.sample for block in blocks)
    rows = _Rows(dump, kept, source.engine, precision, memory)

    fit = fit_temperature(_of_sample(sample, source.engine), rows.total if share < 1 else None, precision)
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


class _Rows:
    """All rows of the dump, kept in memory or read again for each pass."""

    def __init__(
        self, dump: Dump, kept: list[Labelled], engine: Engine, precision: Precision, memory: int | None
    ) -> None:
        self.dump = dump
        self.kept = kept
        self.engine = engine
        self.precision = precision
        self.memory = memory

    def total(self, function: SumOfRows) -> NllSums:
        """The sum of a function of logits and labels over all rows: a pass of the search."""
        return sum(self._each(lambda rows: function(rows.logits, rows.labels)), NllSums())

    def tally(self, calibrator: Calibrator) -> CalibrationTally:
        """Calibration figures under a calibrator."""
        precision = self.precision  # not self: the function goes to workers elsewhere

        def of_rows(rows: Labelled) -> CalibrationTally:
            calibrated = calibrator.rows(rows.logits, Need.Q, precision).calibrated
            return calibrated.labelled(rows.labels).tally()[0]

        return sum(self._each(of_rows), CalibrationTally.empty())

    def _each(self, function: Callable[[Labelled], T]) -> Iterator[T]:
        if self.kept:
            progress = self.engine.progress
            progress.start("calibrating", sum(rows.labels.size for rows in self.kept))
            try:
                with ThreadPoolExecutor(self.engine.workers) as pool:
                    for rows, result in zip(self.kept, pool.map(function, self.kept), strict=True):
                        progress.advance(rows.labels.size)
                        yield result
            finally:
                progress.stop()
            return

        def of_block(block: Block) -> T:
            assert block.labels is not None
            return function(Labelled(block.logits, block.labels))

        run = Pass("calibrating", labelled=True, read_again=True, memory=self.memory)
        yield from map_blocks(self.dump, of_block, run, self.engine)


def _of_sample(sample: list[Labelled], engine: Engine) -> Summing:
    def total(function: SumOfRows) -> NllSums:
        with ThreadPoolExecutor(engine.workers) as pool:
            return sum(pool.map(lambda rows: function(rows.logits, rows.labels), sample), NllSums())

    return total
