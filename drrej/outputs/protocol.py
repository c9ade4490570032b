"""What an output is: something that is whole at its place or not there at all."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Protocol, Self


class Output(Protocol):
    """Made before any work, so that a place that cannot be written is known at once.

    Nothing is at the place before `commit`, everything afterwards; leaving the `with` block without it throws away what
    was written. `name` is what messages call the output.
    """

    @property
    def name(self) -> str:
        """For messages: without credentials."""

    def commit(self) -> None:
        """Put the content in its place."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Dataset(Output, Protocol):
    """A directory of files, written by this process or by workers; `files` are the names of all that will be in it."""

    def folder(self, files: Sequence[str]) -> str:
        """A folder on this machine for what this process writes."""

    def shared(self, files: Sequence[str]) -> str:
        """A folder or URI that workers write to: each file there appears whole."""

    def written(self) -> str:
        """The folder or URI that holds the files that were written, before they are committed."""
