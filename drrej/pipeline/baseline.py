"""Worse than before? Differences to an earlier report, or to another dump of the same rows."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drrej.core.bootstrap import Bootstrap, Counts, OrderedRows
from drrej.core.curves import RiskCoverage
from drrej.core.types import Floats
from drrej.data.dump import Block
from drrej.documents.gates import lookup
from drrej.documents.rejector import Rejector
from drrej.engines.passes import map_blocks
from drrej.engines.protocol import Pass
from drrej.errors import DumpError, OptionError
from drrej.pipeline.application import Application
from drrej.pipeline.groups import OnUnseen, check_columns
from drrej.pipeline.source import Source
from drrej.pipeline.tally import KeyedRows, block_keys

Report = dict[str, Any]

FIGURES = ("coverage", "accuracy", "base_accuracy", "aurc", "e_aurc", "augrc")
"""What is compared; a difference is the new value minus the old one."""


def read_baseline(path: str) -> Report:
    """An earlier report, checked as far as the differences need it."""
    try:
        with open(path, encoding="utf-8") as stream:
            report = json.load(stream)
    except OSError as error:
        raise OptionError(f"`baseline={path}`: cannot be read ({error.strerror})") from None
    except ValueError:
        raise OptionError(f"`baseline={path}`: not a JSON document; give a report.json of 'drrej evaluate'") from None
    if not isinstance(report, dict) or not str(report.get("format")).startswith("drrej-report/"):
        raise OptionError(f"`baseline={path}`: not a drrej report; give a report.json of 'drrej evaluate'")
    if lookup(report, "base_accuracy") is None:
        raise OptionError(f"`baseline={path}`: a report without labels; there is no accuracy to compare with")
    return report


def report_differences(now: Report, then: Report) -> Report:
    """Differences of two reports on independent rows.

    The interval joins the two reports' own: the lower end of a - b lies sqrt((a - lower a)^2 + (upper b - b)^2) below
    it (Newcombe's square-and-add). On the same rows it is wider than need be; pairing them is sharper.
    """
    return {"kind": "reports", **{name: _square_and_add(now, then, name) for name in FIGURES}}


def _square_and_add(now: Report, then: Report, name: str) -> Report:
    a, b = ([lookup(report, f"{name}.{part}") for part in ("value", "lower", "upper")] for report in (now, then))
    if a[0] is None or b[0] is None:
        return {"value": None, "lower": None, "upper": None}
    if a[1] is None or a[2] is None or b[1] is None or b[2] is None:
        return {"value": a[0] - b[0], "lower": None, "upper": None}
    value = a[0] - b[0]
    return {
        "value": value,
        "lower": value - math.hypot(a[0] - a[1], b[2] - b[0]),
        "upper": value + math.hypot(a[2] - a[0], b[0] - b[1]),
    }


def keyed_rows(source: Source, rejector: Rejector, key: str, on_unseen: OnUnseen) -> KeyedRows:
    """The rows of the baseline's dump under its rejector."""
    dump = source.open(rejector, labelled=True)
    check_columns(dump, [key], "`join_on`")
    application = Application(rejector, dump, on_unseen)

    def of_block(block: Block) -> KeyedRows:
        scored = application(block)
        return KeyedRows(block_keys(block, key), scored.loss, scored.prediction != block.labels, scored.accepted)

    run = Pass("baseline", labelled=True, keep=(key, *application.columns))
    return KeyedRows.joined(map_blocks(dump, of_block, run, source.engine, source.notes))


def paired_differences(now: KeyedRows, then: KeyedRows, key: str, bootstrap: Bootstrap) -> Report:
    """Differences on the same rows, paired by key; the bootstrap draws rows with both their results."""
    pair = _Pair(now, *_matched(now, then, key))
    everyone = np.ones(now.losses.size, np.int64)
    values = pair.differences(everyone)
    defined = [name for name, value in zip(FIGURES, values, strict=True) if not math.isnan(value)]
    spread = bootstrap.spread(now.losses.size, list(FIGURES), pair.differences)
    differences = {
        name: {"value": value, "lower": spread[name][0], "upper": spread[name][1]}
        if name in defined and not math.isnan(spread[name][0])
        else {"value": value if name in defined else None, "lower": None, "upper": None}
        for name, value in zip(FIGURES, values, strict=True)
    }
    return {"kind": "paired", "rows": int(now.losses.size), **differences}


def _matched(now: KeyedRows, then: KeyedRows, key: str) -> tuple[Floats, NDArray[np.bool_], NDArray[np.bool_]]:
    """Losses, errors and decisions of the baseline in the order of the new rows."""
    for rows, whose in ((now, "the dump"), (then, "`baseline_dump`")):
        ordered = np.sort(rows.keys)
        repeated = np.flatnonzero(ordered[1:] == ordered[:-1])
        if repeated.size:
            raise DumpError(
                f"{whose}: column '{key}': the key {ordered[repeated[0]]} occurs more than once; keys must be unique"
            )
    if now.keys.dtype.kind != then.keys.dtype.kind:
        raise DumpError(f"`baseline_dump`: column '{key}' holds keys of another kind than the dump's")
    order = np.argsort(then.keys, kind="stable")
    keys = then.keys[order]
    place = np.minimum(np.searchsorted(keys, now.keys), keys.size - 1)
    missing = np.flatnonzero(keys[place] != now.keys)
    if missing.size:
        raise DumpError(
            f"`baseline_dump`: {missing.size} of {now.keys.size} rows are not in it (column '{key}', the first is "
            f"{now.keys[missing[0]]}); both dumps must hold the same rows"
        )
    found = order[place]
    return then.losses[found], then.wrong[found], then.accepted[found]


class _Pair:
    """Rows with two results each, in an order that only their content decides."""

    def __init__(self, now: KeyedRows, losses: Floats, wrong: NDArray[np.bool_], accepted: NDArray[np.bool_]) -> None:
        order = np.lexsort((accepted, wrong, losses, now.accepted, now.wrong, now.losses))
        self.results = [
            _Results(now.losses[order], now.wrong[order], now.accepted[order]),
            _Results(losses[order], wrong[order], accepted[order]),
        ]

    def differences(self, drawn: Counts) -> list[float]:
        new, old = (result.figures(drawn) for result in self.results)
        return [a - b for a, b in zip(new, old, strict=True)]


class _Results:
    def __init__(self, losses: Floats, wrong: NDArray[np.bool_], accepted: NDArray[np.bool_]) -> None:
        self.order = np.argsort(losses, kind="stable")
        self.rows = OrderedRows.sorted(losses[self.order], wrong[self.order])
        self.accepted = accepted.astype(np.int64)
        self.right = (~wrong).astype(np.int64)

    def figures(self, drawn: Counts) -> list[float]:
        """In the order of FIGURES."""
        rows = int(drawn.sum())
        kept = drawn * self.accepted
        accepted, right = int(kept.sum()), int(kept @ self.right)
        points: RiskCoverage = self.rows.resampled(drawn[self.order])
        return [
            accepted / rows,
            right / accepted if accepted else math.nan,
            int(drawn @ self.right) / rows,
            points.aurc(),
            points.e_aurc(),
            points.augrc(),
        ]
