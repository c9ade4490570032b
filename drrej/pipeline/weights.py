"""Worst-case weights of the rows of a dump (distributionally robust optimisation, Corollary 3.4)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from drrej._version import __version__
from drrej.core.intervals import json_number
from drrej.core.losses import Loss
from drrej.core.ratio import WorstCase, worst_case, worst_case_in_ball
from drrej.core.reuse import Sketch
from drrej.core.types import Floats
from drrej.data.dump import Block, Dump
from drrej.data.pandas_index import with_index, with_range
from drrej.documents.rejector import Rejector
from drrej.documents.summaries import WorstCaseSummary
from drrej.engines.protocol import Pass
from drrej.errors import OptionError
from drrej.outputs.destinations import OutputFile
from drrej.outputs.masks import MaskFile, check_names, format_of
from drrej.pipeline.collect import collect_losses
from drrej.pipeline.fit import RatioOptions
from drrej.pipeline.passes import map_blocks
from drrej.pipeline.score import Scoring
from drrej.pipeline.source import Source, without_bad_files

WEIGHT_COLUMNS = ("loss", "weight")


@without_bad_files
def weights(
    source: Source,
    rejector: Rejector,
    options: RatioOptions,
    radius: float | None = None,
    output: OutputFile | None = None,
    keep: Sequence[str] | None = None,
) -> WorstCaseSummary:
    """The worst case in numbers; with `output`, the weight of each row as parquet.

    With a radius lambda is solved for, else that of the options is used.

    >>> from drrej import calibrate
    >>> val = Source("sample_data/val.parquet")
    >>> found = weights(val, calibrate(val), RatioOptions(), radius=0.1)
    >>> round(found.divergence, 6), found.worst_case_risk > found.risk
    (0.1, True)
    """
    if radius is not None and not (math.isfinite(radius) and radius > 0):
        raise OptionError(f"`radius={radius:g}`: it must be a finite number above 0")
    if options.effective_sample is not None:
        raise OptionError("`effective_sample` is for the ratio of a rejector; use `radius` here, or `lam`")
    if output is not None:
        format_of(output)
    dump = source.open(rejector, labelled=False)
    scoring = Scoring(rejector, options.given_loss, dump)
    kept = kept_columns(dump, keep, scoring.loss)
    found = collect_losses(source, dump, scoring, Pass("weighing", labelled=False))
    if radius is None:
        worst = worst_case(found.values, options.alpha, options.lam)
    else:
        worst = worst_case_in_ball(found.values, options.alpha, radius)
    if output is not None:
        _write(source, dump, scoring, worst, kept, output)
    return summary(worst, found.values, scoring.loss.name, found.sketch)


def summary(worst: WorstCase, losses: Floats, loss: str, rows: Sketch) -> WorstCaseSummary:
    """What the worst case is; undefined or infinite figures are None."""
    weight = worst.weights(np.sort(losses))
    with np.errstate(over="ignore"):
        square = float(np.mean(np.square(weight)))
    return WorstCaseSummary(
        drrej_version=__version__,
        rows=int(losses.size),
        loss=loss,
        alpha=worst.alpha,
        lam=worst.lam,
        divergence=json_number(worst.divergence),
        risk=worst.risk,
        worst_case_risk=worst.worst_risk,
        max_loss=float(losses.max()),
        max_weight=json_number(weight.max()),
        zero_weights=int(np.count_nonzero(weight == 0)),
        effective_rows=json_number(losses.size / square) if square else None,
        fingerprint=rows.fingerprint().text(),
    )


def kept_columns(dump: Dump, keep: Sequence[str] | None, loss: Loss) -> tuple[str, ...]:
    """The columns of the dump that go beside the weights (not a loss column that has the name of the output's)."""
    others = [name for name in dump.other_columns if name != "loss" or name not in loss.columns]
    names = tuple(others if keep is None else keep)
    check_names(names, dump.schema.names, dump.parts[0].name, WEIGHT_COLUMNS)
    return names


def _write(
    source: Source,
    dump: Dump,
    scoring: Scoring,
    worst: WorstCase,
    keep: tuple[str, ...],
    output: OutputFile,
) -> None:
    own = [pa.field(name, pa.float64()) for name in WEIGHT_COLUMNS]
    schema = with_index(pa.schema([*(dump.schema.field(name) for name in keep), *own]), dump.pandas)
    schema = with_range(schema, dump.parts)

    def of_block(block: Block) -> pa.RecordBatch:
        losses = scoring(block).loss
        columns = [block.columns.column(name) for name in keep]
        columns += [pa.array(losses), pa.array(worst.weights(losses))]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    run = Pass("writing", labelled=False, keep=(*keep, *scoring.columns))
    with MaskFile(output.path, output.name, schema, format_of(output)) as writer:
        for batch in map_blocks(source, dump, of_block, run):
            writer.write(batch)
