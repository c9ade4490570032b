"""What a report is compared with: other scores and masks, an earlier report, another model, rows of no class.

Every score is turned so that a low value is accepted first and so that it does not cancel where the model is sure,
e.g. 1 - max p instead of max p. All are at the rejector's temperature.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import asdict, replace
from numpy.typing import NDArray

from drrej.core import paired
from drrej.core.calibrators import Scores
from drrej.core.curves import Curve
from drrej.core.drift import outside_areas
from drrej.core.intervals import proportion
from drrej.core.losses import PLAIN
from drrej.core.paired import Results, order_difference
from drrej.core.softmax import NOTHING, Needs
from drrej.core.types import Booleans, Floats, Integers
from drrej.data.dump import Block, Dump, RowFilter
from drrej.data.labels import sortable_keys
from drrej.documents.document import entries
from drrej.documents.figures import Change, Point, Proportion
from drrej.documents.rejector import Rejector
from drrej.documents.report import BaselineCurve, Difference, MaskRow, Outside, OutsideScore, Report, ScoreRow
from drrej.errors import DumpError, OptionError
from drrej.pipeline.collect import collect_scored, curve_of
from drrej.pipeline.figures import (
    accuracy_figure,
    accuracy_near,
    areas_of,
    count_cells,
    coverage_curve,
    coverage_figure,
)
from drrej.pipeline.groups import OnUnseen, check_columns
from drrej.pipeline.score import Scored, Scorer
from drrej.pipeline.source import Source

Order = Literal["high", "low"]
"""Which end of a score is accepted first."""


class Score(Struct, frozen=True):
    """A column that ranks rows."""

    column: str
    order: Order = "high"


class Rivals(Struct, frozen=True):
    """What is compared: the usual scores of the logits, columns that rank rows, columns that are masks."""

    usual: bool = False
    scores: tuple[Score, ...] = ()
    masks: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns to read."""
        return (*(score.column for score in self.scores), *self.masks)

    @property
    def needs(self) -> Needs:
        """The gap sums to compute."""
        return NOTHING.union(*(PLAIN[loss].needs for loss in _LOSSES.values())) if self.usual else NOTHING

    def check(self, dump: Dump) -> None:
        """Raise unless the columns are there and hold what is needed."""
        check_columns(dump, [score.column for score in self.scores], "`score`")
        check_columns(dump, self.masks, "`rejected`")
        for score in self.scores:
            kind = dump.schema.field(score.column).type
            if not (pa.types.is_floating(kind) or pa.types.is_integer(kind)):
                raise DumpError(f"{dump.parts[0].name}: `score={score.column}`: the column is {kind}, not numbers")
        for name in self.masks:
            kind = dump.schema.field(name).type
            if not (pa.types.is_boolean(kind) or pa.types.is_integer(kind)):
                raise DumpError(
                    f"{dump.parts[0].name}: `rejected={name}`: the column is {kind}; it must be boolean (or 0 and 1)"
                )

    def score_columns(self, scored: Scored) -> dict[str, Floats]:
        """Each score of a block, low values first; of probabilities the energy is the same for every row."""
        scores = usual_scores(scored.calibrated) if self.usual else {}
        if scored.block.input != "logits":
            scores.pop("energy", None)
        for score in self.scores:
            values = _numbers(scored.block, score.column)
            scores[score.column] = -values if score.order == "high" else values
        return {f"score {name}": values for name, values in scores.items()}

    def mask_columns(self, block: Block) -> dict[str, NDArray[np.bool_]]:
        """Which rows of a block each mask accepts."""
        return {f"mask {name}": _numbers(block, name) == 0 for name in self.masks}


_LOSSES = {"max_probability": "zero-one", "entropy": "log", "margin": "margin", "logit_margin": "logit-margin"}
"""The usual scores that are losses."""


def usual_scores(rows: Scores) -> dict[str, Floats]:
    """Max probability, entropy, margins, energy and max logit, low values first."""
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        losses = {name: PLAIN[loss].expected(rows.sums) for name, loss in _LOSSES.items()}
        return {**losses, "energy": rows.energy(), "max_logit": -rows.largest}


