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
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from drrej.core.intervals import proportion
from drrej.core.thresholds import as_share
from drrej.documents.document import NONE, About, Document, Entry, GateRow, When, entries
from drrej.documents.figures import DEFAULT_POINTS, Point, PointFigure
from drrej.documents.report import ClassRow, GroupRow, Report
from drrej.errors import GateError

TARGET = "target"
"""The gate that is the target of the threshold."""

FRESH = "fresh"
"""The gate that fails where a step that made the rejector has used some of the rows."""

DRIFT = "drift"
"""The gate that fails where the losses have moved since the fit, by their p-value."""

DRIFT_LEVEL = 0.01
"""The p-value below which drift counts as detected."""

VERDICTS = (TARGET, FRESH, DRIFT)
"""Gates without a number."""

_COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_NUMBER = r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
_METRIC = r"[A-Za-z_][\w.@=+-]*?(?:\[(?:class|group)=[^\n]+?\](?:\.\w+)?)?"
_GATE = re.compile(rf"\s*({_METRIC})\s*(>=|<=|>|<)\s*({_NUMBER})\s*")
_OF_GROUP = re.compile(r"([A-Za-z_]\w*)\[(class|group)=(.+)\]((?:\.\w+)?)")
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
        """Parse `METRIC OP NUMBER`, or a gate without a number, see `VERDICTS`."""
        if text.strip() in VERDICTS:
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
        return Point.parse(self.metric)[0] if "@" in self.metric and of_member(self.metric) is None else None

    def judge(self, document: Mapping[str, Any] | Document) -> GateRow:
        """The gate's row of a report. Raises when the report has no number there."""
        report = document.tree if isinstance(document, Document) else document
        if self.metric == TARGET:
            return _judge_target(report)
        if self.metric == FRESH:
            seen_by = report.get("seen_by") or ()
            return GateRow(gate=FRESH, value=float(len(seen_by)), limit=0.0, passed=not seen_by)
        metric, limit = (self.metric, self.limit) if self.metric != DRIFT else ("drift.p_value", DRIFT_LEVEL)
        try:
            value = lookup(report, metric)
        except GateError as error:
            raise GateError(f"gate '{self.text}': {error}") from None
        if value is None:
            raise GateError(f"gate '{self.text}': {metric} is undefined on these rows, so the gate cannot be evaluated")
        return GateRow(gate=self.text, value=value, limit=limit, passed=_COMPARE[self.op or ">="](value, limit))


def _judge_target(report: Mapping[str, Any]) -> GateRow:
    """The target as a gate: it fails where these rows contradict the target, see `core.thresholds`."""
    target = report.get(TARGET)
    if target is None:
        raise GateError(
            "gate 'target': the threshold was chosen by a tau or a largest loss, which sets no target; "
            "choose it by `accuracy`, `risk` or `coverage`"
        )
    first = next(promise for promise in target["promises"] if promise["verdict"] == target["verdict"])
    if first["value"] is None:
        raise GateError(
            f"gate 'target': the {first['what']} is undefined on these rows, so the gate cannot be evaluated; it "
            "requires labels and accepted rows"
        )
    passed = target["verdict"] != "missed"
    return GateRow(gate=TARGET, value=first["value"], limit=first["wanted"], passed=passed)


def lookup(report: Mapping[str, Any], metric: str) -> float | None:
    """The number at a dotted path of a report; a section stands for its `value`.

    >>> lookup({"accuracy": {"value": 0.97, "errors": 3}}, "accuracy"), lookup({"accuracy": {"value": 0.97}}, "rows")
    (0.97, None)
    """
    node: Any = report
    keys = named(metric).split(".")
    if (found := of_member(metric)) is not None:
        path, kind, member = found
        node, keys = _member_figures(report, kind, member), path.split(".")
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


# One class or group


def of_member(metric: str) -> tuple[str, str, str] | None:
    """The path, kind and name of a figure of one class or group; None for others. Quotes may be left out.

    >>> of_member("accuracy[class='cat'].lower"), of_member("accuracy")
    (('accuracy.lower', 'class', 'cat'), None)
    """
    match = _OF_GROUP.fullmatch(metric)
    if match is None:
        return None
    name, kind, member, part = match.groups()
    if len(member) > 1 and member[0] == member[-1] and member[0] in "\"'":
        member = member[1:-1]
    return named(name + part), kind, member


