"""Exports in their real engines: the decisions of drrej, row for row."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import make_model, succeed
from msgspec.structs import replace
from running import drrej as command

import drrej
from drrej.core.losses import PLAIN, CostLoss
from drrej.documents.rejector import GroupThreshold
from drrej.errors import OptionError
from drrej.export import decided, export, golden_rows, random_scores
from drrej.export.steps import decision_of

LOGITS, LABELS = make_model(600, 4, 3)
ROWS = 300
KINDS = ("logits", "probs", "log-probs", "binary")
CALIBRATORS = ("temperature", "vector")
LOSSES = (*PLAIN, "learned")
CASES = [  # every kind with every loss, and each of both with both calibrators; all: campaigns/compare_exports
    (kind, CALIBRATORS[(i + j) % 2], loss) for i, kind in enumerate(KINDS) for j, loss in enumerate(LOSSES)
]


@functools.cache
def rejector_for(kind: str, calibrator: str, loss: Any, **more: Any) -> drrej.Rejector:
    wide = LOGITS.astype(float) * 1.1
    powers = np.exp(wide - wide.max(axis=1, keepdims=True))
    shares = powers / powers.sum(axis=1, keepdims=True)
    scores: Any = {"logits": wide, "probs": shares, "log-probs": np.log(shares), "binary": wide[:, 1] - wide[:, 0]}[
        kind
    ]
    labels = LABELS > 1 if kind == "binary" else LABELS
    input: Any = "logits" if kind == "binary" else kind
    made: Any = {"calibrator": calibrator, "loss": loss, "input": input, "coverage": 0.7}
    return drrej.fit_rejector(scores, labels, **(made | more))


def assert_same(rejector: drrej.Rejector, scores: np.ndarray, found: dict[str, Any]) -> None:
    """The same predictions, losses and decisions as drrej's own, in float64."""
    own = replace(rejector, precision="float64").score(scores)
    assert np.asarray(found["prediction"]).tolist() == own.prediction.tolist()
    np.testing.assert_allclose(np.asarray(found["loss"], float), own.loss, rtol=1e-12)
    np.testing.assert_allclose(np.asarray(found["ratio"], float), own.ratio, rtol=1e-9)
    cutoff = rejector.need_threshold().cutoff
    outside = np.abs(own.loss - cutoff) > 1e-12 * cutoff if cutoff else np.ones(len(own.loss), bool)
    assert (np.asarray(found["rejected"]) == own.rejected)[outside].all()


def module_of(content: bytes) -> dict[str, Any]:
    space: dict[str, Any] = {"__name__": "exported"}
    exec(compile(content, "exported", "exec"), space)
    return space


@pytest.mark.parametrize(("kind", "calibrator", "loss"), CASES)
def test_python_and_numpy(kind: str, calibrator: str, loss: str) -> None:
    rejector = rejector_for(kind, calibrator, loss)
    module, scores = module_of(export(rejector, "python")), random_scores(rejector, ROWS, 5)
    assert module["check"]() == 0
    assert_same(rejector, scores, module["decide_many"](scores))
    one = [module["decide"](row) for row in scores[:60].tolist()]
    assert_same(rejector, scores[:60], {key: [row[key] for row in one] for key in one[0]})
    bad = np.nan if kind == "binary" else [np.nan] * 4
    for call in (module["decide"], lambda row: module["decide_many"]([row])):
        with pytest.raises(ValueError, match="no usable scores"):
            call(bad)


@pytest.mark.parametrize(("kind", "calibrator", "loss"), CASES)
def test_duckdb(kind: str, calibrator: str, loss: str) -> None:
    duckdb = pytest.importorskip("duckdb")
    rejector = rejector_for(kind, calibrator, loss)
    scores, connection = random_scores(rejector, ROWS, 5), duckdb.connect()
    connection.execute(export(rejector, "sql", scores="s").decode())
    assert connection.execute("from drrej_check").fetchall() == [(12, 0)]
    connection.register("dump", pa.table({"row": np.arange(ROWS), "s": pa.array(list(scores))}))
    found = connection.execute(
        "select prediction, loss, ratio, rejected from drrej_decide('dump') order by row"
    ).fetchnumpy()
    assert_same(rejector, scores, found)


