"""Convolutions by Winograd's method against torch's own: outputs and both gradients."""

import pytest

torch = pytest.importorskip("torch", reason="the paper's experiments train networks: pip install 'drrej[paper]'")

from benchmarks.paper import winograd  # noqa: E402 - after the check that torch is there

needs_a_compiler = pytest.mark.skipif(winograd.shutil.which("cc") is None, reason="no C compiler")


def both(layer, images, gradient):
    """(outputs, gradient by images, gradient by filters) of the layer and, in float64, of torch's convolution."""
    found = []
    for own in (layer, None):
        inputs = (images if own is not None else images.double()).clone().requires_grad_()
        filters = layer.weight if own is not None else layer.weight.detach().double().requires_grad_()
        outputs = layer(inputs) if own is not None else torch.nn.functional.conv2d(inputs, filters, padding=1)
        filters.grad = None
        outputs.backward(gradient.to(outputs.dtype))
        found.append((outputs.detach(), inputs.grad, filters.grad))
    return found


@needs_a_compiler
@pytest.mark.parametrize("side", [1, 2, 3, 4, 5, 6, 7, 8, 11, 15, 31])
@pytest.mark.parametrize("rows", [1, 3])
def test_outputs_and_gradients_are_those_of_the_convolution(side, rows):
    torch.manual_seed(side)
    layer = winograd.Convolution(16, 24)
    images, gradient = torch.randn(rows, 16, side, side), torch.randn(rows, 24, side, side)
    assert layer.quicker
    for own, expected in zip(*both(layer, images, gradient), strict=True):
        assert own.shape == expected.shape
        scale = float(expected.abs().max())
        torch.testing.assert_close(own.double(), expected, rtol=0, atol=5e-5 * scale)


@needs_a_compiler
def test_images_need_not_be_square_nor_lie_channels_last():
    torch.manual_seed(0)
    layer = winograd.Convolution(16, 16)
    images, gradient = torch.randn(2, 16, 9, 5), torch.randn(2, 16, 9, 5)
    plain = both(layer, images.contiguous(), gradient)[0]
    last = both(layer, images.contiguous(memory_format=torch.channels_last), gradient)[0]
    for own, other, expected in zip(plain, last, both(layer, images, gradient)[1], strict=True):
        assert torch.equal(own, other)
        torch.testing.assert_close(own.double(), expected, rtol=1e-4, atol=1e-4)


def test_what_the_method_cannot_do_is_left_to_torch(monkeypatch):
    """Few channels, a network that is not being trained, another type, no compiler."""
    monkeypatch.setattr(winograd._Winograd, "apply", None)  # would fail
    images = torch.randn(2, 16, 6, 6)
    assert not winograd.Convolution(3, 16).quicker
    assert not winograd.Convolution(20, 16).quicker
    layer = winograd.Convolution(16, 16)
    layer.eval()(images)
    layer.double().train()(images.double())
    monkeypatch.setattr(winograd, "_transforms", lambda: None)
    layer.float()(images)
