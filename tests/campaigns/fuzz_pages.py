"""Damaged and hostile pages against Arrow.

`python -m tests.campaigns fuzz_pages CASES SEED [FILE...]` runs many of them.

A case ends well if the rows handed out are Arrow's, bit for bit, and the rest is left to Arrow; all rows may be handed
out only where Arrow reads them all.
"""

from __future__ import annotations

import collections
import itertools
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import forge
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from drrej.data.pages import UnfitError, open_chunk

ARROW_ERRORS = (OSError, pa.ArrowException, ValueError, OverflowError, TypeError)
UNFIT = (UnfitError, IndexError, OSError, pa.ArrowException)
Random = np.random.Generator
Array = np.ndarray[Any, Any]


def rows_of_pages(path: str, metadata: pq.FileMetaData, row_group: int, classes: int, block: int) -> tuple[Array, bool]:
    """The rows that are handed out, and whether those are all; the same of a file and of bytes that were fetched."""
    with open(path, "rb") as stream:
        whole = pa.BufferReader(stream.read())
    with pa.OSFile(path) as file:
        rows = _handed_out(file, metadata, footer_of(path, metadata), row_group, classes, block)
    fetched = _handed_out(whole, metadata, footer_of(path, metadata), row_group, classes, block)
    assert fetched[1] == rows[1]
    assert fetched[0].tobytes() == rows[0].tobytes()
    return rows


def footer_of(path: str | os.PathLike[str], metadata: pq.FileMetaData) -> bytes:
    """The bytes that Arrow has read as the footer of a file."""
    with open(path, "rb") as stream:
        stream.seek(-metadata.serialized_size - 8, os.SEEK_END)
        return stream.read(metadata.serialized_size)


def _handed_out(
    file: pa.NativeFile, metadata: pq.FileMetaData, footer: bytes, row_group: int, classes: int, block: int
) -> tuple[Array, bool]:
    blocks: list[Array] = []
    try:
        chunk = open_chunk(file, metadata, footer, row_group, 0, classes)
        for rows in chunk.blocks(block):
            assert rows.flags.aligned
            assert rows.flags.c_contiguous
            blocks.append(rows)
    except UNFIT:
        return np.concatenate(blocks) if blocks else np.empty((0, classes)), False
    found = np.concatenate(blocks)
    assert len(found) == chunk.rows
    half = chunk.rows // 2
    assert np.concatenate([found[:half], *chunk.blocks(block, half)]).tobytes() == found.tobytes()
    return found, True


def rows_of_arrow(file: pq.ParquetFile, row_group: int) -> tuple[pa.Array, bool]:
    """The same by Arrow, as far as it reads."""
    batches: list[pa.Array] = []
    try:
        for batch in file.iter_batches(64, row_groups=[row_group], columns=["logits"], use_threads=False):
            batch.validate(full=True)
            batches.append(batch.column(0))
    except ARROW_ERRORS:
        return pa.concat_arrays(batches) if batches else None, False
    return pa.concat_arrays(batches) if batches else None, True


def judge(data: bytes, classes: int, path: str, block: int = 100) -> str:
    """What became of a file: "equal", "partly", "left", or "refused" by Arrow; an AssertionError is a find."""
    with open(path, "wb") as stream:
        stream.write(data)
    try:
        file = pq.ParquetFile(path, page_checksum_verification=True, pre_buffer=False)
    except ARROW_ERRORS:
        return "refused"
    if not _is_list_of_floats(file, classes):
        return "refused"
    verdicts = []
    for row_group in range(min(file.metadata.num_row_groups, 4)):
        ours, complete = rows_of_pages(path, file.metadata, row_group, classes, block)
        theirs, readable = rows_of_arrow(file, row_group)
        assert readable or not complete, "Arrow refuses what was read"
        count = min(len(ours), 0 if theirs is None else len(theirs))
        if count:
            lists = theirs.slice(0, count)
            assert lists.null_count == 0
            assert set(lists.value_lengths().to_pylist()) == {classes}
            values = lists.flatten()
            assert values.null_count == 0
            numbers = values.to_numpy(zero_copy_only=False)
            assert numbers.dtype == ours.dtype
            assert numbers.tobytes() == ours[:count].tobytes()
        verdicts.append("equal" if complete else "partly" if len(ours) else "left")
    return min(verdicts, default="left")


