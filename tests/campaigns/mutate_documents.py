"""Rejectors and reports with one thing changed: none may be used unless `--accept-edited` says so.

    python -m tests.campaigns mutate_documents 5000 --seed 1

Every kind of rejector that drrej writes, and reports on them, have a number moved, replaced or made null, a key taken
away, doubled or added, or text spoiled; then the command line reads them, in this process. A case is known by its
number and the seed. What must hold:

- the exit code is 0, 1 or 2, with no traceback, and an error is one line;
- what was changed is refused;
- what is accepted on purpose gives the same counts in `evaluate` as in the mask of `reject`, and reads back as it was
  written.
"""

from __future__ import annotations

import argparse
import copy
import functools
import json
import random
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from running import Outcome
from running import drrej as run

import drrej
from drrej.core.losses import ColumnLoss, CostLoss
from drrej.documents.report import RegressionReport
from drrej.engines.local import LocalEngine
from drrej.pipeline.compare import Rivals
from drrej.pipeline.fit import uncalibrated, without_logits

K = 4
NAMES = ("ant", "bee", "cat", "dog")
COSTS = CostLoss(tuple(tuple(float(abs(i - j)) for j in range(K)) for i in range(K)))


@dataclass(frozen=True)
class Original:
    """A document of drrej's own, with the dump and the options it goes with."""

    name: str
    text: str
    dump: Path
    rejector: Path
    is_report: bool = False
    regression: bool = False


# Documents of every kind


def write_rows(path: Path, seed: int, rows: int, classes: int = K) -> Path:
    """Logits (or one score), labels as numbers and as names, probabilities, a loss column and groups."""
    rng = np.random.default_rng(seed)
    logits = (rng.normal(size=(rows, classes)) * rng.gamma(2.0, 2.0, size=(rows, 1))).astype(np.float32)
    powers = np.exp(logits - logits.max(axis=1, keepdims=True)) ** 0.5
    shares = powers / powers.sum(axis=1, keepdims=True)
    labels = (shares.cumsum(axis=1) < rng.random((rows, 1))).sum(axis=1).clip(max=classes - 1)
    rounded = np.round(shares.astype(np.float64), 2)
    rounded[np.arange(rows), rounded.argmax(axis=1)] += 1.0 - rounded.sum(axis=1)
    columns = {
        "logits": list(logits),
        "score": logits[:, 1] - logits[:, 0],
        "probs": list(rounded),
        "label": labels,
        "first": (labels == 1).astype(int),
        "named": np.array(NAMES)[labels],
        "own": rng.gamma(1.0, size=rows),
        "region": rng.choice(["eu", "us"], rows, p=[0.8, 0.2]),
        "predicted": rng.normal(size=rows),
        "true": rng.normal(size=rows),
    }
    pq.write_table(pa.table(columns), path)
    return path


def opened(path: Path, **options: Any) -> drrej.Source:
    """A dump as the library reads it."""
    return drrej.Source([str(path)], drrej.DumpOptions(**options), LocalEngine(1))


READING: dict[str, dict[str, Any]] = {
    "logits": {"logits": "logits", "label": "label"},
    "names": {"logits": "logits", "label": "named", "classes": NAMES},
    "binary": {"logits": "score", "label": "first", "binary": True},
    "probs": {"logits": "probs", "label": "label", "input": "probs"},
}
RECIPES: list[tuple[str, str, float, float, tuple[Any, ...], str | None]] = [
    ("logits", "log", 1.0, 1.0, ("coverage", 0.8), None),
    ("logits", "brier", 3.0, 0.5, ("tau", 0.7), None),
    ("logits", "zero-one", -1.0, 2.0, ("risk", 0.2), "region"),
    ("logits", "log", 3.0, 1.0, ("risk", 0.25, 0.9), None),
    ("logits", "zero-one", 1.0, 1.0, ("risk", 0.3, 0.9), None),
    ("logits", "log", 1.0, 1.0, ("coverage", 0.6, 0.9), "region"),
    ("logits", "margin", 5.0, 2.0, ("max-loss", 0.4), None),
    ("logits", "cost", 1.0, 3.0, ("coverage", 0.5), "prediction"),
    ("logits", "learned", 1.0, 1.0, ("risk", 0.25, 0.9), "region"),
    ("logits", "auto", 2.0, 1.0, ("coverage", 0.9), None),
    ("logits", "column", 0.0, 1.0, ("tau", 1.2), None),
    ("names", "log", 1.0, 1.0, ("coverage", 0.7), "prediction"),
    ("binary", "zero-one", 3.0, 1.0, ("coverage", 0.7), None),
    ("probs", "log", 1.0, 0.1, ("risk", 0.2), None),
    ("regression", "column", 1.0, 1.0, ("coverage", 0.8), None),
    ("regression", "column", 3.0, 4.0, ("tau", 0.0), None),
]


