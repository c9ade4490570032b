"""One dump divided by content: the same parts in any order and layout, strata and groups."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import LAYOUTS, make_model, source, write_dump, write_mask
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import drrej
from drrej.errors import DumpError, OptionError
from drrej.pipeline.split import SplitOptions, find_limits, seeded, split

ROWS = 900


@pytest.fixture(scope="module")
def model() -> tuple[np.ndarray, np.ndarray]:
    return make_model(ROWS, 5, seed=4)


@pytest.fixture(scope="module")
def rejector(tmp_path_factory: pytest.TempPathFactory, model: tuple[np.ndarray, np.ndarray]) -> drrej.Rejector:
    path = write_dump(tmp_path_factory.mktemp("split") / "d.parquet", *model)
    return drrej.threshold(source(path), drrej.fit(source(path), drrej.calibrate(source(path))), drrej.Rule("tau", 1.0))


def members(parts: list[drrej.Source], rejector: drrej.Rejector, folder: Path) -> list[set[int]]:
    """The ids of the rows of each part, as its mask has them."""
    return [set(write_mask(part, rejector, folder / "part.parquet")["id"].tolist()) for part in parts]


def test_the_parts_are_the_dump(tmp_path: Path, model: tuple[np.ndarray, np.ndarray], rejector: drrej.Rejector) -> None:
    """Every row is in one part, and its mask there has the bits of the mask of the whole dump."""
    path = write_dump(tmp_path / "d.parquet", *model, row_group=100)
    whole = write_mask(source(path), rejector, tmp_path / "whole.parquet")
    parts = split(source(path), SplitOptions((40, 20, 20, 20), plain=2))
    masks = [write_mask(part, rejector, tmp_path / "part.parquet") for part in parts]
    assert [len(mask["id"]) for mask in masks] == [360, 180, 180, 180]
    ids = np.concatenate([mask["id"] for mask in masks])
    order = np.argsort(ids)
    for name in whole:
        np.testing.assert_array_equal(np.concatenate([mask[name] for mask in masks])[order], whole[name])
    for part, mask in zip(parts, masks, strict=True):
        report = drrej.evaluate(part, rejector)
        assert (report.rows, report.coverage.accepted) == (len(mask["id"]), int(np.count_nonzero(~mask["rejected"])))
        assert drrej.calibrate(part).need_calibration().rows == len(mask["id"])


@pytest.mark.parametrize(("layout", "group"), list(zip(LAYOUTS, [None, "who"] * 2, strict=True)))
def test_the_same_parts_in_any_order_and_layout(
    tmp_path: Path, model: tuple[np.ndarray, np.ndarray], rejector: drrej.Rejector, layout: str, group: str | None
) -> None:
    logits, labels = model
    who = np.arange(ROWS) // 7
    options = SplitOptions(seed=3, group=group)
    path = write_dump(tmp_path / "d.parquet", logits, labels, extra={"who": who})
    expected = members(split(source(path), options), rejector, tmp_path)
    order = np.random.default_rng(0).permutation(ROWS)
    pieces = np.array_split(order, 3)
    for number, rows in enumerate(pieces):
        wide = logits[rows].astype(np.float64)
        extra = {"id": rows, "who": who[rows].astype(str)}
        write_dump(tmp_path / f"part{number}.parquet", wide, labels[rows], layout, 64, extra)
    parts = [str(tmp_path / f"part{number}.parquet") for number in range(3)]
    names = {"logits": "logit_*"} if layout == "wide" else {}
    other = drrej.fit(source(*parts, **names), drrej.calibrate(source(*parts, **names)))
    other = drrej.threshold(source(*parts, **names), other, drrej.Rule("tau", 1.0))
    assert members(split(source(*parts, jobs=2, **names), options), other, tmp_path) == expected


def test_labels_of_another_file_divide_alike(
    tmp_path: Path, model: tuple[np.ndarray, np.ndarray], rejector: drrej.Rejector
) -> None:
    logits, labels = model
    inside = write_dump(tmp_path / "d.parquet", logits, labels)
    bare = write_dump(tmp_path / "bare.parquet", logits)
    pq.write_table(pa.table({"id": np.arange(ROWS)[::-1], "label": labels[::-1]}), tmp_path / "truth.parquet")
    joined = source(bare, labels_from=str(tmp_path / "truth.parquet"), join_on="id")
    one, other = (members(split(dump), rejector, tmp_path) for dump in (source(inside), joined))
    assert one == other
    pq.write_table(pa.table({"id": np.arange(600), "label": labels[:600]}), tmp_path / "some.parquet")
    some = source(bare, labels_from=str(tmp_path / "some.parquet"), join_on="id", on_missing_label="skip")
    assert set.union(*members(split(some), rejector, tmp_path)) == set(range(600))


def test_another_seed_is_another_split(
    tmp_path: Path, model: tuple[np.ndarray, np.ndarray], rejector: drrej.Rejector
) -> None:
    path = write_dump(tmp_path / "d.parquet", *model)
    one, other = (members(split(source(path), SplitOptions(seed=seed)), rejector, tmp_path) for seed in (1, 2))
    for mine, yours in zip(one, other, strict=True):
        assert 0.1 < len(mine & yours) / len(mine) < 0.6


def test_a_part_goes_to_workers(tmp_path: Path, model: tuple[np.ndarray, np.ndarray]) -> None:
    path = write_dump(tmp_path / "d.parquet", *model)
    part = split(source(path))[2].options
    again = pickle.loads(pickle.dumps(part))
    one, other = (drrej.calibrate(drrej.Source(path, options)) for options in (part, again))
    assert one.to_json() == other.to_json()
    with pytest.raises(OptionError, match="a part of a dump already"):
        split(drrej.Source(path, part))


# Limits


@given(
    st.lists(st.integers(0, 4), min_size=40, max_size=300),
    st.lists(st.integers(1, 9), min_size=2, max_size=4),
    st.integers(0, 5),
)
def test_every_label_is_divided_alike(labels: list[int], shares: list[int], seed: int) -> None:
    """The plain part is the rows of the smallest keys; of the rest each label has its share within a row."""
    strata = np.array(labels)
    keys = seeded(np.arange(strata.size, dtype=np.uint64), seed)
    plain = len(shares) - 1
    parts = find_limits(keys, strata, shares, plain, seed).part_of(keys, strata)
    wanted = min(max(round(strata.size * shares[plain] / sum(shares)), 1), strata.size - plain)
    assert abs(np.count_nonzero(parts == plain) - wanted) <= 1
    assert set(np.flatnonzero(parts == plain)) == set(np.argsort(keys)[: np.count_nonzero(parts == plain)])
    rest = parts != plain
    for number in range(plain):
        share = shares[number] / sum(shares[:plain])
        for inside in (rest, *(rest & (strata == label) for label in range(5))):
            assert abs(np.count_nonzero(inside & (parts == number)) - share * inside.sum()) < 2


def test_rare_labels_do_not_all_go_to_one_part() -> None:
    """A thousand labels with a row each, which a rounding of each alone would send to the same part."""
    labels = np.arange(1000)
    keys = seeded(np.arange(1000, dtype=np.uint64), 0)
    parts = find_limits(keys, labels, (40, 30, 30), 1).part_of(keys, labels)
    assert np.abs(np.bincount(parts) - [400, 300, 300]).max() <= 1


def test_the_plain_part_is_a_simple_random_sample() -> None:
    """Its number of rows of a label varies as drawing without replacement says; that of another part does not."""
    labels = np.arange(400) % 4 == 0
    drawn, stratified = [], []
    for seed in range(600):
        keys = seeded(np.arange(400, dtype=np.uint64), seed)
        parts = find_limits(keys, labels.astype(np.int64), (40, 30, 30), 1, seed).part_of(keys, labels.astype(np.int64))
        drawn.append(np.count_nonzero(labels & (parts == 1)))
        stratified.append(np.count_nonzero(labels & (parts == 2)))
    expected = stats.hypergeom(400, 100, 120)
    assert np.mean(drawn) == pytest.approx(expected.mean(), abs=4 * expected.std() / np.sqrt(600))
    assert np.var(drawn) == pytest.approx(expected.var(), rel=0.25)
    assert np.var(stratified) < 0.6 * np.var(drawn)


def test_rows_that_are_equal_stay_together(tmp_path: Path) -> None:
    logits, labels = make_model(60, 3, seed=1)
    again = np.repeat(logits, 10, axis=0)
    path = write_dump(tmp_path / "d.parquet", again, np.repeat(labels, 10))
    first, choose, test = split(source(path))
    fitted = drrej.fit(first, drrej.calibrate(first))
    drrej.threshold(choose, fitted, drrej.Rule("coverage", 0.5, 0.9))  # fresh, or it would be refused
    assert all(part.options.split.rows % 10 == 0 for part in (first, choose, test) if part.options.split)


def test_groups_stay_together_and_fill_every_part(tmp_path: Path, rejector: drrej.Rejector) -> None:
    logits, labels = make_model(ROWS, 5, seed=4)
    who = np.array([f"p{number}" for number in np.arange(ROWS) % 5])
    path = write_dump(tmp_path / "d.parquet", logits, labels, extra={"who": who})
    found = members(split(source(path), SplitOptions((90, 5, 5), group="who")), rejector, tmp_path)
    seen = [set(who[list(ids)]) for ids in found]
    assert sorted(len(groups) for groups in seen) == [1, 1, 3]
    assert sum(len(groups) for groups in seen) == len(set.union(*seen)) == 5
    few = write_dump(tmp_path / "few.parquet", logits, labels, extra={"who": np.where(np.arange(ROWS) % 2, "a", "b")})
    with pytest.raises(DumpError, match="there are 2 different rows or groups, too few to divide into 3 parts"):
        split(source(few), SplitOptions(group="who"))
    holes = write_dump(tmp_path / "holes.parquet", logits, labels, extra={"who": pa.array([None, *who[1:]])})
    with pytest.raises(DumpError, match=r"column 'who': 1 row has no group \(null\)"):
        split(source(holes), SplitOptions(group="who"))


def test_groups_are_the_same_as_numbers_and_as_text(tmp_path: Path, rejector: drrej.Rejector) -> None:
    logits, labels = make_model(ROWS, 5, seed=4)
    who = np.arange(ROWS) // 9
    kinds = [who, who.astype(float), who.astype(str), pa.array(who.astype(str)).dictionary_encode()]
    found = []
    for kind in kinds:
        path = write_dump(tmp_path / "d.parquet", logits, labels, extra={"who": kind})
        found.append(members(split(source(path), SplitOptions(group="who")), rejector, tmp_path))
    assert all(parts == found[0] for parts in found)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"shares": (50,)}, "`split=50`"),
        ({"shares": (50, 0, 50)}, "numbers above 0"),
        ({"shares": (50, float("nan"), 50)}, "numbers above 0"),
        ({"plain": 3}, "`plain=3`"),
        ({"seed": -1}, "`seed=-1`"),
    ],
)
def test_splits_that_make_no_sense(words: dict, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        SplitOptions(**words)


def test_too_few_rows(tmp_path: Path) -> None:
    path = write_dump(tmp_path / "d.parquet", *make_model(2, 3, seed=1))
    with pytest.raises(DumpError, match="too few to divide into 3 parts"):
        split(source(path))