def _is_list_of_floats(file: pq.ParquetFile, classes: int) -> bool:
    """Whether a dump would have this column: others never come to the pages."""
    try:
        kind = file.schema_arrow.field("logits").type
    except (KeyError, *ARROW_ERRORS):
        return False
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    is_list = is_list or (pa.types.is_fixed_size_list(kind) and kind.list_size == classes)  # it says how many there are
    return is_list and pa.types.is_floating(kind.value_type)


@dataclass(frozen=True)
class Base:
    """A file that is read to the end, and where its pages are: header, bytes, end."""

    data: bytes
    classes: int
    pages: list[tuple[int, int, int]]


def locate(data: bytes, classes: int, path: str) -> Base:
    """A file with the places of its pages."""
    with open(path, "wb") as stream:
        stream.write(data)
    metadata = pq.read_metadata(path)
    places = []
    with pa.OSFile(path) as file:
        for row_group in range(metadata.num_row_groups):
            column = metadata.row_group(row_group).column(0)
            start = min(column.data_page_offset, column.dictionary_page_offset or column.data_page_offset)
            for page in open_chunk(file, metadata, footer_of(path, metadata), row_group, 0, classes).pages:
                places.append((start, page.offset, page.offset + page.stored))
                start = places[-1][2]
    return Base(data, classes, places)


def library_file(random: Random, path: str) -> tuple[bytes, int]:
    """A file as pyarrow writes it, in one of many ways."""
    classes = int(random.choice([1, 2, 3, 7, 8, 10, 33]))
    rows = int(random.integers(1100, 1500)) * int(random.integers(1, 3))
    dtype = random.choice(["f2", "f4", "f8"])
    values = random.standard_normal((rows, classes)).astype(dtype)
    if random.random() < 0.5:
        values = np.round(values, 1)  # few distinct values: dictionaries
    flat = pa.array(values.reshape(-1))
    kind = random.integers(3)
    if kind == 0:
        lists = pa.FixedSizeListArray.from_arrays(flat, classes)
    else:
        offsets = np.arange(0, values.size + 1, classes)
        lists = pa.ListArray.from_arrays(offsets.astype(np.int32), flat)
        if kind == 2:
            lists = pa.LargeListArray.from_arrays(offsets, flat)
    nullable = bool(random.random() < 0.7)
    pq.write_table(
        pa.table([lists], schema=pa.schema([pa.field("logits", lists.type, nullable=nullable)])),
        path,
        row_group_size=rows if random.random() < 0.7 else rows // 2 + 1,
        compression=str(random.choice(["none", "snappy", "zstd"])),
        use_dictionary=bool(random.random() < 0.5),
        data_page_size=int(random.choice([2000, 6000, 1 << 20])),
        write_batch_size=int(random.choice([50, 333])),
        write_page_checksum=bool(random.random() < 0.3),
    )
    with open(path, "rb") as stream:
        return stream.read(), classes


def damage(random: Random, base: Base) -> bytes:
    """A file with some of its bytes changed, mostly where it matters."""
    data = bytearray(base.data)
    for _ in range(int(random.integers(1, 4))):
        header, body, end = base.pages[int(random.integers(len(base.pages)))]
        kind = random.integers(10)
        if kind < 3:
            _change(random, data, header, body)
        elif kind < 6:
            _change(random, data, body, min(end, body + 60))
        elif kind < 7:
            _change(random, data, body, end)
        elif kind < 8:
            _change(random, data, base.pages[-1][2], len(data))
        elif kind < 9:
            data = _swapped(random, base)
        else:
            cut = int(random.integers(header, end))
            step = int(random.integers(1, 40))
            data[cut:cut] = random.bytes(step) if random.random() < 0.5 else b""
            del data[cut : cut + step * int(random.integers(2))]
    return bytes(data)


