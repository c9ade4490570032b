"""Tables from two runs: `python -m benchmarks.ranking.table BEFORE.json AFTER.json`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.ranking.dumps import KEPT, SEEN
from benchmarks.ranking.dumps import Array as Floats


def row(key: str, before: list[dict[str, Any]], after: list[dict[str, Any]]) -> tuple[str, list[float]]:
    """A row of the table, and what is averaged: `auto` before and after and the log loss, against the best score."""
    names = list(after[0]["single"])
    single = {name: np.array([trial["single"][name] for trial in after]) for name in names}
    best = min(names, key=lambda name: float(single[name].mean()))
    old, new = (np.array([trial["auto"] for trial in run]) for run in (before, after))
    against = [_percent(values, single[best]) for values in (old, new, single["log"])]
    above = new - single[best]
    error = 100 * float(above.std(ddof=1)) / np.sqrt(above.size) / float(single[best].mean())
    mark = " *" if against[1] - 2 * error > 1 else ""
    chosen = [trial["chosen"] for trial in after]
    most = max(set(chosen), key=chosen.count)
    cells = [f"{single[best].mean():.5f}", *(f"{value:+.1f}" for value in against), f"{error:.1f}{mark}"]
    name, size = key.split("|")
    return f"| {name} | {size} | {best} | {' | '.join(cells)} | {most} {chosen.count(most)}/{len(chosen)} |", against


def shift_row(key: str, runs: list[dict[str, Any]]) -> str:
    """`learned` and `auto` against the plain losses, where rows to judge on come from elsewhere."""
    found = {name: np.array([trial[name] for trial in runs]) for name in ("learned", "auto")}
    cells = []
    for rival in ("log", "zero-one"):
        other = np.array([trial["single"][rival] for trial in runs])
        for values in found.values():
            error = 100 * float((values - other).std(ddof=1)) / np.sqrt(other.size) / float(other.mean())
            worst = 100 * float(np.max(values / other - 1))
            cells.append(f"{_percent(values, other):+.1f} ± {error:.1f} (worst split {worst:+.1f})")
    return f"| {' | '.join([*key.split('|'), *cells])} |"


def _percent(values: Floats, best: Floats) -> float:
    return 100 * float(values.mean() / best.mean() - 1)


def main(before: str, after: str) -> None:
    """Each task at each size, those looked at first."""
    old, new = (json.loads(Path(path).read_text()) for path in (before, after))
    for title, tasks in (("looked at while developing", SEEN), ("not looked at", KEPT)):
        keys = [key for key in new if key in old and key.split("|")[0] in tasks]
        print(f"\n{title}\n")
        print("| dump | rows to fit on | best single score | its AUGRC | before % | after % | log % | +- | chosen |")
        print("|---|---|---|---|---|---|---|---|---|")
        rows = [row(key, old[key], new[key]) for key in keys]
        for text, _ in rows:
            print(text)
        for size in ("200", "500", "half"):
            found = np.array(
                [against for key, (_, against) in zip(keys, rows, strict=True) if key.endswith(f"|{size}")]
            )
            if found.size:
                mean, worst = found.mean(axis=0), found.max(axis=0)
                cells = " | ".join(f"{m:+.1f} (worst {w:+.1f})" for m, w in zip(mean, worst, strict=True))
                print(f"| mean of {len(found)} | {size} | | | {cells} | | |")
    print("\nshift\n")
    print("| dump | rows to fit on | learned to log % | auto to log % | learned to zero-one % | auto to zero-one % |")
    print("|---|---|---|---|---|---|")
    for key, runs in new.items():
        if key.startswith("shift") and "learned" in runs[0]:
            print(shift_row(key, runs))


if __name__ == "__main__":
    main(*sys.argv[1:])
