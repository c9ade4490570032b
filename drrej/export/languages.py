"""The steps of a decision in Python, numpy, JavaScript and SQL: one writer of expressions, with a table for each."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from drrej.errors import OptionError
from drrej.export.steps import Decision, Expression, Step

Golden = list[dict[str, Any]]
"""Rows with their decisions."""

_PAIRS = {"Add": "+", "Sub": "-", "Mult": "*", "Div": "/", "Lt": "<", "LtE": "<=", "Gt": ">", "GtE": ">=", "Eq": "=="}
_OF_ALL = ("sum", "max", "first", "pick")
"""Functions of the values of all classes."""


def _pairs(**more: str) -> dict[str, str]:
    return {name: f"({{0}} {sign} {{1}})" for name, sign in (_PAIRS | more).items()}


class Language:
    """Writes expressions as Python has them, a value for each class as `name[j]`."""

    infinity, j, of_class, prefix = "inf", "j", "{}[j]", ""
    each_class, line, constant = "[{} for j in range(CLASSES)]", "    {} = {}", "{} = {}"
    refusal = "    if bad:\n        raise ValueError(BAD)"
    literal: ClassVar[Callable[[Any], str]] = repr
    table: ClassVar[dict[str, str]] = _pairs(And="and", Or="or") | {
        "USub": "(-{0})",
        "Not": "(not {0})",
        "IfExp": "({1} if {0} else {2})",
        **{name: f"{name}({{0}})" for name in ("abs", "exp", "log", "log1p", "sum", "max", "first")},
        "pick": "{0}[{1}]",
    }

    def __init__(self, decision: Decision) -> None:
        self.decision = decision
        self.each = {step.name for step in decision.steps if step.each} | decision.lists.keys() | {"s"}

    def of_all(self, name: str) -> str:
        """The values of a name for all classes."""
        return self.prefix + name

    def number(self, value: float) -> str:
        """A number."""
        return self.infinity if value == math.inf else repr(value)

    def write(self, value: Expression) -> str:
        """An expression."""
        match value:
            case float() | int():
                return self.number(value)
            case "j":
                return self.j
            case "inf":
                return self.infinity
            case str(name):
                return self.of_class.format(self.of_all(name)) if name in self.each else self.prefix + name
        name, *parts = value
        return self.table[name].format(*map(self.of_all if name in _OF_ALL else self.write, parts))

    def step(self, step: Step) -> str:
        """The value of a step."""
        text = self.write(step.value)
        return self.each_class.format(text, width=self.decision.width) if step.each else text

    def body(self) -> str:
        """The steps, line by line, and the refusal of rows without usable scores."""
        lines = []
        for step in self.decision.steps:
            lines.append(self.line.format(step.name, self.step(step)))
            lines += [self.refusal] if step.name == "bad" else []
        return "\n".join(lines)


class _Numpy(Language):
    """For rows at once: values for each class are rows x classes, others rows x 1."""

    j, of_class, each_class = "np.arange(CLASSES)", "{}", "{}"
    refusal = "    if bad.any():\n        raise ValueError(f'row {int(bad.argmax())}: {BAD}')"
    table: ClassVar[dict[str, str]] = Language.table | {
        **_pairs(And="&", Or="|"),
        "Not": "(~{0})",
        "IfExp": "np.where({0}, {1}, {2})",
        **{name: f"np.{name}({{0}})" for name in ("abs", "exp", "log", "log1p")},
        **{name: f"{{0}}.{name}(axis=1, keepdims=True)" for name in ("sum", "max")},
        "first": "{0}.argmax(axis=1)[:, None]",
    }

    def of_all(self, name: str) -> str:
        return f"np.array({name})" if name.isupper() else name


class _JavaScript(Language):
    infinity, each_class = "Infinity", "Array.from({{ length: CLASSES }}, (_, j) => {})"
    line, constant, literal = "  const {} = {};", "const {} = {};", json.dumps
    refusal = "  if (bad) throw new RangeError(BAD);"
    table: ClassVar[dict[str, str]] = Language.table | {
        **_pairs(And="&&", Or="||", Eq="==="),
        "Not": "(!{0})",
        "IfExp": "({0} ? {1} : {2})",
        **{name: f"Math.{name}({{0}})" for name in ("abs", "exp", "log", "log1p")},
    }


class _Sql(Language):
    infinity, j, prefix = "'infinity'::double", "(j - 1)", "drrej_"  # no column of a table is called so
    each_class, array = "[{} for j in range(1, {width} + 1)]", "([{}])"
    table: ClassVar[dict[str, str]] = Language.table | {
        "Eq": "({0} = {1})",
        "IfExp": "(case when {0} then {1} else {2} end)",
        "exp": f"(case when {{0}} < -700.0 then 0.0 when {{0}} > 709.0 then {infinity} else exp({{0}}) end)",
        "log": "ln({0})",
        "log1p": "(case when 1.0 + {0} = 1.0 then {0} else {0} * ln(1.0 + {0}) / ((1.0 + {0}) - 1.0) end)",
        **{name: f"list_{name}({{0}})" for name in ("sum", "max")},
        "first": "(list_position({0}, list_max({0})) - 1)",
        "pick": "{0}[{1} + 1]",
    }

    def list(self, texts: Iterable[str]) -> str:
        """A list of these."""
        return self.array.format(", ".join(texts))

    def number(self, value: float) -> str:
        text = super().number(value)
        return text if "e" in text or value == math.inf else f"{text}e0"  # else DuckDB would read a decimal

    def of_all(self, name: str) -> str:
        values = self.decision.lists.get(name)
        return super().of_all(name) if values is None else self.list(map(self.number, values))


class _Postgres(_Sql):
    infinity, array = "'inf'::float8", "(array[{}])"
    each_class = "(select array_agg({} order by j) from generate_series(1, {width}) j)"
    table: ClassVar[dict[str, str]] = _Sql.table | {
        "exp": f"(case when {{0}} < -700.0 then 0.0 when {{0}} > 709.0 then {infinity} else exp({{0}}) end)",
        **{name: f"(select {name}(v) from unnest({{0}}) v)" for name in ("sum", "max")},  # noqa: S608 - ours
        "first": "(array_position({0}, (select max(v) from unnest({0}) v)) - 1)",
    }

    def number(self, value: float) -> str:
        return f"'{value!r}'::float8" if value != math.inf else self.infinity


def code_of(decision: Decision, golden: Golden, javascript: bool) -> dict[str, str]:
    """The parts of an ES module with types in its comments; or of one for Python's standard library, and numpy."""
    language, names = (_JavaScript if javascript else Language)(decision), decision.rejector.class_names
    known = {"CLASSES": decision.width, "NAMES": None if names is None else list(names), "CUTOFFS": decision.cutoffs}
    known |= {"BINARY": decision.single, "BY": decision.by} | decision.lists
    literal = type(language).literal
    constants = "\n".join(language.constant.format(name, literal(value)) for name, value in known.items())
    many = _Numpy(decision).body()
    return {"CONSTANTS": constants, "ONE": language.body(), "MANY": many, "GOLDEN": literal(golden)}


