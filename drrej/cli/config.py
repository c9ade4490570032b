"""Options that are not on the command line: from `DRREJ_*` variables and configuration files; and drrej config.

From weak to strong: `[tool.drrej]` of the nearest pyproject.toml or the whole of the nearest drrej.toml (whichever is
nearer; drrej.toml where both are in one directory), the file of `drrej --config`, variables such as `DRREJ_JOBS`,
and the command line. In a file, a key is an option without its dashes (`label`, `on-missing-label`); it applies to
every command that has the option and takes such a value, and in a table named like a command to that command alone.

What must be said each time cannot be configured: the inputs, outputs and `--force`, and what takes a promise back.
"""

from __future__ import annotations

import inspect
import itertools
import json
import os
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import NoneType
from typing import Any, Union, get_args

import typer
from msgspec import ValidationError, convert
from typer.models import OptionInfo

from drrej.cli.console import long_flag, show
from drrej.errors import OptionError

FILE, PYPROJECT = "drrej.toml", "pyproject.toml"
PREFIX = "DRREJ_"
_SWITCHES = {"DRREJ_ARROW_ONLY", "DRREJ_PLAIN_MEMORY", "DRREJ_TYPER_VALUES", "DRREJ_WHOLE_SCIPY"}
_OTHER_VARIABLES = {"DRREJ_ACCEPT_EDITED", "DRREJ_DEBUG", *_SWITCHES}
_SAID_EACH_TIME = {"allow_reuse", "task"}
_ALSO = {"keep", "format", "on_bad_row", "on_unseen_group", "quiet"}
"""Options outside of the panels that describe data, rules or work, but no single run."""
_RULE = "Rule"
"""How the title of the panel of rules begins: one of them counts."""
_NAMED = {"cluster", "val", "test", "choose", "labels_from", "baseline", "baseline_dump", "baseline_rejector"}
"""Options that name a cluster, which runs code, or an input: a file that is only found cannot set them."""
_BY_CLASS = {"accuracy", "risk"}
"""Repeatable options whose value may also be one number: a target for all classes."""
_PATHS = {"classes", "cost_matrix", "labels_from"}
"""Options that may name a file: in a configuration file it is relative to that file, and if that is found, below it."""
RENAMED = {
    "by": "it is now --cutoff-by (a cutoff for each group: threshold and run) or --report-by (figures for each group: "
    "evaluate, run and monitor)",
    "effective-sample": "it was removed: lambda does not change which rows are accepted; see docs/proofs.md",
    "review-limit": "it is now --reviews",
    "method": "it was removed: there is one method for each kind of target",
    **dict.fromkeys(
        ("tls-ca", "tls-cert", "tls-key"),
        "it was removed: certificates come from Dask's own configuration (distributed.comm.tls), see docs/scale.md",
    ),
}
"""Options of earlier versions, and what to do in their place."""
_WORDS: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    list[str]: "a list of texts",
    float | list[str]: "a number or a list of texts",
}

_Known = Mapping[str, Mapping[str, inspect.Parameter]]
"""The options that can be configured, by name and command."""


Setting = tuple[Any, str]
"""The value of an option, and where it was set."""


def configurable(context: Any) -> _Known:
    """The options that can be configured; `context` is that of `drrej` itself."""
    known: dict[str, dict[str, inspect.Parameter]] = {}
    for command in context.command.list_commands(context):
        callback = context.command.get_command(context, command).callback
        for name, each in inspect.signature(callback).parameters.items():
            option = each.default
            if not isinstance(option, OptionInfo) or option.default is ... or name in _SAID_EACH_TIME:
                continue
            if option.rich_help_panel is not None or name in _ALSO:
                known.setdefault(name, {})[command] = each
    return known


def settings(context: Any, command: str, given: Collection[str] = ()) -> dict[str, Setting]:
    """What is configured for a command, by the names of its options; not those `given` on the command line.

    A rule on the command line takes the place of every configured one, and one in a variable that of the files.
    """
    variables = [name for name, text in os.environ.items() if text and name.startswith(PREFIX)]
    variables = [name for name in variables if name not in _OTHER_VARIABLES]
    files = _files(context.params["config"])
    if not (files or variables):
        return {}
    known, commands = configurable(context), context.command.list_commands(context)
    layers = [_of_file(path, found, command, commands, known) for path, found in files.items()]
    layers.append({})
    for variable in variables:
        name = _parameter(variable.removeprefix(PREFIX).lower())
        values = _values(variable, name, os.environ[variable], known, text=True)
        if command in values:
            layers[-1][name] = values[command], variable
    panels = {name: str(takers[command].default.rich_help_panel) for name, takers in known.items() if command in takers}
    rules = {name for name, panel in panels.items() if panel.startswith(_RULE)}
    merged: dict[str, Any] = {}
    on_command_line: dict[str, Any] = dict.fromkeys(given)
    for layer in (*layers, on_command_line):
        replaced = rules if rules & layer.keys() else set()
        merged = {name: setting for name, setting in merged.items() if name not in replaced} | layer
    return {name: setting for name, setting in merged.items() if name not in given}


