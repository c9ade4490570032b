"""drrej reject."""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import (
    LAYOUTS,
    fail,
    load_json,
    make_model,
    make_rejector,
    read_columns,
    run_here,
    source,
    succeed,
    write_dump,
    write_mask,
)

import drrej
from drrej.core.losses import expected_losses
from drrej.errors import OptionError


def test_the_mask_row_for_row(tmp_path: Path, test: str, rejector_file: str) -> None:
    target = tmp_path / "mask.parquet"
    assert succeed("reject", test, "-r", rejector_file, "-o", target) == b""
    mask, dump = pq.ParquetFile(target).read(), pq.ParquetFile(test).read()
    assert mask.schema.names == ["id", "label", "prediction", "loss", "ratio", "rejected"]
    assert [str(t) for t in mask.schema.types] == ["int64", "int64", "int64", "double", "double", "bool"]
    assert mask.column("id").equals(dump.column("id"))
    assert mask.column("label").equals(dump.column("label"))
    assert sum(column.null_count for column in mask.columns) == 0
    logits = np.stack(dump.column("logits").to_pylist()).astype(np.float32)
    rejector = drrej.Rejector.from_json(Path(rejector_file).read_text())
    losses = expected_losses(logits, "log", rejector.need_calibration().temperature)
    assert (mask.column("prediction").to_numpy() == logits.argmax(axis=1)).all()
    assert (mask.column("loss").to_numpy() == losses).all()
    assert (mask.column("ratio").to_numpy() == rejector.need_ratio().density.ratio(losses)).all()
    assert (mask.column("rejected").to_numpy() == (losses >= load_json(rejector_file)["threshold"]["cutoff"])).all()


def test_standard_output_keep_and_no_labels(tmp_path: Path, test: str, rejector_file: str) -> None:
    unlabelled = tmp_path / "d.parquet"
    pq.write_table(pq.ParquetFile(test).read().drop_columns(["label"]), unlabelled)
    raw = succeed("reject", unlabelled, "-r", rejector_file, "-o", "-", "--keep", "id")
    mask = pq.read_table(io.BytesIO(raw))
    assert mask.schema.names == ["id", "prediction", "loss", "ratio", "rejected"]
    assert mask.schema.field("prediction").type == pa.int64()
    assert mask.num_rows == 2060


@pytest.mark.parametrize(
    ("keep", "message"),
    [("nothing", "there is no column 'nothing' to keep"), ("id,id", "--keep names the column 'id' twice")],
)
def test_columns_that_cannot_be_kept(tmp_path: Path, test: str, rejector_file: str, keep: str, message: str) -> None:
    assert message in fail("reject", test, "-r", rejector_file, "-o", tmp_path / "m.parquet", "--keep", keep)
    assert os.listdir(tmp_path) == []


def test_a_name_taken_twice_is_an_error(tmp_path: Path, test: str, rejector_file: str) -> None:
    table = pq.ParquetFile(test).read()
    pq.write_table(table.append_column("loss", pa.array(np.zeros(table.num_rows))), tmp_path / "d.parquet")
    message = fail("reject", tmp_path / "d.parquet", "-r", rejector_file, "-o", tmp_path / "m.parquet")
    assert "the dump has a column 'loss', which the mask uses itself" in message
    succeed("reject", tmp_path / "d.parquet", "-r", rejector_file, "-o", tmp_path / "m.parquet", "--keep", "id")


def test_force_and_symlinks(tmp_path: Path, test: str, rejector_file: str) -> None:
    real, link = tmp_path / "real.parquet", tmp_path / "link.parquet"
    real.write_text("precious")
    link.symlink_to(real)
    assert "it exists already" in fail("reject", test, "-r", rejector_file, "-o", link)
    assert real.read_text() == "precious"
    succeed("reject", test, "-r", rejector_file, "-o", link, "--force")
    assert link.is_symlink()
    assert pq.ParquetFile(real).metadata.num_rows == 2060
    assert sorted(os.listdir(tmp_path)) == ["link.parquet", "real.parquet"]


def test_a_directory_gets_one_mask_per_file(tmp_path: Path, test: str, rejector_file: str) -> None:
    rejector = drrej.Rejector.from_json(Path(rejector_file).read_text())
    columns = read_columns(test)
    logits = np.stack(columns["logits"])
    nightly = tmp_path / "nightly"
    (nightly / "sub").mkdir(parents=True)
    write_dump(nightly / "b.parquet", logits[:900])
    write_dump(nightly / "sub" / "c.parquet", logits[900:1000], row_group=13)
    write_dump(nightly / "a.parquet", logits[1000:])
    succeed("reject", nightly, "-r", rejector_file, "-o", f"{tmp_path}/scored/", "--keep", "id")
    whole = write_mask(source(test), rejector, tmp_path / "whole.parquet", ["label"])
    scored = [read_columns(tmp_path / "scored" / name) for name in ("b.parquet", "sub/c.parquet", "a.parquet")]
    for name in ("prediction", "loss", "ratio", "rejected"):
        assert (np.concatenate([part[name] for part in scored]) == whole[name]).all()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_same_file(tmp_path: Path, layout: str) -> None:
    """To the byte, at the command line, with the columns found by themselves."""
    logits, labels = make_model(300, 12, seed=1)
    path = write_dump(tmp_path / "d.parquet", logits, labels, layout, row_group=70)
    succeed("run", "--val", path, "--test", path, "--coverage", "0.7", "-o", tmp_path / "out")
    plain = write_dump(tmp_path / "plain.parquet", logits, labels)
    rejector = drrej.Rejector.from_json((tmp_path / "out" / "rejector.json").read_text())
    expected = write_mask(source(plain, logits="logits"), rejector, tmp_path / "expected.parquet")
    mask = read_columns(tmp_path / "out" / "mask.parquet")
    assert list(mask) == list(expected)
    assert all((mask[name] == expected[name]).all() for name in expected)
    assert (~mask["rejected"]).sum() == rejector.need_threshold().accepted == 210


