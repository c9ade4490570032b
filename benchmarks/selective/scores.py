"""Scores of rows, low where a row is accepted first: drrej's losses and what others use.

Others' scores are computed from the model's own outputs in float64, without a temperature, in forms that do not round
to 0 where the model is sure: rows that float32 would tie stay apart, which is the best that can be made of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import drrej
from benchmarks.selective.dumps import Array, Part
from benchmarks.selective.rules import curve_of

Score = Callable[[Part, list[Part]], list[Array]]
"""From the rows to fit on and some parts to the score of each row of each part."""


def _plain(function: Callable[[Part], Array]) -> Score:
    return lambda _fit, parts: [function(part) for part in parts]


def fitted(part: Part, **how: Any) -> drrej.Rejector:
    """A rejector of these rows."""
    kind: Any = "probs" if part.probs else "logits"
    return drrej.fit_rejector(part.outputs, part.labels, input=kind, normalize=part.probs, **how)


def _drrej(loss: str) -> Score:
    """A loss of drrej, calibrated and fitted; the threshold plays no part in the order."""

    def scored(fit: Part, parts: list[Part]) -> list[Array]:
        rejector = fitted(fit, loss=loss, coverage=0.5)
        return [rejector.score(part.outputs).loss for part in parts]

    return scored


def max_probability(part: Part) -> Array:
    """1 - p of the prediction, as the sum of the others' p."""
    ordered = part.sorted
    if part.probs:
        return np.asarray(ordered[:, 1:].sum(axis=1))
    others = np.exp(ordered[:, 1:] - ordered[:, :1]).sum(axis=1)
    return np.asarray(others / (1.0 + others))


def entropy(part: Part) -> Array:
    """Of the probabilities, in nats."""
    ordered = part.sorted
    if part.probs:
        logs = np.log(ordered, out=np.zeros_like(ordered), where=ordered > 0)
        return np.asarray(-(ordered * logs).sum(axis=1))
    gaps = ordered - ordered[:, :1]
    powers = np.exp(gaps)
    total = powers.sum(axis=1)
    return np.asarray(np.log1p(powers[:, 1:].sum(axis=1)) - (powers * gaps).sum(axis=1) / total)


def margin(part: Part) -> Array:
    """1 less the difference of the two largest p, without a subtraction."""
    ordered = part.sorted
    if part.probs:
        return np.asarray(2 * ordered[:, 1] + ordered[:, 2:].sum(axis=1))
    powers = np.exp(ordered - ordered[:, :1])
    others = powers[:, 1:].sum(axis=1)
    return np.asarray((others + powers[:, 1]) / (1.0 + others))


def logit_margin(part: Part) -> Array:
    """Runner-up less prediction in logits; of probabilities their quotient, which orders as the difference of logs."""
    ordered = part.sorted
    if part.probs:
        return np.asarray(ordered[:, 1] / ordered[:, 0])
    return np.asarray(ordered[:, 1] - ordered[:, 0])


def energy(part: Part) -> Array:
    """-log sum exp of the logits (Liu et al. 2020)."""
    ordered = part.sorted
    return np.asarray(-ordered[:, 0] - np.log1p(np.exp(ordered[:, 1:] - ordered[:, :1]).sum(axis=1)))


def p_norm(fit: Part, parts: list[Part]) -> list[Array]:
    """Centred logits over their p-norm, the largest (Cattelan and Silva 2023): p of 1, ..., 10 or none by AUGRC."""

    def scored(part: Part, power: int | None) -> Array:
        ordered = part.sorted
        centred = ordered - ordered.mean(axis=1, keepdims=True)
        if power is None:
            return np.asarray(-centred[:, 0])
        norm = np.linalg.norm(centred, ord=power, axis=1)
        return np.asarray(-np.divide(centred[:, 0], norm, out=np.zeros(len(norm)), where=norm > 0))

    def augrc(power: int | None) -> float:
        return curve_of(scored(fit, power), fit.wrong).augrc()

    powers: list[int | None] = [None, *range(1, 11)]
    best = min(powers, key=augrc)
    return [scored(part, best) for part in parts]


OURS = ("auto", "log", "zero-one")
SCORES: dict[str, Score] = {
    **{name: _drrej(name) for name in OURS},
    "max probability": _plain(max_probability),
    "entropy": _plain(entropy),
    "margin": _plain(margin),
    "logit margin": _plain(logit_margin),
    "energy": _plain(energy),
    "max logit": _plain(lambda part: np.asarray(-part.sorted[:, 0])),  # Hendrycks et al. 2022
    "pNorm": p_norm,
}
LOGITS_ONLY = ("energy", "max logit", "pNorm")
"""Scores that a row of probabilities does not have: the softmax has taken away what they are made of."""
COMMON = [name for name in SCORES if name not in LOGITS_ONLY]


def scores_of(part: Part) -> list[str]:
    """The scores that a dump of this kind has."""
    return COMMON if part.probs else list(SCORES)
