"""drrej: classification with rejection on saved logits or probabilities.

With arrays::

    import drrej

    rejector = drrej.fit_rejector(logits, labels, accuracy=0.98)
    predicted, rejected = rejector.predict(new_logits)
    report = rejector.evaluate(test_logits, test_labels)

With files, step by step; a rejector is a small document that each step adds to::

    rejector = drrej.calibrate("val.parquet")
    rejector = drrej.fit("val.parquet", rejector)
    rejector = drrej.threshold("val.parquet", rejector, drrej.Rule("coverage", 0.8))
    report = drrej.evaluate("test.parquet", rejector)
    drrej.reject("test.parquet", rejector, "mask.parquet")

These names are what is used every day; the rest is in the modules that `docs/architecture.md` lists: `drrej.errors`,
`drrej.sklearn`, `drrej.core` for the mathematics, `drrej.engines` for clusters, `drrej.outputs` for files that appear
whole. Names are imported when first used.
"""

from __future__ import annotations

from drrej._version import __version__

TYPE_CHECKING = False  # typing's own would be the first and longest import of every command
if TYPE_CHECKING:
    from typing import Any

    from drrej.api.fitting import fit_rejector
    from drrej.api.rejector import Rejector, ScoredArrays
    from drrej.api.report import Report
    from drrej.api.steps import calibrate, evaluate, fit, reject, threshold
    from drrej.core.thresholds import Rule
    from drrej.data.dump import DumpOptions
    from drrej.documents.gates import Gate
    from drrej.errors import DrrejError, Infeasible
    from drrej.pipeline.calibrate import CalibrateOptions
    from drrej.pipeline.evaluate import EvaluateOptions
    from drrej.pipeline.fit import RatioOptions
    from drrej.pipeline.reject import MaskOptions, score_batch
    from drrej.pipeline.source import Source
    from drrej.pipeline.threshold import ThresholdOptions

__all__ = [
    "CalibrateOptions",
    "DrrejError",
    "DumpOptions",
    "EvaluateOptions",
    "Gate",
    "Infeasible",
    "MaskOptions",
    "RatioOptions",
    "Rejector",
    "Report",
    "Rule",
    "ScoredArrays",
    "Source",
    "ThresholdOptions",
    "__version__",
    "calibrate",
    "evaluate",
    "fit",
    "fit_rejector",
    "reject",
    "score_batch",
    "threshold",
]

_HOMES = {
    "drrej.api.fitting": ["fit_rejector"],
    "drrej.api.rejector": ["Rejector", "ScoredArrays"],
    "drrej.api.report": ["Report"],
    "drrej.api.steps": ["calibrate", "evaluate", "fit", "reject", "threshold"],
    "drrej.core.thresholds": ["Rule"],
    "drrej.data.dump": ["DumpOptions"],
    "drrej.documents.gates": ["Gate"],
    "drrej.errors": ["DrrejError", "Infeasible"],
    "drrej.pipeline.calibrate": ["CalibrateOptions"],
    "drrej.pipeline.evaluate": ["EvaluateOptions"],
    "drrej.pipeline.fit": ["RatioOptions"],
    "drrej.pipeline.reject": ["MaskOptions", "score_batch"],
    "drrej.pipeline.source": ["Source"],
    "drrej.pipeline.threshold": ["ThresholdOptions"],
}

_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        import importlib

        return getattr(importlib.import_module(_HOME_OF[name]), name)
    raise AttributeError(f"module 'drrej' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
