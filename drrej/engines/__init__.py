"""How passes over a dump are run: by threads or processes of this machine, or on a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drrej.documents.summaries import MaskedFile


class Progress:
    """Told how far a pass is; shows nothing. See `cli.console` for one that does."""

    def start(self, what: str, rows: int) -> None:
        """A pass over so many rows begins."""

    def advance(self, rows: int) -> None:
        """So many rows more are done."""

    def finished(self, file: MaskedFile) -> None:
        """A file is finished."""

    def stop(self) -> None:
        """The pass is over."""
