"""Several promises at once: cutoffs by predicted class, checked by counting and against other routes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from campaigns.simulate_class_promises import COSTS, OF_FOUR, PROMISES, World, budget_kept, chance_broken, simulate
from conftest import more_trials
from msgspec.structs import replace
from scipy import stats

from drrej.core.promises import PromiseRows, choose_cutoffs, over_budget, path_cutoffs, path_of, path_scores
from drrej.core.thresholds import REJECT_ALL, Goal, Rule, class_risks, goals_by_class, one_rule, with_reviewers
from drrej.errors import Infeasible, OptionError

NAMES = ("a", "b", "c")
PLAIN = np.ones(3)


def draw(seed: int, rows: int = 60, ties: int = 0, flat: float = math.inf) -> PromiseRows:
    rng = np.random.default_rng(seed)
    loss = rng.random(rows)
    label = rng.integers(3, size=rows)
    wrong = rng.random(rows) < loss / 2
    prediction = np.where(wrong, (label + rng.integers(1, 3, size=rows)) % 3, label)
    return PromiseRows(np.round(loss, ties) if ties else loss, prediction, label, np.ones(rows, bool), flat)


def kept(goal: Goal, rows: PromiseRows, cutoffs: np.ndarray) -> bool:
    """Whether cutoffs keep a promise on the rows at hand, by counting."""
    accepted = rows.loss < cutoffs[rows.prediction]
    wrong = rows.prediction != rows.label
    if goal.what == "missed":
        mine = rows.label == NAMES.index(goal.group or "")
        return (accepted & wrong & mine).sum() <= goal.limit * mine.sum() + 1e-9
    if goal.what == "overall-risk":
        return bool((accepted & wrong).sum() <= goal.limit * rows.loss.size + 1e-9)
    if goal.what == "coverage":
        return bool(accepted.sum() >= goal.limit * rows.loss.size - 1e-9)
    if goal.what == "reviews":
        assert goal.per is not None
        return bool((~accepted).sum() * goal.per <= goal.limit * rows.loss.size + 1e-9)
    inside = accepted if goal.group is None else accepted & (rows.prediction == NAMES.index(goal.group))
    return bool((wrong & inside).sum() <= goal.risk * inside.sum() + 1e-9)


SETS: list[list[Goal]] = [
    [Goal("missed", 0.1, "b")],
    [Goal("overall-risk", 0.05)],
    [Goal("overall-risk", 0.1), Goal("missed", 0.1, "a"), Goal("missed", 0.2, "c")],
    [Goal("risk", 0.1), Goal("missed", 0.15, "a")],
    [Goal("accuracy", 0.9, "a"), Goal("accuracy", 0.8, "b"), Goal("overall-risk", 0.1)],
    [Goal("accuracy", 0.9), Goal("accuracy", 0.7, "b"), Goal("coverage", 0.2)],
    [Goal("reviews", 50, per=100), Goal("overall-risk", 0.15)],
]


@pytest.mark.parametrize("goals", SETS, ids=lambda goals: " ".join(goal.asked for goal in goals))
@pytest.mark.parametrize("ties", [0, 1])
def test_without_a_confidence_the_rows_keep_every_promise(goals: Sequence[Goal], ties: int) -> None:
    for seed in range(25):
        rows = draw(seed, ties=ties, flat=0.9 if seed % 3 == 0 else math.inf)
        confusion = np.random.default_rng(seed).integers(1, 30, (3, 3)) + 100 * np.eye(3, dtype=int)
        try:
            found = choose_cutoffs(goals, NAMES, rows, path_of(goals, NAMES, confusion, 60, 0.1), None)
        except Infeasible:
            continue
        assert all(kept(goal, rows, found.cutoffs) for goal in goals_by_class(goals, NAMES))
        assert found.cutoffs.max() <= rows.flat
        for number, cutoff in enumerate(found.cutoffs):
            assert (cutoff == REJECT_ALL) == (NAMES[number] in found.rejected)


@pytest.mark.parametrize("goals", [[Goal("missed", 0.1, "b")], [Goal("overall-risk", 0.05)], [Goal("risk", 0.1)]])
def test_no_point_of_the_path_accepts_more(goals: list[Goal]) -> None:
    for seed in range(20):
        rows = draw(seed)
        found = choose_cutoffs(goals, NAMES, rows, PLAIN, None)
        accepted = (rows.loss < found.cutoffs[rows.prediction]).sum()
        points = [*np.unique(rows.loss), np.inf]
        best = max((rows.loss < p).sum() for p in points if kept(goals[0], rows, np.full(3, p)))
        assert accepted == best


def test_predictive_values_are_the_largest_of_each_class() -> None:
    goals = [Goal("accuracy", 0.8), Goal("accuracy", 0.7, "b")]
    for seed in range(20):
        rows = draw(seed)
        found = choose_cutoffs(goals, NAMES, rows, PLAIN, None)
        for number, risk in {0: 0.2, 1: 0.3, 2: 0.2}.items():
            mine = rows.prediction == number
            points = [REJECT_ALL, *np.unique(rows.loss[mine]), np.inf]
            held = [p for p in points if kept(Goal("risk", risk, NAMES[number]), rows, np.full(3, p))]
            assert (rows.loss[mine] < found.cutoffs[number]).sum() == max((rows.loss[mine] < p).sum() for p in held)


def priced(rows: PromiseRows, review: float = 1.0, error: float = 6.0) -> PromiseRows:
    return replace(rows, cost=np.where(rows.wrong, error, 0.0) - review)


def spent(rows: PromiseRows, cutoffs: np.ndarray) -> float:
    assert rows.cost is not None
    return float(rows.cost[rows.loss < cutoffs[rows.prediction]].sum())


@pytest.mark.parametrize("goals", SETS, ids=lambda goals: " ".join(goal.asked for goal in goals))
@pytest.mark.parametrize("delta", [None, 0.3])
def test_the_cheapest_of_all_allowed_cutoffs_is_taken(goals: list[Goal], delta: float | None) -> None:
    """Against every combination of cutoffs, each allowed by the promises as these are kept without a cost."""
    binding = 0
    for seed in range(12):
        rows = priced(draw(seed, 24 if delta is None else 300, flat=0.9 if seed % 3 == 0 else math.inf))
        path = path_of(goals, NAMES, np.full((3, 3), 5) + 100 * np.eye(3, dtype=int), rows.loss.size, 0.1)
        try:
            largest = choose_cutoffs(goals, NAMES, replace(rows, cost=None), path, delta).cutoffs
            found = choose_cutoffs(goals, NAMES, rows, path, delta).cutoffs
        except Infeasible:
            continue
        assert (found <= largest).all()
        assert spent(rows, found) <= spent(rows, largest)
        binding += spent(rows, found) < spent(rows, largest)
        if delta is not None or any(goal.is_lower for goal in goals):
            continue
        assert all(kept(goal, rows, found) for goal in goals_by_class(goals, NAMES))
        if any(goal.limits_errors and goal.group is None for goal in goals) and not class_risks(goals, NAMES):
            scores = (*path_scores(path, rows), np.inf)
            points = [np.minimum(path_cutoffs(path, float(score)), rows.flat) for score in scores]
            choices = [each for each in points if (each <= largest).all()]
        else:
            own = [rows.loss[(rows.prediction == k) & (rows.loss < largest[k])] for k in range(3)]
            choices = [
                np.array(each) for each in itertools.product(*([-1, *mine, largest[k]] for k, mine in enumerate(own)))
            ]
        risks = [goal for goal in goals_by_class(goals, NAMES) if goal.limits_errors]
        allowed = [
            each
            for each in choices
            if all(kept(goal, rows, each) for goal in risks) and (rows.loss < each[rows.prediction]).any()
        ]
        assert spent(rows, found) == pytest.approx(min(spent(rows, each) for each in allowed))
    assert binding or delta


def test_where_no_row_is_worth_its_risk_that_is_said() -> None:
    rows = priced(draw(0), review=1e-6)
    with pytest.raises(Infeasible, match="class 'a': accepting any costs more than reviewing; class 'b'"):
        choose_cutoffs([Goal("missed", 0.9, "a")], NAMES, replace(rows, cost=np.ones(60)), PLAIN, None)


def test_a_coverage_is_kept_whatever_it_costs() -> None:
    for seed in range(20):
        rows = replace(draw(seed, 200), cost=np.ones(200))
        found = choose_cutoffs([Goal("coverage", 0.7)], NAMES, rows, PLAIN, 0.1).cutoffs
        alone = choose_cutoffs([Goal("coverage", 0.7)], NAMES, replace(rows, cost=None), PLAIN, 0.1).cutoffs
        assert (rows.loss < found[rows.prediction]).tolist() == (rows.loss < alone[rows.prediction]).tolist()


def test_certified_limits_are_exact_binomial_counts() -> None:
    """The point of a missed share is an order statistic, by scipy's own binomial distribution."""
    rows = draw(1, 2000)
    among = rows.label == 1
    bad = np.sort(rows.loss[among & (rows.prediction != 1)])
    allowed = max(e for e in range(among.sum()) if stats.binom.cdf(e, among.sum(), 0.2) <= 0.1)
    found = choose_cutoffs([Goal("missed", 0.2, "b")], NAMES, rows, np.array([1.0, 0.0, 1.0]), 0.1)
    assert found.cutoffs.tolist() == [bad[allowed], math.inf, bad[allowed]]
    wrong = np.sort(rows.loss[rows.prediction != rows.label])
    allowed = max(e for e in range(2000) if stats.binom.cdf(e, 2000, 0.1) <= 0.1)
    found = choose_cutoffs([Goal("overall-risk", 0.1)], NAMES, rows, PLAIN, 0.1)
    assert set(found.cutoffs.tolist()) == {wrong[allowed]}


