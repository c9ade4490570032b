"""Mutations of valid dumps and documents: never a traceback, an output after an error, or a verdict without data.

A mutated file may still be valid, so what is checked is the contract, not the outcome: exit 0 with its output and no
error line, exit 1 only with a line that states the verdict, else exit 2 with exactly one line and nothing written.
`FUZZ=10000 pytest tests/contract/test_fuzz.py` runs more cases; a case is known by its number.
"""

from __future__ import annotations

import collections
import io
import json
import os
import random
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import Many
from dumps_zoo import LISTS, Outcome, differing_dictionaries, drrej, fixed_list, make_rejector, wide, write

CASES = int(os.environ.get("FUZZ", "0"))
"""Those of a long run."""
K = 5
ROWS = 90
NAMES = [f"c{i}" for i in range(K)]


class Originals:
    """Valid dumps with the flags they need, and the documents of every step."""

    def __init__(self, folder: Path) -> None:
        rng = np.random.default_rng(5)
        self.folder = folder
        self.logits = (rng.normal(size=(ROWS, K)) * 3).astype(np.float32)
        self.labels = np.where(rng.random(ROWS) < 0.8, self.logits.argmax(axis=1), 1)
        text = [NAMES[i] for i in self.labels]
        raw = np.exp(self.logits.astype(float))
        probabilities = raw / raw.sum(axis=1, keepdims=True)
        ids = pa.array([f"row {i}" for i in range(ROWS)])
        self.tables: list[tuple[dict[str, object], dict[str, object], list[str]]] = [
            ({"id": ids, "logits": LISTS["list"](self.logits), "label": self.labels}, {"row_group_size": 40}, []),
            ({"logits": fixed_list(self.logits), "label": self.labels, "id": ids}, {"compression": "zstd"}, []),
            (
                {"logits": LISTS["large_list"](self.logits), "label": differing_dictionaries(text, 30)},
                {"row_group_size": 30},
                ["--classes", ",".join(NAMES)],
            ),
            (
                {**wide(self.logits), "label": self.labels.astype(float)},
                {"use_dictionary": False, "compression": "none"},
                ["--logits", "logit_*"],
            ),
            (
                {"logits": LISTS["fixed_shape_tensor"](probabilities), "label": pa.array(text)},
                {"data_page_version": "2.0", "compression": "gzip"},
                ["--classes", ",".join(NAMES), "--input", "probs"],
            ),
            (
                {"logits": LISTS["list"](self.logits.astype(np.float16)), "label": pa.array(self.labels, pa.int8())},
                {
                    "write_page_checksum": True,
                    "column_encoding": {"label": "DELTA_BINARY_PACKED"},
                    "use_dictionary": False,
                },
                [],
            ),
        ]
        self.files = [self._bytes(columns, options) for columns, options, _ in self.tables]
        self.good = write(folder / "good.parquet", self.tables[0][0])
        make_rejector(self.good, folder)
        self.documents = [(folder / f"{n}.json").read_text() for n in ("calibrated", "fitted", "rejector")]

    def _bytes(self, columns: dict[str, object], options: dict[str, object]) -> bytes:
        sink = io.BytesIO()
        pq.write_table(pa.table(columns), sink, **options)
        return sink.getvalue()


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Originals:
    return Originals(tmp_path_factory.mktemp("originals"))


# Mutations of bytes


def flip_bytes(rng: random.Random, data: bytes) -> bytes:
    """Bits flipped and bytes replaced, half of the time in the footer, where a byte means most."""
    raw = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 4, 16, 64])):
        place = rng.randrange(len(raw)) if rng.random() < 0.5 else rng.randrange(max(0, len(raw) - 1500), len(raw))
        raw[place] = rng.choice([raw[place] ^ (1 << rng.randrange(8)), rng.randrange(256), 0, 255, 127, 128])
    return bytes(raw)


def cut(rng: random.Random, data: bytes) -> bytes:
    start, stop = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    return rng.choice([data[:start], data[start:], data[:start] + data[stop:], data[:stop] + data[start:]])


