"""The figures of one dump: how each score orders its test rows, and how much each certifies."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import numpy as np

from benchmarks.pages import machine
from benchmarks.selective.dumps import Array, Dump
from benchmarks.selective.rules import RULES, Fitted, Rule, curve_of
from benchmarks.selective.scores import SCORES, scores_of
from drrej.core.paired import order_difference

COVERAGES = (0.8, 0.9)
RISKS = (0.01, 0.02, 0.05)
DELTA = 0.1
RIVALS = {
    f"{rule}: {score}": (score, rule) for rule in RULES if rule != "drrej" for score in ("max probability", "auto")
}
"""Other ways to certify: the score and the rule."""

Figures = dict[str, Any]


def accuracy_at(losses: Array, wrong: Array, coverage: float) -> float:
    """Accuracy of the share of rows that is accepted first; of rows that tie at the end, so many of each kind."""
    values, place, counts = np.unique(losses, return_inverse=True, return_counts=True)
    errors = np.bincount(place[wrong], minlength=values.size)
    wanted = coverage * losses.size
    taken = np.clip(wanted - (np.cumsum(counts) - counts), 0, counts)
    return float(1.0 - (taken * errors / counts).sum() / wanted)


def ordering(losses: Array, wrong: Array) -> Figures:
    """The figures of an order."""
    curve = curve_of(losses, wrong)
    at = {f"accuracy at {100 * share:g} %": accuracy_at(losses, wrong, share) for share in COVERAGES}
    return {"aurc": curve.aurc(), "augrc": curve.augrc(), **at}


def judge(dump: Dump) -> Figures:
    """All figures of a dump."""
    wrong, names = dump.test.wrong, scores_of(dump.test)
    order = {name: SCORES[name](dump.fit, [dump.test])[0] for name in names}
    halves = np.array_split(np.random.default_rng(0).permutation(len(dump.fit.labels)), 2)
    fit, fresh = (dump.fit.take(np.sort(half)) for half in halves)
    figures = {name: ordering(order[name], wrong) for name in names}
    parts = {name: SCORES[name](fit, [fit, fresh, dump.test]) for name in names}
    chosen = {name: (name, "drrej") for name in names} | RIVALS
    promises = {
        title: _certified(parts[name], (fit.wrong, fresh.wrong, wrong), RULES[rule])
        for title, (name, rule) in chosen.items()
    }
    return {
        "made": f"{machine()}, MAPIE {version('mapie')}",
        "rows": [len(dump.fit.labels), len(wrong)],
        "classes": dump.test.outputs.shape[1],
        "probabilities": dump.test.probs,
        "shifted": dump.shifted,
        "base accuracy": float(1 - wrong.mean()),
        "validation accuracy": float(1 - dump.fit.wrong.mean()),
        "order": figures,
        "certified": promises,
        "auto": against_the_best(order, wrong, figures),
    }


def _certified(losses: list[Array], wrong: tuple[Array, Array, Array], rule: Rule) -> Figures:
    """Coverage and risk on the test rows of what was certified on fresh ones, for each risk."""
    points, fitted = curve_of(losses[1], wrong[1]), Fitted(losses[0], wrong[0])
    found: Figures = {}
    for risk in RISKS:
        accepted = losses[2] < rule(points, fitted, risk, DELTA)
        share = float(wrong[2][accepted].mean()) if accepted.any() else 0.0
        found[f"{100 * risk:g} %"] = [float(accepted.mean()), share]
    return found


def against_the_best(order: dict[str, Array], wrong: Array, figures: Figures) -> Figures:
    """AUGRC of `auto` less that of the other score that turned out best on these test rows, with a paired interval.

    Nobody could know before which is the best, and the best of ten on the test rows is lucky as well as good.
    """
    best = min((name for name in order if name != "auto"), key=lambda other: figures[other]["augrc"])
    rows = np.argsort(wrong, kind="stable")
    found = order_difference(order[best][rows], order["auto"][rows], int((~wrong).sum()))
    return {"best": best, "difference": found.value, "interval": [found.lower, found.upper]}
