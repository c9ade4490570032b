"""Logs of language models: what they give is what the padded scores give in parquet, to the bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import ROOT
from dumps_zoo import fixed_list
from results import Results
from running import fail, succeed

LOGS = ROOT / "sample_data" / "llm"
VAL = LOGS / "samples_arithmetic_val.jsonl"
SAMPLES: list[dict[str, Any]] = [json.loads(line) for line in VAL.read_text().splitlines()]
MOST = max(len(sample["filtered_resps"]) for sample in SAMPLES)


def likelihoods(sample: dict[str, Any]) -> list[float]:
    return [float(pair[0]) for pair in sample["filtered_resps"]]


def padded(rows: list[list[float]], width: int = MOST) -> np.ndarray:
    scores = np.full((len(rows), width), -np.inf)
    for row, values in zip(scores, rows, strict=True):
        row[: len(values)] = values
    return scores


SCORES = padded([likelihoods(sample) for sample in SAMPLES])
LABELS = np.array([int(sample["target"]) for sample in SAMPLES])


def write_log(path: Path, samples: list[dict[str, Any]]) -> Path:
    path.write_text("\n".join(json.dumps(sample) for sample in samples) + "\n")
    return path


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Results:
    folder = tmp_path_factory.mktemp("padded")
    pq.write_table(pa.table({"logits": fixed_list(SCORES), "label": LABELS}), folder / "d.parquet")
    return Results.of(folder, folder / "d.parquet")


def test_a_log_gives_the_bits_of_padded_scores(tmp_path: Path, expected: Results) -> None:
    assert {len(sample["filtered_resps"]) for sample in SAMPLES} == {3, 4, 5}
    found = Results.of(tmp_path, VAL)
    found.check(expected)
    predictions = found.mask.column("prediction").to_pylist()
    assert all(0 <= p < len(sample["filtered_resps"]) for p, sample in zip(predictions, SAMPLES, strict=True))
    right = [float(p == label) for p, label in zip(predictions, LABELS, strict=True)]
    assert right == [sample["acc"] for sample in SAMPLES]
    assert found.mask.column("doc_id").to_pylist() == [sample["doc_id"] for sample in SAMPLES]


def test_logs_of_old_versions_are_one_array(tmp_path: Path, expected: Results) -> None:
    """Numbers as numbers, arguments as pairs."""
    old = []
    for sample in SAMPLES:
        pairs = [[a["arg_0"], a["arg_1"]] for a in sample["arguments"].values()]
        answers = [[float(a), b == "True"] for a, b in sample["filtered_resps"]]
        old.append(sample | {"arguments": pairs, "filtered_resps": answers, "target": int(sample["target"])})
    (tmp_path / "samples.jsonl").write_text(json.dumps(old, indent=2))
    Results.of(tmp_path, tmp_path / "samples.jsonl").check(expected)


def test_several_filters_need_a_name(tmp_path: Path, expected: Results) -> None:
    other = [sample | {"filter": "flipped", "filtered_resps": sample["filtered_resps"][::-1]} for sample in SAMPLES]
    both = [sample for pair in zip(SAMPLES, other, strict=True) for sample in pair]
    path = write_log(tmp_path / "samples.jsonl", both)
    message = fail("calibrate", path)
    assert "every question occurs once for each filter ('none', 'flipped')" in message
    assert "'drrej convert' and --filter NAME" in message
    succeed("convert", path, "--filter", "none", "-o", tmp_path / "d.parquet", "-q")
    Results.of(tmp_path, tmp_path / "d.parquet").check(expected)
    assert "no answer has the filter 'best'" in fail("convert", path, "--filter", "best", "-o", tmp_path / "e.parquet")
    assert "--filter NAME is for logs" in fail("inspect", tmp_path / "d.parquet", "--filter", "none")


def test_scores_per_length_order_as_acc_norm_does(tmp_path: Path) -> None:
    succeed("convert", VAL, "--per-length", "-o", tmp_path / "d.parquet", "-q")
    table = pq.read_table(tmp_path / "d.parquet")
    rows = [
        [score / len(choice) for score, choice in zip(likelihoods(s), s["doc"]["choices"], strict=True)]
        for s in SAMPLES
    ]
    assert np.array_equal(np.array(table.column("logits").to_pylist()), padded(rows))
    assert table.column("label").to_pylist() == LABELS.tolist()
    assert "--per-length is for logs" in fail("convert", tmp_path / "d.parquet", "--per-length", "-o", "x.parquet")


def test_choices_without_the_question_are_left_out(tmp_path: Path, expected: Results) -> None:
    """With acc_mutual_info every choice is scored twice, the second time without the question."""
    doubled = []
    for sample in SAMPLES:
        count = len(sample["filtered_resps"])
        alone = {
            f"gen_args_{count + i}": {"arg_0": "", "arg_1": a["arg_1"]}
            for i, a in enumerate(sample["arguments"].values())
        }
        more = [["-3.5", "False"]] * count
        doubled.append(
            sample | {"arguments": sample["arguments"] | alone, "filtered_resps": sample["filtered_resps"] + more}
        )
    Results.of(tmp_path, write_log(tmp_path / "samples.jsonl", doubled)).check(expected)


def test_targets_by_text_and_by_whether_the_answer_is_right(tmp_path: Path, expected: Results) -> None:
    named = [sample | {"target": sample["doc"]["choices"][sample["doc"]["gold"]]} for sample in SAMPLES]
    words = ["zero", "one", "two", "three", "four"]
    for sample in named:  # texts that are no numbers, which would be places
        texts = {f"gen_args_{i}": {"arg_0": "Q", "arg_1": f" {words[i]}"} for i in range(len(sample["filtered_resps"]))}
        sample |= {"arguments": texts, "target": words[sample["doc"]["gold"]]}
    Results.of(tmp_path, write_log(tmp_path / "samples.jsonl", named)).check(expected)
    two = [
        sample | {"filtered_resps": sample["filtered_resps"][:2], "target": "the same text", "acc": float(i % 3 > 0)}
        for i, sample in enumerate(SAMPLES)
    ]
    succeed("convert", write_log(tmp_path / "w.jsonl", two), "-o", tmp_path / "w.parquet", "-q")
    table = pq.read_table(tmp_path / "w.parquet")
    best = np.array(table.column("logits").to_pylist()).argmax(axis=1)
    right = np.arange(len(SAMPLES)) % 3 > 0
    assert table.column("label").to_pylist() == np.where(right, best, 1 - best).tolist()
    unknown = [sample | {"target": "none of these", "acc": 1.0} for sample in SAMPLES]
    path = write_log(tmp_path / "u.jsonl", unknown)
    assert f"{len(SAMPLES)} rows have no label (null)" in fail("calibrate", path)


def test_what_is_no_multiple_choice(tmp_path: Path) -> None:
    generated = [sample | {"filtered_resps": ["42"]} for sample in SAMPLES]
    message = fail("calibrate", write_log(tmp_path / "g.jsonl", generated))
    assert "no logit columns found" in message
    single = [sample | {"filtered_resps": sample["filtered_resps"][:1]} for sample in SAMPLES[:3]]
    message = fail("calibrate", write_log(tmp_path / "s.jsonl", [*SAMPLES, *single]))
    assert "3 rows have fewer than 2 choices; the first is row 240" in message
    (tmp_path / "cut.jsonl").write_bytes(VAL.read_bytes()[:-100])
    assert "row 239, counted from 0, is not JSON" in fail("calibrate", tmp_path / "cut.jsonl")


def test_files_with_fewer_choices_are_padded_further(tmp_path: Path) -> None:
    few = [sample for sample in SAMPLES if len(sample["filtered_resps"]) < MOST]
    rest = [sample for sample in SAMPLES if len(sample["filtered_resps"]) == MOST]
    some = write_log(tmp_path / "few.jsonl", few)
    other = write_log(tmp_path / "rest.jsonl", rest)
    Results.of(tmp_path, VAL)
    rejector = tmp_path / "out" / "rejector.json"
    for path in (some, other):
        succeed("reject", path, "-r", rejector, "-o", tmp_path / f"{path.stem}.parquet")
    whole = pq.read_table(tmp_path / "out" / "mask.parquet")
    losses = dict(zip(whole.column("doc_id").to_pylist(), whole.column("loss").to_pylist(), strict=True))
    for name in ("few", "rest"):
        mask = pq.read_table(tmp_path / f"{name}.parquet")
        assert [losses[i] for i in mask.column("doc_id").to_pylist()] == mask.column("loss").to_pylist()
    succeed("calibrate", some, other, "-q")
    Results.of(tmp_path, some)
    message = fail("reject", other, "-r", rejector, "-o", tmp_path / "x.parquet")
    assert "has 5 scores per row but the rejector was made for 4 classes" in message


@pytest.mark.parametrize("wrapped", [True, False])
def test_details_of_lighteval(tmp_path: Path, expected: Results, wrapped: bool) -> None:
    docs = [
        {
            "query": s["doc"]["query"],
            "choices": s["doc"]["choices"],
            "gold_index": [s["doc"]["gold"]] if wrapped else s["doc"]["gold"],
        }
        for s in SAMPLES
    ]
    answers = [{"text": [], "logprobs": likelihoods(s)} for s in SAMPLES]
    metric = [{"acc": s["acc"]} for s in SAMPLES]
    table = pa.table({"doc": pa.array(docs), "model_response": pa.array(answers), "metric": pa.array(metric)})
    pq.write_table(table, tmp_path / "details.parquet")
    found = Results.of(tmp_path, tmp_path / "details.parquet")
    found.check(expected)
    assert found.rejector["columns"] == {"logits": "model_response.logprobs", "label": "doc.gold_index"}
    succeed("convert", tmp_path / "details.parquet", "--per-length", "-o", tmp_path / "l.parquet", "-q")
    succeed("convert", VAL, "--per-length", "-o", tmp_path / "m.parquet", "-q")
    ours, theirs = (pq.read_table(tmp_path / f"{name}.parquet") for name in "lm")
    for name in ("logits", "label"):
        assert ours.column(name).to_pylist() == theirs.column(name).to_pylist()
    if wrapped:
        docs[7]["gold_index"] = [0, 1]
        table = table.set_column(0, "doc", pa.array(docs))
        pq.write_table(table, tmp_path / "details.parquet")
        assert "1 row has several right answers; row 7" in fail("calibrate", tmp_path / "details.parquet")


@pytest.mark.parametrize("form", ["mlflow", "wandb", "objects"])
def test_tables_in_one_json_document(tmp_path: Path, expected: Results, form: str) -> None:
    document: Any = {
        "columns": ["logits", "label"],
        "data": [[row.tolist(), int(y)] for row, y in zip(SCORES, LABELS, strict=True)],
    }
    if form == "wandb":
        document |= {"_type": "table", "ncols": 2, "nrows": len(LABELS)}
    if form == "objects":
        document = [dict(zip(document["columns"], row, strict=True)) for row in document["data"]]
    path = tmp_path / "t.table.json"
    path.write_text(json.dumps(document))
    Results.of(tmp_path, path).check(expected)
    assert b"format:  JSON table" in succeed("inspect", path)
    if form == "mlflow":
        document["data"][3] = document["data"][3][:1]
        path.write_text(json.dumps(document))
        assert "row 3, counted from 0, does not have 2 values" in fail("calibrate", path)
    path.write_text('{"a": 1}')
    assert "not a table" in fail("calibrate", path)
