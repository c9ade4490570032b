"""The rejector: a small JSON document that flows through the pipeline.

Each step adds a section and drops those that come after it, so a stale threshold cannot survive a new fit.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
import sys
import types
import typing
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from drrej._version import __version__
from drrej.core.bounds import RatioBound
from drrej.core.calibrators import Calibrator, Temperature
from drrej.core.choice import Candidate
from drrej.core.losses import KINDS, Loss
from drrej.core.ratio import DensityRatio
from drrej.core.types import Floats, InputKind, Precision
from drrej.errors import OptionError, RejectorError

Task = Literal["classification", "regression"]

FORMAT = "drrej-rejector/1"
"""1: the first format."""

_FAMILY, _NUMBER = FORMAT.split("/")
_NUMBERS = re.compile(r"\[\n[-+.,eE\d\s]+\]")
"""A list of numbers in indented JSON: it goes on one line."""


@dataclass(frozen=True)
class BeforeAfter:
    """A figure before and after calibration."""

    before: float | None
    after: float | None


@dataclass(frozen=True)
class Columns:
    """The columns that later commands need not be told again; `prediction` and `target` are those of a regression."""

    logits: str
    label: str | None = None
    prediction: str | None = None
    target: str | None = None


@dataclass(frozen=True)
class Calibration:
    """The fitted temperature; `method` is "given" when it was set by hand, "none" without logits."""

    method: str
    temperature: float
    converged: bool | None = None
    rows: int | None = None
    fingerprint: str | None = None
    nll: BeforeAfter | None = None
    ece: BeforeAfter | None = None

    @property
    def calibrator(self) -> Calibrator:
        """What turns logits into calibrated scores."""
        return Temperature(self.temperature)


@dataclass(frozen=True)
class Ratio:
    """The fitted density ratio, see `drrej.core.ratio`.

    `variance` is that of the ratio on the fitted rows, `loss_quantiles` what `drrej.core.drift` keeps of their losses.
    The document has the loss's name under `loss` and its fields beside the others. `choice` is the table from which
    `auto` chose the loss.
    """

    alpha: float
    lam: float
    loss: Loss = field(metadata={"kinds": KINDS, "fields_after": "loss_quantiles"})
    log_max_ratio: float
    min_loss: float
    mean_loss: float | None
    max_loss: float
    normalizer: dict[str, float | None]
    variance: float | None
    rows: int
    fingerprint: str
    loss_quantiles: tuple[float, ...]
    choice: tuple[Candidate, ...] | None = None
    bounds: tuple[RatioBound, ...] | None = None

    @property
    def density(self) -> DensityRatio:
        """The ratio as a function of losses."""
        return DensityRatio(self.alpha, self.lam, self.log_max_ratio, self.min_loss)


@dataclass(frozen=True)
class RuleRecord:
    """The rule that chose the threshold; with `confidence`, how that is a guarantee.

    `reused` is true when rows that calibrate or fit have seen were allowed: then it is none.
    """

    kind: str
    target: float
    confidence: float | None = None
    method: str | None = None
    reused: bool | None = None


@dataclass(frozen=True)
class Bound:
    """What is guaranteed: the risk is at most, or the coverage at least, `value`, each but with chance `delta`.

    From `errors` among `accepted` of `rows` rows.
    """

    value: float
    delta: float
    rows: int
    accepted: int
    errors: int | None = None


@dataclass(frozen=True)
class GroupThreshold:
    """The decision for the rows of one group. A negative cutoff rejects all of them."""

    group: str
    tau: float | None
    cutoff: float | None
    rows: int
    accepted: int
    coverage: float
    accuracy: float | None = None
    bound: Bound | None = None


@dataclass(frozen=True)
class Threshold:
    """The decision: reject iff L' >= cutoff. `cutoff` None rejects nothing; tau is its translation.

    With `by`, a column or "prediction", each group has a cutoff of its own and `tau` and `cutoff` are None.
    """

    tau: float | None
    cutoff: float | None
    rule: RuleRecord
    rows: int
    accepted: int
    coverage: float
    accuracy: float | None = None
    bound: Bound | None = None
    by: str | None = None
    groups: tuple[GroupThreshold, ...] | None = None

    def accepts(self, losses: Floats) -> NDArray[np.bool_]:
        """Which rows are accepted."""
        if self.cutoff is None:
            return np.ones(losses.shape, bool)
        accepted: NDArray[np.bool_] = losses < np.float64(self.cutoff)
        return accepted


@dataclass(frozen=True)
class Rejector:
    """The document."""

    classes: int
    input: InputKind
    columns: Columns
    drrej_version: str = __version__
    class_names: tuple[str, ...] | None = None
    binary: bool = False
    precision: Precision = "auto"
    task: Task = field(default="classification", metadata={"silent": True})
    calibration: Calibration | None = None
    ratio: Ratio | None = None
    threshold: Threshold | None = None

    def with_calibration(self, calibration: Calibration) -> Rejector:
        """The document after `calibrate`."""
        return dataclasses.replace(self, drrej_version=__version__, calibration=calibration, ratio=None, threshold=None)

    def with_ratio(self, ratio: Ratio) -> Rejector:
        """The document after `fit`."""
        return dataclasses.replace(self, drrej_version=__version__, ratio=ratio, threshold=None)

    def with_threshold(self, threshold: Threshold) -> Rejector:
        """The document after `threshold`."""
        return dataclasses.replace(self, drrej_version=__version__, threshold=threshold)

    @property
    def calibrator(self) -> Calibrator:
        """What turns logits into calibrated scores."""
        return self.need_calibration().calibrator

    def need_calibration(self) -> Calibration:
        """The calibration, or an error that names the command to run."""
        if self.calibration is None:
            raise RejectorError("the rejector has no calibration yet; run 'drrej calibrate' first")
        return self.calibration

    @property
    def has_classes(self) -> bool:
        """Whether rows have logits; those of a regression only bring a loss of their own."""
        return self.task == "classification"

    def need_ratio(self) -> Ratio:
        """The ratio, or an error that names the command to run."""
        self.need_calibration()
        if self.ratio is None:
            raise RejectorError("the rejector has no ratio yet; run 'drrej fit' first")
        return self.ratio

    def need_threshold(self) -> Threshold:
        """The threshold, or an error that names the command to run."""
        self.need_ratio()
        if self.threshold is None:
            raise RejectorError("the rejector has no threshold yet; run 'drrej threshold' first")
        return self.threshold

    def to_json(self) -> str:
        """The document as text; numbers read back to the same float."""
        tree = {"format": FORMAT, **_to_tree(self)}
        text = json.dumps(tree, indent=2, allow_nan=False, ensure_ascii=False)
        return _NUMBERS.sub(lambda numbers: " ".join(numbers[0].split()), text) + "\n"

    @classmethod
    def from_json(cls, text: str, where: str = "rejector") -> Rejector:
        """Read a document, checking every key."""
        try:
            tree = json.loads(text, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            reason = " ".join(str(error).split())
            raise RejectorError(f"{where}: not a JSON document ({reason}); is it a rejector?") from None
        if not isinstance(tree, dict):
            raise RejectorError(f"{where}: not a rejector: a JSON object is expected")
        _check_format(tree.pop("format", None), where)
        if "task" not in tree and isinstance(tree.get("calibration"), dict):  # as written before there was a task
            tree["task"] = "regression" if tree["calibration"].get("method") == "none" else "classification"
        rejector = _from_tree(cls, tree, where, "")
        _check_values(rejector, where)
        return rejector


def _check_format(found: Any, where: str) -> None:
    if found == FORMAT:
        return
    if isinstance(found, str) and found.startswith(_FAMILY + "/"):
        raise RejectorError(f"{where}: format '{found}' is not known to drrej {__version__}; update drrej")
    raise RejectorError(f"{where}: not a rejector: its 'format' should be '{FORMAT}'")


def _check_values(rejector: Rejector, where: str) -> None:
    """Values that would otherwise fail far from their cause."""
    calibration, ratio = rejector.calibration, rejector.ratio
    names = rejector.class_names
    wrong = [
        key
        for key, good in {
            "classes": rejector.classes >= 2,
            "class_names": names is None or len(names) == rejector.classes,
            "calibration.temperature": calibration is None or is_temperature(calibration.temperature),
            "ratio.lambda": ratio is None or ratio.lam > 0,
            "threshold.groups": rejector.threshold is None
            or (rejector.threshold.by is None) == (rejector.threshold.groups is None),
            "ratio.loss": ratio is None or _loss_fits(ratio.loss, rejector.classes),
        }.items()
        if not good
    ]
    if wrong:
        raise RejectorError(f"{where}: the value of '{wrong[0]}' is out of range")
    if (ratio is not None and calibration is None) or (rejector.threshold is not None and ratio is None):
        raise RejectorError(f"{where}: a section is missing: calibration, ratio and threshold build on each other")


def is_temperature(value: float) -> bool:
    """Whether it is a positive number whose inverse is a number too."""
    return math.isfinite(value) and value >= sys.float_info.min


def _loss_fits(loss: Loss, classes: int) -> bool:
    """Whether what the document says of the loss can be used for its classes."""
    try:
        loss.check(classes)
    except OptionError:
        return False
    return True


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


RENAMED = {"lam": "lambda"}
T = TypeVar("T")


def _to_tree(node: Any) -> Any:
    """Dataclasses to dicts; fields that are None and have that as their default are left out."""
    if isinstance(node, tuple):
        return [_to_tree(item) for item in node]
    if isinstance(node, dict):
        return {key: _to_tree(item) for key, item in node.items()}
    if not dataclasses.is_dataclass(node):
        return node
    tree: dict[str, Any] = {}
    inlined: dict[str, dict[str, Any]] = {}
    for field_ in dataclasses.fields(node):
        key, value = RENAMED.get(field_.name, field_.name), getattr(node, field_.name)
        if "kinds" in field_.metadata:
            fields = _to_tree(value)
            tree[key] = fields.pop("name", value.name)
            inlined[field_.metadata["fields_after"]] = fields
        elif _is_told(field_, value):
            tree[key] = _to_tree(value)
        tree |= inlined.pop(field_.name, {})
    return tree


def _is_told(field_: dataclasses.Field[Any], value: Any) -> bool:
    """Whether a field goes into the document: not if it is None, or silent, and that is its default."""
    if value is None or field_.metadata.get("silent"):
        return field_.default is dataclasses.MISSING or value != field_.default
    return True


def _from_tree(cls: type[T], tree: Any, where: str, path: str, **known: Any) -> T:
    if not isinstance(tree, dict):
        raise RejectorError(f"{where}: '{path or 'document'}' should be an object")
    hints = typing.get_type_hints(cls)
    values: dict[str, Any] = {}
    for field_ in dataclasses.fields(cls):  # type: ignore[arg-type]  # only called with dataclasses
        key = RENAMED.get(field_.name, field_.name)
        place = f"{path}{key}"
        if key in known:
            values[field_.name] = known[key]
        elif key not in tree:
            if field_.default is dataclasses.MISSING:
                raise RejectorError(f"{where}: the key '{place}' is missing")
        elif "kinds" in field_.metadata:
            kind = field_.metadata["kinds"].get(tree[key]) if isinstance(tree[key], str) else None
            if kind is None:
                raise RejectorError(f"{where}: the value of '{place}' is out of range")
            values[field_.name] = _from_tree(kind, tree, where, path, name=tree[key])
        else:
            values[field_.name] = _read(hints[field_.name], tree[key], where, place)
    return cls(**values)


def _read(hint: Any, value: Any, where: str, place: str) -> Any:
    """Check a value against its type hint."""
    choices = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if value is None and type(None) in choices:
        return None
    (kind,) = (choice for choice in choices if choice is not type(None))
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _from_tree(kind, value, where, place + ".")
    origin = typing.get_origin(kind)
    if origin is typing.Literal:
        good = value in typing.get_args(kind)
    elif origin is tuple:
        if not isinstance(value, list):
            raise RejectorError(f"{where}: the value of '{place}' should be a list")
        item = typing.get_args(kind)[0]
        return tuple(_read(item, each, where, f"{place}[{number}]") for number, each in enumerate(value))
    elif origin is dict:
        good = isinstance(value, dict)
        if good:
            of = typing.get_args(kind)[1]
            value = {key: _read(of, item, where, f"{place}.{key}") for key, item in value.items()}
    elif kind is float:
        good = _is_number(value)
        value = float(value) if good else value
    elif kind is int:
        good = isinstance(value, int) and not isinstance(value, bool)
    else:
        good = isinstance(value, kind) and not (kind is str and _is_broken(value))
    if not good:
        raise RejectorError(f"{where}: the value of '{place}' should be {_named(kind)}, not {json.dumps(value)[:40]}")
    return value


_LARGEST = sys.float_info.max


def _is_number(value: Any) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return abs(value) <= _LARGEST


def _is_broken(text: str) -> bool:
    """Whether text holds half of a surrogate pair, which no file can."""
    return any("\ud800" <= ch <= "\udfff" for ch in text)


def _named(kind: Any) -> str:
    names = {float: "a number", int: "a whole number", str: "text", bool: "true or false"}
    return names.get(kind, "of another kind")
