"""The paper's four baselines, each from the formula of its own paper, with a network for each cost.

c is the cost of rejecting a row, in (0, 1/2). Softmax probabilities are p, of K classes and a class K + 1 that stands
for rejection; g and r are outputs without a softmax.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

from benchmarks.paper.data import Floats
from benchmarks.paper.networks import Settings
from benchmarks.paper.training import Task, fit_base, outputs_of, train, write_dump, write_record

GCE_Q = 0.7

Bools = npt.NDArray[np.bool_]


def costs(count: int) -> list[float]:
    """`count` of the paper's 49 costs 0.01 ... 0.49, as equidistant in (0, 1/2) as they can be."""
    return [round(50 * number / (count + 1)) / 100 for number in range(1, count + 1)]


def defer_loss(outputs: torch.Tensor, labels: torch.Tensor, cost: float) -> torch.Tensor:
    """-log p_y - (1 - c) log p_{K+1}: Mozannar and Sontag, Consistent estimators for learning to defer to an expert."""
    log_p = functional.log_softmax(outputs, dim=1)
    return -_of_label(log_p, labels) - (1 - cost) * log_p[:, -1]


def gce_loss(outputs: torch.Tensor, labels: torch.Tensor, cost: float) -> torch.Tensor:
    """H(p_y) + (1 - c) H(p_{K+1}) with the generalised cross-entropy H(p) = (1 - p^q) / q.

    Cao et al., Generalizing consistent multi-class classification with rejection.
    """
    entropy = (1 - torch.exp(GCE_Q * functional.log_softmax(outputs, dim=1))) / GCE_Q
    return _of_label(entropy, labels) + (1 - cost) * entropy[:, -1]


def css_loss(outputs: torch.Tensor, labels: torch.Tensor, cost: float) -> torch.Tensor:
    """Of a row, c s(g_y) + (1 - c) sum of s(-g) over the other classes, with the sigmoid loss s(m) = 1 / (1 + e^m).

    Charoenphakdee et al., Classification with rejection based on cost-sensitive classification.
    """
    positive = torch.sigmoid(outputs)  # s(-g)
    own = _of_label(positive, labels)
    return cost * (1 - own) + (1 - cost) * (positive.sum(dim=1) - own)


def predrej_loss(outputs: torch.Tensor, wrong: torch.Tensor, cost: float) -> torch.Tensor:
    """[h(x) wrong] e^r + c e^-r; the "label" of a row is 1 where the base network h is wrong, else 0.

    Mao, Mohri and Zhong, Predictor-rejector multi-class abstention (two-stage, exponential loss).
    """
    score = outputs[:, 0]
    return wrong * torch.exp(score) + cost * torch.exp(-score)


def _of_label(values: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return values.gather(1, labels[:, None])[:, 0]


def last_is_largest(outputs: Floats) -> Bools:
    """The class K + 1 wins; a tie goes to a true class."""
    return np.asarray(outputs.argmax(axis=1) == outputs.shape[1] - 1)


def not_one_positive(outputs: Floats) -> Bools:
    """No class has a positive score, or more than one has."""
    return np.asarray((outputs > 0).sum(axis=1) != 1)


def not_positive(outputs: Floats) -> Bools:
    """The rejector's score is at most 0."""
    return np.asarray(outputs[:, 0] <= 0)


@dataclass(frozen=True)
class Baseline:
    """How a baseline learns and how it rejects.

    `two_stage` learns a rejector beside the frozen base network; the others learn classes and rejection together.
    """

    loss: Callable[[torch.Tensor, torch.Tensor, float], torch.Tensor]  # (outputs, labels, cost) -> of each row
    rejects: Callable[[Floats], Bools]
    more_outputs: int = 1
    normalised: bool = False
    two_stage: bool = False


BASELINES: dict[str, Baseline] = {
    "predrej": Baseline(predrej_loss, not_positive, two_stage=True),
    "css": Baseline(css_loss, not_one_positive, more_outputs=0, normalised=True),
    "defer": Baseline(defer_loss, last_is_largest),
    "gce": Baseline(gce_loss, last_is_largest),
}


def train_baseline(task: Task, name: str, cost: float, settings: Settings, work: Path) -> dict[str, Any] | None:
    """Train a baseline at one cost, write its `test` dump and give its record; none where it has been done before.

    The column `logits` holds the scores of the K classes and `rejected` the baseline's own decision.
    """
    folder = task.folder(work) / name / f"cost-{cost:.4f}"
    if (folder / "training.json").is_file():
        return None
    method, rows, inputs = BASELINES[name], task.rows(), task.inputs()
    labels, base = torch.from_numpy(task.training_labels()), None
    if method.two_stage:
        base = fit_base(task, settings, inputs, work).model
        labels = (torch.from_numpy(outputs_of(base, inputs[rows.train]).argmax(axis=1)) != labels).float()
    outputs = method.more_outputs + (0 if base else task.dataset.classes)
    trained = train(
        partial(task.network, inputs, outputs, method.normalised),
        inputs[rows.train],
        labels,
        settings,
        lambda out, own: method.loss(out, own, cost).mean(),
        task.seeds()["training"],
    )
    views = task.experiment.views
    scores = outputs_of(trained.model, inputs[rows.test], views)
    logits = scores[:, : task.dataset.classes] if base is None else outputs_of(base, inputs[rows.test], views)
    rejected = method.rejects(scores)
    write_dump(folder / "test.parquet", rows.test, logits, task.dataset.labels[rows.test], rejected=rejected)
    coverage = float(np.mean(~rejected))
    return write_record(folder, task, settings, trained, method=name, cost=cost, coverage=coverage)
