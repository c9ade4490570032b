"""The gates as JUnit XML: one test case per gate, which GitLab, Jenkins and others show."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from drrej.documents.document import Judged
from drrej.errors import printable
from drrej.report.text import confusion_lines
from drrej.report.words import gate_words, target_lines, warnings_of

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render_junit(report: Judged) -> str:
    """A test suite with a case per gate; without gates a case that says the report was made.

    The confusion matrix is its output, as text.
    """
    counts = {"tests": str(len(report.gates) or 1), "failures": str(len(report.failed_gates)), "errors": "0"}
    root = ElementTree.Element("testsuites", counts)
    suite = ElementTree.SubElement(root, "testsuite", {"name": "drrej", **counts, "skipped": "0"})
    said = [("target", line) for line in target_lines(report)]
    said += [("warning", line) for line in warnings_of(report)]
    if said:  # properties, because only a gate can fail
        properties = ElementTree.SubElement(suite, "properties")
        for name, line in said:
            ElementTree.SubElement(properties, "property", name=name, value=_text(line))
    for gate in report.gates:
        case = ElementTree.SubElement(suite, "testcase", classname="drrej.gates", name=_text(gate.gate))
        if not gate.passed:
            ElementTree.SubElement(case, "failure", type="gate", message=_text(gate_words(report, gate)))
    if not report.gates:
        ElementTree.SubElement(suite, "testcase", classname="drrej", name="report")
    ElementTree.indent(root)
    matrix = confusion_lines(report)
    if matrix:
        output = ElementTree.SubElement(suite, "system-out")
        output.text, output.tail = _NOT_XML.sub("?", "\n".join(["", *matrix, ""])), "\n  "
        suite[-2].tail = "\n    "
    text = ElementTree.tostring(root, encoding="unicode").replace(" />", "/>")  # in values > is escaped
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def junit_error(message: str) -> str:
    """A test suite with the error that left no report to judge."""
    counts = {"tests": "1", "failures": "0", "errors": "1"}
    root = ElementTree.Element("testsuites", counts)
    suite = ElementTree.SubElement(root, "testsuite", {"name": "drrej", **counts, "skipped": "0"})
    case = ElementTree.SubElement(suite, "testcase", classname="drrej", name="report")
    ElementTree.SubElement(case, "error", type="error", message=_text(message))
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'


def _text(text: str) -> str:
    """Text that XML can hold, on one line."""
    return _NOT_XML.sub("?", printable(text))
