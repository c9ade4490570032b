"""Thresholds of least cost, and what errors and reviews cost together: by brute force, and by simulation."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import LOG, Many, fail, make_model, more_trials, source, succeed, thorough, write_dump, write_mask
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from simulate_verdicts import COSTS, Prices, cost_verdicts

import drrej
from drrej.core.certify import mean_upper_bound
from drrej.core.curves import PER, MeanCurve
from drrej.core.intervals import mean_interval
from drrej.core.losses import CostLoss
from drrej.core.thresholds import Rule
from drrej.documents.figures import Spread, TotalCost
from drrej.errors import RejectorError

PRICES = st.decimals(min_value="0.01", max_value="99", places=2).map(float)


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=1, max_size=40), PRICES, PRICES, st.randoms())
def test_the_least_total_cost_by_brute_force(
    rows: list[tuple[int, bool]], error: float, review: float, random: Any
) -> None:
    """In fractions, at every cutoff; in any order of the rows."""
    random.shuffle(rows)
    losses = np.array([loss / 10 for loss, _ in rows])
    wrong = np.array([mark for _, mark in rows])
    price, look = Fraction(str(error)), Fraction(str(review))
    totals = {}
    for cutoff in [*np.unique(losses), np.inf]:
        accepted = losses < cutoff
        totals[int(accepted.sum())] = price * int((accepted & wrong).sum()) + look * int((~accepted).sum())
    least = min(totals.values())
    curve = MeanCurve.of(losses, wrong * error)
    best = curve.cheapest(review)
    accepted = 0 if best < 0 else int(curve.accepted[best])
    assert accepted == max(count for count, total in totals.items() if total == least)
    assert curve.totals(review)[best] == pytest.approx(float(least), rel=1e-12)


# Intervals of a mean


@pytest.mark.parametrize(
    "values", [(0.0, 2.0, 50.0), (0.0, 2.0, 50.0, 7.5), (-2.0, 0.0, 48.0), (-20.0, -3.0, 0.0, 1.0, 5.0)]
)
@pytest.mark.parametrize(
    ("rows", "trials"), [(30, 60), thorough(1000, 60), more_trials(30, 400), more_trials(1000, 400)]
)
def test_intervals_of_a_mean_hold(values: tuple[float, ...], rows: int, trials: int) -> None:
    """Each end fails in at most a fortieth of the trials (the limit of this test has a chance of 1 in 10000)."""
    rng = np.random.default_rng(rows)
    numbers = np.array(values)
    chances = rng.dirichlet(np.full(numbers.size, 0.5))
    truth, below, above = float(numbers @ chances), 0, 0
    for counts in rng.multinomial(rows, chances, trials):
        lower, upper = mean_interval(numbers, counts, 0.025)
        assert lower <= numbers @ counts / rows * (1 + 1e-12) + 1e-12
        below, above = below + (truth < lower), above + (truth > upper)
    assert max(below, above) <= stats.binom.ppf(0.9999, trials, 0.025)


def test_the_betting_interval_is_about_as_narrow_as_the_one_sided_bound() -> None:
    values, counts = np.array([0.0, 2.0, 10.0, 50.0]), np.array([800, 100, 50, 50])
    lower, upper = mean_interval(values, counts, 0.025)
    every = np.repeat(values, counts)
    assert upper == pytest.approx(mean_upper_bound(every, 50.0, 0.025), rel=0.1)
    assert lower < every.mean() < upper
    normal = 1.96 * every.std() / np.sqrt(1000)
    assert upper - lower < 2 * 2 * normal


# The rule and the report


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("costs")
    logits, labels = make_model(2000, 3, 21)
    first = write_dump(folder / "val.parquet", logits[:1000], labels[:1000])
    second = write_dump(folder / "test.parquet", logits[1000:], labels[1000:])
    fitted = drrej.fit(source(first), drrej.calibrate(source(first)), LOG)
    matrix = CostLoss(((0.0, 5.0, 12.5), (1.0, 0.0, 7.0), (20.0, 3.0, 0.0)))
    priced = drrej.fit(source(first), drrej.calibrate(source(first)), drrej.RatioOptions(loss=matrix))
    (folder / "fitted.json").write_text(fitted.to_json())
    (folder / "priced.json").write_text(priced.to_json())
    return {"folder": folder, "val": first, "test": second, "fitted": fitted, "priced": priced,
            "labels": labels, "matrix": np.array(matrix.costs)}  # fmt: skip


def spent(world: dict[str, Any], rejector: drrej.Rejector, path: str, rows: slice, tmp_path: Path) -> dict[str, Any]:
    """Loss, cost if accepted and decision of each row, from its mask."""
    mask = write_mask(source(path), rejector, tmp_path / "mask.parquet")
    rule, labels = rejector.need_threshold().rule, world["labels"][rows]
    costs = world["matrix"][labels, mask["prediction"]]
    if rule.error_cost is not None:
        costs = np.where(mask["prediction"] == labels, 0.0, rule.error_cost)
    return {"loss": mask["loss"], "cost": costs, "rejected": mask["rejected"]}


@pytest.mark.parametrize(
    ("kind", "rule"), [("fitted", Rule("cost", 2.0, error_cost=50.0)), ("priced", Rule("cost", 0.5))]
)
def test_the_threshold_and_every_figure(world: dict[str, Any], kind: str, rule: Rule, tmp_path: Path) -> None:
    """The cutoff is the cheapest on the rows it was chosen on; the report's costs are counted again from the mask."""
    rejector = drrej.threshold(source(world["val"]), world[kind], rule)
    assert drrej.Rejector.from_json(rejector.to_json()) == rejector
    rows = spent(world, rejector, world["val"], slice(0, 1000), tmp_path)
    total = np.where(rows["rejected"], rule.target, rows["cost"]).sum()
    for cutoff in [*np.unique(rows["loss"]), np.inf]:
        other = np.where(rows["loss"] < cutoff, rows["cost"], rule.target).sum()
        assert total <= other * (1 + 1e-12)

    report = drrej.evaluate(source(world["test"]), rejector, [drrej.Gate.parse("target")])
    cost = report.total_cost
    assert cost is not None
    rows = spent(world, rejector, world["test"], slice(1000, None), tmp_path)
    paid = np.where(rows["rejected"], rule.target, rows["cost"])
    assert cost.value == pytest.approx(PER * paid.mean())
    assert cost.accepting_all == pytest.approx(PER * rows["cost"].mean())
    assert cost.rejecting_all == pytest.approx(PER * rule.target)
    assert cost.oracle == pytest.approx(PER * np.minimum(rows["cost"], rule.target).mean())
    every = [np.where(rows["loss"] < c, rows["cost"], rule.target).mean() for c in [*np.unique(rows["loss"]), np.inf]]
    assert cost.best_cutoff == pytest.approx(PER * min(every))
    assert cost.lower < cost.value < cost.upper
    assert cost.saved_over_accepting.value == pytest.approx(PER * (rows["cost"] - paid).mean())
    assert (cost.curve[0].coverage, cost.curve[0].cost) == (0.0, cost.rejecting_all)
    assert cost.curve[-1].cost == pytest.approx(cost.accepting_all)
    assert report.target is not None
    assert report.target.verdict == cost.verdict == "met"
    assert drrej.Report.from_json(report.to_json()) == report


