"""CSV files: a header and rows of text, which Arrow parses block by block into an Arrow file.

A column has the first of `_TYPES` that holds all cells of its first block; where a later cell does not fit, whole
numbers become floating-point ones or text, and all is read again. Only a column of floating-point numbers, as
scores are, stays so: there a cell that is none is an error with its place. Cells that say nan or inf are such numbers,
an empty cell is null.

Whole numbers and times are such only if they would be written back to the letter: 007, +49 and 0x10 stay text, as do
times with a zone. So do numbers too long for any type; up to 2^64 they are whole numbers. What else may not come back
(1.50, 1E5, True, N/A, blanks around a cell) is stored as written too, for whoever only copies the column.
"""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from drrej.data import files
from drrej.data.columns import NOT_A_NUMBER, check_repeated, numbered
from drrej.data.files import AS_WRITTEN, DumpFile, open_text, with_compressions
from drrej.data.formats.arrow import spooled, write_batches
from drrej.errors import DumpError

_NULLS = ["", "null", "NULL", "None", "NA", "N/A", "n/a", "#N/A"]
"""No spelling of NaN: that is a number, and a row that has it is told so."""

LISTS = pa.list_(pa.float64())
"""The type of cells such as "[0.5, 1.5]", as pandas writes a column of lists."""

_LIST = re.compile(r"\s*\[\s*[-+]?(\d|\.\d|nan\b|inf|Infinity|NaN\b)[^\[\]]*,", re.IGNORECASE)
_CELLS = re.compile(r"Row #(\d+): Expected \d+ columns, got (\d+)")
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

_TYPES = (
    *(pa.null(), pa.int64(), pa.uint64(), pa.bool_(), pa.date32(), pa.time32("s")),
    *(pa.timestamp(unit, zone) for zone in (None, "UTC") for unit in ("s", "ns")),
    *(pa.float64(), LISTS, pa.string()),
)


class _OtherTypeError(Exception):
    """The cells of a column need another type than the one so far: its name, and that type."""


def write(file: DumpFile, path: str) -> frozenset[str]:
    """Convert a CSV file; the columns whose values are not written back to the letter."""
    types: Types = {}
    block = files.BLOCK
    while True:
        with open_text(file) as stream:
            rows, altered = _Rows(stream, file), set[str]()
            try:
                write_batches(path, *_converted(rows, types, block, file, altered))
                return frozenset(altered)
            except _OtherTypeError as other:
                types = types | dict([other.args])
            except pa.ArrowInvalid as error:
                cells = _CELLS.search(str(error))
                if cells is not None:
                    raise DumpError(
                        f"{file.name}: row {int(cells[1]) - 1}, counted from 0, has {cells[2]} cells but the header "
                        f"names {len(rows.names)} columns; is a separator or a quote missing?"
                    ) from None
                if "straddling" not in str(error):
                    raise
                if block >= files.LONGEST_ROW:
                    what = f"a row is longer than {files.LONGEST_ROW >> 20} MB; is a quote or an end of line missing?"
                    raise DumpError(f"{file.name}: {what}") from None
                block *= 8


CSV = spooled("CSV", write)


def _is_number(text: str, names: bool = True) -> bool:
    """Whether a text is a number; nan and inf may be names."""
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text and not (names and text.lower() in ("nan", "inf", "infinity"))


