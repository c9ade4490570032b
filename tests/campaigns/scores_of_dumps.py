"""Rows of real dumps with nothing but scores: `python -m tests.campaigns scores_of_dumps FOLDER...`.

A folder has `val.parquet` and `test.parquet` with logits or probabilities and labels. Of each row only the largest
probability is kept, and whether it is right. Then

1. the order, the certified cutoff and the mask must be those of the logits with the same score,
2. the maps are compared with scikit-learn's pieces of `CalibratedClassifierCV`, on halves of the validation rows,
3. three scores together (largest probability, margin, entropy) are compared with the best of them alone.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from drrej import Source
from drrej.core.confidence import SCORE_CALIBRATORS, choose_score_map, fit_scores
from drrej.core.losses import ErrorLoss, error_probability
from drrej.core.thresholds import Rule
from drrej.data.dump import DumpOptions
from drrej.errors import Infeasible
from drrej.pipeline.calibrate import CalibrateOptions, calibrate
from drrej.pipeline.fit import RatioOptions, fit, uncalibrated
from drrej.pipeline.reject import score_batch
from drrej.pipeline.threshold import ThresholdOptions, choose_threshold

BINS = 15


def rows_of(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Logits (of probabilities their logarithms, where 0 counts as 1e-12) and labels."""
    table = pq.read_table(path)
    name = next((name for name in ("logits", "probs") if name in table.column_names), None)
    wide = [each for each in table.column_names if each.startswith("prob_")]
    scores = np.array(table[name].to_pylist() if name else [table[each].to_numpy() for each in wide], np.float64)
    scores = scores if name else scores.T
    logits = scores if name == "logits" else np.log(np.maximum(scores, 1e-12))
    return logits, table["label"].to_numpy().astype(np.int64).ravel()


def probabilities(logits: np.ndarray) -> np.ndarray:
    """The softmax of each row."""
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def same_decisions(folder: Path, target: float, place: Path) -> str:
    """Order, certified cutoff and mask by the largest probability, from the logits and from the score alone."""
    masks, accepted, orders = [], [], []
    for kind in ("logits", "scores"):
        for part in ("val", "test"):
            logits, labels = rows_of(folder / f"{part}.parquet")
            best, number = probabilities(logits).max(axis=1), np.arange(len(labels))
            columns = {"number": number, "logits": pa.array(logits.tolist()), "label": labels}
            if kind == "scores":
                columns = {"number": number, "score": best, "correct": logits.argmax(axis=1) == labels}
            table = pa.table(columns)
            for half in (0, 1):
                chosen = np.arange(half, len(labels), 2) if part == "val" else number
                pq.write_table(table.take(pa.array(chosen)), place / f"{part}-{half}.parquet")
        how = DumpOptions(input="logits") if kind == "logits" else DumpOptions(score="score", correct="correct")
        first, fresh = (Source(place / f"val-{half}.parquet", how) for half in (0, 1))
        if kind == "logits":
            fitted = fit(first, uncalibrated(first, 1.0, "float64"), RatioOptions(loss="zero-one"))
        else:
            fitted = fit(first, calibrate(first, CalibrateOptions()), RatioOptions(loss=ErrorLoss()))
        try:
            rule = Rule("accuracy", target, 0.95)
            rejector = choose_threshold(fresh, fitted, rule, ThresholdOptions(group="number")).rejector
        except Infeasible:
            return f"{target}: not certified"
        accepted.append(rejector.need_threshold().accepted)
        mask = score_batch(pq.read_table(place / "test-0.parquet").combine_chunks().to_batches()[0], rejector)
        masks.append(np.asarray(mask["rejected"]))
        orders.append(mask["loss"].to_numpy())
    _, ranks = np.unique(best, return_inverse=True)
    apart = np.diff(ranks[np.argsort(orders[0], kind="stable")]) < 0
    falls = np.diff(orders[1][np.argsort(orders[0], kind="stable")])[apart]
    assert accepted[0] == accepted[1], accepted
    assert (masks[0] == masks[1]).all()
    assert (falls > 0).all()
    return f"{target}: {accepted[0]} accepted, {int(masks[0].sum())} rejected in the test, the same from both"


