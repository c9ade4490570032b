"""How likely the freshness check is to notice rows that are used again."""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln

from drrej.core.reuse import KEPT, needed_hits


def detection_probability(fitted: int, new: int, shared: int) -> float:
    """The chance that `Fingerprint.judge` notices `shared` of `new` rows that were among `fitted` ones, all different.

    >>> [round(detection_probability(5000, 200, shared), 3) for shared in (2, 5, 10, 20, 200)]
    [0.168, 0.68, 0.959, 1.0, 1.0]
    """

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
