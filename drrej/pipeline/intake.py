"""From the scores that a dump stores to logits: what they mean, and whether they are what they are said to be."""

from __future__ import annotations

import numpy as np

from drrej.core.floor import FACE_VALUE, Positives, floored_logits
from drrej.core.probabilities import (
    ProbabilityRows,
    read_binary_probabilities,
    read_log_probabilities,
    read_probabilities,
)
from drrej.core.row_keys import Keys, content_keys, logit_keys
from drrej.core.score_kinds import BINARY_REASONS, BINARY_REMEDIES, REASONS, REMEDIES, Kind, ScoreLook
from drrej.core.types import AnyFloats, Booleans, Floats, InputKind, Integers
from drrej.data.columns import PROBABILITY_NAMES
from drrej.data.dump import Block, Dump
from drrej.data.problems import Notes
from drrej.errors import DumpError, OptionError
from drrej.records import dataclass


@dataclass(frozen=True)
class Intake:
    """Reads the scores of the blocks of a dump.

    Scores are logits, or probabilities or their logarithms; then `floor` is what a probability of 0 counts as.
    """

    kind: InputKind
    binary: bool
    normalize: bool = False
    floor: float = FACE_VALUE

    @classmethod
    def of(cls, dump: Dump, floor: float | None = None) -> Intake:
        """For a dump; without a floor nothing but 0 itself is moved."""
        return cls(dump.input, dump.binary, dump.normalize, FACE_VALUE if floor is None else floor)

    def logits(self, block: Block) -> AnyFloats:
        """Logits (rows x classes) of a block; reports rows that are no probabilities."""
        if self.kind != "logits":
            return floored_logits(self.probabilities(block), self.floor)
        return _pairs(block.scores[:, 0]) if self.binary else block.scores

    def probabilities(self, block: Block) -> Floats:
        """Probabilities (rows x classes) of a block that sum to 1; reports rows that are none."""
        rows = self._read(block.scores)
        for bad in rows.bad_rows():
            fresh = bad.rows[~block.bad[bad.rows]]
            block.report(fresh, bad.what, bad.remedy, bad.example if fresh.size == bad.rows.size else "")
        block.zeros = Positives.of(rows.values).zeros
        return rows.values

    def _read(self, scores: AnyFloats) -> ProbabilityRows:
        if self.binary:
            stored = scores[:, 0]
            with np.errstate(under="ignore", over="ignore"):
                return read_binary_probabilities(np.exp(stored) if self.kind == "log-probs" else stored)
        read = read_log_probabilities if self.kind == "log-probs" else read_probabilities
        return read(scores, self.normalize)

    def look(self, block: Block, largest: Floats, negative: Booleans | None = None) -> None:
        """Note what scores look like that are taken as logits.

        `largest` is the largest logit of each row, and `negative` whether one is below 0, where that is known.
        """
        if self.kind == "logits":
            scores = block.scores
            look = ScoreLook.of_binary(scores[:, 0]) if self.binary else ScoreLook.of(scores, largest, negative)
            block.inside, block.summing, block.scaled = look.inside, look.summing, look.scaled

    def keys(self, block: Block, logits: AnyFloats, largest: Floats, first: Integers) -> Keys:
        """A number for each row by its content, from the scores as they are stored.

        `largest` and `first` are the largest logit and its class.
        """
        return logit_keys(logits, largest, first) if self.kind == "logits" else content_keys(block.scores)


def _pairs(score: AnyFloats) -> AnyFloats:
    """Logits of two classes, stored classes-first."""
    pairs = np.zeros((2, score.size), score.dtype)
    pairs[1] = score
    return pairs.T


def check_kind(dump: Dump, notes: Notes, calibrating: bool = False) -> None:
    """Raise when scores that nobody has called logits look like probabilities, percentages or counts.

    With one score per row, logits that are all positive say only that every row is of class 1, as in a dump of such
    rows: a reason to ask when the temperature is fitted, and not later.
    """
    if dump.input != "logits" or dump.input_said:
        return
    look = ScoreLook(notes.rows - notes.bad_rows, notes.inside, notes.summing, notes.scaled)
    kind = look.kind(dump.binary)
    if kind == "logits" and dump.columns.names[0].lower() in PROBABILITY_NAMES:
        raise DumpError(
            f"{dump.parts[0].name}: column '{dump.columns.pattern}' is called as probabilities are, but its rows are "
            "none; say `input=logits` if they are logits, or `input=probs` with `normalize=True`"
        )
    if kind == "logits" or (kind == "scaled" and dump.binary and not calibrating):
        return
    raise DumpError(f"{dump.parts[0].name}: column '{dump.columns.pattern}': {doubt_about(dump, kind)}")


def doubt_about(dump: Dump, kind: Kind) -> str:
    """Why scores of such a look are not taken as logits, and what to say."""
    reasons, remedies = (BINARY_REASONS, BINARY_REMEDIES) if dump.binary else (REASONS, REMEDIES)
    return f"{reasons[kind]}; {remedies[kind]}"


def check_floor(floor: float | None, dump: Dump) -> None:
    """Raise when a floor is given for logits, or is out of range."""
    if floor is None:
        return
    if dump.input == "logits":
        raise OptionError("`floor` goes with probabilities: it is what a probability of 0 counts as")
    if not 0 < floor <= 0.5 / dump.classes:
        raise OptionError(f"`floor={floor:g}`: it must be above 0 and at most 1 / (2 x {dump.classes} classes)")
