"""Which columns of a dump hold the logits and the label, and in which layout."""

from __future__ import annotations

import fnmatch
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from drrej.core.types import InputKind
from drrej.data.problems import shown
from drrej.errors import DumpError

if TYPE_CHECKING:
    from drrej.data.dump import DumpOptions

Layout = Literal["list", "wide", "score", "vector", "labelled", "choices", "tokens", "scores"]
"""A list per row, a column per class, one score, Spark's vectors, a list of (label, probability) in any order, a
list whose length differs from row to row (the scores of the choices that a question has), a list of tokens with their
log-probabilities, or scores of any kind."""

LOGITS = "logits"
LABEL = "label"
CORRECT = "correct"


class LogitColumns(Struct, frozen=True):
    """The columns that hold the scores of a row, in class order.

    `pattern` is what is remembered in the rejector: a column's name, or a family's prefix with `*`. `classes` are the
    names of the classes, where the columns' names or their values spell them.
    """

    names: tuple[str, ...]
    layout: Layout
    pattern: str
    classes: tuple[str, ...] | None = None
    texts: str | None = None
    """The column of the choices' texts, if scores are to be divided by their lengths."""
    reductions: tuple[str, ...] = ()
    """What is taken of each score of any kind where it is a list, or that it is a word; else empty."""

    @property
    def reduced(self) -> list[tuple[str, str]]:
        """The scores of any kind with what is taken of each."""
        return list(zip(self.names, self.reductions, strict=True))


def storage_type(data_type: pa.DataType) -> pa.DataType:
    """The type below extension types such as arrow.fixed_shape_tensor."""
    while isinstance(data_type, pa.BaseExtensionType):
        data_type = data_type.storage_type
    return data_type


def is_list(data_type: pa.DataType) -> bool:
    """Whether a column holds a list per row."""
    return isinstance(storage_type(data_type), pa.ListType | pa.LargeListType | pa.FixedSizeListType)


def list_layout(data_type: pa.DataType, typed: bool = True) -> Layout | None:
    """The layout of a column that holds all scores of a row; None for any other column."""
    if is_list(data_type):
        item = storage_type(data_type).value_type
        if is_number(item, typed):
            return "list"
        labelled = pa.types.is_struct(item) and {"label", "prob"} == {field.name for field in item}
        return "labelled" if labelled and pa.types.is_floating(item.field("prob").type) else None
    if pa.types.is_struct(data_type) and {"type", "size", "indices", "values"} == {f.name for f in data_type}:
        return "vector" if list_layout(data_type.field("values").type) == "list" else None
    return None


def find_logits(schema: pa.Schema, wanted: DumpOptions, where: str, typed: bool = True) -> LogitColumns:
    """The logit columns of a schema: as asked for, or the only ones that can be meant.

    `typed` tells whether the format has types: where numbers are written as text, 1 may be a floating-point number.
    """
    found = _find_logits(schema, wanted, where, typed)
    field = field_of(schema, found.names[0])
    lighteval = found.names == (LIGHTEVAL_SCORES,) and field_of(schema, LIGHTEVAL_CHOICES) is not None
    if field is not None and found.layout == "list" and (lighteval or CHOICES in (field.metadata or {})):
        texts = (LIGHTEVAL_CHOICES if lighteval else "choices") if wanted.per_length else None
        return replace(found, layout="choices", texts=texts)
    if wanted.per_length:
        raise DumpError(
            f"{where}: `per_length=True` is for logs with the texts of the choices; column '{found.pattern}' has none"
        )
    return found


def check_repeated(names: Sequence[str], where: str) -> None:
    """Raise where two columns have one name."""
    repeated = sorted(Counter(names) - Counter(set(names)))
    if repeated:
        raise DumpError(f"{where}: column '{repeated[0]}' occurs twice; rename one of them")


