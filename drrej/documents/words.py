"""What a rejector does, in plain words. Parameters are named as Python has them: `coverage=0.8`."""

from __future__ import annotations

import numpy as np

from drrej.core.calibration import rises
from drrej.core.calibrators import CALIBRATORS
from drrej.core.inputs import WORDS, level_words
from drrej.documents.figures import MEANS
from drrej.documents.rejector import BeforeAfter, Calibration, GroupThreshold, Ratio, Rejector, Threshold

_MOST_GROUPS = 20


def describe_sections(rejector: Rejector) -> list[str]:
    """What the sections of a rejector do that it has so far, a line for each fact."""
    lines = [] if rejector.model is None else [f"model: {rejector.model}"]
    if rejector.calibration is not None and rejector.has_classes:
        lines.append(_calibration_line(rejector.calibration))
    if rejector.ratio is not None:
        lines += _ratio_lines(rejector.ratio)
        if rejector.threshold is not None:
            lines += threshold_lines(rejector)
    return lines


def _calibration_line(calibration: Calibration) -> str:
    temperature, vector = calibration.temperature, calibration.vector
    effect = f"{'less' if temperature > 1 else 'more'} confident than the raw scores"
    effect = "those of the raw scores" if temperature == 1 else effect
    line = f"temperature: {temperature:.6g}, so probabilities are {effect}"
    edge = "; the search ended at the edge of [0.001, 1000]"
    if vector is not None:
        line = (
            f"calibrator: {CALIBRATORS[calibration.method]}, weights of ln p from {_g(min(vector.weights))} to "
            f"{_g(max(vector.weights))}, biases from {_g(min(vector.biases))} to {_g(max(vector.biases))}"
        )
        edge = "; the search did not converge"
    if calibration.score is not None:
        count = len(calibration.score.forms)
        line = f"calibrator: {CALIBRATORS[calibration.method]} of {'the score' if count == 1 else f'{count} scores'}"
        line += ", where lower is better" if calibration.score.lower else ""
    if calibration.method == "given":
        return line + "; given, not fitted"
    line += f"; fitted on {calibration.rows} labelled rows"
    if calibration.nll is not None and calibration.ece is not None:
        line += f" (NLL {_change(calibration.nll)}, ECE {_change(calibration.ece)})"
    if calibration.floor is not None:
        line += f"; a probability of 0 counts as {calibration.floor:.3g}"
    return line if calibration.converged else line + edge


def _change(figure: BeforeAfter) -> str:
    """A figure before and after; only after where scores were no probabilities before."""
    return _g(figure.after) if figure.before is None else f"{_g(figure.before)} -> {_g(figure.after)}"


def calibration_warnings(calibration: Calibration) -> list[str]:
    """Where the likelihood has no maximum at a finite temperature, or calibration made its own rows worse."""
    words = [worse_figures(calibration)]
    if calibration.converged is False and calibration.vector is not None:
        words.insert(0, "the search for the calibrator did not converge; its last point was used")
    elif calibration.converged is False:
        words.insert(0, "the best temperature lies at or beyond the end of [0.001, 1000]; the nearest value was used")
    return [line for line in words if line]


def worse_figures(calibration: Calibration) -> str | None:
    """A warning when calibration made the ECE or the Brier score of its own rows worse; None when it did not."""
    ece, brier, rows = calibration.ece, calibration.brier, calibration.rows
    if ece is None or brier is None or rows is None:
        return None
    found = rises((ece.before, ece.after), (brier.before, brier.after), rows)
    if not found:
        return None
    what = "one temperature" if calibration.method == "temperature" else f"the calibrator '{calibration.method}'"
    figures = ", ".join(f"{before:.3g} -> {after:.3g}" for before, after in found.values())
    ask = "are they logits in class order, and are the labels right?"
    if calibration.floor is not None:
        other = f"a `floor` other than {calibration.floor:.3g} may help;"
        ask = f"are they in class order, and are the labels right? {other}"
    return (
        f"calibration made the {' and the '.join(found)} worse on its own rows ({figures}): {what} does not fit these "
        f"scores; {ask} `temperature=1` keeps the probabilities as they are"
    )


def _ratio_lines(ratio: Ratio) -> list[str]:
    name = {1.0: "KL divergence", 3.0: "chi-squared divergence"}.get(ratio.alpha, "alpha-divergence")
    density = ratio.density
    flat = density.flat_start
    lines = [
        f"loss: '{ratio.loss.name}', {ratio.loss.words}; on the {ratio.rows} fitted rows from "
        f"{_g(ratio.min_loss)} to {_g(ratio.max_loss)}, mean {_g(ratio.mean_loss)}",
        *ratio.loss.details(),
        f"ratio: {name} (alpha {ratio.alpha:g}), lambda {ratio.lam:g}; it falls as the loss grows, is 1 on average and "
        f"at most {_g(density.ratio(np.array([ratio.min_loss]))[0])}",
    ]
    if ratio.variance is not None:  # what alpha and lambda are good for, in rows: 1 / mean(rho^2) = 1 / (1 + variance)
        share = 1.0 / (1.0 + ratio.variance)
        lines.append(
            f"effective sample: the idealized distribution keeps {100 * share:.4g} % of it; `lam` sets how much, not "
            "which rows are rejected first"
        )
    if flat is None:
        lines.append("flat part: none, the ratio is never 0")
    else:
        beyond = " (beyond every fitted row)" if flat > ratio.max_loss else ""
        lines.append(
            f"flat part: from a loss of {_g(flat)}{beyond} on the ratio is 0 and rows are rejected at every tau"
        )
    return lines


