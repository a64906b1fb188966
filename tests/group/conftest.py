"""A loop whose time is a ManualClock's, and a log in memory."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any

import pytest
from group.scene import Scene

from sparklog.errors import ApiError, ErrorCode
from sparklog.record.batch import RecordBatch
from sparklog.testing.clock import ManualClock


class JumpingSelector(selectors.DefaultSelector):
    """Never waits: passes the time that it was told to wait for."""

    clock: ManualClock

    def select(self, timeout: float | None = None) -> Any:
        events = super().select(0)
        if not events:
            assert timeout is not None, "everybody waits, and no timer will ever wake anyone"
            self.clock.advance(timeout)
        return events


class MemoryStore:
    """A log in memory. ``gate``, when set, holds every append until its future is done."""

    partition_count = 4
    takes = 1_048_588

    def __init__(self) -> None:
        self.logs: dict[int, list[bytes]] = {each: [] for each in range(self.partition_count)}
        self.next_offsets = dict.fromkeys(self.logs, 0)
        self.led = set(range(self.partition_count))
        self.error: ErrorCode | None = None
        self.gate: Callable[[], asyncio.Future[None]] | None = None

    def is_leader(self, partition: int) -> bool:
        return partition in self.led

    def largest(self, partition: int) -> int:
        return self.takes

    def append(self, partition: int, batch: bytes) -> Coroutine[Any, Any, None]:
        if self.error is not None:
            raise ApiError(self.error)
        self.put(partition, batch)
        return self._replicated(self.gate() if self.gate else None)

    def put(self, partition: int, batch: bytes) -> None:
        """At the end of the log."""
        placed = RecordBatch(bytearray(batch))
        placed.assign(self.next_offsets[partition], 0)
        self.next_offsets[partition] = placed.next_offset
        self.logs[partition].append(bytes(placed.buffer))

    async def _replicated(self, gate: asyncio.Future[None] | None) -> None:
        if gate is not None:
            await gate

    async def read(self, partition: int) -> AsyncIterator[memoryview]:
        for batch in self.logs[partition]:
            yield memoryview(batch)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def loop(clock: ManualClock) -> Iterator[asyncio.AbstractEventLoop]:
    """When nothing can run, its clock jumps to the next timer."""
    selector = JumpingSelector()
    selector.clock = clock
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = clock.monotonic
    yield loop
    loop.close()


@pytest.fixture
def play(loop: Any, clock: ManualClock, store: Any) -> Callable[..., None]:
    """Runs a coroutine function of a Scene."""

    def play(
        body: Callable[[Scene], Coroutine[Any, Any, None]], *, delay_ms: int = 0, loaded: bool = True, **settings: Any
    ) -> None:
        async def run() -> None:
            scene = Scene(loop, clock, store, delay_ms, **settings)
            if loaded:
                await scene.load()
            await body(scene)
            await scene.groups.close()

        loop.run_until_complete(run())

    return play
