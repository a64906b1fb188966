"""Catching up with what changes in ZooKeeper: whenever it tells of a change, and every few seconds in case it did not.

A watch may be lost with its session, so whoever follows tells by the numbers of the notifications what was missed. What
could not be taken over is looked for again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from logging import Logger
from typing import Any, Generic, Protocol, TypeVar

from sparklog.errors import CoordinationError, MalformedZnode

_LOOK_AT_LEAST_EVERY_S = 5.0
_KEPT_MS = 15 * 60 * 1000
"""Kafka 3.9, ``ZkNodeChangeNotificationListener``; by ZooKeeper's clock alone."""

RunZk = Callable[..., Awaitable[Any]]
"""Calls on another thread what waits for ZooKeeper, and comes to its end however often the connection is lost."""

Name = TypeVar("Name")
NameFound = TypeVar("NameFound", covariant=True)


class ChangeFolder(Protocol[NameFound]):
    """What ``zk.notifications.NotificationFolder`` is."""

    @property
    def session_id(self) -> int: ...
    def numbers(self, on_change: Callable[[], None] | None = None) -> list[int]: ...
    def name(self, number: int) -> NameFound | None: ...
    def forget(self, kept_ms: int) -> None: ...


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
        self.what = what
        self.logger = logger
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
                self.logger.warning("changed %s will be looked for again: %s", self.what, error)
            except Exception:
                self.logger.exception("changed %s could not be taken over", self.what)


class NamedChanges(Generic[Name]):
    """What has changed in ZooKeeper, taken over by the names that notifications tell, in the order of their numbers.

    Everything is read again where the names are not enough: in another session than before, where a number is missing
    or numbers begin anew, and where a notification does not tell a name. ``take_over`` reads what there is of a name.
    """

    def __init__(
        self,
        folders: Sequence[ChangeFolder[Name]],
        take_over: Callable[[Name], Awaitable[None]],
        run_zk: RunZk,
        following: Following,
    ) -> None:
        self._folders = folders
        self._take_over = take_over
        self._run_zk = run_zk
        self._following = following
        self._taken = tuple(Notifications() for _ in folders)
        self._session_id = 0

    async def read_all(self, read: Callable[[], Awaitable[None]]) -> None:
        """Call ``read``, which reads everything; what changes after this call began will be caught up with."""
        session_id = self._current_session
        numbers = [await self._numbers(folder) for folder in self._folders]
        await read()
        self._taken, self._session_id = tuple(map(Notifications, numbers)), session_id

    async def catch_up(self, read: Callable[[], Awaitable[None]]) -> None:
        """Take over what has changed since the last call, or else call ``read`` as ``read_all`` does."""
        for folder, taken in zip(self._folders, self._taken, strict=True):
            numbers = await self._numbers(folder)
            fresh = taken.fresh(numbers) if self._current_session == self._session_id else None
            if fresh is None or not await self._are_taken(folder, taken, fresh):
                self._following.logger.info("all %s are read again", self._following.what)
                await self.read_all(read)
                return

    @property
    def _current_session(self) -> int:
        return self._folders[0].session_id

    async def _numbers(self, folder: ChangeFolder[Name]) -> list[int]:
        numbers: list[int] = await self._run_zk(folder.numbers, self._following.on_change)
        return numbers

    async def _are_taken(self, folder: ChangeFolder[Name], taken: Notifications, fresh: Sequence[int]) -> bool:
        """Whether all of these notifications told a name, and what has changed is taken over."""
        for number in fresh:
            name = await self._name(folder, number)
            if name is None:
                return False
            await self._take_over(name)
            taken.take(number)
        if fresh:
            await self._run_zk(folder.forget, _KEPT_MS)
        return True

    async def _name(self, folder: ChangeFolder[Name], number: int) -> Name | None:
        try:
            name: Name | None = await self._run_zk(folder.name, number)
            return name
        except MalformedZnode as error:
            self._following.logger.error("a notification of changed %s is passed over: %s", self._following.what, error)
            return None
