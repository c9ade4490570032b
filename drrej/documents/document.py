"""Documents: what they declare about their figures, and how they are written, read, checked and described.

A field is `Annotated[type, about(...)]`. Its type says the range (msgspec checks it), `about` what the figure is: the
JSON Schema takes its description from there, the catalogue of metrics all of it. What a field leaves open, it has from
the section that it is in. A field that has its default is left out of the document, unless the default is `written`.

>>> from drrej.documents.report import Report
>>> Report.from_json('{"format": "drrej-report/1", "rows": 0}', "r.json")
Traceback (most recent call last):
drrej.errors.ReportError: r.json: the value of 'rows' is out of range
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import types
import typing
from collections.abc import ItemsView, Iterable, Iterator, KeysView
from enum import Enum
from functools import cache, cached_property
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from drrej._version import __version__
from drrej.core.types import Stored
from drrej.errors import OptionError
from drrej.strict_json import parse, shown

T = TypeVar("T")

# What is declared about a figure

Better = Literal["higher", "lower", "neither"]
"""The direction in which a figure improves."""


Unit = Literal[
    "share",
    "p-value",
    "count",
    "ratio",
    "nats",
    "score",
    "cost",
    "loss",
    "unit of the target",
    "squared unit of the target",
    "difference",
    "number",
]
"""What a figure is measured in."""


class When(Enum):
    """What a figure depends on, in the words that tell a user how to get it."""

    LABELS = "labels"
    COSTS = "`loss=cost` in 'drrej fit'"
    PRICES = "`review_cost=C` in 'drrej threshold'"
    AUDIT = "`audited=True`"
    MINUTES = "`minutes=M`"
    GROUPS = "`by=COL`"
    OUTSIDE = "`ood=COL`"
    INTERVALS = "`intervals=True`"
    CLASSWISE = "`classwise=True`"
    BASELINE = "`baseline=FILE` or `baseline_dump=DUMP`"
    PAIRS = "`baseline_dump=DUMP`"
    BOTH_INTERVALS = "`intervals=True`, also in the `baseline`"


EXACT = "exact (Clopper-Pearson)"
WEIGHTED = "random weights of the rows"
CERTIFIED = "exact tests of every cutoff"
JOINED = "the two intervals joined, or random weights of paired rows"
PRICED = "exact bounds of what can happen to a row, or betting"
TOGETHER = "exact, for all classes together"
SAMPLED = "exact for one class, else by Hoeffding"
NONE = "none"
"""How the 95 % interval of a figure is made."""


class About(Struct, frozen=True):
    """The meaning of a figure in plain words, its unit, direction and interval, and when it is there.

    `meaning` is a sentence without its full stop; inside a section it goes on where the section's ended. `label` is
    for tables, `ends` says what the ends of its interval take. With `gate=False` nothing in there is for gates.
    """

    meaning: str = ""
    better: Better | None = None
    interval: str | None = None
    when: When | None = None
    label: str = ""
    unit: Unit | None = None
    gate: bool = True
    ends: When | None = None

    def inside(self, section: About) -> About:
        """What holds for a figure in a section that says something too."""
        open_ones = {
            name: getattr(self, name) or getattr(section, name)
            for name in ("better", "interval", "when", "unit", "ends")
        }
        meaning = ", ".join(text for text in (section.meaning, self.meaning) if text)
        return replace(self, meaning=meaning, gate=self.gate and section.gate, **open_ones)


def about(
    meaning: str = "",
    better: Better | None = None,
    interval: str | None = None,
    when: When | None = None,
    label: str = "",
    unit: Unit | None = None,
    gate: bool = True,
    ends: When | None = None,
) -> Meta:
    """What is declared about a field, see `About`, for its annotation."""
    declared = About(meaning, better, interval, when, label, unit, gate, ends)
    return Meta(description=f"{meaning}." if meaning else None, extra={"about": declared})


Count = Annotated[int, Meta(ge=0, extra={"unit": "count"})]
AtLeastOne = Annotated[int, Meta(ge=1, extra={"unit": "count"})]
Share = Annotated[float, Meta(ge=0, le=1, extra={"unit": "share"})]
NotNegative = Annotated[float, Meta(ge=0)]


def written(default: T) -> T:
    """A default that documents tell: msgspec leaves out plain defaults only."""
    return msgspec.field(default_factory=lambda: default)


class Entry(Struct, frozen=True):
    """A field of a document: its name in Python, its key, its types and what is declared about it."""

    name: str
    key: str
    kinds: tuple[Any, ...]
    """None's is one of them where it may be null."""
    section: Any
    """The class of the section that it holds, if it holds one."""
    about: About
    required: bool


