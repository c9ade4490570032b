"""Which columns of a dump hold the logits and the label, and in which layout."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Literal

import pyarrow as pa

from drrej.core.types import InputKind
from drrej.data.families import families, is_number, match_columns, named_families
from drrej.data.names import (
    CHOICES,
    LABEL_NAMES,
    LIGHTEVAL_CHOICES,
    LIGHTEVAL_LABEL,
    LIGHTEVAL_SCORES,
    SCORE_NAMES,
    SPARK_LOGITS,
    SPARK_PROBABILITIES,
)
from drrej.data.paths import field_of
from drrej.data.problems import shown
from drrej.errors import DumpError
from drrej.records import dataclass

Layout = Literal["list", "wide", "score", "vector", "labelled", "choices"]
"""A list per row, a column per class, one score, Spark's vectors, a list of (label, probability) in any order, or a
list whose length differs from row to row: the scores of the choices that a question has."""

LOGITS = "logits"
LABEL = "label"


@dataclass(frozen=True)
class LogitColumns:
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


@dataclass(frozen=True)
class Wanted:
    """What is known of the scores before the columns are: what the user says, and whether the format has types."""

    logits: str | None = None
    binary: bool = False
    label: str | None = None
    classes: tuple[str, ...] | None = None
    input: InputKind | None = None
    typed: bool = True
    per_length: bool = False


def storage_type(data_type: pa.DataType) -> pa.DataType:
    """The type below extension types such as arrow.fixed_shape_tensor."""
    while isinstance(data_type, pa.BaseExtensionType):
        data_type = data_type.storage_type
    return data_type


def is_list(data_type: pa.DataType) -> bool:
    """Whether a column holds a list per row."""
    data_type = storage_type(data_type)
    return bool(
        pa.types.is_list(data_type) or pa.types.is_large_list(data_type) or pa.types.is_fixed_size_list(data_type)
    )


def is_float_list(data_type: pa.DataType, typed: bool = True) -> bool:
    """Whether a column holds a list of floating-point numbers per row."""
    return is_list(data_type) and is_number(storage_type(data_type).value_type, typed)


def list_layout(data_type: pa.DataType, typed: bool = True) -> Layout | None:
    """The layout of a column that holds all scores of a row; None for any other column."""
    if is_float_list(data_type, typed):
        return "list"
    if pa.types.is_struct(data_type) and {"type", "size", "indices", "values"} == {f.name for f in data_type}:
        return "vector" if is_float_list(data_type.field("values").type) else None
    if is_list(data_type):
        item = storage_type(data_type).value_type
        if pa.types.is_struct(item) and {"label", "prob"} == {field.name for field in item}:
            return "labelled" if pa.types.is_floating(item.field("prob").type) else None
    return None


def find_logits(schema: pa.Schema, wanted: Wanted, where: str) -> LogitColumns:
    """The logit columns of a schema: as asked for, or the only ones that can be meant."""
    found = _find_logits(schema, wanted, where)
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


def _find_logits(schema: pa.Schema, wanted: Wanted, where: str) -> LogitColumns:
    repeated = sorted(name for name, count in Counter(schema.names).items() if count > 1)
    if repeated:
        raise DumpError(f"{where}: column '{repeated[0]}' occurs twice; rename one of them")
    if wanted.logits is not None:
        return _asked_for(schema, wanted.logits, wanted, where)
    if wanted.binary:
        return _only_score(schema, where, wanted.label or LABEL)
    if LOGITS in schema.names:
        return _asked_for(schema, LOGITS, wanted, where)
    lists = {field.name: layout for field in schema if (layout := list_layout(field.type, wanted.typed)) is not None}
    if is_lighteval(schema):
        return _asked_for(schema, LIGHTEVAL_SCORES, wanted, where)
    chosen = _most_likely(lists, wanted.input)
    if chosen is not None:
        return LogitColumns((chosen,), lists[chosen], chosen)
    found = {} if lists else families(schema, wanted.typed)
    if len(found) == 1:
        prefix, names = next(iter(found.items()))
        return LogitColumns(names, "wide", prefix + "*")
    candidates = [*lists] or [f"{prefix}*" for prefix in found]
    if candidates:
        raise DumpError(f"{where}: several columns may hold the logits ({shown(candidates)}); choose with `logits`")
    suggested = suggested_logits(schema, wanted)
    if suggested is not None:
        raise DumpError(
            f"{where}: are the columns '{suggested}' the scores, with the classes in their names? then say "
            f"`logits='{suggested}'`"
        )
    one = any(pa.types.is_floating(field.type) for field in schema)
    hint = " (add `binary=True` if it is one score per row, that of class 1)" if one else ""
    raise DumpError(
        f"{where}: no logit columns found (no 'logits', no list of floats, no columns like logit_0, logit_1, ...); "
        f"choose with `logits` among: {shown(schema.names)}{hint}"
    )


def is_lighteval(schema: pa.Schema) -> bool:
    """Whether a table has the columns of lighteval's details of multiple choice."""
    return all(field_of(schema, path) is not None for path in (LIGHTEVAL_SCORES, LIGHTEVAL_LABEL, LIGHTEVAL_CHOICES))


