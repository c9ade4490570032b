"""Helpers: generated models, dumps in any layout, documents; `running` has the commands."""

from __future__ import annotations

import contextlib
import functools
import gc
import hashlib
import html
import importlib
import json
import os
import signal
import string
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # before numpy: where others run beside them, threads of small sums wait busily
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from preloaded import preloaded
from running import environment, fail, only_line, run_drrej, run_here, succeed

import drrej
from drrej.engines.local import LocalEngine
from drrej.outputs.destinations import OutputFile

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # hundreds of commands are started, and each would compile all of drrej
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a shell's background job; commands would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)

__all__ = ["environment", "fail", "only_line", "run_drrej", "run_here", "succeed"]  # of `running`

ROOT = Path(__file__).resolve().parents[1]
SAMPLE = ROOT / "sample_data"
LAYOUTS = ("fixed", "list", "large", "wide")
LOG = drrej.RatioOptions(loss="log")
"""The loss of the paper, whose figures can be worked out by hand."""


Many = Callable[[int], int]


def thorough(*values: Any) -> Any:
    """A case that is not tested in every run."""
    return pytest.param(*values, marks=pytest.mark.thorough)


def more_trials(*values: Any) -> Any:
    """A case that says little more than another that is tested in every run: for the campaign `all_trials`."""
    return pytest.param(*values, marks=pytest.mark.trials)


# Time limits would fail on a busy machine (`too_slow` is one of them); the examples are the same in every run.
ALL_TRIALS = os.environ.get("TRIALS") == "all"
"""As in the campaign `all_trials`: simulations with all of their trials, properties with more examples."""