def sql_of(decision: Decision, golden: Golden, scores: str, postgres: bool) -> dict[str, str]:
    """The parts of a table macro for DuckDB, or of a function of a row for PostgreSQL.

    `scores` is the column of lists, or of one score per row; or, separated by commas, the columns of the classes.
    """
    sql, single, by = (_Postgres if postgres else _Sql)(decision), decision.single, decision.by
    columns = [scores] if single else [name.strip() for name in scores.split(",")]
    wide = len(columns) > 1 or decision.rejector.is_scored
    if "*" in scores or (wide and not single and len(columns) != decision.width):
        raise OptionError(
            f"`scores={scores}`: name the column of lists, or the {decision.width} columns in the order of the classes"
        )
    names = [_quoted(name, '"') for name in columns]
    column = names[0] if single or not wide else sql.list(names)
    # each level is a query of its own: a name is computed once
    chain, kept, own, given = [], " materialized" if postgres else "", sql.prefix, "score" if single else "s"
    for number, step in enumerate(decision.steps, 1):
        text = sql.step(step)
        if step.name == "bad":
            length = "false" if single else f"{'cardinality' if postgres else 'len'}({own}s) <> {decision.width}"
            text = f"coalesce({text} or {length}, true)"
        chain.append(f"step_{number} as{kept} (select *, {text} as {own}{step.name} from step_{number - 1})")  # noqa: S608 - ours
    if isinstance(decision.cutoffs, dict):
        cases = " ".join(f"when {_quoted(name)} then {sql.number(value)}" for name, value in decision.cutoffs.items())
        cutoff = f"case {own}grouped::text {cases} end"
    elif isinstance(decision.cutoffs, list):
        cutoff = f"{sql.list(map(sql.number, decision.cutoffs))}[{own}prediction + 1]"
    else:
        cutoff = sql.number(decision.cutoffs)
    classes, rows = decision.rejector.class_names, []
    for row in golden:
        held = [f"'{value}'::float8" for value in row["scores"]]
        values = [*(held if single or wide else [sql.list(held)]), *([_quoted(row["group"])] if by else [])]
        values += [_quoted(str(row["prediction"])), f"'{row['loss']}'::float8", str(row["rejected"]).lower()]
        rows.append(f"({', '.join(values)})")
    head = [*names, *([] if by is None else [_quoted(by, '"')])]
    return {
        "STEPS": ",\n  ".join(chain),
        "LAST": f"step_{len(decision.steps)}",
        "NAMED": f"{sql.list(map(_quoted, classes))}[{own}prediction + 1]" if classes else f"{own}prediction",
        "PREDICTED": "integer" if classes is None else "text",
        "CUTOFF": cutoff,
        "INTERNAL": ", ".join(own + name for name in (given, "grouped", *(step.name for step in decision.steps))),
        "GROUP": "null" if by is None else _quoted(by, '"'),
        "INPUT": given,
        "KIND": "float8" if single else "float8[]",
        "COLUMN": column,
        "CALL": ", ".join([column, *(f"{name}::text" for name in head[len(names) :])]),
        "GOLDEN": ",\n  ".join(rows),
        "HEAD": ", ".join(head),
    }


def _quoted(text: str, mark: str = "'") -> str:
    return mark + text.replace(mark, 2 * mark) + mark
