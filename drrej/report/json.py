"""A document as JSON: itself."""

from __future__ import annotations

from drrej.documents.document import Document


def render_json(document: Document) -> str:
    """The whole tree; numbers read back to the same float."""
    return document.to_json()
