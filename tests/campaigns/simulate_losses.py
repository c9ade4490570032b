"""Levels of every interval and test, loss by loss, on generated logits with known truth.

As a script, `python -m tests.campaigns simulate_losses TRIALS [ROWS ...]`, a line for each loss: in percent how
often the truth
lies below and above each 95 % interval, how often a test alarms without cause, how often a promise is broken.

A world is a large set of rows with the chance of every class; trials draw rows and labels from it, so the truth of each
figure is a sum over the set. The loss `learned` comes from rows that no trial sees. `auto` is one of the others.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from simulate_drift import ALL, shift_p_values
from simulate_intervals import Figures, Misses

from drrej.core.calibrators import Temperature
from drrej.core.certify import risk_candidates
from drrej.core.curves import Curve, coverage_at_risk
from drrej.core.intervals import CONFIDENCE, lower_bound, upper_bound
from drrej.core.learned_loss import learn
from drrej.core.losses import PLAIN, CostLoss, Loss
from drrej.core.paired import FIGURES, Results, area_intervals, order_difference, paired_differences
from drrej.core.ratio import DensityRatio

ROWS = (100, 200, 500, 1000, 5000)
ERROR_RATES = (0.01, 0.05, 0.2)
POPULATION = 1 << 17
CLASSES = 5
LEVEL = 0.05
COVERED = 0.8
"""The share of rows below the cutoff."""
CONFIDENT = 0.9
_TAIL = (1.0 - CONFIDENCE) / 2
_ACCEPT_ALL = DensityRatio(1.0, 1.0, 0.0, 0.0)


@dataclass(frozen=True)
class Scores:
    """One loss on all rows of a world: values, predictions, and the chance that a prediction is wrong.

    `drift` are the values by which drift is looked for, `mean_ratio` whether its mean is tested too.
    """

    losses: np.ndarray
    prediction: np.ndarray
    wrong: np.ndarray
    drift: np.ndarray
    mean_ratio: bool = True

    @cached_property
    def curve(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(loss, rows, expected errors) up to each distinct loss."""
        order = np.argsort(self.losses, kind="stable")
        ordered = self.losses[order]
        ends = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True))
        return ordered[ends], ends + 1.0, np.cumsum(self.wrong[order])[ends]

    @cached_property
    def cutoff(self) -> float:
        return float(np.quantile(self.losses, COVERED, method="higher"))

    def at(self, cutoff: float | None) -> tuple[float, float]:
        """(coverage, risk) of the rows with a smaller loss."""
        losses, rows, errors = self.curve
        points = losses.size if cutoff is None else int(np.searchsorted(losses, cutoff))
        return (float(rows[points - 1] / rows[-1]), float(errors[points - 1] / rows[points - 1])) if points else (0, 0)

    def truth(self) -> Figures:
        _, rows, errors = self.curve
        coverage, risk = rows / rows[-1], errors / rows
        error = float(risk[-1])
        width = np.diff(coverage, prepend=0.0)
        aurc = float(np.sum(width * (risk + np.append(risk[0], risk[:-1])))) / 2
        share = errors / rows[-1]
        accepted, kept = self.at(self.cutoff)
        return {
            "coverage": accepted,
            "accuracy": 1.0 - kept,
            "base_accuracy": 1.0 - error,
            "aurc": aurc,
            "e_aurc": aurc - (error + (1 - error) * math.log1p(-error)),
            "augrc": float(np.sum(width * (share + np.append(0.0, share[:-1])))) / 2,
        }

    def coverage_at(self, limit: Fraction) -> float:
        _, rows, errors = self.curve
        held = np.flatnonzero(errors <= float(limit) * rows)
        return float(rows[held[-1]] / rows[-1]) if held.size else 0.0


