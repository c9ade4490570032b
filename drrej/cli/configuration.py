"""Options that are not on the command line: from `DRREJ_*` variables and from configuration files.

From weak to strong: `[tool.drrej]` of the nearest pyproject.toml or the whole of the nearest drrej.toml (whichever is
nearer; drrej.toml where both are in one directory), the file of `drrej --config`, variables such as `DRREJ_JOBS`,
and the command line. In a file, a key is an option without its dashes (`label`, `on-missing-label`); it applies to
every command that has the option and takes such a value, and in a table named like a command to that command alone.

What must be said each time cannot be configured: the inputs, outputs and `--force`, and what takes a promise back.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from drrej.cli.flags import flag_of
from drrej.errors import OptionError
from drrej.records import dataclass

FILE, PYPROJECT = "drrej.toml", "pyproject.toml"
PREFIX = "DRREJ_"
_OTHER_VARIABLES = {"DRREJ_DEBUG", "DRREJ_ARROW_ONLY"}
_SAID_EACH_TIME = {"allow_reuse", "help", "version", "task"}
_ALSO = {"keep", "format", "on_bad_row", "on_unseen_group"}
"""Options outside of the panels that describe data, rules or work, but no single run."""
_RULE, _SWEPT = "Rule", "Swept"
"""How the titles of panels begin: one of a kind counts; lists of values are for a single run."""
_PATHS = {"classes", "cost_matrix", "labels_from", "tls_ca", "tls_cert", "tls_key"}
"""Options that may name a file: in a configuration file it is relative to that file."""


@dataclass(frozen=True)
class Setting:
    """The value of an option, and where it was said."""

    value: Any
    where: str


@dataclass
class Chosen:
    """What the program says before a command is read: the file of `drrej --config`, and how to get all commands."""

    path: str | None = None
    commands: Callable[[], dict[str, Any]] = dict


chosen = Chosen()


def split_config(arguments: list[str]) -> tuple[str | None, list[str]]:
    """The file of a `--config FILE` at the front of a command line, and the rest of it."""
    first = arguments[0] if arguments else ""
    if first.startswith("--config="):
        return first.partition("=")[2], arguments[1:]
    if first == "--config":
        if len(arguments) < 2:
            raise OptionError("--config needs the name of a file")
        return arguments[1], arguments[2:]
    return None, arguments


def is_configurable(option: Any) -> bool:
    """Whether an option may be in a configuration file or a variable."""
    name = option.name
    described = option.rich_help_panel not in (None, _SWEPT) or name in _ALSO
    return described and not option.hidden and not option.required and name not in _SAID_EACH_TIME


def settings_of(command: Any, given: Iterable[str] = ()) -> dict[str, Setting]:
    """What is configured for a command, by the names of its options; those `given` on the command line are left out.

    A rule on the command line takes the place of every configured one, and one in a variable that of the files.
    """
    options = {option.name: option for option in command.params if is_configurable(option)}
    found: dict[str, Setting] = {}
    for layer in (*(table.layer(command.name) for table in tables()), _variables(command.name)):
        found = {**_without_rule(found, options, layer), **layer}
    found = _without_rule(found, options, given)
    return {name: setting for name, setting in found.items() if name not in set(given)}


def _without_rule(found: dict[str, Setting], options: Mapping[str, Any], stronger: Iterable[str]) -> dict[str, Setting]:
    rules = {name for name, option in options.items() if (option.rich_help_panel or "").startswith(_RULE)}
    return {name: found[name] for name in found if not (name in rules and rules & set(stronger))}


# Files


@dataclass(frozen=True)
class _Table:
    """The configuration in a file: keys for all commands, and tables of single commands."""

    where: str
    folder: Path
    keys: dict[str, Any]

    def layer(self, command: str) -> dict[str, Setting]:
        """The settings for a command; what no command knows is refused."""
        known = configurable()
        tables = {name: table for name, table in self.keys.items() if isinstance(table, dict)}
        for name in tables:
            if name not in known:
                raise OptionError(f"{self.where}: [{name}] is not the name of a command{_nearest(name, known)}")
        found: dict[str, Setting] = {}
        for key, value in self.keys.items():
            if key not in tables:
                found |= self._setting(command, key, value, known)
        for name, table in tables.items():
            for key, value in table.items():
                own = self._setting(name, key, value, {name: known[name]})
                found |= own if name == command else {}
        return found

    def _setting(self, command: str, key: str, value: Any, known: dict[str, dict[str, Any]]) -> dict[str, Setting]:
        """A key of the commands in `known`: one of them at least must know it and take the value."""
        name = _parameter(key)
        options = {each: found[name] for each, found in known.items() if name in found}
        if not options:
            who = "no command has an" if len(known) > 1 else f"drrej {next(iter(known))} has no"
            near = _nearest(key, {key_of(each) for found in known.values() for each in found})
            raise OptionError(f"{self.where}: {key}: {who} option of this name that can be configured{near}")
        wanted = {each: what_it_must_be(option, value) for each, option in options.items()}
        if all(wanted.values()):
            raise OptionError(f"{self.where}: {key} must be {next(iter(wanted.values()))}")
        fits = command in options and not wanted[command]
        return {name: Setting(self._value(name, value), self.where)} if fits else {}

    def _value(self, name: str, value: Any) -> Any:
        if name in _PATHS and isinstance(value, str) and "://" not in value and (self.folder / value).is_file():
            return str(self.folder / value)
        return value


def tables() -> list[_Table]:
    """The configuration files that count here, the weakest first."""
    found = _nearest_file()
    tables = [] if found is None else [found]
    if chosen.path is not None:
        named = Path(chosen.path)
        inside = ("tool", "drrej") if named.name == PYPROJECT else ()
        tables.append(_read(named, inside))
    return tables


def _nearest_file() -> _Table | None:
    try:
        here = Path.cwd()
    except OSError:  # it was removed
        return None
    for folder in (here, *here.parents):
        if (folder / FILE).is_file():
            return _read(_trusted(folder / FILE), ())
        if (folder / PYPROJECT).is_file() and b"tool.drrej" in _bytes(folder / PYPROJECT):
            return _read(_trusted(folder / PYPROJECT), ("tool", "drrej"))
    return None


def _trusted(path: Path) -> Path:
    """A file that was found, not named: on a shared machine anybody can put one into a parent directory."""
    named = chosen.path is not None and os.path.exists(chosen.path) and os.path.samefile(path, chosen.path)
    if not named and hasattr(os, "getuid") and path.stat().st_uid not in (0, os.getuid()):
        raise OptionError(f"{path}: the file belongs to another user; if you trust it, say drrej --config {path}")
    return path


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise OptionError(f"{path}: the configuration cannot be read ({error.strerror})") from None


def _read(path: Path, inside: tuple[str, ...]) -> _Table:
    import tomllib

    try:
        keys: Any = tomllib.loads(_bytes(path).decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise OptionError(f"{path}: not a TOML file ({error})") from None
    for name in inside:
        keys = keys.get(name, {}) if isinstance(keys, dict) else {}
    if not isinstance(keys, dict):
        raise OptionError(f"{path}: [tool.drrej] must be a table of options")
    return _Table(str(path), path.absolute().parent, keys)


# Variables


def _variables(command: str) -> dict[str, Setting]:
    found = {}
    for variable in filter(_is_ours, os.environ):
        name = _parameter(variable.removeprefix(PREFIX).lower())
        options = {each: known[name] for each, known in configurable().items() if name in known}
        if not options:
            near = _nearest(variable, {_variable(each) for known in configurable().values() for each in known})
            raise OptionError(f"{variable}: no option of this name can be set by a variable{near}")
        values = {each: _from_text(option, os.environ[variable]) for each, option in options.items()}
        wanted = {each: what_it_must_be(option, values[each]) for each, option in options.items()}
        if os.environ[variable] and all(wanted.values()):
            raise OptionError(f"{variable}={os.environ[variable]}: it must be {next(iter(wanted.values()))}")
        if command in options and os.environ[variable] and not wanted[command]:
            found[name] = Setting(values[command], variable)
    return found


def _is_ours(variable: str) -> bool:
    return variable.startswith(PREFIX) and variable not in _OTHER_VARIABLES


def _from_text(option: Any, text: str) -> Any:
    """A variable's text as the option takes it; the text itself where that cannot be."""
    if option.is_flag:
        return {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}.get(text.lower(), text)
    if option.multiple:
        return [line for line in text.splitlines() if line.strip()]
    kind = number_of(option)
    try:
        return text if kind is None else kind(text)
    except ValueError:
        return text


