"""Cost matrices: the least costly action, files, figures and gates."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from conftest import fail, load_json, make_model, read_columns, run_here, succeed, write_dump
from hypothesis import given
from hypothesis import strategies as st

from drrej.core.calibrators import Temperature
from drrej.core.losses import CostLoss, expected_losses
from drrej.core.softmax import NOTHING
from drrej.data.matrix import read_cost_matrix
from drrej.errors import OptionError

COSTS = np.array([[0.0, 1.0, 4.0], [2.0, 0.0, 1.0], [9.0, 3.0, 0.0]])


def softmax(logits: np.ndarray, temperature: float) -> np.ndarray:
    z = logits.astype(np.float64) / temperature
    p = np.exp(z - z.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


def matrix(costs: np.ndarray = COSTS) -> CostLoss:
    return CostLoss(tuple(map(tuple, costs.tolist())))


def least(loss: CostLoss, logits: np.ndarray, beta: float) -> tuple[np.ndarray, np.ndarray]:
    """The least costly actions and their expected costs."""
    return loss.of(Temperature(1.0 / beta).scores(logits, NOTHING, "auto")[0], {})


def test_the_loss_is_the_expected_cost_of_the_least_costly_action() -> None:
    logits, _ = make_model(200, 3, 1)
    actions, losses = least(matrix(), logits, 0.5)
    expected = softmax(logits, 2.0) @ COSTS
    np.testing.assert_allclose(losses, expected.min(axis=1), rtol=1e-12)
    assert np.array_equal(actions, expected.argmin(axis=1))


def test_zero_and_one_give_the_zero_one_loss() -> None:
    logits, _ = make_model(300, 5, 2, dtype=np.float64)
    actions, losses = least(matrix(1.0 - np.eye(5)), logits, 1.0)
    np.testing.assert_allclose(losses, expected_losses(logits, "zero-one"), rtol=1e-12)
    assert np.array_equal(actions, logits.argmax(axis=1))


def test_small_costs_keep_their_precision_and_ties_go_to_the_first_action() -> None:
    _, losses = least(matrix(), np.array([[0.0, -300.0, -np.inf]]), 1.0)
    np.testing.assert_allclose(losses, 2.0 * np.exp(-300.0), rtol=1e-12)
    actions, _ = least(matrix(np.ones((3, 3))), np.array([[0.0, 1.0, 2.0]]), 1.0)
    assert actions[0] == 0


@given(st.integers(0, 39), st.sampled_from([np.float32, np.float64]), st.sampled_from([3, 40]))
def test_a_row_has_the_same_bits_alone_and_among_others(row: int, dtype: type, classes: int) -> None:
    logits, _ = make_model(40, classes, 3, dtype=dtype)
    costs = matrix(np.random.default_rng(0).random((classes, classes)))
    together = least(costs, logits, 0.7)[1][row]
    alone = least(costs, np.asfortranarray(logits[row : row + 1]).astype(np.float64), 0.7)[1][0]
    assert together == alone


def write_matrix(folder: Path, kind: str) -> str:
    names, order = ["c", "a", "b"], [2, 0, 1]  # the file lists the classes a, b, c in another order
    costs = COSTS[np.ix_(order, order)]
    path = folder / f"costs.{kind.split('-')[0]}"
    if kind == "csv":
        path.write_text("\n".join(",".join(map(str, row)) for row in COSTS) + "\n")
    elif kind == "csv-named":
        lines = [
            ",".join(["true", *names]),
            *(f"{n},{','.join(map(str, row))}" for n, row in zip(names, costs, strict=True)),
        ]
        path.write_text("\n".join(lines) + "\n")
    elif kind == "csv-header":
        path.write_text("\n".join([",".join("abc"), *(",".join(map(str, row)) for row in COSTS)]))
    return str(path)


KINDS = ["csv", "csv-named", "csv-header"]


@pytest.mark.parametrize("kind", KINDS)
def test_files_in_every_form_give_the_same_matrix(tmp_path: Path, kind: str) -> None:
    assert read_cost_matrix(write_matrix(tmp_path, kind), ("a", "b", "c")) == matrix().costs


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0,1\n1\n", "square"),
        ("0,1,2\n1,0,2\n", "square"),
        ("0,-1\n1,0\n", "not negative"),
        ("0,inf\n1,0\n", "finite"),
        ("0,x\n1,0\n", "not a number"),
        ("", "square"),
        (",a,b\na,0,1\nc,1,0\n", "different classes"),
        (",x,y\nx,0,1\ny,1,0\n", "not those of the classes"),
    ],
)
def test_a_bad_matrix_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "c.csv").write_text(text)
    with pytest.raises(OptionError, match=said):
        read_cost_matrix(str(tmp_path / "c.csv"), ("a", "b"))


def test_the_pipeline_with_costs(tmp_path: Path) -> None:
    logits, labels = make_model(2000, 3, 5)
    dump = write_dump(tmp_path / "d.parquet", logits, labels)
    costs = write_matrix(tmp_path, "csv")
    rejector, mask, report = (tmp_path / name for name in ("r.json", "m.parquet", "report.json"))
    fitted = succeed("fit", dump, "--temperature", "2", "--loss", "cost", "--cost-matrix", costs)
    succeed("threshold", dump, "-r", "-", "--coverage", "0.7", "-o", rejector, stdin=fitted)
    succeed("reject", dump, "-r", rejector, "-o", mask)
    columns = read_columns(mask)
    expected = softmax(logits, 2.0) @ COSTS
    assert np.array_equal(columns["prediction"], expected.argmin(axis=1))
    np.testing.assert_allclose(columns["loss"], expected.min(axis=1), rtol=1e-12)
    succeed("evaluate", dump, "-r", rejector, "-o", report, "--gate", "cost <= 1")
    figures = load_json(report)
    kept = ~columns["rejected"]
    realised = COSTS[labels, columns["prediction"]]
    assert figures["cost"]["value"] == pytest.approx(realised[kept].mean(), rel=1e-12)
    assert figures["cost"]["expected"] == pytest.approx(columns["loss"][kept].mean(), rel=1e-12)
    assert figures["cost"]["all"]["value"] == pytest.approx(realised.mean(), rel=1e-12)
    assert figures["accuracy"]["value"] == pytest.approx(np.mean((columns["prediction"] == labels)[kept]))
    done = run_here("evaluate", dump, "-r", rejector, "--verbose", "--gate", "cost < 0.01")
    assert done.returncode == 1
    assert b"\nrealised" in done.stdout


def test_costs_and_their_gate_need_each_other(tmp_path: Path, documents: Path, test: str) -> None:
    dump = write_dump(tmp_path / "d.parquet", *make_model(30, 4, 5))
    costs = write_matrix(tmp_path, "csv")
    assert "require each other" in fail("fit", dump, "--temperature", "1", "--loss", "cost")
    assert "require each other" in fail("fit", dump, "--temperature", "1", "--cost-matrix", costs)
    assert "3 classes" in fail("fit", dump, "--temperature", "1", "--loss", "cost", "--cost-matrix", costs)
    message = fail("evaluate", test, "-r", documents / "rejector.json", "--gate", "cost <= 1")
    assert "no metric 'cost'" in message