def originals(folder: Path) -> list[Original]:
    """Rejectors after each step, few rows (every loss is kept) and more, and reports with all that they can have."""
    made: list[Original] = []
    for rows in (150, 900):
        val, fresh, test = (write_rows(folder / f"{name}{rows}.parquet", seed, rows) for seed, name in enumerate("vft"))
        for number, (kind, loss, alpha, lam, rule, by) in enumerate(RECIPES):
            name = f"{rows}-{number}-{kind}-{loss}-{rule[0]}"
            options = READING.get(kind, {})
            chosen = {"cost": COSTS, "column": ColumnLoss("own")}.get(loss, loss)
            start = _start(kind, val, options, number)
            fitted = drrej.fit(opened(val, **options), start, drrej.RatioOptions(alpha, lam, chosen))
            try:
                done = drrej.threshold(
                    opened(fresh, **options), fitted, drrej.Rule(*rule), drrej.ThresholdOptions(by=by)
                )
            except drrej.Infeasible:
                continue
            place = folder / f"{name}.json"
            place.write_text(done.to_json(), encoding="utf-8")
            made += [
                Original(f"{name}-{step}", document.to_json(), test, place, regression=kind == "regression")
                for step, document in (
                    ("calibrated", start),
                    ("fitted", fitted),
                    ("rejector", done),
                    ("rejector", done),
                )
            ]
            if kind != "regression":
                made.append(
                    Original(f"{name}-report", _report(test, done, number).to_json(), test, place, is_report=True)
                )
    return made


def _start(kind: str, val: Path, options: dict[str, Any], number: int) -> drrej.Rejector:
    if kind == "regression":
        return without_logits("own")
    return uncalibrated(opened(val, **options), 1.7) if number % 4 == 3 else drrej.calibrate(opened(val, **options))


def _report(test: Path, rejector: drrej.Rejector, number: int) -> drrej.Report:
    gates = [drrej.Gate.parse(text) for text in ("accuracy >= 0.5", "coverage@risk=0.2 > 0.1")]
    wanted = drrej.EvaluateOptions(
        intervals=bool(number % 2),
        by="prediction" if number % 3 else None,
        rivals=Rivals(usual=number % 5 == 0),
    )
    return drrej.evaluate(opened(test), rejector, gates, wanted)


# Mutations

Path_ = tuple[Any, ...]


def places(node: Any, path: Path_ = ()) -> Iterator[Path_]:
    """Every place of a tree but the root."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        yield (*path, key)
        yield from places(value, (*path, key))


def at(tree: Any, path: Path_) -> Any:
    """The value at a place."""
    return functools.reduce(lambda node, key: node[key], path, tree)


def is_number(value: Any) -> bool:
    """Whether it is a JSON number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def moved(rng: random.Random, value: float) -> Any:
    """Another number than `value`, by more than rounding."""
    if isinstance(value, int):
        return rng.choice([value + 1, value - 1, value * 2 + 1, 0 if value else 3, -3 - value, value + 10**9])
    factor = rng.choice([1.001, 0.999, 1.1, 0.5, 2.0, 10.0, -1.0])
    return rng.choice([value * factor if value else 0.125, value * factor if value else -0.5, value + 1.0, value - 1.0])


