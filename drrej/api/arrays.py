"""Arrays of scores and labels, seen as a dump: they go through the same steps as files, with the same bits."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

from drrej.core.inputs import DOUBTS, WORDS, ScoreLook
from drrej.core.types import Floats
from drrej.documents.rejector import Rejector as Document
from drrej.errors import DrrejWarning, DumpError

if TYPE_CHECKING:  # a service that scores arrays needs none of these
    import pyarrow as pa

    from drrej.data.dump import DumpOptions
    from drrej.pipeline.source import Source

Array = np.ndarray[Any, Any]
GROUP, SCORE, CORRECT = "group", "score", "correct"
"""The columns of groups, of scores of any kind (the name is followed by a number), and of whether a row was right."""


@contextlib.contextmanager
def array_source(scores: Any, labels: Any, options: DumpOptions, groups: pa.Array | None = None) -> Iterator[Source]:
    """Arrays as a dump; `labels` may be None, and `groups` are in the column `GROUP`.

    `options` say what the scores are and what the classes are called; whether they are `binary` may be left open.
    """
    import pyarrow as pa

    from drrej.data.columns import LABEL, LOGITS
    from drrej.data.formats.arrow import held
    from drrej.pipeline.source import Source

    if options.score is not None:  # of any kind, each a column of its own
        names = [name.removesuffix(WORDS) for name in options.score.split(",")]
        rows = as_columns(matched(scores, names, None))
        if rows.shape[1] != len(names):
            raise DumpError(f"there are {rows.shape[1]} scores per row, but the rejector was made for {len(names)}")
        columns = dict(zip(names, map(pa.array, np.ascontiguousarray(rows.T)), strict=True))
    else:
        rows = as_scores(matched(scores, options.classes, options.logits))
        binary = rows.ndim == 1
        if options.binary not in (None, binary):
            wanted = "one score per row" if options.binary else "a row of scores, one for each class"
            raise DumpError(f"scores have the shape {rows.shape}, but the rejector was made for {wanted}")
        if options.binary is False and options.input == "logits":
            warn_of_probabilities(rows)
        values = pa.array(np.ascontiguousarray(rows).reshape(-1))
        columns = {LOGITS: values if binary else pa.FixedSizeListArray.from_arrays(values, rows.shape[1])}
        options = replace(options, logits=LOGITS, label=LABEL, binary=binary)
    truth = LABEL if options.score is None else CORRECT
    for name, column in ((truth, None if labels is None else as_labels(labels)), (GROUP, groups)):
        if column is not None:
            check_length(rows, column, name)
            columns[name] = column
    with held(pa.table(columns), "arrays") as part:
        yield Source(part.path, options, spools={part.path: part})


def warn_of_probabilities(rows: Array, largest: Floats | None = None) -> None:
    """Warn the user, who is five calls up, when rows that are taken for logits look like something else."""
    kind = ScoreLook.of(rows, largest).kind()
    if kind != "logits":
        warnings.warn(f"{DOUBTS[kind][0]}, but the rejector was made for logits", DrrejWarning, stacklevel=5)


def as_columns(scores: Any) -> Array:
    """Scores of any kind as an array: rows x scores, of numbers or of texts."""
    array = _as_array(scores, "scores")
    array = array[:, None] if array.ndim == 1 else array
    if texts := array.dtype.kind in "OUT" and all(isinstance(value, str) for value in array.flat):
        array = array.astype(object)
    kind = "numbers or texts" if array.dtype == object else f"{array.dtype}"
    if array.ndim != 2 or not (texts or array.dtype.kind in "fiu") or array.dtype.itemsize > 8 or not array.shape[1]:
        raise DumpError(
            f"scores are {kind} of the shape {array.shape}; one number per row is needed, or a few, or texts"
        )
    return array if texts else array.astype(np.float64)


def score_names(scores: Any) -> str:
    """What scores of any kind are called: as their frame or series says, else 'score', or 'score_0' and so on."""
    columns = _columns_of(scores)
    names: list[Any] = [getattr(scores, "name", None)] if columns is None else list(columns)
    if all(isinstance(name, str) and not {",", ":"} & {*name} and name not in (CORRECT, GROUP) for name in names):
        return ",".join(names)
    count = as_columns(scores).shape[1]
    return SCORE if count == 1 else ",".join(f"{SCORE}_{i}" for i in range(count))


def check_length(rows: Array, column: pa.Array, name: str) -> None:
    """Raise unless there is a value for each row."""
    if len(column) != len(rows):
        raise DumpError(f"there are {len(rows)} rows of scores but {len(column)} {name}s; each row needs its {name}")


def options_of(document: Document) -> DumpOptions:
    """How scores are read that a rejector is applied to."""
    from drrej.data.dump import DumpOptions

    names = None if document.class_names is None else tuple(document.class_names)
    if document.is_scored:
        return DumpOptions(score=document.columns.logits, correct=CORRECT)
    known = {name: getattr(document, name) for name in ("input", "normalize", "binary")}
    return DumpOptions(classes=names, logits=document.columns.logits, **known)


def as_names(classes: Sequence[str] | None) -> tuple[str, ...] | None:
    """Names of classes, each once."""
    if classes is None:
        return None
    names = [classes] if isinstance(classes, str) else list(classes)
    for name in names:
        if not isinstance(name, str):
            raise DumpError(
                f"`classes` holds {name!r}, which is not text; names are text, and without names labels are class "
                "numbers from 0 (numpy.searchsorted(classes, labels) gives these)"
            )
    if len(set(names)) < len(names):
        raise DumpError("`classes` names a class twice; name each class once, in the order of the scores")
    return tuple(str(name) for name in names)  # numpy's own strings are text too


def _columns_of(scores: Any) -> Any:
    return getattr(scores, "column_names", None) or getattr(scores, "columns", None)  # of Arrow, and of pandas


def frame_pattern(scores: Any) -> str | None:
    """The columns of a frame by which later ones are matched, as `logits` lists them; None if these are no names."""
    from drrej.data.columns import numbered

    names = list(() if _columns_of(scores) is None else _columns_of(scores))
    plain = all(isinstance(name, str) and not {*",*?["} & {*name} for name in names) and not numbered(names)
    return ",".join(names) if len(set(names)) == len(names) > 1 and plain else None


def matched(scores: Any, classes: Sequence[str] | None, pattern: str | None) -> Any:
    """A data frame with its columns in the order of the classes, if that is what they are called, or are numbered.

    Classes without names are called as the columns of the first frame were, in `pattern`.
    """
    columns = _columns_of(scores)
    if columns is None:
        return scores
    from drrej.data.columns import numbered

    own, called = {str(column): column for column in columns}, pattern or ""
    classes = classes or (called.split(",") if "," in called else None)
    names = [str(name) for name in classes or next(iter(numbered(own).values()), ())]
    if own.keys() == set(names):
        if list(own) == names:
            return scores
        return scores.select(names) if hasattr(scores, "column_names") else scores[[own[name] for name in names]]
    if classes is not None and own.keys() & set(names):
        raise DumpError(f"the columns of the scores, {list(own)}, do not name the classes, {names}, one by one")
    return scores


def as_scores(scores: Any) -> Array:
    """Scores as a floating-point array: rows x classes, or one score per row."""
    array = _as_array(scores, "scores")
    if array.ndim == 2 and array.shape[1] == 1:
        raise DumpError(
            f"scores have the shape {array.shape}; if they are one score per row, that of class 1, pass scores[:, 0]"
        )
    if array.ndim not in (1, 2) or not array.size:
        raise DumpError(f"scores have the shape {array.shape}; rows x classes is needed, or one score per row")
    if array.dtype.kind in "iu":
        array = array.astype(np.float64)
    if array.dtype.kind != "f" or array.dtype.itemsize > 8:
        raise DumpError(f"scores are {array.dtype}; they must be numbers: float16, float32 or float64")
    return array


def as_groups(groups: Any) -> pa.Array:
    """Groups as a column: whole numbers, or names."""
    import pyarrow as pa

    array = _as_array(groups, "groups")
    if array.ndim != 1 or array.dtype.kind not in "iuOU":
        raise DumpError(
            f"groups are {array.dtype} of the shape {array.shape}; one whole number or text per row is needed"
        )
    return pa.array(array.tolist() if array.dtype.kind in "OU" else array)


def has_no_rows(scores: Any) -> bool:
    """Whether these are scores of no rows at all."""
    return bool(_as_array(scores, "scores").shape[:1] == (0,))


def as_labels(labels: Any) -> pa.Array:
    """Labels as a column: class numbers, or names."""
    import pyarrow as pa
    import pyarrow.compute as pc

    array = _as_array(labels, "labels")
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise DumpError(
            f"labels have the shape {array.shape}; one label per row is needed (class numbers, not one-hot)"
        )
    try:
        # from_pandas: what pandas takes for a missing value is one
        column = pa.array(array, from_pandas=array.dtype.kind == "O")
    except pa.ArrowException:
        raise DumpError(
            f"labels are {array.dtype}, or of several kinds; they must be class numbers, or names"
        ) from None
    return pc.cast(column, pa.string()) if array.dtype.kind == "U" else column


def _as_array(values: Any, what: str) -> Array:
    """Lists, numpy arrays, torch CPU tensors, and what has `__array__` or DLPack."""
    if type(values) is np.ndarray and values.ndim and values.dtype.isnative:
        return values
    if hasattr(values, "detach"):  # a torch tensor, perhaps one that is trained
        values = values.detach()
        if str(values.dtype) == "torch.bfloat16":  # numpy has no such type; float32 holds its values
            values = values.float()
    try:
        if hasattr(values, "__dlpack__") and not hasattr(values, "__array__"):
            array = np.from_dlpack(values)
        elif hasattr(values, "mask") and np.ma.isMaskedArray(values) and np.ma.is_masked(values):  # slow to import
            raise DumpError(f"{what} are masked in places; drop or fix these rows")
        elif _is_nullable(values):
            array = values.to_numpy(dtype=np.float64, na_value=np.nan)
        else:
            array = np.asarray(values)
    except (TypeError, ValueError, RuntimeError, BufferError) as error:
        reason = " ".join(str(error).split())[:200]
        raise DumpError(f"{what} cannot be read as an array ({reason})") from None
    if not array.ndim:
        raise DumpError(f"{what} are a {type(values).__name__}; an array is needed, or a list")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _is_nullable(values: Any) -> bool:
    """Whether this is a pandas frame of numbers that may be missing, which numpy would take for objects."""
    if not (hasattr(values, "columns") and hasattr(values, "dtypes") and hasattr(values, "to_numpy")):
        return False
    kinds = list(values.dtypes)
    return all(getattr(kind, "kind", "O") in "fiu" for kind in kinds) and any(hasattr(k, "na_value") for k in kinds)
