"""The networks and training settings of the paper's appendix.

The parameter counts in its table of sizes tell what its text leaves open, such as one batch normalisation in the
tabular networks.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional

from benchmarks.paper.data import VALIDATION_SHARE, Floats, Ints, standardised

HIDDEN = 64
CONVOLUTIONS = (16, 32)
CONVOLUTION_HIDDEN = 128

Network = Callable[[int, int, bool], nn.Module]  # (inputs, outputs, normalise the outputs) -> network


@dataclass(frozen=True)
class Settings:
    """How a network is trained. The weight decay is the one thing that is not in the paper."""

    batch: int
    learning_rate: float
    epochs: int = 40
    weight_decay: float = 1e-4
    momentum: bool = False  # SGD with Nesterov's momentum; else Adam
    one_cycle: bool = False  # the rate goes up to the learning rate and down to 0 once; else it stays there
    shift: int = 0  # training images are mirrored in every other epoch and moved at random by up to this many pixels
    small: int = 0  # the first so many epochs see images of three quarters of the width: a little over half the work


def _as_it_is(_network: nn.Module, _inputs: torch.Tensor) -> None:
    """Most networks need nothing of the data before they are trained."""


def alone(inputs: torch.Tensor) -> Sequence[torch.Tensor]:
    """Inputs as they are, and no other view of them."""
    return [inputs]


def mirrored_and_moved(images: torch.Tensor) -> Sequence[torch.Tensor]:
    """Six views of images: as they are, moved by a pixel down and right, up and left, and the mirror image of each."""
    side, padded = images.shape[2], functional.pad(images, (1, 1, 1, 1), mode="reflect")
    moved = [padded[:, :, start : start + side, start : start + side] for start in (1, 0, 2)]
    return [view for each in moved for view in (each, each.flip(3))]


@dataclass(frozen=True)
class Experiment:
    """What a dataset is trained with."""

    network: Network
    scaled: Callable[[npt.NDArray[np.generic], Ints], Floats]  # (features, training rows) -> inputs
    settings: Settings
    prepare: Callable[[nn.Module, torch.Tensor], None] = _as_it_is  # (network, training inputs), before training
    views: Callable[[torch.Tensor], Sequence[torch.Tensor]] = alone  # of inputs; the mean of their logits is dumped
    validation: float = VALIDATION_SHARE  # of the rows that are not test rows


def tabular(inputs: int, outputs: int, normalised: bool = False) -> nn.Sequential:
    """Two hidden layers of 64 with sigmoids."""
    return nn.Sequential(nn.Linear(inputs, HIDDEN), nn.Sigmoid(), *shallow(HIDDEN, outputs, normalised))


def shallow(inputs: int, outputs: int, normalised: bool = False) -> nn.Sequential:
    """One hidden layer of 64: the smaller networks of the paper's appendix."""
    return nn.Sequential(
        nn.Linear(inputs, HIDDEN),
        nn.BatchNorm1d(HIDDEN),
        nn.Sigmoid(),
        nn.Linear(HIDDEN, outputs),
        *_normalisation(outputs, normalised),
    )


def _normalisation(outputs: int, normalised: bool) -> list[nn.Module]:
    return [nn.BatchNorm1d(outputs)] if normalised else []


