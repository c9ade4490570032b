"""Step 1: the temperature, or another calibrator, from labelled rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial, reduce
from operator import add
from typing import Any, TypeVar, get_args

import numpy as np
from msgspec import Struct

from drrej.core import calibrators
from drrej.core.calibration import CalibrationTally, calibration_tallies
from drrej.core.confidence import SCORE_CALIBRATORS, choose_score_map, doubts_about
from drrej.core.inputs import HALF_PRECISION, Positives, are_log_probabilities, choose_floor, floored_logits
from drrej.core.reuse import Sketch, key_limit
from drrej.core.softmax import Needs
from drrej.core.types import AnyFloats, Integers, Precision
from drrej.data.dump import Block, Dump
from drrej.documents.rejector import BeforeAfter, Calibration, Rejector
from drrej.engines import protocol
from drrej.engines.protocol import Pass
from drrej.errors import DumpError, OptionError
from drrej.pipeline import score
from drrej.pipeline.collect import collect
from drrej.pipeline.figures import swapped
from drrej.pipeline.source import Source, without_bad_files

T = TypeVar("T")
OfRows = Callable[[AnyFloats, Integers], T]
"""Made from the logits and labels of some rows."""

SAMPLE_LOGITS = 1 << 21
"""Logits in the sample from which the search starts; a dump no larger than that is solved in one go."""

FLOOR_VALUES = 1 << 18
"""Probabilities of the sample that the floor is chosen on."""

_FIGURES: Needs = frozenset({"squares"})
"""The gap sums that calibration figures need."""


class CalibrateOptions(Struct, frozen=True):
    """How the calibrator is fitted, and which: one temperature, or a weight and a bias for each class (`vector`).

    `beta` is the name that `vector` has for two classes. Scores of any kind have `logistic`, `beta` and `isotonic`, see
    `drrej.core.confidence`; by default `auto`, where logits have one temperature. `auto` takes the simplest whose NLL
    on rows that it was not fitted to is within one standard error of the best.

    `floor` is what a probability of 0 counts as (None: chosen with the temperature). Blocks are kept between passes
    while they fit in `memory` bytes (default: a quarter of what there is; on a cluster, of each worker's).
    """

    precision: Precision = "auto"
    memory: int | None = None
    floor: float | None = None
    calibrator: calibrators.CalibratorName | None = None

    def __post_init__(self) -> None:
        if self.calibrator not in (None, *get_args(calibrators.CalibratorName)):
            names = ", ".join(get_args(calibrators.CalibratorName))
            raise OptionError(f"`calibrator={self.calibrator}`: it must be one of {names}")


@without_bad_files
def calibrate(source: Source, options: CalibrateOptions | None = None) -> Rejector:
    """Start a rejector: fit the calibrator that minimises the NLL, and the floor of probabilities with it.

    The search starts from a sample; full passes follow until it has converged. The dump needs labels.

    >>> rejector = calibrate(Source("sample_data/val.parquet"))
    >>> round(rejector.need_calibration().temperature, 4)  # below 1: the model is too unsure of itself
    0.5361
    """
    options = options or CalibrateOptions()
    precision = options.precision
    dump = source.open(None, labelled=True)
    score.check_floor(options.floor, dump)
    if dump.input == "scores":
        return _calibrate_scores(source, dump, options)
    if options.calibrator in ("logistic", "isotonic"):
        raise OptionError(f"`calibrator={options.calibrator}` is for scores of any kind, `score=COL`, not for logits")
    if options.calibrator == "beta" and dump.classes != 2:
        raise OptionError(f"`calibrator=beta` is for two classes, here are {dump.classes}; use `calibrator=vector`")
    if options.calibrator == "vector" and dump.classes > calibrators.MOST_CLASSES:
        raise OptionError(
            f"`calibrator=vector` is for at most {calibrators.MOST_CLASSES} classes, here are {dump.classes}; "
            "use `calibrator=temperature`"
        )
    skip_bad_rows, share = dump.options.on_bad_row == "skip", SAMPLE_LOGITS / (dump.rows * dump.classes)
    engine = source.engine.keeping(options.memory)
    look = partial(_first_look, precision=precision, limit=key_limit(share))
    first = collect(source, dump, look, Pass("reading", labelled=True), engine=engine, calibrating=True)
    before = first["before"]
    scores, labels, predictions = (np.concatenate(first[name]) for name in ("scores", "labels", "predictions"))
    doubt = swapped(labels, predictions, dump.names or tuple(map(str, range(dump.classes))))
    source.cautions[:] = [] if doubt is None else [doubt]
    floor = options.floor
    if dump.input != "logits":
        if floor is None:
            floor = _chosen_floor(scores, labels, first["positives"])
        scores = floored_logits(scores, floor)

    def of_sample(function: OfRows[T]) -> T:
        return function(scores, labels)

    def each(function: OfRows[T]) -> Iterator[T]:
        def of_block(block: Block) -> T:
            assert block.labels is not None
            logits = score.logits_of(block, floor)
            if skip_bad_rows and (not block.check_largest(np.max(logits, axis=1)) or block.bad.any()):
                logits = score.without_rows(logits, block.bad)  # they are left out; else the first pass has found none
            return function(logits, block.labels)

        return protocol.map_blocks(dump, of_block, Pass("calibrating", labelled=True), engine)

    whole = (lambda function: reduce(add, each(function))) if share < 1 else None
    name: str = options.calibrator or "temperature"
    if name == "auto":
        nll = calibrators.held_out_nll(scores, labels, precision)
        name = calibrators.choose_calibrator(nll) if nll else "temperature"
    temperature, vector, converged = calibrators.fit_calibrator(name, of_sample, whole, dump.classes, precision)
    tally = partial(_tally, vector or calibrators.Temperature(temperature), precision=precision)
    was, now = before.figures, sum(each(tally), CalibrationTally()).figures
    return source.new_rejector(dump, precision).with_sections(
        Calibration(
            method=name,
            temperature=temperature,
            converged=converged,
            rows=before.rows,
            fingerprint=first["sketch"].fingerprint().text(),
            nll=BeforeAfter(was["nll"], now["nll"]),
            ece=BeforeAfter(was["ece"], now["ece"]),
            brier=BeforeAfter(was["brier"], now["brier"]),
            floor=floor,
            vector=vector,
        )
    )


def _calibrate_scores(source: Source, dump: Dump, options: CalibrateOptions) -> Rejector:
    """The map from scores of any kind to the probability of being wrong."""
    name: str = options.calibrator or "auto"
    lower = bool(dump.options.lower_is_better)
    if name not in ("auto", *SCORE_CALIBRATORS):
        known = ", ".join(SCORE_CALIBRATORS)
        raise OptionError(f"`calibrator={name}` is for logits; a score has one of {known}, or auto")

    def of_block(block: Block) -> dict[str, Any]:
        keys = Sketch.of(score.row_keys(block), score.coarse_row_keys(block))
        return {"score": block.scores, "wrong": block.labels != 0, "sketch": keys}

    rows = collect(source, dump, of_block, Pass("calibrating", labelled=True), calibrating=True)
    scores, wrong = rows["score"], rows["wrong"]
    names = [f"{name}:{how}" if how else name for name, how in dump.columns.reduced]
    doubt, cautions = doubts_about(scores, wrong, lower, names)
    source.cautions[:] = cautions
    if doubt is not None:
        raise DumpError(f"{dump.parts[0].name}: {doubt}")
    name, fitted = choose_score_map(scores, wrong, lower, name)
    (after, before), labels = fitted.scores(scores), wrong.astype(np.int64)
    was, now = (calibration_tallies(each, labels, None)[0].figures for each in (before, after))
    told = fitted.forms == ("share",)  # other scores are no probabilities before calibration
    return source.new_rejector(dump, options.precision).with_sections(
        Calibration(
            method=name,
            temperature=1.0,
            converged=True,
            rows=labels.size,
            fingerprint=rows["sketch"].fingerprint().text(),
            nll=BeforeAfter(was["nll"] if told else None, now["nll"]),
            ece=BeforeAfter(was["ece"] if told else None, now["ece"]),
            brier=BeforeAfter(was["brier"] if told else None, now["brier"]),
            score=fitted,
        )
    )


def _first_look(block: Block, precision: Precision, limit: np.uint64) -> dict[str, Any]:
    """Figures before calibration, keys and a sample of a block; reports rows that no temperature can explain."""
    labels, positives = block.labels, Positives()
    assert labels is not None
    if block.input == "logits":
        stored = logits = score.logits_of(block)
    else:
        stored = score.probabilities_of(block)
        positives = Positives.of(stored)
        logits = floored_logits(stored, 0.0)
    rows, _ = score.checked_scores(block, logits, calibrators.IDENTITY, _FIGURES, precision)
    if block.input == "logits":
        impossible = np.flatnonzero(np.isneginf(rows.label_gaps(labels)) & ~block.bad)
        remedy = "the NLL is infinite for every temperature; drop or fix them"
        if impossible.size and are_log_probabilities(block.scores[impossible]).all():
            remedy = "these are log-probabilities: pass `input=log-probs`, and 0 gets a floor"
        block.report(impossible, "-inf at the label's class", remedy, usable=True)
    keys = score.row_keys(block, rows)
    chosen = np.flatnonzero(keys <= limit)
    (before,) = calibration_tallies(rows, labels, None)
    return {
        "before": before,
        "sketch": Sketch.of(keys, score.coarse_row_keys(block, rows)),
        "positives": positives,
        "scores": [stored[chosen]],
        "labels": [labels[chosen]],
        "predictions": [rows.prediction[chosen]],
    }


def _chosen_floor(probabilities: AnyFloats, labels: Integers, positives: Positives) -> float:
    """What a probability of 0 counts as, chosen on some rows of the sample.

    Where every type, float16 too, would hold all of them there is nothing to choose: they stay as they are.
    """
    classes = probabilities.shape[1]
    part = slice(max(1, FLOOR_VALUES // classes))
    probabilities, labels = probabilities[part], labels[part]

    def nll(floor: float) -> float:
        if not positives.zeros and positives.smallest >= HALF_PRECISION:
            return 0.0
        logits = floored_logits(probabilities, floor)
        fit = calibrators.fit_temperature(lambda function: function(logits, labels), None, "float64")
        mean = _tally(calibrators.Temperature(fit.temperature), logits, labels, "float64").figures["nll"]
        return math.inf if mean is None else mean

    return choose_floor(nll, labels.size, classes, positives.smallest)


def _tally(
    calibrator: calibrators.Calibrator, logits: AnyFloats, labels: Integers, precision: Precision
) -> CalibrationTally:
    """Calibration figures under a calibrator."""
    calibrated, _ = calibrator.scores(logits, _FIGURES, precision)
    return calibration_tallies(calibrated, labels, None)[0]
