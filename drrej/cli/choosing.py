"""From options to what the library chooses by: the objective of the ratio and the rule of the threshold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from drrej.errors import OptionError
from drrej.records import dataclass

if TYPE_CHECKING:
    from drrej.core.thresholds import Rule
    from drrej.pipeline.fit import RatioOptions


@dataclass(frozen=True)
class Objective:
    """Divergence, lambda and loss."""

    divergence: Literal["kl", "chi2"] | None
    alpha: float | None
    lam: float | None
    loss: str
    cost_matrix: str | None
    loss_column: str | None
    effective_sample: float | None = None

    def options(self, class_names: Sequence[str] | None) -> RatioOptions:
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
            raise OptionError("--loss cost and --cost-matrix FILE go together; give both or neither")
        if (self.loss == ColumnLoss.name) != (self.loss_column is not None):
            raise OptionError("--loss column and --loss-column COL go together; give both or neither")
        if self.lam is not None and self.effective_sample is not None:
            raise OptionError("--effective-sample chooses --lambda; give one of them")
        loss: str | Loss = self.loss
        if self.cost_matrix is not None:
            loss = CostLoss(read_cost_matrix(self.cost_matrix, class_names))
        elif self.loss_column is not None:
            loss = ColumnLoss(self.loss_column)
        return RatioOptions(alpha, 1.0 if self.lam is None else self.lam, loss, self.effective_sample)


@dataclass(frozen=True)
class Target:
    """How the cutoff is chosen: one rule, which `confidence` makes a guarantee."""

    tau: float | None
    coverage: float | None
    accuracy: float | None
    risk: float | None
    max_loss: float | None
    confidence: float | None
    review_cost: float | None
    error_cost: float | None
    method: Literal["fixed-sequence", "sgr", "betting", "hoeffding-bentkus"] | None
    mean_cost: float | None = None
    mse: float | None = None
    mae: float | None = None
    clip: float | None = None

    def rule(self) -> Rule:
        """The one rule that was given; a coverage may stand beside an accuracy or a risk."""
        from drrej.core.thresholds import Rule

        rules = {
            "accuracy": self.accuracy,
            "coverage": self.coverage,
            "risk": self.risk,
            "tau": self.tau,
            "max-loss": self.max_loss,
            "review-cost": self.review_cost,
            "mean-cost": self.mean_cost,
            "mse": self.mse,
            "mae": self.mae,
        }
        given = {kind: target for kind, target in rules.items() if target is not None}
        if self.error_cost is not None and self.review_cost is None:
            raise OptionError("--error-cost needs --review-cost C: what it costs to have a rejected row looked at")
        both = "coverage" in given and (given.keys() - {"coverage"}) in ({"accuracy"}, {"risk"})
        beside = given.pop("coverage") if both else None
        if len(given) != 1:
            found = " and ".join(f"--{kind}" for kind in given) or "none"
            known = "--accuracy, --coverage, --risk, --review-cost, --mean-cost, --mse, --mae, --tau or --max-loss"
            raise OptionError(
                f"give exactly one rule: {known} (found: {found}); only --coverage may stand beside --accuracy or "
                "--risk"
            )
        ((kind, target),) = given.items()
        kind = kind.removeprefix("review-")
        return Rule(kind, target, self.confidence, self.method, self.error_cost, beside, self.clip)
