"""An ensemble: dumps of several models on the same rows, as one dump of the mean of what they say."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from drrej.core.losses import NAMED
from drrej.core.types import Floats
from drrej.data.dump import Block
from drrej.documents.rejector import Rejector
from drrej.engines.protocol import Pass
from drrej.errors import DumpError, OptionError
from drrej.pipeline.fit import uncalibrated
from drrej.pipeline.groups import check_columns
from drrej.pipeline.pairing import check_labels, check_unique, partners
from drrej.pipeline.passes import map_blocks
from drrej.pipeline.score import Scoring
from drrej.pipeline.source import Source, no_labels
from drrej.pipeline.tally import block_keys
from drrej.records import dataclass

Mean = Literal["prob", "log"]


@dataclass(frozen=True)
class Member:
    """A model: a dump of its scores, and what calibrates them (None: nothing)."""

    source: Source
    rejector: Rejector | None = None


@dataclass(frozen=True)
class _Said:
    """What a member says of each row: ln p (rows x classes)."""

    keys: NDArray[np.generic]
    logs: Floats
    labels: NDArray[np.int64] | None


def ensemble(members: Sequence[Member], key: str, mean: Mean = "prob", labelled: bool = True) -> pa.Table:
    """A dump with the key, the mean as `logits`, and with labels these; rows in the order of the first member.

    `mean` is that of the probabilities, or of their logarithms ("log"). Holds the rows of two members in memory.

    >>> val = [Member(Source("sample_data/val.parquet")) for _ in range(2)]
    >>> ensemble(val, "id").column_names  # a model and itself
    ['id', 'logits', 'label']
    """
    if len(members) < 2:
        raise OptionError("an ensemble needs two members or more; give another `member`")
    if mean not in get_args(Mean):
        raise OptionError(f"`mean={mean}`: it must be prob or log")
    first: _Said | None = None
    names: tuple[str, ...] | None = None
    total: Floats = np.empty(0)
    for number, member in enumerate(members):
        who = f"`member={' '.join(member.source.arguments)}`"
        said, classes = _said(member, key, labelled)
        check_unique(said.keys, key, who)
        if first is None:
            first, names, total = said, classes, said.logs
            continue
        if said.logs.shape[1] != total.shape[1] or classes != names:
            raise DumpError(f"{who}: its classes are not those of the first member; all must have the same, in order")
        place = partners(first.keys, said.keys, key, who)
        if first.labels is not None and said.labels is not None:
            check_labels(first.labels, said.labels[place], first.keys, who)
        logs = said.logs[place]
        with np.errstate(invalid="ignore"):
            total = np.logaddexp(total, logs) if mean == "prob" else total + (logs - total) / (number + 1)
    assert first is not None
    if mean == "prob":
        total = total - math.log(len(members))
    total[np.isnan(total)] = -np.inf  # 0 for two members
    without = np.flatnonzero(total.max(axis=1) == -np.inf)
    if without.size:
        raise DumpError(
            f"{without.size} rows have no class that all members give a probability above 0 (the first has the key "
            f"{first.keys[without[0]]}); use `mean=prob`"
        )
    return _table(first, total, key, names)


def _said(member: Member, key: str, labelled: bool) -> tuple[_Said, tuple[str, ...] | None]:
    source = member.source
    rejector = member.rejector or uncalibrated(source, 1.0)
    dump = source.open(rejector, labelled)
    check_columns(dump, [key], "`join_on`")
    scoring = Scoring(rejector, NAMED["zero-one"], dump)

    def of_block(block: Block) -> _Said:
        view = scoring(block).rows.calibrated
        return _Said(block_keys(block, key), view.logarithms(), block.labels)

    blocks = list(map_blocks(source, dump, of_block, Pass("reading", labelled=labelled, keep=(key,))))
    if not blocks:
        raise no_labels(dump)
    labels = [block.labels for block in blocks if block.labels is not None]
    logs = np.concatenate([block.logs for block in blocks])
    keys = np.concatenate([block.keys for block in blocks])
    return _Said(keys, logs, np.concatenate(labels) if labelled else None), dump.names


def _table(first: _Said, logits: Floats, key: str, names: tuple[str, ...] | None) -> pa.Table:
    rows, classes = logits.shape
    columns = {
        key: pa.array(first.keys),
        "logits": pa.FixedSizeListArray.from_arrays(pa.array(logits.reshape(-1)), classes),
    }
    if first.labels is not None:
        columns["label"] = pa.array(first.labels if names is None else np.array(names, object)[first.labels])
    assert rows == len(columns[key])
    return pa.table(columns)