# What options take


@cache
def configurable() -> dict[str, dict[str, Any]]:
    """The options that can be configured, by command and name."""
    return {
        name: {option.name: option for option in command.params if is_configurable(option)}
        for name, command in chosen.commands().items()
    }


def number_of(option: Any) -> type[int] | type[float] | None:
    """Whether an option takes numbers, and which."""
    described = getattr(option, "type_descriptor", None)
    if described is not None:
        return described.annotation if described.annotation in (int, float) else None
    return {"integer": int, "float": float}.get(option.type.name)  # typer before 0.29


def choices_of(option: Any) -> list[str] | None:
    """The values that an option can have, if they are few."""
    described = getattr(option, "type_descriptor", getattr(option, "type", None))
    found = getattr(described, "choices", None)
    return list(found) if found else None


def what_it_must_be(option: Any, value: Any) -> str:
    """What an option takes, if it does not take this value; else nothing."""
    number, choices = number_of(option), choices_of(option)
    if option.is_flag:
        right, wanted = isinstance(value, bool), "true or false"
    elif option.multiple:
        right = isinstance(value, list) and all(isinstance(each, str) for each in value)
        wanted = "a list of texts"
    elif number is not None:
        right = isinstance(value, int | number) and not isinstance(value, bool)
        wanted = "a whole number" if number is int else "a number"
    else:
        right = isinstance(value, str) and (choices is None or value in choices)
        wanted = "a text" if choices is None else " or ".join(choices)
    return "" if right else wanted


