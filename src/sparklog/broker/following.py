"""Catching up with what changes in ZooKeeper: whenever it tells of a change, and every few seconds in case it did not.

A watch may be lost with its session, so whoever follows tells by the numbers of the notifications what was missed. What
could not be taken over is looked for again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from logging import Logger

from sparklog.errors import CoordinationError

_LOOK_AT_LEAST_EVERY_S = 5.0


class Notifications:
    """Which of a folder's notifications were taken over, by their numbers.

    ZooKeeper numbers them one by one. Somebody else may have put any number there, so it counts whether one is new,
    not whether it is higher than the others.
    """

    def __init__(self, numbers: Iterable[int] = ()) -> None:
        """Those that are there, all taken over."""
        self._known = set(numbers)
        self._highest = max(self._known, default=-1)

    def fresh(self, numbers: Sequence[int]) -> list[int] | None:
        """Those of the numbers, in order, that were not taken over; None where others may have been missed."""
        self._known.intersection_update(numbers)
        if numbers and numbers[-1] < self._highest:  # they begin anew
            return None
        fresh = [each for each in numbers if each not in self._known]
        is_whole = fresh == list(range(self._highest + 1, self._highest + 1 + len(fresh)))
        return fresh if is_whole else None

    def take(self, number: int) -> None:
        """It is taken over."""
        self._known.add(number)
        self._highest = number


class Following:
    """Calls ``catch_up`` on the loop, one call at a time. ``what`` is for the log: settings, lists."""

    def __init__(self, catch_up: Callable[[], Awaitable[None]], what: str, logger: Logger) -> None:
        self._catch_up = catch_up
        self._what = what
        self._logger = logger
        self._loop = asyncio.get_running_loop()
        self._look = asyncio.Event()
        self.on_change = self._told  # made once: kazoo keeps a path's watches in a set
        """To be given to a watch; ZooKeeper's thread calls it."""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Catch up from now on."""
        self._task = self._loop.create_task(self._run())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def look(self) -> None:
        """Catch up soon."""
        self._look.set()

    def _told(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._look.set)

    async def _run(self) -> None:
        while True:
            # Not wait_for: in Python 3.11 it loses a cancellation that comes together with what it waits for.
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_AT_LEAST_EVERY_S):
                    await self._look.wait()
            self._look.clear()
            try:
                await self._catch_up()
            except CoordinationError as error:
                self._logger.warning("changed %s will be looked for again: %s", self._what, error)
            except Exception:
                self._logger.exception("changed %s could not be taken over", self._what)
