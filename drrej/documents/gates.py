"""Gates, and the catalogue of what they may name: every number of a report, derived from the report's classes.

Figures of one class or one group (`accuracy[class=cat]`, `coverage[group=eu].lower`) are not stored as such: a report
has the counts of each class and of each group, and these figures follow.

>>> [metric.name for metric in catalogue([When.LABELS]) if metric.name.startswith("accuracy.")]
['accuracy.value', 'accuracy.lower', 'accuracy.upper', 'accuracy.errors']
"""

from __future__ import annotations

import difflib
import math
import operator
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Annotated, Any

from msgspec import Struct
from msgspec.structs import replace

from drrej.core.intervals import proportion
from drrej.core.thresholds import as_share
from drrej.core.types import Stored
from drrej.documents.document import EXACT, NONE, About, Count, Document, Entry, GateRow, Unit, When, about, entries
from drrej.documents.figures import DEFAULT_POINTS, Accuracy, Coverage, Point, PointFigure, Proportion
from drrej.documents.report import Report
from drrej.errors import GateError

_OF_GROUP = re.compile(r"([A-Za-z_]\w*)\[(class|group)=(.+)\]((?:\.\w+)?)")
_NEAR_MEMBERS = 4


class GroupFigures(Stored, frozen=True, kw_only=True):
    """What gates may ask about the rows of one true class, or of one group."""

    rows: Annotated[Count, about("rows", "neither", NONE)]
    coverage: Annotated[Coverage, about("share of the rows that are accepted", "higher", EXACT)]
    accuracy: Annotated[Accuracy, about("share of the accepted rows that are right", "higher", EXACT)]
    risk: Annotated[Proportion, about("share of the accepted rows that are wrong", "lower", EXACT)]
    errors: Annotated[Count, about("wrong predictions among the accepted rows", "lower", NONE)]
    base_accuracy: Annotated[Accuracy, about("share of all rows that are right", "higher", EXACT, When.GROUPS)]


class GroupFigure(Struct, frozen=True):
    """A figure of the rows of one class or group.

    >>> GroupFigure.parse("accuracy[class=cat].lower")
    GroupFigure(path='accuracy.lower', kind='class', member='cat')
    """

    path: str
    kind: str
    member: str

    @classmethod
    def parse(cls, metric: str) -> GroupFigure | None:
        """The class or group whose figure a metric names, if it names one. Quotes around the member may be left out."""
        match = _OF_GROUP.fullmatch(metric)
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

FRESH = "fresh"
"""The gate that fails where a step that made the rejector has used some of the rows."""

_HINT = "write METRIC OP NUMBER and quote the gate, e.g. `gate='accuracy >= 0.97'`"


class Gate(Struct, frozen=True):
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
        """Parse `METRIC OP NUMBER`, `target` (what the threshold was chosen for) or `fresh` (rows no step has used)."""
        if text.strip() in (TARGET, FRESH):
            return cls(text.strip(), text.strip(), "", 0.0)
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
        return Point.parse(self.metric)[0] if "@" in self.metric and self.of_group is None else None

    @property
    def of_group(self) -> GroupFigure | None:
        """The class or group whose figure the metric is, if it is one's."""
        return GroupFigure.parse(self.metric)

    @property
    def name(self) -> str:
        """The metric as the catalogue has it: points of the curve are spelled in one way."""
        if "@" not in self.metric or self.of_group is not None:
            return self.metric
        point, part = Point.parse(self.metric)
        return point.name if part is None else f"{point.name}.{part}"

    def judge(self, document: Mapping[str, Any] | Document) -> GateRow:
        """The gate's row of a report. Raises when the report has no number there."""
        report = document.tree if isinstance(document, Document) else document
        if self.metric == TARGET:
            return _judge_target(report)
        if self.metric == FRESH:
            seen_by = report.get("seen_by") or ()
            return GateRow(gate=FRESH, value=float(len(seen_by)), limit=0.0, passed=not seen_by)
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
    member = GroupFigure.parse(metric)
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


# The catalogue

_NEAR = 6
"""So many names are proposed instead of one that is not known."""

GROUPS = {"class": When.LABELS, "group": When.GROUPS}
"""What the figures of a class or of a group take."""

_USUAL = [Point.parse(text)[0] for text in DEFAULT_POINTS]


class Metric(Struct, frozen=True):
    """A number of a report: its dotted name, and what the report declares about it.

    `better` is "higher", "lower" or "neither"; `interval` says how its 95 % interval is made; `needs` is what the
    report must be asked for, in words, or empty.
    """

    name: str
    meaning: str
    unit: str
    better: str
    interval: str
    needs: str = ""


def catalogue(
    conditions: Collection[When] = frozenset(When), of: type[Document] = Report, points: Sequence[Point] = _USUAL
) -> list[Metric]:
    """The metrics of the reports of a kind that are made under these conditions, in the order of the document.

    A section with a `value` can be named without it. Points of the curve have no end: those given are listed.

    >>> next(metric for metric in catalogue() if metric.name == "risk").meaning
    'Share of the accepted rows whose prediction is wrong.'
    """
    return list(_walk(of, "", About(), conditions, points))


