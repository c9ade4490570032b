"""The paper's datasets: reading, folds, label noise, scaling.

Each dataset is read from a file of arrays (`har.npz`) or from its publisher's own files, unpacked in a directory.
"""

import gzip
import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]

FOLDS = 5
VALIDATION_SHARE = 0.2
SMALL = "_small"
SPLIT_SEED, NOISE_SEED = 0, 1


class DataMissingError(Exception):
    """A dataset is not where it was looked for."""


@dataclass(frozen=True)
class Dataset:
    """All rows of a dataset, features as published."""

    name: str
    features: npt.NDArray[np.generic]
    labels: Ints
    classes: int


@dataclass(frozen=True)
class Fold:
    """Row numbers of one fold, ascending within each part."""

    train: Ints
    val: Ints
    test: Ints


def split(rows: int, fold: int, validation: float = VALIDATION_SHARE) -> Fold:
    """The `fold`-th (from 1) of `FOLDS` shuffled folds is the test part; a share of the others is validation."""
    shuffled = np.random.default_rng(SPLIT_SEED).permutation(rows)
    folds = np.array_split(shuffled, FOLDS)
    test = folds.pop(fold - 1)
    rest = np.concatenate(folds)
    val_rows = round(validation * len(rest))
    return Fold(np.sort(rest[val_rows:]), np.sort(rest[:val_rows]), np.sort(test))


def flip(labels: Ints, classes: int, rate: float, fold: int = 1) -> Ints:
    """Replace a share of the labels, `rate`, by another class, each other class as likely."""
    rng = np.random.default_rng(fold_seed(NOISE_SEED, fold))
    flipped = rng.choice(len(labels), size=round(rate * len(labels)), replace=False)
    noisy = labels.copy()
    noisy[flipped] = (labels[flipped] + rng.integers(1, classes, size=len(flipped))) % classes
    return noisy


def fold_seed(seed: int, fold: int) -> int:
    """A seed of its own for each fold; the first keeps the seed itself."""
    return seed + 1000 * (fold - 1)


def standardised(features: npt.NDArray[np.generic], train: Ints) -> Floats:
    """Mean 0 and standard deviation 1 on the training rows, column by column."""
    mean = features[train].mean(axis=0, dtype=np.float64)
    std = features[train].std(axis=0, dtype=np.float64)
    return ((features - mean) / np.where(std > 0, std, 1)).astype(np.float32)


def load(name: str, data: Path) -> Dataset:
    """Read a dataset from the directory `data`: `NAME.npz`, else the publisher's files in `data` or `data/NAME`.

    `har_small` has the rows of `har`, for the study of smaller networks.
    """
    file = name.removesuffix(SMALL)
    read, classes = READERS[file]
    features, labels = _arrays(data, file, read)
    names, codes = np.unique(labels, return_inverse=True)  # UCI counts classes from 1
    if len(names) != classes:
        raise DataMissingError(f"{data}: {name} has labels of {len(names)} classes, expected {classes}")
    return Dataset(name, features, codes.astype(np.int64), classes)


Arrays = tuple[npt.NDArray[np.generic], npt.NDArray[np.generic]]


def _arrays(data: Path, name: str, read: Callable[[Path], Arrays]) -> Arrays:
    packed = data if data.is_file() else data / f"{name}.npz"
    if packed.is_file():
        with np.load(packed) as arrays:
            return arrays["X"], arrays["y"]
    for folder in (data / name, data):
        try:
            return read(folder)
        except FileNotFoundError:
            continue
    raise DataMissingError(f"data not available: no {name}.npz and no {name} files in {data}")


def _read_har(folder: Path) -> Arrays:
    """UCI's `train/X_train.txt`, `train/y_train.txt` and the same for `test`."""
    parts = [(folder / part / f"X_{part}.txt", folder / part / f"y_{part}.txt") for part in ("train", "test")]
    features = [np.loadtxt(x, dtype=np.float32) for x, _ in parts]
    return np.concatenate(features), np.concatenate([np.loadtxt(y, dtype=np.int64) for _, y in parts])


def _read_gas_drift(folder: Path) -> Arrays:
    """UCI's `batch1.dat` … `batch10.dat`: a class, then `index:value` pairs; older copies say `class;concentration`."""
    paths = sorted(folder.glob("batch*.dat"), key=lambda path: int(path.stem.removeprefix("batch")))
    if not paths:
        raise FileNotFoundError(folder)
    lines = [line.split() for path in paths for line in path.read_text().splitlines() if line.strip()]
    features = np.array([[float(pair.partition(":")[2]) for pair in line[1:]] for line in lines], dtype=np.float32)
    return features, np.array([int(line[0].partition(";")[0]) for line in lines])


def _read_mnist(folder: Path) -> Arrays:
    """The four idx files, packed with gzip or not."""
    images = [_read_idx(folder, f"{part}-images-idx3-ubyte") for part in ("train", "t10k")]
    labels = [_read_idx(folder, f"{part}-labels-idx1-ubyte") for part in ("train", "t10k")]
    return np.concatenate(images), np.concatenate(labels)


def _read_idx(folder: Path, name: str) -> npt.NDArray[np.uint8]:
    packed = folder / f"{name}.gz"
    raw = gzip.decompress(packed.read_bytes()) if packed.is_file() else (folder / name).read_bytes()
    dimensions = raw[3]
    shape = np.frombuffer(raw, dtype=">u4", count=dimensions, offset=4)
    return np.frombuffer(raw, dtype=np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def _read_cifar10(folder: Path) -> Arrays:
    """`cifar10_jpeg.parquet`: the columns `label` and `jpeg`, 32 x 32 images in colour; all 60,000, train then test."""
    from PIL import Image  # an extra

    table = pq.read_table(folder / "cifar10_jpeg.parquet", columns=["label", "jpeg"])
    images = [np.asarray(Image.open(io.BytesIO(jpeg.as_py())).convert("RGB")) for jpeg in table["jpeg"]]
    return np.stack(images), table["label"].to_numpy()


READERS: dict[str, tuple[Callable[[Path], Arrays], int]] = {
    "har": (_read_har, 6),
    "gas_drift": (_read_gas_drift, 6),
    "mnist": (_read_mnist, 10),
    "cifar10": (_read_cifar10, 10),
}
