"""The command line: `python -m benchmarks.selective judge --data DATA --work WORK`, then `write`.

`train` makes perceptrons in WORK/networks (extra `paper`); `judge` makes results/results.json of them, of
scikit-learn's models, of the dumps in DATA and of those that `python -m benchmarks.paper` has left in PAPER; `write`
makes the page and the figure of it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.selective.dumps import Dump

KINDS = ("shared", "networks", "sklearn", "paper")
HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs"


def train(args: argparse.Namespace) -> None:
    """Train the perceptrons."""
    from benchmarks.selective.train import train as train_all

    train_all(args.data, args.work / "networks")


def judge(args: argparse.Namespace) -> None:
    """Judge every dump that the results do not have yet; with --again, those that are there."""
    from benchmarks.selective.judge import judge as figures_of

    results: dict[str, Any] = json.loads(args.results.read_text()) if args.results.exists() else {}
    known = set() if args.again else {*results}
    for dump in _dumps(args):
        if dump.name in known:
            continue
        sys.stderr.write(f"{dump.name}\n")
        results[dump.name] = {"group": dump.group, **_rounded(figures_of(dump, compared=args.compared))}
        args.results.parent.mkdir(parents=True, exist_ok=True)
        lines = [f"{json.dumps(name)}: {json.dumps(figures)}" for name, figures in sorted(results.items())]
        args.results.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _dumps(args: argparse.Namespace) -> Iterator[Dump]:
    from benchmarks.selective import dumps

    kinds: dict[str, Callable[[], Iterator[Dump]]] = {
        "shared": partial(dumps.shared, args.data),
        "networks": partial(dumps.networks, args.work / "networks"),
        "sklearn": partial(dumps.sklearn_models, args.data, args.work / "sklearn"),
        "paper": partial(dumps.paper, args.paper) if args.paper else lambda: iter(()),
    }
    for kind in args.only:
        yield from kinds[kind]()


def _rounded(value: Any) -> Any:
    """Figures to seven digits after the point, which is far below their noise."""
    if isinstance(value, dict):
        return {name: _rounded(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_rounded(inner) for inner in value]
    return round(value, 7) if isinstance(value, float) else value


def write(args: argparse.Namespace) -> None:
    """Make the page and its figure."""
    from benchmarks.selective.page import draw, page

    results = json.loads(args.results.read_text())
    (args.docs / "selective.md").write_text(page(results))
    draw(results, args.docs / "figures" / "selective.svg")


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.selective", description=__doc__)
    commands = parser.add_subparsers(required=True)
    for command in (train, judge, write):
        own = commands.add_parser(command.__name__, help=command.__doc__)
        own.set_defaults(command=command)
        own.add_argument("--results", type=Path, default=HERE / "results" / "results.json")
        own.add_argument("--docs", type=Path, default=DOCS, help="where the page goes")
        own.add_argument("--data", type=Path, default=Path("data"), help="directory with har.npz and so on")
        own.add_argument("--work", type=Path, default=Path("out/selective"), help="models' outputs are kept here")
        own.add_argument("--paper", type=Path, help="the --work of benchmarks.paper")
        own.add_argument("--only", nargs="+", choices=KINDS, default=KINDS, help="dumps to judge [all]")
        own.add_argument("--again", action="store_true", help="judge dumps again that were judged before")
        own.add_argument("--compared", type=int, default=800, help="differences judged together: 11 scores, 70 dumps")
    args = parser.parse_args()
    args.command(args)


if __name__ == "__main__":
    main()
