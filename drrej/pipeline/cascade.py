"""A cascade of models: dumps of the same rows, joined by a key, and the plan that answers them at least cost."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct
from numpy.typing import NDArray

from drrej._version import __version__
from drrej.core.calibrators import CalibratorName
from drrej.core.cascades import MOST_STAGES, Outcome, StageRows, alone, certified, cheapest, route
from drrej.core.thresholds import Rule
from drrej.core.types import Booleans, Integers
from drrej.documents.rejector import Rejector
from drrej.documents.summaries import Cascade, CascadePoint, CascadeStage
from drrej.errors import DumpError, OptionError
from drrej.pipeline.calibrate import CalibrateOptions, calibrate
from drrej.pipeline.collect import collect_scored
from drrej.pipeline.compare import block_keys, check_unique, partners
from drrej.pipeline.fit import RatioOptions, fit
from drrej.pipeline.groups import check_columns
from drrej.pipeline.score import Scored, Scorer
from drrej.pipeline.source import Source
from drrej.pipeline.split import SplitOptions, split
from drrej.pipeline.threshold import threshold

Answers = dict[str, NDArray[Any]]
"""What a stage makes of some rows: the columns key, loss, prediction, label and wrong."""

REVIEW = "review"
"""The stage of people, who are always right."""


class Stage(Struct, frozen=True):
    """A model of a cascade: its name, a dump of its scores, and what one row costs."""

    name: str
    source: Source
    cost: float

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[\w.-]+", self.name) or self.name.startswith(".") or self.name == REVIEW:
            raise OptionError(f"`stage={self.name}`: a name has letters, digits, _ and -, and is not '{REVIEW}'")
        _check_cost(self.cost, f"`stage={self.name}`")


class CascadeOptions(Struct, frozen=True):
    """What is promised, and how.

    `accuracy` is that of all answers. With `confidence` half of the rows, chosen by the key, certify it. `key` is the
    column that pairs the rows of the dumps. With `review_cost` people may answer what is left, at that cost each.
    """

    accuracy: float
    key: str
    confidence: float | None = None
    review_cost: float | None = None
    loss: str = "zero-one"
    calibrator: CalibratorName = "temperature"
    seed: int = 0

    def __post_init__(self) -> None:
        Rule("accuracy", self.accuracy, self.confidence)  # raises on numbers out of range
        if self.review_cost is not None:
            _check_cost(self.review_cost, "`review_cost`")

    @property
    def risk(self) -> float:
        """The largest share of wrong answers."""
        return Rule("accuracy", self.accuracy).risk


class CascadeResult(Struct, frozen=True):
    """The report, a finished rejector for each stage that passes rows on, and the answer to each row of the report."""

    report: Cascade
    rejectors: dict[str, Rejector]
    routing: pa.Table


def cascade(stages: Sequence[Stage], options: CascadeOptions) -> CascadeResult:
    """The plan of least cost that keeps the accuracy: which stages there are, and below which loss each answers.

    >>> small, large = (Stage(name, Source("sample_data/val.parquet"), cost) for name, cost in (("s", 1.0), ("l", 9.0)))
    >>> found = cascade([small, large], CascadeOptions(accuracy=0.9, key="id")).report
    >>> found.chosen.stages, found.chosen.cost  # the same model twice: the cheap one will do
    (('s',), 1.0)
    """
    _check(stages, options)
    if options.confidence is None:
        designed = chosen_on = [stage.source for stage in stages]
    else:
        halves = SplitOptions((1.0, 1.0), plain=1, seed=options.seed, group=options.key)
        parts = [split(stage.source, halves) for stage in stages]
        designed, chosen_on = ([pair[number] for pair in parts] for number in range(2))
    how, ratio = CalibrateOptions(calibrator=options.calibrator), RatioOptions(loss=options.loss)
    fitted = [fit(source, calibrate(source, how), ratio) for source in designed]
    names = [stage.name for stage in stages]
    review = options.review_cost is not None
    design = _answers_of_all(designed, fitted, names, options.key, review)
    fresh = design if chosen_on is designed else _answers_of_all(chosen_on, fitted, names, options.key, review)
    costs = [stage.cost for stage in stages]
    if options.review_cost is not None:
        names, costs = [*names, REVIEW], [*costs, options.review_cost]
    rows = _rows(fresh)
    if options.confidence is None:
        chosen, frontier = cheapest(rows, costs, options.risk)
    else:
        chosen, frontier = certified(_rows(design), rows, costs, options.risk, options.confidence)
    rejectors = {
        name: threshold(source, rejector, Rule("max-loss", cutoff))
        for name, source, rejector, cutoff in zip(names, designed, fitted, chosen.plan, strict=False)
        if cutoff is not None and math.isfinite(cutoff)
    }
    report = _report(names, costs, design[0]["label"].size, rows, chosen, frontier, options)
    classes = fitted[0].class_names
    return CascadeResult(report, rejectors, _routing(fresh, names, costs, chosen, options.key, classes))


def _check(stages: Sequence[Stage], options: CascadeOptions) -> None:
    names = [stage.name for stage in stages]
    if len(set(names)) < len(names):
        raise OptionError(f"`stage={next(name for name in names if names.count(name) > 1)}`: the name occurs twice")
    if len(stages) + (options.review_cost is not None) < 2:
        raise OptionError("a cascade needs two stages or more; give another `stage`, or `review_cost`")
    if len(stages) + (options.review_cost is not None) > MOST_STAGES:
        raise OptionError(f"`stage`: a cascade has at most {MOST_STAGES} stages, with that of reviews")


def _check_cost(cost: float, where: str) -> None:
    if not (math.isfinite(cost) and cost >= 0):
        raise OptionError(f"{where}: a cost of {cost:g}; it must be a number from 0 up")


def _answers_of_all(
    sources: Sequence[Source], rejectors: Sequence[Rejector], names: Sequence[str], key: str, review: bool
) -> list[Answers]:
    """The answers of all stages to the same rows, in the order of the first stage's; with a review those of people."""
    first, *others = (_answers(*of, key) for of in zip(sources, rejectors, names, strict=True))
    if len({(rejector.classes, rejector.class_names) for rejector in rejectors}) > 1:
        raise DumpError(f"`stage`: '{names[0]}' and others have other classes; all stages must have the same")
    matched = [first]
    for name, other in zip(names[1:], others, strict=True):
        rows = partners(first["key"], other["key"], key, f"`stage={name}`")
        if other["key"].size != rows.size:
            raise DumpError(f"`stage={name}`: it has more rows than the first stage; all must hold the same rows")
        found = {column: values[rows] for column, values in other.items()}
        unlike = np.flatnonzero(found["label"] != first["label"])
        if unlike.size:
            raise DumpError(
                f"`stage={name}`: {unlike.size} of {rows.size} rows have another label than in the first dump (the "
                f"first has the key {first['key'][unlike[0]]}); are they the same rows?"
            )
        matched.append(found)
    if review:
        sure = {name: np.zeros_like(first[name]) for name in ("loss", "wrong")}
        matched.append({**first, **sure})
    return matched


