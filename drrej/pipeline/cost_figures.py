"""Expected and realised cost of labelled rows, for the loss `cost`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from drrej.core.exact import Total
from drrej.core.intervals import CONFIDENCE
from drrej.core.mean_interval import mean_interval
from drrej.core.types import Booleans, Floats
from drrej.documents.report import Cost, CostPerRow
from drrej.records import dataclass


@dataclass(frozen=True)
class CostTally:
    """Sums of costs over all and over accepted rows; adds up over blocks exactly."""

    rows: int
    accepted: int
    realised: Total
    expected: Total
    realised_accepted: Total
    expected_accepted: Total
    paid: Counter[float]
    """How many accepted rows cost so much."""

    @classmethod
    def of(cls, realised: Floats, expected: Floats, accepted: Booleans) -> CostTally:
        """Of a block: what each row cost in the end, what it was expected to cost, and whether it is accepted."""
        return cls(
            int(realised.size),
            int(np.count_nonzero(accepted)),
            Total.of(realised),
            Total.of(expected),
            Total.of(realised[accepted]),
            Total.of(expected[accepted]),
            Counter(realised[accepted].tolist()),
        )

    def __add__(self, other: CostTally) -> CostTally:
        return CostTally(
            self.rows + other.rows,
            self.accepted + other.accepted,
            self.realised + other.realised,
            self.expected + other.expected,
            self.realised_accepted + other.realised_accepted,
            self.expected_accepted + other.expected_accepted,
            self.paid + other.paid,
        )

    def figures(self, prices: Sequence[float]) -> Cost:
        """Costs per accepted row and, under `all`, per row; None without rows. `prices` are all that a row can cost."""
        lower = upper = None
        if self.accepted:
            counts = np.array([self.paid[price] for price in prices], np.int64)
            lower, upper = mean_interval(np.array(prices), counts, (1.0 - CONFIDENCE) / 2)
        return Cost(
            value=self.realised_accepted.mean(self.accepted),
            lower=lower,
            upper=upper,
            expected=self.expected_accepted.mean(self.accepted),
            all=CostPerRow(value=self.realised.mean(self.rows), expected=self.expected.mean(self.rows)),
        )
