"""JSON Schemas of the two documents: the rejector's from its dataclasses, the report's written out here."""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Any

Schema = dict[str, Any]

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def rejector_schema() -> Schema:
    """The schema of a rejector document."""
    from drrej.documents.rejector import FORMAT, RENAMED, Rejector

    body = _of_dataclass(Rejector, RENAMED)
    body["properties"] = {"format": {"const": FORMAT}, **body["properties"]}
    body["required"] = ["format", *body["required"]]
    return {"$schema": _DIALECT, "title": "drrej rejector", **body}


def _of_dataclass(kind: Any, renamed: dict[str, str]) -> Schema:
    hints = typing.get_type_hints(kind)
    properties: Schema = {}
    for field in dataclasses.fields(kind):
        name = renamed.get(field.name, field.name)
        if "kinds" not in field.metadata:
            properties[name] = _of_hint(hints[field.name], renamed)
            continue
        properties[name] = {"enum": list(field.metadata["kinds"])}
        for choice in dict.fromkeys(field.metadata["kinds"].values()):
            fields = _of_dataclass(choice, renamed)["properties"]
            properties |= {key: value for key, value in fields.items() if key != "name"}
    return {
        "type": "object",
        "properties": properties,
        "required": [renamed.get(f.name, f.name) for f in dataclasses.fields(kind) if f.default is dataclasses.MISSING],
        "additionalProperties": False,
    }


def _of_hint(hint: Any, renamed: dict[str, str]) -> Schema:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return {"anyOf": [_of_hint(argument, renamed) for argument in arguments]}
    if origin is typing.Literal:
        return {"enum": list(arguments)}
    if origin is tuple:
        return {"type": "array", "items": _of_hint(arguments[0], renamed)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _of_hint(arguments[1], renamed)}
    if dataclasses.is_dataclass(hint):
        return _of_dataclass(hint, renamed)
    return {
        "type": {float: "number", int: "integer", str: "string", bool: "boolean", type(None): "null"}[hint],
    }


_COUNT: Schema = {"type": "integer", "minimum": 0}
_TEXT: Schema = {"type": "string"}
_NUMBER: Schema = {"type": ["number", "null"]}
_SHARE: Schema = {"type": ["number", "null"], "minimum": 0, "maximum": 1}


def _object(required: Schema, optional: Schema | None = None) -> Schema:
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
        "additionalProperties": False,
    }


def _list(item: Schema) -> Schema:
    return {"type": "array", "items": item}


def report_schema() -> Schema:
    """The schema of a report document; what needs labels or was not asked for is not there."""
    from drrej.pipeline.evaluate import FORMAT

    required = {
        "format": {"const": FORMAT},
        "drrej_version": _TEXT,
        "rows": {"type": "integer", "minimum": 1},
        "classes": {"type": "integer", "minimum": 2},
        "tau": _NUMBER,
        "cutoff": _NUMBER,
        "coverage": _COVERAGE,
        "expected_accuracy": _object({"value": _SHARE, "all": _SHARE}),
        "ratio": _object({"mean": _NUMBER, "std_error": _NUMBER, "p_value": _SHARE}),
        "drift": _object({"distance": _SHARE, "p_value": _SHARE}),
        "gates": _list(
            _object(
                {
                    "gate": _TEXT,
                    "value": {"type": "number"},
                    "limit": {"type": "number"},
                    "passed": {"type": "boolean"},
                }
            )
        ),
    }
    body = _object(required, {**_optional_sections(), "pictures": _pictures()})
    return {"$schema": _DIALECT, "title": "drrej report", **body}


_INTERVAL: Schema = {"value": _SHARE, "lower": _SHARE, "upper": _SHARE}
_COVERAGE = _object({**_INTERVAL, "accepted": _COUNT})
_ACCURACY = _object({**_INTERVAL, "errors": _COUNT})
_POINT = _object({**_INTERVAL, "accepted": _COUNT, "errors": _COUNT})
_POINTS: Schema = {"type": "object", "additionalProperties": _POINT}
_CURVE = {"coverage": _SHARE, "accuracy": _SHARE, "lower": _SHARE, "upper": _SHARE}


