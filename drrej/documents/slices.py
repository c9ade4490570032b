"""Figures of one class or one group by name: `accuracy[class=cat]`, `coverage[group=eu].lower`.

They are not stored as such: a report has the counts of each class and of each group, and these figures follow.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from drrej.core.intervals import proportion
from drrej.documents.about import EXACT, NONE, About, Unit
from drrej.documents.proportions import Accuracy, Coverage, Proportion
from drrej.errors import GateError
from drrej.records import dataclass

_SLICE = re.compile(r"([A-Za-z_]\w*)\[(class|group)=(.+)\]((?:\.\w+)?)")
_NEAR = 4


@dataclass(frozen=True, kw_only=True)
class ClassFigures:
    """What gates may ask about the rows of one true class."""

    rows: Annotated[int, About("rows", Unit.COUNT, "neither", NONE)]
    coverage: Annotated[Coverage, About("share of the rows that are accepted", Unit.SHARE, "higher", EXACT)]
    accuracy: Annotated[Accuracy, About("share of the accepted rows that are right", Unit.SHARE, "higher", EXACT)]
    risk: Annotated[Proportion, About("share of the accepted rows that are wrong", Unit.SHARE, "lower", EXACT)]
    errors: Annotated[int, About("wrong predictions among the accepted rows", Unit.COUNT, "lower", NONE)]


@dataclass(frozen=True, kw_only=True)
class GroupFigures(ClassFigures):
    """What gates may ask about the rows of one group."""

    base_accuracy: Annotated[Accuracy, About("share of all rows that are right", Unit.SHARE, "higher", EXACT)]


FIGURES: dict[str, type[ClassFigures]] = {"class": ClassFigures, "group": GroupFigures}


@dataclass(frozen=True)
class Slice:
    """A figure of the rows of one class or group.

    >>> Slice.parse("accuracy[class=cat].lower")
    Slice(path='accuracy.lower', kind='class', member='cat')
    """

    path: str
    kind: str
    member: str

    @classmethod
    def parse(cls, metric: str) -> Slice | None:
        """The slice that a metric names, if it names one. Quotes around the member may be left out."""
        match = _SLICE.fullmatch(metric)
        if match is None:
            return None
        name, kind, member, part = match.groups()
        if len(member) > 1 and member[0] == member[-1] and member[0] in "\"'":
            member = member[1:-1]
        return cls(name + part, kind, member)

    def figures(self, report: Mapping[str, Any]) -> dict[str, Any]:
        """The figures of the member on a report; raises when no row is in it."""
        rows = {str(row[self.kind]): row for row in report.get(f"per_{self.kind}", ())}
        if self.member not in rows:
            raise GateError(f"no row is of {self.kind} '{self.member}'{near(self.member, list(rows))}")
        return dict(_figures(rows[self.member]))


def near(member: str, known: Sequence[str]) -> str:
    """The members whose names look alike, else the first of all, for a message."""
    found = difflib.get_close_matches(member, known, _NEAR)
    if found:
        return f"; did you mean {', '.join(found)}?"
    return f"; there are {', '.join(known[:_NEAR])}{', ...' if len(known) > _NEAR else ''}" if known else ""


def _figures(row: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """From the counts of a class, or of a group."""
    rows = row["rows"]
    if isinstance(row["coverage"], Mapping):
        accepted, errors = row["coverage"]["accepted"], row["accuracy"]["errors"]
        yield "base_accuracy", row["base_accuracy"]
    else:
        accepted = round(row["coverage"] * rows)
        errors = accepted - round((row["accuracy"] or 0.0) * accepted)
    yield "rows", rows
    yield "coverage", {**proportion(accepted, rows), "accepted": accepted}
    yield "accuracy", {**proportion(accepted - errors, accepted), "errors": errors}
    yield "risk", proportion(errors, accepted)
    yield "errors", errors
