"""Datasets on a filesystem: directories of files that appear whole."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Mapping, Sequence
from types import TracebackType

from drrej.errors import ClusterError, DrrejError, OutputError
from drrej.outputs.claims import claim, release
from drrej.outputs.folders import FinalFolder
from drrej.outputs.hidden import cannot_write
from drrej.outputs.locks import TargetLock
from drrej.outputs.records import RECORDS, MaskRecord, parse_records, records_text

NOTES = "_drrej"
"""Folder of the notes about finished files; readers of parquet datasets skip names like this."""


class LocalDataset:
    """A directory that is written under a fixed hidden name beside the target, so that a rerun finds what is finished.

    What was written stays behind when the run is interrupted or loses its cluster; after any other error it goes away.
    `update` completes a dataset that is there: files that are not written stay as they are. One run at a time.
    """

    def __init__(self, target: str, force: bool = False, update: bool = False) -> None:
        self._final = FinalFolder(target, force, update)
        self._stage = self._final.path.parent / f".{self._final.path.name}.drrej-parts"
        self._records_path = self._final.path.parent / f".{self._final.path.name}{RECORDS}"
        self._update = update
        self._files: Sequence[str] = ()
        self._written: Mapping[str, MaskRecord] = {}
        self._lock = self._locked()
        try:
            self._found = parse_records(self._text())
            self._check_records()
            self._stage.mkdir(exist_ok=True)
            self._resumes = any(self._stage.iterdir())
            claim(self._final.place, self.name)
        except OSError as error:
            self._lock.release()
            raise cannot_write(self.name, error) from None
        except BaseException:
            self._lock.release()
            raise

    def _locked(self) -> TargetLock:
        try:
            return TargetLock(str(self._final.path))
        except BlockingIOError:
            raise OutputError(
                f"{self.name}: another run is writing it; wait for it or choose another with `output`"
            ) from None
        except OSError as error:
            raise cannot_write(self.name, error) from None

    def _text(self) -> bytes | None:
        try:
            return self._records_path.read_bytes()
        except FileNotFoundError:
            return None

    def _check_records(self) -> None:
        if self._update and self._final.holds_files and self._found is None:
            raise no_records(self.name, str(self._records_path.name))

    @property
    def name(self) -> str:
        """For messages."""
        return self._final.name

    @property
    def target(self) -> str:
        """What was named."""
        return self._final.name

    @property
    def resumes(self) -> bool:
        """Whether an earlier run, which did not end, may have left files."""
        return self._resumes

    @property
    def staged(self) -> Mapping[str, MaskRecord]:
        """What was known of files when an earlier run was about to complete the dataset."""
        return self._found or {}

    def present(self) -> dict[str, MaskRecord]:
        """Of what the files were made that an update leaves as they are."""
        if not self._update:
            return {}
        return {name: record for name, record in self.staged.items() if self._is_as_written(name, record)}

    def _is_as_written(self, name: str, record: MaskRecord) -> bool:
        try:
            status = os.stat(self._final.path / name)
        except OSError:
            return False
        return record.is_of(status.st_size, status.st_mtime_ns)

    def folder(self, files: Sequence[str]) -> str:
        """The directory beside the target."""
        self._files = files
        return str(self._stage)

    def record(self, written: Mapping[str, MaskRecord]) -> None:
        """Take down of what the files were made."""
        self._written = written

    def written(self) -> str:
        """The directory beside the target."""
        return str(self._stage)

    def commit(self) -> None:
        """Add what stays, drop what does not belong to the dataset, then give the directory its final name."""
        try:
            stays = self._link_what_stays() if self._update else set()
            if self._written:
                self._write_records()
            self._drop_all_but({*self._files, *stays})
        except OSError as error:
            raise cannot_write(self.name, error) from None
        self._final.put(self._stage)

    def _link_what_stays(self) -> set[str]:
        """Have every file of the dataset that was not written anew in the hidden directory too."""
        before = self._final.path
        stays = set()
        for folder, _, names in os.walk(before):
            inside = os.path.relpath(folder, before)
            for name in names:
                relative = os.path.normpath(os.path.join(inside, name)).replace(os.sep, "/")
                if relative in self._files and not self._is_unchanged(relative):
                    continue
                stays.add(relative)
                _link(os.path.join(folder, name), os.path.join(self._stage, relative))
        return stays

    def _is_unchanged(self, name: str) -> bool:
        """Whether the file that is in the dataset is the one that was wanted."""
        record, there = self._written.get(name), self.staged.get(name)
        return record is not None and record == there and self._is_as_written(name, record)

    def _write_records(self) -> None:
        """Before the directory changes: a record whose file is another one than it says counts for nothing."""
        new = f"{self._records_path}.new"
        with open(new, "w", encoding="utf-8") as stream:
            stream.write(records_text({**self.present(), **self._written}))
        os.replace(new, self._records_path)

    def _drop_all_but(self, belong: set[str]) -> None:
        for folder, _, names in os.walk(self._stage, topdown=False):
            for name in names:
                path = os.path.join(folder, name)
                if os.path.relpath(path, self._stage).replace(os.sep, "/") not in belong:
                    os.unlink(path)
            if not os.listdir(folder) and folder != str(self._stage):
                os.rmdir(folder)

    def __enter__(self) -> LocalDataset:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        release(self._final.place)
        if kind is None or spoilt(kind):
            shutil.rmtree(self._stage, ignore_errors=True)
        with contextlib.suppress(OSError):  # gone, or not empty: finished files stay for the next run
            self._stage.rmdir()
        self._lock.release()


def _link(path: str, new: str) -> None:
    """One file under a second name, or a copy with the same time where the filesystem has no such thing."""
    os.makedirs(os.path.dirname(new), exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(new)
    try:
        os.link(path, new, follow_symlinks=False)
    except OSError:
        shutil.copy2(path, new, follow_symlinks=False)


def no_records(name: str, record: str) -> OutputError:
    """The error of an update of files of which nothing is known."""
    return OutputError(
        f"{name}: nothing says of what its masks were made (the file {record} beside it is missing), so it cannot be "
        "updated; use `force=True` to make all of them again"
    )


def check_left(name: str, present: Mapping[str, MaskRecord], written: Mapping[str, MaskRecord]) -> None:
    """Raise when masks that an update leaves would not fit those that it writes."""
    recipes = {record.recipe for record in written.values()}
    inputs = {record.input: relative for relative, record in written.items()}
    for relative in sorted(present.keys() - written.keys()):
        if present[relative].recipe not in recipes:
            raise OutputError(
                f"{name}: {relative} was made with another rejector, other options or another version, and its input "
                "is not among those given; name all inputs, or use `force=True` to replace the directory"
            )
        same = inputs.get(present[relative].input)
        if same is not None:
            raise OutputError(
                f"{name}: {relative} was made of the same file as {same} would be, so its rows would be there twice; "
                "name the inputs as before, or use `force=True` to replace the directory"
            )


def spoilt(kind: type[BaseException] | None) -> bool:
    """Whether an error makes finished files useless: an interruption or a lost cluster does not."""
    return kind is not None and issubclass(kind, DrrejError) and not issubclass(kind, ClusterError)