def _change(random: Random, data: bytearray, start: int, end: int) -> None:
    end = min(end, len(data))
    if end <= start:
        return
    at = int(random.integers(start, end))
    kind = random.integers(3)
    if kind == 0:
        data[at] ^= 1 << int(random.integers(8))
    elif kind == 1:
        data[at] = int(random.choice([0, 1, 2, 3, 0x7F, 0x80, 0xFF, random.integers(256)]))
    else:
        stop = min(end, at + int(random.integers(1, 9)))
        data[at:stop] = random.bytes(stop - at)


def _swapped(random: Random, base: Base) -> bytearray:
    """Two pages in each other's place; the places after them fit again."""
    first, second = sorted(int(x) for x in random.integers(len(base.pages), size=2))
    (a, _, b), (c, _, d) = base.pages[first], base.pages[second]
    if first == second:
        return bytearray(base.data)
    return bytearray(base.data[:a] + base.data[c:d] + base.data[b:c] + base.data[a:b] + base.data[d:])


def forged_file(random: Random) -> tuple[bytes, int]:
    """Pages made by hand, right or with something wrong that bytes at random would hardly hit."""
    classes = int(random.choice([1, 2, 5, 10]))
    rows = int(random.integers(1024, 1200))
    dtype = str(random.choice(list(forge.DTYPES)))
    values = random.standard_normal((rows, classes)).astype(dtype)
    version = int(random.integers(1, 3))
    step = classes if version == 2 or random.random() < 0.5 else 1
    cuts = sorted({int(x) * step for x in random.integers(1, values.size // step, size=int(random.integers(4)))})
    encode: Any = random.choice(np.array([forge.mixed, forge.packed, forge.repeated], dtype=object))
    pages = forge.list_pages(values, cuts, encode, version)
    if random.random() < 0.3:
        pages = [replace(page, crc=0) for page in pages]
    if random.random() < 0.3:
        pages = _with_dictionary(random, pages, dtype)
    trailer = b""
    for _ in range(int(random.integers(3))):
        at = int(random.integers(len(pages)))
        kind = random.integers(8)
        if kind == 0:
            pages[at] = _other_header(random, pages[at], classes)
        elif kind == 1:
            pages[at] = _other_levels(random, pages[at])
        elif kind == 2:
            pages[at] = replace(pages[at], values=_other_length(random, pages[at].values))
        elif kind == 3:
            pages[at] = replace(pages[at], crc=int(random.integers(2)))
        elif kind == 4:
            pages = [pages[int(x)] for x in random.permutation(len(pages))]
        elif kind == 5:
            pages.insert(at, pages[at])
        elif kind == 6 and len(pages) > 1:
            del pages[at]
        elif kind == 7:
            trailer = random.bytes(int(random.integers(1, 50)))
    rows += int(random.choice([0, 0, 0, 0, 1, -1]))
    codec: Any = random.choice(np.array(list(forge.CODECS), dtype=object))
    return forge.forge(pages, rows, dtype, codec, trailer), classes


def _with_dictionary(random: Random, pages: list[forge.ForgedPage], dtype: str) -> list[forge.ForgedPage]:
    """The first pages by indices into a dictionary, whose entries are random numbers."""
    entries = int(random.choice([1, 2, 3, 100, 300]))
    width = max(1, (entries - 1).bit_length()) + int(random.integers(2))
    words = random.standard_normal(entries).astype(dtype).tobytes()
    result = [forge.ForgedPage(b"", b"", words, entries, encoding=int(random.choice([0, 2])), dictionary=True)]
    plain = int(random.integers(len(pages) + 1))
    for page in pages[:plain]:
        limit = entries if random.random() < 0.9 else min(1 << width, entries + 2)
        indices = random.integers(limit, size=page.count)
        if random.random() < 0.5:
            indices = np.repeat(indices, 9)[: page.count]
        encode = forge.mixed if width <= 8 and random.random() < 0.7 else forge.repeated
        text = bytes([width]) + encode(indices.tolist(), width)
        result.append(replace(page, values=text, encoding=int(random.choice([2, 8]))))
    return result + pages[plain:]


def _other_header(random: Random, page: forge.ForgedPage, classes: int) -> forge.ForgedPage:
    names = ["kind", "size", "stored", "count", "encoding", "definition_encoding", "repetition_encoding", "nulls"]
    name = str(random.choice([*names, "rows", "definition_bytes", "repetition_bytes"]))
    near = [page.count + x for x in (1, -1, classes, -classes)] + [len(page.values), len(page.definition)]
    value = int(random.choice([0, 1, 2, 3, 4, 5, 8, 9, -1, 255, 1 << 16, (1 << 31) - 1, -(1 << 31), *near]))
    return replace(page, header={**page.header, name: value})


def _other_levels(random: Random, page: forge.ForgedPage) -> forge.ForgedPage:
    name = str(random.choice(["repetition", "definition"]))
    data = bytearray(getattr(page, name))
    if data:
        at = int(random.integers(len(data)))
        kind = random.integers(4)
        if kind == 0:
            data[at] ^= 1 << int(random.integers(8))
        elif kind == 1:
            data[at] = int(random.integers(256))
        elif kind == 2:
            del data[at:]
        else:
            data[at:at] = random.bytes(int(random.integers(1, 4)))
    return replace(page, **{name: bytes(data)})


def _other_length(random: Random, data: bytes) -> bytes:
    kind = random.integers(3)
    if kind == 0:
        return data[: int(random.integers(len(data) + 1))]
    if kind == 1:
        return data + random.bytes(int(random.integers(1, 9)))
    changed = bytearray(data)
    _change(random, changed, 0, len(changed))
    return bytes(changed)


def cases(random: Random, path: str, files: list[Base]) -> Iterator[tuple[bytes, int]]:
    """Files to judge, without end: each base is used several times."""
    while True:
        try:
            base = locate(*library_file(random, path), path)
        except UnfitError:  # row groups or pages are small
            continue
        yield base.data, base.classes
        for _ in range(8):
            yield damage(random, base), base.classes
        for other in files:
            yield damage(random, other), other.classes
        for _ in range(8):
            yield forged_file(random)


def campaign(count: int, seed: int, folder: str, note: Callable[[bytes], None] | None = None) -> dict[str, int]:
    """Judge `count` cases; how many ended how."""
    random = np.random.default_rng(seed)
    path = os.path.join(folder, "case.parquet")
    files = [_base_of(name, os.path.join(folder, "base.parquet")) for name in sys.argv[3:]] if note else []
    verdicts: collections.Counter[str] = collections.Counter()
    for data, classes in itertools.islice(cases(random, path, files), count):
        if note is not None:
            note(data)
        verdicts[judge(data, classes, path, int(random.choice([1, 7, 100, 5000])))] += 1
    return dict(verdicts)


def _base_of(name: str, path: str) -> Base:
    """A file of another library, whose name begins with the number of classes."""
    with open(name, "rb") as stream:
        return locate(stream.read(), int(os.path.basename(name).split("_")[0]), path)


def main() -> None:
    """Run a campaign; the case under way is in a file, should the process end with it."""
    import resource
    import time

    with tempfile.TemporaryDirectory() as folder:

        def note(data: bytes) -> None:
            with open(os.path.join(tempfile.gettempdir(), f"fuzz-pages-{sys.argv[2]}.parquet"), "wb") as stream:
                stream.write(data)

        start = time.monotonic()
        verdicts = campaign(int(sys.argv[1]), int(sys.argv[2]), folder, note)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    sys.stdout.write(f"{verdicts}, {time.monotonic() - start:.0f} s, {peak} MB\n")


if __name__ == "__main__":
    main()
