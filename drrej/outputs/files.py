"""A file that appears whole or not at all, whatever kind of target it has."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from drrej.data.uris import is_uri
from drrej.errors import OutputError
from drrej.outputs.hidden import cannot_write
from drrej.outputs.targets import STDOUT, RegularFile, StoredObject, target_of

_STDOUT_NAMES = ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")


class OutputFile:
    """A file to be written whole: `path` takes the content, `commit` puts it in place.

    `updates` is an input of which the output is a later state, such as a rejector: it may be replaced without `force`.
    """

    def __init__(self, target: str, force: bool = False, updates: str | None = None) -> None:
        self.target = STDOUT if target in _STDOUT_NAMES else target
        self._where = target_of(self.target, force, updates)

    @property
    def name(self) -> str:
        """For messages."""
        return self._where.name

    @property
    def is_regular(self) -> bool:
        """Whether the content stays under the target's name: not so for standard output, FIFOs and devices."""
        return isinstance(self._where, RegularFile | StoredObject)

    @property
    def path(self) -> str:
        """Where the content is to be written."""
        return self._where.path

    def write_text(self, text: str) -> None:
        """Write the whole content as text."""
        self.write_bytes(text.encode())

    def write_bytes(self, content: bytes) -> None:
        """Write the whole content."""
        try:
            self._where.write(content)
        except OSError as error:
            raise cannot_write(self.name, error) from None

    def commit(self) -> None:
        """Put the content in its place."""
        try:
            self._where.put()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise cannot_write(self.name, error) from None

    def __enter__(self) -> OutputFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._where.leave()


@contextlib.contextmanager
def prepare_directory(target: str) -> Iterator[None]:
    """Make a directory for outputs if it is missing; gone again if nothing came to be in it."""
    if is_uri(target):  # object storage has no directories
        yield
        return
    final = Path(target)
    made = not final.exists()
    try:
        if not final.is_dir():
            final.mkdir()
    except OSError as error:
        raise OutputError(f"{target}: the directory cannot be made ({error.strerror})") from None
    try:
        yield
    finally:
        if made:
            with contextlib.suppress(OSError):
                final.rmdir()
