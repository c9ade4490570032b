"""Links in Markdown lead to files and headings that exist; mkdocs looks at those of the site once more."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import pytest
from conftest import ROOT

SKIPPED = {".venv", ".pytest_cache", "site", "out", "node_modules"}
PAGES = sorted(
    path
    for path in ROOT.rglob("*.md")
    if not SKIPPED & set(path.relative_to(ROOT).parts) and not path.is_relative_to(ROOT / "tests")
)
LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(\s*<?([^)>\s]+)>?(?:\s+\"[^\"]*\")?\s*\)|(?:src|href)=\"([^\"]+)\"")
ELSEWHERE = re.compile(r"^(?:[a-z][a-z0-9+.-]*:|//)", re.IGNORECASE)


def prose(path: Path) -> str:
    """The text without code."""
    text = re.sub(r"^ *(```|~~~).*?^ *\1 *$", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]*`", "code", text)


def slug(heading: str) -> str:
    """As GitHub and mkdocs make it."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    return re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", plain.lower()).strip())


@cache
def anchors(path: Path) -> set[str]:
    """What a link into a page may name, one word a heading; several dashes count as one."""
    text = path.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ +(.*?)(?: *\{#[\w-]+\})? *$", text, re.MULTILINE)
    named = re.findall(r"\{#([\w-]+)\}|(?:id|name)=\"([^\"]+)\"", text)
    return {_one_dash(slug(heading)) for heading in headings} | {_one_dash(a or b) for a, b in named}


def _one_dash(word: str) -> str:
    return re.sub(r"-+", "-", word)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in (first or second for first, second in LINK.findall(prose(page))):
        if ELSEWHERE.match(link):
            continue
        name, _, anchor = unquote(link).partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists():
            broken.append(f"{link}: no such file")
        elif anchor and target.suffix == ".md" and not api_name(anchor) and _one_dash(anchor) not in anchors(target):
            broken.append(f"{link}: no such heading")
    assert broken == []


def api_name(anchor: str) -> bool:
    """Whether mkdocstrings makes it: `drrej.fit`."""
    return anchor.startswith("drrej.")


def test_links_that_lead_nowhere_are_noticed(tmp_path: Path) -> None:
    (tmp_path / "there.md").write_text("# One `word` & more\n")
    for link, fine in [("there.md", True), ("there.md#one-word-more", True), ("no.md", False), ("there.md#no", False)]:
        (tmp_path / "page.md").write_text(
            f"See [this\none]({link}), not `[that](code.md)`, or <https://example.org/x>.\n"
        )
        if fine:
            test_links_lead_somewhere(tmp_path / "page.md")
        else:
            with pytest.raises(AssertionError):
                test_links_lead_somewhere(tmp_path / "page.md")
