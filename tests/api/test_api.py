"""The package as a whole: public names, quick imports, imports that go one way."""

from __future__ import annotations

import ast
import inspect
import io
import re
import subprocess
import sys
import tokenize
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from conftest import environment, write_dump

import drrej

PACKAGE = Path(drrej.__file__).parent
HEAVY = {"numpy", "scipy", "pyarrow", "pandas", "rich"}

# The rooms of the house and what each may import besides itself; everybody may import `errors`, `_version` and
# `strict_json`.
ROOMS: dict[str, set[str]] = {
    "core": set(),
    "documents": {"core"},
    "data": {"core.types", "core.inputs"},
    "outputs": {"data"},
    "engines": {"data", "outputs"},
    "pipeline": {"core", "documents", "data", "outputs", "engines"},
    "export": {"core", "documents"},
    "report": {"documents"},
    "monitor": {"core", "documents", "data", "outputs", "engines", "pipeline", "report"},
    "api": {"core", "documents", "data", "outputs", "engines", "pipeline", "report", "monitor"},
    "sklearn": {"api", "core", "documents"},
    "cli": {"core", "documents", "data", "outputs", "engines", "pipeline", "report", "monitor", "export"},
}
OUTSIDE = {"__main__", "errors", "_version", "strict_json"}


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
        assert ">>> " in (inspect.getdoc(value) or ""), "an example is missing"
        hints = inspect.signature(value)
        assert hints.return_annotation is not inspect.Signature.empty
        assert all(p.annotation is not inspect.Parameter.empty for p in hints.parameters.values())


def test_the_names_are_few() -> None:
    assert len(drrej.__all__) <= 24


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


@pytest.mark.parametrize("arguments", ["['--help']", "['--version']", "['run', '--help']", "[]", "['run']"])
def test_the_command_line_loads_nothing_heavy_before_it_works(arguments: str) -> None:
    """Rich is for help alone; pydantic is what typer reads options with."""
    code = f"sys.argv[1:] = {arguments}\nfrom drrej.cli.app import execute\nexecute()"
    loaded = modules_after(code)
    assert loaded & HEAVY == ({"rich"} if "help" in arguments or arguments == "[]" else set())
    assert not (arguments.startswith("['--") and "pydantic" in loaded)


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imports_of(path: Path, top_level: bool = False) -> set[str]:
    """Modules that a file imports; those of type checks do not count."""
    tree = parsed(path)
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


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def test_every_module_has_a_room() -> None:
    assert {room(path) for path in SOURCES} == ROOMS.keys() | OUTSIDE


def test_imports_go_down_the_house() -> None:
    upwards = []
    for path in [path for path in SOURCES if room(path) in ROOMS]:
        own = room(path)
        everybody = {"errors"} if own == "core" else {"errors", "_version", "strict_json"}
        allowed = ROOMS[own] | everybody | {own}
        inside = {module.removeprefix("drrej.") for module in imports_of(path) if module.startswith("drrej.")}
        upwards += [
            f"{path}: drrej.{module}"
            for module in inside
            if not any(module == name or module.startswith(name + ".") for name in allowed)
        ]
    assert not upwards


def test_heavy_imports_stay_where_they_belong() -> None:
    for path in SOURCES:
        own = room(path)
        heavy = {module.split(".")[0] for module in imports_of(path, top_level=True)} & HEAVY
        assert "scipy" not in heavy, path  # it takes long to import, and few commands need it
        if own in ("cli", "report", "__main__", "errors"):
            assert not heavy, path
        if own in ("core", "documents"):  # they know no files
            assert heavy <= {"numpy"}, path
            assert "pyarrow" not in {module.split(".")[0] for module in imports_of(path)}, path


def code_lines(path: Path) -> int:
    """Lines of a module without blank ones, comments and docstrings."""
    text = path.read_text(encoding="utf-8")
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    statements = [line for node in ast.walk(parsed(path)) if isinstance(node, documented) for line in node.body]
    strings = [s for s in statements if isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant)]
    docstrings = {number for s in strings for number in range(s.lineno, (s.end_lineno or s.lineno) + 1)}
    layout = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    tokens = [t for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type not in layout]
    return len({number for t in tokens for number in range(t.start[0], t.end[0] + 1)} - docstrings)


