"""Guarantees for means of bounded values, and thresholds that limit a mean cost or a regression's error."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import LOG, Many, fail, load_json, make_model, source, succeed, thorough, write_dump
from hypothesis import given
from hypothesis import strategies as st
from running import drrej as run
from scipy import stats

import drrej
from drrej.core.certify import _log_p, _log_p_of_ranks, certify_mean, mean_upper_bound, risk_candidates, tie_order
from drrej.core.curves import Curve, MeanCurve
from drrej.core.intervals import mean_interval, upper_bound
from drrej.core.losses import CostLoss
from drrej.core.ratio import DensityRatio
from drrej.core.thresholds import Rule, mean_cutoff
from drrej.errors import Infeasible, OptionError

OPEN = DensityRatio(1.0, 1.0, 0.0, 0.0)


def betting_by_definition(values: np.ndarray, risk: float, delta: float) -> float:
    """1 / the mean capital of all bets of at least the least one, with 50 digits."""
    with mpmath.workdps(50):
        least = mpmath.sqrt(8 * mpmath.log(1 / mpmath.mpf(delta)) / len(values))
        bets = [mpmath.mpf(1)]
        while bets[-1] / mpmath.mpf(1.6) >= least:
            bets.append(bets[-1] / mpmath.mpf(1.6))
        capital = [mpmath.fprod(1 + g * (mpmath.mpf(risk) - x) / (1 - mpmath.mpf(risk)) for x in values) for g in bets]
        total = mpmath.fsum(capital)  # 0 where a bet of all there is was lost and there is no other
        return float(min(1, len(bets) / total)) if total else 1.0


@given(st.lists(st.floats(0, 1), min_size=1, max_size=60), st.floats(0.01, 0.95), st.sampled_from([0.05, 0.3]))
def test_p_values_are_those_of_the_definition(rows: list[float], risk: float, delta: float) -> None:
    values = np.array(rows)
    for repeat in (1, 12):  # more rows, more bets
        repeated = np.tile(values, repeat)
        expected = betting_by_definition(repeated, risk, delta)
        assert math.exp(_log_p(repeated, risk, delta)) == pytest.approx(expected, rel=1e-9, abs=1e-300)
        assert math.exp(_log_p_of_ranks(repeated, risk, delta)[-1]) == pytest.approx(expected, rel=1e-9, abs=1e-300)


def test_first_ranks_are_those_of_each_rank_alone() -> None:
    values = np.random.default_rng(0).beta(0.5, 6.0, 300)
    at_once = _log_p_of_ranks(values, 0.12, 0.1)
    one_by_one = [_log_p(values[:rank], 0.12, 0.1) for rank in range(1, 301)]
    np.testing.assert_allclose(at_once, one_by_one, rtol=1e-9, atol=1e-12)


def test_zeros_pass_as_soon_as_they_say() -> None:
    for rows in (1, 40, 500):
        assert _log_p(np.zeros(1), 0.05, 0.1, rows) == pytest.approx(_log_p(np.zeros(rows), 0.05, 0.1), rel=1e-9)


# Bounds of a mean


DRAWS = {
    "errors": lambda rng, n: (rng.random(n) < 0.1).astype(float),
    "seldom": lambda rng, n: (rng.random(n) < 0.02) * rng.random(n),
    "narrow": lambda rng, n: rng.beta(20, 60, n),
    "wide": lambda rng, n: rng.beta(0.3, 0.6, n),
    "different means": lambda rng, n: np.where(np.arange(n) % 2, rng.beta(4, 12, n), rng.random(n) < 0.25) * 1.0,
}
MEANS = {"errors": 0.1, "seldom": 0.01, "narrow": 0.25, "wide": 1 / 3, "different means": 0.25}


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("rows", [30, thorough(300)])
def test_the_bound_lies_below_the_mean_no_more_often_than_promised(name: str, rows: int) -> None:
    """The bound is below the mean exactly when a test of the mean itself rejects, which is quick."""
    rng = np.random.default_rng(rows)
    delta, trials = 0.2, 1000
    rejected = sum(_log_p(DRAWS[name](rng, rows), MEANS[name], delta) <= math.log(delta) for _ in range(trials))
    assert rejected <= stats.binom.ppf(0.9995, trials, delta)


def test_the_bound_is_where_the_test_begins_to_reject() -> None:
    rng = np.random.default_rng(3)
    values = 5.0 * rng.beta(2, 8, 200)
    bound = mean_upper_bound(values, 5.0, 0.05)
    assert values.mean() < bound < 5.0
    for factor in (0.2, 0.9, 0.999999, 1.000001, 1.1, 2.0):
        assert (_log_p(values / 5, bound / 5 * factor, 0.05) <= math.log(0.05)) == (factor > 1)
    assert mean_upper_bound(rng.permutation(values), 5.0, 0.05) == bound


def test_little_variance_pays() -> None:
    values = np.random.default_rng(4).beta(50, 450, 1000)
    assert mean_upper_bound(values, 1.0, 0.05) < 0.105


def test_of_errors_the_exact_bound_is_the_smallest() -> None:
    for errors, rows in ((0, 50), (3, 100), (20, 1000)):
        values = np.zeros(rows)
        values[:errors] = 1.0
        exact = upper_bound(errors, rows, 0.05)
        assert exact < mean_upper_bound(values, 1.0, 0.05) < 1.6 * exact


def test_bounds_at_the_ends() -> None:
    assert mean_upper_bound(np.empty(0), 3.0, 0.1) == 3.0
    assert mean_upper_bound(np.full(10, 3.0), 3.0, 0.1) == 3.0
    assert mean_upper_bound(np.zeros(1), 1.0, 0.05) <= 1.0


# Cutoffs


def test_of_errors_no_more_is_certified_than_by_the_exact_test() -> None:
    rng = np.random.default_rng(6)
    for _ in range(20):
        x = rng.random(800)
        wrong = rng.random(800) < 0.3 * x**3
        exact = risk_candidates(Curve.of(x[~wrong], x[wrong]), OPEN, 0.05, 0.1).largest()
        assert exact is not None
        found = certify_mean(x, wrong.astype(float), 0.05, 1.0, 0.1)
        assert 0.6 * exact.accepted < found.accepted <= exact.accepted + 1


def test_a_certified_cutoff_accepts_what_it_says_in_any_order() -> None:
    rng = np.random.default_rng(7)
    losses = np.round(rng.random(2000), 2)
    values = 10.0 * rng.beta(1, 9, 2000) * losses
    found = certify_mean(losses, values, 0.35, 10.0, 0.1)
    assert found.cutoff in losses
    below = losses < found.cutoff
    assert found.accepted == below.sum()
    assert values[below].mean() < 0.35
    order = rng.permutation(2000)
    assert certify_mean(losses[order], values[order], 0.35, 10.0, 0.1) == found


def test_everything_may_be_accepted_or_up_to_the_last_cutoff() -> None:
    rng = np.random.default_rng(8)
    losses, values = rng.random(500), rng.random(500) * 0.1
    assert certify_mean(losses, values, 0.1, 1.0, 0.05).cutoff is None
    found = certify_mean(losses, values, 0.1, 1.0, 0.05, last=0.7)
    assert (found.cutoff, found.accepted) == (0.7, int(np.sum(losses < 0.7)))


WORLDS = {
    "just too much": (lambda x: np.full(x.shape, 0.2002), 0),
    "in and out": (lambda x: np.where(np.floor(x * 20) % 2 == 0, 0.41, 0.0), 20),
    "grows": (lambda x: 0.4 * x, 0),
}


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize("narrow", [False, True])
def test_promises_hold(name: str, narrow: bool, many: Many) -> None:
    """Values with the mean that the world says, all or nothing or close to it."""
    mean_of, blocks = WORLDS[name]
    rng = np.random.default_rng(9)
    delta, trials, broken = 0.2, many(250), 0
    grid = (np.arange(2000) + 0.5) / 2000
    true_mean = np.append(0.0, np.cumsum(mean_of(grid)) / np.arange(1, 2001))
    for _ in range(trials):
        x = rng.integers(0, 2000, 200)
        mean = mean_of(grid[x])
        values = mean * rng.uniform(0.5, 1.5, 200) if narrow else (rng.random(200) < mean).astype(float)
        losses = np.floor(x / 2000 * blocks) / blocks if blocks else x / 2000
        try:
            found = certify_mean(losses, values, 0.2, 1.0, delta)
        except Infeasible:
            continue
        end = 2000 if found.cutoff is None else round(found.cutoff * 2000)
        broken += true_mean[end] > 0.2 + 1e-9
    assert broken <= stats.binom.ppf(0.9995, trials, delta)


def test_nothing_to_certify_says_how_near_it_came() -> None:
    losses, values = np.linspace(0, 1, 300), np.full(300, 0.5)
    with pytest.raises(Infeasible, match=r"cannot be certified on 300 rows: the upper bound over the .* is 0.5"):
        certify_mean(losses, values, 0.3, 1.0, 0.1)
    with pytest.raises(Infeasible, match="a mean of 0 cannot be certified"):
        certify_mean(losses, values, 0.0, 1.0, 0.1)
    with pytest.raises(Infeasible, match="every row"):
        certify_mean(losses, values, 0.3, 1.0, 0.1, last=0.0)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((1.0, 1.0, 0.1), "`mean`"),
        ((0.1, math.inf, 0.1), "`limit`"),
        ((0.1, 1.0, 0.0), "`delta`"),
    ],
)
def test_promises_that_make_no_sense(arguments: tuple, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        certify_mean(np.zeros(3), np.zeros(3), *arguments)


def test_values_beyond_the_limit_are_refused() -> None:
    for bad in (np.array([0.1, 1.2]), np.array([-0.1]), np.array([math.nan])):
        with pytest.raises(OptionError, match="between 0 and"):
            mean_upper_bound(bad, 1.0, 0.1)


def test_ties_are_ordered_without_looking_at_the_values() -> None:
    """In 2000 blocks of three the largest value comes first as often as second and last."""
    losses, values = np.repeat(np.arange(2000.0), 3), np.tile([0.0, 0.5, 1.0], 2000)
    order = tie_order(losses, values)
    np.testing.assert_array_equal(losses[order], losses)
    places = np.flatnonzero(values[order] == 1.0) % 3
    assert stats.chisquare(np.bincount(places)).pvalue > 1e-3


COSTS = ((0.0, 1.0, 4.0), (2.0, 0.0, 1.0), (9.0, 3.0, 0.0))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A classification with a cost matrix, and a regression whose variance is known."""
    folder = tmp_path_factory.mktemp("means")
    (folder / "costs.csv").write_text("\n".join(",".join(map(str, row)) for row in COSTS))
    for name, rows, seed in (("fit", 600, 1), ("new", 3000, 2), ("test", 3000, 3)):
        write_dump(folder / f"{name}.parquet", *make_model(rows, 3, seed=seed))
        rng = np.random.default_rng(seed)
        variance, mean = rng.gamma(1.0, 0.5, rows), rng.normal(size=rows)
        value = mean + np.sqrt(variance) * rng.normal(size=rows)
        pq.write_table(pa.table({"variance": variance, "mean": mean, "value": value}), folder / f"r{name}.parquet")
    fit = source(folder / "fit.parquet")
    priced = drrej.fit(fit, drrej.calibrate(fit), drrej.RatioOptions(loss=CostLoss(COSTS)))
    (folder / "priced.json").write_text(priced.to_json())
    words = ("--loss", "column", "--loss-column", "variance", "--prediction", "mean", "--target", "value")
    succeed("fit", folder / "rfit.parquet", *words, "-o", folder / "errors.json")
    return {"folder": folder, "priced": priced}


