"""False alarms of both drift tests on real dumps, for every loss.

python -m tests.campaigns simulate_drift SPLITS DUMP.npz ...

A dump (`logits`, `labels`) is split at random: one part calibrates and fits, as the commands do, the other part is new.
There is no drift, so a p-value should be at most 5 % in 5 % of the splits, or less often.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from drrej.core.calibrators import Scores, Temperature, minimise, nll_sums
from drrej.core.curves import Curve
from drrej.core.drift import loss_quantiles, loss_shift, ratio_moments, ratio_shift
from drrej.core.learned_loss import learn
from drrej.core.losses import PLAIN, CostLoss, Loss
from drrej.core.ratio import fit_ratio
from drrej.core.softmax import NOTHING

LEVEL = 0.05
MOST_ROWS = 2000
"""Of each part."""

ALL = NOTHING.union(*(loss.needs for loss in PLAIN.values()))


def p_values(logits: np.ndarray, labels: np.ndarray, rng: np.random.Generator) -> Iterator[tuple[str, str, float]]:
    """(loss, test, p-value) for one split into equal parts of at most `MOST_ROWS` rows."""
    half = min(MOST_ROWS, len(labels) // 2)
    chosen = rng.permutation(len(labels))[: 2 * half]
    parts = [logits[chosen[:half]], logits[chosen[half:]]]
    known = labels[chosen[:half]]
    calibrator = Temperature(minimise(lambda beta: nll_sums(parts[0], known, beta, "auto")).temperature)
    fit, new = (calibrator.scores(part, ALL, "auto")[0] for part in parts)
    classes = logits.shape[1]
    costs = 1.0 + np.arange(classes)[:, None] % 3 - np.eye(classes) * (1.0 + np.arange(classes)[:, None] % 3)
    for name, loss in {**PLAIN, "cost": CostLoss(tuple(map(tuple, costs)))}.items():
        for test, p_value in by_loss(fit, new, loss).items():
            yield name, test, p_value
    # a learned loss has no test of its own mean: drift is looked for by the zero-one loss
    learned = learn(fit, known)
    yield "auto", "distance", by_loss(fit, new, learned.drift_loss or learned)["distance"]


def by_loss(fit: Scores, new: Scores, loss: Loss) -> dict[str, float]:
    """P-values of the distance and of the mean ratio."""
    return shift_p_values(np.sort(loss.of(fit, {})[1]), loss.of(new, {})[1])


def shift_p_values(before: np.ndarray, after: np.ndarray) -> dict[str, float]:
    """P-values of the distance and of the mean ratio, of sorted losses of the fit and new ones."""
    density = fit_ratio(before)
    moments = [ratio_moments([density.log_ratio(losses)], losses.size) for losses in (after, before)]
    shift = loss_shift(Curve.of(after, np.empty(0)), loss_quantiles(before), before.size)
    mean = ratio_shift(*moments)["p_value"]
    assert mean is not None
    return {"distance": shift["p_value"], "mean ratio": mean}


def false_alarms(path: str, splits: int) -> dict[tuple[str, str], tuple[int, int]]:
    """Alarms and splits by loss and test."""
    with np.load(path) as dump:
        logits, labels = dump["logits"], dump["labels"]
    counts: dict[tuple[str, str], tuple[int, int]] = {}
    for seed in range(splits):
        for loss, test, p_value in p_values(logits, labels, np.random.default_rng([seed, len(labels)])):
            alarms, tried = counts.get((loss, test), (0, 0))
            counts[loss, test] = alarms + (p_value <= LEVEL), tried + 1
    return counts


def main(splits: int, paths: list[str]) -> None:
    """Print a row for each dump and test: false alarms in percent, ! beyond three standard errors."""
    for path in paths:
        counts = false_alarms(path, splits)
        for test in ("distance", "mean ratio"):
            cells = []
            for (loss, of), (alarms, tried) in counts.items():
                if of == test:
                    over = "!" if alarms > tried * LEVEL + 3 * math.sqrt(tried * LEVEL * (1 - LEVEL)) else ""
                    cells.append(
                        f"{loss} {100 * alarms / tried:.1f}{over}" + (f" of {tried}" if tried < splits else "")
                    )
            print(f"{Path(path).stem:18} {test:10} {', '.join(cells)}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
