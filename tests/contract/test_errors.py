"""Everything that can be wrong: exit 2, one line that says what, where and what to do, and nothing else happens."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import fail, more_trials, succeed, thorough
from dumps_zoo import Outcome, drrej, fixed_list, make_rejector, newer_arrow, plain_list, wide, write

K = 4
ROWS = 60
LABELLED = ("calibrate", "threshold --risk", "evaluate", "run --val", "run --test")
UNLABELLED = ("fit", "threshold", "reject")
ALL = LABELLED + UNLABELLED


class Bench:
    """A folder with a good dump and the documents of every step; `make` makes them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        rng = np.random.default_rng(3)
        self.logits = rng.normal(size=(ROWS, K)).astype(np.float32) * 3
        self.labels = np.where(rng.random(ROWS) < 0.8, self.logits.argmax(axis=1), 0)
        self.good = folder / "good.parquet"

    def make(self) -> Path:
        make_rejector(self.dump("good.parquet"), self.folder)
        (self.folder / "tmp").mkdir()
        return self.folder

    def dump(self, name: str = "bad.parquet", **columns: object) -> Path:
        """A dump of two row groups; columns replace the good ones, None leaves one out."""
        table = {"id": np.arange(ROWS), "logits": fixed_list(self.logits), "label": self.labels, **columns}
        return write(self.folder / name, {k: v for k, v in table.items() if v is not None}, row_group_size=ROWS // 2)

    def lists(self, **changes: object) -> pa.Array:
        """The logits with rows replaced: r5=None."""
        rows: list[object] = list(self.logits)
        for name, value in changes.items():
            rows[int(name[1:])] = value
        return pa.array(rows, pa.list_(pa.float32()))

    def scores(self, value: float, *places: tuple[int, int]) -> pa.Array:
        scores = self.logits.copy()
        for place in places:
            scores[place] = value
        return fixed_list(scores)

    def command(self, kind: str, dump: Sequence[object], out: str) -> list[object]:
        folder, good = self.folder, self.good
        if len(dump) > 1:  # options hold for both dumps of a run
            good = dump[0]
        return {
            "calibrate": ["calibrate", *dump, "-o", f"{out}.json"],
            "fit": ["fit", *dump, "-r", folder / "calibrated.json", "-o", f"{out}.json"],
            "threshold": ["threshold", *dump, "-r", folder / "fitted.json", "--coverage", "0.8", "-o", f"{out}.json"],
            "threshold --risk": ["threshold", *dump, "-r", folder / "fitted.json", "--risk", ".1", "-o", f"{out}.json"],
            "evaluate": ["evaluate", *dump, "-r", folder / "rejector.json", "-o", f"{out}.json"],
            "reject": ["reject", *dump, "-r", folder / "rejector.json", "-o", f"{out}.parquet"],
            "run --val": ["run", "--test", good, "--val", *dump, "--coverage", "0.8", "-o", f"{out}-run"],
            "run --test": ["run", "--val", good, "--test", *dump, "--coverage", "0.8", "-o", f"{out}-run"],
            "inspect": ["inspect", *dump],
        }[kind]

    def snapshot(self) -> dict[str, bytes]:
        return {str(p): p.read_bytes() if p.is_file() else b"" for p in self.folder.rglob("*")}

    def refuses(self, arguments: Sequence[object], says: Sequence[str], stdin: bytes = b"") -> Outcome:
        """Exit 2, one line with all of `says`, nothing on stdout, no file made or changed."""
        before = self.snapshot()
        outcome = drrej(*arguments, stdin=stdin)
        assert outcome.code == 2, (outcome, arguments)
        assert outcome.out == b""
        assert len(outcome.lines) == 1, outcome.err
        assert outcome.err.startswith("drrej: error: ")
        assert "unexpected" not in outcome.err
        for words in says:
            assert words in outcome.err
        assert self.snapshot() == before
        return outcome


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Bench(tmp_path_factory.mktemp("bench")).make()


@pytest.fixture
def bench(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    bench = Bench(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    return bench


# Dumps. Each case: commands that meet it, what makes the dump (further arguments may follow it), what is said.

Case = tuple[Sequence[str], Callable[[Bench], Sequence[object]], Sequence[str]]


def _ragged(bench: Bench) -> Sequence[object]:
    return [bench.dump(logits=bench.lists(r7=bench.logits[7, :3], r40=bench.logits[40, :1], r41=[0.0] * 9))]


def _two_sizes(bench: Bench) -> Sequence[object]:
    return ["b*.parquet", bench.dump("b0.parquet"), bench.dump("b1.parquet", logits=fixed_list(bench.logits[:, :3]))][
        :1
    ]


def _two_kinds(bench: Bench) -> Sequence[object]:
    bench.dump("b0.parquet")
    bench.dump("b1.parquet", logits=None, scores=fixed_list(bench.logits))
    return ["b*.parquet"]


def _truncated(bench: Bench, size: int) -> Sequence[object]:
    path = bench.dump()
    path.write_bytes(path.read_bytes()[:size])
    return [path]


def _nothing_in(bench: Bench) -> Sequence[object]:
    (bench.folder / "folder").mkdir()
    (bench.folder / "folder" / "x.txt").write_text("a")
    return ["folder"]


def _labels(bench: Bench, kind: pa.DataType | None = None, **changes: object) -> Sequence[object]:
    labels: list[object] = bench.labels.tolist()
    for name, value in changes.items():
        labels[int(name[1:])] = value
    return [bench.dump(label=pa.array(labels, kind))]


def _probabilities(bench: Bench) -> np.ndarray:
    raw = np.exp(bench.logits)
    return raw / raw.sum(axis=1, keepdims=True)


def _off_sum(bench: Bench, value: float) -> Sequence[object]:
    scores = _probabilities(bench)
    scores[[9, 33], scores[[9, 33]].argmin(axis=1)] += value
    return [bench.dump(logits=fixed_list(scores)), "--input", "probs"]


def _footer_only(bench: Bench) -> Sequence[object]:
    path = bench.dump()
    data = bytearray(path.read_bytes())
    data[4 : len(data) // 2] = bytes(len(data) // 2 - 4)
    path.write_bytes(data)
    return [path]


NO_RUN_TEST = tuple(c for c in ALL if not c.startswith("run"))
ROW_7 = ["bad.parquet", "column 'logits'", "the first is row 7", "2 rows have"]

DUMPS: dict[str, Case] = {
    "missing file": (ALL, lambda b: ["nowhere.parquet"], ["nowhere.parquet", "no such file"]),
    "pattern without match": (ALL, lambda b: ["no-*.parquet"], ["no-*.parquet", "matches no file"]),
    "missing URI": (ALL, lambda b: [(b.folder / "no.parquet").as_uri()], ["no.parquet", "no such file"]),
    "unknown URI": (ALL, lambda b: ["nope://x/y.parquet"], ["nope://x/y.parquet", "cannot be opened"]),
    "directory without parquet": (ALL, _nothing_in, ["folder", "no .parquet file"]),
    "not parquet": (
        ALL,
        lambda b: [(b.folder / "bad.parquet").write_text("id,logits\n1,2\n" * 9) and b.folder / "bad.parquet"],
        ["bad.parquet", "not a readable parquet file", "is it parquet?"],
    ),
    "empty file": (ALL, lambda b: _truncated(b, 0), ["bad.parquet", "not a readable parquet file"]),
    "truncated": (ALL, lambda b: _truncated(b, 900), ["bad.parquet", "not a readable parquet file", "is it complete"]),
    "overwritten with zeros": (ALL, _footer_only, ["bad.parquet", "cannot be read", "write it again"]),
    "zero rows": (
        ALL,
        lambda b: [write(b.folder / "bad.parquet", {"logits": fixed_list(b.logits[:0]), "label": b.labels[:0]})],
        ["bad.parquet", "zero rows"],
    ),
    "no logits": (
        ("calibrate", "run --val"),
        lambda b: [b.dump(logits=None)],
        ["bad.parquet", "no logit columns found", "--logits among: 'id', 'label'"],
    ),
    "remembered logits missing": (
        ("fit", "threshold", "evaluate", "reject", "run --test"),
        lambda b: [b.dump(logits=None, scores=fixed_list(b.logits))],
        ["bad.parquet", "no column 'logits'", "--logits among", "'scores'"],
    ),
    "ambiguous lists": (
        ("calibrate", "run --val"),
        lambda b: [b.dump(logits=None, a=fixed_list(b.logits), b=fixed_list(b.logits))],
        ["bad.parquet", "several columns", "('a', 'b')", "--logits"],
    ),
    "ambiguous families": (
        ("calibrate",),
        lambda b: [b.dump(logits=None, **wide(b.logits, "p"), **wide(b.logits, "q"))],
        ["bad.parquet", "'p*', 'q*'", "--logits"],
    ),
    "no such column": (
        ALL,
        lambda b: [b.dump(), "--logits", "scores"],
        ["bad.parquet", "no column 'scores'", "'logits'"],
    ),
    "no such family": (ALL, lambda b: [b.dump(), "--logits", "s_*"], ["bad.parquet", "'s_*'", "'logits'"]),
    "gap in family": (
        ALL,
        lambda b: [b.dump(**{k: v for k, v in wide(b.logits).items() if k != "logit_2"}), "--logits", "logit_*"],
        ["bad.parquet", "'logit_2' is missing"],
    ),
    "same name twice": (
        ALL,
        lambda b: [_twice(b)],
        ["bad.parquet", "column 'logits' occurs twice", "rename"],
    ),
    "text as logits": (
        ALL,
        lambda b: [b.dump(logits=pa.array([str(list(row)) for row in b.logits]))],
        ["bad.parquet", "column 'logits' is string", "floating-point"],
    ),
    "integers as logits": (
        ALL,
        lambda b: [b.dump(logits=plain_list(b.logits.astype(np.int64)))],
        ["bad.parquet", "column 'logits' is list<", "int64", "cast it to float32"],
    ),
    "text in a family": (
        ALL,
        lambda b: [b.dump(**{**wide(b.logits), "logit_1": pa.array(["x"] * ROWS)}), "--logits", "logit_*"],
        ["bad.parquet", "column 'logit_1'", "string", "cast it to float32"],
    ),
    "matrix per row": (
        ALL,
        lambda b: [b.dump(logits=pa.FixedShapeTensorArray.from_numpy_ndarray(b.logits.reshape(ROWS, 2, 2)))],
        ["bad.parquet", "column 'logits'", "[2, 2]"],
    ),
    "null row": (
        ALL,
        lambda b: [b.dump(logits=b.lists(r7=None, r40=None))],
        [*ROW_7, "no value (null)", "drop or fix"],
    ),
    "null row in a fixed list": (
        ALL,
        lambda b: [b.dump(logits=b.lists(r7=None, r40=None).cast(pa.list_(pa.float32(), K)))],
        [*ROW_7, "no value (null)", "drop or fix"],
    ),
    "null inside": (
        ALL,
        lambda b: [b.dump(logits=b.lists(r7=[1, None, 2, 3], r40=[None] * 4))],
        [*ROW_7, "a null among the scores", "drop or fix"],
    ),
    "null in a family": (
        ALL,
        lambda b: [_null_in_family(b), "--logits", "logit_*"],
        ["bad.parquet", "column 'logit_*'", "2 rows have a null", "the first is row 7"],
    ),
    "NaN": (ALL, lambda b: [b.dump(logits=b.scores(np.nan, (7, 1), (40, 3)))], [*ROW_7, "NaN among the scores"]),
    "+inf": (ALL, lambda b: [b.dump(logits=b.scores(np.inf, (7, 1), (40, 3)))], [*ROW_7, "+inf among the scores"]),
    "all -inf": (
        ALL,
        lambda b: [b.dump(logits=b.lists(r7=[-np.inf] * 4, r40=[-np.inf] * 4))],
        [*ROW_7, "-inf for every class"],
    ),
    "ragged": (
        ALL,
        _ragged,
        ["bad.parquet", "column 'logits'", "3 rows have not 4 scores", "the first is row 7", "it has 3"],
    ),
    "several kinds": (
        ALL,
        lambda b: [b.dump(logits=b.lists(r3=None, r7=[np.nan] * 4, r40=None))],
        ["2 rows have no value (null)", "the first is row 3", "also 1 with NaN among the scores"],
    ),
    "null in every row": (
        ALL,
        lambda b: [b.dump(logits=pa.array([None] * ROWS, pa.list_(pa.float32())))],
        ["bad.parquet", "column 'logits' is null in every row"],
    ),
    "lists without scores": (ALL, lambda b: [b.dump(logits=pa.array([[]] * ROWS, pa.list_(pa.float32())))], ["empty"]),
    "one score without --binary": (
        ALL,
        lambda b: [b.dump(logits=b.logits[:, 0])],
        ["bad.parquet", "column 'logits' holds one score per row", "--binary"],
    ),
    "one score in a list": (
        ALL,
        lambda b: [b.dump(logits=fixed_list(b.logits[:, :1]))],
        ["bad.parquet", "column 'logits' has one score per row", "--binary"],
    ),
    "--binary with lists": (ALL, lambda b: [b.dump(), "--binary"], ["bad.parquet", "--binary", "list"]),
    "other K than the rejector's": (
        ("fit", "threshold", "threshold --risk", "evaluate", "reject", "run --test"),
        lambda b: [b.dump(logits=fixed_list(b.logits[:, :3]), label=b.labels % 3)],
        ["bad.parquet", "column 'logits' has 3 scores per row", "4 classes"],
    ),
    "K differs between files": (ALL, _two_sizes, ["b1.parquet", "3 scores per row", "b0.parquet has 4"]),
    "columns differ between files": (("calibrate",), _two_kinds, ["b1.parquet", "b0.parquet", "'logits'"]),
    "no label": (
        ("calibrate", "run --val"),
        lambda b: [b.dump(label=None)],
        ["bad.parquet", "no column 'label'", "--label", "--labels-from"],
    ),
    "remembered label missing": (
        ("evaluate", "threshold --risk", "run --test"),
        lambda b: [b.dump(label=None)],
        ["bad.parquet", "no label column 'label'", "--label among: 'id', 'logits'"],
    ),
    "label null": (
        LABELLED,
        lambda b: _labels(b, r7=None, r40=None),
        ["bad.parquet", "column 'label': 2 rows have no label (null); the first is row 7"],
    ),
    "label negative": (
        LABELLED,
        lambda b: _labels(b, r7=-1, r40=-3),
        ["bad.parquet", "column 'label': 2 rows have a label outside 0 to 3; the first is row 7, counted from 0 (-1)"],
    ),
    "label too large": (
        LABELLED,
        lambda b: _labels(b, r7=4, r40=5000),
        ["bad.parquet", "column 'label': 2 rows have a label outside 0 to 3", "row 7", "(4)", "start at 1?"],
    ),
    "label fractional": (
        LABELLED,
        lambda b: _labels(b, r7=1.5, r40=float("inf")),
        ["bad.parquet", "column 'label': 2 rows", "not a whole number; the first is row 7", "(1.5)"],
    ),
    "label of another kind": (
        LABELLED,
        lambda b: [b.dump(label=pa.array([[1]] * ROWS))],
        ["bad.parquet", "column 'label'", "list<", "class numbers 0 to 3"],
    ),
    "labels all null": (LABELLED, lambda b: [b.dump(label=pa.nulls(ROWS))], ["column 'label'", "null in every row"]),
    "true and false for four classes": (
        LABELLED,
        lambda b: [b.dump(label=b.labels > 1)],
        ["bad.parquet", "column 'label'", "true or false", "4 scores"],
    ),
    "text labels without names": (
        LABELLED,
        lambda b: [b.dump(label=pa.array([f"c{i}" for i in b.labels]))],
        ["bad.parquet", "column 'label'", "text", "--classes"],
    ),
    "label unknown": (
        ("calibrate", "evaluate", "threshold --risk"),
        lambda b: [b.dump(label=pa.array([f"c{i}" for i in b.labels])), "--classes", "a,c1,c2,c3"],
        ["bad.parquet", "column 'label'", "not among the classes", "('c0')", "'a', 'c1', 'c2', 'c3'"],
    ),
    "number of names": (
        ALL,
        lambda b: [b.dump(), "--classes", "a,b,c"],
        ["bad.parquet", "column 'logits' has 4 scores per row", "--classes names 3"],
    ),
    "-inf at the label": (
        ("calibrate", "run --val"),
        lambda b: [b.dump(logits=b.scores(-np.inf, (7, b.labels[7]), (40, b.labels[40])))],
        [*ROW_7, "-inf at the label's class"],
    ),
    "probabilities as logits": (
        ALL,
        lambda b: [b.dump(logits=fixed_list(_probabilities(b)))],
        ["bad.parquet", "column 'logits'", "probabilities", "--input probs"],
    ),
    "probabilities that do not sum to 1": (
        ALL,
        lambda b: _off_sum(b, 0.125),
        ["bad.parquet", "column 'logits': 2 rows", "do not sum to 1", "the first is row 9", "sum is 1.125"],
    ),
    "negative probabilities": (
        ALL,
        lambda b: _off_sum(b, -1.5),
        ["bad.parquet", "column 'logits': 2 rows have a negative probability; the first is row 9", "--input logits"],
    ),
    "parts of other types": (("calibrate", "evaluate"), lambda b: _parts_of_other_types(b), ["b1.parquet", "'label'"]),
}


def _parts_of_other_types(bench: Bench) -> Sequence[object]:
    bench.dump("b0.parquet")
    bench.dump("b1.parquet", label=pa.array([str(i) for i in bench.labels]))
    return ["b*.parquet"]


def _twice(bench: Bench) -> Path:
    column = fixed_list(bench.logits)
    table = pa.Table.from_arrays([column, column, pa.array(bench.labels)], ["logits", "logits", "label"])
    path = bench.folder / "bad.parquet"
    pq.write_table(table, path)
    return path


def _null_in_family(bench: Bench) -> Path:
    columns = wide(bench.logits)
    values: list[object] = columns["logit_2"].to_pylist()
    values[7] = values[40] = None
    return bench.dump(logits=None, **{**columns, "logit_2": pa.array(values, pa.float32())})


def _sample() -> Iterator[Any]:
    """Each dump through one of its commands, another for the next dump; a second one in a thorough run."""
    for number, (kind, (commands, _, _)) in enumerate(DUMPS.items()):
        turn = [(number + step) % len(commands) for step in (0, len(commands) // 2)]
        for place, command in enumerate(commands):
            if place == turn[0]:
                yield kind, command
            else:
                yield thorough(kind, command) if place == turn[1] else more_trials(kind, command)


@pytest.mark.parametrize(("kind", "command"), list(_sample()))
def test_dumps(bench: Bench, kind: str, command: str) -> None:
    _, make, says = DUMPS[kind]
    with newer_arrow():
        dump = make(bench)
    bench.refuses(bench.command(command, dump, "out"), says)
    Path("old-run").mkdir(exist_ok=True)
    old = ["old.json", "old.parquet", *(f"old-run/{n}" for n in ("rejector.json", "report.json", "mask.parquet"))]
    for name in old:
        Path(name).write_text("as it was")
    bench.refuses([*bench.command(command, dump, "old"), "--force"], says)


def test_every_case_names_the_command_it_is_for() -> None:
    assert {command for commands, _, _ in DUMPS.values() for command in commands} == set(ALL)


# Rejectors


def _document(bench: Bench, change: Callable[[dict[str, object]], object]) -> Path:
    tree = json.loads((bench.folder / "rejector.json").read_text())
    change(tree)
    path = bench.folder / "bad.json"
    path.write_text(json.dumps(tree))
    return path


def _text(bench: Bench, text: str | bytes) -> Path:
    path = bench.folder / "bad.json"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def _set(path: str, value: object) -> Callable[[Bench], Path]:
    def change(tree: dict[str, object]) -> None:
        *folders, last = path.split(".")
        node: dict[str, object] = tree
        for folder in folders:
            node = node[folder]  # type: ignore[assignment]
        node[last] = value

    return lambda bench: _document(bench, change)


def _without(path: str) -> Callable[[Bench], Path]:
    def change(tree: dict[str, object]) -> None:
        *folders, last = path.split(".")
        node: dict[str, object] = tree
        for folder in folders:
            node = node[folder]  # type: ignore[assignment]
        del node[last]

    return lambda bench: _document(bench, change)


REJECTORS: dict[str, tuple[Callable[[Bench], object], Sequence[str]]] = {
    "missing": (lambda b: "no.json", ["no.json", "No such file"]),
    "a directory": (lambda b: b.folder, ["cannot be read", "directory"]),
    "empty": (lambda b: _text(b, ""), ["bad.json", "empty"]),
    "not JSON": (lambda b: _text(b, "temperature = 2"), ["bad.json", "not a JSON document"]),
    "not text": (lambda b: _text(b, b"PAR1\xff\xfe"), ["bad.json", "not a JSON document"]),
    "cut off": (
        lambda b: _text(b, (b.folder / "rejector.json").read_text()[:300]),
        ["bad.json", "not a JSON document"],
    ),
    "not an object": (lambda b: _text(b, "[1, 2]"), ["bad.json", "expected a JSON object"]),
    "another document": (lambda b: _text(b, '{"format": "other/1"}'), ["bad.json", "not a rejector"]),
    "newer format": (_set("format", "drrej-rejector/2"), ["bad.json", "drrej-rejector/2", "update drrej"]),
    "NaN": (lambda b: _text(b, _nan(b)), ["bad.json", "NaN is not a JSON number"]),
    "infinite": (lambda b: _text(b, _nan(b).replace("NaN", "1e999")), ["bad.json", "calibration.temperature"]),
    "endless number": (lambda b: _text(b, _nan(b).replace("NaN", "9" * 400)), ["bad.json", "calibration.temperature"]),
    "too deep": (lambda b: _text(b, "[" * 100_000), ["bad.json", "not a JSON document"]),
    "key missing": (_without("ratio.log_max_ratio"), ["bad.json", "'ratio.log_max_ratio' is missing"]),
    "section missing": (_without("calibration"), ["bad.json", "a section is missing"]),
    "text for a number": (_set("ratio.lambda", "1"), ["bad.json", "'ratio.lambda' should be a number"]),
    "number for a section": (_set("threshold", 3), ["bad.json", "'threshold' should be an object"]),
    "temperature 0": (_set("calibration.temperature", 0), ["bad.json", "'calibration.temperature' is out of range"]),
    "temperature tiny": (_set("calibration.temperature", 1e-320), ["bad.json", "'calibration.temperature'"]),
    "lambda negative": (_set("ratio.lambda", -1), ["bad.json", "'ratio.lambda' is out of range"]),
    "unknown loss": (_set("ratio.loss", "hinge"), ["bad.json", "'ratio.loss'"]),
    "one class": (_set("classes", 1), ["bad.json", "'classes' is out of range"]),
    "names of other classes": (_set("class_names", ["a", "b"]), ["bad.json", "'class_names'"]),
    "broken text": (_set("columns.logits", "\ud800"), ["bad.json", "'columns.logits'"]),
    "before fit": (lambda b: "calibrated.json", ["calibrated.json", "no ratio yet", "drrej fit"]),
    "before threshold": (lambda b: "fitted.json", ["fitted.json", "no threshold yet", "drrej threshold"]),
}


def _nan(bench: Bench) -> str:
    tree = json.loads((bench.folder / "rejector.json").read_text())
    tree["calibration"]["temperature"] = 0.123
    return json.dumps(tree).replace("0.123", "NaN")


@pytest.mark.parametrize("kind", REJECTORS)
@pytest.mark.parametrize("command", ["evaluate", "reject"])
def test_rejectors(bench: Bench, kind: str, command: str) -> None:
    make, says = REJECTORS[kind]
    name = "out.json" if command == "evaluate" else "out.parquet"
    bench.refuses([command, bench.good, "-r", make(bench), "-o", name], says)


@pytest.mark.parametrize("kind", [k for k in REJECTORS if k not in ("before fit", "before threshold", "missing")])
def test_rejectors_in_earlier_steps(bench: Bench, kind: str) -> None:
    make, says = REJECTORS[kind]
    path = make(bench)
    bench.refuses(["fit", bench.good, "-r", path, "-o", "out.json"], says)
    bench.refuses(["threshold", bench.good, "-r", path, "--tau", "1"], says)
    if os.path.isfile(str(path)) and kind != "empty" and kind != "not text":
        bench.refuses(["inspect", path], says)


def test_threshold_before_fit(bench: Bench) -> None:
    says = ["calibrated.json", "no ratio yet", "drrej fit"]
    bench.refuses(["threshold", bench.good, "-r", "calibrated.json", "--tau", "1"], says)


def test_an_empty_pipe(bench: Bench) -> None:
    says = ["standard input", "empty", "the step before it in the pipe failed"]
    bench.refuses(["fit", bench.good, "-r", "-"], says)
    bench.refuses(["reject", bench.good, "-r", "-", "-o", "m.parquet"], says)
    bench.refuses(["calibrate", "-"], ["standard input", "empty"])


def test_one_standard_input_for_two(bench: Bench) -> None:
    says = ["only one input can be read from standard input"]
    document = (bench.folder / "rejector.json").read_bytes()
    bench.refuses(["fit", "-", "-r", "-"], says, stdin=document)
    bench.refuses(["reject", "-", "-r", "-", "-o", "m.parquet"], says, stdin=document)
    bench.refuses(["run", "--val", "-", "--test", "-", "--tau", "1", "-o", "out"], says, stdin=document)
    joined = ["--labels-from", "-", "--join-on", "id"]
    bench.refuses(["calibrate", "-", *joined], says, stdin=document)
    bench.refuses(["evaluate", bench.good, "-r", "-", *joined], says, stdin=document)


# Options

FIT = ["fit", "good.parquet", "-r", "calibrated.json", "-o", "out.json"]
THRESHOLD = ["threshold", "good.parquet", "-r", "fitted.json", "-o", "out.json"]
EVALUATE = ["evaluate", "good.parquet", "-r", "rejector.json", "-o", "out.json"]
REJECT = ["reject", "good.parquet", "-r", "rejector.json", "-o", "out.parquet"]
RUN = ["run", "--val", "good.parquet", "--test", "good.parquet", "-o", "out"]
CALIBRATE = ["calibrate", "good.parquet", "-o", "out.json"]

OPTIONS: list[tuple[list[str], list[str]]] = [
    (THRESHOLD, ["exactly one rule", "none"]),
    ([*THRESHOLD, "--tau", "1", "--coverage", "0.5"], ["exactly one rule", "--coverage and --tau"]),
    (RUN, ["exactly one rule"]),
    ([*RUN, "--risk", "0.1", "--max-loss", "1"], ["exactly one rule", "--risk and --max-loss"]),
    *(
        ([*command, f"--{rule}", value], [f"--{rule}", value])
        for command in (THRESHOLD, RUN)
        for rule, value in [
            ("coverage", "0"),
            ("coverage", "1.5"),
            ("coverage", "nan"),
            ("coverage", "-0.5"),
            ("coverage", "80%"),
            ("risk", "1"),
            ("risk", "-1"),
            ("risk", "nan"),
            ("tau", "-1"),
            ("tau", "inf"),
            ("tau", "abc"),
            ("max-loss", "0"),
            ("max-loss", "nan"),
        ]
    ),
    *(
        ([*command, *wrong], [wrong[0], wrong[1]])
        for command in (FIT, [*RUN, "--tau", "1"])
        for wrong in [
            ("--lambda", "0"),
            ("--lambda", "-1"),
            ("--lambda", "inf"),
            ("--lambda", "nan"),
            ("--lambda", "one"),
            ("--alpha", "nan"),
            ("--alpha", "inf"),
            ("--alpha", "2000"),
            ("--loss", "hinge"),
            ("--divergence", "js"),
        ]
    ),
    ([*FIT, "--divergence", "kl", "--alpha", "3"], ["--divergence kl", "--alpha 3", "contradicts"]),
    ([*FIT, "--temperature", "2"], ["either -r", "--temperature"]),
    (["fit", "good.parquet"], ["either -r", "--temperature"]),
    *(
        (["fit", "good.parquet", "--temperature", value, "-o", "out.json"], ["--temperature", value])
        for value in ("0", "-1", "nan", "inf", "1e-310", "warm")
    ),
    *(
        ([*command, "--gate", gate], [gate.strip() or "''", "quote the gate"])
        for command in (EVALUATE, [*RUN, "--tau", "1"])
        for gate in [
            "accuracy",
            "accuracy > ",
            "> 0.9",
            "accuracy = 0.9",
            "accuracy == 0.9",
            "accuracy >= 0.9 and coverage > 0.5",
            "accuracy >= high",
            "accuracy >= nan",
            "accuracy >= 1e999",
            "__import__('os')",
        ]
    ),
    ([*EVALUATE, "--gate", "acuracy >= 0.9"], ["no metric 'acuracy'", "accuracy"]),
    ([*EVALUATE, "--gate", "accuracy.best >= 0.9"], ["no metric 'accuracy.best'", "accuracy.lower"]),
    (
        ["evaluate", "good.parquet", "--gate", "accuracy", ">=", "0.9", "-r", "rejector.json"],
        ["gate 'accuracy'", "quote"],
    ),
    ([*EVALUATE[:-1], "out.docx"], ["out.docx", "ending"]),
    (["evaluate", "good.parquet"], ["--rejector"]),
    (["reject", "good.parquet", "-r", "rejector.json"], ["--output"]),
    ([*CALIBRATE, "--jobs", "-1"], ["--jobs", "-1"]),
    ([*CALIBRATE, "--jobs", "many"], ["--jobs", "many"]),
    ([*CALIBRATE, "--memory", "lots"], ["--memory", "lots", "4G"]),
    ([*CALIBRATE, "--input", "odds"], ["--input", "odds"]),
    ([*CALIBRATE, "--classes", "a,b,a,c"], ["--classes", "'a' occurs twice"]),
    ([*CALIBRATE, "--classes", "names.txt"], ["--classes names.txt", "file"]),
    ([*CALIBRATE, "--labels-from", "good.parquet"], ["--labels-from", "--join-on"]),
    ([*CALIBRATE, "--join-on", "id"], ["--labels-from", "--join-on"]),
    ([*CALIBRATE, "--frobnicate"], ["--frobnicate", "--help"]),
    (["calibrate"], ["DUMP", "--help"]),
    (["calibrat", "good.parquet"], ["calibrat"]),
    ([*REJECT, "--keep", "id,nope"], ["good.parquet", "no column 'nope'"]),
    ([*REJECT, "--keep", "id,id"], ["--keep", "'id' twice"]),
    ([*REJECT, "--on-bad-row", "ignore"], ["--on-bad-row", "ignore"]),
]


@pytest.mark.parametrize(("arguments", "says"), OPTIONS, ids=lambda value: " ".join(value)[:70])
def test_options(bench: Bench, arguments: list[str], says: list[str]) -> None:
    bench.refuses(arguments, says)


def test_a_gate_on_nothing(bench: Bench) -> None:
    """Accuracy of no accepted row is undefined: the gate cannot pass, nor fail."""
    make_rejector(bench.good, bench.folder, rule=("--tau", "1e300"))
    bench.refuses([*EVALUATE, "--gate", "accuracy >= 0.9"], ["accuracy >= 0.9", "undefined"])


def test_a_name_collision_in_the_mask(bench: Bench) -> None:
    for name in ("prediction", "loss", "ratio", "rejected"):
        dump = bench.dump(**{name: bench.labels})
        says = ["bad.parquet", f"'{name}'", "the mask", "--keep"]
        bench.refuses(["reject", dump, "-r", "rejector.json", "-o", "out.parquet"], says)
        bench.refuses(["run", "--val", bench.good, "--test", dump, "--tau", "1", "-o", "out"], says)


# Outputs


@pytest.mark.parametrize("command", [c for c in ALL if not c.startswith("run")])
def test_outputs(bench: Bench, command: str) -> None:
    ending = ".parquet" if command == "reject" else ".json"
    Path(f"there{ending}").write_text("as it was")
    Path("file").write_text("a file")
    Path("folder").mkdir()
    good = [bench.good]
    bench.refuses(bench.command(command, good, "there"), [f"there{ending}", "exists already", "--force"])
    bench.refuses(bench.command(command, good, "no/such/out"), ["no/such", "does not exist", "create it"])
    bench.refuses(bench.command(command, good, "file/out"), ["file/out", "not a directory"])
    bench.refuses(bench.command(command, good, "/proc/out"), ["/proc/out", "cannot be written"])
    long = "x" * 300
    bench.refuses(bench.command(command, good, long), [long, "cannot be written"])
    arguments = bench.command(command, good, "out")
    if command != "reject":
        bench.refuses([*arguments[:-1], "folder"], ["folder"])


def test_directories_as_outputs(bench: Bench) -> None:
    Path("file").write_text("a file")
    Path("full").mkdir()
    Path("full/rejector.json").write_text("as it was")
    Path("full/x.parquet").write_text("as it was")
    run = ["run", "--val", bench.good, "--test", bench.good, "--tau", "1", "-o"]
    bench.refuses([*run, "file"], ["file"])
    bench.refuses([*run, "file/out"], ["file/out"])
    bench.refuses([*run, "no/such"], ["no/such"])
    bench.refuses([*run, "/proc/out"], ["/proc/out"])
    bench.refuses([*run, "full"], ["full/rejector.json", "exists already", "--force"])
    reject = ["reject", bench.good, "-r", "rejector.json", "-o"]
    bench.refuses([*reject, "file/"], ["file", "not a directory"])
    bench.refuses([*reject, "no/such/"], ["no/such", "does not exist"])
    bench.refuses([*reject, "/proc/out/"], ["/proc/out"])
    bench.refuses([*reject, "full/"], ["full", "not empty", "--force"])
    bench.refuses([*reject, "full/", "--force"], ["full", "rejector.json", "will not be replaced"])
    bench.refuses([*reject, f"{bench.folder}/", "--force"], ["will not be replaced"])


def test_an_input_is_not_replaced(bench: Bench) -> None:
    Path("data").mkdir()
    os.rename(bench.good, "data/x.parquet")
    bench.refuses(["reject", "data", "-r", "rejector.json", "-o", "data/", "--force"], ["data/x.parquet", "lies in it"])


def test_two_outputs_in_one_place(bench: Bench) -> None:
    bench.refuses([*EVALUATE, "-o", "./out.json"], ["out.json", "two outputs"])
    bench.refuses([*THRESHOLD, "--tau", "1", "--mask", "out.json"], ["out.json", "two outputs"])
    bench.refuses([*THRESHOLD[:-2], "--tau", "1", "--mask", "-"], ["standard output", "two outputs"])


def test_inspect_tells_or_refuses(bench: Bench) -> None:
    bench.refuses(["inspect", "no.parquet"], ["no.parquet", "no such file"])
    Path("bad.parquet").write_text("not parquet at all")
    bench.refuses(["inspect", "bad.parquet"], ["bad.parquet", "not a readable parquet file"])


@pytest.mark.parametrize("option", ["--report-by", "--cutoff-by"])
def test_groups_are_not_lists(option: str, tmp_path: Path, val: str, rejector_file: str) -> None:
    if option == "--report-by":
        said = fail("evaluate", val, "-r", rejector_file, option, "logits")
    else:
        (tmp_path / "c.json").write_bytes(succeed("calibrate", val))
        (tmp_path / "f.json").write_bytes(succeed("fit", val, "-r", tmp_path / "c.json"))
        said = fail("threshold", val, "-r", tmp_path / "f.json", "--coverage", "0.8", option, "logits")
    assert "column 'logits' is fixed_size_list<" in said
    assert "groups are text, numbers or dates" in said


@pytest.mark.parametrize("epoch", ["abc", "-5", "9" * 20])
def test_a_date_that_is_none(
    epoch: str, tmp_path: Path, test: str, rejector_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
    said = fail("evaluate", test, "-r", rejector_file, "-o", tmp_path / "page.svg")
    assert f"SOURCE_DATE_EPOCH={epoch}: it must be seconds since 1970, as a whole number" in said
