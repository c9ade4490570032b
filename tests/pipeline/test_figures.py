"""Figures of the report beyond the basic ones: points, intervals, groups, rivals, baselines."""

from __future__ import annotations

import math

import numpy as np
import pyarrow.parquet as pq
import pytest
from conftest import make_model, more_trials, write_dump
from scipy import stats
from scipy.special import logsumexp, softmax
from worlds import SAMPLE, fitted, source, too_sure, write

import drrej
from drrej.core.curves import Curve
from drrej.core.losses import expected_losses
from drrej.documents.figures import Point
from drrej.errors import DumpError, GateError, OptionError
from drrej.pipeline.compare import BaselineDump, Rivals


def curve(confidence, errors) -> Curve:
    confidence, errors = np.asarray(confidence, float), np.asarray(errors, bool)
    return Curve.of(-confidence[~errors], -confidence[errors])


def value(point: str, points: Curve) -> float:
    found = Point.parse(point)[0].row(points).value
    assert found is not None
    return found


# What torch-uncertainty's and fd-shifts' own tests publish


@pytest.mark.parametrize(
    ("score_of_class_1", "targets", "point", "expected"),
    [
        ([0.1, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.48, 0.49], [1, 0, 1, 1, 1, 0, 0, 0, 1], "coverage@risk=0.55", 8 / 9),
        ([0.1, 0.2, 0.3, 0.4, 0.2], [0, 0, 1, 1, 1], "coverage@risk=0.5", 4 / 5),
        ([0.1, 0.2, 0.3, 0.4, 0.2], [0, 0, 1, 1, 0], "coverage@risk=0.5", 1.0),
        ([0.1, 0.2, 0.3, 0.4, 0.2], [1, 1, 1, 1, 1], "risk@coverage=0.5", 1.0),
        ([0.1, 0.2, 0.3, 0.4, 0.2], [0, 0, 1, 1, 1], "risk@coverage=0.5", 1 / 3),
        ([0.1, 0.19, 0.3, 0.15, 0.4, 0.2], [0, 0, 1, 0, 1, 1], "risk@coverage=0.5", 0.0),
        ([0.1, 0.2, 0.3, 0.15, 0.4, 0.2], [0, 0, 1, 0, 1, 1], "risk@coverage=0.55", 1 / 4),
    ],
)
def test_points_agree_with_torch_uncertainty(score_of_class_1, targets, point, expected):
    points = curve(1 - np.array(score_of_class_1), targets)  # every prediction is class 0
    assert value(point, points) == pytest.approx(expected, abs=1e-9)


def test_aurc_differs_from_torch_uncertainty_by_their_missing_first_segment():
    """They average over coverages [1/n, 1] only: .1125 there is .09 here, where the first risk counts from 0 on."""
    points = curve([0.9, 0.8, 0.7, 0.6, 0.8], [0, 0, 1, 1, 0])
    assert points.aurc() == pytest.approx(0.09, abs=1e-9)
    assert points.aurc() / 0.8 == pytest.approx(0.1125, abs=1e-9)
    for wrong in (0, 1):
        assert curve([0.9, 0.8, 0.7, 0.6, 0.8], [wrong] * 5).aurc() == wrong


@pytest.mark.parametrize(
    ("confidence", "errors", "aurc", "augrc"),
    [
        ((0.9, 0.7, 0.95, 0.8, 0.6, 0.7, 0.85, 0.8), (0, 1, 0, 1, 0, 0, 0, 0), 0.1191964285714286, 0.09375),
        ((0.9, 0.8, 0.7, 0.6, 0.8), (0, 0, 1, 1, 0), 0.09, 0.08),
        ((1.0,) * 100, (0, 1) * 50, 0.5, 0.25),
        ((1.0,) * 100, (1,) * 100, 1.0, 0.5),
    ],
)
def test_areas_agree_with_fd_shifts(confidence, errors, aurc, augrc):
    points = curve(confidence, errors)
    assert (points.aurc(), points.augrc()) == pytest.approx((aurc, augrc), abs=1e-9)


def test_coverage_at_a_risk_that_nothing_reaches_is_0():
    assert value("coverage@risk=0.1", curve([0.9, 0.8], [1, 1])) == 0.0


@pytest.mark.parametrize(
    "text", ["accuracy@risk=0.1", "coverage@coverage=0.1", "accuracy@coverage=2", "risk@coverage=0"]
)
def test_points_that_are_none(text):
    with pytest.raises(GateError):
        Point.parse(text)


# Bootstrap