def _values(where: str, key: str, value: Any, known: _Known, text: bool = False) -> dict[str, Any]:
    """The value of a key for each of the commands that take it; one of them must. A variable's value is a `text`."""
    name, values = _parameter(key), {}
    if name not in known:
        near = _instead(name, [key_of(each) for each in known])
        raise OptionError(f"{where}: there is no option of this name that can be configured{near}")
    for command, parameter in known[name].items():
        kind = parameter.annotation
        if NoneType in get_args(kind):
            kind = Union[tuple(each for each in get_args(kind) if each is not NoneType)]  # noqa: UP007 - of a tuple
        kind = float | list[str] if name in _BY_CLASS and kind == list[str] else kind
        is_list = text and list[str] in (kind, *get_args(kind))
        with suppress(ValidationError):
            lines = [line for line in value.splitlines() if line.strip()] if is_list else value
            values[command] = convert(lines, kind, strict=not text)
    if not values:
        raise OptionError(f"{where} must be {_WORDS.get(kind) or ' or '.join(get_args(kind))}, not {value!r}")
    return values


def _of_file(path: Path, found: bool, command: str, commands: list[str], known: _Known) -> dict[str, Setting]:
    """The settings of a file for a command; what no command knows is refused.

    If the file was `found`, not named, it may belong to whoever wrote a cloned repository.
    """

    def setting(key: str, value: Any, takers: _Known) -> dict[str, Setting]:
        name, values = _parameter(key), _values(f"{path}: {key}", key, value, takers)
        if found and (name in _NAMED or (name in _PATHS and _is_elsewhere(value, path.parent))):
            raise OptionError(
                f"{path}: {key} names a cluster or an input, which only a file that you name may set; use "
                f"drrej --config {path}, or give --{key_of(name)}"
            )
        if command not in values:
            return {}
        if name in _PATHS and "://" not in value and (beside := path.absolute().parent / value).is_file():
            values[command] = str(beside)
        return {name: (values[command], str(path))}

    common: dict[str, Setting] = {}
    own: dict[str, Setting] = {}
    for key, value in _read(path, found).items():
        if not isinstance(value, dict):
            common |= setting(key, value, known)
            continue
        if key not in commands:
            raise OptionError(f"{path}: [{key}] is not the name of a command{_instead(key, commands)}")
        of_command = {name: {key: takers[key]} for name, takers in known.items() if key in takers}
        for each, each_value in value.items():
            own |= setting(each, each_value, of_command)
    return common | own


def _is_elsewhere(file: str, folder: Path) -> bool:
    if "://" in file or "\0" in file:
        return True
    return not Path(os.path.realpath(folder / file)).is_relative_to(os.path.realpath(folder))


def _files(named: str | None) -> dict[Path, bool]:
    """The configuration files that count here, the weakest first, and whether each was found or is `named`."""
    folders: list[Path] = []
    with suppress(OSError):  # this one was removed
        folders = [Path.cwd(), *Path.cwd().parents]
    files: dict[Path, bool] = {}
    for folder, name in itertools.product(folders, (FILE, PYPROJECT)):
        path = folder / name
        if path.is_file() and (name == FILE or b"tool.drrej" in _bytes(path)):
            files[path] = True  # the nearest
            break
    if named is None:
        return files
    same = os.path.exists(named) and any(path.samefile(named) for path in files)
    return {Path(named): False} if same else {**files, Path(named): False}


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise OptionError(f"{path}: the configuration cannot be read ({error.strerror})") from None


def _read(path: Path, found: bool) -> dict[str, Any]:
    """The keys of a file of drrej's own, or of its table in one that is shared with other tools."""
    import tomllib

    if found and hasattr(os, "getuid") and path.stat().st_uid not in (0, os.getuid()):  # put into a parent directory
        raise OptionError(f"{path}: the file belongs to another user; if you trust it, pass drrej --config {path}")
    try:
        keys: Any = tomllib.loads(_bytes(path).decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise OptionError(f"{path}: not a TOML file ({error})") from None
    for name in ("tool", "drrej") if path.name == PYPROJECT else ():
        keys = keys.get(name, {}) if isinstance(keys, dict) else {}
    if not isinstance(keys, dict):
        raise OptionError(f"{path}: [tool.drrej] must be a table of options")
    return keys


def _parameter(key: str) -> str:
    """The parameter of a key: lambda is `lam` in Python."""
    return "lam" if key == "lambda" else key.replace("-", "_")


def key_of(name: str) -> str:
    """The key of a parameter in a file."""
    return long_flag(name).removeprefix("--")


def _instead(name: str, known: Iterable[str]) -> str:
    """What a name that is not known may have been meant for."""
    from difflib import get_close_matches

    old = name.replace("_", "-")
    if old in RENAMED:
        return f"; {RENAMED[old]}"
    found = get_close_matches(old, list(known), n=1)
    return f"; did you mean {found[0]}?" if found else ""


# The command


def config(context: typer.Context) -> None:
    """Show what is configured, as TOML, and where each value comes from.

    Later ones win: drrej.toml or tool.drrej of pyproject.toml, --config FILE, DRREJ_* variables, the command line.

    Examples:
    drrej config
    drrej config > drrej.toml

    """
    top: Any = context.parent
    tables = {command: settings(top, command) for command in top.command.list_commands(top)}
    known, common = configurable(top), {}
    for name in sorted({name for found in tables.values() for name in found}):
        values = [found[name] for found in tables.values() if name in found]
        takers = _values("", name, values[0][0], known)
        if all(value == values[0] for value in values) and len(values) == len(takers):
            common[name] = values[0]
    lines = [_line(name, *setting) for name, setting in common.items()]
    for command, found in tables.items():
        own = [_line(name, *setting) for name, setting in found.items() if name not in common]
        lines += ["", f"[{command}]", *own] if own else []
    show("".join(f"{line}\n" for line in lines) or "# nothing is configured\n")


def _line(name: str, value: Any, where: str) -> str:
    """A key as TOML: texts, numbers, truth values and lists of texts are written as in JSON."""
    return f"{key_of(name)} = {json.dumps(value, ensure_ascii=False)}  # {where}"
