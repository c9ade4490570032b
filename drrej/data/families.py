"""Columns that belong together by their names: prefix + class number, or prefix + class name."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence

import pyarrow as pa

from drrej.data.names import LABEL_NAMES
from drrej.data.problems import shown
from drrej.errors import DumpError

Matched = tuple[tuple[str, ...], tuple[str, ...] | None]
"""Columns in class order, and the names of the classes if they have some."""

_NUMBERED = re.compile(r"(.*?)(0|[1-9]\d*)")
_WORDS = re.compile(r"(.*(?:prob|proba|probs|probability|logit|logits|score|scores|pred)[_.:-])(.+)", re.IGNORECASE)


def is_number(data_type: pa.DataType, typed: bool = True) -> bool:
    """Whether values are floating-point, or whole where numbers are written as text and nobody can tell."""
    return bool(pa.types.is_floating(data_type) or (not typed and pa.types.is_integer(data_type)))


def families(schema: pa.Schema, typed: bool = True) -> dict[str, tuple[str, ...]]:
    """Families prefix + 0..K-1 of floating-point columns, in numeric order, by their prefix.

    Of numbers that are written as text, some of a family may look whole.
    """
    members: dict[str, dict[int, str]] = {}
    floating = set()
    for field in schema:
        match = _NUMBERED.fullmatch(field.name)
        if match is not None and is_number(field.type, typed):
            members.setdefault(match[1], {})[int(match[2])] = field.name
            if pa.types.is_floating(field.type):
                floating.add(match[1])
    return {
        prefix: tuple(numbered[i] for i in range(len(numbered)))
        for prefix, numbered in members.items()
        if prefix in floating and len(numbered) >= 2 and sorted(numbered) == list(range(len(numbered)))
    }


def named_families(schema: pa.Schema, typed: bool, label: str) -> list[str]:
    """Prefixes of columns that end in a class name after a word for scores: prob_cat and prob_dog."""
    members: dict[str, list[str]] = {}
    for field in schema:
        match = _WORDS.fullmatch(field.name)
        if match is not None and field.name not in (label, *LABEL_NAMES) and is_number(field.type, typed):
            members.setdefault(match[1], []).append(match[2])
    return [prefix for prefix, names in members.items() if len(names) >= 2]


def match_columns(schema: pa.Schema, pattern: str, classes: Sequence[str] | None, typed: bool, where: str) -> Matched:
    """The columns of a glob or of a comma list.

    Columns of a glob that end in class numbers are in numeric order; others have the order of the file, or of the
    `classes`, and what the star stands for is the name of the class. A comma list has the order of the classes.
    """
    if not any(mark in pattern for mark in "*?["):
        return _listed(schema, pattern, classes, typed, where)
    names = [name for name in schema.names if fnmatch.fnmatchcase(name, pattern)]
    if pattern.endswith("*"):  # PREFIX* means the numbered columns: logit_max is not a class
        prefix = pattern[:-1]
        numbered = [name for name in schema.names if _is_member(name, prefix)]
        names = numbered or names
    if not names:
        raise DumpError(f"{where}: no column matches `logits='{pattern}'`; columns: {shown(schema.names)}")
    if len(names) == 1 and not is_number(schema.field(names[0]).type, typed):
        return (names[0],), None
    _check_numbers(schema, names, f"matches `logits='{pattern}'`", typed, where)
    if all(_NUMBERED.fullmatch(name) for name in names):
        return _in_numeric_order(names, pattern, where), None
    return _named(names, pattern, classes, where)


def _named(names: Sequence[str], pattern: str, classes: Sequence[str] | None, where: str) -> Matched:
    if pattern.count("*") != 1 or "?" in pattern or "[" in pattern:
        raise DumpError(
            f"{where}: `logits='{pattern}'`: one star is needed, which stands for the names of the classes "
            f"({shown(names)} match); or list the columns in class order: `logits=A,B,...`"
        )
    before, after = pattern.split("*")
    by_class = {name[len(before) : len(name) - len(after)]: name for name in names}
    if len(by_class) < 2 or "" in by_class:
        raise DumpError(f"{where}: `logits='{pattern}'` matches only {shown(names)}; each class needs a column")
    if classes is None:
        return tuple(by_class.values()), tuple(by_class)
    missing = [name for name in classes if name not in by_class]
    more = [name for name in by_class if name not in classes]
    if missing or more:
        what = (
            f"there is no column '{before}{missing[0]}{after}'"
            if missing
            else f"'{by_class[more[0]]}' is not of a class"
        )
        raise DumpError(f"{where}: {what}: `logits='{pattern}'` is for the classes {shown(list(classes))}")
    return tuple(by_class[name] for name in classes), tuple(classes)


def _listed(schema: pa.Schema, listed: str, classes: Sequence[str] | None, typed: bool, where: str) -> Matched:
    names = [name.strip() for name in listed.split(",")]
    missing = [name for name in names if name not in schema.names]
    if missing:
        raise DumpError(
            f"{where}: there is no column '{missing[0]}'; choose with `logits` among: {shown(schema.names)}"
        )
    if len(set(names)) < len(names) or len(names) < 2:
        raise DumpError(f"{where}: `logits={listed}`: name each class's column once")
    _check_numbers(schema, names, f"is in `logits={listed}`", typed, where)
    if classes is not None:
        return tuple(names), tuple(classes)
    prefix = re.match(r"(.*[_.:-])?", _common_prefix(names))
    cut = len(prefix[0]) if prefix else 0
    spelled = [name[cut:] for name in names]
    return tuple(names), None if all(name.isdigit() for name in spelled) else tuple(spelled)


def _common_prefix(names: Sequence[str]) -> str:
    low, high = min(names), max(names)
    length = next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high)))
    return low[:length]


def _in_numeric_order(names: Sequence[str], pattern: str, where: str) -> tuple[str, ...]:
    matches = [_NUMBERED.fullmatch(name) for name in names]
    numbered = {int(match[2]): name for name, match in zip(names, matches, strict=True) if match is not None}
    prefixes = {match[1] for match in matches if match is not None}
    if len(prefixes) > 1:
        found = shown([f"{prefix}*" for prefix in sorted(prefixes)])
        raise DumpError(f"{where}: `logits='{pattern}'` matches several families of columns ({found}); choose one")
    if sorted(numbered) != list(range(len(numbered))) or len(names) < 2:
        missing = next(i for i in range(len(numbered) + 1) if i not in numbered)
        raise DumpError(
            f"{where}: `logits='{pattern}'` matches {len(names)} columns but '{prefixes.pop()}{missing}' is missing; "
            "classes must be numbered 0 to K-1"
        )
    return tuple(numbered[i] for i in range(len(numbered)))


def _check_numbers(schema: pa.Schema, names: Sequence[str], what: str, typed: bool, where: str) -> None:
    wrong = next((name for name in names if not is_number(schema.field(name).type, typed)), None)
    if wrong is not None:
        raise DumpError(
            f"{where}: column '{wrong}' {what} but is {schema.field(wrong).type}; "
            "logits must be floating-point numbers: cast it to float32"
        )


def _is_member(name: str, prefix: str) -> bool:
    match = _NUMBERED.fullmatch(name)
    return match is not None and match[1] == prefix
