"""The masks of a dataset: one file per input file.

A finished mask has a note beside it that says of what it was made, so that a rerun after a crash can use it. Masks
and notes appear whole: renamed into place on a filesystem, uploaded in one piece to object storage.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from drrej.data.files import DumpFile, one_line
from drrej.data.pandas_index import with_range
from drrej.data.uris import below, is_uri
from drrej.errors import OutputError
from drrej.outputs.datasets import NOTES
from drrej.outputs.destinations import upload
from drrej.outputs.masks import MaskFile, mask_name
from drrej.outputs.records import Finished, MaskRecord, PartCounts, note_text, parse_note
from drrej.records import dataclass


@dataclass(frozen=True)
class PartSink:
    """Where the masks of a dataset go: `root` is a folder or a URI.

    `recipe` identifies the rejector and the options; with the input's identity it tells whether a mask that is there
    already is the one wanted. `known` are masks of a dataset that was being completed when its run ended; `resumes`
    says whether an earlier run may have left any.
    """

    root: str
    target: str
    schema: pa.Schema
    recipe: str
    known: Mapping[str, MaskRecord] = field(default_factory=dict)
    resumes: bool = True

    def made_of(self, part: DumpFile) -> tuple[str, str, str]:
        """What identifies the content of a mask, its recipe, and its input."""
        assert part.identity is not None
        recipe = hashlib.sha256(repr((self.recipe, self.schema.to_string())).encode()).hexdigest()
        source = f"{part.identity.size}:{part.identity.version}"
        return hashlib.sha256(repr((recipe, mask_name(part), source)).encode()).hexdigest(), recipe, source

    def present(self, part: DumpFile, present: Mapping[str, MaskRecord]) -> Finished | None:
        """The mask of a part, if it is among those that an update leaves as they are."""
        record = present.get(mask_name(part))
        if record is None or record.digest != self.made_of(part)[0]:
            return None
        return Finished(part.name, mask_name(part), record, reused=True)

    def earlier(self, part: DumpFile) -> Finished | None:
        """The mask of a part, if an earlier run has made the same."""
        if not self.resumes:
            return None
        digest, _, _ = self.made_of(part)
        filesystem, root = locate(self.root)
        mask, note = filesystem.get_file_info([f"{root}/{mask_name(part)}", f"{root}/{_note(part)}"])
        if mask.type != pafs.FileType.File:
            return None
        noted = None
        if note.type == pafs.FileType.File:
            try:
                with filesystem.open_input_stream(note.path) as stream:
                    noted = parse_note(stream.read())
            except OSError:
                noted = None
        version = None if is_uri(self.root) else os.stat(mask.path).st_mtime_ns
        for record in (noted, self.known.get(mask_name(part))):
            if record is not None and record.digest == digest and record.is_of(mask.size, version):
                return Finished(part.name, mask_name(part), record, reused=True)
        return None

    @contextlib.contextmanager
    def open(self, part: DumpFile) -> Iterator[PendingMask]:
        """A mask to be filled; it goes into place with `finish`, and away otherwise."""
        pending = PendingMask(self, part)
        try:
            yield pending
        finally:
            pending.discard()


class PendingMask:
    """A mask that is being written."""

    def __init__(self, sink: PartSink, part: DumpFile) -> None:
        self.sink = sink
        self.part = part
        self.name = f"{sink.target}/{mask_name(part)}"
        if is_uri(sink.root):
            handle, self.path = tempfile.mkstemp(prefix="drrej-", suffix=".parquet")
            os.close(handle)
        else:
            final = os.path.join(sink.root, mask_name(part))
            try:
                os.makedirs(os.path.dirname(final), exist_ok=True)
            except OSError as error:
                raise OutputError(f"{self.name}: cannot be written ({error.strerror})") from None
            self.path = f"{os.path.dirname(final)}/.{os.urandom(8).hex()}"
        self.mask = MaskFile(self.path, self.name, with_range(sink.schema, [part]))
        self.closed = False

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        self.mask.write(batch)

    def finish(self, counts: PartCounts) -> Finished:
        """Put the mask into place, then the note."""
        self.closed = True
        self.mask.close(complete=True)
        status = os.stat(self.path)
        stored = is_uri(self.sink.root)
        if stored:
            self._forget_note()  # of a mask that has no time by which it could be told from this one
        self._place(self.path, mask_name(self.part))
        version = None if stored else status.st_mtime_ns
        record = MaskRecord(*self.sink.made_of(self.part), status.st_size, version, counts)
        handle, note = tempfile.mkstemp(prefix="drrej-", dir=None if stored else self.sink.root)
        try:
            with open(handle, "w", encoding="utf-8") as stream:
                stream.write(note_text(record))
            self._place(note, _note(self.part))
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(note)
        return Finished(self.part.name, mask_name(self.part), record)

    def _forget_note(self) -> None:
        filesystem, root = locate(self.sink.root)
        with contextlib.suppress(OSError):  # there is none
            filesystem.delete_file(f"{root}/{_note(self.part)}")

    def _place(self, path: str, relative: str) -> None:
        try:
            if is_uri(self.sink.root):
                with open(path, "rb") as content:
                    upload(content, below(self.sink.root, relative))
            else:
                final = os.path.join(self.sink.root, relative)
                os.makedirs(os.path.dirname(final), exist_ok=True)
                os.replace(path, final)
        except OSError as error:
            raise OutputError(f"{self.name}: cannot be written ({one_line(error)})") from None

    def discard(self) -> None:
        """Remove what is not in place."""
        if not self.closed:
            self.mask.close(complete=False)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)


def masks_in(root: str, names: Sequence[str], target: str) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of masks that were written below a folder or URI, in order, each with the name of its mask."""
    filesystem, folder = locate(root)
    for name in names:
        try:
            with filesystem.open_input_file(f"{folder}/{name}") as stream:
                for batch in pq.ParquetFile(stream).iter_batches():
                    yield name, batch
        except (OSError, pa.ArrowException) as error:
            raise OutputError(f"{target}/{name}: cannot be read again ({one_line(error)})") from None


def locate(root: str) -> tuple[pafs.FileSystem, str]:
    """The filesystem and the path of a folder or URI."""
    if not is_uri(root):
        return pafs.LocalFileSystem(), root
    filesystem, path = pafs.FileSystem.from_uri(root)
    return filesystem, path.rstrip("/")


def _note(part: DumpFile) -> str:
    return f"{NOTES}/{mask_name(part)}.json"