def _find_logits(schema: pa.Schema, wanted: DumpOptions, where: str, typed: bool) -> LogitColumns:
    check_repeated(schema.names, where)
    if wanted.logits is not None:
        return _asked_for(schema, wanted.logits, wanted, where, typed)
    if wanted.binary:
        return _only_score(schema, where, wanted.label or LABEL)
    if LOGITS in schema.names:
        return _asked_for(schema, LOGITS, wanted, where, typed)
    lists = {field.name: layout for field in schema if (layout := list_layout(field.type, typed)) is not None}
    if is_lighteval(schema):
        return _asked_for(schema, LIGHTEVAL_SCORES, wanted, where, typed)
    if (chosen := _most_likely(lists, wanted.input)) is not None:
        return LogitColumns((chosen,), lists[chosen], chosen)
    found = {} if lists else families(schema, typed)
    if len(found) == 1:
        prefix, names = next(iter(found.items()))
        more = field_of(schema, f"{prefix}{len(names)}")
        if more is not None:  # it holds no numbers, and would be a class less
            cell = (more.metadata or {}).get(NOT_A_NUMBER, b"").decode()
            raise DumpError(
                f"{where}: column '{more.name}' is {more.type} but the columns before it hold scores{cell}; fix it, or "
                "choose the columns of the scores with `logits`"
            )
        return LogitColumns(names, "wide", prefix + "*")
    candidates = [*lists] or [f"{prefix}*" for prefix in found]
    if candidates:
        raise DumpError(f"{where}: several columns may hold the logits ({shown(candidates)}); choose with `logits`")
    if (suggested := suggested_logits(schema, wanted.label, typed)) is not None:
        raise DumpError(
            f"{where}: are the columns '{suggested}' the scores, with the classes in their names? then pass "
            f"`logits='{suggested}'`"
        )
    hint = " (add `binary=True` if one is the score of class 1; is one a confidence? pass `score=COL` `correct=COL`)"
    hint = hint if any(pa.types.is_floating(field.type) for field in schema) else ""
    raise DumpError(
        f"{where}: no logit columns found (no 'logits', no list of floats, no columns like logit_0, logit_1, ...); "
        f"choose with `logits` among: {shown(schema.names)}{hint}"
    )


def is_lighteval(schema: pa.Schema) -> bool:
    """Whether a table has the columns of lighteval's details of multiple choice."""
    return all(field_of(schema, path) is not None for path in (LIGHTEVAL_SCORES, LIGHTEVAL_LABEL, LIGHTEVAL_CHOICES))


def suggested_logits(schema: pa.Schema, label: str | None, typed: bool) -> str | None:
    """A pattern for columns that end in a class name after a word for scores, as prob_cat and prob_dog do.

    None unless there is one family of them.
    """
    members: dict[str, int] = Counter()
    for field in schema:
        match = _WORDS.fullmatch(field.name)
        if match is not None and field.name not in (label, *LABEL_NAMES) and is_number(field.type, typed):
            members[match[1]] += 1
    found = [prefix for prefix, columns in members.items() if columns >= 2]
    return f"{found[0]}*" if len(found) == 1 else None


def _most_likely(lists: dict[str, Layout], input: InputKind | None) -> str | None:
    """The only list, or the one that is called as scores are."""
    if len(lists) == 1:
        return next(iter(lists))
    spark = SPARK_PROBABILITIES if input == "probs" else SPARK_LOGITS
    if lists.get(spark) == "vector":
        return spark
    named = [name for name in SCORE_NAMES if name in lists]
    return named[0] if len(named) == 1 else None


