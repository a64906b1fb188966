"""What one figure was on our side and on the other, round by round."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


def times_better(figure: str, ours: float, theirs: float) -> float:
    """How many times better ours is: of a rate (``.../s``) more is better, of all else less. 1 if both are 0."""
    more, less = (ours, theirs) if figure.endswith("/s") else (theirs, ours)
    return more / less if less else math.inf if more else 1.0


@dataclass
class Comparison:
    """``figure`` of ``measurement``, ours and ``peer``'s, a value a round; without a peer, ours alone.

    A figure that ends in ``/s`` is the better the more it is, any other the less.
    """

    measurement: str
    figure: str
    peer: str = ""
    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)

    def row(self) -> dict[str, Any]:
        """The best of each side; ``ratio`` is how many times better our best is, ``ratios`` the same a round."""
        row: dict[str, Any] = {"measurement": self.measurement, "figure": self.figure, "peer": self.peer}
        best: Callable[[list[float]], float] = max if self.figure.endswith("/s") else min
        row["sparklog"] = best(self.ours)
        if self.theirs:
            row["other"] = best(self.theirs)
            row["ratio"] = times_better(self.figure, row["sparklog"], row["other"])
            row["ratios"] = [times_better(self.figure, *each) for each in zip(self.ours, self.theirs, strict=False)]
        return row
