"""Certified coverage over many random divisions of each dump: one division may favour either rule."""

from __future__ import annotations

import argparse

import numpy as np

from benchmarks.pages import made_by, table
from benchmarks.selective.dumps import Dump, all_dumps
from benchmarks.selective.judge import DELTA, RISKS
from benchmarks.selective.rules import RULES, Array, Fitted, curve_of
from benchmarks.selective.scores import SCORES

COMPARED = ("drrej", "SGR", "MAPIE, split fixed sequence")


def coverages(dump: Dump, seed: int) -> Array:
    """What the rules certify with `auto` (risks x rules): as many rows fit, certify and test as in `judge`."""
    whole = dump.fit.joined(dump.test)
    order, half = np.random.default_rng(2000 + seed).permutation(len(whole.labels)), len(dump.fit.labels) // 2
    fit, fresh, test = (whole.take(rows) for rows in np.split(order, [half, 2 * half]))
    losses = SCORES["auto"](fit, [fit, fresh, test])
    points, fitted = curve_of(losses[1], fresh.wrong), Fitted(losses[0], fit.wrong)
    return np.array(
        [[float(np.mean(losses[2] < RULES[name](points, fitted, risk, DELTA))) for name in COMPARED] for risk in RISKS]
    )


def tables(args: argparse.Namespace) -> str:
    """A row for each experiment and risk: means over its dumps and their divisions."""
    found: dict[str, list[Array]] = {}
    for dump in all_dumps(args.data, args.work, args.paper, args.only):
        if not dump.shifted:
            found.setdefault(dump.experiment, []).extend(coverages(dump, seed) for seed in range(args.trials))
    rows = []
    for name, trials in found.items():
        for risk, values in zip(RISKS, np.stack(trials, axis=1), strict=True):
            less = values[:, 0] - values[:, -1]
            error = float(less.std(ddof=1)) / less.size**0.5 if less.size > 1 else 0.0
            cells = [f"{value:.3f}" for value in values.mean(axis=0)]
            rows.append([name, f"{100 * risk:g} %", str(less.size), *cells, f"{less.mean():+.3f} ± {error:.3f}"])
    head = ["experiment", "risk", "divisions", *COMPARED, "drrej minus MAPIE"]
    command = f"python -m benchmarks.selective divisions --trials {args.trials} --only {args.only!r}"
    return "\n".join([made_by(command), "", *table(head, rows)])