def test_two_upper_promises_cost_no_more_than_the_stricter_one() -> None:
    rows = draw(2, 3000)
    single = [choose_cutoffs([goal], NAMES, rows, PLAIN, 0.1).cutoffs for goal in SETS[2]]
    both = choose_cutoffs(SETS[2], NAMES, rows, PLAIN, 0.1).cutoffs
    assert both.tolist() == np.min(single, axis=0).tolist()


@pytest.mark.parametrize(("rows", "accepted", "batch", "budget"), [(20, 15, 10, 3), (5, 5, 8, 0), (50, 20, 30, 29)])
def test_the_chance_to_exceed_a_budget(rows: int, accepted: int, batch: int, budget: int) -> None:
    expected = stats.betabinom.sf(budget, batch, rows - accepted + 1, accepted)
    assert over_budget(rows, accepted, batch, budget) == pytest.approx(expected, rel=1e-9)
    assert over_budget(rows, accepted, batch, batch) == 0.0


def test_the_chance_to_exceed_a_budget_counts_orders() -> None:
    """All orders of three rows and a batch of two are equally likely."""
    orders = list(itertools.permutations(range(5)))
    over = sum(sum(place > sorted(order[:3])[1] for place in order[3:]) > 1 for order in orders)
    assert over_budget(3, 2, 2, 1) == pytest.approx(over / len(orders))


