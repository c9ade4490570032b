"""Thresholds that keep their promise: exact bounds, simulations with known truth, fresh rows, groups."""

from __future__ import annotations

import json

import jsonschema
import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
import simulate_guarantees
from conftest import thorough
from scipy import stats
from simulate_guarantees import WORLDS, Fitted, coverage_trial, fit_world, group_trial, points_of, risk_trial
from worlds import SAMPLE, cli, fitted, source, too_sure, write

import drrej
from drrej.core.certify import needed_rows, risk_candidates
from drrej.core.curves import Curve
from drrej.core.losses import expected_losses
from drrej.core.ratio import fit_ratio
from drrej.documents.document import schema_of
from drrej.documents.rejector import Rejector
from drrej.errors import DumpError, OptionError
from drrej.pipeline.threshold import choose_threshold

VAL, TEST = str(SAMPLE / "val.parquet"), str(SAMPLE / "test.parquet")


@pytest.fixture(scope="module")
def rejector():
    return fitted(VAL)


def certified(rejector, path=TEST, **options) -> Rejector:
    rule = drrej.Rule("risk", options.pop("risk", 0.02), options.pop("confidence", 0.9), options.pop("method", None))
    return drrej.threshold(source(path), rejector, rule, drrej.ThresholdOptions(**options))


# By simulation, with known truth


@pytest.fixture(autouse=True)
def few_fits(monkeypatch):
    monkeypatch.setattr(simulate_guarantees, "FITS", 6)


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize("rows", [thorough(50), 500])
def test_certified_risk_holds(name, rows, many):
    trials = [risk_trial(WORLDS[name], rows, 0.05, 0.2, seed) for seed in range(many(120))]
    broken = sum(trial.risk > 0.05 for trial in trials)
    assert broken <= stats.binom.ppf(0.999, len(trials), 0.2)


@pytest.mark.parametrize("name", ["steep", "ties", "few ties"])
@pytest.mark.parametrize("target", [0.5, 0.9])
def test_certified_coverage_holds(name, target, many):
    trials = many(120)
    short = sum(coverage_trial(WORLDS[name], 80, target, 0.2, seed) < target for seed in range(trials))
    assert short <= stats.binom.ppf(0.999, trials, 0.2)


def test_groups_hold_together(many):
    trials = many(120)
    worlds = [WORLDS["just too risky"]] * 3 + [WORLDS["waves"]]
    broken = sum(group_trial(worlds, 300, 0.05, 0.2, seed) for seed in range(trials))
    assert broken <= stats.binom.ppf(0.999, trials, 0.2)


def test_pointwise_bounds_would_fail_here():
    """The simulation can tell: without paying for looks the promise breaks far too often."""
    world, broken = WORLDS["just too risky"], 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        fit = fit_world(world, 500, seed % 20)
        points = points_of(world, fit, 500, rng)
        chances = stats.binom.cdf(points.errors, points.accepted, 0.05)
        broken += bool((chances <= 0.1).any())  # every cutoff is too risky
    assert broken > stats.binom.ppf(0.999, 60, 0.1)


# Exactness


def exponential_points(errors_at: list[int], rows: int) -> tuple[Curve, Fitted]:
    """Evenly spaced losses, errors at given places; quantiles as if fitted on the same losses."""
    losses = (np.arange(rows) + 0.5) / rows
    wrong = np.isin(np.arange(rows), errors_at)
    fit = Fitted(1.0, fit_ratio(losses), tuple(np.linspace(0, 1, 201)), 201)
    return Curve.of(losses[~wrong], losses[wrong]), fit


def test_looks_do_not_depend_on_labels():
    few, fit = exponential_points([3], 400)
    many, _ = exponential_points(list(range(0, 400, 2)), 400)
    first, second = (risk_candidates(points, fit.ratio, 0.1, 0.1) for points in (few, many))
    np.testing.assert_array_equal(first.cutoffs, second.cutoffs)
    np.testing.assert_array_equal(first.accepted, second.accepted)
    assert first.certified.any()
    assert not second.certified.any()


