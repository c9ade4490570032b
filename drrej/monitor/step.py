"""A monitor night after night: from the state of yesterday and tonight's dump to the state of today."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from drrej._version import __version__
from drrej.core import drift as fit_drift
from drrej.core.drift_monitor import LossDrift, bin_counts, stored_bins
from drrej.core.reuse import Fingerprint, Sighting, Sketch
from drrej.core.sequential import RateMonitor, Tally
from drrej.core.types import Booleans, Integers
from drrej.data.columns import column_of, field_of, root_of
from drrej.data.dump import Block, Dump
from drrej.documents.document import to_tree
from drrej.documents.gates import Gate
from drrej.documents.metrics import check_gate
from drrej.documents.rejector import Rejector
from drrej.engines.protocol import Pass
from drrej.errors import MonitorError, OptionError
from drrej.monitor.report import MonitorReport, monitor_report
from drrej.monitor.state import (
    KEPT_NIGHTS,
    Alarm,
    Drift,
    MonitorState,
    Night,
    Parts,
    Reset,
    Settings,
    folded_away,
)
from drrej.pipeline.groups import Grouping, OnUnseen
from drrej.pipeline.passes import map_blocks
from drrej.pipeline.score import Scorer
from drrej.pipeline.source import Source, without_bad_files
from drrej.records import dataclass

CONFIDENCE = 0.95
LONGEST_NAME = 200


@dataclass(frozen=True)
class MonitorOptions:
    """What is watched (None: as the state says; see `Settings`) and which night it is.

    `late` names a night that was counted without labels and whose labels have come. `reset` says why a new monitor
    starts with this night. `history` adds to the report what a page draws.
    """

    max_risk: float | None = None
    min_coverage: float | None = None
    drift: bool | None = None
    by: str | None = None
    confidence: float | None = None
    night: str | None = None
    late: str | None = None
    reset: str | None = None
    on_unseen_group: OnUnseen = "error"
    history: bool = False

    def __post_init__(self) -> None:
        if self.late is not None and (self.night is not None or self.reset is not None):
            raise OptionError(f"`late` goes without `{'reset' if self.night is None else 'night'}`")
        for name, text in (("night", self.night), ("reset", self.reset)):
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
    """Add a night, or its late labels, to a state; without a state the monitor starts.

    The state given is left as it is. Raises when the night was counted before, or the state is of another rejector.
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
        new = _with_night(source, rejector, state, settings, options)
    return new, monitor_report(new, gates, options.history)


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


# A night


def _with_night(
    source: Source, rejector: Rejector, state: MonitorState | None, settings: Settings, options: MonitorOptions
) -> MonitorState:
    if state is None and options.reset is not None:
        raise MonitorError("`reset`: there is no monitor yet that could be reset")
    before = None if state is None else _sketch(state.last, state.nights[-1])
    started = state if options.reset is None else None
    drift = _start_drift(rejector) if started is None and settings.drift else None
    if started is not None:
        drift = started.drift
    edges = None if drift is None else drift.edges
    night = count_night(source, rejector, NightLook(edges, settings.by, before, options.on_unseen_group))
    name = _name(source, state, options.night)
    _check_new(night, name, state, before)
    risk, coverage = _rates(started, settings)
    if risk is not None:
        risk = risk.update(Tally(night.errors, night.labels))
    if coverage is not None:
        coverage = coverage.update(Tally(night.rows - night.accepted, night.rows))
    if drift is not None:
        bins = tuple(night.bins.tolist())
        drift = replace(drift, losses=drift.losses.update(bins), new=bins)
    nights, folded = _kept(started)
    record = Night(
        name=name,
        fingerprint=night.fingerprint,
        rows=night.rows,
        accepted=night.accepted,
        labels=night.labels,
        errors=night.errors,
        log_e={},
    )
    draft = _Draft(
        {
            "drrej_version": __version__,
            "rejector": digest(rejector),
            "settings": settings,
            "risk": risk,
            "coverage": coverage,
            "drift": drift,
            "alarms": () if started is None else started.alarms,
            "folded": folded,
            "resets": _resets(state, options.reset),
            "by_prediction": _by_prediction(started, rejector, night),
            "by_group": _by_group(started, settings, night),
            "seen": (*(() if state is None else state.seen), night.fingerprint),
            "last": night.sketch.fingerprint().text(),
        }
    )
    return draft.finished(nights, record)


