"""The final name of a directory: whether it may be written, and how a finished folder gets there.

The name always stands for a whole directory: old and new change places in one step. Where the filesystem cannot do
that, the old one is set aside under a hidden name, and stays there until the new one stands; should the run be killed
between the two, the next one gives the old directory its name back.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Iterable
from pathlib import Path

from drrej.errors import OutputError
from drrej.outputs.claims import FolderPlace
from drrej.outputs.hidden import (
    REPLACED,
    cannot_write,
    check_folder,
    clear_leftovers,
    hidden_name,
    lock_folder,
    recover_replaced,
)
from drrej.outputs.renames import exchange, rename_new
from drrej.outputs.targets import appeared

_TAKEN = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR)


class FinalFolder:
    """Where a directory will be; without `force` or `update` the name must be free, or that of an empty directory."""

    def __init__(self, target: str, force: bool, update: bool = False) -> None:
        self.name = target.rstrip("/") or "/"
        self.path = Path(os.path.realpath(self.name))
        self.place = FolderPlace(str(self.path), str(self.path))
        self._force = force or update
        check_folder(self.name, str(self.path.parent))
        recover_replaced(self.path)
        self._was_there = os.path.lexists(self.path)
        if self._was_there:
            self._check_replaceable()

    @property
    def holds_files(self) -> bool:
        """Whether the directory is there and not empty."""
        return self.path.is_dir() and any(self.path.iterdir())

    def _check_replaceable(self) -> None:
        if not self.path.is_dir():
            raise OutputError(f"{self.name}: it exists and is not a directory; choose another with `output`")
        if self.holds_files and not self._force:
            raise OutputError(
                f"{self.name}: the directory exists and is not empty; use `force=True` to replace it, or `update=True` "
                "to add what is new"
            )
        files = (name for _, _, names in os.walk(self.path) for name in names)
        check_only_masks(self.name, files)

    def put(self, folder: Path) -> None:
        """Give a finished folder the final name. What was there before has the folder's name afterwards, or none."""
        try:
            if self._force and os.path.lexists(self.path):
                self._replace(folder)
            else:
                self._take(folder)
        except OSError as error:
            raise cannot_write(self.name, error) from None
        clear_leftovers(self.path.parent, self.path.name, REPLACED)

    def _take(self, folder: Path) -> None:
        """Take a name that must be free still."""
        try:
            if self._was_there:
                os.chmod(folder, stat.S_IMODE(self.path.stat().st_mode))
                os.rename(folder, self.path)  # fails unless it is empty or gone
            else:
                rename_new(str(folder), str(self.path))
        except OSError as error:
            if error.errno not in _TAKEN:
                raise
            raise appeared(self.name, "replace") from None

    def _replace(self, folder: Path) -> None:
        self._check_replaceable()  # again: it may have changed since
        os.chmod(folder, stat.S_IMODE(self.path.stat().st_mode))
        if not exchange(str(folder), str(self.path)):
            self._set_aside_and_take(folder)

    def _set_aside_and_take(self, folder: Path) -> None:
        aside = self.path.parent / hidden_name(self.path.name, REPLACED)
        lock = lock_folder(self.path)  # so that no other run takes it for one that a killed run left
        try:
            os.rename(self.path, aside)
            rename_new(str(folder), str(self.path))
        except BaseException:
            if not os.path.lexists(self.path):
                with contextlib.suppress(OSError):
                    os.rename(aside, self.path)
            raise
        finally:
            os.close(lock)
        shutil.rmtree(aside, ignore_errors=True)


def check_only_masks(target: str, files: Iterable[str]) -> None:
    """Raise when a directory to be replaced holds other files than masks: it may be somebody's home."""
    for name in files:
        hidden = any(piece.startswith(("_", ".")) for piece in name.split("/"))
        if not name.endswith(".parquet") and not hidden:
            raise OutputError(
                f"{target}: the directory holds other files than masks ({name}), so it will not be replaced; "
                "choose another with `output`"
            )
