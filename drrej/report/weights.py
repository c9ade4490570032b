"""The summary of `drrej weights` as plain text."""

from __future__ import annotations

from drrej.documents.summaries import WorstCaseSummary
from drrej.report.numbers import short


def render_weights(summary: WorstCaseSummary) -> str:
    """A few lines."""
    lines = [
        f"{summary.rows} rows, loss '{summary.loss}', alpha {short(summary.alpha)}",
        f"lambda            {short(summary.lam)}",
        f"divergence        {short(summary.divergence)}",
        f"risk              {short(summary.risk)}",
        f"worst-case risk   {short(summary.worst_case_risk)} (the largest loss is {short(summary.max_loss)})",
        f"largest weight    {short(summary.max_weight)} (the mean is 1)",
        f"weights of 0      {summary.zero_weights}",
        f"effective rows    {short(summary.effective_rows)}",
    ]
    return "\n".join(lines) + "\n"
