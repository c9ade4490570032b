"""Bad rows: counted over a whole dump, reported once with their first place."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from drrej.errors import DumpError


@dataclass(frozen=True)
class Problem:
    """One kind of bad row: what is wrong, how often, where first, and what to do.

    `example` is what the first of them holds; it does not make another kind.
    """

    what: str
    column: str
    remedy: str
    file: str
    row: int
    count: int
    example: str = ""

    def message(self) -> str:
        """One line for the user."""
        rows = "1 row has" if self.count == 1 else f"{self.count} rows have"
        where = f"row {self.row}, counted from 0" if self.count == 1 else f"the first is row {self.row}, counted from 0"
        example = f" ({self.example})" if self.example else ""
        return f"{self.file}: column '{self.column}': {rows} {self.what}; {where}{example}; {self.remedy}"


class Problems:
    """The problems of a dump, merged in the order of its blocks."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], Problem] = {}

    def add(self, problems: Iterable[Problem]) -> None:
        """Merge those of the next block."""
        for problem in problems:
            key = (problem.what, problem.column)
            known = self._found.get(key)
            self._found[key] = problem if known is None else replace(known, count=known.count + problem.count)

    def __bool__(self) -> bool:
        return bool(self._found)

    def all(self) -> list[Problem]:
        """One problem per kind."""
        return list(self._found.values())

    def raise_first(self) -> None:
        """Raise the problem that was met first, naming the other kinds."""
        if not self._found:
            return
        first, *others = self._found.values()
        raise DumpError(first.message() + "".join(f"; also {other.count} with {other.what}" for other in others))


def shown(names: Sequence[str], most: int = 12) -> str:
    """Names for a message, the first few of many."""
    listed = ", ".join(f"'{name}'" for name in names[:most])
    return listed + (f", ... ({len(names)} in all)" if len(names) > most else "") if names else "none"
