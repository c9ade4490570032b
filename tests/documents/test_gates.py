"""Gates: the grammar as a table of cases, and what they say about a report."""

from __future__ import annotations

import math

import pytest
from conftest import texts
from hypothesis import given
from hypothesis import strategies as st

from drrej import Gate
from drrej.documents.document import When
from drrej.documents.gates import check_gate, lookup
from drrej.documents.report import RegressionReport
from drrej.errors import GateError
from drrej.report.words import against

REPORT = {
    "rows": 10,
    "tau": None,
    "accuracy": {"value": 0.97, "lower": 0.5, "errors": 3},
    "nll": {"all": 0.25, "accepted": None},
    "aurc": {"value": 0.01, "convention": "text"},
    "flag": True,
    "curve": [{"tau": 0.02}],
}


@pytest.mark.parametrize(
    ("text", "metric", "op", "limit"),
    [
        ("accuracy >= 0.97", "accuracy", ">=", 0.97),
        ("accuracy>=0.97", "accuracy", ">=", 0.97),
        ("  accuracy.value  <  1  ", "accuracy.value", "<", 1.0),
        ("nll.all <= 1e-3", "nll.all", "<=", 1e-3),
        ("nll.all > -.5E+2", "nll.all", ">", -50.0),
        ("e_aurc < +2.", "e_aurc", "<", 2.0),
        ("tau<1", "tau", "<", 1.0),
        ("ratio.mean\t>\t0", "ratio.mean", ">", 0.0),
    ],
)
def test_gates_that_can_be_read(text: str, metric: str, op: str, limit: float) -> None:
    gate = Gate.parse(text)
    assert (gate.metric, gate.op, gate.limit) == (metric, op, limit)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "accuracy",
        "accuracy >= ",
        ">= 0.9",
        "accuracy = 0.9",
        "accuracy == 0.9",
        "accuracy != 0.9",
        "accuracy => 0.9",
        "accuracy >= 0.9 0.8",
        "accuracy >= 90%",
        "accuracy >= 0,9",
        "accuracy >= nan",
        "accuracy >= inf",
        "accuracy >= 1e999",
        "accuracy >= 0x1",
        "accuracy >= 1_0",
        "accuracy >= e3",
        "accuracy >= .",
        "accuracy >= 0.9 and coverage >= 0.1",
        "0.9 <= accuracy",
        "accuracy >= __import__('os').getpid()",
        "accuracy >= 0.9; rows > 1",
        "accuracy >= ٣",
        "9lives > 1",
        "accuracy >= 0.9\nrows > 1",
    ],
)
def test_gates_that_cannot_be_read(text: str) -> None:
    with pytest.raises(GateError, match="quote the gate"):
        Gate.parse(text)


@given(texts())
def test_any_text_is_a_gate_or_a_gate_error(text: str) -> None:
    try:
        gate = Gate.parse(text)
    except GateError:
        return
    assert math.isfinite(gate.limit)
    assert gate.op in (">=", "<=", ">", "<")


@pytest.mark.parametrize(
    ("text", "passed"),
    [
        ("accuracy >= 0.97", True),
        ("accuracy <= 0.97", True),
        ("accuracy > 0.97", False),
        ("accuracy < 0.97", False),
        ("accuracy > 0.9699999999999999", True),
        ("accuracy >= 0.9700000000000001", False),
        ("accuracy.lower >= 0.5", True),
        ("accuracy.errors < 3", False),
        ("rows >= 10", True),
        ("nll.all < 0.3", True),
    ],
)
def test_a_gate_is_judged_without_rounding(text: str, passed: bool) -> None:
    row = Gate.parse(text).judge(REPORT)
    assert row.passed is passed
    assert row.gate == text
    assert row.value == lookup(REPORT, Gate.parse(text).metric)


@pytest.mark.parametrize("metric", ["tau", "nll.accepted"])
def test_a_gate_on_an_undefined_figure_says_so(metric: str) -> None:
    with pytest.raises(GateError, match=f"{metric} is undefined on these rows"):
        Gate.parse(f"{metric} > 0").judge(REPORT)


def test_what_is_no_number_is_no_metric() -> None:
    assert lookup(REPORT, "flag") is None
    assert lookup(REPORT, "curve") is None
    assert lookup(REPORT, "aurc.convention") is None
    assert lookup(REPORT, "rows.value") is None


@pytest.mark.parametrize(
    ("metric", "hint"),
    [
        ("acuracy", "did you mean accuracy, "),
        ("accuracy.mean", "did you mean accuracy.value, accuracy.lower, "),
        ("nll", "did you mean nll.uncalibrated, nll.all, nll.accepted"),
        ("nll.al", "did you mean .*nll.all"),
        ("worst_grup.accuracy.errors", "did you mean "),
        ("zzz", "known: rows, classes, tau, cutoff, coverage, accuracy, "),
    ],
)
def test_an_unknown_metric_is_named_with_those_near_it(metric: str, hint: str) -> None:
    with pytest.raises(GateError, match=rf"there is no metric '{metric}'; {hint}"):
        check_gate(Gate.parse(f"{metric} > 0"), [When.LABELS, When.GROUPS])


@pytest.mark.parametrize(
    ("metric", "needs"),
    [
        ("accuracy", "labels"),
        ("accuracy@coverage=0.9", "labels"),
        ("cost.all", "`loss=cost` in 'drrej fit'"),
        ("worst_group.accuracy.errors", "`by=COL`"),
        ("aurc.upper", "`intervals=True`"),
        ("coverage@risk=0.3.lower", "`intervals=True`"),
        ("difference.accuracy", "`baseline=FILE` or `baseline_dump=DUMP`"),
        ("difference.rows", "`baseline_dump=DUMP`"),
    ],
)
def test_a_metric_of_another_report_says_what_it_takes(metric: str, needs: str) -> None:
    with pytest.raises(GateError, match=rf"'{metric}' in this report; it needs {needs}$"):
        check_gate(Gate.parse(f"{metric} > 0"), [])
    check_gate(Gate.parse(f"{metric} > 0"), list(When))


def test_points_are_no_metrics_of_a_regression() -> None:
    with pytest.raises(GateError, match=r"no metric 'accuracy@coverage=0\.9'"):
        check_gate(Gate.parse("accuracy@coverage=0.9 > 0"), list(When), RegressionReport)


@pytest.mark.parametrize("text", ["accuracy@coverage=0.90", "accuracy@coverage=.9", "accuracy@coverage=9e-1.value"])
def test_a_point_has_one_name_however_it_is_written(text: str) -> None:
    point = Gate.parse(f"{text} > 0").point
    assert point is not None
    assert point.name == "accuracy@coverage=0.9"


@given(st.floats(-1, 2), st.floats(-1, 2))
def test_a_value_is_shown_with_enough_digits_to_tell_it_from_the_limit(value: float, limit: float) -> None:
    shown = float(against(value, limit))
    assert (shown > limit, shown < limit) == (value > limit, value < limit)


def test_a_value_next_to_the_limit() -> None:
    assert against(0.96999, 0.97) == "0.96999"
    assert against(math.nextafter(0.97, 0), 0.97) == repr(math.nextafter(0.97, 0))
    assert against(0.5, 0.97) == "0.5"
