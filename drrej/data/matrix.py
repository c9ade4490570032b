"""A cost matrix from a file: csv, json or parquet, K x K, true classes down and actions across; names are allowed."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from typing import Any

from drrej.errors import OptionError
from drrej.strict_json import parse, shown

_SHAPE = "K rows (true classes) of K numbers (actions), with or without class names in the first row and column"


def read_cost_matrix(path: str, names: Sequence[str] | None = None) -> tuple[tuple[float, ...], ...]:
    """Read a matrix. Where it has class names and `names` are known, it is put in their order."""
    cells = _without_blank(_cells(path))
    actions, trues, values = _split(cells, path)
    if any(len(row) != len(values) for row in values) or len(values) < 2:
        raise OptionError(f"`cost_matrix={path}`: it must be square: {_SHAPE}")
    if actions is not None and trues is not None and sorted(actions) != sorted(trues):
        raise OptionError(f"`cost_matrix={path}`: its rows and columns name different classes")
    rows_order = _order(trues, names, len(values), path)
    columns_order = _order(actions, names or trues, len(values), path)
    return tuple(tuple(values[i][j] for j in columns_order) for i in rows_order)


def _cells(path: str) -> list[list[Any]]:
    try:
        if path.lower().endswith((".parquet", ".pq")):
            return _parquet(path)
        with open(path, encoding="utf-8", newline="") as stream:
            if path.lower().endswith(".json"):
                return _json(parse(stream.read()), path)
            return [list(row) for row in csv.reader(stream)]
    except OSError as error:
        raise OptionError(f"`cost_matrix={path}`: cannot be read ({error.strerror or error})") from None
    except (ValueError, csv.Error) as error:
        raise OptionError(f"`cost_matrix={path}`: not readable ({' '.join(str(error).split())})") from None


def _parquet(path: str) -> list[list[Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except pa.ArrowException as error:
        raise OptionError(f"`cost_matrix={path}`: not a readable parquet file ({error})") from None
    columns = [column.to_pylist() for column in table.columns]
    body = [list(row) for row in zip(*columns, strict=True)]
    header: list[Any] = list(table.column_names)
    if len(header) == len(body) + 1:  # the first column names the true classes
        header[0] = ""
    return [header, *body]


def _json(tree: Any, path: str) -> list[list[Any]]:
    if isinstance(tree, list) and all(isinstance(row, list) for row in tree):
        return [[_flat(cell, path) for cell in row] for row in tree]
    if isinstance(tree, dict) and tree and all(isinstance(row, dict) for row in tree.values()):
        actions = list(next(iter(tree.values())))
        if any(row.keys() != set(actions) for row in tree.values()):
            raise OptionError(f"`cost_matrix={path}`: its rows name different actions")
        rows = [[true, *(_flat(row.get(action), path) for action in actions)] for true, row in tree.items()]
        return [["", *actions], *rows]
    raise OptionError(f"`cost_matrix={path}`: a list of rows or an object of objects is expected: {_SHAPE}")


def _flat(cell: Any, path: str) -> Any:
    if isinstance(cell, list | dict):
        raise OptionError(f"`cost_matrix={path}`: a list or an object where a number is expected: {_SHAPE}")
    return cell


def _without_blank(cells: list[list[Any]]) -> list[list[Any]]:
    return [row for row in cells if any(str(cell).strip() for cell in row)]


def _split(cells: list[list[Any]], path: str) -> tuple[list[str] | None, list[str] | None, list[list[float]]]:
    """Names of actions and of true classes, and the numbers: a K+1st row or column, or a corner, holds names."""
    height, width = len(cells), max((len(row) for row in cells), default=0)
    corner = height == width and height > 0 and not _is_cost(cells[0][0])
    header = corner or height == width + 1
    body = cells[1:] if header else cells
    named = corner or (width == height + 1 and not any(_is_cost(row[0]) for row in cells))
    actions = [str(cell).strip() for cell in cells[0]][1 if corner else 0 :] if header else None
    trues = [str(row[0]).strip() for row in body] if named else None
    values = [[_number(cell, path) for cell in (row[1:] if named else row)] for row in body]
    return actions, trues, values


def _is_cost(cell: Any) -> bool:
    try:
        float(cell)
    except (TypeError, ValueError, OverflowError):  # the last for whole numbers beyond every float
        return False
    return True


def _number(cell: Any, path: str) -> float:
    if isinstance(cell, bool) or not _is_cost(cell):
        raise OptionError(f"`cost_matrix={path}`: '{shown(str(cell))}' is not a number; expected: {_SHAPE}")
    value = float(cell)
    if not (math.isfinite(value) and value >= 0):
        raise OptionError(f"`cost_matrix={path}`: a cost of {value:g}; costs are finite and not negative")
    return value


def _order(found: list[str] | None, names: Sequence[str] | None, count: int, path: str) -> list[int]:
    if found is None or names is None:
        return list(range(count))
    if len(set(found)) < len(found):
        raise OptionError(f"`cost_matrix={path}`: it names a class twice")
    missing = [name for name in names if name not in found]
    if missing or len(found) != len(names):
        known = ", ".join(names)
        raise OptionError(f"`cost_matrix={path}`: its names are not those of the classes ({known})")
    return [found.index(name) for name in names]