def test_a_budget_alone_rejects_as_many_as_it_allows() -> None:
    rows = draw(3, 1000)
    found = choose_cutoffs([Goal("reviews", 100, per=1000)], NAMES, rows, PLAIN, 0.1)
    accepted = int((rows.loss < found.cutoffs[rows.prediction]).sum())
    chances = [stats.betabinom.sf(100, 1000, 1000 - r + 1, r) for r in (accepted - 1, accepted)]
    assert chances[1] <= 0.1 < chances[0]
    certain = choose_cutoffs([Goal("reviews", 0, per=1000)], NAMES, rows, PLAIN, 0.1)
    assert certain.cutoffs.tolist() == [math.inf] * 3


@pytest.mark.parametrize("weights", [[1.0, 3.0, 0.7], [1e-8, 1.0, 1e6], [0.0, 2.0, math.inf]])
def test_cutoffs_say_the_same_as_scores(weights: list[float]) -> None:
    path, rows = np.array(weights), draw(4, 300)
    scores = path_scores(path, rows)
    for point in [*scores[np.isfinite(scores)][:100], math.inf]:
        accepted = rows.loss < path_cutoffs(path, float(point))[rows.prediction]
        assert (accepted == (scores < point) | math.isinf(point)).all()


def test_a_class_that_hands_its_level_on_helps_the_next() -> None:
    """All rows of the large class are right, so the small one is tested with all of delta."""
    label = np.r_[np.zeros(500, int), np.ones(30, int)]
    rows = PromiseRows(np.arange(530) / 530, label, label, np.ones(530, bool))
    goals = [Goal("accuracy", 0.99, "a"), Goal("accuracy", 0.9, "b")]
    assert stats.binom.cdf(0, 30, 0.1) <= 0.05 < 0.051 < stats.binom.cdf(0, 21, 0.1)
    found = choose_cutoffs(
        goals, NAMES, PromiseRows(rows.loss[:525], label[:525], label[:525], rows.once[:525]), PLAIN, 0.1
    )
    assert found.cutoffs.tolist() == [math.inf] * 3  # 25 rows pass at 0.1, not at 0.05
    wrong = label.copy()
    wrong[490:500] = 1  # then the last rank of the large class does not pass, and the small one has its own share only
    found = choose_cutoffs(
        goals, NAMES, PromiseRows(rows.loss[:525], label[:525], wrong[:525], rows.once[:525]), PLAIN, 0.1
    )
    assert found.cutoffs[1] == REJECT_ALL
    assert "at least 29 are needed" in found.rejected["b"]