def _asked_for(schema: pa.Schema, name: str, wanted: DumpOptions, where: str, typed: bool) -> LogitColumns:
    field = field_of(schema, name)
    if field is None and any(mark in name for mark in "*?[,"):
        if wanted.binary:
            raise DumpError(
                f"{where}: `binary=True` means one score per row; name that column with `logits`, not '{name}'"
            )
        names, classes = match_columns(schema, name, wanted.classes, typed, where)
        layout = list_layout(schema.field(names[0]).type, typed) if len(names) == 1 else None
        if layout is not None:
            return LogitColumns(names, layout, names[0])
        return LogitColumns(names, "wide", name, classes)
    if field is None:
        raise DumpError(f"{where}: there is no column '{name}'; choose with `logits` among: {shown(schema.names)}")
    if (layout := list_layout(field.type, typed)) is not None:
        if wanted.binary:
            raise DumpError(f"{where}: column '{name}' holds a list per row, but `binary=True` means one score per row")
        return LogitColumns((name,), layout, name)
    if is_number(field.type, typed):
        if wanted.binary:
            return LogitColumns((name,), "score", name)
        raise DumpError(
            f"{where}: column '{name}' holds one score per row; add `binary=True` if it is the score of class 1, "
            "or name the columns of all classes with `logits='PREFIX*'`"
        )
    if is_list(field.type) and _inside(field.type, "token") and _inside(field.type, "logprob"):
        if wanted.classes is None:
            raise DumpError(
                f"{where}: column '{name}' holds tokens with their log-probabilities; name those that are the classes "
                "with `classes`"
            )
        return LogitColumns((name,), "tokens", name, wanted.classes)
    if pa.types.is_struct(field.type):
        inside = [f"{name}.{part.name}" for part in field.type]
        raise DumpError(f"{where}: column '{name}' is a struct; choose with `logits` among: {shown(inside)}")
    raise DumpError(
        f"{where}: column '{name}' is {field.type}; logits must be a list of floating-point numbers per row "
        "(or one floating-point column per class): cast it to float32"
    )


def _only_score(schema: pa.Schema, where: str, label: str) -> LogitColumns:
    scores = [field.name for field in schema if pa.types.is_floating(field.type) and field.name != label]
    chosen = [LOGITS] if LOGITS in scores else scores
    if len(chosen) == 1:
        return LogitColumns((chosen[0],), "score", chosen[0])
    what = f"several floating-point columns ({shown(scores)})" if scores else "no floating-point column (only lists?)"
    raise DumpError(f"{where}: `binary=True` needs one score per row but there is {what}; choose with `logits`")


def find_label(schema: pa.Schema, wanted: str | None, where: str) -> str:
    """The label column: as asked for, else `label`, else the only one that is called so in other words."""
    if wanted is not None:
        if field_of(schema, wanted) is not None:
            return wanted
        raise DumpError(
            f"{where}: there is no label column '{wanted}'; choose one with `label` among: {shown(schema.names)}"
        )
    if (label := likely_label(schema)) is not None:
        return label
    several = [name for name in LABEL_NAMES if name in schema.names]
    if several:
        raise DumpError(f"{where}: several columns may hold the label ({shown(several)}); choose one with `label`")
    raise DumpError(
        f"{where}: there is no column 'label'; choose one with `label` (columns: {shown(schema.names)}) "
        "or bring labels with `labels_from=FILE` `join_on=COL`"
    )


def likely_label(schema: pa.Schema) -> str | None:
    """The column that holds the labels, by its name."""
    found = [name for name in LABEL_NAMES if name in schema.names]
    if not found and is_lighteval(schema):
        return LIGHTEVAL_LABEL
    return found[0] if LABEL in found or len(found) == 1 else None


SCORE_NAMES = ("logits", "probs", "probabilities", "proba", "predictions", "scores")
PROBABILITY_NAMES = ("probs", "probabilities", "proba", "probability")
CORRECT_NAMES = (CORRECT, "is_correct", "hit", "is_right", "exact_match")
"""What columns are called that tell whether an answer was right."""
ID_NAMES = ("id", "doc_id", "sample_id", "example_id", "question_id", "custom_id", "request_id", "row_id", "uuid")
"""What columns are called that tell rows apart; scores of any kind tie too often to do so."""
REDUCTIONS = ("mean", "min", "max", "sum", "first", "last", "count")
"""What may be taken of a list of numbers."""
LABEL_NAMES = ("label", "labels", "y", "y_true", "target", "targets", "ground_truth")

LIGHTEVAL_SCORES, LIGHTEVAL_LABEL, LIGHTEVAL_CHOICES = "model_response.logprobs", "doc.gold_index", "doc.choices"
"""Paths in the details that lighteval writes: of the log-likelihoods of the choices, the right one, and their texts."""

