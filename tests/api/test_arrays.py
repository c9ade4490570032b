"""Rejectors for arrays: the same documents and the same bits as by way of files."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import make_model, make_rejector, source, write_dump, write_mask

import drrej
from drrej.errors import DrrejWarning

LOGITS, LABELS = make_model(3000, 4, 3)
NEW, TRUE = make_model(1500, 4, 4)


class HasArray:
    """Something that numpy can read."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self.values.astype(dtype) if dtype else self.values


class HasDlpack:
    """Something that only hands out its memory."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def __dlpack__(self, **options: Any) -> Any:
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.values.__dlpack_device__()


def by_files(tmp_path: Path, rule: tuple[str, float], loss: str) -> tuple[drrej.Rejector, dict[str, np.ndarray], Any]:
    """The same rejector, mask and report by way of parquet."""
    val = source(write_dump(tmp_path / "val.parquet", LOGITS, LABELS))
    test = source(write_dump(tmp_path / "test.parquet", NEW, TRUE))
    rejector = make_rejector(val, rule, drrej.RatioOptions(loss=loss))
    return rejector, write_mask(test, rejector, tmp_path / "mask.parquet"), drrej.evaluate(test, rejector)


@pytest.mark.parametrize("loss", ["log", "zero-one", "learned", "auto"])
def test_the_same_bits_as_by_way_of_files(tmp_path: Path, loss: str) -> None:
    document, mask, report = by_files(tmp_path, ("accuracy", 0.9), loss)
    rejector = drrej.fit_rejector(LOGITS, LABELS, accuracy=0.9, loss=loss)
    assert rejector.to_json() == document.to_json()
    scored = rejector.score(NEW)
    for name in ("prediction", "loss", "ratio", "rejected"):
        np.testing.assert_array_equal(getattr(scored, name), mask[name])
    np.testing.assert_array_equal(rejector.reject(NEW), mask["rejected"])
    assert rejector.evaluate(NEW, TRUE).to_json() == report.to_json()


@pytest.mark.parametrize("wrap", [np.asarray, np.ndarray.tolist, HasArray, HasDlpack, np.asfortranarray])
def test_whatever_holds_the_numbers(wrap: Any) -> None:
    wide = LOGITS.astype(np.float64)  # as a list holds them
    expected = drrej.fit_rejector(wide, LABELS, coverage=0.7).to_json()
    assert drrej.fit_rejector(wrap(wide), wrap(LABELS), coverage=0.7).to_json() == expected


def test_torch_tensors_even_those_that_are_trained() -> None:
    torch = pytest.importorskip("torch")
    expected = drrej.fit_rejector(LOGITS, LABELS, coverage=0.7)
    tensor = torch.tensor(LOGITS, requires_grad=True)
    assert drrej.fit_rejector(tensor, torch.tensor(LABELS), coverage=0.7) == expected


def test_probabilities_and_class_names(tmp_path: Path) -> None:
    p = np.exp(LOGITS - LOGITS.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    names = ["ant", "bee", "cat", "dog"]
    rejector = drrej.fit_rejector(p, np.array(names)[LABELS], input="probs", classes=names, coverage=0.8)
    predicted, rejected = rejector.predict(p)
    assert predicted.tolist() == [names[k] for k in p.argmax(axis=1)]
    assert rejected.mean() == pytest.approx(0.2, abs=0.01)
    rejector.save(tmp_path / "r.json")
    again = drrej.Rejector.load(tmp_path / "r.json")
    assert again == rejector
    np.testing.assert_array_equal(again.reject(p), rejected)


def test_one_score_per_row_is_a_binary_classifier() -> None:
    logits, labels = make_model(800, 2, 9)
    score = logits[:, 1] - logits[:, 0]
    rejector = drrej.fit_rejector(score, labels, coverage=0.6)
    assert rejector.binary
    np.testing.assert_array_equal(rejector.predict(score)[0], (score > 0).astype(int))


def test_frames_of_every_kind() -> None:
    pandas = pytest.importorskip("pandas")
    expected = drrej.fit_rejector(LOGITS, LABELS, coverage=0.7)
    frame, labels = pandas.DataFrame(LOGITS), pandas.Series(LABELS)
    assert drrej.fit_rejector(frame, labels, coverage=0.7) == expected
    assert drrej.fit_rejector(frame.astype("Float32"), labels.astype("Int64"), coverage=0.7).threshold == (
        drrej.fit_rejector(LOGITS.astype(float), LABELS, coverage=0.7).threshold
    )
    names = list("abcd")
    texts = pandas.Series(np.array(names)[LABELS])
    named = drrej.fit_rejector(frame, texts.astype("category"), coverage=0.7, classes=names)
    assert named.class_names == tuple(names)
    assert named == drrej.fit_rejector(LOGITS, texts.tolist(), coverage=0.7, classes=np.array(names))
    frame.columns = ["b", "a", "c", "d"]
    np.testing.assert_array_equal(named.reject(frame), named.reject(LOGITS[:, [1, 0, 2, 3]]))
    missing = frame.astype("Float64")
    missing.iloc[8, 2] = None
    with pytest.raises(drrej.DrrejError, match="row 8, counted from 0"):
        expected.reject(missing)


def test_bytes_in_the_other_order_and_half_precision() -> None:
    expected = drrej.fit_rejector(LOGITS, LABELS, coverage=0.7)
    assert drrej.fit_rejector(LOGITS.astype(">f4"), LABELS.astype(">i2"), coverage=0.7) == expected
    half = LOGITS.astype(np.float16)
    wide = drrej.fit_rejector(half.astype(np.float64), LABELS, coverage=0.7)
    np.testing.assert_array_equal(drrej.fit_rejector(half, LABELS, coverage=0.7).reject(half), wide.reject(half))


def test_a_batch_without_rows_has_a_mask_without_rows() -> None:
    for rejector in (
        drrej.fit_rejector(LOGITS, LABELS, coverage=0.7),
        drrej.fit_rejector(np.exp(LOGITS), LABELS, coverage=0.7, input="probs", normalize=True),
        drrej.fit_rejector(LOGITS[:, 0], LABELS > 1, coverage=0.7),
    ):
        scored = rejector.score(np.empty((0,) if rejector.binary else (0, 4)))
        assert (scored.prediction.shape, scored.loss.shape, scored.rejected.dtype) == ((0,), (0,), bool)
        assert rejector.probabilities([]).shape == (0, rejector.classes)


def test_probabilities_are_the_softmax_of_the_scaled_logits() -> None:
    rejector = drrej.fit_rejector(LOGITS, LABELS, coverage=0.7)
    scaled = NEW.astype(np.float64) / rejector.need_calibration().temperature
    expected = np.exp(scaled - scaled.max(axis=1, keepdims=True))
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(rejector.probabilities(NEW), expected, rtol=1e-12)
    one = drrej.fit_rejector(LOGITS, LABELS, coverage=0.7, loss="zero-one")
    np.testing.assert_allclose(1 - one.probabilities(NEW).max(axis=1), one.score(NEW).loss, rtol=1e-4, atol=1e-7)


def test_reports_show_themselves() -> None:
    rejector = drrej.fit_rejector(LOGITS, LABELS, coverage=0.7)
    report = rejector.evaluate(NEW, TRUE, gates="accuracy >= 0.999")
    page = report._repr_markdown_()
    assert page.count("| --- |") > 3
    assert f"| coverage | {report.coverage.value:.4f} |" in page
    assert "`accuracy >= 0.999`" in page
    assert [gate.gate for gate in report.failed_gates] == ["accuracy >= 0.999"]
    assert drrej.Report.from_json(report.to_json()) == report
    without = rejector.evaluate(NEW)
    assert without.accuracy is None
    assert without.coverage == report.coverage
    with pytest.raises(drrej.DrrejError, match="needs labels"):
        without.plot()
    pytest.importorskip("matplotlib")
    figure = report.plot()
    assert figure._repr_png_().startswith(b"\x89PNG")
    assert figure.axes[0].get_xlabel().startswith("coverage")


def test_steps_on_files_take_paths(tmp_path: Path) -> None:
    val = Path(write_dump(tmp_path / "val.parquet", LOGITS, LABELS))
    rejector = drrej.threshold(val, drrej.fit(val, drrej.calibrate([val])), drrej.Rule("coverage", 0.7))
    assert rejector == drrej.fit_rejector(LOGITS, LABELS, coverage=0.7)
    rejector.save(tmp_path / "r.json")
    assert drrej.Rejector.load(tmp_path / "r.json") == rejector
    np.testing.assert_array_equal(rejector.reject(NEW), drrej.Rejector.load(tmp_path / "r.json").reject(NEW))
    counts = drrej.reject(str(val), tmp_path / "r.json", tmp_path / "mask.parquet")
    assert counts.rejected == rejector.reject(LOGITS).sum()
    assert drrej.reject(val, rejector, f"{tmp_path}/masks/").rows == len(LOGITS)
    assert (tmp_path / "masks" / "val.parquet").read_bytes() == (tmp_path / "mask.parquet").read_bytes()
    with pytest.raises(drrej.DrrejError, match="exists already"):
        drrej.reject(val, rejector, tmp_path / "mask.parquet")
    drrej.reject(val, rejector, tmp_path / "mask.parquet", force=True)
    report = drrej.evaluate(val, tmp_path / "r.json", ["accuracy >= 0.5"])
    assert report == rejector.evaluate(LOGITS, LABELS, ["accuracy >= 0.5"])
    assert "| --- |" in report._repr_markdown_()


def test_rejectors_that_are_not_finished_say_so() -> None:
    start = drrej.Rejector(classes=4, input="logits", columns=drrej.fit_rejector(LOGITS, LABELS, tau=0.5).columns)
    with pytest.raises(drrej.DrrejError, match="has no calibration yet"):
        start.reject(LOGITS)


def test_a_promise_uses_four_fifths_of_the_rows_to_choose() -> None:
    order = np.random.default_rng(0).permutation(len(LABELS))
    rejector = drrej.fit_rejector(LOGITS, LABELS, accuracy=0.9, confidence=0.9)
    chosen = rejector.need_threshold()
    assert chosen.rows == len(LABELS) * 4 // 5
    assert rejector.need_calibration().rows == len(LABELS) // 5
    assert chosen.rule.confidence == 0.9
    assert chosen.rule.reused is False
    assert drrej.fit_rejector(LOGITS[order], LABELS[order], accuracy=0.9, confidence=0.9) == rejector


def test_equal_scores_need_groups_for_a_promise() -> None:
    """A kNN has few different scores, and nothing but `groups` tells its examples from copies."""
    rng = np.random.default_rng(1)
    right = rng.integers(0, 6, size=4000)
    p = np.stack([right, 5 - right], axis=1) / 5
    labels = (rng.random(4000) < p[:, 1]).astype(int)
    kept = {"accuracy": 0.8, "confidence": 0.9, "input": "probs"}
    with pytest.raises(drrej.DrrejError, match=r"3994 of 4000 rows have the same scores.*`groups=range"):
        drrej.fit_rejector(p, labels, **kept)
    ids = np.arange(4000)
    rejector = drrej.fit_rejector(p, labels, groups=ids, **kept)
    assert rejector.need_threshold().rows == 3200
    order = rng.permutation(4000)
    assert drrej.fit_rejector(p[order], labels[order], groups=ids[order], **kept) == rejector
    names = [f"patient {number}" for number in ids]
    assert drrej.fit_rejector(p, labels, groups=names, **kept).need_threshold().rows == 3200
    with pytest.raises(drrej.DrrejError, match="one whole number or text per row"):
        drrej.fit_rejector(p, labels, groups=p, **kept)
    with pytest.raises(drrej.DrrejError, match="there are 4000 rows of scores but 3999 groups"):
        drrej.fit_rejector(p, labels, groups=ids[1:], **kept)
    with pytest.raises(drrej.DrrejError, match="`groups` requires `confidence`"):
        drrej.fit_rejector(p, labels, groups=ids, accuracy=0.8, input="probs")
    with pytest.warns(DrrejWarning, match="have the same scores as another row and count once"):
        once = rejector.evaluate(p, labels)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = rejector.evaluate(p, labels, groups=range(len(p)))
    assert once.repeated_rows is not None
    assert report.repeated_rows is None
    assert report.coverage.value == once.coverage.value
    assert report.coverage.lower > once.coverage.lower  # more rows, so a narrower interval


def test_rows_given_twice_promise_nothing_more() -> None:
    with pytest.raises(drrej.DrrejError, match="have the same scores as another row"):
        drrej.fit_rejector(np.r_[LOGITS, LOGITS], np.r_[LABELS, LABELS], accuracy=0.9, confidence=0.9)
    rejector = drrej.fit_rejector(LOGITS, LABELS, risk=0.2, confidence=0.9, fresh=(NEW, TRUE))
    twice = np.r_[NEW, NEW], np.r_[TRUE, TRUE]
    doubled = drrej.fit_rejector(LOGITS, LABELS, risk=0.2, confidence=0.9, fresh=twice)
    assert doubled.need_threshold().coverage <= rejector.need_threshold().coverage


def test_a_promise_may_have_fresh_rows_of_its_own(tmp_path: Path) -> None:
    rejector = drrej.fit_rejector(LOGITS, LABELS, risk=0.2, confidence=0.9, fresh=(NEW, TRUE))
    val = source(write_dump(tmp_path / "val.parquet", LOGITS, LABELS))
    fresh = source(write_dump(tmp_path / "fresh.parquet", NEW, TRUE))
    assert rejector == drrej.threshold(fresh, drrej.fit(val, drrej.calibrate(val)), drrej.Rule("risk", 0.2, 0.9))
    with pytest.raises(drrej.DrrejError, match="`fresh` requires `confidence`"):
        drrej.fit_rejector(LOGITS, LABELS, risk=0.2, fresh=(NEW, TRUE))
    with pytest.raises(drrej.DrrejError, match="needs fresh rows"):
        drrej.fit_rejector(LOGITS, LABELS, risk=0.2, confidence=0.9, fresh=(LOGITS, LABELS))
    with pytest.raises(drrej.DrrejError, match="needs more rows"):
        drrej.fit_rejector(LOGITS[:1], LABELS[:1], risk=0.2, confidence=0.9)


@pytest.mark.parametrize(
    ("scores", "labels", "options", "said"),
    [
        (LOGITS[0], LABELS, {}, "rows of scores but"),
        (LOGITS[None], LABELS, {}, r"scores have the shape \(1, 3000, 4\)"),
        (LOGITS[:, :1], LABELS, {}, r"\(3000, 1\); .*, pass scores\[:, 0\]"),
        (LOGITS.astype(str), LABELS, {}, "scores are <U"),
        (LOGITS, np.eye(4)[LABELS], {}, "not one-hot"),
        (LOGITS, LABELS + 1, {}, "label outside 0 to 3"),
        (np.where(np.arange(3000)[:, None] == 7, np.nan, LOGITS), LABELS, {}, "row 7, counted from 0"),
        (LOGITS, LABELS, {"tau": 0.5}, "exactly one rule"),
        (LOGITS, LABELS, {"coverage": None, "accuracy": 98}, "above 0 and at most 1"),
        ([[1.0, 2.0], [1.0]], [0, 1], {}, "scores cannot be read as an array"),
        (np.ma.array(LOGITS, mask=LOGITS > 9), LABELS, {}, "scores are masked in places"),
        (None, LABELS, {}, "scores are a NoneType"),
        (LOGITS > 0, LABELS, {}, "scores are bool"),
        (LOGITS, [None if i == 5 else "a" for i in range(3000)], {"classes": list("abcd")}, "row 5, counted from 0"),
        (LOGITS, ["a"] * 3000, {}, "name the classes"),
        (LOGITS, LABELS, {"classes": [0, 1, 2, 3]}, "`classes` holds 0, which is not text"),
        (LOGITS, LABELS, {"classes": list("abca")}, "names a class twice"),
        (LOGITS, LABELS, {"input": "prob"}, "`input=prob`: it must be one of"),
        (LOGITS, LABELS, {"input": "probs"}, "a negative probability"),
        (LOGITS, [object()] * 3000, {}, "of several kinds"),
    ],
)
def test_bad_arrays_get_plain_errors(scores: Any, labels: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(drrej.DrrejError, match=said):
        drrej.fit_rejector(scores, labels, **({"coverage": 0.8} | options))


def test_the_document_is_that_of_the_command_line(tmp_path: Path) -> None:
    rejector = drrej.fit_rejector(LOGITS, LABELS, coverage=0.8)
    tree = json.loads(rejector.to_json())
    assert tree["columns"] == {"logits": "logits", "label": "label"}
    mask = write_mask(source(write_dump(tmp_path / "d.parquet", NEW, TRUE)), rejector, tmp_path / "m.parquet")
    np.testing.assert_array_equal(mask["rejected"], rejector.reject(NEW))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: drrej.fit_rejector(LOGITS, LABELS, coverage="0.8"), "`coverage='0.8'`: it must be a number"),
        (lambda: drrej.fit_rejector(LOGITS, LABELS, coverage=True), "`coverage=True`: it must be a number"),
        (lambda: drrej.fit_rejector(LOGITS, LABELS, coverage=0.8, alpha="1"), "`alpha='1'`: it must be a number"),
        (lambda: drrej.Rejector.from_json(None), "rejector: expected the text of a document, not NoneType"),  # type: ignore[arg-type]
        (lambda: drrej.Report.from_json(3), "report: expected the text of a document, not int"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_number_and_no_text_is_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(drrej.DrrejError) as refused:
        call()
    assert str(refused.value) == message


class Frame:
    """What data frames have in common: named columns that can be chosen, and an array of their values."""

    def __init__(self, values: Any, columns: list[str]) -> None:
        self.values, self.columns = np.asarray(values), columns

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.asarray(self.values, dtype)

    def __getitem__(self, columns: list[str]) -> Frame:
        return Frame(self.values[:, [self.columns.index(name) for name in columns]], columns)


@pytest.mark.parametrize("target", [{"coverage": 0.7}, {"coverage": 0.5, "confidence": 0.9}])
def test_columns_of_a_frame_are_matched_with_the_classes_by_name(target: Any) -> None:
    names, order = list("abcd"), [2, 0, 3, 1]
    texts = np.array(names)[LABELS]
    expected = drrej.fit_rejector(LOGITS, texts, classes=names, **target)
    turned = Frame(LOGITS[:, order], [names[place] for place in order])
    assert drrej.fit_rejector(turned, texts, classes=names, **target) == expected
    np.testing.assert_array_equal(expected.predict(turned)[0], expected.predict(LOGITS)[0])
    np.testing.assert_array_equal(expected.reject(turned), expected.reject(LOGITS))
    with pytest.raises(drrej.DrrejError, match="do not name the classes"):
        expected.predict(Frame(LOGITS, ["a", "b", "c", "x"]))
    other = Frame(LOGITS, ["w", "x", "y", "z"])  # names of something else: by place
    np.testing.assert_array_equal(expected.predict(other)[0], expected.predict(LOGITS)[0])


def test_one_column_is_asked_about() -> None:
    with pytest.raises(drrej.DrrejError, match=r"shape \(\d+, 1\).*pass scores\[:, 0\]"):
        drrej.fit_rejector(LOGITS[:, :1], LABELS % 2, coverage=0.7)


def test_python_warns_where_the_command_line_does(tmp_path: Path) -> None:
    rejector = drrej.fit_rejector(LOGITS, LABELS, coverage=0.7)
    with pytest.warns(DrrejWarning, match="some of these rows were used by calibrate, fit and threshold") as told:
        rejector.evaluate(LOGITS, LABELS)
    assert told[0].filename == __file__
    write_dump(tmp_path / "d.parquet", LOGITS, LABELS)
    with pytest.warns(DrrejWarning, match="some of these rows were used"):
        drrej.evaluate(tmp_path / "d.parquet", rejector)


def test_python_warns_of_a_calibrator_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    from drrej.documents import words

    monkeypatch.setattr(words, "worse_figures", lambda _: "calibration made it worse")
    with pytest.warns(DrrejWarning, match="calibration made it worse"):
        drrej.fit_rejector(LOGITS, LABELS, coverage=0.7)


def test_numbered_columns_of_a_frame_are_matched_by_their_numbers() -> None:
    rejector = drrej.fit_rejector(LOGITS, LABELS, coverage=0.8)
    order = [2, 0, 3, 1]
    for names in (order, [f"logit_{number}" for number in order]):
        frame = Frame(LOGITS[:, order], list(map(str, names)))
        assert np.array_equal(rejector.reject(frame), rejector.reject(LOGITS))
    table = pa.table({str(number): LOGITS[:, number] for number in order})
    assert np.array_equal(rejector.reject(table), rejector.reject(LOGITS))


def test_columns_that_are_names_are_matched_by_name_also_where_labels_are_numbers(tmp_path: Path) -> None:
    """Files are read by these names too."""
    names, order = ["cat", "dog", "cow", "hen"], [2, 0, 3, 1]
    rejector = drrej.fit_rejector(pa.table(dict(zip(names, LOGITS.T, strict=True))), LABELS, coverage=0.8)
    assert (rejector.columns.logits, rejector.class_names) == ("cat,dog,cow,hen", None)
    turned = pa.table({names[number]: LOGITS[:, number] for number in order})
    for given in (turned, Frame(LOGITS[:, order], [names[number] for number in order])):
        assert np.array_equal(rejector.predict(given), rejector.predict(LOGITS))
        assert rejector.evaluate(given, LABELS).base_accuracy == rejector.evaluate(LOGITS, LABELS).base_accuracy
    assert np.array_equal(rejector.reject(turned.slice(7, 1)), rejector.reject(LOGITS[7:8]))
    with pytest.raises(drrej.DrrejError, match="do not name the classes"):
        rejector.reject(turned.rename_columns(["cow", "cat", "hen", "horse"]))
    pq.write_table(turned, tmp_path / "d.parquet")
    drrej.reject(tmp_path / "d.parquet", rejector, tmp_path / "mask.parquet")
    mask = pq.read_table(tmp_path / "mask.parquet")
    assert mask["rejected"].to_pylist() == rejector.reject(LOGITS).tolist()
    assert mask["prediction"].to_pylist() == [names[number] for number in LOGITS.argmax(axis=1)]


def test_scores_of_another_kind_for_a_rejector_of_logits_are_warned_about() -> None:
    """The command line refuses such files."""
    rejector = drrej.fit_rejector(LOGITS, LABELS, coverage=0.8)
    probabilities = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)
    some = np.where(np.arange(len(LOGITS))[:, None] % 40, LOGITS, probabilities)
    calls: list[Callable[[Any], object]] = [rejector.reject, rejector.predict, rejector.score]
    for call in (*calls, lambda scores: rejector.evaluate(scores, LABELS)):
        for scores, words in (
            (probabilities, "so these are probabilities, not logits"),
            (some, "some rows lie in .* as probabilities do, and others do not"),
            (100 * probabilities, "percentages or counts"),
        ):
            with pytest.warns(DrrejWarning, match=f"{words}, .*but the rejector was made for logits"):
                call(scores)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rejector.reject(LOGITS)


def test_a_target_that_all_rows_meet_is_warned_about() -> None:
    with pytest.warns(DrrejWarning, match="`accuracy=0.3`: met even without rejection"):
        drrej.fit_rejector(LOGITS, LABELS, accuracy=0.3)