def overwrite(rng: random.Random, data: bytes) -> bytes:
    start = rng.randrange(len(data))
    size = rng.choice([4, 32, 500])
    return data[:start] + rng.choice([bytes(size), rng.randbytes(size)]) + data[start + size :]


# Mutations of tables


def spoil_rows(rng: random.Random, columns: dict[str, object]) -> dict[str, object]:
    """A few values of one column replaced by what should not be there."""
    name = rng.choice(list(columns))
    array = _array(columns[name])
    values = array.to_pylist()
    for _ in range(rng.choice([1, 2, 30])):
        place = rng.randrange(len(values))
        values[place] = _spoiled(rng, values[place])
    try:
        return {**columns, name: pa.array(values, _plain_type(array.type))}
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return {**columns, name: pa.array([str(value) for value in values])}


def _array(column: object) -> pa.Array | pa.ChunkedArray:
    return column if isinstance(column, pa.Array | pa.ChunkedArray) else pa.array(column)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if pa.types.is_dictionary(kind):
        return kind.value_type
    return pa.list_(kind.value_type) if pa.types.is_fixed_size_list(kind) else kind


def _spoiled(rng: random.Random, value: object) -> object:
    odd = [float("nan"), float("inf"), float("-inf"), -1.0, 3e38, 0.5, 0.0]
    if isinstance(value, list | np.ndarray):
        row = list(value) or [0.0]
        kind = rng.randrange(6)
        if kind == 0:
            return None
        if kind == 1:
            return row[: rng.randrange(len(row))]
        if kind == 2:
            return [*row, 1.0]
        if kind == 3:
            return [rng.choice(odd)] * len(row)
        row[rng.randrange(len(row))] = rng.choice([None, *odd])
        return row
    if isinstance(value, str):
        return rng.choice([None, "", "no such class", "c0 "])
    if isinstance(value, float):
        return rng.choice([None, *odd])
    return rng.choice([None, -1, K, 120])


def retype(rng: random.Random, columns: dict[str, object]) -> dict[str, object]:
    """One column in another type, renamed, twice, or gone."""
    name = rng.choice(list(columns))
    others = {key: value for key, value in columns.items() if key != name}
    array = _array(columns[name])
    kind = rng.randrange(6)
    if kind == 0:
        return others or columns
    if kind == 1:
        return {**others, rng.choice(["x", "logits", "label", "prediction", "loss", "0"]): columns[name]}
    if kind == 2:
        return {**columns, name: pa.array([str(value) for value in array.to_pylist()])}
    if kind == 3:
        return {**columns, name: pa.nulls(len(array), _plain_type(array.type))}
    if kind == 4:
        return {**columns, name: pa.array([rng.random() for _ in range(len(array))])}
    target = rng.choice([pa.int32(), pa.bool_(), pa.float64(), pa.binary(), pa.list_(pa.int64()), pa.decimal128(5, 2)])
    try:
        return {**columns, name: pa.array(array.to_pylist()).cast(target)}
    except (pa.ArrowException, TypeError):
        return {**columns, name: pa.nulls(len(array), target)}


def fewer_rows(rng: random.Random, columns: dict[str, object]) -> dict[str, object]:
    count = rng.choice([0, 1, 2, 3])
    return {name: _array(column).slice(0, count) for name, column in columns.items()}


# Mutations of documents


def change_document(rng: random.Random, text: str) -> str:
    """A value replaced, a key dropped or renamed, at any depth."""
    tree = json.loads(text)
    for _ in range(rng.choice([1, 1, 2])):
        node = tree
        while True:
            key = rng.choice(list(node))
            if not isinstance(node[key], dict) or not node[key] or rng.random() < 0.1:
                break
            node = node[key]
        kind = rng.randrange(4)
        value = node.pop(key)
        if kind == 0:
            node[key + "_"] = value
        elif kind == 1 and isinstance(value, int | float) and not isinstance(value, bool):
            node[key] = rng.choice([-value, value * 1e10, value * 1e-10, value + 1, 0, 1e308, -1e308, 1e-308, 10**30])
        elif kind < 3:
            node[key] = rng.choice([None, True, "", "log", "\u00e9", [], {}, 0, -1, 1, 2.5, 1e300, [["a"]], {"a": 1}])
        if not isinstance(tree, dict) or not tree:
            break
    return json.dumps(tree)