@pytest.mark.parametrize(("kind", "calibrator", "loss"), CASES)
def test_onnxruntime(kind: str, calibrator: str, loss: str) -> None:
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    rejector = rejector_for(kind, calibrator, loss)
    session = runtime.InferenceSession(export(rejector, "onnx"), providers=["CPUExecutionProvider"])
    scores, names = random_scores(rejector, ROWS, 5), ["prediction", "loss", "ratio", "rejected"]
    assert_same(rejector, scores, dict(zip(names, session.run(names, {"scores": scores}), strict=True)))
    bad = np.full_like(scores[:1], np.nan)
    assert session.run(["rejected"], {"scores": bad})[0].tolist() == [True]


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_node(tmp_path: Path) -> None:
    """Every case in one process, each beside a copy with wrong decisions among its golden rows."""
    names = {"-".join(case): export(rejector_for(*case), "js", golden=ROWS) for case in CASES}
    code = "const found = {};\n"
    for name, content in names.items():
        (tmp_path / f"{name}.mjs").write_bytes(content)
        (tmp_path / f"{name}-wrong.mjs").write_bytes(content.replace(b'"rejected": true', b'"rejected": false'))
        for one in (name, f"{name}-wrong"):
            code += f'found["{one}"] = (await import("./{one}.mjs")).check();\n'
    (tmp_path / "all.mjs").write_text(code + "console.log(JSON.stringify(found));\n")
    done = subprocess.run(["node", "all.mjs"], cwd=tmp_path, capture_output=True, timeout=60)
    found = json.loads(done.stdout or b"{}")
    assert {name: found.get(name) for name in names} == dict.fromkeys(names, 0), done.stderr
    assert all(found[f"{name}-wrong"] > 0 for name in names)
    one = "-".join(CASES[0])
    for name, ends, says in ((one, 0, f"{ROWS} golden rows, 0 different\n"), (f"{one}-wrong", 1, " different\n")):
        done = subprocess.run(["node", f"{name}.mjs"], cwd=tmp_path, capture_output=True, timeout=60)
        assert (done.returncode, done.stdout.decode().endswith(says)) == (ends, True), done.stderr


@pytest.mark.parametrize(("kind", "calibrator", "loss"), [case for case in CASES if case[0] == "binary"])
def test_extreme_scores_of_two_classes(kind: str, calibrator: str, loss: str) -> None:
    """Losses of 0, tiny ones and infinite scores: decided or refused as drrej does."""
    duckdb, runtime = pytest.importorskip("duckdb"), pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    rejector = replace(rejector_for(kind, calibrator, loss), precision="float64")
    ends = [0.0, 5e-324, 1e-300, 40.0, 700.0, 800.0, 1e30, 1e300, np.inf]
    scores = np.array([np.nan, *ends, *(-end for end in ends)])
    usable = np.ones(len(scores), bool)
    for place in range(len(scores)):
        try:
            rejector.score(scores[place : place + 1])
        except drrej.errors.DumpError:
            usable[place] = False
    assert not usable[0]
    module, connection = module_of(export(rejector, "python")), duckdb.connect()
    assert_same(rejector, scores[usable], module["decide_many"](scores[usable]))
    for bad in scores[~usable].tolist():
        with pytest.raises(ValueError, match="no usable scores"):
            module["decide"](bad)
    connection.execute(export(rejector, "sql", scores="s").decode())
    connection.register("dump", pa.table({"row": np.arange(len(scores)), "s": scores}))
    names = ["prediction", "loss", "ratio", "rejected"]
    sql = connection.execute(f"select {', '.join(names)} from drrej_decide('dump') order by row").fetchnumpy()
    session = runtime.InferenceSession(export(rejector, "onnx"), providers=["CPUExecutionProvider"])
    for found in (sql, dict(zip(names, session.run(names, {"scores": scores}), strict=True))):
        assert_same(rejector, scores[usable], {name: values[usable] for name, values in found.items()})
        assert np.asarray(found["rejected"])[~usable].all()
        assert np.isnan(np.ma.filled(found["loss"], np.nan)[~usable]).all()


