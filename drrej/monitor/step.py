"""A monitor batch after batch: from the last state and a new dump to the next."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from drrej._version import __version__
from drrej.core.drift import bin_counts, ranks, stored_bins
from drrej.core.reuse import Fingerprint, Sighting, Sketch
from drrej.core.types import Booleans, Integers
from drrej.data.columns import column_of, field_of, root_of
from drrej.data.dump import Block, Dump
from drrej.documents.document import to_tree
from drrej.documents.gates import Gate
from drrej.documents.metrics import check_gate
from drrej.documents.rejector import Rejector
from drrej.engines.protocol import Pass
from drrej.errors import MonitorError, OptionError
from drrej.monitor.evidence import LossDrift, RateMonitor
from drrej.monitor.report import MonitorReport, monitor_report
from drrej.monitor.state import (
    KEPT_BATCHES,
    Batch,
    Drift,
    MonitorState,
    Parts,
    Reset,
    Settings,
    folded_away,
)
from drrej.pipeline.collect import map_blocks
from drrej.pipeline.groups import Grouping, OnUnseen
from drrej.pipeline.score import Scorer
from drrej.pipeline.shares import Tally
from drrej.pipeline.source import Source, without_bad_files
from drrej.records import dataclass

CONFIDENCE = 0.95
LONGEST_NAME = 200


@dataclass(frozen=True)
class MonitorOptions:
    """What is watched (None: as the state says; see `Settings`) and which batch it is.

    `late` names a batch that was counted without labels and whose labels have come. `reset` says why a new monitor
    starts with this batch.
    """

    max_risk: float | None = None
    min_coverage: float | None = None
    drift: bool | None = None
    by: str | None = None
    confidence: float | None = None
    batch: str | None = None
    late: str | None = None
    reset: str | None = None
    on_unseen_group: OnUnseen = "error"

    def __post_init__(self) -> None:
        if self.late is not None and (self.batch is not None or self.reset is not None):
            raise OptionError(f"`late` goes without `{'reset' if self.batch is None else 'batch'}`")
        for name, text in (("batch", self.batch), ("reset", self.reset)):
            if text is not None and (not text.strip() or len(text) > LONGEST_NAME or not text.isprintable()):
                raise OptionError(f"`{name}`: write one line of text with at most {LONGEST_NAME} characters")


@without_bad_files
def monitor(
    source: Source,
    rejector: Rejector,
    state: MonitorState | None = None,
    options: MonitorOptions | None = None,
    gates: Sequence[Gate] = (),
) -> tuple[MonitorState, MonitorReport]:
    """Add a batch, or its late labels, to a state; without a state the monitor starts.

    The state given is left as it is. Raises when the batch was counted before, or the state is of another rejector.
    """
    options = options or MonitorOptions()
    check_monitor_gates(gates)
    rejector.need_threshold()
    settings = _settings(state, options)
    if state is not None and options.reset is None and state.rejector != digest(rejector):
        raise MonitorError(
            "the state belongs to another rejector; use another file for this one, or start anew in this one with "
            "`reset=WHY`"
        )
    if options.late is not None:
        new = _with_late_labels(source, rejector, state, options)
    else:
        new = _with_batch(source, rejector, state, settings, options)
    return new, monitor_report(new, gates)


def check_monitor_gates(gates: Sequence[Gate]) -> None:
    """Raise when a gate names what the reports of monitors do not have."""
    for gate in gates:
        check_gate(gate, (), MonitorReport)


def digest(rejector: Rejector) -> str:
    """A digest of all that a rejector is but the version that wrote it."""
    tree: dict[str, Any] = to_tree(rejector)
    tree.pop("drrej_version")
    return hashlib.sha256(json.dumps(tree, sort_keys=True, ensure_ascii=True).encode()).hexdigest()


def _settings(state: MonitorState | None, options: MonitorOptions) -> Settings:
    """What is watched from now on; within a monitor it cannot change."""
    given = {
        name: value
        for name in ("confidence", "max_risk", "min_coverage", "drift", "by")
        if (value := getattr(options, name)) is not None
    }
    if state is None:
        start: dict[str, Any] = {"confidence": CONFIDENCE, "drift": True}
    else:
        start = vars(state.settings)
        changed = [name for name, value in given.items() if value != start[name]]
        if changed and options.reset is None:
            name = changed[0]
            said = "nothing" if start[name] is None else f"{start[name]}"
            raise MonitorError(
                f"`{name}={given[name]}`: the monitor was started with {said} there; what is watched cannot change on "
                "the way: leave it out, or start anew with `reset=WHY`"
            )
    try:
        return Settings(**{**start, **given})
    except ValueError as error:
        raise OptionError(str(error)) from None


# A batch


def _with_batch(
    source: Source, rejector: Rejector, state: MonitorState | None, settings: Settings, options: MonitorOptions
) -> MonitorState:
    if state is None and options.reset is not None:
        raise MonitorError("`reset`: there is no monitor yet that could be reset")
    before = None if state is None else Fingerprint.parse(state.last, state.batches[-1].rows)
    started = state if options.reset is None else None
    drift = _start_drift(rejector) if started is None and settings.drift else None
    if started is not None:
        drift = started.drift
    edges = None if drift is None else drift.edges
    batch = count_batch(source, rejector, options.on_unseen_group, edges, settings.by, before)
    name = _name(source, state, options.batch)
    _check_new(batch, name, state, before)
    risk, coverage = _rates(started, settings)
    if risk is not None:
        risk = risk.update(Tally(batch.errors, batch.labels))
    if coverage is not None:
        coverage = coverage.update(Tally(batch.rows - batch.accepted, batch.rows))
    if drift is not None:
        bins = tuple(batch.bins[number] for number in range(len(drift.new)))
        drift = replace(drift, losses=drift.losses.update(bins), new=bins)
    batches, folded = _kept(started)
    record = Batch(
        name=name,
        fingerprint=batch.fingerprint,
        rows=batch.rows,
        accepted=batch.accepted,
        labels=batch.labels,
        errors=batch.errors,
        log_e={},
    )
    return MonitorState(
        drrej_version=__version__,
        rejector=digest(rejector),
        settings=settings,
        risk=risk,
        coverage=coverage,
        drift=drift,
        alarms=() if started is None else started.alarms,
        batches=(*batches, record),
        folded=tuple(folded),
        resets=_resets(state, options.reset),
        by_prediction=_by_prediction(started, rejector, batch),
        by_group=_by_group(started, settings, batch),
        seen=(*(() if state is None else state.seen), batch.fingerprint),
        last=batch.sketch.fingerprint().text(),
    ).judged()


def _start_drift(rejector: Rejector) -> Drift:
    """The bins of the losses of the fit, and their counts where these are known."""
    ratio = rejector.need_ratio()
    quantiles = ratio.loss_quantiles if ratio.drift_quantiles is None else ratio.drift_quantiles
    edges, counts = stored_bins(quantiles, ranks(len(quantiles), ratio.rows), ratio.rows)
    losses = LossDrift.start([0] * (len(edges) + 1) if counts is None else counts)
    return Drift(edges=edges, fit_rows=losses.first_rows, losses=losses, new=(0,) * (len(edges) + 1))


def _rates(started: MonitorState | None, settings: Settings) -> tuple[RateMonitor | None, RateMonitor | None]:
    if started is not None:
        return started.risk, started.coverage
    risk = None if settings.max_risk is None else RateMonitor(settings.max_risk)
    return risk, None if settings.min_coverage is None else RateMonitor(1.0 - settings.min_coverage)


def _kept(started: MonitorState | None) -> tuple[Sequence[Batch], Sequence[Any]]:
    """The batches and folds before this one."""
    if started is None:
        return (), ()
    if len(started.batches) < KEPT_BATCHES:
        return started.batches, started.folded
    return started.batches[1:], folded_away(started.folded, started.batches[0])


def _resets(state: MonitorState | None, why: str | None) -> tuple[Reset, ...]:
    if state is None or why is None:
        return () if state is None else state.resets
    first = state.folded[0].first if state.folded else state.batches[0].name
    ended = Reset(
        why=why,
        batches=state.looks,
        first=first,
        last=state.batches[-1].name,
        rows=state.accepted.rows,
        alarms=state.alarms,
    )
    return (*state.resets, ended)


def _name(source: Source, state: MonitorState | None, given: str | None) -> str:
    """The name of the batch: as given, or that of the one file or folder, or its number."""
    taken = set() if state is None else {batch.name for batch in state.batches}
    if given is not None:
        if given in taken:
            raise MonitorError(
                f"`batch={given}`: there is a batch of that name already; batches need names of their own"
            )
        return given
    paths = source.arguments
    found = os.path.basename(paths[0].rstrip("/")).removesuffix(".parquet") if len(paths) == 1 else ""
    plain = found not in ("", "-", ".", "..") and "*" not in found and len(found) <= LONGEST_NAME
    if not plain or not found.isprintable() or found in taken:
        found = f"batch {1 if state is None else len(state.seen) + 1}"
    while found in taken:
        found += "'"
    return found


def _check_new(batch: BatchCounts, name: str, state: MonitorState | None, before: Fingerprint | None) -> None:
    """Raise when rows would count twice."""
    if state is None:
        return
    if batch.fingerprint in state.seen:
        known = next((old.name for old in state.batches if old.fingerprint == batch.fingerprint), None)
        said = "an older batch" if known is None else f"the batch '{known}'"
        raise MonitorError(
            f"these rows were counted already, as {said}; a batch counts once (labels that come later: `late=BATCH`)"
        )
    if before is not None and batch.sighting is not None:
        reuse = before.judge(batch.sighting)
        if reuse.reused and reuse.share > 0.5:
            raise MonitorError(
                f"'{name}' holds about {reuse.share:.0%} of the rows of the batch before, '{state.batches[-1].name}'; "
                "rows count once: give the files of this batch alone"
            )


# What moved


def _by_prediction(started: MonitorState | None, rejector: Rejector, batch: BatchCounts) -> Parts | None:
    if rejector.classes > MOST_PARTS:
        return None
    names = rejector.class_names or tuple(map(str, range(rejector.classes)))
    cells = Counter({(names[number], accepted): rows for (number, accepted), rows in batch.by_class.items()})
    return _next_parts(None if started is None else started.by_prediction, names, cells)


def _by_group(started: MonitorState | None, settings: Settings, batch: BatchCounts) -> Parts | None:
    if settings.by is None:
        return None
    names = sorted({name for name, _ in batch.by_group})
    parts = _next_parts(None if started is None else started.by_group, names, batch.by_group)
    if len(parts.names) > MOST_PARTS:
        raise OptionError(
            f"`by={settings.by}`: there are {len(parts.names)} groups by now; a monitor keeps at most {MOST_PARTS}"
        )
    return parts


def _next_parts(old: Parts | None, found: Sequence[str], cells: Counter[tuple[str, bool]]) -> Parts:
    """The parts with a batch more: what was the last batch goes to those before it."""
    rows, accepted = Counter[str](), Counter[str]()
    if old is not None:
        rows.update(dict(zip(old.names, np.add(old.new_rows, old.old_rows).tolist(), strict=True)))
        accepted.update(dict(zip(old.names, np.add(old.new_accepted, old.old_accepted).tolist(), strict=True)))
    names = tuple(dict.fromkeys([*(() if old is None else old.names), *found]))
    return Parts(
        names=names,
        new_rows=tuple(cells[name, True] + cells[name, False] for name in names),
        new_accepted=tuple(cells[name, True] for name in names),
        old_rows=tuple(rows[name] for name in names),
        old_accepted=tuple(accepted[name] for name in names),
    )


# Late labels


def _with_late_labels(
    source: Source, rejector: Rejector, state: MonitorState | None, options: MonitorOptions
) -> MonitorState:
    """The state after the labels of an earlier batch: all of them in one go, so that no row counts twice."""
    late = options.late
    if state is None:
        raise MonitorError(f"`late={late}`: there is no monitor yet")
    place = next((i for i, batch in enumerate(state.batches) if batch.name == late), None)
    if place is None:
        ends = ", ".join(f"'{batch.name}'" for batch in state.batches[-3:])
        raise MonitorError(
            f"`late={late}`: there is no such batch among the last {len(state.batches)}, which end with {ends}"
        )
    batch = state.batches[place]
    if batch.labels:
        raise MonitorError(
            f"`late={late}`: {batch.labels} labels of this batch were counted already; the labels of a batch count in "
            "one go"
        )
    counts = count_batch(source, rejector, options.on_unseen_group)
    if counts.fingerprint != batch.fingerprint:
        raise MonitorError(f"`late={late}`: these are not the rows of that batch ({counts.rows} rows, not the same)")
    if not counts.labels:
        raise MonitorError(f"`late={late}`: no accepted row of that batch has a label")
    newest = state.batches[-1]
    told = replace(batch, labels=counts.labels, errors=counts.errors, labels_after=newest.name)
    batches = [*state.batches[:place], told, *state.batches[place + 1 :]]
    risk = state.risk
    if risk is not None:
        risk = risk.update(Tally(counts.errors, counts.labels))
    return replace(state, drrej_version=__version__, risk=risk, batches=tuple(batches)).judged(late)


MOST_PARTS = 2000
"""Predicted classes or groups that are looked at one by one."""


@dataclass(frozen=True)
class BatchCounts:
    """Counts of a batch.

    `labels` are the accepted rows whose label is known, `errors` those among them; `bins` are rows by their loss,
    `by_class` and `by_group` rows by (predicted class or group, whether they are accepted).
    """

    rows: int
    accepted: int
    labels: int
    errors: int
    bins: Counter[int]
    by_class: Counter[tuple[int, bool]]
    by_group: Counter[tuple[str, bool]]
    sketch: Sketch
    sighting: Sighting | None = None

    @property
    def fingerprint(self) -> str:
        """The number of rows and the sum of their keys: the same for the same rows in any order."""
        return f"{self.rows:x}.{self.sketch.total:016x}"


def count_batch(
    source: Source,
    rejector: Rejector,
    on_unseen_group: OnUnseen = "error",
    edges: Sequence[float] | None = None,
    by: str | None = None,
    before: Fingerprint | None = None,
) -> BatchCounts:
    """Count a batch: losses between `edges`, groups by a column, rows of the batch `before`.

    Labels count where the dump or the file of labels has them.
    """
    if not rejector.has_classes:
        raise OptionError("a monitor watches predictions of classes; the rejector is for a regression")
    dump, labelled = _open(source, rejector)
    scorer = Scorer(rejector, dump, on_unseen=on_unseen_group)
    grouping = None if by is None else Grouping(by, rejector, dump)
    labels = _Labels(dump, source.options.on_missing_label == "skip") if labelled else None

    def of_block(block: Block) -> dict[str, Any]:
        scored = scorer(block)
        known = errors = np.zeros(block.rows, bool)
        if labels is not None:
            truth, known = labels.of(block)
            known = known & scored.accepted
            errors = known & (truth != scored.prediction)
        numbers, names = (scored.prediction, ()) if grouping is None else grouping.of(block, scored.prediction)
        groups = Counter() if grouping is None else _cells(numbers, scored.accepted)
        return {
            "rows": block.rows,
            "accepted": int(np.count_nonzero(scored.accepted)),
            "labels": int(np.count_nonzero(known)),
            "errors": int(np.count_nonzero(errors)),
            "bins": Counter(dict(enumerate(() if edges is None else bin_counts(scored.drift, edges)))),
            "by_class": _cells(scored.prediction, scored.accepted),
            "by_group": Counter({(names[number], taken): rows for (number, taken), rows in groups.items()}),
            "sketch": Sketch.of(scored.keys),
            **({} if before is None else {"sighting": before.look_up(scored.keys)}),
        }

    wanted = [*scorer.columns, *(() if grouping is None else grouping.columns)]
    wanted += [] if labels is None else [root_of(dump.schema, labels.column)]
    run = Pass("counting", labelled=False, keep=tuple(dict.fromkeys(wanted)), scores=scorer.columns)
    totals: dict[str, Any] = {}
    for found in map_blocks(source, dump, of_block, run):
        totals = {name: totals[name] + value if totals else value for name, value in found.items()}
    return BatchCounts(**totals)


def _cells(numbers: Integers, accepted: Booleans) -> Counter[tuple[int, bool]]:
    """Rows of each number, accepted or not."""
    counts = np.bincount(numbers * 2 + accepted)
    return Counter({(int(cell) // 2, bool(cell % 2)): int(counts[cell]) for cell in np.flatnonzero(counts)})


def _open(source: Source, rejector: Rejector) -> tuple[Dump, bool]:
    """The dump, and whether it has labels. Those that were asked for must be there."""
    asked = source.options.labels_from is not None or source.options.label is not None
    dump = source.open(rejector, labelled=asked)
    if dump.elsewhere is not None and dump.elsewhere.on is None:
        raise OptionError(
            f"`labels_from={dump.labels_file}`: a monitor matches labels by key; name the key column with `join_on=COL`"
        )
    known = None if dump.label is None else field_of(dump.schema, dump.label)
    if asked or known is None or pa.types.is_null(known.type):
        return dump, asked
    return source.open(rejector, labelled=True), True  # labels that are there must be readable


class _Labels:
    """Labels of rows of which not all need to have one."""

    def __init__(self, dump: Dump, skip_missing: bool) -> None:
        self.dump = dump
        self.skip_missing = skip_missing
        name = dump.label if dump.elsewhere is None else dump.elsewhere.on
        assert name is not None
        self.column: str = name

    def of(self, block: Block) -> tuple[Integers, Booleans]:
        """The label of each row, and whether it is known; missing ones are reported unless they may be."""
        if self.dump.elsewhere is not None:
            return self.dump.elsewhere.of(block, self.skip_missing)
        array = column_of(block.columns, self.column)
        known = np.asarray(array.is_valid()) if self.skip_missing else np.ones(block.rows, bool)
        there = np.flatnonzero(known)

        def report(rows: NDArray[np.intp], what: str, remedy: str, example: str = "") -> None:
            if what.startswith("no label"):
                remedy = "use `on_missing_label=skip` if they come later or not at all"
            block.report(there[rows], what, remedy, example, column=self.column)

        kind = self.dump.label_kind
        assert kind is not None
        labels = np.zeros(block.rows, np.int64)
        labels[there] = kind.encode(array if known.all() else array.filter(pa.array(known)), self.dump.classes, report)
        return labels, known
