"""Predictive values of two classes, by drrej and by MAPIE's controller on the same rows: `... compare_mapie [DATA...]`.

Both promise a negative predictive value of 0.998 and a positive one of 0.9 together, with confidence 0.9, on two thirds
of the rows that the model has not seen; figures are those of the last third, means over five random divisions. MAPIE
takes the pair of thresholds with the least abstention of 70. Data sets are read from $DRREJ_DATA; prints the table of
docs/promises.md.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import drrej
from benchmarks.selective.dumps import features, read
from drrej.errors import Infeasible

DATA = Path(os.environ.get("DRREJ_DATA", "data"))
NPV, PPV, CONFIDENCE, DIVISIONS = 0.998, 0.9, 0.9, 5
LOW = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
PAIRS = np.array([(low, high) for low in LOW for high in (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98)])
CASES = {
    "HAR 3": 1500, "gas 1": 1000, "OCT 1": 0, "MNIST 0": 5000, "MNIST 8": 5000, "digits 0": 400, "breast-cancer 0": 150
}  # fmt: skip
"""Data and class, and the rows that a logistic regression learns from; OCT has the probabilities of a ResNet-18."""
Array = np.ndarray[Any, Any]


def divisions(case: str) -> Iterator[tuple[Array, Array]]:
    """Probabilities of the class and whether it is the class, of rows in random order that the model has not seen."""
    from sklearn.datasets import load_breast_cancer
    from sklearn.decomposition import PCA
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    name, number = case.split()
    if name == "OCT":
        part = read(DATA / "medmnist_resnet" / "octmnist_resnet18" / "val.parquet")
        x, y = part.outputs / part.outputs.sum(axis=1, keepdims=True), part.labels
    else:
        x, y = load_breast_cancer(return_X_y=True) if name == "breast-cancer" else features(DATA, name)
    mine, train = (y == int(number)).astype(int), CASES[case]
    for seed in range(DIVISIONS):
        order = np.random.default_rng(seed).permutation(len(y))
        probs = x[order, int(number)]
        if train:
            first = [PCA(30, random_state=0)] if x.shape[1] > 200 else []
            model = make_pipeline(*first, StandardScaler(), LogisticRegression(max_iter=200))
            probs = model.fit(x[order[:train]], mine[order[:train]]).predict_proba(x[order[train:]])[:, 1]
        yield np.clip(probs, 1e-9, 1 - 1e-9), mine[order[train:]]


def decided(probs: Array, low: float, high: float) -> Array:
    """0 or 1 where it is certain enough, else not a number."""
    return np.where(probs < low, 0.0, np.where(probs >= high, 1.0, np.nan))


def by_drrej(probs: Array, labels: Array, new: Array) -> Array:
    """Every row is a group of its own: equal ones are independent rows, as they are for MAPIE."""
    both, options = np.stack([1 - probs, probs], 1), {"accuracy": {"0": NPV, "1": PPV}, "confidence": CONFIDENCE}
    try:
        found = drrej.fit_rejector(both, labels, input="probs", groups=np.arange(len(labels)), **options)
    except Infeasible:
        return np.full(len(new), np.nan)
    scored = found.score(np.stack([1 - new, new], 1))
    return np.where(scored.rejected, np.nan, scored.prediction.astype(float))


def by_mapie(probs: Array, labels: Array, new: Array, method: str) -> Array:
    """The split fixed sequence learns its order on a fifth of the rows."""
    from mapie.risk_control import BinaryClassificationController as Controller
    from mapie.risk_control import abstention_rate, negative_predictive_value, positive_predictive_value

    risks = [negative_predictive_value, positive_predictive_value]
    control = Controller(decided, risks, [NPV, PPV], CONFIDENCE, abstention_rate, PAIRS, method)
    first = len(probs) // 5 if method.startswith("split") else 0
    if first:
        control.learn_fixed_sequence_order(probs[:first], labels[:first])
    control.calibrate(probs[first:], labels[first:])
    best = control.best_predict_param
    return np.full(len(new), np.nan) if best is None else decided(new, *best)


def main(cases: list[str]) -> None:
    print(
        "| data, class | rows | share | by | coverage | certified | both classes | NPV | PPV |\n|---"
        + "|---:" * 8
        + "|"
    )
    for case in cases:
        found: dict[str, list[tuple[float, ...]]] = {}
        for probs, labels in divisions(case):
            end = len(labels) * 2 // 3
            given = probs[:end], labels[:end], probs[end:]
            ways = {"drrej": by_drrej(*given)}
            ways |= {f"MAPIE, {way}": by_mapie(*given, way) for way in ("bonferroni_holm", "split_fixed_sequence")}
            for name, said in ways.items():
                right = [np.mean(labels[end:][said == k] == k) if (said == k).any() else np.nan for k in (0, 1)]
                found.setdefault(name, []).append((float(np.mean(said == said)), *right))
        for name, rows in found.items():
            table = np.array(rows)
            ends = [f"{np.nanmean(each):.4f}" if (~np.isnan(each)).any() else "-" for each in table[:, 1:].T]
            counts = f"{(table[:, 0] > 0).sum()} | {(~np.isnan(table)).all(axis=1).sum()}"
            start = f"| {case} | {end} | {labels.mean():.3f} | {name} | {table[:, 0].mean():.3f}"
            print(f"{start} | {counts} | {' | '.join(ends)} |", flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(sys.argv[1:] or list(CASES))