def break_text(rng: random.Random, text: str) -> bytes:
    mutation = rng.choice([flip_bytes, cut, overwrite])
    return mutation(rng, text.encode())


# A case


class Case:
    """One mutation and the command it is tried with, made from its number alone."""

    def __init__(self, number: int, originals: Originals, folder: Path) -> None:
        self.rng = rng = random.Random(number)
        self.folder = folder
        dump, document = folder / "dump.parquet", folder / "document.json"
        which = rng.randrange(len(originals.files))
        columns, options, flags = originals.tables[which]
        self.kind = rng.choice(["bytes", "bytes", "bytes", "table", "table", "document", "document", "text"])
        self.outputs: list[Path] = []
        if self.kind in ("document", "text"):
            dump.write_bytes(originals.good.read_bytes())
            text = rng.choice(originals.documents)
            changed = change_document(rng, text).encode() if self.kind == "document" else break_text(rng, text)
            document.write_bytes(changed)
            self.arguments = self._command(rng.choice(["fit", "threshold", "evaluate", "reject", "inspect"]), [])
            return
        if self.kind == "bytes":
            dump.write_bytes(
                rng.choice([flip_bytes, flip_bytes, flip_bytes, cut, overwrite])(rng, originals.files[which])
            )
        else:
            mutation = rng.choice([spoil_rows, spoil_rows, retype, fewer_rows])
            try:
                write(dump, mutation(rng, columns), row_group_size=rng.choice([7, 40, 1000]))
            except pa.ArrowException:
                write(dump, columns, **options)
        document.write_text(originals.documents[2])
        command = rng.choice(["calibrate", "fit", "threshold", "evaluate", "reject", "run", "inspect", "join"])
        self.arguments = self._command(command, flags)

    def _command(self, command: str, flags: list[str]) -> list[str]:
        dump, document = str(self.folder / "dump.parquet"), str(self.folder / "document.json")
        out = self.folder / ("mask.parquet" if command == "reject" else "out.json")
        if command == "inspect":
            return ["inspect", document if self.kind in ("document", "text") else dump, *flags]
        self.outputs = [out]
        jobs = ["--jobs", self.rng.choice(["1", "2"]), "-o", str(out)]
        if command == "run":
            run = self.folder / "run"
            self.outputs = [run / name for name in ("rejector.json", "report.json", "report.txt", "mask.parquet")]
            arguments = ["run", "--val", dump, "--test", dump, *flags, "--coverage", "0.5", "-o", str(run)]
        elif command == "join":
            arguments = ["calibrate", dump, *flags, "--labels-from", dump, "--join-on", "id", *jobs]
        elif command == "calibrate":
            arguments = ["calibrate", dump, *flags, *jobs]
        else:
            rule = {"threshold": ["--risk", "0.1"], "evaluate": ["--gate", "coverage > 0.5"]}.get(command, [])
            bad_rows = ["--on-bad-row", "reject"] if command == "reject" and self.rng.random() < 0.5 else []
            arguments = [command, dump, "-r", document, *flags, *rule, *bad_rows, *jobs]
        return arguments

    def check(self, outcome: Outcome) -> str:
        """The contract; the outcome's name is for the count."""
        errors = [line for line in outcome.lines if line.startswith("drrej: error: ")]
        assert all(line.startswith("drrej: ") for line in outcome.lines), outcome.err
        assert "error: unexpected" not in outcome.err, outcome.err
        leftovers = [path for path in self.folder.rglob("*") if "drrej-tmp" in path.name]
        assert not leftovers
        if outcome.code == 0:
            assert not errors, outcome.err
            assert all(path.stat().st_size for path in self.outputs)
            return "0 done"
        if outcome.code == 1:
            verdicts = [line for line in outcome.lines if "gate failed" in line or "cannot be reached" in line]
            assert verdicts, outcome.err
            return "1 verdict"
        assert outcome.code == 2, outcome
        assert len(outcome.lines) == 1, outcome.err
        assert errors == outcome.lines
        assert outcome.out == b""
        assert not any(path.exists() for path in self.outputs)
        return "2 error"


