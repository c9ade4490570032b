"""The reports, section by section. Their keys, their schema and the metrics of gates follow from these classes.

What needs labels or was not asked for is None and is left out of the document.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from drrej.documents.document import Codec, GateRow, Judged
from drrej.documents.fields import (
    EXACT,
    JOINED,
    JOINED_AREAS,
    NONE,
    PRICED,
    WEIGHTED,
    About,
    Count,
    Share,
    ShareOrNone,
    Unit,
    When,
)
from drrej.documents.points import (
    Accuracy,
    Coverage,
    CoverageOfDump,
    CurvePoint,
    Cutoff,
    Outside,
    PointFigure,
    Proportion,
    Rows,
    Tau,
    TauPoint,
    Where,
    WorstAccuracy,
    WorstCoverage,
    check_interval,
)
from drrej.documents.summaries import LeftOut
from drrej.documents.targets import Target, TotalCost
from drrej.errors import ReportError
from drrej.records import dataclass


@dataclass(frozen=True, kw_only=True)
class IdealPoint:
    """Accuracy at one coverage if every right row came before every wrong one."""

    coverage: Share
    accuracy: Share


@dataclass(frozen=True, kw_only=True)
class Bin:
    """Rows whose confidence lies in (lower, upper], with its mean and their accuracy."""

    lower: Share
    upper: Share
    rows: Count
    share: Share
    confidence: Share
    accuracy: Share


@dataclass(frozen=True, kw_only=True)
class Reliability:
    """The bins of the ECE before and after calibration."""

    uncalibrated: tuple[Bin, ...]
    calibrated: tuple[Bin, ...]


@dataclass(frozen=True, kw_only=True)
class LossHistogram:
    """Rows by expected loss: right and wrong ones apart or, without labels, all of them."""

    scale: Literal["linear", "log"]
    edges: tuple[float, ...]
    right: Annotated[tuple[int, ...] | None, About(unit=Unit.COUNT)] = None
    wrong: Annotated[tuple[int, ...] | None, About(unit=Unit.COUNT)] = None
    rows: Annotated[tuple[int, ...] | None, About(unit=Unit.COUNT)] = None


@dataclass(frozen=True, kw_only=True)
class _Counts:
    name: str
    rows: Count
    accepted: Count
    errors: Count
    coverage: Share
    accuracy: ShareOrNone
    error_rate: ShareOrNone
    base_accuracy: Share


@dataclass(frozen=True, kw_only=True)
class Member(_Counts):
    """A class or a group; `of_highest` is its error rate relative to the highest of all."""

    of_highest: Share


@dataclass(frozen=True, kw_only=True)
class Rest(_Counts):
    """Those that have no row of their own, taken together."""

    members: Count
    of_highest: Share


@dataclass(frozen=True, kw_only=True)
class Members:
    """Classes or groups, the lowest accuracy first."""

    shown: tuple[Member, ...]
    rest: Rest | None


@dataclass(frozen=True, kw_only=True)
class Confusion:
    """A true class that was taken for another one."""

    label: str
    prediction: str
    rows: Count
    share: Share


@dataclass(frozen=True, kw_only=True)
class Confusions:
    """The commonest errors among the accepted rows, and how many there are besides."""

    errors: Count
    top: tuple[Confusion, ...]
    other_pairs: Count
    other_rows: Count


@dataclass(frozen=True, kw_only=True)
class BaselineCurve:
    """The curve and the decision that the report is compared with."""

    coverage_curve: tuple[CurvePoint, ...]
    coverage: Coverage
    accuracy: Accuracy


@dataclass(frozen=True, kw_only=True)
class Made:
    """The report's title, day (of UTC), data and model; how the rejector came to be, in words and as commands."""

    title: str | None = None
    date: str | None = None
    data: str | None = None
    model: str | None = None
    words: tuple[str, ...]
    commands: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Pictures:
    """What is drawn; most of it needs labels."""

    ideal: tuple[IdealPoint, ...] | None = None
    reliability: Reliability | None = None
    losses: LossHistogram
    classes: Members | None = None
    confusions: Confusions | None = None
    groups: Members | None = None
    baseline: BaselineCurve | None = None
    made: Made