def _answers(source: Source, rejector: Rejector, name: str, key: str) -> Answers:
    dump = source.open(rejector, labelled=True)
    check_columns(dump, [key], "`join_on`")
    scorer = Scorer(rejector, dump, decide=False)

    def of_rows(scored: Scored) -> Answers:
        labels = scored.block.labels
        assert labels is not None
        columns = {"loss": scored.loss, "prediction": scored.prediction, "label": labels, "wrong": scored.wrong}
        return {"key": block_keys(scored.block, key), **columns}

    answers = collect_scored(source, dump, scorer, of_rows, f"answers of {name}", labelled=True, keep=[key])
    check_unique(answers["key"], key, f"`stage={name}`")
    return answers


def _rows(answers: Sequence[Answers]) -> StageRows:
    return StageRows(np.stack([rows["loss"] for rows in answers]), np.stack([rows["wrong"] for rows in answers]))


def _report(
    names: Sequence[str],
    costs: Sequence[float],
    design_rows: int,
    rows: StageRows,
    found: Outcome,
    frontier: Sequence[Outcome],
    options: CascadeOptions,
) -> Cascade:
    single = alone(rows, costs)
    fitting = {found.cost: name for name, found in zip(names, single, strict=True) if _keeps(found, options)}
    saved_over = fitting[min(fitting)] if fitting else None
    saved = None if saved_over is None or min(fitting) == 0 else 1.0 - found.cost / min(fitting)
    return Cascade(
        drrej_version=__version__,
        rows=rows.rows,
        design_rows=None if options.confidence is None else design_rows,
        target=options.accuracy,
        confidence=options.confidence,
        stages=tuple(
            CascadeStage(
                name=name,
                cost=costs[number],
                used=found.plan[number] is not None,
                cutoff=_finite(found.plan[number]),
                reached=found.reached[number],
                answered=found.answered[number],
            )
            for number, name in enumerate(names)
        ),
        chosen=_point(names, found),
        certified=None if options.confidence is None else 1.0 - found.risk_bound(options.confidence),
        saved=saved,
        saved_over=saved_over,
        alone=tuple(_point(names, one) for one in single),
        frontier=tuple(_point(names, point) for point in frontier),
    )


def _keeps(found: Outcome, options: CascadeOptions) -> bool:
    """Whether a plan that was fixed beforehand keeps the accuracy, for certain if that is asked for."""
    if options.confidence is None:
        return found.risk <= options.risk
    return found.risk_bound(options.confidence) <= options.risk


def _point(names: Sequence[str], found: Outcome) -> CascadePoint:
    cutoffs = {name: _finite(cutoff) for name, cutoff in zip(names, found.plan, strict=True)}
    return CascadePoint(
        cost=found.cost,
        accuracy=1.0 - found.risk,
        errors=found.errors,
        cutoffs={name: cutoff for name, cutoff in cutoffs.items() if cutoff is not None},
        stages=tuple(name for name, cutoff in zip(names, found.plan, strict=True) if cutoff is not None),
    )


def _finite(cutoff: float | None) -> float | None:
    return cutoff if cutoff is not None and math.isfinite(cutoff) else None


def _routing(
    answers: Sequence[Answers],
    names: Sequence[str],
    costs: Sequence[float],
    found: Outcome,
    key: str,
    classes: Sequence[str] | None,
) -> pa.Table:
    """Which stage answers each row, what, and what it cost; reviews have no prediction."""
    losses, predictions = (np.stack([rows[name] for rows in answers]) for name in ("loss", "prediction"))
    stages = route(found.plan, losses)
    stage, rows = np.array(names, object)[stages], np.arange(stages.size)
    reviewed = stage == REVIEW
    used = [cost if cutoff is not None else 0.0 for cost, cutoff in zip(costs, found.plan, strict=True)]

    def named(numbers: Integers, mask: Booleans | None = None) -> pa.Array:
        values = numbers.astype(np.int64) if classes is None else np.array(classes, object)[numbers]
        return pa.array(values, mask=mask)

    return pa.table(
        {
            key: pa.array(answers[0]["key"]),
            "stage": pa.array(stage, pa.string()),
            "prediction": named(predictions[stages, rows], reviewed),
            "loss": pa.array(losses[stages, rows], mask=reviewed),
            "cost": pa.array(np.cumsum(used)[stages]),
            "label": named(answers[0]["label"]),
        }
    )
