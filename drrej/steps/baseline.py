"""Worse than before? Differences to an earlier report, or to another dump of the same rows."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drrej.bootstrap import Bootstrap
from drrej.core import paired
from drrej.core.paired import Results
from drrej.dumps import Block
from drrej.errors import DumpError, OptionError
from drrej.gates import lookup
from drrej.losses import Floats
from drrej.rejector import Rejector
from drrej.steps.common import Source
from drrej.steps.groups import Decision, OnUnseen, check_columns
from drrej.steps.scoring import score
from drrej.steps.tally import KeyedRows, block_keys
from drrej.stream import Pass, map_blocks

Report = dict[str, Any]

FIGURES = paired.FIGURES
"""What is compared; a difference is the new value minus the old one."""


def read_baseline(path: str) -> Report:
    """An earlier report, checked as far as the differences need it."""
    try:
        with open(path, encoding="utf-8") as stream:
            report = json.load(stream)
    except OSError as error:
        raise OptionError(f"--baseline {path}: cannot be read ({error.strerror})") from None
    except ValueError:
        raise OptionError(f"--baseline {path}: not a JSON document; give a report.json of 'drrej evaluate'") from None
    if not isinstance(report, dict) or not str(report.get("format")).startswith("drrej-report/"):
        raise OptionError(f"--baseline {path}: not a drrej report; give a report.json of 'drrej evaluate'")
    if lookup(report, "base_accuracy") is None:
        raise OptionError(f"--baseline {path}: a report without labels; there is no accuracy to compare with")
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
    check_columns(dump, [key], "--join-on")
    decision = Decision(rejector, dump, on_unseen)
    loss = rejector.need_ratio().row_loss
    loss.check(dump.schema.names, dump.parts[0].name)

    def of_block(block: Block) -> KeyedRows:
        scores = score(block, rejector, loss)
        accepted = decision.accepts(block, scores.losses, scores.prediction)
        return KeyedRows(block_keys(block, key), scores.losses, scores.prediction != block.labels, accepted)

    run = Pass("baseline", labelled=True, keep=(key, *decision.columns, *loss.columns))
    return KeyedRows.joined(map_blocks(dump, of_block, run, source.engine, source.notes))


def paired_differences(now: KeyedRows, then: KeyedRows, key: str, bootstrap: Bootstrap | None = None) -> Report:
    """Differences on the same rows, paired by key. Nothing is drawn for their intervals."""
    del bootstrap
    new = Results(now.losses, now.wrong, now.accepted)
    differences = paired.paired_differences(new, Results(*_matched(now, then, key)))
    return {"kind": "paired", "rows": int(now.losses.size), **{name: asdict(row) for name, row in differences.items()}}


def _matched(now: KeyedRows, then: KeyedRows, key: str) -> tuple[Floats, NDArray[np.bool_], NDArray[np.bool_]]:
    """Losses, errors and decisions of the baseline in the order of the new rows."""
    for rows, whose in ((now, "the dump"), (then, "--baseline-dump")):
        ordered = np.sort(rows.keys)
        repeated = np.flatnonzero(ordered[1:] == ordered[:-1])
        if repeated.size:
            raise DumpError(
                f"{whose}: column '{key}': the key {ordered[repeated[0]]} occurs more than once; keys must be unique"
            )
    if now.keys.dtype.kind != then.keys.dtype.kind:
        raise DumpError(f"--baseline-dump: column '{key}' holds keys of another kind than the dump's")
    order = np.argsort(then.keys, kind="stable")
    keys = then.keys[order]
    place = np.minimum(np.searchsorted(keys, now.keys), keys.size - 1)
    missing = np.flatnonzero(keys[place] != now.keys)
    if missing.size:
        raise DumpError(
            f"--baseline-dump: {missing.size} of {now.keys.size} rows are not in it (column '{key}', the first is "
            f"{now.keys[missing[0]]}); both dumps must hold the same rows"
        )
    found = order[place]
    return then.losses[found], then.wrong[found], then.accepted[found]
