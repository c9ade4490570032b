"""What an output is: something that is whole at its place or not there at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Protocol, Self

from drrej.outputs.records import MaskRecord


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
    """A directory of files; `files` are the names of all that will be in it."""

    @property
    def target(self) -> str:
        """What was named."""

    @property
    def resumes(self) -> bool:
        """Whether an earlier run, which did not end, may have left files."""

    @property
    def staged(self) -> Mapping[str, MaskRecord]:
        """What was known of files when an earlier run was about to complete the dataset."""

    def present(self) -> Mapping[str, MaskRecord]:
        """Of what the files were made that an update leaves as they are; nothing unless it is one."""

    def folder(self, files: Sequence[str]) -> str:
        """A folder or URI for what is written."""

    def record(self, written: Mapping[str, MaskRecord]) -> None:
        """Take down of what the files were made, before `commit`."""

    def written(self) -> str:
        """The folder or URI that holds the files that were written, before they are committed."""
