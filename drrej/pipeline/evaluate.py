"""Step 4: the coverage report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from drrej.documents.gates import Gate
from drrej.documents.metrics import check_gate
from drrej.documents.points import DEFAULT_POINTS, Point
from drrej.documents.rejector import Rejector
from drrej.documents.report import Report
from drrej.documents.slices import near
from drrej.errors import GateError, OptionError
from drrej.pipeline.baseline import check_same_classes
from drrej.pipeline.evaluate_options import BaselineDump, EvaluateOptions
from drrej.pipeline.labelled import labelled_report
from drrej.pipeline.source import Source
from drrej.pipeline.targets import target_of
from drrej.pipeline.unlabelled import unlabelled_report

__all__ = ["BaselineDump", "EvaluateOptions", "check_gates", "evaluate"]


def evaluate(
    source: Source, rejector: Rejector, gates: Sequence[Gate] = (), options: EvaluateOptions | None = None
) -> Report:
    """Report on a dump under a finished rejector; gates are judged last, see `Report.failed_gates`.

    The target of the rejector is held against the result, see `Report.target`. Where each group has its own cutoff,
    the report is by these groups unless `options.by` says otherwise.

    >>> from drrej import Rule, calibrate, fit, threshold
    >>> val = Source("sample_data/val.parquet")
    >>> rejector = threshold(val, fit(val, calibrate(val)), Rule("coverage", 0.8))
    >>> report = evaluate(Source("sample_data/test.parquet"), rejector, [Gate.parse("accuracy >= 0.97")])
    >>> report.coverage.accepted, report.rows, report.failed_gates
    (1617, 2060, ())
    """
    options = options or EvaluateOptions()
    threshold = rejector.need_threshold()
    if options.labels and options.by is None:
        options = replace(options, by=threshold.by)
    if not rejector.has_classes:
        raise OptionError("the rejector was made for rows without logits; use evaluate_regression")
    check_gates(gates, options, rejector, source.options.classes)
    if options.baseline is not None:
        check_same_classes(options.baseline, rejector)
    if options.labels:
        usual = [Point.parse(text)[0] for text in DEFAULT_POINTS]
        asked = [gate.point for gate in gates if gate.point is not None]
        report = labelled_report(source, rejector, options, list(dict.fromkeys([*usual, *options.points, *asked])))
    else:
        report = unlabelled_report(source, rejector, options)
    report = replace(report, target=target_of(report, threshold))
    return replace(report, gates=tuple(gate.judge(report) for gate in gates))


def check_gates(
    gates: Sequence[Gate],
    options: EvaluateOptions,
    rejector: Rejector | None = None,
    names: Sequence[str] | None = None,
) -> None:
    """Raise when a gate names what this report will not have; without the rejector, as far as can be said.

    `names` are those of the classes, if the rejector has none.
    """
    for gate in gates:
        check_gate(gate, options.conditions(rejector))
        member = gate.slice
        if rejector is not None and member is not None and member.kind == "class":
            known = list(rejector.class_names or names or map(str, range(rejector.classes)))
            if member.member not in known:
                raise GateError(f"gate '{gate.text}': there is no class '{member.member}'{near(member.member, known)}")
