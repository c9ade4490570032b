"""What mkdocs cannot do itself: formulas as MathML, and the repository's name, which is set at release."""

from __future__ import annotations

import html
import os
import re
from typing import Any

from latex2mathml.converter import convert

_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
_REPOSITORY = os.environ.get("GITHUB_REPOSITORY", "")
"""OWNER/drrej. GitHub sets it in every workflow; without it the site has no links to the repository."""


def on_config(config: Any, **_: Any) -> Any:
    """Tell the theme where the repository and the site are."""
    if _REPOSITORY:
        owner, _, name = _REPOSITORY.partition("/")
        config.repo_url = f"https://github.com/{_REPOSITORY}"
        config.repo_name = _REPOSITORY
        config.site_url = f"https://{owner}.github.io/{name}/"
    return config


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page with the name of the repository in its examples."""
    return markdown.replace("OWNER/drrej", _REPOSITORY or "OWNER/drrej")


def on_page_content(content: str, **_: Any) -> str:
    """The page with its formulas as MathML, which browsers show without a script: `$...$` and `$$...$$`."""

    def formula(found: re.Match[str]) -> str:
        is_block = found[1] == "div"
        text = convert(html.unescape(found[2]), display="block" if is_block else "inline")
        return f'<div class="formula">{text}</div>' if is_block else text

    return _FORMULA.sub(formula, content)
