"""The figures of a report, each computed in one place, from columns in the order of the rows and from curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from drrej.core.curves import CONVENTIONS, PER, Curve, MeanCurve
from drrej.core.drift import RatioMoments, loss_shift, ratio_moments, ratio_shift
from drrej.core.intervals import CONFIDENCE, json_number, mean_interval, proportion, sampled_share
from drrej.core.paired import area_intervals
from drrej.core.ratio import DensityRatio
from drrej.core.thresholds import Goal, Rule, regression_errors
from drrej.core.types import Booleans, Floats, Integers, Total
from drrej.data.problems import shown
from drrej.documents import figures
from drrej.documents import report as document
from drrej.documents.document import entries
from drrej.documents.rejector import Ratio, Rejector, Threshold
from drrej.documents.report import RegressionReport, Report
from drrej.pipeline.collect import curve_of, pieces
from drrej.pipeline.score import drawn_by, numbered

RANKINGS = ("naurc", "failure_auroc", "fpr_at_95_tpr")
AREAS = ("aurc", "e_aurc", "augrc")
"""Those of every score."""


def coverage_figure(accepted: int, rows: int, independent: float = 1.0) -> figures.Coverage:
    """Coverage with its interval and count; see `proportion`.

    >>> coverage_figure(8, 10).value
    0.8
    """
    return figures.Coverage(**proportion(accepted, rows, independent), accepted=accepted)


def accuracy_figure(errors: int, rows: int, independent: float = 1.0) -> figures.Accuracy:
    """Accuracy with its interval and count, see `proportion`; undefined without rows.

    >>> accuracy_figure(1, 4).value, accuracy_figure(0, 0).value
    (0.75, None)
    """
    return figures.Accuracy(**proportion(rows - errors, rows, independent), errors=errors)


# Points, curves and areas


TAUS = tuple((np.arange(1, 51) / 50).tolist())
"""The paper's 50 steps of tau in (0, 1]."""


