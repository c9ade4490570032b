"""The summary of `drrej weights` as plain text."""

from __future__ import annotations

from typing import Any


def render_weights(summary: dict[str, Any]) -> str:
    """A few lines."""
    lines = [
        f"{summary['rows']} rows, loss '{summary['loss']}', alpha {summary['alpha']:g}",
        f"lambda            {summary['lambda']:.6g}",
        f"divergence        {_g(summary['divergence'])}",
        f"risk              {_g(summary['risk'])}",
        f"worst-case risk   {_g(summary['worst_case_risk'])} (the largest loss is {_g(summary['max_loss'])})",
        f"largest weight    {_g(summary['max_weight'])} (the mean is 1)",
        f"weights of 0      {summary['zero_weights']}",
        f"effective rows    {_g(summary['effective_rows'])}",
    ]
    return "\n".join(lines) + "\n"


def _g(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"
