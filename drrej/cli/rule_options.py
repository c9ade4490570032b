"""Groups of options that say how a rejector is made: the calibrator, the objective of the ratio, the rule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Struct

from drrej.cli.input_options import ENGINE, READING, bytes_of
from drrej.cli.options import option, rare, rare_flag
from drrej.errors import OptionError

if TYPE_CHECKING:
    from drrej.core.thresholds import Rule
    from drrej.pipeline.calibrate import CalibrateOptions
    from drrej.pipeline.fit import RatioOptions

RULE, GUARANTEE, OBJECTIVE, REGRESSION = (
    "Rule: exactly one",
    "Guarantee and groups",
    "Loss and divergence",
    "Regression",
)

Temperature = Annotated[
    float | None, rare("--temperature T", "Use this temperature instead of a fitted one (1: logits as they are).")
]
Calibrator = Annotated[
    Literal["temperature", "vector", "beta", "auto"] | None,
    option(
        "--calibrator NAME",
        "temperature, vector (numbers per class), beta (for two classes), or auto.",
        show_default="temperature",
    ),
]
Floor = Annotated[
    float | None, rare("--floor P", "What a probability of 0 counts as.", READING, show_default="chosen by likelihood")
]
Precision = Annotated[
    Literal["auto", "float64"] | None,
    rare("--precision", "auto: float32 sums for float16 and float32 logits.", ENGINE, show_default="auto"),
]


class CalibrationOptions(Struct, frozen=True):
    """How the calibrator is fitted."""

    calibrator: Calibrator = None
    floor: Floor = None
    precision: Precision = None
    memory: Annotated[
        str | None,
        rare(
            "--memory SIZE",
            "Keep rows in memory up to this size, e.g. 4G.",
            ENGINE,
            show_default="a quarter of the machine's",
        ),
    ] = None

    def options(self) -> CalibrateOptions:
        """As the library takes them."""
        from drrej.pipeline.calibrate import CalibrateOptions

        return CalibrateOptions(
            precision=self.precision or "auto",
            memory=bytes_of(self.memory),
            floor=self.floor,
            calibrator=self.calibrator or "temperature",
        )


LossName = Annotated[
    str,
    option(
        "--loss NAME",
        "log, zero-one, brier, margin, logit-margin; with labels learned, auto; cost, column.",
        OBJECTIVE,
    ),
]


class ObjectiveOptions(Struct, frozen=True):
    """Divergence, lambda and loss."""

    loss: LossName = "log"
    cost_matrix: Annotated[
        str | None, rare("--cost-matrix FILE", "For --loss cost: true class x action; csv, parquet.", OBJECTIVE)
    ] = None
    loss_column: Annotated[
        str | None, rare("--loss-column COL", "For --loss column: each row's own loss.", OBJECTIVE)
    ] = None
    divergence: Annotated[
        Literal["kl", "chi2"] | None,
        rare("--divergence", "Divergence between ideal and real data.", OBJECTIVE, show_default="kl"),
    ] = None
    alpha: Annotated[float | None, rare("--alpha A", "Any alpha-divergence (1 is kl, 3 is chi2).", OBJECTIVE)] = None
    lam: Annotated[
        float | None, rare("--lambda L", "Weight of the divergence against the loss.", OBJECTIVE, show_default="1")
    ] = None
    effective_sample: Annotated[
        float | None,
        rare(
            "--effective-sample S",
            "Choose --lambda: the idealized distribution keeps this share of the effective sample, e.g. 0.5.",
            OBJECTIVE,
        ),
    ] = None

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


class RegressionOptions(Struct, frozen=True):
    """The columns of a regression: rows with a loss of their own and no logits."""

    prediction: Annotated[str | None, rare("--prediction COL", "The predicted value.", REGRESSION)] = None
    target: Annotated[str | None, rare("--target COL", "The true value.", REGRESSION)] = None

    def refuse(self) -> None:
        """Raise when they were given for a classification."""
        for name in ("prediction", "target"):
            if getattr(self, name) is not None:
                raise OptionError(f"--{name}: it is for a regression (rows with a loss of their own and no logits)")


class RuleOptions(Struct, frozen=True):
    """How the cutoff is chosen: one rule, which `confidence` makes a guarantee."""

    accuracy: Annotated[
        float | None, option("--accuracy A", "Accept as many rows as keep their accuracy at or above A.", RULE)
    ] = None
    coverage: Annotated[float | None, option("--coverage C", "Accept at least this share of the rows.", RULE)] = None
    risk: Annotated[
        float | None, option("--risk R", "Accept as many rows as keep their error rate at or below R.", RULE)
    ] = None
    review_cost: Annotated[
        float | None, rare("--review-cost C", "Least total cost, where a rejected row costs C.", RULE)
    ] = None
    mean_cost: Annotated[
        float | None, rare("--mean-cost M", "Mean cost of accepted rows at most M, with --loss cost.", RULE)
    ] = None
    tau: Annotated[float | None, rare("--tau T", "Reject where the ratio is at most T.", RULE)] = None
    max_loss: Annotated[float | None, rare("--max-loss L", "Reject where the expected loss is L or more.", RULE)] = None
    confidence: Annotated[
        float | None,
        option(
            "--confidence P",
            "Make the accuracy, risk, coverage or mean hold on new rows with probability P.",
            GUARANTEE,
        ),
    ] = None
    method: Annotated[
        Literal["fixed-sequence", "sgr", "betting", "hoeffding-bentkus"] | None,
        rare("--method METHOD", "Gone: there is one method for each kind of target.", GUARANTEE),
    ] = None
    cutoff_by: Annotated[
        str | None, option("--cutoff-by COL", "A cutoff for each value of a column, or of 'prediction'.", GUARANTEE)
    ] = None
    error_cost: Annotated[
        float | None,
        rare("--error-cost E", "With --review-cost: an accepted error costs E (or use --loss cost).", GUARANTEE),
    ] = None
    allow_reuse: Annotated[
        bool,
        rare_flag(
            "--allow-reuse", "Allow rows that calibrate or fit have seen; then the guarantee does not hold.", GUARANTEE
        ),
    ] = False

    @property
    def targets(self) -> dict[str, float | None]:
        """The target of each rule, None where it was not given."""
        kinds = ("accuracy", "coverage", "risk", "review_cost", "mean_cost", "tau", "max_loss")
        return {kind: getattr(self, kind) for kind in kinds}

    def rule(self, clip: float | None = None) -> Rule:
        """The one rule that was given; a coverage may stand beside an accuracy or a risk."""
        from drrej.core.thresholds import Rule

        given = {kind.replace("_", "-"): target for kind, target in self.targets.items() if target is not None}
        if self.error_cost is not None and self.review_cost is None:
            raise OptionError("--error-cost needs --review-cost C: what it costs to have a rejected row looked at")
        both = "coverage" in given and (given.keys() - {"coverage"}) in ({"accuracy"}, {"risk"})
        coverage = given.pop("coverage") if both else None
        if len(given) != 1:
            found = " and ".join(f"--{kind}" for kind in given) or "none"
            known = "--accuracy, --coverage, --risk, --review-cost, --mean-cost, --mse, --mae, --tau or --max-loss"
            raise OptionError(
                f"give exactly one rule: {known} (found: {found}); only --coverage may stand beside --accuracy or "
                "--risk"
            )
        ((kind, target),) = given.items()
        return Rule(
            kind.removeprefix("review-"),
            target,
            confidence=self.confidence,
            method=self.method,
            error_cost=self.error_cost,
            coverage=coverage,
            clip=clip,
        )


Table = Annotated[str | None, rare("--table FILE", "Also write all candidates, as .parquet or .csv.")]


def check_table(path: str | None) -> None:
    """Raise unless the ending of --table is one of a table."""
    if path is not None and not path.lower().endswith((".parquet", ".csv")):
        raise OptionError(f"--table {path}: the ending says the format; use .parquet or .csv")
