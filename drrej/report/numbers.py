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


def percent(value: float | None, least: int = 1) -> str:
    """A share as a percentage with `least` decimals, or as many more as keep it from looking like 0 or 100 %."""
    if value is None:
        return "-"
    for digits in range(least, 7):
        text = f"{100 * value:.{digits}f}"
        whole = float(text)
        if (whole == 100) == (value == 1) and (whole == 0) == (value == 0):
            break
    return f"{text} %"


def percents(lower: float, upper: float) -> str:
    """An interval of shares as percentages."""
    for digits in range(1, 7):
        low, high = f"{100 * lower:.{digits}f}", f"{100 * upper:.{digits}f}"
        if low != high or lower == upper:
            break
    return f"{low}\N{EN DASH}{high} %"


def counted(number: int, what: str) -> str:
    """`1 error`, `2 errors`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
