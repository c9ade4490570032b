"""What can be said without labels: coverage, the accuracy that the probabilities promise, and drift."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from drrej.core.curves import RankedLosses
from drrej.core.drift import RatioSums
from drrej.core.exact import Total
from drrej.core.losses.plain import zero_one_loss
from drrej.core.sketch import Sighting
from drrej.core.types import Floats
from drrej.data.dump import Block
from drrej.documents.pictures import Pictures
from drrej.documents.rejector import Rejector
from drrej.documents.report import Report
from drrej.engines.protocol import Pass
from drrej.pipeline.application import Application
from drrej.pipeline.evaluate_options import EvaluateOptions
from drrej.pipeline.figures import coverage_figure, decision, drift_figure, expected_accuracy, ratio_figure
from drrej.pipeline.freshness import Seen
from drrej.pipeline.passes import map_blocks
from drrej.pipeline.pictures import data_name, loss_histogram, made_by
from drrej.pipeline.source import Source


@dataclass(frozen=True)
class _Sums:
    """What is added up over blocks: accepted rows, chances of an error (of all, of accepted rows), powers of ratios."""

    accepted: int = 0
    doubt: Total = field(default_factory=Total)
    doubt_accepted: Total = field(default_factory=Total)
    ratio: RatioSums = field(default_factory=RatioSums)

    def __add__(self, other: _Sums) -> _Sums:
        return _Sums(
            self.accepted + other.accepted,
            self.doubt + other.doubt,
            self.doubt_accepted + other.doubt_accepted,
            self.ratio + other.ratio,
        )


def unlabelled_report(source: Source, rejector: Rejector, options: EvaluateOptions) -> Report:
    """The report without its gates."""
    dump = source.open(rejector, labelled=False)
    ratio = rejector.need_ratio()
    seen = Seen.of(rejector)
    application = Application(rejector, dump, options.on_unseen_group, earlier=seen.sets)
    fitted = ratio.loss.is_error_probability

    def of_block(block: Block) -> tuple[_Sums, Floats, Floats, tuple[Sighting, ...]]:
        scored = application(block)
        doubt = scored.loss if fitted else zero_one_loss(scored.rows.calibrated.sums)
        sums = _Sums(
            int(np.count_nonzero(scored.accepted)),
            Total.of(doubt),
            Total.of(doubt[scored.accepted]),
            RatioSums.of(scored.log_ratio),
        )
        return sums, scored.loss, scored.drift, scored.sightings

    run = Pass("evaluating", labelled=False, keep=application.columns)
    blocks = list(map_blocks(source, dump, of_block, run))
    points = drift = RankedLosses.of(np.concatenate([losses for _, losses, _, _ in blocks]), np.empty(0))
    if ratio.loss.drift_loss is not None:
        drift = RankedLosses.of(np.concatenate([values for _, _, values, _ in blocks]), np.empty(0))
    merged = sum((sums for sums, _, _, _ in blocks), _Sums())
    rows, accepted = points.rows, merged.accepted
    pictures = None
    if options.pictures:
        histogram = loss_histogram(points, labelled=False)
        pictures = Pictures(losses=histogram, made=made_by(rejector, options, data_name(dump)))
    return Report(
        **decision(rejector),
        seen_by=seen.among(sightings for _, _, _, sightings in blocks),
        rows=rows,
        classes=rejector.classes,
        coverage=coverage_figure(accepted, rows),
        expected_accuracy=expected_accuracy(merged.doubt_accepted.mean(accepted), merged.doubt.mean(rows)),
        ratio=ratio_figure(merged.ratio, rows, ratio),
        drift=drift_figure(drift, ratio),
        pictures=pictures,
        gates=(),
    )
