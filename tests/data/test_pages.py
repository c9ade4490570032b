"""Values straight from parquet pages: what Arrow reads, or nothing."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import forge
import fuzz_pages
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from drrej.data.pages import Chunk, Levels, UnfitError, indices, open_chunk, read_value, varint

ROWS = 3000


def numbers(rows: int = ROWS, classes: int = 10, dtype: str = "<f4") -> np.ndarray[Any, Any]:
    return np.random.default_rng(7).standard_normal((rows, classes)).astype(dtype)


def lists(values: np.ndarray[Any, Any]) -> pa.Array:
    offsets = np.arange(0, values.size + 1, values.shape[1], dtype=np.int32)
    return pa.ListArray.from_arrays(offsets, pa.array(values.reshape(-1)))


def write(path: Path, column: pa.Array, **options: Any) -> Path:
    pq.write_table(pa.table({"id": np.arange(len(column)), "logits": column}), path, **options)
    return path


def chunk_of(path: Path, classes: int = 10, row_group: int = 0, leaf: int | None = None) -> Chunk:
    """The chunk of the column `logits`; its file stays open."""
    STREAMS.append(pa.OSFile(str(path)))
    metadata = pq.read_metadata(path)
    names = [metadata.schema.column(i).path for i in range(metadata.num_columns)]
    leaf = next(i for i, name in enumerate(names) if name.startswith("logits")) if leaf is None else leaf
    return open_chunk(STREAMS[-1], metadata, fuzz_pages.footer_of(path, metadata), row_group, leaf, classes)


STREAMS: list[Any] = []


@pytest.fixture(autouse=True)
def _close_files():
    yield
    while STREAMS:
        STREAMS.pop().close()


def read(chunk: Chunk, rows: int = 700, start: int = 0) -> np.ndarray[Any, Any]:
    return np.concatenate(list(chunk.blocks(rows, start)))


def until_arrow(chunk: Chunk, rows: int) -> tuple[list[np.ndarray[Any, Any]], int]:
    """The blocks that are handed out, and the row from which Arrow must read."""
    blocks: list[np.ndarray[Any, Any]] = []
    with pytest.raises(UnfitError):
        blocks.extend(chunk.blocks(rows))
    return blocks, sum(map(len, blocks))


def forged(path: Path, pages: Sequence[forge.ForgedPage], rows: int = ROWS, **options: Any) -> Path:
    path.write_bytes(forge.forge(pages, rows, **options))
    return path


@pytest.mark.parametrize("compression", ["none", "snappy", "zstd"])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_values_are_those_that_were_written(tmp_path, compression, dtype):
    values = numbers(dtype=dtype)
    for name, options in {
        "plain": {"use_dictionary": False},
        "dictionary": {"dictionary_pagesize_limit": 1 << 13, "data_page_size": 1 << 13, "write_batch_size": 64},
        "checked": {"use_dictionary": False, "write_page_checksum": True, "data_page_size": 1 << 14},
    }.items():
        path = tmp_path / f"{name}.parquet"
        write(path, lists(values), compression=compression, **options)
        chunk = chunk_of(path)
        assert chunk.pages[0].dictionary == (name == "dictionary")
        found = read(chunk)
        assert found.dtype == values.dtype
        np.testing.assert_array_equal(found, values, strict=True)


@pytest.mark.parametrize("classes", [1, 2, 3, 7, 8, 9, 10, 31, 64, 100, 1000])
def test_any_number_of_classes(tmp_path, classes):
    values = numbers(1500, classes)
    path = write(tmp_path / "a.parquet", lists(values), data_page_size=50_000, use_dictionary=False)
    np.testing.assert_array_equal(read(chunk_of(path, classes)), values)


def test_all_kinds_of_lists(tmp_path):
    values = numbers()
    flat = pa.array(values.reshape(-1))
    kinds = [
        pa.FixedSizeListArray.from_arrays(flat, 10),
        pa.LargeListArray.from_arrays(np.arange(0, values.size + 1, 10), flat),
        lists(values).cast(pa.list_(pa.field("element", pa.float32(), nullable=False))),
    ]
    for column in kinds:
        for nullable in (True, False):
            schema = pa.schema([pa.field("logits", column.type, nullable=nullable)])
            pq.write_table(pa.table([column], schema=schema), tmp_path / "a.parquet", use_dictionary=False)
            np.testing.assert_array_equal(read(chunk_of(tmp_path / "a.parquet")), values)


@pytest.mark.parametrize("encode", [forge.mixed, forge.packed, forge.repeated])
@pytest.mark.parametrize("codec", list(forge.CODECS))
def test_pages_may_begin_inside_a_row(tmp_path, encode, codec):
    values = numbers()
    pages = forge.list_pages(values, [1, 9, 4003, 4010, 17_777], encode)
    chunk = chunk_of(forged(tmp_path / "a.parquet", pages, codec=codec))
    np.testing.assert_array_equal(read(chunk), values)
    np.testing.assert_array_equal(read(chunk, 64, 400), values[400:])


def test_blocks_have_the_rows_asked_for_and_are_aligned(tmp_path):
    values = numbers()
    chunk = chunk_of(write(tmp_path / "a.parquet", lists(values), data_page_size=20_000, use_dictionary=False))
    assert len(chunk.pages) > 3
    blocks = list(chunk.blocks(700))
    assert [len(block) for block in blocks] == [700, 700, 700, 700, 200]
    assert all(block.flags.aligned and block.flags.c_contiguous for block in blocks)
    np.testing.assert_array_equal(np.concatenate(blocks), values)  # earlier blocks are still what they were
    for rows in (1, ROWS, 10 * ROWS):
        np.testing.assert_array_equal(read(chunk, rows), values)


def test_parts_are_read_by_threads_at_the_same_time(tmp_path):
    values = numbers(30_000)
    options = {"data_page_size": 20_000, "dictionary_pagesize_limit": 20_000, "write_batch_size": 64}
    chunk = chunk_of(write(tmp_path / "a.parquet", lists(values), **options))
    assert chunk.pages[0].dictionary
    found = np.zeros_like(values)

    def fill(start: int, stop: int) -> None:
        found[start:stop] = next(chunk.blocks(stop - start, start))

    threads = [threading.Thread(target=fill, args=(start, start + 7500)) for start in range(0, 30_000, 7500)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(found, values)


def unfit(column: pa.Array | None = None, classes: int = 10, **options: Any) -> Any:
    return pytest.param(column, classes, options, id=f"{column.type if column is not None else ''} {classes} {options}")


@pytest.mark.parametrize(
    ("column", "classes", "options"),
    [
        unfit(classes=11),
        unfit(classes=1),
        unfit(classes=0),
        unfit(data_page_version="2.0"),
        unfit(compression="brotli"),
        unfit(compression="gzip"),
        unfit(compression="lz4"),
        unfit(use_dictionary=False, use_byte_stream_split=["logits.list.element"]),
        unfit(row_group_size=10),
        unfit(lists(np.ones((ROWS, 10), np.int32))),
        unfit(pa.array(np.ones(ROWS)), classes=1),
        unfit(pa.array([[[1.0] * 5] * 2] * ROWS)),
        unfit(pa.array([[1.0] * 10] * (ROWS - 2) + [[1.0] * 11, [1.0] * 8])),  # and the empty place of no list
    ],
)
def test_other_columns_are_left_to_arrow_at_once(tmp_path, column, classes, options):
    column = lists(numbers()) if column is None else column
    path = write(tmp_path / "a.parquet", column, **options)
    with pytest.raises(UnfitError):
        chunk_of(path, classes)


def test_ragged_lists_and_nulls_are_left_to_arrow_from_their_block_on(tmp_path):
    good = [[float(x)] * 10 for x in range(2000)]
    for bad in ([[1.0] * 11, [1.0] * 9], [[1.0] * 10, [*[1.0] * 9, None]], [[1.0] * 19, None]):
        column = pa.array([*good, *bad, *good])
        path = write(tmp_path / "a.parquet", column, data_page_size=1 << 13, use_dictionary=False)
        blocks, rest = until_arrow(chunk_of(path), 100)
        assert rest == 100 * len(blocks)
        assert 1500 < rest <= 2000
        assert np.concatenate(blocks).tolist() == good[:rest]


def test_a_row_that_goes_on_in_the_next_page_is_not_handed_out(tmp_path):
    """A page may end with the K-th value of a list, and the next begin with one more."""
    values = numbers()
    first, second = forge.list_pages(values, [10_000])
    levels = [1, *([0] + [1] * 9) * 1999, 0, *[1] * 8]
    path = forged(tmp_path / "a.parquet", [first, replace(second, repetition=forge.mixed(levels, 1))], rows=ROWS)
    blocks, rest = until_arrow(chunk_of(path), 500)
    assert rest == 500
    assert len(blocks) == 1
    assert pq.read_table(path)["logits"][999].as_py() == pytest.approx(values.reshape(-1)[9990:10_001].tolist())


def test_a_wrong_checksum_is_left_to_arrow_which_refuses_it(tmp_path):
    values = numbers()
    pages = [replace(page, crc=0) for page in forge.list_pages(values, [10_000, 20_000])]
    np.testing.assert_array_equal(read(chunk_of(forged(tmp_path / "a.parquet", pages))), values)
    pages[1] = replace(pages[1], crc=1)
    path = forged(tmp_path / "b.parquet", pages)
    blocks = chunk_of(path).blocks(500)
    next(blocks)
    with pytest.raises(UnfitError, match="checksum"):
        next(blocks)
    with pytest.raises(OSError, match="CRC"):
        pq.read_table(path, page_checksum_verification=True)


@pytest.mark.parametrize("codec", ["snappy", "zstd"])
def test_uncompressed_data_must_have_the_size_that_the_header_says(tmp_path, codec):
    """Arrow's codecs leave the rest of a larger buffer as it was: it would be read as numbers."""
    values = np.zeros((ROWS, 10), np.float32)
    [page] = forge.list_pages(values, [])
    size = 8 + len(page.repetition) + len(page.definition) + len(page.values)
    for change in (-4, -1, 1, 4):
        path = forged(tmp_path / "a.parquet", [replace(page, header={"size": size + change})], codec=codec)
        with pytest.raises((UnfitError, OSError)):
            list(chunk_of(path).blocks(100))


