"""drrej reject: what it says of the rows that it leaves out, and formulas in CSV."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import logit_columns, make_model, succeed
from running import LOG_LINE, drrej


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    logits, labels = make_model(200, 3, 1)
    texts = ["=1+1", "+49 30", "-5", "@x", "\tx", "plain", "", "a=b", None, "'q"] * 20
    columns = {**logit_columns(logits, "fixed"), "label": labels, "text": texts, "=head": list(range(200))}
    pq.write_table(pa.table(columns), tmp_path / "d.parquet")
    succeed("calibrate", "d.parquet", "-o", "c.json", cwd=tmp_path)
    succeed("fit", "d.parquet", "-r", "c.json", "-o", "f.json", cwd=tmp_path)
    succeed("threshold", "d.parquet", "-r", "f.json", "--coverage", "0.5", "-o", "r.json", cwd=tmp_path)
    return tmp_path


def test_a_review_limit_says_how_many_rows_it_leaves_out(folder: Path) -> None:
    words = ["reject", "d.parquet", "-r", "r.json", "-o", "m.parquet", "--review", "t.json", "--force"]
    rejected = (
        pq.read_table(folder / "m.parquet")["rejected"].to_pylist().count(True) if drrej(*words, cwd=folder) else 0
    )
    outcome = drrej(*words, "--reviews", "7", cwd=folder)
    assert len(json.loads((folder / "t.json").read_text())) == 7
    assert LOG_LINE.sub("", outcome.err) == (
        f"drrej: warning: {rejected - 7} of {rejected} rejected rows exceed the budget of 7 reviews: "
        "the least doubtful, which --review leaves out and the mask still rejects\n"
    )
    assert LOG_LINE.sub("", drrej(*words, "--reviews", "500", cwd=folder).err) == ""
    assert "--review-limit: it is now --reviews" in drrej(*words, "--review-limit", "5", cwd=folder).err
