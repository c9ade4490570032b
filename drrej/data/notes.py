"""What is noticed about rows besides their results."""

from __future__ import annotations

from drrej.records import dataclass


@dataclass
class Notes:
    """Counts of rows and of what is odd about them. They add: `Notes()` is neutral, and the order does not matter.

    `zeros` are probabilities of 0, `left_out` rows without a label; of rows of scores that are to be taken as logits,
    `inside` counts those that lie in [0, 1], `summing` those of them that sum to 1, `scaled` percentages and counts.

    >>> Notes(rows=3, zeros=1) + Notes(rows=2, bad_rows=1)
    Notes(rows=5, zeros=1, bad_rows=1, left_out=0, inside=0, summing=0, scaled=0)
    """

    rows: int = 0
    zeros: int = 0
    bad_rows: int = 0
    left_out: int = 0
    inside: int = 0
    summing: int = 0
    scaled: int = 0

    def __add__(self, other: Notes) -> Notes:
        yours = vars(other)
        return Notes(**{name: mine + yours[name] for name, mine in vars(self).items()})

    def see(self, other: Notes) -> None:
        """Keep what another pass over the same rows noticed: the same things, if it looked for them."""
        for name, value in vars(other).items():
            setattr(self, name, max(getattr(self, name), value))
