"""Answers that are kept for a moment: callers that ask the same at about the same time share one question.

A caller that comes while it is under way joins it, however long that takes; and when the last caller has gone, it is
cancelled. So the same is asked at most once at a time, and nothing is asked for nobody.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeVar

from sparklog.clock import Clock

T = TypeVar("T")
_KEPT = 50


class FreshAnswers:
    """Of one visitor; close it, so that no question goes on."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._answers: dict[Hashable, _Question] = {}
        self._under_way: set[asyncio.Task[Any]] = set()

    async def get(self, key: Hashable, ask: Callable[[], Awaitable[T]]) -> T:
        """What ``ask`` gave a moment ago, or gives now. What it raises is kept for nobody."""
        question = self._answers.get(key)
        if question is None or question.is_over(self._clock.monotonic()):
            question = self._begun(key, ask)
        question.waiting += 1
        try:
            answer: T = await asyncio.shield(question.task)
            return answer
        finally:
            question.waiting -= 1
            if not question.waiting and not question.task.done():
                self._give_up(key, question)

    def forget(self) -> None:
        """Something was changed: the next answers are new ones."""
        self._answers.clear()

    async def close(self) -> None:
        """Ask nothing more."""
        tasks = list(self._under_way)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begun(self, key: Hashable, ask: Callable[[], Awaitable[Any]]) -> _Question:
        question = _Question(ask, self._clock, self._seconds)
        self._under_way.add(question.task)
        question.task.add_done_callback(self._under_way.discard)
        self._answers.pop(key, None)
        self._answers[key] = question
        if len(self._answers) > _KEPT:
            del self._answers[next(iter(self._answers))]
        return question

    def _give_up(self, key: Hashable, question: _Question) -> None:
        question.task.cancel()
        if self._answers.get(key) is question:
            del self._answers[key]


class _Question:
    def __init__(self, ask: Callable[[], Awaitable[Any]], clock: Clock, seconds: float) -> None:
        self.waiting = 0
        """So many callers."""
        self._clock = clock
        self._seconds = seconds
        self._answered_at = math.inf
        self.task = asyncio.ensure_future(self._asked(ask))
        self.task.add_done_callback(_retrieve)

    def is_over(self, now: float) -> bool:
        """Whether it must be asked anew."""
        return now - self._answered_at >= self._seconds or _has_failed(self.task)

    async def _asked(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        answer = await ask()
        self._answered_at = self._clock.monotonic()
        return answer


def _has_failed(task: asyncio.Task[Any]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


def _retrieve(task: asyncio.Task[Any]) -> None:
    """Nobody may wait any more for what it raised."""
    if not task.cancelled():
        task.exception()
