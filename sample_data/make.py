"""Make the sample dumps: logits of a small network on human activity recognition (HAR).

The network and its training follow the experiments of the density-ratio rejection paper. It is
trained twice, on clean labels and with a quarter of the training labels flipped, on the same split
and from the same initial weights. Validation and test labels are clean in both.

    python sample_data/make.py path/to/har.npz
"""

import argparse
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import nn

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]

CLASSES = 6
FOLDS = 5
VALIDATION_SHARE = 0.2
NOISE_RATE = 0.25
HIDDEN = 64
EPOCHS = 40
BATCH = 64
LEARNING_RATE = 1e-4
WEIGHT_DECAY = 1e-4
SPLIT_SEED, NOISE_SEED, TRAINING_SEED = 0, 1, 2


def load(path: Path) -> tuple[FloatArray, IntArray]:
    """Features (rows, 561) and labels 0…5; UCI's own 1…6 are renumbered."""
    with np.load(path) as arrays:
        names, labels = np.unique(arrays["y"], return_inverse=True)
        if len(names) != CLASSES:
            raise SystemExit(f"{path}: y has {len(names)} classes, expected {CLASSES}")
        return arrays["X"].astype(np.float32), labels.astype(np.int64)


def split(rows: int) -> tuple[IntArray, IntArray, IntArray]:
    """Row numbers for training, validation and test; the test rows are the first fold."""
    shuffled = np.random.default_rng(SPLIT_SEED).permutation(rows)
    test, *others = np.array_split(shuffled, FOLDS)
    rest = np.concatenate(others)
    val_rows = round(VALIDATION_SHARE * len(rest))
    return np.sort(rest[val_rows:]), np.sort(rest[:val_rows]), np.sort(test)


def flip(labels: IntArray) -> IntArray:
    """Replace a share of the labels, `NOISE_RATE`, by another class, each other class as likely."""
    rng = np.random.default_rng(NOISE_SEED)
    flipped = rng.choice(len(labels), size=round(NOISE_RATE * len(labels)), replace=False)
    noisy = labels.copy()
    noisy[flipped] = (labels[flipped] + rng.integers(1, CLASSES, size=len(flipped))) % CLASSES
    return noisy


def train(features: torch.Tensor, labels: torch.Tensor) -> nn.Module:
    """Fit the paper's HAR network with the log-loss."""
    torch.manual_seed(TRAINING_SEED)
    model = nn.Sequential(
        nn.Linear(features.shape[1], HIDDEN),
        nn.Sigmoid(),
        nn.Linear(HIDDEN, HIDDEN),
        nn.BatchNorm1d(HIDDEN),
        nn.Sigmoid(),
        nn.Linear(HIDDEN, CLASSES),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    loss = nn.CrossEntropyLoss()
    for _ in range(EPOCHS):
        for batch in torch.split(torch.randperm(len(labels)), BATCH):
            optimizer.zero_grad()
            loss(model(features[batch]), labels[batch]).backward()
            optimizer.step()
    return model.eval()


def write_dump(path: Path, ids: IntArray, logits: FloatArray, labels: IntArray) -> None:
    """Write one parquet dump with the columns `id`, `logits` and `label`."""
    table = pa.table(
        {
            "id": ids,
            "logits": pa.FixedSizeListArray.from_arrays(pa.array(logits.ravel()), CLASSES),
            "label": labels,
        }
    )
    path.parent.mkdir(exist_ok=True)
    # A dictionary of logits would only add to the size: hardly two are equal.
    pq.write_table(table, path, compression="zstd", use_dictionary=["label"])


def main() -> None:
    """Train both models and write their validation and test dumps beside this script."""
    parser = argparse.ArgumentParser(description="Make the HAR sample dumps.")
    parser.add_argument("har", type=Path, help="har.npz with the arrays X (rows, 561) and y")
    args = parser.parse_args()

    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)  # the order of a sum, and so its last bits, depends on the threads

    features, labels = load(args.har)
    train_rows, val_rows, test_rows = split(len(labels))
    mean = features[train_rows].mean(axis=0, dtype=np.float64)
    std = features[train_rows].std(axis=0, dtype=np.float64)
    inputs = torch.from_numpy(((features - mean) / std).astype(np.float32))

    here = Path(__file__).resolve().parent
    clean = labels[train_rows]
    for folder, train_labels in ((here, clean), (here / "noisy", flip(clean))):
        model = train(inputs[train_rows], torch.from_numpy(train_labels))
        for name, rows in (("val", val_rows), ("test", test_rows)):
            with torch.inference_mode():
                logits = model(inputs[rows]).numpy()
            path = folder / f"{name}.parquet"
            write_dump(path, rows, logits, labels[rows])
            accuracy = np.mean(logits.argmax(axis=1) == labels[rows])
            print(f"{path.relative_to(here)}: {len(rows)} rows, accuracy {accuracy:.4f}")


if __name__ == "__main__":
    main()