def test_the_verdict_on_a_cost() -> None:
    costs = dict.fromkeys(("value", "lower", "upper", "accepting_all", "rejecting_all", "oracle", "best_cutoff"), 1.0)
    accepting = Spread(value=2.0, lower=1.0, upper=3.0)
    for lower, upper, verdict in ((0.0, 2.0, "met"), (-1.0, 2.0, "inconclusive"), (-3.0, -1.0, "missed")):
        rejecting = Spread(value=lower, lower=lower, upper=upper)
        cost = TotalCost(**costs, saved_over_accepting=accepting, saved_over_rejecting=rejecting, curve=())
        assert cost.verdict == verdict


@pytest.mark.parametrize("prices", COSTS[:4])
def test_the_verdict_on_a_cost_seldom_errs(prices: Prices, many: Many) -> None:
    """A sample of `simulate_verdicts`: a fortieth is what each error may have."""
    trials = many(300)
    found = cost_verdicts(prices, trials, 1)
    assert found["missed" if prices.holds else "met"] <= stats.binom.ppf(0.9999, trials, 0.025)


def test_where_every_review_costs_less_than_any_error(world: dict[str, Any]) -> None:
    """Then no row is worth the risk, and accepting none is the answer."""
    wrong = np.where(np.arange(1000) % 2, 1, 2)
    logits = np.tile([3.0, 0.0, 0.0], (1000, 1)) + np.random.default_rng(0).normal(size=(1000, 3)) * 0.1
    path = write_dump(world["folder"] / "wrong.parquet", logits, wrong)
    rejector = drrej.threshold(source(path), world["fitted"], Rule("cost", 1.0, error_cost=1.5))
    report = drrej.evaluate(source(path), rejector)
    assert report.coverage.accepted == 0
    assert report.total_cost is not None
    assert report.total_cost.value == report.total_cost.rejecting_all


def test_without_labels_a_cost_cannot_be_told(world: dict[str, Any]) -> None:
    rejector = drrej.threshold(source(world["val"]), world["fitted"], Rule("cost", 2.0, error_cost=50.0))
    report = drrej.evaluate(source(world["test"]), rejector, (), drrej.EvaluateOptions(labels=False))
    assert report.target is not None
    assert report.target.verdict == "inconclusive"
    assert drrej.Report.from_json(report.to_json()) == report


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--error-cost", "50"], "--error-cost requires --review-cost"),
        (["--review-cost", "2"], "--review-cost needs --error-cost E"),
        (["--review-cost", "2", "--error-cost", "1"], "is not above --review-cost 2"),
        (["--review-cost", "0", "--error-cost", "1"], "--review-cost 0: it must be above 0"),
        (["--review-cost", "2", "--error-cost", "50", "--tau", "0.9"], "--tau cannot be combined with --review-cost"),
        (["--review-cost", "0", "--error-cost", "1", "--risk", "0.1"], "--review-cost 0: it must be above 0"),
        (["--review-cost", "2", "--error-cost", "1", "--risk", "0.1"], "is not above --review-cost 2"),
        (["--review-cost", "2", "--risk", "0.1"], "--review-cost needs --error-cost E"),
        (["--review-cost", "2", "--error-cost", "50", "--confidence", "0.9"], "cannot be combined with --review-cost"),
        (["--review-cost", "2", "--error-cost", "50", "--cutoff-by", "prediction"], "the same cutoff for every group"),
    ],
)
def test_prices_that_make_no_sense(world: dict[str, Any], options: list[str], said: str) -> None:
    assert said in fail("threshold", world["val"], "-r", world["folder"] / "fitted.json", *options)


def test_a_cost_matrix_has_the_costs_of_errors(world: dict[str, Any]) -> None:
    asked = ("threshold", world["val"], "-r", world["folder"] / "priced.json", "--review-cost", "0.5")
    assert "leave out --error-cost" in fail(*asked, "--error-cost", "5")
    document = json.loads(succeed(*asked))
    assert document["threshold"]["rule"] == {"kind": "cost", "target": 0.5}
    document["threshold"]["rule"]["error_cost"] = 5.0
    with pytest.raises(RejectorError, match="error_cost"):
        drrej.Rejector.from_json(json.dumps(document))
