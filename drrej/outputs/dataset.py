"""A directory of masks, one per input file, that is whole or can be resumed; on this machine or in object storage.

A manifest beside it says of what each mask was made and what the file was then, so that a rerun after an interruption,
or an update, knows what it need not make again: a record whose file is another one counts for nothing.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import os
import shutil
import tempfile
import time
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from msgspec import Struct, ValidationError, convert, field, to_builtins
from msgspec.structs import replace

from drrej.data.dump import Notes
from drrej.data.files import DumpFile, identity_of, is_uri
from drrej.data.problems import Problem, one_line, redacted
from drrej.errors import ClusterError, DrrejError, OutputError
from drrej.outputs.atomic import HiddenFile, check_folder, locked, put_folder, recover_folder, remove_if_empty, writing
from drrej.outputs.destinations import Place, appeared, claimed, open_uri, upload
from drrej.outputs.masks import MaskFile
from drrej.strict_json import parse

MANIFEST = ".drrej-masks.json"
_FORMAT = "drrej-masks/2"
_SUCCESS = "_SUCCESS"


class MaskRecord(Struct, frozen=True):
    """What a mask was made of, what was counted, and what its file was when it was finished.

    `recipe` identifies rejector and options, `input` the file that was read, `digest` both and the columns that held
    the scores: these may have other names in other files, and the masks still belong together. `rows` are those of the
    mask; `problems` says what is wrong with rows that were let through or left out. `version` is the file's time.
    """

    digest: str
    recipe: str
    input: str
    rows: int = 0
    rejected: int = 0
    notes: Notes = field(default_factory=Notes)
    problems: tuple[Problem, ...] = ()
    size: int = 0
    version: int = 0

    @classmethod
    def wanted(cls, part: DumpFile, recipe: str, columns: str) -> MaskRecord:
        """Of what a mask is to be made."""
        identity = part.identity or identity_of(part)
        source = f"{identity.size}:{identity.version}"
        made_of = repr((recipe, columns, part.mask_path, source))
        return cls(hashlib.sha256(made_of.encode()).hexdigest(), recipe, source)


Records = dict[str, MaskRecord]
"""By the names of masks."""

Listing = dict[str, tuple[int, int]]
"""The sizes and times of files by their names below a folder."""


class Dataset(contextlib.AbstractContextManager["Dataset"]):
    """Made before any work, so that a place that cannot be written is known at once; `name` is for messages.

    `start` says which masks there will be, `find` which of them are there already; `commit` completes it. What was
    written stays behind when the run is interrupted or loses its cluster; after any other error it goes away.
    """

    def __init__(self, target: str, force: bool, update: bool) -> None:
        self.target = target.partition("?")[0] if is_uri(target) else target
        self.name = redacted(self.target.rstrip("/")) or "/"
        self._force, self._update = force or update, update
        self._store: pafs.FileSystem = pafs.LocalFileSystem()
        self._root = ""
        """The folder that masks are put into, in the store."""
        self._scratch = ""
        """A folder on this machine for masks that are being written."""
        self._manifest = ""
        self._found: Records | None = None
        self._files: Sequence[str] = ()
        self._present: Records = {}
        self._unfinished: Records = {}
        self._written: Records = {}
        self._saves = True
        self._next_save = 0.0
        self._committed = False
        self._held = contextlib.ExitStack()

    def start(self, files: Sequence[str]) -> None:
        """Say which masks there will be, before the first one is written; again, if a file turned out to be bad."""
        self._files, self._written = files, {}

    def find(self, name: str, wanted: MaskRecord) -> MaskRecord | None:
        """The record of a mask that need not be made: it is in the dataset, or an interrupted run has finished it."""
        for records in (self._present, self._unfinished):
            record = records.get(name)
            if record is not None and record.digest == wanted.digest:
                self._written[name] = record
                return record
        return None

    def made_of(self, part: DumpFile) -> MaskRecord | None:
        """The record of the mask of a file as it is now, whatever column its scores were in."""
        record = self._present.get(part.mask_path)
        return None if record is None or record.input != MaskRecord.wanted(part, "", "").input else record

    @contextlib.contextmanager
    def mask(self, name: str, schema: pa.Schema) -> Iterator[MaskFile]:
        """A mask to be filled; it is put into place, whole, when the block is left without an error."""
        path, final = f"{self._scratch}/.{os.urandom(8).hex()}", f"{self._root}/{name}"
        try:
            with MaskFile(path, f"{self.name}/{name}", schema) as file:
                yield file
            with writing(f"{self.name}/{name}"):
                if isinstance(self._store, pafs.LocalFileSystem):
                    os.makedirs(os.path.dirname(final), exist_ok=True)
                    os.replace(path, final)
                else:
                    with open(path, "rb") as content:
                        upload(content, self._store, final)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)

    def record(self, name: str, record: MaskRecord) -> None:
        """Take down of what a mask in place was made, for a later run too."""
        with writing(self.name):
            info = self._store.get_file_info(f"{self._root}/{name}")
        self._written[name] = replace(record, size=info.size, version=info.mtime_ns or 0)
        if self._saves and time.monotonic() >= self._next_save:
            self._save()

    def _save(self) -> None:
        """The manifest of a dataset that grows; a large one is written less often."""
        started = time.monotonic()
        self._write_manifest({**(self._found or {}), **self._written}, complete=False)
        self._next_save = time.monotonic() + max(1.0, 20 * (time.monotonic() - started))

    def batches(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The rows of the masks that were written, in order, each with the name of its mask."""
        for name in self._files:
            try:
                with self._store.open_input_file(f"{self._root}/{name}") as stream:
                    for batch in pq.ParquetFile(stream).iter_batches():
                        yield name, batch
            except (OSError, pa.ArrowException) as error:
                raise OutputError(f"{self.name}/{name}: cannot be read again ({one_line(error)})") from None

    def _check_left(self) -> None:
        """Raise when masks that an update leaves would not fit those that it writes."""
        recipes = {record.recipe for record in self._written.values()}
        inputs = {record.input: name for name, record in self._written.items()}
        for name in sorted(self._present.keys() - self._written.keys()):
            if self._present[name].recipe not in recipes:
                raise OutputError(
                    f"{self.name}: {name} was made with another rejector, other options or another version, and its "
                    "input is not among those given; name all inputs, or use `force=True` to replace the directory"
                )
            same = inputs.get(self._present[name].input)
            if same is not None:
                raise OutputError(
                    f"{self.name}: {name} was made of the same file as {same} would be, so its rows would be there "
                    "twice; name the inputs as before, or use `force=True` to replace the directory"
                )

    def _read_manifest(self) -> tuple[Records | None, bool]:
        """What it says, None if there is none or it is none of ours; and whether it says that the dataset is whole."""
        if self._store.get_file_info(self._manifest).type != pafs.FileType.File:
            return None, True
        with self._store.open_input_stream(self._manifest) as stream:
            text: bytes = stream.read()
        try:
            tree = parse(text.decode())
            if tree["format"] == _FORMAT:
                return convert(tree["masks"], Records), bool(tree["complete"])
        except (ValueError, KeyError, TypeError, ValidationError):
            pass
        return None, True

    def _write_manifest(self, records: Records, complete: bool) -> None:
        masks = {name: to_builtins(records[name]) for name in sorted(records)}
        text = json.dumps({"format": _FORMAT, "complete": complete, "masks": masks}).encode()
        with writing(self.name):
            if not isinstance(self._store, pafs.LocalFileSystem):
                upload(io.BytesIO(text), self._store, self._manifest)
                return
            with contextlib.closing(HiddenFile(self._manifest)) as file:
                with open(file.path, "wb") as content:
                    content.write(text)
                file.put(overwrite=True)

    def _listing(self, folder: str) -> Listing:
        selector = pafs.FileSelector(folder, recursive=True, allow_not_found=True)
        found = [info for info in self._store.get_file_info(selector) if info.type == pafs.FileType.File]
        return {info.path[len(folder) + 1 :]: (info.size, info.mtime_ns or 0) for info in found}

    def _as_written(self, files: Listing) -> Records:
        """The records of files that are still those that were written."""
        records = self._found or {}
        return {name: record for name, record in records.items() if files.get(name) == (record.size, record.version)}

    def _check_only_masks(self, files: Iterable[str]) -> None:
        """Raise when a directory to be replaced holds other files than masks: it may be somebody's home."""
        for name in files:
            hidden = any(piece.startswith(("_", ".")) for piece in name.split("/"))
            if not name.endswith(".parquet") and not hidden:
                raise OutputError(
                    f"{self.name}: the directory contains files other than masks ({name}), so it will not be replaced; "
                    "choose another with `output`"
                )

    def _no_records(self) -> OutputError:
        return OutputError(
            f"{self.name}: nothing says of what its masks were made (the file {self._manifest.rpartition('/')[2]} "
            "beside it is missing, or of another version), so it cannot be updated; use `force=True` to make all of "
            "them again"
        )

    @abstractmethod
    def commit(self) -> None:
        """Put the masks in their place, and drop what does not belong to the dataset."""

    @abstractmethod
    def _discard(self) -> None:
        """Undo what was written."""

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        useless = kind is None or (issubclass(kind, DrrejError) and not issubclass(kind, ClusterError))
        try:
            if not self._committed and useless:
                with contextlib.suppress(OSError, pa.ArrowException, OutputError):
                    self._discard()
            elif not self._committed and self._written and self._saves:
                with contextlib.suppress(OutputError):
                    self._save()
        finally:
            self._held.close()


