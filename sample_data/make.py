"""Make the sample dumps: logits of a small network on human activity recognition (HAR).

The network and its training are those of the paper's experiments, first fold. It is trained twice, on clean labels and
with a quarter of the training labels flipped, on the same split and from the same initial weights. Validation and test
labels are clean in both.

    python -m sample_data.make path/to/har.npz
"""

import argparse
from pathlib import Path

from benchmarks.paper.data import load
from benchmarks.paper.training import Task, accuracy, be_reproducible, fit_base, outputs_of, write_dump


def main() -> None:
    """Train both models and write their validation and test dumps beside this script."""
    parser = argparse.ArgumentParser(description="Make the HAR sample dumps.")
    parser.add_argument("har", type=Path, help="har.npz with the arrays X (rows, 561) and y")
    args = parser.parse_args()

    be_reproducible()
    dataset = load("har", args.har)
    here = Path(__file__).resolve().parent
    for noise, folder in ((0.0, here), (0.25, here / "noisy")):
        task = Task(dataset, noise, fold=1)
        inputs, rows = task.inputs(), task.rows()
        model = fit_base(task, task.experiment.settings, inputs).model
        for name, part in (("val", rows.val), ("test", rows.test)):
            logits, labels = outputs_of(model, inputs[part]), dataset.labels[part]
            path = folder / f"{name}.parquet"
            write_dump(path, part, logits, labels)
            print(f"{path.relative_to(here)}: {len(part)} rows, accuracy {accuracy(logits, labels):.4f}")


if __name__ == "__main__":
    main()
