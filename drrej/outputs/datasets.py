"""Datasets on a filesystem: directories of files that appear whole."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType

from drrej.errors import ClusterError, DrrejError, OutputError
from drrej.outputs.atomic import check_folder, locked, put_folder, recover_folder, writing
from drrej.outputs.conflicts import Place, claimed
from drrej.outputs.destinations import appeared
from drrej.outputs.records import RECORDS, MaskRecord, parse_records, records_text

NOTES = "_drrej"
"""Folder of the notes about finished files; readers of parquet datasets skip names like this."""


class LocalDataset:
    """A directory that is written under a fixed hidden name beside the target, so that a rerun finds what is finished.

    What was written stays behind when the run is interrupted or loses its cluster; after any other error it goes away.
    `update` completes a dataset that is there: files that are not written stay as they are. One run at a time.
    """

    def __init__(self, target: str, force: bool = False, update: bool = False) -> None:
        self.name = self.target = target.rstrip("/") or "/"
        self._final = os.path.realpath(self.name)
        folder, name = os.path.split(self._final)
        self._stage = os.path.join(folder, f".{name}.drrej-parts")
        self._records_path = os.path.join(folder, f".{name}{RECORDS}")
        self._force, self._update = force or update, update
        self._files: Sequence[str] = ()
        self._written: Mapping[str, MaskRecord] = {}
        check_folder(self.name, folder)
        with contextlib.ExitStack() as stack, writing(self.name):
            try:
                stack.enter_context(locked(self._final))
            except BlockingIOError:
                raise OutputError(
                    f"{self.name}: another run is writing it; wait for it or choose another with `output`"
                ) from None
            recover_folder(self._final)
            self._check_replaceable()
            stack.enter_context(claimed(Place.of_folder(self.name, self._final)))
            self._found = parse_records(self._text())
            if update and self._found is None and os.path.isdir(self._final) and os.listdir(self._final):
                raise no_records(self.name, os.path.basename(self._records_path))
            os.makedirs(self._stage, exist_ok=True)
            self._resumes = bool(os.listdir(self._stage))
            self._held = stack.pop_all()

    def _check_replaceable(self) -> None:
        """Raise unless the name is free, that of an empty directory, or that of masks which may be replaced."""
        if not os.path.lexists(self._final):
            return
        if not os.path.isdir(self._final):
            raise OutputError(f"{self.name}: it exists and is not a directory; choose another with `output`")
        if os.listdir(self._final) and not self._force:
            raise OutputError(
                f"{self.name}: the directory exists and is not empty; use `force=True` to replace it, or `update=True` "
                "to add what is new"
            )
        check_only_masks(self.name, (name for _, _, names in os.walk(self._final) for name in names))

    def _text(self) -> bytes | None:
        try:
            with open(self._records_path, "rb") as stream:
                return stream.read()
        except FileNotFoundError:
            return None

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
            status = os.stat(os.path.join(self._final, name))
        except OSError:
            return False
        return record.is_of(status.st_size, status.st_mtime_ns)

    def folder(self, files: Sequence[str]) -> str:
        """The directory beside the target."""
        self._files = files
        return self._stage

    def record(self, written: Mapping[str, MaskRecord]) -> None:
        """Take down of what the files were made."""
        self._written = written

    def written(self) -> str:
        """The directory beside the target."""
        return self._stage

    def commit(self) -> None:
        """Add what stays, drop what does not belong to the dataset, then give the directory its final name."""
        with writing(self.name):
            stays = self._link_what_stays() if self._update else set()
            if self._written:
                self._write_records()
            self._drop_all_but({*self._files, *stays})
            if self._force:
                self._check_replaceable()  # again: it may have changed since
            try:
                put_folder(self._stage, self._final, self._force)
            except OSError as error:
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                    raise
                raise appeared(self.name, "replace") from None

    def _link_what_stays(self) -> set[str]:
        """Have every file of the dataset that was not written anew in the hidden directory too."""
        before = self._final
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
            if not os.listdir(folder) and folder != self._stage:
                os.rmdir(folder)

    def __enter__(self) -> LocalDataset:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None or spoilt(kind):
            shutil.rmtree(self._stage, ignore_errors=True)
        with contextlib.suppress(OSError):  # gone, or not empty: finished files stay for the next run
            os.rmdir(self._stage)
        self._held.close()


def check_only_masks(target: str, files: Iterable[str]) -> None:
    """Raise when a directory to be replaced holds other files than masks: it may be somebody's home."""
    for name in files:
        hidden = any(piece.startswith(("_", ".")) for piece in name.split("/"))
        if not name.endswith(".parquet") and not hidden:
            raise OutputError(
                f"{target}: the directory holds other files than masks ({name}), so it will not be replaced; "
                "choose another with `output`"
            )


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
