"""Options that are not on the command line: from `DRREJ_*` variables and configuration files; and drrej config.

From weak to strong: `[tool.drrej]` of the nearest pyproject.toml or the whole of the nearest drrej.toml (whichever is
nearer; drrej.toml where both are in one directory), the file of `drrej --config`, variables such as `DRREJ_JOBS`,
and the command line. In a file, a key is an option without its dashes (`label`, `on-missing-label`); it applies to
every command that has the option and takes such a value, and in a table named like a command to that command alone.

What must be said each time cannot be configured: the inputs, outputs and `--force`, and what takes a promise back.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import typer
from msgspec import Struct, ValidationError, convert

from drrej.cli.console import long_flag, show
from drrej.errors import OptionError

FILE, PYPROJECT = "drrej.toml", "pyproject.toml"
PREFIX = "DRREJ_"
_OTHER_VARIABLES = {"DRREJ_ACCEPT_EDITED", "DRREJ_ARROW_ONLY", "DRREJ_DEBUG", "DRREJ_PLAIN_MEMORY", "DRREJ_WHOLE_SCIPY"}
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
"""Options that may name a file: in a configuration file it is relative to that file."""
RENAMED = {
    "by": "it is --cutoff-by now (a cutoff for each group: threshold and run) or --report-by (figures for each group: "
    "evaluate, run and monitor)",
    "effective-sample": "it is gone: lambda does not change which rows are accepted; give --lambda, see docs/theory.md",
    "method": "it is gone: there is one method for each kind of target",
    **dict.fromkeys(
        ("tls-ca", "tls-cert", "tls-key"),
        "it is gone: certificates come from Dask's own configuration (distributed.comm.tls), see docs/scale.md",
    ),
}
"""Options of earlier versions, and what to do in their place."""

_Known = Mapping[str, Mapping[str, Any]]
"""The options that can be configured, by name and command."""


class Setting(Struct, frozen=True):
    """The value of an option, and where it was said."""

    value: Any
    where: str


class Configuration:
    """What files and variables say of the options of commands; `context` is that of `drrej` itself."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._tables = _tables(context.params["config"])
        self.commands: list[str] = context.command.list_commands(context)

    @cached_property
    def known(self) -> _Known:
        """The options that can be configured, by name and command."""
        found: dict[str, dict[str, Any]] = {}
        for command in self.commands:
            for option in self._context.command.get_command(self._context, command).params:
                configurable = getattr(option, "rich_help_panel", None) is not None or option.name in _ALSO
                if configurable and not option.required and option.name not in _SAID_EACH_TIME:
                    found.setdefault(option.name, {})[command] = option
        return found

    def settings(self, command: str, given: Iterable[str] = ()) -> dict[str, Setting]:
        """What is configured for a command, by the names of its options; not those `given` on the command line.

        A rule on the command line takes the place of every configured one, and one in a variable that of the files.
        """
        variables = [name for name in os.environ if name.startswith(PREFIX) and name not in _OTHER_VARIABLES]
        if not (self._tables or variables):
            return {}
        layers = [table.layer(command, self.commands, self.known) for table in self._tables]
        layers.append(_of_variables(variables, command, self.known))
        panels = {name: options[command].rich_help_panel for name, options in self.known.items() if command in options}
        rules = {name for name, panel in panels.items() if panel and panel.startswith(_RULE)}
        found: dict[str, Setting] = {}
        for layer in layers:
            found = {name: found[name] for name in found if not (name in rules and rules & layer.keys())} | layer
        hidden = set(given) | (rules if rules & set(given) else set())
        return {name: setting for name, setting in found.items() if name not in hidden}


def _of_variables(variables: list[str], command: str, known: _Known) -> dict[str, Setting]:
    found = {}
    for variable in variables:
        text, name = os.environ[variable], _parameter(variable.removeprefix(PREFIX).lower())
        if name not in known:
            near = _instead(name, variable, [PREFIX + key_of(each).replace("-", "_").upper() for each in known])
            raise OptionError(f"{variable}: no option of this name can be set by a variable{near}")
        values = {each: _from_text(option, text) for each, option in known[name].items()}
        wanted = {each: what_it_must_be(known[name][each], value) for each, value in values.items()}
        if text and all(wanted.values()):
            raise OptionError(f"{variable}={text}: it must be {next(iter(wanted.values()))}")
        if text and command in wanted and not wanted[command]:
            found[name] = Setting(values[command], variable)
    return found


