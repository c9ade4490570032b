"""The paper's experiments: reading the datasets' own files, folds, label noise, scaling."""

import gzip
import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.paper.data import DataMissingError, flip, load, split, standardised


def test_har_is_read_from_the_files_of_uci(tmp_path):
    folder = tmp_path / "har"
    for part, offset in (("train", 0), ("test", 6)):
        (folder / part).mkdir(parents=True)
        lines = "\n".join(f"  {offset + row}.5e+000 -1.0e+000" for row in range(6))
        (folder / part / f"X_{part}.txt").write_text(lines + "\n")
        (folder / part / f"y_{part}.txt").write_text("".join(f"{row % 6 + 1}\n" for row in range(6)))
    dataset = load("har", tmp_path)
    assert load("har_small", tmp_path).labels.tolist() == dataset.labels.tolist()
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


def test_a_dataset_that_is_not_there_is_said_not_to_be(tmp_path):
    with pytest.raises(DataMissingError, match="data not available: no mnist"):
        load("mnist", tmp_path)


def test_folds_cover_every_row_once_and_parts_do_not_overlap():
    rows = 103
    tests = [split(rows, fold).test for fold in range(1, 6)]
    assert sorted(np.concatenate(tests).tolist()) == list(range(rows))
    first = split(1000, 1, validation=0.1)
    assert [len(part) for part in (first.val, first.test, first.train)] == [80, 200, 720]
    for fold in range(1, 6):
        parts = split(rows, fold)
        assert sorted(np.concatenate([parts.train, parts.val, parts.test]).tolist()) == list(range(rows))


def test_a_quarter_of_the_labels_is_flipped_to_each_other_class_alike():
    labels = np.repeat(np.arange(6), 4000)
    noisy = flip(labels, 6, 0.25)
    assert np.sum(noisy != labels) == 6000
    shifts = np.bincount((noisy - labels) % 6, minlength=6)[1:]
    assert np.all(np.abs(shifts - 1200) < 5 * np.sqrt(1200))
    assert not np.array_equal(noisy, flip(labels, 6, 0.25, fold=2))
    assert np.sum(flip(labels, 6, 0.4) != labels) == 9600


def test_a_constant_feature_is_not_divided_by_zero():
    features = np.array([[1.0, 5.0], [3.0, 5.0], [100.0, 7.0]])
    scaled = standardised(features, np.array([0, 1]))
    assert scaled.tolist() == [[-1.0, 0.0], [1.0, 0.0], [98.0, 2.0]]
