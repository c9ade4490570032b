"""The steps of a decision as an ONNX graph."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from onnx import TensorProto, checker, helper, load_from_string, numpy_helper, version_converter

from drrej.errors import OptionError
from drrej.export.steps import Decision, Expression

_KINDS = {"Mult": "Mul", "Lt": "Less", "LtE": "LessOrEqual", "Gt": "Greater", "GtE": "GreaterOrEqual", "Eq": "Equal"}
_KINDS |= {"USub": "Neg", "IfExp": "Where", "abs": "Abs", "exp": "Exp", "log": "Log", "pick": "Gather"}
"""Functions that ONNX calls otherwise."""

_OPSET = 17


class _Graph:
    """Nodes that are written one by one; values for each class are rows x classes, others rows x 1."""

    def __init__(self, decision: Decision) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.names: dict[str, str] = {}
        self.decision = decision

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add a node; its output."""
        name = f"drrej_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def constant(self, values: Any) -> str:
        """Add a constant."""
        name = f"drrej_constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def write(self, value: Expression) -> str:
        """An expression; the name of its values."""
        match value:
            case "j":
                return self.constant(np.arange(self.decision.width)[None])
            case "inf":
                return self.constant(np.inf)
            case str(name):
                lists = self.decision.lists
                return self.constant(np.array(lists[name], np.float64)) if name in lists else self.names[name]
            case (name, *parts):
                return self.call(name, *map(self.write, parts))
        return self.constant(value)

    def call(self, name: str, *given: str) -> str:
        """A function."""
        match name:
            case "log1p":  # x ln(w) / (w - 1), w = 1 + x as it is rounded: what rounding takes, both have lost
                one = self.constant(1.0)
                above = self.node("Add", given[0], one)
                lost = self.node("Sub", above, one)
                exact = self.node("Div", self.node("Mul", given[0], self.node("Log", above)), lost)
                none = self.node("Equal", lost, self.constant(0.0))
                return self.node("Where", none, given[0], exact)
            case "sum":
                return self.node("ReduceSum", given[0], self.constant(np.array([1])), keepdims=1)
            case "first":
                return self.node("ArgMax", given[0], axis=1, keepdims=1)
            case "max":
                return self.node("GatherElements", given[0], self.call("first", *given), axis=1)
        return self.node(_KINDS.get(name, name), *given)


def onnx_of(
    decision: Decision, golden: list[dict[str, Any]], about: str, append: bytes | None = None, scores: str | None = None
) -> bytes:
    """The graph as a model: scores in; prediction, loss, ratio and rejected out.

    With `append` it is added to the end of that model, at its output `scores`, which may be left out if it has one.
    """
    if decision.by is not None:
        raise OptionError(f"`to=onnx`: cutoffs by the column '{decision.by}' are texts, which graphs do not take")
    graph, single = _Graph(decision), decision.single
    model = None if append is None else _appended(append, decision, scores)
    given = "scores"
    if model is not None:
        scores = scores or model.graph.output[0].name
        given = graph.node("Cast", scores, to=TensorProto.DOUBLE)
    row = graph.constant(np.array([-1, 1 if single else decision.width]))
    graph.names["score" if single else "s"] = graph.node("Reshape", given, row)
    for step in decision.steps:
        graph.names[step.name] = graph.write(step.value)
    names, cutoffs = graph.names, decision.cutoffs
    cutoff = graph.constant(np.array(cutoffs, np.float64))
    if isinstance(cutoffs, list):
        cutoff = graph.node("Gather", cutoff, names["prediction"])
    good = graph.node("Not", names["bad"])
    nan = graph.constant(np.float64(np.nan))
    accepted = graph.node("And", good, graph.node("Less", names["loss"], cutoff))
    results = {
        "prediction": (names["prediction"], TensorProto.INT64),
        "loss": (graph.node("Where", good, names["loss"], nan), TensorProto.DOUBLE),
        "ratio": (graph.node("Where", good, names["ratio"], nan), TensorProto.DOUBLE),
        "rejected": (graph.node("Not", accepted), TensorProto.BOOL),
    }
    flat, told = graph.constant(np.array([-1])), []
    for name, (value, kind) in results.items():
        graph.nodes.append(helper.make_node("Reshape", [value, flat], [name]))
        told.append(helper.make_tensor_value_info(name, kind, ["rows"]))
    if model is None:
        shape: list[Any] = ["rows"] if single else ["rows", decision.width]
        taken = helper.make_tensor_value_info("scores", TensorProto.DOUBLE, shape)
        made = helper.make_graph(graph.nodes, "drrej", [taken], told, graph.constants)
        model = helper.make_model(made, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=8)
    else:
        model.graph.node.extend(graph.nodes)
        model.graph.initializer.extend(graph.constants)
        model.graph.output.extend(told)
    names_of = json.dumps(decision.rejector.class_names)
    own = {each.key: each.value for each in model.metadata_props}
    told_of = {"drrej": about, "drrej.golden": json.dumps(golden), "drrej.classes": names_of}
    helper.set_model_props(model, own | told_of)
    checker.check_model(model)
    content: bytes = model.SerializeToString()
    return content


def _appended(content: bytes, decision: Decision, scores: str | None) -> Any:
    """The model that a decision is added to; raises where it does not fit."""
    try:
        model = load_from_string(content)
        if min(each.version for each in model.opset_import if each.domain in ("", "ai.onnx")) < _OPSET:
            model = version_converter.convert_version(model, _OPSET)
    except Exception as error:  # the parser and the converter raise what they like
        reason = " ".join(str(error).split())[:200]
        raise OptionError(f"`append`: not an ONNX model of opset {_OPSET}, or one that becomes it ({reason})") from None
    outputs = {each.name: each.type.tensor_type for each in model.graph.output}
    if (len(outputs) > 1 and scores is None) or (scores is not None and scores not in outputs):
        raise OptionError(f"`append`: say which output has the scores with `scores`; there are {', '.join(outputs)}")
    if taken := outputs.keys() & {"prediction", "loss", "ratio", "rejected"}:
        raise OptionError(f"`append`: the model has an output '{taken.pop()}' already; rename it")
    kind = outputs[scores or next(iter(outputs))]
    last = kind.shape.dim[-1].dim_value if kind.shape.dim else 0
    if kind.elem_type not in (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16):
        raise OptionError("`append`: the output of the model has no floating-point numbers")
    if last and not decision.single and last != decision.width:
        raise OptionError(f"`append`: the model has {last} scores per row, but the rejector is for {decision.width}")
    return model
