"""A cascade of models: dumps of the same rows, joined by a key, and the plan that answers them at least cost."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
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
from drrej.pipeline.compare import answers, matched
from drrej.pipeline.fit import RatioOptions, fit
from drrej.pipeline.source import Source
from drrej.pipeline.split import SplitOptions, split
from drrej.pipeline.threshold import choose_threshold

Answers = dict[str, NDArray[Any]]
"""What stages make of some rows: their key and label, and (stages x rows) loss, prediction and wrong."""

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
    calibrator: CalibratorName | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        Rule("accuracy", self.accuracy, self.confidence)  # raises on numbers out of range
        if self.review_cost is not None:
            _check_cost(self.review_cost, "`review_cost`")


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
    names, number = [stage.name for stage in stages], len(stages) + (options.review_cost is not None)
    if len(set(names)) < len(names):
        raise OptionError(f"`stage={next(name for name in names if names.count(name) > 1)}`: the name occurs twice")
    if number < 2:
        raise OptionError("a cascade needs two stages or more; give another `stage`, or `review_cost`")
    if number > MOST_STAGES:
        raise OptionError(f"`stage`: a cascade has at most {MOST_STAGES} stages, with that of reviews")
    if options.confidence is None:
        designed = chosen_on = [stage.source for stage in stages]
    else:
        halves = SplitOptions((1.0, 1.0), plain=1, seed=options.seed, group=options.key)
        designed, chosen_on = map(list, zip(*(split(stage.source, halves) for stage in stages), strict=True))
    loss = None if stages[0].source.options.score and options.loss == "zero-one" else options.loss
    how, ratio = CalibrateOptions(calibrator=options.calibrator), RatioOptions(loss=loss)
    fitted = [fit(source, calibrate(source, how), ratio) for source in designed]
    costs = {stage.name: stage.cost for stage in stages}
    if options.review_cost is not None:
        costs[REVIEW] = options.review_cost
    design = _answers_of_all(designed, fitted, list(costs), options.key)
    fresh = design if chosen_on is designed else _answers_of_all(chosen_on, fitted, list(costs), options.key)
    rows, risk = StageRows(fresh["loss"], fresh["wrong"]), Rule("accuracy", options.accuracy).risk
    if options.confidence is None:
        chosen, frontier = cheapest(rows, list(costs.values()), risk)
    else:
        known = StageRows(design["loss"], design["wrong"])
        chosen, frontier = certified(known, rows, list(costs.values()), risk, options.confidence)
    rejectors = {
        name: choose_threshold(source, rejector, Rule("max-loss", cutoff)).rejector
        for name, source, rejector, cutoff in zip(costs, designed, fitted, chosen.plan, strict=False)
        if cutoff is not None and math.isfinite(cutoff)
    }
    report = _report(costs, design["label"].size, rows, chosen, frontier, options)
    routing = _routing(fresh, costs, chosen, options.key, fitted[0].class_names)
    if fitted[0].is_scored:
        routing = routing.drop_columns(["prediction", "label"])
    return CascadeResult(report, rejectors, routing)


def _check_cost(cost: float, where: str) -> None:
    if not (math.isfinite(cost) and cost >= 0):
        raise OptionError(f"{where}: a cost of {cost:g}; it must be a number from 0 up")


def _answers_of_all(
    sources: Sequence[Source], rejectors: Sequence[Rejector], names: Sequence[str], key: str
) -> Answers:
    """The answers of all stages to the same rows, in the order of the first stage's; with a review those of people."""
    first, *others = (
        answers(source, rejector, key, f"`stage={name}`", f"answers of {name}")[0]
        for source, rejector, name in zip(sources, rejectors, names, strict=False)
    )
    if len({(rejector.classes, rejector.class_names) for rejector in rejectors}) > 1:
        raise DumpError(f"`stage`: '{names[0]}' and others have other classes; all stages must have the same")
    found = [first]
    found += (matched(first, other, key, f"`stage={name}`") for name, other in zip(names[1:], others, strict=False))
    if REVIEW in names:
        sure = {name: np.zeros_like(first[name]) for name in ("loss", "wrong")}
        found.append({**first, **sure})
    stacked = {name: np.stack([rows[name] for rows in found]) for name in ("loss", "prediction", "wrong")}
    return {"key": first["key"], "label": first["label"], **stacked}


def _report(
    costs: Mapping[str, float],
    design_rows: int,
    rows: StageRows,
    found: Outcome,
    frontier: Sequence[Outcome],
    options: CascadeOptions,
) -> Cascade:
    single, confidence = alone(rows, list(costs.values())), options.confidence
    fitting = {  # stages that keep the accuracy alone, for certain if that is asked for
        one.cost: name
        for name, one in zip(costs, single, strict=True)
        if (one.risk if confidence is None else one.risk_bound(confidence)) <= Rule("accuracy", options.accuracy).risk
    }
    least, point = min(fitting, default=0), _point(costs, found)
    return Cascade(
        drrej_version=__version__,
        rows=rows.rows,
        design_rows=None if confidence is None else design_rows,
        target=options.accuracy,
        confidence=confidence,
        stages=tuple(
            CascadeStage(
                name=name,
                cost=cost,
                used=cutoff is not None,
                cutoff=point.cutoffs.get(name),
                reached=found.reached[number],
                answered=found.answered[number],
            )
            for number, ((name, cost), cutoff) in enumerate(zip(costs.items(), found.plan, strict=True))
        ),
        chosen=point,
        certified=None if confidence is None else 1.0 - found.risk_bound(confidence),
        saved=1.0 - found.cost / least if least else None,
        saved_over=fitting.get(least),
        alone=tuple(_point(costs, one) for one in single),
        frontier=tuple(_point(costs, point) for point in frontier),
    )


def _point(names: Iterable[str], found: Outcome) -> CascadePoint:
    used = {name: cutoff for name, cutoff in zip(names, found.plan, strict=True) if cutoff is not None}
    return CascadePoint(
        cost=found.cost,
        accuracy=1.0 - found.risk,
        errors=found.errors,
        cutoffs={name: cutoff for name, cutoff in used.items() if math.isfinite(cutoff)},
        stages=tuple(used),
    )


def _routing(
    answers: Answers, costs: Mapping[str, float], found: Outcome, key: str, classes: Sequence[str] | None
) -> pa.Table:
    """Which stage answers each row, what, and what it cost; reviews have no prediction."""
    number = route(found.plan, answers["loss"])
    stage, rows = np.array(list(costs), object)[number], np.arange(number.size)
    reviewed = stage == REVIEW
    paid = np.array([*costs.values()]) * [cutoff is not None for cutoff in found.plan]

    def named(numbers: Integers, mask: Booleans | None = None) -> pa.Array:
        values = numbers.astype(np.int64) if classes is None else np.array(classes, object)[numbers]
        return pa.array(values, mask=mask)

    return pa.table(
        {
            key: pa.array(answers["key"]),
            "stage": pa.array(stage, pa.string()),
            "prediction": named(answers["prediction"][number, rows], reviewed),
            "loss": pa.array(answers["loss"][number, rows], mask=reviewed),
            "cost": pa.array(np.cumsum(paid)[number]),
            "label": named(answers["label"]),
        }
    )
