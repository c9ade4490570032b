"""The gates where CI shows them: as GitHub Actions annotations, and as JUnit XML for GitLab, Jenkins and others."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from drrej.documents.document import Judged
from drrej.documents.gates import TARGET
from drrej.errors import printable
from drrej.report.words import TYPESET, figure, gate_state, gate_words, target_lines, target_of, warnings_of

_KINDS = {"passed": "notice", "failed": "error", "inconclusive": "warning"}


def render_github(report: Judged) -> str:
    """`::error` for a failed gate, `::notice` for one that passed, `::warning` for an inconclusive target.

    Without gates a notice has the coverage. Then comes the target, as a warning if these rows contradict it (it is an
    error only for the gate `target`).
    """
    said = [
        command(_KINDS[state], f"drrej gate {state}", gate_words(report, gate, TYPESET))
        for gate, state in ((gate, gate_state(report, gate)) for gate in report.gates)
    ]
    if not report.gates:
        accuracy = report.get("accuracy", {}).get("value")
        text = f"coverage {figure(report['coverage']['value'])}, accuracy {figure(accuracy)}, {report['rows']} rows"
        said.append(command("notice", "drrej", text))
    target = target_of(report)
    if target is not None and all(gate.gate != TARGET for gate in report.gates):
        kind = "warning" if target.verdict == "missed" else "notice"
        said += [command(kind, "drrej target", line) for line in target_lines(report, TYPESET)]
    said += [command("warning", "drrej", line) for line in warnings_of(report)]
    return "".join(said)


def command(kind: str, title: str, message: str) -> str:
    """A workflow command: `kind` is notice, warning or error."""
    title = printable(title).replace("%", "%25")
    message = "%0A".join(printable(line).replace("%", "%25") for line in message.split("\n"))
    return f"::{kind} title={title.replace(':', '%3A').replace(',', '%2C')}::{message}\n"


# JUnit

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render_junit(report: Judged) -> str:
    """A test suite with a case per gate; without gates a case that says the report was made."""
    skipped = sum(gate_state(report, gate) == "inconclusive" for gate in report.gates)
    root, suite = _suite(len(report.gates) or 1, len(report.failed_gates), 0, skipped)
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
        elif gate_state(report, gate) == "inconclusive":
            ElementTree.SubElement(case, "skipped", message=_text(gate_words(report, gate)))
    if not report.gates:
        ElementTree.SubElement(suite, "testcase", classname="drrej", name="report")
    ElementTree.indent(root)
    return _xml(root)


def junit_error(message: str) -> str:
    """A test suite with the error that left no report to judge."""
    root, suite = _suite(1, 0, 1)
    case = ElementTree.SubElement(suite, "testcase", classname="drrej", name="report")
    ElementTree.SubElement(case, "error", type="error", message=_text(message))
    ElementTree.indent(root)
    return _xml(root)


def _suite(tests: int, failures: int, errors: int, skipped: int = 0) -> tuple[ElementTree.Element, ElementTree.Element]:
    """The root of a document and its one suite."""
    counts = {"tests": str(tests), "failures": str(failures), "errors": str(errors)}
    root = ElementTree.Element("testsuites", counts)
    return root, ElementTree.SubElement(root, "testsuite", {"name": "drrej", **counts, "skipped": str(skipped)})


def _xml(root: ElementTree.Element) -> str:
    text = ElementTree.tostring(root, encoding="unicode").replace(" />", "/>")  # in values > is escaped
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _text(text: str) -> str:
    """Text that XML can hold, on one line."""
    return _NOT_XML.sub("?", printable(text))
