"""How often the verdict on a target errs. As a script: 2000 trials of each case, the table for the documentation.

A case is a true error rate of the accepted rows, a target, and how many rows are accepted. "missed" where the target
holds, and "met" where it does not, are the two errors; each may happen in at most 2.5 % of the trials.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from drrej.core.thresholds import Rule
from drrej.documents.figures import Counts, judge
from drrej.pipeline.figures import total_cost

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
        target = judge(Rule("risk" if word == "risk" else "accuracy", wanted), counts)
        assert target is not None
        found[target.verdict] += 1
    return found


@dataclass(frozen=True)
class Prices:
    """Chances of the four things that can happen to a row, where an error costs 50 and a review 2."""

    wrong_rejected: float
    right_rejected: float
    wrong_accepted: float
    rows: int
    review: float = 2.0
    error: float = 50.0

    @property
    def savings(self) -> tuple[float, float]:
        """What is truly saved per 1000 rows over accepting all, and over reviewing all."""
        over_accepting = self.error * self.wrong_rejected - self.review * (self.wrong_rejected + self.right_rejected)
        accepted = 1 - self.wrong_rejected - self.right_rejected
        return 1000 * over_accepting, 1000 * (self.review * accepted - self.error * self.wrong_accepted)

    @property
    def holds(self) -> bool:
        return min(self.savings) >= -1e-9


COSTS = [
    Prices(0.02, 0.48, 0.002, 1000),  # exactly as dear as accepting all
    Prices(0.0199, 0.4801, 0.002, 1000),  # a little dearer
    Prices(0.03, 0.2, 0.0308, 1000),  # exactly as dear as reviewing all
    Prices(0.03, 0.2, 0.031, 1000),  # a little dearer
    Prices(0.03, 0.1, 0.005, 1000),
    Prices(0.01, 0.6, 0.002, 1000),
]


def cost_verdicts(prices: Prices, trials: int, seed: int) -> Counter[str]:
    """How often each verdict on a cost was reached."""
    rng = np.random.default_rng(seed)
    chances = [prices.wrong_rejected, prices.right_rejected, prices.wrong_accepted]
    found: Counter[str] = Counter()
    for counts in rng.multinomial(prices.rows, [*chances, 1 - sum(chances)], trials):
        costs = np.repeat([prices.error, 0.0, prices.error, 0.0], counts)
        accepted = np.repeat([False, False, True, True], counts)
        found[total_cost(1.0 - accepted, costs, accepted, prices.review, [0.0, prices.error]).verdict] += 1
    return found


def main() -> None:
    """The tables."""
    print("| accepted rows | target: risk at most | true risk | met | inconclusive | missed |")
    print("|---:|---:|---:|---:|---:|---:|")
    for number, case in enumerate(CASES):
        found = verdicts(case, TRIALS, number)
        shares = " | ".join(f"{100 * found[word] / TRIALS:.2f} %" for word in ("met", "inconclusive", "missed"))
        rates = Counter(case.rates)
        said = " and ".join(f"{rate:g}" if len(case.rates) == 1 else f"{n} x {rate:g}" for rate, n in rates.items())
        print(f"| {case.accepted} | {case.limit:g} | {said} | {shares} |")
    print(
        "\n| rows | truly saved per 1000 rows over accepting all | over reviewing all | met | inconclusive | missed |"
    )
    print("|---:|---:|---:|---:|---:|---:|")
    for number, prices in enumerate(COSTS):
        found = cost_verdicts(prices, TRIALS, number)
        shares = " | ".join(f"{100 * found[word] / TRIALS:.2f} %" for word in ("met", "inconclusive", "missed"))
        over_accepting, over_reviewing = prices.savings
        print(f"| {prices.rows} | {over_accepting:.1f} | {over_reviewing:.1f} | {shares} |")


if __name__ == "__main__":
    main()
