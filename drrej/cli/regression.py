"""What `drrej evaluate` does differently with a rejector for a regression."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

from drrej.errors import OptionError
from drrej.records import dataclass

if TYPE_CHECKING:
    from drrej.documents.rejector import Rejector

Task = Literal["classification", "regression"]


@dataclass(frozen=True)
class Regression:
    """The options under "Regression". The task is the rejector's; `task` only says what it is expected to be."""

    task: Task | None
    prediction: str | None
    target: str | None

    def is_meant(self, rejector: Rejector) -> bool:
        """Whether the rejector is for a regression; raises when the options say otherwise."""
        if self.task not in (None, rejector.task):
            raise OptionError(f"--task {self.task}: the rejector is for a {rejector.task}")
        if rejector.task == "classification":
            refuse_columns(self.prediction, self.target)
        return rejector.task == "regression"


def refuse_columns(prediction: str | None, target: str | None) -> None:
    """Raise when the columns of a regression were given for a classification."""
    if prediction is not None or target is not None:
        option = "--target" if prediction is None else "--prediction"
        raise OptionError(f"{option}: it is for a regression (rows with a loss of their own and no logits)")


def check_regression(groups: Iterable[Any], formats: Iterable[str]) -> None:
    """Raise when an option was given that a regression has no use for. Options that were not are None or False."""
    from drrej.report import DRAWN

    for group in groups:
        for field in dataclasses.fields(group):
            if field.name not in ("gate", "bad") and getattr(group, field.name) not in (None, False):
                raise OptionError(
                    f"--{field.name.replace('_', '-')}: it has no meaning for a regression, and the rejector is for one"
                )
    for format in formats:
        if format in DRAWN:
            raise OptionError(f"a regression has no pictures; it is not reported as {format}")
