"""Rows that bring a score and whether they were right: numbers, lists, texts such as "85%"; true, 1 or "correct"."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from msgspec.structs import replace
from numpy.typing import NDArray

from drrej.core.inputs import LEVELS, WORDS
from drrej.core.types import Floats
from drrej.data.columns import (
    CORRECT_NAMES,
    REDUCTIONS,
    LogitColumns,
    check_repeated,
    column_of,
    field_of,
    find_label,
    find_logits,
    is_list,
    likely_label,
    list_items,
    storage_type,
)
from drrej.data.labels import LATE, UNKNOWN, LabelKind, is_text, value_type
from drrej.data.problems import shown
from drrej.data.scores import Report
from drrej.errors import DumpError, OptionError

if TYPE_CHECKING:
    from drrej.data.dump import Block, DumpOptions

_NUMBER = r"([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)"
_SAID = re.compile(rf"(?:confidence\s*[:=]\s*)?{_NUMBER}\s*(?:(%)|/\s*{_NUMBER})?", re.IGNORECASE | re.ASCII)

_PAIRS = (
    *(("true", "false"), ("1", "0"), ("yes", "no"), ("correct", "incorrect"), ("right", "wrong"), ("pass", "fail")),
    *(("passed", "failed"), ("hit", "miss"), ("t", "f"), ("y", "n"), ("c", "i"), ("1.0", "0.0")),
)
"""What says that a row was right, and that it was wrong, in any case of the letters."""
_WORDS = WORDS[1:]
_RIGHT, _WRONG = map(frozenset, zip(*_PAIRS, strict=True))

_DROP = "drop or fix these rows"
RIGHT, WRONG = 0, 1
"""The classes of such a row; the prediction is always the first."""


# Scores


def read_confidences(batch: pa.RecordBatch, columns: LogitColumns, report: Report) -> Floats:
    """The scores of each row (rows x scores) in float64; rows without a finite one are reported and have 0."""
    scores = np.zeros((batch.num_rows, len(columns.names)))
    for place, (name, how) in enumerate(columns.reduced):
        stored = column_of(batch, name)
        missing = np.asarray(stored.is_null())
        report(np.flatnonzero(missing), "no value (null)", _DROP)
        if is_text(stored.type):
            values = _said(stored, how, report)
        elif how:
            values = _reduced(stored, how, missing, report)
        else:
            values = stored.cast(pa.float64(), safe=False).fill_null(0.0).to_numpy(zero_copy_only=False)
        odd = np.flatnonzero(~np.isfinite(values))
        report(odd, "a score that is not finite", _DROP, f"{values[odd[0]]}" if odd.size else "")
        scores[:, place] = np.where(np.isfinite(values), values, 0.0)
    return scores


def _reduced(array: pa.Array, how: str, missing: NDArray[np.bool_], report: Report) -> Floats:
    """One number of each list: nulls in it do not count, as of a first token that has no log-probability."""
    owners, _, items = list_items(array)
    flat = items.cast(pa.float64(), safe=False)
    there = np.asarray(flat.is_valid())
    owners, numbers = owners[there], flat.drop_null().to_numpy(zero_copy_only=False)
    counts = np.bincount(owners, minlength=len(array))
    report(np.flatnonzero((counts == 0) & ~missing), "a list without numbers", "every row needs one at least")
    if how == "count" or not numbers.size:
        return counts.astype(np.float64)
    lists = pa.table({"row": owners, "value": numbers}).group_by("row", use_threads=False)
    taken, found = lists.aggregate([("value", how)]), np.zeros(len(array))
    found[taken["row"].to_numpy()] = taken[f"value_{how}"].to_numpy()
    found[owners[np.isnan(numbers)]] = np.nan  # which Arrow would leave out
    return found


def _said(array: pa.Array, how: str, report: Report) -> Floats:
    """Numbers from texts: 0.85, 85%, 17/20, Confidence: 0.85; or, all of them, words from "very low" to "very high"."""
    coded, number_of = array.dictionary_encode(), said_level if how == _WORDS else said_number
    numbers = [number_of(text) for text in coded.dictionary.to_pylist()]
    values = np.array([np.nan if number is None else number for number in (*numbers, 0.0)])
    found = values[coded.indices.fill_null(len(numbers)).to_numpy(zero_copy_only=False)]
    odd = np.flatnonzero(np.isnan(found))
    example = f"'{array[int(odd[0])].as_py()[:40]}'" if odd.size else ""
    words, numeric = "one of very low, low, medium, high, very high", "0.85, 85% or 17/20"
    remedy = f"write {words}, as in the other rows" if how == _WORDS else f"write {numeric}, or in every row {words}"
    report(odd, f"a text that is not a confidence in {'words' if how == _WORDS else 'numbers'}", remedy, example)
    return np.where(np.isnan(found), 0.0, found)


def said_level(text: str) -> float | None:
    """The number that a word of confidence stands for; None for any other text."""
    return LEVELS.get(" ".join(re.split(r"[\s_-]+", text.strip().lower())))


def in_words(columns: LogitColumns, schema: pa.Schema, first_texts: Callable[[str], list[str]]) -> LogitColumns:
    """The columns of scores, told which of them are words, by the first texts of those that are texts."""
    ways = []
    for name, how in columns.reduced:
        found = field_of(schema, name)
        texts = first_texts(name) if not how and found is not None and is_text(value_type(found.type)) else []
        ways.append(_WORDS if texts and said_level(texts[0]) is not None else how)
    if tuple(ways) == columns.reductions:
        return columns
    pattern = ",".join(f"{name}:{how}" if how else name for name, how in zip(columns.names, ways, strict=True))
    return replace(columns, pattern=pattern, reductions=tuple(ways))


def said_number(text: str) -> float | None:
    """The number that a text of confidence says; None where that cannot be told, as of 85 without a sign.

    >>> [said_number(text) for text in ("85%", "0.85", "Confidence: 17/20", "85", "sure")]
    [0.85, 0.85, 0.85, None, None]
    """
    match = _SAID.fullmatch(text.strip())
    if match is None:
        return None
    number = float(match[1])
    if match[2] is not None:
        return number / 100.0
    if match[3] is not None:
        return number / float(match[3]) if float(match[3]) else None
    return None if number > 1.0 else number


def find_columns(schema: pa.Schema, wanted: DumpOptions, where: str, typed: bool = True) -> LogitColumns:
    """The columns of the scores of a schema: scores of any kind where they are asked for, else those of all classes."""
    if wanted.score is None:
        try:
            return find_logits(schema, wanted, where, typed)
        except DumpError:
            known = None if wanted.logits or wanted.binary or wanted.label else likely_scores(schema)
            if known is None:
                raise
            said = " ".join(f"`{name}={value}`" for name, value in known.items())
            raise DumpError(f"{where}: no logits, but '{known['score']}' looks like a score; pass {said}") from None
    check_repeated(schema.names, where)
    return find_scores(schema, wanted.score, where)


def find_scores(schema: pa.Schema, asked: str, where: str) -> LogitColumns:
    """The columns of a comma list of columns or paths, those of lists with what to take of them: `logprobs:mean`."""
    names, reductions = [], []
    for text in [asked] if field_of(schema, asked) is not None else [part.strip() for part in asked.split(",")]:
        path, how = text, ""
        if field_of(schema, text) is None and ":" in text:
            path, _, how = text.rpartition(":")
        found = field_of(schema, path)
        if found is None:
            raise DumpError(f"{where}: there is no column '{path}'; choose with `score` among: {shown(schema.names)}")
        kind = value_type(storage_type(found.type))
        listed = is_list(kind)
        kind = kind.value_type if listed else kind
        if how and (how not in REDUCTIONS if listed else how != _WORDS or not is_text(kind)):
            of = "is not a list" if how != _WORDS else f"is {kind}, not words"
            of = f"must be followed by one of {', '.join(REDUCTIONS)}" if listed else of
            raise DumpError(f"{where}: `score={text}`: '{path}' {of}")
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)) and (
            listed or not is_text(kind)
        ):
            inside = f"; choose inside of it: {shown([f'{path}.{part.name}' for part in kind])}" if (
                pa.types.is_struct(kind)
            ) else ""  # fmt: skip
            raise DumpError(f"{where}: column '{path}' is {found.type}; a score is a number or a text{inside}")
        if listed and not how:
            raise DumpError(
                f"{where}: column '{path}' holds a list per row; say which number of it is the score: "
                f"`score={path}:mean` (or {', '.join(REDUCTIONS[1:])})"
            )
        names.append(path)
        reductions.append(how)
    if len(set(zip(names, reductions, strict=True))) < len(names):
        raise OptionError(f"`score={asked}`: name each score once")
    return LogitColumns(tuple(names), "scores", asked, reductions=tuple(reductions))


_LIKELY = (
    *("confidence", "conf", "certainty", "score", "probability", "logprob", "mean_logprob", "avg_logprob"),
    *("choices.0.logprobs.token_logprobs:mean", "choices.0.logprobs.content.logprob:mean"),
    "output.choices.0.logprobs.content.logprob:mean",
)
"""Columns and paths that scores are found in, the likeliest first."""
_ANSWERS, _TRUTHS = ("prediction", "predicted", "answer", "pred"), ("truth", "gold", "expected", "reference")


def likely_scores(schema: pa.Schema) -> dict[str, str] | None:
    """The options by which rows of a table may be read that bring a score and whether they were right; None if none."""
    score = next((text for text in _LIKELY if field_of(schema, text.partition(":")[0]) is not None), None)
    if score is None:
        return None
    scorers = field_of(schema, "scores")
    judged = [] if scorers is None or not pa.types.is_struct(scorers.type) else [part.name for part in scorers.type]
    verdicts = [*CORRECT_NAMES, *(f"scores.{name}.value" for name in judged)]
    found = [name for name in verdicts if field_of(schema, name) is not None]
    if found:
        return {"score": score, "correct": found[0]}
    answer = next((name for name in _ANSWERS if name in schema.names), None)
    label = likely_label(schema) or next((name for name in _TRUTHS if name in schema.names), None)
    return None if answer is None or label is None else {"score": score, "prediction": answer, "label": label}


# Whether rows were right


def find_correct(schema: pa.Schema, options: DumpOptions, where: str, needed: bool = False) -> str | None:
    """The column that tells whether rows were right, or, where predictions are compared with them, of the labels.

    None where nothing says so, unless it is `needed`.
    """
    found = None
    if options.prediction is not None:
        if field_of(schema, options.prediction) is None:
            names = shown(schema.names)
            raise DumpError(f"{where}: there is no column '{options.prediction}' (`prediction`); columns: {names}")
        elsewhere = options.label is None or options.labels_from is not None
        found = likely_label(schema) if elsewhere else find_label(schema, options.label, where)
    elif options.correct is None:
        likely = [name for name in CORRECT_NAMES if name in schema.names]
        found = likely[0] if len(likely) == 1 else None
    elif field_of(schema, options.correct) is not None:
        found = options.correct
    if found is not None or not needed:
        return found
    if options.correct is not None:
        raise DumpError(f"{where}: there is no column '{options.correct}' (`correct`); columns: {shown(schema.names)}")
    raise DumpError(
        f"{where}: which column shows whether a row was right? name it with `correct=COL`, or compare `prediction=COL` "
        f"with `label=COL` (columns: {shown(schema.names)})"
    )


class CorrectKind(LabelKind, frozen=True):
    """How it is stored whether rows were right: true and false, 1 and 0, or words."""

    def encode(
        self,
        array: pa.Array,
        classes: int,  # noqa: ARG002 - as of other labels
        report: Report,
        keep_unknown: bool = False,
    ) -> NDArray[np.int64]:
        """`RIGHT` or `WRONG` for each row; others are reported, unless they are kept as `UNKNOWN`."""
        missing = np.asarray(array.is_null())
        report(np.flatnonzero(missing), "no value (null)", LATE)
        if is_text(array.type):
            coded = array.dictionary_encode()
            words = [text.strip().lower() for text in coded.dictionary.to_pylist()]
            known = np.array([RIGHT if w in _RIGHT else WRONG if w in _WRONG else UNKNOWN for w in (*words, "no")])
            found = known[coded.indices.fill_null(len(words)).to_numpy(zero_copy_only=False)]
        else:
            values = array.cast(pa.float64(), safe=False).fill_null(0.0).to_numpy(zero_copy_only=False)
            found = np.where(values == 1.0, RIGHT, np.where(values == 0.0, WRONG, UNKNOWN))
        odd = np.flatnonzero((found == UNKNOWN) & ~missing)
        if odd.size and not keep_unknown:
            example = f"'{array[int(odd[0])].as_py()}'"
            report(odd, "a value that means neither right nor wrong", self.known_classes(0), example)
            found = np.maximum(found, RIGHT)
        numbers: NDArray[np.int64] = np.where(missing, RIGHT, found).astype(np.int64)
        return numbers

    def known_classes(self, classes: int, label: Any = None) -> str:  # noqa: ARG002 - as of other labels
        """What to do about a row that is neither."""
        return f"write {', '.join(f'{right}/{wrong}' for right, wrong in _PAIRS[:6])}; or leave the cell empty"


def correct_kind(data_type: pa.DataType, where: str, _typed: bool = True, *, compared: bool = False) -> CorrectKind:
    """Check that a column can tell whether rows were right; with `compared` it holds labels of any kind."""
    kind = value_type(data_type)
    plain = pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind) or is_text(kind)
    if not plain:
        what = "null in every row" if pa.types.is_null(kind) else str(kind)
        needed = "labels are text or numbers" if compared else "it must be true or false, 1 or 0, or words"
        raise DumpError(f"{where} is {what}; {needed}")
    return CorrectKind(pa.bool_() if compared else kind)


def agreement(block: Block, name: str, labels: pa.Array) -> pa.Array:
    """Whether each prediction, in the column `name`, is the label: numbers by value, all else as text.

    Null where there is no label.
    """
    import pyarrow.compute as pc

    arrays = [column_of(block.columns, name), labels]
    numbers = [pa.types.is_integer(array.type) or pa.types.is_floating(array.type) for array in arrays]
    if not all(numbers):
        if any(pa.types.is_floating(array.type) for array in arrays):
            kinds = " and ".join(str(array.type) for array in arrays)
            raise DumpError(
                f"{block.part.name}: `prediction={name}` and the labels are {kinds}; store both as text, or numbers"
            )
        arrays = [array.cast(pa.large_string()) for array in arrays]
    absent = np.asarray(arrays[0].is_null()) & np.asarray(arrays[1].is_valid())
    remedy = "drop these rows, or fill it in"
    block.report(np.flatnonzero(absent), f"no prediction in '{name}' (null)", remedy, column=name)
    return pc.if_else(pa.array(absent), False, pc.equal(*arrays))
