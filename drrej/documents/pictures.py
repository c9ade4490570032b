"""What a page or a plot shows besides the figures: in the report when one of them is wanted, and never for gates."""

from __future__ import annotations

from typing import Annotated, Literal

from drrej.documents.fields import About, Count, Share, ShareOrNone, Unit
from drrej.documents.points import Accuracy, Coverage, CurvePoint
from drrej.records import dataclass


@dataclass(frozen=True, kw_only=True)
class IdealPoint:
    """Accuracy at one coverage if every right row came before every wrong one."""

    coverage: Share
    accuracy: Share


@dataclass(frozen=True, kw_only=True)
class Bin:
    """Rows whose confidence lies in (lower, upper], with its mean and their accuracy."""

    lower: Share
    upper: Share
    rows: Count
    share: Share
    confidence: Share
    accuracy: Share


@dataclass(frozen=True, kw_only=True)
class Reliability:
    """The bins of the ECE before and after calibration."""

    uncalibrated: tuple[Bin, ...]
    calibrated: tuple[Bin, ...]


@dataclass(frozen=True, kw_only=True)
class LossHistogram:
    """Rows by expected loss: right and wrong ones apart or, without labels, all of them."""

    scale: Literal["linear", "log"]
    edges: tuple[float, ...]
    right: Annotated[tuple[int, ...] | None, About(unit=Unit.COUNT)] = None
    wrong: Annotated[tuple[int, ...] | None, About(unit=Unit.COUNT)] = None
    rows: Annotated[tuple[int, ...] | None, About(unit=Unit.COUNT)] = None


@dataclass(frozen=True, kw_only=True)
class _Counts:
    name: str
    rows: Count
    accepted: Count
    errors: Count
    coverage: Share
    accuracy: ShareOrNone
    error_rate: ShareOrNone
    base_accuracy: Share


@dataclass(frozen=True, kw_only=True)
class Member(_Counts):
    """A class or a group; `of_highest` is its error rate relative to the highest of all."""

    of_highest: Share


@dataclass(frozen=True, kw_only=True)
class Rest(_Counts):
    """Those that have no row of their own, taken together."""

    members: Count
    of_highest: Share


@dataclass(frozen=True, kw_only=True)
class Members:
    """Classes or groups, the lowest accuracy first."""

    shown: tuple[Member, ...]
    rest: Rest | None


@dataclass(frozen=True, kw_only=True)
class Confusion:
    """A true class that was taken for another one."""

    label: str
    prediction: str
    rows: Count
    share: Share


@dataclass(frozen=True, kw_only=True)
class Confusions:
    """The commonest errors among the accepted rows, and how many there are besides."""

    errors: Count
    top: tuple[Confusion, ...]
    other_pairs: Count
    other_rows: Count


@dataclass(frozen=True, kw_only=True)
class BaselineCurve:
    """The curve and the decision that the report is compared with."""

    coverage_curve: tuple[CurvePoint, ...]
    coverage: Coverage
    accuracy: Accuracy


@dataclass(frozen=True, kw_only=True)
class Made:
    """The report's title, day (of UTC), data and model; how the rejector came to be, in words and as commands."""

    title: str | None = None
    date: str | None = None
    data: str | None = None
    model: str | None = None
    words: tuple[str, ...]
    commands: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Pictures:
    """What is drawn; most of it needs labels."""

    ideal: tuple[IdealPoint, ...] | None = None
    reliability: Reliability | None = None
    losses: LossHistogram
    classes: Members | None = None
    confusions: Confusions | None = None
    groups: Members | None = None
    baseline: BaselineCurve | None = None
    made: Made
