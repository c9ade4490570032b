"""The rejector: a small JSON document that flows through the pipeline.

Each step adds a section and drops those that come after it, so a stale threshold cannot survive a new fit.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Literal

import numpy as np
from msgspec import field
from msgspec.structs import replace
from numpy.typing import NDArray

from drrej._version import __version__
from drrej.core.calibrators import CALIBRATORS, Calibrator, Temperature, Vector
from drrej.core.confidence import ScoreMap
from drrej.core.drift import STEPS
from drrej.core.losses import KINDS, ErrorModel, Loss, PlainLoss
from drrej.core.ratio import MAX_ALPHA, DensityRatio
from drrej.core.reuse import read_fingerprint
from drrej.core.thresholds import REJECT_ALL, Rule
from drrej.core.types import Floats, InputKind, Precision, Stored
from drrej.documents.document import Document, Finding, written
from drrej.errors import OptionError, RejectorError
from drrej.strict_json import shown

Task = Literal["classification", "regression"]

_ROUNDING = 1e-9
"""Numbers that are computed again elsewhere differ by less."""


class BeforeAfter(Stored, frozen=True):
    """A figure before and after calibration."""

    before: float | None
    after: float | None


class Columns(Stored, frozen=True):
    """The columns that later commands need not be told again; `logits` may be scores of any kind.

    `prediction` and `target` are those of a regression; beside a score, `prediction` is compared with the label, or
    `correct` tells which rows are right.
    """

    logits: str
    label: str | None = None
    prediction: str | None = None
    target: str | None = None
    correct: str | None = None


class Calibration(Stored, frozen=True):
    """The fitted temperature; `method` is "given" when it was set by hand, "none" without logits.

    `floor` is what a probability of 0 counts as; None for logits. With `vector` that is the calibrator; the temperature
    is then only what its search started from.
    """

    method: str
    temperature: float
    converged: bool | None = None
    rows: int | None = None
    fingerprint: str | None = None
    nll: BeforeAfter | None = None
    ece: BeforeAfter | None = None
    brier: BeforeAfter | None = None
    floor: float | None = None
    vector: Vector | None = None
    score: ScoreMap | None = None
    """What turns scores of any kind into the probability of being wrong, in place of a temperature."""


LOSS_PARTS = {"learned": "learned", "costs": "cost", "loss_column": "column"}
"""Fields of a ratio that belong to one loss, and its name."""


class Ratio(Stored, frozen=True, kw_only=True, dict=True):
    """The fitted density ratio, see `drrej.core.ratio`.

    `variance` is that of the ratio on the fitted rows, `loss_quantiles` what `drrej.core.drift` keeps of their losses.
    The loss is stored by its name and the one field that it has, if any. `drift_quantiles` are those
    of the plain loss by which drift is looked for, where the loss itself was fitted to these rows. `third` is the third
    central moment of the ratio on these rows.
    `error_blocks` are rows and errors of stretches of the fitted rows in the order of their losses, where they had
    labels: certified thresholds are planned by them. `confusions` are the rows of each predicted and true class there,
    unless these pairs are many.
    """

    alpha: float
    lam: float = field(name="lambda")
    loss_name: str = field(name="loss")
    log_max_ratio: float
    min_loss: float
    mean_loss: float | None
    max_loss: float
    variance: float | None
    rows: int
    fingerprint: str
    loss_quantiles: tuple[float, ...]
    learned: ErrorModel | None = None
    costs: tuple[tuple[float, ...], ...] | None = None
    loss_column: str | None = None
    drift_quantiles: tuple[float, ...] | None = None
    third: float | None = None
    error_blocks: tuple[tuple[int, int], ...] | None = None
    confusions: tuple[tuple[int, int, int], ...] | None = None

    @cached_property
    def loss(self) -> Loss:
        """The loss itself."""
        parts = {name: value for name in LOSS_PARTS if (value := getattr(self, name)) is not None}
        kind = KINDS[self.loss_name]
        return kind(**parts or ({"name": self.loss_name} if kind is PlainLoss else {}))

    @property
    def drift_reference(self) -> tuple[float, ...]:
        """Quantiles of the loss by which drift is looked for."""
        return self.loss_quantiles if self.drift_quantiles is None else self.drift_quantiles

    @property
    def density(self) -> DensityRatio:
        """The ratio as a function of losses."""
        return DensityRatio(self.alpha, self.lam, self.log_max_ratio, self.min_loss)


class GroupThreshold(Stored, frozen=True):
    """The decision for the rows of one group. A negative cutoff rejects all of them."""

    group: str
    tau: float | None
    cutoff: float | None
    rows: int
    accepted: int
    coverage: float
    accuracy: float | None = None
    mean: float | None = None
    """What the accepted rows really lost, where the rule limits that mean."""


class Threshold(Stored, frozen=True):
    """The decision: reject iff L' >= cutoff. `cutoff` None rejects nothing; tau is its translation.

    With `by`, a column or "prediction", each group has its own cutoff and `tau` and `cutoff` are None.
    `fingerprint` tells the rows that the cutoff was chosen on, where it depends on them.
    """

    tau: float | None
    cutoff: float | None
    rule: Rule
    rows: int
    accepted: int
    coverage: float
    accuracy: float | None = None
    fingerprint: str | None = None
    by: str | None = None
    groups: tuple[GroupThreshold, ...] | None = None
    mean: float | None = None
    """What the accepted rows really lost, where the rule limits that mean."""

    def accepts(self, losses: Floats) -> NDArray[np.bool_]:
        """Which rows are accepted."""
        if self.cutoff is None:
            return np.ones(losses.shape, bool)
        return losses < np.float64(self.cutoff)


LEAST_TEMPERATURE = sys.float_info.min
"""The inverse of a smaller one is not a number."""


class Rejector(Document, frozen=True, tag="drrej-rejector/1"):  # 1: the first format
    """The document."""

    NOUN, ERROR = "rejector", RejectorError

    classes: int
    input: InputKind
    columns: Columns
    drrej_version: str = written(__version__)
    class_names: tuple[str, ...] | None = None
    binary: bool = written(False)
    precision: Precision = written("auto")
    normalize: bool = False
    task: Task = "classification"
    model: str | None = None
    """The model whose predictions it was made of, as NAME@VERSION, if it was named."""
    calibration: Calibration | None = None
    ratio: Ratio | None = None
    threshold: Threshold | None = None

    def with_sections(
        self, calibration: Calibration | None, ratio: Ratio | None = None, threshold: Threshold | None = None
    ) -> Rejector:
        """The document after `calibrate`, `fit` or `threshold`: with the sections so far, and none that come later."""
        return replace(self, drrej_version=__version__, calibration=calibration, ratio=ratio, threshold=threshold)

    @property
    def calibrator(self) -> Calibrator | ScoreMap:
        """What turns logits into calibrated scores."""
        found = self.need_calibration()
        return found.score or found.vector or Temperature(found.temperature)

    @property
    def floor(self) -> float | None:
        """What a probability of 0 counts as; None for logits."""
        return self.need_calibration().floor

    def need_calibration(self) -> Calibration:
        """The calibration, or an error that names the command to run."""
        if self.calibration is None:
            raise RejectorError("the rejector has no calibration yet; run 'drrej calibrate' first")
        return self.calibration

    @property
    def class_titles(self) -> tuple[str, ...]:
        """The names of the classes, or else their numbers as text."""
        return self.class_names or tuple(map(str, range(self.classes)))

    @property
    def has_classes(self) -> bool:
        """Whether rows have logits; those of a regression only bring a loss of their own."""
        return self.task == "classification"

    @property
    def is_scored(self) -> bool:
        """Whether rows bring scores of any kind and are right or wrong: there are no classes to tell apart."""
        return self.input == "scores"

    @property
    def has_predictions(self) -> bool:
        """Whether a mask tells the class of each row."""
        return self.has_classes and not self.is_scored

    def need_ratio(self) -> Ratio:
        """The ratio, or an error that names the command to run."""
        self.need_calibration()
        if self.ratio is None:
            raise RejectorError("the rejector has no ratio yet; run 'drrej fit' first")
        return self.ratio

    def need_threshold(self) -> Threshold:
        """The threshold, or an error that names the command to run."""
        self.need_ratio()
        if self.threshold is None:
            raise RejectorError("the rejector has no threshold yet; run 'drrej threshold' first")
        return self.threshold

    def invariants(self) -> Iterator[Finding]:
        """What must hold between the values; a row may rely on those before it."""
        names, calibration, ratio, threshold = self.class_names, self.calibration, self.ratio, self.threshold
        yield "classes", self.classes >= 2, f"{RANGE}: it must be 2 or more"
        yield "classes", not self.binary or self.classes == 2, "contradicts 'binary'"
        yield "class_names", names is None or len(names) == self.classes, f"{RANGE}: 'classes' names are needed"
        yield "class_names", names is None or len(set(names)) == len(names), "names a class twice"
        yield "normalize", not self.normalize or self.input != "logits", "contradicts 'input': logits have no sum"
        yield "task", self.has_classes or (self.binary and names is None), "contradicts 'binary' or 'class_names'"
        missing = "is there, but a section is missing: calibration, ratio and threshold build on each other"
        yield "ratio", ratio is None or calibration is not None, missing
        yield "threshold", threshold is None or ratio is not None, missing
        if calibration is not None:
            is_none = calibration.method == "none"
            yield "task", is_none != self.has_classes, "contradicts 'calibration.method', 'none' for regressions only"
            yield from _of_calibration(calibration, self.input, self.classes)
        if ratio is not None:
            yield "ratio.loss", self.has_classes or ratio.loss_name == "column", f"{RANGE} for a regression"
            yield from _of_ratio(ratio, self.classes)
        if ratio is not None and threshold is not None:
            rule, kind = threshold.rule, "threshold.rule.kind"
            yield kind, self.has_classes or not rule.needs_labels, f"{RANGE} for a regression"
            yield kind, not (self.has_classes and rule.kind in ("mse", "mae")), f"{RANGE} for a classification"
            yield from _of_threshold(threshold, ratio)

    @staticmethod
    def mend(tree: dict[str, Any]) -> None:
        """Give a document that was written before there was a task its task; leave out what is no longer kept."""
        calibration, ratio = tree.get("calibration"), tree.get("ratio")
        if isinstance(calibration, dict):
            calibration.pop("choice", None)
            tree.setdefault("task", "regression" if calibration.get("method") == "none" else "classification")
        if isinstance(ratio, dict):
            for key in ("choice", "bounds", "effective_sample", "normalizer", "error"):
                ratio.pop(key, None)
            if isinstance(ratio.get("learned"), dict) and ratio["learned"].keys() & {"base", "features"}:
                raise OptionError("its learned loss comes from an older version; run 'drrej fit' again")
        if isinstance(threshold := tree.get("threshold"), dict):
            groups = threshold.get("groups")
            for decision in [threshold, *(groups if isinstance(groups, list) else ())]:
                if isinstance(decision, dict):
                    decision.pop("bound", None)


# What must hold between the values of the sections

RANGE = "is out of range"


def _of_calibration(found: Calibration, input: InputKind, classes: int) -> Iterator[Finding]:
    key, floor, vector = "calibration", found.floor, found.vector
    known = found.method in (*CALIBRATORS, "given", "none")
    yield f"{key}.method", known, "is unknown or no longer supported; run 'drrej calibrate' again"
    yield f"{key}.temperature", LEAST_TEMPERATURE <= found.temperature < math.inf, f"{RANGE}: it must be above 0"
    yield f"{key}.score", (found.score is not None) == (input == "scores"), "contradicts 'input'"
    has_vector = found.method in ("vector", "beta") and input != "scores"
    yield f"{key}.vector", (vector is not None) == has_vector, "contradicts 'calibration.method'"
    if vector is not None:
        lengths = {len(vector.weights), len(vector.biases)}
        yield f"{key}.vector", lengths == {classes}, f"{RANGE}: one weight for each of 'classes' is needed"
        yield f"{key}.vector.weights", min(vector.weights) >= 0, f"{RANGE}: none may be below 0"
    if found.score is not None:
        inputs = 2 if found.score.forms == ("share",) else len(found.score.forms)
        whole = len(found.score.terms) == inputs > 0 and len(found.score.floors) == len(found.score.forms)
        yield f"{key}.score", whole, f"{RANGE}: each score needs its terms"
        places = [place for place, _ in found.score.knots]
        yield f"{key}.score.knots", places == sorted(places), "is not in ascending order"
    yield f"{key}.floor", floor is None or input in ("probs", "log-probs"), "contradicts 'input': logits have no floor"
    allowed = floor is None or 0 < floor <= 0.5 / classes
    yield f"{key}.floor", allowed, f"{RANGE}: above 0 and at most 1 / (2 x {classes} classes)"
    yield from _fingerprint(f"{key}.fingerprint", found.fingerprint, found.rows)


def _fingerprint(key: str, text: str | None, rows: int | None) -> Iterator[Finding]:
    """An absent one is a fact of its own: then nothing can be certified."""
    if text:
        yield key, rows is not None, "is there, but the number of rows is not"
        try:
            read_fingerprint(text, rows or 0)
        except ValueError as error:
            yield key, False, f"is not a fingerprint: {shown(str(error))}"


def _of_ratio(found: Ratio, classes: int) -> Iterator[Finding]:
    rows, quantiles, g = found.rows, found.loss_quantiles, found.log_max_ratio
    yield "ratio.alpha", abs(found.alpha) <= MAX_ALPHA, f"{RANGE}: from {-MAX_ALPHA:g} to {MAX_ALPHA:g}"
    yield "ratio.lambda", found.lam > 0, f"{RANGE}: it must be above 0"
    yield "ratio.rows", rows >= 1, RANGE
    yield "ratio.log_max_ratio", 0 <= g <= math.log(rows) + _ROUNDING, f"{RANGE}: from 0 to ln of 'ratio.rows'"
    yield "ratio.loss", found.loss_name in KINDS, "is unknown or no longer supported; run 'drrej fit' again"
    for part, name in LOSS_PARTS.items():
        right = (getattr(found, part) is not None) == (found.loss_name == name)
        yield f"ratio.{part}", right, f"contradicts 'ratio.loss': only the loss '{name}' has it"
    try:
        found.loss.check(classes)
    except OptionError as error:
        yield "ratio.loss", False, f"{RANGE}: {error}"
    yield from _quantiles("ratio.loss_quantiles", quantiles, rows)
    ends = (found.min_loss, found.max_loss) == (quantiles[0], quantiles[-1])
    yield "ratio.loss_quantiles", ends, "does not run from 'ratio.min_loss' to 'ratio.max_loss'"
    blocks = found.error_blocks
    if blocks is not None:
        counted = sum(count for count, _ in blocks) == rows and all(0 <= wrong <= count for count, wrong in blocks)
        yield "ratio.error_blocks", counted, f"{RANGE}: rows and errors of all 'ratio.rows' are needed"
    pairs = found.confusions
    if pairs is not None:
        inside = all(0 <= guess < classes and 0 <= truth < classes and count > 0 for guess, truth, count in pairs)
        yield "ratio.confusions", inside, f"{RANGE}: (predicted, true, rows) of the classes are needed"
    apart = (found.drift_quantiles is None) == (found.loss.drift_loss is None)
    yield "ratio.drift_quantiles", apart, "contradicts 'ratio.loss': a learned loss has them"
    if found.drift_quantiles is not None:
        yield from _quantiles("ratio.drift_quantiles", found.drift_quantiles, rows)
    yield from _fingerprint("ratio.fingerprint", found.fingerprint, rows)


def _quantiles(key: str, quantiles: Sequence[float], rows: int) -> Iterator[Finding]:
    yield key, len(quantiles) == min(rows, STEPS + 1), "does not have the number of losses that 'ratio.rows' requires"
    yield key, list(quantiles) == sorted(quantiles), "is not in ascending order"
    yield key, quantiles[0] >= 0, f"{RANGE}: losses are not negative"


def _of_threshold(found: Threshold, ratio: Ratio) -> Iterator[Finding]:
    rule, groups = found.rule, found.groups
    yield "threshold.rule.kind", rule.kind != "mean-cost" or ratio.loss.is_cost, "contradicts 'ratio.loss'"
    prices = rule.review_cost is None or (rule.error_cost is None) == ratio.loss.is_cost
    yield "threshold.rule.error_cost", prices, "contradicts 'ratio.loss': a cost matrix replaces it"
    certified = (rule.confidence is None) == (rule.method is None)
    yield "threshold.rule.confidence", certified, "contradicts 'threshold.rule.method'"
    yield from _fingerprint("threshold.fingerprint", found.fingerprint, found.rows)
    yield "threshold.groups", (found.by is None) == (groups is None), "and 'threshold.by' require each other"
    by_class = groups is None or not rule.promises or found.by == "prediction"
    yield "threshold.by", by_class, "contradicts 'threshold.rule': promises have cutoffs by prediction"
    names = [group.group for group in groups or ()]
    yield "threshold.groups", groups is None or len(set(names)) == len(names) > 0, "names no group, or one group twice"
    apart = groups is None or (found.tau is None and found.cutoff is None)
    yield "threshold.cutoff", apart, "is there, but each group has its own"
    decisions: Sequence[tuple[str, Threshold | GroupThreshold]] = [("threshold", found)]
    if groups is not None:
        decisions = [(f"threshold.groups[{number}]", group) for number, group in enumerate(groups)]
    for key, decision in decisions:
        yield f"{key}.rows", decision.rows >= 1 or bool(groups and rule.promises), RANGE
        yield f"{key}.accepted", 0 <= decision.accepted <= decision.rows, f"{RANGE}: from 0 to '{key}.rows'"
        if groups is not None and decision.cutoff == REJECT_ALL and (rule.limits_errors or rule.promises):
            continue  # nothing was certified
        right = _belong(ratio.density, decision.tau, decision.cutoff)
        yield f"{key}.tau", right, f"does not match '{key}.cutoff' under this ratio"


def _belong(density: DensityRatio, tau: float | None, cutoff: float | None) -> bool:
    """Whether tau is the ratio at a cutoff, or the cutoff that of a tau, up to rounding; None is infinite."""
    ratio, loss = density.tau(cutoff), None if tau is None else density.cutoff(tau)
    if tau is not None and ratio is not None and math.isclose(tau, ratio, rel_tol=_ROUNDING):
        return True
    if cutoff is not None and loss is not None and math.isclose(cutoff, loss, rel_tol=_ROUNDING):
        return True
    return (tau is None and ratio is None) or (tau is not None and cutoff is None and loss is None)
