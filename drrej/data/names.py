"""What columns of scores and labels are often called, in the order in which they are looked for."""

from __future__ import annotations

SCORE_NAMES = ("logits", "probs", "probabilities", "proba", "predictions", "scores")
PROBABILITY_NAMES = ("probs", "probabilities", "proba", "probability")
LABEL_NAMES = ("label", "labels", "y", "y_true", "target", "targets", "ground_truth")

SPARK_LOGITS, SPARK_PROBABILITIES = "rawPrediction", "probability"
"""Columns that Spark's classifiers add; `features` is a vector as well."""