@dataclass(frozen=True)
class _Draft:
    """A state that lacks its last night's e-values and the alarms that follow from them."""

    parts: dict[str, Any]

    def finished(self, nights: Sequence[Night], last: Night, late: str | None = None) -> MonitorState:
        """The state with them; `late` names the night whose labels came."""
        evidence = MonitorState.evidence(**{key: self.parts[key] for key in ("settings", "risk", "coverage", "drift")})
        alarms = {alarm.monitor: alarm for alarm in self.parts["alarms"]}
        for name, value in evidence.items():
            if value >= self.parts["settings"].bar and name not in alarms:
                alarms[name] = Alarm(monitor=name, night=last.name, log_e=value, late=late)
        if late is None:
            last = replace(last, log_e={str(name): value for name, value in evidence.items()})
        return MonitorState(**{**self.parts, "alarms": tuple(alarms.values()), "nights": (*nights, last)})


def _sketch(text: str, night: Night) -> Fingerprint:
    try:
        return Fingerprint.parse(text, night.rows)
    except ValueError as error:
        raise MonitorError(f"the state is damaged: 'last' cannot be read: {error}") from None


def _start_drift(rejector: Rejector) -> Drift:
    """The bins of the losses of the fit, and their counts where these are known."""
    ratio = rejector.need_ratio()
    quantiles = ratio.loss_quantiles if ratio.drift_quantiles is None else ratio.drift_quantiles
    edges, counts = stored_bins(quantiles, fit_drift.ranks(len(quantiles), ratio.rows), ratio.rows)
    losses = LossDrift.start([0] * (len(edges) + 1) if counts is None else counts)
    return Drift(edges=edges, fit_rows=losses.first_rows, losses=losses, new=(0,) * (len(edges) + 1))


def _rates(started: MonitorState | None, settings: Settings) -> tuple[RateMonitor | None, RateMonitor | None]:
    if started is not None:
        return started.risk, started.coverage
    risk = None if settings.max_risk is None else RateMonitor(settings.max_risk)
    return risk, None if settings.min_coverage is None else RateMonitor(1.0 - settings.min_coverage)


def _kept(started: MonitorState | None) -> tuple[Sequence[Night], Sequence[Any]]:
    """The nights and folds before this one."""
    if started is None:
        return (), ()
    if len(started.nights) < KEPT_NIGHTS:
        return started.nights, started.folded
    return started.nights[1:], folded_away(started.folded, started.nights[0])


def _resets(state: MonitorState | None, why: str | None) -> tuple[Reset, ...]:
    if state is None or why is None:
        return () if state is None else state.resets
    first = state.folded[0].first if state.folded else state.nights[0].name
    ended = Reset(
        why=why,
        nights=state.looks,
        first=first,
        last=state.nights[-1].name,
        rows=state.accepted.rows,
        alarms=state.alarms,
    )
    return (*state.resets, ended)


def _name(source: Source, state: MonitorState | None, given: str | None) -> str:
    """The name of the night: as given, or that of the one file or folder, or its number."""
    taken = set() if state is None else {night.name for night in state.nights}
    if given is not None:
        if given in taken:
            raise MonitorError(
                f"`night={given}`: there is a night of that name already; nights need names of their own"
            )
        return given
    paths = source.arguments
    found = os.path.basename(paths[0].rstrip("/")).removesuffix(".parquet") if len(paths) == 1 else ""
    if found in ("", "-", ".", "..") or "*" in found or len(found) > LONGEST_NAME or not found.isprintable():
        found = ""
    number = 1 if state is None else len(state.seen) + 1
    if not found or found in taken:
        found = f"night {number}"
    while found in taken:
        found += "'"
    return found


