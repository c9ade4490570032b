"""The density ratio of a calibrated rejector: the step `fit`, and which loss it uses (given, learned or chosen)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict

from drrej.core.certify import error_blocks
from drrej.core.drift import loss_quantiles, ratio_moments
from drrej.core.inputs import FACE_VALUE
from drrej.core.learned_loss import learn
from drrej.core.losses import KINDS, PLAIN, ErrorLoss, Loss, PlainLoss
from drrej.core.ratio import MAX_ALPHA, fit_ratio
from drrej.core.reuse import Sketch, content_keys, key_limit
from drrej.core.softmax import NOTHING
from drrej.core.types import Precision, Total
from drrej.documents.rejector import LEAST_TEMPERATURE, LOSS_PARTS, Calibration, Columns, Ratio, Rejector
from drrej.errors import DumpError, OptionError
from drrej.pipeline.collect import collect_scored, curve_of, pieces
from drrej.pipeline.score import Scored, Scorer, check_floor
from drrej.pipeline.source import Source, without_bad_files

MOST_ROWS = 1 << 16
MOST_VALUES = 1 << 24
"""Rows, and their logits, that a loss is learned from; of more some are drawn by content, whatever their order."""

MOST_PAIRS = 4096
"""Pairs of predicted and true class that are counted."""

DIVERGENCES = {"kl": 1.0, "chi2": 3.0}

SEARCHED = ("learned", "auto")
"""Names of the loss that is learned from labelled rows."""

LOSS_NAMES = (*PLAIN, *SEARCHED, *(name for name in KINDS if name not in (*PLAIN, *SEARCHED, ErrorLoss.name)))


class RatioOptions(Struct, frozen=True):
    """The objective: divergence by alpha, the weight lambda of the divergence, and which loss.

    `loss` is a loss, or the name of one that has no parameters, or `learned` or `auto`, which need labelled rows; by
    default `auto` where rows have labels, else `log`.
    """

    alpha: float = 1.0
    lam: float = 1.0
    loss: str | Loss | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.alpha) and abs(self.alpha) <= MAX_ALPHA):
            raise OptionError(f"`alpha={self.alpha:g}`: it must be a number between {-MAX_ALPHA:g} and {MAX_ALPHA:g}")
        if not (math.isfinite(self.lam) and self.lam > 0):
            raise OptionError(f"`lam={self.lam:g}`: it must be a finite number above 0")
        if isinstance(self.loss, str) and self.loss not in (*PLAIN, *SEARCHED):
            raise OptionError(f"`loss={self.loss}`: it must be one of {', '.join(LOSS_NAMES)}")


def _learned(source: Source, rejector: Rejector, name: str) -> Loss:
    """A loss learned from labelled rows, in an order of their own, so that it does not depend on the dump's."""
    if rejector.is_scored:
        return ErrorLoss()
    if not rejector.has_classes:
        raise OptionError(f"`loss={name}` needs logits, but this rejector only has a loss column")
    dump = source.open(rejector, labelled=True)
    scorer = Scorer(rejector, dump, loss=PLAIN["zero-one"], decide=False)
    limit = key_limit(min(MOST_ROWS, MOST_VALUES // dump.classes) / dump.rows)

    def of_rows(scored: Scored) -> dict[str, Any]:
        chosen = np.flatnonzero(scored.keys <= limit)
        columns = {"key": scored.keys, "logits": scored.raw.values, "label": scored.block.labels}
        return {name: [column[chosen]] for name, column in columns.items() if column is not None}

    parts = collect_scored(source, dump, scorer, of_rows, "learning", labelled=True)
    rows = {name: np.concatenate(arrays) for name, arrays in parts.items()}
    if not rows["key"].size:
        raise DumpError(f"{dump.parts[0].name}: too few different rows to learn a loss from")
    order = np.lexsort((rows["label"], content_keys(rows["logits"]), rows["key"]))
    scores, _ = rejector.calibrator.scores(rows["logits"][order], NOTHING, rejector.precision)
    return learn(scores, rows["label"][order])


def uncalibrated(
    source: Source, temperature: float, precision: Precision = "auto", floor: float | None = None
) -> Rejector:
    """A rejector whose temperature is given instead of fitted; `floor` is what a probability of 0 counts as."""
    if not LEAST_TEMPERATURE <= temperature < math.inf:
        raise OptionError(f"`temperature={temperature:g}`: it must be a finite number above 0")
    dump = source.open(None, labelled=False)
    if dump.input == "scores":
        raise OptionError("`temperature` is for logits; a score is calibrated with 'drrej calibrate' on labelled rows")
    check_floor(floor, dump)
    if dump.input != "logits" and floor is None:
        floor = FACE_VALUE
    return source.new_rejector(dump, precision).with_sections(Calibration("given", temperature, floor=floor))


def without_logits(
    column: str, precision: Precision = "auto", prediction: str | None = None, target: str | None = None
) -> Rejector:
    """A rejector for rows that bring nothing but a loss, such as the predicted variance of a regression.

    The column is read as the one score of a row; `prediction` and `target` are remembered for `evaluate_regression`.
    """
    columns = Columns(column, prediction=prediction, target=target)
    start = Rejector(classes=2, input="logits", columns=columns, binary=True, precision=precision, task="regression")
    return start.with_sections(Calibration("none", 1.0))


@without_bad_files
def fit(source: Source, rejector: Rejector, options: RatioOptions | None = None) -> Rejector:
    """Add the density ratio. Labels are used if there are any, unless a loss other than `auto` is named.

    >>> from drrej import calibrate
    >>> val = Source("sample_data/val.parquet")
    >>> ratio = fit(val, calibrate(val), RatioOptions(alpha=3.0, loss="log")).need_ratio()
    >>> ratio.rows, ratio.loss.name, round(ratio.mean_loss, 4)  # in nats
    (1648, 'log', 0.061)
    """
    options, rejector = options or RatioOptions(), source.named(rejector)
    rejector.need_calibration()
    loss = options.loss
    if loss is None:
        elsewhere, inside = source.options.labels_from, source.open(rejector, labelled=False).label_kind
        loss = "auto" if rejector.has_classes and (elsewhere or inside) else "log"
        loss = ErrorLoss() if rejector.is_scored and loss == "log" else loss
    labelled = loss in SEARCHED
    if rejector.is_scored and not (labelled or isinstance(loss, ErrorLoss)):
        named = loss if isinstance(loss, str) else loss.name
        raise OptionError(f"`loss={named}` needs logits; the loss of a score is the probability of being wrong")
    if isinstance(loss, str):
        loss = _learned(source, rejector, loss) if labelled else PlainLoss(loss)
    loss.check(rejector.classes)
    dump = source.open(rejector, labelled=labelled)
    scorer = Scorer(rejector, dump, loss=loss, decide=False)

    def of_rows(scored: Scored) -> dict[str, Any]:
        drift = {} if loss.drift_loss is None else {"drift": scored.drift}
        wrong = {}
        if labelled and scored.block.labels is not None:
            wrong = {"wrong": scored.wrong, "pair": scored.prediction * rejector.classes + scored.block.labels}
        return {"loss": scored.loss, "sketch": Sketch.of(scored.keys, scored.coarse), **drift, **wrong}

    columns = collect_scored(source, dump, scorer, of_rows, "fitting", labelled=labelled)
    return rejector.with_sections(rejector.calibration, ratio_of(loss, columns, options, rejector.classes))


def ratio_of(loss: Loss, columns: Mapping[str, Any], options: RatioOptions, classes: int) -> Ratio:
    """The ratio of a loss, from its column, which gets sorted, and the sketch of the rows.

    There may be a column of the loss by which drift will be looked for, where that is another. If there is one of wrong
    rows, the ratio also tells how errors are spread along the losses.
    """
    drift, wrong = columns.get("drift"), columns.get("wrong")
    curve = curve_of(columns["loss"], wrong, in_place=True)
    ordered = curve.ordered
    density = fit_ratio(ordered, options.alpha, options.lam)
    total, confusions = sum((Total.of(ordered[piece]) for piece in pieces(ordered.size)), Total()), None
    moments = ratio_moments((density.log_ratio(ordered[piece]) for piece in pieces(ordered.size)), ordered.size)
    if "pair" in columns:  # the rows of each predicted and true class, unless these pairs are many
        pairs, counts = np.unique(columns["pair"], return_counts=True)
        if pairs.size <= MOST_PAIRS:
            confusions = tuple(
                zip(*(each.tolist() for each in (pairs // classes, pairs % classes, counts)), strict=True)
            )
    stored: dict[str, Any] = asdict(density) | {part: getattr(loss, part, None) for part in LOSS_PARTS}
    return Ratio(
        **stored,
        loss_name=loss.name,
        mean_loss=total.mean(ordered.size),
        max_loss=float(ordered[-1]),
        variance=moments.variance,
        third=moments.third,
        rows=ordered.size,
        fingerprint=columns["sketch"].fingerprint().text(),
        loss_quantiles=loss_quantiles(ordered),
        drift_quantiles=None if drift is None else loss_quantiles(np.sort(drift)),
        error_blocks=None if wrong is None else error_blocks(curve),
        confusions=confusions,
    )
