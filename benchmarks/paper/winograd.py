"""Convolutions of 3 x 3 by Winograd's method: with 2 to 3.5 times fewer multiplications than there are by definition.

An output tile of m x m comes from an input tile of a x a, a = m + 2, by polynomials that are evaluated at a points
(Toom and Cook; Lavin and Gray 2016): Y = A' [(G g G') * (B' d B)] A with A and G the powers of the points, as many as a
tile and a filter have, and B' the inverse transpose of all a powers. The product in the middle is one of matrices
for each of the a * a numbers, over all tiles and channels. The transforms around it are in `winograd.c`, compiled when
they are first needed: torch's own operations would take as long as the multiplications that are saved.
"""

import ctypes
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

POINTS = {4: (0, 1, -1, 2, -2), 3: (0, 1, -1, 2)}
"""By the side m of an output tile; infinity comes on top."""
LANES = 8


class _Tiling(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int) for name in ("n", "h", "w", "c", "m", "first", "a", "s")]


class _Matrices(NamedTuple):
    """Of the outputs (a, m), of the filters on both sides at once (a * a, 9), of the inputs (a, a)."""

    outputs: torch.Tensor
    filters: torch.Tensor
    inputs: torch.Tensor


@cache
def _matrices(m: int) -> _Matrices:
    points = torch.tensor(POINTS[m], dtype=torch.float64)[:, None]

    def powers(count: int) -> torch.Tensor:
        infinity = torch.zeros(1, count, dtype=torch.float64)
        infinity[0, -1] = 1.0
        return torch.cat([points ** torch.arange(count), infinity])

    made = powers(m), torch.kron(powers(3), powers(3)), torch.linalg.inv(powers(m + 2)).T
    return _Matrices(*(matrix.float().contiguous() for matrix in made))


@cache
def _transforms() -> ctypes.CDLL | None:
    """The compiled functions; None where there is no C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "winograd.so"
        source = Path(__file__).with_suffix(".c")
        options = ["-O3", "-march=native", "-ffast-math", "-shared", "-fPIC"]
        subprocess.run([compiler, *options, str(source), "-o", str(made)], check=True)
        return ctypes.CDLL(str(made))


def _tile(side: int) -> int:
    """The m that takes the fewest multiplications for an image of this side."""
    return min(POINTS, key=lambda m: (-(-side // m) * (m + 2)) ** 2)


def _gather(images: torch.Tensor, matrix: torch.Tensor, m: int, first: int) -> torch.Tensor:
    """(row, channel, height, width) to (number, tile, channel)."""
    images = images.contiguous(memory_format=torch.channels_last)
    rows, channels, high, wide = images.shape
    found = images.new_empty(len(matrix) ** 2, rows * -(-high // m) * -(-wide // m), channels)
    _call("gather", images, found, matrix, _tiling(images.shape, matrix, m, first))
    return found


def _scatter(values: torch.Tensor, matrix: torch.Tensor, m: int, first: int, shape: torch.Size) -> torch.Tensor:
    """The adjoint: (number, tile, channel) to images of a shape."""
    images = torch.empty(shape, memory_format=torch.channels_last).zero_()
    _call("scatter", values, images, matrix, _tiling(shape, matrix, m, first))
    return images


def _tiling(shape: torch.Size, matrix: torch.Tensor, m: int, first: int) -> _Tiling:
    rows, channels, high, wide = shape
    return _Tiling(rows, high, wide, channels, m, first, *matrix.shape)


def _call(name: str, source: torch.Tensor, target: torch.Tensor, matrix: torch.Tensor, tiling: _Tiling) -> None:
    pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (source, target, matrix)]
    getattr(_transforms(), name)(*pointers, tiling)


class _Winograd(torch.autograd.Function):
    """(images, filters) -> images of the same size; what lies outside of an image is 0."""

    @staticmethod
    def forward(ctx: Any, images: torch.Tensor, filters: torch.Tensor) -> torch.Tensor:
        m = _tile(images.shape[2])
        of = _matrices(m)
        inputs, outputs = filters.shape[1], filters.shape[0]
        turned = (of.filters @ filters.permute(2, 3, 1, 0).reshape(9, -1)).view(-1, inputs, outputs)
        tiles = _gather(images, of.inputs, m, -1)
        ctx.save_for_backward(tiles, turned)
        ctx.m, ctx.shape = m, images.shape
        shape = torch.Size((images.shape[0], outputs, *images.shape[2:]))
        return _scatter(torch.bmm(tiles, turned), of.outputs, m, 0, shape)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        (tiles, turned), of = ctx.saved_tensors, _matrices(ctx.m)
        back = _gather(gradient, of.outputs, ctx.m, 0)
        products = torch.bmm(tiles.transpose(1, 2), back)
        filters = (of.filters.T @ products.flatten(1)).view(3, 3, *products.shape[1:]).permute(3, 2, 0, 1)
        images = _scatter(torch.bmm(back, turned.transpose(1, 2)), of.inputs, ctx.m, -1, ctx.shape)
        return images, filters


class Convolution(nn.Conv2d):
    """A 3 x 3 convolution that keeps the size of images, trained by Winograd's method where that is quicker."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, 3, padding=1, bias=False)
        self.quicker = inputs % LANES == 0 and outputs % LANES == 0 and min(inputs, outputs) >= 2 * LANES

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """(row, channel, height, width) in and out."""
        if not (self.training and self.quicker and images.dtype == torch.float32 and _transforms()):
            return super().forward(images)
        outputs: torch.Tensor = _Winograd.apply(images, self.weight)  # type: ignore[no-untyped-call]
        return outputs
