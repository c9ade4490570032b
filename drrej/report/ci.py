"""The gates where CI shows them: as GitHub Actions annotations, and as JUnit XML for GitLab, Jenkins and others."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from xml.etree import ElementTree

from drrej.documents.document import Document
from drrej.documents.gates import TARGET
from drrej.errors import printable
from drrej.report.words import TYPESET, figure, gate_state, gate_words, target_lines, target_of, warnings_of

_KINDS = {"passed": "notice", "failed": "error", "inconclusive": "warning"}


def render_github(report: Document) -> str:
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


_OUTCOMES = {"passed": "", "failed": "failure", "inconclusive": "skipped"}


def render_junit(report: Document) -> str:
    """A test suite with a case per gate; without gates a case that says the report was made."""
    cases = [
        ("drrej.gates", gate.gate, _OUTCOMES[gate_state(report, gate)], gate_words(report, gate))
        for gate in report.gates
    ]
    said = [("target", line) for line in target_lines(report)]
    said += [("warning", line) for line in warnings_of(report)]
    return _suite(cases or [("drrej", "report", "", "")], said)


def junit_error(message: str) -> str:
    """A test suite with the error that left no report to judge."""
    return _suite([("drrej", "report", "error", message)])


def _suite(cases: Sequence[tuple[str, str, str, str]], said: Sequence[tuple[str, str]] = ()) -> str:
    """A document with one suite: of each case its class, its name, what came of it and why."""
    outcomes = Counter(outcome for _, _, outcome, _ in cases)
    counts = {"tests": str(len(cases)), "failures": str(outcomes["failure"]), "errors": str(outcomes["error"])}
    root = ElementTree.Element("testsuites", counts)
    suite = ElementTree.SubElement(root, "testsuite", {"name": "drrej", **counts, "skipped": str(outcomes["skipped"])})
    if said:  # properties, because only a gate can fail
        properties = ElementTree.SubElement(suite, "properties")
        for name, line in said:
            ElementTree.SubElement(properties, "property", name=name, value=_text(line))
    for kind, name, outcome, message in cases:
        case = ElementTree.SubElement(suite, "testcase", classname=kind, name=_text(name))
        if outcome:
            type_of = {"failure": {"type": "gate"}, "error": {"type": "error"}}.get(outcome, {})
            ElementTree.SubElement(case, outcome, type_of, message=_text(message))
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode").replace(" />", "/>")  # in values > is escaped
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _text(text: str) -> str:
    """Text that XML can hold, on one line."""
    return _NOT_XML.sub("?", printable(text))
