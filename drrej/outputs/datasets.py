"""Datasets on a filesystem: directories of files that appear whole."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from types import TracebackType

from drrej.errors import ClusterError, DrrejError, OutputError
from drrej.outputs.claims import claim, release
from drrej.outputs.folders import FinalFolder
from drrej.outputs.hidden import HiddenFolder, cannot_write, lock_folder

NOTES = "_drrej"
"""Folder of the notes about finished files; readers of parquet datasets skip names like this."""


class LocalDataset:
    """A directory that this process writes under a hidden name; nothing of it stays unless it is committed."""

    def __init__(self, target: str, force: bool = False) -> None:
        self._final = FinalFolder(target, force)
        claim(self._final.place, self.name)
        try:
            self._hidden = HiddenFolder(self._final.path)
        except OSError as error:
            release(self._final.place)
            raise cannot_write(self.name, error) from None

    @property
    def name(self) -> str:
        """For messages."""
        return self._final.name

    def folder(self, files: Sequence[str]) -> str:  # noqa: ARG002 - whatever is written belongs to the dataset
        """The hidden directory."""
        return str(self._hidden.path)

    def shared(self, files: Sequence[str]) -> str:
        """The same: workers that share the filesystem may write there."""
        return self.folder(files)

    def written(self) -> str:
        """The same."""
        return str(self._hidden.path)

    def commit(self) -> None:
        """Give the directory its final name; one that was there before goes away afterwards."""
        self._final.put(self._hidden.path)

    def __enter__(self) -> LocalDataset:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        release(self._final.place)
        self._hidden.close()


class StagedDataset:
    """A directory that workers write, under a fixed name beside the target, so that a rerun finds it.

    It stays behind when the run is interrupted or loses its cluster; after any other error it goes away.
    """

    def __init__(self, target: str, force: bool = False) -> None:
        self._final = FinalFolder(target, force)
        self._stage = self._final.path.parent / f".{self._final.path.name}.drrej-parts"
        self._files: Sequence[str] = ()
        try:
            self._stage.mkdir(exist_ok=True)
            self._lock = lock_folder(self._stage)
        except BlockingIOError:
            raise OutputError(
                f"{self.name}: another run is writing it; wait for it or choose another with `output`"
            ) from None
        except OSError as error:
            raise cannot_write(self.name, error) from None
        claim(self._final.place, self.name)

    @property
    def name(self) -> str:
        """For messages."""
        return self._final.name

    def folder(self, files: Sequence[str]) -> str:
        """The directory beside the target."""
        self._files = files
        return str(self._stage)

    def shared(self, files: Sequence[str]) -> str:
        """The same."""
        return self.folder(files)

    def written(self) -> str:
        """The same."""
        return str(self._stage)

    def commit(self) -> None:
        """Drop what does not belong to the dataset, then give the directory its final name."""
        belong = set(self._files)
        for folder, _, names in os.walk(self._stage, topdown=False):
            for name in names:
                path = os.path.join(folder, name)
                if os.path.relpath(path, self._stage).replace(os.sep, "/") not in belong:
                    os.unlink(path)
            if not os.listdir(folder):
                os.rmdir(folder)
        self._final.put(self._stage)

    def __enter__(self) -> StagedDataset:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        release(self._final.place)
        if self._is_in_place() or spoilt(kind) or not any(self._stage.iterdir()):
            shutil.rmtree(self._stage, ignore_errors=True)
        os.close(self._lock)

    def _is_in_place(self) -> bool:
        """Whether the hidden name no longer stands for the folder that was written."""
        try:
            return not os.path.samestat(os.stat(self._stage), os.fstat(self._lock))
        except FileNotFoundError:
            return True


def spoilt(kind: type[BaseException] | None) -> bool:
    """Whether an error makes finished files useless: an interruption or a lost cluster does not."""
    return kind is not None and issubclass(kind, DrrejError) and not issubclass(kind, ClusterError)