def test_a_page_of_impossible_size_needs_no_memory(tmp_path):
    [page] = forge.list_pages(numbers(), [])
    for name in ("size", "stored", "count"):
        path = forged(tmp_path / "a.parquet", [replace(page, header={name: (1 << 31) - 1})], codec="zstd")
        before = pa.default_memory_pool().max_memory()
        with pytest.raises(UnfitError):
            list(chunk_of(path).blocks(100))
        assert pa.default_memory_pool().max_memory() - before < 1 << 20


def test_a_few_bytes_that_say_billions_of_values_need_no_memory(tmp_path):
    """One run each for levels and indices; rows of one value, so that nothing else has to be there."""
    count = (1 << 31) - 1
    words = forge.ForgedPage(b"", b"", np.ones(2, "<f4").tobytes(), 2, dictionary=True)
    runs = [forge.varint(count << 1) + bytes([level]) for level in (0, 3, 1)]
    path = forged(tmp_path / "a.parquet", [words, forge.ForgedPage(*runs[:2], b"\1" + runs[2], count, 8)], rows=count)
    before = pa.default_memory_pool().max_memory()
    with pytest.raises(UnfitError, match="size"):
        chunk_of(path, 1)
    assert pa.default_memory_pool().max_memory() - before < 1 << 20


