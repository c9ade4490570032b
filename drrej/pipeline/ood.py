"""Rows of a dump that belong to no class: how many are accepted, and whether losses and scores tell them apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from drrej.core.curves import Curve
from drrej.core.drift import OutsideAreas, outside_areas
from drrej.core.intervals import proportion
from drrej.core.types import Floats
from drrej.data.dump import Block, RowFilter
from drrej.documents.points import Outside, OutsideScore, Proportion
from drrej.documents.rejector import Rejector
from drrej.engines.protocol import Pass
from drrej.errors import DumpError, OptionError
from drrej.pipeline.evaluate_options import EvaluateOptions
from drrej.pipeline.passes import map_blocks
from drrej.pipeline.score import Scorer
from drrej.pipeline.source import Source
from drrej.records import dataclass


@dataclass(frozen=True)
class Ranked:
    """Rows that have a class: by the loss and by other scores, and how many are accepted, rightly or not."""

    loss: Curve
    scores: Mapping[str, Curve]
    accepted: int
    errors: int


def of_class(source: Source, column: str) -> Source:
    """The rows that have a class."""
    _check(source)
    return replace(source, options=replace(source.options, row_filter=RowFilter(column, False, "ood")))


def outside_figures(source: Source, rejector: Rejector, options: EvaluateOptions, ranked: Ranked) -> Outside:
    """The section about the rows of no class; `source` is the whole dump."""
    assert options.ood is not None
    _check(source)
    source = replace(source, options=replace(source.options, row_filter=RowFilter(options.ood, True, "ood")))
    losses, accepted = _pass(source, rejector, options)
    ratio = options.ood_cost
    loss = outside_areas(ranked.loss, losses["loss"], ratio)
    rows = losses["loss"].size
    kept, everything = ranked.accepted + accepted, ranked.loss.rows + rows
    scores = None
    if ranked.scores:
        areas = {name: outside_areas(points, losses[name], ratio) for name, points in ranked.scores.items()}
        scores = tuple(_score(name, found) for name, found in {"loss": loss, **areas}.items())
    return Outside(
        column=options.ood,
        cost_ratio=ratio,
        rows=rows,
        accepted=Proportion(**proportion(accepted, rows)),
        joint_risk=(ranked.errors + ratio * accepted) / kept if kept else None,
        joint_risk_all=(ranked.loss.total_errors + ratio * rows) / everything,
        auroc=loss.auroc,
        fpr_at_95_tpr=loss.fpr_at_95_tpr,
        aurc=loss.aurc,
        augrc=loss.augrc,
        scores=scores,
    )


def _score(name: str, found: OutsideAreas) -> OutsideScore:
    return OutsideScore(
        score=name, auroc=found.auroc, fpr_at_95_tpr=found.fpr_at_95_tpr, aurc=found.aurc, augrc=found.augrc
    )


def _check(source: Source) -> None:
    if source.options.labels_from is not None and source.options.join_on is None:
        raise OptionError(
            "`ood` does not go with `labels_from` without `join_on`: rows of no class have no labels there"
        )


def _pass(source: Source, rejector: Rejector, options: EvaluateOptions) -> tuple[dict[str, Floats], int]:
    dump = source.open(rejector, labelled=False)
    rivals = options.rivals
    scorer = Scorer(rejector, dump, on_unseen=options.on_unseen_group, needs=rivals.needs)

    def of_block(block: Block) -> tuple[dict[str, Floats], int]:
        scored = scorer(block)
        others = rivals.rank(block, scored.calibrated)
        return {"loss": scored.loss, **others}, int(np.count_nonzero(scored.accepted))

    columns = [*scorer.columns, *(score.column for score in rivals.scores)]
    run = Pass("evaluating", labelled=False, keep=columns, scores=scorer.columns)
    blocks = list(map_blocks(source, dump, of_block, run))
    losses = {name: np.concatenate([found[name] for found, _ in blocks]) for name in (blocks[0][0] if blocks else ())}
    if not losses or not losses["loss"].size:
        raise DumpError(f"{dump.parts[0].name}: `ood={options.ood}`: no row of the dump is without a class")
    return losses, sum(accepted for _, accepted in blocks)
