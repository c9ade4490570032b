"""A table over alpha, lambda and loss: what tau means for each, from one pass over the logits.

Alpha and lambda never change the order of rows, so accuracy at a coverage differs between losses only; what they change
is the coverage that tau in (0, 1] can reach, and the flat part, where the ratio is 0 at every tau.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_

import numpy as np

from drrej._version import __version__
from drrej.core.curves import Curve, RankedLosses
from drrej.core.losses import PLAIN
from drrej.core.ratio import fit_ratio
from drrej.core.types import Floats
from drrej.data.dump import Block
from drrej.documents.points import CurvePoint
from drrej.documents.rejector import Rejector
from drrej.documents.summaries import Sweep, SweepRow
from drrej.engines.protocol import Pass
from drrej.errors import OptionError
from drrej.pipeline.figures import coverage_curve
from drrej.pipeline.fit import RatioOptions
from drrej.pipeline.passes import map_blocks
from drrej.pipeline.score import Scoring
from drrej.pipeline.source import Source, no_labels, without_bad_files
from drrej.records import dataclass


@dataclass(frozen=True)
class Grid:
    """What is swept over."""

    alphas: Sequence[float] = (1.0, 3.0)
    lambdas: Sequence[float] = (1.0,)
    losses: Sequence[str] = ("log",)

    def __post_init__(self) -> None:
        for alpha in self.alphas:
            for lam in self.lambdas:
                RatioOptions(alpha, lam)  # raises on numbers out of range
        for loss in self.losses:
            if loss not in PLAIN:
                raise OptionError(f"`loss={loss}`: a sweep takes {', '.join(PLAIN)}")
        if not (self.alphas and self.lambdas and self.losses):
            raise OptionError("a sweep needs at least one `alpha`, one `lam` and one `loss`")


@dataclass(frozen=True)
class _BlockLosses:
    losses: list[Floats]
    wrong: np.ndarray[tuple[int], np.dtype[np.bool_]] | None


@without_bad_files
def sweep(source: Source, rejector: Rejector, grid: Grid | None = None, labelled: bool = True) -> Sweep:
    """The table, and the accuracy-coverage curve of each loss; without labels there is neither accuracy nor curve.

    >>> from drrej import calibrate
    >>> val = Source("sample_data/val.parquet")
    >>> table = sweep(val, calibrate(val), Grid(alphas=(1.0, 3.0), losses=("log", "brier"))).table
    >>> [(row.loss, row.alpha) for row in table]
    [('log', 1.0), ('log', 3.0), ('brier', 1.0), ('brier', 3.0)]
    """
    grid = grid or Grid()
    calibration = rejector.need_calibration()
    dump = source.open(rejector, labelled)
    needs = reduce(or_, (PLAIN[name].needs for name in grid.losses))
    scoring = Scoring(rejector, PLAIN["zero-one"], dump, needs=needs)

    def of_block(block: Block) -> _BlockLosses:
        scored = scoring(block)
        wrong = None if block.labels is None else scored.prediction != block.labels
        sums = scored.rows.calibrated.sums
        return _BlockLosses([PLAIN[name].expected(sums) for name in grid.losses], wrong)

    taken = list(map_blocks(source, dump, of_block, Pass("sweeping", labelled)))
    if not taken:
        raise no_labels(dump)
    outcomes = [part.wrong for part in taken if part.wrong is not None]
    table: list[SweepRow] = []
    curves: dict[str, tuple[CurvePoint, ...]] = {}
    for number, name in enumerate(grid.losses):
        values = np.concatenate([part.losses[number] for part in taken])
        wrong = np.concatenate(outcomes) if outcomes else None
        points = RankedLosses.of(*((values[~wrong], values[wrong]) if wrong is not None else (values, values[:0])))
        if labelled:
            curves[name] = coverage_curve(points)
        table += [_row(name, alpha, lam, points, values, labelled) for alpha in grid.alphas for lam in grid.lambdas]
    return Sweep(
        drrej_version=__version__,
        rows=sum(part.losses[0].size for part in taken),
        classes=dump.classes,
        temperature=calibration.temperature,
        table=tuple(table),
        curves=curves if labelled else None,
        calibrator=None if calibration.vector is None else calibration.method,
    )


def _row(loss: str, alpha: float, lam: float, points: Curve, values: Floats, labelled: bool) -> SweepRow:
    density = fit_ratio(values, alpha, lam)
    lowest, _ = points.below(density.cutoff(1.0))
    highest, _ = points.below(density.flat_start)
    return SweepRow(
        loss=loss,
        alpha=alpha,
        lam=lam,
        lowest_coverage=lowest / points.rows,
        highest_coverage=highest / points.rows,
        flat_part=(points.rows - highest) / points.rows,
        accuracy_at_80=_accuracy_at(80, points, highest) if labelled else None,
        accuracy_at_90=_accuracy_at(90, points, highest) if labelled else None,
        augrc=points.augrc() if labelled else None,
    )


def _accuracy_at(percent: int, points: Curve, reachable: int) -> float | None:
    """Accuracy at the smallest coverage of at least so many per cent; None where the flat part forbids it."""
    wanted = -(-percent * points.rows // 100)
    accepted, errors = points.reaching(wanted)
    return (accepted - errors) / accepted if accepted <= reachable else None