def _parameter(key: str) -> str:
    """The parameter of a key: lambda is `lam` in Python."""
    name = key.replace("-", "_")
    return {"lambda": "lam"}.get(name, name)


def key_of(name: str) -> str:
    """The key of a parameter in a file."""
    return flag_of(name).removeprefix("--")


def _variable(name: str) -> str:
    return PREFIX + key_of(name).replace("-", "_").upper()


def _nearest(name: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches

    found = get_close_matches(name, list(known), n=1)
    return f"; did you mean {found[0]}?" if found else ""


def config_schema() -> dict[str, Any]:
    """The JSON Schema of a configuration file, for editors."""
    tables: dict[str, Any] = {}
    common: dict[str, list[Any]] = {}
    for command, options in configurable().items():
        described = {key_of(name): _described(option) for name, option in options.items()}
        for key, kind in described.items():
            common.setdefault(key, []).extend([] if kind in common.get(key, []) else [kind])
        if described:
            title = f"Only for drrej {command}."
            kind = {"type": "object", "description": title, "properties": described, "additionalProperties": False}
            tables[command] = kind
    keys = {key: kinds[0] if len(kinds) == 1 else {"anyOf": kinds} for key, kinds in common.items()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "drrej.toml, or [tool.drrej] of pyproject.toml",
        "type": "object",
        "properties": {**keys, **tables},
        "additionalProperties": False,
    }


def _described(option: Any) -> dict[str, Any]:
    number, choices = number_of(option), choices_of(option)
    kind: dict[str, Any]
    if option.is_flag:
        kind = {"type": "boolean"}
    elif option.multiple:
        kind = {"type": "array", "items": {"type": "string"}}
    elif number is not None:
        kind = {"type": "integer" if number is int else "number"}
    else:
        kind = {"type": "string"} if choices is None else {"enum": choices}
    return {**kind, "description": option.help}
