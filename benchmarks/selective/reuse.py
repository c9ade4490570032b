"""How likely the freshness check is to notice rows that are used again, and how often it refuses fresh ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.selective.dumps import Array, all_dumps
from benchmarks.selective.page import made_by, table
from drrej.core.reuse import KEPT, Reuse, Sketch, coarse_keys, content_keys, needed_hits

SIZES = ((5000, 200), (5000, 5000), (5000, 50000), (50000, 5000), (500, 500))
SPLITS = 40
FEWEST = 1500
"""Rows of a dump that is looked at."""

rng = np.random.default_rng(0)


def detection_probability(fitted: int, new: int, shared: int) -> float:
    """The chance that `Fingerprint.judge` notices `shared` of `new` rows that were among `fitted` ones, all different.

    >>> [round(detection_probability(5000, 200, shared), 3) for shared in (2, 5, 10, 20, 200)]
    [0.168, 0.68, 0.959, 1.0, 1.0]
    """
    from scipy.special import gammaln

    def log_choose(n: int, k: int) -> float:
        return float(gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1))

    if shared == fitted == new:
        return 1.0
    kept = min(KEPT, fitted)
    needed = needed_hits(0, fitted, new, 1, 0)
    missed = range(max(0, kept + shared - fitted), min(needed, shared + 1, kept + 1))
    log_all = log_choose(fitted, kept)
    terms = [log_choose(shared, i) + log_choose(fitted - shared, kept - i) - log_all for i in missed]
    return float(max(0.0, 1.0 - np.exp(terms).sum()))


def _judge(fitted: Array, new: Array) -> Reuse:
    fingerprint = Sketch.of(fitted).fingerprint()
    return fingerprint.judge(fingerprint.look_up(new))


def _fresh(count: int) -> Array:
    return rng.integers(0, 1 << 64, count, dtype=np.uint64)


def worlds() -> dict[str, Callable[[int, Array], Array]]:
    """Rows of which some are drawn from a pool of values, so that fresh rows are equal to fitted ones by nature."""

    def pooled(share: float, size: int) -> Callable[[int, Array], Array]:
        return lambda count, pool: np.where(
            rng.random(count) < share, pool[rng.integers(0, size, count)], _fresh(count)
        )

    def zipf(share: float, power: float) -> Callable[[int, Array], Array]:
        def draw(count: int, pool: Array) -> Array:
            places = np.minimum(rng.zipf(power, count), len(pool)) - 1
            return np.where(rng.random(count) < share, pool[places], _fresh(count))

        return draw

    named = {"all different": pooled(0.0, 1), "5 % are one row": pooled(0.05, 1), "1 % from 1,000": pooled(0.01, 1000)}
    named |= {"10 % from 10,000": pooled(0.1, 10_000), "50 % from 5,000": pooled(0.5, 5000)}
    return named | {
        "all from 100,000": pooled(1.0, 100_000),
        "50 % Zipf 2": zipf(0.5, 2.0),
        "all Zipf 1.2": zipf(1.0, 1.2),
    }


def false_alarms(trials: int) -> list[str]:
    """The share of trials in which fresh rows are refused."""
    rows = []
    for name, draw in worlds().items():
        cells = []
        for fitted, new in SIZES:
            pools = [_fresh(100_000) for _ in range(trials)]
            cells.append(f"{np.mean([_judge(draw(fitted, pool), draw(new, pool)).reused for pool in pools]):.3f}")
        rows.append([name, *cells])
    return table(["rows", *(f"{fitted:,} / {new:,}" for fitted, new in SIZES)], rows)


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

    def noticed(fitted: Array, keys: Array, reused: int) -> float:
        new = [np.concatenate([order[:reused], order[half:][: half - reused]]) for order in orders]
        return float(np.mean([_judge(fitted[a[:half]], keys[b]).reused for a, b in zip(orders, new, strict=True)]))

    exact, coarse = content_keys(shares), coarse_keys(logs, first)
    forms = [coarse_keys(of(shares, logs), first, "prob" in form) for form, of in FORMS.items()]
    cells = [noticed(exact, exact, 0), noticed(exact, exact, half // 2), noticed(coarse, coarse, 0)]
    cells += [min(noticed(coarse, keys, reused) for keys in forms) for reused in (half // 2, half // 10)]
    return [name, str(len(shares)), str(len(np.unique(exact))), *(f"{cell:.2f}" for cell in cells)]


def write_reuse(data: Path, work: Path, trials: int, path: Path) -> None:
    """The tables."""
    rows = []
    for dump in all_dumps(data, work):
        if dump.fit.probs and dump.name == dump.experiment and len(dump.test.labels) >= FEWEST:
            rows.append(real(dump.name, dump.test.outputs.astype(np.float64)))
    head = ["outputs", "rows", "different", "exact: false alarms", "half reused", "coarse: false alarms"]
    lines = [
        "# Rows that are used again",
        "",
        made_by(f"python -m benchmarks.selective reuse --trials {trials}"),
        "",
        f"The sketch keeps {KEPT} keys. `detection_probability` of `benchmarks.selective.reuse` gives the chance that",
        "reuse of rows that are all different is noticed; docs/checks.md has a table of it.",
        "",
        f"## Fresh rows that are refused ({trials} trials; fitted / new rows)",
        "",
        *false_alarms(trials),
        f"## Real models ({SPLITS} random halves of the test rows)",
        "",
        "The share of splits with an alarm. *Exact*: keys to the bit. *Coarse*: rows fitted as logarithms of",
        f"probabilities and used again in another form, the least over {', '.join(FORMS)}. Models with few different",
        "outputs cannot be told apart.",
        "",
        *table([*head, "half reused, another form", "a tenth"], rows),
    ]
    path.write_text("\n".join(lines))