@dataclass(frozen=True)
class LossWorld:
    """Rows with the chance of each class, their losses, and the risk that is asked for."""

    chances: np.ndarray
    scores: dict[str, Scores]
    limit: Fraction

    @classmethod
    def of(cls, error: float, seed: int = 1) -> LossWorld:
        """A world in which so many predictions are wrong; its classes are not equally well calibrated."""
        rng = np.random.default_rng([seed, round(1000 * error)])
        shape = rng.normal(size=(POPULATION, CLASSES)) * rng.gamma(2.0, 1.0, size=(POPULATION, 1))
        favour = np.linspace(-0.5, 0.5, CLASSES)
        low, high = 0.01, 300.0
        for _ in range(40):
            scale = math.sqrt(low * high)
            chances = _softmax(scale * shape + favour)
            wrong = 1.0 - chances[np.arange(POPULATION), shape.argmax(axis=1)]
            low, high = (scale, high) if wrong.mean() > error else (low, scale)
        logits = (2.0 * scale * shape).astype(np.float32)
        limit = Fraction(str(round(error / 2, 3)))
        return cls(np.cumsum(chances, axis=1), dict(_scored(logits, chances, rng)), limit)

    def draw(self, rows: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Rows (numbers) and labels."""
        chosen = rng.integers(POPULATION, size=rows)
        labels = (self.chances[chosen] < rng.random((rows, 1))).sum(axis=1)
        return chosen, np.minimum(labels, CLASSES - 1)


def _softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def _scored(logits: np.ndarray, chances: np.ndarray, rng: np.random.Generator) -> Iterator[tuple[str, Scores]]:
    calibrator, everything = Temperature(2.0), np.arange(POPULATION)
    view = calibrator.scores(logits, ALL, "auto")[0]

    def scores(loss: Loss, by: Loss | None = None) -> Scores:
        prediction, losses = loss.of(view, {})
        wrong = 1.0 - chances[everything, prediction]
        return Scores(losses, prediction, wrong, losses if by is None else by.of(view, {})[1], by is None)

    costs = 1.0 + np.arange(CLASSES)[:, None] % 3 - np.eye(CLASSES) * (1.0 + np.arange(CLASSES)[:, None] % 3)
    for name, loss in {**PLAIN, "cost": CostLoss(tuple(map(tuple, costs)))}.items():
        yield name, scores(loss)
    seen = rng.integers(POPULATION, size=2000)
    labels = np.minimum((np.cumsum(chances[seen], axis=1) < rng.random((seen.size, 1))).sum(axis=1), CLASSES - 1)
    fit = calibrator.scores(logits[seen], ALL, "auto")[0]
    learned = learn(fit, labels)
    yield "learned", scores(learned, learned.drift_loss)


@dataclass
class Found:
    """Of one loss: misses of intervals, false alarms of tests, and broken promises among those made."""

    intervals: dict[str, Misses]
    alarms: dict[str, int]
    tested: dict[str, int]

    @classmethod
    def empty(cls) -> Found:
        return cls({}, {}, {})

    def miss(self, name: str, ends: tuple[float, float], truth: float) -> None:
        self.intervals.setdefault(name, Misses()).add(*ends, truth)

    def alarm(self, name: str, is_false: bool) -> None:
        self.alarms[name] = self.alarms.get(name, 0) + is_false
        self.tested[name] = self.tested.get(name, 0) + 1

    def holds(self) -> bool:
        """Whether all are within three standard errors of nominal, or on the safe side."""
        levels = {"broken": 1 - CONFIDENT, "order": LEVEL / 2}
        return all(found.allowed() for found in self.intervals.values()) and all(
            alarms <= self.tested[name] * level + 3 * math.sqrt(self.tested[name] * level * (1 - level))
            for name, alarms in self.alarms.items()
            for level in (levels.get(name, LEVEL),)
        )


def simulate(world: LossWorld, rows: int, trials: int) -> dict[str, Found]:
    """What each loss makes of the same draws."""
    found = {name: Found.empty() for name in world.scores}
    truths = {name: scores.truth() for name, scores in world.scores.items()}
    at_risk = {name: scores.coverage_at(world.limit) for name, scores in world.scores.items()}
    for seed in range(trials):
        rng = np.random.default_rng([seed, rows, world.limit.numerator])
        chosen, labels = world.draw(rows, rng)
        earlier = rng.integers(POPULATION, size=rows)
        for name, scores in world.scores.items():
            results = _results(scores, chosen, labels)
            _of_report(found[name], results, truths[name], world.limit, at_risk[name])
            other = "log" if name == "zero-one" else "zero-one"
            rival = _results(world.scores[other], chosen, labels)
            _of_pair(found[name], (results, rival), (truths[name], truths[other]))
            _of_promise(found[name], results, scores, world.limit)
            for test, p_value in shift_p_values(np.sort(scores.drift[earlier]), scores.drift[chosen]).items():
                if scores.mean_ratio or test == "distance":
                    found[name].alarm(test, p_value <= LEVEL)
    return found


def _results(scores: Scores, chosen: np.ndarray, labels: np.ndarray) -> Results:
    losses = scores.losses[chosen]
    return Results(losses, scores.prediction[chosen] != labels, losses < scores.cutoff)


def _of_report(found: Found, results: Results, truth: Figures, limit: Fraction, at_risk: float) -> None:
    points = Curve.of(results.losses[~results.wrong], results.losses[results.wrong])
    for name, ends in area_intervals(points).items():
        found.miss(name, ends, truth[name])
    found.miss("coverage at risk", coverage_at_risk(points, limit), at_risk)
    accepted, right = int(results.accepted.sum()), int((results.accepted & ~results.wrong).sum())
    for name, hits, of in (("coverage", accepted, results.losses.size), ("accuracy", right, accepted)):
        found.miss(name, (lower_bound(hits, of, _TAIL), upper_bound(hits, of, _TAIL)), truth[name])


def _of_pair(found: Found, pair: tuple[Results, Results], truths: tuple[Figures, Figures]) -> None:
    for name, difference in paired_differences(*pair).items():
        assert name in FIGURES
        if difference.lower is not None and difference.upper is not None:
            found.miss(f"paired {name}", (difference.lower, difference.upper), truths[0][name] - truths[1][name])
    ours, theirs = pair
    if (ours.wrong != theirs.wrong).any():
        return  # scores are compared for the same predictions
    order = np.argsort(ours.wrong, kind="stable")
    right = int(np.count_nonzero(~ours.wrong))
    compared = order_difference(ours.losses[order], theirs.losses[order], right)
    truth = truths[1]["augrc"] - truths[0]["augrc"]
    found.alarm("order", compared.upper < 0 <= truth or compared.lower > 0 >= truth)


def _of_promise(found: Found, results: Results, scores: Scores, limit: Fraction) -> None:
    points = Curve.of(results.losses[~results.wrong], results.losses[results.wrong])
    best = risk_candidates(points, _ACCEPT_ALL, float(limit), 1 - CONFIDENT).largest()
    found.alarm("broken", best is not None and scores.at(best.cutoff)[1] > float(limit))


def main(trials: int, sizes: Sequence[int] = ROWS) -> None:
    """Print a line for each size, error rate and loss."""
    print(f"{trials} trials each; in percent: truth below, above the interval; alarms; broken (! beyond three s.e.)")
    for rows in sizes:
        for error in ERROR_RATES:
            for name, found in simulate(LossWorld.of(error), rows, trials).items():
                cells = [
                    f"{key} {100 * cell.below / cell.trials:.1f} {100 * cell.above / cell.trials:.1f}"
                    for key, cell in found.intervals.items()
                ]
                cells += [f"{key} {100 * alarms / found.tested[key]:.1f}" for key, alarms in found.alarms.items()]
                mark = "" if found.holds() else "!"
                print(f"n={rows:4} error {error:4} {name:12} {' | '.join(cells)} {mark}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), [int(size) for size in sys.argv[2:]] or ROWS)
