"""What a file is, in plain words: a dump and the command to go on with, or a rejector and what it does."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from drrej.core.calibrators import IDENTITY
from drrej.core.kernels import Need
from drrej.core.score_kinds import ScoreLook
from drrej.data.dump import Block, Dump, DumpOptions
from drrej.data.labels import is_text, value_type
from drrej.data.part import Part
from drrej.data.problems import Problem, Problems, shown
from drrej.data.readers import reader_of
from drrej.data.sources import STDIN, find_parts
from drrej.documents.rejector import Calibration, GroupThreshold, Ratio, Rejector, Threshold
from drrej.engines import passes
from drrej.engines.protocol import Pass
from drrej.errors import DumpError, OptionError, RejectorError
from drrej.pipeline.intake import Intake
from drrej.pipeline.source import Source

_MOST = 12
_ENOUGH = 20
"""Rows from which on a pattern that all of them share is no accident."""


def describe(path: str, source: Source) -> str:
    """Several lines about a dump or a rejector."""
    if _is_stream(path):
        (part,) = find_parts([path], source.spools)
        stored = part.path
    else:
        stored = path
    if _looks_like_json(stored):
        try:
            with open(stored, encoding="utf-8", errors="replace") as stream:
                text = stream.read()
        except OSError as error:
            raise RejectorError(f"{path}: cannot be read ({error.strerror})") from None
        return describe_rejector(path, Rejector.from_json(text, path))
    return describe_dump(path, source)


def _is_stream(path: str) -> bool:
    return path == STDIN or (os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path))


def _looks_like_json(path: str) -> bool:
    if not os.path.isfile(path):
        return False
    with open(path, "rb") as stream:
        start = stream.read(64).lstrip()
    return start.startswith(b"{") or path.endswith(".json")


# A dump


@dataclass(frozen=True)
class _Look:
    """What inspection takes from a block."""

    problems: list[Problem]
    rows: int
    bad: int
    first: int  # rows whose prediction is class 0
    labelled: int
    right: int


def describe_dump(path: str, source: Source) -> str:
    """Layout, classes, rows, bad rows, labels, and the command to go on with."""
    parts = find_parts([path], source.spools)
    schema = _first_schema(parts)
    lines = [f"{path}: a dump of {_files(len(parts))}", "columns:", *_column_lines(schema)]
    try:
        dump = source.open(None, labelled=False)
    except DumpError as error:
        return "\n".join([*lines, f"cannot be used as it is: {error}"])
    groups = len(dump.row_groups)
    lines[0] += f", {dump.rows} rows in {groups} row group{'s' if groups > 1 else ''}"
    flags = _flags(source.options)
    lines += _hive_lines(dump)
    if source.options.input is None and _all_probabilities(dump, source):
        source = replace(source, options=replace(source.options, input="probs"))
        dump = source.open(None, labelled=False)
        flags += ["--input", "probs"]
        lines.append("scores:  probabilities: every row lies in [0, 1] and sums to 1")
    lines.append(f"{dump.input}:  {_layout(dump)}, {dump.classes} classes")
    labels, labelled = _label_line(dump, source, flags)
    looks = list(_pass(source, labelled))
    lines += _problem_lines(looks)
    lines.append(labels + (_accuracy(looks) if labelled else ""))
    lines += _order_lines(looks)
    return "\n".join([*lines, *_advice(path, flags, labelled, any(look.bad for look in looks))])


def _first_schema(parts: Sequence[Part]) -> pa.Schema:
    """The schema of the first part with rows, or of the first part."""
    first: pa.Schema | None = None
    for part in parts:
        contents = reader_of(part).contents(part, "")
        if any(contents.groups):
            return contents.schema
        first = contents.schema if first is None else first
    assert first is not None
    return first


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count} files"


def _column_lines(schema: pa.Schema) -> list[str]:
    fields = [(field.name, str(field.type)) for field in schema]
    width = max((len(name) for name, _ in fields[:_MOST]), default=0)
    lines = [f"  {name.ljust(width)}  {kind}" for name, kind in fields[:_MOST]]
    return lines + ([f"  ... ({len(fields)} in all)"] if len(fields) > _MOST else [])


def _hive_lines(dump: Dump) -> list[str]:
    names = [key for key, _ in dump.parts[0].hive if key in dump.schema.names]
    return [f"  {name}  {dump.schema.field(name).type} (from the directory names)" for name in names]


def _flags(options: DumpOptions) -> list[str]:
    """The reading flags that were given, to be repeated in the advice."""
    given: list[tuple[str, Any]] = [
        ("--logits", options.logits),
        ("--label", options.label),
        ("--labels-from", options.labels_from),
        ("--join-on", options.join_on),
        ("--on-missing-label", "skip" if options.on_missing_label == "skip" else None),
        ("--input", options.input),
        ("--classes", ",".join(options.classes) if options.classes else None),
    ]
    flags = [word for name, value in given if value is not None for word in (name, str(value))]
    return flags + (["--binary"] if options.binary else [])


def _all_probabilities(dump: Dump, source: Source) -> bool:
    """Whether every row is a row of probabilities: as a rule the first block says no."""

    def looked(block: Block) -> ScoreLook:
        return ScoreLook.of_binary(block.scores[:, 0]) if dump.binary else ScoreLook.of(block.scores)

    looks = passes.map_blocks(dump, looked, Pass("looking", False, (), True), source.engine)
    return sum(looks, ScoreLook()).kind(dump.binary) == "probabilities"


def _layout(dump: Dump) -> str:
    kind = dump.schema.field(dump.columns.names[0]).type
    if dump.columns.layout == "list":
        return f"column '{dump.columns.pattern}' ({kind})"
    if dump.columns.layout == "score":
        return f"column '{dump.columns.pattern}' ({kind}), one score per row"
    return f"columns '{dump.columns.names[0]}' to '{dump.columns.names[-1]}' ({kind})"


def _label_line(dump: Dump, source: Source, flags: list[str]) -> tuple[str, bool]:
    """About the labels, and whether they can be read."""
    try:
        labelled = source.open(None, labelled=True)
    except (DumpError, OptionError) as error:
        if dump.label is not None and is_text(value_type(dump.schema.field(dump.label).type)):
            flags += ["--classes", "NAMES"]
            return f"labels:  {_text_labels(dump)}", False
        return f"labels:  {error}", False
    if labelled.join is not None:
        return f"labels:  in {labelled.join.file}, joined on '{labelled.join.on}'", True
    assert labelled.label is not None
    return f"labels:  column '{labelled.label}' ({labelled.schema.field(labelled.label).type})", True


def _text_labels(dump: Dump) -> str:
    assert dump.label is not None
    found: set[str] = set()
    for group in dump.row_groups:
        for block in dump.read(group, labelled=False, keep=[dump.label]):
            found.update(name for name in block.columns.column(dump.label).unique().to_pylist() if name is not None)
    return (
        f"column '{dump.label}' is text ({shown(sorted(found))}); name all {dump.classes} classes, in the order of "
        "the logits, with --classes"
    )


def _pass(source: Source, labelled: bool) -> Iterator[_Look]:
    dump = source.open(None, labelled)

    intake = Intake.of(dump)

    def look(block: Block) -> _Look:
        rows = IDENTITY.rows(intake.logits(block), Need.NOTHING, "auto").raw
        block.check_largest(rows.largest)
        good = ~block.bad
        right = 0 if block.labels is None else int(np.count_nonzero((rows.prediction == block.labels) & good))
        usable = int(np.count_nonzero(good))
        first = int(np.count_nonzero((rows.prediction == 0) & good))
        return _Look(list(block.problems), block.rows, block.rows - usable, first, usable if labelled else 0, right)

    return passes.map_blocks(dump, look, Pass("looking", labelled, bad_rows_allowed=True), source.engine)


def _problem_lines(looks: list[_Look]) -> list[str]:
    problems = Problems()
    for look in looks:
        problems.add(look.problems)
    return [f"bad rows: {problem.message()}" for problem in problems.all()] or ["bad rows: none"]


def _order_lines(looks: list[_Look]) -> list[str]:
    usable = sum(look.rows - look.bad for look in looks)
    if usable < _ENOUGH or sum(look.first for look in looks) < usable:
        return []
    return ["caution: the first score is the largest in every row: sorted scores (top-k) are not in class order"]


def _accuracy(looks: list[_Look]) -> str:
    labelled, right = sum(look.labelled for look in looks), sum(look.right for look in looks)
    if not labelled:
        return ""
    if labelled == right:
        return "; equal to the prediction in every row: are these the true labels? (timm's 'label' is the prediction)"
    return f"; the prediction is right in {100 * right / labelled:.2f} % of the rows"


def _advice(path: str, flags: list[str], labelled: bool, bad: bool) -> list[str]:
    words = shlex.join([path, *flags])
    if labelled and not bad:
        return ["go on with:", f"  drrej calibrate {words} -o rejector.json"]
    if labelled:
        return ["drop or fix the bad rows, then go on with:", f"  drrej calibrate {words} -o rejector.json"]
    skip = " --on-bad-row reject" if bad else ""
    return [
        "go on with (labels are needed to calibrate; a rejector made elsewhere needs none):",
        f"  drrej reject {words} -r rejector.json -o mask.parquet{skip}",
    ]


# A rejector


def describe_rejector(path: str, rejector: Rejector) -> str:
    """What each section does, in plain words."""
    columns = f"{rejector.input} in '{rejector.columns.logits}'"
    if rejector.columns.label:
        columns += f", labels in '{rejector.columns.label}'"
    kind = f"for {rejector.classes} classes ({columns})"
    if not rejector.has_classes:
        kind = f"for rows without logits (a loss in '{rejector.columns.logits}')"
    lines = [f"{path}: a rejector {kind}, made by drrej {rejector.drrej_version}"]
    if rejector.calibration is None:
        return "\n".join([*lines, "nothing fitted yet; go on with: drrej calibrate"])
    if rejector.has_classes:
        lines.append(_calibration_line(rejector.calibration))
    if rejector.ratio is None:
        return "\n".join([*lines, f"go on with:\n  drrej fit DUMP -r {shlex.quote(path)}"])
    lines += _ratio_lines(rejector.ratio)
    if rejector.threshold is None:
        return "\n".join([*lines, f"go on with:\n  drrej threshold DUMP -r {shlex.quote(path)} --coverage 0.8"])
    lines += _threshold_lines(rejector.threshold, rejector.ratio)
    return "\n".join([*lines, "go on with:", f"  drrej reject DUMP -r {shlex.quote(path)} -o mask.parquet"])


def describe_sections(rejector: Rejector) -> list[str]:
    """What a finished rejector does, a line for each fact."""
    ratio, threshold = rejector.need_ratio(), rejector.need_threshold()
    return [
        _calibration_line(rejector.need_calibration()),
        *_ratio_lines(ratio),
        *_threshold_lines(threshold, ratio),
    ]


def _calibration_line(calibration: Calibration) -> str:
    line = f"temperature: {calibration.temperature:.6g}, so probabilities are {_effect(calibration.temperature)}"
    if calibration.method == "given":
        return line + "; given, not fitted"
    line += f"; fitted on {calibration.rows} labelled rows"
    if calibration.nll is not None and calibration.ece is not None:
        line += f" (NLL {_g(calibration.nll.before)} -> {_g(calibration.nll.after)}"
        line += f", ECE {_g(calibration.ece.before)} -> {_g(calibration.ece.after)})"
    return line if calibration.converged else line + "; the search ended at the edge of [0.001, 1000]"


def _effect(temperature: float) -> str:
    if temperature == 1:
        return "those of the raw scores"
    return f"{'less' if temperature > 1 else 'more'} sure than the raw scores say"


def _ratio_lines(ratio: Ratio) -> list[str]:
    name = {1.0: "KL divergence", 3.0: "chi-squared divergence"}.get(ratio.alpha, "alpha-divergence")
    density = ratio.density
    flat = density.flat_start
    lines = [
        f"loss: '{ratio.loss.name}', {ratio.loss.words}; on the {ratio.rows} fitted rows from "
        f"{_g(ratio.min_loss)} to {_g(ratio.max_loss)}, mean {_g(ratio.mean_loss)}",
        *ratio.loss.details(),
        *_choice_lines(ratio),
        f"ratio: {name} (alpha {ratio.alpha:g}), lambda {ratio.lam:g}; it falls as the loss grows, is 1 on average and "
        f"at most {_g(density.ratio(np.array([ratio.min_loss]))[0])}",
    ]
    if flat is None:
        lines.append("flat part: none, the ratio is never 0")
    else:
        beyond = " (beyond every fitted row)" if flat > ratio.max_loss else ""
        lines.append(
            f"flat part: from a loss of {_g(flat)}{beyond} on the ratio is 0 and rows are rejected at every tau"
        )
    return lines + _bound_lines(ratio)


def _choice_lines(ratio: Ratio) -> list[str]:
    if not ratio.choice:
        return []
    lines = ["chosen by --loss auto: the simplest within one standard error of the lowest cross-validated AUGRC"]
    for row in ratio.choice:
        mark = "*" if row.loss == ratio.loss.name else " "
        lines.append(
            f" {mark} {row.loss:<9} AUGRC {row.augrc:.6g}, {row.above_best:.3g} +- {row.std_error:.2g} above the best"
        )
    return lines


def _bound_lines(ratio: Ratio) -> list[str]:
    if ratio.bounds is None:
        return []
    if not ratio.bounds:
        return ["bounds: none; the paper's cover alpha 1 and 3 only"]
    lines = []
    for bound in ratio.bounds:
        what = "total variation of Q" if bound.theorem == "total variation" else "error of the ratio"
        if not bound.holds:
            said = f"does not apply: it needs {bound.condition}"
        else:
            verdict = ", vacuous" if bound.vacuous else ""
            said = f"at most {_g(bound.value) if bound.value is not None else 'infinity'}{verdict}"
            said += f" (confidence {bound.confidence:g}, {bound.points} points; needs {bound.condition})"
        lines.append(f"bound, {bound.theorem}: {what} {said}")
    return lines


def _threshold_lines(threshold: Threshold, ratio: Ratio) -> list[str]:
    rule = f"--{threshold.rule.kind} {threshold.rule.target:g}"
    share = f"{threshold.accepted} of {threshold.rows} rows ({100 * threshold.coverage:.2f} %)"
    if threshold.groups is None:
        lines = [f"decision: {_decision(threshold, ratio)}"]
    else:
        by = "the prediction" if threshold.by == "prediction" else f"column '{threshold.by}'"
        lines = [f"decision: by {by}, {len(threshold.groups)} groups with a cutoff of their own"]
        lines += [f"  {group.group}: {_decision(group, ratio)}" for group in threshold.groups[:_MOST_GROUPS]]
        lines += ["  ..."] if len(threshold.groups) > _MOST_GROUPS else []
    expectation = "" if threshold.rule.confidence is not None else "; expect the same of rows like them"
    lines.append(f"chosen by {rule}: accepts {share} of those it was chosen on{expectation}")
    if threshold.accuracy is not None:
        lines.append(f"accuracy there: {_g(threshold.accuracy)}")
    if threshold.rule.confidence is not None:
        lines.append(_guarantee_line(threshold))
    return lines


def _decision(threshold: Threshold | GroupThreshold, ratio: Ratio) -> str:
    if threshold.cutoff is None:
        return "rejects nothing"
    if threshold.cutoff < 0:
        return "rejects every row"
    decision = f"rejects a row when its expected loss is {_g(threshold.cutoff)} or more"
    familiar = ratio.loss.cutoff_words(threshold.cutoff)
    decision += f" ({familiar})" if familiar else ""
    if threshold.tau is not None:
        decision += f", that is when its ratio is {_g(threshold.tau)} or less (tau)"
    return decision


def _guarantee_line(threshold: Threshold) -> str:
    rule = threshold.rule
    what = "error rate among accepted rows is at most" if rule.kind == "risk" else "share of accepted rows is at least"
    whose = "" if threshold.groups is None else " of each group"
    line = f"guarantee: on new rows like these the {what} {rule.target:g}{whose}, with confidence {rule.confidence:g}"
    if rule.method == "sgr":
        line += " if the risk grows with the coverage"
    return line + f" ({rule.method})" + ("; void: rows that the fit has seen were allowed" if rule.reused else "")


_MOST_GROUPS = 20


def _g(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.6g}"
