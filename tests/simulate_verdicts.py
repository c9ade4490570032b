"""How often the verdict on a target errs. As a script: 2000 trials of each case, the table for the documentation.

A case is a true error rate of the accepted rows, a target, and how many rows are accepted. "missed" where the target
holds, and "met" where it does not, are the two errors; each may happen in at most 2.5 % of the trials.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from drrej.documents.targets import Counts, judge

TRIALS = 2000


@dataclass(frozen=True)
class Case:
    """Groups of accepted rows, each with its true error rate, under one limit of the error rate."""

    rates: tuple[float, ...]
    limit: float
    accepted: int

    @property
    def holds(self) -> bool:
        return max(self.rates) <= self.limit


CASES = [
    *(Case((rate,), 0.02, rows) for rows in (100, 1000, 10000) for rate in (0.01, 0.02, 0.0201, 0.03)),
    *(Case((rate,), 0.3, 500) for rate in (0.25, 0.3, 0.301, 0.35)),
    Case((0.05,) * 8, 0.05, 800),
    Case((0.01,) * 7 + (0.0501,), 0.05, 800),
    Case((0.01,) * 7 + (0.08,), 0.05, 800),
]


def verdicts(case: Case, trials: int, seed: int, word: str = "risk") -> Counter[str]:
    """How often each verdict was reached."""
    rng = np.random.default_rng(seed)
    found: Counter[str] = Counter()
    wanted = case.limit if word == "risk" else float(1 - np.float64(case.limit))
    for errors in rng.binomial(case.accepted, np.array(case.rates), (trials, len(case.rates))):
        grouped = len(case.rates) > 1
        counts = [
            Counts(case.accepted, case.accepted, int(count), f"g{number}" if grouped else None)
            for number, count in enumerate(errors)
        ]
        target = judge([("risk" if word == "risk" else "accuracy", wanted)], counts)
        assert target is not None
        found[target.verdict] += 1
    return found


def main() -> None:
    """The table."""
    print("| accepted rows | target: risk at most | true risk | met | not shown | missed |")
    print("|---:|---:|---:|---:|---:|---:|")
    for number, case in enumerate(CASES):
        found = verdicts(case, TRIALS, number)
        shares = " | ".join(f"{100 * found[word] / TRIALS:.2f} %" for word in ("met", "not shown", "missed"))
        rates = Counter(case.rates)
        said = " and ".join(f"{rate:g}" if len(case.rates) == 1 else f"{n} x {rate:g}" for rate, n in rates.items())
        print(f"| {case.accepted} | {case.limit:g} | {said} | {shares} |")


if __name__ == "__main__":
    main()
