"""How often test rows contradict a target: python -m benchmarks.ten_splits DUMP... (each a comma list of files).

Each labelled dump is divided by ten seeds. Before: as `run --val --test --accuracy A --loss log` without a guarantee,
70 % of the rows to fit and to choose on, 30 % to test. After: as `run DUMP --accuracy A`, with all its defaults.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass

import drrej
from drrej.documents.report import Report
from drrej.pipeline.split import SplitOptions, split
from drrej.pipeline.threshold import certify_if_possible

SEEDS = range(10)


@dataclass(frozen=True)
class Outcome:
    """What the test rows say."""

    verdict: str
    accuracy: float
    coverage: float
    certified: bool

    @classmethod
    def of(cls, report: Report, certified: bool) -> Outcome:
        """From a report."""
        assert report.target is not None
        assert report.accuracy is not None
        return cls(report.target.verdict, report.accuracy.value or 0.0, report.coverage.value or 0.0, certified)


def before(source: drrej.Source, accuracy: float, seed: int) -> Outcome:
    """The point rule on the rows of the fit."""
    val, test = split(source, SplitOptions((70, 30), plain=1, seed=seed))
    rejector = drrej.fit(val, drrej.calibrate(val), drrej.RatioOptions(loss="log"))
    rejector = drrej.threshold(val, rejector, drrej.Rule("accuracy", accuracy))
    return Outcome.of(drrej.evaluate(test, rejector), certified=False)


def after(source: drrej.Source, accuracy: float, seed: int) -> Outcome:
    """What `run` does by default."""
    fit, choose, test = split(source, SplitOptions(seed=seed))
    rejector = drrej.fit(fit, drrej.calibrate(fit), drrej.RatioOptions(loss="auto"))
    found = certify_if_possible(choose, rejector, drrej.Rule("accuracy", accuracy))
    return Outcome.of(drrej.evaluate(test, found.rejector), certified=found.why_not is None)


def main(dumps: list[str], accuracy: float = 0.98) -> None:
    """Print a line per dump and way."""
    print(f"accuracy {accuracy:g}, {len(SEEDS)} splits each\n")
    print("| dump | rows | way | certified | met | inconclusive | contradicted | below the target | accuracy | coverage |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for dump in dumps:
        paths = dump.split(",")
        for name, way in (("before", before), ("after", after)):
            source = drrej.Source(paths, drrej.DumpOptions(input="probs" if "probs" in dump else None))
            rows = source.open(None, labelled=True).rows
            found = [way(source, accuracy, seed) for seed in SEEDS]
            verdicts = Counter(outcome.verdict for outcome in found)
            cells = [
                f"{sum(outcome.certified for outcome in found)}",
                *(str(verdicts[verdict]) for verdict in ("met", "inconclusive", "missed")),
                f"{sum(outcome.accuracy < accuracy for outcome in found)}",
                f"{sum(outcome.accuracy for outcome in found) / len(found):.4f}",
                f"{sum(outcome.coverage for outcome in found) / len(found):.4f}",
            ]
            print(f"| {paths[0]} | {rows} | {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
