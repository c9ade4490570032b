"""Which columns of a dump hold the logits and the label, and in which layout."""

from __future__ import annotations

import fnmatch
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from drrej.data.problems import shown
from drrej.errors import DumpError

Layout = Literal["list", "wide", "score"]

LOGITS = "logits"
LABEL = "label"
_FAMILY = re.compile(r"(.*?)(0|[1-9]\d*)")


@dataclass(frozen=True)
class LogitColumns:
    """The columns that hold the scores of a row, in class order.

    `pattern` is what is remembered in the rejector: a column's name, or a family's prefix with `*`.
    """

    names: tuple[str, ...]
    layout: Layout
    pattern: str


def storage_type(data_type: pa.DataType) -> pa.DataType:
    """The type below extension types such as arrow.fixed_shape_tensor."""
    while isinstance(data_type, pa.BaseExtensionType):
        data_type = data_type.storage_type
    return data_type


def is_float_list(data_type: pa.DataType) -> bool:
    """Whether a column holds a list of floating-point numbers per row."""
    data_type = storage_type(data_type)
    is_list = pa.types.is_list(data_type) or pa.types.is_large_list(data_type) or pa.types.is_fixed_size_list(data_type)
    return bool(is_list and pa.types.is_floating(data_type.value_type))


def find_logits(
    schema: pa.Schema, wanted: str | None, binary: bool, where: str, label: str | None = None
) -> LogitColumns:
    """The logit columns of a schema: as asked for, or the only ones that can be meant."""
    repeated = sorted(name for name, count in Counter(schema.names).items() if count > 1)
    if repeated:
        raise DumpError(f"{where}: column '{repeated[0]}' occurs twice; rename one of them")
    if wanted is not None:
        return _asked_for(schema, wanted, binary, where)
    if binary:
        return _only_score(schema, where, label or LABEL)
    if LOGITS in schema.names:
        return _asked_for(schema, LOGITS, binary, where)
    lists = [field.name for field in schema if is_float_list(field.type)]
    if len(lists) == 1:
        return LogitColumns((lists[0],), "list", lists[0])
    families = {} if lists else _families(schema)
    if len(families) == 1:
        prefix, names = next(iter(families.items()))
        return LogitColumns(names, "wide", prefix + "*")
    candidates = lists or [f"{prefix}*" for prefix in families]
    if candidates:
        raise DumpError(f"{where}: several columns may hold the logits ({shown(candidates)}); choose with `logits`")
    one = any(pa.types.is_floating(field.type) for field in schema)
    hint = " (add `binary=True` if it is one score per row, that of class 1)" if one else ""
    raise DumpError(
        f"{where}: no logit columns found (no 'logits', no list of floats, no columns like logit_0, logit_1, ...); "
        f"choose with `logits` among: {shown(schema.names)}{hint}"
    )


def _asked_for(schema: pa.Schema, wanted: str, binary: bool, where: str) -> LogitColumns:
    if wanted in schema.names:
        data_type = schema.field(wanted).type
        if is_float_list(data_type):
            if binary:
                raise DumpError(
                    f"{where}: column '{wanted}' holds a list per row, but `binary=True` means one score per row"
                )
            return LogitColumns((wanted,), "list", wanted)
        if pa.types.is_floating(data_type):
            if binary:
                return LogitColumns((wanted,), "score", wanted)
            raise DumpError(
                f"{where}: column '{wanted}' holds one score per row; add `binary=True` if it is the score of class 1, "
                "or name the columns of all classes with `logits='PREFIX*'`"
            )
        raise DumpError(
            f"{where}: column '{wanted}' is {data_type}; logits must be a list of floating-point numbers per row "
            "(or one floating-point column per class): cast it to float32"
        )
    if any(ch in wanted for ch in "*?["):
        if binary:
            raise DumpError(
                f"{where}: `binary=True` means one score per row; name that column with `logits`, not '{wanted}'"
            )
        return _glob(schema, wanted, where)
    raise DumpError(f"{where}: there is no column '{wanted}'; choose with `logits` among: {shown(schema.names)}")


