"""The command line: `python -m benchmarks.paper train har --data DIR --work DIR`."""

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.paper.data import FOLDS, READERS, DataMissingError, load

if TYPE_CHECKING:
    from benchmarks.paper.networks import Settings
    from benchmarks.paper.train import Task

METHODS = ("predrej", "css", "defer", "gce")
PARTS = ("val", "test", "train")
VARIANTS = ("kl", "alpha3", "zero_one", "auto")
RESULTS = Path(__file__).parent / "results"


def train(args: argparse.Namespace) -> None:
    """Train base networks and write their dumps."""
    from benchmarks.paper.train import train_base

    for task, settings in _work_of(args):
        record = train_base(task, settings, args.work, args.parts)
        shown = ", ".join(f"{name} {value:.4f}" for name, value in record["accuracy"].items())
        print(f"{task.folder(args.work)}: accuracy {shown}; {record['seconds']} s", flush=True)


def baselines(args: argparse.Namespace) -> None:
    """Train the baselines, one network per cost, and write their dumps; costs that have dumps are left alone."""
    from benchmarks.paper.baselines import costs
    from benchmarks.paper.refine import Rival

    work, start = _work_of(args), costs(args.costs)
    for noise in args.noise:
        folds = [task for task, _ in work if task.noise == noise]
        for name in args.methods:
            rival = Rival(name, folds, work[0][1], args.work)
            for record in rival.refine(start) if args.refine else rival.train(start):
                where = f"{args.dataset} {noise} fold {record['fold']}, {name} at cost {record['cost']:.2f}"
                print(f"{where}: coverage {record['coverage']:.4f}; {record['seconds']} s", flush=True)


def table(args: argparse.Namespace) -> None:
    """Judge every trained fold with drrej and write the paper's tables, ours beside the paper's."""
    from benchmarks.paper import results

    results.write_tables(args.work, args.variants, args.out)


def equal(args: argparse.Namespace) -> None:
    """Compare with the paper at the paper's own coverages: threshold on test, on validation, and `auto`."""
    from benchmarks.paper import results

    results.write_equal(args.work, args.out)


def figures(args: argparse.Namespace) -> None:
    """Draw accuracy against coverage from the table's figures, and the sweeps over alpha and lambda."""
    from benchmarks.paper import results

    results.write_figures(args.work, args.out)


def cascade(args: argparse.Namespace) -> None:
    """Train a small network to stand before the fold's own, and print what the two save together."""
    from benchmarks.paper.cascade import savings, table

    for task, _ in _work_of(args):
        print(table(savings(task, args.work)), flush=True)


def recompress(args: argparse.Namespace) -> None:
    """Write CIFAR-10 as it is after one more JPEG, to be trained on: what the first has cost."""
    import numpy as np

    from benchmarks.paper.data import recompressed

    images = load("cifar10", args.data)
    args.out.mkdir(parents=True, exist_ok=True)
    np.savez(args.out / "cifar10.npz", X=recompressed(images.features), y=images.labels)


def _work_of(args: argparse.Namespace) -> "list[tuple[Task, Settings]]":
    from benchmarks.paper.networks import EXPERIMENTS
    from benchmarks.paper.train import tasks
    from benchmarks.paper.training import be_reproducible

    be_reproducible()
    dataset = load(args.dataset, args.data)
    settings = EXPERIMENTS[args.dataset].settings
    if args.epochs is not None:  # the same share of them on small images
        small = round(settings.small * args.epochs / settings.epochs)
        settings = dataclasses.replace(settings, epochs=args.epochs, small=small)
    if args.learning_rate is not None:
        settings = dataclasses.replace(settings, learning_rate=args.learning_rate)
    return [(task, settings) for task in tasks(dataset, args.noise, args.folds, args.rows)]


def parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    main = argparse.ArgumentParser(prog="python -m benchmarks.paper", description=__doc__)
    commands = main.add_subparsers(required=True)

    training = commands.add_parser("train", help=train.__doc__)
    training.set_defaults(command=train)
    training.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="dumps to write [all]")
    _add_training(training)

    rivals = commands.add_parser("baselines", help=baselines.__doc__)
    rivals.set_defaults(command=baselines)
    rivals.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    rivals.add_argument(
        "--costs", type=int, default=5, metavar="N", help="so many costs, equidistant; the paper has 49"
    )
    rivals.add_argument("--refine", action="store_true", help="then more, until each target of coverage is met")
    _add_training(rivals)

    tables = commands.add_parser("table", help=table.__doc__)
    tables.set_defaults(command=table)
    tables.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    _add_judging(tables)

    same = commands.add_parser("equal", help=equal.__doc__)
    same.set_defaults(command=equal)
    _add_judging(same)

    both = commands.add_parser("cascade", help=cascade.__doc__)
    both.set_defaults(command=cascade)
    _add_training(both)

    again = commands.add_parser("recompress", help=recompress.__doc__)
    again.set_defaults(command=recompress)
    again.add_argument("--data", type=Path, required=True, help="directory with cifar10_jpeg.parquet")
    again.add_argument("--out", type=Path, required=True, help="directory for cifar10.npz")

    pictures = commands.add_parser("figures", help=figures.__doc__)
    pictures.set_defaults(command=figures)
    _add_judging(pictures)
    return main


def _add_judging(command: argparse.ArgumentParser) -> None:
    command.add_argument("--work", type=Path, required=True, help="directory that the training commands filled")
    command.add_argument("--out", type=Path, default=RESULTS, help="where results go [beside this script]")


def _add_training(command: argparse.ArgumentParser) -> None:
    command.add_argument("dataset", choices=READERS)
    command.add_argument("--data", type=Path, required=True, help="directory with DATASET.npz or the original files")
    command.add_argument("--epochs", type=int, help="instead of those of the experiment")
    command.add_argument("--learning-rate", type=float)
    _add_selection(command)


def _add_selection(command: argparse.ArgumentParser) -> None:
    command.add_argument("--work", type=Path, required=True, help="directory for dumps, outside the repository")
    command.add_argument("--noise", nargs="+", choices=("clean", "noisy"), default=["clean", "noisy"])
    command.add_argument("--folds", nargs="+", type=int, default=list(range(1, FOLDS + 1)), metavar="N")
    command.add_argument("--rows", type=int, help="only the first rows, for a quick look")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command."""
    args = parser().parse_args(arguments)
    try:
        args.command(args)
    except DataMissingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
