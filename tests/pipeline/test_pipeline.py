"""Properties of the whole pipeline: what does not change a figure or a mask, to the bit."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference
from conftest import (
    LAYOUTS,
    examples,
    load_json,
    make_model,
    make_rejector,
    read_columns,
    source,
    write_dump,
    write_mask,
)
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from scipy.stats import norm, pearson3, ttest_ind
from scipy.stats import t as student

import drrej
from drrej.data import dump as dump_module
from drrej.pipeline.fit import uncalibrated

RULES = [("coverage", 0.8), ("risk", 0.1), ("tau", 0.9), ("max-loss", 0.4)]
RATIOS = [
    drrej.RatioOptions(1.0, 1.0, "log"),
    drrej.RatioOptions(3.0, 0.5, "zero-one"),
    drrej.RatioOptions(-1.0, 0.2, "brier"),
]


@st.composite
def models(draw: st.DrawFn, most_rows: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Dumps of a few hundred rows, float32 or float64, often with ties."""
    rows, classes = draw(st.integers(20, most_rows)), draw(st.sampled_from([2, 3, 10, 33]))
    dtype = draw(st.sampled_from([np.float16, np.float32, np.float64]))
    logits, labels = make_model(rows, classes, draw(st.integers(0, 10**6)), dtype=dtype)
    if draw(st.booleans()):
        logits = np.round(logits)
        logits[::3] = logits[0]
    return logits, labels


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pipeline")


def build(path: str, rule: tuple[str, float], ratio: drrej.RatioOptions) -> drrej.Rejector | None:
    try:
        return make_rejector(source(path), rule, ratio)
    except drrej.Infeasible:
        return None


choices = {"rule": st.sampled_from(RULES), "ratio": st.sampled_from(RATIOS)}


@examples(0.5)
@given(model=models(), seed=st.integers(0, 99), **choices)
def test_a_shuffle_of_the_rows_changes_no_figure(
    folder: Path, model: tuple[np.ndarray, np.ndarray], seed: int, rule: tuple[str, float], ratio: drrej.RatioOptions
) -> None:
    logits, labels = model
    order = np.random.default_rng(seed).permutation(len(logits))
    straight = write_dump(folder / "a.parquet", logits, labels)
    shuffled = write_dump(folder / "b.parquet", logits[order], labels[order], row_group=17)
    documents = [build(path, rule, ratio) for path in (straight, shuffled)]
    assert documents[0] == documents[1]
    if documents[0] is None:
        return
    assert documents[0].to_json() == documents[1].to_json()
    reports = [drrej.evaluate(source(path), documents[0]).to_json() for path in (straight, shuffled)]
    assert reports[0] == reports[1]


