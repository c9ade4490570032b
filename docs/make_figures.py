"""Make the figures of the concept pages from sample_data: python docs/make_figures.py (extra `plot`)."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pyarrow.parquet as pq

import drrej

matplotlib.use("svg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "figures"
INK, BLUE, ORANGE, GREEN, GREY = "#333333", "#3465a4", "#d9822b", "#4e9a06", "#999999"
STYLE: dict[str, Any] = {
    "svg.hashsalt": "drrej",  # the same bytes each time
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": INK,
}


def losses() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The expected losses of the sample's test rows, and which rows are classified wrongly."""
    table = pq.read_table(ROOT / "sample_data" / "noisy" / "test.parquet")
    val = pq.read_table(ROOT / "sample_data" / "noisy" / "val.parquet")
    logits, labels = _arrays(table)
    rejector = drrej.fit_rejector(*_arrays(val), coverage=0.8, loss="log")
    return rejector.score(logits).loss, logits.argmax(axis=1) != labels


def _arrays(table: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    logits = np.stack(table["logits"].to_numpy(zero_copy_only=False))
    return logits, table["label"].to_numpy()


def ratio_figure() -> str:
    """What a density ratio is: where the data are, where the idealized distribution would like them to be."""
    values, _ = losses()
    ratio = np.exp(-values)
    ratio /= ratio.mean()
    figure, (above, below) = plt.subplots(2, 1, figsize=(6.4, 4.2), sharex=True, height_ratios=[3, 2])
    bins = np.linspace(0, 1.3, 27)
    above.hist(values, bins, color=GREY, alpha=0.55, label="the data P")
    above.hist(values, bins, weights=ratio, histtype="step", color=BLUE, lw=1.6, label="the ideal Q (KL, λ = 1)")
    above.set(ylabel="rows (log scale)", yscale="log")
    above.legend(frameon=False)
    order = np.argsort(values)
    below.plot(values[order], ratio[order], color=BLUE, lw=1.6)
    cutoff = np.quantile(values, 0.9)
    tau = float(np.interp(cutoff, values[order], ratio[order]))
    below.axhline(tau, color=ORANGE, lw=1)
    below.axvspan(cutoff, 1.3, color=ORANGE, alpha=0.15, lw=0)
    below.annotate("τ", (0.02, tau), color=ORANGE, va="bottom")
    below.annotate("rejected: ratio ≤ τ, loss ≥ cutoff", (cutoff + 0.05, 0.95), color=ORANGE)
    below.set(xlabel="expected loss of a row", ylabel="ratio dQ/dP", xlim=(0, 1.3))
    return _svg(figure)


def order_figure() -> str:
    """Why α and λ do not change the order: every ratio falls as the loss grows."""
    values = np.sort(losses()[0])
    figure, axes = plt.subplots(1, 2, figsize=(6.4, 2.8), sharey=True)
    for alpha, colour in ((1.0, BLUE), (3.0, ORANGE), (5.0, GREEN)):
        axes[0].plot(values, _ratio(values, alpha, 1.0), color=colour, label=f"α = {alpha:g}")
    for lam, colour in ((0.5, GREEN), (1.0, BLUE), (4.0, ORANGE)):
        axes[1].plot(values, _ratio(values, 1.0, lam), color=colour, label=f"λ = {lam:g}")
    for axis, title in zip(axes, ("λ = 1", "α = 1 (KL)"), strict=True):
        axis.set(xlabel="expected loss", title=title, xlim=(0, 1.3))
        axis.legend(frameon=False)
    axes[0].set_ylabel("ratio")
    return _svg(figure)


def _ratio(values: np.ndarray[Any, Any], alpha: float, lam: float) -> np.ndarray[Any, Any]:
    """The ratio by bisection on its normaliser, written down from the definition: mean of exp_c(k - L'/λ) is 1."""
    c = (alpha - 1) / 2

    def of(k: float) -> np.ndarray[Any, Any]:
        w = k - values / lam
        return np.exp(w) if c == 0 else np.maximum(1 + c * w, 0) ** (1 / c)

    low, high = -50.0, 50.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if of(middle).mean() < 1 else (low, middle)
    return of(low)


def coverage_figure() -> str:
    """Accuracy of what is accepted against how much is accepted, and what a perfect rejector would reach."""
    values, wrong = losses()
    order = np.argsort(values, kind="stable")
    coverage = np.arange(1, len(values) + 1) / len(values)
    accuracy = 1 - np.cumsum(wrong[order]) / np.arange(1, len(values) + 1)
    right = 1 - wrong.mean()
    best = np.where(coverage <= right, 1.0, right / coverage)
    figure, axis = plt.subplots(figsize=(6.4, 2.8))
    axis.plot(100 * coverage, 100 * best, color=GREY, ls="--", lw=1, label="perfect rejector")
    axis.plot(100 * coverage[20:], 100 * accuracy[20:], color=BLUE, lw=1.6, label="drrej")
    axis.axhline(100 * right, color=INK, lw=0.8)
    axis.annotate("accept everything", (2, 100 * right), va="bottom", color=INK)
    axis.set(xlabel="coverage: accepted rows, %", ylabel="accuracy of these, %", xlim=(0, 100))
    axis.legend(frameon=False)
    return _svg(figure)


def _svg(figure: Any) -> str:
    text = io.StringIO()
    figure.tight_layout()
    figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    plt.close(figure)
    return text.getvalue()


FIGURES = {"ratio.svg": ratio_figure, "order.svg": order_figure, "coverage.svg": coverage_figure}

if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    with plt.rc_context(STYLE):
        for name, make in FIGURES.items():
            (FOLDER / name).write_text(make(), encoding="utf-8")
