"""Command lines that drrej writes: those of the page make the rejector again, those of `inspect` work."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import logit_columns, make_model
from running import drrej as run

import drrej
from drrej.cli.commandline import commands_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("commands")
    logits, labels = make_model(200, 3, 1)
    counts = np.round(50 * np.exp(logits - logits.max(axis=1, keepdims=True)))
    columns = {
        **logit_columns(logits, "fixed"),
        "counts": logit_columns(counts, "fixed")["logits"],
        "score": logits[:, 0],
        "label": labels,
        "bit": labels % 2,
        "name": np.array(["a b", "c", "it's"])[labels],
        "own": np.random.default_rng(1).random(200),
    }
    pq.write_table(pa.table(columns), folder / "VAL")
    return folder


def do(command: str, folder: Path, stdin: bytes = b"") -> bytes:
    """What a command writes; it may have something to note."""
    outcome = run(*shlex.split(command), cwd=folder, stdin=stdin)
    assert outcome.code == 0, outcome.err
    return outcome.out


@pytest.mark.parametrize(
    ("start", "fit", "rule"),
    [
        ("calibrate VAL", "", "--coverage 0.8"),
        ("calibrate VAL --precision float64", "--alpha 2 --lambda 0.5 --loss brier", "--risk 0.3"),
        ('calibrate VAL --label name --classes "a b,c,it\'s"', "--loss auto", "--max-loss 0.5"),
        ("calibrate VAL --logits score --binary --label bit", "--divergence chi2", "--tau 0.9"),
        ("calibrate VAL --logits counts --input probs --normalize", "", "--coverage 0.8 --by bit"),
        ("calibrate VAL --logits counts --input probs --normalize --floor 0.01", "", "--coverage 0.7"),
        (None, "--temperature 2 --logits counts --input probs --normalize --floor 0.01", "--coverage 0.7"),
        (None, "--temperature 1.5 --precision float64", "--risk 0.5 --confidence 0.9 --allow-reuse"),
        ("calibrate VAL", "--loss column --loss-column own", "--coverage 0.8"),
    ],
)
def test_the_commands_of_a_page_make_the_rejector_again(folder: Path, start: str | None, fit: str, rule: str) -> None:
    known = b"" if start is None else do(start, folder)
    made = do(f"threshold VAL -r - {rule}", folder, do(f"fit VAL {'-r -' if start else ''} {fit}", folder, known))
    (pipe,) = commands_of(drrej.Rejector.from_json(made.decode()))
    assert pipe.endswith(" -o rejector.json")
    again = b""
    for command in pipe.removesuffix(" -o rejector.json").split(" |\n  "):
        again = do(command.removeprefix("drrej "), folder, again)
    assert again == made


@pytest.mark.parametrize("reading", ["--logits logits", "--logits counts --input probs --normalize"])
def test_the_advice_of_inspect_works(folder: Path, reading: str) -> None:
    advice = do(f"inspect VAL {reading}", folder).decode().splitlines()[-1].strip()
    assert advice.startswith("drrej calibrate VAL")
    assert do(advice.removeprefix("drrej ").removesuffix(" -o rejector.json"), folder)