@pytest.mark.parametrize("layout", LAYOUTS)
@examples(0.15)
@given(model=models(most_rows=60), cut=st.integers(1, 59), block=st.integers(5, 60), jobs=st.integers(1, 4), **choices)
def test_blocks_files_layouts_and_jobs_change_no_bit(
    folder: Path,
    layout: str,
    model: tuple[np.ndarray, np.ndarray],
    cut: int,
    block: int,
    jobs: int,
    rule: tuple[str, float],
    ratio: drrej.RatioOptions,
) -> None:
    logits, labels = model
    whole = write_dump(folder / "whole.parquet", logits, labels)
    rejector = build(whole, rule, ratio)
    if rejector is None:
        return
    expected = write_mask(source(whole), rejector, folder / "mask.parquet", ["label"])
    report = drrej.evaluate(source(whole), rejector)
    pieces = [
        write_dump(folder / f"{n}.parquet", logits[rows], labels[rows], layout, row_group=block)
        for n, rows in enumerate((slice(0, cut), slice(cut, None)))  # the second may be empty
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dump_module, "BLOCK_BYTES", block * logits[0].nbytes // 2)
        dump = source(*pieces, jobs=jobs, logits="logit_*" if layout == "wide" else None)
        assert same(write_mask(dump, rejector, folder / "mask.parquet", ["label"]), expected)
        assert drrej.evaluate(dump, rejector) == report
        refitted = make_rejector(dump, rule, ratio)
    assert (refitted.ratio, refitted.threshold) == (rejector.ratio, rejector.threshold)


def same(mask: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return all(mask[name].tobytes() == other[name].tobytes() for name in other) and list(mask) == list(other)


@given(model=models(), **choices)
def test_threshold_then_reject_gives_the_recorded_coverage(
    folder: Path, model: tuple[np.ndarray, np.ndarray], rule: tuple[str, float], ratio: drrej.RatioOptions
) -> None:
    logits, labels = model
    path = write_dump(folder / "d.parquet", logits, labels)
    rejector = build(path, rule, ratio)
    if rejector is None:
        return
    threshold = rejector.need_threshold()
    mask = write_mask(source(path), rejector, folder / "mask.parquet")
    accepted = ~mask["rejected"]
    assert accepted.sum() == threshold.accepted
    assert accepted.mean() == threshold.coverage
    if threshold.cutoff is not None:
        assert (accepted == (mask["loss"] < threshold.cutoff)).all()
    if rule[0] == "risk":
        assert (mask["prediction"] == labels)[accepted].mean() == pytest.approx(threshold.accuracy, rel=1e-15)
        assert (mask["prediction"] != labels)[accepted].mean() <= rule[1]
    if rule[0] == "coverage":
        assert threshold.coverage >= rule[1]


@given(models(), st.sampled_from(["log", "zero-one", "brier"]), st.sampled_from([1.0, 1.5, 3.0, 5.0, 0.0, -3.0]))
def test_ratios_in_the_mask(folder: Path, model: tuple[np.ndarray, np.ndarray], loss: str, alpha: float) -> None:
    """On the fitted rows their mean is 1, and they fall as the loss grows."""
    path = write_dump(folder / "d.parquet", *model)
    dump = replace(source(path), options=drrej.DumpOptions(input="logits"))  # whole numbers look like counts
    rejector = make_rejector(dump, ("tau", 0.5), drrej.RatioOptions(alpha, 0.5, loss))
    mask = write_mask(dump, rejector, folder / "mask.parquet")
    assert mask["ratio"].mean() == pytest.approx(1, rel=1e-9)
    order = np.argsort(mask["loss"], kind="stable")
    assert (np.diff(mask["ratio"][order]) <= 0).all()
    assert rejector.need_ratio().variance == pytest.approx(mask["ratio"].var(), rel=1e-9, abs=1e-15)
    assert rejector.need_ratio().mean_loss == pytest.approx(mask["loss"].mean(), rel=1e-12)
    assert rejector.need_ratio().max_loss == mask["loss"].max()
    assert rejector.need_ratio().min_loss == mask["loss"].min()


# Against an independent float64 pipeline


@pytest.fixture(scope="module", params=["har", "generated"])
def pair(request: pytest.FixtureRequest, folder: Path, val: str, test: str) -> Iterator[tuple[str, str]]:
    if request.param == "har":
        yield val, test
        return
    made = []
    for name, seed in (("val", 1), ("test", 2)):
        logits, labels = make_model(2000, 20, seed)
        made.append(write_dump(folder / f"{name}.parquet", logits, labels, row_group=700))
    yield made[0], made[1]


def load(path: str) -> tuple[np.ndarray, np.ndarray]:
    columns = read_columns(path)
    return np.stack(columns["logits"]).astype(np.float64), columns["label"]


@pytest.mark.parametrize("loss", ["log", "zero-one", "brier"])
def test_the_report_agrees_with_a_float64_reference(pair: tuple[str, str], loss: str) -> None:
    (val_logits, val_labels), (logits, labels) = map(load, pair)
    rejector = make_rejector(source(pair[0]), ("coverage", 0.8), drrej.RatioOptions(loss=loss))
    report = drrej.evaluate(source(pair[1]), rejector)
    temperature = reference.temperature(val_logits, val_labels)
    val_losses, losses = (naive_losses(reference.softmax(z, temperature), loss) for z in (val_logits, logits))
    cutoff = np.sort(val_losses)[math.ceil(0.8 * len(val_losses))]
    accepted = losses < cutoff
    wrong = logits.argmax(axis=1) != labels
    assert report["cutoff"] == pytest.approx(cutoff, rel=1e-5)
    assert report["coverage"]["accepted"] == accepted.sum()
    assert report["coverage"]["value"] == accepted.mean()
    assert report["accuracy"]["errors"] == wrong[accepted].sum()
    assert report["accuracy"]["value"] == pytest.approx(1 - wrong[accepted].mean(), rel=1e-15)
    assert report["base_accuracy"]["errors"] == wrong.sum()
    assert report["aurc"]["value"] == pytest.approx(reference.aurc(losses, wrong), rel=1e-5)
    assert report["augrc"]["value"] == pytest.approx(reference.augrc(losses, wrong), rel=1e-5)
    check_curve_and_classes(report, val_losses, losses, wrong, labels, accepted)


def naive_losses(p: np.ndarray, loss: str) -> np.ndarray:
    if loss == "log":
        return -(p * np.log(p)).sum(axis=1)
    return 1 - (p.max(axis=1) if loss == "zero-one" else (p * p).sum(axis=1))


def skewed_p_value(new: np.ndarray, fitted: np.ndarray) -> float:
    """Student's t of two means with one variance, carried over to Pearson's type III by scipy's distributions.

    The skewness of the difference of the means is that of both samples about their own means, times what the
    cumulants of a mean leave of it.
    """
    rows, size = np.array([new.size, fitted.size]), new.size + fitted.size
    around = np.concatenate([new - new.mean(), fitted - fitted.mean()])
    skewness = (around**3).mean() / ((around**2).sum() / (size - 2)) ** 1.5
    skewness *= (1 / rows[0] ** 2 - 1 / rows[1] ** 2) / (1 / rows).sum() ** 1.5
    t = ttest_ind(new, fitted).statistic
    z = norm.ppf(student.cdf(t, size - 2))
    return float(2 * min(pearson3.cdf(z, skewness), pearson3.sf(z, skewness)))


def check_curve_and_classes(
    report: dict[str, Any],
    val_losses: np.ndarray,
    losses: np.ndarray,
    wrong: np.ndarray,
    labels: np.ndarray,
    accepted: np.ndarray,
) -> None:
    rho = np.exp(-losses) / np.exp(-val_losses).mean()
    for point in report["curve"]:
        kept = rho > point["tau"]
        assert point["coverage"] == pytest.approx(kept.mean(), abs=1e-12)
        assert point["accuracy"] == (pytest.approx(1 - wrong[kept].mean()) if kept.any() else None)
    assert report["ratio"]["mean"] == pytest.approx(rho.mean(), rel=1e-6)
    fitted = np.exp(-val_losses) / np.exp(-val_losses).mean()
    test = ttest_ind(rho, fitted)  # without drift both have one variance
    assert report["ratio"]["std_error"] == pytest.approx((rho.mean() - 1) / test.statistic, rel=1e-4)
    assert report["ratio"]["p_value"] == pytest.approx(skewed_p_value(rho, fitted), rel=1e-4)
    for row in report["per_class"]:
        mine = labels == row["class"]
        assert row["rows"] == mine.sum()
        assert row["coverage"] == (mine & accepted).sum() / mine.sum()
        right = (mine & accepted & ~wrong).sum()
        assert row["accuracy"] == right / (mine & accepted).sum()
    assert sum(row["rows"] for row in report["per_class"]) == len(labels)


def test_probabilities_give_the_rejections_of_their_logits(folder: Path) -> None:
    logits, labels = make_model(800, 6, seed=3, dtype=np.float64)
    logits /= 8
    plain = write_dump(folder / "logits.parquet", logits, labels)
    probabilities = write_dump(folder / "probs.parquet", reference.softmax(logits, 1.0), labels)
    from_logits = make_rejector(source(plain))
    from_probs = make_rejector(source(probabilities, input="probs"))
    assert from_probs.input == "probs"
    assert from_probs.need_calibration().temperature == pytest.approx(
        from_logits.need_calibration().temperature, rel=1e-9
    )
    masks = [
        write_mask(source(path), rejector, folder / "mask.parquet")
        for path, rejector in ((plain, from_logits), (probabilities, from_probs))
    ]
    assert (masks[0]["rejected"] == masks[1]["rejected"]).all()
    np.testing.assert_allclose(masks[0]["loss"], masks[1]["loss"], rtol=1e-9)


def test_undefined_figures_are_null(folder: Path) -> None:
    path = write_dump(folder / "d.parquet", *make_model(100, 3, seed=5))
    rejector = make_rejector(source(path), ("tau", 1e6))
    report = drrej.evaluate(source(path), rejector)
    assert report["coverage"] == {
        "value": 0.0,
        "lower": 0.0,
        "upper": pytest.approx(0.0362167, abs=1e-7),
        "accepted": 0,
        "drop": 0.0,
    }
    assert report["accuracy"] == {"value": None, "lower": None, "upper": None, "errors": 0}
    assert [report[name]["accepted"] for name in ("nll", "ece", "brier")] == [None] * 3
    assert {row["accuracy"] for row in report["per_class"]} == {None}
    report.to_json()  # which takes no NaN


def test_a_mean_of_infinite_ratios_is_null(folder: Path) -> None:
    logits, labels = make_model(200, 3, seed=6)
    hard = source(write_dump(folder / "hard.parquet", logits * np.float32(0.02), labels))
    easy = source(write_dump(folder / "easy.parquet", logits, labels))
    rejector = drrej.fit(hard, uncalibrated(hard, 1.0), drrej.RatioOptions(-3.0, 0.1, "log"))
    report = drrej.evaluate(easy, drrej.threshold(hard, rejector, drrej.Rule("coverage", 0.8)))
    assert report["ratio"] == {"mean": None, "std_error": None, "p_value": None}
    assert report["coverage"]["value"] > 0.8
    report.to_json()  # which takes no NaN


def test_documents_are_the_same_bytes_for_the_same_input(folder: Path, val: str, rejector_file: str) -> None:
    again = make_rejector(source(val, jobs=2))
    assert again.to_json() == Path(rejector_file).read_text()
    assert load_json(rejector_file)["drrej_version"] == drrej.__version__
