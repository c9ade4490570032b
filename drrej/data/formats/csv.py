"""CSV files: a header and rows of text. They are cut into pieces at ends of rows, which Arrow parses one by one.

What type a column has, all rows tell: numbers if all of them are, text otherwise. Only columns that are floating-point
in the first piece, as scores are, are taken to stay so: where one of them is no number after all, reading ends with its
place. Cells that say nan or inf are such numbers, an empty cell is null.
"""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from drrej.data.files import DumpFile, Identity
from drrej.data.formats import (
    FileInfo,
    Request,
    compression_of,
    cut,
    looked_at,
    open_text,
    read_range,
    reading,
    with_compressions,
)
from drrej.errors import DumpError
from drrej.records import dataclass

_NULLS = ["", "null", "NULL", "None", "NA", "N/A", "n/a", "#N/A"]
"""No spelling of NaN: that is a number, and a row that has it is told so."""

_CELLS = re.compile(r"Row #(\d+): Expected \d+ columns, got (\d+)")
_LIST = re.compile(r"\s*\[\s*[-+]?(\d|\.\d|nan\b|inf|Infinity|NaN\b)[^\[\]]*,", re.IGNORECASE)
LISTS = pa.list_(pa.float64())
"""The type of cells such as "[0.5, 1.5]", as pandas writes a column of lists."""

_TABS = with_compressions(".tsv")
_SEPARATORS = ",;\t|"
_LONGEST_HEADER = 64 << 20
_QUOTE, _NEWLINE = b'"\n'
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Place:
    """Where a piece is: its bytes (`stop` None: all of a compressed file), its first row, and how it is parsed."""

    start: int
    stop: int | None
    first_row: int
    separator: str
    schema: pa.Schema


class CsvReader:
    """Reads CSV files, also with other separators; .gz and .zst too."""

    format = "CSV"
    endings = with_compressions(".csv", ".tsv")

    def reads(self, part: DumpFile) -> bool:
        """By the ending of its name."""
        return part.ends_with(self.endings)

    def contents(self, part: DumpFile, opened: str) -> FileInfo:  # noqa: ARG002 - what was found is kept by identity
        """The columns, and pieces of about the same size as row groups; a compressed file is one."""
        return looked_at(part, self.format, lambda identity: _look(part, identity))

    def batches(self, request: Request) -> Iterator[pa.RecordBatch]:
        """The rows of a piece, or of all of a compressed file."""
        part, place = request.part, request.place
        assert isinstance(place, Place)
        parser = _Parser(part, place.schema.names, place.separator)
        with reading(part):
            if place.stop is not None:
                yield from parser.batches(request, read_range(part, place.start, place.stop), place)
                return
            with open_text(part) as stream:
                head = _header(stream, part)
                for chunk in cut(head.rest, head.size, parser.end_of_rows, part.name):
                    for batch in parser.batches(request, chunk.text, place):
                        place = replace(place, first_row=place.first_row + batch.num_rows)
                        yield batch


class _Rest:
    """What is left of a stream of which a little too much was read."""

    def __init__(self, first: bytes, stream: Any) -> None:
        self._first, self._stream = first, stream

    def read(self, size: int) -> bytes:
        if self._first:
            first, self._first = self._first, b""
            return first + bytes(self._stream.read(max(0, size - len(first))))
        piece: bytes = self._stream.read(size)
        return piece


# Looking


def _look(part: DumpFile, identity: Identity) -> FileInfo:
    with open_text(part) as stream:
        head = _header(stream, part)
        parser = _Parser(part, head.names, head.separator)
        types: dict[str, pa.DataType] = {}
        rows: list[int] = []
        ends: list[int] = []
        for chunk in cut(head.rest, head.size, parser.end_of_rows, part.name):
            open_ = [name for name in head.names if types.get(name) != pa.float64()]
            table = parser.table(chunk.text, open_ or head.names[:1], {}, sum(rows))
            for name in open_:
                types[name] = _common(types.get(name, pa.null()), _kind(table.column(name)))
            rows.append(table.num_rows)
            ends.append(chunk.start + len(chunk.text))
    schema = pa.schema([(name, _stored(types.get(name, pa.null()))) for name in head.names])
    if compression_of(part) is not None:
        whole = Place(0, None, 0, head.separator, schema)
        return FileInfo(schema, (sum(rows),), identity, (whole,), typed=False)
    first_rows = itertools.accumulate(rows, initial=0)
    spans = zip([head.size, *ends], ends, first_rows, strict=False)
    places = tuple(Place(start, stop, row, head.separator, schema) for start, stop, row in spans)
    return FileInfo(schema, tuple(rows), identity, places, typed=False)