def test_a_perfect_model_gets_coverage_1_and_an_always_wrong_one_nothing(rejector, tmp_path):
    for rows in (45, 500):  # 45 = n0: the fewest that can certify 5 % at 90 %
        logits, _ = too_sure(rows, 6, seed=rows)
        right = write(tmp_path / "right.parquet", logits, logits.argmax(axis=1))
        found = certified(rejector, right, risk=0.05).threshold
        assert (found.cutoff, found.coverage, found.accuracy) == (None, 1.0, 1.0)
        wrong = write(tmp_path / "wrong.parquet", logits, (logits.argmax(axis=1) + 1) % 6)
        with pytest.raises(drrej.Infeasible, match="cannot be certified"):
            certified(rejector, wrong, risk=0.05)
    logits, _ = too_sure(44, 6, seed=44)
    with pytest.raises(drrej.Infeasible, match="at least 45 rows are needed"):
        certified(rejector, write(tmp_path / "few.parquet", logits, logits.argmax(axis=1)), risk=0.05)


def test_infeasible_names_the_best_bound_and_writes_nothing(rejector, tmp_path):
    document = tmp_path / "fit.json"
    document.write_text(rejector.to_json(), encoding="utf-8")
    out, table = tmp_path / "out.json", tmp_path / "table.csv"
    words = ["threshold", TEST, "-r", str(document), "--risk", "0.0005", "--confidence", "0.9"]
    done = cli(*words, "-o", str(out), "--table", str(table))
    assert done.returncode == 1
    assert "the best upper bound of the error rate is" in done.stderr
    assert "at coverage" in done.stderr
    assert not out.exists()
    assert not table.exists()


def test_needed_rows_is_the_exact_binomial_rank():
    for rows, coverage, delta in ((50, 0.5, 0.1), (300, 0.9, 0.05), (20, 0.95, 0.1)):
        expected = next((r for r in range(1, rows + 1) if stats.binom.sf(r - 1, rows, coverage) <= delta), rows + 1)
        assert needed_rows(coverage, rows, delta) == expected


def test_coverage_guarantee_is_recorded(rejector):
    found = drrej.threshold(source(TEST), rejector, drrej.Rule("coverage", 0.9, 0.95)).threshold
    assert found.rule.method == "order-statistic"
    assert found.accepted == needed_rows(0.9, 2060, 0.05)
    assert found.coverage > 0.9
    everything = drrej.threshold(source(TEST), rejector, drrej.Rule("coverage", 0.9999, 0.95)).threshold
    assert everything.cutoff is None


def test_coverage_beyond_the_flat_part_is_infeasible():
    flat = fitted(VAL, alpha=5.0, lam=0.05)
    with pytest.raises(drrej.Infeasible, match="lower alpha"):
        drrej.threshold(source(TEST), flat, drrej.Rule("coverage", 0.99, 0.95))
    found = certified(flat, risk=0.05).threshold
    assert found.cutoff <= flat.ratio.density.flat_start


# Fresh rows


def test_rows_that_were_seen_are_refused(rejector, tmp_path):
    shuffled = pq.read_table(VAL)
    shuffled = shuffled.take(np.random.default_rng(0).permutation(len(shuffled)))
    mixed = pa.concat_tables([shuffled.slice(0, 800), pq.read_table(TEST).slice(0, 800)])
    for name, table in (("same", shuffled), ("half", shuffled.slice(0, 800)), ("mixed", mixed)):
        path = str(tmp_path / f"{name}.parquet")
        pq.write_table(table, path)
        with pytest.raises(OptionError, match="fresh rows"):
            certified(rejector, path)
        allowed = certified(rejector, path, allow_reuse=True).threshold
        assert allowed.rule.reused is True
    assert certified(rejector).threshold.rule.reused is False
    calibrated_here = drrej.fit(source(VAL), drrej.calibrate(source(TEST)))
    with pytest.raises(OptionError, match="'calibrate' has seen"):
        certified(calibrated_here)


def test_repeated_rows_are_no_overlap(tmp_path):
    """Few distinct logits: independent sets share their rows' content, and still are fresh."""
    rng = np.random.default_rng(0)
    kinds = rng.normal(size=(5, 3)).astype(np.float32) * 3
    first, second = (kinds[rng.integers(0, 5, rows)] for rows in (300, 400))
    rejector = fitted(write(tmp_path / "a.parquet", first, first.argmax(axis=1)))
    found = certified(
        rejector, write(tmp_path / "b.parquet", second, second.argmax(axis=1), id=np.arange(400)), group="id"
    )
    assert found.threshold.rule.reused is False


# Groups, tables, documents


