"""A document that runs read, and replace with its successor: by one run at a time, whole or not at all."""

from __future__ import annotations

import contextlib
import fcntl
import os
from types import TracebackType

from drrej.data.uris import is_uri, redacted
from drrej.errors import OutputError
from drrej.outputs.files import OutputFile
from drrej.outputs.hidden import cannot_write, check_folder

LOCK = ".drrej-lock"


class StateFile:
    """A file on this machine that is locked from `with` on: who comes second is told so at once.

    The lock is on a hidden file beside it, because the file itself is replaced. It goes away with the process, however
    that ends.
    """

    def __init__(self, target: str) -> None:
        self.name = redacted(target)
        if is_uri(target) or target == "-" or (os.path.exists(target) and not os.path.isfile(target)):
            raise OutputError(f"{self.name}: a state must be a file on this machine: nothing else can be locked")
        self._target, self._final = target, os.path.realpath(target)
        self._lock_path = os.path.join(os.path.dirname(self._final), f".{os.path.basename(self._final)}{LOCK}")
        self._lock: int | None = None

    def __enter__(self) -> StateFile:
        check_folder(self.name, os.path.dirname(self._final))
        try:
            self._lock = self._locked()
        except BlockingIOError:
            raise OutputError(f"{self.name}: another run is at work on it; start again when that is done") from None
        except OSError as error:
            raise cannot_write(self.name, error) from None
        return self

    def _locked(self) -> int:
        while True:
            descriptor = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _same_file(descriptor, self._lock_path):
                    return descriptor
            except OSError:
                os.close(descriptor)
                raise
            os.close(descriptor)  # its owner has removed it between our opening and locking it

    def read(self) -> str | None:
        """The text; None if there is none yet."""
        try:
            with open(self._final, "rb") as stream:
                return stream.read().decode("utf-8")
        except FileNotFoundError:
            return None
        except UnicodeDecodeError:
            raise OutputError(f"{self.name}: not a JSON document; it is left as it is") from None
        except OSError as error:
            raise OutputError(f"{self.name}: cannot be read ({error.strerror or error})") from None

    def write(self, text: str) -> None:
        """Replace the text; a reader at any moment finds the old one or the new one, whole."""
        assert self._lock is not None
        with OutputFile(self._target, force=True) as file:
            file.write_text(text)
            file.commit()
        _sync_folder(os.path.dirname(self._final))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lock is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._lock_path)
            os.close(self._lock)
            self._lock = None


def _same_file(descriptor: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _sync_folder(folder: str) -> None:
    """Have the new name on the disk too: a night that was reported must not be lost with the power."""
    with contextlib.suppress(OSError):  # some file systems cannot
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
