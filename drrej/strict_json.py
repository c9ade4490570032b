"""JSON that others have written: what would be read as something else than is written there is refused.

>>> parse('{"tau": 0.5, "tau": 0.7}')
Traceback (most recent call last):
ValueError: the key "tau" occurs twice
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

_MOST_DIGITS = 1000


def parse(text: str) -> Any:
    """The tree of a JSON text; ValueError with a reason for damage, doubled keys, NaN, endless numbers or nesting."""
    try:
        return json.loads(text, parse_constant=_no_constant, parse_int=_whole, object_pairs_hook=no_doubled)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def shown(text: str) -> str:
    """Text of a document for a message: on one line, and not too long."""
    return json.dumps(text, ensure_ascii=False)[1:-1][:60]


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def _whole(digits: str) -> int | float:
    """One that counts something has 64 bits; others are read as JSON's numbers are."""
    if len(digits) > _MOST_DIGITS:  # far beyond every float; reading them takes quadratic time
        raise ValueError(f"a number of {len(digits)} digits")
    whole = int(digits)
    return whole if abs(whole) < 2**63 else float(digits)


def no_doubled(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON; ValueError where a key occurs twice, of which one would win without a word."""
    tree = dict(pairs)
    if len(tree) < len(pairs):
        keys = Counter(key for key, _ in pairs)
        raise ValueError(f'the key "{shown(max(keys, key=keys.__getitem__))}" occurs twice')
    return tree
