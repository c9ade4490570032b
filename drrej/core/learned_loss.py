"""Learning a loss: the probability of an error from labelled rows, bounded so that no row moves far in the order.

The rule and what it gains are in docs/proofs.md: the odds of an error at a temperature to rank by, times a factor
between e^-0.7 and e^0.7 for the predicted class.
"""

from __future__ import annotations

import math

import numpy as np
from msgspec import Struct

from drrej.core.calibrators import Scores
from drrej.core.losses import MOST_CORRECTION, PLAIN, ErrorModel, LearnedLoss, Loss, error_probability
from drrej.core.softmax import NOTHING, block_sums, label_gaps
from drrej.core.types import AnyFloats, Booleans, Floats, Integers, Precision

FEWEST_ERRORS = 5
"""With fewer there is nothing to learn from."""

SCALES = tuple(2.0 ** (step / 2) for step in range(-2, 13))
"""Inverse temperatures to rank by, relative to the calibrated one."""

NOISES = (0.0, 0.003, 0.01, 0.02, 0.04, 0.07, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5)
"""Shares of labels that may be drawn at random."""

SCALE_ROWS = 1 << 13
"""Rows that the temperature to rank by is chosen on."""

_WEAK, _RIDGE = 0.01, 30.0
"""Penalties of the intercept and of the weights of other inputs."""

_MOST_SPREAD = 0.4
"""Terms of the predicted classes are at most that many standard deviations of the log-odds, and `MOST_CORRECTION`."""

_LEAST_VARIANCE = 1e-3
"""Where the predicted classes differ by less (in the log-odds of an error), they have no terms."""

_FARTHEST = 500.0
"""Log-odds beyond that are held there: e to its power and its square are still numbers."""

_MOST_STEPS = 50
_TOLERANCE = 1e-9
"""Newton decrement (about twice the log-likelihood still to be gained) at which a fit is done."""


def learn(scores: Scores, labels: Integers) -> Loss:
    """The loss that labelled rows teach, or the zero-one loss where errors are too few."""
    prediction, wrong = scores.prediction, scores.prediction != labels
    if np.count_nonzero(wrong) < FEWEST_ERRORS:
        return PLAIN["zero-one"]
    first = slice(SCALE_ROWS)
    scale, share = choose_scale(scores.values[first], scores.beta, labels[first], scores.precision)
    base, noise = _within(scores.log_odds(scale)), Noise(share, scores.values.shape[1])
    ones = np.ones((1, base.size))
    alone = solve(base, ones, prediction, wrong, noise)
    variance = class_variance(base + alone[0], prediction, wrong, noise)
    most = min(MOST_CORRECTION, _MOST_SPREAD * float(base.std()))
    terms = np.clip(solve(base, ones, prediction, wrong, noise, variance)[1:], -most, most)
    order = base + terms[prediction] if terms.size else base
    # A line that makes the loss the chance of an error by the labels. These may be wrong, but nothing else tells how
    # many errors there are. The slope is drawn to 1 and stays above 0, so that rows keep their order.
    intercept, more = solve(order, np.stack([ones[0], order]), prediction, wrong, Noise(0.0, 2)).tolist()
    return LearnedLoss(ErrorModel(scale, intercept, max(0.05, 1.0 + more), tuple(terms.tolist())))


def choose_scale(values: AnyFloats, beta: float, labels: Integers, precision: Precision) -> tuple[float, float]:
    """The inverse temperature to rank by, relative to `beta`, and the share of labels that seem to be random.

    Wrong labels raise the temperature of least NLL far more than is good for ranking. So each is given the noise that
    suits it best (which has to gain more than 1 in log-likelihood), and their logarithms are averaged by likelihood.
    """
    _, largest, sums = block_sums(values, [beta * scale for scale in SCALES], [NOTHING] * len(SCALES), precision)
    classes = values.shape[1]
    gaps = beta * label_gaps(values, labels, largest)
    logs = np.empty((len(SCALES), len(NOISES)))
    with np.errstate(under="ignore", divide="ignore"):
        for row, (scale, at) in enumerate(zip(SCALES, sums, strict=True)):
            of_label = np.exp(scale * gaps - at.log_weight)
            for column, noise in enumerate(NOISES):
                log = np.log((1.0 - noise) * of_label + noise / classes)
                logs[row, column] = float(np.sum(log)) - (noise > 0)
    best = logs.max(axis=1)
    weights = np.exp(best - best.max())
    log_scale = float(np.sum(weights * np.log(SCALES)) / np.sum(weights))
    return math.exp(log_scale), NOISES[int(logs.max(axis=0).argmax())]


