"""The package as a whole: public names, quick imports, imports that go one way."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import environment

import drrej

PACKAGE = Path(drrej.__file__).parent
HEAVY = {"numpy", "scipy", "pyarrow", "pandas", "rich"}

# The rooms of the house, from the top: a module may import from rooms below it and from its own.
ROOMS = [
    {"__main__"},
    {"cli"},
    {"report", "steps"},
    {"cluster"},
    {"tasks"},
    {"stream"},
    {"dumps"},
    {"staging"},
    {"rejector"},
    {"losses", "temperature", "ratio", "thresholds", "metrics", "gates", "exact", "fingerprint", "curves"}
    | {"core", "points", "bootstrap", "drift", "guarantees"}
    | {"learned", "choice", "costs", "rowloss", "dro", "bounds", "selective"},
    {"output"},
    {"remote", "memory"},
    {"errors", "_version"},
]


@pytest.mark.parametrize("name", drrej.__all__)
def test_public_names_exist_and_are_documented(name: str) -> None:
    value = getattr(drrej, name)
    if name == "__version__":
        return
    assert inspect.getdoc(value)
    if inspect.isclass(value):
        members = [
            m
            for n, m in vars(value).items()
            if not n.startswith("_") and (inspect.isfunction(m) or isinstance(m, property))
        ]
        assert all(inspect.getdoc(member) for member in members)
    else:
        hints = inspect.signature(value)
        assert hints.return_annotation is not inspect.Signature.empty
        assert all(p.annotation is not inspect.Parameter.empty for p in hints.parameters.values())


def test_the_package_lists_its_names() -> None:
    assert sorted(dir(drrej)) == sorted(drrej.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        drrej.nonsense  # noqa: B018
    assert (PACKAGE / "py.typed").exists()


def modules_after(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}\nprint(*sys.modules, file=sys.stderr)"],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return {name.split(".")[0] for name in done.stderr.split()}


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert not modules_after("import drrej") & HEAVY


@pytest.mark.parametrize("arguments", ["['--help']", "['--version']", "['run', '--help']", "[]"])
def test_help_loads_nothing_heavy(arguments: str) -> None:
    code = f"sys.argv[1:] = {arguments}\nfrom drrej.cli import main\ntry:\n    main()\nexcept SystemExit:\n    pass"
    assert not modules_after(code) & HEAVY


def room_of(module: str) -> str:
    return module.split(".")[1] if "." in module else "__init__"


def imports_of(path: Path, top_level: bool = False) -> set[str]:
    """Modules that a file imports; those of type checks do not count."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped = {
        child
        for node in ast.walk(tree)
        if (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
        or (top_level and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
        for child in ast.walk(node)
    }
    found = set()
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


SOURCES = sorted(path for path in PACKAGE.rglob("*.py") if path.name != "__init__.py" or path.parent != PACKAGE)


def test_every_module_has_a_room() -> None:
    rooms = {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in SOURCES}
    assert rooms <= set().union(*ROOMS)


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_down_the_house(path: Path) -> None:
    floor = {room: level for level, rooms in enumerate(ROOMS) for room in rooms}
    own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    for module in imports_of(path):
        if not module.startswith("drrej."):
            continue
        room = room_of(module)
        if room in floor and room != own:
            core = floor[room] == floor[own] == floor["losses"]
            assert floor[room] > floor[own] or core, f"{own} imports {module}"


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_heavy_imports_stay_where_they_belong(path: Path) -> None:
    own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    floor = {room: level for level, rooms in enumerate(ROOMS) for room in rooms}
    heavy = {module.split(".")[0] for module in imports_of(path, top_level=True)} & HEAVY
    assert "scipy" not in heavy
    if own in ("cli", "report", "__main__", "errors", "output", "remote", "memory", "gates"):
        assert not heavy
    if floor["rejector"] <= floor[own] <= floor["losses"]:  # they know no files
        assert heavy <= {"numpy"}
        assert "pyarrow" not in {module.split(".")[0] for module in imports_of(path)}


def test_the_core_has_no_cycles() -> None:
    graph = {
        path.stem: {room_of(m) for m in imports_of(path) if m.startswith("drrej.")} - {path.stem}
        for path in SOURCES
        if path.parent == PACKAGE
    }
    done: set[str] = set()
    while len(done) < len(graph):
        free = {name for name, used in graph.items() if name not in done and not (used & set(graph)) - done}
        assert free, f"cycle among {set(graph) - done}"
        done |= free


def test_only_the_console_prints() -> None:
    for path in SOURCES:
        calls = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call)]
        assert path.name == "console.py" or not any(ast.unparse(call.func) == "print" for call in calls), path