def test_golden_rows_have_ties_infinities_and_both_sides_of_the_cutoff() -> None:
    rejector = rejector_for("logits", "temperature", "log")
    rows = golden_rows(decision_of(rejector), 100)
    assert {row["rejected"] for row in rows} == {True, False}
    assert any("-inf" in row["scores"] for row in rows)
    assert any(len(set(row["scores"])) < 4 for row in rows)
    cutoff = rejector.need_threshold().cutoff
    assert cutoff is not None
    near = [row for row in rows if abs(row["loss"] / cutoff - 1) < 0.05]
    assert {row["rejected"] for row in near} == {True, False}
    _, losses = decided(rejector, np.array([[float(v) for v in row["scores"]] for row in rows]))
    assert losses.tolist() == [row["loss"] for row in rows]


@pytest.mark.parametrize("by", ["prediction", "region"])
def test_cutoffs_of_groups(by: str) -> None:
    names = list("abcd")
    rejector = drrej.fit_rejector(LOGITS, np.array(names)[LABELS], coverage=0.7, loss="log", classes=names)
    cutoffs = {"a": -1.0, "b": 0.2, "c": None, "d": 0.6}  # nothing is accepted, and nothing rejected
    groups = tuple(GroupThreshold(name, None, cutoff, 9, 3, 0.3) for name, cutoff in cutoffs.items())
    chosen = replace(rejector.need_threshold(), by=by, tau=None, cutoff=None, groups=groups)
    rejector = replace(rejector, threshold=chosen)
    module = module_of(export(rejector, "python"))
    assert module["check"]() == 0
    rows = LOGITS[:200].astype(float)
    for row in rows.tolist():
        found = module["decide"](row, "b")
        group = found["prediction"] if by == "prediction" else "b"
        limit = cutoffs[group]
        assert found["rejected"] == (limit is not None and not found["loss"] < limit)
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect()
    connection.execute(export(rejector, "sql", golden=200).decode())
    assert connection.execute("from drrej_check").fetchall() == [(200, 0)]
    if by == "region":
        with pytest.raises(ValueError, match="no cutoff for the group region = 'x'"):
            module["decide"]([1.0, 2, 3, 4], "x")
        with pytest.raises(OptionError, match="cutoffs by the column 'region'"):
            export(rejector, "onnx")


def test_promises_of_classes_are_exported() -> None:
    """Cutoffs by prediction as several promises leave them, in every engine that is here."""
    promises: Any = {"max_missed": {"1": 0.2}, "accuracy": {"0": 0.75, "2": 0.999}}
    rejector = drrej.fit_rejector(LOGITS.astype(float), LABELS, loss="log", **promises)
    assert {group.cutoff for group in rejector.need_threshold().groups or ()} >= {None}
    scores = random_scores(rejector, ROWS, 5)
    own = replace(rejector, precision="float64").score(scores)
    assert module_of(export(rejector, "python"))["decide_many"](scores)["rejected"].tolist() == own.rejected.tolist()
    if shutil.which("node"):
        code = export(rejector, "js", golden=ROWS)
        done = subprocess.run(
            ["node", "--input-type=module", "-"], input=code + b"console.log(check())", capture_output=True, timeout=60
        )
        assert done.stdout.split()[-1:] == [b"0"], done.stderr
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(export(rejector, "onnx"), providers=["CPUExecutionProvider"])
    assert session.run(["rejected"], {"scores": scores})[0].tolist() == own.rejected.tolist()