def figures(wrong_chance: np.ndarray, wrong: np.ndarray) -> tuple[float, float]:
    """Log loss and ECE (15 bins of equal width)."""
    clipped = np.clip(wrong_chance, 1e-15, 1 - 1e-15)
    loss = -np.where(wrong, np.log(clipped), np.log1p(-clipped)).mean()
    place = np.minimum((wrong_chance * BINS).astype(int), BINS - 1)
    gaps = np.bincount(place, wrong_chance - wrong, BINS)
    return float(loss), float(np.abs(gaps).sum() / wrong.size)


def calibration(folder: Path) -> list[str]:
    """Log loss and ECE of each map and of scikit-learn's, fitted on one half and judged on the other, and reverse."""
    from sklearn.calibration import _SigmoidCalibration
    from sklearn.isotonic import IsotonicRegression

    logits, labels = rows_of(folder / "val.parquet")
    score, wrong = probabilities(logits).max(axis=1)[:, None], logits.argmax(axis=1) != labels
    found: dict[str, list[tuple[float, float]]] = {}
    for half in (0, 1):
        inside = np.arange(len(labels)) % 2 == half
        train, test = score[~inside], score[inside]
        judged = {"none": 1.0 - test[:, 0]}
        for name in SCORE_CALIBRATORS:
            judged[name] = error_probability(fit_scores(train, wrong[~inside], False, name).log_odds(test))
        judged["auto"] = error_probability(choose_score_map(train, wrong[~inside], False, "auto")[1].log_odds(test))
        line = _SigmoidCalibration().fit(train[:, 0], ~wrong[~inside])
        judged["sklearn sigmoid"] = 1.0 - line.predict(test[:, 0])
        steps = IsotonicRegression(out_of_bounds="clip").fit(train[:, 0], ~wrong[~inside])
        judged["sklearn isotonic"] = 1.0 - steps.predict(test[:, 0])
        for name, chance in judged.items():
            found.setdefault(name, []).append(figures(chance, wrong[inside]))
    return [f"  {name:17} log loss {np.mean(v, 0)[0]:.4f}, ECE {np.mean(v, 0)[1]:.4f}" for name, v in found.items()]


def augrc(loss: np.ndarray, wrong: np.ndarray) -> float:
    """The area under the generalized risk-coverage curve, ties in the order at hand."""
    return float((np.cumsum(wrong[np.argsort(loss, kind="stable")]) / wrong.size).mean())


def combining(folder: Path, rows: int, draws: int = 20, seed: int = 0) -> str:
    """How the AUGRC of three scores together compares with the best alone, fitted to so many rows."""
    parts = []
    for part in ("val", "test"):
        logits, labels = rows_of(folder / f"{part}.parquet")
        p = probabilities(logits)
        two = np.sort(p, axis=1)[:, -2:]
        entropy = -(p * np.log(np.maximum(p, 1e-300))).sum(axis=1)
        parts.append((np.stack([two[:, 1], two[:, 1] - two[:, 0], -entropy], axis=1), logits.argmax(axis=1) != labels))
    (val, val_wrong), (test, wrong) = parts
    alone = min(augrc(-column, wrong) for column in test.T)
    rng, gains = np.random.default_rng(seed), []
    for _ in range(draws):
        chosen = rng.choice(len(val), min(rows, len(val)), replace=False)
        odds = fit_scores(val[chosen], val_wrong[chosen], False, "logistic").log_odds(test)
        gains.append(augrc(odds, wrong) - alone)
    spread = np.std([augrc(-test[draw, 0], wrong[draw]) for draw in rng.integers(0, len(test), (50, len(test)))])
    return f"  {rows} rows: AUGRC {alone:.5f} alone, {np.mean(gains):+.5f} together (noise of the test {spread:.5f})"


if __name__ == "__main__":
    for folder in map(Path, sys.argv[1:]):
        print(folder.name, flush=True)
        with tempfile.TemporaryDirectory() as name:
            for target in (0.95, 0.97, 0.99):
                print(f"  accuracy {same_decisions(folder, target, Path(name))}", flush=True)
        print("\n".join([*calibration(folder), *(combining(folder, rows) for rows in (200, 1000, 2500))]), flush=True)
