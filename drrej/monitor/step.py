"""A monitor batch after batch: from the last state and a new dump to the next."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import asdict, replace

from drrej._version import __version__
from drrej.core.drift import bin_counts, stored_bins
from drrej.core.reuse import Fingerprint, LookUp, Sketch
from drrej.core.types import Booleans, Integers
from drrej.data.columns import field_of
from drrej.data.dump import Dump
from drrej.documents.gates import Gate, check_gate
from drrej.documents.rejector import Rejector
from drrej.errors import MonitorError, OptionError
from drrej.monitor.evidence import LossDrift, RateMonitor, Tally
from drrej.monitor.report import MonitorReport, monitor_report
from drrej.monitor.state import KEPT_BATCHES, Batch, MonitorState, Parts, Reset, Settings
from drrej.pipeline.collect import collect_scored
from drrej.pipeline.figures import inverted, swapped
from drrej.pipeline.score import Grouping, OnUnseen, Scored, Scorer, drawn_by, numbered
from drrej.pipeline.source import Source, without_bad_files

CONFIDENCE = 0.95
LONGEST_NAME = 200


class MonitorOptions(Struct, frozen=True):
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
    audited: bool = False
    """Labels are those of a random sample of the accepted rows by predicted class."""

    def __post_init__(self) -> None:
        if self.late is not None and (self.batch is not None or self.reset is not None):
            raise OptionError(f"`late` cannot be combined with `{'reset' if self.batch is None else 'batch'}`")
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
    anew = state is None or options.reset is not None or state.ended is not None
    settings = _settings(state, options, anew)
    if state is not None and not anew and state.rejector != digest(rejector):
        raise MonitorError(
            "the state belongs to another rejector; use another file for this one, or start over in this one with "
            "`reset=WHY`"
        )
    if options.late is not None:
        new = _with_late_labels(source, rejector, state, options)
    else:
        new = _with_batch(source, rejector, state, settings, options, anew)
    return new, monitor_report(new, gates)


def reset_monitor(state: MonitorState, why: str) -> MonitorState:
    """End a monitor without a new batch: its alarms go, and the next batch starts a new one."""
    MonitorOptions(reset=why)
    if state.ended is not None:
        raise MonitorError(f"`reset`: the monitor was reset already ('{state.ended}'), and no batch has come since")
    return replace(state, drrej_version=__version__, alarms=(), resets=_resets(state, why), ended=why)


def check_monitor_gates(gates: Sequence[Gate]) -> None:
    """Raise when a gate names what the reports of monitors do not have."""
    for gate in gates:
        check_gate(gate, (), MonitorReport)


def digest(rejector: Rejector) -> str:
    """A digest of all that a rejector is but the version that wrote it."""
    tree = {key: value for key, value in rejector.items() if key not in ("format", "drrej_version", "digest")}
    return hashlib.sha256(json.dumps(tree, sort_keys=True, ensure_ascii=True).encode()).hexdigest()


def _settings(state: MonitorState | None, options: MonitorOptions, anew: bool) -> Settings:
    """What is watched from now on; within a monitor it cannot change."""
    given = {
        name: value
        for name in ("confidence", "max_risk", "min_coverage", "drift", "by")
        if (value := getattr(options, name)) is not None
    }
    if state is None:
        start: dict[str, Any] = {"confidence": CONFIDENCE, "drift": True}
    else:
        start = asdict(state.settings)
        changed = [name for name, value in given.items() if value != start[name]]
        if changed and not anew:
            name = changed[0]
            said = "nothing" if start[name] is None else f"{start[name]}"
            raise MonitorError(
                f"`{name}={given[name]}`: the monitor was started with {said} there; what is watched cannot change "
                "later: leave it out, or start over with `reset=WHY`"
            )
    try:
        return Settings(**{**start, **given})
    except ValueError as error:
        raise OptionError(str(error)) from None


# A batch


def _with_batch(
    source: Source,
    rejector: Rejector,
    state: MonitorState | None,
    settings: Settings,
    options: MonitorOptions,
    anew: bool,
) -> MonitorState:
    if state is None and options.reset is not None:
        raise MonitorError("`reset`: there is no monitor to reset yet")
    before = None if state is None else Fingerprint.parse(state.last, state.batches[-1].rows)
    started = None if anew else state
    if started is not None:
        risk, coverage, drift, alarms = started.risk, started.coverage, started.drift, started.alarms
        old_predictions, old_groups = started.by_prediction, started.by_group
        batches, earlier = started.batches, started.earlier
        if len(batches) == KEPT_BATCHES:
            earlier = batches[0] if earlier is None else earlier + batches[0]
            batches = batches[1:]
    else:
        risk = None if settings.max_risk is None else RateMonitor(settings.max_risk)
        coverage = None if settings.min_coverage is None else RateMonitor(1.0 - settings.min_coverage)
        drift = None
        if settings.drift:  # the bins of the losses of the fit, and their counts where these are known
            ratio = rejector.need_ratio()
            edges, counts = stored_bins(ratio.drift_reference, ratio.rows)
            drift = LossDrift.start(edges, [0] * (len(edges) + 1) if counts is None else counts)
        alarms, old_predictions, old_groups, batches, earlier = (), None, None, (), None
    batch, columns = count_batch(source, rejector, options, drift is not None, settings.by, before)
    batch = replace(batch, name=_name(source, state, options.batch))
    _check_new(batch, state, before, columns.get("looked up"))
    accepted = columns["accepted"]
    by_prediction = by_group = None
    if rejector.classes <= MOST_PARTS and not rejector.is_scored:
        by_prediction = _next_parts(old_predictions, columns["prediction"], rejector.class_titles, accepted)
    if settings.by is not None:
        by_group = _next_parts(old_groups, *numbered(columns["group"]), accepted, settings.by)
    new = MonitorState(
        drrej_version=__version__,
        rejector=digest(rejector),
        settings=settings,
        risk=None if risk is None else risk.update(Tally(batch.errors, batch.labels)),
        coverage=None if coverage is None else coverage.update(Tally(batch.rows - batch.accepted, batch.rows)),
        drift=None if drift is None else drift.update(bin_counts(columns["drift"], drift.edges)),
        alarms=alarms,
        batches=(*batches, batch),
        earlier=earlier,
        resets=_resets(state, options.reset),
        by_prediction=by_prediction,
        by_group=by_group,
        seen=(*(() if state is None else state.seen), batch.fingerprint),
        last=columns["sketch"].fingerprint().text(),
    )
    batch = replace(batch, log_e={str(name): value for name, value in new.log_e_values.items()})
    return replace(new, batches=(*batches, batch)).judged()


def _resets(state: MonitorState | None, why: str | None) -> tuple[Reset, ...]:
    if state is None or why is None or state.ended is not None:
        return () if state is None else state.resets
    seen = state.total
    ended = Reset(why=why, batches=seen.batches, first=seen.first or seen.name, last=seen.name, alarms=state.alarms)
    return (*state.resets, ended)


def _name(source: Source, state: MonitorState | None, given: str | None) -> str:
    """The name of the batch: as given, or that of the partition, or of the one file or folder, or its number."""
    taken = set() if state is None else {batch.name for batch in state.batches}
    if given is not None:
        if given in taken:
            raise MonitorError(
                f"`batch={given}`: there is already a batch with this name; give each batch its own name"
            )
        return given
    paths = [path.rstrip("/") for path in source.arguments]
    folders = {tuple(piece for piece in path.split("/") if "=" in piece and "?" not in piece) for path in paths}
    found = os.path.basename(paths[0]).removesuffix(".parquet") if len(paths) == 1 else ""
    if len(folders) == 1:  # a partition of a table, such as dt=2026-10-01
        found = "/".join(folders.pop()) or found
    plain = found not in ("", "-", ".", "..") and "*" not in found and len(found) <= LONGEST_NAME
    if not plain or not found.isprintable() or found in taken:
        found = f"batch {1 if state is None else len(state.seen) + 1}"
    while found in taken:
        found += "'"
    return found


def _check_new(batch: Batch, state: MonitorState | None, before: Fingerprint | None, looked_up: LookUp | None) -> None:
    """Raise when rows would count twice."""
    if state is None:
        return
    if batch.fingerprint in state.seen:
        known = next((old.name for old in state.batches if old.fingerprint == batch.fingerprint), None)
        said = "an older batch" if known is None else f"the batch '{known}'"
        raise MonitorError(
            f"these rows have already been counted, as {said}; a batch counts once (later labels: `late=BATCH`)"
        )
    if before is not None and looked_up is not None:
        reuse = before.judge(looked_up)
        if reuse.reused and reuse.share > 0.5:
            raise MonitorError(
                f"'{batch.name}' holds about {reuse.share:.0%} of the rows of the batch before, "
                f"'{state.batches[-1].name}'; rows count once: give the files of this batch alone"
            )


def _next_parts(
    old: Parts | None, numbers: Integers, names: Sequence[str], accepted: Booleans, by: str = "prediction"
) -> Parts:
    """The parts with a batch more: what was the last batch goes to those before it."""
    cells = np.bincount(numbers * 2 + accepted, minlength=2 * len(names)).reshape(-1, 2).tolist()
    new = {name: (rejected + taken, taken) for name, (rejected, taken) in zip(names, cells, strict=True)}
    parts, old = {}, old or {}
    for name in dict.fromkeys([*old, *new]):
        last_rows, last_accepted, rows, taken = old.get(name, (0, 0, 0, 0))
        parts[name] = (*new.get(name, (0, 0)), rows + last_rows, taken + last_accepted)
    if len(parts) > MOST_PARTS:
        raise OptionError(f"`by={by}`: there are {len(parts)} groups; a monitor keeps at most {MOST_PARTS}")
    return parts


# Late labels


def _with_late_labels(
    source: Source, rejector: Rejector, state: MonitorState | None, options: MonitorOptions
) -> MonitorState:
    """The state after the labels of an earlier batch: all of them in one go, so that no row counts twice."""
    late = options.late
    if state is None:
        raise MonitorError(f"`late={late}`: there is no monitor yet")
    if state.ended is not None:
        raise MonitorError(
            f"`late={late}`: the monitor was reset ('{state.ended}'); labels before that no longer count"
        )
    place = next((i for i, batch in enumerate(state.batches) if batch.name == late), None)
    if place is None:
        ends = ", ".join(f"'{batch.name}'" for batch in state.batches[-3:])
        raise MonitorError(
            f"`late={late}`: there is no such batch among the last {len(state.batches)}, which end with {ends}"
        )
    batch = state.batches[place]
    if batch.labels:
        raise MonitorError(
            f"`late={late}`: {batch.labels} labels of this batch have already been counted; give all labels of a "
            "batch at once"
        )
    counts, _ = count_batch(source, rejector, options)
    if counts.fingerprint != batch.fingerprint:
        raise MonitorError(f"`late={late}`: these are not the rows of that batch (its {counts.rows} rows differ)")
    if not counts.labels:
        raise MonitorError(f"`late={late}`: no accepted row of that batch has a label")
    newest = state.batches[-1]
    told = replace(batch, labels=counts.labels, errors=counts.errors, labels_after=newest.name)
    batches = [*state.batches[:place], told, *state.batches[place + 1 :]]
    risk = state.risk
    if risk is not None:
        risk = risk.update(Tally(counts.errors, counts.labels))
    return replace(state, drrej_version=__version__, risk=risk, batches=tuple(batches)).judged()


# What is counted

MOST_PARTS = 2000
"""Predicted classes or groups that are looked at one by one."""


def count_batch(
    source: Source,
    rejector: Rejector,
    options: MonitorOptions,
    drift: bool = False,
    by: str | None = None,
    before: Fingerprint | None = None,
) -> tuple[Batch, dict[str, Any]]:
    """A batch that has no name yet, and its columns: losses if `drift` is looked for, groups `by` a column.

    Labels count where the dump or the file of labels has them; those of an audit so that each predicted class, or
    group with a cutoff of its own, has its share of the accepted rows. `before` looks for rows of the batch before.
    """
    if not rejector.has_classes:
        raise OptionError("a monitor watches predictions of classes; the rejector is for a regression")
    if options.audited:
        source = replace(source, options=replace(source.options, on_missing_label="skip"))
    dump, labelled = _open(source, rejector)
    scorer = Scorer(rejector, dump, on_unseen=options.on_unseen_group)
    grouping = None if by is None else Grouping(by, rejector, dump)
    parted = drawn_by(rejector) if options.audited else None
    drawn = None if parted is None else Grouping(parted, rejector, dump)

    def of_rows(scored: Scored) -> dict[str, Any]:
        block = scored.block
        found = {"prediction": scored.prediction, "accepted": scored.accepted, "sketch": Sketch.of(scored.keys)}
        found |= {} if not drift else {"drift": scored.drift}
        found |= {} if block.labels is None else {"label": block.labels}
        found |= {} if grouping is None else {"group": grouping.column(block, scored.prediction)}
        found |= {} if drawn is None else {"drawn by": drawn.column(block, scored.prediction)}
        return found | ({} if before is None else {"looked up": before.look_up(scored.keys)})

    keep = [name for each in (grouping, drawn) if each is not None for name in each.columns]
    columns = collect_scored(source, dump, scorer, of_rows, "counting", labelled, keep)
    accepted = columns["accepted"]
    known = np.flatnonzero(accepted & (columns["label"] != -1)) if labelled else np.empty(0, int)
    if labelled:
        truth = columns["label"] >= 0
        label, prediction = columns["label"][truth], columns["prediction"][truth]
        doubt = swapped(label, prediction, rejector.class_titles)
        doubt = inverted(label != prediction, accepted[truth]) if rejector.is_scored else doubt
        source.cautions[:] = [] if doubt is None else [doubt]
    if options.audited:
        parts, names = columns["prediction"], list(rejector.class_titles)
        if drawn is not None:
            parts, names = numbered(columns["drawn by"])
        known = known[self_weighting(parts[accepted], parts[known], names, columns["sketch"].total)]
    batch = Batch(
        rows=accepted.size,
        accepted=int(np.count_nonzero(accepted)),
        labels=known.size,
        errors=int(np.count_nonzero(columns["label"][known] != columns["prediction"][known])) if labelled else 0,
        name="",
        fingerprint=f"{accepted.size:x}.{columns['sketch'].total:016x}",  # the same for the same rows in any order
        log_e={},
    )
    return batch, columns


def self_weighting(accepted: Integers, drawn: Integers, names: Sequence[str], seed: int) -> Booleans:
    """Which of the rows drawn for an audit count, so that each predicted class or group has its share of them.

    Given these classes. The rest of a row is settled by chance, so that evidence holds exactly, see docs/proofs.md; the
    seed is the batch's own, or that chance would be the same every day.
    """
    rows, labels = (np.bincount(numbers, minlength=len(names)) for numbers in (accepted, drawn))
    if (missing := np.flatnonzero((rows > 0) & (labels == 0))).size:
        raise MonitorError(f"`audited=True`: no accepted row of '{names[missing[0]]}' has a label; an audit needs one")
    random = np.random.default_rng([accepted.size, drawn.size, seed])
    counts = np.min(labels[rows > 0] / rows[rows > 0], initial=1.0) * rows
    wanted = np.minimum(np.floor(counts) + (random.random(counts.size) < counts % 1.0), labels)
    order = np.lexsort((random.random(drawn.size), drawn))
    place = np.empty(drawn.size, np.int64)
    place[order] = np.arange(drawn.size) - np.repeat(np.cumsum(labels) - labels, labels)
    chosen: Booleans = place < wanted[drawn]
    return chosen


def _open(source: Source, rejector: Rejector) -> tuple[Dump, bool]:
    """The dump, and whether it has labels. Those that were asked for must be there."""
    asked = any((source.options.labels_from, source.options.label, source.options.correct))
    options = replace(source.options, keep_unlabelled=True)  # such rows count for all but the risk
    source = replace(source, options=options)
    dump = source.open(rejector, labelled=asked)
    if dump.elsewhere is not None and dump.elsewhere.on is None:
        raise OptionError(
            f"`labels_from={dump.labels_file}`: a monitor matches labels by key; name the key column with `join_on=COL`"
        )
    known = None if dump.label is None else field_of(dump.schema, dump.label)
    if asked or known is None or pa.types.is_null(known.type):
        return dump, asked
    return source.open(rejector, labelled=True), True  # labels that are there must be readable
