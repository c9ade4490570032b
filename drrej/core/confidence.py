"""Scores of any kind: the map from the scores of a row to the probability that it is wrong, and how it is fitted.

A row has one score or several, and was right or wrong. One score is mapped by a line in the score (logistic), by one in
ln p and ln(1 - p) where it is a share (beta), or by either with steps that the rows have told (isotonic); the map rises
strictly, so that rows keep their order and their ties. Several scores are added up, each with its own weight.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from msgspec.structs import replace

from drrej.core.calibrators import FOLDS, Scores, choose_calibrator
from drrej.core.curves import Curve
from drrej.core.inputs import WORDS, level_words
from drrej.core.learned_loss import Noise, solve
from drrej.core.softmax import GapSums
from drrej.core.types import AnyFloats, Booleans, Floats, Stored

Form = Literal["plain", "share"]

SCORE_CALIBRATORS = ("logistic", "beta", "isotonic")
"""For one score, the simplest first."""

ISOTONIC_ROWS = 1000
"""Fewer rows tell too little for steps of their own."""

CLEARLY = 3.0
"""Standard errors from which on a score that is higher where rows are wrong counts as inverted."""

FEW_VALUES = 10
"""Fewer distinct values are mentioned: they are all the cutoffs that there can be."""

_NEAREST = 2.0**-54
"""The least that a share may be from 0 or 1, where none of the fitted rows is."""
FLAT = 2.0**-12
"""The slope beyond the outermost steps: rows keep their order there, and hardly more."""
_LEAST = 1e-6
"""The weight of a score that says nothing, relative to its spread: rows keep its order."""
_RIDGE = 1.0
"""Pulls the weights of standardised inputs to 0, as one row does: without errors they would grow without end."""


class ScoreTerm(Stored, frozen=True):
    """What an input adds to the log-odds of being right; beyond `low` and `high` it adds no more."""

    weight: float
    center: float
    low: float | None = None
    high: float | None = None


class ScoreMap(Stored, frozen=True):
    """From the scores of a row to the log-odds that it is wrong.

    A score of the form `share` lies in [0, 1]; alone it has two inputs, ln p and -ln(1 - p), else their sum. `floors`
    are added to p and 1 - p, so that 0 and 1 are finite: half of the smallest other one where there are such rows.
    With `lower` the lowest scores are the best. `knots` are log-odds by the terms, and what the rows have told there.

    >>> line = ScoreMap(("plain",), ((0.0, 0.0),), False, 0.0, (ScoreTerm(1.0, 0.0),))
    >>> line.log_odds(np.array([[0.5], [2.0]]))
    array([-0.5, -2. ])
    >>> round(line.score_at(0.119203), 4)  # 1 / (1 + e^2)
    2.0
    """

    forms: tuple[Form, ...]
    floors: tuple[tuple[float, float], ...]
    lower: bool
    intercept: float
    terms: tuple[ScoreTerm, ...]
    knots: tuple[tuple[float, float], ...] = ()

    def outside(self, scores: AnyFloats) -> Booleans:
        """Which rows have a score that is not of the form that was fitted."""
        shares = scores[:, [form == "share" for form in self.forms]]
        return np.asarray(((shares < 0.0) | (shares > 1.0)).any(axis=1))

    def log_odds(self, scores: AnyFloats) -> Floats:
        """The log-odds that each row is wrong."""
        odds = np.full(len(scores), -self.intercept)
        inputs = _inputs(scores, self.forms, self.floors, self.lower)
        for term, values in zip(self.terms, inputs, strict=True):
            held = values if term.low is None or term.high is None else np.clip(values, term.low, term.high)
            odds -= term.weight * (held - term.center)
        if not self.knots:
            return odds
        places, told = np.array(self.knots).T
        beyond = np.minimum(odds - places[0], 0.0) + np.maximum(odds - places[-1], 0.0)
        found: Floats = np.interp(odds, places, told) + FLAT * beyond
        return found

    def score_at(self, loss: float) -> float | None:
        """The one score at which a row is wrong with this probability; None where there is none, or several scores."""
        if len(self.forms) > 1 or not 0.0 < loss < 1.0:
            return None
        reach = 100.0 / self.terms[0].weight
        center = -self.terms[0].center if self.lower else self.terms[0].center
        low, high = (0.0, 1.0) if self.forms == ("share",) else (center - reach, center + reach)
        wanted, sign = math.log(loss / (1.0 - loss)), 1.0 if self.lower else -1.0
        for _ in range(200):
            middle = (low + high) / 2.0
            below = sign * (float(self.log_odds(np.array([[middle]]))[0]) - wanted) < 0.0
            low, high = (middle, high) if below else (low, middle)
        return high

    def scores(self, scores: AnyFloats, *_: object) -> tuple[Scores, Scores]:
        """As those of `Temperature`: classes "right", which is always the prediction, and "wrong".

        Before calibration a single share is the probability of being right; other scores are none, so both are one.
        """
        after = _as_scores(self.log_odds(scores))
        if self.forms != ("share",):
            return after, after
        ln_p, minus_ln_q = _inputs(scores, self.forms, self.floors, self.lower)
        return after, _as_scores(-(ln_p + minus_ln_q))


def _as_scores(log_odds: Floats) -> Scores:
    with np.errstate(over="ignore", under="ignore"):
        odds = np.exp(log_odds)
        sums = GapSums(odds=odds, squares=odds * odds, moment=log_odds * odds, runner_up=odds)
    values = np.stack([np.zeros(log_odds.size), log_odds], axis=1)
    return Scores(values, 1.0, np.zeros(log_odds.size, np.int64), np.zeros(log_odds.size), sums, "float64")


def _inputs(
    scores: AnyFloats, forms: Sequence[Form], floors: Sequence[tuple[float, float]], lower: bool
) -> list[Floats]:
    """What the terms are made of (rows,), higher where a row is better."""
    found: list[Floats] = []
    for form, (least, most), column in zip(forms, floors, scores.T, strict=True):
        values = column.astype(np.float64)
        if form == "plain":
            found.append(-values if lower else values)
            continue
        p, q = np.maximum(values, 0.0) + least, np.maximum(1.0 - values, 0.0) + most
        p, q = (q, p) if lower else (p, q)
        found += [np.log(p), -np.log(q)] if len(forms) == 1 else [np.log(p) - np.log(q)]
    return found


def forms_of(scores: AnyFloats) -> tuple[Form, ...]:
    """What each score (rows x scores) is: a share where all values lie in [0, 1].

    >>> forms_of(np.array([[0.5, -2.0], [1.0, 0.0]]))
    ('share', 'plain')
    """
    inside = (scores.min(axis=0) >= 0.0) & (scores.max(axis=0) <= 1.0)
    return tuple("share" if each else "plain" for each in inside.tolist())


def _floor(values: Floats) -> float:
    """What is added to shares so that a 0 is finite; next to nothing where none is 0."""
    positive = values[values > 0.0]
    if positive.size == values.size or not positive.size:
        return _NEAREST
    return max(float(positive.min()) / 2.0, _NEAREST)


def fit_scores(scores: AnyFloats, wrong: Booleans, lower: bool, name: str) -> ScoreMap:
    """One of the `SCORE_CALIBRATORS`, fitted to rows (rows x scores); several scores have one way only."""
    if scores.shape[1] > 1:
        return _fit_line(scores, wrong, forms_of(scores), lower)
    forms: tuple[Form, ...] = ("plain",) if name == "logistic" else forms_of(scores)
    line = _fit_line(scores, wrong, forms, lower)
    return _with_steps(line, scores, wrong) if name == "isotonic" else line


def _fit_line(scores: AnyFloats, wrong: Booleans, forms: tuple[Form, ...], lower: bool) -> ScoreMap:
    """Logistic regression; the weights of a single score are not negative, and one of them is above 0."""
    columns = scores.astype(np.float64).T
    floors = tuple(
        (_floor(values), _floor(1.0 - values)) if form == "share" else (0.0, 0.0)
        for form, values in zip(forms, columns, strict=True)
    )
    inputs, single = _inputs(scores, forms, floors, lower), len(forms) == 1
    centers = [float(values.mean()) for values in inputs]
    spreads = [float(values.std()) or 1.0 for values in inputs]
    standard = [(values - c) / s for values, c, s in zip(inputs, centers, spreads, strict=True)]
    rows, none = np.stack([np.ones(wrong.size), *standard]), np.zeros(wrong.size)
    free = np.ones(len(inputs), bool)
    while True:
        theta, fitted = np.zeros(len(rows)), np.append(True, free)
        theta[fitted] = solve(none, rows[fitted], none.astype(np.int64), ~wrong, Noise(0.0, 2), ridge=_RIDGE)
        turned = single & free & (theta[1:] < 0)
        if not turned.any():
            break
        free &= ~turned if turned.sum() < free.sum() or free.sum() == 1 else theta[1:] > theta[1:].min()
    weights = np.maximum(theta[1:], _LEAST) if single else theta[1:]
    ranges = [(None, None) if single else (float(each.min()), float(each.max())) for each in inputs]
    terms = [
        ScoreTerm(float(weight / spread), center, *ends)
        for weight, spread, center, ends in zip(weights, spreads, centers, ranges, strict=True)
    ]
    return ScoreMap(forms, floors, lower, float(theta[0]), tuple(terms))


def _with_steps(line: ScoreMap, scores: AnyFloats, wrong: Booleans) -> ScoreMap:
    """The same order with the error rates that the rows tell: isotonic regression, joined by lines between its blocks.

    A knot is at the mean of a block. The lines make the map rise strictly: rows that differ do not become ties.
    """
    from drrej.core.certify import error_blocks

    odds = line.log_odds(scores)
    counts, errors = np.array(error_blocks(Curve.of(odds[~wrong], odds[wrong])), np.float64).T
    starts = np.append(0, np.cumsum(counts)[:-1]).astype(np.int64)
    at, rates = np.add.reduceat(np.sort(odds), starts) / counts, errors / counts
    least, most = 0.5 / (counts[0] + 1.0), 1.0 - 0.5 / (counts[-1] + 1.0)
    if rates[0] == 0.0:  # a block without errors tells so much by its size
        rates[0] = min(least, rates[1] / 2.0) if rates.size > 1 else least
    if rates[-1] == 1.0:
        rates[-1] = max(most, (1.0 + rates[-2]) / 2.0) if rates.size > 1 else most
    return replace(line, knots=tuple(zip(at.tolist(), np.log(rates / (1.0 - rates)).tolist(), strict=True)))


def choose_score_map(scores: AnyFloats, wrong: Booleans, lower: bool, name: str) -> tuple[str, ScoreMap]:
    """The calibrator by its name, fitted; "auto" is the simplest within one standard error of the best likelihood.

    The likelihood is that of rows in the other folds, and a row's fold goes by its place.
    """
    if scores.shape[1] > 1:
        name = "logistic"
    elif name == "auto":
        is_for = {"logistic": True, "beta": forms_of(scores) == ("share",), "isotonic": len(scores) >= ISOTONIC_ROWS}
        names, name = [each for each in SCORE_CALIBRATORS if is_for[each]], "logistic"
        if len(scores) >= 2 * FOLDS:
            name = choose_calibrator({each: _held_out(scores, wrong, lower, each) for each in names})
    return name, fit_scores(scores, wrong, lower, name)


def _held_out(scores: AnyFloats, wrong: Booleans, lower: bool, name: str) -> Floats:
    """The NLL of each row under a map that was fitted to the other folds."""
    fold, nll = np.arange(len(scores)) % FOLDS, np.empty(len(scores))
    for number in range(FOLDS):
        inside = fold == number
        odds = fit_scores(scores[~inside], wrong[~inside], lower, name).log_odds(scores[inside])
        nll[inside] = np.logaddexp(0.0, np.where(wrong[inside], -odds, odds))
    return nll


def auroc(score: Floats, wrong: Booleans) -> tuple[float, float]:
    """The chance that a right row has a higher score than a wrong one (ties count half), and its standard error.

    The error is that of a score without information, with ties. Without right rows, or wrong ones, it is infinite.

    >>> auroc(np.array([1.0, 2.0, 3.0, 4.0]), np.array([True, True, False, False]))[0]
    1.0
    """
    right, bad, rows = int(np.count_nonzero(~wrong)), int(np.count_nonzero(wrong)), wrong.size
    if not right or not bad:
        return 0.5, math.inf
    _, places, counts = np.unique(score, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2.0
    area = (float(ranks[places][~wrong].sum()) - right * (right + 1) / 2.0) / (right * bad)
    ties = float((counts.astype(np.float64) ** 3 - counts).sum()) / (rows * (rows - 1.0))
    return area, math.sqrt(max(rows + 1.0 - ties, 0.0) / (12.0 * right * bad)) or math.inf


def doubts_about(scores: AnyFloats, wrong: Booleans, lower: bool, names: Sequence[str]) -> tuple[str | None, list[str]]:
    """Why a single score cannot be meant as it is read, None if it can; and what to know of the scores."""
    cautions: list[str] = []
    for name, column in zip(names, scores.T, strict=True):
        values, (area, error) = np.unique(column), auroc(-column if lower else column, wrong)
        deviations = (area - 0.5) / error
        shown = name.removesuffix(WORDS)
        said = f"a right row has a better '{shown}' than a wrong one in {100 * area:.1f} % of pairs"
        if len(names) == 1 and deviations < -CLEARLY:
            remedy = "leave out `lower_is_better`" if lower else "pass `lower_is_better=True`"
            return f"{said}: it is the wrong way round; {remedy}", []
        if math.isinf(error):
            outcome = "wrong" if wrong.all() else "right"
            cautions.append(f"every row is {outcome}, so '{shown}' cannot be judged")
        elif abs(deviations) < 2.0:
            cautions.append(f"'{shown}' carries no information about which rows are right: {said} (50 % by chance)")
        if len(names) == 1 and values.size < FEW_VALUES:
            listed = ", ".join(level_words(name, value) for value in values.tolist())
            cautions.append(
                f"'{shown}' has {values.size} distinct values ({listed}): rows of one value are accepted or rejected "
                "together, so few coverages can be reached"
            )
    return None, cautions