_EARLIER_E_AURC = "aurc minus that of all right rows before all wrong ones in two tie blocks"
_LABELLED = ("accuracy", "nll", "ece", "brier", "aurc", "e_aurc", "augrc", "points", "curve", "coverage_curve")
"""Sections that every report with labels has, and none without them."""


@dataclass(frozen=True, kw_only=True)
class ExpectedAccuracy:
    """The accuracy that the probabilities promise, of the accepted and of all rows."""

    value: Annotated[float | None, About("of the accepted rows")]
    all: Annotated[float | None, About("of all rows")]


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """A calibration figure: before calibration, and after it on all and on the accepted rows."""

    uncalibrated: Annotated[float | None, About("before calibration")]
    all: Annotated[float | None, About("after calibration")]
    accepted: Annotated[float | None, About("after calibration on the accepted rows")]


@dataclass(frozen=True, kw_only=True)
class Area(Proportion):
    """An area under a curve; `convention` says which of the numbers with that name it is."""

    convention: str


@dataclass(frozen=True, kw_only=True)
class Change:
    """A figure minus another, with its interval."""

    value: float | None
    lower: Annotated[float | None, About("lower end of its 95 % interval")]
    upper: Annotated[float | None, About("upper end of its 95 % interval")]

    def __post_init__(self) -> None:
        check_interval(self.lower, self.upper)


@dataclass(frozen=True, kw_only=True)
class Excess(Change):
    """An area above an ideal, which few rows may undercut."""

    convention: str


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """How well the loss orders rows, as one number; None without errors or without right rows."""

    value: float | None
    convention: str