def _numbers(block: Block, name: str) -> Floats:
    column = block.columns.column(name)
    if column.null_count:
        block.report(np.flatnonzero(np.asarray(column.is_null())), "no value (null)", "fill it in", column=name)
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    if column.null_count:
        column = column.fill_null(0)
    values: Floats = column.to_numpy(zero_copy_only=False).astype(np.float64)
    block.report(np.flatnonzero(np.isnan(values)), "NaN", "drop or fix these rows", column=name)
    return values


def scores_of(columns: Mapping[str, Any]) -> dict[str, Floats]:
    """The loss and every other score among some columns, by name."""
    others = {name.removeprefix("score "): column for name, column in columns.items() if name.startswith("score ")}
    return {"loss": columns["loss"], **others}


def score_rows(
    columns: Mapping[str, Any], curves: Mapping[str, Curve], points: Sequence[Point], intervals: bool
) -> tuple[ScoreRow, ...]:
    """The figures of the loss and of each score; `accuracy` is that at the coverage of the rejector."""
    wrong, accepted = columns["wrong"], int(np.count_nonzero(columns["accepted"]))
    order, right = np.argsort(wrong, kind="stable"), int(np.count_nonzero(~wrong))
    rows = []
    for name, values in scores_of(columns).items():
        curve = curves[name]
        areas: dict[str, Any] = {
            area: (Change if area == "e_aurc" else Proportion)(**ends)
            for area, ends in areas_of(curve, intervals).items()
        }
        difference = None
        if name != "loss":
            change = order_difference(columns["loss"][order], values[order], right, len(curves) - 1)
            difference = Change(value=change.value, lower=change.lower, upper=change.upper)
        rows.append(
            ScoreRow(
                score=name,
                **areas,
                points={point.name: point.row(curve, intervals) for point in points},
                accuracy=accuracy_near(curve, accepted),
                coverage_curve=coverage_curve(curve),
                augrc_difference=difference,
            )
        )
    return tuple(rows)


def mask_row(name: str, accepted: Booleans, wrong: Booleans, curve: Curve) -> MaskRow:
    """The figures of another rejector's mask, and those of the loss at its coverage."""
    every_row = np.broadcast_to(np.int64(0), wrong.shape)
    *_, errors, right = cells = count_cells(every_row, 1, wrong, accepted)[0].tolist()
    return MaskRow(
        mask=name,
        coverage=coverage_figure(errors + right, sum(cells)),
        accuracy=accuracy_figure(errors, errors + right),
        loss_accuracy=accuracy_near(curve, errors + right),
    )


# Worse than before? An earlier report, or another model on the same rows


class BaselineDump(Struct, frozen=True):
    """The same rows, scored by the model to compare with; `key` is the column that pairs them."""

    source: Source
    rejector: Rejector
    key: str