def _check_new(night: NightCounts, name: str, state: MonitorState | None, before: Fingerprint | None) -> None:
    """Raise when rows would count twice."""
    if state is None:
        return
    if night.fingerprint in state.seen:
        known = next((old.name for old in state.nights if old.fingerprint == night.fingerprint), None)
        said = "an older night" if known is None else f"the night '{known}'"
        raise MonitorError(
            f"these rows were counted already, as {said}; a night counts once (labels that come later: `late=NIGHT`)"
        )
    if before is not None and night.sighting is not None:
        reuse = before.judge(night.sighting)
        if reuse.reused and reuse.share > 0.5:
            raise MonitorError(
                f"'{name}' holds about {reuse.share:.0%} of the rows of the night before, '{state.nights[-1].name}'; "
                "rows count once: give the files of this night alone"
            )


# What moved


def _by_prediction(started: MonitorState | None, rejector: Rejector, night: NightCounts) -> Parts | None:
    if rejector.classes > MOST_PARTS:
        return None
    names = rejector.class_names or tuple(map(str, range(rejector.classes)))
    found = {name: (int(rows), int(accepted)) for name, (rows, accepted) in zip(names, night.by_class, strict=True)}
    return _next_parts(None if started is None else started.by_prediction, found)


def _by_group(started: MonitorState | None, settings: Settings, night: NightCounts) -> Parts | None:
    if settings.by is None:
        return None
    counts = night.by_group
    found = {
        name: (counts[name, True] + counts[name, False], counts[name, True])
        for name in sorted({name for name, _ in counts})
    }
    parts = _next_parts(None if started is None else started.by_group, found)
    if len(parts.names) > MOST_PARTS:
        raise OptionError(
            f"`by={settings.by}`: there are {len(parts.names)} groups by now; at most {MOST_PARTS} are kept"
        )
    return parts


def _next_parts(old: Parts | None, night: dict[str, tuple[int, int]]) -> Parts:
    """The parts with a night more: what was the last night goes to those before it."""
    past = {} if old is None else dict(zip(old.names, _pairs(old), strict=True))
    names = (*past, *(name for name in night if name not in past))
    new, before = [night.get(name, (0, 0)) for name in names], [past.get(name, (0, 0)) for name in names]
    return Parts(
        names=names,
        new_rows=tuple(rows for rows, _ in new),
        new_accepted=tuple(accepted for _, accepted in new),
        old_rows=tuple(rows for rows, _ in before),
        old_accepted=tuple(accepted for _, accepted in before),
    )


def _pairs(parts: Parts) -> list[tuple[int, int]]:
    """(rows, accepted) of each part, the last night included."""
    columns = zip(parts.new_rows, parts.old_rows, parts.new_accepted, parts.old_accepted, strict=True)
    return [(new + old, taken + taken_before) for new, old, taken, taken_before in columns]


# Late labels


def _with_late_labels(
    source: Source, rejector: Rejector, state: MonitorState | None, options: MonitorOptions
) -> MonitorState:
    """The state after the labels of an earlier night: all of them in one go, so that no row counts twice."""
    late = options.late
    if state is None:
        raise MonitorError(f"`late={late}`: there is no monitor yet")
    place = next((i for i, night in enumerate(state.nights) if night.name == late), None)
    if place is None:
        ends = ", ".join(f"'{night.name}'" for night in state.nights[-3:])
        raise MonitorError(
            f"`late={late}`: there is no such night among the last {len(state.nights)}, which end with {ends}"
        )
    night = state.nights[place]
    if night.labels:
        raise MonitorError(
            f"`late={late}`: {night.labels} labels of this night were counted already; the labels of a night count in "
            "one go"
        )
    counts = count_night(source, rejector, NightLook(None, None, None, options.on_unseen_group))
    if counts.fingerprint != night.fingerprint:
        raise MonitorError(f"`late={late}`: these are not the rows of that night ({counts.rows} rows, not the same)")
    if not counts.labels:
        raise MonitorError(f"`late={late}`: no accepted row of that night has a label")
    newest = state.nights[-1]
    told = replace(night, labels=counts.labels, errors=counts.errors, labels_after=newest.name)
    nights = [*state.nights[:place], told, *state.nights[place + 1 :]]
    risk = state.risk
    if risk is not None:
        risk = risk.update(Tally(counts.errors, counts.labels))
    known = {field.name: getattr(state, field.name) for field in fields(state)}
    draft = _Draft({**known, "drrej_version": __version__, "risk": risk})
    return draft.finished(nights[:-1], nights[-1], late)