_OWN = {
    kind: {entry.key: entry for entry in entries(row) if entry.about.better is not None}
    for kind, row in (("class", ClassRow), ("group", GroupRow))
}
"""Figures that only a class has, or a group."""

SYNONYMS = {
    "ppv": "precision",
    "positive_predictive_value": "precision",
    "predictive_value": "precision",
    "negative_predictive_value": "npv",
    "sensitivity": "recall",
    "true_positive_rate": "recall",
    "tpr": "recall",
    "f1_score": "f1",
    "miss_rate": "missed",
}
"""Other words for figures of a class."""


def named(metric: str) -> str:
    """A metric by the name that reports have for it.

    >>> named("worst_class.ppv.lower")
    'worst_class.precision.lower'
    """
    return ".".join(SYNONYMS.get(part, part) for part in metric.split("."))


def _member_figures(report: Mapping[str, Any], kind: str, member: str) -> dict[str, Any]:
    """The figures of a class or group, from its counts; raises when no row is in it."""
    rows_of = {str(row[kind]): row for row in report.get(f"per_{kind}", ())}
    if member not in rows_of:
        raise GateError(f"no row belongs to {kind} '{member}'{near(member, list(rows_of))}")
    row = rows_of[member]
    rows, coverage, accuracy = row["rows"], row["coverage"], row["accuracy"]
    if kind == "group":
        accepted, errors = coverage["accepted"], accuracy["errors"]
    else:
        accepted = round((coverage or 0.0) * rows)
        errors = accepted - round((accuracy or 0.0) * accepted)
    return {
        "rows": rows,
        "coverage": {**proportion(accepted, rows), "accepted": accepted},
        "accuracy": {**proportion(accepted - errors, accepted), "errors": errors},
        "risk": proportion(errors, accepted),
        "errors": errors,
        "base_accuracy": row.get("base_accuracy"),
        **{key: row.get(key) for key in _OWN[kind]},
    }


_NEAR_MEMBERS = 4


def near(member: str, known: Sequence[str]) -> str:
    """The members whose names look alike, else the first of all, for a message."""
    found = difflib.get_close_matches(member, known, _NEAR_MEMBERS)
    if found:
        return f"; did you mean {', '.join(found)}?"
    more = ", ..." if len(known) > _NEAR_MEMBERS else ""
    return f"; there are {', '.join(known[:_NEAR_MEMBERS])}{more}" if known else ""


# The catalogue

_NEAR = 6
"""So many names are proposed instead of one that is not known."""

GROUPS = {"class": When.LABELS, "group": When.GROUPS}
"""What the figures of a class or of a group take."""

_OF_CLASS = ("rows", "coverage", "accuracy", "risk", "errors")
"""The figures of a report that each class has too; a group also has `base_accuracy`."""


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
    conditions: Collection[When] = frozenset(When), of: type[Document] = Report, points: Sequence[str] = DEFAULT_POINTS
) -> list[Metric]:
    """The metrics of the reports of a kind that are made under these conditions, in the order of the document.

    A section with a `value` can be named without it. You can name any point on the curve; those given are listed.

    >>> next(metric for metric in catalogue() if metric.name == "risk").meaning
    'Share of the accepted rows whose prediction is wrong.'
    """
    return list(_walk(entries(of), "", About(), conditions, points))


def group_metrics(kind: str, name: str = "NAME") -> list[Metric]:
    """The metrics of one member of a kind, "class" or "group".

    >>> [metric.name for metric in group_metrics("class", "cat")][:3]
    ['rows[class=cat]', 'coverage[class=cat]', 'coverage[class=cat].value']
    """
    keys = (*_OF_CLASS, "base_accuracy") if kind == "group" else _OF_CLASS
    figures = [entry for entry in entries(Report) if entry.key in keys]
    found = []
    for metric in _walk([*figures, *_OWN[kind].values()], "", About(f"for one {kind}"), [When.LABELS], ()):
        head, dot, part = metric.name.partition(".")
        if part == "drop":  # there is no telling what a class or group was like before
            continue
        found.append(replace(metric, name=f"{head}[{kind}={name}]{dot}{part}", needs=GROUPS[kind].value))
    return found


