"""What `drrej evaluate` does differently with a rejector for a regression."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from drrej.errors import OptionError

if TYPE_CHECKING:
    from drrej.documents.gates import Gate
    from drrej.documents.rejector import Rejector
    from drrej.pipeline.source import Source

Task = Literal["classification", "regression"]


@dataclass(frozen=True)
class Regression:
    """The options under "Regression". The task is the rejector's; `task` only says what it is expected to be."""

    task: Task | None
    prediction: str | None
    target: str | None

    def is_meant(self, rejector: Rejector) -> bool:
        """Whether the rejector is for a regression; raises when the options say otherwise."""
        task = "classification" if rejector.has_classes else "regression"
        if self.task not in (None, task):
            raise OptionError(f"--task {self.task}: the rejector is for a {task}")
        if task == "classification" and (self.prediction or self.target):
            option = "--prediction" if self.prediction else "--target"
            raise OptionError(f"{option}: the rejector is for a classification; the column is of a regression")
        return task == "regression"

    def evaluate(self, source: Source, rejector: Rejector, gates: Sequence[Gate]) -> dict[str, Any]:
        """The report of a regression."""
        from drrej.pipeline.regression import evaluate_regression

        if self.prediction is None or self.target is None:
            raise OptionError("the rejector is for a regression: give --prediction COL and --target COL")
        return evaluate_regression(source, rejector, self.prediction, self.target, gates)


def check_regression(groups: Iterable[Any], formats: Iterable[str]) -> None:
    """Raise when an option was given that a regression has no use for. Options that were not are None or False."""
    for group in groups:
        for field in dataclasses.fields(group):
            if field.name != "gate" and getattr(group, field.name) not in (None, False):
                raise OptionError(f"--{field.name.replace('_', '-')}: it is not for a regression, and the rejector is")
    for format in formats:
        if format not in regression_renderers():
            raise OptionError(f"a regression is reported as text or json, not as {format}")


def regression_renderers() -> dict[str, Callable[[dict[str, Any]], str]]:
    """Renderers by format."""
    from drrej.report.json import render_json
    from drrej.report.regression import render_regression

    return {"text": render_regression, "json": render_json}
