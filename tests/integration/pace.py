"""How fast a count grows in the long run, where a quota lets it grow in bursts.

What was used under a quota is forgotten at once when all its windows have passed, so that a client may use as much
again at once: a count that is looked at twice differs by up to the quota of all windows, whatever the rate is. What
does not depend on that is how far the count lies behind an even one at most, once in each round of the windows: the
pace is even if that stays where it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

K = TypeVar("K")

_ASKED_EACH_S = 0.1


class Look(NamedTuple):
    """A count, and a time in seconds at which it was not yet higher."""

    at_s: float
    value: float


def looks(counts: Mapping[K, Callable[[], float]], seconds: float) -> dict[K, list[Look]]:
    """Looks at each count for so long. The time is the one before it is asked for, however late the answer is."""
    found: dict[K, list[Look]] = {name: [] for name in counts}
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for name, count in counts.items():
            found[name].append(Look(time.monotonic(), count()))
        time.sleep(_ASKED_EACH_S)
    return found


def pace(found: list[Look], rate: float, round_s: float) -> float:
    """A second, of a count that is to grow by ``rate``: from its lowest in the first round to its lowest in the last.

    A look that was answered late is too high, and is not the lowest one.
    """

    def behind(look: Look) -> float:
        return look.value - rate * look.at_s

    first = min((each for each in found if each.at_s < found[0].at_s + round_s), key=behind)
    last = min((each for each in found if each.at_s > found[-1].at_s - round_s), key=behind)
    return (last.value - first.value) / (last.at_s - first.at_s)