@dataclass(frozen=True, kw_only=True)
class MeanRatio:
    """The density ratio on these rows; without drift its mean is 1 in expectation."""

    mean: Annotated[float | None, About("mean ratio of the rows, 1 in expectation without drift", Unit.RATIO)]
    std_error: Annotated[
        float | None, About("standard error of the mean ratio, that of the fit included", Unit.RATIO, "lower")
    ]
    p_value: Annotated[
        float | None, About("chance of a mean ratio at least as far from 1 without drift", Unit.P_VALUE, "higher")
    ]
    error: Annotated[
        float | None,
        About(
            "bound on the error of the fitted ratio at every input, confidence 0.95, told by the fitted rows",
            Unit.RATIO,
            "lower",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class Drift:
    """How far the losses have moved since the fit."""

    distance: Annotated[
        float | None,
        About("largest gap between the distribution of the losses and that of the fit", Unit.SHARE, "lower"),
    ]
    p_value: Annotated[float | None, About("chance of a gap at least as large without drift", Unit.P_VALUE, "higher")]


@dataclass(frozen=True, kw_only=True)
class CostPerRow:
    """Costs of all rows."""

    value: Annotated[float | None, About("realised cost per row")]
    expected: Annotated[float | None, About("expected cost per row")]


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Costs of the accepted rows and, under `all`, of all rows."""

    value: Annotated[float | None, About("realised cost per accepted row", interval=PRICED)]
    lower: Annotated[float | None, About("lower end of its 95 % interval", interval=PRICED)] = None
    upper: Annotated[float | None, About("upper end of its 95 % interval", interval=PRICED)] = None
    expected: Annotated[float | None, About("expected cost per accepted row")]
    all: CostPerRow


@dataclass(frozen=True, kw_only=True)
class ClassRow:
    """The rows of one true class."""

    class_: int | str
    rows: Count
    coverage: Share
    accuracy: ShareOrNone


@dataclass(frozen=True, kw_only=True)
class ConfusionRow:
    """The rows of one true class: how many accepted ones were predicted as each class, and how many are rejected."""

    class_: str
    predicted: Annotated[tuple[int, ...], About(unit=Unit.COUNT)]
    rejected: Count


@dataclass(frozen=True, kw_only=True)
class ConfusionMatrix:
    """Accepted rows by true and predicted class, with a column of the rejected ones.

    Of many classes those with the most errors are shown; the last row and column are the `others` together.
    """

    rows: tuple[ConfusionRow, ...]
    others: Annotated[int, About("classes that have no row of their own", Unit.COUNT)]


@dataclass(frozen=True, kw_only=True)
class Example:
    """A row: its true class, prediction and expected loss, and what the columns that were asked for hold, as text."""

    label: str
    prediction: str
    loss: float
    values: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Examples:
    """Rows to look at: the rejected ones with the largest losses, the accepted errors with the smallest."""

    columns: tuple[str, ...]
    rejected: tuple[Example, ...]
    wrongly_accepted: tuple[Example, ...]


@dataclass(frozen=True, kw_only=True)
class GroupRow:
    """The rows of one group."""

    group: str
    rows: Count
    coverage: Coverage
    accuracy: Accuracy
    base_accuracy: Accuracy


@dataclass(frozen=True, kw_only=True)
class GroupLook:
    """The rows of one group, without labels. Drift is since the fit; its p-value is times the number of groups."""

    group: str
    rows: Count
    coverage: Coverage
    expected_accuracy: ShareOrNone
    drift: Drift


@dataclass(frozen=True, kw_only=True)
class WorstGroup:
    """The lowest of each figure of the groups, and whose it is."""

    coverage: Annotated[WorstCoverage, About("lowest coverage of a group")]
    accuracy: Annotated[WorstAccuracy, About("lowest accuracy of the accepted rows of a group")]
    base_accuracy: Annotated[WorstAccuracy, About("lowest accuracy of all rows of a group")]


@dataclass(frozen=True, kw_only=True)
class ScoreRow:
    """Another score on the same rows; `accuracy` is that at the coverage of the rejector.

    `augrc_difference` is its AUGRC minus that of the loss; the intervals hold for all scores together, and one that is
    wholly below 0 says that the score orders these rows better, beyond noise.
    """

    score: str
    aurc: Proportion
    e_aurc: Change
    augrc: Proportion
    points: dict[str, PointFigure]
    accuracy: PointFigure
    coverage_curve: tuple[CurvePoint, ...]
    augrc_difference: Change | None = None

    @property
    def is_better(self) -> bool:
        """Whether it orders these rows better than the loss, beyond noise."""
        return self.augrc_difference is not None and (self.augrc_difference.upper or 0.0) < 0


@dataclass(frozen=True, kw_only=True)
class MaskRow:
    """Another rejector's mask on the same rows; `loss_accuracy` is that of our loss at the mask's coverage."""

    mask: str
    coverage: Coverage
    accuracy: Accuracy
    loss_accuracy: PointFigure


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Changes since an earlier report (`reports`), or against another dump of the same rows (`paired`)."""

    kind: Literal["reports", "paired"]
    rows: Annotated[int | None, About("rows that are paired", Unit.COUNT, "higher", NONE, When.PAIRS)] = None
    coverage: Annotated[Change, About("coverage minus that of the baseline", better="higher", interval=JOINED)]
    accuracy: Annotated[Change, About("accuracy minus that of the baseline", better="higher", interval=JOINED)]
    base_accuracy: Annotated[
        Change, About("accuracy without rejection minus that of the baseline", better="higher", interval=JOINED)
    ]
    aurc: Annotated[Change, About("AURC minus that of the baseline", better="lower", interval=JOINED_AREAS)]
    e_aurc: Annotated[Change, About("E-AURC minus that of the baseline", better="lower", interval=JOINED_AREAS)]
    augrc: Annotated[Change, About("AUGRC minus that of the baseline", better="lower", interval=JOINED_AREAS)]


@dataclass(frozen=True, kw_only=True, eq=False)
class Report(Judged):
    """What `evaluate` found about a dump.

    Sections are attributes (`report.coverage.value`) and keys (`report["coverage"]["value"]`).
    """

    CODEC: ClassVar[Codec] = Codec("drrej-report/1", "report", ReportError)  # 1: the first format

    drrej_version: str
    rows: Rows
    classes: Annotated[int, About("classes of the model", Unit.COUNT, "neither", NONE, least=2)]
    tau: Tau
    cutoff: Cutoff
    cutoff_by: str | None = None
    seen_by: tuple[str, ...] | None = None
    unsure_order: str | None = None
    """The plain loss beneath a learned one, where drift says that the learned order may not hold on these rows."""
    tied_rows: Annotated[int | None, About(gate=False)] = None
    """How many rows have the largest loss that is accepted, where these are more than half: no cutoff divides them."""
    target: Annotated[Target | None, About(gate=False)] = None
    coverage: CoverageOfDump
    accuracy: Annotated[
        Accuracy | None,
        About("share of the accepted rows whose prediction is right", Unit.SHARE, "higher", EXACT, When.LABELS),
    ] = None
    risk: Annotated[
        Proportion | None,
        About("share of the accepted rows whose prediction is wrong", Unit.SHARE, "lower", EXACT, When.LABELS),
    ] = None
    errors: Annotated[
        int | None, About("wrong predictions among the accepted rows", Unit.COUNT, "lower", NONE, When.LABELS)
    ] = None
    base_accuracy: Annotated[
        Accuracy | None,
        About("share of all rows whose prediction is right", Unit.SHARE, "higher", EXACT, When.LABELS),
    ] = None
    expected_accuracy: Annotated[
        ExpectedAccuracy,
        About(
            "accuracy that the rejector itself expects, blind to any shift since the fit",
            Unit.SHARE,
            "higher",
            NONE,
        ),
    ]
    nll: Annotated[
        Calibration | None,
        About("mean negative log-likelihood of the true class", Unit.NATS, "lower", NONE, When.LABELS, "NLL"),
    ] = None
    ece: Annotated[
        Calibration | None,
        About("expected calibration error over 15 bins", Unit.SHARE, "lower", NONE, When.LABELS, "ECE"),
    ] = None
    classwise_ece: Annotated[
        Calibration | None,
        About(
            "mean over classes of the calibration error of its probability over 15 bins",
            Unit.SHARE,
            "lower",
            NONE,
            When.CLASSWISE,
            "classwise ECE",
        ),
    ] = None
    brier: Annotated[
        Calibration | None,
        About("mean Brier score, summed over classes", Unit.SCORE, "lower", NONE, When.LABELS, "Brier"),
    ] = None
    aurc: Annotated[
        Area | None,
        About("area under error rate against coverage", Unit.SHARE, "lower", WEIGHTED, When.LABELS, "AURC"),
    ] = None
    e_aurc: Annotated[
        Excess | None,
        About(
            "AURC minus that of a perfect order, err + (1 - err) ln(1 - err)",
            Unit.NUMBER,
            "lower",
            WEIGHTED,
            When.LABELS,
            "E-AURC",
        ),
    ] = None
    augrc: Annotated[
        Area | None,
        About("area under errors / rows against coverage", Unit.SHARE, "lower", WEIGHTED, When.LABELS, "AUGRC"),
    ] = None
    naurc: Annotated[
        Ranking | None,
        About(
            "normalised AURC, (AURC - ideal) / (err - ideal) with that ideal: 0 is perfect, 1 is random",
            Unit.NUMBER,
            "lower",
            NONE,
            When.LABELS,
            "nAURC",
        ),
    ] = None
    failure_auroc: Annotated[
        Ranking | None,
        About(
            "AUROC of errors: the chance that a wrong row has a larger loss than a right one",
            Unit.SHARE,
            "higher",
            NONE,
            When.LABELS,
            "AUROC of errors",
        ),
    ] = None
    fpr_at_95_tpr: Annotated[
        Ranking | None,
        About(
            "share of errors accepted where 95 % of the right rows are",
            Unit.SHARE,
            "lower",
            NONE,
            When.LABELS,
            "FPR at 95 % TPR",
        ),
    ] = None
    points: Annotated[dict[str, PointFigure] | None, About(unit=Unit.SHARE, when=When.LABELS)] = None
    ratio: Annotated[MeanRatio, About(better="neither", interval=NONE)]
    drift: Annotated[Drift, About(interval=NONE)]
    curve: tuple[TauPoint, ...] | None = None
    coverage_curve: tuple[CurvePoint, ...] | None = None
    per_class: tuple[ClassRow, ...] | None = None
    confusion: Annotated[ConfusionMatrix | None, About(gate=False)] = None
    examples: Annotated[Examples | None, About(gate=False)] = None
    cost: Annotated[Cost | None, About("", Unit.COST, "lower", NONE, When.COSTS)] = None
    total_cost: Annotated[
        TotalCost | None,
        About(
            "cost of errors and reviews per 1000 rows", Unit.COST, "lower", PRICED, When.PRICES, "cost per 1000 rows"
        ),
    ] = None
    ood: Annotated[Outside | None, About("rows of no class", when=When.OUTSIDE)] = None
    by: str | None = None
    per_group: tuple[GroupRow, ...] | None = None
    looks: tuple[GroupLook, ...] | None = None
    where: Annotated[Where | None, About(gate=False)] = None
    worst_group: Annotated[WorstGroup | None, About("", Unit.SHARE, "higher", EXACT, When.GROUPS)] = None
    scores: tuple[ScoreRow, ...] | None = None
    masks: tuple[MaskRow, ...] | None = None
    pictures: Annotated[Pictures | None, About(gate=False)] = None
    difference: Annotated[Difference | None, About("", Unit.DIFFERENCE, when=When.BASELINE)] = None
    left_out: Annotated[LeftOut | None, About(gate=False)] = None
    gates: tuple[GateRow, ...]

    def __post_init__(self) -> None:
        missing = [key for key in _LABELLED if (getattr(self, key) is None) != (self.base_accuracy is None)]
        if missing:
            raise ValueError(f"'{missing[0]}' is there without labels, or missing with them")

    @staticmethod
    def mend(tree: dict[str, Any]) -> None:
        """Reports of 0.1.0 told how often rows were drawn for intervals, and E-AURC above an ideal of their own."""
        tree.pop("bootstrap", None)
        if "standard_e_aurc" in tree:
            tree["e_aurc"] = tree.pop("standard_e_aurc")
        elif isinstance(tree.get("e_aurc"), dict) and tree["e_aurc"].get("convention") == _EARLIER_E_AURC:
            tree["e_aurc"] |= {"value": None, "lower": None, "upper": None}


@dataclass(frozen=True, kw_only=True)
class ErrorArea:
    """An area under a curve of errors; `convention` says which of the numbers with that name it is."""

    value: float | None
    convention: str


@dataclass(frozen=True, kw_only=True)
class ErrorFigures:
    """An error of the accepted rows, of all rows, and the areas under its curves."""

    value: Annotated[float | None, About("of the accepted rows")]
    all: Annotated[float | None, About("of all rows")]
    aurc: Annotated[ErrorArea, About("area under it against coverage", label="AURC")]
    augrc: Annotated[ErrorArea, About("area under the sum of accepted errors / rows against coverage", label="AUGRC")]


@dataclass(frozen=True, kw_only=True)
class RatioMean:
    """The density ratio on these rows."""

    mean: Annotated[float | None, About("mean ratio of the rows, 1 in expectation without drift", Unit.RATIO)]


@dataclass(frozen=True, kw_only=True)
class ErrorPoint:
    """Coverage and errors at one tau of (0, 1]."""

    tau: Share
    coverage: Share
    mse: Annotated[float | None, About(unit=Unit.SQUARED_ERROR)]
    mae: Annotated[float | None, About(unit=Unit.ERROR)]


@dataclass(frozen=True, kw_only=True, eq=False)
class RegressionReport(Judged):
    """What `evaluate_regression` found about a dump; by attribute or by key."""

    CODEC: ClassVar[Codec] = Codec(
        "drrej-regression-report/1", "report of a regression", ReportError
    )  # 1: the first format

    drrej_version: str
    task: Literal["regression"] = "regression"
    rows: Rows
    tau: Tau
    cutoff: Cutoff
    cutoff_by: str | None = None
    seen_by: tuple[str, ...] | None = None
    target: Annotated[Target | None, About(gate=False)] = None
    coverage: CoverageOfDump
    mse: Annotated[
        ErrorFigures, About("mean squared error of the prediction", Unit.SQUARED_ERROR, "lower", NONE, label="MSE")
    ]
    mae: Annotated[ErrorFigures, About("mean absolute error of the prediction", Unit.ERROR, "lower", NONE, label="MAE")]
    ratio: Annotated[RatioMean, About(better="neither", interval=NONE)]
    curve: tuple[ErrorPoint, ...]
    gates: tuple[GateRow, ...]