class _Rows(io.RawIOBase):
    """The bytes behind the header, on their way to Arrow, which takes quotes inside of cells as they come.

    Each must stand at the edge of a cell: every other one opens a cell, and doubled ones close and open. Where one is
    missing, many rows would become one cell. The header tells the `names` of the columns, those of them that are
    `numbered`, and the `separator`.
    """

    def __init__(self, stream: Any, file: DumpFile) -> None:
        text = b""
        while not _LINE_ENDED.search(text) and len(text) < _LONGEST_HEADER and (piece := stream.read(1 << 16)):
            text += piece
        line, *others = _LINE_END.split(text, maxsplit=1)
        if b"\0" in line:
            raise ValueError("it is not text in UTF-8")
        try:
            header = line.removeprefix(_BOM).decode()
        except UnicodeDecodeError:
            raise ValueError("its header is not text in UTF-8") from None
        if not header.strip():
            raise ValueError("there is no header in its first line")
        if header.count('"') % 2:
            raise ValueError("a name in its header contains a line break, or a quote is missing")
        plain = "".join(header.split('"')[::2])  # outside of quotes; of several separators the first of ours counts
        found = next((mark for mark in _SEPARATORS if mark in plain), ",")
        self.separator = "\t" if file.ends_with(_TABS) else found
        names = next(csv.reader(io.StringIO(header), delimiter=self.separator))
        self.names = [name.strip() or f"Unnamed: {i}" for i, name in enumerate(names)]  # an index of pandas has no name
        if all(map(_is_number, self.names)) and self.names != [str(i) for i in range(len(names))]:
            raise DumpError(
                f"{file.name}: its first line holds numbers ('{self.names[0]}'), not the names of columns; write a "
                "header such as logit_0,logit_1,label"
            )
        check_repeated(self.names, file.name)
        self.numbered = frozenset(name for family in numbered(self.names).values() for name in family)
        self._rest, self._stream, self._name = b"".join(others), stream, file.name
        self._edges = np.frombuffer(b'"\r\n' + self.separator.encode(), np.uint8)
        self._quoted = False
        self._last = b"\n"

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
    rows: _Rows, types: Types, block: int, file: DumpFile, altered: set[str]
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The columns, in types that are found out where they are not given, and the rows.

    Those that are neither scores nor text come also as written, and join `altered` where that is something else.
    """
    from pyarrow import csv as pacsv

    try:
        reader = pacsv.open_csv(
            pa.PythonFile(rows, "r"),
            pacsv.ReadOptions(use_threads=False, column_names=rows.names, block_size=block),
            pacsv.ParseOptions(
                delimiter=rows.separator,
                newlines_in_values=True,
                ignore_empty_lines=len(rows.names) > 1,  # of one column, an empty line is a cell
            ),
            pacsv.ConvertOptions(column_types=dict.fromkeys(rows.names, pa.binary())),
        )
        first = next(reader, None)
    except pa.ArrowInvalid as error:
        if "Empty CSV file" not in str(error):
            raise
        first = None
    if first is None:
        return pa.schema([(name, pa.string()) for name in rows.names]), iter(())
    cells = dict(zip(rows.names, first.columns, strict=True))
    types = {name: types.get(name) or _type_of(cells[name], _TYPES) for name in cells}
    stored = {name: pa.string() if kind == pa.null() else kind for name, kind in types.items()}
    texts = {name: _first_text(cells[name]) for name in rows.numbered if types[name] == pa.string()}
    copies = [name for name in rows.names if types[name] not in (pa.string(), pa.binary(), LISTS)]
    fields = [pa.field(name, kind, metadata=texts.get(name)) for name, kind in stored.items()]
    schema = pa.schema([*fields, *(pa.field(name + AS_WRITTEN, pa.string()) for name in copies)])

    altered.update(name for name in copies if types[name] == pa.float64())  # 5.0 and 1.50, whatever the rows hold

    def batches() -> Iterator[pa.RecordBatch]:
        row = 0
        for batch in itertools.chain([first], reader):
            columns = {
                name: _column(column, name, types[name], row, file).cast(stored[name])
                for name, column in zip(rows.names, batch.columns, strict=True)
            }
            written = {name: _as_written(batch.column(name)) for name in copies}
            unknown = [name for name in copies if name not in altered]
            altered.update(name for name in unknown if not columns[name].cast(pa.string()).equals(written[name]))
            yield pa.RecordBatch.from_arrays([*columns.values(), *written.values()], schema=schema)
            row += batch.num_rows

    return schema, batches()


def _type_of(cells: pa.Array, types: Iterable[pa.DataType]) -> pa.DataType:
    """The first of some types that holds all cells; lists are told by the first cell that is not empty."""
    few = cells.slice(0, 100)  # nearly all that do not fit can be told by these
    for kind in types:
        if kind == LISTS:
            text = _values(few, pa.string())
            fits = text is not None and bool(_LIST.match(next(filter(None, text.to_pylist()), "")))
        else:
            fits = all(_values(some, kind) is not None for some in (few, cells))
        if fits:
            return kind
    return pa.binary()


def _column(cells: pa.Array, name: str, kind: pa.DataType, first_row: int, file: DumpFile) -> pa.Array:
    """The values of the cells of a column; raises `_OtherTypeError` where they need another type."""
    if kind == LISTS:
        return _lists(cells, name, first_row, file)
    values = _values(cells, kind)
    if values is not None:
        return values
    if kind == pa.float64():
        for row, cell in enumerate(_cleaned(cells).to_pylist(), first_row):
            if cell is not None and not _is_number(cell, names=False):
                raise DumpError(
                    f"{file.name}: column '{name}': row {row}, counted from 0, holds '{cell[:40]}', which is not "
                    "a number as in the rows before; fix the cell"
                )
    wider = _TYPES if kind == pa.null() else (pa.uint64(), pa.float64()) if kind == pa.int64() else ()
    raise _OtherTypeError(name, _type_of(cells, (*wider, pa.string())))


def _cleaned(cells: pa.Array) -> pa.Array:
    """Cells as text, without the blanks around them, null where they say so."""
    import pyarrow.compute as pc

    trimmed = pc.utf8_trim_whitespace(cells.cast(pa.string()))
    return pc.if_else(pc.is_in(trimmed, value_set=pa.array(_NULLS)), pa.scalar(None, pa.string()), trimmed)


def _values(cells: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """The values of cells in a type; None where they are no such values, or would not be written back to the letter.

    Fractions need not come back, nor whole numbers among them: what is copied is there as written too.
    """
    import pyarrow.compute as pc

    if kind == pa.binary():
        return cells
    try:
        if kind == pa.string():
            return cells.cast(kind)
        cleaned = _cleaned(cells)
        if kind == pa.null():
            return pa.nulls(len(cells)) if cleaned.null_count == len(cells) else None
        values = cleaned.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    if kind == pa.float64():
        whole = pc.all(pc.equal(values, pc.floor(values))).as_py()
        return None if whole and pc.any(pc.match_substring_regex(cleaned, _UNFAITHFUL)).as_py() else values
    return values if kind == pa.bool_() or values.cast(pa.string()).equals(cleaned) else None


def _as_written(cells: pa.Array) -> pa.Array:
    """Cells as text; an empty one is null."""
    import pyarrow.compute as pc

    text = cells.cast(pa.string())
    return pc.if_else(pc.equal(pc.binary_length(text), 0), pa.scalar(None, pa.string()), text)


def _first_text(cells: pa.Array) -> dict[bytes, str] | None:
    """A note of the first cell that is not a number."""
    for row, cell in enumerate(cells.cast(pa.string()).to_pylist()):
        if cell not in _NULLS and not _is_number(cell, names=False):
            return {NOT_A_NUMBER: f": row {row}, counted from 0, holds '{cell[:40]}'"}
    return None


def _lists(cells: pa.Array, name: str, first_row: int, file: DumpFile) -> pa.Array:
    """Lists of numbers that are written in cells."""
    rows: list[list[float] | None] = []
    for row, cell in enumerate(cells.to_pylist(), first_row):
        inside = cell.strip()
        try:
            if inside and (inside[:1] != b"[" or inside[-1:] != b"]" or b"_" in inside):
                raise ValueError(cell)
            numbers = inside[1:-1].split(b",") if inside[1:-1].strip() else []
            rows.append([float(number) for number in numbers] if inside else None)
        except ValueError:
            raise DumpError(
                f"{file.name}: column '{name}': row {row}, counted from 0, holds "
                f"'{cell.decode(errors='replace')[:40]}', which is not a list of numbers as in the rows before; fix "
                "the cell"
            ) from None
    return pa.array(rows, LISTS)