class Flat(nn.Module):
    """Images to vectors, channels last: the order in which they lie in memory, so that nothing is moved."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """(row, channel, height, width) in, (row, number) out."""
        return images.permute(0, 2, 3, 1).flatten(1)


def convolutional(inputs: int, outputs: int, normalised: bool = False) -> nn.Module:
    """PyTorch's MNIST example with sigmoids in place of its rectifiers, for images of 28 x 28.

    It has half of the example's channels and halves the image at its first layer, so that an epoch takes a tenth of the
    time.
    """
    first, second = CONVOLUTIONS
    network = nn.Sequential(
        nn.Conv2d(inputs, first, 5, stride=2),
        nn.Sigmoid(),
        nn.Conv2d(first, second, 3),
        nn.MaxPool2d(2),  # before the sigmoid, not after: the same numbers for a quarter of the work
        nn.Sigmoid(),
        nn.Dropout(0.25),
        Flat(),
        nn.Linear(second * 5 * 5, CONVOLUTION_HIDDEN),
        nn.Sigmoid(),
        nn.Dropout(0.5),
        nn.Linear(CONVOLUTION_HIDDEN, outputs),
        *_normalisation(outputs, normalised),
    )
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # a third quicker on a CPU
    return network


class Compact(nn.Module):
    """A residual network for 32 x 32 images that one core trains in less than an hour.

    The first layer is fixed: it turns patches of 2 x 2 pixels into uncorrelated numbers of variance 1 and their
    negatives, which spares the epochs a network needs to learn as much. Then three groups, each a convolution that
    halves the image and one with a shortcut past it. An eighth of the last layer's outputs are the logits, so that the
    first steps of a high learning rate do not saturate the softmax.
    """

    WIDTHS = (64, 256, 256)
    OUTPUT_SCALE = 0.125

    def __init__(self, inputs: int, outputs: int, normalised: bool = False) -> None:
        super().__init__()
        whitened = 2 * inputs * 4
        self.white = nn.Conv2d(inputs, whitened, 2)
        self.white.weight.requires_grad = False
        halves, shortcuts, before = [], [], whitened
        for width in self.WIDTHS:
            halves.append(nn.Sequential(_convolution(before, width), nn.MaxPool2d(2), nn.BatchNorm2d(width), nn.GELU()))
            shortcuts.append(nn.Sequential(_convolution(width, width), nn.BatchNorm2d(width), nn.GELU()))
            before = width
        self.halves, self.shortcuts = nn.ModuleList(halves), nn.ModuleList(shortcuts)
        self.last = nn.Sequential(nn.Linear(before, outputs, bias=False), *_normalisation(outputs, normalised))
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """(row, channel, 32, 32) in, (row, output) out."""
        images = functional.gelu(self.white(images))
        for half, shortcut in zip(self.halves, self.shortcuts, strict=True):
            images = half(images)
            images = images + shortcut(images)
        outputs: torch.Tensor = self.last(images.amax(dim=(2, 3))) * self.OUTPUT_SCALE
        return outputs


class Small(Compact):
    """The same with few channels, for a cascade."""

    WIDTHS = (8, 16, 32)


def _convolution(inputs: int, outputs: int) -> nn.Module:
    layer = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
    nn.init.dirac_(layer.weight[:inputs])  # passes its inputs on, as far as there are outputs
    return layer


def whiten(network: nn.Module, inputs: torch.Tensor, rows: int = 5000, ridge: float = 5e-4) -> None:
    """Set the first layer of a `Compact` network from patches of the first `rows` training images."""
    assert isinstance(network, Compact)
    layer = network.white
    patches = functional.unfold(inputs[:rows].contiguous(), layer.kernel_size)  # type: ignore[arg-type]
    patches = patches.transpose(1, 2).reshape(-1, patches.shape[1]).double()
    values, vectors = torch.linalg.eigh(patches.T @ patches / len(patches))
    filters = (vectors / torch.sqrt(values + ridge)).T.reshape(-1, *layer.weight.shape[1:])
    with torch.no_grad():
        layer.weight.copy_(torch.cat([filters, -filters]))
        assert layer.bias is not None
        layer.bias.zero_()


def pixels(images: npt.NDArray[np.generic], train: Ints) -> Floats:
    """Images as (row, channel, height, width), scaled by one mean and one deviation of all training pixels."""
    channels = images[:, None] if images.ndim == 3 else np.moveaxis(images, 3, 1)
    values = channels.astype(np.float32) / 255
    mean, std = values[train].mean(dtype=np.float64), values[train].std(dtype=np.float64)
    scaled: Floats = (values - np.float32(mean)) / np.float32(std)
    return scaled


TABULAR = Experiment(tabular, standardised, Settings(batch=64, learning_rate=1e-4))
SMALLER = Experiment(shallow, standardised, Settings(batch=64, learning_rate=1e-4))
EXPERIMENTS = {
    "har": TABULAR,
    "gas_drift": TABULAR,
    "har_small": SMALLER,
    "gas_drift_small": SMALLER,
    "mnist": Experiment(convolutional, pixels, Settings(batch=128, learning_rate=1e-2, epochs=8, one_cycle=True)),
    "cifar10": Experiment(
        Compact,
        pixels,
        Settings(
            batch=256,
            learning_rate=0.3,
            epochs=14,
            weight_decay=1e-3,
            momentum=True,
            one_cycle=True,
            shift=2,
            small=9,
        ),
        prepare=whiten,
        views=mirrored_and_moved,
        validation=0.1,
    ),
}
