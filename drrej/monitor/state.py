"""The state of a monitor: a small document that each batch's run replaces.

It holds what the monitors need to go on, the last batches one by one, all older ones as one, and a fingerprint
of every batch, so that none counts twice. Its digest tells whether it was edited.
"""

from __future__ import annotations

import math
from functools import reduce
from operator import add
from typing import Literal

import numpy as np
from msgspec.structs import replace

from drrej.core.types import Stored
from drrej.documents.document import AtLeastOne, Count, Document, Share
from drrej.errors import MonitorError
from drrej.monitor.evidence import LossDrift, RateMonitor

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

    def __add__(self, later: Batch) -> Batch:
        counted = ("rows", "accepted", "labels", "errors", "batches")
        counts = {name: getattr(self, name) + getattr(later, name) for name in counted}
        return Batch(**counts, first=self.first or self.name, name=later.name, log_e=later.log_e)


class Alarm(Stored, frozen=True, kw_only=True):
    """A monitor that alarmed, and the batch after which it first did."""

    monitor: MonitorName
    batch: str


class Reset(Stored, frozen=True, kw_only=True):
    """A monitor that was ended, why, and what it had seen."""

    why: str
    batches: AtLeastOne
    first: str
    last: str
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
    def total(self) -> Batch:
        """All batches since the monitor started, as one."""
        return reduce(add, self.batches if self.earlier is None else (self.earlier, *self.batches))

    @property
    def log_e_values(self) -> dict[MonitorName, float]:
        """The logarithm of the e-value of each monitor: the mean of all batches together and of the restarts."""
        watched = ((name, getattr(self, name)) for name in self.settings.watched)
        return {
            name: float(np.logaddexp(monitor.log_e_value, monitor.restarts_log_e_value)) - math.log(2.0)
            for name, monitor in watched
        }

    def judged(self) -> MonitorState:
        """The state with the alarms that follow from its e-values."""
        last, known = self.batches[-1].name, {alarm.monitor for alarm in self.alarms}
        high = [name for name, value in self.log_e_values.items() if value >= self.settings.bar and name not in known]
        return replace(self, alarms=(*self.alarms, *(Alarm(monitor=name, batch=last) for name in high)))

    def __post_init__(self) -> None:
        there = {name for name in ("risk", "coverage", "drift") if getattr(self, name) is not None}
        if not self.batches or there != set(self.settings.watched):
            raise ValueError("'batches' is empty, or 'risk', 'coverage' and 'drift' do not match 'settings'")