def steps_of(rows: int) -> list[int]:
    """So many rows of all make 50 steps of coverage in (0, 1]."""
    steps: list[int] = (-(-np.arange(1, 51) * rows // 50)).tolist()
    return steps


def coverage_curve(curve: Curve) -> tuple[figures.CurvePoint, ...]:
    """Accuracy at 50 steps of coverage, each the smallest coverage that is reached there."""
    return tuple(curve_point(curve, *curve.reaching(rows)) for rows in steps_of(curve.rows))


def curve_point(curve: Curve, accepted: int, errors: int, tau: float | None = None) -> figures.CurvePoint:
    """Coverage and accuracy of the rows that are accepted at some point of a curve."""
    shares = proportion(accepted - errors, accepted)
    shares["accuracy"] = shares.pop("value")
    return figures.CurvePoint(tau=tau, coverage=accepted / curve.rows, **shares)


def areas_of(curve: Curve, intervals: bool) -> dict[str, Any]:
    """The areas under a curve, with their intervals if asked for."""
    ends = area_intervals(curve) if intervals else {}
    areas: dict[str, Any] = {}
    for name in AREAS:
        lower, upper = ends.get(name, (None, None))
        figure = figures.Change if name == "e_aurc" else figures.Proportion
        areas[name] = figure(value=getattr(curve, name)(), lower=lower, upper=upper)
    return areas


def order_sections(curve: Curve, intervals: bool) -> dict[str, Any]:
    """How well the loss orders the rows: areas and rankings, each with its convention."""
    sections = areas_of(curve, intervals)
    for name, area in sections.items():
        sections[name] = replace(area, convention=CONVENTIONS[name])
    for name in RANKINGS:
        sections[name] = document.Ranking(value=getattr(curve, name)(), convention=CONVENTIONS[name])
    return sections


def calibration_sections(columns: Mapping[str, Any]) -> dict[str, document.Calibration | document.ExpectedAccuracy]:
    """How good the probabilities are before calibration, after it, and after it on the accepted rows."""
    uncalibrated, of_all, accepted = columns["uncalibrated"], columns["all"], columns["accepted rows"]
    before, after, kept = uncalibrated.figures, of_all.figures, accepted.figures
    sections: dict[str, document.Calibration | document.ExpectedAccuracy] = {
        "expected_accuracy": document.ExpectedAccuracy(value=accepted.mean_confidence, all=of_all.mean_confidence)
    }
    for name in ("nll", "ece", "brier"):
        sections[name] = document.Calibration(uncalibrated=before[name], all=after[name], accepted=kept[name])
    if "classwise all" in columns:
        sections["classwise_ece"] = document.Calibration(
            uncalibrated=columns["classwise uncalibrated"].ece,
            all=columns["classwise all"].ece,
            accepted=columns["classwise accepted"].ece,
        )
    return sections


def tied_rows(losses: Floats, accepted: Booleans) -> int | None:
    """How many rows have the largest loss that is accepted, if that is more than half of them: they are as one.

    >>> tied_rows(np.array([0.0, 0.0, 0.0, 0.3]), np.array([True, True, True, False]))
    3
    """
    if not accepted.any():
        return None
    tied = int(np.count_nonzero(losses == np.max(losses, where=accepted, initial=-np.inf)))
    return tied if 2 * tied > losses.size else None


def below_chance(right: int, rows: int, classes: int, best: str = "") -> str | None:
    """What to say where fewer rows are right than by guessing, beyond doubt, or another order is known to be `best`."""
    upper = proportion(right, rows)["upper"]
    below = upper is not None and upper < 1.0 / classes
    chance = f", below chance ({100 / classes:.1f} %)" if below else ""
    words = (
        f"{100 * right / max(rows, 1):.1f} % of the rows are right{chance}; labels or class order may be swapped{best}"
    )
    return words if below or best else None


def inverted(wrong: Booleans, accepted: Booleans) -> str | None:
    """What to say where rows that a score accepts are right less often than the others, beyond doubt.

    >>> inverted(np.arange(100) < 50, np.arange(100) < 60)
    'accepted rows are right less often (16.7 %) than rejected ones (100.0 %); the score may be the wrong way round'
    """
    kept, others = (
        proportion(int(np.count_nonzero(part & ~wrong)), int(np.count_nonzero(part))) for part in (accepted, ~accepted)
    )
    if kept["value"] is None or others["value"] is None or kept["upper"] >= others["lower"]:
        return None
    return (
        f"accepted rows are right less often ({100 * kept['value']:.1f} %) than rejected ones "
        f"({100 * others['value']:.1f} %); the score may be the wrong way round"
    )


def swapped(labels: Integers, predictions: Integers, names: Sequence[str]) -> str | None:
    """The same of rows, with the other order of classes that makes most of them right, and twice as many as now.

    >>> truth = np.arange(300) % 3
    >>> print(swapped(truth, np.array([1, 0, 2])[truth], ["a", "b", "c"]).partition("; ")[2])
    labels or class order may be swapped: 100.0 % would be right if the predictions 'b', 'a' were 'a', 'b'
    """
    right, rows, classes = int(np.count_nonzero(labels == predictions)), labels.size, len(names)
    if classes > _MOST_SWAPPED or rows < 10 * classes:
        return below_chance(right, rows, classes)
    counts = np.zeros((classes + 1) * classes, np.int64)  # the last label names none of the classes
    for part in pieces(rows):
        counts += np.bincount(labels[part].astype(np.int64) * classes + predictions[part], minlength=counts.size)
    matrix = counts.reshape(-1, classes)[:-1]
    truth = np.flatnonzero(matrix.any(axis=1))
    guess = matrix[truth].argmax(axis=1)
    found = int(matrix[truth, guess].sum())
    if np.unique(guess).size < truth.size or found < max(_CLEARLY * rows, 2 * right):
        return below_chance(right, rows, classes)
    moved = truth != guess
    said, meant = (shown([names[i] for i in numbers[moved].tolist()], _MOST_SHOWN) for numbers in (guess, truth))
    best = f": {100 * found / rows:.1f} % would be right if the predictions {said} were {meant}"
    return below_chance(right, rows, classes, best)


_MOST_SWAPPED, _MOST_SHOWN, _CLEARLY = 200, 6, 0.6
"""Classes whose best assignment is looked for, those that are named, and the share of right rows that is clear."""


# What rows tell without labels: the accuracy to expect, and how far losses have moved since the fit


def expected_accuracy(doubt: Floats, accepted: Booleans) -> document.ExpectedAccuracy:
    """From the probability of an error in each row."""
    of_accepted = sum((Total.of(doubt[part][accepted[part]]) for part in pieces(doubt.size)), Total())
    means = of_accepted.mean(int(np.count_nonzero(accepted))), Total.of(doubt).mean(doubt.size)
    value, of_all = (None if mean is None else 1.0 - mean for mean in means)
    return document.ExpectedAccuracy(value=value, all=of_all)


def ratio_figure(curve: Curve, ratio: Ratio) -> document.MeanRatio:
    """The mean ratio; no p-value where the loss was fitted to the rows of the ratio, so that its mean need not be 1."""
    fit = RatioMoments(ratio.rows, 1.0, ratio.variance, ratio.third)
    parts = (ratio.density.log_ratio(curve.ordered[piece]) for piece in pieces(curve.rows))
    figure = document.MeanRatio(**ratio_shift(ratio_moments(parts, curve.rows), fit))
    return figure if ratio.loss.drift_loss is None else replace(figure, p_value=None)


_FAR, _SURE = 0.1, 0.001
"""A distance from the fit's losses, and a p-value, from which on a learned order is in doubt."""


def unsure_order(drift: document.Drift, ratio: Ratio) -> str | None:
    """The plain loss beneath a learned one, where the rows are so unlike those of the fit that its order may not hold.

    Small drifts, which many rows make certain, do not count.
    """
    base = ratio.loss.drift_loss
    if base is None or drift.distance is None or drift.p_value is None:
        return None
    return base.name if drift.distance >= _FAR and drift.p_value < _SURE else None


def group_looks(
    columns: Mapping[str, Any], doubt: Floats, drift: Floats, ratio: Ratio
) -> tuple[document.GroupLook, ...]:
    """Without labels: coverage, expected accuracy and drift of each group, the largest drift first."""
    numbers, names = numbered(columns["group"])
    order = np.argsort(numbers, kind="stable")
    members = np.split(order, np.searchsorted(numbers[order], np.arange(1, len(names))))
    looks = []
    for name, rows in zip(names, members, strict=True):
        accepted = columns["accepted"][rows]
        shift = document.Drift(**loss_shift(curve_of(drift[rows]), ratio.drift_reference, ratio.rows))
        if shift.p_value is not None:
            shift = replace(shift, p_value=min(1.0, shift.p_value * len(names)))
        looks.append(
            document.GroupLook(
                group=name,
                rows=int(rows.size),
                coverage=coverage_figure(int(np.count_nonzero(accepted)), int(rows.size)),
                expected_accuracy=expected_accuracy(doubt[rows], accepted).value,
                drift=shift,
            )
        )
    known = all(look.drift.p_value is not None for look in looks)
    return tuple(sorted(looks, key=attrgetter("drift.p_value", "group") if known else attrgetter("group")))


# Classes and groups, from counts of (wrong rejected, right rejected, wrong accepted, right accepted) rows

Cells = NDArray[np.int64]


def count_cells(numbers: Integers, kinds: int, wrong: Booleans, accepted: Booleans) -> Cells:
    """The counts (kinds x 4) of the rows of each number."""
    counts = np.zeros(4 * kinds, np.int64)
    for part in pieces(wrong.size):
        cell = 2 * accepted[part].astype(np.int64) + ~wrong[part]
        counts += np.bincount(4 * numbers[part].astype(np.int64) + cell, minlength=counts.size)
    return counts.reshape(-1, 4)


def per_class(
    counts: Cells, seen: figures.ClassCounts, names: Sequence[str] | None, independent: float
) -> tuple[document.ClassRow, ...]:
    """The classes that rows are of, or are accepted as; see `count_cells`."""
    found = np.flatnonzero(np.add(seen.rows, seen.accepted)).tolist()
    everything = sum(seen.accepted)
    share = partial(proportion, independent=independent, claims=_INTERVALS * max(len(found), 1))
    made = []
    for number in found:
        _, _, missed, right = counts[number].tolist()
        rows, accepted, others = seen.rows[number], missed + right, everything - seen.accepted[number]
        weight = accepted + seen.accepted[number]
        made.append(
            document.ClassRow(
                class_=number if names is None else names[number],
                rows=rows,
                coverage=accepted / rows if rows else None,
                accuracy=right / accepted if accepted else None,
                precision=figures.Proportion(**share(right, seen.accepted[number])),
                recall=figures.Proportion(**share(right, accepted)),
                npv=figures.Proportion(**share(others - missed, others)),
                f1=2 * right / weight if weight else None,
                missed=figures.Proportion(**share(missed, rows)),
                reviewed=figures.Proportion(**share(rows - accepted, rows)),
            )
        )
    return tuple(made)


_INTERVALS = 5
"""Figures of a class that have an interval."""


def per_group(names: Sequence[str], counts: Cells) -> tuple[document.GroupRow, ...]:
    """From the counts of each group, in the order given."""
    return tuple(
        document.GroupRow(
            group=name,
            rows=sum(cells),
            coverage=coverage_figure(sum(cells[2:]), sum(cells)),
            accuracy=accuracy_figure(cells[2], sum(cells[2:])),
            base_accuracy=accuracy_figure(cells[0] + cells[2], sum(cells)),
        )
        for name, cells in zip(names, counts.tolist(), strict=True)
    )


Worst = TypeVar("Worst", document.WorstGroup, document.WorstClass)


def worst_of(kind: type[Worst], rows: Sequence[document.GroupRow | document.ClassRow], named: str) -> Worst:
    """Of each figure of groups or classes, which are `named` by a field, the worst that is defined, for gates."""
    worst: dict[str, Any] = {}
    for entry in entries(kind):
        shares = [replace(getattr(row, entry.name), group=str(getattr(row, named))) for row in rows]
        defined = [share for share in shares if share.value is not None]
        choose = max if entry.about.better == "lower" else min
        worst[entry.name] = choose(defined, key=attrgetter("value"), default=replace(shares[0], group=None))
    return kind(**worst)


MOST_CLASSES = 12
"""More classes do not fit a page: those with the most errors are shown, the others as one."""


def confusion_matrix(counts: Cells, confused: Integers, names: Sequence[str]) -> document.ConfusionMatrix:
    """From the counts by class and the accepted errors, each coded as label * classes + prediction.

    >>> counts = np.array([[1, 0, 2, 5], [0, 3, 0, 4]])
    >>> [(row.predicted, row.rejected) for row in confusion_matrix(counts, np.array([1, 1]), "ab").rows]
    [((5, 2), 1), ((0, 4), 3)]
    """
    classes = len(counts)
    labels, predictions = np.divmod(confused, classes)
    errors = np.bincount(labels, minlength=classes) + np.bincount(predictions, minlength=classes)
    shown = np.arange(classes)
    if classes > MOST_CLASSES:
        shown = np.sort(np.argsort(-errors, kind="stable")[: MOST_CLASSES - 1])
    others = classes - shown.size
    size = shown.size + (others > 0)
    place = np.full(classes, size - 1)
    place[shown] = np.arange(shown.size)
    matrix = np.bincount(place[labels] * size + place[predictions], minlength=size * size).reshape(size, size)
    rejected = np.zeros(size, np.int64)
    np.add.at(rejected, place, counts[:, 0] + counts[:, 1])
    np.add.at(matrix, (place, place), counts[:, 3])
    titles = [names[number] for number in shown.tolist()]
    titles += [f"{others} others"] if others else []
    return document.ConfusionMatrix(
        rows=tuple(
            document.ConfusionRow(class_=title, predicted=tuple(row.tolist()), rejected=int(left))
            for title, row, left in zip(titles, matrix, rejected, strict=True)
        ),
        others=others,
    )


# What errors and reviews cost: per row for the loss `cost`, and together for a review cost

_TAIL = (1.0 - CONFIDENCE) / 2
_SAVINGS = 2
"""Savings that are judged together."""


def cost_sections(columns: Mapping[str, Any], rejector: Rejector) -> dict[str, Any]:
    """What rows cost and were expected to, for a loss that knows; what errors and reviews cost where a rule asks."""
    rule, prices = rejector.need_threshold().rule, rejector.need_ratio().loss.prices  # all that a row can cost, sorted
    sections: dict[str, Any] = {}
    costs = columns.get("cost")
    if costs is not None:
        paid, kept = costs[columns["accepted"]], columns["loss"][columns["accepted"]]
        lower = upper = None
        if paid.size:
            counts = np.bincount(np.searchsorted(prices, paid), minlength=len(prices))
            lower, upper = mean_interval(np.array(prices), counts, _TAIL)
        expected = Total.of(columns["loss"]).mean(costs.size)
        sections["cost"] = document.Cost(
            value=Total.of(paid).mean(paid.size),
            lower=lower,
            upper=upper,
            expected=Total.of(kept).mean(kept.size),
            all=document.CostPerRow(value=Total.of(costs).mean(costs.size), expected=expected),
        )
    if rule.error_cost is not None:
        costs, prices = np.where(columns["wrong"], rule.error_cost, 0.0), [0.0, rule.error_cost]
    if rule.review_cost is not None:
        assert costs is not None
        sections["total_cost"] = total_cost(columns["loss"], costs, columns["accepted"], rule.review_cost, prices)
    return sections


def total_cost(
    losses: Floats, costs: Floats, accepted: Booleans, review: float, prices: Sequence[float]
) -> figures.TotalCost:
    """From the loss of each row, what it costs if it is accepted, and whether it is.

    `prices` are all that an accepted row can cost.
    """
    kinds = np.unique(np.asarray(prices, np.float64))
    place = np.searchsorted(kinds, costs)
    kept = np.bincount(place[accepted], minlength=kinds.size)
    left = np.bincount(place[~accepted], minlength=kinds.size)
    paid = _merged(np.append(kinds, review), np.append(kept, left.sum()))
    lower, upper = mean_interval(*paid, _TAIL)
    total = _mean_cost(*paid)
    curve = MeanCurve.of(losses, costs)
    totals = curve.totals(review)
    points = list(dict.fromkeys([-1, *np.searchsorted(curve.accepted, steps_of(curve.rows)).tolist()]))
    accepting, rejecting = _mean_cost(kinds, kept + left), PER * review
    # nothing is saved on an accepted row over accepting all, nor on a rejected row over rejecting all
    over_accepting = _merged(np.append(kinds - review, 0.0), np.append(left, kept.sum()))
    over_rejecting = _merged(np.append(review - kinds, 0.0), np.append(kept, left.sum()))
    return figures.TotalCost(
        value=total,
        lower=PER * lower,
        upper=PER * upper,
        accepting_all=accepting,
        rejecting_all=rejecting,
        oracle=_mean_cost(np.minimum(kinds, review), kept + left),
        best_cutoff=PER * float(totals[curve.cheapest(review)]) / curve.rows,
        saved_over_accepting=_saving(over_accepting, accepting - total),
        saved_over_rejecting=_saving(over_rejecting, rejecting - total),
        # where nothing is accepted, and at 50 steps of coverage, each the smallest that is reached there
        curve=tuple(
            figures.CostPoint(coverage=int(curve.accepted[at]) / curve.rows if at >= 0 else 0.0, cost=float(cost))
            for at, cost in zip(points, PER * totals[points] / curve.rows, strict=True)
        ),
    )


def _merged(values: Floats, counts: NDArray[np.int64]) -> tuple[Floats, NDArray[np.int64]]:
    """Equal values as one."""
    kinds, places = np.unique(values, return_inverse=True)
    together = np.zeros(kinds.size, np.int64)
    np.add.at(together, places, counts)
    return kinds, together


def _mean_cost(values: Floats, counts: NDArray[np.int64]) -> float:
    """Per 1000 rows."""
    return PER * float(np.sum(values * counts)) / int(counts.sum())


def _saving(saved: tuple[Floats, NDArray[np.int64]], value: float) -> figures.Spread:
    lower, upper = mean_interval(*saved, _TAIL / _SAVINGS)
    return figures.Spread(value=value, lower=PER * lower, upper=PER * upper)


# The errors of a regression

AUGRC_OF_ERRORS = "trapezoid of (sum of accepted errors) / rows over distinct losses, from (0, 0)"


def error_sections(columns: Mapping[str, Any], density: DensityRatio) -> dict[str, Any]:
    """Squared and absolute errors with their areas, and the curve over tau, by each row's residual."""
    losses, residual, kept = columns["loss"], columns["residual"], columns["accepted"]
    curves = {kind: MeanCurve.of(losses, regression_errors(residual, kind)) for kind in ("mse", "mae")}
    mse, mae = curves.values()
    points = []
    for tau in TAUS:
        accepted, squared = mse.below(density.cutoff(tau))
        absolute = mae.below(density.cutoff(tau))[1]
        points.append(document.ErrorPoint(tau=tau, coverage=accepted / mse.rows, mse=squared, mae=absolute))
    sections: dict[str, Any] = {"curve": tuple(points)}
    for kind, curve in curves.items():
        errors = regression_errors(residual[kept], kind)
        sections[kind] = document.ErrorFigures(
            value=MeanCurve.of(losses[kept], errors).below(None)[1] if errors.size else None,
            all=curve.below(None)[1],
            aurc=document.Ranking(value=json_number(curve.aurc()), convention=CONVENTIONS["aurc"]),
            augrc=document.Ranking(value=json_number(curve.augrc()), convention=AUGRC_OF_ERRORS),
        )
    return sections


def limited_mean(columns: Mapping[str, Any], rule: Rule) -> MeanError:
    """The mean error of the accepted rows as the rule has it, with its 95 % interval where errors have a limit."""
    from drrej.core.certify import mean_upper_bound

    accepted, clip = columns["accepted"], rule.clip
    if rule.kind not in ("mse", "mae") or not accepted.any():
        return None, None
    errors = regression_errors(columns["residual"][accepted], rule.kind, clip)
    mean = MeanCurve.of(columns["loss"][accepted], errors).below(None)[1]
    if clip is None or mean is None:
        return mean, None
    lower = clip - mean_upper_bound(clip - errors, clip, _TAIL)
    return mean, (min(max(lower, 0.0), mean), max(mean_upper_bound(errors, clip, _TAIL), mean))


# What became of the target

Ends = tuple[float, float]
MeanError = tuple[float | None, Ends | None]
"""A mean, and the ends of its interval where it has one."""


def audited(
    columns: Mapping[str, Any], report: Report, rejector: Rejector
) -> tuple[document.Audited, figures.Target | None]:
    """What a random sample of the accepted rows says of all of them, and of the target.

    Rows without a label have -1 in its place. Without the labels of all rejected rows nothing is known of cases that
    were missed.
    """
    threshold, titles = rejector.need_threshold(), list(rejector.class_titles)
    predictions, labels, accepted = columns["prediction"], columns["label"], columns["accepted"]
    parts, names = (predictions, titles) if drawn_by(rejector) is None else numbered(columns["group"])
    known = accepted & (labels != -1)
    count = partial(np.bincount, minlength=len(names))
    rows, drawn = count(parts[accepted]), count(parts[known])
    wrong = count(parts[known & (labels != predictions)])
    share = report.coverage.accepted / report.rows

    def sampled(goal: Goal, level: float) -> tuple[float | None, float, float]:
        number = slice(None) if goal.group is None else [names.index(goal.group)]
        if goal.what == "missed":
            return missed_share(number, level)
        value, low, high = sampled_share(rows[number], drawn[number], wrong[number], level)
        if goal.what == "overall-risk":
            reviewed = (1.0 - (goal.reviewer_accuracy or 1.0)) * (1.0 - share)
            return None if value is None else value * share + reviewed, low * share + reviewed, high * share + reviewed
        return (value, low, high) if goal.what == "risk" or value is None else (1.0 - value, 1.0 - high, 1.0 - low)

    def missed_share(number: Any, level: float) -> tuple[float | None, float, float]:
        mine, others = labels == number[0], rows.copy()
        others[number] = 0
        hits = count(predictions[known & mine])
        missed, low, high = sampled_share(others, drawn, hits, level / 2)
        caught, least, most = sampled_share(rows[number], drawn[number], hits[number], level / 2)
        if missed is None or not (accepted | (labels != -1)).all():
            return None, 0.0, 1.0
        reviewed, size, same = int(np.count_nonzero(mine & ~accepted)), int(others.sum()), int(rows[number].sum())
        pairs = ((missed, caught or 0.0), (low, most), (high, least))
        ends = [(size * a, size * a + same * b + reviewed) for a, b in pairs]
        value, lower, upper = (part / whole if whole else 0.0 for part, whole in ends)
        return value, lower, upper

    rule, tail = threshold.rule, (1.0 - CONFIDENCE) / 2
    every = [number for number, size in enumerate(rows.tolist()) if size]
    per = [(number, sampled(Goal("accuracy", 1.0, names[number]), tail / len(every))) for number in every]
    made = document.Audited(
        labels=int(known.sum()),
        accuracy=_share(sampled(Goal("accuracy", 1.0), tail)),
        risk=_share(sampled(Goal("risk", 0.0), tail)),
        per_group=tuple(
            document.AuditRow(group=names[n], accepted=int(rows[n]), labels=int(drawn[n]), accuracy=_share(found))
            for n, found in per
        ),
    )
    goals = rule.promises
    if rule.limits_errors:
        groups = [None] if threshold.by is None else [names[number] for number in every]
        goals = tuple(Goal("risk", rule.risk, group) for group in groups)
        goals += () if rule.coverage is None else (Goal("coverage", rule.coverage),)
    if not goals:
        return made, target_of(report, rejector)
    counted = figures.ClassCounts(rows.tolist(), wrong.tolist(), rows.tolist(), wrong.tolist())
    confidence = None if rule.reused else rule.confidence
    return made, figures.judge_goals(goals, names, _counts(report, threshold)[0], counted, confidence, sampled)


def _share(found: tuple[float | None, float, float]) -> figures.Proportion:
    value, low, high = found
    return figures.Proportion(value=value, lower=None if value is None else low, upper=None if value is None else high)


def target_of(
    report: Report | RegressionReport,
    rejector: Rejector,
    mean: MeanError = (None, None),
    by_class: figures.ClassCounts | None = None,
) -> figures.Target | None:
    """What the threshold was chosen for, and whether these rows show it; None where nothing was promised.

    Where each group has its own cutoff and the report contains these groups, each of them is judged, except those that
    the threshold does not know. A confidence counts only where no row was used that the fit has seen. `mean` is the
    mean error that a rule for a regression limits, with its interval.
    """
    threshold = rejector.need_threshold()
    rule = threshold.rule
    confidence = None if rule.reused else rule.confidence
    if rule.promises:
        counts = _counts(replace(report, per_group=None) if isinstance(report, Report) else report, threshold)[0]
        return figures.judge_goals(rule.promises, rejector.class_titles, counts, by_class, confidence)
    if rule.kind == "cost":
        return figures.judge_cost(report.total_cost if isinstance(report, Report) else None, rule.target)
    if rule.kind in ("mse", "mae"):
        return figures.judge_mean(rule, *mean, confidence)
    if rule.kind == "mean-cost":
        cost = report.cost if isinstance(report, Report) else None
        ends = None if cost is None or cost.lower is None or cost.upper is None else (cost.lower, cost.upper)
        return figures.judge_mean(rule, None if cost is None else cost.value, ends, confidence)
    return figures.judge(rule, _counts(report, threshold), confidence)


def _counts(report: Report | RegressionReport, threshold: Threshold) -> list[figures.Counts]:
    how: dict[str, Any] = {}
    if isinstance(report, Report):
        how = {"tied": report.tied_rows is not None, "independent": 1.0 - (report.repeated_rows or 0) / report.rows}
    if isinstance(report, Report) and report.per_group is not None and report.by == threshold.by:
        cutoffs = {group.group: group.cutoff for group in threshold.groups or ()}
        known = [row for row in report.per_group if row.group in cutoffs]
        if known:
            return [
                figures.Counts(
                    row.rows, row.coverage.accepted, row.accuracy.errors, row.group, cutoffs[row.group] is None, **how
                )
                for row in known
            ]
    errors = report.accuracy.errors if isinstance(report, Report) and report.accuracy is not None else None
    nothing_rejected = threshold.by is None and threshold.cutoff is None
    return [figures.Counts(report.rows, report.coverage.accepted, errors, certain=nothing_rejected, **how)]
