"""The paper's experiments: `python -m benchmarks.paper one har --data DATA` repeats a fold of HAR in about a minute."""

import argparse
import dataclasses
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.pages import table as markdown_table
from benchmarks.paper.data import FOLDS, READERS, SMALL, DataMissingError, load
from benchmarks.paper.judge import METHODS
from benchmarks.paper.tables import HERE, draw, judged, made, markdown, show, summary, write

if TYPE_CHECKING:
    from benchmarks.paper.networks import Settings
    from benchmarks.paper.training import Task

DATASETS = (*READERS, f"har{SMALL}", f"gas_drift{SMALL}")
COSTS = 9
DOCS = HERE.parents[1] / "docs"


def one(args: argparse.Namespace) -> None:
    """Train one fold without noise, judge it, and print it beside the paper's figures."""
    start = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        args.work, args.noise, args.folds = Path(folder), [0.0], [1]
        train(args)
        print(markdown(judged(args.work, None, args.work / "none.json")))
    print(f"\n{time.process_time() - start:.0f} seconds of processor time")


def train(args: argparse.Namespace) -> None:
    """Train base networks and write their dumps."""
    from benchmarks.paper.training import train_base

    for task, settings in _work_of(args):
        record = train_base(task, settings, args.work)
        shown = ", ".join(f"{name} {value:.4f}" for name, value in record["accuracy"].items())
        print(f"{task.folder(Path())}: accuracy {shown}; {record['seconds']} s", flush=True)


def baselines(args: argparse.Namespace) -> None:
    """Train the baselines, one network per cost, and write their dumps; costs that have dumps are left alone."""
    from benchmarks.paper.baselines import costs, train_baseline

    for task, settings in _work_of(args):
        for name in args.methods:
            for cost in args.costs or costs(COSTS):
                record = train_baseline(task, name, cost, settings, args.work)
                if record:
                    where = f"{task.folder(Path())}, {name} at cost {cost:.2f}"
                    print(f"{where}: coverage {record['coverage']:.4f}; {record['seconds']} s", flush=True)


def table(args: argparse.Namespace) -> None:
    """Judge every trained fold, and MedMNIST's outputs in DATA; write tables and figure, ours beside the paper's."""
    rows = judged(args.work, args.data, args.out / "results.json")
    write(rows, args.out / "results.json")
    ours = args.out == HERE / "results"
    draw(rows, DOCS / "figures" / "paper.svg" if ours else args.out / "paper.svg")
    if ours:
        show(HERE / "README.md", "\n".join([*made(rows), "", markdown(rows)]))
        show(DOCS / "paper.md", summary(rows))


def cascade(args: argparse.Namespace) -> None:
    """Train a small network to stand before the fold's own, and print what the two save together."""
    from benchmarks.paper.cascade import HEAD, savings

    for task, _ in _work_of(args):
        print("\n".join(markdown_table(HEAD, savings(task, args.work))), flush=True)


def _work_of(args: argparse.Namespace) -> "list[tuple[Task, Settings]]":
    from benchmarks.paper.networks import EXPERIMENTS
    from benchmarks.paper.training import Task, be_reproducible

    be_reproducible()
    dataset = load(args.dataset, args.data)
    settings = EXPERIMENTS[args.dataset].settings
    if args.epochs is not None:  # the same share of them on small images
        small = round(settings.small * args.epochs / settings.epochs)
        settings = dataclasses.replace(settings, epochs=args.epochs, small=small)
    if args.learning_rate is not None:
        settings = dataclasses.replace(settings, learning_rate=args.learning_rate)
    return [(Task(dataset, noise, fold), settings) for fold in args.folds for noise in args.noise]


def parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    main = argparse.ArgumentParser(prog="python -m benchmarks.paper", description=__doc__)
    commands = main.add_subparsers(required=True)
    for command in (one, train, baselines, cascade, table):
        own = commands.add_parser(command.__name__, help=command.__doc__)
        own.set_defaults(command=command)
        home = os.environ.get("DRREJ_DATA")
        where = "directory with DATASET.npz or the publisher's files [$DRREJ_DATA]"
        needed = home is None and command is not table
        own.add_argument("--data", type=Path, required=needed, default=home and Path(home), help=where)
        if command is not one:
            own.add_argument("--work", type=Path, required=True, help="directory for dumps, outside the repository")
        if command is table:
            own.add_argument("--out", type=Path, default=HERE / "results", help="where results go [the repository's]")
            continue
        own.add_argument("dataset", choices=DATASETS)
        own.add_argument("--epochs", type=int, help="instead of those of the experiment")
        own.add_argument("--learning-rate", type=float)
        if command is not one:
            own.add_argument("--noise", nargs="+", type=float, default=[0.0, 0.25], help="shares of flipped labels")
            own.add_argument("--folds", nargs="+", type=int, default=list(range(1, FOLDS + 1)), metavar="N")
        if command is baselines:
            own.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
            own.add_argument("--costs", nargs="+", type=float, metavar="C", help=f"[{COSTS} between 0 and 0.5]")
    return main


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