@pytest.fixture(scope="module")
def by_region(tmp_path_factory):
    """Two regions, the north much harder, and a rejector with a cutoff for each."""
    folder = tmp_path_factory.mktemp("regions")
    fit = fitted(write(folder / "fit.parquet", *too_sure(2000, 4, seed=1)))
    logits, labels = too_sure(6000, 4, seed=2)
    north = np.arange(6000) % 2 == 0
    rng = np.random.default_rng(3)
    labels = np.where(north & (rng.random(6000) < 0.08), rng.integers(0, 4, 6000), labels)
    region = np.where(north, "north", "south")
    path = write(folder / "choose.parquet", logits, labels, region=region)
    return folder, fit, path, certified(fit, path, risk=0.2, by="region")


def test_each_group_has_a_cutoff_and_reject_applies_it(by_region):
    folder, fit, path, rejector = by_region
    north, south = rejector.threshold.groups
    assert (north.group, south.group) == ("north", "south")
    assert 0 < north.cutoff < south.cutoff
    document = folder / "rejector.json"
    document.write_text(rejector.to_json(), encoding="utf-8")
    assert Rejector.from_json(rejector.to_json()) == rejector
    jsonschema.validate(json.loads(rejector.to_json()), schema_of(drrej.Rejector))
    mask = folder / "mask.parquet"
    done = cli("reject", path, "-r", str(document), "-o", str(mask), "-f")
    assert done.returncode == 0, done.stderr
    table = pq.read_table(mask)
    loss, region = table["loss"].to_numpy(), np.array(table["region"].to_pylist())
    cutoffs = np.where(region == "north", north.cutoff, south.cutoff)
    np.testing.assert_array_equal(table["rejected"].to_numpy(), loss >= cutoffs)
    wrong, ratio = table["prediction"].to_numpy() != table["label"].to_numpy(), fit.need_ratio()
    for group in (north, south):
        inside = region == group.group
        assert (~table["rejected"].to_numpy()[inside]).sum() == group.accepted
        points = Curve.of(loss[inside & ~wrong], loss[inside & wrong])
        shared = risk_candidates(points, ratio.density, 0.2, 0.05, None, ratio.loss_quantiles).largest()
        assert group.cutoff == shared.cutoff  # delta is shared, so that both hold together
    report = drrej.evaluate(source(path), rejector, (), drrej.EvaluateOptions(by="region"))
    assert [row["coverage"]["accepted"] for row in report["per_group"]] == [north.accepted, south.accepted]
    assert report["coverage"]["accepted"] == rejector.threshold.accepted
    assert report["accuracy"]["value"] == pytest.approx(rejector.threshold.accuracy)


def test_unseen_groups(by_region):
    folder, _, _, rejector = by_region
    document = folder / "unseen.json"
    document.write_text(rejector.to_json(), encoding="utf-8")
    logits, labels = too_sure(10, 4, seed=5)
    path = write(folder / "east.parquet", logits, labels, region=["north"] * 4 + ["east"] * 6)
    words = ["reject", path, "-r", str(document), "-o", str(folder / "east-mask.parquet")]
    done = cli(*words)
    assert done.returncode == 2
    assert "row 4 (counted from 0)" in done.stderr
    assert "region = 'east'" in done.stderr
    assert cli(*words, "--on-unseen-group", "reject").returncode == 0
    assert pq.read_table(folder / "east-mask.parquet")["rejected"].to_pylist()[4:] == [True] * 6
    with pytest.raises(DumpError, match="no threshold"):
        drrej.evaluate(source(path), rejector)
    missing = write(folder / "bare.parquet", logits, labels)
    with pytest.raises(DumpError, match="no column 'region'"):
        drrej.evaluate(source(missing), rejector)


def test_a_group_without_a_certified_cutoff_is_rejected_as_a_whole(by_region, tmp_path):
    _, fit, _, _ = by_region
    logits, labels = too_sure(1500, 4, seed=8)
    region = np.where(np.arange(1500) < 20, "tiny", "large")
    path = write(tmp_path / "d.parquet", logits, labels, region=region)
    document = tmp_path / "fit.json"
    document.write_text(fit.to_json(), encoding="utf-8")
    out = tmp_path / "out.json"
    words = ["threshold", path, "-r", str(document), "--risk", "0.1", "--confidence", "0.9", "--cutoff-by", "region"]
    done = cli(*words, "-o", str(out))
    assert done.returncode == 0, done.stderr
    assert "1 groups ('tiny')" in done.stderr
    large, tiny = Rejector.from_json(out.read_text(encoding="utf-8")).threshold.groups
    assert tiny.accepted == 0
    assert large.accepted > 0
    with pytest.raises(drrej.Infeasible, match="each of 2 groups"):
        certified(fit, path, risk=0.0001, by="region")


