"""Formulas of the site as MathML, which browsers show without a script: `$...$` and `$$...$$` in a page."""

from __future__ import annotations

import html
import re
from typing import Any

from latex2mathml.converter import convert

_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def on_page_content(content: str, **_: Any) -> str:
    """The page with its formulas set; mkdocs calls it for each page."""

    def formula(found: re.Match[str]) -> str:
        is_block = found[1] == "div"
        text = convert(html.unescape(found[2]), display="block" if is_block else "inline")
        return f'<div class="formula">{text}</div>' if is_block else text

    return _FORMULA.sub(formula, content)
