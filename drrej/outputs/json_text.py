"""Rows as JSON: a whole batch at a time where its columns are plain, value by value where they are nested."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pyarrow as pa

_TO_ESCAPE = r'[\x00-\x1f"\\]'


def json_lines(batch: pa.RecordBatch) -> bytes:
    r"""A JSON object per row, each on a line of its own.

    >>> json_lines(pa.record_batch({"id": ["a", 'b"'], "loss": [0.5, float("inf")], "rejected": [True, None]}))
    b'{"id":"a","loss":0.5,"rejected":true}\n{"id":"b\\"","loss":null,"rejected":null}\n'
    """
    import pyarrow.compute as pc  # a tenth of a second that other formats need not pay, here and below

    if not batch.num_rows:
        return b""
    pieces: list[Any] = []
    for number, name in enumerate(batch.schema.names):
        pieces += [_text(("{" if number == 0 else ",") + json.dumps(name, ensure_ascii=False) + ":")]
        pieces += [json_values(batch.column(number))]
    lines = pc.binary_join_element_wise(*pieces, _text("}"), _text(""))
    return "".join(f"{line}\n" for line in lines.to_pylist()).encode()


def json_values(array: pa.Array) -> pa.Array:
    """The JSON text of each value of a column."""
    import pyarrow.compute as pc

    kind = array.type
    if pa.types.is_dictionary(kind):
        return json_values(array.dictionary_decode())
    if pa.types.is_floating(kind):
        array = pc.if_else(pc.is_finite(array), array, None)
    if (
        pa.types.is_boolean(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
    ):
        return pc.fill_null(pc.cast(array, pa.large_string()), "null")
    if pa.types.is_null(kind):
        return pa.array(["null"] * len(array), pa.large_string())
    if pa.types.is_nested(kind):
        return pa.array([json_of(value) for value in array.to_pylist()], pa.large_string())
    return _quoted(pc.cast(array, pa.large_string()))


def _quoted(texts: pa.Array) -> pa.Array:
    import pyarrow.compute as pc

    if pc.any(pc.match_substring_regex(texts, _TO_ESCAPE)).as_py():
        return pa.array([json_of(text) for text in texts.to_pylist()], pa.large_string())
    return pc.fill_null(pc.binary_join_element_wise(_text('"'), texts, _text('"'), _text("")), "null")


def _text(value: str) -> pa.Scalar:
    return pa.scalar(value, pa.large_string())


def json_of(value: Any) -> str:
    """The JSON text of a value; numbers that are not finite are null, and what JSON has no word for is text."""
    return json.dumps(_finite(value), ensure_ascii=False, allow_nan=False, default=str)


def _finite(value: Any) -> Any:
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return value
