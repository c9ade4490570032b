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

from drrej._version import __version__

TYPE_CHECKING = False  # typing's own would be the first and longest import of every command
if TYPE_CHECKING:
    from typing import Any

    from drrej.core.curves import RiskCoverage
    from drrej.core.dro import worst_case, worst_case_in_ball
    from drrej.core.losses.column import ColumnLoss
    from drrej.core.losses.cost import CostLoss
    from drrej.core.losses.plain import expected_losses
    from drrej.core.ratio import DensityRatio, fit_ratio
    from drrej.core.thresholds import Rule
    from drrej.data.dump import DumpOptions
    from drrej.documents.gates import Gate
    from drrej.documents.metrics import catalogue
    from drrej.documents.points import Point
    from drrej.documents.regression import RegressionReport
    from drrej.documents.rejector import Rejector
    from drrej.documents.report import Report
    from drrej.engines.dask import DaskEngine
    from drrej.engines.dask_cluster import Cluster
    from drrej.engines.dask_security import Tls
    from drrej.engines.protocol import Engine
    from drrej.engines.threads import ThreadEngine
    from drrej.errors import (
        ClusterError,
        DrrejError,
        DumpError,
        GateError,
        Infeasible,
        OptionError,
        OutputError,
        RejectorError,
        ReportError,
    )
    from drrej.outputs.datasets import LocalDataset
    from drrej.outputs.files import OutputFile
    from drrej.pipeline.arrays import ArrayRejector, ScoredArrays, fit_rejector
    from drrej.pipeline.batch import score_batch
    from drrej.pipeline.calibrate import CalibrateOptions, calibrate
    from drrej.pipeline.compare import Rivals, Score
    from drrej.pipeline.evaluate import BaselineDump, EvaluateOptions, evaluate
    from drrej.pipeline.fit import RatioOptions, fit
    from drrej.pipeline.regression import evaluate_regression
    from drrej.pipeline.reject import MaskOptions, reject
    from drrej.pipeline.source import Source
    from drrej.pipeline.sweep import Grid, sweep
    from drrej.pipeline.threshold import ThresholdOptions, threshold
    from drrej.pipeline.weights import weights

_HOMES = {
    "drrej.core.losses.column": ["ColumnLoss"],
    "drrej.core.losses.cost": ["CostLoss"],
    "drrej.core.dro": ["worst_case", "worst_case_in_ball"],
    "drrej.data.dump": ["DumpOptions"],
    "drrej.engines.dask": ["DaskEngine"],
    "drrej.engines.dask_cluster": ["Cluster"],
    "drrej.engines.dask_security": ["Tls"],
    "drrej.engines.protocol": ["Engine"],
    "drrej.errors": [
        "ClusterError",
        "DrrejError",
        "DumpError",
        "GateError",
        "Infeasible",
        "OptionError",
        "OutputError",
        "RejectorError",
        "ReportError",
    ],
    "drrej.documents.gates": ["Gate"],
    "drrej.documents.metrics": ["catalogue"],
    "drrej.core.losses.plain": ["expected_losses"],
    "drrej.core.curves": ["RiskCoverage"],
    "drrej.outputs.datasets": ["LocalDataset"],
    "drrej.outputs.files": ["OutputFile"],
    "drrej.documents.points": ["Point"],
    "drrej.core.ratio": ["DensityRatio", "fit_ratio"],
    "drrej.documents.regression": ["RegressionReport"],
    "drrej.documents.rejector": ["Rejector"],
    "drrej.documents.report": ["Report"],
    "drrej.pipeline.arrays": ["ArrayRejector", "ScoredArrays", "fit_rejector"],
    "drrej.pipeline.batch": ["score_batch"],
    "drrej.pipeline.calibrate": ["CalibrateOptions", "calibrate"],
    "drrej.pipeline.source": ["Source"],
    "drrej.pipeline.compare": ["Rivals", "Score"],
    "drrej.pipeline.evaluate": ["BaselineDump", "EvaluateOptions", "evaluate"],
    "drrej.pipeline.fit": ["RatioOptions", "fit"],
    "drrej.pipeline.regression": ["evaluate_regression"],
    "drrej.pipeline.reject": ["MaskOptions", "reject"],
    "drrej.pipeline.sweep": ["Grid", "sweep"],
    "drrej.pipeline.threshold": ["ThresholdOptions", "threshold"],
    "drrej.pipeline.weights": ["weights"],
    "drrej.engines.threads": ["ThreadEngine"],
    "drrej.core.thresholds": ["Rule"],
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "ArrayRejector",
    "BaselineDump",
    "CalibrateOptions",
    "Cluster",
    "ClusterError",
    "ColumnLoss",
    "CostLoss",
    "DaskEngine",
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
    "LocalDataset",
    "MaskOptions",
    "OptionError",
    "OutputError",
    "OutputFile",
    "Point",
    "RatioOptions",
    "RegressionReport",
    "Rejector",
    "RejectorError",
    "Report",
    "ReportError",
    "RiskCoverage",
    "Rivals",
    "Rule",
    "Score",
    "ScoredArrays",
    "Source",
    "ThreadEngine",
    "ThresholdOptions",
    "Tls",
    "__version__",
    "calibrate",
    "catalogue",
    "evaluate",
    "evaluate_regression",
    "expected_losses",
    "fit",
    "fit_ratio",
    "fit_rejector",
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
        import importlib

        return getattr(importlib.import_module(_HOME_OF[name]), name)
    raise AttributeError(f"module 'drrej' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
