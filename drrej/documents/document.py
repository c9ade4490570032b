"""Documents that a step makes: typed inside, read by key outside."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, ClassVar, Self

from drrej.documents.codec import Codec
from drrej.records import dataclass


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