def costs_of(world: dict[str, Any], name: str) -> tuple[np.ndarray, np.ndarray]:
    """(expected cost, realised cost) of each row, computed plainly."""
    logits, labels = make_model({"new": 3000, "test": 3000}[name], 3, seed={"new": 2, "test": 3}[name])
    z = logits.astype(np.float64) / world["priced"].need_calibration().temperature
    p = np.exp(z - z.max(axis=1, keepdims=True))
    expected = (p / p.sum(axis=1, keepdims=True)) @ np.array(COSTS)
    return expected.min(axis=1), np.array(COSTS)[labels, expected.argmin(axis=1)]


# Rules


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({"kind": "mean-cost", "target": -1.0}, "`mean_cost=-1`: it must be 0 or more"),
        ({"kind": "mse", "target": math.inf}, "`mse=inf`: it must be 0 or more"),
        ({"kind": "mse", "target": 1.0, "confidence": 0.9}, "needs `clip=B`"),
        ({"kind": "mae", "target": 1.0, "clip": 1.0}, "`clip=1`: it must be above `mae=1`"),
        ({"kind": "mean-cost", "target": 1.0, "clip": 2.0}, "`clip` requires `mse` or `mae`"),
        ({"kind": "coverage", "target": 0.5, "clip": 2.0}, "`clip` requires `mse` or `mae`"),
        ({"kind": "mean-cost", "target": 1.0, "confidence": 0.9, "method": "sgr"}, "is gone"),
        ({"kind": "risk", "target": 0.1, "confidence": 0.9, "method": "betting"}, "there is no choice"),
        ({"kind": "mean-cost", "target": 1.0, "method": "betting"}, "there is no choice"),
        ({"kind": "mean-cost", "target": 1.0, "coverage": 0.5}, "requires `accuracy` or `risk`"),
        ({"kind": "max-loss", "target": 1.0, "confidence": 0.9}, "cannot be combined with `max-loss`"),
    ],
)
def test_rules_that_make_no_sense(rule: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError) as error:
        Rule(**rule)
    assert said in str(error.value)


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 8)), min_size=1, max_size=30),
    st.integers(0, 8),
    st.none() | st.integers(1, 6),
)
def test_the_largest_set_whose_mean_is_low_enough(rows: list[tuple[int, int]], limit: int, last: int | None) -> None:
    losses, values = (np.array(column, np.float64) for column in zip(*rows, strict=True))
    rule = Rule("mae", limit / 8)
    values = values / 8
    cutoffs = [*np.unique(losses)[1:], math.inf if last is None else last]
    best = 0
    for cutoff in cutoffs:
        kept = losses < cutoff
        if (last is None or cutoff <= last) and kept.any() and values[kept].mean() <= rule.target:
            best = max(best, int(kept.sum()))
    try:
        found = mean_cutoff(rule, MeanCurve.of(losses, values), last)
    except Infeasible:
        assert best == 0
        return
    kept = losses < (math.inf if found is None else found)
    assert int(kept.sum()) == best
    assert values[kept].mean() <= rule.target


