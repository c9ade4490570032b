"""Whether calibration has made the probabilities worse on its own rows.

A temperature minimises the NLL. When one temperature does not fit the rows (labels with a probability near 0, scores
that are no logits), the NLL falls and still the ECE or the Brier score rises: the probabilities have become worse
where it matters here, and nobody should go on without knowing.

Even a model that needs no calibration sees its figures move by chance. With the noise of a mean over n rows,
s = sqrt(Brier / (2 n)), simulated calibrated models (2 to 100 classes, 50 to 20,000 rows, 3,500 trials) raised their
ECE by at most 1.45 s and their Brier score by at most 0.27 s; the limits lie just above.
"""

from __future__ import annotations

import math

from drrej.records import dataclass

ECE_LIMIT, BRIER_LIMIT = 1.5, 0.3
"""Rises that are no accident, in units of the noise s."""

ECE_LEAST, BRIER_LEAST = 0.002, 0.0005
"""Rises that matter at all."""


@dataclass(frozen=True)
class Rise:
    """A figure that got worse by more than chance explains."""

    name: str
    before: float
    after: float


@dataclass(frozen=True)
class CalibrationFigures:
    """ECE and Brier score (summed over classes) of some rows; None where they are undefined."""

    ece: float | None
    brier: float | None


def rises(before: CalibrationFigures, after: CalibrationFigures, rows: int) -> tuple[Rise, ...]:
    """The figures that are clearly worse after calibration than before, on the `rows` rows that it was fitted on.

    >>> rises(CalibrationFigures(0.037, 0.11), CalibrationFigures(0.103, 0.125), rows=2000)
    (Rise(name='ECE', before=0.037, after=0.103), Rise(name='Brier score', before=0.11, after=0.125))
    >>> rises(CalibrationFigures(0.010, 0.11), CalibrationFigures(0.013, 0.109), rows=2000)
    ()
    """
    noise = math.sqrt((before.brier or 0.0) / (2 * max(rows, 1)))
    limits = {
        "ECE": (before.ece, after.ece, max(ECE_LEAST, ECE_LIMIT * noise)),
        "Brier score": (before.brier, after.brier, max(BRIER_LEAST, BRIER_LIMIT * noise)),
    }
    return tuple(
        Rise(name, first, then)
        for name, (first, then, limit) in limits.items()
        if first is not None and then is not None and then - first > limit
    )


def warning(found: tuple[Rise, ...], floor: float | None = None, what: str = "one temperature") -> str | None:
    """One line for people about such rises, with what to do; None when there are none.

    `floor` is that of probabilities, None for logits; `what` names the calibrator.

    >>> warning((Rise("ECE", 0.037, 0.103),))
    'calibration made the ECE worse on its own rows (0.037 -> 0.103): one temperature does not fit these scores; are \
they logits, in class order, and the labels right? `temperature=1` keeps the probabilities as they are'
    """
    if not found:
        return None
    names = " and the ".join(rise.name for rise in found)
    figures = ", ".join(f"{rise.before:.3g} -> {rise.after:.3g}" for rise in found)
    ask = "are they logits, in class order, and the labels right?"
    if floor is not None:
        ask = f"are they in class order, and the labels right? another `floor` than {floor:.3g} may help;"
    return (
        f"calibration made the {names} worse on its own rows ({figures}): {what} does not fit these scores; "
        f"{ask} `temperature=1` keeps the probabilities as they are"
    )
