"""The one place that scores a block: its logits, predictions, losses and groups, and which rows are accepted."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from msgspec import Struct

from drrej.core import inputs, reuse
from drrej.core.calibrators import CALIBRATORS, IDENTITY, Calibrator, Scores
from drrej.core.confidence import ScoreMap
from drrej.core.losses import Loss
from drrej.core.softmax import NOTHING, Needs
from drrej.core.types import AnyFloats, Booleans, Floats, Integers, Precision
from drrej.data.columns import PROBABILITY_NAMES
from drrej.data.dump import Block, Dump
from drrej.data.labels import sortable_keys
from drrej.documents.rejector import Calibration, Ratio, Rejector, Threshold
from drrej.engines.protocol import PassSummary
from drrej.errors import DumpError, OptionError

PREDICTION = "prediction"
"""The name that stands for the prediction instead of a column."""

FILE = "file"
"""The name that stands for the file that a row is in."""

LABEL = "label"
"""The name that stands for the true class, where rows are reported on."""

OnUnseen = Literal["error", "reject"]

ALL = slice(None)


class Scored(Struct, frozen=True, dict=True):
    """Each row of a block under a rejector; bad rows have placeholders and are never accepted.

    `calibrated` and `raw` are the scores that predictions and losses come from, after and before calibration.
    """

    prediction: Integers
    loss: Floats
    accepted: Booleans
    """Where no decision was asked for: the rows that are not bad."""
    calibrated: Scores
    raw: Scores
    block: Block
    rejector: Rejector
    loss_function: Loss

    @cached_property
    def drift(self) -> Floats:
        """The loss by which drift is looked for: the loss itself unless that was fitted to rows."""
        other = self.loss_function.drift_loss
        return self.loss if other is None else other.of(self.calibrated, {})[1]

    @cached_property
    def wrong(self) -> Booleans:
        """Whether the prediction is not the label."""
        wrong: Booleans = self.prediction != self.block.labels
        return wrong

    @cached_property
    def cost(self) -> Floats | None:
        """What each row costs if it is accepted, for a loss that knows."""
        labels = self.block.labels
        if labels is None:
            return None
        cost = self.loss_function.realised(self.prediction, np.maximum(labels, 0))
        if cost is not None and labels.min(initial=0) < 0:
            raise OptionError(
                "`on_unknown_label=wrong` cannot be combined with a cost matrix, which has no costs for an unknown "
                "class; use `on_unknown_label=skip`"
            )
        return cost

    @cached_property
    def keys(self) -> reuse.Keys:
        """A number for each row that tells it from others, by its content as it is stored."""
        return row_keys(self.block, self.raw)

    @cached_property
    def coarse(self) -> reuse.Keys:
        """The same, whatever the type, the rounding and the shift of the scores."""
        return coarse_row_keys(self.block, self.raw)

    def look_up(self, seen: Mapping[str, reuse.Fingerprint | None]) -> dict[str, reuse.LookUp]:
        """Which of the rows that each step has seen are among these; see `check_fresh`."""
        known = {step: rows for step, rows in seen.items() if rows is not None}
        good: Any = ~self.block.bad if self.block.bad.any() else ALL
        keys = [self.keys[good], self.coarse[good]] if known else []
        found = {rows: rows.look_up(*keys) for rows in set(known.values())}
        return {f"seen by {step}": found[rows] for step, rows in known.items()}


class Scorer:
    """Scores the blocks of a dump under a rejector, by its loss unless by another, and decides unless told not to.

    Made before any work: it knows the columns it needs besides scores and labels, and raises when one is missing.
    `needs` are gap sums that are wanted besides those of the loss, `raw` those of the rows before calibration.
    """

    def __init__(
        self,
        rejector: Rejector,
        dump: Dump,
        *,
        loss: Loss | None = None,
        decide: bool = True,
        on_unseen: OnUnseen = "error",
        needs: Needs = NOTHING,
        raw: Needs | None = None,
    ) -> None:
        self.rejector = rejector
        self.loss = rejector.need_ratio().loss if loss is None else loss
        self.threshold = rejector.need_threshold() if decide else None
        self.on_unseen = on_unseen
        self.needs = self.loss.needs | needs
        self.raw = raw
        check_columns(dump, self.loss.columns, "`loss_column`")
        self.grouping = None
        if self.threshold is not None and self.threshold.by is not None:
            self.grouping = Grouping(self.threshold.by, rejector, dump, "the threshold's groups")
        self.columns = (*self.loss.columns, *(() if self.grouping is None else self.grouping.columns))

    def __call__(self, block: Block) -> Scored:
        """Score and decide the rows of a block; reports bad rows."""
        rejector = self.rejector
        logits = logits_of(block, rejector.floor)
        how = (rejector.calibrator, self.needs, rejector.precision, self.raw, self.loss.scale)
        calibrated, raw = checked_scores(block, logits, *how, look=rejector.has_classes)
        columns = {name: column_values(block, name, non_negative=True) for name in self.loss.columns}
        prediction, loss = self.loss.of(calibrated, columns)
        accepted = self._accepted(block, prediction, loss)
        if block.bad.any():
            accepted = accepted & ~block.bad
        return Scored(prediction, loss, accepted, calibrated, raw, block, rejector, self.loss)

    def _accepted(self, block: Block, prediction: Integers, loss: Floats) -> Booleans:
        if self.threshold is None:
            return np.ones(loss.size, bool)
        if self.grouping is None:
            return self.threshold.accepts(loss)
        known = {group.group: np.inf if group.cutoff is None else group.cutoff for group in self.threshold.groups or ()}
        groups = self.grouping.column(block, prediction)
        numbers, names = groups.indices.to_numpy(), groups.dictionary.to_pylist()
        cutoffs = np.array([known.get(name, np.nan) for name in names])[numbers]
        unseen = np.isnan(cutoffs) & ~block.bad
        if self.on_unseen == "error" and unseen.any():
            row = int(np.argmax(unseen))
            raise DumpError(
                f"{block.part.name}: row {block.row_numbers()[row]} (counted from 0) is of the group "
                f"{self.grouping.by} = '{names[numbers[row]]}', for which the rejector has no threshold; "
                "use `on_unseen_group=reject`, or choose the threshold again on rows of every group"
            )
        accepted: Booleans = loss < cutoffs
        return accepted


def logits_of(block: Block, floor: float | None = None) -> AnyFloats:
    """Logits (rows x classes) of a block, or its scores of any kind; reports rows that are no probabilities.

    `floor` is what a probability of 0 counts as; without it nothing but 0 itself is moved.
    """
    if block.input == "scores":
        return block.scores
    if block.input != "logits":
        return inputs.floored_logits(probabilities_of(block), inputs.FACE_VALUE if floor is None else floor)
    return inputs.binary_logits(block.scores[:, 0]) if block.binary else block.scores


def probabilities_of(block: Block) -> Floats:
    """Probabilities (rows x classes) of a block that sum to 1; reports rows that are none."""
    read = inputs.read_rows(block.scores[:, 0] if block.binary else block.scores, block.input, block.normalize)
    for rows, what, remedy, example in read.bad_rows():
        fresh = rows[~block.bad[rows]]
        block.report(fresh, what, remedy, example if fresh.size == rows.size else "")
    block.zeros = inputs.Positives.of(read.values).zeros
    return read.values


def checked_scores(
    block: Block,
    logits: AnyFloats,
    calibrator: Calibrator | ScoreMap = IDENTITY,
    needs: Needs = NOTHING,
    precision: Precision = "auto",
    raw: Needs | None = None,
    scale: float | None = None,
    look: bool = True,
) -> tuple[Scores, Scores]:
    """`Calibrator.scores` of the logits of a block; bad rows are reported and have placeholders.

    With `look` it is noted what scores look like that are taken as logits.
    """
    if isinstance(calibrator, ScoreMap):
        odd = np.flatnonzero(calibrator.outside(logits) & ~block.bad)
        example = f"{logits[odd[0]].tolist()}" if odd.size else ""
        remedy = "the rejector was made for such scores: is it 85 in place of 0.85?"
        block.report(odd, "a score outside [0, 1]", remedy, example)
    calibrated, before = calibrator.scores(logits, needs, precision, raw, scale)
    if look and block.input == "logits":
        good: Any = ~block.bad if block.bad.any() else slice(None)
        scores = block.scores[good]
        block.look = (
            inputs.ScoreLook.of_binary(scores[:, 0])
            if block.binary
            else inputs.ScoreLook.of(scores, before.largest[good])
        )
    if block.check_largest(before.largest):
        return calibrated, before
    return calibrator.scores(without_rows(logits, block.bad), needs, precision, raw, scale)


def row_keys(block: Block, raw: Scores | None = None) -> reuse.Keys:
    """A number for each row by its content, from the scores as they are stored."""
    if block.input == "logits" and raw is not None:
        return reuse.logit_keys(raw.values, raw.largest, raw.prediction)
    return reuse.content_keys(block.scores) ^ _id_keys(block)


def copy_keys(block: Block, group: str | None = None, rows: Booleans | slice = ALL) -> reuse.Keys:
    """Keys (rows x some) of which a copy of a row has at least one, also if it was stored in another way.

    Rows that differ in the column `group` are no copies.
    """
    scores = block.scores[rows]
    keys = np.column_stack([reuse.content_keys(scores), reuse.near_keys(scores, block.input == "probs")])
    return keys if group is None else keys ^ example_keys(block, group)[rows, None]


def example_keys(block: Block, group: str) -> reuse.Keys:
    """A number for each row by its value of a column; reports rows without one."""
    values, missing = sortable_keys(block.columns.column(group), f"{block.part.name}: column '{group}'")
    block.report(missing, "no group (null)", "fill it in", column=group)
    distinct, places = np.unique(np.array([str(value) for value in values], object), return_inverse=True)
    hashes = [int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little") for name in distinct]
    return np.array(hashes, np.uint64)[places]


def _id_keys(block: Block) -> reuse.Keys:
    """A number for each row by the column that tells rows apart; 0 where there is none."""
    if block.id_name is None:
        return np.zeros(block.rows, np.uint64)
    stored = block.columns.column(block.id_name)
    texts = stored if pa.types.is_binary(stored.type) else stored.cast(pa.string()).cast(pa.binary())
    hashes = [hashlib.blake2b(name, digest_size=8).digest() for name in texts.fill_null(b"").to_pylist()]
    return np.frombuffer(b"".join(hashes), "<u8")


def coarse_row_keys(block: Block, raw: Scores | None = None) -> reuse.Keys:
    """The coarse keys of the rows, from the scores as they are stored: a floor has no say."""
    scores, probabilities = block.scores, block.input == "probs"
    if block.input == "scores" or raw is None:
        mantissa, exponent = np.frexp(scores)
        return reuse.content_keys(np.ldexp(np.rint(mantissa * 2.0**12), exponent)) ^ _id_keys(block)
    if block.binary and block.input == "logits":
        scores = raw.values
    elif block.binary:
        stored = scores[:, 0].astype(np.float64)
        with np.errstate(over="ignore"):
            second, probabilities = stored if probabilities else np.exp(stored), True
        scores = np.stack([1.0 - second, second], axis=1)
    return reuse.coarse_keys(scores, raw.prediction, probabilities)


_ENOUGH_IN_A_FILE = 100
"""Rows from which on one file may contradict all others, where sums of 1 do not tell."""


def check_kind(dump: Dump, summary: PassSummary, calibrating: bool = False) -> None:
    """Raise when scores that nobody has called logits look like probabilities, percentages or counts, in any file.

    With one score per row, logits that are all positive say only that every row is of class 1, as in a dump of such
    rows: a reason to ask when the temperature is fitted, and not later.
    """
    if dump.input != "logits" or dump.options.input is not None:
        return
    kind, doubts = summary.notes.look.kind(dump.binary), inputs.BINARY_DOUBTS if dump.binary else inputs.DOUBTS
    if kind == "logits" and dump.columns.names[0].lower() in PROBABILITY_NAMES:
        raise DumpError(
            f"{dump.parts[0].name}: column '{dump.columns.pattern}' is named like probabilities, but its rows do not "
            "sum to 1; pass `input=logits` if they are logits, or `input=probs` with `normalize=True`"
        )
    harmless = kind == "logits" or (kind == "scaled" and dump.binary and not calibrating)
    if harmless or kind == "mixed":
        for file, notes in summary.files.items() if len(summary.files) > 1 else ():
            found = notes.look.kind(dump.binary)
            sums = found == "probabilities" and not dump.binary
            if sums or (found not in ("logits", "scaled") and notes.rows >= _ENOUGH_IN_A_FILE):
                raise DumpError(
                    f"{file}: column '{dump.columns.pattern}': {doubts[found][0]}, unlike those of the other files; "
                    "store all files in one kind, or pass `input=logits` if they really are logits"
                )
    if not harmless:
        raise DumpError(f"{dump.parts[0].name}: column '{dump.columns.pattern}': {'; '.join(doubts[kind])}")


def check_floor(floor: float | None, dump: Dump) -> None:
    """Raise when a floor is given for logits, or is out of range."""
    if floor is None:
        return
    if dump.input in ("logits", "scores"):
        raise OptionError("`floor` requires probabilities: it replaces a probability of 0")
    if not 0 < floor <= 0.5 / dump.classes:
        raise OptionError(f"`floor={floor:g}`: it must be above 0 and at most 1 / (2 x {dump.classes} classes)")


def without_rows(logits: AnyFloats, bad: Booleans) -> AnyFloats:
    """Logits with placeholders in the bad rows."""
    logits = logits.copy()
    logits[bad] = 0
    return logits


def column_values(block: Block, name: str, non_negative: bool = False) -> Floats:
    """A numeric column of a block as float64; reports rows that are null, not finite or (if so asked) negative."""
    array = block.columns.column(name)
    if not (pa.types.is_floating(array.type) or pa.types.is_integer(array.type)):
        raise DumpError(f"{block.part.name}: column '{name}' is {array.type}; it must hold numbers")
    remedy = "drop or fix these rows"
    values = np.array(array.cast(pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float64)
    missing = np.asarray(array.is_null())
    block.report(np.flatnonzero(missing & ~block.bad), "no value (null)", remedy, column=name)
    odd = ~np.isfinite(values) & ~missing
    block.report(np.flatnonzero(odd & ~block.bad), "a value that is not finite", remedy, column=name)
    if non_negative:
        with np.errstate(invalid="ignore"):
            below = np.flatnonzero((values < 0) & ~odd & ~block.bad)
        block.report(below, "a negative loss", "a loss is 0 or more", column=name)
    return values


def residual_columns(dump: Dump, names: Mapping[str, str | None], missing: str) -> list[str]:
    """The columns of predictions and true values of a regression; `missing` says which parameter is, if one is."""
    columns = []
    for parameter, name in names.items():
        if name is None:
            raise OptionError(missing.format(parameter))
        check_columns(dump, [name], f"`{parameter}`")
        columns.append(name)
    return columns


def residual_of(block: Block, columns: Sequence[str]) -> Floats:
    """Prediction minus true value of each row."""
    predicted, true = (column_values(block, name) for name in columns)
    return predicted - true


# Groups of rows, by a column of the dump or by the prediction


class Grouping:
    """The groups of the rows of a dump: values of a column as text, or predicted classes by name or number.

    With `files`, the name 'file' stands for the file that a row is in, unless there is such a column. With `truth`,
    "label" stands for the true class, wherever that is kept. `asked_by` says in messages who needs the column.
    """

    def __init__(
        self, by: str, rejector: Rejector, dump: Dump, asked_by: str = "`by`", files: bool = False, truth: bool = False
    ) -> None:
        if rejector.is_scored and by == PREDICTION:
            by = rejector.columns.prediction or by
            if by not in dump.schema.names:
                raise OptionError(f"{asked_by} 'prediction': rows that bring a score have none; name a column")
        truth = truth and not rejector.is_scored
        self.by = by
        self._is_file = files and by == FILE and FILE not in dump.schema.names
        self.truth = truth and by == LABEL
        kept_elsewhere = dump.labels_file is not None or dump.label != LABEL
        if self.truth and LABEL in dump.schema.names and kept_elsewhere:
            raise OptionError(
                "`by=label` may be the true class or the column of that name, which holds something else here; rename "
                "the column"
            )
        self._predicted = by == PREDICTION and not rejector.is_scored
        self.columns = () if self._predicted or self._is_file or self.truth else (by,)
        check_columns(dump, self.columns, asked_by)
        for name in self.columns:
            if pa.types.is_nested(dump.schema.field(name).type):
                raise DumpError(
                    f"{dump.parts[0].name}: {asked_by}: column '{name}' is {dump.schema.field(name).type}; groups are "
                    "text, numbers or dates"
                )
        self._classes = list(rejector.class_titles)

    def column(self, block: Block, prediction: Integers) -> pa.DictionaryArray:
        """The group of each row, as `collect` joins it; rows without a group are reported."""
        numbers, names = prediction, self._classes
        if self._is_file:
            numbers, names = np.zeros(block.rows, np.int64), [block.part.name]
        elif self.truth:
            assert block.labels is not None
            if block.labels.min(initial=0) < 0:
                raise OptionError(
                    "`by=label` cannot be combined with `on_unknown_label=wrong`; use `on_unknown_label=skip`"
                )
            numbers = block.labels
        elif not self._predicted:
            column = block.columns.column(self.by)
            if column.null_count:
                missing = np.flatnonzero(np.asarray(column.is_null()))
                block.report(missing, "no group (null)", "fill it in", column=self.by)
            if not isinstance(column, pa.DictionaryArray):
                column = column.dictionary_encode()
            numbers = column.indices.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
            names = column.dictionary.cast(pa.string()).to_pylist() or [""]
        return pa.DictionaryArray.from_arrays(pa.array(numbers), pa.array(names, pa.string()))


def drawn_by(rejector: Rejector) -> str | None:
    """The column whose groups an audit is drawn by, those with cutoffs of their own; None for the predicted class."""
    by = rejector.need_threshold().by
    return by if by != PREDICTION else rejector.columns.prediction if rejector.is_scored else None


def numbered(groups: pa.DictionaryArray) -> tuple[Integers, list[str]]:
    """The group number of each row and the names of the groups that have rows, in the order of the names."""
    names, numbers = groups.dictionary.to_pylist(), groups.indices.to_numpy(zero_copy_only=False)
    used = sorted(np.unique(numbers).tolist(), key=names.__getitem__)
    place = np.full(len(names), -1)
    place[used] = np.arange(len(used))
    return place[numbers], [names[number] for number in used]


def check_columns(dump: Dump, columns: Sequence[str], option: str) -> None:
    """Raise when a column that an option names is not there."""
    for name in columns:
        if name not in dump.schema.names:
            known = ", ".join(f"'{column}'" for column in dump.other_columns[:12])
            raise DumpError(f"{dump.parts[0].name}: {option}: there is no column '{name}'; columns: {known or 'none'}")


# Whether rows are fresh: a guarantee needs rows that calibrate and fit have not seen, a report those of no step


def seen_rows(rejector: Rejector, for_guarantee: bool = False) -> dict[str, reuse.Fingerprint | None]:
    """What each step that made a rejector has seen, None where it does not tell; one object for the same rows.

    For a guarantee the steps count that it rests on.
    """
    calibration = rejector.need_calibration()
    steps: Mapping[str, Calibration | Ratio | Threshold | None] = {
        "calibrate": calibration,
        "fit": rejector.ratio,
        "threshold": rejector.threshold,
    }
    if for_guarantee:
        steps = {"fit": rejector.ratio} | ({"calibrate": calibration} if calibration.method in CALIBRATORS else {})
    return {
        step: reuse.read_fingerprint(made.fingerprint, made.rows) for step, made in steps.items() if made is not None
    }


def judge_rows(seen: Mapping[str, reuse.Fingerprint | None], columns: Mapping[str, Any]) -> dict[str, reuse.Reuse]:
    """Whether each step that tells its rows has used those that were looked up."""
    return {step: rows.judge(columns[f"seen by {step}"]) for step, rows in seen.items() if rows is not None}


def check_fresh(
    seen: Mapping[str, reuse.Fingerprint | None], columns: Mapping[str, Any], allow_reuse: bool
) -> tuple[bool, bool]:
    """Whether rows that were looked up were used by these steps, and whether that could have been noticed.

    Raises unless they are fresh or reuse is allowed.
    """
    found = judge_rows(seen, columns)
    unknown = [step for step in seen if step not in found]
    reused = [step for step, each in found.items() if each.reused]
    if unknown:
        why, remedy = f"the rejector does not record which rows '{unknown[0]}' has seen", "make the rejector again"
    elif reused:
        why, remedy = f"'{reused[0]}' has seen some of these", "choose the threshold on other rows"
    else:
        return False, all(each.noticeable for each in found.values())
    if not allow_reuse:
        raise OptionError(
            f"`confidence` needs fresh rows, but {why}; {remedy}, or use `allow_reuse=True` (it is recorded, and the "
            "guarantee does not hold)"
        )
    return True, True
