"""An export as bytes, with its golden rows."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any, Literal

from drrej._version import __version__
from drrej.documents.rejector import Rejector
from drrej.errors import OptionError
from drrej.export.golden import golden_rows
from drrej.export.languages import identifier, javascript_of, python_of, quoted, sql_of
from drrej.export.steps import BAND, Decision, decision_of

Target = Literal["python", "sql", "js", "onnx"]
Dialect = Literal["duckdb", "postgres"]
INSIDE = 12
"""Golden rows inside of an export, unless more are asked for."""


def export(
    rejector: Rejector,
    to: Target,
    *,
    golden: int | None = None,
    dialect: Dialect = "duckdb",
    scores: str | None = None,
    append_to: str | None = None,
    output_name: str | None = None,
) -> tuple[bytes, str]:
    """The file, and its golden rows as JSON.

    `scores` is the column of a table that holds the scores as a list, or a pattern of wide columns, `logit_*`.
    """
    if golden is not None and golden < 1:
        raise OptionError(f"`golden={golden}`: it must be 1 or more")
    decision = decision_of(rejector)
    rows = golden_rows(decision, INSIDE if golden is None else golden)
    about = about_of(rejector)
    head = {"about": about, "digest": rejector.tree["digest"], "tolerance": 1e-12, "rows": rows}
    beside = json.dumps(head, indent=1, allow_nan=False) + "\n"
    if to == "onnx":
        return _onnx(decision, rows, about, append_to, output_name), beside
    name = {"python": "decide.py.txt", "js": "decide.js.txt", "sql": f"{dialect}.sql"}[to]
    template = (files("drrej.export") / "templates" / name).read_text(encoding="utf-8").replace("@ABOUT@", about)
    if to == "sql":
        columns = _columns(scores or rejector.columns.logits, rejector, dialect)
        body = sql_of(decision, dialect, template.replace("@COLUMN@", columns[0]))
        return _with_golden(body, decision, dialect, rows, columns[1]).encode(), beside
    text = (python_of if to == "python" else javascript_of)(decision, template)
    by, binary = json.dumps(decision.by), json.dumps(rejector.binary)
    if to == "python":
        by, binary = repr(decision.by), repr(rejector.binary)
    text = text.replace("@BY@", by).replace("@BINARY@", binary).replace("@GOLDEN@", json.dumps(rows))
    return text.encode(), beside


def about_of(rejector: Rejector) -> str:
    """What an export says of itself, in one line."""
    digest = rejector.tree["digest"][:12]
    return (
        f"The decision of a drrej rejector (digest {digest}), written by drrej {__version__}. Losses are those of "
        f"drrej in float64 within {BAND:g}; so are the cutoffs: from {BAND:g} below a cutoff on, rows are rejected."
    )


def _columns(scores: str, rejector: Rejector, dialect: Dialect) -> tuple[str, list[str]]:
    """The expression that has the scores, and the columns it reads."""
    if "*" not in scores:
        return identifier(scores), [scores]
    names = [scores.replace("*", str(number)) for number in range(rejector.classes)]
    listed = ", ".join(map(identifier, names))
    return (f"[{listed}]" if dialect == "duckdb" else f"array[{listed}]"), names


def _with_golden(
    text: str, decision: Decision, dialect: Dialect, rows: list[dict[str, Any]], columns: list[str]
) -> str:
    """The SQL with its golden rows as a view."""
    kind = "double" if dialect == "duckdb" else "float8"

    def number(value: Any) -> str:
        return f"'{value!r}'::{kind}" if isinstance(value, float) else f"'{value}'::{kind}"

    lines = []
    for row in rows:
        values = list(map(number, row["scores"]))
        if dialect == "postgres" or len(columns) == 1:
            together = f"[{', '.join(values)}]" if dialect == "duckdb" else f"array[{', '.join(values)}]"
            values = values if decision.rejector.binary else [together]
        values += [quoted(row["group"])] if decision.by else ["null::text"] if dialect == "postgres" else []
        values += [quoted(str(row["prediction"])), number(row["loss"]), str(row["rejected"]).lower()]
        lines.append(f"({', '.join(values)})")
    head = ["scores"] if dialect == "postgres" else list(map(identifier, columns))
    head += ["golden_group"] if dialect == "postgres" else [identifier(decision.by)] if decision.by else []
    head += ["golden_prediction", "golden_loss", "golden_rejected"]
    return text.replace("@GOLDEN@", ",\n  ".join(lines)).replace("@HEAD@", ", ".join(head))


def _onnx(
    decision: Decision, rows: list[dict[str, Any]], about: str, append_to: str | None, output_name: str | None
) -> bytes:
    try:
        import onnx
    except ImportError:
        raise OptionError("`to=onnx` needs the package onnx: pip install 'drrej[onnx]'") from None
    from drrej.export.graph import onnx_of

    model = None if append_to is None else onnx.load(append_to)
    made: bytes = onnx_of(decision, rows, about, model, output_name).SerializeToString()
    return made
