"""How figures are written for people."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Protocol


class Spread(Protocol):
    """A figure with an interval, or with none."""

    @property
    def lower(self) -> float | None:
        """The lower end."""

    @property
    def upper(self) -> float | None:
        """The upper end."""


def figure(value: Any, digits: int = 4) -> str:
    """A figure with `digits` decimals, or in scientific notation where those would show too little of it.

    Whole numbers are counts and are written out; None is a dash.

    >>> figure(0.97573), figure(0.0099), figure(2060), figure(None)
    ('0.9757', '9.900e-03', '2060', '-')
    """
    if value is None:
        return "-"
    if isinstance(value, int):
        return str(value)
    if value != 0 and abs(value) < 10.0 ** (2 - digits):
        return f"{value:.{digits - 1}e}"
    return f"{value:.{digits}f}"


def short(value: float | None) -> str:
    """A number of any size with up to six digits; None is a dash.

    >>> short(1.0), short(1234567.0), short(None)
    ('1', '1.23457e+06', '-')
    """
    return "-" if value is None else f"{value:.6g}"


def plain(value: float | None) -> str:
    """A number with three significant digits and no exponent; None is a dash.

    >>> plain(0.0022571), plain(0.9911), plain(2.44e-05), plain(None)
    ('0.00226', '0.991', '0.0000244', '-')
    """
    return "-" if value is None else f"{Decimal(f'{value:.3g}'):f}"


def money(value: float) -> str:
    """A cost with one decimal, or with three significant digits where that shows more.

    >>> money(1213.592), money(251.456), money(0.02513), money(0.0)
    ('1,213.6', '251.5', '0.0251', '0.0')
    """
    return f"{value:,.1f}" if value == 0 or abs(value) >= 10 else plain(value)


def against(value: float, limit: float) -> str:
    """A value with enough digits to tell it from a limit.

    >>> against(0.969999, 0.97), against(0.5, 0.97)
    ('0.969999', '0.5')
    """
    for digits in range(4, 17):
        text = f"{value:.{digits}g}"
        if (float(text) > limit, float(text) < limit) == (value > limit, value < limit):
            return text
    return repr(value)


def interval(spread: Spread, digits: int = 4) -> str:
    """Lower - upper; a dash for none."""
    if spread.lower is None:
        return "-"
    return f"{figure(spread.lower, digits)} - {figure(spread.upper, digits)}"


def percent(value: float | None, least: int = 1) -> str:
    """A share as a percentage with `least` decimals, or as many more as keep it from looking like 0 or 100 %.

    >>> percent(0.5), percent(0.99996), percent(None)
    ('50.0 %', '99.996 %', '-')
    """
    if value is None:
        return "-"
    for digits in range(least, 7):
        text = f"{100 * value:.{digits}f}"
        whole = float(text)
        if (whole == 100) == (value == 1) and (whole == 0) == (value == 0):
            break
    return f"{text} %"


def percents(spread: Spread) -> str:
    """An interval of shares as percentages; a dash for none."""
    lower, upper = spread.lower, spread.upper
    if lower is None or upper is None:
        return "-"
    for digits in range(1, 7):
        low, high = f"{100 * lower:.{digits}f}", f"{100 * upper:.{digits}f}"
        if low != high or lower == upper:
            break
    return f"{low}\N{EN DASH}{high} %"


def counted(number: int, what: str) -> str:
    """`1 error`, `2 errors`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def exact_percent(share: float) -> str:
    """A share that a user wrote, as the percentage with the same digits.

    >>> exact_percent(0.98), exact_percent(0.07), exact_percent(0.9995), exact_percent(1.0)
    ('98 %', '7 %', '99.95 %', '100 %')
    """
    digits = f"{Decimal(repr(share)) * 100:f}"
    return f"{digits.rstrip('0').rstrip('.') if '.' in digits else digits} %"


def percents_against(shares: Sequence[float], limit: float) -> list[str]:
    """Shares in percent with one decimal, or as many more as tell each of them from a limit.

    >>> percents_against([0.961, 0.952], 0.98), percents_against([0.97996, 0.97], 0.98)
    (['96.1', '95.2'], ['97.996', '97.000'])
    """
    exact = Decimal(repr(limit)) * 100
    for digits in range(1, 15):
        texts = [f"{100 * share:.{digits}f}" for share in shares]
        sides = [(Decimal(text) > exact, Decimal(text) < exact) for text in texts]
        if sides == [(share > limit, share < limit) for share in shares]:
            break
    return texts
