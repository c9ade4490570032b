"""Makes llm/: logs of multiple-choice questions, shaped as lm-evaluation-harness writes them with --log_samples.

The questions are sums and products; the log-likelihoods are drawn, not those of a language model: they are near the
truth for small numbers and overconfident for large ones, as language models are. Run it from this folder.
"""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path
from typing import Any

FILES = {"samples_arithmetic_val.jsonl": (1, 240), "samples_arithmetic_test.jsonl": (2, 240)}


def question(number: int, draw: random.Random) -> dict[str, Any]:
    """One line of the log."""
    hard = draw.random()
    most = 10 if hard < 0.5 else 100
    first, second = draw.randint(2, most), draw.randint(2, most)
    sign, answer = ("+", first + second) if draw.random() < 0.5 else ("*", first * second)
    wrong = list(dict.fromkeys(max(0, answer + step) for step in draw.sample([-11, -10, -2, -1, 1, 2, 10, 11], 5)))
    choices = [str(answer), *(str(value) for value in wrong if value != answer)][: draw.choice([3, 4, 5])]
    draw.shuffle(choices)
    gold = choices.index(str(answer))
    skill = draw.gauss(2.5 if most == 10 else 0.4, 1.2)
    scores = [round(draw.gauss(-6.0, 1.6) + (skill * 2 if i == gold else 0.0), 6) for i in range(len(choices))]
    best = max(range(len(scores)), key=scores.__getitem__)
    context = f"Question: What is {first} {sign} {second}?\nAnswer:"
    texts = {"doc_hash": context, "prompt_hash": context, "target_hash": str(gold)}
    return {
        "doc_id": number,
        "doc": {"query": f"What is {first} {sign} {second}?", "choices": choices, "gold": gold},
        "target": str(gold),
        "arguments": {f"gen_args_{i}": {"arg_0": context, "arg_1": f" {text}"} for i, text in enumerate(choices)},
        "resps": [[[str(score), str(i == best)]] for i, score in enumerate(scores)],
        "filtered_resps": [[str(score), str(i == best)] for i, score in enumerate(scores)],
        "filter": "none",
        "metrics": ["acc"],
        **{name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()},
        "acc": float(best == gold),
    }


def main() -> None:
    """Write the files."""
    folder = Path("llm")
    folder.mkdir(exist_ok=True)
    for name, (seed, rows) in FILES.items():
        draw = random.Random(seed)  # noqa: S311 - a sample, not a secret
        lines = [json.dumps(question(number, draw), ensure_ascii=False) for number in range(rows)]
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