# Costs


@pytest.mark.parametrize("method", [None, "betting"])
def test_the_mean_cost_is_limited(world: dict[str, Any], method: str | None) -> None:
    losses, costs = costs_of(world, "new")
    rule = Rule("mean-cost", 0.3, None if method is None else 0.9, method)
    found = drrej.threshold(source(world["folder"] / "new.parquet"), world["priced"], rule)
    chosen = found.need_threshold()
    if method is None:
        expected = mean_cutoff(rule, MeanCurve.of(losses, costs), None)
    else:
        expected = certify_mean(losses, costs, 0.3, 9.0, 0.1).cutoff  # 1 - 0.9 in decimals
        assert chosen.rule.method == method
    assert chosen.cutoff == pytest.approx(expected, rel=1e-5)
    kept = losses < expected
    assert (chosen.accepted, chosen.mean) == (kept.sum(), pytest.approx(costs[kept].mean()))
    assert drrej.Rejector.from_json(found.to_json()) == found
    report = drrej.evaluate(source(world["folder"] / "test.parquet"), found)
    losses, costs = costs_of(world, "test")
    paid, counts = np.unique(costs[losses < chosen.cutoff], return_counts=True)
    prices = np.unique(np.array(COSTS))
    every = np.array([dict(zip(paid, counts, strict=True)).get(price, 0) for price in prices])
    lower, upper = mean_interval(prices, every, 0.025)
    assert report.cost is not None
    assert (report.cost.lower, report.cost.upper) == (pytest.approx(lower), pytest.approx(upper))
    assert report.target is not None
    (promised,) = report.target.promises
    assert (promised.what, promised.value) == ("mean-cost", report.cost.value)
    assert promised.verdict == ("met" if upper <= 0.3 else "missed" if lower > 0.3 else "inconclusive")