def test_a_class_whose_rows_all_tie_hands_its_level_on_too() -> None:
    label = np.r_[np.zeros(500, int), np.ones(25, int)]
    rows = PromiseRows(np.where(label, np.arange(525) / 525, 0.5), label, label, np.ones(525, bool))
    goals = [Goal("accuracy", 0.99, "a"), Goal("accuracy", 0.9, "b")]
    assert choose_cutoffs(goals, NAMES, rows, PLAIN, 0.1).cutoffs.tolist() == [math.inf] * 3


def test_repeated_right_rows_count_once() -> None:
    rows = draw(5, 400)
    twice = PromiseRows(
        *(np.concatenate([each, each]) for each in (rows.loss, rows.prediction, rows.label)), np.arange(800) < 400
    )
    goal = [Goal("missed", 0.4, "b")]
    assert (
        choose_cutoffs(goal, NAMES, twice, PLAIN, 0.1).cutoffs[0]
        <= choose_cutoffs(goal, NAMES, rows, PLAIN, 0.1).cutoffs[0]
    )


def test_infeasible_says_which_promise_fails_and_what_is_possible() -> None:
    rows = draw(6, 100)
    with pytest.raises(
        Infeasible, match=r"`max_missed=a=0.01` cannot be certified on \d+ rows of class 'a': at least 230"
    ):
        choose_cutoffs([Goal("missed", 0.01, "a")], NAMES, rows, PLAIN, 0.1)
    with pytest.raises(Infeasible, match=r"`coverage=0.9` cannot be kept: `overall_risk=0.05` allows \d+ of 100 rows"):
        choose_cutoffs([Goal("overall-risk", 0.05), Goal("coverage", 0.9)], NAMES, rows, PLAIN, 0.1)
    with pytest.raises(Infeasible, match=r"`risk=0.001` beside .* the best upper bound of its error rate is 0\.\d+"):
        choose_cutoffs([Goal("risk", 0.001), Goal("overall-risk", 0.1)], NAMES, rows, PLAIN, 0.1)
    with pytest.raises(Infeasible, match=r"class 'a': .*; class 'b': "):
        choose_cutoffs([Goal("accuracy", 0.999), Goal("accuracy", 0.99, "a")], NAMES, rows, PLAIN, 0.1)


def test_paths_follow_what_uses_up_the_limits() -> None:
    confusion = np.array([[90, 5, 0], [1, 80, 0], [0, 10, 100]])
    weights = path_of([Goal("missed", 0.05, "b")], NAMES, confusion, 1000, 0.1)
    assert weights[1] == 0.0
    assert weights[2] > weights[0] > 0.0  # all errors of 'c' are of 'b', and half of those of 'a' may be
    assert len(set(path_of([Goal("overall-risk", 0.05)], NAMES, confusion, 1000, 0.1))) == 1
    goals = [Goal("accuracy", 0.999), Goal("accuracy", 0.9, "a"), Goal("coverage", 0.5)]
    few = path_of(goals, NAMES, confusion, 1000, 0.1)
    assert np.isinf(few[1:]).all()  # 0.999 takes thousands of rows
    assert few[0] == pytest.approx(10)


def test_rules() -> None:
    rule = one_rule({"accuracy": {"": 0.99, "b": 0.9}, "max_missed": {"a": 0.1}, "coverage": 0.5}, confidence=0.9)
    assert rule.kind == "promises"
    assert rule.method is None
    assert rule.certified_by == "joint"
    assert class_risks(rule.promises, NAMES) == {0: 0.01, 2: 0.01, 1: 0.1}
    assert one_rule({"accuracy": {"": 0.9}}) == Rule("accuracy", 0.9)
    assert not one_rule({"reviews": 5.0}, per=10).needs_labels
    assert one_rule({"reviews": 1.0}, per=1).promises == (Goal("reviews", 1.0, per=1),)
    for targets, more, message in [
        ({"max_missed": {"": 0.1}}, {}, "is for a class"),
        ({"overall_risk": {"a": 0.1}}, {}, "is for all rows"),
        ({"reviews": 5.0}, {}, "requires `per=N`"),
        ({"accuracy": 0.9}, {"per": 5}, "`per` requires `reviews`"),
        ({"accuracy": {"a": 0.9}, "risk": {"a": 0.1}}, {}, "the same promise"),
        ({"accuracy": {"a": 90.0}}, {}, "for 90 % write 0.9"),
        ({"overall_risk": 0.1, "tau": 0.5}, {}, "`tau` cannot be combined with `overall_risk`"),
    ]:
        with pytest.raises(OptionError, match=message):
            one_rule(targets, **more)  # type: ignore[arg-type]


