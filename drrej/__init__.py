"""drrej: classification with rejection on saved logits.

A rejector is a small document that flows through the pipeline; the data are parquet dumps::

    import drrej

    val, test = drrej.Source(["val.parquet"]), drrej.Source(["test.parquet"])
    rejector = drrej.calibrate(val)
    rejector = drrej.fit(val, rejector)
    rejector = drrej.threshold(val, rejector, drrej.Rule("coverage", 0.8))
    report = drrej.evaluate(test, rejector)

On arrays: `expected_losses`, `fit_ratio`, `RiskCoverage`. Names are imported when first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from drrej._version import __version__

if TYPE_CHECKING:
    from drrej.cluster import Cluster, ClusterEngine
    from drrej.costs import CostMatrix
    from drrej.curves import RiskCoverage
    from drrej.dro import worst_case, worst_case_in_ball
    from drrej.dumps.dump import DumpOptions
    from drrej.errors import (
        ClusterError,
        DrrejError,
        DumpError,
        GateError,
        Infeasible,
        OptionError,
        OutputError,
        RejectorError,
    )
    from drrej.gates import Gate
    from drrej.losses import expected_losses
    from drrej.output import OutputDirectory, OutputFile
    from drrej.points import Point
    from drrej.ratio import DensityRatio, fit_ratio
    from drrej.rejector import Rejector
    from drrej.steps.batch import score_batch
    from drrej.steps.calibrate import calibrate
    from drrej.steps.common import Source
    from drrej.steps.compare import Rivals, Score
    from drrej.steps.evaluate import BaselineDump, EvaluateOptions, evaluate, failed_gates
    from drrej.steps.fit import RatioOptions, fit
    from drrej.steps.regression import evaluate_regression
    from drrej.steps.reject import MaskOptions, reject
    from drrej.steps.sweep import Grid, sweep
    from drrej.steps.threshold import ThresholdOptions, threshold
    from drrej.steps.weights import weights
    from drrej.stream import Engine
    from drrej.thresholds import Rule

_HOMES = {
    "drrej.costs": ["CostMatrix"],
    "drrej.dro": ["worst_case", "worst_case_in_ball"],
    "drrej.dumps.dump": ["DumpOptions"],
    "drrej.cluster": ["Cluster", "ClusterEngine"],
    "drrej.errors": [
        "ClusterError",
        "DrrejError",
        "DumpError",
        "GateError",
        "Infeasible",
        "OptionError",
        "OutputError",
        "RejectorError",
    ],
    "drrej.gates": ["Gate"],
    "drrej.losses": ["expected_losses"],
    "drrej.curves": ["RiskCoverage"],
    "drrej.output": ["OutputDirectory", "OutputFile"],
    "drrej.points": ["Point"],
    "drrej.ratio": ["DensityRatio", "fit_ratio"],
    "drrej.rejector": ["Rejector"],
    "drrej.steps.batch": ["score_batch"],
    "drrej.steps.calibrate": ["calibrate"],
    "drrej.steps.common": ["Source"],
    "drrej.steps.compare": ["Rivals", "Score"],
    "drrej.steps.evaluate": ["BaselineDump", "EvaluateOptions", "evaluate", "failed_gates"],
    "drrej.steps.fit": ["RatioOptions", "fit"],
    "drrej.steps.regression": ["evaluate_regression"],
    "drrej.steps.reject": ["MaskOptions", "reject"],
    "drrej.steps.sweep": ["Grid", "sweep"],
    "drrej.steps.threshold": ["ThresholdOptions", "threshold"],
    "drrej.steps.weights": ["weights"],
    "drrej.stream": ["Engine"],
    "drrej.thresholds": ["Rule"],
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "BaselineDump",
    "Cluster",
    "ClusterEngine",
    "ClusterError",
    "CostMatrix",
    "DensityRatio",
    "DrrejError",
    "DumpError",
    "DumpOptions",
    "Engine",
    "EvaluateOptions",
    "Gate",
    "GateError",
    "Grid",
    "Infeasible",
    "MaskOptions",
    "OptionError",
    "OutputDirectory",
    "OutputError",
    "OutputFile",
    "Point",
    "RatioOptions",
    "Rejector",
    "RejectorError",
    "RiskCoverage",
    "Rivals",
    "Rule",
    "Score",
    "Source",
    "ThresholdOptions",
    "__version__",
    "calibrate",
    "evaluate",
    "evaluate_regression",
    "expected_losses",
    "failed_gates",
    "fit",
    "fit_ratio",
    "reject",
    "score_batch",
    "sweep",
    "threshold",
    "weights",
    "worst_case",
    "worst_case_in_ball",
]


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        return getattr(importlib.import_module(_HOME_OF[name]), name)
    raise AttributeError(f"module 'drrej' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
