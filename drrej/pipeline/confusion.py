"""The confusion matrix with a column of rejected rows, for any number of classes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from drrej.documents.report import ConfusionMatrix, ConfusionRow

MOST_CLASSES = 12
"""More classes do not fit a page: those with the most errors are shown, the others as one."""


def confusion_matrix(
    by_class: NDArray[np.int64], confused: NDArray[np.int64], names: Sequence[str] | None
) -> ConfusionMatrix:
    """From counts (classes x wrong rejected, right rejected, wrong accepted, right accepted) and accepted errors.

    Each error is coded as label * classes + prediction.

    >>> counts = np.array([[1, 0, 2, 5], [0, 3, 0, 4]])
    >>> [(row.predicted, row.rejected) for row in confusion_matrix(counts, np.array([1, 1]), None).rows]
    [((5, 2), 1), ((0, 4), 3)]
    """
    classes = len(by_class)
    labels, predictions = np.divmod(confused, classes)
    errors = np.bincount(labels, minlength=classes) + np.bincount(predictions, minlength=classes)
    shown = np.arange(classes)
    if classes > MOST_CLASSES:
        shown = np.sort(np.argsort(-errors, kind="stable")[: MOST_CLASSES - 1])
    others = classes - shown.size
    size = shown.size + (others > 0)
    place = np.full(classes, size - 1)
    place[shown] = np.arange(shown.size)
    counts = np.bincount(place[labels] * size + place[predictions], minlength=size * size).reshape(size, size)
    rejected = np.zeros(size, np.int64)
    np.add.at(rejected, place, by_class[:, 0] + by_class[:, 1])
    np.add.at(counts, (place, place), by_class[:, 3])
    titles = [str(number) if names is None else names[number] for number in shown.tolist()]
    titles += [f"{others} others"] if others else []
    return ConfusionMatrix(
        rows=tuple(
            ConfusionRow(class_=title, predicted=tuple(row.tolist()), rejected=int(left))
            for title, row, left in zip(titles, counts, rejected, strict=True)
        ),
        others=others,
    )
