"""Predictions and losses of the rows of a block, whatever the loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from drrej.core.kernels import BlockSums
from drrej.core.losses.plain import LOSSES
from drrej.core.losses.rowloss import RowLoss
from drrej.core.types import Floats
from drrej.data import Block
from drrej.documents.rejector import Rejector
from drrej.errors import DumpError


@dataclass(frozen=True)
class Scores:
    """`prediction` is the least costly action where there is a cost matrix, else the class of the largest logit."""

    prediction: NDArray[np.int64]
    losses: Floats
    sums: BlockSums


def score(block: Block, rejector: Rejector, loss: RowLoss, betas: Sequence[float] = (), needs: str = "") -> Scores:
    """Score a block at the rejector's temperature; further betas and sums on request. Reports bad rows."""
    wanted = "".join(dict.fromkeys(loss.needs + needs))
    letters = [wanted, *(needs for _ in betas)]
    sums = block.sums([rejector.beta, *betas], letters, rejector.precision)
    if loss.column is not None:
        return Scores(sums.prediction, column_values(block, loss.column, non_negative=True), sums)
    if loss.costs is not None:
        return Scores(*loss.costs.least(block.logits, rejector.beta), sums)
    if loss.learned is not None:
        losses = loss.learned.losses(sums.at[0], sums.prediction, block.logits.shape[1])
        return Scores(sums.prediction, losses, sums)
    return Scores(sums.prediction, LOSSES[loss.name].expected(sums.at[0]), sums)


def column_values(block: Block, name: str, non_negative: bool = False) -> Floats:
    """A numeric column of a block as float64; reports rows that are null, not finite or (if so asked) negative."""
    array = block.columns.column(name)
    if not (pa.types.is_floating(array.type) or pa.types.is_integer(array.type)):
        raise DumpError(f"{block.part.name}: column '{name}' is {array.type}; it must hold numbers")
    remedy = "drop or fix these rows"
    values = np.array(array.cast(pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float64)
    missing = np.asarray(array.is_null())
    block.report(np.flatnonzero(missing & ~block.bad), "no value (null)", remedy, column=name)
    odd = ~np.isfinite(values) & ~missing
    block.report(np.flatnonzero(odd & ~block.bad), "a value that is not finite", remedy, column=name)
    if non_negative:
        with np.errstate(invalid="ignore"):
            below = np.flatnonzero((values < 0) & ~odd & ~block.bad)
        block.report(below, "a negative loss", "a loss is 0 or more", column=name)
    return values
