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
from benchmarks.paper.training import Task, fit_base, outputs_of, write_dump

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


HEAD = ["accuracy to keep", "confidence", "cost, of the large network's", "accuracy", "answered by the small one"]


def savings(task: Task, work: Path) -> list[list[str]]:
    """What `drrej cascade` finds at several accuracies, without and with a promise; first each network alone."""
    inputs, rows, settings = task.inputs(), task.rows(), task.experiment.settings
    short = dataclasses.replace(settings, epochs=EPOCHS, small=0)
    folder = task.folder(work / "cascade")
    networks = {
        "small": fit_base(task, short, inputs, work / "cascade", Small).model,
        "large": fit_base(task, settings, inputs, work).model,
    }
    stages = []
    for name, network in networks.items():
        dump = folder / f"{name}.parquet"  # one view of each row: what others add is not counted either
        write_dump(dump, rows.test, outputs_of(network, inputs[rows.test]), task.dataset.labels[rows.test])
        stages.append(f"--stage={name}={dump}:{multiplications(network, inputs[0])}")

    def found(accuracy: float, *more: str) -> dict[str, Any] | None:
        words = ["--join-on", "id", "--accuracy", f"{accuracy:.4f}", *more, "-o", str(folder / "out"), "-f", "-q"]
        code = subprocess.run([sys.executable, "-m", "drrej", "cascade", *stages, *words], check=False).returncode
        if code > 1:
            raise RuntimeError(f"drrej cascade {' '.join([*stages, *words])}: exit {code}")
        return None if code else json.loads((folder / "out" / "cascade.json").read_text())

    first = found(0.01)
    assert first is not None
    small, large = first["alone"]
    lines = [
        [f"{name} alone, {one['cost'] / 1e6:.1f} million multiplications a row", "", *_cells(one, large, answered)]
        for name, one, answered in (("small", small, 1.0), ("large", large, 0.0))
    ]
    for below in BELOW:
        for more in ((), ("--confidence", CONFIDENCE)):
            plan = found(large["accuracy"] - below, *more)
            cells = ["cannot be certified", "", ""]
            if plan is not None:
                cells = _cells(plan["chosen"], large, plan["stages"][0]["answered"] / plan["rows"])
            lines.append([f"{large['accuracy'] - below:.4f}", *(more[1:] or ["-"]), *cells])
    return lines


def _cells(one: dict[str, Any], large: dict[str, Any], answered: float) -> list[str]:
    return [f"{100 * one['cost'] / large['cost']:.1f} %", f"{one['accuracy']:.4f}", f"{100 * answered:.1f} %"]
