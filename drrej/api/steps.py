"""The steps on files, one call each; dumps, rejectors and outputs may be named by their paths."""

from __future__ import annotations

import os
from collections.abc import Sequence

from drrej.api.fitting import AnyRejector, as_document
from drrej.api.rejector import Rejector
from drrej.api.report import Gates, Report, as_gates, tell
from drrej.core.thresholds import Rule
from drrej.documents.summaries import MaskSummary
from drrej.documents.words import calibration_warnings
from drrej.outputs.dataset import Dataset, open_dataset
from drrej.outputs.destinations import OutputFile
from drrej.pipeline import calibrate as calibrating
from drrej.pipeline import evaluate as evaluating
from drrej.pipeline import fit as fitting
from drrej.pipeline import reject as rejecting
from drrej.pipeline import threshold as choosing
from drrej.pipeline.calibrate import CalibrateOptions
from drrej.pipeline.evaluate import EvaluateOptions
from drrej.pipeline.fit import RatioOptions
from drrej.pipeline.reject import MaskOptions
from drrej.pipeline.source import Source
from drrej.pipeline.threshold import ThresholdOptions
from drrej.report.words import warnings_of

Dump = Source | str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
"""A dump: a source, or its path or paths."""


def as_source(dump: Dump) -> Source:
    """A dump that may be named by its paths."""
    return dump if isinstance(dump, Source) else Source(dump)


def calibrate(dump: Dump, options: CalibrateOptions | None = None) -> Rejector:
    """Start a rejector: fit the temperature or another calibrator (and the floor of probabilities) on labelled rows.

    >>> calibrate("sample_data/val.parquet").calibration.rows
    1648
    """
    rejector = calibrating.calibrate(source := as_source(dump), options)
    tell([*source.cautions, *calibration_warnings(rejector.need_calibration())])
    return Rejector.of(rejector)


def fit(dump: Dump, rejector: AnyRejector, options: RatioOptions | None = None) -> Rejector:
    """Add the density ratio.

    >>> val = "sample_data/val.parquet"
    >>> fit(val, calibrate(val), RatioOptions(alpha=3.0)).ratio.alpha
    3.0
    """
    return Rejector.of(fitting.fit(as_source(dump), as_document(rejector), options))


def threshold(dump: Dump, rejector: AnyRejector, rule: Rule, options: ThresholdOptions | None = None) -> Rejector:
    """Add the threshold that a rule picks on these rows.

    >>> val = "sample_data/val.parquet"
    >>> rejector = threshold(val, fit(val, calibrate(val)), Rule("coverage", 0.8))
    >>> rejector.threshold.accepted, rejector.threshold.rows
    (1319, 1648)
    """
    found = choosing.choose_threshold(as_source(dump), as_document(rejector), rule, options)
    tell([found.caution, choosing.uncertified_words(found.rejector), choosing.vacuous_words(found.rejector)])
    return Rejector.of(found.rejector)


def evaluate(dump: Dump, rejector: AnyRejector, gates: Gates = (), options: EvaluateOptions | None = None) -> Report:
    """Report on a predictions file; gates are checked last, see `Report.failed_gates`.

    >>> val = "sample_data/val.parquet"
    >>> rejector = threshold(val, fit(val, calibrate(val)), Rule("coverage", 0.8))
    >>> report = evaluate("sample_data/test.parquet", rejector, ["accuracy >= 0.99"])
    >>> report.coverage.accepted, report.failed_gates
    (1625, ())
    """
    report = evaluating.evaluate(as_source(dump), as_document(rejector), as_gates(gates), options)
    tell(warnings_of(report))
    return Report.of(report)


def reject(
    dump: Dump,
    rejector: AnyRejector,
    output: str | os.PathLike[str] | OutputFile | Dataset,
    options: MaskOptions | None = None,
    *,
    force: bool = False,
) -> MaskSummary:
    """Write the mask of a dump, row for row.

    `output` is a file, whose ending determines the format, or a directory (which exists, or whose name ends in /),
    which gets one file per input file. It is written completely or not at all; `force` allows it to replace another.
    If the caller opened the output, the caller has to commit it.

    >>> import tempfile
    >>> val = "sample_data/val.parquet"
    >>> rejector = threshold(val, fit(val, calibrate(val)), Rule("coverage", 0.8))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     reject("sample_data/test.parquet", rejector, f"{folder}/mask.csv").rejected
    435
    """
    source, document = as_source(dump), as_document(rejector)
    if not isinstance(output, str | os.PathLike):
        return rejecting.reject(source, document, output, options)
    path = os.fspath(output)
    whole_directory = path.endswith("/") or os.path.isdir(path)
    with open_dataset(path, force) if whole_directory else OutputFile(path, force) as place:
        counts = rejecting.reject(source, document, place, options)
        place.commit()
    return counts
