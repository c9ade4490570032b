"""What a monitor says after a batch: figures with intervals that hold at every look, e-values, alarms, what moved."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from drrej._version import __version__
from drrej.documents.document import Codec, GateRow, Judged
from drrej.documents.fields import NONE, About, Interval, ShareOrNone, Unit
from drrej.documents.gates import Gate
from drrej.documents.points import MovedPart, check_interval
from drrej.errors import ReportError
from drrej.monitor.evidence import confidence_sequence, start_share
from drrej.monitor.state import Batch, Fold, MonitorName, MonitorState, Parts, Reset, Settings
from drrej.pipeline.shares import Compared, Tally, moved_parts, region_names
from drrej.records import dataclass

FORMAT = "drrej-monitor-report/2"
"""2: batches in place of nights."""

SEQUENCE = Interval("confidence sequence: it holds at all looks together")


@dataclass(frozen=True, kw_only=True)
class Watch:
    """The evidence of a monitor and what its alarm promises. E-values are given by their logarithm to base 10.

    `alarm` is the batch after which it alarmed; an alarm stays until the monitor is reset.
    """

    log10_e_value: Annotated[float, About("evidence: logarithm of the e-value to base 10", Unit.NUMBER, "lower", NONE)]
    alarm_at: Annotated[float, About("evidence at which the alarm goes off", Unit.NUMBER, "neither", NONE)]
    state: Literal["ok", "alarm"]
    alarm: str | None = None
    promise: str

    def __post_init__(self) -> None:
        if (self.state == "alarm") != (self.alarm is not None):
            raise ValueError("the state does not go with the alarm")


@dataclass(frozen=True, kw_only=True)
class LimitWatch(Watch):
    """A monitor of a share that has a limit."""

    limit: Annotated[float, About("as the limit", Unit.SHARE, "neither", NONE)]


@dataclass(frozen=True, kw_only=True)
class Tracked:
    """A share with an interval that holds at all looks together."""

    value: ShareOrNone
    lower: Annotated[float, About("lower end of its confidence sequence", Unit.SHARE)]
    upper: Annotated[float, About("upper end of its confidence sequence", Unit.SHARE)]

    def __post_init__(self) -> None:
        check_interval(self.lower, self.upper)


@dataclass(frozen=True, kw_only=True)
class TrackedRisk(Tracked):
    """The error rate of the accepted rows whose labels are known."""

    errors: Annotated[int, About("as the number of errors", Unit.COUNT, "lower", NONE)]
    labels: Annotated[int, About("as the number of labels", Unit.COUNT, "higher", NONE)]
    watch: LimitWatch | None = None


@dataclass(frozen=True, kw_only=True)
class TrackedCoverage(Tracked):
    """The share of accepted rows."""

    accepted: Annotated[int, About("as the number of accepted rows", Unit.COUNT, "higher", NONE)]
    watch: LimitWatch | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class MonitorReport(Judged):
    """What a monitor says; by attribute or by key.

    `moved` are the parts that surely moved, among `looked_at` shares; `recent` and `folded` are the batches so far.
    """

    CODEC: ClassVar[Codec] = Codec(FORMAT, "report of a monitor", ReportError)

    drrej_version: str
    state: Literal["ok", "alarm"]
    settings: Annotated[Settings, About(gate=False)]
    batch: Annotated[Batch, About(gate=False)]
    batches: Annotated[int, About("batches since the monitor started", Unit.COUNT, "neither", NONE, least=1)]
    rows: Annotated[int, About("rows since the monitor started", Unit.COUNT, "neither", NONE, least=1)]
    risk: Annotated[
        TrackedRisk, About("error rate of the accepted rows since the start", Unit.SHARE, "lower", SEQUENCE)
    ]
    coverage: Annotated[
        TrackedCoverage, About("share of accepted rows since the start", Unit.SHARE, "higher", SEQUENCE)
    ]
    drift: Annotated[Watch | None, About("drift of the losses", gate=True)] = None
    moved: tuple[MovedPart, ...]
    looked_at: Annotated[int, About(gate=False, unit=Unit.COUNT)]
    alarms: tuple[MonitorName, ...]
    recent: tuple[Batch, ...]
    folded: tuple[Fold, ...]
    resets: tuple[Reset, ...]
    gates: tuple[GateRow, ...]

    def __post_init__(self) -> None:
        if (self.state == "alarm") != bool(self.alarms):
            raise ValueError("the state does not go with the alarms")


MOST_MOVES = 12
_LN_10 = math.log(10.0)


def monitor_report(state: MonitorState, gates: Sequence[Gate] = ()) -> MonitorReport:
    """What a state says."""
    settings, accepted, errors = state.settings, state.accepted, state.errors
    moved, looked_at = _moved(state)
    report = MonitorReport(
        drrej_version=__version__,
        state="alarm" if state.alarms else "ok",
        settings=settings,
        batch=state.batches[-1],
        batches=state.looks,
        rows=accepted.rows,
        risk=TrackedRisk(
            **_tracked(errors, settings.alpha),
            errors=errors.events,
            labels=errors.rows,
            watch=_limit_watch(state, "risk", settings.max_risk),
        ),
        coverage=TrackedCoverage(
            **_tracked(accepted, settings.alpha),
            accepted=accepted.events,
            watch=_limit_watch(state, "coverage", settings.min_coverage),
        ),
        drift=Watch(**_evidence(state, "drift")) if settings.drift else None,
        moved=moved,
        looked_at=looked_at,
        alarms=tuple(alarm.monitor for alarm in state.alarms),
        recent=state.batches,
        folded=state.folded,
        resets=state.resets,
        gates=(),
    )
    return replace(report, gates=tuple(gate.judge(report) for gate in gates))


def _tracked(tally: Tally, delta: float) -> dict[str, Any]:
    lower, upper = confidence_sequence(tally, delta)
    return {"value": tally.rate, "lower": lower, "upper": upper}


def _limit_watch(state: MonitorState, name: MonitorName, limit: float | None) -> LimitWatch | None:
    return None if limit is None else LimitWatch(limit=limit, **_evidence(state, name))


def _evidence(state: MonitorState, name: MonitorName) -> dict[str, Any]:
    """What a monitor that is watched says."""
    alarm = next((alarm for alarm in state.alarms if alarm.monitor == name), None)
    return {
        "log10_e_value": state.log_e_values[name] / _LN_10,
        "alarm_at": state.settings.bar / _LN_10,
        "state": "ok" if alarm is None else "alarm",
        "alarm": None if alarm is None else alarm.batch,
        "promise": _promise(state, name),
    }


def _promise(state: MonitorState, name: MonitorName) -> str:
    settings = state.settings
    null = {
        "risk": f"no batch's risk is above {settings.max_risk}",
        "coverage": f"no batch's coverage is below {settings.min_coverage}",
        "drift": "all rows, the fit's too, come from one distribution",
    }[name]
    if name == "drift" and state.drift is not None and not state.drift.fit_rows:
        null = "the rows of all batches come from one distribution"
    return f"it alarms with chance at most {settings.level:.3g}, ever, if {null}"


# What moved


def _moved(state: MonitorState) -> tuple[tuple[MovedPart, ...], int]:
    """The parts that surely differ between the last batch and those before it, largest first; and how many there are.

    The tables of look t share alpha · `start_share(t)`, so that all tables of all batches hold together.
    """
    if state.looks < 2:
        return (), 0
    tables = [*_coverage(state), *_losses(state)]
    for what, parts in (("prediction", state.by_prediction), (state.settings.by or "group", state.by_group)):
        tables += [] if parts is None else _tables(what, parts)
    found = moved_parts(tables, state.settings.alpha * start_share(state.looks - 1))
    return found[:MOST_MOVES], sum(len(table.names) for table in tables)


def _coverage(state: MonitorState) -> list[Compared]:
    last, all_batches = state.batches[-1], state.accepted
    old = Tally(all_batches.events - last.accepted, all_batches.rows - last.rows)
    return [Compared("coverage", ["all rows"], [Tally(last.accepted, last.rows)], [old])]


def _losses(state: MonitorState) -> list[Compared]:
    """The share of the rows in each bin of the losses; the rows of the fit are among those before."""
    if state.drift is None:
        return []
    new, pool, edges = state.drift.new, state.drift.losses.pool, state.drift.edges
    rows, before = sum(new), sum(pool) - sum(new)
    old = [Tally(all_rows - n, before) for n, all_rows in zip(new, pool, strict=True)]
    return [Compared("share of rows by loss", region_names(edges), [Tally(n, rows) for n in new], old)]


def _tables(what: str, parts: Parts) -> list[Compared]:
    """The share of each part among all rows, and its coverage: of the last batch, and of those before."""
    columns = (parts.new_rows, parts.new_accepted), (parts.old_rows, parts.old_accepted)
    shares = [[Tally(n, sum(rows)) for n in rows] for rows, _ in columns]
    coverages = [[Tally(a, n) for n, a in zip(rows, accepted, strict=True)] for rows, accepted in columns]
    return [
        Compared(f"share of rows by {what}", parts.names, shares[0], shares[1]),
        Compared(f"coverage by {what}", parts.names, coverages[0], coverages[1]),
    ]
