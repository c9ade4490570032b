"""Figures of one class or one group by name: `accuracy[class=cat]`, `coverage[group=eu].lower`.

They are not stored as such: a report has the counts of each class and of each group, and these figures follow.
"""

from __future__ import annotations

import difflib
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any

from drrej.core.intervals import proportion
from drrej.documents.document import GateRow
from drrej.documents.fields import EXACT, NONE, About, Unit
from drrej.documents.points import Accuracy, Coverage, Point, Proportion
from drrej.errors import GateError
from drrej.records import dataclass

_SLICE = re.compile(r"([A-Za-z_]\w*)\[(class|group)=(.+)\]((?:\.\w+)?)")
_NEAR_MEMBERS = 4


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
    found = difflib.get_close_matches(member, known, _NEAR_MEMBERS)
    if found:
        return f"; did you mean {', '.join(found)}?"
    return (
        f"; there are {', '.join(known[:_NEAR_MEMBERS])}{', ...' if len(known) > _NEAR_MEMBERS else ''}"
        if known
        else ""
    )


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


_COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_NUMBER = r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
_METRIC = r"[A-Za-z_][\w.@=+-]*?(?:\[(?:class|group)=[^\n]+?\](?:\.\w+)?)?"
_GATE = re.compile(rf"\s*({_METRIC})\s*(>=|<=|>|<)\s*({_NUMBER})\s*")
TARGET = "target"
"""The gate that is the target of the threshold."""

_HINT = "write METRIC OP NUMBER and quote the gate, e.g. `gate='accuracy >= 0.97'`"


@dataclass(frozen=True)
class Gate:
    """A parsed gate: a metric, a comparison and a limit.

    >>> Gate.parse("accuracy >= 0.97")
    Gate(text='accuracy >= 0.97', metric='accuracy', op='>=', limit=0.97)
    """

    text: str
    metric: str
    op: str
    limit: float

    @classmethod
    def parse(cls, text: str) -> Gate:
        """Parse `METRIC OP NUMBER`, or `target`: what the threshold was chosen for."""
        if text.strip() == TARGET:
            return cls(TARGET, TARGET, "", 0.0)
        match = _GATE.fullmatch(text)
        if match is None:
            raise GateError(f"gate '{text}' cannot be read; {_HINT}")
        metric, op, number = match.groups()
        limit = float(number)
        if not math.isfinite(limit):
            raise GateError(f"gate '{text}': the limit is not a finite number; {_HINT}")
        return cls(f"{metric} {op} {number}", metric, op, limit)

    @property
    def point(self) -> Point | None:
        """The point of the curve that the metric names, if it names one."""
        return Point.parse(self.metric)[0] if "@" in self.metric and self.slice is None else None

    @property
    def slice(self) -> Slice | None:
        """The class or group whose figure the metric is, if it is one's."""
        return Slice.parse(self.metric)

    @property
    def name(self) -> str:
        """The metric as the catalogue has it: points of the curve are spelled in one way."""
        if "@" not in self.metric or self.slice is not None:
            return self.metric
        point, part = Point.parse(self.metric)
        return point.name if part is None else f"{point.name}.{part}"

    def judge(self, report: Mapping[str, Any]) -> GateRow:
        """The gate's row of a report. Raises when the report has no number there."""
        if self.metric == TARGET:
            return _judge_target(report)
        try:
            value = lookup(report, self.metric)
        except GateError as error:
            raise GateError(f"gate '{self.text}': {error}") from None
        if value is None:
            raise GateError(
                f"gate '{self.text}': {self.metric} is undefined on these rows, so the gate can say nothing"
            )
        return GateRow(gate=self.text, value=value, limit=self.limit, passed=_COMPARE[self.op](value, self.limit))


def _judge_target(report: Mapping[str, Any]) -> GateRow:
    """The target as a gate: it fails where these rows contradict the target, see `core.thresholds`."""
    target = report.get(TARGET)
    if target is None:
        raise GateError(
            "gate 'target': the threshold was chosen by a tau or a largest loss, which promises nothing; "
            "choose it by `accuracy`, `risk` or `coverage`"
        )
    first = next(promise for promise in target["promises"] if promise["verdict"] == target["verdict"])
    if first["value"] is None:
        raise GateError(
            f"gate 'target': the {first['what']} is undefined on these rows, so the gate can say nothing; it takes "
            "labels and accepted rows"
        )
    passed = target["verdict"] != "missed"
    return GateRow(gate=TARGET, value=first["value"], limit=first["wanted"], passed=passed)


def lookup(report: Mapping[str, Any], metric: str) -> float | None:
    """The number at a dotted path of a report; a section stands for its `value`.

    >>> lookup({"accuracy": {"value": 0.97, "errors": 3}}, "accuracy"), lookup({"accuracy": {"value": 0.97}}, "rows")
    (0.97, None)
    """
    node: Any = report
    keys = metric.split(".")
    member = Slice.parse(metric)
    if member is not None:
        node, keys = member.figures(report), member.path.split(".")
    elif "@" in metric:
        point, part = Point.parse(metric)
        keys = ["points", point.name, part or "value"]
    for key in keys:
        node = node.get(key) if isinstance(node, Mapping) else None
    if isinstance(node, Mapping):
        node = node.get("value")
    if isinstance(node, bool) or not isinstance(node, int | float):
        return None
    return float(node)
