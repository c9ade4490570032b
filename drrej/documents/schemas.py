"""JSON Schemas of the documents, from their dataclasses."""

from __future__ import annotations

from drrej.documents.codec import Schema
from drrej.documents.monitor import MonitorState
from drrej.documents.rejector import CODEC, Rejector
from drrej.documents.report import Report


def rejector_schema() -> Schema:
    """The schema of a rejector document."""
    return CODEC.schema(Rejector)


def report_schema() -> Schema:
    """The schema of a report document; what needs labels or was not asked for is not there."""
    return Report.CODEC.schema(Report)


def monitor_schema() -> Schema:
    """The schema of the state of a monitor."""
    return MonitorState.CODEC.schema(MonitorState)
