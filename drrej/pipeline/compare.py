"""What a report is compared with: other scores, an earlier report, another model, rows of no class.

Every score is turned so that a low value is accepted first and so that it does not cancel where the model is sure,
e.g. 1 - max p instead of max p. All are at the rejector's temperature.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
from msgspec import Struct, field, to_builtins
from msgspec.structs import asdict, replace
from numpy.typing import NDArray

from drrej.core import paired
from drrej.core.curves import Curve
from drrej.core.drift import outside_areas
from drrej.core.intervals import proportion
from drrej.core.losses import PLAIN
from drrej.core.paired import Results, order_difference
from drrej.core.softmax import NOTHING, Needs
from drrej.core.types import Floats
from drrej.data.dump import Block, Dump, RowFilter
from drrej.data.labels import sortable_keys
from drrej.documents.document import entries
from drrej.documents.figures import Change, Point, PointFigure, Proportion
from drrej.documents.rejector import Rejector
from drrej.documents.report import Difference, Outside, Report, ScoreRow
from drrej.errors import DumpError, OptionError
from drrej.pipeline.collect import collect_scored, curve_of
from drrej.pipeline.figures import accuracy_figure, areas_of, coverage_curve, coverage_figure
from drrej.pipeline.score import OnUnseen, Scored, Scorer, check_columns
from drrej.pipeline.source import Source

if TYPE_CHECKING:
    from drrej.pipeline.evaluate import EvaluateOptions

Order = Literal["high", "low"]
"""Which end of a score is accepted first."""


class Rivals(Struct, frozen=True):
    """What is compared: the usual scores of the logits, and columns that rank rows, such as another tool's mask."""

    usual: bool = False
    scores: Mapping[str, Order] = field(default_factory=dict)
    score_list: Sequence[str] = ()
    """The usual scores to compare; all of them if empty."""

    @property
    def needs(self) -> Needs:
        """The gap sums to compute."""
        return NOTHING.union(*(PLAIN[loss].needs for loss in _LOSSES.values())) if self.usual else NOTHING

    def check(self, dump: Dump, rejector: Rejector) -> None:
        """Raise unless the columns are there and hold what is needed, and no other score has the name of one."""
        check_columns(dump, [*self.scores], "`rival`")
        known = [*_LOSSES, *(["energy"] if dump.input == "logits" else []), "max_logit"]
        own = ["loss", *((self.score_list or known) if self.usual else ())]
        if rejector.need_ratio().loss.drift_loss is not None:  # the plain order is shown where this one is in doubt
            own.append("max_probability")
        for name in self.score_list:
            if name not in known:
                raise OptionError(f"`score_list={name}`: there is no such score; choose among {', '.join(known)}")
        for name in self.scores:
            if name in own:
                raise OptionError(f"`rival={name}`: the report has another score of that name; rename the column")
            kind = dump.schema.field(name).type
            if not (pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
                raise DumpError(f"{dump.parts[0].name}: `rival={name}`: the column is {kind}, not numbers")

    def columns_of(self, scored: Scored) -> dict[str, Any]:
        """Each score of a block (see `_LOSSES`, energy, max logit), low values first.

        Of probabilities the energy is the same for every row.
        """
        scores: dict[str, Floats] = {}
        if self.usual:
            rows = scored.calibrated
            with np.errstate(invalid="ignore", over="ignore", under="ignore"):
                scores = {name: PLAIN[loss].expected(rows.sums) for name, loss in _LOSSES.items()}
                scores |= {"energy": rows.energy()} if scored.block.input == "logits" else {}
                scores["max_logit"] = -rows.largest
            scores = {name: scores[name] for name in self.score_list or scores}
        for name, order in self.scores.items():
            column = scored.block.columns.column(name)
            missing = np.asarray(column.is_null())
            scored.block.report(np.flatnonzero(missing), "no value (null)", "fill it in", column=name)
            values: Floats = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
            odd = np.flatnonzero(np.isnan(values) & ~missing)
            scored.block.report(odd, "NaN", "drop or fix these rows", column=name)
            scores[name] = -values if order == "high" else values
        return {SCORE + name: values for name, values in scores.items()}


SCORE = "score "
"""What the columns of scores besides the loss begin with."""

_LOSSES = {"max_probability": "zero-one", "entropy": "log", "margin": "margin", "logit_margin": "logit-margin"}
"""The usual scores that are losses."""


def score_rows(
    columns: Mapping[str, Any], curves: Mapping[str, Curve], points: Sequence[Point], intervals: bool
) -> tuple[ScoreRow, ...]:
    """The figures of the loss and of each score, by column; `accuracy` is that at the coverage of the rejector."""
    wrong, accepted = columns["wrong"], int(np.count_nonzero(columns["accepted"]))
    order, right = np.argsort(wrong, kind="stable"), int(np.count_nonzero(~wrong))
    rows = []
    for name, curve in curves.items():
        kept, errors = curve.reaching(accepted) if accepted else (0, 0)
        difference = None
        if name != "loss":
            change = order_difference(columns["loss"][order], columns[name][order], right, len(curves) - 1)
            difference = Change(**asdict(change))
        rows.append(
            ScoreRow(
                score=name.removeprefix(SCORE),
                **areas_of(curve, intervals),
                points={point.name: point.row(curve, intervals) for point in points},
                accuracy=PointFigure(**proportion(kept - errors, kept), accepted=kept, errors=errors),
                coverage_curve=coverage_curve(curve),
                augrc_difference=difference,
            )
        )
    return tuple(rows)


# Worse than before? An earlier report, or another model on the same rows


class BaselineDump(Struct, frozen=True):
    """The same rows, scored by the model to compare with; `key` is the column that pairs them."""

    source: Source
    rejector: Rejector
    key: str


def read_baseline(path: str, where: str | None = None) -> Report:
    """A report with labels; `where` says in messages who asked for it."""
    where = f"`baseline={path}`" if where is None else f"{where} {path}"
    try:
        with open(path, "rb") as stream:
            report = Report.from_json(stream.read(), where)
    except OSError as error:
        raise OptionError(f"{where}: cannot be read ({error.strerror})") from None
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


def report_differences(now: Mapping[str, Any], then: Report) -> tuple[Difference, dict[str, Any]]:
    """Differences of the sections of a report to another one, on independent rows, and that one's curve and decision.

    The interval joins the two reports' own: the lower end of a - b lies sqrt((a - lower a)^2 + (upper b - b)^2) below
    it (Newcombe's square-and-add). On the same rows it is wider than need be; pairing them is sharper.
    """
    figures = [entry.name for entry in entries(Difference) if entry.section is Change]
    changes: dict[str, Any] = {name: _square_and_add(now[name], getattr(then, name)) for name in figures}
    drawn = {name: to_builtins(getattr(then, name)) for name in ("coverage_curve", "coverage", "accuracy")}
    return Difference(kind="reports", **changes), {} if then.accuracy is None else drawn


def difference_from(report: Report, first: Report) -> Difference:
    """The differences of a report from another: its own paired ones if they are to that one, else as of other rows."""
    apart, _ = report_differences({name: getattr(report, name) for name in report.__struct_fields__}, first)
    paired = report.difference
    if paired is None or paired.kind != "paired":
        return apart
    pairs = [
        (getattr(apart, name).value, getattr(paired, name).value) for name in ("coverage", "base_accuracy", "augrc")
    ]
    same = all(None not in pair and math.isclose(*pair, rel_tol=1e-9, abs_tol=1e-12) for pair in pairs)
    return paired if same else apart


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


def paired_differences(
    columns: Mapping[str, Any], baseline: BaselineDump, on_unseen: OnUnseen, names: Sequence[str]
) -> tuple[Difference, dict[str, Any]]:
    """Differences on the same rows, paired by key, and the curve and the decision of the other model.

    Raises unless both have the same keys and the same labels; `names` are those of the classes.
    """
    who, key = "`baseline_dump`", baseline.key
    check_unique(columns["key"], key, "the dump")
    then, theirs = answers(baseline.source, baseline.rejector, key, who, "baseline", on_unseen)
    number = {name: place for place, name in enumerate(names)}
    places = np.array([*(number.get(name, -1) for name in theirs), len(names)])  # the last: of no class
    then["label"] = places[np.where(then["label"] < 0, len(theirs), then["label"])]
    then = matched(columns, then, key, who)
    new, old = (Results(rows["loss"], rows["wrong"], rows["accepted"]) for rows in (columns, then))
    changes: dict[str, Any] = {
        name: Change(**asdict(difference)) for name, difference in paired.paired_differences(new, old).items()
    }
    accepted = int(np.count_nonzero(then["accepted"]))
    drawn = {
        "coverage_curve": coverage_curve(curve_of(then["loss"], then["wrong"])),
        "coverage": coverage_figure(accepted, then["loss"].size),
        "accuracy": accuracy_figure(int(np.count_nonzero(then["accepted"] & then["wrong"])), accepted),
    }
    return Difference(kind="paired", rows=int(columns["loss"].size), **changes), to_builtins(drawn)


# Rows that belong to no class


def rows_where(source: Source, column: str, ood: bool) -> Source:
    """The rows that belong to no class (`ood`), or those that have one."""
    if source.options.labels_from is not None and source.options.join_on is None:
        raise OptionError(
            "`ood` cannot be combined with `labels_from` without `join_on`: rows of no class have no labels there"
        )
    return replace(source, options=replace(source.options, row_filter=RowFilter(column, ood, "ood")))


def ood_figures(
    source: Source,
    rejector: Rejector,
    options: EvaluateOptions,
    curves: Mapping[str, Curve],
    accepted: int,
    errors: int,
) -> Outside:
    """The section about the rows of no class.

    Of the rows that have a class: the curves of the loss and of other scores, by column, how many are accepted, and the
    errors among these.
    """
    column, cost_ratio, rivals = options.ood, options.ood_cost, options.rivals
    assert column is not None
    source = rows_where(source, column, ood=True)
    dump = source.open(rejector, labelled=False)
    scorer = Scorer(rejector, dump, on_unseen=options.on_unseen_group, needs=rivals.needs)

    def of_rows(scored: Scored) -> dict[str, Any]:
        return {"loss": scored.loss, "accepted": scored.accepted, **rivals.columns_of(scored)}

    none = DumpError(f"{dump.parts[0].name}: `ood={column}`: no row of the dump is without a class")
    columns = collect_scored(source, dump, scorer, of_rows, "evaluating", False, [*rivals.scores], none)
    areas = {
        name.removeprefix(SCORE): outside_areas(curve, columns[name], cost_ratio) for name, curve in curves.items()
    }
    rows, strangers = int(columns["loss"].size), int(np.count_nonzero(columns["accepted"]))
    return Outside(
        column=column,
        cost_ratio=cost_ratio,
        rows=rows,
        accepted=Proportion(**proportion(strangers, rows)),
        joint_risk=(errors + cost_ratio * strangers) / (accepted + strangers) if accepted + strangers else None,
        joint_risk_all=(curves["loss"].total_errors + cost_ratio * rows) / (curves["loss"].rows + rows),
        **areas["loss"],
        scores=areas if len(areas) > 1 else None,
    )


# The same rows in several dumps, paired by a key

Keys = NDArray[np.generic]


def block_keys(block: Block, name: str) -> Keys:
    """The keys of a block's rows; missing ones are reported."""
    keys, missing = sortable_keys(block.columns.column(name), f"{block.part.name}: column '{name}'")
    block.report(missing, "no key (null)", "every row needs its key", column=name)
    return keys


def answers(
    source: Source, rejector: Rejector, key: str, who: str, what: str, on_unseen: OnUnseen | None = None
) -> tuple[dict[str, Any], Sequence[str]]:
    """Key, loss, prediction, label, whether it is wrong, and decision of each row of a dump; the names of its classes.

    Without `on_unseen` nothing is decided. Raises when a key occurs twice; `who` names the dump.
    """
    dump = source.open(rejector, labelled=True)
    check_columns(dump, [key], "`join_on`")
    scorer = Scorer(rejector, dump, decide=on_unseen is not None, on_unseen=on_unseen or "error")

    def of_rows(scored: Scored) -> dict[str, Any]:
        label = scored.prediction if rejector.is_scored else scored.block.labels  # right or wrong is the model's own
        columns = {"loss": scored.loss, "prediction": scored.prediction, "label": label}
        decided = {"wrong": scored.wrong, "accepted": scored.accepted}
        return {"key": block_keys(scored.block, key), **columns, **decided}

    found = collect_scored(source, dump, scorer, of_rows, what, labelled=True, keep=[key])
    check_unique(found["key"], key, who)
    return found, rejector.class_names or dump.names or rejector.class_titles


def check_unique(keys: Keys, column: str, who: str) -> None:
    """Raise when a key occurs twice; `who` names the file."""
    ordered = np.sort(keys)
    repeated = np.flatnonzero(ordered[1:] == ordered[:-1])
    if repeated.size:
        raise DumpError(
            f"{who}: column '{column}': the key {ordered[repeated[0]]} occurs more than once; keys must be unique"
        )


def matched(first: Mapping[str, Any], other: Mapping[str, Any], column: str, who: str) -> dict[str, Any]:
    """The columns of another dump in the order of the first one's rows, by key.

    Raises unless both have the same rows (leaving out hard ones makes no better model) with the same labels.
    """
    import pyarrow.compute as pc  # a tenth of a second that other reports need not pay

    wanted, keys = first["key"], other["key"]
    if wanted.dtype.kind != keys.dtype.kind:
        raise DumpError(f"{who}: column '{column}' holds keys of another kind than in the first dump")
    order = pc.index_in(pa.array(wanted), pa.array(keys)).fill_null(-1).to_numpy(zero_copy_only=False)
    missing, alone = np.flatnonzero(order < 0), np.ones(keys.size, bool)
    if missing.size:
        raise DumpError(
            f"{who}: {missing.size} of {wanted.size} rows are not in it (column '{column}', the first is "
            f"{wanted[missing[0]]}); both dumps must hold the same rows"
        )
    alone[order] = False
    if alone.any():
        raise DumpError(
            f"{who}: {np.count_nonzero(alone)} of its {alone.size} rows are not among the {order.size} rows of the "
            f"dump (column '{column}', the first is {keys[alone][0]}); both dumps must hold the same rows"
        )
    found = {name: values[order] for name, values in other.items()}
    differ = np.flatnonzero(found["label"] != first["label"])
    if differ.size:
        raise DumpError(
            f"{who}: {differ.size} of {order.size} rows have another label than in the dump (column '{column}', the "
            f"first is {wanted[differ[0]]}); are these the same rows, with the classes in the same order?"
        )
    return found
