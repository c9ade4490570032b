"""Step 1: the temperature, or another calibrator, from labelled rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial, reduce
from itertools import pairwise
from operator import add
from typing import Any, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from drrej.core.calibration import CalibrationTally
from drrej.core.calibrators import (
    IDENTITY,
    MOST_CLASSES,
    MOST_MIXED,
    Calibrator,
    CalibratorName,
    CalibratorTrial,
    Temperature,
    choose_calibrator,
    fit_temperature,
    fit_vector,
    held_out_nll,
)
from drrej.core.inputs import Positives, are_log_probabilities, choose_floor, floored_logits
from drrej.core.reuse import Sketch, key_limit
from drrej.core.softmax import Need
from drrej.core.types import AnyFloats, Precision
from drrej.data.dump import Block, Dump
from drrej.documents.rejector import BeforeAfter, Calibration, Rejector
from drrej.engines import protocol
from drrej.engines.protocol import Engine, Pass, PassSummary
from drrej.errors import OptionError
from drrej.pipeline.passes import map_blocks
from drrej.pipeline.score import (
    check_floor,
    check_kind,
    logits_of,
    look_at,
    probabilities_of,
    row_keys,
    without_rows,
)
from drrej.pipeline.source import Source, no_labels, without_bad_files
from drrej.records import dataclass

T = TypeVar("T")
Sum = TypeVar("Sum", bound=Any)


SAMPLE_LOGITS = 1 << 21
"""Logits in the sample from which the search starts; a dump no larger than that is solved in one go."""


FLOOR_VALUES = 1 << 18
"""Probabilities of the sample that the floor is chosen on."""


_PIECE_LOGITS = 1 << 17
"""Logits of a piece of the sample."""


@dataclass(frozen=True)
class Labelled:
    """Logits (or probabilities) and labels of some rows."""

    logits: AnyFloats
    labels: NDArray[np.int64]


def joined(parts: Sequence[Labelled]) -> list[Labelled]:
    """The same rows in fewer pieces: a sample has a few rows of each block."""
    logits = [part.logits for part in parts]
    bounds = np.cumsum([rows.size for rows in logits]) // _PIECE_LOGITS
    starts = [0, *(np.flatnonzero(np.diff(bounds)) + 1), len(parts)]
    return [
        Labelled(np.concatenate(logits[a:b]), np.concatenate([part.labels for part in parts[a:b]]))
        for a, b in pairwise(starts)
    ]


@dataclass(frozen=True)
class CalibrateOptions:
    """How the calibrator is fitted, and which: one temperature, or a weight and a bias for each class (`vector`).

    `beta` is the name that `vector` has for two classes; `dirichlet` also has a weight for each pair of classes. `auto`
    takes the simplest whose NLL on rows that it was not fitted to is within one standard error of the best.

    `floor` is what a probability of 0 counts as (None: chosen with the temperature). Blocks are kept between passes
    while they fit in `memory` bytes (default: a quarter of what there is; on a cluster, of each worker's).
    """

    precision: Precision = "auto"
    memory: int | None = None
    floor: float | None = None
    calibrator: CalibratorName = "temperature"

    def __post_init__(self) -> None:
        if self.calibrator not in get_args(CalibratorName):
            names = ", ".join(get_args(CalibratorName))
            raise OptionError(f"`calibrator={self.calibrator}`: it must be one of {names}")


@dataclass(frozen=True)
class _First:
    """What the first pass takes from a block: figures before calibration, keys, some rows as they are stored."""

    tally: CalibrationTally
    sketch: Sketch
    positives: Positives
    sample: Labelled


@without_bad_files
def calibrate(source: Source, options: CalibrateOptions | None = None) -> Rejector:
    """Start a rejector: fit the calibrator that minimises the NLL, and the floor of probabilities with it.

    The search starts from a sample; full passes follow until it has converged. The dump needs labels.

    >>> rejector = calibrate(Source("sample_data/val.parquet"))
    >>> round(rejector.need_calibration().temperature, 4)  # below 1: the model is too unsure of itself
    0.5356
    """
    options = options or CalibrateOptions()
    dump = source.open(None, labelled=True)
    check_floor(options.floor, dump)
    check_calibrator(options.calibrator, dump)
    return _Calibration(source, dump, source.engine.keeping(options.memory), options).rejector()


@dataclass(frozen=True)
class _Calibration:
    """One calibration: its passes over the dump and what they are put together to."""

    source: Source
    dump: Dump
    engine: Engine
    options: CalibrateOptions

    def rejector(self) -> Rejector:
        """The rejector that starts with it."""
        precision = self.options.precision
        share = SAMPLE_LOGITS / (self.dump.rows * self.dump.classes)
        blocks = self._first_pass(key_limit(share))
        before = sum((block.tally for block in blocks), CalibrationTally.empty())
        sample = joined([block.sample for block in blocks])
        floor = self._floor(sample, sum((block.positives for block in blocks), Positives()))
        as_logits = [Labelled(_to_logits(rows.logits, floor), rows.labels) for rows in sample]
        rows = _Rows(self.source, self.dump, self.engine, floor, precision)
        total = _Sample(as_logits).total
        whole = rows.total if share < 1 else None
        fit = fit_temperature(total, whole, precision)
        vector, converged = None, fit.converged
        name, choice = self._choice(as_logits)
        if name != "temperature":
            mixed = name == "dirichlet"
            scaling = fit_vector(total, whole, fit.temperature, self.dump.classes, precision, mixed)
            vector, converged = scaling.calibrator, scaling.converged
        after = rows.tally(vector or Temperature(fit.temperature))
        return self.source.new_rejector(self.dump, precision).with_calibration(
            Calibration(
                method=name,
                temperature=fit.temperature,
                converged=converged,
                rows=before.rows,
                fingerprint=sum((block.sketch for block in blocks), Sketch()).fingerprint().text(),
                nll=BeforeAfter(before.mean_nll, after.mean_nll),
                ece=BeforeAfter(before.ece, after.ece),
                brier=BeforeAfter(before.mean_brier, after.mean_brier),
                floor=floor,
                vector=vector,
                choice=choice,
            )
        )

    def _choice(self, sample: list[Labelled]) -> tuple[str, tuple[CalibratorTrial, ...] | None]:
        """The calibrator to fit and, for `auto`, the table that it was chosen from."""
        if self.options.calibrator != "auto":
            return self.options.calibrator, None
        rows, labels = (np.concatenate(part) for part in zip(*((p.logits, p.labels) for p in sample), strict=True))
        nll = held_out_nll(rows, labels, self.options.precision)
        return choose_calibrator(nll) if nll else ("temperature", None)

    def _first_pass(self, limit: np.uint64) -> list[_First]:
        first = partial(_first_look, precision=self.options.precision, limit=limit)
        run, summary = Pass("reading", labelled=True), PassSummary()
        blocks = list(map_blocks(self.source, self.dump, first, run, self.engine, summary))
        if not blocks:
            raise no_labels(self.dump)
        check_kind(self.dump, summary.notes, calibrating=True)
        return blocks

    def _floor(self, sample: list[Labelled], positives: Positives) -> float | None:
        """What a probability of 0 counts as: as given, or chosen on a part of the sample; None for logits.

        Where every type would hold all of the probabilities there is nothing to choose: they stay as they are.
        """
        if self.dump.input == "logits" or self.options.floor is not None:
            return self.options.floor
        part = _first_values(sample, FLOOR_VALUES)

        def nll(floor: float) -> float:
            if not positives.may_vanish:
                return 0.0
            rows = [Labelled(floored_logits(piece.logits, floor), piece.labels) for piece in part]
            fit = fit_temperature(_Sample(rows).total, None, "float64")
            calibrator = Temperature(fit.temperature)
            tallies = (_tally(calibrator, piece.logits, piece.labels, "float64") for piece in rows)
            mean = sum(tallies, CalibrationTally.empty()).mean_nll
            return math.inf if mean is None else mean

        rows = sum(piece.labels.size for piece in part)
        return choose_floor(nll, rows, self.dump.classes, positives.smallest).floor


def check_calibrator(name: CalibratorName, dump: Dump) -> None:
    """Raise when a calibrator is not for so many classes."""
    if name == "beta" and dump.classes != 2:
        raise OptionError(f"`calibrator=beta` is for two classes, here are {dump.classes}; use `calibrator=vector`")
    for other, most, instead in (("vector", MOST_CLASSES, "temperature"), ("dirichlet", MOST_MIXED, "vector")):
        if name == other and dump.classes > most:
            raise OptionError(
                f"`calibrator={name}` is for at most {most} classes, here are {dump.classes}; "
                f"use `calibrator={instead}`"
            )


def _first_values(sample: list[Labelled], most: int) -> list[Labelled]:
    """Some of the rows of a sample, with at most so many values."""
    kept: list[Labelled] = []
    for piece in sample:
        room = most - sum(other.logits.size for other in kept)
        rows = max(room // piece.logits.shape[1], 0 if kept else 1)
        kept.append(Labelled(piece.logits[:rows], piece.labels[:rows]))
    return [piece for piece in kept if piece.labels.size]


def _to_logits(scores: AnyFloats, floor: float | None) -> AnyFloats:
    return scores if floor is None else floored_logits(scores, floor)


def _first_look(block: Block, precision: Precision, limit: np.uint64) -> _First:
    """Figures before calibration, keys and a sample of a block; reports rows that no temperature can explain."""
    labels, positives = block.labels, Positives()
    assert labels is not None
    if block.input == "logits":
        stored = logits = logits_of(block)
    else:
        stored = probabilities_of(block)
        positives = Positives.of(stored)
        logits = floored_logits(stored, 0.0)
    rows, _ = IDENTITY.scores(logits, Need.Q, precision)
    look_at(block, rows)
    if not block.check_largest(rows.largest):
        rows, _ = IDENTITY.scores(without_rows(logits, block.bad), Need.Q, precision)
    labelled = rows.labelled(labels)
    if block.input == "logits":
        impossible = np.flatnonzero(np.isneginf(labelled.label_gap) & ~block.bad)
        remedy = "the NLL is infinite for every temperature; drop or fix them"
        if impossible.size and are_log_probabilities(block.scores[impossible]).all():
            remedy = "these are log-probabilities: say `input=log-probs`, and 0 gets a floor"
        block.report(impossible, "-inf at the label's class", remedy, usable=True)
    keys = row_keys(block, rows)
    chosen = np.flatnonzero(keys <= limit)
    return _First(labelled.tally(), Sketch.of(keys), positives, Labelled(stored[chosen], labels[chosen]))


def _tally(
    calibrator: Calibrator, logits: AnyFloats, labels: NDArray[np.int64], precision: Precision
) -> CalibrationTally:
    calibrated, _ = calibrator.scores(logits, Need.Q, precision)
    return calibrated.labelled(labels).tally()


@dataclass(frozen=True)
class _Sample:
    """Some rows, held by this process."""

    pieces: list[Labelled]

    def total(self, function: Callable[[AnyFloats, NDArray[np.int64]], Sum]) -> Sum:
        """The sum of a function of logits and labels over the sample."""
        return reduce(add, (function(piece.logits, piece.labels) for piece in self.pieces))


@dataclass(frozen=True)
class _Rows:
    """All rows of the dump, kept between passes as far as they fit."""

    source: Source
    dump: Dump
    engine: Engine
    floor: float | None
    precision: Precision

    def total(self, function: Callable[[AnyFloats, NDArray[np.int64]], Sum]) -> Sum:
        """The sum of a function of logits and labels over all rows: a pass of the search."""
        return reduce(add, self._each(function))

    def tally(self, calibrator: Calibrator) -> CalibrationTally:
        """Calibration figures under a calibrator."""
        tallies = self._each(partial(_tally, calibrator, precision=self.precision))
        return sum(tallies, CalibrationTally.empty())

    def _each(self, function: Callable[[AnyFloats, NDArray[np.int64]], T]) -> Iterator[T]:
        of_block = partial(_of_block, function, self.floor, self.dump.skip_bad_rows)  # not self: workers get it
        return protocol.map_blocks(self.dump, of_block, Pass("calibrating", labelled=True), self.engine)


def _of_block(
    function: Callable[[AnyFloats, NDArray[np.int64]], T], floor: float | None, skip_bad_rows: bool, block: Block
) -> T:
    assert block.labels is not None
    logits = logits_of(block, floor)
    if skip_bad_rows and (not block.check_largest(np.max(logits, axis=1)) or block.bad.any()):
        logits = without_rows(logits, block.bad)  # they are left out; else the first pass has found none
    return function(logits, block.labels)
