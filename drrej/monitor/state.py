"""The state of a monitor: a small document that each batch's run replaces.

It holds what the monitors need to go on, the last batches one by one, all older ones as one, and a fingerprint
of every batch, so that none counts twice.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from msgspec.structs import replace

from drrej.core.reuse import Fingerprint
from drrej.core.types import Stored
from drrej.documents.document import AtLeastOne, Count, Document, Share
from drrej.errors import MonitorError
from drrej.monitor.evidence import LOG_ODDS, LossDrift, RateMonitor, Tally

KEPT_BATCHES = 60
"""Batches that are kept one by one; those before them are added up."""

MonitorName = Literal["risk", "coverage", "drift"]


class Settings(Stored, frozen=True, kw_only=True):
    """What is watched. `confidence` is the chance that no alarm is ever false; the monitors share the rest evenly."""

    confidence: Share
    max_risk: Share | None = None
    min_coverage: Share | None = None
    drift: bool
    by: str | None = None

    def __post_init__(self) -> None:
        for name in ("confidence", "max_risk", "min_coverage"):
            value = getattr(self, name)
            if value is not None and not 0.0 < value < 1.0:
                raise ValueError(f"`{name}={value:g}`: it must be above 0 and below 1")
        if not self.watched:
            raise ValueError("nothing is watched: give `max_risk` or `min_coverage`, or leave out `drift=False`")

    @property
    def watched(self) -> tuple[MonitorName, ...]:
        """The monitors that can alarm."""
        held: dict[MonitorName, bool] = {
            "risk": self.max_risk is not None,
            "coverage": self.min_coverage is not None,
            "drift": self.drift,
        }
        return tuple(name for name, there in held.items() if there)

    @property
    def alpha(self) -> float:
        """The chance of any false alarm, ever."""
        return 1.0 - self.confidence

    @property
    def level(self) -> float:
        """The chance of a false alarm that each monitor has."""
        return self.alpha / len(self.watched)

    @property
    def bar(self) -> float:
        """The logarithm of the e-value at which a monitor alarms."""
        return -math.log(self.level)


class Batch(Stored, frozen=True, kw_only=True):
    """One batch, or `batches` in a row from `first` on that are added up, under the name of the last.

    Rows, those accepted, those of them whose label is known, and errors among these. `log_e` are the logarithms of the
    e-values after it. `labels_after` names the newest batch at the time when its labels came late.
    """

    rows: AtLeastOne
    accepted: Count
    labels: Count
    errors: Count
    name: str
    fingerprint: str = ""
    log_e: dict[str, float]
    labels_after: str | None = None
    batches: AtLeastOne = 1
    first: str | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.errors <= self.labels <= self.accepted <= self.rows:
            raise ValueError("errors, labels, accepted and rows must not be above each other, in this order")

    def __add__(self, later: Batch) -> Batch:
        counted = ("rows", "accepted", "labels", "errors", "batches")
        counts = {name: getattr(self, name) + getattr(later, name) for name in counted}
        return Batch(**counts, first=self.first or self.name, name=later.name, log_e=later.log_e)


class Alarm(Stored, frozen=True, kw_only=True):
    """The first time that a monitor alarmed: after which batch, and the logarithm of its e-value.

    `late` names the batch whose late labels raised it.
    """

    monitor: MonitorName
    batch: str
    log_e: float
    late: str | None = None


class Reset(Stored, frozen=True, kw_only=True):
    """A monitor that was ended, why, and what it had seen."""

    why: str
    batches: AtLeastOne
    first: str
    last: str
    rows: Count
    alarms: tuple[Alarm, ...]


Parts = dict[str, tuple[Count, Count, Count, Count]]
"""Rows and accepted rows of the last batch, then those of all before it, by predicted class or group."""


class MonitorState(Document, frozen=True, kw_only=True, tag="drrej-monitor/2"):  # 2: fewer sums
    """All that a monitor knows. `coverage` watches rejected rows: its limit is 1 - `min_coverage`.

    `rejector` is the digest of the rejector, `seen` are the fingerprints of all batches, those before resets included,
    and `last` is a sketch of the rows of the last batch. `ended` says why the monitor was reset after that batch: the
    next one starts a new monitor.
    """

    NOUN, ERROR = "state of a monitor", MonitorError

    drrej_version: str
    rejector: str
    settings: Settings
    risk: RateMonitor | None = None
    coverage: RateMonitor | None = None
    drift: LossDrift | None = None
    alarms: tuple[Alarm, ...]
    batches: tuple[Batch, ...]
    earlier: Batch | None = None
    resets: tuple[Reset, ...]
    by_prediction: Parts | None = None
    by_group: Parts | None = None
    seen: tuple[str, ...]
    last: str
    ended: str | None = None

    @property
    def looks(self) -> int:
        """Batches since the monitor started."""
        return self._total("batches")

    @property
    def spans(self) -> tuple[Batch, ...]:
        """All batches since the monitor started, the earlier ones as one."""
        return self.batches if self.earlier is None else (self.earlier, *self.batches)

    def _total(self, name: str) -> int:
        return sum(getattr(span, name) for span in self.spans)

    @property
    def accepted(self) -> Tally:
        """Accepted rows among all rows since the monitor started."""
        return Tally(self._total("accepted"), self._total("rows"))

    @property
    def errors(self) -> Tally:
        """Errors among the accepted rows whose labels are known."""
        return Tally(self._total("errors"), self._total("labels"))

    @property
    def log_e_values(self) -> dict[MonitorName, float]:
        """The logarithm of the e-value of each monitor: the mean of all batches together and of the restarts."""
        watched = ((name, getattr(self, name)) for name in self.settings.watched)
        return {
            name: float(np.logaddexp(monitor.log_e_value, monitor.restarts_log_e_value)) - math.log(2.0)
            for name, monitor in watched
        }

    def judged(self, late: str | None = None) -> MonitorState:
        """The state with its last batch's e-values and the alarms that follow from them.

        `late` names the batch whose late labels came: what was written of the last batch stays then.
        """
        evidence, last = self.log_e_values, self.batches[-1]
        alarms = {alarm.monitor: alarm for alarm in self.alarms}
        for name, value in evidence.items():
            if value >= self.settings.bar and name not in alarms:
                alarms[name] = Alarm(monitor=name, batch=last.name, log_e=value, late=late)
        if late is None:
            last = replace(last, log_e={str(name): value for name, value in evidence.items()})
        return replace(self, alarms=tuple(alarms.values()), batches=(*self.batches[:-1], last))

    def __post_init__(self) -> None:
        names, watched = [batch.name for batch in self.batches], self.settings.watched
        prints = tuple(batch.fingerprint for batch in self.batches)
        if not names or len(names) > KEPT_BATCHES or len(set(names)) < len(names):
            raise ValueError("'batches' is empty, too long or has a name twice")
        if len(set(self.seen)) < len(self.seen) or self.seen[-len(prints) :] != prints:
            raise ValueError("'seen' does not go with 'batches'")
        Fingerprint.parse(self.last, self.batches[-1].rows)
        if {name for name in ("risk", "coverage", "drift") if getattr(self, name) is not None} != set(watched):
            raise ValueError("'risk', 'coverage' and 'drift' do not go with 'settings'")
        if not {alarm.monitor for alarm in self.alarms} <= set(watched):
            raise ValueError("'alarms' does not go with 'settings'")
        for parts in (self.by_prediction or {}, self.by_group or {}):
            if any(accepted > rows for counts in parts.values() for rows, accepted in (counts[:2], counts[2:])):
                raise ValueError("more rows are accepted than there are")
        for monitor in (self.risk, self.coverage):
            if monitor is not None and len(monitor.restarts.log_values) != LOG_ODDS.size * (monitor.restarts.looks > 0):
                raise ValueError("the evidence of a monitor is not whole")
