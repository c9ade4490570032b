"""Audits of accepted rows with known truth: `... simulate_audits [TRIALS]` prints the tables of docs/promises.md.

A batch has a known number of errors among the rows that are accepted as each class. Rows are drawn from it without
replacement, as many of each class as `reject --audit` draws. Tests run a few trials.
"""

from __future__ import annotations

import math
import sys

import numpy as np
from campaigns.simulate_monitor import log_sums, rate_factors, run_restarts

from drrej.core.intervals import lower_bound, sampled_share, upper_bound
from drrej.monitor import evidence
from drrej.outputs.review import Audit

ALPHA, DAYS = 0.05, 100
BATCHES = {
    "one class": ([1000], [0.05], 100),
    "two, one easy": ([5000, 5000], [0.3, 0.02], 80),
    "three, one rare": ([9000, 900, 100], [0.01, 0.1, 0.5], 150),
    "four, two small": ([800, 100, 50, 50], [0.002, 0.0, 1.0, 0.3], 200),
    "most are drawn": ([300, 60], [0.1, 0.4], 240),
    "less than a row counts": ([900, 90, 10], [0.01, 0.05, 0.9], 100),
}
"""Rows accepted as each class, their error rates, and the rows that an audit draws."""


def batch_of(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Accepted rows, errors among them and rows drawn, by predicted class."""
    rows, rates, size = BATCHES[name]
    return np.array(rows), np.rint(np.multiply(rows, rates)).astype(int), np.array(Audit(size).allotted(rows))


def interval_misses(name: str, trials: int) -> tuple[float, float, float, float]:
    """How often the 95 % interval of the error rate is too high, too low, any class's misses; and its mean width."""
    rows, errors, drawn = batch_of(name)
    hits = np.random.default_rng(32).hypergeometric(errors, rows - errors, drawn, (trials, rows.size))
    kinds, which = np.unique(hits, axis=0, return_inverse=True)
    low, high = np.array([sampled_share(rows, drawn, each, ALPHA / 2)[1:] for each in kinds])[which.ravel()].T
    truth, level = errors.sum() / rows.sum(), ALPHA / 2 / rows.size
    missed = np.zeros(trials, bool)
    for mine, size, rate in zip(hits.T, drawn.tolist(), errors / rows, strict=True):
        ends = [(lower_bound(k, size, level), upper_bound(k, size, level)) for k in range(size + 1)]
        missed |= np.array([not a <= rate <= b for a, b in ends])[mine]
    return float((low > truth).mean()), float((high < truth).mean()), float(missed.mean()), float((high - low).mean())


def first_alarms(name: str, years: int, limit: float = 1.0, repeated: bool = False) -> np.ndarray:
    """The day of each year's first alarm (DAYS: none) for a limit in terms of the true error rate.

    A batch is like the other days'. What counts of its audit is what `monitor.step.self_weighting` chooses; a test
    compares them. `repeated`: fractions of a row are settled once for all days, which would not do.
    """
    rows, errors, drawn = batch_of(name)
    rng, counts = np.random.default_rng(33), (drawn / rows).min() * rows
    up = rng.random((years, 1 if repeated else DAYS, rows.size)) < counts % 1.0
    counted = np.broadcast_to(np.minimum(np.floor(counts) + up, drawn).astype(int), (years, DAYS, rows.size))
    events, labels = rng.hypergeometric(errors, rows - errors, counted).sum(axis=2), counted.sum(axis=2)
    rate = limit * errors.sum() / rows.sum()

    def factors(number: np.ndarray, of: np.ndarray) -> np.ndarray:
        return rate_factors(number, of, rate, evidence.LOG_ODDS)

    all_days = log_sums(factors(events.cumsum(axis=1), labels.cumsum(axis=1)) + evidence.LOG_WEIGHTS)
    restarts = run_restarts(lambda day: factors(events[:, day], labels[:, day]), evidence.LOG_WEIGHTS, DAYS)
    alarm = np.logaddexp(all_days, restarts) - math.log(2.0) >= -math.log(ALPHA)
    return np.where(alarm.any(axis=1), alarm.argmax(axis=1), DAYS)


def main(trials: int) -> None:
    print("| batch | rows drawn | error rate | too high | too low | any class missed | mean width |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name in BATCHES:
        rows, errors, drawn = batch_of(name)
        found = " | ".join(f"{each:.4f}" for each in interval_misses(name, trials))
        print(f"| {name} | {drawn.sum()} of {rows.sum()} | {errors.sum() / rows.sum():.4f} | {found} |", flush=True)
    print("| batch | alarms, at the limit | alarms, at twice the limit | median day of these |")
    print("|---|---:|---:|---:|")
    for name in BATCHES:
        quiet, loud = (first_alarms(name, trials, limit) for limit in (1.0, 0.5))
        cells = f"{(quiet < DAYS).mean():.4f} | {(loud < DAYS).mean():.4f} | {np.median(loud) + 1:.0f}"
        print(f"| {name} | {cells} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
