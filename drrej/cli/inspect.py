"""drrej inspect and convert: what a dump or a rejector holds, and a dump of any format as parquet."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from drrej.cli.console import as_flags, in_flags, show
from drrej.cli.input_options import Dumps, InputOptions
from drrej.cli.options import READING, REQUIRED, STREAM, EngineOptions, OutputOptions, output_option, rare, rare_flag
from drrej.data.problems import redacted
from drrej.errors import OptionError, printable

if TYPE_CHECKING:
    from drrej.data.dump import Dump
    from drrej.documents.rejector import Rejector
    from drrej.pipeline.inspect import DumpFacts
    from drrej.pipeline.source import Source

_MOST_COLUMNS = 12


class LayoutInput(InputOptions):
    """How dumps and logs of lm-evaluation-harness are read."""

    filter: str | None = rare("Which filter of a log of lm-evaluation-harness to read.", "NAME", READING)
    per_length: bool = rare_flag("Divide log-likelihoods of choices by their length in characters.", panel=READING)


def inspect(
    files: Annotated[list[str], typer.Argument(metavar="FILE", hidden=True)], input: LayoutInput, engine: EngineOptions
) -> None:
    """Show what a predictions file contains and the command to run next, or what a rejector does.

    FILE: dumps (parquet files, directories, globs or URIs) or rejectors; - is standard input.

    Examples:
    drrej inspect val.parquet
    drrej inspect rejector.json
    drrej inspect 'nightly/*.parquet' --label truth

    """
    workers = engine.start()
    for number, path in enumerate(files):
        show("\n" if number else "")
        show(describe(path, input.source([path], workers)) + "\n")


ParquetOutput = Annotated[OutputOptions, {"output": output_option(default=REQUIRED)}]


def convert(dumps: Dumps, output: ParquetOutput, input: LayoutInput, engine: EngineOptions) -> None:
    """Write a dump of any format and layout as one parquet file.

    DUMP: files, directories, globs or URIs; - is standard input.

    Examples:
    drrej convert val.csv -o val.parquet
    drrej convert logits.npy --labels-from labels.npy -o val.parquet
    cat val.csv | drrej convert - -o - > val.parquet

    """
    from drrej.outputs.destinations import OutputFile
    from drrej.pipeline.inspect import convert as step

    target = output.output
    if not target.lower().endswith((".parquet", ".pq")) and target != STREAM:
        raise OptionError(f"-o {target}: the output is parquet; end its name in .parquet")
    with OutputFile(target, output.force) as file:
        source = input.source(dumps, engine.start())
        written = step(source, file)
        file.commit()
    if engine.quiet or target == STREAM:
        return
    names = ("logits", "label", "input", "normalize", "binary", "classes", "score", "correct", "lower_is_better")
    words = as_flags(**{name: getattr(written, name) for name in names})
    show(f"{source.notes.rows} rows; go on with:\n  {shlex.join(['drrej', 'calibrate', target, *words])}\n")


_FOUND = {
    "probabilities": "probabilities: rows lie in [0, 1] and sum to 1",
    "scaled": "percentages or counts: rows are not negative and sum to 100 or are whole numbers",
    "log-probs": "logarithms of probabilities, some of them of 0",
}
_FOUND_BINARY = "probabilities: each lies in [0, 1], as that of class 1 does"


def describe(path: str, source: Source) -> str:
    """Several lines about a dump or a rejector."""
    from drrej.documents.rejector import Rejector
    from drrej.pipeline.inspect import inspect_dump, json_text

    text = json_text(path, source)
    if text is not None:
        lines = _about_rejector(path, Rejector.from_json(text, path))
    else:
        lines = _about_dump(path, inspect_dump(source))
    return in_flags("\n".join(printable(redacted(line)) for line in lines))


# A dump


def _about_dump(path: str, facts: DumpFacts) -> list[str]:
    """Layout, classes, rows, bad rows, labels, and the command to go on with."""
    from drrej.data.problems import shown

    head = f"{path}: predictions in {_counted(facts.files, 'file')}"
    width = max((len(name) for name, _ in facts.columns[:_MOST_COLUMNS]), default=0)
    columns = [f"format:  {' and '.join(facts.formats)}", "columns:"]
    columns += [f"  {name.ljust(width)}  {kind}" for name, kind in facts.columns[:_MOST_COLUMNS]]
    columns += [f"  ... ({len(facts.columns)} in all)"] if len(facts.columns) > _MOST_COLUMNS else []
    dump = facts.dump
    if dump is None:
        return [head, *columns, f"cannot be used as it is: {facts.doubt}"]
    lines = [f"{head}, {dump.rows} rows in {_counted(len(dump.row_groups), 'row group')}", *columns]
    hive = [dump.schema.field(name) for name, _ in dump.parts[0].hive if name in dump.schema.names]
    lines += [f"  {field.name}  {field.type} (from the directory names)" for field in hive]
    named = ("logits", "label", "labels_from", "join_on", "filter", "input", "classes", "per_length", "normalize")
    scored = ("score", "correct", "prediction", "lower_is_better")
    read_as = {name: getattr(facts.options, name) for name in (*named, "binary", *scored)}
    skip = facts.options.on_missing_label == "skip"
    flags = as_flags(**read_as, on_missing_label="skip" if skip else None)
    if facts.found:
        lines.append(f"scores:  {_FOUND_BINARY if dump.binary else _FOUND[facts.found]}")
    if facts.labels_need_names:
        flags += ["--classes", "NAMES"]
    names = f": {shown(list(dump.names))}" if dump.columns.classes and dump.names else ""
    classes = "no classes: a row is right or wrong" if dump.input == "scores" else f"{dump.classes} classes{names}"
    lines.append(f"{dump.input}:  {_layout(dump)}, {classes}")
    lines += [f"bad rows: {problem.message()}" for problem in facts.problems] or ["bad rows: none"]
    if facts.doubt:
        lines.append(f"caution: {facts.doubt}")
    right = ""
    if facts.labelled:
        right = f"; the prediction is right in {100 * facts.right / facts.labelled:.2f} % of the rows"
    if facts.labelled and facts.labelled == facts.right:
        right = "; equal to the prediction in every row: are these the true labels? (timm's 'label' is the prediction)"
    lines.append(f"labels:  {facts.labels}{right}")
    if facts.sorted_scores:
        lines.append(
            "caution: the first score is the largest in every row: sorted scores (top-k) are not in class order"
        )
    return [*lines, *_advice(path, flags, facts)]


def _counted(count: int, what: str) -> str:
    return f"1 {what}" if count == 1 else f"{count} {what}s"


def _layout(dump: Dump) -> str:
    from drrej.data.columns import field_of

    scores = dump.columns
    field = field_of(dump.schema, scores.names[0])
    kind = "" if field is None else field.type
    if scores.layout == "wide":
        named = ", named by class" if scores.classes else ""
        return f"columns '{scores.names[0]}' to '{scores.names[-1]}' ({kind}){named}"
    words = {
        "score": ", one score per row",
        "vector": ", vectors of Spark",
        "labelled": ", probabilities with their labels in any order",
        "choices": ", as many as a question has choices",
        "tokens": ", tokens with their log-probabilities",
    }
    return f"column '{scores.pattern}' ({kind}){words.get(scores.layout, '')}"


def _advice(path: str, flags: Sequence[str], facts: DumpFacts) -> list[str]:
    words = shlex.join([path, *flags])
    is_rounded = bool(facts.problems) and all("`normalize=True`" in problem.message() for problem in facts.problems)
    words += " --input KIND" * bool(facts.doubt) + " --normalize" * is_rounded
    if facts.labelled is not None:
        mend = "drop or fix the bad rows, then " if facts.bad_rows and not is_rounded else ""
        everything = f"  drrej run {words} --accuracy 0.95 -o out"
        return [f"{mend}go on with:", everything, "or step by step:", f"  drrej calibrate {words} -o rejector.json"]
    skip = " --on-bad-row reject" if facts.bad_rows and not is_rounded else ""
    return [
        "go on with (labels are needed to calibrate; a rejector made elsewhere needs none):",
        f"  drrej reject {words} -r rejector.json -o mask.parquet{skip}",
    ]


# A rejector


def _about_rejector(path: str, rejector: Rejector) -> list[str]:
    """What each section does, and the command to go on with."""
    from drrej.documents.words import describe_sections

    columns = f"{rejector.input} in '{rejector.columns.logits}'"
    if label := rejector.columns.correct or rejector.columns.label:
        columns += f", labels in '{label}'"
    kind = f"for {'right and wrong rows' if rejector.is_scored else f'{rejector.classes} classes'} ({columns})"
    if not rejector.has_classes:
        kind = f"for rows without logits (a loss in '{rejector.columns.logits}')"
    head = f"{path}: a rejector {kind}, made by drrej {rejector.drrej_version}"
    if rejector.calibration is None:
        return [head, "nothing fitted yet; next: drrej calibrate"]
    document = shlex.quote(path)
    if rejector.ratio is None:
        advice = f"drrej fit DUMP -r {document}"
    elif rejector.threshold is None:
        advice = f"drrej threshold DUMP -r {document} --coverage 0.8"
    else:
        advice = f"drrej reject DUMP -r {document} -o mask.parquet"
    return [head, *describe_sections(rejector), "go on with:", f"  {advice}"]
