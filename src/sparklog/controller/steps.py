"""Drives what is done in steps on the loop that serves all others too."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from sparklog.protocol.slices import Steps

T = TypeVar("T")
_STEPS_A_TURN = 50
"""Of a message that is being built: as many as take about a millisecond."""


async def in_steps(steps: Steps[T]) -> T:
    """What they come to; the loop serves others between."""
    while True:
        try:
            for _ in range(_STEPS_A_TURN):
                next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        await asyncio.sleep(0)