CHOICES = b"drrej choices"
"""Marks a field of scores whose lists have different lengths; its value is the greatest, if it is known."""

NOT_A_NUMBER = b"drrej not a number"
"""Marks a field of text beside scores; its value tells the first cell that is not a number, and its row."""

SPARK_LOGITS, SPARK_PROBABILITIES = "rawPrediction", "probability"
"""Columns that Spark's classifiers add; `features` is a vector as well."""


def field_of(schema: pa.Schema, name: str) -> pa.Field | None:
    """The field of a column's name or path; None where there is none.

    >>> schema = pa.schema([("output", pa.struct([("logits", pa.list_(pa.float32()))])), ("a.b", pa.int64())])
    >>> field_of(schema, "output.logits").type, field_of(schema, "a.b").type, field_of(schema, "output.label")
    (ListType(list<item: float>), DataType(int64), None)
    """
    path = _path(schema, name)
    if path is None:
        return None
    found = schema.field(path[0])
    for piece in path[1:]:
        found = pa.field(piece, _inside(found.type, piece))
    return found


def root_of(schema: pa.Schema, name: str) -> str:
    """The column that a path begins with; the name itself where it is one."""
    path = _path(schema, name)
    return name if path is None else path[0]


def column_of(batch: pa.RecordBatch, name: str) -> pa.Array:
    """The values of a column or path, as a plain array; null where a struct on the way is."""
    path = _path(batch.schema, name)
    if path is None:
        raise KeyError(name)
    values = batch.column(path[0])
    for piece in path[1:]:
        values = _step(values, piece)
    return plain(values)


def plain(array: pa.Array) -> pa.Array:
    """The values themselves of an array of a dictionary, whose codes differ from batch to batch, or of an extension."""
    while isinstance(array, pa.ExtensionArray):
        array = array.storage
    return array.dictionary_decode() if isinstance(array, pa.DictionaryArray) else array


def _step(array: pa.Array, piece: str) -> pa.Array:
    """What is one step further on a path: a field, the item of a number in a list, or a field of all items."""
    import pyarrow.compute as pc

    if pa.types.is_struct(array.type):
        return pc.struct_field(array, [piece])
    starts, lengths, values = list_bounds(array)
    missing = np.asarray(array.is_null())
    if piece.isdecimal():
        number = min(int(piece), 1 << 40)
        return values.take(pa.array(starts + number, mask=missing | (lengths <= number)))
    ends = np.cumsum(np.append(0, np.where(missing, 0, lengths)))
    return pa.ListArray.from_arrays(
        pa.array(ends, pa.int32(), mask=np.append(missing, False)), _step(array.flatten(), piece)
    )


def list_bounds(array: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.int64], pa.Array]:
    """Where each list of a column starts among all values, how long it is, and these values; a null may have any."""
    if pa.types.is_fixed_size_list(array.type):
        width = array.type.list_size
        starts = (np.arange(len(array), dtype=np.int64) + array.offset) * width
        return starts, np.full(len(array), width, np.int64), array.values
    offsets = as_numpy(array.offsets).astype(np.int64)
    return offsets[:-1], np.diff(offsets), array.values


def list_items(array: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.int64], pa.Array]:
    """The row that each item of the lists of a column belongs to, its place there, and the items; a null has none."""
    lengths = np.where(np.asarray(array.is_null()), 0, list_bounds(array)[1])
    rows = np.repeat(np.arange(len(array)), lengths)
    return rows, np.arange(rows.size) - np.repeat(np.cumsum(lengths) - lengths, lengths), array.flatten()


def as_numpy(array: pa.Array) -> NDArray[Any]:
    """An Arrow array as a numpy array; numbers without nulls are not copied, and do not load pandas first."""
    is_number = pa.types.is_integer(array.type) or pa.types.is_floating(array.type)
    if not is_number or array.null_count:
        values: NDArray[Any] = array.to_numpy(zero_copy_only=False)
        return values
    kind = numpy_type(array.type)
    if not len(array):  # there may be no buffer
        return np.empty(0, kind)
    return np.frombuffer(array.buffers()[1], kind, len(array), array.offset * kind.itemsize)


