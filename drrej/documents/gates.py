"""Gates: `METRIC OP NUMBER` over a report, parsed by a small grammar and never evaluated as code."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from drrej.documents.points import Point
from drrej.errors import GateError

_COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_NUMBER = r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
_GATE = re.compile(rf"\s*([A-Za-z_][\w.@=+-]*?)\s*(>=|<=|>|<)\s*({_NUMBER})\s*")
_HINT = "write METRIC OP NUMBER and quote the gate, e.g. `gate='accuracy >= 0.97'`"


@dataclass(frozen=True)
class Gate:
    """A parsed gate."""

    text: str
    metric: str
    op: str
    limit: float

    @classmethod
    def parse(cls, text: str) -> Gate:
        """Parse `METRIC OP NUMBER`."""
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
        return Point.parse(self.metric)[0] if "@" in self.metric else None

    def check_known(self, metrics: Iterable[str]) -> None:
        """Raise unless the metric is one that a report has."""
        if self.point is not None:
            return
        known = sorted(metrics)
        if self.metric not in known:
            near = [m for m in known if m.startswith(self.metric.split(".")[0] + ".") or m in self.metric]
            shown = ", ".join(near or [m for m in known if "." not in m])
            raise GateError(f"gate '{self.text}': there is no metric '{self.metric}'; known: {shown}")

    def judge(self, report: dict[str, Any]) -> dict[str, Any]:
        """The gate's row of the report. Raises when the report has no number there."""
        value = lookup(report, self.metric)
        if value is None:
            raise GateError(
                f"gate '{self.text}': {self.metric} is undefined on these rows, so the gate can say nothing"
            )
        passed = _COMPARE[self.op](value, self.limit)
        return {"gate": self.text, "value": value, "limit": self.limit, "passed": passed}


def lookup(report: dict[str, Any], metric: str) -> float | None:
    """The number at a dotted path of a report; a group of figures stands for its `value`."""
    node: Any = report
    keys = metric.split(".")
    if "@" in metric:
        point, part = Point.parse(metric)
        keys = ["points", point.name, part]
    for key in keys:
        node = node.get(key) if isinstance(node, dict) else None
    if isinstance(node, dict):
        node = node.get("value")
    if isinstance(node, bool) or not isinstance(node, int | float):
        return None
    return float(node)


def metrics_of(report: dict[str, Any], prefix: str = "") -> list[str]:
    """Every path of a report tree that a gate may name: numeric leaves and groups that have a value."""
    paths: list[str] = []
    for key, node in report.items():
        path = f"{prefix}{key}"
        if isinstance(node, dict):
            paths += [path] if "value" in node else []
            paths += metrics_of(node, path + ".")
        elif node is None or (isinstance(node, int | float) and not isinstance(node, bool)):
            paths.append(path)
    return paths