def test_by_prediction(rejector):
    found = certified(rejector, risk=0.05, by="prediction")
    assert [group.group for group in found.threshold.groups] == ["0", "1", "2", "3", "4", "5"]
    report = drrej.evaluate(source(TEST), found, (), drrej.EvaluateOptions(by="prediction"))
    assert [r["coverage"]["accepted"] for r in report["per_group"]] == [g.accepted for g in found.threshold.groups]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_table_lists_every_candidate(rejector, tmp_path, ending):
    document, table = tmp_path / "fit.json", tmp_path / f"table.{ending}"
    document.write_text(rejector.to_json(), encoding="utf-8")
    words = ["threshold", TEST, "-r", str(document), "--risk", "0.02", "--confidence", "0.9", "--table", str(table)]
    done = cli(*words, "-o", str(tmp_path / "out.json"))
    assert done.returncode == 0, done.stderr
    read = pacsv.read_csv(table) if ending == "csv" else pq.read_table(table)
    rows = read.to_pydict()
    assert set(rows) == {
        *("cutoff", "tau", "accepted", "errors", "coverage", "risk", "upper_bound", "delta", "certified")
    }
    chosen = max(np.flatnonzero(rows["certified"]))
    found = Rejector.from_json((tmp_path / "out.json").read_text(encoding="utf-8")).threshold
    assert (rows["cutoff"][chosen], rows["accepted"][chosen]) == (found.cutoff, found.accepted - 1)  # two are equal
    assert rows["upper_bound"][chosen] <= 0.02  # the target is what is guaranteed


def test_table_of_a_plain_rule_has_every_distinct_loss(rejector):
    table = choose_threshold(source(TEST), rejector, drrej.Rule("coverage", 0.8), table=True).candidates
    logits = np.array(pq.read_table(TEST)["logits"].to_pylist(), np.float32)
    losses = expected_losses(logits, temperature=rejector.calibration.temperature)
    assert table.num_rows == np.unique(losses).size
    assert table["cutoff"].to_pylist()[-1] is None
    assert table["accepted"].to_pylist()[-1] == 2060
    assert table["errors"].to_pylist()[-1] == 50


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (("tau", 0.5, 0.9), "it requires `accuracy`, `risk`, `coverage`, "),
        (("risk", 0.5, 1.0), "below 1"),
        (("risk", 0.5, 0.9, "sgr"), "`method=sgr` is gone: "),
        (("mean-cost", 0.5, 0.9, "hoeffding-bentkus"), "`method=hoeffding-bentkus` is gone: "),
        (("risk", 0.5, 0.9, "magic"), "there is no choice"),
    ],
)
def test_rules_that_make_no_sense(rule, said):
    with pytest.raises(OptionError, match=said):
        drrej.Rule(*rule)


def test_groups_need_a_rule_that_differs(rejector):
    with pytest.raises(OptionError, match="a cutoff for each group requires"):
        drrej.threshold(source(TEST), rejector, drrej.Rule("tau", 0.5), drrej.ThresholdOptions(by="prediction"))


def test_run_with_a_guarantee(tmp_path):
    words = ["run", "--val", VAL, "--test", TEST, "--risk", "0.06", "--confidence", "0.9", "-o", str(tmp_path / "out")]
    refused = cli(*words)
    assert refused.returncode == 2
    assert "fresh rows" in refused.stderr
    done = cli(*words, "--choose", str(SAMPLE / "noisy" / "test.parquet"), "--report-by", "prediction")
    assert done.returncode == 0, done.stderr
    found = Rejector.from_json((tmp_path / "out" / "rejector.json").read_text(encoding="utf-8")).threshold
    assert (found.rule.method, found.rule.reused, found.rows) == ("fixed-sequence", False, 2060)
    assert len(json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))["per_group"]) == 6


def test_inspect_tells_of_the_guarantee(rejector, by_region, tmp_path):
    for name, found in (("one", certified(rejector)), ("groups", by_region[3])):
        path = tmp_path / f"{name}.json"
        path.write_text(found.to_json(), encoding="utf-8")
        text = cli("inspect", str(path), check=True).stdout
        assert "guarantee" in text
        assert ("region" in text) == (name == "groups")
