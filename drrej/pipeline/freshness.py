"""Whether rows are fresh: a guarantee needs rows that calibrate and fit have not seen."""

from __future__ import annotations

from dataclasses import dataclass

from drrej.core.sketch import Fingerprint
from drrej.documents.rejector import Rejector
from drrej.errors import OptionError
from drrej.pipeline.losses import Losses

_ALLOW = "use `allow_reuse=True` (it is recorded, and the guarantee does not hold)"


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
            if not text or rows is None:
                return cls({}, f"the rejector does not say which rows '{step}' has seen")
            seen[step] = Fingerprint.parse(text, rows)
            if seen[step].old and rejector.input != "logits":
                return cls({}, f"the rejector is of an older version, whose rows of '{step}' cannot be told any more")
        return cls(seen)

    def check(self, losses: Losses, allow_reuse: bool) -> Verdict:
        """The verdict on rows that were looked up in `seen`; raises unless they are fresh or reuse is allowed."""
        if self.unknown is not None:
            if not allow_reuse:
                raise OptionError(
                    f"`confidence` needs fresh rows, but {self.unknown}; make the rejector again, or {_ALLOW}"
                )
            return Verdict(reused=True, noticeable=True)
        noticeable = True
        for (step, fingerprint), sighting in zip(self.seen.items(), losses.sightings, strict=True):
            found = fingerprint.judge(sighting)
            noticeable = noticeable and found.noticeable
            if found.reused:
                if not allow_reuse:
                    raise OptionError(
                        f"`confidence` needs fresh rows, but '{step}' has seen some of these; choose the threshold on "
                        f"other rows, or {_ALLOW}"
                    )
                return Verdict(reused=True, noticeable=True)
        return Verdict(reused=False, noticeable=noticeable)
