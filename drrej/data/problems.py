"""Bad rows and bad files: counted over a whole dump, reported once with their first place; and words for messages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from drrej.errors import BadRowsError, DumpError

_CREDENTIALS = re.compile(r"((?:s3|gs|gcs)://)[^/@\s]*:[^@\s]*@|(\w+://)[^/@\s]*@", re.ASCII)
_SECRETS = re.compile(
    r"([?&][\w%-]*(?:secret|key|token|password|sig|credential)[\w%-]*=)(?:[^&\s:'\")]|[:'\")](?=\S))*", re.IGNORECASE
)


class Problem(Struct, frozen=True):
    """One kind of bad row: what is wrong, how often, where first, and what to do.

    `example` is what the first of them holds; it does not make another kind. Rows that are `unusable` cannot be decided
    by any rejector; to leave out others would change what is measured.
    """

    what: str
    column: str
    remedy: str
    file: str
    row: int
    count: int
    example: str = ""
    unusable: bool = False

    def message(self, last: str | None = None) -> str:
        """One line for the user that ends so, by default with what to do."""
        rows = "1 row has" if self.count == 1 else f"{self.count} rows have"
        where = f"row {self.row}, counted from 0" if self.count == 1 else f"the first is row {self.row}, counted from 0"
        example = f" ({self.example})" if self.example else ""
        return f"{self.file}: column '{self.column}': {rows} {self.what}; {where}{example}; {last or self.remedy}"


class Problems(dict[tuple[str, str], Problem]):
    """The problems of a dump by their kind (what is wrong, and in which column), in the order of its blocks."""

    def add(self, problems: Iterable[Problem]) -> None:
        """Merge those of the next block."""
        for problem in problems:
            key = (problem.what, problem.column)
            known = self.get(key)
            self[key] = problem if known is None else replace(known, count=known.count + problem.count)

    def see(self, other: Problems) -> None:
        """Keep what another pass over the same rows found: the same, as far as it looked."""
        for key, problem in other.items():
            known = self.get(key)
            if known is None or known.count < problem.count:
                self[key] = problem

    def raise_first(self) -> None:
        """Raise the problem that was met first, naming the other kinds."""
        if not self:
            return
        first, *others = self.values()
        kind = BadRowsError if first.unusable else DumpError
        raise kind(first.message() + "".join(f"; also {other.count} with {other.what}" for other in others))


def check_bad_files(bad: Mapping[str, str], files: int, most: float | None) -> None:
    """Raise when bad files, by name with their reasons, are too large a share of so many, or all of them."""
    if not bad:
        return
    reason = next(iter(bad.values()))
    if len(bad) == files:
        raise DumpError(f"{reason} (all {files} files are bad)")
    if most is not None and len(bad) > most * files:
        raise DumpError(
            f"{reason} (this and {len(bad) - 1} other of {files} files are bad, more than `max_bad={most:g}` allows)"
        )


def check_bad_rows(bad: int, rows: int, most: float | None, problems: Problems) -> None:
    """Raise when bad rows are too large a share of all, or all of them."""
    if bad and (bad == rows or (most is not None and bad > most * rows)):
        first = next(iter(problems.values())).message() if problems else "bad rows"
        allowed = "all of them" if bad == rows else f"more than `max_bad={most:g}` allows"
        raise DumpError(f"{first} ({bad} of {rows} rows are bad, {allowed})")


def shown(names: Sequence[str], most: int = 12) -> str:
    """Names for a message, the first few of many."""
    listed = ", ".join(f"'{name}'" for name in names[:most])
    return listed + (f", ... ({len(names)} in all)" if len(names) > most else "") if names else "none"


def redacted(text: str) -> str:
    """A message without the credentials of URIs (s3://key:secret@bucket/...), also of such that do not parse."""
    return _SECRETS.sub(r"\1***", _CREDENTIALS.sub(lambda found: found[1] or found[2], text))


def one_line(error: BaseException) -> str:
    """The message of someone else's exception on one line."""
    return redacted(" ".join(str(error).split()))[:300] or type(error).__name__
