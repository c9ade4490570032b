"""Intervals from random weights of the rows: Clopper and Pearson's idea for figures that are not proportions.

Give the n rows weights that are uniform on the simplex (Dirichlet(1, ..., 1), the Bayesian bootstrap) and add one row
that is as bad as a row can be. The 97.5 % quantile of the weighted figure is the upper end; with a row that is as good
as can be, the 2.5 % quantile is the lower end. For the mean of 0s and 1s the weighted mean with k ones is
Beta(k + 1, n - k), or Beta(k, n - k + 1): exactly the Clopper-Pearson bounds. For the mean of any bounded figure this
is Gaffke's bound (2005; Learned-Miller and Thomas 2020), for which no distribution is known where it fails. The added
row is what makes it hold where a resampling of the rows at hand fails: it stands for the errors that were not drawn.

Nothing has to be drawn. To first order the figure is its value plus the sum of w_i x_i, where x_i is the influence of
row i, and the first three moments of that are known. A shifted gamma distribution (Pearson's type III) with these
moments gives the quantiles. When few equal errors decide it is exact, and with many it is the normal distribution.
"""

from __future__ import annotations

import math

from drrej.core import pearson
from drrej.records import dataclass


@dataclass(frozen=True)
class Spread:
    """A figure of rows with random weights: its mean, variance and third central moment."""

    mean: float
    variance: float
    third: float

    @classmethod
    def of(cls, value: float, squares: float, cubes: float, rows: int) -> Spread:
        """From a figure and the sums of the squares and the cubes of its influences, whose sum is 0.

        For weights uniform on the simplex of N rows, var(sum w x) = mean(x^2) / (N + 1), and the third central moment
        is 2 mean(x^3) / ((N + 1) (N + 2)).
        """
        variance = squares / rows / (rows + 1)
        third = 2.0 * cubes / rows / ((rows + 1) * (rows + 2))
        return cls(value, variance, third)

    def quantile(self, q: float) -> float:
        """The value that is not exceeded with chance q."""
        if self.variance <= 0.0:
            return self.mean
        deviation = math.sqrt(self.variance)
        return self.mean + deviation * pearson.quantile(self.third / self.variance / deviation, q)