MOST_PARTS = 2000
"""Predicted classes or groups that are looked at one by one."""


@dataclass(frozen=True)
class NightLook:
    """What is looked for: losses between `edges`, groups by a column, and rows of the night `before`."""

    edges: Sequence[float] | None
    by: str | None
    before: Fingerprint | None
    on_unseen_group: OnUnseen = "error"


@dataclass(frozen=True)
class NightCounts:
    """Counts of a night; they add up over blocks in any order.

    `labels` are the accepted rows whose label is known, `errors` those among them. `by_class` has rows and accepted
    rows of each predicted class, `by_group` those of each group.
    """

    rows: int
    accepted: int
    labels: int
    errors: int
    bins: NDArray[np.int64]
    by_class: NDArray[np.int64]
    by_group: Counter[tuple[str, bool]]
    sketch: Sketch
    sighting: Sighting | None

    def __add__(self, other: NightCounts) -> NightCounts:
        seen = self.sighting
        if seen is not None and other.sighting is not None:
            seen += other.sighting
        return NightCounts(
            self.rows + other.rows,
            self.accepted + other.accepted,
            self.labels + other.labels,
            self.errors + other.errors,
            self.bins + other.bins,
            self.by_class + other.by_class,
            self.by_group + other.by_group,
            self.sketch + other.sketch,
            seen,
        )

    @property
    def fingerprint(self) -> str:
        """The number of rows and the sum of their keys: the same for the same rows in any order."""
        return f"{self.rows:x}.{self.sketch.total:016x}"


def count_night(source: Source, rejector: Rejector, look: NightLook) -> NightCounts:
    """Count a night; labels count where the dump or the file of labels has them."""
    if not rejector.has_classes:
        raise OptionError("a monitor watches predictions of classes; the rejector is for a regression")
    dump, labelled = _open(source, rejector)
    scorer = Scorer(rejector, dump, on_unseen=look.on_unseen_group)
    grouping = None if look.by is None else Grouping(look.by, rejector, dump)
    labels = _Labels(dump, source.options.on_missing_label == "skip") if labelled else None

    def of_block(block: Block) -> NightCounts:
        scored = scorer(block)
        keys = scored.keys
        known = errors = np.zeros(block.rows, bool)
        if labels is not None:
            truth, known = labels.of(block)
            known = known & scored.accepted
            errors = known & (truth != scored.prediction)
        cells = scored.prediction * 2 + scored.accepted
        by_class = np.bincount(cells, minlength=2 * rejector.classes).reshape(-1, 2)
        return NightCounts(
            block.rows,
            int(np.count_nonzero(scored.accepted)),
            int(np.count_nonzero(known)),
            int(np.count_nonzero(errors)),
            np.array([] if look.edges is None else bin_counts(scored.drift, look.edges), np.int64),
            np.stack([by_class.sum(axis=1), by_class[:, 1]], axis=1),
            Counter() if grouping is None else _group_counts(grouping, block, scored.prediction, scored.accepted),
            Sketch.of(keys),
            None if look.before is None else look.before.look_up(keys),
        )

    wanted = [*scorer.columns, *(() if grouping is None else grouping.columns)]
    wanted += [] if labels is None else [root_of(dump.schema, labels.column)]
    run = Pass("counting", labelled=False, keep=tuple(dict.fromkeys(wanted)), scores=scorer.columns)
    blocks = list(map_blocks(source, dump, of_block, run))
    night = sum(blocks[1:], blocks[0])
    groups = {name for name, _ in night.by_group}
    if len(groups) > MOST_PARTS:
        raise OptionError(f"`by={look.by}`: the night has {len(groups)} groups; a monitor keeps at most {MOST_PARTS}")
    return night


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


def _group_counts(
    grouping: Grouping, block: Block, prediction: Integers, accepted: Booleans
) -> Counter[tuple[str, bool]]:
    numbers, names = grouping.of(block, prediction)
    counts = np.bincount(numbers * 2 + accepted, minlength=2 * len(names)).reshape(-1, 2)
    return Counter({(names[i], bool(j)): int(counts[i, j]) for i, j in zip(*np.nonzero(counts), strict=True)})
