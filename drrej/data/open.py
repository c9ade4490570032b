"""Opening a dump: its files, its columns, and whether the files agree."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from drrej.data.columns import (
    CHOICES,
    CORRECT_NAMES,
    LogitColumns,
    column_of,
    field_of,
    find_label,
    is_list,
    likely_label,
    list_bounds,
    root_of,
    storage_type,
)
from drrej.data.confidence import correct_kind, find_columns, find_correct, in_words
from drrej.data.dump import Dump, DumpOptions, RowGroup
from drrej.data.files import DumpFile, FileInfo, Request
from drrej.data.formats import ARRAYS, format_of, read_table
from drrej.data.formats.parquet import range_of
from drrej.data.labels import LabelKind, LabelsElsewhere, label_kind, labels_elsewhere
from drrej.data.listing import Spools, find_parts
from drrej.data.problems import check_bad_files, shown
from drrej.data.scores import labels_in, vector_sizes
from drrej.errors import BadFileError, DumpError, OptionError

T = TypeVar("T")

_REMOTE_LOOKS = 32
"""Files on object storage that are opened at a time: each is a few requests, and most of that is waiting."""

_FIRST_ROWS = 256
"""Rows that are looked at to learn the number of classes."""

_TOGETHER = "`labels_from=FILE` and `join_on=COL` require each other: COL is the key column of both files"

_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")
"""Numbers that are written as int64 would be: 007 stays text."""


Unneeded = Callable[[DumpFile, DumpError], bool]
"""Whether a file that cannot be read with these options need not be."""


class _Look(Struct, frozen=True):
    """What a look into one file tells: what it holds, and, where it has rows, its logits and number of classes."""

    file: DumpFile
    info: FileInfo
    rows: int
    columns: LogitColumns | None = None
    classes: int = 0


def open_dump(
    arguments: Sequence[str],
    options: DumpOptions,
    labelled: bool,
    spools: Spools | None = None,
    bad: dict[str, str] | None = None,
    classes: int | None = None,
    unneeded: Unneeded | None = None,
) -> Dump:
    """Open a dump: list its files, find its columns, check that the files agree.

    Files that are known to be `bad` are left out, and those that are found to be so join them, where the options say
    so; `unneeded` is asked first. `classes` is the number of classes of the rejector, if there is one.
    """
    _check_options(options)
    files = [replace(file, filter=options.filter) for file in find_parts(arguments, spools)]
    looks = _good(files, options, classes, {} if bad is None else bad, unneeded)
    filled = [look for look in looks if look.columns is not None]
    if not filled:
        raise DumpError(
            f"{shown([look.file.name for look in looks], 3)}: zero rows; there is nothing to work on: "
            "did the job that wrote it fail?"
        )
    first = filled[0]
    columns, count = first.columns, first.classes
    assert columns is not None
    if columns.layout == "choices":  # the longest of all lists counts
        count = max(look.classes for look in filled)
    if options.filter is not None and columns.layout != "choices":
        raise OptionError("`filter=NAME` is for logs of lm-evaluation-harness")
    if options.classes is not None and len(options.classes) != count:
        raise DumpError(
            f"{first.file.name}: column '{columns.pattern}' has {count} scores per row but `classes` "
            f"names {len(options.classes)} classes; name each class once, in the order of the logits"
        )
    schema = _with_hive(first.info.schema, looks)
    if options.row_filter is not None:
        options.row_filter.check(schema, first.file.name)
    spelled = columns.classes
    if columns.layout == "labelled" and spelled == tuple(str(i) for i in range(count)):
        spelled = None  # class numbers
    names, in_values = options.classes or spelled, columns.layout == "labelled" and spelled is not None
    kind_of: KindOf = partial(
        label_kind, classes=count, names=names, spelled=in_values, listed=columns.layout == "choices"
    )
    if columns.layout == "scores":
        kind_of = partial(correct_kind, compared=options.prediction is not None)
    label, kind, elsewhere = _find_labels(labelled, looks, schema, count, kind_of, options, spools)
    row_groups, rows_before = list[RowGroup](), [0]
    for number, look in enumerate(looks):
        row = 0
        for group, rows in enumerate(look.info.groups):
            if rows:
                row_groups.append(RowGroup(number, group, row, rows))
            row += rows
        rows_before.append(rows_before[-1] + look.rows)
    return Dump(
        parts=tuple(look.file for look in looks),
        row_groups=tuple(row_groups),
        rows=rows_before[-1] if options.split is None else options.split.rows,
        classes=count,
        columns=columns,
        names=names,
        schema=schema,
        options=options,
        label=label,
        label_kind=kind,
        elsewhere=elsewhere,
        rows_before=tuple(rows_before[:-1]),
        pandas=first.info.pandas,
        altered=frozenset().union(*(look.info.altered for look in looks)),
    )


def _check_options(options: DumpOptions) -> None:
    """Raise about options that contradict one another."""
    if options.score is not None:
        others = ("logits", "input", "normalize", "binary", "classes", "filter", "per_length")
        given = [name for name in others if getattr(options, name)]
        if given:
            raise OptionError(f"`{given[0]}` cannot be combined with `score`: a score has no classes")
        if options.correct is not None and (options.prediction is not None or options.label is not None):
            raise OptionError("`correct` says which rows are right; leave out `prediction` and `label`")
        if options.label is not None and options.prediction is None:
            raise OptionError("`label` requires `prediction=COL` where there is a `score`: both are compared")
    else:
        for name in ("correct", "prediction", "lower_is_better"):
            if getattr(options, name):
                which = f"`{name}`: it is for a regression, or" if name == "prediction" else f"`{name}`"
                raise OptionError(f"{which} requires `score=COL`: it is about rows that bring a score and no logits")
        if options.input == "scores":
            raise OptionError("`input=scores` requires `score=COL`")
    if options.binary and options.label in CORRECT_NAMES and options.classes is None:
        raise OptionError(
            f"`binary=True` `label={options.label}`: does '{options.label}' show whether an answer was right? then use "
            f"`score` and `correct={options.label}` in place of `binary`; if it is the true class, name both classes "
            "with `classes`"
        )
    if options.normalize and options.input in (None, "logits"):
        raise OptionError("`normalize` requires `input=probs`: logits have no sum to divide by")
    if options.normalize and options.binary:
        raise OptionError("`normalize` cannot be combined with `binary`: one score per row has no sum to divide by")
    if options.join_on is not None and options.labels_from is None:
        raise OptionError(_TOGETHER)
    if options.labels_from is not None and options.join_on is None and options.on_missing_label == "skip":
        raise OptionError("`on_missing_label=skip` requires `join_on=COL`: without keys, every row needs its label")


# Looking into files


def _good(
    files: Sequence[DumpFile],
    options: DumpOptions,
    expected: int | None,
    bad: dict[str, str],
    unneeded: Unneeded | None,
) -> list[_Look]:
    """What is in the files that can be read and fit together; raises for others unless they are left out."""
    good: list[_Look] = []
    left = [file for file in files if file.name not in bad]
    for file, look in zip(left, _looks(left, options, good), strict=True):
        try:
            if isinstance(look, DumpError):
                raise look
            first = next((other for other in good if other.columns is not None), None)
            _check_shape(look, first, expected)
            good.append(look)
        except DumpError as error:
            if unneeded is not None and unneeded(file, error) and (good or file is not left[-1]):
                continue
            if options.on_bad_file == "error" and len(files) == 1:
                raise
            if options.on_bad_file == "error":
                raise BadFileError.of(file.name, f"{error} (or leave such files out with `on_bad_file=skip`)") from None
            bad[file.name] = str(error)
    check_bad_files(bad, len(files), options.max_bad)
    return good


def _looks(files: Sequence[DumpFile], options: DumpOptions, good: Sequence[_Look]) -> Iterator[_Look | DumpError]:
    """A look into each file, in order; into several at once where each waits for the network."""

    def tried(file: DumpFile) -> _Look | DumpError:
        try:
            return _look(file, options, next((look for look in good if look.columns is not None), None))
        except DumpError as error:
            return error

    if len(files) == 1 or all(file.uri is None for file in files):
        yield from map(tried, files)
        return
    with ThreadPoolExecutor(_REMOTE_LOOKS) as pool:
        try:
            yield from pool.map(tried, files)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _look(file: DumpFile, options: DumpOptions, first: _Look | None) -> _Look:
    info = format_of(file).look(file)
    rows = sum(info.groups)
    file = replace(file, identity=info.identity, index=range_of(info.pandas, rows))
    look = _Look(file, info, rows)
    if not rows:
        return look
    columns = find_columns(info.schema, options, file.name, info.typed)
    same = first is not None and first.columns == columns and columns.layout == "list"
    if same and first is not None and info.list_sizes.get(columns.names[0]) == first.classes:
        return replace(look, columns=columns, classes=first.classes)  # as the footer says; others are found later
    if columns.layout == "scores":
        texts = partial(_in_rows, look, found_in=lambda array: array.drop_null()[:1].to_pylist())
        columns = in_words(columns, info.schema, lambda name: next(filter(None, texts(name)), []))
    if columns.layout == "labelled":
        labels = options.classes or tuple(_in_first_rows(look, columns.names[0], labels_in))
        columns = replace(columns, classes=labels)
    return replace(look, columns=columns, classes=_class_count(look, columns))


def _check_shape(look: _Look, first: _Look | None, expected: int | None) -> None:
    """Raise unless a file has the columns and the number of classes of the first, or of the rejector."""
    if look.columns is None:
        return
    varies = look.columns.layout == "choices"
    if first is None and not varies and expected not in (None, look.classes):
        raise DumpError(
            f"{look.file.name}: column '{look.columns.pattern}' has {look.classes} scores per row but the rejector was "
            f"made for {expected} classes; is it the same model?"
        )
    if first is None or (varies and first.columns is not None and first.columns.layout == "choices"):
        return
    assert first.columns is not None
    if look.classes != first.classes:
        raise DumpError(
            f"{look.file.name}: column '{look.columns.pattern}' has {look.classes} scores per row, but "
            f"{first.file.name} has {first.classes}; all files of a dump must come from one model"
        )
    if look.columns != first.columns:
        own, others = look.columns.pattern, first.columns.pattern
        if own == others:
            own, others = (", ".join(columns.names[:5]) for columns in (look.columns, first.columns))
        raise DumpError(
            f"{look.file.name}: logits are in '{own}', but in {first.file.name} in '{others}'; all files of a dump "
            "must have the same columns, in the same order"
        )


def _in_rows(look: _Look, column: str, found_in: Callable[[pa.Array], list[T]]) -> Iterator[list[T]]:
    """What is found in the rows of a column, a few at a time."""
    root = root_of(look.info.schema, column)
    for group in range(len(look.info.groups)):
        for batch in format_of(look.file).batches(Request(look.file, group, [root], _FIRST_ROWS)):
            yield found_in(column_of(batch, column))


def _in_first_rows(look: _Look, column: str, found_in: Callable[[pa.Array], list[T]]) -> list[T]:
    """What is found in the first rows of a column that have anything."""
    found = next(filter(None, _in_rows(look, column, found_in)), None)
    if found is None:
        raise DumpError(
            f"{look.file.name}: column '{column}' is null in every row; is it the right column? (see `logits`)"
        )
    return found


def _lengths(array: pa.Array) -> list[int]:
    lengths = list_bounds(array)[1]
    found: list[int] = (lengths[np.asarray(array.is_valid())] if array.null_count else lengths).tolist()
    return found


def _class_count(look: _Look, columns: LogitColumns) -> int:
    name = columns.names[0]
    field = field_of(look.info.schema, name)
    assert field is not None
    if columns.layout in ("score", "scores"):
        return 2
    if columns.layout == "wide":
        return len(columns.names)
    if columns.layout in ("labelled", "tokens"):
        return len(columns.classes or ())
    if columns.layout == "choices":
        known = (field.metadata or {}).get(CHOICES)
        lengths = _in_rows(look, name, _lengths) if known is None else [[int(known)]]
        return max(itertools.chain(*lengths), default=0)
    kind, where = field.type, f"{look.file.name}: column '{name}'"
    if isinstance(kind, pa.FixedShapeTensorType) and len(kind.shape) != 1:
        raise DumpError(f"{where} has tensors of shape {kind.shape}; one vector per row is needed")
    if pa.types.is_fixed_size_list(storage_type(kind)):
        classes = storage_type(kind).list_size
    else:  # that of most rows
        sizes = _in_first_rows(look, name, _lengths if is_list(kind) else vector_sizes)
        values, counts = np.unique(sizes, return_counts=True)
        classes = values[counts.argmax()]
    if classes == 1:
        raise DumpError(
            f"{where} has one score per row; "
            "store it as a plain floating-point column and add `binary=True` if it is the score of class 1"
        )
    if classes == 0:
        raise DumpError(f"{where} has no scores: its lists are empty")
    return int(classes)


def _with_hive(schema: pa.Schema, looks: Sequence[_Look]) -> pa.Schema:
    """A schema with the columns that the folders of every file spell, integers where all values are."""
    spelled = [dict(look.file.hive) for look in looks]
    for key in spelled[0]:
        if all(key in other for other in spelled) and key not in schema.names:
            values = {other[key] for other in spelled} - {None}
            whole = bool(values) and all(_INTEGER.fullmatch(value or "") for value in values)
            schema = schema.append(pa.field(key, pa.int64() if whole else pa.string()))
    return schema


# Labels

KindOf = Callable[[pa.DataType, str, bool], LabelKind]
Found = tuple[str | None, LabelKind | None, LabelsElsewhere | None]
"""The column of the labels, how they are stored, and those of another file."""


def _find_labels(
    labelled: bool,
    looks: Sequence[_Look],
    schema: pa.Schema,
    classes: int,
    kind_of: KindOf,
    options: DumpOptions,
    spools: Spools | None,
) -> Found:
    """Where the labels are; if they are not needed, the column that has them, if any."""
    filled = [look for look in looks if look.columns is not None]
    first = filled[0].file.name

    def kind_in(look: _Look, label: str) -> LabelKind:
        found = field_of(_with_hive(look.info.schema, looks), label)
        if found is None:
            raise DumpError(f"{look.file.name}: there is no label column '{label}', which {first} has")
        return kind_of(found.type, f"{look.file.name}: column '{label}'", look.info.typed)

    if labelled and options.labels_from is None:
        if options.score is not None:
            label = str(find_correct(schema, options, first, needed=True))
        else:
            label = find_label(schema, options.label, first)
        kinds = [kind_in(look, label) for look in filled]
        return label, kinds[0], None
    known = likely_label(schema) if options.label is None else options.label
    if options.score is not None:
        known = find_correct(schema, options, first)
    known = known if known is not None and field_of(schema, known) is not None else None
    if labelled and options.labels_from is not None:
        keys = _row_keys(options.labels_from, looks, options.join_on, spools)
        rows = sum(look.rows for look in looks)
        there = options if options.correct is None else replace(options, label=options.correct)
        elsewhere = labels_elsewhere(options.labels_from, there, classes, kind_of, keys, rows, spools)
        return known, elsewhere.kind, elsewhere
    try:
        return known, None if known is None else kind_in(filled[0], known), None
    except DumpError:  # not needed: without names, predictions are class numbers
        return known, None, None


def _row_keys(
    path: str, looks: Sequence[_Look], on: str | None, spools: Spools | None
) -> Iterator[tuple[str, pa.ChunkedArray]]:
    """The keys by which the rows find their labels in another file, by file; none where they go by their order."""
    if on is None:
        arrays = all(look.file.ends_with(ARRAYS) for look in looks)
        if not arrays and not all(file.ends_with(ARRAYS) for file in find_parts([path], spools)):
            raise OptionError(
                f"{_TOGETHER} (rows are matched by their order only where one of the files is an array: .npy or .npz)"
            )
        return iter(())
    for look in looks:
        if look.rows and on not in look.info.schema.names:
            names = shown(look.info.schema.names)
            raise DumpError(f"{look.file.name}: there is no column '{on}' to join on; columns: {names}")
    return ((look.file.name, read_table(look.file, [on], look.info)[on]) for look in looks if look.rows)