def junk(rng: random.Random) -> Any:
    """What should not be there."""
    deep: Any = 0
    for _ in range(rng.choice([1, 3, 200])):
        deep = [deep]
    return rng.choice([None, True, "", "x\ny", "\ud800", [], {}, deep, -1, 0, 2.5, 17, 10**400, 1e308, 5e-324, "nan"])


def move_number(rng: random.Random, tree: Any) -> tuple[str, str]:
    """One number moved; its place."""
    path = rng.choice([path for path in places(tree) if is_number(at(tree, path))])
    at(tree, path[:-1])[path[-1]] = moved(rng, at(tree, path))
    return json.dumps(tree), "/".join(map(str, path))


def swap_numbers(rng: random.Random, tree: Any) -> tuple[str, str]:
    """A number that stands elsewhere in the document."""
    numbers = [path for path in places(tree) if is_number(at(tree, path))]
    path, other = rng.choice(numbers), rng.choice(numbers)
    at(tree, path[:-1])[path[-1]] = at(tree, other)
    return json.dumps(tree), ""


def replace_value(rng: random.Random, tree: Any) -> tuple[str, str]:
    """Anything replaced by junk."""
    path = rng.choice(list(places(tree)))
    at(tree, path[:-1])[path[-1]] = junk(rng)
    return json.dumps(tree), ""


def drop_key(rng: random.Random, tree: Any) -> tuple[str, str]:
    """A key or an item taken away."""
    path = rng.choice(list(places(tree)))
    del at(tree, path[:-1])[path[-1]]
    return json.dumps(tree), ""


def add_key(rng: random.Random, tree: Any) -> tuple[str, str]:
    """A key that is not known."""
    objects = [path for path in places(tree) if isinstance(at(tree, path), dict)]
    at(tree, rng.choice([(), *objects]))[rng.choice(["novelty", "Tau", "", "a\nb"])] = 1
    return json.dumps(tree), "unknown key"


def double_key(rng: random.Random, tree: Any) -> tuple[str, str]:
    """A key that occurs twice, with another value."""
    keys = [key for path in places(tree) if isinstance(key := path[-1], str)]
    return json.dumps(tree).replace(f'"{(key := rng.choice(keys))}":', f'"{key}": 0.5, "{key}":', 1), "doubled key"


def spoil_text(rng: random.Random, tree: Any) -> tuple[str, str]:
    """Characters of the text replaced, cut, or a number of endless digits, a NaN, or brackets without end."""
    text = json.dumps(tree)
    place = rng.randrange(len(text))
    what = rng.choice(["x", '"', "{", "]", "9", "-", "e5", "\\", "NaN", "1" * 5000, "[" * 100_000, '{"a":' * 100_000])
    return rng.choice([text[:place] + what + text[place + 1 :], text[:place], text[:place] + what + text[place:]]), ""


MUTATIONS: list[tuple[Callable[[random.Random, Any], tuple[str, str]], int]] = [
    (move_number, 12),
    (swap_numbers, 3),
    (replace_value, 4),
    (drop_key, 2),
    (add_key, 1),
    (double_key, 1),
    (spoil_text, 2),
]


# What the command line makes of them


def check_end(found: Outcome) -> None:
    """0 or 1, or 2 with one line and nothing else."""
    assert found.code in (0, 1, 2), found
    assert not re.search("Traceback|unexpected", found.err), found.err
    if found.code == 2:
        assert found.out == b""
        assert re.fullmatch(r"drrej: error: [^\n]+\n", found.err), found.err