def suggested_logits(schema: pa.Schema, wanted: Wanted) -> str | None:
    """A pattern for columns that are named by class, where there is one family of them and nothing else."""
    found = named_families(schema, wanted.typed, wanted.label or LABEL)
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


def _asked_for(schema: pa.Schema, name: str, wanted: Wanted, where: str) -> LogitColumns:
    field = field_of(schema, name)
    if field is not None:
        return _one_column(field.type, name, wanted, where)
    if any(mark in name for mark in "*?[,"):
        if wanted.binary:
            raise DumpError(
                f"{where}: `binary=True` means one score per row; name that column with `logits`, not '{name}'"
            )
        names, classes = match_columns(schema, name, wanted.classes, wanted.typed, where)
        layout = list_layout(schema.field(names[0]).type, wanted.typed) if len(names) == 1 else None
        if layout is not None:
            return LogitColumns(names, layout, names[0])
        return LogitColumns(names, "wide", name, classes)
    raise DumpError(f"{where}: there is no column '{name}'; choose with `logits` among: {shown(schema.names)}")


def _one_column(data_type: pa.DataType, name: str, wanted: Wanted, where: str) -> LogitColumns:
    layout = list_layout(data_type, wanted.typed)
    if layout is not None:
        if wanted.binary:
            raise DumpError(f"{where}: column '{name}' holds a list per row, but `binary=True` means one score per row")
        return LogitColumns((name,), layout, name)
    if is_number(data_type, wanted.typed):
        if wanted.binary:
            return LogitColumns((name,), "score", name)
        raise DumpError(
            f"{where}: column '{name}' holds one score per row; add `binary=True` if it is the score of class 1, "
            "or name the columns of all classes with `logits='PREFIX*'`"
        )
    if pa.types.is_struct(data_type):
        inside = [f"{name}.{field.name}" for field in data_type]
        raise DumpError(f"{where}: column '{name}' is a struct; choose with `logits` among: {shown(inside)}")
    raise DumpError(
        f"{where}: column '{name}' is {data_type}; logits must be a list of floating-point numbers per row "
        "(or one floating-point column per class): cast it to float32"
    )


def _only_score(schema: pa.Schema, where: str, label: str) -> LogitColumns:
    scores = [field.name for field in schema if pa.types.is_floating(field.type) and field.name != label]
    if LOGITS in scores:
        return LogitColumns((LOGITS,), "score", LOGITS)
    if len(scores) == 1:
        return LogitColumns((scores[0],), "score", scores[0])
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
    label = likely_label(schema)
    if label is not None:
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