def threshold_lines(rejector: Rejector) -> list[str]:
    """The decision, how it was chosen, and what is guaranteed."""
    threshold = rejector.need_threshold()
    share = f"{threshold.accepted} of {threshold.rows} rows ({100 * threshold.coverage:.2f} %)"
    if threshold.groups is None:
        lines = [f"decision: {_decision(threshold, rejector)}"]
    else:
        by = "the prediction" if threshold.by == "prediction" else f"column '{threshold.by}'"
        lines = [f"decision: by {by}, {len(threshold.groups)} groups, each with its own cutoff"]
        lines += [f"  {group.group}: {_decision(group, rejector)}" for group in threshold.groups[:_MOST_GROUPS]]
        lines += ["  ..."] if len(threshold.groups) > _MOST_GROUPS else []
    expectation = "" if threshold.rule.confidence is not None else "; expect the same on similar rows"
    lines.append(f"chosen by {threshold.rule.asked}: accepts {share} of those it was chosen on{expectation}")
    if threshold.accuracy is not None:
        lines.append(f"accuracy there: {_g(threshold.accuracy)}")
    if threshold.mean is not None:
        lines.append(f"{MEANS[threshold.rule.kind]} there: {_g(threshold.mean)}")
    return lines if threshold.rule.confidence is None else lines + _guarantee_lines(threshold)


def _guarantee_lines(threshold: Threshold) -> list[str]:
    """What is promised, or what several promises guarantee together."""
    rule, start = threshold.rule, "guarantee: on new rows like these"
    void = "; void, as rows that the fit has seen were allowed" if rule.reused else ""
    if not rule.promises:
        what = {
            "accuracy": "accuracy of accepted rows is at least",
            "risk": "error rate among accepted rows is at most",
            "coverage": "share of accepted rows is at least",
            "mean-cost": "mean cost of accepted rows is at most",
            "mse": f"mean squared error of accepted rows, each counted as {rule.clip} at most, is at most",
            "mae": f"mean absolute error of accepted rows, each counted as {rule.clip} at most, is at most",
        }[rule.kind]
        whose = "" if threshold.groups is None else " of each group"
        both = "" if rule.coverage is None else f", and the share of accepted rows at least {rule.coverage:g}{whose},"
        sure = f"with confidence {rule.confidence:g}{' for both together' if both else ''} ({rule.method}){void}"
        return [f"{start} the {what} {rule.target:g}{whose}{both or ','} {sure}"]
    lines = [f"{start} all of this holds jointly with confidence {rule.confidence:g}{void}"]
    some = any(goal.limits_errors and goal.group is not None for goal in rule.promises)
    for goal in rule.promises:
        whose = f" predicted '{goal.group}'" if goal.group else " of each other predicted class" if some else ""
        lines.append(
            {
                "accuracy": f"  the accuracy of accepted rows{whose} is at least {goal.limit:g}",
                "risk": f"  the error rate of accepted rows{whose} is at most {goal.limit:g}",
                "missed": f"  of the rows of class '{goal.group}' at most {goal.limit:g} are accepted as another class",
                "overall-risk": f"  errors that are left after review are at most {goal.limit:g} of all rows",
                "coverage": f"  the share of accepted rows is at least {goal.limit:g}",
                "reviews": f"  at most {goal.limit:g} rows of a batch of {goal.per} are rejected",
            }[goal.what]
            + ("" if goal.reviewer_accuracy is None else f"; reviewers are right in {goal.reviewer_accuracy:g} of them")
        )
    return lines


def accepted_scores(rejector: Rejector) -> str | None:
    """What a score must be for its row to be accepted, for each group; None where that cannot be told by one score."""
    threshold = rejector.need_threshold()
    if threshold.groups is None:
        return _accepted_scores(threshold, rejector)
    told = [(group.group, _accepted_scores(group, rejector)) for group in threshold.groups[:_MOST_GROUPS]]
    return "; ".join(f"{name}: {words or 'none'}" for name, words in told) if any(words for _, words in told) else None


def _accepted_scores(threshold: Threshold | GroupThreshold, rejector: Rejector) -> str | None:
    score, cutoff = rejector.need_calibration().score, threshold.cutoff
    at = None if score is None or cutoff is None else score.score_at(cutoff)
    if score is None or at is None:
        return None
    name = rejector.columns.logits
    return f"{name.removesuffix(WORDS)} {'<' if score.lower else '>'} {level_words(name, at)}"


def _decision(threshold: Threshold | GroupThreshold, rejector: Rejector) -> str:
    if threshold.cutoff is None:
        return "rejects nothing"
    if threshold.cutoff < 0:
        return "rejects every row"
    decision = f"rejects a row when its expected loss is {_g(threshold.cutoff)} or more"
    if (scores := _accepted_scores(threshold, rejector)) is not None:
        decision = f"accepts a row when {scores}; it {decision}"
    elif familiar := rejector.need_ratio().loss.cutoff_words(threshold.cutoff):
        decision += f" ({familiar})"
    if threshold.tau is not None:
        decision += f", that is when its ratio is {_g(threshold.tau)} or less (tau)"
    return decision


def _g(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.6g}"
