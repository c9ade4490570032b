"""Step 4: the coverage report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from drrej._version import __version__
from drrej.core.bootstrap import Bootstrap
from drrej.core.curves import Curve, LossStore, RankedLosses
from drrej.core.drift import loss_shift, mean_ratio
from drrej.data.dump import Dump
from drrej.documents.gates import Gate, lookup, metrics_of
from drrej.documents.points import DEFAULT_POINTS, Point
from drrej.documents.rejector import Rejector
from drrej.engines.passes import map_blocks
from drrej.engines.protocol import Pass
from drrej.errors import DumpError, GateError, OptionError
from drrej.pipeline import figures, pictures
from drrej.pipeline.application import Application
from drrej.pipeline.baseline import FIGURES, keyed_rows, paired_differences, report_differences
from drrej.pipeline.compare import Rivals, accuracy_near, area_rows, score_row
from drrej.pipeline.cost_figures import COST_SKELETON
from drrej.pipeline.groups import Grouping, OnUnseen, check_columns
from drrej.pipeline.source import Source, no_labels
from drrej.pipeline.tally import Evaluator, KeyedRows, Tally
from drrej.pipeline.unlabelled import unlabelled_figures

FORMAT = "drrej-report/1"
"""1: the first format."""

PAIRED_RESAMPLES = 1000
"""Draws for paired differences when no number is given."""

Report = dict[str, Any]


@dataclass(frozen=True)
class BaselineDump:
    """The same rows, scored by the model to compare with; `key` is the column that pairs them."""

    source: Source
    rejector: Rejector
    key: str


@dataclass(frozen=True)
class EvaluateOptions:
    """What the report holds besides the figures that every report has.

    With `on_bad_row="reject"` rows without usable scores, which a mask rejects, are left out of the report.
    `pictures` adds what a page or a plot shows. For that page, `words` say what the rejector does where the caller has
    other words than the document's own, and `commands` how to make it and the report again.
    """

    points: Sequence[Point] = ()
    bootstrap: int = 0
    seed: int = 0
    by: str | None = None
    rivals: Rivals = field(default_factory=Rivals)
    labels: bool = True
    on_unseen_group: OnUnseen = "error"
    on_bad_row: Literal["error", "reject"] = "error"
    baseline: Report | None = None
    baseline_dump: BaselineDump | None = None
    pictures: bool = False
    words: Sequence[str] = ()
    commands: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.bootstrap < 0:
            raise OptionError(f"`bootstrap={self.bootstrap}`: it must be 0 or more")
        if self.baseline is not None and self.baseline_dump is not None:
            raise OptionError("give either `baseline` or `baseline_dump`")
        needs_labels = {
            "`bootstrap`": self.bootstrap > 0,
            "`by`": self.by is not None,
            "`compare`": self.rivals.usual,
            "`score`": bool(self.rivals.scores),
            "`rejected`": bool(self.rivals.masks),
            "`metric`": bool(self.points),
            "`on_bad_row=reject`": self.on_bad_row == "reject",
            "`baseline`": self.baseline is not None,
            "`baseline_dump`": self.baseline_dump is not None,
        }
        given = [option for option, asked in needs_labels.items() if asked]
        if not self.labels and given:
            raise OptionError(f"{given[0]} needs labels; it does not go with `labels=False`")


def evaluate(
    source: Source, rejector: Rejector, gates: Sequence[Gate] = (), options: EvaluateOptions | None = None
) -> Report:
    """The report as a plain tree of numbers; gates are judged last, see `failed_gates`."""
    options = options or EvaluateOptions()
    threshold = rejector.need_threshold()
    if not rejector.has_classes:
        raise OptionError("the rejector was made for rows without logits; use evaluate_regression")
    check_gates(gates, options)
    check_cost_gates(gates, rejector)
    head = {"format": FORMAT, "drrej_version": __version__}
    decision: Report = {"classes": rejector.classes, "tau": threshold.tau, "cutoff": threshold.cutoff}
    if threshold.by is not None:
        decision["cutoff_by"] = threshold.by
    if options.labels:
        body = _labelled(source, rejector, gates, options)
    else:
        body = unlabelled_figures(source, rejector, options.on_unseen_group, options.pictures)
    if options.pictures:
        body["pictures"]["made"] = pictures.made_by(rejector, options.words, options.commands)
    report = {**head, "rows": body.pop("rows"), **decision, **body}
    report["gates"] = [gate.judge(report) for gate in gates]
    return report


def failed_gates(report: Report) -> list[dict[str, Any]]:
    """The rows of gates that did not pass."""
    return [gate for gate in report["gates"] if not gate["passed"]]


def check_gates(gates: Sequence[Gate], options: EvaluateOptions) -> None:
    """Raise when a gate names what this report will not have."""
    known = known_metrics(options)
    for gate in gates:
        if gate.point is not None and not options.labels:
            raise OptionError(f"gate '{gate.text}' needs labels; it does not go with `labels=False`")
        gate.check_known(known)


def _labelled(source: Source, rejector: Rejector, gates: Sequence[Gate], options: EvaluateOptions) -> Report:
    dump = source.open(rejector, labelled=True)
    evaluator = _evaluator(rejector, dump, options)
    run = Pass("evaluating", labelled=True, keep=evaluator.columns)
    merged = Tally.empty(rejector.classes)
    losses = LossStore(dump.rows)
    rivals: dict[str, LossStore] = {}
    keyed: list[KeyedRows] = []
    confused: list[NDArray[np.int64]] = []
    for block in map_blocks(dump, evaluator, run, source.engine, source.notes):
        merged = merged + block.tally
        losses.add(*block.losses)
        for name, values in block.scores.items():
            rivals.setdefault(name, LossStore(dump.rows)).add(*values)
        keyed += [] if block.keyed is None else [block.keyed]
        confused += [] if block.confused is None else [block.confused]
    if not merged.all.rows and source.notes.bad_rows:
        raise DumpError(f"{dump.parts[0].name}: no row has usable scores")
    if not merged.all.rows:
        raise no_labels(dump)
    named = [Point.parse(text)[0] for text in DEFAULT_POINTS]
    asked = [gate.point for gate in gates if gate.point is not None]
    wanted = list(dict.fromkeys([*named, *options.points, *asked]))
    bootstrap = Bootstrap(options.bootstrap, options.seed, source.engine.workers) if options.bootstrap else None
    points = losses.ranked()
    report = _report(rejector, merged, points, wanted, bootstrap)
    if options.by is not None:
        groups = figures.per_group(merged.by_group)
        report |= {"by": options.by, "per_group": groups, "worst_group": figures.worst_group(groups)}
    scores = {name: store.ranked() for name, store in rivals.items()}
    report |= _rivals(scores, merged, points, wanted, bootstrap, options.rivals)
    if options.pictures:
        report["pictures"] = _pictures(rejector, merged, points, np.concatenate(confused), options)
    if options.baseline is not None:
        report["difference"] = report_differences(report, options.baseline)
    if options.baseline_dump is not None:
        other = options.baseline_dump
        then = keyed_rows(other.source, other.rejector, other.key, options.on_unseen_group)
        draws = Bootstrap(options.bootstrap or PAIRED_RESAMPLES, options.seed, source.engine.workers)
        report["difference"] = paired_differences(KeyedRows.joined(keyed), then, other.key, draws)
        if options.pictures:
            report["pictures"]["baseline"] = _baseline_picture(then)
        report["bootstrap"] = {"resamples": draws.resamples, "seed": draws.seed}
    return report


def _evaluator(rejector: Rejector, dump: Dump, options: EvaluateOptions) -> Evaluator:
    grouping = None if options.by is None else Grouping(options.by, rejector, dump)
    key = None if options.baseline_dump is None else options.baseline_dump.key
    options.rivals.check(dump)
    check_columns(dump, [key] if key else [], "`join_on`")
    needs = Evaluator.NEEDS | options.rivals.needs
    application = Application(rejector, dump, options.on_unseen_group, needs, raw=Evaluator.NEEDS)
    return Evaluator(
        application, options.rivals, grouping, key, options.pictures, leave_out_bad=options.on_bad_row == "reject"
    )


def _report(
    rejector: Rejector, merged: Tally, points: Curve, wanted: Sequence[Point], bootstrap: Bootstrap | None
) -> Report:
    ratio = rejector.need_ratio()
    rows, accepted, errors = merged.counts
    tallies = {"uncalibrated": merged.uncalibrated, "all": merged.all, "accepted": merged.accepted}
    areas = area_rows(points, wanted, bootstrap)
    named = areas.pop("points")
    report: Report = {
        "rows": rows,
        "coverage": figures.coverage_figure(accepted, rows),
        "accuracy": figures.accuracy_figure(errors, accepted),
        "base_accuracy": figures.accuracy_figure(points.total_errors, rows),
        "expected_accuracy": {"value": merged.accepted.mean_confidence, "all": merged.all.mean_confidence},
        "nll": {name: tally.mean_nll for name, tally in tallies.items()},
        "ece": {name: tally.ece for name, tally in tallies.items()},
        "brier": {name: tally.mean_brier for name, tally in tallies.items()},
        **{name: {**area, "convention": figures.CONVENTIONS[name]} for name, area in areas.items()},
        "points": named,
        "ratio": mean_ratio(merged.ratio, merged.ratio_squared, rows, ratio.variance, ratio.rows),
        "drift": loss_shift(points, ratio.loss_quantiles, ratio.rows),
        "curve": figures.tau_curve(ratio.density, points),
        "coverage_curve": figures.coverage_curve(points),
        "per_class": figures.per_class(merged.by_class, rejector.class_names),
    }
    if merged.cost is not None:
        report["cost"] = merged.cost.figures()
    if bootstrap is not None:
        report["bootstrap"] = {"resamples": bootstrap.resamples, "seed": bootstrap.seed}
    return report


def _pictures(
    rejector: Rejector, merged: Tally, points: Curve, confused: NDArray[np.int64], options: EvaluateOptions
) -> Report:
    names = rejector.class_names
    classes = [(str(k) if names is None else names[k], merged.by_class[k]) for k in range(rejector.classes)]
    drawn: Report = {
        "ideal": pictures.ideal_curve(points.total_errors, points.rows),
        "reliability": {
            "uncalibrated": pictures.reliability(merged.uncalibrated),
            "calibrated": pictures.reliability(merged.all),
        },
        "losses": pictures.loss_histogram(points),
        "classes": pictures.worst_rows([(name, counts) for name, counts in classes if counts.any()]),
        "confusions": pictures.confusions(confused, rejector.classes, names),
    }
    if options.by is not None:
        groups = sorted({group for group, _ in merged.by_group})
        cells = [(group, [merged.by_group[group, cell] for cell in range(4)]) for group in groups]
        drawn["groups"] = pictures.worst_rows(cells)
    if options.baseline is not None and "coverage_curve" in options.baseline:
        drawn["baseline"] = {key: options.baseline[key] for key in ("coverage_curve", "coverage", "accuracy")}
    return drawn


def _baseline_picture(then: KeyedRows) -> Report:
    """The curve and the decision of the baseline's dump."""
    points = RankedLosses.of(then.losses[~then.wrong], then.losses[then.wrong])
    accepted = int(np.count_nonzero(then.accepted))
    return {
        "coverage_curve": figures.coverage_curve(points),
        "coverage": figures.coverage_figure(accepted, points.rows),
        "accuracy": figures.accuracy_figure(int(np.count_nonzero(then.accepted & then.wrong)), accepted),
    }


