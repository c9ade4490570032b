"""What columns of scores and labels are often called, in the order in which they are looked for."""

from __future__ import annotations

SCORE_NAMES = ("logits", "probs", "probabilities", "proba", "predictions", "scores")
PROBABILITY_NAMES = ("probs", "probabilities", "proba", "probability")
LABEL_NAMES = ("label", "labels", "y", "y_true", "target", "targets", "ground_truth")

LIGHTEVAL_SCORES, LIGHTEVAL_LABEL, LIGHTEVAL_CHOICES = "model_response.logprobs", "doc.gold_index", "doc.choices"
"""Paths in the details that lighteval writes: of the log-likelihoods of the choices, the right one, and their texts."""

CHOICES = b"drrej choices"
"""Marks a field of scores whose lists have different lengths; its value is the greatest, if it is known."""

SPARK_LOGITS, SPARK_PROBABILITIES = "rawPrediction", "probability"
"""Columns that Spark's classifiers add; `features` is a vector as well."""
