"""`auto` fitted on few rows and with wrong labels, against the best single score in hindsight."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.pages import made_by, table
from benchmarks.paper.data import flip
from benchmarks.selective.dumps import Part, all_dumps
from benchmarks.selective.rules import curve_of
from benchmarks.selective.scores import SCORES

SINGLE = ("max probability", "entropy", "margin", "logit margin")
ROWS = (200, 1000, 0)
"""Rows to fit on; 0: half of them."""
MOST = 8000
WRONG = 0.05


def pooled(data: Path, work: Path) -> Iterator[tuple[str, Part]]:
    """The rows of every dump, once for each experiment: with enough rows and errors to split."""
    for dump in all_dumps(data, work):
        if dump.experiment == dump.name and not dump.shifted and len(dump.fit.labels) >= 1400:
            whole = dump.fit.joined(dump.test)
            yield dump.name, whole.take(np.random.default_rng(0).permutation(len(whole.labels))[:MOST])
        elif dump.name.endswith("half 1"):
            yield dump.experiment, dump.fit.joined(dump.test)


def split(part: Part, rows: int, seed: int) -> dict[str, float]:
    """AUGRC of `auto`, fitted on right labels and on some wrong ones, and of every single score, on one half."""
    order = np.random.default_rng(1000 + seed).permutation(part.labels.size)
    half = order.size // 2
    fit, test = part.take(order[: min(rows or half, half)]), part.take(order[half:])
    noisy = Part(fit.outputs, flip(fit.labels, fit.outputs.shape[1], WRONG, 1 + seed), fit.probs)
    losses = {name: SCORES[name](fit, [test])[0] for name in (*SINGLE, "auto")}
    losses["wrong"] = SCORES["auto"](noisy, [test])[0]
    return {name: curve_of(own, test.wrong).augrc() for name, own in losses.items()}


def above(trials: list[dict[str, float]], name: str, best: str) -> tuple[float, float]:
    """Percent above the best single score, with the standard error over splits."""
    own, rival = (np.array([trial[key] for trial in trials]) for key in (name, best))
    error = float((own - rival).std(ddof=1)) / own.size**0.5 if own.size > 1 else 0.0
    return 100 * float(own.mean() / rival.mean() - 1), 100 * error / float(rival.mean())


def tables(args: argparse.Namespace) -> str:
    """Means over dumps, and every dump."""
    rows, means = [], []
    found: dict[int, list[tuple[float, float]]] = {size: [] for size in ROWS}
    for name, part in pooled(args.data, args.work):
        for size in ROWS:
            trials = [split(part, size, seed) for seed in range(args.trials)]
            best = min(SINGLE, key=lambda score: sum(trial[score] for trial in trials))
            right, noisy = above(trials, "auto", best), above(trials, "wrong", best)
            found[size].append((right[0], noisy[0]))
            area = f"{np.mean([trial[best] for trial in trials]):.5f}"
            cells = [f"{value:+.1f} ± {error:.1f}" for value, error in (right, noisy)]
            rows.append([name, str(size or "half"), best, area, *cells])
    for size, values in found.items():
        mean, worst, count = np.mean(values, axis=0), np.max(values, axis=0), len(values)
        spread = np.std(values, axis=0, ddof=1) / count**0.5
        cells = [f"{m:+.1f} ± {s:.1f}, {w:+.1f}" for m, s, w in zip(mean, spread, worst, strict=True)]
        means.append([str(size or "half"), str(count), *cells])
    text = [
        "# `auto` with few rows and with wrong labels",
        "",
        made_by(f"python -m benchmarks.selective few --trials {args.trials}"),
        "",
        f"Percent of AUGRC above the best of {', '.join(SINGLE)} *in hindsight*: the best on the test rows,",
        f"on average over {args.trials} splits. Below 0, `auto` is better than any of them. Wrong labels: {WRONG:.0%}",
        "of those to fit on.",
        "",
        "## Means",
        "",
        *table(["rows to fit on", "dumps", "mean ± SE, worst dump", "the same, wrong labels"], means),
        "## Every dump",
        "",
        *table(["dump", "rows", "best single score", "its AUGRC", "`auto`, %", "wrong labels, %"], rows),
    ]
    return "\n".join(text)