def test_what_cannot_be_exported_exactly_is_refused() -> None:
    costs = CostLoss(tuple(tuple(float(a != b) for a in range(4)) for b in range(4)))
    with pytest.raises(OptionError, match="cost matrix cannot be exported exactly"):
        export(rejector_for("logits", "temperature", costs), "python")
    rejector = rejector_for("logits", "temperature", "log")
    groups = tuple(GroupThreshold(name, None, 0.2, 9, 3, 0.3) for name in "013")
    chosen = replace(rejector.need_threshold(), by="prediction", tau=None, cutoff=None, groups=groups)
    with pytest.raises(OptionError, match="no cutoff for the class 2"):
        export(replace(rejector, threshold=chosen), "python")
    for columns in ("logit_*", "a,b,c"):
        with pytest.raises(OptionError, match="name the column of lists, or the 4 columns in the order of the classes"):
            export(rejector, "sql", scores=columns)


RANDOM = np.random.default_rng(3)
TRUST = RANDOM.random(1500)
SCORED: dict[str, Any] = {
    "logistic": (TRUST, {"calibrator": "logistic"}),
    "beta": (TRUST, {"calibrator": "beta"}),
    "isotonic": (TRUST, {"calibrator": "isotonic"}),
    "distance": (9.0 - 20.0 * TRUST, {"lower_is_better": True}),
    "risk": (1.0 - TRUST, {"lower_is_better": True, "calibrator": "beta"}),
    "several": (np.stack([TRUST, RANDOM.normal(size=1500)], axis=1), {}),
}
RIGHT = RANDOM.random(1500) < TRUST


def scored(name: str) -> drrej.Rejector:
    scores, more = SCORED[name]
    return drrej.fit_rejector(scores=scores, correct=RIGHT, coverage=0.5, **more)


