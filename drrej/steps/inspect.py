"""What a file is, in plain words: a dump and the command to go on with, or a rejector and what it does."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from drrej.dumps import LABEL, Block, Dump, DumpOptions
from drrej.dumps.dump import open_parquet
from drrej.dumps.problems import Problem, Problems
from drrej.dumps.sources import find_parts
from drrej.errors import DumpError
from drrej.losses import block_sums
from drrej.rejector import Calibration, GroupThreshold, Ratio, Rejector, Threshold
from drrej.steps.common import Source
from drrej.stream import Pass, map_blocks

_MOST = 12


def describe(path: str, source: Source) -> str:
    """Several lines about a dump or a rejector."""
    if _looks_like_json(path):
        with open(path, encoding="utf-8", errors="replace") as stream:
            return describe_rejector(path, Rejector.from_json(stream.read(), path))
    return describe_dump(path, source)


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
    labelled: int
    right: int


def describe_dump(path: str, source: Source) -> str:
    """Layout, classes, rows, bad rows, labels, and the command to go on with."""
    parts = find_parts([path])
    with open_parquet(parts[0]) as file:
        schema = file.schema_arrow
    lines = [f"{path}: a dump of {_files(len(parts))}"]
    lines += ["columns:", *_column_lines(schema)]
    paths = [part.path for part in parts] if path == "-" else [path]
    source = replace(source, paths=paths)
    try:
        dump = source.open(None, labelled=False)
    except DumpError as error:
        return "\n".join([*lines, f"cannot be used as it is: {error}"])
    lines[0] += f", {dump.rows} rows in {len(dump.row_groups)} row groups"
    flags = _flags(source.options)
    if source.options.input is None and _first_block(dump).all_probabilities:
        source = replace(source, options=replace(source.options, input="probs"))
        dump = source.open(None, labelled=False)
        flags += ["--input", "probs"]
        lines.append("scores:  probabilities: every row lies in [0, 1] and sums to 1")
    lines.append(f"{dump.input}:  {_layout(dump)}, {dump.classes} classes")
    labels, labelled = _label_line(dump, flags)
    looks = _pass(source, labelled)
    lines += _problem_lines(looks)
    lines.append(labels + _accuracy(looks))
    lines += _advice(path, flags, labelled)
    return "\n".join(lines)


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count} files"


def _column_lines(schema: pa.Schema) -> list[str]:
    fields = [(field.name, str(field.type)) for field in schema]
    width = max((len(name) for name, _ in fields[:_MOST]), default=0)
    lines = [f"  {name.ljust(width)}  {kind}" for name, kind in fields[:_MOST]]
    return lines + ([f"  ... ({len(fields)} in all)"] if len(fields) > _MOST else [])


def _flags(options: DumpOptions) -> list[str]:
    """The reading flags that were given, to be repeated in the advice."""
    given: list[tuple[str, Any]] = [
        ("--logits", options.logits),
        ("--label", options.label),
        ("--input", options.input),
        ("--classes", ",".join(options.classes) if options.classes else None),
    ]
    flags = [word for name, value in given if value is not None for word in (name, str(value))]
    return flags + (["--binary"] if options.binary else [])


def _first_block(dump: Dump) -> Block:
    return next(dump.read(dump.row_groups[0], labelled=False))


def _layout(dump: Dump) -> str:
    kind = dump.schema.field(dump.columns.names[0]).type
    if dump.columns.layout == "list":
        return f"column '{dump.columns.pattern}' ({kind})"
    if dump.columns.layout == "score":
        return f"column '{dump.columns.pattern}' ({kind}), one score per row"
    return f"columns '{dump.columns.names[0]}' to '{dump.columns.names[-1]}' ({kind})"


def _label_line(dump: Dump, flags: list[str]) -> tuple[str, bool]:
    """About the labels, and whether they can be read."""
    if dump.label is None:
        return f"labels:  none (no column '{LABEL}'); choose a column with --label, or join with --labels-from", False
    if dump.label_kind is None:
        flags += ["--classes", "NAMES"]
        return (
            f"labels:  column '{dump.label}' is text; name the classes in the order of the logits with --classes",
            False,
        )
    return f"labels:  column '{dump.label}' ({dump.schema.field(dump.label).type})", True


def _pass(source: Source, labelled: bool) -> list[_Look]:
    dump = source.open(None, labelled)

    def look(block: Block) -> _Look:
        sums = block_sums(block.logits, [1.0], needs="")
        block.check_largest(sums.largest)
        if block.labels is None:
            return _Look(list(block.problems), 0, 0)
        right = (sums.prediction == block.labels) & ~block.bad
        return _Look(list(block.problems), int(np.count_nonzero(~block.bad)), int(np.count_nonzero(right)))

    run = Pass("looking", labelled, bad_rows_allowed=True)
    return list(map_blocks(dump, look, run, source.engine))


def _problem_lines(looks: list[_Look]) -> list[str]:
    problems = Problems()
    for look in looks:
        problems.add(look.problems)
    return [f"bad rows: {problem.message()}" for problem in problems.all()]


def _accuracy(looks: list[_Look]) -> str:
    labelled, right = sum(look.labelled for look in looks), sum(look.right for look in looks)
    if not labelled:
        return ""
    if labelled == right:
        return "; equal to the prediction in every row: are these the true labels? (timm's 'label' is the prediction)"
    return f"; the prediction is right in {100 * right / labelled:.2f} % of the rows"


def _advice(path: str, flags: list[str], labelled: bool) -> list[str]:
    words = shlex.join([path, *flags])
    if labelled:
        return ["go on with:", f"  drrej calibrate {words} -o rejector.json"]
    return [
        "go on with (labels are needed to calibrate; a rejector made elsewhere needs none):",
        f"  drrej reject {words} -r rejector.json -o mask.parquet",
    ]


# A rejector


def describe_rejector(path: str, rejector: Rejector) -> str:
    """What each section does, in plain words."""
    columns = f"{rejector.input} in '{rejector.columns.logits}'"
    if rejector.columns.label:
        columns += f", labels in '{rejector.columns.label}'"
    lines = [f"{path}: a rejector for {rejector.classes} classes ({columns}), made by drrej {rejector.drrej_version}"]
    if rejector.calibration is None:
        return "\n".join([*lines, "nothing fitted yet; go on with: drrej calibrate"])
    lines.append(_calibration_line(rejector.calibration))
    if rejector.ratio is None:
        return "\n".join([*lines, f"go on with:\n  drrej fit DUMP -r {shlex.quote(path)}"])
    lines += _ratio_lines(rejector.ratio)
    if rejector.threshold is None:
        return "\n".join([*lines, f"go on with:\n  drrej threshold DUMP -r {shlex.quote(path)} --coverage 0.8"])
    lines += _threshold_lines(rejector.threshold, rejector.ratio)
    return "\n".join([*lines, "go on with:", f"  drrej reject DUMP -r {shlex.quote(path)} -o mask.parquet"])


def _calibration_line(calibration: Calibration) -> str:
    effect = "less" if calibration.temperature > 1 else "more"
    line = f"temperature: {calibration.temperature:.6g}, so probabilities are {effect} sure than the raw scores say"
    if calibration.method == "given":
        return line + "; given, not fitted"
    line += f"; fitted on {calibration.rows} labelled rows"
    if calibration.nll is not None and calibration.ece is not None:
        line += f" (NLL {_g(calibration.nll.before)} -> {_g(calibration.nll.after)}"
        line += f", ECE {_g(calibration.ece.before)} -> {_g(calibration.ece.after)})"
    return line if calibration.converged else line + "; the search ended at the edge of [0.001, 1000]"


_LOSS_WORDS = {
    "log": "the entropy of the calibrated probabilities, in nats",
    "zero-one": "1 - the largest calibrated probability",
    "brier": "1 - the sum of the squared calibrated probabilities",
}


def _ratio_lines(ratio: Ratio) -> list[str]:
    name = {1.0: "KL divergence", 3.0: "chi-squared divergence"}.get(ratio.alpha, "alpha-divergence")
    density = ratio.density
    flat = density.flat_start
    lines = [
        f"loss: '{ratio.loss}', {_LOSS_WORDS[ratio.loss]}; on the {ratio.rows} fitted rows from "
        f"{_g(ratio.min_loss)} to {_g(ratio.max_loss)}, mean {_g(ratio.mean_loss)}",
        f"ratio: {name} (alpha {ratio.alpha:g}), lambda {ratio.lam:g}; it falls as the loss grows, is 1 on average and "
        f"at most {_g(np.exp(ratio.log_max_ratio))}",
    ]
    if flat is None:
        lines.append("flat part: none, the ratio is never 0")
    else:
        beyond = " (beyond every fitted row)" if flat > ratio.max_loss else ""
        lines.append(
            f"flat part: from a loss of {_g(flat)}{beyond} on the ratio is 0 and rows are rejected at every tau"
        )
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
    if ratio.loss == "zero-one":
        decision += f" (largest probability {_g(1 - threshold.cutoff)} or less)"
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
