"""Step 3: the cutoff on L', by one of the rules."""

from __future__ import annotations

import numpy as np

from drrej.metrics import RiskCoverage
from drrej.rejector import Rejector, RuleRecord, Threshold
from drrej.steps.common import Source, collect_losses
from drrej.stream import Pass
from drrej.thresholds import Rule, choose_cutoff


def threshold(source: Source, rejector: Rejector, rule: Rule) -> Rejector:
    """Add the threshold that a rule picks on these rows."""
    ratio = rejector.need_ratio()
    labelled = rule.needs_labels
    dump = source.open(rejector, labelled)
    losses = collect_losses(source, dump, rejector, ratio.loss, Pass("choosing", labelled))
    wrong = losses.wrong if losses.wrong is not None else np.zeros(losses.values.size, bool)
    points = RiskCoverage.of(losses.values[~wrong], losses.values[wrong])
    density = ratio.density
    cutoff = choose_cutoff(rule, density, points)
    accepted, errors = points.below(cutoff)
    return rejector.with_threshold(
        Threshold(
            tau=rule.target if rule.kind == "tau" else density.tau(cutoff),
            cutoff=cutoff,
            rule=RuleRecord(rule.kind, rule.target),
            rows=points.rows,
            accepted=accepted,
            coverage=accepted / points.rows,
            accuracy=(accepted - errors) / accepted if labelled and accepted else None,
        )
    )
