"""What can be said without labels: coverage, the accuracy that the probabilities promise, and drift."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from operator import attrgetter

import numpy as np

from drrej.core.curves import Curve
from drrej.core.drift import RatioSums
from drrej.core.losses.plain import zero_one_loss
from drrej.core.reuse import Sighting
from drrej.core.sequential import Tally
from drrej.core.sums import Total
from drrej.core.types import Floats
from drrej.data.dump import Block
from drrej.documents.pictures import Pictures
from drrej.documents.points import Where
from drrej.documents.rejector import Ratio, Rejector
from drrej.documents.report import GroupLook, Report
from drrej.engines.protocol import Pass
from drrej.pipeline.evaluate_options import EvaluateOptions
from drrej.pipeline.figures import (
    coverage_figure,
    decision,
    drift_figure,
    expected_accuracy,
    ratio_figure,
    unsure_order,
)
from drrej.pipeline.freshness import Seen
from drrej.pipeline.groups import Grouping
from drrej.pipeline.passes import map_blocks
from drrej.pipeline.pictures import data_name, loss_histogram, made_by
from drrej.pipeline.reject import left_out
from drrej.pipeline.score import Scored, Scorer
from drrej.pipeline.shares import against_the_rest, moved_parts, since_fit
from drrej.pipeline.source import Source
from drrej.records import dataclass

CONFIDENCE = 0.95


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


@dataclass(frozen=True)
class _Group:
    """What is kept of a group: its rows add up, the losses by which drift is looked for are kept."""

    accepted: int
    doubt_accepted: Total
    drift: Floats


_Groups = dict[str, list[_Group]]


def unlabelled_report(source: Source, rejector: Rejector, options: EvaluateOptions) -> Report:
    """The report without its gates."""
    dump = source.open(rejector, labelled=False)
    ratio = rejector.need_ratio()
    seen = Seen.of(rejector)
    scorer = Scorer(rejector, dump, on_unseen=options.on_unseen_group)
    grouping = None if options.by is None else Grouping(options.by, rejector, dump, files=True)
    fitted = ratio.loss.is_error_probability

    def of_block(block: Block) -> tuple[_Sums, Floats, Floats, tuple[Sighting, ...], dict[str, _Group]]:
        scored = scorer(block)
        doubt = scored.loss if fitted else zero_one_loss(scored.calibrated.sums)
        sums = _Sums(
            int(np.count_nonzero(scored.accepted)),
            Total.of(doubt),
            Total.of(doubt[scored.accepted]),
            RatioSums.of(scored.log_ratio),
        )
        groups = {} if grouping is None else _by_group(grouping, block, scored, doubt)
        return sums, scored.loss, scored.drift, seen.look_up(scored), groups

    columns = (*scorer.columns, *(() if grouping is None else grouping.columns))
    run = Pass("evaluating", labelled=False, keep=columns, scores=scorer.columns)
    blocks = list(map_blocks(source, dump, of_block, run))
    values = np.concatenate([values for _, _, values, _, _ in blocks])
    points = drift = Curve.of(np.concatenate([losses for _, losses, _, _, _ in blocks]), np.empty(0))
    if ratio.loss.drift_loss is not None:
        drift = Curve.of(values, np.empty(0))
    merged = sum((sums for sums, _, _, _, _ in blocks), _Sums())
    groups: _Groups = {}
    for _, _, _, _, found in blocks:
        for name, group in found.items():
            groups.setdefault(name, []).append(group)
    looks = _looks(groups, ratio)
    rows, accepted = points.rows, merged.accepted
    moved = drift_figure(drift, ratio)
    pictures = None
    if options.pictures:
        histogram = loss_histogram(points, labelled=False)
        pictures = Pictures(losses=histogram, made=made_by(rejector, options, data_name(dump)))
    return Report(
        **decision(rejector),
        seen_by=seen.among(sightings for _, _, _, sightings, _ in blocks),
        rows=rows,
        classes=rejector.classes,
        coverage=coverage_figure(accepted, rows),
        expected_accuracy=expected_accuracy(merged.doubt_accepted.mean(accepted), merged.doubt.mean(rows)),
        ratio=ratio_figure(merged.ratio, rows, ratio),
        drift=moved,
        unsure_order=unsure_order(moved, ratio),
        by=options.by,
        looks=None if options.by is None else looks,
        where=_where(values, ratio, options.by, looks),
        left_out=left_out(source),
        pictures=pictures,
        gates=(),
    )


def _by_group(grouping: Grouping, block: Block, scored: Scored, doubt: Floats) -> dict[str, _Group]:
    numbers, names = grouping.of(block, scored.prediction)
    found = {}
    for number in np.unique(numbers):
        rows = numbers == number
        accepted = rows & scored.accepted
        count = int(np.count_nonzero(accepted))
        found[names[number]] = _Group(count, Total.of(doubt[accepted]), scored.drift[rows])
    return found


def _looks(groups: _Groups, ratio: Ratio) -> tuple[GroupLook, ...]:
    """Coverage, expected accuracy and drift of each group, the largest drift first."""
    found = []
    for name, parts in groups.items():
        losses = Curve.of(np.concatenate([part.drift for part in parts]), np.empty(0))
        accepted = sum(part.accepted for part in parts)
        doubt = sum((part.doubt_accepted for part in parts), Total()).mean(accepted)
        drift = drift_figure(losses, ratio)
        if drift.p_value is not None:
            drift = replace(drift, p_value=min(1.0, drift.p_value * len(groups)))
        found.append(
            GroupLook(
                group=name,
                rows=losses.rows,
                coverage=coverage_figure(accepted, losses.rows),
                expected_accuracy=None if doubt is None else 1.0 - doubt,
                drift=drift,
            )
        )
    key = attrgetter("drift.p_value", "group")
    if any(look.drift.p_value is None for look in found):
        key = attrgetter("group")
    return tuple(sorted(found, key=key))


def _where(losses: Floats, ratio: Ratio, by: str | None, looks: Sequence[GroupLook]) -> Where | None:
    """The regions of the loss that hold more or fewer rows than in the fit, and groups that are not like the rest."""
    tables = since_fit(losses, ratio)
    if by is not None and len(looks) > 1:
        tables.append(against_the_rest(by, {look.group: Tally(look.coverage.accepted, look.rows) for look in looks}))
    if not tables:
        return None
    return Where(compared=sum(len(table.names) for table in tables), parts=moved_parts(tables, 1 - CONFIDENCE))
