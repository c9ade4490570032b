"""drrej demo."""

from __future__ import annotations

import os
import shlex
import shutil
from importlib.resources import files

import typer

from drrej.cli.console import show
from drrej.cli.options import Options, flag, option
from drrej.errors import OptionError

STEPS = (
    ("What is in the file, and how to go on", "inspect val.parquet"),
    (
        "Everything in one command: accept as many rows as possible, with at least 98 % of them right",
        "run --val val.parquet --test test.parquet --split 60,40 --accuracy 0.98 -o out --force",
    ),
    ("What the rejector does", "inspect out/rejector.json"),
    ("Score new rows, which need no labels", "reject test.parquet -r out/rejector.json -o mask.csv --force"),
)
"""What is shown, and the command that shows it."""


class DemoOptions(Options):
    """Where the demonstration is made."""

    output: str = option("Directory for the sample data and the results.", "DIR", default="drrej-demo")
    force: bool = flag("Use a directory that exists.")


def demo(options: DemoOptions) -> None:
    """Show the whole job on sample data: the commands and what they print.

    The data are 3,708 predictions of a small network on the UCI HAR data set (six activities), with true labels.

    Examples:
    drrej demo
    drrej demo -o somewhere

    """
    from drrej.cli.app import execute

    folder = options.output
    if os.path.exists(folder) and not options.force:
        raise OptionError(f"-o {folder}: it exists already; choose another directory, or use --force")
    os.makedirs(folder, exist_ok=True)
    for name in ("val.parquet", "test.parquet"):
        shutil.copyfile(os.path.join(_sample_data(), name), os.path.join(folder, name))
    show(f"Sample data and results are in {folder}/\n\n$ cd {shlex.quote(folder)}\n")
    here = os.getcwd()
    os.chdir(folder)
    try:
        for title, command in STEPS:
            show(f"\n# {title}\n$ drrej {command}\n")
            code = execute(shlex.split(command))
            if code:
                raise typer.Exit(code)
    finally:
        os.chdir(here)
    show(f"\nThe page of the report is {os.path.join(folder, 'out', 'report.html')}\n" if _page(folder) else "")


def _sample_data() -> str:
    """The folder of the sample data: in the package or, in a checkout, beside it."""
    package = str(files("drrej"))
    inside = os.path.join(package, "sample_data")
    return inside if os.path.isdir(inside) else os.path.join(os.path.dirname(package), "sample_data")


def _page(folder: str) -> bool:
    return os.path.exists(os.path.join(folder, "out", "report.html"))