def test_levels_that_almost_repeat_take_no_longer_than_they_are():
    """Each run is right, but no cycle comes back; the time must not grow with the square of the length."""
    period = 1 << 12
    lengths = np.arange(1, 900)
    levels = (np.arange(8 * lengths.sum()) % period > 0).astype(np.uint8)
    starts = 8 * np.concatenate([[0], np.cumsum(lengths)])
    data = b"".join(forge.packed(levels[a:b], 1) for a, b in itertools.pairwise(starts.tolist()))
    start = time.process_time()
    Levels(period, 0, 1, 1).check(data, len(levels), 0)
    assert time.process_time() - start < 5  # seconds; about 0.01


def test_many_tiny_pages_are_left_to_arrow(tmp_path):
    path = forged(tmp_path / "a.parquet", forge.list_pages(numbers(), range(10, 30_000, 10)))
    with pytest.raises(UnfitError, match="small pages"):
        chunk_of(path)


def test_a_file_cut_short_under_way_is_left_to_arrow(tmp_path):
    path = write(tmp_path / "a.parquet", lists(numbers()), data_page_size=20_000, use_dictionary=False)
    chunk = chunk_of(path)
    blocks = chunk.blocks(100)
    next(blocks)
    with path.open("r+b") as stream:
        stream.truncate(chunk.pages[3].offset + 10)
    with pytest.raises(UnfitError, match="ends early"):
        list(blocks)


