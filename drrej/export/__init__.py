"""A rejector as a file without drrej: the steps of its decision (`steps`), written in other languages.

Each file carries golden rows: scores with the decisions that drrej makes of them, by which it checks itself.
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any, Literal

import numpy as np

from drrej._version import __version__
from drrej.core.confidence import ScoreMap
from drrej.core.inputs import row_logits
from drrej.core.types import Floats, Integers
from drrej.documents.rejector import Rejector
from drrej.errors import OptionError
from drrej.export.languages import code_of, sql_of
from drrej.export.steps import BAND, Decision, decision_of

Language = Literal["python", "sql", "js", "onnx"]
Dialect = Literal["duckdb", "postgres"]
GOLDEN = 12
"""Golden rows of an export, unless told."""

_TRIES = 4000


def export(
    rejector: Rejector,
    to: Language,
    golden: int = GOLDEN,
    scores: str | None = None,
    dialect: Dialect = "duckdb",
    append: bytes | None = None,
) -> bytes:
    """The file, with so many golden rows.

    `scores` is the column of a table that holds the scores, or its columns, for SQL; the output of the model that an
    ONNX graph is to `append` to, where it has several.
    """
    decision = decision_of(rejector)
    rows = golden_rows(decision, golden)
    if to == "onnx":
        try:
            from drrej.export.graph import onnx_of
        except ImportError:
            raise OptionError("`to=onnx` needs the package onnx: pip install 'drrej[onnx]'") from None
        return onnx_of(decision, rows, about(rejector), append, scores)
    name = {"python": "decide.py.txt", "js": "decide.js.txt", "sql": f"{dialect}.sql"}[to]
    template = (files("drrej.export") / "templates" / name).read_text(encoding="utf-8")
    if to == "sql":
        parts = sql_of(decision, rows, scores or rejector.columns.logits, dialect == "postgres")
    else:
        parts = code_of(decision, rows, to == "js")
    for part, text in {"ABOUT": about(rejector), **parts}.items():
        template = template.replace(f"@{part}@", text)
    return template.encode()


def golden_lines(rejector: Rejector, rows: int) -> str:
    """The golden rows as JSON lines: scores (infinities as text), prediction, loss, rejected and group."""
    return "".join(f"{json.dumps(row)}\n" for row in golden_rows(decision_of(rejector), rows))


def about(rejector: Rejector) -> str:
    """What an export says of itself, in one line."""
    single = (
        ""
        if rejector.precision == "float64"
        else " drrej itself sums rows of float32 in float32: where a loss lies "
        "within about 1e-6 of the cutoff, as a share, it may decide otherwise."
    )
    return (
        f"The decision of a drrej rejector (digest {rejector.tree['digest'][:12]}), written by drrej {__version__}. "
        f"Losses are those of drrej in float64 within {BAND:g}; so are the cutoffs: from {BAND:g} below a cutoff on, "
        f"rows are rejected.{single}"
    )


def decided(rejector: Rejector, scores: Floats) -> tuple[Integers, Floats]:
    """Prediction and loss of each row, in float64 whatever the scores are."""
    ratio = rejector.need_ratio()
    given: Any = scores.reshape(len(scores), -1)
    if not rejector.is_scored:
        given = row_logits(scores, rejector.input, rejector.normalize, rejector.floor)
    calibrated, _ = rejector.calibrator.scores(given, ratio.loss.needs, "float64")
    return ratio.loss.of(calibrated, {})


def random_scores(rejector: Rejector, rows: int, seed: int) -> Floats:
    """Rows from sure to doubtful, with ties and impossible classes among them, as the rejector takes them."""
    random, fitted = np.random.default_rng(seed), rejector.need_calibration().score
    if fitted is not None:
        return _random_confidence(fitted, rows, random)
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


def _random_confidence(fitted: ScoreMap, rows: int, random: np.random.Generator) -> Floats:
    """Scores of any kind: rows, or rows x scores."""
    found = random.random((rows, len(fitted.forms)))
    found[1::16] = np.round(found[1::16], 1)  # with 0 and 1 among them
    for number, form in enumerate(fitted.forms):
        if form == "plain":
            term = fitted.terms[min(number, len(fitted.terms) - 1)]
            reach = 20.0 / max(abs(term.weight), 1e-9)
            found[:, number] = (-1.0 if fitted.lower else 1.0) * (term.center + reach * (found[:, number] - 0.5))
    return found[:, 0] if found.shape[1] == 1 else found


def golden_rows(decision: Decision, rows: int) -> list[dict[str, Any]]:
    """So many rows: half of them random ones, the others those nearest to their cutoffs, on both sides."""
    if rows < 1:
        raise OptionError(f"`golden={rows}`: it must be 1 or more")
    rejector, cutoffs = decision.rejector, decision.cutoffs
    scores = random_scores(rejector, _TRIES, 7)
    prediction, loss = decided(rejector, scores)
    groups = list(cutoffs) if isinstance(cutoffs, dict) else [None]
    limits = list(cutoffs.values()) if isinstance(cutoffs, dict) else cutoffs
    turn = np.arange(_TRIES) % len(groups)
    limit = np.broadcast_to(limits, rejector.classes)[prediction] if decision.by is None else np.array(limits)[turn]
    names, half = rejector.class_names, (rows + 1) // 2
    found = []
    for place in [*range(half), *(half + np.argsort(np.abs(loss - limit)[half:]))[: rows - half]]:
        row = {
            "scores": [value if np.isfinite(value) else str(value) for value in np.ravel(scores[place]).tolist()],
            "prediction": int(prediction[place]) if names is None else names[prediction[place]],
            "loss": float(loss[place]),
            "rejected": not loss[place] < limit[place],
        }
        found.append(row | ({"group": groups[turn[place]]} if decision.by else {}))
    return found
