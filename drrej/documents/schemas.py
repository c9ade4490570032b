"""JSON Schemas of the documents, from their dataclasses."""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Any

from drrej.documents.cascade import Cascade
from drrej.documents.codec import Codec, Entry, entries
from drrej.documents.fields import About
from drrej.documents.plan import Plan
from drrej.documents.rejector import CODEC, Rejector
from drrej.documents.report import Report

Schema = dict[str, Any]

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_TYPES = {float: "number", int: "integer", str: "string", bool: "boolean", types.NoneType: "null"}


def rejector_schema() -> Schema:
    """The schema of a rejector document."""
    return schema_of(CODEC, Rejector)


def report_schema() -> Schema:
    """The schema of a report document; what needs labels or was not asked for is not there."""
    return schema_of(Report.CODEC, Report)


def plan_schema() -> Schema:
    """The schema of what `drrej plan` says."""
    return schema_of(Plan.CODEC, Plan)


def cascade_schema() -> Schema:
    """The schema of what `drrej cascade` says."""
    return schema_of(Cascade.CODEC, Cascade)


def schema_of(codec: Codec, kind: Any) -> Schema:
    """The schema of the documents of a kind."""
    body = _object_schema(kind, About())
    digest = {"description": "SHA-256 of all else, to tell edited documents.", "type": "string"}
    body["properties"] = {"format": {"const": codec.format}, **body["properties"], "digest": digest}
    body["required"] = ["format", *body["required"]]
    return {"$schema": _DIALECT, "title": f"drrej {codec.noun}", **body}


def _object_schema(kind: Any, about: About) -> Schema:
    properties: Schema = {}
    for entry in entries(kind):
        properties[entry.key] = {"enum": list(entry.choices)} if entry.choices else _entry_schema(entry, about)
        for choice in dict.fromkeys(entry.choices.values()):
            beside = _object_schema(choice, about)["properties"]
            properties |= {key: schema for key, schema in beside.items() if key != "name"}
    return {
        "type": "object",
        "properties": properties,
        "required": [entry.key for entry in entries(kind) if entry.required],
        "additionalProperties": False,
    }


def _entry_schema(entry: Entry, section: About) -> Schema:
    said = {"description": f"{entry.about.meaning}."} if entry.about.meaning else {}
    absent = entry.field.default is None  # then it is left out rather than null
    kinds = [kind for kind in entry.kinds if not (absent and kind is types.NoneType)]
    schemas = [_value_schema(kind, entry.about.inside(section)) for kind in kinds]
    return {**said, **(schemas[0] if len(schemas) == 1 else {"anyOf": schemas})}


def _value_schema(hint: Any, about: About) -> Schema:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return {"anyOf": [_value_schema(argument, about) for argument in arguments]}
    if origin is typing.Literal:
        return {"enum": list(arguments)}
    if origin is tuple:
        return {"type": "array", "items": _value_schema(arguments[0], about)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _value_schema(arguments[1], about)}
    if dataclasses.is_dataclass(hint):
        return _object_schema(hint, about)
    schema: Schema = {"type": _TYPES[hint]}
    if hint in (float, int):
        least, most = about.range
        schema |= {key: limit for key, limit in (("minimum", least), ("maximum", most)) if limit is not None}
    return schema
