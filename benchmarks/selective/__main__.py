"""Which score orders rows best, and which rule certifies most: `python -m benchmarks.selective COMMAND --help`.

`judge` needs DATA (`har.npz`, `cifar10_densenet40` and so on: what is missing is left out) and keeps what models said
in WORK; `write` makes docs/selective.md and its figure of results/results.json alone.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from benchmarks.pages import rounded

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs"


def judge(args: argparse.Namespace) -> None:
    """Judge the dumps that the results do not have yet, those named by --only again; print and keep their figures."""
    from benchmarks.selective.dumps import all_dumps
    from benchmarks.selective.judge import judge as figures_of
    from benchmarks.selective.page import every, experiments

    results: dict[str, Any] = json.loads(args.results.read_text()) if args.results.exists() else {}
    judged: dict[str, Any] = {}
    for dump in all_dumps(args.data, args.work, args.paper, args.only):
        if dump.name in results and not (args.only or args.again):
            continue
        sys.stderr.write(f"{dump.name}\n")
        judged[dump.name] = {"experiment": dump.experiment, **rounded(figures_of(dump), 7)}
        results |= judged
        args.results.parent.mkdir(parents=True, exist_ok=True)
        lines = [f"{json.dumps(name)}: {json.dumps(figures)}" for name, figures in sorted(results.items())]
        args.results.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    shown = experiments(judged) | experiments(judged, shifted=True)
    sys.stdout.write("\n".join(every(shown)) + "\n" if shown else "nothing new to judge\n")


def write(args: argparse.Namespace) -> None:
    """Make the page and its figure."""
    from benchmarks.selective.page import draw, page

    results = json.loads(args.results.read_text())
    (args.docs / "selective.md").write_text(page(results))
    draw(results, args.docs / "figures" / "selective.svg")


def few(args: argparse.Namespace) -> None:
    """`auto` fitted on few rows and with wrong labels: results/few.md."""
    from benchmarks.selective.few import tables

    (HERE / "results" / "few.md").write_text(tables(args.data, args.work, args.trials))


def reuse(args: argparse.Namespace) -> None:
    """How likely rows that are used again are noticed, and fresh rows refused: results/reuse.md."""
    from benchmarks.selective.reuse import tables

    (HERE / "results" / "reuse.md").write_text(tables(args.data, args.work))


def certified(args: argparse.Namespace) -> None:
    """Rules of others on worlds with a known truth, broken promises counted: prints tables."""
    from benchmarks.selective.worlds import tables

    sys.stdout.write(tables(args.trials))


def splits(args: argparse.Namespace) -> None:
    """How often test rows contradict `run --accuracy 0.98` on ten splits of each dump: prints a table."""
    from benchmarks.selective.splits import tables

    sys.stdout.write(tables(args.data))


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.selective", description=__doc__)
    commands = parser.add_subparsers(required=True)
    data = Path(os.environ.get("DRREJ_DATA", "data"))
    for command in (judge, write, few, certified, splits, reuse):
        own = commands.add_parser(command.__name__, help=command.__doc__)
        own.set_defaults(command=command)
        own.add_argument("--data", type=Path, default=data, help="directory of the data sets [$DRREJ_DATA or data]")
        own.add_argument("--work", type=Path, default=Path("out/selective"), help="models' outputs are kept here")
        if command in (few, certified):
            own.add_argument("--trials", type=int, default=10 if command is few else 200)
        if command in (judge, write):
            own.add_argument("--results", type=Path, default=HERE / "results" / "results.json")
            own.add_argument("--docs", type=Path, default=DOCS, help="where the page goes")
            own.add_argument("--paper", type=Path, help="the --work of benchmarks.paper, for the folds it has left")
            own.add_argument("--only", default="", help="dumps whose name has this in it, judged before or not")
            own.add_argument("--again", action="store_true", help="judge dumps again that were judged before")
    args = parser.parse_args()
    args.command(args)


if __name__ == "__main__":
    main()
