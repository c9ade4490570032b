"""Whether rows show what was wanted of them: met, missed, or not shown.

A target says that a share of rows is at least, or at most, a number: the accuracy or the error rate of the accepted
rows, the share of rows that are accepted. The rule looks at the exact two-sided 95 % interval (Clopper-Pearson) of that
share on the rows at hand:

- **met**: the whole interval is on the right side of the number;
- **missed**: the whole interval is on the wrong side, so these rows contradict the target;
- **not shown**: the interval holds the number, or there is no row to count.

The cutoff was fixed before these rows were seen, so the errors among the accepted rows are binomial, given how many are
accepted. Where the target truly holds, "missed" has a chance of at most 2.5 %; where it does not, "met" has a chance of
at most 2.5 %. Several targets, or groups with a target each, share the 5 % evenly: no target that holds is called
missed, except with chance 2.5 % in all, and "met" (each of them is) is rarer still where one does not hold.

The p-value is the chance of a count at least as bad if the share were exactly the number.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from drrej.core.intervals import CONFIDENCE, lower_bound, upper_bound
from drrej.records import dataclass

Verdict = Literal["met", "not shown", "missed"]


@dataclass(frozen=True)
class Judgement:
    """A share with its interval, the chance of one at least as bad, and what it says about a target."""

    value: float | None
    lower: float | None
    upper: float | None
    p_value: float | None
    verdict: Verdict


@dataclass(frozen=True)
class Claim:
    """A share of rows is to be at least `wanted`, or at most if `at_least` is false.

    >>> Claim(0.98).judge(961, 1000).verdict, Claim(0.02, at_least=False).judge(19, 1000).verdict
    ('missed', 'not shown')
    >>> round(Claim(0.98).judge(961, 1000).p_value, 6)
    9e-05
    """

    wanted: float
    at_least: bool = True

    def judge(self, hits: int, rows: int, claims: int = 1) -> Judgement:
        """What `hits` of `rows` rows say, as one of so many claims that are judged together."""
        if not rows:
            return Judgement(None, None, None, None, "not shown")
        tail = (1.0 - CONFIDENCE) / 2 / claims
        lower, upper = lower_bound(hits, rows, tail), upper_bound(hits, rows, tail)
        return Judgement(hits / rows, lower, upper, self._p_value(hits, rows), self.verdict(lower, upper))

    def verdict(self, lower: float, upper: float) -> Verdict:
        """What an interval says."""
        right, wrong = (lower >= self.wanted, upper < self.wanted)
        if not self.at_least:
            right, wrong = (upper <= self.wanted, lower > self.wanted)
        return "met" if right else "missed" if wrong else "not shown"

    def _p_value(self, hits: int, rows: int) -> float:
        from drrej.core.special import betainc

        if self.at_least:
            return 1.0 if hits == rows else float(betainc(rows - hits, hits + 1, 1.0 - self.wanted))
        return 1.0 if hits == 0 else float(betainc(hits, rows - hits + 1, self.wanted))


def together(verdicts: Iterable[Verdict]) -> Verdict:
    """Missed if one is missed, met if each is met.

    >>> together(["met", "not shown"]), together(["met", "missed"]), together([])
    ('not shown', 'missed', 'not shown')
    """
    found = set(verdicts)
    return "missed" if "missed" in found else "met" if found == {"met"} else "not shown"