class LocalDataset(Dataset):
    """A directory that grows under a fixed hidden name beside the target, so that a rerun finds what is finished.

    `update` completes a dataset that is there: files that are not written stay as they are. One run at a time.
    """

    def __init__(self, target: str, force: bool = False, update: bool = False) -> None:
        super().__init__(target, force, update)
        self._final = os.path.realpath(self.name)
        folder, last = os.path.split(self._final)
        self._root = os.path.join(folder, f".{last}.drrej-parts")
        self._scratch = self._root
        self._manifest = os.path.join(folder, f".{last}{MANIFEST}")
        check_folder(self.name, folder)
        with contextlib.ExitStack() as stack, writing(self.name):
            busy = f"{self.name}: another run is writing it; wait for it or choose another with `output`"
            stack.enter_context(locked(self._final, busy))
            recover_folder(self._final)
            self._check_replaceable()
            stack.enter_context(claimed(Place.of(self.name, self._final, folder=True)))
            self._found, _ = self._read_manifest()
            if update and self._found is None and os.path.isdir(self._final) and os.listdir(self._final):
                raise self._no_records()
            os.makedirs(self._root, exist_ok=True)
            stack.callback(remove_if_empty, self._root)  # finished files stay for the next run
            self._present = self._as_written(self._listing(self._final)) if update else {}
            self._unfinished = self._as_written(self._listing(self._root))
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
        self._check_only_masks(name for _, _, names in os.walk(self._final) for name in names)

    def commit(self) -> None:
        """Add what stays, drop what does not belong to the dataset, then give the directory its final name."""
        self._check_left()
        with writing(self.name):
            stays = self._link_what_stays() if self._update else set()
            self._drop_all_but({*self._files, *stays})
            if self._force:
                self._check_replaceable()  # again: it may have changed since
            if self._written:  # before the directory changes
                self._write_manifest({**self._present, **self._written}, complete=True)
            try:
                put_folder(self._root, self._final, self._force)
            except OSError as error:
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                    raise
                raise appeared(self.name, "replace") from None
        self._committed = True
        shutil.rmtree(self._root, ignore_errors=True)  # what was there before

    def _link_what_stays(self) -> set[str]:
        """Have every file of the dataset that was not written anew in the hidden directory too."""
        stays = set()
        for folder, _, names in os.walk(self._final):
            for path in (os.path.join(folder, name) for name in names):
                name = os.path.relpath(path, self._final)
                record = self._written.get(name)
                if name in self._files and (record is None or record != self._present.get(name)):
                    continue
                stays.add(name)
                new = os.path.join(self._root, name)
                os.makedirs(os.path.dirname(new), exist_ok=True)
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(new)
                try:
                    os.link(path, new, follow_symlinks=False)
                except OSError:  # a filesystem without hard links: a copy with the same time
                    shutil.copy2(path, new, follow_symlinks=False)
        return stays

    def _drop_all_but(self, belong: set[str]) -> None:
        for folder, _, names in os.walk(self._root, topdown=False):
            for path in (os.path.join(folder, name) for name in names):
                if os.path.relpath(path, self._root) not in belong:
                    os.unlink(path)
            if not os.listdir(folder) and folder != self._root:
                os.rmdir(folder)

    def _discard(self) -> None:
        shutil.rmtree(self._root, ignore_errors=True)
        left = self._as_written(self._listing(self._final))
        if left:
            self._write_manifest(left, complete=True)
        elif os.path.exists(self._manifest):
            os.unlink(self._manifest)