def _rivals(
    scores: Mapping[str, Curve],
    merged: Tally,
    points: Curve,
    wanted: Sequence[Point],
    bootstrap: Bootstrap | None,
    rivals: Rivals,
) -> Report:
    """Rows for other scores and masks; the rejector's own loss comes first."""
    report: Report = {}
    _, accepted, _ = merged.counts
    if scores:
        report["scores"] = [
            {
                **score_row(name, curve, accepted, wanted, bootstrap),
                "coverage_curve": figures.coverage_curve(curve),
            }
            for name, curve in {"loss": points, **scores}.items()
        ]
    if rivals.masks:
        report["masks"] = [figures.mask_row(name, merged.masks) for name in rivals.masks]
        for row in report["masks"]:
            row["loss_accuracy"] = accuracy_near(points, row["coverage"]["accepted"])
    return report


_CALIBRATION: Report = {"uncalibrated": None, "all": None, "accepted": None}
_PROPORTION: Report = {"value": None, "lower": None, "upper": None}
_UNLABELLED: Report = {
    "rows": None,
    "classes": None,
    "tau": None,
    "cutoff": None,
    "coverage": {**_PROPORTION, "accepted": None},
    "expected_accuracy": {"value": None, "all": None},
    "ratio": {"mean": None, "std_error": None, "p_value": None},
    "drift": {"distance": None, "p_value": None},
}
_LABELLED: Report = {
    **_UNLABELLED,
    "accuracy": {**_PROPORTION, "errors": None},
    "base_accuracy": {**_PROPORTION, "errors": None},
    "nll": _CALIBRATION,
    "ece": _CALIBRATION,
    "brier": _CALIBRATION,
    **COST_SKELETON,
}


