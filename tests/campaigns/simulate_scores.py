"""Certified thresholds on scores of any kind, simulated with known truth: `... simulate_scores [TRIALS [LEVELS...]]`.

One of the three calibrators is fitted to some rows. Then each of 20 trials draws fresh rows, certifies a risk with
confidence 0.9 on them, and asks whether the true risk of the accepted rows is above it. Scores are continuous or have
3 to 100 levels. As a script it prints the table of docs/promises.md; tests run a few trials.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator

import numpy as np

from drrej.core.certify import certify_risk, error_blocks, risk_candidates
from drrej.core.confidence import SCORE_CALIBRATORS, fit_scores
from drrej.core.curves import Curve
from drrej.core.drift import loss_quantiles
from drrej.core.losses import error_probability
from drrej.core.ratio import DensityRatio
from drrej.errors import Infeasible

OPEN = DensityRatio(1.0, 1.0, 0.0, 0.0)
LEVELS = (0, 3, 5, 10, 30, 100)
CONFIDENCE, RISK, ROWS, DRAWS = 0.9, 0.05, 800, 20
GRID = (np.arange(20000) + 0.5) / 20000


def scores_at(u: np.ndarray, levels: int) -> np.ndarray:
    """Scores of places in [0, 1): themselves, or the middle of their level."""
    return (np.floor(u * levels) + 0.5) / levels if levels else u


def chance(scores: np.ndarray, shape: int) -> np.ndarray:
    """The chance of an error: falling with the score, or at the limit for all of them, or rising again at its end."""
    if shape == 0:
        return 0.45 * (1.0 - scores) ** 2
    return np.full(scores.shape, RISK + 0.002) if shape == 1 else np.where(scores > 0.9, 0.15, 0.3 * (1.0 - scores))


def trials_of(rng: np.random.Generator, levels: int, shape: int, name: str) -> Iterator[tuple[bool, float]]:
    """Whether the promise was broken, and the true coverage, for several draws of fresh rows after one fit."""
    first = scores_at(rng.random(ROWS), levels)
    wrong = rng.random(ROWS) < chance(first, shape)
    fitted = fit_scores(first[:, None], wrong, False, name)
    everything = scores_at(GRID, levels)

    def loss(scores: np.ndarray) -> np.ndarray:
        return error_probability(fitted.log_odds(scores[:, None]))

    learned, of_all = loss(first), loss(everything)
    known = error_blocks(Curve.of(learned[~wrong], learned[wrong])), loss_quantiles(np.sort(learned))
    for _ in range(DRAWS):
        fresh = scores_at(rng.random(ROWS), levels)
        wrong, chosen = rng.random(ROWS) < chance(fresh, shape), loss(fresh)
        curve = Curve.of(chosen[~wrong], chosen[wrong])
        try:
            candidates = risk_candidates(curve, OPEN, RISK, 1.0 - CONFIDENCE, *known)
            cutoff = certify_risk(candidates, curve.rows, RISK, "").cutoff
        except Infeasible:
            yield False, 0.0
            continue
        accepted = of_all < (math.inf if cutoff is None else cutoff)
        risk = float(chance(everything[accepted], shape).mean()) if accepted.any() else 0.0
        yield risk > RISK, float(accepted.mean())


def simulate(levels: int, shape: int, trials: int, seed: int = 0) -> tuple[int, float]:
    """How many promises were broken, and the mean coverage."""
    rng = np.random.default_rng([seed, levels, shape])
    names = [SCORE_CALIBRATORS[number % 3] for number in range(-(-trials // DRAWS))]
    found = [each for name in names for each in trials_of(rng, levels, shape, name)]
    return sum(broken for broken, _ in found), float(np.mean([coverage for _, coverage in found]))


if __name__ == "__main__":
    trials = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    for levels in map(int, sys.argv[2:] or LEVELS):
        for shape in range(3):
            broken, coverage = simulate(levels, shape, trials)
            kind = f"{levels} levels" if levels else "continuous"
            print(f"{kind}, shape {shape}: broken {broken} of {trials}, coverage {coverage:.3f}", flush=True)