def test_the_map_of_the_house_is_true() -> None:
    """docs/architecture.md states the budget of every room, and names no file that is not there."""
    page = (PACKAGE.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
    budgets = {
        name: sizes for name, *sizes in re.findall(r"^\| `(\w+)(?:/|\.py)` \| (\d+) \| (\d+) \|", page, re.MULTILINE)
    }
    assert list(budgets) == list(ROOMS)
    for name, (modules, lines) in budgets.items():
        inside = [path for path in SOURCES if room(path) == name]
        assert len(inside) <= int(modules), f"{name} has more modules than its budget"
        assert sum(map(code_lines, inside)) <= int(lines), f"{name} has more lines of code than its budget"
    for name in set(re.findall(r"`((?:\w+/)+\w+\.\w+)`", page)):
        assert (PACKAGE / name).exists() or (PACKAGE.parent / name).exists(), name


def test_no_room_has_a_cycle() -> None:
    graph = {module_name(path): {m for m in imports_of(path) if m.startswith("drrej.")} for path in SOURCES}
    graph = {name: (used & graph.keys()) - {name} for name, used in graph.items()}
    done: set[str] = set()
    while len(done) < len(graph):
        free = {name for name, used in graph.items() if name not in done and not used - done}
        assert free, f"cycle among {graph.keys() - done}"
        done |= free


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_flags_are_spelled_in_the_command_line_alone() -> None:
    for path in SOURCES:
        texts = [n.value for n in ast.walk(parsed(path)) if isinstance(n, ast.Constant)]
        flags = [text for text in texts if isinstance(text, str) and re.search(r"(?<![-\w])--[a-z]", text)]
        assert room(path) == "cli" or not flags, f"{path}: {flags}"


STREAMS = ("stdout", "stderr", "__stdout__", "__stderr__")


def prints(code: str) -> list[str]:
    """What in a piece of code writes to standard output or standard error."""
    found = []
    for node in ast.walk(ast.parse(code)):
        name = ast.unparse(node.func).rsplit(".", 1)[-1] if isinstance(node, ast.Call) else ""
        if name in ("print", "pprint", "echo", "secho"):
            found.append(ast.unparse(node))
        if isinstance(node, ast.Attribute) and node.attr in ("write", "writelines", "buffer"):
            stream = ast.unparse(node.value).split(".")[-1]
            found += [ast.unparse(node)] if stream in STREAMS else []
    return found


@pytest.mark.parametrize(
    "code",
    [
        "print('x')",
        "import builtins; builtins.print('x', file=stream)",
        "typer.echo('x')",
        "from typer import echo; echo('x')",
        "sys.stdout.write('x')",
        "from sys import stderr; stderr.writelines(['x'])",
        "sys.stdout.buffer.write(b'x')",
        "copy(content, sys.__stdout__.buffer)",
        "console.print('x')",
    ],
)
def test_what_counts_as_printing(code: str) -> None:
    assert prints(code)


def test_only_the_console_prints() -> None:
    """And `outputs.destinations`, for which standard output is a file like others; `__main__` before it imports any."""
    assert not prints("sys.stdout.flush(); sys.stderr.isatty(); file.write('x'); sys.stdout.fileno()")
    printing = {str(path.relative_to(PACKAGE)) for path in SOURCES if prints(path.read_text(encoding="utf-8"))}
    assert printing == {"__main__.py", "cli/console.py", "outputs/destinations.py"}


@pytest.mark.parametrize("layout", ["list", "wide"])
def test_short_commands_do_without_pandas(tmp_path: Path, layout: str) -> None:
    """Arrow's `to_numpy` and casts load it, where it is installed: ten times what a short command needs."""
    logits = np.random.default_rng(0).normal(size=(200, 3))
    dump = write_dump(tmp_path / "d.parquet", logits, np.arange(200) % 3, layout)
    rejector = str(tmp_path / "r.json")
    steps = [
        ["fit", dump, "--temperature", "1", "-o", rejector],
        ["threshold", dump, "-r", rejector, "-o", rejector, "--coverage", "0.8"],
        ["reject", dump, "-r", rejector, "-o", str(tmp_path / "m.parquet")],
    ]
    code = f"from drrej.cli.app import execute\nfor step in {steps!r}:\n    assert execute(step) == 0"
    assert "pandas" not in modules_after(code)
