"""Every layout of the same rows gives the same mask, to the bit."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from dumps_zoo import (
    LISTS,
    Rows,
    differing_dictionaries,
    drrej,
    fixed_list,
    make_rejector,
    make_rows,
    newer_arrow,
    plain_list,
    read_mask,
    same_decisions,
    succeed,
    wide,
    write,
)


class Zoo:
    """Rows, a rejector made from their plainest layout, and its mask."""

    def __init__(self, folder: Path, classes: int) -> None:
        self.folder = folder
        self.rows = make_rows(classes)
        self.logits = self.rows.logits.astype(np.float32)
        self.base = write(folder / "base.parquet", {"logits": fixed_list(self.logits), "label": self.rows.labels})
        self.rejector = make_rejector(self.base, folder)
        succeed("reject", self.base, "-r", self.rejector, "-o", folder / "base-mask.parquet")
        self.mask = read_mask(folder / "base-mask.parquet")
        self.calibrated = json.loads((folder / "calibrated.json").read_text())

    def check(self, *dump: object, stdin: bytes = b"") -> pa.Table:
        """Apply the rejector to a dump given as arguments; compare; hand out the mask."""
        out = self.folder / "mask.parquet"
        succeed("reject", *dump, "-r", self.rejector, "-o", out, "-f", stdin=stdin)
        mask = read_mask(out)
        same_decisions(mask, self.mask)
        return mask

    def check_calibration(self, *dump: object) -> None:
        """The temperature and its figures come out the same."""
        document = json.loads(succeed("calibrate", *dump).out)
        assert document["calibration"] == self.calibrated["calibration"]


WIDTHS = ("float16", "float32", "float64")


@pytest.fixture(scope="module")
def zoos(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Zoo]:
    return functools.cache(lambda classes: Zoo(tmp_path_factory.mktemp("zoo"), classes))


@pytest.fixture(scope="module")
def seven(zoos: Callable[[int], Zoo]) -> Zoo:
    return zoos(7)


def pairs(kinds: Iterable[str]) -> list[tuple[str, str, int]]:
    """Every kind with every width, and each of both with every number of classes."""
    return [(kind, width, (2, 7, 40)[(i + j) % 3]) for i, kind in enumerate(kinds) for j, width in enumerate(WIDTHS)]


@pytest.mark.parametrize(("kind", "width", "classes"), pairs(LISTS))
def test_lists(zoos: Callable[[int], Zoo], tmp_path: Path, kind: str, width: str, classes: int) -> None:
    zoo = zoos(classes)
    column = LISTS[kind](zoo.rows.logits.astype(width))
    dump = write(tmp_path / "d.parquet", {"logits": column, "label": zoo.rows.labels}, row_group_size=1700)
    zoo.check(dump)
    zoo.check_calibration(dump)


@pytest.mark.parametrize(("prefix", "width", "classes"), pairs(["logit_", "", "p.", "class 1 "]))
def test_wide_columns_in_numeric_order(
    zoos: Callable[[int], Zoo], tmp_path: Path, prefix: str, width: str, classes: int
) -> None:
    zoo = zoos(classes)
    columns = wide(zoo.rows.logits.astype(width), prefix)
    dump = write(tmp_path / "d.parquet", {"note": pa.array(["x"] * 5000), **columns, "label": zoo.rows.labels})
    zoo.check(dump, "--logits", f"{prefix}*")
    zoo.check_calibration(dump)


@pytest.mark.parametrize("prefix", ["logit_", ""])
def test_the_remembered_columns_are_found_again(seven: Zoo, tmp_path: Path, prefix: str) -> None:
    columns = {**wide(seven.logits, prefix), "label": seven.rows.labels, f"{prefix}max": seven.logits.max(axis=1)}
    dump = write(tmp_path / "d.parquet", columns)
    mask = tmp_path / "m.parquet"
    succeed("reject", dump, "-r", make_rejector(dump, tmp_path), "-o", mask)
    same_decisions(read_mask(mask), seven.mask)


def test_columns_of_several_widths(seven: Zoo, tmp_path: Path) -> None:
    columns = wide(seven.logits)
    columns["logit_3"] = columns["logit_3"].cast(pa.float64())
    columns["logit_5"] = pa.array(seven.rows.logits[:, 5])
    seven.check(write(tmp_path / "d.parquet", {**columns, "label": seven.rows.labels}), "--logits", "logit_*")


@pytest.mark.parametrize(
    "options",
    [
        {"row_group_size": 1},
        {"row_group_size": 37},
        {"compression": "zstd", "data_page_version": "2.0"},
        {"compression": "none", "use_dictionary": False},
        {"compression": "gzip", "data_page_size": 512},
        {"write_page_checksum": True},
        {"store_schema": False},
        {"version": "1.0"},
    ],
    ids=lambda options: "-".join(options),
)
def test_ways_of_writing(seven: Zoo, tmp_path: Path, options: dict[str, object]) -> None:
    rows = 300 if options.get("row_group_size") == 1 else 5000
    columns = {"logits": fixed_list(seven.logits[:rows]), "label": seven.rows.labels[:rows]}
    dump = write(tmp_path / "d.parquet", columns, **options)
    if rows < 5000:
        rest = {"logits": fixed_list(seven.logits[rows:]), "label": seven.rows.labels[rows:]}
        seven.check(dump, write(tmp_path / "rest.parquet", rest))
    else:
        seven.check(dump)


def test_a_column_of_another_name(seven: Zoo, tmp_path: Path) -> None:
    dump = write(tmp_path / "d.parquet", {"scores": plain_list(seven.logits), "y": seven.rows.labels})
    seven.check(dump, "--logits", "scores")
    seven.check_calibration(dump, "--label", "y")


# Labels


def _labels(rows: Rows) -> dict[str, object]:
    text = rows.text_labels
    return {
        "int8": pa.array(rows.labels, pa.int8()),
        "uint64": pa.array(rows.labels, pa.uint64()),
        "float64": pa.array(rows.labels.astype(float)),
        "float16": pa.array(rows.labels.astype(np.float16)),
        "string": pa.array(text),
        "large_string": pa.array(text, pa.large_string()),
        "string_view": pa.array(text, pa.string_view()),
        "dictionary": differing_dictionaries(text, 700),
        "dictionary of integers": pa.array(rows.labels).dictionary_encode(),
    }


@pytest.mark.parametrize("kind", _labels(make_rows(3, 3)))
def test_labels_by_value(seven: Zoo, tmp_path: Path, kind: str) -> None:
    labels = _labels(seven.rows)[kind]
    with newer_arrow():
        dump = write(tmp_path / "d.parquet", {"logits": fixed_list(seven.logits), "label": labels}, row_group_size=700)
    named = ["--classes", ",".join(seven.rows.names)] if "string" in kind or kind == "dictionary" else []
    seven.check_calibration(dump, *named)
    mask = seven.check(dump, *named)
    expected = seven.mask.column("prediction").to_pylist()
    if named:
        expected = [seven.rows.names[number] for number in expected]
    assert mask.column("prediction").to_pylist() == expected
    assert mask.column("label").to_pylist() == (labels.to_pylist())
    stored = labels.type.value_type if isinstance(labels.type, pa.DictionaryType) else labels.type
    assert mask.schema.field("prediction").type == stored


def test_the_accuracy_of_text_labels(seven: Zoo, tmp_path: Path) -> None:
    labels = differing_dictionaries(seven.rows.text_labels, 900)
    dump = write(tmp_path / "d.parquet", {"logits": fixed_list(seven.logits), "label": labels}, row_group_size=900)
    names = tmp_path / "names.txt"
    names.write_text("\n".join(seven.rows.names) + "\n")
    rejector = make_rejector(dump, tmp_path, "--classes", names, rule=("--tau", "0"))
    report = json.loads(succeed("evaluate", dump, "-r", rejector, "--format", "json").out)
    right = int((seven.logits.argmax(axis=1) == seven.rows.labels).sum())
    assert report["accuracy"]["value"] == right / 5000
    assert [entry["class"] for entry in report["per_class"]] == seven.rows.names


def test_predictions_fit_in_their_type(tmp_path: Path) -> None:
    """200 classes do not fit in int8, even if the labels that occur do."""
    rows = make_rows(200, 300)
    labels = pa.array(rows.labels % 100, pa.int8())
    dump = write(tmp_path / "d.parquet", {"logits": fixed_list(rows.logits), "label": labels})
    mask = tmp_path / "m.parquet"
    succeed("fit", dump, "--temperature", "1", "-o", tmp_path / "f.json")
    succeed("threshold", dump, "-r", tmp_path / "f.json", "--tau", "1", "-o", tmp_path / "r.json")
    succeed("reject", dump, "-r", tmp_path / "r.json", "-o", mask)
    assert read_mask(mask).column("prediction").to_pylist() == rows.logits.argmax(axis=1).tolist()


# One score per row


@pytest.mark.parametrize("width", ["float16", "float32", "float64"])
def test_binary_logits_are_two_classes_with_a_zero(tmp_path: Path, width: str) -> None:
    rows = make_rows(2)
    score = np.where(np.isfinite(rows.logits[:, 1]), rows.logits[:, 1], 0).astype(width)
    pair = np.stack([np.zeros_like(score), score], axis=1)
    truth = {"bool": pa.array(rows.labels == 1), "int64": pa.array(rows.labels), "float": rows.labels.astype(float)}
    base = write(tmp_path / "pair.parquet", {"logits": fixed_list(pair), "label": truth["int64"]})
    rejector = make_rejector(base, tmp_path)
    succeed("reject", base, "-r", rejector, "-o", tmp_path / "expected.parquet")
    expected = read_mask(tmp_path / "expected.parquet")
    for kind, label in truth.items():
        dump = write(tmp_path / f"{kind}.parquet", {"id": np.arange(5000), "score": score, "label": label})
        folder = tmp_path / kind
        folder.mkdir()
        succeed("reject", dump, "-r", make_rejector(dump, folder, "--binary"), "-o", folder / "mask.parquet")
        mask = read_mask(folder / "mask.parquet")
        same_decisions(mask, expected)
        assert [int(p) for p in mask.column("prediction").to_pylist()] == expected.column("prediction").to_pylist()


@pytest.mark.parametrize("width", ["float32", "float64"])
def test_binary_probabilities_do_not_depend_on_their_width(tmp_path: Path, width: str) -> None:
    rng = np.random.default_rng(1)
    score = np.concatenate([rng.random(995).astype(np.float32), [0, 1, 1e-30, 1 - 2**-20, 0.5]]).astype(np.float32)
    label = (score > rng.random(1000)).astype(int)
    base = write(tmp_path / "base.parquet", {"p": score, "label": label})
    rejector = make_rejector(base, tmp_path, "--binary", "--input", "probs")
    succeed("reject", base, "-r", rejector, "-o", tmp_path / "expected.parquet", "-q")
    dump = write(tmp_path / "d.parquet", {"p": score.astype(width), "label": label})
    succeed("reject", dump, "-r", rejector, "-o", tmp_path / "mask.parquet", "-q")
    expected = read_mask(tmp_path / "expected.parquet")
    same_decisions(read_mask(tmp_path / "mask.parquet"), expected)
    temperature = json.loads(rejector.read_text())["calibration"]["temperature"]
    p = score[:995].astype(np.float64)
    u = np.log(p / (1 - p)) / temperature
    q = 1 / (1 + np.exp(-u))
    entropy = -(q * np.log(q) + (1 - q) * np.log1p(-q))
    assert expected.column("loss").to_numpy()[:995] == pytest.approx(entropy, rel=1e-5)


@pytest.mark.parametrize("kind", ["list", "wide"])
@pytest.mark.parametrize("width", ["float32", "float64"])
def test_probabilities_in_every_layout(tmp_path: Path, kind: str, width: str) -> None:
    rng = np.random.default_rng(2)
    raw = np.exp(rng.normal(size=(2000, 9)) * 4)
    probabilities = (raw / raw.sum(axis=1, keepdims=True)).astype(np.float32)
    probabilities[:50, 0] = 0
    probabilities[:50] /= probabilities[:50].sum(axis=1, keepdims=True)
    label = probabilities.argmax(axis=1)
    label[::9] = 3
    base = write(tmp_path / "base.parquet", {"probs": fixed_list(probabilities), "label": label})
    rejector = make_rejector(base, tmp_path, "--input", "probs")
    note = succeed("reject", base, "-r", rejector, "-o", tmp_path / "expected.parquet").lines
    assert note[:-1] == ["drrej: note: 50 probabilities of 0 count as 0.0312"]  # the last line is the summary
    scores = probabilities.astype(width)
    columns = {"probs": plain_list(scores)} if kind == "list" else wide(scores, "p_")
    dump = write(tmp_path / "d.parquet", {**columns, "label": label}, row_group_size=333)
    flags = [] if kind == "list" else ["--logits", "p_*"]
    succeed("reject", dump, "-r", rejector, "-o", tmp_path / "mask.parquet", "-q", *flags)
    same_decisions(read_mask(tmp_path / "mask.parquet"), read_mask(tmp_path / "expected.parquet"))


# Where dumps come from


def _parts(zoo: Zoo, folder: Path, name: str, pieces: int = 4) -> None:
    """The rows in several files, an empty one among them, and files that are not to be read."""
    for i, rows in enumerate(np.array_split(np.arange(5000), pieces)):
        columns = {"logits": fixed_list(zoo.logits[rows]), "label": zoo.rows.labels[rows]}
        write(folder / name.format(i), columns)
    empty = {"logits": pa.array([], pa.list_(pa.float32())), "label": pa.array([], pa.int64())}
    write(folder / name.format("1-empty"), empty)
    (folder / "_SUCCESS").write_text("")
    (folder / ".hidden.parquet").write_text("not parquet")


def test_a_directory(seven: Zoo, tmp_path: Path) -> None:
    _parts(seven, tmp_path / "dump", "part-{}.parquet")
    (tmp_path / "dump" / "README.txt").write_text("about")
    seven.check(tmp_path / "dump")
    seven.check_calibration(tmp_path / "dump")


def test_a_glob(seven: Zoo, tmp_path: Path) -> None:
    _parts(seven, tmp_path / "dump", "part-{}.parquet")
    seven.check(tmp_path / "dump" / "*")
    seven.check(tmp_path / "*" / "part-?*.parquet")


def test_files_in_the_order_given(seven: Zoo, tmp_path: Path) -> None:
    _parts(seven, tmp_path, "{}.parquet")
    seven.check(*(tmp_path / f"{i}.parquet" for i in range(4)))
    mask = tmp_path / "mask.parquet"
    succeed("reject", tmp_path / "3.parquet", tmp_path / "0.parquet", "-r", seven.rejector, "-o", mask)
    expected = pa.concat_tables([seven.mask.slice(3750), seven.mask.slice(0, 1250)])
    same_decisions(read_mask(mask), expected)


def test_hive_partitions(seven: Zoo, tmp_path: Path) -> None:
    _parts(seven, tmp_path / "hive", "day={}/name=a%20b/x.parquet")
    empty = tmp_path / "hive" / "day=1-empty"
    os.rename(empty, tmp_path / "hive" / "day=11")
    mask = seven.check(tmp_path / "hive")
    assert mask.schema.names == ["label", "day", "name", "prediction", "loss", "ratio", "rejected"]
    assert mask.column("day").to_pylist() == [i for i in range(4) for _ in range(1250)]
    assert set(mask.column("name").to_pylist()) == {"a b"}


def test_hive_values_stay_what_they_are(seven: Zoo, tmp_path: Path) -> None:
    for i, (zip_code, null) in enumerate([("007", "__HIVE_DEFAULT_PARTITION__"), ("100", "5")]):
        rows = slice(2500 * i, 2500 * (i + 1))
        columns = {"logits": fixed_list(seven.logits[rows])}
        write(tmp_path / "hive" / f"zip={zip_code}" / f"n={null}" / "x.parquet", columns)
    mask = seven.check(tmp_path / "hive")
    assert mask.column("zip").to_pylist() == ["007"] * 2500 + ["100"] * 2500
    assert mask.column("n").to_pylist() == [None] * 2500 + [5] * 2500


def test_a_hive_column_as_label(seven: Zoo, tmp_path: Path) -> None:
    order = np.argsort(seven.rows.labels, kind="stable")
    for label in range(7):
        rows = order[seven.rows.labels[order] == label]
        write(tmp_path / "hive" / f"label={label}" / "x.parquet", {"logits": fixed_list(seven.logits[rows])})
    seven.check_calibration(tmp_path / "hive")


def test_file_uris(seven: Zoo, tmp_path: Path) -> None:
    _parts(seven, tmp_path / "a dump", "part-{}.parquet")
    seven.check((tmp_path / "a dump").as_uri())
    seven.check(seven.base.as_uri())


def test_standard_input(seven: Zoo) -> None:
    seven.check("-", stdin=seven.base.read_bytes())


def test_standard_input_is_read_once_for_two_passes(seven: Zoo, tmp_path: Path) -> None:
    """`fit --temperature` and `threshold --mask` open the dump twice."""
    dump = seven.base.read_bytes()
    succeed("fit", "-", "--temperature", "1", "-o", tmp_path / "f.json", stdin=dump)
    mask = tmp_path / "m.parquet"
    arguments = ["-r", tmp_path / "f.json", "--coverage", "0.5", "--mask", mask, "-o", tmp_path / "r.json"]
    succeed("threshold", "-", *arguments, stdin=dump)
    accepted = read_mask(mask).column("rejected").to_pylist().count(False)
    assert accepted == json.loads((tmp_path / "r.json").read_text())["threshold"]["accepted"] == 2500


def test_a_fifo(seven: Zoo, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    writer = threading.Thread(target=lambda: fifo.write_bytes(seven.base.read_bytes()))
    writer.start()
    seven.check(fifo)
    writer.join()


def test_process_substitution_and_pipes(seven: Zoo, tmp_path: Path) -> None:
    """Dumps and rejectors by way of pipes; nothing is left in TMPDIR. All steps in a pipe: tests/cli/test_app.py."""
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    command = (
        'set -eo pipefail; D="$1 -m drrej"; $D calibrate <(cat "$2") > "$4/calibrated.json"; '
        'cat "$2" | $D reject - -r <(cat "$3") -o - > "$4/m.parquet"; $D inspect <(cat "$2")'
    )
    arguments = ["bash", "-c", command, "bash", *map(str, (sys.executable, seven.base, seven.rejector, tmp_path))]
    environment = {**os.environ, "TMPDIR": str(scratch)}
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    calibrated, finished = (json.loads(path.read_text()) for path in (tmp_path / "calibrated.json", seven.rejector))
    assert calibrated["calibration"] == finished["calibration"]
    same_decisions(read_mask(tmp_path / "m.parquet"), seven.mask)
    assert "5000 rows" in done.stdout
    assert not list(scratch.iterdir())


def test_parts_that_differ_only_in_types(seven: Zoo, tmp_path: Path) -> None:
    """Kept columns take the type of the first file; labels and logits are read by value."""
    half = slice(0, 2500), slice(2500, 5000)
    logits, labels = seven.logits, seven.rows.labels
    first = {"id": pa.array(np.arange(2500)), "logits": fixed_list(logits[half[0]]), "label": labels[half[0]]}
    second = {
        "logits": plain_list(logits[half[1]].astype(np.float64)),
        "label": labels[half[1]].astype(np.float32),
        "id": pa.array(np.arange(2500, 5000), pa.int32()),
    }
    parts = [write(tmp_path / "a.parquet", first), write(tmp_path / "b.parquet", second)]
    mask = seven.check(*parts)
    assert mask.column("id").to_pylist() == list(range(5000))
    assert mask.column("label").to_pylist() == labels.tolist()
    seven.check_calibration(*parts)


def test_keep(seven: Zoo, tmp_path: Path) -> None:
    columns = {"a": pa.array(range(5000)), "logits": fixed_list(seven.logits), "loss": seven.logits[:, 0]}
    dump = write(tmp_path / "d.parquet", columns)
    refused = drrej("reject", dump, "-r", seven.rejector, "-o", tmp_path / "m.parquet")
    assert refused.code == 2
    assert "'loss', which the mask uses itself" in refused.err
    mask = seven.check(dump, "--keep", "a,logits")
    assert mask.schema.names == ["a", "logits", "prediction", "loss", "ratio", "rejected"]
    assert mask.column("logits").combine_chunks().values.equals(fixed_list(seven.logits).values)
    assert seven.check(dump, "--keep", "").schema.names == ["prediction", "loss", "ratio", "rejected"]


def test_bad_rows_keep_their_place(seven: Zoo, tmp_path: Path) -> None:
    scores = seven.logits.copy()
    scores[10] = np.nan
    scores[4000, 2] = np.inf
    lists: list[object] = list(scores)
    lists[77] = None
    lists[4999] = scores[4999, :3]
    dump = write(tmp_path / "d.parquet", {"logits": pa.array(lists, pa.list_(pa.float32()))}, row_group_size=800)
    out = tmp_path / "m.parquet"
    outcome = succeed("reject", dump, "-r", seven.rejector, "-o", out, "--on-bad-row", "reject")
    assert outcome.lines[-2] == "drrej: warning: 4 of 5000 rows have no usable scores and were rejected"
    assert sum("let through" in line for line in outcome.lines) == 4  # each kind, with its first place
    mask, bad = read_mask(out), [10, 77, 4000, 4999]
    good = np.setdiff1d(np.arange(5000), bad)
    same_decisions(mask.take(good), seven.mask.take(good))
    assert mask.column("rejected").take(bad).to_pylist() == [True] * 4
    for name in ("prediction", "loss", "ratio"):
        assert mask.column(name).take(bad).null_count == mask.column(name).null_count == 4
