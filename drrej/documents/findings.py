"""Findings about the values of a document: the key, whether its value is right, and what is wrong with it if not."""

from __future__ import annotations

import math
from collections.abc import Iterable

Finding = tuple[str, bool, str]
"""A key, whether its value is right, and what is wrong with it if not."""

RANGE = "is out of range"
NEAR = 1e-9
"""Numbers are written with all digits; computed again elsewhere they differ by a few units in the last place."""


def expect(findings: Iterable[Finding], where: str, error: type[Exception]) -> None:
    """Raise an error about the first finding that is wrong."""
    for key, right, wrong in findings:
        if not right:
            raise error(f"{where}: the value of '{key}' {wrong}")


def is_near(a: float | None, b: float | None) -> bool:
    """Whether two numbers are the same but for rounding; None is only like None."""
    if a is None or b is None:
        return a is b
    return math.isclose(a, b, rel_tol=NEAR, abs_tol=0.0)