@pytest.mark.parametrize("name", SCORED)
def test_scores_of_any_kind(name: str, tmp_path: Path) -> None:
    rejector = scored(name)
    scores = random_scores(rejector, ROWS, 5)
    module = module_of(export(rejector, "python"))
    assert module["check"]() == 0
    assert_same(rejector, scores, module["decide_many"](scores))
    for bad in (np.nan, np.inf, *([2.0, -0.1] if name in ("beta", "isotonic", "risk") else [])):
        with pytest.raises(ValueError, match="no usable scores"):
            module["decide"]([bad, 0.0] if name == "several" else bad)
    if shutil.which("node"):
        (tmp_path / "decide #1.mjs").write_bytes(export(rejector, "js", golden=ROWS))
        done = subprocess.run(["node", "decide #1.mjs"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert done.stdout == f"{ROWS} golden rows, 0 different\n", done.stderr
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect()
    connection.execute(export(rejector, "sql", golden=ROWS).decode())
    assert connection.execute("from drrej_check").fetchall() == [(ROWS, 0)]
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(export(rejector, "onnx"), providers=["CPUExecutionProvider"])
    names = ["prediction", "loss", "ratio", "rejected"]
    assert_same(rejector, scores, dict(zip(names, session.run(names, {"scores": scores}), strict=True)))


SERVER = """
"$1/initdb" -D data -A trust -U postgres > log 2>&1 &&
"$1/pg_ctl" -D data -w -o "-k $PWD -c listen_addresses='' -c fsync=off" -l log start > /dev/null && echo ready
cat > /dev/null
"$1/pg_ctl" -D data -m immediate stop > /dev/null
rm -rf "$PWD"
"""
"""Starts a server, and stops it at the end of standard input: also if the tests are killed."""


@contextlib.contextmanager
def postgres_server() -> Iterator[Callable[..., str]]:
    """A server of its own, which listens on a socket in a folder; a function that sends it SQL."""
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    found = shutil.which("initdb") or (str(places[-1] / "initdb") if places else None)
    if found is None or shutil.which("psql") is None:
        raise FileNotFoundError("PostgreSQL is not installed")
    folder = Path(tempfile.mkdtemp(prefix="pg"))  # the path of a socket is short
    user: dict[str, Any] = {}
    if os.geteuid() == 0:  # as which it does not run
        try:
            shutil.chown(folder, "postgres")
        except LookupError:
            folder.rmdir()
            raise FileNotFoundError("PostgreSQL does not run as root, and there is no user postgres") from None
        user = {"user": "postgres", "extra_groups": []}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "start_new_session": True}
    server = subprocess.Popen(["sh", "-c", SERVER, "sh", Path(found).parent], cwd=folder, **pipes, **user)

    def ask(sql: bytes | str, timeout: float = 120) -> str:
        asked = ["psql", "-h", str(folder), "-U", "postgres", "-Atq", "-v", "ON_ERROR_STOP=1"]
        text = sql.decode() if isinstance(sql, bytes) else sql
        done = subprocess.run(asked, input=text, capture_output=True, text=True, timeout=timeout)
        assert done.returncode == 0, done.stderr[:1000]
        return done.stdout.strip()

    with server:  # at its end standard input is closed, and the server has stopped
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n", (folder / "log").read_text()
        yield ask


@pytest.fixture(scope="module")
def postgres() -> Iterator[Any]:
    """A server for all tests, or the reason why there is none."""
    with contextlib.ExitStack() as stack:
        try:
            ask = stack.enter_context(postgres_server())
        except FileNotFoundError as error:
            pytest.skip(str(error))
        yield ask


@pytest.mark.parametrize(("kind", "calibrator", "loss"), CASES)
def test_postgres(postgres: Any, kind: str, calibrator: str, loss: str) -> None:
    postgres(export(rejector_for(kind, calibrator, loss), "sql", golden=ROWS, dialect="postgres"))
    assert postgres("select * from drrej_check") == f"{ROWS}|0"


@pytest.mark.parametrize("name", SCORED)
def test_postgres_on_scores_of_any_kind(postgres: Any, name: str) -> None:
    postgres(export(scored(name), "sql", golden=ROWS, dialect="postgres"))
    assert postgres("select * from drrej_check") == f"{ROWS}|0"


def test_postgres_rejects_what_is_missing_and_knows_groups(postgres: Any) -> None:
    names = ["it's", "b", "c", "d"]
    rejector = drrej.fit_rejector(LOGITS, np.array(names)[LABELS], coverage=0.7, loss="log", classes=names)
    cutoffs = {"north": 0.2, "o'er": 0.6}
    groups = tuple(GroupThreshold(name, None, cutoff, 9, 3, 0.3) for name, cutoff in cutoffs.items())
    chosen = replace(rejector.need_threshold(), by="region", tau=None, cutoff=None, groups=groups)
    postgres(export(replace(rejector, threshold=chosen), "sql", golden=60, scores="l0,l1,l2,l3", dialect="postgres"))
    assert postgres("select * from drrej_check") == "60|0"
    assert postgres("select prediction, loss, rejected from drrej_decide(array[9, 0, 0, 0], 'north')")[:5] == "it's|"
    for row in (
        "array[9, 0, 0, 0], 'south'",
        "array[9, 0, 0], 'north'",
        "null, 'north'",
        "array[9, 0, null, 0], 'north'",
    ):
        assert postgres(f"select rejected from drrej_decide({row})") == "t"


@pytest.mark.parametrize("name", ["logits", *SCORED])
def test_cutoffs_of_a_column_in_every_engine(postgres: Any, name: str, tmp_path: Path) -> None:
    """The decisions of `drrej reject` on a file, for groups of which some rows, none and all are rejected."""
    rejector = rejector_for("logits", "temperature", "learned") if name == "logits" else scored(name)
    scores = random_scores(rejector, ROWS, 5)
    middle = float(np.median(replace(rejector, precision="float64").score(scores).loss))
    cutoffs = {"7": middle, 'o\'er "the" top': middle / 2, "none": -1.0, "all": None}
    tau = rejector.need_ratio().density.tau
    groups = tuple(GroupThreshold(group, tau(cutoff), cutoff, 9, 3, 0.3) for group, cutoff in cutoffs.items())
    by = "prediction" if name == "beta" else "the region"  # scores of any kind bring theirs in a column
    chosen = replace(rejector.need_threshold(), by=by, tau=None, cutoff=None, groups=groups)
    columns = rejector.columns.logits.split(",")
    names = [f"s{number}" for number in range(len(columns))]  # as another table calls them
    rejector = replace(rejector, threshold=chosen, precision="float64")
    regions = np.random.default_rng(2).choice(list(cutoffs), ROWS)
    rejector.save(tmp_path / "r.json")
    held = [pa.array(list(scores))] if name == "logits" or scores.ndim == 1 else list(map(pa.array, scores.T))
    dump = pa.table({**dict(zip(columns, held, strict=True)), by: regions})
    pq.write_table(dump, tmp_path / "new.parquet")
    succeed("reject", tmp_path / "new.parquet", "-r", tmp_path / "r.json", "-o", tmp_path / "mask.parquet")
    mask = pq.read_table(tmp_path / "mask.parquet")
    expected = mask["rejected"].to_pylist()
    assert [expected[n] for n in range(ROWS) if regions[n] == "all"].count(True) == 0
    assert [expected[n] for n in range(ROWS) if regions[n] == "none"].count(False) == 0
    module = module_of(export(rejector, "python", golden=ROWS))
    assert module["check"]() == 0
    assert module["decide_many"](scores, regions)["rejected"].tolist() == expected
    one = [
        module["decide"](row, group)["rejected"] for row, group in zip(scores.tolist(), regions.tolist(), strict=True)
    ]
    assert one == expected
    assert module["decide"](scores[0], 7) == module["decide"](scores[0], "7")
    with pytest.raises(ValueError, match="1 groups for 2 rows"):
        module["decide_many"](scores[:2], ["7"])
    for call in (module["decide"], lambda row, *group: module["decide_many"]([row], list(group) or None)):
        for group in (("south",), ()):
            with pytest.raises(ValueError, match=f"no cutoff for the group {by} ="):
                call(scores[0], *group)
    with pytest.raises(OptionError, match=f"cutoffs by the column '{by}'|needs the package onnx"):
        export(rejector, "onnx")
    given = ",".join(names) if name != "logits" else "s0"
    if shutil.which("node"):
        (tmp_path / "decide.mjs").write_bytes(export(rejector, "js", golden=ROWS))
        rows = json.dumps([scores.tolist(), regions.tolist()]).replace("-Infinity", "-1e999")
        code = (
            'import { check, decide } from "./decide.mjs";\n'
            f"const [rows, groups] = {rows};\n"
            "let refused = 0;\n"
            'for (const group of ["south", "toString", undefined])\n'
            "  try { decide(rows[0], group); } catch { refused += 1; }\n"
            "console.log(JSON.stringify([check(), refused, rows.map((row, n) => decide(row, groups[n]).rejected)]));\n"
        )
        (tmp_path / "run.mjs").write_text(code)
        done = subprocess.run(["node", "run.mjs"], cwd=tmp_path, capture_output=True, timeout=60)
        assert json.loads(done.stdout or b"0") == [0, 3, expected], done.stderr
    sql = export(rejector, "sql", golden=ROWS, scores=given, dialect="postgres")
    postgres(sql)
    assert postgres("select * from drrej_check") == f"{ROWS}|0"
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect()
    connection.execute(export(rejector, "sql", golden=ROWS, scores=given).decode())
    assert connection.execute("from drrej_check").fetchall() == [(ROWS, 0)]
    connection.register("dump", dump.rename_columns([*names, by]).append_column("n", pa.array(range(ROWS))))
    found = connection.execute("select rejected from drrej_decide('dump') order by n").fetchall()
    assert [row[0] for row in found] == expected
    for group in ("'south'", "null", "7"):
        asked = f'create or replace view odd as select * replace ({group} as "{by}") from dump'
        connection.execute(asked)
        (found,) = connection.execute("select bool_and(rejected) from drrej_decide('odd')").fetchall()
        assert found == (group != "7",)


def test_columns_of_a_table_may_be_called_as_steps_are() -> None:
    duckdb = pytest.importorskip("duckdb")
    rejector = rejector_for("logits", "temperature", "learned")
    scores, connection = random_scores(rejector, ROWS, 5), duckdb.connect()
    connection.execute(export(rejector, "sql", scores="s").decode())
    steps = {step.name for step in decision_of(rejector).steps} | {"j", "t", "step_0", "score", "grouped", "rejected"}
    others = {name: np.full(ROWS, -1.0) for name in sorted(steps)}
    connection.register("dump", pa.table({"n": np.arange(ROWS), "s": pa.array(list(scores)), **others}))
    found = connection.execute("select * from drrej_decide('dump') order by n").fetchnumpy()
    assert_same(rejector, scores, found)
    assert {"top", "loss_1", "rejected_1"} <= found.keys()


def test_wide_columns_in_duckdb() -> None:
    duckdb = pytest.importorskip("duckdb")
    rejector = rejector_for("logits", "temperature", "log")
    scores, connection = random_scores(rejector, ROWS, 5), duckdb.connect()
    connection.execute(export(rejector, "sql", scores='l0,l1,l2,the "last"').decode())
    assert connection.execute("from drrej_check").fetchall() == [(12, 0)]
    names = ["l0", "l1", "l2", 'the "last"']
    table = pa.table({"row": np.arange(ROWS), **dict(zip(names, scores.T, strict=True))})
    connection.register("dump", table)
    asked = "select prediction, loss, ratio, rejected from drrej_decide('dump') order by row"
    assert_same(rejector, scores, connection.execute(asked).fetchnumpy())
    connection.register("holes", table.set_column(1, "l0", pa.array([None] * ROWS, pa.float64())))
    found = connection.execute("select bool_and(rejected), count(prediction) from drrej_decide('holes')").fetchall()
    assert found == [(True, 0)]


@pytest.mark.parametrize("excess", [5e-7, 2e-6, 5e-5, 2e-4, 4e-3, 6e-3, 7.5e-3, 9e-3])
@pytest.mark.parametrize("kind", ["float64", "float32", "float16", "bfloat16"])
def test_sums_of_probabilities_are_judged_as_drrej_does(kind: str, excess: float) -> None:
    rejector = rejector_for("probs", "temperature", "log")
    module = module_of(export(rejector, "python"))
    if "duck" not in _KEPT:
        duckdb = pytest.importorskip("duckdb")
        _KEPT["duck"] = duckdb.connect()
        _KEPT["duck"].execute(export(rejector, "sql", scores="s").decode())
    row = np.array([0.4999, 0.24, 0.25, 0.01 + excess])
    row = row.astype(np.float32 if kind == "bfloat16" else kind).astype(float)
    if kind == "bfloat16":
        row = (row.astype(np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32).astype(float)
    try:
        rejector.predict(row[None])
        usable = True
    except drrej.errors.DumpError:
        usable = False
    for call in (module["decide"], lambda each: module["decide_many"]([each])):
        if usable:
            call(row)
        else:
            with pytest.raises(ValueError, match="no usable scores"):
                call(row)
    _KEPT["duck"].register("one", pa.table({"s": [row.tolist()]}))
    assert _KEPT["duck"].execute("select count(loss) from drrej_decide('one')").fetchall() == [(int(usable),)]


_KEPT: dict[str, Any] = {}


@pytest.mark.parametrize("opset", [13, 17])
def test_a_decision_at_the_end_of_a_model(opset: int, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    from onnx import TensorProto, helper, numpy_helper

    weights = np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32) * 4
    nodes = [helper.make_node("MatMul", ["x", "w"], ["logits"])]
    given, out = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", width])
        for name, width in (("x", 3), ("logits", 4))
    )
    graph = helper.make_graph(nodes, "net", [given], [out], [numpy_helper.from_array(weights, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    path, rejector = tmp_path / "net.onnx", rejector_for("logits", "temperature", "learned")
    onnx.save(model, path)
    rejector.save(tmp_path / "r.json")
    asked = ("export", tmp_path / "r.json", "--to", "onnx", "--append", path, "-o", tmp_path / "both.onnx")
    succeed(*asked)
    session = runtime.InferenceSession(str(tmp_path / "both.onnx"), providers=["CPUExecutionProvider"])
    rows = np.random.default_rng(2).normal(size=(ROWS, 3)).astype(np.float32)
    names = ["logits", "prediction", "loss", "ratio", "rejected"]
    logits, *found = session.run(names, {"x": rows})
    assert_same(rejector, logits.astype(float), dict(zip(names[1:], found, strict=True)))
    both = (tmp_path / "both.onnx").read_bytes()
    with pytest.raises(OptionError, match="say which output has the scores"):
        export(rejector, "onnx", append=both)
    with pytest.raises(OptionError, match=r"the model has an output .* already"):
        export(rejector, "onnx", append=both, scores="logits")
    with pytest.raises(OptionError, match="the model has 4 scores per row, but the rejector is for 3"):
        export(drrej.fit_rejector(LOGITS[:, :3], LABELS % 3, coverage=0.7), "onnx", append=path.read_bytes())
    with pytest.raises(OptionError, match="not an ONNX model"):
        export(rejector, "onnx", append=b"text")


def test_golden_rows_are_written_beside_the_export(tmp_path: Path) -> None:
    rejector = rejector_for("logits", "temperature", "log")
    rejector.save(tmp_path / "r.json")
    succeed("export", tmp_path / "r.json", "--to", "js", "-o", tmp_path / "decide.mjs", "--golden", "50")
    rows = [json.loads(line) for line in (tmp_path / "decide.golden.jsonl").read_text().splitlines()]
    assert len(rows) == 50
    own = replace(rejector, precision="float64").score(np.array([[float(v) for v in row["scores"]] for row in rows]))
    assert [row["rejected"] for row in rows] == own.rejected.tolist()
    assert [row["loss"] for row in rows] == own.loss.tolist()
    succeed("export", tmp_path / "r.json", "--to", "js", "-o", tmp_path / "other.mjs")
    assert not (tmp_path / "other.golden.jsonl").exists()


def test_the_header_tells_of_float32() -> None:
    rejector = rejector_for("logits", "temperature", "log")
    assert b"drrej itself sums rows of float32 in float32" in export(rejector, "js")
    assert b"in float32" not in export(replace(rejector, precision="float64"), "js")


def test_the_command_writes_a_file_that_needs_no_numpy(tmp_path: Path) -> None:
    rejector_for("logits", "temperature", "learned").save(tmp_path / "r.json")
    out = tmp_path / "decide.py"
    succeed("export", str(tmp_path / "r.json"), "--to", "python", "-o", str(out), "--golden", "40")
    done = subprocess.run([sys.executable, "-S", "-I", str(out)], capture_output=True, text=True, timeout=60)
    assert done.stdout == "40 golden rows, 0 different\n", done.stderr
    refused = command("export", str(tmp_path / "r.json"), "--to", "js", "--scores", "s")
    assert (refused.code, "--scores requires --to sql" in refused.err) == (2, True)
    for given in (("--dialect", "postgres"), ("--append", "m.onnx")):
        refused = command("export", str(tmp_path / "r.json"), "--to", "js", *given)
        assert (refused.code, f"{given[0]} requires --to" in refused.err) == (2, True)
