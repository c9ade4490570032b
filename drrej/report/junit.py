"""The gates as JUnit XML: one test case per gate, which GitLab, Jenkins and others show."""

from __future__ import annotations

import re
from typing import Any
from xml.sax.saxutils import quoteattr

from drrej.report.numbers import against

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render_junit(report: dict[str, Any]) -> str:
    """A test suite with a case per gate; without gates a case that says the report was made."""
    gates = report["gates"]
    failed = sum(not gate["passed"] for gate in gates)
    cases = [_case(gate) for gate in gates] or ['    <testcase classname="drrej" name="report"/>']
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<testsuites tests="{len(cases)}" failures="{failed}" errors="0">',
        f'  <testsuite name="drrej" tests="{len(cases)}" failures="{failed}" errors="0" skipped="0">',
        *cases,
        "  </testsuite>",
        "</testsuites>",
    ]
    return "\n".join(lines) + "\n"


def _case(gate: dict[str, Any]) -> str:
    name = _attribute(gate["gate"])
    if gate["passed"]:
        return f'    <testcase classname="drrej.gates" name={name}/>'
    message = _attribute(f"{gate['gate']}: the value is {against(gate['value'], gate['limit'])}")
    return (
        f'    <testcase classname="drrej.gates" name={name}>\n'
        f'      <failure type="gate" message={message}/>\n'
        "    </testcase>"
    )


def _attribute(text: str) -> str:
    return quoteattr(_NOT_XML.sub("?", text), {"\n": "&#10;"})
