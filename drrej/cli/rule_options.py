"""Groups of options that say how a rejector is made: the calibrator, the objective of the ratio, the rule."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from drrej.cli.console import long_flag
from drrej.cli.options import ENGINE, READING, Options, option, rare, rare_flag
from drrej.errors import OptionError

if TYPE_CHECKING:
    from drrej.core.thresholds import Rule
    from drrej.pipeline.calibrate import CalibrateOptions
    from drrej.pipeline.fit import RatioOptions

RULE, GUARANTEE = "Rule: one, or several promises", "Guarantee and groups"
OBJECTIVE = "Loss and divergence"

Calibrator = Literal["temperature", "vector", "beta", "logistic", "isotonic", "auto"]
Precision = Literal["auto", "float64"]
LossOfScores = Literal["zero-one", "log", "brier", "margin", "logit-margin", "learned", "auto"]
"""The losses that take nothing but the scores of a row."""


def bytes_of(memory: str | None) -> int | None:
    """The size of --memory."""
    if memory is None:
        return None
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([KMGT]?)(?:I?B)?\s*", memory.upper(), re.ASCII)
    if match is None:
        raise OptionError(f"--memory '{memory}': write a size such as 500M or 4G")
    return int(float(match[1]) * 1024 ** " KMGT".index(match[2] or " "))


class CalibrationOptions(Options):
    """How the calibrator is fitted."""

    calibrator: Calibrator | None = option(
        "temperature, vector (per class), beta (two classes) or auto; for a --score logistic, beta or isotonic.",
        "NAME",
        show_default="temperature; auto for a --score",
    )
    floor: float | None = rare("Value used for a probability of 0.", "P", READING, show_default="chosen by likelihood")
    precision: Precision | None = rare(
        "auto: float32 sums for float16 and float32 logits.", panel=ENGINE, show_default="auto"
    )
    memory: str | None = rare(
        "Keep rows in memory up to this size, e.g. 4G.", "SIZE", ENGINE, show_default="a quarter of the memory"
    )

    def calibrate_options(self) -> CalibrateOptions:
        """As the library takes them."""
        from drrej.pipeline.calibrate import CalibrateOptions

        return self.into(CalibrateOptions, memory=bytes_of(self.memory))


class ObjectiveOptions(Options):
    """Divergence, lambda and loss."""

    loss: str | None = option(
        "log, zero-one, brier, margin, logit-margin, cost or column; with labels also learned or auto.",
        "NAME",
        OBJECTIVE,
        show_default="auto; log without labels",
    )
    cost_matrix: str | None = rare("For --loss cost: a CSV of costs, true class x action.", "FILE", OBJECTIVE)
    loss_column: str | None = rare("For --loss column: each row's own loss.", "COL", OBJECTIVE)
    divergence: Literal["kl", "chi2"] | None = rare(
        "Divergence between ideal and real data.", panel=OBJECTIVE, show_default="kl"
    )
    alpha: float | None = rare("Any alpha-divergence (1 is kl, 3 is chi2).", "A", OBJECTIVE)
    lam: float | None = rare("Weight of the divergence against the loss.", "L", OBJECTIVE, show_default="1")

    def ratio_options(self, class_names: Sequence[str] | None) -> RatioOptions:
        """As the library takes them; a cost matrix that has names is put in the order of `class_names`."""
        from drrej.core.losses import ColumnLoss, CostLoss, Loss
        from drrej.data.matrix import read_cost_matrix
        from drrej.pipeline.fit import DIVERGENCES, RatioOptions

        alpha = DIVERGENCES[self.divergence or "kl"] if self.alpha is None else self.alpha
        if self.divergence is not None and alpha != DIVERGENCES[self.divergence]:
            raise OptionError(
                f"--divergence {self.divergence} is --alpha {DIVERGENCES[self.divergence]:g}, "
                f"which contradicts --alpha {alpha:g}; give one of them"
            )
        if (self.loss == CostLoss.name) != (self.cost_matrix is not None):
            raise OptionError("--loss cost and --cost-matrix FILE require each other; give both or neither")
        if (self.loss == ColumnLoss.name) != (self.loss_column is not None):
            raise OptionError("--loss column and --loss-column COL require each other; give both or neither")
        loss: str | Loss | None = self.loss
        if self.cost_matrix is not None:
            loss = CostLoss(read_cost_matrix(self.cost_matrix, class_names))
        elif self.loss_column is not None:
            loss = ColumnLoss(self.loss_column)
        return RatioOptions(alpha, 1.0 if self.lam is None else self.lam, loss)


def by_class(name: str, texts: Sequence[str] | float | None) -> dict[str, float] | None:
    """The targets of classes from texts such as 0.99 and fraud=0.9; the one without a name is under ""."""
    found: dict[str, float] = {}
    for text in [str(texts)] if isinstance(texts, float | int) else texts or ():
        group, _, number = text.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            raise OptionError(f"{long_flag(name)} {text}: write a number, or CLASS=NUMBER for a class") from None
        if group in found:
            raise OptionError(f"{long_flag(name)} {text}: it was given twice")
        found[group] = value
    return found or None


class RuleOptions(Options):
    """How the cutoff is chosen: one rule, which `confidence` makes a guarantee."""

    accuracy: list[str] | None = option(
        "Accept as many rows as possible with accuracy at least A; CLASS=A for a predicted class. Repeatable.",
        "A",
        RULE,
    )
    coverage: float | None = option("Accept at least this share of the rows.", "C", RULE)
    risk: list[str] | None = option("The same as an error rate: at most R, or CLASS=R. Repeatable.", "R", RULE)
    max_missed: list[str] | None = option(
        "Accept at most this share of a true class as another class. Repeatable.", "CLASS=S", RULE
    )
    overall_risk: float | None = rare("At most this share of all rows is still wrong after review.", "R", RULE)
    reviews: int | None = rare("With --per N: reject at most B rows of a batch of N.", "B", RULE)
    review_cost: float | None = rare("Minimise total cost; reviewing a rejected row costs C.", "C", RULE)
    mean_cost: float | None = rare("With --loss cost: mean cost of accepted rows at most M.", "M", RULE)
    tau: float | None = rare("Reject rows whose ratio is at most T.", "T", RULE)
    max_loss: float | None = rare("Reject rows whose expected loss is L or more.", "L", RULE)
    mse: float | None = rare("For a regression: mean squared error at most M.", "M", RULE)
    mae: float | None = rare("For a regression: mean absolute error at most M.", "M", RULE)
    per: int | None = rare("With --reviews: rows per batch.", "N", GUARANTEE)
    reviewer_accuracy: float | None = rare(
        "With --overall-risk: share of the rejected rows that reviewers get right.", "A", GUARANTEE, show_default="1"
    )
    confidence: float | None = option(
        "Guarantee the accuracy, risk, coverage or mean on new rows with probability P.", "P", GUARANTEE
    )
    cutoff_by: str | None = option("A cutoff for each value of a column, or for each 'prediction'.", "COL", GUARANTEE)
    error_cost: float | None = rare(
        "With --review-cost: cost of an accepted error (unless the loss is cost).", "E", GUARANTEE
    )
    allow_reuse: bool = rare_flag(
        "Allow rows that calibrate or fit have seen; then the guarantee does not hold.", panel=GUARANTEE
    )
    group: str | None = rare(
        "Column that tells rows with equal scores apart, such as an id; otherwise they count once.", "COL", GUARANTEE
    )
    clip: float | None = rare("With --mse or --mae: cap the error of a row at B.", "B", GUARANTEE)

    def rule(self, *without: str) -> Rule:
        """The one rule that was given; a command may be `without` some."""
        from drrej.core.thresholds import one_rule

        self.check_needs(error_cost="review_cost")
        rules = [name for name, each in RuleOptions.declared().items() if each.rich_help_panel == RULE]
        targets = {name: getattr(self, name) for name in rules if name not in without}
        for name in ("accuracy", "risk", "max_missed"):
            targets[name] = by_class(name, targets[name])
        more = ("confidence", "error_cost", "clip", "per", "reviewer_accuracy")
        return one_rule(targets, **{name: getattr(self, name) for name in more})
