"""A dataset in object storage."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType

import pyarrow as pa
import pyarrow.fs as pafs

from drrej.data.uris import below, is_uri, redacted
from drrej.errors import OutputError
from drrej.outputs.conflicts import Place, claimed
from drrej.outputs.datasets import NOTES, LocalDataset, check_only_masks, no_records, spoilt
from drrej.outputs.destinations import appeared, naming, open_uri, upload
from drrej.outputs.records import RECORDS, MaskRecord, parse_records, records_text

SUCCESS = "_SUCCESS"


class ObjectStoreDataset:
    """Files below a URI.

    There is no rename: files appear one by one, each whole, and the dataset is complete when `_SUCCESS` is there. It is
    written last, and it is the first to go when the files of an existing dataset change. Where this process replaces a
    complete dataset, it writes to a scratch folder that is uploaded at the end.
    """

    def __init__(self, target: str, force: bool = False, update: bool = False) -> None:
        self._uri = target
        self._update = update
        self._force = force or update
        self._written: Mapping[str, MaskRecord] = {}
        self._files: Sequence[str] = ()
        self._scratch: str | None = None
        self._committed = False
        with naming(self._uri):
            self._filesystem, self._key = open_uri(self._uri)
            present = self._sizes()
            self._records_key = _beside(self._key)
            self._found = parse_records(self._record_text())
            unfinished = SUCCESS not in present and any(name.startswith(f"{NOTES}/") for name in present)
            if present and not unfinished and not self._force:
                raise OutputError(
                    f"{self.name}: there is a dataset already; use `force=True` to replace it, or `update=True` to add "
                    "what is new"
                )
            check_only_masks(self.name, present)
            if update and present and not unfinished and self._found is None:
                raise no_records(self.name, self._records_key.rpartition("/")[2])
        self._before = present
        self._complete = bool(present) and not unfinished
        self._claim = contextlib.ExitStack()
        self._claim.enter_context(claimed(Place.of_uri(self.name, target, folder=True)))

    @property
    def name(self) -> str:
        """For messages."""
        return redacted(self._uri.partition("?")[0].rstrip("/"))

    @property
    def target(self) -> str:
        """What was named."""
        return self._uri.partition("?")[0]

    @property
    def resumes(self) -> bool:
        """Whether an earlier run, which did not end, may have left files."""
        return not self._complete and bool(self._before)

    @property
    def staged(self) -> Mapping[str, MaskRecord]:
        """Nothing: notes are there as long as files change."""
        return {}

    def present(self) -> dict[str, MaskRecord]:
        """Of what the files were made that an update leaves as they are."""
        if not self._update or self._found is None:
            return {}
        found, sizes = self._found, self._before
        return {name: found[name] for name in found if name in sizes and found[name].is_of(*sizes[name])}

    def record(self, written: Mapping[str, MaskRecord]) -> None:
        """Take down of what the files were made."""
        self._written = written

    def folder(self, files: Sequence[str]) -> str:
        """The URI, where files change from here on; a scratch folder where that would lose a complete dataset."""
        self._files = files
        if self._update or not self._complete:
            self._delete_success()
            return self._uri
        if self._scratch is None:
            self._scratch = tempfile.mkdtemp(prefix="drrej-")
        return self._scratch

    def written(self) -> str:
        """The scratch folder, or the URI."""
        return self._uri if self._scratch is None else self._scratch

    def commit(self) -> None:
        """Upload what this process wrote, remove what does not belong to the dataset, then say that it is complete."""
        with naming(self._uri):
            self._check_still_free()
            if self._scratch is not None:
                self._delete_success()
                for name in self._files:
                    with open(Path(self._scratch) / name, "rb") as content:
                        upload(content, below(self._uri, name))
            kept = {name for name in self._before if not name.startswith(f"{NOTES}/")} if self._update else set()
            self._delete(set(self._sizes()) - set(self._files) - kept)
            self._delete_notes()
            self._write_records()
            with self._filesystem.open_output_stream(f"{self._key}/{SUCCESS}"):
                pass
        self._committed = True

    def _write_records(self) -> None:
        if self._written:
            found = self._sizes()
            written = {name: replace(record, version=found[name][1]) for name, record in self._written.items()}
            with self._filesystem.open_output_stream(self._records_key) as stream:
                stream.write(records_text({**self.present(), **written}).encode())

    def _record_text(self) -> bytes | None:
        if self._filesystem.get_file_info(self._records_key).type != pafs.FileType.File:
            return None
        with self._filesystem.open_input_stream(self._records_key) as stream:
            text: bytes = stream.read()
        return text

    def _check_still_free(self) -> None:
        """Raise when somebody else has written here since, unless it may be replaced."""
        written = set() if self._scratch is not None else {*self._files, *(f"{NOTES}/{n}.json" for n in self._files)}
        new = set(self._sizes()) - set(self._before) - written
        if new and not self._force:
            raise appeared(self.name, "replace")
        check_only_masks(self.name, new)

    def _sizes(self) -> dict[str, tuple[int, int]]:
        """The objects below the URI: their sizes and times."""
        selector = pafs.FileSelector(self._key, recursive=True, allow_not_found=True)
        found = [info for info in self._filesystem.get_file_info(selector) if info.type == pafs.FileType.File]
        return {info.path[len(self._key) + 1 :]: (info.size, info.mtime_ns or 0) for info in found}

    def _delete_success(self) -> None:
        with naming(self._uri):
            if SUCCESS in self._sizes():
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
        self._claim.close()
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
        if not self._committed and spoilt(kind) and not self._update:
            with contextlib.suppress(OSError, pa.ArrowException):
                present = set(self._sizes())
                self._delete(name for name in present if f"{NOTES}/{name}.json" in present)
                self._delete_notes()


def open_dataset(target: str, force: bool = False, update: bool = False) -> LocalDataset | ObjectStoreDataset:
    """A directory for masks, of the kind that fits the target."""
    return ObjectStoreDataset(target, force, update) if is_uri(target) else LocalDataset(target, force, update)


def _beside(key: str) -> str:
    """Where the records of a dataset are."""
    folder, _, name = key.rpartition("/")
    return f"{folder}/.{name}{RECORDS}" if folder else f"{name}/_{RECORDS}"
