"""The paper's experiments: reading the datasets' own files, folds, label noise, and which point serves a target."""

import gzip
import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.paper.__main__ import main
from benchmarks.paper.data import QUALITY, DataMissingError, flip, load, split, standardised
from benchmarks.paper.table import Cell, build, markdown, nearest, next_above, read_published


def test_har_is_read_from_the_files_of_uci(tmp_path):
    folder = tmp_path / "har"
    for part, offset in (("train", 0), ("test", 6)):
        (folder / part).mkdir(parents=True)
        lines = "\n".join(f"  {offset + row}.5e+000 -1.0e+000" for row in range(6))
        (folder / part / f"X_{part}.txt").write_text(lines + "\n")
        (folder / part / f"y_{part}.txt").write_text("".join(f"{row % 6 + 1}\n" for row in range(6)))
    dataset = load("har", tmp_path)
    assert dataset.features.tolist() == [[row + 0.5, -1.0] for row in range(12)]
    assert dataset.labels.tolist() == [*range(6), *range(6)]


def test_gas_drift_is_read_from_the_files_of_uci_in_the_order_of_batches(tmp_path):
    for batch in (1, 2, 10):
        lines = [f"{label};{10.0 * label} 1:{batch}.0 2:{label}.5" for label in range(1, 7)]
        (tmp_path / f"batch{batch}.dat").write_text("\n".join(lines) + "\n")
    dataset = load("gas_drift", tmp_path)
    assert dataset.features[:, 0].tolist() == [1.0] * 6 + [2.0] * 6 + [10.0] * 6
    assert dataset.labels.tolist() == [*range(6)] * 3


@pytest.mark.parametrize("packed", [True, False])
def test_mnist_is_read_from_idx_files(tmp_path, packed):
    images = np.arange(10 * 28 * 28, dtype=np.uint32).astype(np.uint8).reshape(10, 28, 28)
    for part in ("train", "t10k"):
        for name, values in ((f"{part}-images-idx3-ubyte", images), (f"{part}-labels-idx1-ubyte", np.arange(10))):
            head = bytes([0, 0, 8, values.ndim]) + np.array(values.shape, dtype=">u4").tobytes()
            raw = head + values.astype(np.uint8).tobytes()
            (tmp_path / (f"{name}.gz" if packed else name)).write_bytes(gzip.compress(raw) if packed else raw)
    dataset = load("mnist", tmp_path)
    assert np.array_equal(dataset.features, np.concatenate([images, images]))
    assert dataset.labels.tolist() == [*range(10), *range(10)]


def test_cifar10_is_read_from_a_table_of_jpegs(tmp_path):
    """Lossy, so that only images of one colour come back as they were."""
    image = pytest.importorskip("PIL.Image", reason="images are read with pillow: pip install 'drrej[paper]'")
    files = []
    for value in range(10):
        stream = io.BytesIO()
        image.fromarray(np.full((32, 32, 3), 20 * value, dtype=np.uint8)).save(stream, "JPEG")
        files.append(stream.getvalue())
    pq.write_table(pa.table({"label": [*range(10)], "jpeg": files}), tmp_path / "cifar10_jpeg.parquet")
    dataset = load("cifar10", tmp_path)
    assert dataset.features.shape == (10, 32, 32, 3)
    assert np.abs(dataset.features[:, 5, 7].astype(int) - 20 * np.arange(10)[:, None]).max() <= 1
    assert dataset.labels.tolist() == [*range(10)]


def test_one_more_jpeg_is_not_cut_into_the_same_blocks(tmp_path):
    """Of an image that was one already, the same JPEG loses next to nothing; ours loses as the first did."""
    image = pytest.importorskip("PIL.Image", reason="images are read with pillow: pip install 'drrej[paper]'")

    def plain(pixels):
        stream = io.BytesIO()
        image.fromarray(pixels).save(stream, "JPEG", quality=QUALITY, subsampling="4:2:0")
        return np.asarray(image.open(stream))

    rough = np.random.default_rng(0).integers(100, 150, (10, 8, 8, 3)).repeat(4, axis=1).repeat(4, axis=2)
    once = np.stack([plain(pixels) for pixels in rough.astype(np.uint8)])
    twice = np.stack([plain(pixels) for pixels in once])
    files = [_jpeg(image, pixels) for pixels in once]
    pq.write_table(pa.table({"label": [*range(10)], "jpeg": files}), tmp_path / "cifar10_jpeg.parquet")
    assert main(["recompress", "--data", str(tmp_path), "--out", str(tmp_path / "again")]) == 0
    found = load("cifar10", tmp_path / "again")
    assert found.labels.tolist() == [*range(10)]
    lost, same = (np.abs(other.astype(int) - once).mean() for other in (found.features, twice))
    assert found.features.shape == once.shape
    assert 3 * same < lost < 20