def numpy_type(data_type: pa.DataType) -> np.dtype[Any]:
    """The numpy type of an Arrow type of numbers (`to_pandas_dtype` needs pandas in older versions)."""
    letter = "f" if pa.types.is_floating(data_type) else "u" if pa.types.is_unsigned_integer(data_type) else "i"
    return np.dtype(f"{letter}{data_type.bit_width // 8}")


def _path(schema: pa.Schema, name: str) -> tuple[str, ...] | None:
    if schema.get_field_index(name) >= 0 or name in schema.names:  # the list of names is long; -1 if it is there twice
        return (name,)
    pieces = name.split(".")
    for length in range(1, len(pieces)):
        root, rest = ".".join(pieces[:length]), pieces[length:]
        kind: Any = schema.field(root).type if root in schema.names else None
        for piece in rest:
            kind = None if kind is None else _inside(kind, piece)
        if kind is not None:
            return (root, *rest)
    return None


def _inside(kind: pa.DataType, piece: str) -> pa.DataType | None:
    """The type of what is one step further on a path; None where there is nothing. See `_step`."""
    if pa.types.is_struct(kind):
        return kind.field(piece).type if kind.get_field_index(piece) >= 0 else None
    if not is_list(kind) or isinstance(kind, pa.BaseExtensionType):
        return None
    if piece.isdecimal():
        return kind.value_type
    inside = _inside(kind.value_type, piece)
    return None if inside is None else pa.list_(inside)


Matched = tuple[tuple[str, ...], tuple[str, ...] | None]
"""Columns in class order, and the names of the classes if they have some."""

_NUMBERED = re.compile(r"(.*?)(0|[1-9]\d*)")
_WORDS = re.compile(r"((?:p|.*(?:prob|proba|probs|probability|logits?|scores?|pred))[_.:-])(.+)", re.IGNORECASE)


def is_number(data_type: pa.DataType, typed: bool = True) -> bool:
    """Whether values are floating-point, or whole where numbers are written as text and nobody can tell."""
    return bool(pa.types.is_floating(data_type) or (not typed and pa.types.is_integer(data_type)))


def _split(name: str) -> tuple[str | None, int]:
    """What a name is before the number at its end, None where there is none, and that number."""
    match = _NUMBERED.fullmatch(name)
    return (None, -1) if match is None else (match[1], int(match[2]))


