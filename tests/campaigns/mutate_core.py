"""Mutation testing of `core/`: is a change of the mathematics noticed by a test?

    python -m tests.campaigns mutate_core 200 --seed 1 [--part 2/5] [--only thresholds,ratio] [--near] [--again FILE]

Each case changes one operator, comparison, number, condition or name of a module of `core/`, chosen at random, and runs
the tests of the module in a process of their own, up to the first that fails: those of `tests/core/test_MODULE*.py`, or
of files that import it where none has its name. With `--near` what lives is tried on the other files that import the
module too, one by one, and on its examples. A mutant lives if all of them pass; tests that notice one must pass without
the change. `--part` runs one of several shares of the same sample. `--again` runs only those of the sample that the
output of an earlier run lists as living, to see what new tests notice: with the same cases and seed, and an unchanged
`core/`.
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib.abc
import importlib.util
import os
import random
import re
import resource
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import numpy as np  # noqa: F401 - so that no case has to import it
import pyarrow.parquet  # noqa: F401
import pytest
import scipy.optimize
import scipy.special
import scipy.stats  # noqa: F401

ROOT = Path(__file__).resolve().parents[2]
CORE = ROOT / "drrej" / "core"
LIMIT = 90
"""Seconds of processor time that the tests of a mutant may take: several times what they take without it."""

OPERATORS: dict[type[ast.AST], tuple[type[ast.AST], ...]] = {
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Div,),
    ast.Div: (ast.Mult,),
    ast.FloorDiv: (ast.Div,),
    ast.Pow: (ast.Mult,),
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.And: (ast.Or,),
    ast.Or: (ast.And,),
    ast.BitAnd: (ast.BitOr,),
    ast.BitOr: (ast.BitAnd,),
}
NAMES = {
    "min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum", "floor": "ceil", "ceil": "floor",
    "log": "log1p", "log1p": "log", "exp": "expm1", "expm1": "exp", "argmin": "argmax", "argmax": "argmin",
    "left": "right", "right": "left", "cdf": "sf", "sf": "cdf", "ppf": "isf", "isf": "ppf", "all": "any", "any": "all",
    "sum": "mean", "mean": "sum", "isnan": "isinf",
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """A module with one node changed."""

    path: Path
    line: int
    what: str
    place: int
    tree: ast.Module

    @property
    def module(self) -> str:
        return ".".join(self.path.relative_to(ROOT).with_suffix("").parts)

    def __str__(self) -> str:
        return f"{self.path.relative_to(CORE)}:{self.line}: {self.what} (node {self.place})"


def changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """What a node may be changed into, each with words for it."""
    for field in ("op", "ops"):
        held = getattr(node, field, None)
        first = held[0] if isinstance(held, list) else held
        for other in OPERATORS.get(type(first), ()):
            changed = copy.deepcopy(node)
            setattr(changed, field, [other(), *held[1:]] if isinstance(held, list) else other())
            yield f"{type(first).__name__} -> {other.__name__}", changed
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        value = node.value + 1 if isinstance(node.value, int) else node.value * 1.5 + (node.value == 0)
        yield f"{node.value} -> {value}", ast.Constant(value)
    if isinstance(node, ast.Constant) and type(node.value) is bool:
        yield f"{node.value} -> {not node.value}", ast.Constant(not node.value)
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in NAMES:
        yield f"'{node.value}' -> '{NAMES[node.value]}'", ast.Constant(NAMES[node.value])
    if isinstance(node, ast.Attribute) and node.attr in NAMES:
        yield f".{node.attr} -> .{NAMES[node.attr]}", ast.Attribute(node.value, NAMES[node.attr], node.ctx)
    if isinstance(node, ast.Name) and node.id in ("min", "max", "any", "all"):
        yield f"{node.id} -> {NAMES[node.id]}", ast.Name(NAMES[node.id], node.ctx)
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        changed = copy.deepcopy(node)
        changed.test = ast.UnaryOp(ast.Not(), changed.test)
        yield "condition turned round", changed
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not):
        yield f"{type(node.op).__name__} left out", node.operand


def inside_functions(tree: ast.Module) -> Iterator[ast.AST]:
    """The nodes that compute: not messages, annotations or docstrings."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list") or isinstance(node, ast.Raise | ast.JoinedStr):
                continue
            waiting += [
                child for child in (value if isinstance(value, list) else [value]) if isinstance(child, ast.AST)
            ]


