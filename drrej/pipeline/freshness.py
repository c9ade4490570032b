"""Whether rows are fresh: a guarantee needs rows that calibrate and fit have not seen, a report those of no step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drrej.core.reuse import Fingerprint, Keys, Sighting, Sketch, read_fingerprint
from drrej.documents.rejector import Rejector
from drrej.errors import OptionError
from drrej.pipeline.score import Scored
from drrej.records import dataclass

_ALLOW = "use `allow_reuse=True` (it is recorded, and the guarantee does not hold)"


def calibrated_on(rejector: Rejector, rows: Sketch) -> bool:
    """Whether the temperature was fitted on rows of a sketch, as far as both sketches tell."""
    calibration = rejector.need_calibration()
    known = read_fingerprint(calibration.fingerprint, calibration.rows)
    if known is None:
        return calibration.is_fitted
    return known.judge(Sighting(rows.rows, rows.total, known.look_up(rows.keys).found)).reused


@dataclass(frozen=True)
class Seen:
    """What the steps that made a rejector have seen, as far as it tells: fingerprints, and the steps of each."""

    sets: tuple[Fingerprint, ...]
    steps: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, rejector: Rejector) -> Seen:
        """From a finished rejector."""
        calibration, ratio, threshold = rejector.need_calibration(), rejector.need_ratio(), rejector.need_threshold()
        stored = {
            "calibrate": (calibration.fingerprint, calibration.rows),
            "fit": (ratio.fingerprint, ratio.rows),
            "threshold": (threshold.fingerprint, threshold.rows),
        }
        by_set: dict[tuple[str, int], list[str]] = {}  # as a rule all steps have the same rows
        for step, (text, rows) in stored.items():
            if text and rows:
                by_set.setdefault((text, rows), []).append(step)
        read = [(read_fingerprint(*each), tuple(steps)) for each, steps in by_set.items()]
        known = [(each, steps) for each, steps in read if each is not None]
        return cls(tuple(each for each, _ in known), tuple(steps for _, steps in known))

    def look_up(self, scored: Scored) -> dict[str, Sighting]:
        """Which of these rows are among those of a block."""
        keys = scored.keys[~scored.block.bad] if self.sets else None
        return {} if keys is None else {f"seen {number}": each.look_up(keys) for number, each in enumerate(self.sets)}

    def among(self, columns: Mapping[str, Any]) -> tuple[str, ...] | None:
        """The steps that have seen some of the rows that were looked up; None if there is none."""
        known = zip(self.sets, self.steps, strict=True)
        reused = [steps for number, (each, steps) in enumerate(known) if each.judge(columns[f"seen {number}"]).reused]
        return tuple(step for steps in reused for step in steps) or None


@dataclass(frozen=True)
class Verdict:
    """Whether rows were used before, and whether that could have been noticed."""

    reused: bool
    noticeable: bool


@dataclass(frozen=True)
class Freshness:
    """What the steps before a guarantee have seen: fingerprints by step, or why there is none."""

    seen: dict[str, Fingerprint]
    unknown: str | None = None

    @classmethod
    def of(cls, rejector: Rejector) -> Freshness:
        """From the fingerprints that a rejector keeps."""
        calibration, ratio = rejector.need_calibration(), rejector.need_ratio()
        stored: dict[str, tuple[str | None, int | None]] = {"fit": (ratio.fingerprint, ratio.rows)}
        if calibration.is_fitted:
            stored["calibrate"] = (calibration.fingerprint, calibration.rows)
        seen = {}
        for step, (text, rows) in stored.items():
            known = read_fingerprint(text, rows)
            if known is None:
                return cls({}, f"the rejector does not say which rows '{step}' has seen")
            seen[step] = known
        return cls(seen)

    def look_up(self, keys: Keys) -> dict[str, Sighting]:
        """Which of the rows with these keys each step has seen."""
        return {f"seen by {step}": fingerprint.look_up(keys) for step, fingerprint in self.seen.items()}

    def check(self, columns: Mapping[str, Any], allow_reuse: bool) -> Verdict:
        """The verdict on rows that were looked up; raises unless they are fresh or reuse is allowed."""
        if self.unknown is not None:
            if not allow_reuse:
                raise OptionError(
                    f"`confidence` needs fresh rows, but {self.unknown}; make the rejector again, or {_ALLOW}"
                )
            return Verdict(reused=True, noticeable=True)
        noticeable = True
        for step, fingerprint in self.seen.items():
            found = fingerprint.judge(columns[f"seen by {step}"])
            noticeable = noticeable and found.noticeable
            if found.reused:
                if not allow_reuse:
                    raise OptionError(
                        f"`confidence` needs fresh rows, but '{step}' has seen some of these; choose the threshold on "
                        f"other rows, or {_ALLOW}"
                    )
                return Verdict(reused=True, noticeable=True)
        return Verdict(reused=False, noticeable=noticeable)
