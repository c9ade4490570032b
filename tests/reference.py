"""The same mathematics by other routes: mpmath with many digits, naive float64, brute force, the printed formulas."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import mpmath as mp
import numpy as np
from scipy.optimize import brentq, minimize_scalar

DIGITS = 40


def mp_losses(row: Sequence[float], beta: float) -> dict[str, mp.mpf]:
    """Each loss of one row of logits with many digits, from the probabilities themselves."""
    with mp.workdps(DIGITS):
        finite = [mp.mpf(float(x)) for x in row if math.isfinite(x)]  # the others have probability 0
        top, exact_beta = max(finite), mp.mpf(float(beta))
        weights = [mp.exp(exact_beta * (x - top)) for x in finite]
        total = mp.fsum(weights)
        p = [w / total for w in weights]
        largest = p.pop(p.index(max(p)))
        rest = mp.fsum(p)  # 1 - max p: no number of digits would hold max p itself
        return {
            "zero-one": rest,
            "log": -mp.log1p(-rest) * largest - mp.fsum(x * mp.log(x) for x in p if x),
            "brier": rest * (2 - rest) - mp.fsum(x * x for x in p),
            "margin": rest + max(p, default=mp.mpf(0)),
            "logit-margin": max(p, default=mp.mpf(0)) / largest,
        }


def softmax(logits: np.ndarray, temperature: float) -> np.ndarray:
    """Probabilities in float64."""
    z = np.asarray(logits, np.float64) / temperature
    p = np.exp(z - z.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


def nll(logits: np.ndarray, labels: np.ndarray, temperature: float) -> float:
    """Mean negative log-likelihood in float64."""
    z = np.asarray(logits, np.float64) / temperature
    z = z - z.max(axis=1, keepdims=True)
    return math.fsum(np.log(np.exp(z).sum(axis=1)) - z[np.arange(len(z)), labels]) / len(z)


def temperature(logits: np.ndarray, labels: np.ndarray) -> float:
    """The minimum of the NLL and the prior: Brent on log beta, then the root of the gradient, which has all digits."""
    z = np.asarray(logits, np.float64)
    d = z - z.max(axis=1, keepdims=True)
    rows = np.arange(len(d))
    prior = max(0.0, 1.0 - np.count_nonzero(z.argmax(axis=1) != labels) / 50)

    def gradient(log_beta: float) -> float:
        p = softmax(z, math.exp(-log_beta))
        by_beta = (p * np.where(np.isfinite(d), d, 0)).sum(axis=1) - d[rows, labels]
        return math.fsum([*by_beta, prior * log_beta * math.exp(-log_beta)])

    near = minimize_scalar(
        lambda t: len(d) * nll(z, labels, math.exp(-t)) + prior / 2 * t * t, bounds=(-6.9, 6.9), method="bounded"
    )
    root = brentq(gradient, near.x - 0.1, near.x + 0.1, xtol=1e-13, rtol=1e-14)
    return math.exp(-root)


def ece(logits: np.ndarray, labels: np.ndarray, temperature: float) -> float:
    """15 bins (a, b] of max p."""
    p = softmax(logits, temperature)
    confidence, right = p.max(axis=1), p.argmax(axis=1) == labels
    edges = np.linspace(0, 1, 16)
    total = 0.0
    for low, high in itertools.pairwise(edges):
        inside = (confidence > low) & (confidence <= high)
        if inside.any():
            total += inside.mean() * abs(right[inside].mean() - confidence[inside].mean())
    return float(total)


def brier(logits: np.ndarray, labels: np.ndarray, temperature: float) -> float:
    """Summed over classes."""
    p = softmax(logits, temperature)
    p[np.arange(len(p)), labels] -= 1
    return float(np.mean((p * p).sum(axis=1)))


def mp_ratio(losses: Sequence[float], alpha: float, lam: float) -> tuple[float, list[float]]:
    """(g, ratios) with 50 digits, straight from rho = (e^{c g} - c y)_+^{1/c} and mean rho = 1.

    The mean rises with g, so a change of sign proves the root whatever the solver did.
    """
    with mp.workdps(50):
        c = (mp.mpf(alpha) - 1) / 2
        smallest = mp.mpf(min(losses))
        y = [(mp.mpf(x) - smallest) / mp.mpf(lam) for x in losses]

        def ratios(g: mp.mpf) -> list[mp.mpf]:
            if c == 0:
                return [mp.exp(g - t) for t in y]
            bases = [mp.exp(c * g) - c * t for t in y]
            return [mp.exp(mp.log(b) / c) if b > 0 else mp.mpf(0) for b in bases]

        def excess(log_g: mp.mpf) -> mp.mpf:
            mean = mp.fsum(ratios(mp.exp(log_g))) / len(y)
            return (mean - 1) / (mean + 1)  # tame where the mean is huge

        low, high = mp.mpf(-100), mp.log(mp.log(len(y)))
        for _ in range(20):
            middle = (low + high) / 2
            low, high = (low, middle) if excess(middle) > 0 else (middle, high)
        root = mp.findroot(excess, (low, high), solver="anderson", tol=mp.mpf(10) ** -70, verify=False)
        margin = mp.mpf(10) ** -20
        assert excess(root - margin) < 0 < excess(root + margin)
        g = mp.exp(root)
        return float(g), [float(r) for r in ratios(g)]


def printed_chi2(losses: np.ndarray, lam: float) -> np.ndarray:
    """Corollary 4.8 with its positive part: b by brentq on the mean of [b - L'/lambda]_+."""
    scaled = losses / lam
    b = brentq(lambda b: np.maximum(b - scaled, 0).mean() - 1, scaled.min(), scaled.max() + 2, xtol=1e-14, rtol=1e-14)
    return np.maximum(b - scaled, 0)


def printed_alpha(losses: np.ndarray, alpha: float, lam: float) -> np.ndarray:
    """Corollary 4.6 for alpha > 1, positive part first: [(alpha - 1)/2 (b - L'/lambda)]_+^(2/(alpha - 1))."""
    scaled, c = losses / lam, (alpha - 1) / 2

    def ratio(b: float) -> np.ndarray:
        return np.maximum(c * (b - scaled), 0) ** (1 / c)

    low, high = scaled.min(), scaled.max() + (1 + 1 / c) * 2
    return ratio(brentq(lambda b: ratio(b).mean() - 1, low, high, xtol=1e-14, rtol=1e-14))


def curve(losses: np.ndarray, wrong: np.ndarray) -> list[tuple[int, int]]:
    """(accepted, errors) after each distinct loss, by counting."""
    return [(int((losses <= x).sum()), int(wrong[losses <= x].sum())) for x in sorted(set(losses.tolist()))]


def aurc(losses: np.ndarray, wrong: np.ndarray) -> float:
    """Trapezoid over the points, first risk extended to coverage 0."""
    points = [(n / len(losses), e / n) for n, e in curve(losses, wrong)]
    points = [(0.0, points[0][1]), *points]
    return sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in itertools.pairwise(points))


def augrc(losses: np.ndarray, wrong: np.ndarray) -> float:
    """Trapezoid of errors / n from (0, 0)."""
    points = [(0.0, 0.0), *((n / len(losses), e / len(losses)) for n, e in curve(losses, wrong))]
    return sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in itertools.pairwise(points))
