"""The index of a pandas frame that was saved as a file: without it, flags of a mask land on other rows.

pandas keeps in a file's metadata which columns are the index, or the range of an index that is one. An output that
has the same rows says the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

_KEY = b"pandas"


@dataclass(frozen=True)
class PandasIndex:
    """An index of stored columns, or of a range (start, stop, step); `words` is what pandas tells of it, as JSON."""

    columns: tuple[str, ...]
    range: tuple[int, int, int] | None
    words: str

    @classmethod
    def of(cls, metadata: dict[bytes, bytes] | None) -> PandasIndex | None:
        """From the metadata of a file; None where they tell of no index that can be kept."""
        try:
            found = json.loads((metadata or {})[_KEY])
            levels = found["index_columns"]
            columns = tuple(level for level in levels if isinstance(level, str))
            if len(columns) == len(levels):
                told = [entry for entry in found["columns"] if entry["field_name"] in columns]
                kept = {"index_columns": levels, "columns": told, "column_indexes": []}
                return cls(columns, None, json.dumps(kept | _versions(found))) if columns else None
            (level,) = levels
            steps = tuple(int(level[key]) for key in ("start", "stop", "step"))
            kept = {"index_columns": [level], "columns": [], "column_indexes": []}
            ordinary = level["kind"] == "range" and steps[2] != 0
            return cls((), (steps[0], steps[1], steps[2]), json.dumps(kept | _versions(found))) if ordinary else None
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):  # there are none, or none of pandas
            return None

    def metadata(self, names: Iterable[str]) -> dict[bytes, bytes] | None:
        """Metadata of a file with these columns; None if it lacks one of the index."""
        return {_KEY: self.words.encode()} if set(self.columns) <= set(names) else None

    def followed_by(self, other: PandasIndex | None) -> PandasIndex | None:
        """The index of two files one after the other; None if they have none in common."""
        if other is None or self.range is None or other.range is None:
            return self if other is not None and self.columns and other.columns == self.columns else None
        (start, end, step), (then, stop, other_step) = self.range, other.range
        rows = max(0, -((start - end) // step))
        if start + rows * step != then or step != other_step:
            return None
        kept: dict[str, Any] = json.loads(self.words)
        kept["index_columns"][0]["stop"] = stop
        return replace(self, range=(start, stop, step), words=json.dumps(kept))


def _versions(found: dict[str, Any]) -> dict[str, Any]:
    return {key: found[key] for key in ("creator", "pandas_version") if key in found}


def joined_index(indexes: Iterable[PandasIndex | None]) -> PandasIndex | None:
    """The index of files one after the other; None if they have none in common."""
    return reduce(lambda first, then: first and first.followed_by(then), indexes)