def _walk(
    kind: type[Struct], prefix: str, section: About, conditions: Collection[When], points: Sequence[Point]
) -> Iterator[Metric]:
    for entry in entries(kind):
        declared = _declared(entry, section)
        if not declared.gate or not (declared.when is None or declared.when in conditions):
            continue
        name = prefix + entry.key
        if entry.section is not None:
            keys = {inner.key: inner for inner in entries(entry.section)}
            if "value" in keys:
                yield _metric(name, _declared(keys["value"], declared))
            yield from _walk(entry.section, name + ".", declared, conditions, points)
        elif dict[str, PointFigure] in entry.kinds:
            for point in points:
                at = point.about.inside(declared)
                yield _metric(point.name, at)
                yield from _walk(PointFigure, point.name + ".", at, conditions, points)
        elif float in entry.kinds or (int in entry.kinds and str not in entry.kinds):
            yield _metric(name, declared)


def _declared(entry: Entry, section: About) -> About:
    """What is declared about a field; the ends of an interval are there when the interval is."""
    declared = entry.about.inside(section)
    if entry.key in ("lower", "upper") and declared.interval is not None and declared.interval.when is not None:
        return replace(declared, when=declared.interval.when)
    return declared


def _metric(name: str, declared: About) -> Metric:
    assert declared.unit is not None
    assert declared.better is not None
    return Metric(
        name,
        declared.meaning[:1].upper() + declared.meaning[1:] + ".",
        declared.unit.value,
        declared.better,
        (declared.interval or NONE).word,
        "" if declared.when is None else declared.when.value,
    )


def check_gate(gate: Gate, conditions: Collection[When], of: type[Document] = Report) -> None:
    """Raise unless the gate names a metric that reports made under these conditions have."""
    if gate.metric == TARGET or (gate.metric == FRESH and hasattr(of, "seen_by")):
        return
    if gate.of_group is not None:
        _check_of_group(gate, gate.of_group, conditions, of)
        return
    points = [*_USUAL, *([] if gate.point is None else [gate.point])]
    known = {metric.name: metric for metric in catalogue(conditions, of, points)}
    if gate.name in known:
        _check_limit(gate, known[gate.name].unit)
        return
    said = f"gate '{gate.text}': there is no metric '{gate.metric}'"
    elsewhere = {metric.name: metric.needs for metric in catalogue(of=of, points=points)}
    if gate.name in elsewhere:
        raise GateError(f"{said} in this report; it needs {elsewhere[gate.name]}")
    raise GateError(said + _proposal(gate.name, list(known)))


def _proposal(name: str, known: Sequence[str]) -> str:
    found = _near(name, known)
    if found:
        return f"; did you mean {', '.join(found)}? 'drrej metrics' lists them all"
    return f"; known: {', '.join(name for name in known if '.' not in name and '@' not in name)}"


def _check_limit(gate: Gate, unit: str) -> None:
    """Raise for a limit that no such figure can be near to, such as a percentage in place of a share."""
    if unit in (Unit.SHARE.value, Unit.P_VALUE.value) and not 0 <= gate.limit <= 1:
        hint = as_share(gate.limit) or "; then the gate would always say the same"
        raise GateError(f"gate '{gate.text}': {gate.metric} is a {unit} from 0 to 1{hint}")
    if unit == Unit.DIFFERENCE.value and abs(gate.limit) > 1:
        hint = as_share(abs(gate.limit)) and f"; for {gate.limit:g} % write {gate.limit / 100:g}"
        raise GateError(f"gate '{gate.text}': {gate.metric} is a difference from -1 to 1{hint}")


def _check_of_group(gate: Gate, member: GroupFigure, conditions: Collection[When], of: type[Document]) -> None:
    when = GROUPS[member.kind]
    said = f"gate '{gate.text}': there is no metric '{gate.metric}'"
    if of is not Report or when not in conditions:
        raise GateError(f"{said} in this report; it needs {when.value if of is Report else When.LABELS.value}")
    known = {metric.name: metric for metric in _walk(GroupFigures, "", About(), {when}, ())}
    if member.path not in known:
        raise GateError(f"{said}{_proposal(member.path, list(known))}")
    _check_limit(gate, known[member.path].unit)


def group_metrics(kind: str, name: str = "NAME") -> list[Metric]:
    """The metrics of one member of a kind, "class" or "group".

    >>> [metric.name for metric in group_metrics("class", "cat")][:3]
    ['rows[class=cat]', 'coverage[class=cat]', 'coverage[class=cat].value']
    """
    section = About(f"of the rows of one {kind}", when=GROUPS[kind])
    return [
        replace(metric, name="".join([head, f"[{kind}={name}]", dot, part]))
        for metric in _walk(GroupFigures, "", section, {GROUPS[kind]}, ())
        for head, dot, part in [metric.name.partition(".")]
    ]


def _near(name: str, known: Sequence[str]) -> list[str]:
    """The members of the section that a name begins with, then names that look alike."""
    section = name.split(".")[0] + "."
    members = [metric for metric in known if metric.startswith(section)]
    return list(dict.fromkeys([*members, *difflib.get_close_matches(name, known, _NEAR)]))[:_NEAR]
