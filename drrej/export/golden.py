"""Golden rows: scores with the decisions that drrej makes of them, to hold an export to."""

from __future__ import annotations

from typing import Any

import numpy as np

from drrej.core.inputs import FACE_VALUE, binary_logits, floored_logits, read_rows
from drrej.core.types import Booleans, Floats, Integers
from drrej.documents.rejector import Rejector
from drrej.export.steps import Decision

_TRIES = 4000


def decided(rejector: Rejector, scores: Floats) -> tuple[Integers, Floats, Floats]:
    """Prediction, loss and ratio of each row, in float64 whatever the scores are."""
    if rejector.input == "logits":
        logits = binary_logits(scores) if rejector.binary else scores
    else:
        floor = FACE_VALUE if rejector.floor is None else rejector.floor
        logits = floored_logits(read_rows(scores, rejector.input, rejector.normalize).values, floor)
    ratio = rejector.need_ratio()
    calibrated, _ = rejector.calibrator.scores(logits, ratio.loss.needs, "float64")
    prediction, loss = ratio.loss.of(calibrated, {})
    return prediction, loss, ratio.density.ratio(loss)


def random_scores(rejector: Rejector, rows: int, seed: int) -> Floats:
    """Rows from sure to doubtful, with ties and impossible classes among them, as the rejector takes them."""
    random = np.random.default_rng(seed)
    temperature = rejector.need_calibration().temperature
    spread = temperature * 10.0 ** random.uniform(-1.0, 1.5, size=(rows, 1))
    logits = random.normal(size=(rows, rejector.classes)) * spread
    logits[1::16] = np.round(logits[1::16])
    logits[2::16, 0] = logits[2::16].max(axis=1)  # the largest twice, and the first of them counts
    logits[3::16, -1] = -np.inf
    logits[4::64] = 0.0
    if rejector.binary:
        logits[:, 0] = 0.0
    if rejector.input == "logits":
        return np.maximum(logits[:, 1], -1e30) if rejector.binary else logits
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares = powers / powers.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore"):
        found: Floats = np.log(shares) if rejector.input == "log-probs" else shares
    return found[:, 1] if rejector.binary else found


def golden_rows(decision: Decision, rows: int) -> list[dict[str, Any]]:
    """So many rows: random ones, then pairs of neighbours on both sides of the cutoff."""
    rejector, groups = decision.rejector, list(decision.cutoffs) if isinstance(decision.cutoffs, dict) else [None]
    scores = random_scores(rejector, _TRIES, 7)
    of_row = [groups[number % len(groups)] for number in range(_TRIES)]
    prediction, loss, ratio = decided(rejector, scores)
    rejected = _rejected(decision, prediction, loss, of_row)
    limit = decision.cutoffs if isinstance(decision.cutoffs, float) else None
    order = (
        np.argsort(np.abs(np.log(loss + 1e-300) - np.log(limit))) if limit and 0 < limit < np.inf else np.arange(_TRIES)
    )
    near = [place for place in order if place >= rows // 2][: rows - rows // 2]
    names = rejector.class_names
    found = []
    for place in [*range(rows // 2), *near]:
        values = [scores[place]] if rejector.binary else scores[place].tolist()
        row: dict[str, Any] = {"scores": [v if np.isfinite(v) else str(v) for v in map(float, values)]}
        row |= {"group": of_row[place]} if decision.by else {}
        label = int(prediction[place]) if names is None else names[prediction[place]]
        row |= {"prediction": label, "loss": float(loss[place]), "ratio": float(ratio[place])}
        row["ratio"] = row["ratio"] if np.isfinite(row["ratio"]) else str(row["ratio"])
        found.append(row | {"rejected": bool(rejected[place])})
    return found


def _rejected(decision: Decision, prediction: Integers, loss: Floats, groups: list[Any]) -> Booleans:
    cutoffs: Any = decision.cutoffs
    if isinstance(cutoffs, dict):
        cutoffs = np.array([cutoffs[group] for group in groups])
    elif isinstance(cutoffs, list):
        cutoffs = np.array(cutoffs)[prediction]
    rejected: Booleans = ~(loss < cutoffs)
    return rejected
