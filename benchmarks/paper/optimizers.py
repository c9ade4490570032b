"""What changes the weights of a network, step by step."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from benchmarks.paper.networks import Settings

MOMENTUM = 0.9
FILTER_MOMENTUM = 0.8
WARM_UP = 0.2

_ROUNDS = 3
_POLYNOMIAL = (3.4445, -4.7750, 2.0315)
"""Of Muon: a x + b x^3 + c x^5 brings singular values up to 1 near to it in a few rounds."""


def optimizers(model: nn.Module, settings: Settings, fused: bool) -> list[torch.optim.Optimizer]:
    """Those of a network's parameters, each of which has one."""
    learnt = [parameter for parameter in model.parameters() if parameter.requires_grad]
    filters = [parameter for parameter in learnt if parameter.ndim == 4 and settings.filter_rate]
    others = [parameter for parameter in learnt if not any(parameter is known for known in filters)]
    given: dict[str, Any] = {"lr": settings.learning_rate, "weight_decay": settings.weight_decay, "fused": fused}
    if settings.momentum:
        found: torch.optim.Optimizer = torch.optim.SGD(others, momentum=MOMENTUM, nesterov=True, **given)
    else:
        found = torch.optim.Adam(others, **given)
    return [found, Muon(filters, settings.filter_rate)] if filters else [found]


def set_rates(found: Iterable[torch.optim.Optimizer], settings: Settings, done: float) -> None:
    """Learning rates when a share `done` of all steps is done."""
    for optimizer in found:
        for group in optimizer.param_groups:
            if isinstance(optimizer, Muon):
                group["lr"] = settings.filter_rate * (1 - done)
            elif settings.one_cycle:
                group["lr"] = settings.learning_rate * one_cycle(done)


def one_cycle(done: float) -> float:
    """Share of the highest learning rate when a share `done` of all steps is done: up for a fifth, then down to 0."""
    return done / WARM_UP if done < WARM_UP else (1 - done) / (1 - WARM_UP)


class Muon(torch.optim.Optimizer):
    """For filters of convolutions: a step is the gradient with its singular values made equal (Jordan et al., 2024).

    All directions so learn at one speed, which spares epochs. The length of the filters says nothing where batch
    normalisation follows, and is kept at one value.
    """

    def __init__(self, filters: Iterable[nn.Parameter], lr: float) -> None:
        super().__init__(filters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One step; there is no closure to be called again."""
        assert closure is None
        for group in self.param_groups:
            for weights in group["params"]:
                state = self.state[weights]
                if not state:
                    state["mean"] = torch.zeros_like(weights)
                mean = state["mean"].mul_(FILTER_MOMENTUM).add_(weights.grad)
                step = weights.grad.add(mean, alpha=FILTER_MOMENTUM).flatten(1)
                weights.mul_(len(weights) ** 0.5 / weights.norm())
                weights.sub_(orthogonal(step).view_as(weights), alpha=group["lr"])


def orthogonal(matrix: torch.Tensor) -> torch.Tensor:
    """A matrix with the same singular vectors, and singular values near 1."""
    turned = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    near = turned / (turned.norm() + 1e-7)
    first, third, fifth = _POLYNOMIAL
    for _ in range(_ROUNDS):
        square = near @ near.T
        near = first * near + (third * square + fifth * square @ square) @ near
    return near if turned is matrix else near.T
