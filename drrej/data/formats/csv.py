"""CSV files: a header and rows of text, which Arrow parses block by block into an Arrow file.

A column has the type that its first block shows; where a later cell does not fit, whole numbers become floating-point
ones or text, and all is read again. Only a column of floating-point numbers, as scores are, stays so: there a cell that
is none is an error with its place. Cells that say nan or inf are such numbers, an empty cell is null.

Whole numbers and times are such only if they would be written back to the letter: 007, +49 and 0x10 stay text, as do
times with a zone. So do numbers too long for any type; up to 2^64 they are whole numbers.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from drrej.data import files
from drrej.data.columns import NOT_A_NUMBER, numbered
from drrej.data.files import DumpFile, open_text, with_compressions
from drrej.data.formats.arrow import spooled, write_batches
from drrej.errors import DumpError

_NULLS = ["", "null", "NULL", "None", "NA", "N/A", "n/a", "#N/A"]
"""No spelling of NaN: that is a number, and a row that has it is told so."""

LISTS = pa.list_(pa.float64())
"""The type of cells such as "[0.5, 1.5]", as pandas writes a column of lists."""

_LIST = re.compile(r"\s*\[\s*[-+]?(\d|\.\d|nan\b|inf|Infinity|NaN\b)[^\[\]]*,", re.IGNORECASE)
_CELLS = re.compile(r"Row #(\d+): Expected \d+ columns, got (\d+)")
_CELL = re.compile(
    r"CSV column #(\d+): Row #(\d+): CSV conversion error to [^:]*: (?:invalid value '(.*)')?", re.DOTALL
)
_TABS = with_compressions(".tsv")
_SEPARATORS = ",;\t|"
_LONGEST_HEADER = 64 << 20
_LINE_END, _LINE_ENDED = re.compile(rb"\r\n?|\n"), re.compile(rb"\n|\r[^\n]")
"""Where a line ends, and enough bytes to tell; old programs write a carriage return alone."""
_QUOTE = ord('"')
_BOM = b"\xef\xbb\xbf"

_UNFAITHFUL = r"^(\+[0-9]+|[+-]?0[0-9]+|[+-]?[0-9]{16,})$"
"""Whole numbers that a floating-point number does not write back: phone numbers, zip codes and long ids."""

Types = dict[str, pa.DataType]


class _OtherTypesError(Exception):
    """The cells need other types than those so far."""

    def __init__(self, types: Types) -> None:
        super().__init__(types)
        self.types = types


def write(file: DumpFile, path: str) -> None:
    """Convert a CSV file."""
    types: Types = {}
    block = files.BLOCK
    while True:
        with open_text(file) as stream:
            header = _header(stream, file)
            rows = _Rows(header, stream, file)
            try:
                return write_batches(path, *_converted(rows, header, types, block, file))
            except _OtherTypesError as other:
                types = types | other.types
            except pa.ArrowInvalid as error:
                if "straddling" not in str(error):
                    types = _wider(str(error), rows.types, types, header, file)
                elif block >= files.LONGEST_ROW:
                    longest = files.LONGEST_ROW >> 20
                    raise DumpError(
                        f"{file.name}: a row is longer than {longest} MB; is a quote or an end of line missing?"
                    ) from None
                else:
                    block *= 8


CSV = spooled("CSV", with_compressions(".csv", ".tsv"), write)


class _Header(NamedTuple):
    """What the first line tells: names, those of them that are numbered, and separator; and what was read behind it."""

    names: list[str]
    numbered: frozenset[str]
    separator: str
    rest: bytes


def _header(stream: Any, file: DumpFile) -> _Header:
    text = b""
    while not _LINE_ENDED.search(text) and len(text) < _LONGEST_HEADER:
        piece = stream.read(1 << 16)
        if not piece:
            break
        text += piece
    line, *others = _LINE_END.split(text, maxsplit=1)
    rest = others[0] if others else b""
    if b"\0" in line:
        raise _not_csv(file, "it is not text in UTF-8")
    try:
        header = line.removeprefix(_BOM).decode()
    except UnicodeDecodeError:
        raise _not_csv(file, "its header is not text in UTF-8") from None
    if not header.strip():
        raise _not_csv(file, "there is no header in its first line")
    if header.count('"') % 2:
        raise _not_csv(file, "a name in its header has an end of line, or a quote is missing")
    separator = _separator(header, file)
    names = next(csv.reader(io.StringIO(header), delimiter=separator))
    names = [name.strip() or f"Unnamed: {i}" for i, name in enumerate(names)]  # an index without a name, of pandas
    if all(map(_is_number, names)) and names != [str(i) for i in range(len(names))]:
        raise DumpError(
            f"{file.name}: its first line holds numbers ('{names[0]}'), not the names of columns; write a header such "
            "as logit_0,logit_1,label"
        )
    if len(set(names)) < len(names):
        repeated = next(name for name in names if names.count(name) > 1)
        raise DumpError(f"{file.name}: column '{repeated}' occurs twice; rename one of them")
    in_families = frozenset(name for family in numbered(names).values() for name in family)
    return _Header(names, in_families, separator, rest)


def _not_csv(file: DumpFile, what: str) -> DumpError:
    return DumpError(f"{file.name}: not a readable CSV file ({what}); is it complete, and is it CSV?")


def _separator(header: str, file: DumpFile) -> str:
    """The separator that the header has; of several the first in the order of `_SEPARATORS`."""
    if file.ends_with(_TABS):
        return "\t"
    plain = "".join(header.split('"')[::2])  # what is outside of quotes
    return next((mark for mark in _SEPARATORS if mark in plain), ",")


def _is_number(text: str, names: bool = True) -> bool:
    """Whether a text is a number; nan and inf may be names."""
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text and not (names and text.lower() in ("nan", "inf", "infinity"))


def _not_a_number(name: str, row: int, cell: str, file: DumpFile) -> DumpError:
    return DumpError(
        f"{file.name}: column '{name}': row {row}, counted from 0, holds '{cell[:40]}', which is not "
        "a number as in the rows before; fix the cell"
    )


class _Rows(io.RawIOBase):
    """The bytes behind the header, on their way to Arrow, which takes quotes inside of cells as they come.

    Each must stand at the edge of a cell: every other one opens a cell, and doubled ones close and open. Where one is
    missing, many rows would become one cell.
    """

    def __init__(self, header: _Header, stream: Any, file: DumpFile) -> None:
        self._rest, self._stream, self._name = header.rest, stream, file.name
        self._edges = np.frombuffer(b'"\r\n' + header.separator.encode(), np.uint8)
        self._quoted = False
        self._last = b"\n"
        self.types: Types = {}
        """Of the columns, as Arrow has found them in the first block."""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        piece, self._rest = self._rest[:size], self._rest[size:]
        piece += self._stream.read(size - len(piece)) if len(piece) < size else b""
        self._check(piece)
        return piece

    def _check(self, piece: bytes) -> None:
        """Look at the quotes of a piece, but for one at its end, which the next piece begins with."""
        text = self._last + (piece or b"\n")
        data = np.frombuffer(text, np.uint8)
        quotes = np.flatnonzero(data[1:-1] == _QUOTE) + 1 if b'"' in text else np.empty(0, np.intp)
        opens = (np.arange(quotes.size) % 2 == 0) != self._quoted
        wrong = quotes[~np.isin(data[np.where(opens, quotes - 1, quotes + 1)], self._edges)]
        self._quoted = self._quoted != bool(quotes.size % 2)
        if wrong.size or (self._quoted and not piece):
            place = int(wrong[0]) if wrong.size else len(text)
            near = text[max(0, place - 20) : place + 20].decode(errors="replace")
            raise DumpError(
                f"{self._name}: a quote is not where a cell begins or ends (near {near!r}); write cells with "
                'quotes in quotes, and double those inside: "5"" pipe"'
            )
        self._last = text[-2:]


def _converted(
    rows: _Rows, header: _Header, types: Types, block: int, file: DumpFile
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The columns in types that are found out where they are not given, and the rows."""
    from pyarrow import csv as pacsv

    exact = {name for name, kind in types.items() if _needs_check(name, kind, header)}
    given = {name: pa.string() if kind == LISTS or name in exact else kind for name, kind in types.items()}
    try:
        reader = pacsv.open_csv(
            pa.PythonFile(rows, "r"),
            pacsv.ReadOptions(use_threads=False, column_names=header.names, block_size=block),
            pacsv.ParseOptions(
                delimiter=header.separator,
                newlines_in_values=True,
                ignore_empty_lines=len(header.names) > 1,  # of one column, an empty line is a cell
            ),
            pacsv.ConvertOptions(column_types=given, null_values=_NULLS),
        )
    except pa.ArrowInvalid as error:
        if "Empty CSV file" not in str(error):
            raise
        return pa.schema([(name, pa.string()) for name in header.names]), iter(())
    rows.types = dict(zip(header.names, reader.schema.types, strict=True)) | {name: types[name] for name in exact}
    unchecked = {name: kind for name, kind in rows.types.items() if name not in exact}
    if found := {name: kind for name, kind in unchecked.items() if _needs_check(name, kind, header)}:
        raise _OtherTypesError(found)
    first = next(reader, None)
    lists = {name for name in header.names if types.get(name) == LISTS or _begins_with_a_list(first, name)}
    stored = [LISTS if name in lists else _stored(kind) for name, kind in rows.types.items()]
    fields = [pa.field(name, kind) for name, kind in zip(header.names, stored, strict=True)]
    texts = {name: _first_text(first, name) for name in header.numbered if rows.types[name] == pa.string()}
    schema = pa.schema([field.with_metadata(texts.get(field.name)) for field in fields])

    def batches() -> Iterator[pa.RecordBatch]:
        row, batch = 0, first
        while batch is not None:
            columns = [
                _lists(column, name, row, file)
                if name in lists
                else _exact(column, name, types[name], row, file)
                if name in exact
                else column.cast(schema.field(name).type)
                for name, column in zip(header.names, batch.columns, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)
            row += batch.num_rows
            batch = next(reader, None)

    return schema, batches()


def _needs_check(name: str, kind: pa.DataType, header: _Header) -> bool:
    """Whether the cells of a column are compared with what was read; not those of scores, which are numbers."""
    if pa.types.is_floating(kind):
        return name not in header.numbered
    return bool(pa.types.is_integer(kind) or pa.types.is_temporal(kind))


def _exact(written: pa.Array, name: str, kind: pa.DataType, first_row: int, file: DumpFile) -> pa.Array:
    """The values of cells; raises `_OtherTypesError` where they would not be written back to the letter."""
    import pyarrow.compute as pc

    cells = pc.utf8_trim_whitespace(written)
    cells = pc.if_else(pc.is_in(cells, value_set=pa.array(_NULLS)), pa.scalar(None, pa.string()), cells)
    values = _faithful(cells, kind)
    if values is not None:
        return values
    if pa.types.is_floating(kind):
        for row, cell in enumerate(cells.to_pylist(), first_row):
            if cell is not None and not _is_number(cell, names=False):
                raise _not_a_number(name, row, cell, file)
    wider = [] if pa.types.is_unsigned_integer(kind) or pa.types.is_temporal(kind) else [pa.uint64()]
    wider += [pa.float64()] if pa.types.is_signed_integer(kind) else []
    raise _OtherTypesError({name: next((kind for kind in wider if _faithful(cells, kind) is not None), pa.string())})


def _faithful(cells: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """The values of cells in a type that writes them back to the letter, if it is not one of fractions; else None."""
    import pyarrow.compute as pc

    try:
        values = cells.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    if pa.types.is_floating(kind):
        return None if pc.any(pc.match_substring_regex(cells, _UNFAITHFUL)).as_py() else values
    return values if values.cast(pa.string()).equals(cells) else None


def _stored(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_null(kind) else kind


def _begins_with_a_list(batch: pa.RecordBatch | None, name: str) -> bool:
    """Whether a column is text whose first cell begins as a list of numbers does."""
    if batch is None or not pa.types.is_string(batch.schema.field(name).type):
        return False
    return bool(_LIST.match(next((cell for cell in batch.column(name).slice(0, 100).to_pylist() if cell), "")))


def _first_text(batch: pa.RecordBatch | None, name: str) -> dict[bytes, str] | None:
    """A note of the first cell of a column of text that is not a number."""
    if batch is None or not pa.types.is_string(batch.schema.field(name).type):
        return None
    for row, cell in enumerate(batch.column(name).to_pylist()):
        if cell not in (None, *_NULLS) and not _is_number(cell, names=False):
            return {NOT_A_NUMBER: f": row {row}, counted from 0, holds '{cell[:40]}'"}
    return None


def _lists(cells: pa.Array, name: str, first_row: int, file: DumpFile) -> pa.Array:
    """Lists of numbers that are written in cells."""
    rows = []
    for row, cell in enumerate(cells.to_pylist(), first_row):
        try:
            rows.append(_numbers(cell))
        except ValueError:
            raise DumpError(
                f"{file.name}: column '{name}': row {row}, counted from 0, holds '{cell[:40]}', which is not "
                "a list of numbers as in the rows before; fix the cell"
            ) from None
    return pa.array(rows, LISTS)


def _numbers(cell: str | None) -> list[float] | None:
    if cell is None or not cell.strip():
        return None
    inside = cell.strip()
    if inside[0] != "[" or inside[-1] != "]" or "_" in inside:
        raise ValueError(cell)
    return [float(number) for number in inside[1:-1].split(",")] if inside[1:-1].strip() else []


def _wider(error: str, found: Types, types: Types, header: _Header, file: DumpFile) -> Types:
    """Types in which the cell that Arrow complains of can be read; raises where there are none."""
    cells, cell = _CELLS.search(error), _CELL.search(error)
    if cells is not None:
        raise DumpError(
            f"{file.name}: row {int(cells[1]) - 1}, counted from 0, has {cells[2]} cells but the header names "
            f"{len(header.names)} columns; is a separator or a quote missing?"
        ) from None
    if cell is None:
        raise pa.ArrowInvalid(error)
    name, value = header.names[int(cell[1])], cell[3] or ""
    kind = found[name]
    if pa.types.is_floating(kind):
        raise _not_a_number(name, int(cell[2]) - 1, value, file)
    if pa.types.is_string(kind):
        return types | {name: pa.binary()}  # it is not in UTF-8
    if pa.types.is_null(kind):
        return types | {name: LISTS if _LIST.match(value) else _type_of(value)}
    return types | {name: pa.string()}


def _type_of(cell: str) -> pa.DataType:
    """The type that Arrow finds in a column of one cell."""
    from pyarrow import csv as pacsv

    quoted = '"' + cell.replace('"', '""') + '"'
    options = pacsv.ReadOptions(column_names=["cell"])
    return pacsv.read_csv(io.BytesIO(quoted.encode()), options, pacsv.ParseOptions(newlines_in_values=True))[0].type
