"""How likely the freshness check is to notice rows that are used again, and how often it refuses fresh ones."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.pages import made_by, table
from benchmarks.selective.dumps import Array, all_dumps
from drrej.core.reuse import KEPT, Sketch, coarse_keys, content_keys, needed_hits

SPLITS = 40
FEWEST = 1500
"""Rows of a dump that is looked at."""

rng = np.random.default_rng(0)


def detection_probability(fitted: int, new: int, shared: int) -> float:
    """The chance that `Fingerprint.judge` notices `shared` of `new` rows that were among `fitted` ones, all different.

    >>> [round(detection_probability(5000, 200, shared), 3) for shared in (2, 5, 10, 20, 200)]
    [0.168, 0.68, 0.959, 1.0, 1.0]
    """
    from scipy.stats import hypergeom

    if shared == fitted == new:
        return 1.0
    needed = needed_hits(0, fitted, new, 1, 0)
    return float(hypergeom.sf(needed - 1, fitted, shared, min(KEPT, fitted)))


FORMS: dict[str, Callable[[Any, Any], Any]] = {
    "float16": lambda _, logs: logs.astype(np.float16),
    "six digits": lambda _, logs: np.round(logs, 6),
    "+ 1": lambda _, logs: (logs + 1).astype(np.float32),
    "noise 1e-7": lambda _, logs: logs + rng.normal(0, 1e-7, logs.shape),
    "probabilities": lambda shares, _: shares,
    "six decimals of probabilities": lambda shares, _: np.round(shares, 6),
}


def real(name: str, shares: Array) -> list[str]:
    """A dump in random halves: to the bit, and in another form by coarse keys; fresh, half and all reused."""
    with np.errstate(divide="ignore"):
        logs, first = np.log(shares), shares.argmax(axis=1)
    half = len(shares) // 2
    orders = [rng.permutation(len(shares))[: 2 * half] for _ in range(SPLITS)]

    marks = np.arange(2 * half, dtype=np.uint64) << np.uint64(40)  # to the bit no row is used again

    def noticed(fitted: Array, keys: Array, reused: int, exact: bool = True) -> float:
        found = []
        for order in orders:
            seen, new = fitted[order[:half]], keys[np.concatenate([order[:reused], order[half:][: half - reused]])]
            known = Sketch.of(*([seen] if exact else [marks[:half], seen])).fingerprint()
            found.append(known.judge(known.look_up(*([new] if exact else [marks[half:], new]))).reused)
        return float(np.mean(found))

    exact, coarse = content_keys(shares), coarse_keys(logs, first)
    forms = [coarse_keys(of(shares, logs), first, "prob" in form) for form, of in FORMS.items()]
    cells = [noticed(exact, exact, 0), noticed(exact, exact, half // 2), noticed(coarse, coarse, 0, False)]
    cells += [min(noticed(coarse, keys, reused, False) for keys in forms) for reused in (half // 2, half // 10)]
    return [name, str(len(shares)), str(len(np.unique(exact))), *(f"{cell:.2f}" for cell in cells)]


def tables(args: argparse.Namespace) -> str:
    """A line for each model of scikit-learn and each published one with probabilities."""
    rows = []
    for dump in all_dumps(args.data, args.work):
        if dump.fit.probs and dump.name == dump.experiment and len(dump.test.labels) >= FEWEST:
            rows.append(real(dump.name, dump.test.outputs.astype(np.float64)))
    head = ["outputs", "rows", "different", "exact: false alarms", "half reused", "coarse: false alarms"]
    lines = [
        "# Rows that are used again",
        "",
        made_by("python -m benchmarks.selective reuse"),
        "",
        f"The share of {SPLITS} random halves of the test rows with an alarm. *Exact*: keys to the bit. *Coarse*: rows",
        f"fitted as logarithms of probabilities and used again in another form, the least over {', '.join(FORMS)}.",
        f"Models with few different outputs cannot be told apart. The sketch keeps {KEPT} keys.",
        "",
        *table([*head, "half reused, another form", "a tenth"], rows),
    ]
    return "\n".join(lines)
