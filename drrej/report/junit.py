"""The gates as JUnit XML: one test case per gate, which GitLab, Jenkins and others show."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from drrej.documents.document import GateRow, Judged
from drrej.report.numbers import against

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render_junit(report: Judged) -> str:
    """A test suite with a case per gate; without gates a case that says the report was made."""
    counts = {"tests": str(len(report.gates) or 1), "failures": str(len(report.failed_gates)), "errors": "0"}
    root = ElementTree.Element("testsuites", counts)
    suite = ElementTree.SubElement(root, "testsuite", {"name": "drrej", **counts, "skipped": "0"})
    for gate in report.gates:
        _add_case(suite, gate)
    if not report.gates:
        ElementTree.SubElement(suite, "testcase", classname="drrej", name="report")
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode").replace(" />", "/>")  # in values > is escaped
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _add_case(suite: ElementTree.Element, gate: GateRow) -> None:
    name = _NOT_XML.sub("?", gate.gate)
    case = ElementTree.SubElement(suite, "testcase", classname="drrej.gates", name=name)
    if not gate.passed:
        message = f"{name}: the value is {against(gate.value, gate.limit)}"
        ElementTree.SubElement(case, "failure", type="gate", message=message)
