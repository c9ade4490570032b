"""Rows that bring a score and whether they were right: every shape that logs have, read or refused with a reason."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from running import drrej, fail, succeed

from drrej import Source
from drrej.data.confidence import said_level, said_number
from drrej.data.dump import DumpOptions
from drrej.errors import DrrejError, DumpError

RIGHT = [1, 1, 0, 1, 0, 1, 1, 1, 0, 1, 1, 1]
LOGPROBS = [[-0.1 * i, -0.3, -0.05 * i] for i in range(12)]


def read(path: Path, labelled: bool = True, **options: Any) -> tuple[np.ndarray, np.ndarray | None]:
    """The scores and labels of a file."""
    dump = Source(path, DumpOptions(**options)).open(None, labelled=labelled)
    blocks = [block for group in dump.row_groups for block in dump.read(group, labelled)]
    problems = [problem.message() for block in blocks for problem in block.problems]
    if problems:
        raise DumpError(problems[0])
    labels = np.concatenate([block.labels for block in blocks if block.labels is not None]) if labelled else None
    return np.concatenate([block.scores for block in blocks]), labels


def lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def chat(i: int) -> dict[str, Any]:
    """A row of OpenAI's chat completions."""
    content = [{"token": f" t{i}", "logprob": x, "bytes": None, "top_logprobs": alternatives(x)} for x in LOGPROBS[i]]
    return {"id": f"q{i}", "choices": [{"index": 0, "logprobs": {"content": content}}], "correct": bool(RIGHT[i])}


def alternatives(x: float) -> list[dict[str, Any]]:
    return [{"token": " Yes", "logprob": x}, {"token": "No", "logprob": -2.0}, {"token": "Maybe", "logprob": -4.0}]


def completion(i: int) -> dict[str, Any]:
    """A row of vLLM's completions: the first token has no log-probability, alternatives are by token."""
    logprobs = {"tokens": ["a", "b", "c", "d"], "token_logprobs": [None, *LOGPROBS[i]]}
    logprobs["top_logprobs"] = [None, *({f"t{i}{j}": x, "b": -3.0} for j, x in enumerate(LOGPROBS[i]))]
    return {"id": f"q{i}", "choices": [{"text": "x", "logprobs": logprobs}], "correct": RIGHT[i]}


def sample(i: int) -> dict[str, Any]:
    """A sample of inspect_ai."""
    return {
        "id": i,
        "epoch": 1,
        "input": "x" if i % 2 else [{"role": "user"}],
        "target": "42",
        "messages": [{"a": i}],
        "output": {"choices": [{"logprobs": {"content": [{"token": "a", "logprob": x} for x in LOGPROBS[i]]}}]},
        "scores": {"match": {"value": "C" if RIGHT[i] else "I", "answer": "42"}},
    }


REDUCED = {
    "mean": [np.mean(x) for x in LOGPROBS],
    "min": [min(x) for x in LOGPROBS],
    "max": [max(x) for x in LOGPROBS],
    "sum": [sum(x) for x in LOGPROBS],
    "first": [x[0] for x in LOGPROBS],
    "last": [x[-1] for x in LOGPROBS],
    "count": [3.0] * 12,
}