class _Head(NamedTuple):
    """What the first line tells: names, separator, how many bytes it has; and what follows it."""

    names: list[str]
    separator: str
    size: int
    rest: _Rest


def _header(stream: Any, part: DumpFile) -> _Head:
    text = b""
    while b"\n" not in text and len(text) < _LONGEST_HEADER:
        piece = stream.read(1 << 16)
        if not piece:
            break
        text += piece
    line, newline, rest = text.partition(b"\n")
    if b"\0" in line:
        raise _not_csv(part, "it is not text in UTF-8")
    try:
        header = line.removeprefix(_BOM).decode().rstrip("\r")
    except UnicodeDecodeError:
        raise _not_csv(part, "its header is not text in UTF-8") from None
    if not header.strip():
        raise _not_csv(part, "there is no header in its first line")
    if header.count('"') % 2:
        raise _not_csv(part, "a name in its header has an end of line, or a quote is missing")
    separator = _separator(header, part)
    names = next(csv.reader(io.StringIO(header), delimiter=separator))
    names = [name.strip() or f"Unnamed: {i}" for i, name in enumerate(names)]  # an index without a name, of pandas
    if all(map(_is_number, names)) and names != [str(i) for i in range(len(names))]:
        raise DumpError(
            f"{part.name}: its first line holds numbers ('{names[0]}'), not the names of columns; write a header such "
            "as logit_0,logit_1,label"
        )
    if len(set(names)) < len(names):
        repeated = next(name for name in names if names.count(name) > 1)
        raise DumpError(f"{part.name}: column '{repeated}' occurs twice; rename one of them")
    return _Head(names, separator, len(line) + len(newline), _Rest(rest, stream))


def _not_csv(part: DumpFile, what: str) -> DumpError:
    return DumpError(f"{part.name}: not a readable CSV file ({what}); is it complete, and is it CSV?")


def _separator(header: str, part: DumpFile) -> str:
    """The separator that the header has; of several the first in the order of `_SEPARATORS`."""
    if part.ends_with(_TABS):
        return "\t"
    plain = "".join(header.split('"')[::2])  # what is outside of quotes
    return next((mark for mark in _SEPARATORS if mark in plain), ",")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return text.lower() not in ("nan", "inf", "infinity")  # which may be names


def _kind(column: pa.ChunkedArray) -> pa.DataType:
    """The type of a column of a piece: text that begins as a list of numbers does is one."""
    if pa.types.is_string(column.type):
        first = next((cell for cell in column.slice(0, 100).to_pylist() if cell), "")
        if _LIST.match(first):
            return LISTS
    return column.type


