"""The reports, section by section. Their keys, their schema and the metrics of gates follow from these classes.

What needs labels or was not asked for is None and is left out of the document.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, field
from msgspec.structs import astuple

from drrej.core.types import Stored
from drrej.documents.document import (
    EXACT,
    JOINED,
    NONE,
    PRICED,
    SAMPLED,
    TOGETHER,
    WEIGHTED,
    Better,
    Count,
    Document,
    GateRow,
    LeftOut,
    NotNegative,
    Share,
    Unit,
    When,
    about,
    written,
)
from drrej.documents.figures import (
    Accuracy,
    Change,
    Coverage,
    CoverageOfDump,
    CurvePoint,
    Cutoff,
    PointFigure,
    Proportion,
    Rows,
    Target,
    Tau,
    TotalCost,
)
from drrej.errors import OptionError, ReportError

# Sections that are there when they are asked for


class Outside(Stored, frozen=True, kw_only=True):
    """Rows of no class (column `column` is true). To accept one costs `cost_ratio` times an error.

    All other figures of the report are about rows that have a class.
    """

    column: str
    cost_ratio: Annotated[float, about(gate=False)]
    rows: Annotated[Count, about("how many there are", "neither", NONE)]
    accepted: Annotated[Proportion, about("share of them that is accepted", "lower", EXACT)]
    joint_risk: Annotated[
        float | None,
        about(
            "errors, and accepted rows of no class times the cost ratio, per accepted row of either kind",
            "lower",
            NONE,
            unit="cost",
        ),
    ]
    joint_risk_all: Annotated[float, about("the same if every row were accepted", "lower", NONE, unit="cost")]
    auroc: Annotated[
        Share | None,
        about(
            "chance that a row of no class has a larger loss than one of a class, ties half",
            "higher",
            NONE,
            label="AUROC",
        ),
    ]
    fpr_at_95_tpr: Annotated[
        Share | None,
        about("share of them that is accepted when 95 % of the others are", "lower", NONE, label="FPR at 95 % TPR"),
    ]
    aurc: Annotated[float, about("AURC of the joint risk, over both kinds of rows", "lower", NONE, unit="cost")]
    augrc: Annotated[float, about("AUGRC of the joint risk, over both kinds of rows", "lower", NONE, unit="cost")]
    scores: dict[str, dict[str, float | None]] | None = None
    """The same figures of each score that is compared."""


_LABELLED = ("accuracy", "nll", "ece", "brier", "aurc", "e_aurc", "augrc", "points", "curve", "coverage_curve")
"""Sections that every report with labels has, and none without them."""


class ExpectedAccuracy(Stored, frozen=True, kw_only=True):
    """The accuracy that the probabilities promise, of the accepted and of all rows."""

    value: Annotated[Share | None, about("of the accepted rows")]
    all: Annotated[Share | None, about("of all rows")]


class Calibration(Stored, frozen=True, kw_only=True):
    """A calibration figure: before calibration, and after it on all and on the accepted rows."""

    uncalibrated: Annotated[NotNegative | None, about("before calibration")]
    all: Annotated[NotNegative | None, about("after calibration")]
    accepted: Annotated[NotNegative | None, about("after calibration on the accepted rows")]


class Ranking(Stored, frozen=True, kw_only=True):
    """How well the loss orders rows, as one number; `convention` says which of those with that name.

    None where it is undefined, as without errors or without right rows.
    """

    value: float | None
    convention: str


class MeanRatio(Stored, frozen=True, kw_only=True):
    """The density ratio on these rows; without drift its mean is 1 in expectation."""

    mean: Annotated[NotNegative | None, about("mean ratio of the rows, 1 in expectation without drift", unit="ratio")]
    std_error: Annotated[
        NotNegative | None,
        about("standard error of the mean ratio, including that of the fit", "lower", unit="ratio"),
    ]
    p_value: Annotated[
        Share | None, about("chance of a mean ratio at least this far from 1 without drift", "higher", unit="p-value")
    ]


class Drift(Stored, frozen=True, kw_only=True):
    """How far the losses have moved since the fit."""

    distance: Annotated[
        Share | None, about("largest gap between the distribution of the losses and that of the fit", "lower")
    ]
    p_value: Annotated[Share | None, about("chance of such a gap or a larger without drift", "higher", unit="p-value")]


class CostPerRow(Stored, frozen=True, kw_only=True):
    """Costs of all rows."""

    value: Annotated[float | None, about("realised cost per row")]
    expected: Annotated[float | None, about("expected cost per row")]


class Cost(Stored, frozen=True, kw_only=True):
    """Costs of the accepted rows and, under `all`, of all rows."""

    value: Annotated[float | None, about("realised cost per accepted row", interval=PRICED)]
    lower: Annotated[float | None, about("lower end of its 95 % interval", interval=PRICED)] = None
    upper: Annotated[float | None, about("upper end of its 95 % interval", interval=PRICED)] = None
    expected: Annotated[float | None, about("expected cost per accepted row")]
    all: CostPerRow


class ClassRow(Stored, frozen=True, kw_only=True):
    """The rows of one true class, and those that are predicted as it.

    The intervals hold for all these figures of all classes together, at 95 %. Earlier reports have only the shares.
    """

    class_: int | str = field(name="class")
    rows: Count
    coverage: Share | None
    accuracy: Share | None
    precision: Annotated[
        Proportion | None,
        about("share of the accepted rows predicted as it that are right (predictive value, PPV)", "higher", TOGETHER),
    ] = None
    recall: Annotated[
        Proportion | None,
        about("share of its accepted rows that are predicted as it (sensitivity)", "higher", TOGETHER),
    ] = None
    npv: Annotated[
        Proportion | None,
        about("share of the accepted rows predicted as another class that do not belong to it", "higher", TOGETHER),
    ] = None
    f1: Annotated[Share | None, about("harmonic mean of precision and recall", "higher", NONE)] = None
    missed: Annotated[
        Proportion | None, about("share of all its rows that are accepted as another class", "lower", TOGETHER)
    ] = None
    reviewed: Annotated[Proportion | None, about("share of all its rows that are rejected", "lower", TOGETHER)] = None


class Reviews(Stored, frozen=True, kw_only=True):
    """The rows that are rejected, and what reviewing them takes."""

    value: Annotated[Count, about("as a number")]
    per_1000: Annotated[NotNegative, about("per 1,000 rows", unit="count")]
    hours: Annotated[NotNegative | None, about("hours that reviewing takes", when=When.MINUTES, unit="number")] = None


class AuditRow(Stored, frozen=True, kw_only=True):
    """The accepted rows predicted as one class, or of one group: how many, how many have labels, how many are right.

    The intervals hold for all of them together, at 95 %.
    """

    group: str
    accepted: Count
    labels: Count
    accuracy: Proportion


class Audited(Stored, frozen=True, kw_only=True):
    """What a random sample of the accepted rows, drawn by `cutoff_by` or predicted class, says of all of them."""

    labels: Annotated[Count, about("how many of them have a label", "higher", NONE)]
    accuracy: Annotated[Proportion, about("share of them whose prediction is right", "higher", SAMPLED)]
    risk: Annotated[Proportion, about("share of them whose prediction is wrong", "lower", SAMPLED)]
    per_group: tuple[AuditRow, ...]


class ConfusionRow(Stored, frozen=True, kw_only=True):
    """The rows of one true class: how many accepted ones were predicted as each class, and how many are rejected."""

    class_: str = field(name="class")
    predicted: tuple[Count, ...]
    rejected: Count


class ConfusionMatrix(Stored, frozen=True, kw_only=True):
    """Accepted rows by true and predicted class, with a column of the rejected ones.

    Of many classes those with the most errors are shown; the last row and column are the `others` together.
    """

    rows: tuple[ConfusionRow, ...]
    others: Annotated[Count, about("classes that are not listed")]


class Example(Stored, frozen=True, kw_only=True):
    """A row: its true class, prediction and expected loss, and what the columns that were asked for hold, as text."""

    label: str
    prediction: str
    loss: float
    values: tuple[str, ...]


class Examples(Stored, frozen=True, kw_only=True):
    """Rows to look at: the rejected ones with the largest losses, the accepted errors with the smallest."""

    columns: tuple[str, ...]
    rejected: tuple[Example, ...]
    wrongly_accepted: tuple[Example, ...]


class GroupRow(Stored, frozen=True, kw_only=True):
    """The rows of one group."""

    group: str
    rows: Count
    coverage: Coverage
    accuracy: Accuracy
    base_accuracy: Accuracy


class GroupLook(Stored, frozen=True, kw_only=True):
    """The rows of one group, without labels. Drift is since the fit; its p-values are Bonferroni-corrected."""

    group: str
    rows: Count
    coverage: Coverage
    expected_accuracy: Share | None
    drift: Drift


class WorstGroup(Stored, frozen=True, kw_only=True):
    """The lowest of each figure of the groups, and whose it is."""

    coverage: Annotated[Coverage, about("lowest coverage of a group")]
    accuracy: Annotated[Accuracy, about("lowest accuracy of the accepted rows of a group")]
    base_accuracy: Annotated[Accuracy, about("lowest accuracy of all rows of a group")]


class WorstClass(Stored, frozen=True, kw_only=True):
    """The worst of each figure of the classes, and whose it is."""

    precision: Annotated[Proportion, about("lowest predictive value of a class", "higher")]
    recall: Annotated[Proportion, about("lowest share of the accepted rows of a class that are right", "higher")]
    missed: Annotated[Proportion, about("highest share of the rows of a class accepted as another one", "lower")]
    reviewed: Annotated[Proportion, about("highest share of the rows of a class that are rejected", "lower")]


class ScoreRow(Stored, frozen=True, kw_only=True):
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


class Difference(Stored, frozen=True, kw_only=True):
    """Changes since an earlier report (`reports`), or against another dump of the same rows (`paired`)."""

    kind: Literal["reports", "paired"]
    rows: Annotated[Count | None, about("rows that are paired", "higher", NONE, When.PAIRS)] = None
    coverage: Annotated[Change, about("coverage minus that of the baseline", "higher", JOINED)]
    accuracy: Annotated[Change, about("accuracy minus that of the baseline", "higher", JOINED)]
    base_accuracy: Annotated[Change, about("accuracy without rejection minus that of the baseline", "higher", JOINED)]
    aurc: Annotated[Change, about("AURC minus that of the baseline", "lower", JOINED, ends=When.BOTH_INTERVALS)]
    e_aurc: Annotated[Change, about("E-AURC minus that of the baseline", "lower", JOINED, ends=When.BOTH_INTERVALS)]
    augrc: Annotated[Change, about("AUGRC minus that of the baseline", "lower", JOINED, ends=When.BOTH_INTERVALS)]


def _measure(meaning: str, label: str, unit: Unit, better: Better = "lower") -> Meta:
    """A figure of rows with labels, without an interval."""
    return about(meaning, better, NONE, When.LABELS, label, unit)


def _area(meaning: str, label: str, unit: Unit) -> Meta:
    """An area, whose interval is made if asked for."""
    return about(meaning, "lower", WEIGHTED, When.LABELS, label, unit, ends=When.INTERVALS)


class Report(Document, frozen=True, kw_only=True, tag="drrej-report/1"):  # 1: the first format
    """What `evaluate` found about a dump.

    Sections are attributes (`report.coverage.value`) and keys (`report["coverage"]["value"]`).
    """

    NOUN, ERROR = "report", ReportError

    drrej_version: str
    model: str | None = None
    """The model that made the predictions, as NAME@VERSION, if it was named."""
    rejector_model: str | None = None
    """The model that the rejector was made for, where that is another."""
    rows: Rows
    classes: Annotated[int, Meta(ge=2), about("classes of the model", "neither", NONE, unit="count")]
    tau: Tau
    cutoff: Cutoff
    cutoff_by: str | None = None
    seen_by: tuple[str, ...] | None = None
    unsure_order: str | None = None
    """The plain loss beneath a learned one, where drift says that the learned order may not hold on these rows."""
    tied_rows: Annotated[Count | None, about(gate=False)] = None
    """How many rows have the largest loss that is accepted, where these are more than half: no cutoff divides them."""
    repeated_rows: Annotated[Count | None, about(gate=False)] = None
    """About how many rows have the same scores as another row, where these are more than 1 %: they count once."""
    score: str | None = None
    """The score that the rows bring, where they have no classes but are right or wrong."""
    accepts: str | None = None
    """Which scores are accepted, such as `confidence > 0.83`, where one score decides."""
    below_chance: str | None = None
    """What may be wrong with the labels, the order of the classes or the score, where too few rows are right."""
    target: Annotated[Target | None, about(gate=False)] = None
    coverage: CoverageOfDump
    accuracy: Annotated[
        Accuracy | None, about("share of the accepted rows whose prediction is right", "higher", EXACT, When.LABELS)
    ] = None
    risk: Annotated[
        Proportion | None, about("share of the accepted rows whose prediction is wrong", "lower", EXACT, When.LABELS)
    ] = None
    errors: Annotated[Count | None, about("wrong predictions among the accepted rows", "lower", NONE, When.LABELS)] = (
        None
    )
    base_accuracy: Annotated[
        Accuracy | None, about("share of all rows whose prediction is right", "higher", EXACT, When.LABELS)
    ] = None
    expected_accuracy: Annotated[
        ExpectedAccuracy,
        about("accuracy estimated without labels (it does not account for drift since the fit)", "higher", NONE),
    ]
    nll: Annotated[Calibration | None, _measure("mean negative log-likelihood of the true class", "NLL", "nats")] = None
    ece: Annotated[Calibration | None, _measure("expected calibration error over 15 bins", "ECE", "share")] = None
    classwise_ece: Annotated[
        Calibration | None,
        about(
            "mean over classes of the calibration error of its probability over 15 bins",
            "lower",
            NONE,
            When.CLASSWISE,
            "classwise ECE",
            "share",
        ),
    ] = None
    brier: Annotated[Calibration | None, _measure("mean Brier score, summed over classes", "Brier", "score")] = None
    aurc: Annotated[Proportion | None, _area("area under error rate against coverage", "AURC", "share")] = None
    e_aurc: Annotated[
        Change | None, _area("AURC minus that of a perfect order, err + (1 - err) ln(1 - err)", "E-AURC", "number")
    ] = None
    augrc: Annotated[Proportion | None, _area("area under errors / rows against coverage", "AUGRC", "share")] = None
    naurc: Annotated[
        Ranking | None,
        _measure(
            "normalised AURC, (AURC - ideal) / (err - ideal) with that ideal: 0 is perfect, 1 is random",
            "nAURC",
            "number",
        ),
    ] = None
    failure_auroc: Annotated[
        Ranking | None,
        _measure(
            "AUROC of errors: the chance that a wrong row has a larger loss than a right one",
            "AUROC of errors",
            "share",
            "higher",
        ),
    ] = None
    fpr_at_95_tpr: Annotated[
        Ranking | None,
        _measure("share of errors that is accepted when 95 % of the right rows are", "FPR at 95 % TPR", "share"),
    ] = None
    points: Annotated[dict[str, PointFigure] | None, about(when=When.LABELS)] = None
    ratio: Annotated[MeanRatio, about(better="neither", interval=NONE)]
    drift: Annotated[Drift, about(interval=NONE)]
    curve: tuple[CurvePoint, ...] | None = None
    coverage_curve: tuple[CurvePoint, ...] | None = None
    reviews: Annotated[Reviews, about("rejected rows", "lower", NONE)]
    per_class: tuple[ClassRow, ...] | None = None
    worst_class: Annotated[WorstClass | None, about(interval=TOGETHER, when=When.LABELS)] = None
    confusion: Annotated[ConfusionMatrix | None, about(gate=False)] = None
    examples: Annotated[Examples | None, about(gate=False)] = None
    cost: Annotated[Cost | None, about(better="lower", interval=NONE, when=When.COSTS, unit="cost")] = None
    total_cost: Annotated[
        TotalCost | None,
        about("cost of errors and reviews per 1000 rows", "lower", PRICED, When.PRICES, "cost per 1000 rows", "cost"),
    ] = None
    audit: Annotated[Audited | None, about("accepted rows, estimated from a random sample", when=When.AUDIT)] = None
    ood: Annotated[Outside | None, about("rows of no class", when=When.OUTSIDE)] = None
    by: str | None = None
    per_group: tuple[GroupRow, ...] | None = None
    looks: tuple[GroupLook, ...] | None = None
    worst_group: Annotated[WorstGroup | None, about(better="higher", interval=EXACT, when=When.GROUPS)] = None
    scores: tuple[ScoreRow, ...] | None = None
    pictures: Annotated[dict[str, Any] | None, about(gate=False)] = None
    """What a page draws, as `pipeline.pictures` makes it; only the page reads it."""
    difference: Annotated[Difference | None, about(when=When.BASELINE, unit="difference")] = None
    left_out: Annotated[LeftOut | None, about(gate=False)] = None
    gates: tuple[GateRow, ...]

    def __post_init__(self) -> None:
        for key in _LABELLED:
            if (getattr(self, key) is None) != (self.base_accuracy is None):
                raise ValueError(f"'{key}' is there without labels, or missing with them")
        for key in ("ece", "classwise_ece", "failure_auroc", "fpr_at_95_tpr"):
            section = getattr(self, key)
            for number in () if section is None else astuple(section):
                if isinstance(number, float) and not 0 <= number <= 1:
                    raise ValueError(f"'{key}' is not a share")

    @staticmethod
    def mend(tree: dict[str, Any]) -> None:
        """Refuse reports of 0.1.0: their E-AURC was another figure."""
        if tree.get("drrej_version") == "0.1.0":
            raise OptionError("a report of drrej 0.1.0; make it again with 'drrej evaluate'")


class ErrorFigures(Stored, frozen=True, kw_only=True):
    """An error of the accepted rows, of all rows, and the areas under its curves."""

    value: Annotated[NotNegative | None, about("of the accepted rows")]
    all: Annotated[NotNegative | None, about("of all rows")]
    aurc: Annotated[Ranking, about("area under it against coverage", label="AURC")]
    augrc: Annotated[Ranking, about("area under the sum of accepted errors / rows against coverage", label="AUGRC")]


class ErrorPoint(Stored, frozen=True, kw_only=True):
    """Coverage and errors at one tau of (0, 1]."""

    tau: Share
    coverage: Share
    mse: Annotated[NotNegative | None, about(unit="squared unit of the target")]
    mae: Annotated[NotNegative | None, about(unit="unit of the target")]


class RegressionReport(Document, frozen=True, kw_only=True, tag="drrej-regression-report/1"):  # 1: the first format
    """What `evaluate_regression` found about a dump; by attribute or by key."""

    NOUN, ERROR = "report of a regression", ReportError

    drrej_version: str
    task: Literal["regression"] = written("regression")
    model: str | None = None
    rejector_model: str | None = None
    rows: Rows
    tau: Tau
    cutoff: Cutoff
    cutoff_by: str | None = None
    seen_by: tuple[str, ...] | None = None
    target: Annotated[Target | None, about(gate=False)] = None
    coverage: CoverageOfDump
    mse: Annotated[
        ErrorFigures,
        about("mean squared error of the prediction", "lower", NONE, None, "MSE", "squared unit of the target"),
    ]
    mae: Annotated[
        ErrorFigures, about("mean absolute error of the prediction", "lower", NONE, None, "MAE", "unit of the target")
    ]
    ratio: Annotated[MeanRatio, about(better="neither", interval=NONE)]
    curve: tuple[ErrorPoint, ...]
    gates: tuple[GateRow, ...]
