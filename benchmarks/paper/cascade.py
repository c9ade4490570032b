"""`cascade`: what a small network in front of a large one saves, on the test rows of one fold.

The large network is the fold's own, from `train`. The small one is the same with a quarter of the channels or fewer,
trained here on the same rows. What a row costs is the multiplications of a network for one image.
"""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.paper.networks import Small
from benchmarks.paper.training import TRAINING_SEED, Task, fit_base, outputs_of, train, write_dump

EPOCHS = 8
BELOW = (0.005, 0.01, 0.02, 0.04)
"""Accuracies to keep: so far below that of the large network alone."""
CONFIDENCE = "0.9"


def multiplications(network: nn.Module, image: torch.Tensor) -> int:
    """Multiplications of convolutions and of linear layers for one image (channel, height, width)."""
    found = 0

    def count(layer: nn.Module, _: Any, outputs: torch.Tensor) -> None:
        nonlocal found
        if isinstance(layer, nn.Conv2d | nn.Linear):
            found += layer.weight[0].numel() * outputs[0].numel()

    hooks = [layer.register_forward_hook(count) for layer in network.modules()]
    with torch.inference_mode():
        network.eval()(image[None])
    for hook in hooks:
        hook.remove()
    return found


def savings(task: Task, work: Path) -> list[dict[str, Any]]:
    """What `drrej cascade` finds at several accuracies, without and with a promise."""
    inputs, rows = task.inputs(), task.rows()
    folder = work / "cascade" / task.dataset.name
    model = train(
        lambda: _prepared(task, inputs),
        inputs[rows.train],
        torch.from_numpy(task.training_labels()),
        dataclasses.replace(task.experiment.settings, epochs=EPOCHS, small=0),
        nn.CrossEntropyLoss(),
        TRAINING_SEED,
        folder / "checkpoint.pt",
    ).model
    networks = {"small": model, "large": fit_base(task, task.experiment.settings, inputs, work).model}
    dumps = {name: folder / f"{name}.parquet" for name in networks}
    for name, network in networks.items():  # one view of each row: what others add is not counted either
        write_dump(dumps[name], rows.test, outputs_of(network, inputs[rows.test]), task.dataset.labels[rows.test])
    costs = {name: multiplications(network, inputs[0]) for name, network in networks.items()}
    stages = [f"--stage={name}={dumps[name]}:{costs[name]}" for name in dumps]

    def found(target: str, *more: str) -> dict[str, Any] | None:
        words = [
            "cascade",
            *stages,
            "--join-on",
            "id",
            "--accuracy",
            target,
            *more,
            "-o",
            str(folder / "out"),
            "-f",
            "-q",
        ]
        code = subprocess.run([sys.executable, "-m", "drrej", *words], check=False).returncode
        if code > 1:
            raise RuntimeError(f"drrej {' '.join(words)}: exit {code}")
        return None if code else json.loads((folder / "out" / "cascade.json").read_text())

    alone = found("0.01")
    assert alone is not None
    lines = []
    for below in BELOW:
        for more in ((), ("--confidence", CONFIDENCE)):
            target = f"{alone['alone'][1]['accuracy'] - below:.4f}"
            nothing = {"confidence": float(CONFIDENCE) if more else None, "chosen": None}
            lines.append((found(target, *more) or nothing) | {"asked": target})
    return lines


def table(lines: list[dict[str, Any]]) -> str:
    """The savings as Markdown."""
    said = [
        "| accuracy to keep | promised | cost, of the large network's | accuracy | answered by the small one |",
        "|---|---|---|---|---|",
    ]
    for line in lines:
        promised = "-" if line["confidence"] is None else f"confidence {line['confidence']:g}"
        start = f"| {line['asked']} | {promised} |"
        if line["chosen"] is None:
            said.append(f"{start} cannot be promised | | |")
            continue
        large = line["alone"][1]
        share = line["chosen"]["cost"] / large["cost"]
        small = line["stages"][0]["answered"] / line["rows"]
        said.append(f"{start} {100 * share:.1f} % | {line['chosen']['accuracy']:.4f} | {100 * small:.1f} % |")
    alone = next(line["alone"] for line in lines if line["chosen"] is not None)
    each = (f"{one['accuracy']:.4f} with {one['cost'] / 1e6:.2f} million multiplications a row" for one in alone)
    return "\n".join(said) + "\n\nAlone: the small network {}, the large one {}.".format(*each)


def _prepared(task: Task, inputs: torch.Tensor) -> nn.Module:
    network = Small(inputs.shape[1], task.dataset.classes)
    task.experiment.prepare(network, inputs[task.rows().train])
    return network
