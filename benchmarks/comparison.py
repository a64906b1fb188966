"""What one figure was on our side and on the other, round by round."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


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
            row["ratio"] = self._times_better(row["sparklog"], row["other"])
            row["ratios"] = [self._times_better(*each) for each in zip(self.ours, self.theirs, strict=False)]
        return row

    def _times_better(self, ours: float, theirs: float) -> float:
        return ours / theirs if self.figure.endswith("/s") else theirs / ours
