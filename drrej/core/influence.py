"""The influence of each row on the areas under a risk-coverage curve: their derivatives in the weights of the rows.

A curve has points b = 1, ..., B with N_b rows and E_b errors up to each, c_b = N_b / N_B and risk r_b = E_b / N_b. Then

    AURC = sum_b r_b (c_{b+1} - c_{b-1}) / 2,  c_{B+1} = c_B, and c_0 = -c_1 as the first risk holds from coverage 0

A row of point j counts in N_b for every b >= j, and in E_b if it is wrong, so its influence is a sum over b >= j of
dAURC/dN_b, plus that of dAURC/dE_b for a wrong row, less the mean over all rows. As the area is linear in c and does
not change when all weights grow alike, that mean is AURC - (r_B + r_{B-1}) / 2 when c_B is held at 1 (0 if B = 1).

AUGRC is the mean over rows of (error) (1 - u), where u is the coverage in the middle of the row's tie block: the
influence of a row is its own term, plus the errors before it (those in its block count half) / rows, less 2 AUGRC.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from drrej.core.curves import RiskCoverage
from drrej.core.types import Floats
from drrej.records import dataclass

PIECE = 1 << 14
"""Points that are looked at together: they fit the cache."""


@dataclass(frozen=True)
class Influences:
    """Right and wrong rows at each of the points start, start + 1, ..., and the influence that each of them has.

    Over all rows of the curve the influences sum to 0.
    """

    start: int
    right: Floats
    wrong: Floats
    aurc_right: Floats
    aurc_wrong: Floats
    augrc_right: Floats
    augrc_wrong: Floats


def influences(points: RiskCoverage) -> Iterator[Influences]:
    """Influences at the points of a curve, piece by piece from the last one to the first."""
    rows, size = points.rows, points.accepted.size
    last, before = (float(points.errors[b] / points.accepted[b]) for b in (size - 1, max(size - 2, 0)))
    mean = points.aurc() - 0.5 * (last + before)
    augrc = points.augrc()
    by_rows = by_errors = 0.0  # sums over all later points
    for start in reversed(range(0, size, PIECE)):
        stop = min(start + PIECE, size)
        piece = _Piece.of(points, start, stop)
        in_rows, in_errors = piece.slopes(rows, stop == size)
        in_rows[-1] += by_rows
        in_errors[-1] += by_errors
        for sums in (in_rows, in_errors):
            np.cumsum(sums[::-1], out=sums[::-1])
        by_rows, by_errors = float(in_rows[0]), float(in_errors[0])
        right = rows * in_rows - mean
        middle, errors = (piece.up_to_middle(counts) / rows for counts in (piece.accepted, piece.errors))
        wrong = piece.here(piece.errors)
        yield Influences(
            start,
            right=piece.here(piece.accepted) - wrong,
            wrong=wrong,
            aurc_right=right,
            aurc_wrong=right + rows * in_errors,
            augrc_right=errors - 2.0 * augrc,
            augrc_wrong=errors + (1.0 - middle) - 2.0 * augrc,
        )


@dataclass(frozen=True)
class _Piece:
    """Rows and errors at some points, with one more point at each end (repeated where the curve ends)."""

    accepted: Floats
    errors: Floats
    first: bool

    @classmethod
    def of(cls, points: RiskCoverage, start: int, stop: int) -> _Piece:
        around = slice(max(start - 1, 0), stop + 1)
        accepted, errors = points.accepted[around].astype(np.float64), points.errors[around].astype(np.float64)
        ends = (int(start == 0), int(stop == points.accepted.size))
        return cls(np.pad(accepted, ends, "edge"), np.pad(errors, ends, "edge"), start == 0)

    def slopes(self, rows: int, last: bool) -> tuple[Floats, Floats]:
        """Derivatives of AURC in the rows and in the errors up to each point."""
        risk = self.errors / self.accepted
        before = self.accepted[:-2].copy()
        if self.first:
            before[0] = -before[0]
        width = (self.accepted[2:] - before) / (2.0 * rows)
        in_errors = width / self.accepted[1:-1]
        in_rows = (risk[:-2] - risk[2:]) / (2.0 * rows)
        if last:
            in_rows[-1] = 0.0
        in_rows -= risk[1:-1] * in_errors
        return in_rows, in_errors

    def up_to_middle(self, counts: Floats) -> Floats:
        """What is counted up to the middle of each point's tie block."""
        return counts[1:-1] - 0.5 * self.here(counts)

    def here(self, counts: Floats) -> Floats:
        """What is counted in each point's tie block."""
        block = np.diff(counts[:-1])
        if self.first:
            block[0] = counts[1]
        return block
