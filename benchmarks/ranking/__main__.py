"""AUGRC of `--loss auto` and of every single score: `python -m benchmarks.ranking DATA WORK OUT.json [SPLITS]`.

Run it with one version of drrej and with another, then `python -m benchmarks.ranking.table BEFORE.json AFTER.json`.
A split takes half of the rows, 500 or 200 of them to fit on, and judges on the rest, or on the rows elsewhere.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.ranking.dumps import KEPT, SEEN, Array, Task, task
from drrej import fit_rejector

SIZES = (200, 500, None)
MOST = 4000
"""Rows that a split takes of a dump."""


def augrc(losses: Array, wrong: Array) -> float:
    """Mean over rows of (wrong) x (share of rows of larger loss), ties half."""
    ordered, rows = np.sort(losses), losses.size
    middle = 0.5 * (np.searchsorted(ordered, losses, "left") + np.searchsorted(ordered, losses, "right"))
    return float(np.sum((rows - middle)[wrong])) / rows**2


def single_scores(scores: Array, temperature: float, floor: float | None) -> dict[str, Array]:
    """Every single score, low values first, by the book and in float64."""
    z = scores.astype(np.float64)
    if floor is not None:
        z = np.log(np.maximum(z, floor))
    ordered = np.sort(z, axis=1)
    largest, gaps = ordered[:, -1], (ordered[:, :-1] - ordered[:, -1:]) / temperature
    found = {"max logit": -largest, "logit margin": gaps[:, -1]}
    for name, factor in (("", 1.0), (" at T/2", 2.0), (" at T/4", 4.0), (" at 2T", 0.5)):
        u = gaps * factor
        p = np.exp(u)
        rest = p.sum(axis=1)  # the largest is left out: 1 - max p would cancel
        found[f"zero-one{name}"] = rest
        found[f"log{name}"] = np.log1p(rest) - (u * p).sum(axis=1) / (1.0 + rest)
        if not name:
            found["brier"] = (2 * rest + rest**2 - (p**2).sum(axis=1)) / (1 + rest) ** 2
            found["margin"] = (rest + p[:, -1]) / (1.0 + rest)
            found["energy"] = -(largest / temperature + np.log1p(rest))
    if z.shape[1] > 2:
        c = np.abs(z - z.mean(axis=1, keepdims=True))
        top = largest - z.mean(axis=1)
        found["norm 1"] = -top / c.sum(axis=1)
        found["norm 2"] = -top / np.sqrt((c * c).sum(axis=1))
        found["norm 3"] = -top / np.cbrt((c * c * c).sum(axis=1))
        found["norm 4"] = -top / ((c * c) ** 2).sum(axis=1) ** 0.25
    return found


def trial(of: Task, size: int | None, seed: int) -> dict[str, Any]:
    """One split: AUGRC of `auto`, of `learned` and of every single score."""
    order = np.random.default_rng(1000 + seed).permutation(len(of.rows.labels))[:MOST]
    rows = order.size
    fitted = min(size or rows, rows // 2)
    fit, test = of.rows.take(order[:fitted]), of.rows.take(order[fitted:])
    if of.noise:
        fit = fit.flipped(of.noise, seed)
    test = test if of.shifted is None else of.shifted
    how: dict[str, Any] = {"input": "probs", "normalize": True} if of.probabilities else {"input": "logits"}
    rejector = fit_rejector(fit.scores, fit.labels, loss="auto", coverage=0.9, **how)
    learned = fit_rejector(fit.scores, fit.labels, loss="learned", coverage=0.9, **how)
    wrong = test.scores.argmax(axis=1) != test.labels
    assert rejector.calibration is not None
    assert rejector.ratio is not None
    single = single_scores(test.scores, rejector.calibration.temperature, rejector.floor)
    return {
        "auto": augrc(rejector.score(test.scores).loss, wrong),
        "learned": augrc(learned.score(test.scores).loss, wrong),
        "chosen": rejector.ratio.loss.name,
        "single": {name: augrc(values, wrong) for name, values in single.items()},
    }


def main(data: str, work: str, out: str, splits: str = "20") -> None:
    """Every task at every size; what is done already is kept."""
    target = Path(out)
    done: dict[str, Any] = json.loads(target.read_text()) if target.exists() else {}
    for size in SIZES:
        for name in [*SEEN, *KEPT]:
            key = f"{name}|{size or 'half'}"
            if key not in done:
                of = task(name, Path(data), Path(work))
                done[key] = [trial(of, size, seed) for seed in range(int(splits))]
                target.write_text(json.dumps(done))
                print(key, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
