"""Whether rows are fresh: a guarantee needs rows that calibrate and fit have not seen, a report those of no step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from drrej.core.reuse import Fingerprint, Keys, Reuse, Sighting, Sketch, read_fingerprint
from drrej.documents.rejector import Calibration, Ratio, Rejector, Threshold
from drrej.errors import OptionError

BEFORE_THRESHOLD = ("fit", "calibrate")
"""The steps whose rows a guarantee must not use."""
ALL_STEPS = ("calibrate", "fit", "threshold")

_ALLOW = "use `allow_reuse=True` (it is recorded, and the guarantee does not hold)"


def calibrated_on(rejector: Rejector, rows: Sketch) -> bool:
    """Whether the temperature was fitted on rows of a sketch, as far as both sketches tell."""
    calibration = rejector.need_calibration()
    known = read_fingerprint(calibration.fingerprint, calibration.rows)
    if known is None:
        return calibration.is_fitted
    return known.judge(Sighting(rows.rows, rows.total, known.look_up(rows.keys).found)).reused


class SeenRows(Struct, frozen=True):
    """What steps that made a rejector have seen: the fingerprint of each set of rows with the names of its steps.

    `unknown` are the steps of which the rejector does not say what they have seen.
    """

    sets: tuple[tuple[tuple[str, ...], Fingerprint], ...] = ()
    unknown: tuple[str, ...] = ()

    @classmethod
    def of(cls, rejector: Rejector, steps: Sequence[str]) -> SeenRows:
        """From the fingerprints that a rejector keeps; as a rule all steps have the same rows."""
        sections: dict[str, Callable[[], Calibration | Ratio | Threshold]] = {
            "calibrate": rejector.need_calibration,
            "fit": rejector.need_ratio,
            "threshold": rejector.need_threshold,
        }
        known: dict[str, tuple[tuple[str, ...], Fingerprint]] = {}
        unknown = []
        for step in steps:
            section = sections[step]()
            fingerprint = read_fingerprint(section.fingerprint, section.rows)
            if fingerprint is not None and section.fingerprint is not None:
                others, _ = known.get(section.fingerprint, ((), None))
                known[section.fingerprint] = (*others, step), fingerprint
            elif not isinstance(section, Calibration) or section.is_fitted:
                unknown.append(step)
        return cls(tuple(known.values()), tuple(unknown))

    def look_up(self, keys: Keys) -> dict[str, Sighting]:
        """Which rows of each set are among those with these keys."""
        return {f"seen by {steps[0]}": fingerprint.look_up(keys) for steps, fingerprint in self.sets}

    def among(self, columns: Mapping[str, Any]) -> dict[tuple[str, ...], Reuse]:
        """Whether rows that were looked up were used by the steps of each set."""
        return {steps: fingerprint.judge(columns[f"seen by {steps[0]}"]) for steps, fingerprint in self.sets}

    def steps(self, columns: Mapping[str, Any]) -> tuple[str, ...] | None:
        """The steps that have seen some of the rows that were looked up; None if there is none."""
        return tuple(step for steps, reuse in self.among(columns).items() if reuse.reused for step in steps) or None

    def check_fresh(self, columns: Mapping[str, Any], allow_reuse: bool) -> Reuse:
        """Whether rows that were looked up were used; raises if they were, or may have been, unless that is allowed."""
        found = self.among(columns)
        reused = [steps[0] for steps, reuse in found.items() if reuse.reused]
        if not reused and not self.unknown:
            return Reuse(False, 0.0, all(reuse.noticeable for reuse in found.values()))
        if allow_reuse:
            return Reuse(True, 1.0, True)
        if self.unknown:
            raise OptionError(
                f"`confidence` needs fresh rows, but the rejector does not say which rows '{self.unknown[0]}' has "
                f"seen; make the rejector again, or {_ALLOW}"
            )
        raise OptionError(
            f"`confidence` needs fresh rows, but '{reused[0]}' has seen some of these; choose the threshold on other "
            f"rows, or {_ALLOW}"
        )
