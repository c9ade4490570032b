"""How often test rows contradict a target: ten splits of each dump of others, without and with a guarantee."""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import drrej
from benchmarks.pages import made_by, table
from benchmarks.selective.dumps import Part, published, read_both
from drrej.documents.report import Report
from drrej.pipeline.split import SplitOptions, split
from drrej.pipeline.threshold import certify_if_possible

SEEDS = range(10)
TARGET = 0.98
SAMPLE = Path(__file__).parents[2] / "sample_data"


def plain(source: drrej.Source, seed: int) -> tuple[Report, bool]:
    """The rule as it stands, on the rows of the fit (70 %), with the log loss."""
    val, test = split(source, SplitOptions((70, 30), plain=1, seed=seed))
    rejector = drrej.fit(val, drrej.calibrate(val), drrej.RatioOptions(loss="log"))
    return drrej.evaluate(test, drrej.threshold(val, rejector, drrej.Rule("accuracy", TARGET))), False


def guaranteed(source: drrej.Source, seed: int) -> tuple[Report, bool]:
    """What `run DUMP --accuracy 0.98` does by default."""
    fit, choose, test = split(source, SplitOptions(seed=seed))
    rejector = drrej.fit(fit, drrej.calibrate(fit), drrej.RatioOptions(loss="auto"))
    found = certify_if_possible(choose, rejector, drrej.Rule("accuracy", TARGET))
    return drrej.evaluate(test, found.rejector), found.why_not is None


def tables(args: argparse.Namespace) -> str:
    """A row for each dump and way."""
    parts = {dump.name: dump.fit.joined(dump.test) for dump in published(args.data) if dump.name == dump.experiment}
    val, test = read_both(SAMPLE)
    parts["HAR (sample_data)"] = val.joined(test)
    rows = [row for name, part in parts.items() for row in _rows(name, part)]
    head = ["dump", "rows", "way", "certified", "met", "inconclusive", "missed", "below", "accuracy", "coverage"]
    return "\n".join([made_by("python -m benchmarks.selective splits"), "", *table(head, rows)])


def _rows(name: str, part: Part) -> list[list[str]]:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/dump.parquet"
        pq.write_table(pa.table({"scores": list(part.outputs), "label": part.labels}), path)
        options = drrej.DumpOptions(logits="scores", input="probs" if part.probs else "logits", normalize=part.probs)
        for way in (plain, guaranteed):
            reports, certified = zip(*(way(drrej.Source([path], options), seed) for seed in SEEDS), strict=True)
            verdicts = Counter(report.target.verdict for report in reports)
            accuracies = [report.accuracy.value or 0.0 for report in reports]
            met, missed = verdicts["met"], verdicts["missed"]
            cells = [str(number) for number in (sum(certified), met, len(reports) - met - missed, missed)]
            cells.append(str(sum(accuracy < TARGET for accuracy in accuracies)))
            cells.append(f"{sum(accuracies) / len(reports):.4f}")
            cells.append(f"{sum(report.coverage.value or 0.0 for report in reports) / len(reports):.4f}")
            rows.append([name, str(len(part.labels)), way.__name__, *cells])
    return rows
