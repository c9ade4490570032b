"""How figures are written for people."""

from __future__ import annotations

from typing import Any


def figure(value: Any, digits: int = 4) -> str:
    """A figure with `digits` decimals, or in scientific notation where those would show too little of it.

    Whole numbers are counts and are written out; None is a dash.
    """
    if value is None:
        return "-"
    if isinstance(value, int):
        return str(value)
    if value != 0 and abs(value) < 10.0 ** (2 - digits):
        return f"{value:.{digits - 1}e}"
    return f"{value:.{digits}f}"


def against(value: float, limit: float) -> str:
    """A value with enough digits to tell it from a limit."""
    for digits in range(4, 17):
        text = f"{value:.{digits}g}"
        if (float(text) > limit, float(text) < limit) == (value > limit, value < limit):
            return text
    return repr(value)


def interval(group: dict[str, Any], digits: int = 4) -> str:
    """Lower - upper; a dash for none."""
    if group["lower"] is None:
        return "-"
    return f"{figure(group['lower'], digits)} - {figure(group['upper'], digits)}"
