"""What a monitor says after a night: figures with intervals that hold at every look, e-values, alarms, what moved."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from drrej.documents.about import NONE, About, Interval, Share, ShareOrNone, Unit
from drrej.documents.codec import Codec
from drrej.documents.document import GateRow, Judged
from drrej.documents.monitor import Fold, MonitorName, Night, Reset, Settings
from drrej.documents.moved import MovedPart
from drrej.documents.proportions import check_interval
from drrej.errors import ReportError
from drrej.records import dataclass

FORMAT = "drrej-monitor-report/1"
"""1: the first format."""

SEQUENCE = Interval("confidence sequence: it holds at all looks together")


@dataclass(frozen=True, kw_only=True)
class Watch:
    """The evidence of a monitor and what its alarm promises. E-values are given by their logarithm to base 10.

    `alarm` is the night after which it alarmed; an alarm stays until the monitor is reset.
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


@dataclass(frozen=True, kw_only=True)
class Band:
    """A share so far, with its confidence sequence, after a night."""

    value: ShareOrNone
    lower: Share
    upper: Share


@dataclass(frozen=True, kw_only=True)
class History:
    """What a page draws, by night or fold from the oldest on."""

    risk: tuple[Band, ...]
    coverage: tuple[Band, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class MonitorReport(Judged):
    """What a monitor says; by attribute or by key.

    `moved` are the parts that surely moved, among `looked_at` shares; `recent` and `folded` are the nights so far.
    """

    CODEC: ClassVar[Codec] = Codec(FORMAT, "report of a monitor", ReportError)

    drrej_version: str
    state: Literal["ok", "alarm"]
    settings: Annotated[Settings, About(gate=False)]
    night: Annotated[Night, About(gate=False)]
    nights: Annotated[int, About("nights since the monitor started", Unit.COUNT, "neither", NONE, least=1)]
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
    recent: tuple[Night, ...]
    folded: tuple[Fold, ...]
    resets: tuple[Reset, ...]
    history: Annotated[History | None, About(gate=False)] = None
    gates: tuple[GateRow, ...]

    def __post_init__(self) -> None:
        if (self.state == "alarm") != bool(self.alarms):
            raise ValueError("the state does not go with the alarms")
