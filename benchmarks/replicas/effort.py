"""How much of each part is run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Effort:
    """``share`` is that of each part's load; ``rounds`` caps the rounds of each part.

    ``failing`` are the partitions of the topics whose leaders die; all but the first count in the first round alone.
    """

    share: float
    rounds: int
    failing: tuple[int, ...]

    def of(self, count: int, least: int = 1) -> int:
        return max(least, int(count * self.share))