def _glob(schema: pa.Schema, pattern: str, where: str) -> LogitColumns:
    names = [name for name in schema.names if fnmatch.fnmatchcase(name, pattern)]
    if pattern.endswith("*"):  # PREFIX* means the numbered columns: logit_max is not a class
        prefix = pattern[:-1]
        names = [name for name in schema.names if _is_member(name, prefix)] or names
    if not names:
        raise DumpError(f"{where}: no column matches `logits='{pattern}'`; columns: {shown(schema.names)}")
    if len(names) == 1 and is_float_list(schema.field(names[0]).type):
        return LogitColumns((names[0],), "list", names[0])
    not_float = [name for name in names if not pa.types.is_floating(schema.field(name).type)]
    if not_float:
        kind = schema.field(not_float[0]).type
        raise DumpError(
            f"{where}: column '{not_float[0]}' matches `logits='{pattern}'` but is {kind}; "
            "logits must be floating-point numbers: cast it to float32"
        )
    numbered: dict[int, str] = {}
    prefixes = set()
    for name in names:
        match = _FAMILY.fullmatch(name)
        if match is None:
            raise DumpError(
                f"{where}: column '{name}' matches `logits='{pattern}'` but does not end in a class number; "
                "rename the columns to prefix + 0, 1, ... in class order"
            )
        prefixes.add(match[1])
        numbered[int(match[2])] = name
    if len(prefixes) > 1:
        families = shown([f"{prefix}*" for prefix in sorted(prefixes)])
        raise DumpError(f"{where}: `logits='{pattern}'` matches several families of columns ({families}); choose one")
    if sorted(numbered) != list(range(len(numbered))) or len(names) < 2:
        missing = next(i for i in range(len(numbered) + 1) if i not in numbered)
        prefix = prefixes.pop()
        raise DumpError(
            f"{where}: `logits='{pattern}'` matches {len(names)} columns but '{prefix}{missing}' is missing; "
            f"classes must be numbered 0 to K-1"
        )
    return LogitColumns(tuple(numbered[i] for i in range(len(numbered))), "wide", pattern)


def _is_member(name: str, prefix: str) -> bool:
    match = _FAMILY.fullmatch(name)
    return match is not None and match[1] == prefix


def _only_score(schema: pa.Schema, where: str, label: str) -> LogitColumns:
    scores = [field.name for field in schema if pa.types.is_floating(field.type) and field.name != label]
    if LOGITS in scores:
        return LogitColumns((LOGITS,), "score", LOGITS)
    if len(scores) == 1:
        return LogitColumns((scores[0],), "score", scores[0])
    what = f"several floating-point columns ({shown(scores)})" if scores else "no floating-point column (only lists?)"
    raise DumpError(f"{where}: `binary=True` needs one score per row but there is {what}; choose with `logits`")


def _families(schema: pa.Schema) -> dict[str, tuple[str, ...]]:
    """Families prefix + 0..K-1 of floating-point columns, in numeric order."""
    members: dict[str, dict[int, str]] = {}
    for field in schema:
        match = _FAMILY.fullmatch(field.name)
        if match is not None and pa.types.is_floating(field.type):
            members.setdefault(match[1], {})[int(match[2])] = field.name
    return {
        prefix: tuple(numbered[i] for i in range(len(numbered)))
        for prefix, numbered in members.items()
        if len(numbered) >= 2 and sorted(numbered) == list(range(len(numbered)))
    }


def find_label(names: Sequence[str], wanted: str | None, where: str) -> str:
    """The label column: as asked for, else `label`."""
    label = wanted or LABEL
    if label in names:
        return label
    if wanted is None:
        raise DumpError(
            f"{where}: there is no column 'label'; choose one with `label` (columns: {shown(names)}) "
            "or bring labels with `labels_from=FILE` `join_on=COL`"
        )
    raise DumpError(f"{where}: there is no label column '{label}'; choose one with `label` among: {shown(names)}")