class Noise(Struct, frozen=True):
    """A share of labels that is drawn at random from some classes."""

    share: float
    classes: int

    def chances(self, eta: Floats) -> tuple[Floats, Floats, Floats]:
        """Of counting as an error and of not, for rows of these log-odds of one; the derivative of the first."""
        p, q = error_probability(eta), error_probability(-eta)
        right_by_chance, kept = self.share / self.classes, 1.0 - self.share
        return kept * p + (self.share - right_by_chance), kept * q + right_by_chance, kept * p * q

    def pull(self, eta: Floats, wrong: Booleans) -> tuple[Floats, Floats]:
        """The derivative of the log-likelihood of each row by eta, and its variance."""
        chance, rest, slope = self.chances(eta)
        share = slope / (chance * rest)
        return (wrong - chance) * share, slope * share


def class_variance(eta: Floats, prediction: Integers, wrong: Booleans, noise: Noise) -> float:
    """How much the predicted classes differ in the log-odds of an error, beyond what chance explains and one sigma."""
    gradient, curvature = noise.pull(eta, wrong)
    pulls = np.bincount(prediction, gradient, noise.classes)
    sizes = np.bincount(prediction, curvature, noise.classes)
    by_chance = math.sqrt(float(np.sum(2.0 * sizes**2 + sizes)))
    return (float(np.sum(pulls**2 - sizes)) - by_chance) / max(float(np.sum(sizes**2)), 1e-300)


def solve(
    base: Floats,
    inputs: Floats,
    prediction: Integers,
    wrong: Booleans,
    noise: Noise,
    variance: float = 0.0,
    ridge: float = _RIDGE,
) -> Floats:
    """The theta of the largest penalised log-likelihood of errors: weights of the inputs, then a term for each class.

    The log-odds of an error are `base` plus these, and the first input is 1. If the classes hardly differ, there are no
    terms. Sums over rows avoid BLAS, whose results depend on the number of threads.
    """
    count, classes = len(inputs), noise.classes if variance > _LEAST_VARIANCE else 0
    penalty = np.array([_WEAK] + [ridge] * (count - 1) + [1.0 / variance for _ in range(classes)])

    def log_odds(theta: Floats) -> Floats:
        eta: Floats = base + np.einsum("i,ij->j", theta[:count], inputs)
        if classes:
            eta += theta[count:][prediction]
        return _within(eta)

    def value(theta: Floats) -> float:
        """What is minimised."""
        chance, rest, _ = noise.chances(log_odds(theta))
        logs = float(np.sum(np.log(np.where(wrong, chance, rest))))
        return 0.5 * float(np.sum(penalty * theta * theta)) - logs

    def newton_step(theta: Floats) -> tuple[Floats, float]:
        """A step of Fisher scoring, and its decrement; the classes' part is diagonal, so only the rest is solved."""
        pull, curvature = noise.pull(log_odds(theta), wrong)
        gradient = np.einsum("ij,j->i", inputs, pull) - (penalty * theta)[:count]
        matrix = np.einsum("ij,kj,j->ik", inputs, inputs, curvature) + np.diag(penalty[:count])
        if not classes:
            found: Floats = np.linalg.solve(matrix, gradient)
            return found, float(np.sum(found * gradient))
        of_classes = np.bincount(prediction, pull, classes) - (penalty * theta)[count:]
        cross = np.stack([np.bincount(prediction, row * curvature, classes) for row in inputs])
        diagonal = cross[0] + penalty[count:]
        reduced = matrix - np.einsum("ik,jk->ij", cross / diagonal, cross)
        first = np.linalg.solve(reduced, gradient - np.einsum("ik,k->i", cross, of_classes / diagonal))
        found = np.concatenate([first, (of_classes - np.einsum("ik,i->k", cross, first)) / diagonal])
        return found, float(np.sum(found * np.concatenate([gradient, of_classes])))

    theta = np.zeros(penalty.size)
    least = value(theta)
    for _ in range(_MOST_STEPS):
        step, decrement = newton_step(theta)
        if decrement <= _TOLERANCE:
            break
        length = 1.0  # halved where a step does not descend
        while (tried := value(theta + length * step)) > least and length > 1e-6:
            length /= 2.0
        theta, least = theta + length * step, tried
    return theta


def _within(log_odds: Floats) -> Floats:
    """Log-odds that are numbers: a row that cannot be wrong (its odds have underflown to 0) has -inf."""
    return np.clip(log_odds, -_FARTHEST, _FARTHEST)
