"""Makes scores/: rows that bring a score of their own and whether they were right, as people have them.

`judge_*.jsonl` are verdicts of a language model with a confidence in words of its own ("85%"), `fields_*.csv` values
that were extracted from documents with a score per field, `small.csv` and `large.csv` the answers of two models to the
same questions, with the mean log-probability of their tokens. All of it is drawn; the confidences are too high, as
those of models are. Run it from this folder.
"""

from __future__ import annotations

import csv
import json
import math
import random
from pathlib import Path
from typing import Any

FIELDS = {"date": 2.6, "total": 2.0, "supplier": 1.2}
"""How well each field is read, in log-odds."""
VERDICTS = ("answer A", "answer B", "tie")


def chance(log_odds: float) -> float:
    """The probability of log-odds."""
    return 1.0 / (1.0 + math.exp(-log_odds))


def judge(number: int, draw: random.Random) -> dict[str, Any]:
    """A verdict of a judge, and whether people agreed."""
    sure = draw.gauss(1.6, 1.6)
    said = min(100, 5 * round(20 * chance(1.2 * sure + 1.0)))
    verdict = draw.choice(VERDICTS)
    return {"id": f"q{number}", "verdict": verdict, "confidence": f"{said}%", "correct": draw.random() < chance(sure)}


def field(number: int, draw: random.Random) -> list[Any]:
    """A value of a field of a document, its score, and whether it is right."""
    name = [*FIELDS][number % len(FIELDS)]
    sure = draw.gauss(FIELDS[name], 1.5)
    score = round(chance(1.3 * sure + draw.gauss(0.0, 0.4)), 4)
    return [f"doc{number // len(FIELDS)}", name, f"value {number}", score, int(draw.random() < chance(sure))]


def answers(questions: int, draw: random.Random) -> tuple[list[list[Any]], list[list[Any]]]:
    """The answers of a small and of a large model to the same questions."""
    found: tuple[list[list[Any]], list[list[Any]]] = ([], [])
    for number in range(questions):
        hard = draw.gauss(0.0, 1.3)
        for rows, skill in zip(found, (1.2, 3.2), strict=True):
            sure = skill - hard + draw.gauss(0.0, 0.6)
            logprob = round(-math.log1p(math.exp(-sure)) * draw.uniform(0.8, 1.2), 4)
            truth = f"answer {number}"
            said = truth if draw.random() < chance(1.4 * sure) else f"another {number}"
            rows.append([f"q{number}", said, logprob, truth])
    return found


def main() -> None:
    """Write the files."""
    folder = Path("scores")
    folder.mkdir(exist_ok=True)
    for seed, part in enumerate(("val", "fresh", "test")):
        draw = random.Random(seed)  # noqa: S311 - a sample, not a secret
        lines = [json.dumps(judge(1000 * seed + number, draw)) for number in range(1000)]
        (folder / f"judge_{part}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for seed, part in enumerate(("val", "test")):
        draw = random.Random(10 + seed)  # noqa: S311
        rows = [field(number, draw) for number in range(6000 * seed, 6000 * seed + 3000)]
        write(folder / f"fields_{part}.csv", ["document", "field", "value", "score", "correct"], rows)
    both = answers(2000, random.Random(20))  # noqa: S311
    for name, rows in zip(("small", "large"), both, strict=True):
        write(folder / f"{name}.csv", ["id", "answer", "mean_logprob", "truth"], rows)


def write(path: Path, names: list[str], rows: list[list[Any]]) -> None:
    """A table as CSV."""
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerows([names, *rows])


if __name__ == "__main__":
    main()