def test_run_promises_the_mean_cost_and_judges_it(world: dict[str, Any], tmp_path: Path) -> None:
    words = ("run", world["folder"] / "new.parquet", "--loss", "cost", "--cost-matrix", world["folder"] / "costs.csv")
    outcome = run(*map(str, words), "--mean-cost", "0.4", "--verbose", "-o", str(tmp_path / "out"))
    assert outcome.code == 0
    assert "mean cost <= 0.4 is certified for new rows with confidence 95 %; on these rows: 0." in outcome.out.decode()
    document = load_json(tmp_path / "out" / "rejector.json")["threshold"]
    assert (document["rule"]["kind"], document["rule"]["confidence"], document["rule"]["method"]) == (
        "mean-cost",
        0.95,
        "betting",
    )
    # rows of another world: labels turned round contradict the promise
    logits, labels = make_model(3000, 3, seed=3)
    other = write_dump(tmp_path / "other.parquet", logits, (labels + 1) % 3)
    told = run("evaluate", other, "-r", str(tmp_path / "out" / "rejector.json"), "--gate", "target", "--verbose")
    assert told.code == 1
    assert "these rows contradict it; are they like the rows it was chosen on?" in told.out.decode()
    few = run(*map(str, words), "--mean-cost", "0.005", "-o", str(tmp_path / "few"))
    assert "it was chosen without a guarantee" in few.err or few.code == 1
    fitted_on = ("--val", world["folder"] / "new.parquet", "--test", world["folder"] / "test.parquet")
    plain = run("run", *map(str, fitted_on), *map(str, words[2:]), "--mean-cost", "0.4", "-o", str(tmp_path / "plain"))
    assert "--mean-cost 0.4 describes the rows it was chosen on" in plain.err