def _jpeg(image, pixels):
    stream = io.BytesIO()
    image.fromarray(pixels).save(stream, "JPEG", quality=100, subsampling="4:4:4")
    return stream.getvalue()


def test_medmnist_parts_are_joined(tmp_path):
    parts = {}
    for number, part in enumerate(("train", "val", "test")):
        parts[f"{part}_images"] = np.full((4, 28, 28), number, dtype=np.uint8)
        parts[f"{part}_labels"] = np.arange(4).reshape(4, 1)
    np.savez(tmp_path / "octmnist.npz", **parts)
    dataset = load("octmnist", tmp_path)
    assert dataset.features[:, 0, 0].tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert dataset.labels.tolist() == [*range(4)] * 3


def test_a_dataset_that_is_not_there_is_said_not_to_be(tmp_path):
    with pytest.raises(DataMissingError, match="data not available: no organsmnist"):
        load("organsmnist", tmp_path)


def test_folds_cover_every_row_once_and_parts_do_not_overlap():
    rows = 103
    tests = [split(rows, fold).test for fold in range(1, 6)]
    assert sorted(np.concatenate(tests).tolist()) == list(range(rows))
    assert [len(part) for part in split(1000, 1, validation=0.1).parts().values()] == [80, 200, 720]
    for fold in range(1, 6):
        parts = split(rows, fold)
        assert sorted(np.concatenate([parts.train, parts.val, parts.test]).tolist()) == list(range(rows))


def test_a_quarter_of_the_labels_is_flipped_to_each_other_class_alike():
    labels = np.repeat(np.arange(6), 4000)
    noisy = flip(labels, 6)
    assert np.sum(noisy != labels) == 6000
    shifts = np.bincount((noisy - labels) % 6, minlength=6)[1:]
    assert np.all(np.abs(shifts - 1200) < 5 * np.sqrt(1200))
    assert not np.array_equal(noisy, flip(labels, 6, fold=2))


def test_a_constant_feature_is_not_divided_by_zero():
    features = np.array([[1.0, 5.0], [3.0, 5.0], [100.0, 7.0]])
    scaled = standardised(features, np.array([0, 1]))
    assert scaled.tolist() == [[-1.0, 0.0], [1.0, 0.0], [98.0, 2.0]]


def cell(coverage):
    return Cell(99.0, None, coverage, None)


@pytest.mark.parametrize(
    ("coverages", "chosen"),
    [
        ([79.9, 80.1, 85.0], 80.1),  # at or above the target, though 79.9 is as near
        ([70.0, 89.9], 89.9),  # still within reach
        ([74.0, 92.0], 74.0),  # none within reach: the nearest
        ([60.0, 69.0], 69.0),
    ],
)
def test_the_point_that_serves_a_target(coverages, chosen):
    assert next_above([None, *map(cell, coverages)], 80).coverage == chosen


def test_the_cost_that_serves_a_target_is_the_nearest():
    assert nearest([None, cell(78.0), cell(83.0), cell(89.0)], 80).coverage == 78.0


def test_no_point_serves_a_target_when_there_is_none():
    assert nearest([None], 80) is None
    assert next_above([None], 80) is None


def fold_with_baseline(*points):
    """A fold of HAR with nothing but PredRej at some costs."""
    costs = [{"cost": cost, "coverage": coverage, "accuracy": 99.0} for cost, coverage in points]
    known = {"predrej": costs, "css": [], "defer": [], "gce": []}
    return {"dataset": "har", "noise": "clean", "training": None, "base": 98.0, "variants": {}, "baselines": known}


def test_the_table_says_where_no_cost_comes_near_a_target():
    folds = [
        fold_with_baseline((0.01, 85.0), (0.25, 96.0), (0.3, 97.0)),
        fold_with_baseline((0.01, 87.0), (0.25, 98.0)),
    ]
    text = markdown(build(folds, read_published()))
    assert "| HAR, clean | 2 | PredRej | 0.01 |" in text
    assert "| no: 2 costs give 86.0 to 97.0 % |" in text  # 80 %
    assert "[86.00 (1.41)] | +0.81 | yes |" in text  # 90 %


def test_a_table_without_folds_shows_the_paper_and_invents_nothing():
    rows = build([], read_published())
    assert all(entry["ours"] is None for row in rows for entry in row["cells"].values())
    text = markdown(rows)
    assert "| OctMNIST, clean | 0 | 91.93 (0.22) | KL | 97.08 (0.20) [80.94 (0.28)] | data not available |" in text
    assert json.loads(json.dumps(rows)) == rows
