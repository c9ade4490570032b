"""Cascades on dumps: the step, and the command."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import fail, load_json, make_model, source, succeed, write_dump, write_mask

import drrej
from drrej.documents.document import schema_of
from drrej.documents.summaries import Cascade
from drrej.pipeline.cascade import CascadeOptions, Stage, cascade


@pytest.fixture
def dumps(tmp_path: Path) -> tuple[str, str]:
    """A large model and a noisier small one, the second with its rows in another order."""
    large, labels = make_model(1200, 4, seed=3)
    rng = np.random.default_rng(30)
    small = (large + rng.normal(0.0, 0.7 * large.std(), large.shape)).astype(np.float32)
    order = rng.permutation(1200)
    first = write_dump(tmp_path / "small.parquet", small, labels, row_group=500)
    second = write_dump(tmp_path / "large.parquet", large[order], labels[order])
    for path, keys in ((first, np.arange(1200)), (second, order)):
        table = pq.read_table(path)
        kept = table.drop_columns([name for name in ("id", "key") if name in table.column_names])
        pq.write_table(kept.append_column("key", pa.array(keys)), path)
    return first, second


def stages(dumps: tuple[str, str]) -> list[Stage]:
    return [Stage("small", source(dumps[0]), 1.0), Stage("large", source(dumps[1]), 10.0)]


def test_the_step_counts_what_the_rejectors_of_its_stages_do(dumps: tuple[str, str], tmp_path: Path) -> None:
    accuracy = large_accuracy(dumps) - 0.02
    found = cascade(stages(dumps), CascadeOptions(accuracy, "key"))
    report = found.report
    assert report.chosen.stages == ("small", "large")
    assert report.chosen.accuracy >= accuracy
    mask = write_mask(source(dumps[0]), found.rejectors["small"], tmp_path / "mask.parquet")
    routing = {name: np.array(column) for name, column in found.routing.to_pydict().items()}
    assert (routing["key"] == mask["key"]).all()
    assert ((routing["stage"] == "large") == mask["rejected"]).all()
    assert report.stages[1].reached == int(mask["rejected"].sum())
    large = {row["key"]: np.argmax(row["logits"]) for row in pq.read_table(dumps[1]).to_pylist()}
    answers = np.where(mask["rejected"], [large[key] for key in mask["key"]], mask["prediction"])
    assert (routing["prediction"] == answers).all()
    assert report.chosen.errors == int((answers != routing["label"]).sum())
    assert (routing["cost"] == np.where(mask["rejected"], 11.0, 1.0)).all()
    assert report.chosen.cost == pytest.approx(routing["cost"].mean())
    assert report.saved == pytest.approx(1 - report.chosen.cost / 10.0)
    assert type(report).from_json(report.to_json()) == report


def large_accuracy(dumps: tuple[str, str]) -> float:
    table = pq.read_table(dumps[1])
    return float((np.stack(table["logits"].to_pylist()).argmax(axis=1) == table["label"].to_numpy()).mean())


def test_certified_rows_are_fresh(dumps: tuple[str, str]) -> None:
    """The stages are calibrated on one half of the keys, and the report is about the other."""
    found = cascade(stages(dumps), CascadeOptions(large_accuracy(dumps) - 0.06, "key", confidence=0.8))
    report, keys = found.report, set(found.routing["key"].to_pylist())
    assert report.rows == len(keys) == 600
    assert report.design_rows == 600
    assert report.certified >= report.target
    small = found.rejectors["small"]
    assert small.need_calibration().rows == 600
    table = pq.read_table(dumps[0])
    other = table.filter(pa.array([key not in keys for key in table["key"].to_pylist()]))
    again = drrej.fit_rejector(
        np.stack(other["logits"].to_pylist()).astype(np.float32), other["label"].to_numpy(), coverage=0.5
    )
    assert small.need_calibration().temperature == again.calibration.temperature


def test_reviews_are_right_and_have_no_prediction(dumps: tuple[str, str]) -> None:
    found = cascade(stages(dumps), CascadeOptions(0.99, "key", review_cost=50.0))
    assert found.report.chosen.accuracy >= 0.99
    assert found.report.stages[-1].name == "review"
    routing = found.routing.to_pydict()
    reviewed = [stage == "review" for stage in routing["stage"]]
    assert sum(reviewed) == found.report.stages[-1].answered > 0
    assert [value is None for value in routing["prediction"]] == reviewed


def test_the_command(dumps: tuple[str, str], tmp_path: Path) -> None:
    given = ["--stage", f"small={dumps[0]}:1", "--stage", f"large={dumps[1]}:10", "--join-on", "key"]
    said = succeed("cascade", *given, "--accuracy", "0.5", "--confidence", "0.9", "-o", "out", cwd=tmp_path).decode()
    assert "certified on these rows, which nothing else has used" in said
    assert (tmp_path / "out" / "cascade.txt").read_text() == said
    assert sorted(path.name for path in (tmp_path / "out").iterdir())[:2] == ["cascade.json", "cascade.txt"]
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.validate(load_json(tmp_path / "out" / "cascade.json"), schema_of(Cascade))
    message = fail("cascade", *given, "--accuracy", "0.9999", "--confidence", "0.9", "-o", "new", code=1, cwd=tmp_path)
    assert "an accuracy of 0.9999 cannot be certified at confidence 0.9: the safest cascade has" in message
    assert not (tmp_path / "new").exists()


def test_labels_of_all_stages_may_be_in_one_file(dumps: tuple[str, str], tmp_path: Path) -> None:
    stage = ["--stage", "small=small.parquet:1", "--stage", "large=large.parquet:10", "--join-on", "key"]
    wanted = [*stage, "--accuracy", "0.5", "--confidence", "0.9"]
    expected = succeed("cascade", *wanted, cwd=tmp_path)
    pq.write_table(pq.read_table(dumps[1]).select(["key", "label"]), tmp_path / "labels.parquet")
    for path in dumps:
        pq.write_table(pq.read_table(path).drop_columns(["label"]), path, row_group_size=500)
    assert succeed("cascade", *wanted, "--labels-from", "labels.parquet", cwd=tmp_path) == expected
    pq.write_table(pq.read_table(tmp_path / "labels.parquet").slice(0, 900), tmp_path / "some.parquet")
    some = ["--labels-from", "some.parquet"]
    assert "some.parquet" in fail("cascade", *wanted, *some, cwd=tmp_path)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("--stage small=S:1", "a cascade needs two stages or more; give another --stage, or --review-cost"),
        ("--stage small=S:1 --stage small=L:2", "--stage small: the name occurs twice"),
        ("--stage small=S --stage large=L:2", "--stage small=S: write NAME=DUMP:COST"),
        ("--stage S:1 --stage large=L:2", "--stage S:1: write NAME=DUMP:COST"),
        ("--stage small=S:x --stage large=L:2", "write NAME=DUMP:COST"),
        ("--stage small=S:-1 --stage large=L:2", "--stage small: a cost of -1; it must be a number from 0 up"),
        ("--stage review=S:1 --stage large=L:2", "--stage review: a name has letters"),
        ("--stage ../x=S:1 --stage large=L:2", "--stage ../x: a name has letters"),
        ("--stage cascade=S:1 --stage large=L:2 -o out", "--stage cascade: the report has this name"),
        ("--stage small=S:1 --stage large=F:2", "--stage large: 1 of 1200 rows are not in it"),
        ("--stage small=F:1 --stage large=L:2", "rows are not among the"),
        ("--stage small=S:1 --stage large=D:2", "the key 0 occurs more than once; keys must be unique"),
        ("--stage small=S:1 --stage large=T:2", "have another label than in the dump"),
        ("--stage small=S:1 --stage large=L:2 --confidence 2", "--confidence 2: it must be above 0 and below 1"),
        ("--stage small=S:1 --stage large=L:2 --review-cost nan", "--review-cost: a cost of nan"),
        (" ".join(f"--stage s{n}=S:1" for n in range(5)), "a cascade has at most 4 stages"),
    ],
)
def test_what_does_not_go_together(dumps: tuple[str, str], tmp_path: Path, given: str, says: str) -> None:
    table = pq.read_table(dumps[1])
    pq.write_table(table.slice(1), tmp_path / "F")
    pq.write_table(pa.concat_tables([table, table.slice(0, 1)]).set_column(2, "key", key_column(table)), tmp_path / "D")
    turned = pa.array((table["label"].to_numpy() + 1) % 4)
    pq.write_table(table.set_column(table.column_names.index("label"), "label", turned), tmp_path / "T")
    (tmp_path / "S").write_bytes(Path(dumps[0]).read_bytes())
    (tmp_path / "L").write_bytes(Path(dumps[1]).read_bytes())
    words = given.split()
    assert says in fail("cascade", *words, "--join-on", "key", "--accuracy", "0.5", cwd=tmp_path)


def key_column(table: pa.Table) -> pa.Array:
    """The keys, then a second 0."""
    return pa.array([*table["key"].to_pylist(), 0])