def test_a_cost_needs_a_matrix(world: dict[str, Any]) -> None:
    fit = world["folder"] / "fit.parquet"
    log = drrej.fit(source(fit), drrej.calibrate(source(fit)), LOG)
    (world["folder"] / "log.json").write_text(log.to_json())
    words = ("threshold", world["folder"] / "new.parquet", "-r", world["folder"] / "log.json")
    assert "--mean-cost is by a cost matrix; fit with --loss cost" in fail(*words, "--mean-cost", "1")
    assert "but this rejector is for a classification" in fail(*words, "--mse", "1")
    priced = (*words[:-1], world["folder"] / "priced.json", "--mean-cost")
    assert "no row can lose more than 9" in fail(*priced, "9", "--confidence", "0.9")
    assert "cannot be certified on 3000 rows" in fail(*priced, "0.0001", "--confidence", "0.9", code=1)


# Errors of a regression


@pytest.mark.parametrize(("kind", "clip"), [("mse", 4.0), ("mae", 2.0), ("mae", None)])
def test_the_error_of_a_regression_is_limited(
    world: dict[str, Any], tmp_path: Path, kind: str, clip: float | None
) -> None:
    folder = world["folder"]
    words = [
        "threshold",
        folder / "rnew.parquet",
        "-r",
        folder / "errors.json",
        f"--{kind}",
        "0.35",
        "-o",
        tmp_path / "t.json",
    ]
    words += [] if clip is None else ["--clip", clip, "--confidence", "0.9"]
    succeed(*words)
    document = load_json(tmp_path / "t.json")["threshold"]

    def errors(name: str) -> tuple[np.ndarray, np.ndarray]:
        table = pq.read_table(folder / f"{name}.parquet")
        residual = table["mean"].to_numpy() - table["value"].to_numpy()
        found = residual**2 if kind == "mse" else np.abs(residual)
        return table["variance"].to_numpy(), found if clip is None else np.minimum(found, clip)

    losses, values = errors("rnew")
    if clip is None:
        expected = mean_cutoff(Rule(kind, 0.35), MeanCurve.of(losses, values), None)
    else:
        expected = certify_mean(losses, values, 0.35, clip, 0.1).cutoff
    assert document["cutoff"] == expected
    kept = losses < expected
    assert (document["accepted"], document["mean"]) == (kept.sum(), pytest.approx(values[kept].mean()))
    said = json.loads(succeed("evaluate", folder / "rtest.parquet", "-r", tmp_path / "t.json", "--format", "json"))
    (promise,) = said["target"]["promises"]
    losses, values = errors("rtest")
    inside = values[losses < expected]
    assert promise["value"] == pytest.approx(inside.mean())
    if clip is None:
        assert (promise["lower"], promise["upper"], promise["verdict"]) == (None, None, "inconclusive")
        return
    assert promise["upper"] == pytest.approx(mean_upper_bound(inside, clip, 0.025))
    assert clip - promise["lower"] == pytest.approx(mean_upper_bound(clip - inside, clip, 0.025))
    text = succeed("evaluate", folder / "rtest.parquet", "-r", tmp_path / "t.json").decode()
    name = {"mse": "mean squared error", "mae": "mean absolute error"}[kind]
    assert (
        f"{name} (of at most {clip:g} a row) <= 0.35 is certified for new rows with confidence 90 %; on these rows: "
        in text
    )
    assert f"each counted as {clip} at most" in succeed("inspect", tmp_path / "t.json").decode()


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        (("rule", "clip"), 0.1, "'threshold.rule'"),
        (("rule", "method"), "sgr", "'threshold.rule"),
        (("mean",), 0.5, "it was edited"),
    ],
)
def test_documents_that_contradict_themselves(
    world: dict[str, Any], tmp_path: Path, key: tuple[str, ...], value: Any, said: str
) -> None:
    folder = world["folder"]
    words = ("--mse", "0.35", "--clip", "4", "--confidence", "0.9")
    document = json.loads(succeed("threshold", folder / "rnew.parquet", "-r", folder / "errors.json", *words))
    place = document["threshold"]
    for name in key[:-1]:
        place = place[name]
    place[key[-1]] = value
    (tmp_path / "bad.json").write_text(json.dumps(document))
    assert said in fail("evaluate", folder / "rtest.parquet", "-r", tmp_path / "bad.json")
