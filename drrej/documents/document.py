"""Documents as frozen dataclasses: to JSON, and back with every key checked.

Type hints say what a value is; `About` in an annotation says which range it has. A field that is None and has that as
its default is left out of the document. Metadata of a field say more:

- `silent`: it is left out whenever it has its default;
- `kinds` and `fields_after`: it is an object of one of several classes. The document has its name under the key, and
  its fields beside the others, after the one named.

>>> from drrej.documents.report import IdealPoint
>>> codec = Codec("drrej-point/1", "point", ValueError)
>>> codec.tree(IdealPoint(coverage=0.5, accuracy=1.0))["accuracy"]
1.0
>>> codec.read(IdealPoint, '{"format": "drrej-point/1", "coverage": 0.5, "accuracy": 17}', "p.json")
Traceback (most recent call last):
ValueError: p.json: the value of 'accuracy' is out of range
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from functools import cache, cached_property
from typing import Any, ClassVar, Self, TypeVar

from drrej._version import __version__
from drrej.documents.fields import About
from drrej.errors import OptionError
from drrej.records import dataclass
from drrej.strict_json import parse, shown

T = TypeVar("T")

RENAMED = {"lam": "lambda", "class_": "class"}
"""Words of Python that are keys of documents."""

_LARGEST = sys.float_info.max
_WORDS: dict[Any, str] = {float: "a number", int: "a whole number", str: "text", bool: "true or false"}
_CONTAINERS: dict[type, str] = {list: "a list", dict: "an object"}


@dataclass(frozen=True)
class Entry:
    """A field of a document: its name in Python, its key, its type and what is declared about it."""

    name: str
    key: str
    hint: Any
    about: About
    field: dataclasses.Field[Any]

    @property
    def required(self) -> bool:
        """Whether every document has it."""
        return self.field.default is dataclasses.MISSING

    @property
    def choices(self) -> dict[str, Any]:
        """The classes that it may be of, by name; none for an ordinary field."""
        found: dict[str, Any] = self.field.metadata.get("kinds", {})
        return found

    def is_told(self, value: Any) -> bool:
        """Whether a document says it."""
        if value is None or self.field.metadata.get("silent"):
            return self.required or value != self.field.default
        return True

    @property
    def kinds(self) -> tuple[Any, ...]:
        """The types that it may have; None is one of them where it may be null."""
        return _kinds(self.hint)

    @property
    def section(self) -> Any:
        """The dataclass that it holds, if it holds one."""
        return next((kind for kind in self.kinds if dataclasses.is_dataclass(kind)), None)


def entries(kind: Any) -> tuple[Entry, ...]:
    """The fields of a document's dataclass, in their order."""
    return _entries(kind)


@cache
def _entries(kind: Any) -> tuple[Entry, ...]:
    hints = typing.get_type_hints(kind, include_extras=True)
    return tuple(_entry(field, hints[field.name]) for field in dataclasses.fields(kind))


def _entry(field: dataclasses.Field[Any], hint: Any) -> Entry:
    about = About()
    if typing.get_origin(hint) is typing.Annotated:
        hint, about = typing.get_args(hint)[:2]
    return Entry(field.name, RENAMED.get(field.name, field.name), hint, about, field)