def check_cost_gates(gates: Sequence[Gate], rejector: Rejector) -> None:
    """Raise when a gate asks for costs of a rejector that has none."""
    for gate in gates:
        if gate.metric.split(".")[0] in COST_SKELETON and not rejector.need_ratio().loss.is_cost:
            raise GateError(
                f"gate '{gate.text}': there is no metric '{gate.metric}' without `loss=cost` in 'drrej fit'"
            )


def known_metrics(options: EvaluateOptions) -> frozenset[str]:
    """Every metric that a gate may name, known before any work."""
    if not options.labels:
        return frozenset(metrics_of(_UNLABELLED))
    area = _PROPORTION if options.bootstrap else {"value": None}
    tree: Report = {**_LABELLED, **dict.fromkeys(figures.CONVENTIONS, area)}
    if options.by is not None:
        tree["worst_group"] = dict.fromkeys(("coverage", "accuracy", "base_accuracy"), _PROPORTION)
    if options.baseline_dump is not None:
        tree["difference"] = dict.fromkeys(FIGURES, _PROPORTION)
    if options.baseline is not None:
        then = options.baseline
        tree["difference"] = {
            name: _PROPORTION
            if name not in figures.CONVENTIONS or (options.bootstrap and lookup(then, f"{name}.lower") is not None)
            else {"value": None}
            for name in FIGURES
        }
    return frozenset(metrics_of(tree))
