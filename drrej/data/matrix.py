"""A cost matrix from a CSV file: K x K, true classes down and actions across; names are allowed."""

from __future__ import annotations

import csv
import itertools
import math
from collections.abc import Sequence

from drrej.errors import OptionError
from drrej.strict_json import shown

_SHAPE = "K rows (true classes) of K numbers (actions), with or without class names in the first row and column"


def read_cost_matrix(path: str, names: Sequence[str] | None = None) -> tuple[tuple[float, ...], ...]:
    """Read a matrix. Where it has class names and `names` are known, it is put in their order."""
    where = f"`cost_matrix={path}`"

    def order(found: list[str] | None, known: Sequence[str] | None) -> list[int]:
        if found is None or known is None:
            return list(range(len(values)))
        if len(set(found)) < len(found):
            raise OptionError(f"{where}: it names a class twice")
        if sorted(found) != sorted(known):
            raise OptionError(f"{where}: its names are not those of the classes ({', '.join(known)})")
        return [found.index(name) for name in known]

    try:
        with open(path, encoding="utf-8", newline="") as stream:
            cells = [row for row in csv.reader(stream) if any(cell.strip() for cell in row)]
    except OSError as error:
        raise OptionError(f"{where}: cannot be read ({error.strerror or error})") from None
    except (ValueError, csv.Error) as error:
        raise OptionError(f"{where}: not a CSV file ({' '.join(str(error).split())})") from None
    # A K+1st row or column, or a corner, holds names.
    height, width = len(cells), max((len(row) for row in cells), default=0)
    corner = height == width > 0 and not _is_number(cells[0][0])
    actions = trues = None
    if corner or height == width + 1:
        actions = [cell.strip() for cell in cells.pop(0)][1 if corner else 0 :]
    if corner or (width == height + 1 and not any(_is_number(row[0]) for row in cells)):
        trues = [row.pop(0).strip() for row in cells]
    for cell in itertools.chain(*cells):
        if not _is_number(cell):
            raise OptionError(f"{where}: '{shown(cell)}' is not a number; expected: {_SHAPE}")
        if not (math.isfinite(float(cell)) and float(cell) >= 0):
            raise OptionError(f"{where}: a cost of {float(cell):g}; costs are finite and not negative")
    values = [[float(cell) for cell in row] for row in cells]
    if any(len(row) != len(values) for row in values) or len(values) < 2:
        raise OptionError(f"{where}: it must be square: {_SHAPE}")
    if actions is not None and trues is not None and sorted(actions) != sorted(trues):
        raise OptionError(f"{where}: its rows and columns name different classes")
    rows, columns = order(trues, names), order(actions, names or trues)
    return tuple(tuple(values[i][j] for j in columns) for i in rows)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