def _kinds(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else (hint,)


@dataclass(frozen=True)
class Codec:
    """A format of documents: its name with its number, what users call it, and the error for damaged ones."""

    format: str
    noun: str
    error: type[Exception]

    def tree(self, document: Any) -> dict[str, Any]:
        """The document as JSON's objects, lists and numbers, with a digest of all of them at the end."""
        tree = {"format": self.format, **to_tree(document)}
        return {**tree, "digest": digest_of(json.dumps(tree))}

    def read(self, kind: type[T], text: str, where: str, mend: Callable[[dict[str, Any]], None] | None = None) -> T:
        """Read a document of a kind, checking every key; `where` names it in messages.

        `mend` may add to the tree what documents of older versions do not say.
        """
        tree = self._parsed(text, where)
        self._check_format(tree.get("format"), where)
        tree.pop("digest", None)
        if mend is not None:
            mend(tree)
        return _Reader(where, self.error).object(kind, tree, "", About())

    def check_digest(self, text: str, where: str, accept_edited: bool) -> None:
        """Raise for a document that is not as drrej wrote it, unless that is accepted.

        The first version wrote no digests.
        """
        tree = parse(text)
        expected = [None, digest_of(text)] if tree.get("drrej_version") == "0.1.0" else [digest_of(text)]
        if tree.get("digest") in expected or accept_edited or os.environ.get("DRREJ_ACCEPT_EDITED"):
            return
        raise self.error(
            f"{where}: it was edited since drrej wrote it: 'digest' is that of another {self.noun}; make it anew, or "
            "take it as it is with `accept_edited=True`"
        )

    def _parsed(self, text: str, where: str) -> dict[str, Any]:
        try:
            tree = parse(text)
        except ValueError as error:
            reason = " ".join(str(error).split())
            raise self.error(f"{where}: not a JSON document ({reason}); is it a {self.noun}?") from None
        if not isinstance(tree, dict):
            raise self.error(f"{where}: not a {self.noun}: a JSON object is expected")
        return tree

    def _check_format(self, found: Any, where: str) -> None:
        if found == self.format:
            return
        if isinstance(found, str) and found.startswith(self.format.split("/")[0] + "/"):
            raise self.error(f"{where}: format '{found}' is not known to drrej {__version__}; update drrej")
        other = f", not '{found[:40]}'" if isinstance(found, str) and found.startswith("drrej-") else ""
        raise self.error(f"{where}: not a {self.noun}: its 'format' should be '{self.format}'{other}")


def digest_of(text: str) -> str:
    """A digest of what a document says, however it is spaced, its keys ordered and its whole numbers written.

    >>> digest_of('{"a": 1, "b": "c"}') == digest_of('{"b":"c","a":1.0, "digest":"x"}')
    True
    """
    tree = json.loads(text, parse_int=float)
    tree.pop("digest", None)
    return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()


def to_tree(node: Any) -> Any:
    """Dataclasses to dicts, tuples to lists."""
    if isinstance(node, tuple | list):
        return [to_tree(item) for item in node]
    if isinstance(node, dict):
        return {key: to_tree(item) for key, item in node.items()}
    if not dataclasses.is_dataclass(node):
        return node
    tree: dict[str, Any] = {}
    beside: dict[str, dict[str, Any]] = {}
    for entry in entries(type(node)):
        value = getattr(node, entry.name)
        if entry.choices:
            fields = to_tree(value)
            tree[entry.key] = fields.pop("name", value.name)
            beside[entry.field.metadata["fields_after"]] = fields
        elif entry.is_told(value):
            tree[entry.key] = to_tree(value)
        tree |= beside.pop(entry.name, {})
    return tree


# Reading


@dataclass(frozen=True)
class _Reader:
    """Checks values against their types and ranges; the first that is wrong is named with its place."""

    where: str
    error: type[Exception]

    def object(self, kind: type[T], tree: Any, path: str, about: About, **known: Any) -> T:
        if not isinstance(tree, dict):
            raise self.error(f"{self.where}: '{path.rstrip('.') or 'document'}' should be an object")
        values: dict[str, Any] = {}
        for entry in entries(kind):
            place = f"{path}{entry.key}"
            if entry.key in known:
                values[entry.name] = known[entry.key]
            elif entry.choices and entry.key in tree:
                values[entry.name] = self.choice(entry.choices, tree, path, entry.key)
            elif entry.key in tree:
                values[entry.name] = self.value(entry.hint, tree[entry.key], place, entry.about.inside(about))
            elif entry.required:
                raise self.error(f"{self.where}: the key '{place}' is missing")
        if not known:
            self._check_keys(kind, tree, path)
        try:
            return kind(**values)
        except (ValueError, OptionError) as error:  # what contradicts itself, or is no more, cannot be made
            raise self.error(f"{self.where}: '{path.rstrip('.') or 'document'}': {error}") from None

    def _check_keys(self, kind: type, tree: dict[str, Any], path: str) -> None:
        """Raise for a key that is none of the object's; the document itself has its format besides."""
        expected = set() if path else {"format"}
        for entry in entries(kind):
            expected.add(entry.key)
            if entry.choices:
                expected |= {beside.key for beside in entries(entry.choices[tree[entry.key]])} - {"name"}
        strange = [key for key in tree if key not in expected]
        if strange:
            place = path + shown(strange[0])
            raise self.error(f"{self.where}: the key '{place}' is not known to drrej {__version__}")

    def choice(self, choices: dict[str, Any], tree: dict[str, Any], path: str, key: str) -> Any:
        """An object of one of several classes, whose fields are beside its name."""
        name = tree[key]
        if not isinstance(name, str) or name not in choices:
            raise self.error(f"{self.where}: the value of '{path}{key}' is out of range")
        return self.object(choices[name], tree, path, About(), name=name)

    def value(self, hint: Any, value: Any, place: str, about: About) -> Any:
        kinds = _kinds(hint)
        if value is None and types.NoneType in kinds:
            return None
        kinds = tuple(kind for kind in kinds if kind is not types.NoneType)
        kind, origin = kinds[0], typing.get_origin(kinds[0])
        if dataclasses.is_dataclass(kind) and isinstance(kind, type):
            return self.object(kind, value, place + ".", about)
        if origin is tuple:
            if not isinstance(value, list):
                raise self.error(f"{self.where}: the value of '{place}' should be a list")
            item = typing.get_args(kind)[0]
            return tuple(self.value(item, each, f"{place}[{number}]", about) for number, each in enumerate(value))
        if origin is dict and isinstance(value, dict):
            of = typing.get_args(kind)[1]
            named = ((key, f"{place}.{shown(key)}") for key in value)
            return {key: self.value(of, value[key], at, about) for key, at in named}
        if not any(_is_of(each, value) for each in kinds):
            raise self.error(f"{self.where}: the value of '{place}' should be {_named(kind)}, not {_said(value)}")
        if not isinstance(value, str | bool) and not (_within(value, about) and _fits(kinds, value)):
            raise self.error(f"{self.where}: the value of '{place}' is out of range")
        return float(value) if kind is float else value


def _is_of(kind: Any, value: Any) -> bool:
    """Whether a value is a number, a whole number, text, true or false, or one of the choices."""
    if typing.get_origin(kind) is typing.Literal:
        return value in typing.get_args(kind)
    if kind in (float, int):
        number = isinstance(value, int | float if kind is float else int) and not isinstance(value, bool)
        return number and abs(value) <= _LARGEST
    if isinstance(value, str):
        return kind is str and not _is_broken(value)
    return isinstance(kind, type) and isinstance(value, kind)


def _fits(kinds: tuple[Any, ...], value: float) -> bool:
    """Whether a whole number is one that can count something: numpy computes with 64 bits."""
    return float in kinds or abs(value) < 2**63


def _within(value: float, about: About) -> bool:
    least, most = about.range
    return (least is None or value >= least) and (most is None or value <= most)


def _is_broken(text: str) -> bool:
    """Whether text holds half of a surrogate pair, which no file can."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _said(value: Any) -> str:
    """A value for a message; lists and objects may be long or deep."""
    return _CONTAINERS.get(type(value)) or json.dumps(value)[:40]


def _named(kind: Any) -> str:
    return _WORDS.get(kind, "of another kind")


Schema = dict[str, Any]

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_TYPES = {float: "number", int: "integer", str: "string", bool: "boolean", types.NoneType: "null"}


def schema_of(kind: Any) -> Schema:
    """The schema of the documents of a kind."""
    codec: Codec = kind.CODEC
    body = _object_schema(kind, About())
    digest = {"description": "SHA-256 of all else, to tell edited documents.", "type": "string"}
    body["properties"] = {"format": {"const": codec.format}, **body["properties"], "digest": digest}
    body["required"] = ["format", *body["required"]]
    return {"$schema": _DIALECT, "title": f"drrej {codec.noun}", **body}


def _object_schema(kind: Any, about: About) -> Schema:
    properties: Schema = {}
    for entry in entries(kind):
        properties[entry.key] = {"enum": list(entry.choices)} if entry.choices else _entry_schema(entry, about)
        for choice in dict.fromkeys(entry.choices.values()):
            beside = _object_schema(choice, about)["properties"]
            properties |= {key: schema for key, schema in beside.items() if key != "name"}
    return {
        "type": "object",
        "properties": properties,
        "required": [entry.key for entry in entries(kind) if entry.required],
        "additionalProperties": False,
    }


def _entry_schema(entry: Entry, section: About) -> Schema:
    said = {"description": f"{entry.about.meaning}."} if entry.about.meaning else {}
    absent = entry.field.default is None  # then it is left out rather than null
    kinds = [kind for kind in entry.kinds if not (absent and kind is types.NoneType)]
    schemas = [_value_schema(kind, entry.about.inside(section)) for kind in kinds]
    return {**said, **(schemas[0] if len(schemas) == 1 else {"anyOf": schemas})}


def _value_schema(hint: Any, about: About) -> Schema:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return {"anyOf": [_value_schema(argument, about) for argument in arguments]}
    if origin is typing.Literal:
        return {"enum": list(arguments)}
    if origin is tuple:
        return {"type": "array", "items": _value_schema(arguments[0], about)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _value_schema(arguments[1], about)}
    if dataclasses.is_dataclass(hint):
        return _object_schema(hint, about)
    schema: Schema = {"type": _TYPES[hint]}
    if hint in (float, int):
        least, most = about.range
        schema |= {key: limit for key, limit in (("minimum", least), ("maximum", most)) if limit is not None}
    return schema


class Document(Mapping[str, Any]):
    """A frozen dataclass that is also the tree of its JSON: `report["coverage"]["value"]`, `"accuracy" in report`.

    Two documents are equal when their trees are; a tree that was read by `json` counts as one.
    """

    CODEC: ClassVar[Codec]

    @cached_property
    def tree(self) -> dict[str, Any]:
        """The document as JSON's objects, lists and numbers."""
        return self.CODEC.tree(self)

    def __getitem__(self, key: str) -> Any:
        return self.tree[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.tree)

    def __len__(self) -> int:
        return len(self.tree)

    def to_json(self) -> str:
        """The document as text; numbers read back to the same float."""
        return json.dumps(self.tree, indent=2, allow_nan=False, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str, where: str | None = None, accept_edited: bool = False) -> Self:
        """Read a document, checking every key and range, and that nobody has edited it unless that is accepted.

        `where` names it in messages.
        """
        where = where or cls.CODEC.noun
        document = cls.CODEC.read(cls, text, where, cls.mend)
        cls.CODEC.check_digest(text, where, accept_edited)
        return document

    @staticmethod
    def mend(tree: dict[str, Any]) -> None:
        """Bring the tree of an older document to what is written today."""


@dataclass(frozen=True, kw_only=True)
class GateRow:
    """A gate, the value that it met, its limit, and whether it passed."""

    gate: str
    value: float
    limit: float
    passed: bool


class Judged(Document):
    """A document with gates."""

    gates: tuple[GateRow, ...]

    @property
    def failed_gates(self) -> tuple[GateRow, ...]:
        """The gates that did not pass."""
        return tuple(gate for gate in self.gates if not gate.passed)