def test_bad_rows(tmp_path: Path, test: str, rejector_file: str) -> None:
    logits = np.stack(read_columns(test)["logits"])
    logits[5, 2] = np.nan
    logits[9, 1] = np.inf
    path = write_dump(tmp_path / "d.parquet", logits)
    target = tmp_path / "m.parquet"
    message = fail("reject", path, "-r", rejector_file, "-o", target)
    assert message.startswith(f"{path}: column 'logits': 1 row has NaN among the scores; row 5")
    assert "also 1 with +inf" in message
    assert not target.exists()
    done = run_here("reject", path, "-r", rejector_file, "-o", target, "--on-bad-row", "reject")
    assert done.returncode == 0
    *warned, summary = done.stderr.decode().splitlines()
    assert summary.startswith("drrej: 1 file: 2060 rows")
    assert ", 2 bad, " in summary
    assert warned == [
        f"drrej: warning: {path}: column 'logits': 1 row has NaN among the scores; row 5, counted from 0; let through",
        f"drrej: warning: {path}: column 'logits': 1 row has +inf among the scores; row 9, counted from 0; let through",
        "drrej: warning: 2 of 2060 rows have no usable scores and were rejected",
    ]
    mask = pq.ParquetFile(target).read()
    assert mask.num_rows == 2060
    for row in (5, 9):
        assert [mask.column(name)[row].as_py() for name in ("id", "prediction", "loss", "ratio", "rejected")] == [
            row, None, None, None, True,
        ]  # fmt: skip
    assert mask.column("loss").null_count == 2


def test_writing_to_a_device(test: str, rejector_file: str) -> None:
    succeed("reject", test, "-r", rejector_file, "-o", "/dev/null")


def test_names_of_classes_with_integer_labels_are_in_the_mask_and_in_the_report(tmp_path: Path) -> None:
    names = ("ant", "bee", "cat")
    logits, labels = make_model(300, 3, 5)
    dump = source(write_dump(tmp_path / "d.parquet", logits, labels), classes=names)
    rejector = make_rejector(dump)
    mask = write_mask(dump, rejector, tmp_path / "mask.parquet")
    assert mask["prediction"].tolist() == [names[k] for k in logits.argmax(axis=1)]
    assert [row["class"] for row in drrej.evaluate(dump, rejector)["per_class"]] == list(names)


def test_names_that_the_rejector_lacks_name_the_classes_of_masks_and_reports(tmp_path: Path) -> None:
    names = ("ant", "bee", "cat")
    logits, labels = make_model(300, 3, 5)
    path = write_dump(tmp_path / "d.parquet", logits, labels)
    rule, by_prediction = drrej.Rule("coverage", 0.8), drrej.ThresholdOptions(by="prediction")
    rejector = drrej.threshold(source(path), make_rejector(source(path)), rule, by_prediction)
    named = source(path, classes=names)
    assert write_mask(named, rejector, tmp_path / "m.parquet")["prediction"][0] == names[logits[0].argmax()]
    wanted = drrej.EvaluateOptions(by="prediction", pictures=True)
    report, plain = drrej.evaluate(named, rejector, (), wanted), drrej.evaluate(source(path), rejector, (), wanted)
    assert [row["class"] for row in report["per_class"]] == [row["group"] for row in report["per_group"]] == list(names)
    assert [row["class"] for row in plain["per_class"]] == [0, 1, 2]
    assert report["coverage"] == plain["coverage"]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("ant", "cat", "bee"), "`classes` calls class 1 'cat' but the rejector calls it 'bee'"),
        (("ant", "bee"), "`classes` names 2 classes but the rejector has names for 3"),
    ],
)
def test_names_that_contradict_the_rejector_are_refused(tmp_path: Path, names: tuple[str, ...], said: str) -> None:
    path = write_dump(tmp_path / "d.parquet", *make_model(300, 3, 5))
    rejector = make_rejector(source(path, classes=("ant", "bee", "cat")))
    with pytest.raises(OptionError, match=said):
        drrej.evaluate(source(path, classes=names), rejector)