def _walk(
    fields: Sequence[Entry], prefix: str, section: About, conditions: Collection[When], points: Sequence[str]
) -> Iterator[Metric]:
    for entry in fields:
        declared = entry.about.inside(section)
        if entry.key in ("lower", "upper"):  # the ends of an interval are there when the interval is
            declared = replace(declared, when=declared.ends or declared.when)
        if not declared.gate or not (declared.when is None or declared.when in conditions):
            continue
        name = prefix + entry.key
        if entry.section is not None:
            inner = entries(entry.section)
            for field in inner:
                if field.key == "value":
                    yield _metric(name, field.about.inside(declared))
            yield from _walk(inner, name + ".", declared, conditions, points)
        elif dict[str, PointFigure] in entry.kinds:
            for text in points:
                point, _ = Point.parse(text)
                at = point.about.inside(declared)
                yield _metric(point.name, at)
                yield from _walk(entries(PointFigure), point.name + ".", at, conditions, points)
        elif float in entry.kinds or (int in entry.kinds and str not in entry.kinds):
            yield _metric(name, declared)


def _metric(name: str, declared: About) -> Metric:
    assert declared.unit is not None
    assert declared.better is not None
    return Metric(
        name,
        declared.meaning[:1].upper() + declared.meaning[1:] + ".",
        declared.unit,
        declared.better,
        declared.interval or NONE,
        "" if declared.when is None else declared.when.value,
    )


# Is there what a gate names?


def check_gate(gate: Gate, conditions: Collection[When], of: type[Document] = Report) -> None:
    """Raise unless the gate names a metric that reports made under these conditions have."""
    if gate.metric == TARGET or (not gate.op and hasattr(of, {FRESH: "seen_by"}.get(gate.metric, gate.metric))):
        return
    said = f"gate '{gate.text}': there is no metric '{gate.metric}'"
    name, found, needs = gate.metric, of_member(gate.metric), {}
    if found is not None:
        name, kind, _ = found
        if of is not Report or GROUPS[kind] not in conditions:
            when = GROUPS[kind] if of is Report else When.LABELS
            raise GateError(f"{said} in this report; it needs {when.value}")
        known = {metric.name.replace(f"[{kind}=]", ""): metric for metric in group_metrics(kind, "")}
    else:
        points, name = DEFAULT_POINTS, name if "@" in name else named(name)
        if "@" in name:  # points of the curve are spelled in one way
            point, part = Point.parse(name)
            name, points = point.name if part is None else f"{point.name}.{part}", (*DEFAULT_POINTS, name)
        known = {metric.name: metric for metric in catalogue(conditions, of, points)}
        needs = {metric.name: metric.needs for metric in catalogue(of=of, points=points)}
    if name in known:
        _check_limit(gate, known[name].unit)
    elif of is Report and (whose := [kind for kind, own in _OWN.items() if name.split(".")[0] in own]):
        figure, dot, part = name.partition(".")
        worst = f"worst_{whose[0]}.{name}"
        other = f", or {worst}" if worst in known or worst in needs else ""
        raise GateError(f"{said} of all rows; write {figure}[{whose[0]}=NAME]{dot}{part} for one {whose[0]}{other}")
    elif name in needs:
        raise GateError(f"{said} in this report; it needs {needs[name]}")
    else:
        raise GateError(said + _proposal(name, list(known)))


def _check_limit(gate: Gate, unit: str) -> None:
    """Raise for a limit that no such figure can be near to, such as a percentage in place of a share."""
    if unit in ("share", "p-value") and not 0 <= gate.limit <= 1:
        hint = as_share(gate.limit) or "; the gate would always pass or always fail"
        raise GateError(f"gate '{gate.text}': {gate.metric} is a {unit} from 0 to 1{hint}")
    if unit == "difference" and abs(gate.limit) > 1:
        hint = as_share(abs(gate.limit)) and f"; for {gate.limit:g} % write {gate.limit / 100:g}"
        raise GateError(f"gate '{gate.text}': {gate.metric} is a difference from -1 to 1{hint}")


def _proposal(name: str, known: Sequence[str]) -> str:
    """The members of the section that a name begins with, then names that look alike; else all short names."""
    section = name.split(".")[0] + "."
    members = [metric for metric in known if metric.startswith(section)]
    found = list(dict.fromkeys([*members, *difflib.get_close_matches(name, known, _NEAR)]))[:_NEAR]
    if found:
        return f"; did you mean {', '.join(found)}? 'drrej metrics' lists them all"
    return f"; known: {', '.join(name for name in known if '.' not in name and '@' not in name)}"
