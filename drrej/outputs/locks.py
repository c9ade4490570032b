"""One run at a time at one target: a lock on a hidden file beside it, because the target itself is replaced."""

from __future__ import annotations

import contextlib
import fcntl
import os

LOCK = ".drrej-lock"


class TargetLock:
    """Held from the start until `release`, or until the process ends, however that is.

    BlockingIOError when another run holds it; other OSErrors when it cannot be made.
    """

    def __init__(self, target: str) -> None:
        self._path = os.path.join(os.path.dirname(target), f".{os.path.basename(target)}{LOCK}")
        self._descriptor: int | None = self._locked()

    def _locked(self) -> int:
        while True:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _same_file(descriptor, self._path):
                    return descriptor
            except OSError:
                os.close(descriptor)
                raise
            os.close(descriptor)  # its owner has removed it between our opening and locking it

    def release(self) -> None:
        """Let others in."""
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._path)
            os.close(self._descriptor)
            self._descriptor = None


def _same_file(descriptor: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False