settings.register_profile(
    "drrej",
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=60 if ALL_TRIALS else 12,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.load_profile("drrej")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Where tests of the system are not asked for they are not imported: each worker would, and some are slow."""
    left_out = "not system" in config.getoption("markexpr") and collection_path == ROOT / "tests" / "system"
    return True if left_out else None  # None: as pytest thinks


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Every other worker imports the tests from the last to the first: in a fresh copy each compiles half of them."""
    if int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 2 == 0:
        return
    given = [Path(words.split("::")[0]).resolve() for words in session.config.args]
    paths = [path for start in given for path in (start.rglob("test_*.py") if start.is_dir() else [start])]
    for path in sorted(paths, reverse=True):
        if not pytest_ignore_collect(path.parent, session.config):
            sys.path.insert(0, str(path.parent))
            with contextlib.suppress(pytest.skip.Exception, Exception):  # collecting it tells what is wrong
                importlib.import_module(path.stem)


def pytest_collection_finish() -> None:
    """What was imported stays: looking through it again and again for what can be freed takes a twelfth of the time."""
    gc.freeze()
    gc.set_threshold(50_000)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """`-n auto`: as many as cores, since hardly any test waits, and each worker imports all of them."""
    return os.cpu_count() or 1


def examples(share: float) -> settings:
    """Examples of a property that is slower, or quicker, than others: a share of the usual number."""
    return settings(max_examples=max(1, round(share * settings.default.max_examples)))


_CHARACTERS = string.printable + "\0\x1b\x7f\x85éßİ٣½e\u0301東א\u202e\u2028\ufeff\ufffd😀\U0010ffff"


def texts(min_size: int = 0, max_size: int = 30) -> st.SearchStrategy[str]:
    """Text of characters that act, look alike or are long; a table of all of Unicode takes seconds in each process."""
    return st.lists(st.sampled_from(_CHARACTERS), min_size=min_size, max_size=max_size).map("".join)


@pytest.fixture
def many() -> Many:
    """How many trials a simulation has: a third of the number, and all of them in the campaign `all_trials`."""
    return (lambda trials: trials) if ALL_TRIALS else (lambda trials: trials // 3)


def make_model(
    rows: int, classes: int, seed: int, temperature: float = 2.0, dtype: Any = np.float32
) -> tuple[np.ndarray, np.ndarray]:
    """(logits, labels) of a model that is too sure of itself: labels follow softmax(logits / temperature)."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(rows, classes)) * rng.gamma(2.0, 3.0, size=(rows, 1))
    logits = logits.astype(dtype)
    scaled = logits.astype(np.float64) / temperature
    p = np.exp(scaled - scaled.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    labels = (p.cumsum(axis=1) < rng.random((rows, 1))).sum(axis=1).clip(max=classes - 1)
    return logits, labels.astype(np.int64)


def logit_columns(logits: np.ndarray, layout: str) -> dict[str, pa.Array]:
    """The logits as arrow columns of a layout."""
    rows, classes = logits.shape
    if layout == "wide":
        return {f"logit_{j}": pa.array(np.ascontiguousarray(logits[:, j])) for j in range(classes)}
    values = pa.array(np.ascontiguousarray(logits).ravel())
    if layout == "fixed":
        return {"logits": pa.FixedSizeListArray.from_arrays(values, classes)}
    offsets = np.arange(rows + 1) * classes
    if layout == "list":
        return {"logits": pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values)}
    assert layout == "large"
    return {"logits": pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), values)}


def write_dump(
    path: str | Path,
    logits: np.ndarray,
    labels: np.ndarray | None = None,
    layout: str = "fixed",
    row_group: int | None = None,
    extra: Mapping[str, Any] | None = None,
) -> str:
    """Write a dump and return its path."""
    columns: dict[str, Any] = {"id": pa.array(np.arange(len(logits)))}
    columns |= dict(extra or {})
    columns |= logit_columns(logits, layout)
    if labels is not None:
        columns["label"] = pa.array(labels)
    pq.write_table(pa.table(columns), path, row_group_size=row_group or max(len(logits), 1))
    return str(path)


def read_columns(path: str | Path) -> dict[str, np.ndarray]:
    """The columns of a parquet file as numpy arrays."""
    table = pq.ParquetFile(path).read()
    return {name: table.column(name).to_numpy() for name in table.column_names}


def source(*paths: str | Path, jobs: int = 1, **options: Any) -> drrej.Source:
    """A dump as the library reads it."""
    return drrej.Source([str(p) for p in paths], drrej.DumpOptions(**options), LocalEngine(jobs))


def make_rejector(
    val: drrej.Source, rule: tuple[str, float] = ("coverage", 0.8), ratio: drrej.RatioOptions = LOG
) -> drrej.Rejector:
    """calibrate, fit, threshold on one dump."""
    rejector = drrej.fit(val, drrej.calibrate(val), ratio)
    return drrej.threshold(val, rejector, drrej.Rule(*rule))


def write_mask(
    dump: drrej.Source, rejector: drrej.Rejector, path: Path, keep: Sequence[str] | None = None
) -> dict[str, np.ndarray]:
    """The mask of a dump, written and read back."""
    with OutputFile(str(path), force=True) as file:
        drrej.reject(dump, rejector, file, drrej.MaskOptions(keep))
        file.commit()
    return read_columns(path)


def load_json(path: str | Path) -> dict[str, Any]:
    """A document."""
    with open(path, encoding="utf-8") as stream:
        tree: dict[str, Any] = json.load(stream)
    return tree


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """What scripts find as `drrej`: its text."""
    with preloaded(tmp_path_factory.mktemp("program")) as text:
        yield text


@pytest.fixture(scope="session")
def val() -> str:
    """Labelled rows to fit on."""
    return str(SAMPLE / "val.parquet")


@pytest.fixture(scope="session")
def test() -> str:
    """Labelled rows to report on."""
    return str(SAMPLE / "test.parquet")


@pytest.fixture(scope="session")
def documents(tmp_path_factory: pytest.TempPathFactory, val: str) -> Path:
    """A directory with calibrated.json, fitted.json and rejector.json, made on the sample data."""
    folder = tmp_path_factory.mktemp("documents")
    rejector = drrej.calibrate(source(val))
    (folder / "calibrated.json").write_text(rejector.to_json())
    rejector = drrej.fit(source(val), rejector, LOG)
    (folder / "fitted.json").write_text(rejector.to_json())
    rejector = drrej.threshold(source(val), rejector, drrej.Rule("coverage", 0.8))
    (folder / "rejector.json").write_text(rejector.to_json())
    return folder


@pytest.fixture(scope="session")
def rejector_file(documents: Path) -> str:
    """A finished rejector."""
    return str(documents / "rejector.json")


def pytest_itemcollected(item: pytest.Item) -> None:
    """What lies in tests/system has the mark `system`; properties and simulations may have all their trials."""
    if item.path.parent.name == "system":
        item.add_marker(pytest.mark.system)
    elif ALL_TRIALS and (
        hasattr(getattr(item, "function", None), "hypothesis") or "many" in getattr(item, "fixturenames", ())
    ):
        item.add_marker(pytest.mark.trials)


@functools.cache
def _validator(kind: type) -> Any:
    import jsonschema

    from drrej.documents.document import schema_of

    return jsonschema.Draft202012Validator(schema_of(kind))


def _shape(tree: Any) -> object:
    """What a schema asks of most: names and types, and words from short lists; not which numbers, or how many rows."""
    if isinstance(tree, dict):
        return tuple((name, _shape(value)) for name, value in tree.items())
    if isinstance(tree, list):
        return frozenset(map(_shape, tree))
    return tree if isinstance(tree, str) and len(tree) < 20 else type(tree)


_VALIDATED: set[tuple[type, object]] = set()


@pytest.fixture(autouse=True)
def _documents_validate(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Documents that a test of documents or steps makes in this process are checked against their schema.

    The first of each kind, and each that has another shape than any before: some tests make a hundred alike, and the
    check takes longer than the rest of such a test.
    """
    if request.path.parent.name not in ("documents", "pipeline"):
        return
    from drrej.documents.rejector import Rejector
    from drrej.pipeline import evaluate

    to_json, report = Rejector.to_json, evaluate.evaluate
    first = {Rejector, drrej.Report}

    def check(kind: type, tree: Any) -> bool:
        key = kind, _shape(tree)
        if kind not in first and key in _VALIDATED:
            return False
        first.discard(kind)
        _VALIDATED.add(key)
        _validator(kind).validate(tree)
        return True

    @functools.wraps(to_json)
    def checked_text(rejector: Rejector) -> str:
        text = to_json(rejector)
        check(Rejector, json.loads(text))
        return text

    @functools.wraps(report)
    def checked_report(*arguments: Any, **options: Any) -> drrej.Report:
        made = report(*arguments, **options)
        if check(drrej.Report, made.tree):
            assert drrej.Report.from_json(made.to_json()) == made
        return made

    monkeypatch.setattr(Rejector, "to_json", checked_text)
    monkeypatch.setattr(evaluate, "evaluate", checked_report)


def sketches(report: drrej.Report, texts: dict[str, str]) -> dict[str, str]:
    """In place of the pictures of a page: their text, and a digest of the report."""
    digest = hashlib.sha256(json.dumps(report.tree).encode()).hexdigest()
    return {
        name: f'<svg role="img" aria-label="{html.escape(text)}"><!-- {digest} --></svg>'
        for name, text in texts.items()
    }


@pytest.fixture(autouse=True, scope="module")
def _pages_are_sketched(request: pytest.FixtureRequest) -> Iterator[None]:
    """Drawing the pictures of a page takes longer than the rest of a run; only tests of pages and system do it.

    Two pages still differ where their reports do. It is a fixture of modules because their own run commands too.
    """
    if request.path.parent.name == "system" or request.path.name == "test_page.py":
        yield
        return
    from drrej.report import page

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page, "page_plots", sketches)
        yield


@pytest.fixture(autouse=True, scope="module")
def _disks_are_not_waited_for(request: pytest.FixtureRequest) -> Iterator[None]:
    """Commands in this process do not wait until a disk has written their files; in tests of outputs they do."""
    with pytest.MonkeyPatch.context() as patch:
        if request.path.parent.name not in ("outputs", "system"):
            patch.setattr(os, "fsync", lambda _: None)
        yield
