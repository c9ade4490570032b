"""Logistic regression of errors with a ridge penalty, where a share of the labels may be wrong.

The log-odds eta of an error are linear in the inputs. With a share `noise` of the labels drawn at random from the K
classes, a row counts as an error with the chance

    pi = (1 - noise) / (1 + e^-eta) + noise (K - 1) / K,

so that errors in rows of which the model is sure pull at no weight: the noise explains them. Without noise the problem
is convex and the steps are Newton's; with it they are Fisher's (the expected curvature, which is never negative).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from drrej.core.types import Floats
from drrej.records import dataclass

_WEAK = 1e-2
_MIN_SLOPE = 1e-3
_MOST_STEPS = 50
TOLERANCE = 1e-9
"""Newton decrement (about twice the log-likelihood still to be gained) at which a fit is done."""


@dataclass(frozen=True)
class Errors:
    """Rows to fit to: inputs (input x row; the first is 1, the second the plain loss), predictions, outcomes.

    Rows come in the order of their predictions, so that what belongs to a class lies together.
    """

    inputs: Floats
    prediction: NDArray[np.int64]
    wrong: NDArray[np.bool_]
    classes: int

    def take(self, rows: NDArray[np.intp]) -> Errors:
        """Some of the rows, in the same order."""
        return Errors(self.inputs[:, rows], self.prediction[rows], self.wrong[rows], self.classes)


@dataclass(frozen=True)
class _Point:
    """The problem at one theta: its value, and log-odds, odds e^-|eta| and log-likelihood of each row."""

    theta: Floats
    value: float
    eta: Floats
    odds: Floats
    logs: Floats


class Ridge:
    """The penalised log-likelihood of an error in theta = (intercept, slope, weights, class intercepts).

    A strength of None is infinite: intercept and slope alone. Sums over rows avoid BLAS, whose results depend on the
    number of threads.
    """

    def __init__(self, errors: Errors, strength: float | None, noise: float = 0.0) -> None:
        self.inputs = errors.inputs if strength is not None else errors.inputs[:2]
        self.wrong = errors.wrong.astype(np.float64)
        self.noise = noise
        self.right_by_chance = noise / errors.classes
        self.size = self.inputs.shape[0]
        self.classes = 0 if strength is None else errors.classes
        self.penalty = np.full(self.size + self.classes, strength or 0.0)
        self.penalty[:2] = _WEAK
        self.center = np.zeros(self.penalty.size)
        self.center[1] = 1.0
        self.counts = np.bincount(errors.prediction, minlength=self.classes) if self.classes else np.zeros(0, np.int64)
        self.present = np.flatnonzero(self.counts)
        self.starts = (np.cumsum(self.counts) - self.counts)[self.present]

    def eta(self, theta: Floats) -> Floats:
        """Log-odds of an error of each row."""
        eta: Floats = np.einsum("i,ij->j", theta[: self.size], self.inputs)
        if self.classes:
            eta += np.repeat(theta[self.size :], self.counts)
        return eta

    def log_likelihood(self, theta: Floats) -> Floats:
        """Of each row's outcome."""
        return self._at(theta).logs

    def _at(self, theta: Floats) -> _Point:
        eta = self.eta(theta)
        with np.errstate(under="ignore"):
            odds = np.exp(-np.abs(eta))
        if self.noise:
            pi, rest = self._chances(*_both(eta, odds))
            logs = np.log(np.where(self.wrong > 0, pi, rest))
        else:
            logs = self.wrong * eta - np.maximum(eta, 0.0) - np.log1p(odds)
        away = theta - self.center
        value = 0.5 * float(np.sum(self.penalty * away * away)) - float(np.sum(logs))
        return _Point(theta, value, eta, odds, logs)

    def _chances(self, probability: Floats, opposite: Floats) -> tuple[Floats, Floats]:
        """Of counting as an error, and of not."""
        kept = 1.0 - self.noise
        return kept * probability + (self.noise - self.right_by_chance), kept * opposite + self.right_by_chance

    def solve(self, start: Floats | None = None, tolerance: float = TOLERANCE) -> Floats:
        """The minimum with a slope that does not turn the order of the plain loss round.

        Steps are halved where they do not descend. A slope at its limit is held as long as it would go below.
        """
        point = self._at(self.center if start is None or start.size != self.center.size else start)
        for _ in range(_MOST_STEPS):
            step, decrement = self._step(point)
            if decrement <= tolerance:
                break
            length = 1.0
            while (tried := self._at(_limited(point.theta - length * step))).value > point.value and length > 1e-6:
                length /= 2.0
            point = tried
        return point.theta

    def _pull(self, point: _Point) -> tuple[Floats, Floats]:
        """First derivative of the loss of each row by eta, and its (expected) second one."""
        probability, opposite = _both(point.eta, point.odds)
        slope = probability * opposite
        if not self.noise:
            return probability - self.wrong, slope
        pi, rest = self._chances(probability, opposite)
        slope *= 1.0 - self.noise
        share = slope / (pi * rest)
        return (pi - self.wrong) * share, slope * share

    def _step(self, point: _Point) -> tuple[Floats, float]:
        """The step; the classes' part of the Hessian is diagonal, so only the small rest has to be solved."""
        residual, curvature = self._pull(point)
        pull = self.penalty * (point.theta - self.center)
        weighted = self.inputs * curvature
        gradient = np.einsum("ij,j->i", self.inputs, residual) + pull[: self.size]
        matrix = np.diag(self.penalty[: self.size])
        for i in range(self.size):  # and the other half is the same
            line = np.einsum("jk,k->j", weighted[i:], self.inputs[i])
            matrix[i, i:] += line
            matrix[i + 1 :, i] += line[1:]
        full = gradient.copy()
        if self.classes:
            class_gradient = self._by_class(residual) + pull[self.size :]
            cross = self._by_class(weighted)
            diagonal = cross[0] + self.penalty[self.size :]
            matrix = matrix - np.einsum("ik,jk->ij", cross / diagonal, cross)
            full = full - np.einsum("ik,k->i", cross, class_gradient / diagonal)
        if point.theta[1] <= _MIN_SLOPE and gradient[1] >= 0:
            matrix[1], matrix[:, 1], matrix[1, 1] = 0.0, 0.0, 1.0
            full[1] = gradient[1] = 0.0
        step: Floats = np.linalg.solve(matrix, full)
        decrement = float(np.sum(step * gradient))
        if self.classes:
            class_step = (class_gradient - np.einsum("ik,i->k", cross, step)) / diagonal
            decrement += float(np.sum(class_step * class_gradient))
            step = np.concatenate([step, class_step])
        return step, decrement

    def _by_class(self, values: Floats) -> Floats:
        """Sums over the rows of each predicted class."""
        sums = np.zeros((*values.shape[:-1], self.classes))
        if self.present.size:
            sums[..., self.present] = np.add.reduceat(values, self.starts, axis=-1)
        return sums


def _limited(theta: Floats) -> Floats:
    theta[1] = max(theta[1], _MIN_SLOPE)
    return theta


def _both(eta: Floats, odds: Floats) -> tuple[Floats, Floats]:
    """1 / (1 + e^-eta) and 1 / (1 + e^eta), each to its own precision."""
    likely = 1.0 / (1.0 + odds)
    unlikely = odds * likely
    above = eta >= 0
    return np.where(above, likely, unlikely), np.where(above, unlikely, likely)