def mutants_of(path: Path) -> list[tuple[int, str, int, int]]:
    """(line, words, number of the node, number of the change) of every change of a module."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [
        (node.lineno, words, place, number)
        for place, node in enumerate(inside_functions(tree))
        if hasattr(node, "lineno")
        for number, (words, _) in enumerate(changes(node))
    ]


def make(path: Path, line: int, words: str, place: int, number: int) -> Mutant:
    """The mutant itself."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    target = next(node for index, node in enumerate(inside_functions(tree)) if index == place)
    changed = [node for _, node in changes(target)][number]

    class Put(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            return ast.copy_location(changed, node) if node is target else super().generic_visit(node)

    return Mutant(path, line, words, place, ast.fix_missing_locations(Put().visit(tree)))


class Mutated(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports the mutant in the place of its module."""

    def __init__(self, mutant: Mutant) -> None:
        self.mutant = mutant

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:  # noqa: ARG002
        if name != self.mutant.module:
            return None
        return importlib.util.spec_from_file_location(name, self.mutant.path, loader=self)

    def create_module(self, spec: ModuleSpec) -> None:  # noqa: ARG002
        return None

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self.mutant.tree, self.mutant.path, "exec"), module.__dict__)


@cache
def importing(module: str) -> list[str]:
    """The files of tests that import a module of `core/` by its name."""
    name = module.rsplit(".", 1)[1]
    told = re.compile(rf"core[.\w]* import [^\n]*\b{name}\b|core[.\w]*\.{name}\b")
    files = [file for file in sorted(ROOT.glob("tests/*/test_*.py")) if file.parent.name != "system"]
    return [str(file.relative_to(ROOT)) for file in files if told.search(file.read_text(encoding="utf-8"))]


def tests_of(module: str) -> list[str]:
    """The files of tests that have the name of a module, or those that import it: in `tests/core`, if there are any."""
    name = module.rsplit(".", 1)[1]
    named = sorted(ROOT.glob(f"tests/core/test_{name}.py")) + sorted(ROOT.glob(f"tests/core/test_{name}_*.py"))
    found = [str(file.relative_to(ROOT)) for file in named]
    return found or [file for file in importing(module) if file.startswith("tests/core/")] or importing(module)


def examples_of(path: Path) -> list[str]:
    """The test of the examples in docstrings of a module, if it has any."""
    has_some = ">>> " in path.read_text(encoding="utf-8")
    return [f"tests/contract/test_doctests.py::test_examples_run[{path.relative_to(CORE.parent)}]"] * has_some


def run(mutant: Mutant, tests: Sequence[str]) -> str:
    """What becomes of a mutant: killed, timeout or lived."""
    if not tests:  # pytest would take all there are
        raise SystemExit(f"{mutant}: no file of tests imports its module")
    child = os.fork()
    if not child:
        resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT))
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
        sys.meta_path.insert(0, Mutated(mutant))
        code = 99
        try:
            code = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", *tests]))
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code in (-signal.SIGXCPU, -signal.SIGKILL):
        return "timeout"
    if code in (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.NO_TESTS_COLLECTED):
        raise SystemExit(f"{mutant}: no test of it in {tests}")
    return "lived" if code == 0 else "killed"


@cache
def check_unchanged(path: Path, tests: Sequence[str]) -> None:
    """Raise unless tests of a module pass without a change: else they can tell nothing."""
    mutant = Mutant(path, 0, "unchanged", 0, ast.parse(path.read_text(encoding="utf-8")))
    if run(mutant, tests) != "lived":
        raise SystemExit(f"{mutant}: {' '.join(tests)}: fails without a change too")


def outcome_of(mutant: Mutant, near: bool) -> str:
    """What becomes of a mutant, by its own tests and then, if asked for, by others that import its module."""
    own = tests_of(mutant.module)
    others = [(file,) for file in (*importing(mutant.module), *examples_of(mutant.path)) if near and file not in own]
    for tests in (tuple(own), *others):
        found = run(mutant, tests)
        if found != "lived":
            check_unchanged(mutant.path, tests)
            return found
    return "lived"


def main() -> None:
    """Print what lived, and the score."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="modules, with commas between")
    parser.add_argument("--part", default="1/1", help="which share of the sample: 2/5")
    parser.add_argument("--near", action="store_true", help="tests of other folders too")
    parser.add_argument("--again", type=Path, help="output of an earlier run: only what lived there")
    words = parser.parse_args()
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    only = set(filter(None, words.only.split(",")))
    paths = [path for path in sorted(CORE.rglob("*.py")) if not only or path.stem in only]
    sites = [(path, *site) for path in paths for site in mutants_of(path)]
    random.Random(words.seed).shuffle(sites)
    part, parts = map(int, words.part.split("/"))
    counts: Counter[str] = Counter()
    sample = [make(*site) for site in sites[: words.cases]]
    if words.again:
        lived = set(words.again.read_text(encoding="utf-8").splitlines())
        sample = [mutant for mutant in sample if f"lived: {mutant}" in lived]
    for mutant in sample[part - 1 :: parts]:
        outcome = outcome_of(mutant, words.near)
        counts[outcome] += 1
        print(f"{outcome}: {mutant}", flush=True)
    dead = counts["killed"] + counts["timeout"]
    sys.stdout.write(f"{dict(counts)}: {dead} of {counts.total()} noticed, of {len(sites)} mutants in all\n")


if __name__ == "__main__":
    main()
