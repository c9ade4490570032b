"""The catalogue of metrics: every number of a report that a gate may name, derived from the report's classes.

>>> [metric.name for metric in catalogue([When.LABELS]) if metric.name.startswith("accuracy.")]
['accuracy.value', 'accuracy.lower', 'accuracy.upper', 'accuracy.errors']
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from drrej.core.thresholds import as_share
from drrej.documents.document import Entry, entries
from drrej.documents.fields import NONE, About, Unit, When
from drrej.documents.gates import FIGURES, TARGET, Gate, Slice
from drrej.documents.points import DEFAULT_POINTS, Point, PointFigure
from drrej.documents.report import Report
from drrej.errors import GateError
from drrej.records import dataclass

_NEAR = 6
"""So many names are proposed instead of one that is not known."""

SLICES = {"class": When.LABELS, "group": When.GROUPS}
"""What the figures of a class or of a group take."""

_USUAL = [Point.parse(text)[0] for text in DEFAULT_POINTS]


@dataclass(frozen=True)
class Metric:
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
    conditions: Collection[When] = frozenset(When), of: type = Report, points: Sequence[Point] = _USUAL
) -> list[Metric]:
    """The metrics of the reports of a kind that are made under these conditions, in the order of the document.

    A section with a `value` can be named without it. Points of the curve have no end: those given are listed.

    >>> next(metric for metric in catalogue() if metric.name == "risk").meaning
    'Share of the accepted rows whose prediction is wrong.'
    """
    return list(_walk(of, "", About(), conditions, points))


def _walk(
    kind: type, prefix: str, section: About, conditions: Collection[When], points: Sequence[Point]
) -> Iterator[Metric]:
    for entry in entries(kind):
        about = _about(entry, section)
        if not about.gate or not (about.when is None or about.when in conditions):
            continue
        name = prefix + entry.key
        if entry.section is not None:
            keys = {inner.key: inner for inner in entries(entry.section)}
            if "value" in keys:
                yield _metric(name, _about(keys["value"], about))
            yield from _walk(entry.section, name + ".", about, conditions, points)
        elif dict[str, PointFigure] in entry.kinds:
            for point in points:
                at = point.about.inside(about)
                yield _metric(point.name, at)
                yield from _walk(PointFigure, point.name + ".", at, conditions, points)
        elif float in entry.kinds or (int in entry.kinds and str not in entry.kinds):
            yield _metric(name, about)


def _about(entry: Entry, section: About) -> About:
    """What is declared about a field; the ends of an interval are there when the interval is."""
    about = entry.about.inside(section)
    if entry.key in ("lower", "upper") and about.interval is not None and about.interval.when is not None:
        return About(interval=about.interval, when=about.interval.when).inside(about)
    return about


def _metric(name: str, about: About) -> Metric:
    assert about.unit is not None
    assert about.better is not None
    return Metric(
        name,
        about.meaning[:1].upper() + about.meaning[1:] + ".",
        about.unit.word,
        about.better,
        (about.interval or NONE).word,
        "" if about.when is None else about.when.value,
    )


def check_gate(gate: Gate, conditions: Collection[When], of: type = Report) -> None:
    """Raise unless the gate names a metric that reports made under these conditions have."""
    if gate.metric == TARGET:
        return
    if gate.slice is not None:
        _check_slice(gate, gate.slice, conditions, of)
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
    near = _near(name, known)
    if near:
        return f"; did you mean {', '.join(near)}? 'drrej metrics' lists them all"
    return f"; known: {', '.join(name for name in known if '.' not in name and '@' not in name)}"


def _check_limit(gate: Gate, unit: str) -> None:
    """Raise for a limit that no such figure can be near to, such as a percentage in place of a share."""
    if unit in (Unit.SHARE.word, Unit.P_VALUE.word) and not 0 <= gate.limit <= 1:
        hint = as_share(gate.limit) or "; then the gate would always say the same"
        raise GateError(f"gate '{gate.text}': {gate.metric} is a {unit} from 0 to 1{hint}")
    if unit == Unit.DIFFERENCE.word and abs(gate.limit) > 1:
        hint = as_share(abs(gate.limit)) and f"; for {gate.limit:g} % write {gate.limit / 100:g}"
        raise GateError(f"gate '{gate.text}': {gate.metric} is a difference from -1 to 1{hint}")


def _check_slice(gate: Gate, member: Slice, conditions: Collection[When], of: type) -> None:
    when = SLICES[member.kind]
    said = f"gate '{gate.text}': there is no metric '{gate.metric}'"
    if of is not Report or when not in conditions:
        raise GateError(f"{said} in this report; it needs {when.value if of is Report else When.LABELS.value}")
    known = {metric.name: metric for metric in _walk(FIGURES[member.kind], "", About(), conditions, ())}
    if member.path not in known:
        raise GateError(f"{said}{_proposal(member.path, list(known))}")
    _check_limit(gate, known[member.path].unit)


def slices(kind: str, name: str = "NAME") -> list[Metric]:
    """The metrics of one member of a kind, "class" or "group".

    >>> [metric.name for metric in slices("class", "cat")][:3]
    ['rows[class=cat]', 'coverage[class=cat]', 'coverage[class=cat].value']
    """
    about = About(f"of the rows of one {kind}", when=SLICES[kind])
    return [
        replace(metric, name="".join([head, f"[{kind}={name}]", dot, part]))
        for metric in _walk(FIGURES[kind], "", about, frozenset(When), ())
        for head, dot, part in [metric.name.partition(".")]
    ]


def _near(name: str, known: Sequence[str]) -> list[str]:
    """The members of the section that a name begins with, then names that look alike."""
    section = name.split(".")[0] + "."
    members = [metric for metric in known if metric.startswith(section)]
    return list(dict.fromkeys([*members, *difflib.get_close_matches(name, known, _NEAR)]))[:_NEAR]