def _pictures() -> Schema:
    """What a page or a plot shows besides."""
    bins = _object({**dict.fromkeys(("lower", "upper", "share", "confidence", "accuracy"), _SHARE), "rows": _COUNT})
    counts = _list(_COUNT)
    histogram = _object(
        {"scale": {"enum": ["linear", "log"]}, "edges": _list({"type": "number"})},
        {"right": counts, "wrong": counts, "rows": counts},
    )
    shares = ("coverage", "accuracy", "error_rate", "base_accuracy", "of_highest")
    member = {"name": _TEXT, **dict.fromkeys(("rows", "accepted", "errors"), _COUNT), **dict.fromkeys(shares, _SHARE)}
    rest = {"anyOf": [{"type": "null"}, _object({**member, "members": _COUNT})]}
    members = _object({"shown": _list(_object(member)), "rest": rest})
    pair = _object({"label": _TEXT, "prediction": _TEXT, "rows": _COUNT, "share": _SHARE})
    baseline = {"coverage_curve": _list(_object(_CURVE)), "coverage": _COVERAGE, "accuracy": _ACCURACY}
    return _object(
        {"losses": histogram, "made": _object({"words": _list(_TEXT), "commands": _list(_TEXT)})},
        {
            "ideal": _list(_object({"coverage": _SHARE, "accuracy": _SHARE})),
            "reliability": _object({"uncalibrated": _list(bins), "calibrated": _list(bins)}),
            "classes": members,
            "groups": members,
            "confusions": _object({"errors": _COUNT, "top": _list(pair), "other_pairs": _COUNT, "other_rows": _COUNT}),
            "baseline": _object(baseline),
        },
    )


def _optional_sections() -> Schema:
    calibration = _object({"uncalibrated": _NUMBER, "all": _NUMBER, "accepted": _NUMBER})
    areas = dict.fromkeys(("aurc", "e_aurc", "augrc"), _object(_INTERVAL))
    cost = _object({"value": _NUMBER, "expected": _NUMBER})
    worst = _object({"group": {"type": ["string", "null"]}, **_INTERVAL}, {"accepted": _COUNT, "errors": _COUNT})
    difference = _object({"value": _NUMBER, "lower": _NUMBER, "upper": _NUMBER})
    differences = dict.fromkeys(("coverage", "accuracy", "base_accuracy", "aurc", "e_aurc", "augrc"), difference)
    group = {"group": _TEXT, "rows": _COUNT, "coverage": _COVERAGE, "accuracy": _ACCURACY, "base_accuracy": _ACCURACY}
    per_class = {"class": {"type": ["integer", "string"]}, "rows": _COUNT, "coverage": _SHARE, "accuracy": _SHARE}
    return {
        "accuracy": _ACCURACY,
        "base_accuracy": _ACCURACY,
        "nll": calibration,
        "ece": calibration,
        "brier": calibration,
        **dict.fromkeys(areas, _object({**_INTERVAL, "convention": _TEXT})),
        "cost": _object({"value": _NUMBER, "expected": _NUMBER, "all": cost}),
        "points": _POINTS,
        "bootstrap": _object({"resamples": _COUNT, "seed": _COUNT}),
        "curve": _list(_object({"tau": _SHARE, **_CURVE})),
        "coverage_curve": _list(_object(_CURVE)),
        "per_class": _list(_object(per_class)),
        "by": _TEXT,
        "cutoff_by": _TEXT,
        "per_group": _list(_object(group)),
        "worst_group": _object(dict.fromkeys(("coverage", "accuracy", "base_accuracy"), worst)),
        "scores": _list(
            _object(
                {
                    "score": _TEXT,
                    **areas,
                    "points": _POINTS,
                    "accuracy": _POINT,
                    "coverage_curve": _list(_object(_CURVE)),
                }
            )
        ),
        "masks": _list(_object({"mask": _TEXT, "coverage": _COVERAGE, "accuracy": _ACCURACY, "loss_accuracy": _POINT})),
        "difference": _object({"kind": {"enum": ["reports", "paired"]}, **differences}, {"rows": _COUNT}),
    }