def used(original: Original, document: Path, folder: Path, accept_edited: bool = False) -> str:
    """How the document was taken: "refused", "used", or "verdict" where exit 1 said no to the data."""
    before = ["--accept-edited"] if accept_edited else []
    if original.is_report:
        found = run(
            *before, "evaluate", original.dump, "-r", original.rejector, "--baseline", document, "--format", "json"
        )
        check_end(found)
        if found.code == 0:
            _check_difference(json.loads(found.out), json.loads(document.read_text(encoding="utf-8")))
        return _word(found)
    found = run(*before, "inspect", document)
    check_end(found)
    if found.code:
        return _word(found)
    rejector = drrej.Rejector.from_json(document.read_text(encoding="utf-8"), accept_edited=accept_edited)
    assert drrej.Rejector.from_json(rejector.to_json()) == rejector
    if rejector.threshold is None:
        return "used"
    mask = folder / "mask.parquet"
    written = run(*before, "reject", original.dump, "-r", document, "-o", mask, "-f")
    check_end(written)
    task = ["--task", "regression", "--prediction", "predicted", "--target", "true"] if original.regression else []
    report = run(*before, "evaluate", original.dump, "-r", document, "--format", "json", *task)
    check_end(report)
    if written.code == 0 == report.code:
        rejected = pq.read_table(mask, columns=["rejected"]).column(0).to_numpy()
        tree = json.loads(report.out)
        assert tree["coverage"]["accepted"] == int((~rejected).sum())
        kind = RegressionReport if original.regression else drrej.Report
        assert kind.from_json(report.out).tree == tree
    return "used" if written.code == 0 else "used, but not for these rows"


def _check_difference(now: Any, then: Any) -> None:
    """The differences are those of the two documents."""
    for key in ("coverage", "accuracy", "base_accuracy", "aurc", "e_aurc", "augrc"):
        a, b = now[key]["value"], then[key]["value"]
        assert now["difference"][key]["value"] == (None if a is None or b is None else a - b)


def _word(found: Outcome) -> str:
    return {0: "used", 1: "verdict", 2: "refused"}[found.code]


def case(
    number: int, seed: int, kinds: list[Original], folder: Path, accept_edited: bool = False
) -> tuple[str, str, str]:
    """One mutated document: how it was mutated, how it was taken, and what it was."""
    rng = random.Random(f"{seed}-{number}")
    original = rng.choice(kinds)
    mutate = rng.choices([function for function, _ in MUTATIONS], [weight for _, weight in MUTATIONS])[0]
    text, what = mutate(rng, copy.deepcopy(json.loads(original.text)))
    document = folder / "mutated.json"
    document.write_text(text, encoding="utf-8", errors="surrogatepass")
    word = used(original, document, folder, accept_edited)
    kept = is_same(text, original.text)
    if what == "doubled key" or not (kept or accept_edited):
        assert word == "refused", f"case {number}: {original.name}: {what} was changed, and used"
    return f"{'report' if original.is_report else 'rejector'} {mutate.__name__}", "unchanged" if kept else word, what


def is_same(text: str, other: str) -> bool:
    """Whether two documents say the same, but for a digest that was taken away."""
    try:
        trees = [json.loads(each, parse_int=float) for each in (text, other)]
    except (ValueError, RecursionError):
        return False
    return isinstance(trees[0], dict) and trees[0] == {
        key: trees[1][key] for key in trees[1] if key != "digest" or key in trees[0]
    }


def campaign(
    cases: int, seed: int, folder: Path, accept_edited: bool
) -> tuple[Counter[tuple[str, str]], Counter[str], list[str]]:
    """How often each mutation ended in each way, which numbers could be moved, and what must not be."""
    kinds = originals(folder)
    table, free, failures = Counter[tuple[str, str]](), Counter[str](), list[str]()
    for number in range(cases):
        try:
            how, word, what = case(number, seed, kinds, folder, accept_edited)
        except Exception as error:
            failures.append(f"case {number}: {error!r}"[:600])
            continue
        table[how, word] += 1
        if word != "refused" and what:
            free[re.sub(r"/\d+", "/N", what)] += 1
    return table, free, failures


def report(cases: int, seed: int, accept_edited: bool) -> bool:
    """Print how a campaign ended; whether it ended well."""
    with tempfile.TemporaryDirectory() as name:
        table, free, failures = campaign(cases, seed, Path(name), accept_edited)
    for (how, word), count in sorted(table.items()):
        print(f"{count:6} {how:28} {word}")
    print("numbers that could be moved:", ", ".join(f"{what} ({count})" for what, count in free.most_common()))
    print(f"{len(failures)} failures", *failures, sep="\n")
    return not failures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--accept-edited", action="store_true")
    options = parser.parse_args()
    sys.exit(not report(options.cases, options.seed, options.accept_edited))
