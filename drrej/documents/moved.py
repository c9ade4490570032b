"""Where shares have moved, in documents."""

from __future__ import annotations

from drrej.documents.about import Count, ShareOrNone
from drrej.records import dataclass


@dataclass(frozen=True, kw_only=True)
class MovedPart:
    """A share of new rows against that of others, and the interval of the difference new - old.

    `at_least` is how far it has moved for sure, with its sign.
    """

    what: str
    part: str
    new: ShareOrNone
    old: ShareOrNone
    lower: float
    upper: float
    at_least: float


@dataclass(frozen=True, kw_only=True)
class Where:
    """The parts that surely moved, most first. The intervals hold for all that were `compared` together, at 95 %."""

    compared: Count
    parts: tuple[MovedPart, ...]