def numbered(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Families of names prefix + 0..K-1, in numeric order, by their prefix."""
    members: dict[str, dict[int, str]] = {}
    for name in names:
        prefix, number = _split(name)
        if prefix is not None:
            members.setdefault(prefix, {})[number] = name
    return {
        prefix: tuple(family[i] for i in range(len(family)))
        for prefix, family in members.items()
        if len(family) >= 2 and sorted(family) == list(range(len(family)))
    }


def families(schema: pa.Schema, typed: bool = True) -> dict[str, tuple[str, ...]]:
    """Families of floating-point columns; of numbers that are written as text, some of a family may look whole."""
    found = numbered(field.name for field in schema if is_number(field.type, typed))
    floating = {field.name for field in schema if pa.types.is_floating(field.type)}
    return {prefix: names for prefix, names in found.items() if not floating.isdisjoint(names)}


def match_columns(schema: pa.Schema, pattern: str, classes: Sequence[str] | None, typed: bool, where: str) -> Matched:
    """The columns of a glob or of a comma list.

    Columns of a glob that end in class numbers are in numeric order; others have the order of the file, or of the
    `classes`, and what the star stands for is the name of the class. A comma list has the order of the classes.
    """
    if not any(mark in pattern for mark in "*?["):
        return _listed(schema, pattern, classes, typed, where)
    names = [name for name in schema.names if fnmatch.fnmatchcase(name, pattern)]
    if pattern.endswith("*"):  # PREFIX* means the numbered columns: logit_max is not a class
        prefix = pattern[:-1]
        names = [name for name in schema.names if _split(name)[0] == prefix] or names
    if not names:
        raise DumpError(f"{where}: no column matches `logits='{pattern}'`; columns: {shown(schema.names)}")
    if len(names) == 1 and not is_number(schema.field(names[0]).type, typed):
        return (names[0],), None
    _check_numbers(schema, names, f"matches `logits='{pattern}'`", typed, where)
    if all(_split(name)[0] is not None for name in names):
        return _in_numeric_order(names, pattern, where), None
    return _named(names, pattern, classes, where)


def _named(names: Sequence[str], pattern: str, classes: Sequence[str] | None, where: str) -> Matched:
    if pattern.count("*") != 1 or "?" in pattern or "[" in pattern:
        raise DumpError(
            f"{where}: `logits='{pattern}'`: one star is needed, which stands for the names of the classes "
            f"({shown(names)} match); or list the columns in class order: `logits=A,B,...`"
        )
    before, after = pattern.split("*")
    by_class = {name[len(before) : len(name) - len(after)]: name for name in names}
    if len(by_class) < 2 or "" in by_class:
        raise DumpError(f"{where}: `logits='{pattern}'` matches only {shown(names)}; each class needs a column")
    if classes is None:
        return tuple(by_class.values()), tuple(by_class)
    missing = [name for name in classes if name not in by_class]
    more = [name for name in by_class if name not in classes]
    if missing or more:
        what = f"there is no column '{before}{missing[0]}{after}'" if missing else ""
        what = what or f"'{by_class[more[0]]}' is not of a class"
        raise DumpError(f"{where}: {what}: `logits='{pattern}'` is for the classes {shown(list(classes))}")
    return tuple(by_class[name] for name in classes), tuple(classes)


def _listed(schema: pa.Schema, listed: str, classes: Sequence[str] | None, typed: bool, where: str) -> Matched:
    names = [name.strip() for name in listed.split(",")]
    missing = [name for name in names if name not in schema.names]
    if missing:
        raise DumpError(
            f"{where}: there is no column '{missing[0]}'; choose with `logits` among: {shown(schema.names)}"
        )
    if len(set(names)) < len(names) or len(names) < 2:
        raise DumpError(f"{where}: `logits={listed}`: name each class's column once")
    _check_numbers(schema, names, f"is in `logits={listed}`", typed, where)
    if classes is not None:
        return tuple(names), tuple(classes)
    shared = re.match(r"(.*[_.:-])?", os.path.commonprefix(names))  # noqa: RUF071 - of characters
    spelled = [name[len(shared[0]) if shared else 0 :] for name in names]
    numbers = [str(number) for number in range(len(names))]
    return tuple(names), None if spelled == numbers else tuple(spelled)


def _in_numeric_order(names: Sequence[str], pattern: str, where: str) -> tuple[str, ...]:
    found = {_split(name): name for name in names}
    prefixes = sorted({str(prefix) for prefix, _ in found})
    if len(prefixes) > 1:
        several = shown([f"{prefix}*" for prefix in prefixes])
        raise DumpError(f"{where}: `logits='{pattern}'` matches several families of columns ({several}); choose one")
    ordered = [found.get((prefixes[0], number)) for number in range(max(2, len(names)))]
    if None in ordered:
        raise DumpError(
            f"{where}: `logits='{pattern}'` matches {len(names)} columns but '{prefixes[0]}{ordered.index(None)}' is "
            "missing; classes must be numbered 0 to K-1"
        )
    return tuple(filter(None, ordered))


def _check_numbers(schema: pa.Schema, names: Sequence[str], what: str, typed: bool, where: str) -> None:
    wrong = next((name for name in names if not is_number(schema.field(name).type, typed)), None)
    if wrong is not None:
        raise DumpError(
            f"{where}: column '{wrong}' {what} but is {schema.field(wrong).type}; "
            "logits must be floating-point numbers: cast it to float32"
        )