# Files


class _Table(Struct, frozen=True):
    """The configuration in a file: keys for all commands, and tables of single commands."""

    where: str
    folder: Path
    keys: dict[str, Any]
    found: bool
    """Whether it was found, not named: then it may belong to whoever wrote a cloned repository."""

    def layer(self, command: str, commands: Sequence[str], known: _Known) -> dict[str, Setting]:
        """The settings for a command; what no command knows is refused."""
        found: dict[str, Setting] = {}
        own: dict[str, Setting] = {}
        for key, value in self.keys.items():
            if not isinstance(value, dict):
                found |= self._setting(command, key, value, known, "no command has an")
                continue
            if key not in commands:
                raise OptionError(f"{self.where}: [{key}] is not the name of a command{_instead(key, key, commands)}")
            of_command = {name: {key: options[key]} for name, options in known.items() if key in options}
            for each, each_value in value.items():
                setting = self._setting(key, each, each_value, of_command, f"drrej {key} has no")
                own |= setting if key == command else {}
        return found | own

    def _setting(self, command: str, key: str, value: Any, known: _Known, nobody: str) -> dict[str, Setting]:
        """A key of the commands in `known`: one of them at least must know it and take the value."""
        name = _parameter(key)
        if name not in known:
            near = _instead(name, key, [key_of(each) for each in known])
            raise OptionError(f"{self.where}: {key}: {nobody} option of this name that can be configured{near}")
        wanted = {each: what_it_must_be(option, value) for each, option in known[name].items()}
        if all(wanted.values()):
            raise OptionError(f"{self.where}: {key} must be {next(iter(wanted.values()))}")
        path = name in _PATHS and isinstance(value, str)
        if self.found and (name in _NAMED or (path and "://" in value)):
            raise OptionError(
                f"{self.where}: {key} cannot be set by a file that is found: it names a cluster or an input; say "
                f"drrej --config {self.where}, or give --{key_of(name)}"
            )
        if command not in wanted or wanted[command]:
            return {}
        if path and "://" not in value and (self.folder / value).is_file():
            value = str(self.folder / value)
        return {name: Setting(value, self.where)}


def _tables(named: str | None) -> list[_Table]:
    """The configuration files that count here, the weakest first: the nearest one, unless it is `named`, and that."""
    found = _nearest_file()
    if named is None:
        return [] if found is None else [_read(found, found=True)]
    same = found is not None and os.path.exists(named) and os.path.samefile(found, named)
    return [*([] if found is None or same else [_read(found, found=True)]), _read(Path(named), found=False)]


def _nearest_file() -> Path | None:
    try:
        here = Path.cwd()
    except OSError:  # it was removed
        return None
    for folder in (here, *here.parents):
        for path in (folder / FILE, folder / PYPROJECT):
            if path.is_file() and (path.name == FILE or b"tool.drrej" in _bytes(path)):
                return path
    return None


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise OptionError(f"{path}: the configuration cannot be read ({error.strerror})") from None


