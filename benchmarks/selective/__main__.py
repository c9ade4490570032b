"""Which score orders rows best, and which rule certifies most: `python -m benchmarks.selective COMMAND --help`.

`judge` needs DATA (`har.npz`, `cifar10_densenet40` and so on: what is missing is left out) and keeps what models said
in WORK; `write` makes docs/selective.md and its figure of results/results.json alone.
"""

from __future__ import annotations

import argparse
import importlib
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


def study(args: argparse.Namespace) -> None:
    """Print the tables of a study."""
    module = importlib.import_module(f"benchmarks.selective.{args.study}")
    sys.stdout.write(module.tables(args))


COMMANDS = {command.__name__: (command, command.__doc__) for command in (judge, write)} | {
    "few": (study, "`auto` fitted on few rows and with wrong labels"),
    "reuse": (study, "how likely rows that are used again are noticed, and fresh rows refused"),
    "certified": (study, "rules of others where the truth is known, broken promises counted"),
    "divisions": (study, "certified coverage over many random divisions of each dump, by drrej, SGR and MAPIE"),
    "splits": (study, "how often test rows contradict `run --accuracy 0.98` on ten splits of each dump"),
}
TRIALS = {"few": 10, "certified": 200, "divisions": 20}


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.selective", description=__doc__)
    commands = parser.add_subparsers(required=True)
    data = Path(os.environ.get("DRREJ_DATA", "data"))
    for name, (command, about) in COMMANDS.items():
        own = commands.add_parser(name, help=about)
        own.set_defaults(command=command, study=name)
        own.add_argument("--data", type=Path, default=data, help="directory of the data sets [$DRREJ_DATA or data]")
        own.add_argument("--work", type=Path, default=Path("out/selective"), help="models' outputs are kept here")
        if name in TRIALS:
            own.add_argument("--trials", type=int, default=TRIALS[name])
        if command is not study or name == "divisions":
            own.add_argument("--paper", type=Path, help="the --work of benchmarks.paper, for the folds it has left")
            own.add_argument("--only", default="", help="dumps whose name has this in it, judged before or not")
        if command is not study:
            own.add_argument("--results", type=Path, default=HERE / "results" / "results.json")
            own.add_argument("--docs", type=Path, default=DOCS, help="where the page goes")
            own.add_argument("--again", action="store_true", help="judge dumps again that were judged before")
    args = parser.parse_args()
    args.command(args)


if __name__ == "__main__":
    main()
