"""Mutations of files of every format that is read: `python -m tests.campaigns fuzz_readers CASES FIRST [ENDING...]`.

A mutated file may still be valid, so what is checked is the contract: exit 0 with a document, or exit 2 with exactly
one line and nothing written; exit 1 is for verdicts, which `calibrate` has none of. A case is known by its
number; the cases are those from FIRST on.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from dumps_zoo import make_rows
from formats_zoo import WRITERS
from running import drrej

ROWS = make_rows(4, rows=60, seed=4)
SCORED = {
    "chat.jsonl": ("choices.0.logprobs.content.logprob:mean", "correct"),
    "completions.jsonl": ("choices.0.logprobs.token_logprobs:min", "correct"),
    "judge.jsonl": ("confidence", "correct"),
    "judge.csv": ("confidence", "correct"),
    "log.json": ("output.choices.0.logprobs.content.logprob:mean", "scores.match.value"),
    "eval": ("output.choices.0.logprobs.content.logprob:mean", "scores.match.value"),
    "generated.jsonl": ("answer", "exact_match"),
}
"""Rows that bring a score of any kind: where it is, and whether they were right."""
ENDINGS = [ending for ending in WRITERS if ending != "parquet"] + ["npy", "json", "samples.jsonl", *SCORED]
WORDS = [b"nan", b"inf", b"-1e999", b'"', b"\n", b",", b"null", b"[]", b"{}", b"\0", b"\xff\xfe", b"1e5", b"true", b" "]
LOG = Path(__file__).parents[2] / "sample_data" / "llm" / "samples_arithmetic_val.jsonl"


def original(ending: str, folder: Path) -> bytes:
    """A valid file."""
    path = folder / f"original.{ending}"
    if ending == "npy":
        import numpy as np

        np.save(path, ROWS.logits.astype(np.float32))
    elif ending == "json":
        data = [[row.astype(float).tolist(), int(y)] for row, y in zip(ROWS.logits, ROWS.labels, strict=True)]
        path.write_text(json.dumps({"columns": ["logits", "label"], "data": data}))
    elif ending == "samples.jsonl":
        path.write_bytes(b"".join(LOG.read_bytes().splitlines(keepends=True)[:40]))
    elif ending in SCORED:
        _write_scored(path, ending)
    else:
        WRITERS[ending](path, ROWS)
    return path.read_bytes()


def _write_scored(path: Path, ending: str) -> None:
    """Rows of one of the kinds of `SCORED`."""
    from test_confidence_shapes import chat, completion, sample

    count = 12
    judge = LOG.parents[1] / "scores" / "judge_val.jsonl"
    rows = [json.loads(line) for line in judge.read_text().splitlines()[:40]]
    if ending == "judge.csv":
        lines = ["id,confidence,correct", *(f"{row['id']},{row['confidence']},{row['correct']}" for row in rows)]
        path.write_text("\n".join(lines) + "\n")
    elif ending == "log.json":
        path.write_text(json.dumps({"version": 2, "eval": {}, "samples": [*map(sample, range(count))]}))
    elif ending == "eval":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for number in range(count):
                archive.writestr(f"samples/{number}_epoch_1.json", json.dumps(sample(number)))
    else:
        made = {"chat.jsonl": chat, "completions.jsonl": completion}.get(ending)
        if made is not None:
            rows = [made(number) for number in range(count)]
        elif ending == "generated.jsonl":
            rows = [
                {
                    "doc_id": row["id"],
                    "filter": "none",
                    "filtered_resps": [row["confidence"]],
                    "exact_match": row["correct"],
                }
                for row in rows
            ]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _flip(text: bytearray, draw: random.Random) -> None:
    text[draw.randrange(len(text))] ^= 1 << draw.randrange(8)


def _overwrite(text: bytearray, draw: random.Random) -> None:
    start = draw.randrange(len(text))
    for place in range(start, min(len(text), start + draw.randint(1, 16))):
        text[place] = draw.randrange(256)


def _cut(text: bytearray, draw: random.Random) -> None:
    del text[draw.randrange(len(text)) :]


def _remove(text: bytearray, draw: random.Random) -> None:
    start = draw.randrange(len(text))
    del text[start : start + draw.randint(1, 200)]


def _repeat(text: bytearray, draw: random.Random) -> None:
    start = draw.randrange(len(text))
    text[start:start] = text[start : start + draw.randint(1, 200)]


def _insert(text: bytearray, draw: random.Random) -> None:
    start = draw.randrange(len(text) + 1)
    text[start:start] = draw.choice(WORDS)


def _other_digit(text: bytearray, draw: random.Random) -> None:
    places = [place for place, byte in enumerate(text) if 48 <= byte < 58]
    if places:
        text[draw.choice(places)] = draw.randrange(48, 58)


def _replace_number(text: bytearray, draw: random.Random) -> None:
    """Another eight bytes, such as lengths and offsets have."""
    start = draw.randrange(max(1, len(text) - 8))
    text[start : start + 8] = draw.choice([2**31 - 1, 2**63 - 1, 2**64 - 1, 0, 1, 2**32]).to_bytes(8, "little")


CHANGES: list[Callable[[bytearray, random.Random], None]] = [
    *(_flip, _overwrite, _cut, _remove, _repeat, _insert, _replace_number, _other_digit, _other_digit)
]


def mutated(text: bytes, number: int) -> bytes:
    """A file with one to three changes."""
    draw = random.Random(number)
    changed = bytearray(text)
    for _ in range(draw.choice([1, 1, 2, 3])):
        if changed:
            draw.choice(CHANGES)(changed, draw)
    return bytes(changed)


def check(ending: str, text: bytes, folder: Path) -> str:
    """Run a command on a file; what it did, in a word. Raises when it broke the contract."""
    path, out = folder / f"mutated.{ending}", folder / "out.json"
    path.write_bytes(text)
    out.unlink(missing_ok=True)
    labels = ["--labels-from", folder / "labels.csv"] if ending == "npy" else []
    score, correct = SCORED.get(ending, (None, None))
    how = [] if score is None else ["--score", score, "--correct", correct]
    done = drrej("calibrate", path, *labels, *how, "-o", out, "-q")
    assert done.code in (0, 2), done
    assert "Traceback" not in done.err, done.err
    assert "error: unexpected" not in done.err, done.err
    assert out.exists() == (done.code == 0), done
    if done.code:
        assert done.err.startswith("drrej: error: "), done.err
        assert done.err.count("\n") == 1, done.err
    return "read" if done.code == 0 else "refused"


def campaign(ending: str, cases: int, folder: Path, first: int = 0) -> Counter[str]:
    """Check so many mutations of a format."""
    text = original(ending, folder)
    (folder / "labels.csv").write_text("label\n" + "\n".join(map(str, ROWS.labels)) + "\n")
    assert check(ending, text, folder) == "read"
    counts: Counter[str] = Counter()
    for number in range(first, first + cases):
        try:
            counts[check(ending, mutated(text, number), folder)] += 1
        except AssertionError as error:
            raise AssertionError(f"{ending}, case {number}: {error}") from error
    return counts


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        for chosen in sys.argv[3:] or ENDINGS:
            found = dict(campaign(chosen, int(sys.argv[1]), Path(name), int(sys.argv[2])))
            sys.stdout.write(f"{chosen}: {found}\n")
            sys.stdout.flush()