@cache
def entries(kind: type[Struct]) -> tuple[Entry, ...]:
    """The fields of a document or a section, in their order."""
    found = []
    for field in msgspec.structs.fields(kind):
        kinds, extra = _peeled(field.type)
        declared = extra.get("about", About())
        declared = replace(declared, unit=declared.unit or extra.get("unit"))
        section = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Struct)), None)
        found.append(Entry(field.name, field.encode_name, kinds, section, declared, field.required))
    return tuple(found)


def _peeled(hint: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The types of an annotation, without what is declared about them, and that."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        kinds, extra = _peeled(arguments[0])
        for meta in arguments[1:]:
            extra |= meta.extra or {}
        return kinds, extra
    if origin not in (types.UnionType, typing.Union):
        return (hint,), {}
    kinds, extra = (), {}
    for argument in arguments:
        inner, declared = _peeled(argument)
        kinds += inner
        extra |= declared
    return kinds, extra


# Documents

Finding = tuple[str, bool, str]
"""A key, whether its value is right, and what is wrong with it if not."""


class GateRow(Stored, frozen=True, kw_only=True):
    """A gate, the value that it met, its limit, and whether it passed."""

    gate: str
    value: float
    limit: float
    passed: bool


class BadRows(Stored, frozen=True, kw_only=True):
    """Bad rows of one kind: what is wrong, how many there are, and where the first is."""

    reason: str
    column: str
    rows: Count
    first_file: str
    first_row: Count


class BadFile(Stored, frozen=True, kw_only=True):
    """A file that was left out."""

    file: str
    reason: str


class LeftOut(Stored, frozen=True, kw_only=True):
    """Bad rows by kind, and bad files.

    Rows may be of several kinds, so `rows` need not be the sum.
    """

    rows: Count
    reasons: tuple[BadRows, ...]
    files: tuple[BadFile, ...]


class Document(
    Struct, frozen=True, eq=False, dict=True, omit_defaults=True, forbid_unknown_fields=True, tag_field="format"
):
    """A document is also the tree of its JSON: `report["coverage"]["value"]`, `"accuracy" in report`.

    Two documents are equal when their trees are; a tree that was read by `json` counts as one. `NOUN` is what users
    call it, `ERROR` is raised for damaged ones; the tag is the name of the format, with its number.
    """

    NOUN: ClassVar[str]
    ERROR: ClassVar[type[Exception]]

    @property
    def gates(self) -> tuple[GateRow, ...]:
        """What was asked of it: a field of reports."""
        return ()

    @property
    def failed_gates(self) -> tuple[GateRow, ...]:
        """The gates that did not pass."""
        return tuple(gate for gate in self.gates if not gate.passed)

    @cached_property
    def tree(self) -> dict[str, Any]:
        """The document as JSON's objects, lists and numbers, with a digest of all of them at the end."""
        numbers = msgspec.to_builtins(self, enc_hook=lambda number: number.item())  # those of numpy as Python's
        text = json.dumps(numbers, allow_nan=False)
        return {**json.loads(text), "digest": digest_of(text)}

    def __getitem__(self, key: str) -> Any:
        return self.tree[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.tree)

    def __eq__(self, other: object) -> bool:
        return self.tree == (other.tree if isinstance(other, Document) else other)

    def keys(self) -> KeysView[str]:
        """Those of the tree."""
        return self.tree.keys()

    def items(self) -> ItemsView[str, Any]:
        """Those of the tree."""
        return self.tree.items()

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key of the tree."""
        return self.tree.get(key, default)

    def to_json(self) -> str:
        """The document as text, a list of numbers on one line; numbers read back to the same float."""
        text = json.dumps(self.tree, indent=2, ensure_ascii=False)
        return re.sub(r"\[\n[-+.,eE\d\s]+\]", lambda numbers: " ".join(numbers[0].split()), text) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes, where: str | None = None, accept_edited: bool = False) -> Self:
        """Read a document: every key and range, what must hold between them, and that nobody has edited it.

        `where` names it in messages. An edited one may be accepted. The first version wrote no digests.
        """
        where = where or cls.NOUN
        try:
            text = text.decode("utf-8") if isinstance(text, bytes) else text
        except UnicodeDecodeError:
            raise cls.ERROR(f"{where}: not a JSON document; is it a {cls.NOUN}?") from None
        document = cls.read(text, where)
        for key, right, wrong in document.invariants():
            if not right:
                raise cls.ERROR(f"{where}: the value of '{key}' {wrong}")
        tree = json.loads(text)
        expected = [None, digest_of(text)] if tree.get("drrej_version") == "0.1.0" else [digest_of(text)]
        if tree.get("digest") in expected or accept_edited or os.environ.get("DRREJ_ACCEPT_EDITED"):
            return document
        raise cls.ERROR(
            f"{where}: it was edited after drrej wrote it ('digest' does not match); make the {cls.NOUN} again, or "
            "accept it as it is with `accept_edited=True`"
        )

    @classmethod
    def read(cls, text: str, where: str) -> Self:
        """Read a document, checking every key and range."""
        if not isinstance(text, str):
            raise cls.ERROR(f"{where}: expected the text of a document, not {type(text).__name__}")
        try:  # a large file of something else would take long to parse
            tree = {} if len(text) > 1 << 20 and '"format"' not in text else parse(text)
        except ValueError as error:
            reason = " ".join(str(error).split())
            raise cls.ERROR(f"{where}: not a JSON document ({reason}); is it a {cls.NOUN}?") from None
        if not isinstance(tree, dict):
            raise cls.ERROR(f"{where}: not a {cls.NOUN}: expected a JSON object")
        found, expected = tree.get("format"), str(cls.__struct_config__.tag)
        if isinstance(found, str) and found != expected and found.startswith(expected.split("/")[0] + "/"):
            raise cls.ERROR(f"{where}: format '{shown(found)}' is not known to drrej {__version__}; update drrej")
        if found != expected:
            other = f", not '{shown(found)[:40]}'" if isinstance(found, str) and found.startswith("drrej-") else ""
            raise cls.ERROR(f"{where}: not a {cls.NOUN}: its 'format' should be '{expected}'{other}")
        for place, wrong in _unreadable(tree):
            raise cls.ERROR(f"{where}: the value of '{place}' {wrong}")
        tree.pop("digest", None)
        try:
            cls.mend(tree)
            return msgspec.convert(tree, cls)
        except OptionError as error:
            raise cls.ERROR(f"{where}: {error}") from None
        except msgspec.ValidationError as error:
            raise cls.ERROR(f"{where}: {_explained(str(error))}") from None

    @staticmethod
    def mend(tree: dict[str, Any]) -> None:
        """Bring the tree of an older document to what is written today."""

    def invariants(self) -> Iterable[Finding]:
        """What must hold between the values, edited or not; one may rely on those before it."""
        return ()


def digest_of(text: str) -> str:
    """A digest of what a document says, however it is spaced, its keys ordered and its whole numbers written.

    >>> digest_of('{"a": 1, "b": "c"}') == digest_of('{"b":"c","a":1.0, "digest":"x"}')
    True
    """
    tree = json.loads(text, parse_int=float)
    tree.pop("digest", None)
    return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()


def schema_of(kind: type[Document]) -> dict[str, Any]:
    """The JSON Schema of the documents of a kind."""
    found = msgspec.json.schema(kind)
    body = found["$defs"].pop(found["$ref"].rpartition("/")[2])
    body["properties"]["digest"] = {"description": "SHA-256 of everything else, which detects edits.", "type": "string"}
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return {**head, **body, "title": f"drrej {kind.NOUN}", "$defs": found["$defs"]}


# What is wrong with a document, in our words

_WORDS = {
    "float": "a number",
    "int": "a whole number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
}


def _unreadable(node: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """The places of numbers beyond every float, and of text with half of a character, which no file can hold."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield from _unreadable(value, f"{place}{'.' * bool(place)}{shown(key)}")
    elif isinstance(node, list):
        for number, value in enumerate(node):
            yield from _unreadable(value, f"{place}[{number}]")
    elif isinstance(node, float) and math.isinf(node):
        yield place, "is out of range"
    elif isinstance(node, str) and not node.isascii() and any("\ud800" <= letter <= "\udfff" for letter in node):
        yield place, "should be text, not half of a character"


def _explained(message: str) -> str:
    """What msgspec found: what is wrong, and where."""
    found = re.fullmatch(r"(.*?)(?: - at `\$\.?(.*)`)?", message, re.DOTALL)
    assert found is not None
    reason, place = found[1], shown(found[2] or "")
    if match := re.fullmatch(r"Object (missing required|contains unknown) field `(.*)`", reason, re.DOTALL):
        what = "is missing" if match[1].startswith("missing") else f"is not known to drrej {__version__}"
        return f"the key '{place}{'.' * bool(place)}{shown(match[2])}' {what}"
    if match := re.fullmatch(r"Expected `(\w+).*`, got `(\w+)`", reason):
        wanted, got = _WORDS[match[1]], {**_WORDS, "float": "a decimal number"}.get(match[2], match[2])
        return f"the value of '{place or 'document'}' should be {wanted}, not {got}"
    if reason.startswith("Invalid enum value"):
        return f"the value of '{place}' should be one of the words in the schema: {shown(reason)}"
    if re.match("Expected `|Number out of range", reason):
        return f"the value of '{place}' is out of range"
    return f"'{place or 'document'}': {reason}"