ENCODERS = [forge.mixed, forge.packed, forge.repeated]


@pytest.mark.parametrize("encode", ENCODERS)
@pytest.mark.parametrize("classes", [1, 2, 3, 8, 10, 50])
def test_levels_are_told_from_all_others(encode, classes):
    """Each single change of a sequence is noticed, wherever the page begins and ends."""
    random = np.random.default_rng(classes)
    expected = Levels(classes, 0, int(classes > 1), 1)
    for _ in range(40):
        first, count = int(random.integers(classes)), int(random.integers(1, 400))
        levels = [int(position % classes > 0) for position in range(first, first + count)]
        expected.check(encode(levels, 1), count, first)
        at = int(random.integers(count))
        levels[at] ^= 1
        with pytest.raises(UnfitError):
            expected.check(encode(levels, 1), count, first)
        with pytest.raises((UnfitError, IndexError)):
            expected.check(encode(levels[:-1], 1), count + 8, first)


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x01", b"\x00\x00", b"\x10", b"\xff\xff\xff\xff\xff\x01", b"\x03"])
def test_levels_that_say_nothing_are_unfit(data):
    with pytest.raises((UnfitError, IndexError)):
        Levels(4, 0, 1, 1).check(data, 8, 0)


@pytest.mark.parametrize("width", range(1, 26))
def test_indices_of_every_width(width):
    random = np.random.default_rng(width)
    for count in (1, 8, 9, 1000):
        values = random.integers(1 << width, size=count)
        bits = (np.resize(values, -(-count // 8) * 8)[:, None] >> np.arange(width)) & 1
        packed = forge.varint(-(-count // 8) << 1 | 1) + np.packbits(bits.astype(np.uint8), bitorder="little").tobytes()
        np.testing.assert_array_equal(indices(bytes([width]) + packed, count), values)


@pytest.mark.parametrize("lengths", [[8] * 9, [8] * 5 + [16] * 4 + [8], [512] * 3 + [24], [1024] * 3, [16, 16, 5]])
def test_indices_in_many_runs(lengths):
    random = np.random.default_rng(len(lengths))
    values, text = [], b""
    for length in lengths:
        some = random.integers(32, size=length).tolist()
        values += some
        text += forge.packed(some, 5)
    np.testing.assert_array_equal(indices(b"\5" + text, len(values)), values)
    for damaged in (text[:-1], text + b"\0", text + forge.packed([1] * 8, 5), forge.repeated([7] * 8, 5) + text):
        with pytest.raises((UnfitError, IndexError)):
            indices(b"\5" + damaged, len(values))


def test_indices_in_very_short_runs_are_left_to_arrow():
    with pytest.raises(UnfitError):
        indices(b"\1" + b"\3\7" * 1000, 8000)


@pytest.mark.parametrize("width", [0, 26, 255])
def test_indices_of_other_widths_are_unfit(width):
    with pytest.raises(UnfitError):
        indices(bytes([width, 2, 0, 0, 0, 0]), 1)


def test_numbers_in_headers_are_bounded():
    assert varint(b"\xff\xff\xff\xff\x0f", 0) == ((1 << 32) - 1, 5)
    for data in (b"\xff\xff\xff\xff\x1f", b"\x80\x80\x80\x80\x80\x00"):
        with pytest.raises(UnfitError):
            varint(data, 0)
    with pytest.raises(UnfitError):
        read_value(b"\x1c" * 5000, 0)  # a struct in a struct in a struct
    with pytest.raises(UnfitError):
        read_value(b"\x19" * 5000, 0)  # a list
    with pytest.raises(IndexError):
        read_value(b"\x18\xff\xff\xff\xff\x0f" + bytes(100), 0)  # four billion bytes of text


def test_damaged_pages_never_give_other_numbers(tmp_path):
    verdicts = fuzz_pages.campaign(170, 2, str(tmp_path))
    assert verdicts["equal"] > 20
    assert verdicts["left"] > 20
    assert verdicts["partly"] > 1
