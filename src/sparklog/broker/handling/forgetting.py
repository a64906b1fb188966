"""To let go of what a controller has told, some of it at a time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sparklog.net.turns import Turns

_SLICE = 500


async def forget(turns: Turns, topics: Iterable[Any]) -> None:
    """Take the partitions out of the topics of a request that is answered: 100,000 at once take 40 ms to be freed."""
    for topic in topics:
        states = topic.partition_states
        async for _ in turns.paced(range(0, len(states), _SLICE)):
            del states[-_SLICE:]