def _read(path: Path, found: bool) -> _Table:
    """A file of drrej's own, or its table in one that is shared with other tools."""
    import tomllib

    if found and hasattr(os, "getuid") and path.stat().st_uid not in (0, os.getuid()):  # put into a parent directory
        raise OptionError(f"{path}: the file belongs to another user; if you trust it, say drrej --config {path}")
    try:
        keys: Any = tomllib.loads(_bytes(path).decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise OptionError(f"{path}: not a TOML file ({error})") from None
    except RecursionError:
        raise OptionError(f"{path}: not a TOML file (it is nested too deeply)") from None
    for name in ("tool", "drrej") if path.name == PYPROJECT else ():
        keys = keys.get(name, {}) if isinstance(keys, dict) else {}
    if not isinstance(keys, dict):
        raise OptionError(f"{path}: [tool.drrej] must be a table of options")
    return _Table(str(path), path.absolute().parent, keys, found)


# What options take

_KINDS: dict[str, tuple[Any, str]] = {
    "boolean": (bool, "true or false"),
    "array": (list[str], "a list of texts"),
    "integer": (int, "a whole number"),
    "number": (float, "a number"),
    "string": (str, "a text"),
}
"""The types of JSON Schema that options have, as types of Python and in words."""


_NUMBER_OR_TEXTS = (float | list[str], "a number or a list of texts")


def _schema(option: Any) -> dict[str, Any]:
    """The JSON Schema of an option's value."""
    kind: Any = getattr(option, "type_descriptor", None) or option.type  # of typer 0.29, and before
    if option.is_flag:
        return {"type": "boolean"}
    if option.multiple and option.name in _BY_CLASS:
        return {"type": ["number", "array"], "items": {"type": "string"}}
    if option.multiple:
        return {"type": "array", "items": {"type": "string"}}
    if getattr(kind, "choices", None):
        return {"enum": list(kind.choices)}
    number = getattr(kind, "annotation", getattr(kind, "name", None))
    names = {int: "integer", float: "number", "integer": "integer", "float": "number"}
    return {"type": names.get(number, "string")}


def what_it_must_be(option: Any, value: Any) -> str:
    """What an option takes, if it does not take this value; else nothing."""
    schema = _schema(option)
    if "enum" in schema:
        return "" if value in schema["enum"] else " or ".join(schema["enum"])
    kind, words = _KINDS[schema["type"]] if isinstance(schema["type"], str) else _NUMBER_OR_TEXTS
    try:
        convert(value, kind)
    except ValidationError:
        return words
    return ""


def _from_text(option: Any, text: str) -> Any:
    """A variable's text as the option takes it; the text itself where that cannot be."""
    kind, _ = _KINDS["array" if option.multiple else _schema(option).get("type", "string")]
    if kind is bool:
        return {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}.get(text.lower(), text)
    if kind == list[str]:
        return [line for line in text.splitlines() if line.strip()]
    try:
        return kind(text)
    except ValueError:
        return text


def _parameter(key: str) -> str:
    """The parameter of a key: lambda is `lam` in Python."""
    return "lam" if key == "lambda" else key.replace("-", "_")


def key_of(name: str) -> str:
    """The key of a parameter in a file."""
    return long_flag(name).removeprefix("--")


def _instead(name: str, written: str, known: Iterable[str]) -> str:
    """What a name that is not known may have been meant for."""
    from difflib import get_close_matches

    old = name.replace("_", "-")
    if old in RENAMED:
        return f"; {RENAMED[old]}"
    found = get_close_matches(written, list(known), n=1)
    return f"; did you mean {found[0]}?" if found else ""


def config_schema(context: Any) -> dict[str, Any]:
    """The JSON Schema of a configuration file, for editors; `context` is that of `drrej` itself."""
    keys: dict[str, Any] = {}
    tables: dict[str, Any] = {}
    for name, options in Configuration(context).known.items():
        kinds: list[Any] = []
        for command, option in options.items():
            kind = {**_schema(option), "description": option.help}
            kinds += [] if kind in kinds else [kind]
            title = f"Only for drrej {command}."
            empty = {"type": "object", "description": title, "properties": {}, "additionalProperties": False}
            tables.setdefault(command, empty)["properties"][key_of(name)] = kind
        keys[key_of(name)] = kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "drrej.toml, or [tool.drrej] of pyproject.toml",
        "type": "object",
        "properties": {**keys, **tables},
        "additionalProperties": False,
    }


# The command


def config(context: typer.Context) -> None:
    """Show what is configured, as TOML, and where each value comes from.

    Later ones win: drrej.toml or tool.drrej of pyproject.toml, --config FILE, DRREJ_* variables, the command line.

    Examples:
    drrej config
    drrej config > drrej.toml

    """
    configuration, common = Configuration(context.parent), {}
    settings = {command: configuration.settings(command) for command in configuration.commands}
    for name in sorted({name for found in settings.values() for name in found}):
        values = [found[name] for found in settings.values() if name in found]
        options = configuration.known[name].values()
        takers = sum(not what_it_must_be(option, values[0].value) for option in options)
        if all(value == values[0] for value in values) and len(values) == takers:
            common[name] = values[0]
    lines = [_line(name, setting) for name, setting in common.items()]
    for command, found in settings.items():
        own = [_line(name, setting) for name, setting in found.items() if name not in common]
        lines += ["", f"[{command}]", *own] if own else []
    show("".join(f"{line}\n" for line in lines) or "# nothing is configured\n")


def _line(name: str, setting: Setting) -> str:
    """A key as TOML: texts, numbers, truth values and lists of texts are written as in JSON."""
    return f"{key_of(name)} = {json.dumps(setting.value, ensure_ascii=False)}  # {setting.where}"
