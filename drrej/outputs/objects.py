"""A dataset in object storage."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType

import pyarrow as pa
import pyarrow.fs as pafs

from drrej.data.uris import below, redacted
from drrej.errors import OutputError
from drrej.outputs.claims import FolderPlace, ObjectPlace, Place, claim, release
from drrej.outputs.datasets import NOTES, spoilt
from drrej.outputs.folders import check_only_masks
from drrej.outputs.remote import open_uri, told, upload
from drrej.outputs.targets import appeared

SUCCESS = "_SUCCESS"


class ObjectStoreDataset:
    """Files below a URI. Workers upload theirs; what this process writes to a scratch folder is uploaded at the end.

    There is no rename: files appear one by one, each whole, and the dataset is complete when `_SUCCESS` is there. It is
    written last, and it is the first to go when the files of an existing dataset change.
    """

    def __init__(self, target: str, force: bool = False) -> None:
        self._uri = target
        self._force = force
        self._files: Sequence[str] = ()
        self._scratch: str | None = None
        self._committed = False
        with told(self._uri):
            self._filesystem, self._key = open_uri(self._uri)
            present = self._present()
            unfinished = SUCCESS not in present and any(name.startswith(f"{NOTES}/") for name in present)
            if present and not unfinished and not force:
                raise OutputError(f"{self.name}: there is a dataset already; use `force=True` to replace it")
            check_only_masks(self.name, present)
        self._before = set(present)
        self._place: Place = ObjectPlace(target, self._filesystem, self._key, folder=True)
        if self._filesystem.type_name == "local":
            self._place = FolderPlace(target, os.path.realpath(self._key))
        claim(self._place, self.name)

    @property
    def name(self) -> str:
        """For messages."""
        return redacted(self._uri.partition("?")[0].rstrip("/"))

    def folder(self, files: Sequence[str]) -> str:
        """A scratch folder on this machine; nothing in the store changes before `commit`."""
        self._files = files
        if self._scratch is None:
            self._scratch = tempfile.mkdtemp(prefix="drrej-")
        return self._scratch

    def shared(self, files: Sequence[str]) -> str:
        """The URI. Files there change from here on, so the dataset is not complete any more."""
        self._files = files
        self._delete_success()
        return self._uri

    def written(self) -> str:
        """The scratch folder, or the URI where workers wrote."""
        return self._uri if self._scratch is None else self._scratch

    def commit(self) -> None:
        """Upload what this process wrote, remove what does not belong to the dataset, then say that it is complete."""
        with told(self._uri):
            self._check_still_free()
            if self._scratch is not None:
                self._delete_success()
                for name in self._files:
                    with open(Path(self._scratch) / name, "rb") as content:
                        upload(content, below(self._uri, name))
            self._delete(set(self._present()) - set(self._files))
            self._delete_notes()
            with self._filesystem.open_output_stream(f"{self._key}/{SUCCESS}"):
                pass
        self._committed = True

    def _check_still_free(self) -> None:
        """Raise when somebody else has written here since, unless it may be replaced."""
        written = set() if self._scratch is not None else {*self._files, *(f"{NOTES}/{n}.json" for n in self._files)}
        new = set(self._present()) - self._before - written
        if new and not self._force:
            raise appeared(self.name, "replace")
        check_only_masks(self.name, new)

    def _present(self) -> list[str]:
        selector = pafs.FileSelector(self._key, recursive=True, allow_not_found=True)
        files = [info.path for info in self._filesystem.get_file_info(selector) if info.type == pafs.FileType.File]
        return [path[len(self._key) + 1 :] for path in files]

    def _delete_success(self) -> None:
        with told(self._uri):
            if SUCCESS in self._present():
                self._filesystem.delete_file(f"{self._key}/{SUCCESS}")

    def _delete_notes(self) -> None:
        notes = f"{self._key}/{NOTES}"
        if self._filesystem.get_file_info(notes).type == pafs.FileType.Directory:  # the marker of an empty folder
            self._filesystem.delete_dir(notes)

    def _delete(self, names: Iterable[str]) -> None:
        for name in sorted(names):
            self._filesystem.delete_file(f"{self._key}/{name}")

    def __enter__(self) -> ObjectStoreDataset:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        release(self._place)
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
        if not self._committed and spoilt(kind):
            with contextlib.suppress(OSError, pa.ArrowException):
                present = set(self._present())
                self._delete(name for name in present if f"{NOTES}/{name}.json" in present)
                self._delete_notes()