class ObjectStoreDataset(Dataset):
    """Files below a URI.

    There is no rename: files appear one by one, each whole, and the dataset is complete when `_SUCCESS` is there. It is
    written last, and it is the first to go when the files of an existing dataset change. Where a complete dataset is
    replaced, masks wait in a scratch folder that is uploaded at the end.
    """

    def __init__(self, target: str, force: bool = False, update: bool = False) -> None:
        super().__init__(target, force, update)
        with contextlib.ExitStack() as stack, writing(self.name):
            self._objects, self._key = open_uri(target)
            self._store, self._root = self._objects, self._key
            folder, _, last = self._key.rpartition("/")
            self._manifest = f"{folder}/.{last}{MANIFEST}" if folder else f"{last}/_{MANIFEST}"
            self._before = self._listing(self._key)
            self._found, complete = self._read_manifest()
            whole = bool(self._before) and (complete or _SUCCESS in self._before)
            if whole and not self._force:
                raise OutputError(
                    f"{self.name}: there is a dataset already; use `force=True` to replace it, or `update=True` to add "
                    "what is new"
                )
            self._check_only_masks(self._before)
            if update and whole and self._found is None:
                raise self._no_records()
            self._saves = update or not whole
            known = self._as_written(self._before)
            self._present, self._unfinished = known if update else {}, {} if whole else known
            stack.enter_context(claimed(Place.of(self.name, target, folder=True)))
            self._scratch = tempfile.mkdtemp(prefix="drrej-")
            stack.callback(shutil.rmtree, self._scratch, ignore_errors=True)
            self._held = stack.pop_all()

    def start(self, files: Sequence[str]) -> None:
        """Objects change from here on, unless that would lose a complete dataset."""
        super().start(files)
        if not self._saves:
            self._store, self._root = pafs.LocalFileSystem(), self._scratch
            return
        with writing(self.name):
            self._save()
            self._delete({_SUCCESS} & self._listing(self._key).keys())

    def commit(self) -> None:
        """Upload what waits, remove what does not belong to the dataset, then say that it is complete."""
        self._check_left()
        self._store = self._objects
        with writing(self.name):
            there = self._listing(self._key)
            new = there.keys() - self._before.keys() - set(self._files if self._saves else ())
            if new and not self._force:
                raise appeared(self.name, "replace")
            self._check_only_masks(new)
            if not self._saves:
                self._delete({_SUCCESS} & there.keys())
                for name in self._files:
                    with open(f"{self._scratch}/{name}", "rb") as content:
                        upload(content, self._store, f"{self._key}/{name}")
            kept = set(self._before) if self._update else set()
            self._delete(there.keys() - {*self._files, *kept, _SUCCESS})
            found = self._listing(self._key)
            written = {name: replace(record, version=found[name][1]) for name, record in self._written.items()}
            self._write_manifest({**self._present, **written}, complete=True)
            upload(io.BytesIO(), self._store, f"{self._key}/{_SUCCESS}")
        self._committed = True

    def _delete(self, names: Iterable[str]) -> None:
        for name in sorted(names):
            self._store.delete_file(f"{self._key}/{name}")

    def _discard(self) -> None:
        if self._saves and not self._update:
            self._delete({*self._written, *self._unfinished} & self._listing(self._key).keys())
            self._store.delete_file(self._manifest)


def open_dataset(target: str, force: bool = False, update: bool = False) -> Dataset:
    """A directory for masks, of the kind that fits the target."""
    return ObjectStoreDataset(target, force, update) if is_uri(target) else LocalDataset(target, force, update)
