"""The steps of a decision as an ONNX graph."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from onnx import TensorProto, checker, helper, numpy_helper

from drrej.errors import OptionError
from drrej.export.steps import Decision, Expression

_KINDS = {"Mult": "Mul", "Lt": "Less", "LtE": "LessOrEqual", "Gt": "Greater", "GtE": "GreaterOrEqual", "Eq": "Equal"}
_KINDS |= {"USub": "Neg", "IfExp": "Where", "abs": "Abs", "exp": "Exp", "log": "Log", "pick": "Gather"}
"""Functions that ONNX calls otherwise."""


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
                return self.constant(np.arange(self.decision.classes)[None])
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


def onnx_of(decision: Decision, golden: list[dict[str, Any]], about: str) -> bytes:
    """The graph as a model: scores in; prediction, loss, ratio and rejected out."""
    if decision.by is not None:
        raise OptionError(f"`to=onnx`: cutoffs by the column '{decision.by}' are texts, which graphs do not take")
    graph, binary = _Graph(decision), decision.rejector.binary
    row = graph.constant(np.array([-1, 1 if binary else decision.classes]))
    graph.names["score" if binary else "s"] = graph.node("Reshape", "scores", row)
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
    shape: list[Any] = ["rows"] if binary else ["rows", decision.classes]
    scores = helper.make_tensor_value_info("scores", TensorProto.DOUBLE, shape)
    made = helper.make_graph(graph.nodes, "drrej", [scores], told, graph.constants)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    names_of = json.dumps(decision.rejector.class_names)
    helper.set_model_props(model, {"drrej": about, "drrej.golden": json.dumps(golden), "drrej.classes": names_of})
    checker.check_model(model)
    content: bytes = model.SerializeToString()
    return content
