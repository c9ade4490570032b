"""Renames without a gap: a new name is taken only while it is free, and two names can change places at once.

Linux has both in one call (renameat2). Where the kernel or the filesystem lacks it, a name is taken after a
look, and `exchange` says that it cannot.
"""

from __future__ import annotations

import ctypes
import errno
import os

_FOLDER_HERE = -100  # AT_FDCWD: paths are relative to the current directory
_NOREPLACE, _EXCHANGE = 1, 2
_LACKING = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)


def rename_new(path: str, final: str) -> None:
    """Rename; FileExistsError when something has the final name."""
    if _renameat2(path, final, _NOREPLACE):
        return
    if os.path.lexists(final):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), final)
    os.rename(path, final)


def exchange(first: str, second: str) -> bool:
    """Let two names change places in one step; False where that cannot be done."""
    return _renameat2(first, second, _EXCHANGE)


def _renameat2(old: str, new: str, flag: int) -> bool:
    """Whether it was done; False: there is no such call here. Other failures are OSErrors."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        return False
    if call(_FOLDER_HERE, os.fsencode(old), _FOLDER_HERE, os.fsencode(new), flag) == 0:
        return True
    number = ctypes.get_errno()
    if number in _LACKING:
        return False
    raise OSError(number, os.strerror(number), new)
