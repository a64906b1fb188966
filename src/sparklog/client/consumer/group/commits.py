"""When a consumer commits without being waited for: auto-commit, and commits whose callback runs in a later poll.

A callback that was cut short counts as not called, like those of rebalances.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from sparklog.client.consumer.config import ConsumerConfig
from sparklog.client.consumer.group.committed import AutoCommit, Offsets
from sparklog.client.consumer.group.offsets import GroupOffsets
from sparklog.clock import Clock
from sparklog.errors import SparklogError

_LEAST_WAIT = 0.02
"""Seconds. The interval may be nothing, and a commit under way for longer than that: the next is due all the time."""

CommitCallback = Callable[[Offsets, SparklogError | None], Any]


class Commits:
    """The commits under way of one consumer. ``news`` is set when a callback has something to be told."""

    def __init__(self, offsets: GroupOffsets, config: ConsumerConfig, clock: Clock, news: asyncio.Event) -> None:
        self._offsets = offsets
        self._clock = clock
        self._news = news
        self._retry_pause = config.retry_backoff_ms / 1000
        self._schedule = AutoCommit(config.auto_commit_interval, clock.monotonic())
        self._auto: asyncio.Task[SparklogError | None] | None = None
        self._tasks: set[asyncio.Task[SparklogError | None]] = set()
        self._settled: deque[tuple[CommitCallback, Offsets, SparklogError | None]] = deque()

    def start(self, offsets: Offsets, callback: CommitCallback | None) -> None:
        """Commit; the callback is told by the next ``tell`` after that."""
        task = self._offsets.start(offsets)
        self._tasks.add(task)
        task.add_done_callback(partial(self._settle, offsets, callback))

    def _settle(
        self, offsets: Offsets, callback: CommitCallback | None, task: asyncio.Task[SparklogError | None]
    ) -> None:
        self._tasks.discard(task)
        if callback is not None and not task.cancelled():
            self._settled.append((callback, offsets, task.result()))
            self._news.set()

    async def tell(self) -> None:
        """Run the callbacks of what has been settled."""
        while self._settled:
            callback, offsets, failure = told = self._settled.popleft()
            try:
                result = callback(offsets, failure)
                if inspect.isawaitable(result):
                    await result
            except BaseException as error:
                if not isinstance(error, Exception):
                    self._settled.appendleft(told)
                raise

    def start_auto_commit(self) -> None:
        """Commit the positions as they are now, if it is time; after a failure sooner than after a success."""
        now = self._clock.monotonic()
        if self._auto is not None and self._auto.done():
            if self._auto.result() is not None:
                self._schedule.postpone(now, self._retry_pause)
            self._auto = None
        if self._auto is None and self._schedule.due(now):
            self._auto = self._offsets.start_auto_commit()

    @property
    def seconds_left(self) -> float:
        """How long to wait for the next auto-commit."""
        return max(_LEAST_WAIT, self._schedule.seconds_left(self._clock.monotonic()))

    async def finish(self) -> None:
        """Wait for what is under way, and tell of all of it; what the first callback raised is raised then."""
        await asyncio.gather(*self._tasks, *([self._auto] if self._auto else []), return_exceptions=True)
        failure = None
        while self._settled:
            try:
                await self.tell()
            except Exception as error:
                failure = failure or error
        if failure is not None:
            raise failure
