"""What a monitor says after a batch: figures with intervals that hold at every look, e-values, alarms, what moved."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from msgspec.structs import replace

from drrej._version import __version__
from drrej.core.intervals import lower_bound
from drrej.core.types import Stored
from drrej.documents.document import NONE, AtLeastOne, Count, Document, GateRow, Share, about
from drrej.documents.figures import Spread
from drrej.documents.gates import Gate
from drrej.errors import ReportError
from drrej.monitor.evidence import Tally, confidence_sequence, start_share
from drrej.monitor.state import Batch, MonitorName, MonitorState, Parts, Reset, Settings

SEQUENCE = "confidence sequence: it holds at all looks together"


class Watch(Stored, frozen=True, kw_only=True):
    """The evidence of a monitor and what its alarm promises. E-values are given by their logarithm to base 10.

    `alarm` is the batch after which it alarmed; an alarm stays until the monitor is reset.
    """

    log10_e_value: Annotated[
        float, about("evidence: logarithm of the e-value to base 10", "lower", NONE, unit="number")
    ]
    alarm_at: Annotated[float, about("evidence at which the alarm goes off", "neither", NONE, unit="number")]
    state: Literal["ok", "alarm"]
    alarm: str | None = None
    promise: str


class LimitWatch(Watch, frozen=True, kw_only=True):
    """A monitor of a share that has a limit."""

    limit: Annotated[Share, about("as the limit", "neither", NONE)]


class Tracked(Spread, frozen=True, kw_only=True):
    """A share with an interval that holds at all looks together."""

    value: Share | None
    lower: Annotated[Share, about("lower end of its confidence sequence")]
    upper: Annotated[Share, about("upper end of its confidence sequence")]


class TrackedRisk(Tracked, frozen=True, kw_only=True):
    """The error rate of the accepted rows whose labels are known."""

    errors: Annotated[Count, about("as the number of errors", "lower", NONE)]
    labels: Annotated[Count, about("as the number of labels", "higher", NONE)]
    watch: LimitWatch | None = None


class TrackedCoverage(Tracked, frozen=True, kw_only=True):
    """The share of accepted rows."""

    accepted: Annotated[Count, about("as the number of accepted rows", "higher", NONE)]
    watch: LimitWatch | None = None


class MovedPart(Stored, frozen=True, kw_only=True):
    """A share of new rows against that of others, and the interval of the difference new - old.

    `at_least` is how far it has moved for sure, with its sign.
    """

    what: str
    part: str
    new: Share | None
    old: Share | None
    lower: float
    upper: float
    at_least: float


class MonitorReport(Document, frozen=True, kw_only=True, tag="drrej-monitor-report/2"):  # 2: batches
    """What a monitor says; by attribute or by key.

    `moved` are the parts that surely moved, among `looked_at` shares; `recent` are the last batches, `earlier` those
    before them as one.
    """

    NOUN, ERROR = "report of a monitor", ReportError

    drrej_version: str
    state: Literal["ok", "alarm"]
    settings: Annotated[Settings, about(gate=False)]
    batch: Annotated[Batch, about(gate=False)]
    batches: Annotated[AtLeastOne, about("batches since the monitor started", "neither", NONE)]
    rows: Annotated[AtLeastOne, about("rows since the monitor started", "neither", NONE)]
    risk: Annotated[TrackedRisk, about("error rate of the accepted rows since the start", "lower", SEQUENCE)]
    coverage: Annotated[TrackedCoverage, about("share of accepted rows since the start", "higher", SEQUENCE)]
    drift: Annotated[Watch | None, about("drift of the losses", gate=True)] = None
    moved: tuple[MovedPart, ...]
    looked_at: Annotated[Count, about(gate=False)]
    alarms: tuple[MonitorName, ...]
    recent: tuple[Batch, ...]
    earlier: Annotated[Batch | None, about(gate=False)] = None
    resets: tuple[Reset, ...]
    ended: str | None = None
    """Why the monitor was reset, if the next batch starts a new one."""
    gates: tuple[GateRow, ...]


MOST_MOVES = 12
_LN_10 = math.log(10.0)


def monitor_report(state: MonitorState, gates: Sequence[Gate] = ()) -> MonitorReport:
    """What a state says."""
    settings, total = state.settings, state.total
    most, least = settings.max_risk, settings.min_coverage
    moved, looked_at = _moved(state)
    report = MonitorReport(
        drrej_version=__version__,
        state="alarm" if state.alarms else "ok",
        settings=settings,
        batch=state.batches[-1],
        batches=total.batches,
        rows=total.rows,
        risk=TrackedRisk(
            **_tracked(Tally(total.errors, total.labels), settings.alpha),
            errors=total.errors,
            labels=total.labels,
            watch=None if most is None else LimitWatch(limit=most, **_evidence(state, "risk")),
        ),
        coverage=TrackedCoverage(
            **_tracked(Tally(total.accepted, total.rows), settings.alpha),
            accepted=total.accepted,
            watch=None if least is None else LimitWatch(limit=least, **_evidence(state, "coverage")),
        ),
        drift=Watch(**_evidence(state, "drift")) if settings.drift else None,
        moved=moved,
        looked_at=looked_at,
        alarms=tuple(alarm.monitor for alarm in state.alarms),
        recent=state.batches,
        earlier=state.earlier,
        resets=state.resets,
        ended=state.ended,
        gates=(),
    )
    return replace(report, gates=tuple(gate.judge(report) for gate in gates))


def _tracked(tally: Tally, delta: float) -> dict[str, Any]:
    lower, upper = confidence_sequence(tally, delta)
    return {"value": tally.rate, "lower": lower, "upper": upper}


def _evidence(state: MonitorState, name: MonitorName) -> dict[str, Any]:
    """What a monitor that is watched says."""
    settings, alarm = state.settings, next((alarm for alarm in state.alarms if alarm.monitor == name), None)
    null = {
        "risk": f"no batch's risk is above {settings.max_risk}",
        "coverage": f"no batch's coverage is below {settings.min_coverage}",
        "drift": "all rows, including those of the fit, come from one distribution",
    }[name]
    if name == "drift" and state.drift is not None and not state.drift.fit_rows:
        null = "the rows of all batches come from one distribution"
    return {
        "log10_e_value": state.log_e_values[name] / _LN_10,
        "alarm_at": settings.bar / _LN_10,
        "state": "ok" if alarm is None else "alarm",
        "alarm": None if alarm is None else alarm.batch,
        "promise": f"it ever raises an alarm with probability at most {settings.level:.3g} if {null}",
    }


# What moved


def _moved(state: MonitorState) -> tuple[tuple[MovedPart, ...], int]:
    """The parts that surely differ between the last batch and those before it, largest first; and how many there are.

    The tables of look t share alpha · `start_share(t)`, so that all tables of all batches hold together.
    """
    last, total = state.batches[-1], state.total
    if total.batches < 2:
        return (), 0
    before = Tally(total.accepted - last.accepted, total.rows - last.rows)
    tables: list[Compared] = [("coverage", [("all rows", Tally(last.accepted, last.rows), before)])]
    if state.drift is not None:  # the rows of the fit are among those before
        new, pool = state.drift.new, state.drift.pool
        new_tallies = [Tally(rows, sum(new)) for rows in new]
        old_tallies = [Tally(rows - n, sum(pool) - sum(new)) for n, rows in zip(new, pool, strict=True)]
        names = _region_names(state.drift.edges)
        tables.append(("share of rows by loss", list(zip(names, new_tallies, old_tallies, strict=True))))
    for what, parts in (("prediction", state.by_prediction), (state.settings.by or "group", state.by_group)):
        tables += [] if parts is None else _tables(what, parts)
    found = moved_parts(tables, state.settings.alpha * start_share(total.batches - 1))
    return found[:MOST_MOVES], sum(len(parts) for _, parts in tables)


def _tables(what: str, parts: Parts) -> list[Compared]:
    """The share of each part among all rows, and its coverage: of the last batch, and of those before."""
    new_rows, new_accepted, old_rows, old_accepted = zip(*parts.values(), strict=True)
    shares = [[Tally(n, sum(rows)) for n in rows] for rows in (new_rows, old_rows)]
    coverages = [list(map(Tally, *counts)) for counts in ((new_accepted, new_rows), (old_accepted, old_rows))]
    return [
        (f"share of rows by {what}", list(zip(parts, *shares, strict=True))),
        (f"coverage by {what}", list(zip(parts, *coverages, strict=True))),
    ]


Compared = tuple[str, Sequence[tuple[str, Tally, Tally]]]
"""A table: what is compared, and of each part its name and its share among new and among old rows."""


def moved_parts(tables: Sequence[Compared], delta: float) -> tuple[MovedPart, ...]:
    """The parts that surely moved, most first; with chance 1 - delta every interval of every table holds.

    >>> table = ("x", [("a", Tally(30, 100), Tally(900, 1000)), ("b", Tally(70, 100), Tally(700, 1000))])
    >>> [(move.part, round(move.at_least, 3)) for move in moved_parts([table], 0.05)]
    [('a', -0.447)]
    """
    found = []
    for what, parts in tables:
        level = delta / len(tables) / (4 * len(parts))
        for name, new, old in parts:
            (new_low, new_high), (old_low, old_high) = _interval(new, level), _interval(old, level)
            low, high = new_low - old_high, new_high - old_low
            at_least = low if low > 0.0 else min(high, 0.0)
            if at_least:
                ends = {"lower": low, "upper": high, "at_least": at_least}
                found.append(MovedPart(what=what, part=name, new=new.rate, old=old.rate, **ends))
    return tuple(sorted(found, key=lambda part: -abs(part.at_least)))


def _interval(tally: Tally, level: float) -> tuple[float, float]:
    """Clopper-Pearson, each end at `level`."""
    others = tally.rows - tally.events
    return lower_bound(tally.events, tally.rows, level), 1.0 - lower_bound(others, tally.rows, level)


def _region_names(edges: Sequence[float]) -> list[str]:
    """What the regions between these losses are called.

    >>> _region_names([0.5, 1.0])
    ['below 0.5', '0.5 to 1', '1 or more']
    """
    ends = [f"{edge:.4g}" for edge in edges]
    if not ends:
        return ["any"]
    inside = [f"{low} to {high}" for low, high in itertools.pairwise(ends)]
    return [f"below {ends[0]}", *inside, f"{ends[-1]} or more"]
