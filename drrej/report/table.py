"""A table of texts, and how shares are written in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from drrej.records import dataclass
from drrej.report.numbers import Spread, figure, interval, percent, percents, plain


@dataclass(frozen=True)
class Style:
    """How a share and its interval, and other numbers, are written."""

    share: Callable[[Any], str]
    interval: Callable[[Spread], str]
    number: Callable[[Any], str]
    fine: Callable[[Any], str]


DECIMALS = Style(figure, interval, figure, partial(figure, digits=6))
PERCENT = Style(percent, percents, plain, plain)
"""As logs and pages have them."""


@dataclass(frozen=True)
class Table:
    """A header, rows of as many cells, and a remark below. Without a header the rows are plain lines."""

    id: str
    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    remark: str = ""
    notes: Sequence[str] = ()
    """A sentence on each row, for those who have room."""