def read_baseline(path: str) -> Report:
    """An earlier report with labels."""
    where = f"`baseline={path}`"
    try:
        with open(path, encoding="utf-8") as stream:
            report = Report.from_json(stream.read(), where)
    except OSError as error:
        raise OptionError(f"{where}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise OptionError(f"{where}: not a JSON document; give a report.json of 'drrej evaluate'") from None
    if report.base_accuracy is None:
        raise OptionError(f"{where}: a report without labels; there is no accuracy to compare with")
    return report


def check_same_classes(then: Report, rejector: Rejector) -> None:
    """Raise when an earlier report is about other classes than the rejector's."""
    names = rejector.class_names
    if then.classes != rejector.classes:
        raise OptionError(f"`baseline`: a report on {then.classes} classes; the rejector has {rejector.classes}")
    strange = [row.class_ for row in then.per_class or () if isinstance(row.class_, str)]
    strange = [name for name in strange if names is not None and name not in names]
    if strange:
        raise OptionError(f"`baseline`: a report on other classes; the rejector has no class '{strange[0]}'")


def report_differences(now: Mapping[str, Any], then: Report) -> Difference:
    """Differences of the sections of a report to another one, on independent rows.

    The interval joins the two reports' own: the lower end of a - b lies sqrt((a - lower a)^2 + (upper b - b)^2) below
    it (Newcombe's square-and-add). On the same rows it is wider than need be; pairing them is sharper.
    """
    figures = [entry.name for entry in entries(Difference) if entry.section is Change]
    changes: dict[str, Any] = {name: _square_and_add(now[name], getattr(then, name)) for name in figures}
    return Difference(kind="reports", **changes)


def _square_and_add(a: Proportion | Change | None, b: Proportion | Change | None) -> Change:
    if a is None or b is None or a.value is None or b.value is None:
        return Change(value=None, lower=None, upper=None)
    value = a.value - b.value
    if a.lower is None or a.upper is None or b.lower is None or b.upper is None:
        return Change(value=value, lower=None, upper=None)
    return Change(
        value=value,
        lower=value - math.hypot(a.value - a.lower, b.upper - b.value),
        upper=value + math.hypot(a.upper - a.value, b.value - b.lower),
    )


def report_curve(then: Report) -> BaselineCurve | None:
    """The curve and the decision of an earlier report, if it has them."""
    if then.coverage_curve is None or then.accuracy is None:
        return None
    return BaselineCurve(coverage_curve=then.coverage_curve, coverage=then.coverage, accuracy=then.accuracy)


def paired_differences(
    columns: Mapping[str, Any], baseline: BaselineDump, on_unseen: OnUnseen, names: Sequence[str]
) -> tuple[Difference, BaselineCurve]:
    """Differences on the same rows, paired by key, and the curve and the decision of the other model.

    Raises unless both have the same keys and the same labels; `names` are those of the classes.
    """
    dump = baseline.source.open(baseline.rejector, labelled=True)
    check_columns(dump, [baseline.key], "`join_on`")
    scorer = Scorer(baseline.rejector, dump, on_unseen=on_unseen)

    def of_rows(scored: Scored) -> dict[str, Any]:
        key = block_keys(scored.block, baseline.key)
        results = {"loss": scored.loss, "wrong": scored.wrong, "accepted": scored.accepted}
        return {"key": key, "label": scored.block.labels, **results}

    then = collect_scored(baseline.source, dump, scorer, of_rows, "baseline", labelled=True, keep=[baseline.key])
    check_unique(columns["key"], baseline.key, "the dump")
    check_unique(then["key"], baseline.key, "`baseline_dump`")
    order = partners(columns["key"], then["key"], baseline.key, "`baseline_dump`")
    theirs = baseline.rejector.class_names or dump.names or tuple(map(str, range(baseline.rejector.classes)))
    _check_pairs(columns, then, order, baseline.key, (names, theirs))
    new = Results(columns["loss"], columns["wrong"], columns["accepted"])
    old = Results(then["loss"][order], then["wrong"][order], then["accepted"][order])
    changes: dict[str, Any] = {
        name: Change(**asdict(difference)) for name, difference in paired.paired_differences(new, old).items()
    }
    accepted = int(np.count_nonzero(then["accepted"]))
    curve = BaselineCurve(
        coverage_curve=coverage_curve(curve_of(then["loss"], then["wrong"])),
        coverage=coverage_figure(accepted, then["loss"].size),
        accuracy=accuracy_figure(int(np.count_nonzero(then["accepted"] & then["wrong"])), accepted),
    )
    return Difference(kind="paired", rows=int(columns["loss"].size), **changes), curve


def _check_pairs(
    columns: Mapping[str, Any],
    then: Mapping[str, Any],
    order: Integers,
    key: str,
    names: tuple[Sequence[str], Sequence[str]],
) -> None:
    """Raise when the baseline has rows that the dump lacks (leaving out hard ones makes no better model), or labels."""
    alone = np.ones(then["key"].size, bool)
    alone[order] = False
    if alone.any():
        raise DumpError(
            f"`baseline_dump`: {np.count_nonzero(alone)} of its {alone.size} rows are not among the {order.size} rows "
            f"of the dump (column '{key}', the first is {then['key'][alone][0]}); both dumps must hold the same rows"
        )
    number = {name: place for place, name in enumerate(names[0])}
    places = np.array([*(number.get(name, -1) for name in names[1]), len(names[0])])  # the last: of no class
    labels = then["label"][order]
    differ = np.flatnonzero(places[np.where(labels < 0, len(names[1]), labels)] != columns["label"])
    if differ.size:
        raise DumpError(
            f"`baseline_dump`: {differ.size} of {order.size} rows have another label than in the dump (column '{key}', "
            f"the first is {columns['key'][differ[0]]}); are these the same rows, with the classes in the same order?"
        )


# Rows that belong to no class


def rows_where(source: Source, column: str, ood: bool) -> Source:
    """The rows that belong to no class (`ood`), or those that have one."""
    if source.options.labels_from is not None and source.options.join_on is None:
        raise OptionError(
            "`ood` does not go with `labels_from` without `join_on`: rows of no class have no labels there"
        )
    return replace(source, options=replace(source.options, row_filter=RowFilter(column, ood, "ood")))


def ood_figures(
    columns: Mapping[str, Any], column: str, cost_ratio: float, curves: Mapping[str, Curve], accepted: int, errors: int
) -> Outside:
    """The section about the rows of no class, whose columns are given; `column` tells them.

    Of the rows that have a class: the curves of the loss and of other scores, how many are accepted, and the errors
    among these.
    """
    areas = {name: outside_areas(curves[name], values, cost_ratio) for name, values in scores_of(columns).items()}
    rows, strangers = int(columns["loss"].size), int(np.count_nonzero(columns["accepted"]))
    scores = tuple(OutsideScore(score=name, **each) for name, each in areas.items())
    return Outside(
        column=column,
        cost_ratio=cost_ratio,
        rows=rows,
        accepted=Proportion(**proportion(strangers, rows)),
        joint_risk=(errors + cost_ratio * strangers) / (accepted + strangers) if accepted + strangers else None,
        joint_risk_all=(curves["loss"].total_errors + cost_ratio * rows) / (curves["loss"].rows + rows),
        **areas["loss"],
        scores=scores if len(scores) > 1 else None,
    )


def ood_columns(source: Source, rejector: Rejector, column: str, rivals: Rivals, on_unseen: OnUnseen) -> dict[str, Any]:
    """Loss, decision and other scores of the rows of no class."""
    source = rows_where(source, column, ood=True)
    dump = source.open(rejector, labelled=False)
    scorer = Scorer(rejector, dump, on_unseen=on_unseen, needs=rivals.needs)

    def of_rows(scored: Scored) -> dict[str, Any]:
        return {"loss": scored.loss, "accepted": scored.accepted, **rivals.score_columns(scored)}

    keep = [score.column for score in rivals.scores]
    none = DumpError(f"{dump.parts[0].name}: `ood={column}`: no row of the dump is without a class")
    return collect_scored(source, dump, scorer, of_rows, "evaluating", labelled=False, keep=keep, if_none=none)


# The same rows in several dumps, paired by a key

Keys = NDArray[np.generic]


def block_keys(block: Block, name: str) -> Keys:
    """The keys of a block's rows; missing ones are reported."""
    keys, missing = sortable_keys(block.columns.column(name), f"{block.part.name}: column '{name}'")
    block.report(missing, "no key (null)", "every row needs its key", column=name)
    return keys


def check_unique(keys: Keys, column: str, who: str) -> None:
    """Raise when a key occurs twice; `who` names the file."""
    ordered = np.sort(keys)
    repeated = np.flatnonzero(ordered[1:] == ordered[:-1])
    if repeated.size:
        raise DumpError(
            f"{who}: column '{column}': the key {ordered[repeated[0]]} occurs more than once; keys must be unique"
        )


def partners(wanted: Keys, keys: Keys, column: str, who: str) -> Integers:
    """Where the wanted keys, those of the first file, are in another; raises unless all of them are."""
    if wanted.dtype.kind != keys.dtype.kind:
        raise DumpError(f"{who}: column '{column}' holds keys of another kind than in the first dump")
    place = pc.index_in(pa.array(wanted), pa.array(keys)).fill_null(-1).to_numpy(zero_copy_only=False)
    missing = np.flatnonzero(place < 0)
    if missing.size:
        raise DumpError(
            f"{who}: {missing.size} of {wanted.size} rows are not in it (column '{column}', the first is "
            f"{wanted[missing[0]]}); both dumps must hold the same rows"
        )
    found: Integers = place.astype(np.int64)
    return found
