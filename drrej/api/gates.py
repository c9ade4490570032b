"""Gates as they are typed."""

from __future__ import annotations

from collections.abc import Sequence

from drrej.documents.gates import Gate

Gates = Sequence[Gate | str] | str
"""Gates, or texts like "accuracy >= 0.97"; one text alone will do."""


def as_gates(gates: Gates) -> list[Gate]:
    """Gates, parsed where they are texts."""
    listed = [gates] if isinstance(gates, str) else gates
    return [Gate.parse(gate) if isinstance(gate, str) else gate for gate in listed]