def _common(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """The type that holds what is written in two pieces."""
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if {one, other} == {pa.int64(), pa.float64()}:
        return pa.float64()
    return pa.string()


def _stored(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_null(kind) or pa.types.is_binary(kind) else kind


# Parsing


@dataclass(frozen=True)
class _Parser:
    """Parses pieces of a file."""

    part: DumpFile
    names: Sequence[str]
    separator: str

    def end_of_rows(self, text: bytes, last: bool) -> int:
        """How much of a text is whole rows: ends of lines inside of quotes are none of rows."""
        if b'"' not in text:
            return text.rfind(b"\n") + 1
        data = np.frombuffer(text, np.uint8)
        quotes = np.flatnonzero(data == _QUOTE)
        newlines = np.flatnonzero(data == _NEWLINE)
        ends = newlines[np.searchsorted(quotes, newlines) % 2 == 0]
        end = len(text) if last else int(ends[-1]) + 1 if ends.size else 0
        # Every other quote opens a cell, if each of them stands at the edge of one; doubled ones close and open.
        opening, closing = quotes[0::2], quotes[1::2]
        beside = np.frombuffer(b'"\r\n' + self.separator.encode(), np.uint8)
        edges = np.concatenate(
            [opening[(opening > 0) & (opening < end)] - 1, closing[(closing < end) & (closing < data.size - 1)] + 1]
        )
        wrong = edges[~np.isin(data[edges], beside)]
        if wrong.size or (last and quotes.size % 2):
            place = int(wrong.min()) if wrong.size else int(quotes[-1])
            near = text[max(0, place - 20) : place + 20].decode(errors="replace")
            raise DumpError(
                f"{self.part.name}: a quote is not where a cell begins or ends (near {near!r}); write cells with "
                'quotes in quotes, and double those inside: "5"" pipe"'
            )
        return end

    def table(self, text: bytes, wanted: Sequence[str], types: dict[str, pa.DataType], first_row: int) -> pa.Table:
        """Some columns of a piece; types that are not given are found out."""
        from pyarrow import csv as pacsv

        try:
            return pacsv.read_csv(
                pa.BufferReader(text),
                pacsv.ReadOptions(use_threads=False, column_names=list(self.names), block_size=len(text) + 1),
                pacsv.ParseOptions(
                    delimiter=self.separator,
                    newlines_in_values=b'"' in text,
                    ignore_empty_lines=len(self.names) > 1,  # of one column, an empty line is a cell
                ),
                pacsv.ConvertOptions(include_columns=list(wanted), column_types=types, null_values=_NULLS),
            )
        except pa.ArrowInvalid as error:
            wrong = _CELLS.search(str(error))
            if wrong is None:
                raise
            raise DumpError(
                f"{self.part.name}: row {first_row + int(wrong[1]) - 1}, counted from 0, has {wrong[2]} cells but the "
                f"header names {len(self.names)} columns; is a separator or a quote missing?"
            ) from None

    def batches(self, request: Request, text: bytes, place: Place) -> Iterator[pa.RecordBatch]:
        """The columns of a request, of a piece whose first row is that of the place."""
        types = {name: place.schema.field(name).type for name in request.columns if name in place.schema.names}
        plain = {name: pa.string() if kind == LISTS else kind for name, kind in types.items()}
        try:
            table = self.table(text, [*types], plain, place.first_row)
        except pa.ArrowInvalid:
            self._name_the_cell(text, types, place.first_row)
            raise
        for number, (name, kind) in enumerate(types.items()):
            if kind == LISTS:
                table = table.set_column(number, name, self._lists(table.column(name), name, place.first_row))
        yield from table.to_batches(max_chunksize=request.rows)

    def _lists(self, cells: pa.ChunkedArray, name: str, first_row: int) -> pa.Array:
        """Lists of numbers that are written in cells."""
        rows = []
        for row, cell in enumerate(cells.to_pylist(), first_row):
            try:
                rows.append(_numbers(cell))
            except ValueError:
                raise DumpError(
                    f"{self.part.name}: column '{name}': row {row}, counted from 0, holds '{cell[:40]}', which is not "
                    "a list of numbers as in the rows before; fix the cell"
                ) from None
        return pa.array(rows, LISTS)

    def _name_the_cell(self, text: bytes, types: dict[str, pa.DataType], first_row: int) -> None:
        """Raise about the first cell that is not of its column's type."""
        for name, kind in types.items():
            cells = self.table(text, [name], {name: pa.large_binary()}, first_row).column(0).to_pylist()
            for row, cell in enumerate(cells):
                shown = (cell or b"").decode(errors="replace")
                if shown not in _NULLS and not _is_of(shown, kind):
                    what = "a number" if pa.types.is_floating(kind) or pa.types.is_integer(kind) else f"{kind}"
                    raise DumpError(
                        f"{self.part.name}: column '{name}': row {first_row + row}, counted from 0, holds "
                        f"'{shown[:40]}', which is not {what} as in the rows before; fix the cell"
                    )


def _numbers(cell: str | None) -> list[float] | None:
    if cell is None or not cell.strip():
        return None
    inside = cell.strip()
    if inside[0] != "[" or inside[-1] != "]" or "_" in inside:
        raise ValueError(cell)
    return [float(number) for number in inside[1:-1].split(",")] if inside[1:-1].strip() else []


def _is_of(cell: str, kind: pa.DataType) -> bool:
    """Whether a cell is of a type, as far as Python can tell."""
    try:
        if pa.types.is_floating(kind):
            return "_" not in cell and float(cell) is not None
        if pa.types.is_integer(kind):
            return "_" not in cell and abs(int(cell)) < 1 << 63
        return pa.types.is_string(kind) is False or "\N{REPLACEMENT CHARACTER}" not in cell
    except ValueError:
        return False
