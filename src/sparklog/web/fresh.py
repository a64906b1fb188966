"""Answers that are kept for a moment: callers that ask the same at about the same time share one question."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeVar

from sparklog.clock import Clock

T = TypeVar("T")
_KEPT = 50


class FreshAnswers:
    """Of one visitor; close it, so that no question goes on without anybody waiting."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._answers: dict[Hashable, tuple[float, asyncio.Task[Any]]] = {}

    async def get(self, key: Hashable, ask: Callable[[], Awaitable[T]]) -> T:
        """What ``ask`` gave a moment ago, or gives now. What it raises is kept for nobody."""
        now = self._clock.monotonic()
        known = self._answers.get(key)
        if known is None or now - known[0] >= self._seconds or _has_failed(known[1]):
            known = now, asyncio.ensure_future(_asked(ask))
            known[1].add_done_callback(_retrieve)
            self._answers.pop(key, None)
            self._answers[key] = known
            if len(self._answers) > _KEPT:
                del self._answers[next(iter(self._answers))]
        answer: T = await asyncio.shield(known[1])
        return answer

    def forget(self) -> None:
        """Something was changed: the next answers are new ones."""
        self._answers.clear()

    async def close(self) -> None:
        """Ask nothing more."""
        tasks = [task for _, task in self._answers.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _asked(ask: Callable[[], Awaitable[T]]) -> T:
    return await ask()


def _has_failed(task: asyncio.Task[Any]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


def _retrieve(task: asyncio.Task[Any]) -> None:
    """Nobody may wait any more for what it raised."""
    if not task.cancelled():
        task.exception()