def run_in_process(arguments: list[str]) -> Outcome:
    command = [sys.executable, "-m", "drrej", *arguments]
    done = subprocess.run(command, capture_output=True, check=False)
    return Outcome(done.returncode, done.stdout, done.stderr.decode())


def test_mutations(originals: Originals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, many: Many) -> None:
    cases = CASES or many(240)
    process_every = max(40, cases // 50)
    counts: collections.Counter[tuple[str, str]] = collections.Counter()
    messages: collections.Counter[str] = collections.Counter()
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    for number in range(cases):
        with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
            case = Case(number, originals, Path(folder))
            separate = number % process_every == 0
            run: Callable[[list[str]], Outcome] = run_in_process if separate else lambda words: drrej(*words)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                outcome = run(case.arguments)
            try:
                counts[case.kind, case.check(outcome)] += 1
            except AssertionError as error:
                pytest.fail(f"case {number}: drrej {' '.join(case.arguments)}\n{outcome}\n{error}")
            if outcome.code == 2:
                messages[outcome.err.replace(folder, "").strip()[:110]] += 1
    assert not list(scratch.iterdir())
    assert {kind for kind, _ in counts} == {"bytes", "table", "document", "text"}
    found = {outcome for _, outcome in counts}
    assert found == {"0 done", "1 verdict", "2 error"} or (cases < 240 and found == {"0 done", "2 error"})
    if "FUZZ" in os.environ:
        lines = [f"{kind:10} {outcome:10} {count}" for (kind, outcome), count in sorted(counts.items())]
        shown = [f"{count:6}  {message}" for message, count in messages.most_common(400)]
        print("", *lines, *shown, sep="\n")  # noqa: T201 - a report for whoever asked for the long run


QUIET_NOT = {
    np.float16: (np.uint16, 0x7D01),
    np.float32: (np.uint32, 0x7FA00001),
    np.float64: (np.uint64, 0x7FF40000 << 32),
}
"""Bits of a NaN that signals: a cast of it is an invalid operation, of which numpy warns."""


@pytest.mark.parametrize("width", QUIET_NOT)
@pytest.mark.parametrize("flags", [[], ["--input", "probs"], ["--input", "log-probs"]])
def test_a_signalling_nan_is_a_bad_row_like_any_other(flags: list[str], width: type, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    scores = rng.normal(size=(60, K)) * 2
    scores -= np.log(np.exp(scores).sum(axis=1, keepdims=True))
    labels = scores.argmax(axis=1)
    scores = (np.exp(scores) if "probs" in flags else scores).astype(width)
    write(tmp_path / "good.parquet", {"logits": LISTS["list"](scores), "label": labels})
    integers, bits = QUIET_NOT[width]
    scores.view(integers)[7] = bits
    bad = write(tmp_path / "bad.parquet", {"logits": LISTS["list"](scores), "label": labels})
    make_rejector(tmp_path / "good.parquet", tmp_path, *flags)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for step in (["calibrate", *flags], ["fit", "-r", tmp_path / "rejector.json"]):
            outcome = drrej(step[0], bad, *step[1:], "-o", tmp_path / "out.json")
            assert outcome.code == 2
            assert len(outcome.lines) == 1
            assert "1 row has NaN" in outcome.err
        words = ["-r", tmp_path / "rejector.json", "-o", tmp_path / "mask.parquet", "--on-bad-row", "reject"]
        assert drrej("reject", bad, *words).code == 0