def test_reviewers_are_allowed_for() -> None:
    few = with_reviewers([Goal("overall-risk", 0.02, reviewer_accuracy=0.995)])
    assert [(goal.what, goal.limit) for goal in few] == [("overall-risk", 0.015)]
    half = with_reviewers([Goal("overall-risk", 0.02, reviewer_accuracy=0.95)])  # 1 % of all rows: a fifth of them
    assert [(goal.what, goal.limit) for goal in half] == [("overall-risk", 0.01), ("coverage", 0.8)]
    covered = with_reviewers([Goal("overall-risk", 0.01, reviewer_accuracy=0.97), Goal("coverage", 0.9)])
    assert [(goal.what, goal.limit) for goal in covered] == [("overall-risk", 0.007), ("coverage", 0.9)]
    with pytest.raises(OptionError, match="reviewers alone make more errors"):
        with_reviewers([Goal("overall-risk", 0.01, reviewer_accuracy=0.9), Goal("coverage", 0.5)])


@pytest.mark.parametrize("name", list(PROMISES))
def test_promises_are_kept_in_a_simulated_world(name: str) -> None:
    """60 trials break no more than chance allows (1 in 10,000); the campaign runs 2,000."""
    broken, _, _ = simulate(World.rare(0.1), PROMISES[name], 1500, 60, 0.1)
    assert broken * 60 <= stats.binom.ppf(0.9999, 60, 0.1)


@pytest.mark.parametrize("name", ["missed", "overall", "reviews"])
def test_monotone_promises_are_broken_as_often_as_their_counts_say(name: str) -> None:
    """By a sum over the binomial distribution of the rows, in place of trials; 300 trials agree with it."""
    world, goals = World.rare(0.1), PROMISES[name]
    exact = chance_broken(world, goals[0], 1500, 0.1)
    broken, _, _ = simulate(world, goals, 1500, 300, 0.1)
    assert 0.03 < exact <= 0.1
    assert abs(broken - exact) < 4 * np.sqrt(exact / 300)


@pytest.mark.parametrize("costs", list(COSTS))
def test_promises_are_kept_by_the_cheapest_cutoffs(costs: str) -> None:
    """Whatever the costs, even those that pay for errors: every cutoff to choose from keeps the promises."""
    prices = COSTS[costs]
    broken, coverage, _ = simulate(World.rare(0.1, waves=prices.waves), PROMISES["values"], 4000, 60, 0.1, prices)
    assert broken * 60 <= stats.binom.ppf(0.9999, 60, 0.1)
    assert coverage > 0.01


@pytest.mark.parametrize("name", [more_trials("values"), "missed, overall, reviews"])
def test_promises_are_kept_among_four_classes(name: str) -> None:
    broken, coverage, _ = simulate(World.several(0.1), OF_FOUR[name], 2000, 60, 0.1)
    assert broken <= 0.1 + 3 * np.sqrt(0.09 / 60)
    assert coverage > 0.1


@pytest.mark.filterwarnings("ignore")  # MAPIE warns where it certifies nothing
def test_the_comparison_with_mapie_asks_both_for_the_same(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """On one division of the smallest data, and where the classes lie far apart, so that both certify both of them."""
    pytest.importorskip("mapie")
    from campaigns import compare_mapie

    monkeypatch.setattr(compare_mapie, "DIVISIONS", 1)
    compare_mapie.main(["breast-cancer 0"])
    _, _, *lines = capsys.readouterr().out.splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert [row[3] for row in cells] == ["drrej", "MAPIE, bonferroni_holm", "MAPIE, split_fixed_sequence"]
    assert {row[1] for row in cells} == {"279"}
    assert float(cells[0][4]) > 0 == float(cells[1][4])  # 279 rows are too few for both values
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=12_000)
    probs = np.clip(np.where(labels, 0.9, 0.1) + rng.normal(size=12_000) / 15, 1e-9, 1 - 1e-9)
    new = np.array([0.01, 0.1, 0.9, 0.99])
    assert compare_mapie.by_mapie(probs, labels, new, "bonferroni_holm").tolist() == [0, 0, 1, 1]
    assert compare_mapie.by_drrej(probs, labels, new).tolist() == [0, 0, 1, 1]


def test_a_review_budget_is_kept_on_most_days() -> None:
    first, every, _ = budget_kept(World.rare(0.02), Goal("reviews", 200, per=2000), 500, 100, 0.1)
    assert max(first, every) <= 0.1 + 3 * np.sqrt(0.09 / 100)