@pytest.mark.parametrize("how", REDUCED)
def test_log_probabilities_by_path(tmp_path: Path, how: str) -> None:
    chats, texts = lines(tmp_path / "c.jsonl", [*map(chat, range(12))]), tmp_path / "t.jsonl"
    lines(texts, [*map(completion, range(12))])
    log = {"version": 2, "eval": {"task": "x"}, "samples": [*map(sample, range(12))]}
    (tmp_path / "log.json").write_text(json.dumps(log))
    with zipfile.ZipFile(tmp_path / "log.eval", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", "{}")
        for i in range(12):
            archive.writestr(f"samples/{i}_epoch_1.json", json.dumps(sample(i)))
    cases = [
        (chats, "choices.0.logprobs.content.logprob", "correct"),
        (texts, "choices.0.logprobs.token_logprobs", "correct"),
        (tmp_path / "log.json", "output.choices.0.logprobs.content.logprob", "scores.match.value"),
        (tmp_path / "log.eval", "output.choices.0.logprobs.content.logprob", "scores.match.value"),
    ]
    for path, name, correct in cases:
        scores, labels = read(path, score=f"{name}:{how}", correct=correct)
        assert scores[:, 0] == pytest.approx(REDUCED[how])
        assert labels is not None
        assert (labels == 1 - np.array(RIGHT)).all()


def test_alternatives_of_a_token_are_classes(tmp_path: Path) -> None:
    rows = [{**chat(i), "truth": "Yes" if RIGHT[i] else "No"} for i in range(12)]
    path = lines(tmp_path / "c.jsonl", rows)
    name = "choices.0.logprobs.content.0.top_logprobs"
    scores, labels = read(path, logits=name, classes=("No", "Yes", "Never"), label="truth")
    assert scores[3] == pytest.approx([-2.0, LOGPROBS[3][0], -4.0])
    assert labels is not None
    assert labels.tolist() == RIGHT
    with pytest.raises(DrrejError, match="name those that are the classes"):
        read(path, logits=name, label="truth")
    with pytest.raises(DrrejError, match="12 rows have none of the classes among its tokens"):
        read(path, logits=name, classes=("A", "B"), label="truth", labelled=False)


def test_answers_that_were_generated(tmp_path: Path) -> None:
    rows = [
        {"doc_id": i, "doc": {"a": i}, "filter": "none", "filtered_resps": [f"{50 + i}%"], "exact_match": float(right)}
        for i, right in enumerate(RIGHT)
    ]
    scores, labels = read(lines(tmp_path / "samples.jsonl", rows), score="answer", correct="exact_match")
    assert scores[:, 0] == pytest.approx([(50 + i) / 100 for i in range(12)])
    assert labels is not None
    assert (labels == 1 - np.array(RIGHT)).all()


@pytest.mark.parametrize(
    ("texts", "numbers"),
    [
        (["85%", " 7.5 %", "100%"], [0.85, 0.075, 1.0]),
        (["0.85", "1", ".5", "1e-2", "-0.3"], [0.85, 1.0, 0.5, 0.01, -0.3]),
        (["8/10", "Confidence: 0.9", "confidence = 90%"], [0.8, 0.9, 0.9]),
        (["85", "8/0", "sure", "", "0.8 or so", "nan", "1,5"], [None] * 7),
    ],
)
def test_confidences_in_text(texts: list[str], numbers: list[float | None]) -> None:
    assert [said_number(text) for text in texts] == pytest.approx(numbers)


def test_confidences_in_words(tmp_path: Path) -> None:
    texts, numbers = ["low", "Medium", "HIGH", "very_high", "very low"], [0.25, 0.5, 0.75, 0.9, 0.1]
    assert [said_level(text) for text in [*texts, "85%", "sure"]] == [*numbers, None, None]
    for name, values in (
        ("words", texts),
        ("coded", pa.array(texts).dictionary_encode()),
        ("mixed", [*texts[:4], "85%"]),
    ):
        pq.write_table(pa.table({"s": values, "correct": [1, 0, 1, 1, 0]}), tmp_path / f"{name}.parquet")
    for name in ("words", "coded"):
        scores, _ = read(tmp_path / f"{name}.parquet", score="s")
        assert scores[:, 0].tolist() == numbers
    with pytest.raises(DrrejError, match=r"not a confidence in words; row 4, counted from 0 \('85%'\)"):
        read(tmp_path / "mixed.parquet", score="s")


def test_words_and_numbers_do_not_share_a_rejector(tmp_path: Path) -> None:
    right = [True] * 30 + [False] * 10
    for name, values in (("words", ["high"] * 30 + ["low"] * 10), ("numbers", [0.75] * 30 + [0.25] * 10)):
        pq.write_table(pa.table({"s": values, "n": np.arange(40), "correct": right}), tmp_path / f"{name}.parquet")
        said = drrej("calibrate", tmp_path / f"{name}.parquet", "--score", "s", "-o", tmp_path / f"{name}.json").err
        assert "'s' has 2 distinct values (" + ("low, high)" if name == "words" else "0.25, 0.75)") in said
    how = ("fit", tmp_path / "numbers.parquet", "-r", tmp_path / "words.json")
    assert "'s' is double, not words" in fail(*how)
    assert "'s:words' cannot take the place of 's' (numbers), which the rejector" in fail(
        "fit", tmp_path / "words.parquet", "-r", tmp_path / "numbers.json"
    )
    pq.write_table(
        pa.table({"t": [f"{x:.0%}" for x in np.linspace(0.1, 0.9, 40)], "correct": right}), tmp_path / "t.parquet"
    )
    assert "'t' cannot take the place of 's:words' (words)" in fail(
        "fit", tmp_path / "t.parquet", "-r", tmp_path / "words.json", "--score", "t"
    )
    assert "'s,n' cannot take the place of 's' (numbers)" in fail(
        "fit", tmp_path / "numbers.parquet", "-r", tmp_path / "numbers.json", "--score", "s,n"
    )


def test_an_empty_cell_is_no_label(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("s,correct\n0.9,yes\n0.8,\n0.2,no\n")
    with pytest.raises(DrrejError, match="no value \\(null\\); row 1"):
        read(tmp_path / "a.csv", score="s")
    scores, labels = read(tmp_path / "a.csv", score="s", on_missing_label="skip")
    assert (scores[:, 0].tolist(), labels is not None and labels.tolist()) == ([0.9, 0.2], [0, 1])


@pytest.mark.parametrize(
    "values",
    [
        *([bool(x) for x in RIGHT], [float(x) for x in RIGHT], RIGHT, [str(x) for x in RIGHT]),
        *(["yes" if x else "No" for x in RIGHT], [" Correct" if x else "incorrect" for x in RIGHT]),
        pa.array(["pass" if x else "fail" for x in RIGHT]).dictionary_encode(),
    ],
)
def test_all_ways_to_say_right(tmp_path: Path, values: Any) -> None:
    table = pa.table({"s": np.arange(12) / 12, "correct": values})
    pq.write_table(table, tmp_path / "a.parquet")
    _, labels = read(tmp_path / "a.parquet", score="s")
    assert labels is not None
    assert (labels == 1 - np.array(RIGHT)).all()


@pytest.mark.parametrize(
    ("said", "truth", "same"),
    [
        (["a", "b", "c"], ["a", "x", "c"], [0, 1, 0]),
        ([1, 2, 3], [1.0, 2.5, 3.0], [0, 1, 0]),
        (["1", "2", "03"], [1, 2, 3], [0, 0, 1]),
        ([True, False, True], [True, True, True], [0, 1, 0]),
    ],
)
def test_predictions_are_compared_with_labels(tmp_path: Path, said: Any, truth: Any, same: list[int]) -> None:
    pq.write_table(pa.table({"s": [0.1, 0.2, 0.3], "p": said, "y": truth}), tmp_path / "a.parquet")
    _, labels = read(tmp_path / "a.parquet", score="s", prediction="p", label="y")
    assert labels is not None
    assert labels.tolist() == same


@pytest.mark.parametrize(
    ("columns", "options", "says"),
    [
        ({"s": [0.1, None]}, {}, "no value \\(null\\)"),
        ({"s": [0.1, np.nan]}, {}, "a score that is not finite"),
        ({"s": [0.1, -np.inf]}, {}, "a score that is not finite"),
        ({"s": ["85%", "85"]}, {}, "a text that is not a confidence in numbers; row 1, counted from 0 \\('85'\\)"),
        ({"s": [[0.1], []]}, {"score": "s:mean"}, "a list without numbers"),
        ({"s": [[0.1], [0.2]]}, {}, "say which number of it is the score: `score=s:mean`"),
        ({"s": [0.1, 0.2]}, {"score": "s:mean"}, "'s' is not a list"),
        ({"s": [[0.1], [0.2]]}, {"score": "s:median"}, "must be followed by one of mean, min"),
        ({"s": [{"a": 1}, {"a": 2}]}, {}, "choose inside of it: 's.a'"),
        ({"s": [True, False]}, {}, "a score is a number or a text"),
        ({"s": [0.1, 0.2]}, {"score": "t"}, "there is no column 't'; choose with `score`"),
        ({"s": [0.1, 0.2]}, {"score": "s,s"}, "name each score once"),
        ({"s": [0.1, 0.2], "correct": [1, 2]}, {}, "neither right nor wrong; row 1, counted from 0 \\('2'\\)"),
        ({"s": [0.1, 0.2], "correct": ["yes", "perhaps"]}, {}, "neither right nor wrong"),
        ({"s": [0.1, 0.2], "correct": [1, None]}, {}, "no value \\(null\\)"),
        ({"s": [0.1, 0.2], "correct": [[1], [0]]}, {}, "it must be true or false, 1 or 0, or words"),
        ({"s": [0.1, 0.2]}, {"correct": "hit"}, "there is no column 'hit' \\(`correct`\\)"),
        ({"s": [0.1, 0.2], "is_correct": [1, 0]}, {}, "which column shows whether a row was right"),
        ({"s": [0.1, 0.2]}, {"logits": "s"}, "`logits` cannot be combined with `score`"),
        ({"s": [0.1, 0.2]}, {"correct": "correct", "label": "correct"}, "leave out `prediction` and `label`"),
        ({"s": [0.1, 0.2]}, {"label": "correct"}, "`label` requires `prediction=COL`"),
        ({"s": [0.1, 0.2], "p": ["a", None], "y": ["a", "b"]}, {"prediction": "p", "label": "y"}, "no prediction"),
        ({"s": [0.1, 0.2], "p": [1.0, 2.0], "y": ["1", "2"]}, {"prediction": "p", "label": "y"}, "store both as text"),
    ],
)
def test_what_is_refused(tmp_path: Path, columns: dict[str, Any], options: dict[str, Any], says: str) -> None:
    pq.write_table(pa.table({"correct": [True, False]} | columns), tmp_path / "a.parquet")
    with pytest.raises(DrrejError, match=says):
        read(tmp_path / "a.parquet", **{"score": "s"} | options)


def test_slices_and_nulls_in_paths() -> None:
    from drrej.data.columns import column_of, field_of

    rows = [{"a": [{"b": [1.0, 2.0]}, {"b": [3.0]}]}, None, {"a": []}, {"a": None}, {"a": [{"b": None}, None]}]
    for kind in (pa.list_, pa.large_list):
        data_type = pa.struct([("a", kind(pa.struct([("b", kind(pa.float64()))])))])
        batch = pa.record_batch({"r": pa.array([{"a": [{"b": [9.0]}]}, *rows], data_type)})
        for start in (0, 1, 2):
            part = batch.slice(start)
            found = column_of(part, "r.a.1.b.0").to_pylist()
            assert found == [None, 3.0, None, None, None, None][start:]
            listed = column_of(part, "r.a.b").to_pylist()
            assert listed == [[[9.0]], [[1.0, 2.0], [3.0]], None, [], None, [None, None]][start:]
        assert str(field_of(batch.schema, "r.a.b.0").type).endswith("double>")  # type: ignore[union-attr]
    assert field_of(batch.schema, "r.c") is None


def test_a_binary_reading_of_correct_is_asked_about(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    columns = {"confidence": rng.random(50), "correct": rng.random(50) < 0.7}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    how = ("--binary", "--input", "probs", "--label", "correct")
    message = fail("calibrate", tmp_path / "a.parquet", *how)
    assert "does 'correct' show whether an answer was right? then use --score and --correct correct" in message
    succeed("calibrate", tmp_path / "a.parquet", *how, "--classes", "no,yes")


def test_predictions_are_compared_with_labels_of_another_file(tmp_path: Path) -> None:
    said, truth = ["a", "b", "c", "d"], ["a", "x", "c", "d"]
    pq.write_table(pa.table({"id": [1, 2, 3, 4], "s": [0.1, 0.2, 0.3, 0.4], "p": said}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"id": [4, 3, 2, 1, 9], "y": [*truth[::-1], "z"]}), tmp_path / "y.parquet")
    (tmp_path / "late.csv").write_text("id,y\n1,a\n2,\n4,d\n")
    how = {"score": "s", "prediction": "p", "label": "y", "join_on": "id"}
    _, labels = read(tmp_path / "a.parquet", **how, labels_from=str(tmp_path / "y.parquet"))
    assert labels is not None
    assert labels.tolist() == [0, 1, 0, 0]
    late = str(tmp_path / "late.csv")
    scores, labels = read(tmp_path / "a.parquet", **how, labels_from=late, on_missing_label="skip")
    assert (scores[:, 0].tolist(), labels is not None and labels.tolist()) == ([0.1, 0.4], [0, 0])
    with pytest.raises(DrrejError, match="no label \\(null\\); row 1"):
        read(tmp_path / "a.parquet", **how, labels_from=late)
    np.save(tmp_path / "y.npy", np.array(truth))
    _, labels = read(tmp_path / "a.parquet", score="s", prediction="p", labels_from=str(tmp_path / "y.npy"))
    assert labels is not None
    assert labels.tolist() == [0, 1, 0, 0]


@pytest.mark.parametrize("score", ["s", "t", "l:mean", "l:mean,l:min,s"])
def test_convert_writes_scores_as_numbers(tmp_path: Path, score: str) -> None:
    rng = np.random.default_rng(3)
    s, right = rng.random(60).round(2), rng.random(60) < 0.7
    columns = {"id": range(60), "s": s, "t": [f"{x:.0%}" for x in s], "l": [[x, x / 2] for x in s]}
    pq.write_table(pa.table({**columns, "y": np.where(right, "a", "b"), "p": ["a"] * 60}), tmp_path / "a.parquet")
    how = ("--score", score, "--prediction", "p", "--label", "y")
    printed = succeed("convert", tmp_path / "a.parquet", *how, "-o", tmp_path / "b.parquet").decode()
    command = printed.splitlines()[1].split()[1:]
    first, second = (
        json.loads(drrej("calibrate", *words).out) for words in ([tmp_path / "a.parquet", *how], [*command[1:]])
    )
    assert first["calibration"]["score"] == second["calibration"]["score"]
    assert "s" in pq.read_schema(tmp_path / "b.parquet").names