# The whole report


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Arrays, a dump of them with side columns, and a rejector."""
    folder = tmp_path_factory.mktemp("world")
    logits, labels = too_sure(700, 5, seed=4)
    logits[100:140] = logits[60:100]  # ties
    rng = np.random.default_rng(5)
    columns = {
        "id": np.arange(700) * 3,
        "region": np.array(["north", "south", "west"])[rng.integers(0, 3, 700)],
        "knn": rng.normal(size=700) - logits.max(axis=1),
        "other": rng.random(700) < 0.3,
    }
    path = write(folder / "dump.parquet", logits, labels, **columns)
    train = write(folder / "train.parquet", *too_sure(900, 5, seed=6))
    return logits, labels, columns, path, fitted(train, drrej.Rule("coverage", 0.8)), folder


@pytest.fixture(scope="module")
def options(world):
    logits, labels, columns, _, rejector, folder = world
    rng = np.random.default_rng(8)
    order = rng.permutation(700)
    noisy = (logits + rng.normal(size=logits.shape).astype(np.float32))[order]
    other = write(folder / "other.parquet", noisy, labels[order], id=columns["id"][order])
    return drrej.EvaluateOptions(
        points=[Point.parse("risk@coverage=0.33")[0]],
        intervals=True,
        by="region",
        rivals=Rivals(True, {"knn": "low", "other": "low"}),
        baseline_dump=BaselineDump(source(other), rejector, "id"),
    )


@pytest.fixture(scope="module")
def whole(world, options):
    """The report with all of these options."""
    return report_of(world, options)


def report_of(world, options, gates=()):
    return drrej.evaluate(source(world[3]), world[4], gates, options)


@pytest.mark.parametrize("shuffles", [3, more_trials(20)])
def test_every_figure_has_the_same_bits_under_shuffles(world, options, tmp_path, shuffles):
    logits, labels, columns, _, rejector, _ = world
    expected = report_of(world, options).to_json()
    for seed in range(shuffles):
        order = np.random.default_rng(seed).permutation(700)
        side = {name: column[order] for name, column in columns.items()}
        path = write(tmp_path / "shuffled.parquet", logits[order], labels[order], **side)
        assert drrej.evaluate(source(path), rejector, (), options).to_json() == expected


def test_usual_scores_order_rows_like_their_textbook_forms(world, whole):
    logits, labels, columns, _, rejector, _ = world
    rows = {row["score"]: row for row in whole["scores"]}
    t = rejector.calibration.temperature
    z = logits.astype(np.float64)
    p = softmax(z / t, axis=1)
    top = np.sort(p, axis=1)
    wrong = z.argmax(axis=1) != labels
    textbook = {
        "max_probability": p.max(axis=1),
        "entropy": (p * np.log(p)).sum(axis=1),
        "margin": top[:, -1] - top[:, -2],
        "logit_margin": np.sort(z, axis=1)[:, -1] - np.sort(z, axis=1)[:, -2],
        "energy": t * logsumexp(z / t, axis=1),
        "max_logit": z.max(axis=1),
        "knn": -columns["knn"],
        "other": -columns["other"].astype(float),  # a mask
    }
    assert list(rows) == ["loss", *textbook]
    accepted = int(whole["coverage"]["accepted"])
    for name, confidence in textbook.items():
        points = curve(confidence, wrong)
        assert rows[name]["aurc"]["value"] == pytest.approx(points.aurc(), rel=1e-6), name
        assert rows[name]["accuracy"]["accepted"] >= accepted
        first = np.argsort(-confidence, kind="stable")[: rows[name]["accuracy"]["accepted"]]
        assert rows[name]["accuracy"]["errors"] == wrong[first].sum(), name
        assert rows[name]["aurc"]["lower"] < rows[name]["aurc"]["value"] < rows[name]["aurc"]["upper"]


def test_groups_are_counted(world, whole):
    logits, labels, columns, _, rejector, _ = world
    report = whole
    wrong = logits.argmax(axis=1) != labels
    losses = expected_losses(logits, temperature=rejector.calibration.temperature)
    accepted = losses < rejector.threshold.cutoff
    assert [row["group"] for row in report["per_group"]] == ["north", "south", "west"]
    for row in report["per_group"]:
        inside = columns["region"] == row["group"]
        assert row["rows"] == inside.sum()
        assert row["coverage"]["accepted"] == (inside & accepted).sum()
        assert row["accuracy"]["errors"] == (inside & accepted & wrong).sum()
        assert row["base_accuracy"]["errors"] == (inside & wrong).sum()
    worst = min(report["per_group"], key=lambda row: row["accuracy"]["value"])
    assert report["worst_group"]["accuracy"]["group"] == worst["group"]


def test_paired_differences_match_a_plain_paired_bootstrap(world, options):
    logits, labels, _, _, rejector, folder = world
    alone = drrej.EvaluateOptions(baseline_dump=options.baseline_dump)
    difference = report_of(world, alone)["difference"]
    table = pq.read_table(folder / "other.parquet").sort_by("id")
    noisy = np.array(table["logits"].to_pylist(), np.float32)
    t, cutoff = rejector.calibration.temperature, rejector.threshold.cutoff
    rng = np.random.default_rng(0)
    results = []
    for z in (logits, noisy):
        wrong = z.argmax(axis=1) != labels
        results.append((wrong, expected_losses(z, temperature=t) < cutoff))

    def accuracy_difference(rows):
        new, old = (1 - wrong[rows][accepted[rows]].mean() for wrong, accepted in results)
        return new - old

    assert difference["accuracy"]["value"] == pytest.approx(accuracy_difference(np.arange(700)), abs=1e-12)
    plain = [accuracy_difference(rng.integers(0, 700, 700)) for _ in range(1000)]
    expected = np.quantile(plain, [0.025, 0.975])
    found = (difference["accuracy"]["lower"], difference["accuracy"]["upper"])
    np.testing.assert_allclose(found, expected, atol=0.15 * (expected[1] - expected[0]))


def test_a_dump_against_itself_differs_by_no_more_than_its_rows_can_tell(world):
    """Of 700 rows none differs: up to 1 - 0.025^(1/700) of all rows may."""
    _, _, _, path, rejector, _ = world
    options = drrej.EvaluateOptions(baseline_dump=BaselineDump(source(path), rejector, "id"))
    difference = report_of(world, options)["difference"]
    assert all(difference[name]["value"] == 0 for name in drrej.core.paired.FIGURES)
    assert all(difference[name]["lower"] < 0 < difference[name]["upper"] for name in drrej.core.paired.FIGURES)
    for name in ("coverage", "base_accuracy"):
        assert difference[name]["upper"] == pytest.approx(1 - 0.025 ** (1 / 700), rel=0.01)
        assert difference[name]["lower"] == -difference[name]["upper"]


def test_pairs_must_exist_once(world, tmp_path):
    logits, labels, _, _, rejector, _ = world
    for name, ids, said in (
        ("few", np.arange(700) * 3 + 1, "not in it"),
        ("twice", np.zeros(700, int), "more than once"),
    ):
        other = write(tmp_path / f"{name}.parquet", logits, labels, id=ids)
        options = drrej.EvaluateOptions(baseline_dump=BaselineDump(source(other), rejector, "id"))
        with pytest.raises(DumpError, match=said):
            report_of(world, options)


def test_difference_to_a_report_squares_and_adds(world, tmp_path):
    rejector = world[4]
    then = drrej.evaluate(source(write(tmp_path / "x.parquet", *too_sure(500, 5, seed=9))), rejector)
    report = report_of(world, drrej.EvaluateOptions(baseline=then))
    now, old, difference = report["accuracy"], then["accuracy"], report["difference"]["accuracy"]
    assert difference["value"] == now["value"] - old["value"]
    assert difference["lower"] == pytest.approx(
        difference["value"] - math.sqrt((now["value"] - now["lower"]) ** 2 + (old["upper"] - old["value"]) ** 2)
    )
    assert report["difference"]["aurc"]["lower"] is None  # neither report has intervals of the areas


# Without labels


def test_without_labels(world, tmp_path):
    logits, _, _, path, rejector, _ = world
    bare = write(tmp_path / "bare.parquet", logits)
    report = drrej.evaluate(source(bare), rejector, (), drrej.EvaluateOptions(labels=False))
    full = drrej.evaluate(source(path), rejector)
    assert report["coverage"] == full["coverage"]
    assert report["ratio"] == full["ratio"]
    assert report["drift"] == full["drift"]
    t, cutoff = rejector.calibration.temperature, rejector.threshold.cutoff
    p = softmax(logits.astype(np.float64) / t, axis=1).max(axis=1)
    accepted = expected_losses(logits, temperature=t) < cutoff
    assert report["expected_accuracy"]["value"] == pytest.approx(p[accepted].mean(), rel=1e-6)
    assert full["expected_accuracy"]["all"] == pytest.approx(p.mean(), rel=1e-6)
    assert "accuracy" not in report
    with pytest.raises(OptionError, match="needs labels"):
        drrej.EvaluateOptions(labels=False, intervals=True)


def test_loss_shift_is_the_two_sample_distance_where_all_losses_are_kept():
    from drrej.core.drift import loss_quantiles, loss_shift

    rng = np.random.default_rng(0)
    fit, new = np.sort(rng.random(150)), rng.random(400) ** 1.2
    shift = loss_shift(Curve.of(new, np.empty(0)), loss_quantiles(fit), 150)
    expected = stats.ks_2samp(fit, new, method="asymp")
    assert shift["distance"] == pytest.approx(expected.statistic, abs=1e-12)


def test_quantiles_of_many_losses_see_nearly_the_whole_distance():
    from drrej.core.drift import loss_quantiles, loss_shift

    rng = np.random.default_rng(1)
    fit, new = np.sort(rng.random(5000)), rng.random(5000) ** 1.1
    shift = loss_shift(Curve.of(new, np.empty(0)), loss_quantiles(fit), 5000)
    expected = stats.ks_2samp(fit, new).statistic
    assert expected - 0.01 <= shift["distance"] <= expected


def test_drift_alarms_rarely_without_drift_and_surely_with_it(many):
    from simulate_guarantees import drift_p_values

    trials = [drift_p_values(seed, fit_rows=300, rows=300) for seed in range(many(400))]
    for name in ("ratio", "drift"):
        alarms = sum(p[name] < 0.05 for p in trials)
        assert alarms <= stats.binom.ppf(0.999, len(trials), 0.05 * 1.5), (name, alarms)
    drifted = [drift_p_values(seed, fit_rows=300, rows=300, shrink=0.3) for seed in range(20)]
    assert all(p["drift"] < 0.01 and p["ratio"] < 0.01 for p in drifted)


def test_sample_data_has_curves_for_plots():
    path = str(SAMPLE / "val.parquet")
    report = drrej.evaluate(source(path), fitted(path, drrej.Rule("coverage", 0.9)))
    assert len(report["coverage_curve"]) == len(report["curve"]) == 50
    assert report["coverage_curve"][-1]["coverage"] == 1.0
    assert all(p["lower"] <= p["accuracy"] <= p["upper"] for p in report["coverage_curve"])


def test_the_energy_of_probabilities_is_no_score(tmp_path):
    logits, labels = make_model(400, 3, 8)
    p = np.exp(logits - logits.max(axis=1, keepdims=True)).astype(np.float64)
    path = write_dump(tmp_path / "p.parquet", p / p.sum(axis=1, keepdims=True), labels)
    dump = drrej.Source(path, drrej.DumpOptions(input="probs"))
    rejector = drrej.threshold(dump, drrej.fit(dump, drrej.calibrate(dump)), drrej.Rule("coverage", 0.8))
    report = drrej.evaluate(dump, rejector, options=drrej.EvaluateOptions(rivals=Rivals(usual=True)))
    scores = [row.score for row in report.scores]
    assert scores == ["loss", "max_probability", "entropy", "margin", "logit_margin", "max_logit"]
    with pytest.raises(
        OptionError, match=r"`score_list=energy`: there is no such score; choose among .*, logit_margin, max_logit"
    ):
        drrej.evaluate(dump, rejector, options=drrej.EvaluateOptions(rivals=Rivals(True, {}, ["energy"])))


def test_a_list_of_scores_leaves_out_the_others(world):
    every = report_of(world, drrej.EvaluateOptions(rivals=Rivals(True)))
    some = report_of(world, drrej.EvaluateOptions(rivals=Rivals(True, {"knn": "low"}, ["energy", "entropy"])))
    assert [row.score for row in some.scores] == ["loss", "energy", "entropy", "knn"]
    areas = {row.score: row.augrc for row in every.scores}
    assert all(row.augrc == areas[row.score] for row in some.scores[:-1])
    with pytest.raises(OptionError, match="`score_list=knn`: there is no such score; choose among max_probability, "):
        report_of(world, drrej.EvaluateOptions(rivals=Rivals(True, {"knn": "low"}, ["knn"])))


@pytest.mark.parametrize(("name", "usual"), [("loss", False), ("entropy", True)])
def test_a_rival_that_is_called_as_another_score_is_refused(world, tmp_path, name, usual):
    """The loss is such a name, which a mask of drrej has too: the figures of one would be taken for the other's."""
    logits, labels, columns, _, rejector, _ = world
    path = write(tmp_path / "dump.parquet", logits, labels, **{name: columns["knn"]})
    with pytest.raises(OptionError, match=f"`rival={name}`: the report has another score of that name; rename the"):
        drrej.evaluate(source(path), rejector, options=drrej.EvaluateOptions(rivals=Rivals(usual, {name: "low"})))


def test_losses_that_are_gone_are_refused():
    with pytest.raises(OptionError, match="`loss=norm-2`: it must be one of log, "):
        drrej.RatioOptions(loss="norm-2")
