"""``GroupMetadataManager``: the groups that this broker coordinates, with their log, the loop and the clock.

Everything here belongs to the loop's thread, so nothing is locked: between two awaits a group does not change. What
must keep a group from changing over an await takes its turn.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable
from contextlib import asynccontextmanager
from itertools import islice
from typing import Any, TypeVar

from sparklog.clock import Clock, monotonic_ms
from sparklog.errors import ApiError, ErrorCode
from sparklog.group.classic.group import Group, GroupState
from sparklog.group.classic.requests import MemberIdentity
from sparklog.group.hosted import Hosted, LedPartition
from sparklog.group.offsets import build_tombstones, partition_for
from sparklog.group.storage import GROUP_STORE_ERRORS, OffsetsStore
from sparklog.net.tasks import Tasks
from sparklog.net.turns import Turns
from sparklog.protocol.slices import Steps
from sparklog.rate_limit import RateLimitedLogger

T = TypeVar("T")
_LOG = logging.getLogger(__name__)
_BURY_AGAIN_S = 10.0
_BURIED_AT_ONCE = 2000
_KEPT_AT_MOST = 16 << 20
"""Bytes of what waits for a turn though its client has hung up."""
_OF_ONE_KEPT = 1000
"""Bytes, beside its ids."""
_LONGEST_STRING = (1 << 15) - 1
"""What an id or a text may take in a record, in bytes of UTF-8."""


def fits(text: str | None) -> bool:
    """Whether a record can hold the text."""
    return text is None or len(text) * 4 <= _LONGEST_STRING or len(text.encode()) <= _LONGEST_STRING


class GroupMetadataManager:
    """``on_wake`` is called with a group at the time that ``wake`` named. The members of all groups may have ``most``
    bytes in memory.
    """

    def __init__(
        self,
        store: OffsetsStore,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        turns: Turns,
        on_wake: Callable[[Hosted], None],
        most: int,
    ) -> None:
        self._most = most
        self._warnings = RateLimitedLogger(_LOG, clock.monotonic)
        self.store = store
        self.turns = turns
        self.clock = clock
        self.loop = loop
        self.led: dict[int, LedPartition] = {}
        self._on_wake = on_wake
        self._tasks = Tasks(loop, _on_failure)
        self._kept = 0

    def now_ms(self) -> int:
        """On a clock that never goes back."""
        return monotonic_ms(self.clock)

    def partition_for(self, group_id: str) -> int:
        return partition_for(group_id, self.store.partition_count)

    def status(self, group_id: str, *, allow_empty_id: bool = False) -> ErrorCode:
        """Offsets may be kept under the empty id, as they always could; a group cannot be formed under it."""
        if not fits(group_id) or not (group_id or allow_empty_id):
            return ErrorCode.INVALID_GROUP_ID
        partition = self.partition_for(group_id)
        if not self.store.is_leader(partition):
            return ErrorCode.NOT_COORDINATOR
        led = self.led.get(partition)
        if led is None or led.is_loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ErrorCode.NONE

    def has_room(self, more: int) -> bool:
        """Whether the members of all groups may have so many bytes more; the log tells of it where they may not."""
        held = sum(led.size for led in self.led.values())
        if more <= 0 or held + more <= self._most:
            return True
        self._warnings.warn(
            "full",
            f"the members of the groups that this broker coordinates tell {held} bytes of themselves, and one that has"
            f" {more} more is to wait until there is room: sparklog.group.members.max.bytes={self._most}",
            most=1,
        )
        return False

    def find(self, group_id: str) -> Hosted | None:
        return self.led[self.partition_for(group_id)].hosted.get(group_id)

    def peek(self, group_id: str) -> Group:
        """The group, or an empty one in its place that is not kept."""
        hosted = self.find(group_id)
        return hosted.group if hosted else Group(group_id)

    def hosted(self, group_id: str) -> Hosted:
        """The group, made if need be; ``Hosted.keep`` keeps it if something came of it."""
        return self.led[self.partition_for(group_id)].host(group_id)

    @asynccontextmanager
    async def turn(self, group_id: str) -> AsyncIterator[Hosted]:
        """No other task changes the group's members meanwhile. Raises ApiError if it is not ours (any more)."""
        while True:
            error = self.status(group_id, allow_empty_id=True)
            if error is not ErrorCode.NONE:
                raise ApiError(error)
            hosted = self.hosted(group_id)
            async with hosted.turn:
                if self.is_current(hosted):
                    hosted.keep()
                    try:
                        yield hosted
                    finally:
                        self.loop.call_soon(hosted.keep)  # when the turn is over
                    return

    async def in_turn(
        self,
        group_id: str,
        act: Callable[[Hosted], Coroutine[Any, Any, T]],
        *,
        leaving: Collection[MemberIdentity] = (),
    ) -> T:
        """What ``act`` says in the group's turn; once it has that, it goes on also if the client hangs up.

        Until then it goes with its client, on whose account its memory is. Where members are ``leaving`` it stays, as
        long as that does not come to much: a client hangs up as soon as it has said so. Raises ApiError.
        """
        has_turn = False

        async def run() -> T:
            nonlocal has_turn
            async with self.turn(group_id) as hosted:
                has_turn = True
                return await act(hosted)

        work = self.spawn(run())
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            if not has_turn and not (leaving and self._keeps(work, group_id, leaving)):
                work.cancel()
            raise

    def _keeps(self, work: asyncio.Future[Any], group_id: str, leaving: Collection[MemberIdentity]) -> bool:
        """Whether there is room for it without a client."""
        ids = sum(len(each.member_id) + len(each.instance_id or "") for each in leaving)
        size = _OF_ONE_KEPT + len(group_id) + ids
        if self._kept + size > _KEPT_AT_MOST:
            return False

        def done(_: asyncio.Future[Any]) -> None:
            self._kept -= size

        self._kept += size
        work.add_done_callback(done)
        return True

    def is_current(self, hosted: Hosted) -> bool:
        """Whether the group is still coordinated here, has not been removed, and no other of its name has begun."""
        led = hosted.partition
        if self.led.get(led.number) is not led or hosted.group.state is GroupState.DEAD:
            return False
        return led.hosted.get(hosted.group.group_id, hosted) is hosted

    def wake(self, hosted: Hosted, wake_ms: int) -> None:
        """Call ``on_wake`` no later than this, if the group is still current by then."""
        if hosted.timer is not None:
            if hosted.wake_ms <= wake_ms:
                return
            hosted.timer.cancel()
        hosted.wake_ms = wake_ms
        hosted.timer = self.loop.call_later(max(wake_ms - self.now_ms(), 0) / 1000, self._woken, hosted)

    def _woken(self, hosted: Hosted) -> None:
        hosted.timer = None
        if self.is_current(hosted):  # a change that was under way may have ended after the group had gone
            self._on_wake(hosted)

    async def take(self, steps: Steps[T], group_id: str) -> T:
        """The result of what is decided about the group, while others have the loop between its steps."""
        return await self.turns.drive(steps, lambda: f"group {group_id}")

    def bury(self, led: LedPartition, keys: Iterable[bytes]) -> asyncio.Task[ErrorCode]:
        """Write tombstones; returns how that went.

        What the log refuses, as a full disk does, is written again until it takes it, but for what is there again by
        then. If this broker does not lead it for so long, the next coordinator finds what was to go, and ages it anew.
        """
        keys = list(keys)
        return self.bury_built(led, keys, build_tombstones(keys, self.clock.now_ms()))

    def bury_built(self, led: LedPartition, keys: list[bytes], batches: list[bytes]) -> asyncio.Task[ErrorCode]:
        """As ``bury``, where the tombstones are in batches already."""
        written = [self.append(led, each, "tombstones", GROUP_STORE_ERRORS) for each in batches]
        return self.spawn(self._buried(led, keys, written))

    async def _buried(
        self, led: LedPartition, keys: list[bytes], written: list[asyncio.Future[ErrorCode]]
    ) -> ErrorCode:
        error = await _worst(written)
        if error is not ErrorCode.NONE:
            led.unburied.update(dict.fromkeys(keys))
            self._bury_later(led)
        return error

    def _bury_later(self, led: LedPartition) -> None:
        if led.unburied and led.burial is None and self.led.get(led.number) is led:
            led.burial = self.loop.call_later(_BURY_AGAIN_S, self._bury_again, led)

    def _bury_again(self, led: LedPartition) -> None:
        led.burial = None
        some = {key: led.knows(key) for key in islice(led.unburied, _BURIED_AT_ONCE)}
        for key, known in some.items():
            del led.unburied[key]
            if known is None:
                led.unburied[key] = None  # behind all others
        self._bury_later(led)
        keys = [key for key, known in some.items() if known is False]
        if keys and self.led.get(led.number) is led:
            self.bury(led, keys)

    def append(
        self, led: LedPartition, batch: bytes, what: str, meanings: dict[ErrorCode, ErrorCode]
    ) -> asyncio.Future[ErrorCode]:
        """Write to the log now; done when that is replicated or has failed, at once if the log refuses it."""

        async def outcome(replicated: Coroutine[Any, Any, None]) -> ErrorCode:
            try:
                await replicated
            except Exception as error:
                return _meaning(error, what, meanings)
            return ErrorCode.NONE

        try:
            return self.spawn(outcome(self.store.append(led.number, batch)))
        except Exception as error:
            return self._known(_meaning(error, what, meanings))

    def takes(self, led: LedPartition, size: int) -> bool:
        """Whether the log may take a batch with so many bytes in it."""
        try:
            return size <= self.store.largest(led.number)
        except ApiError:  # the append will say so
            return True

    def refused(self, what: str, size: int, meanings: dict[ErrorCode, ErrorCode]) -> asyncio.Future[ErrorCode]:
        """As ``append`` of a batch that has so many bytes in it, which are more than the log takes."""
        error = ApiError(ErrorCode.RECORD_LIST_TOO_LARGE, f"it would have {size} bytes, more than max.message.bytes")
        return self._known(_meaning(error, what, meanings))

    def _known(self, error: ErrorCode) -> asyncio.Future[ErrorCode]:
        known: asyncio.Future[ErrorCode] = self.loop.create_future()
        known.set_result(error)
        return known

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Work that goes on when the client that asked for it hangs up."""
        return self._tasks.spawn(work)

    async def finish(self) -> None:
        """Let what is being written come to its end."""
        await self._tasks.finish()


def _meaning(error: Exception, what: str, meanings: dict[ErrorCode, ErrorCode]) -> ErrorCode:
    """What clients are told of a failed append; the log is told why."""
    if not isinstance(error, ApiError):  # whatever it is, the client that waits must be answered
        _LOG.error("%s: cannot write to __consumer_offsets", what, exc_info=error)
        return ErrorCode.UNKNOWN_SERVER_ERROR
    _LOG.warning("%s: cannot write to __consumer_offsets: %s", what, error)
    return meanings.get(error.code, error.code)


def _on_failure(_: str, error: BaseException) -> None:
    if not isinstance(error, ApiError):
        _LOG.error("the groups' coordinator failed in the middle of a request", exc_info=error)


async def _worst(outcomes: list[asyncio.Future[ErrorCode]]) -> ErrorCode:
    """NONE if all of them are."""
    errors = [await each for each in outcomes]
    return next((each for each in errors if each is not ErrorCode.NONE), ErrorCode.NONE)
