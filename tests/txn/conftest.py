"""A loop whose time is a ManualClock's, a log in memory, and partitions that take markers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterator

import pytest
from group.conftest import JumpingSelector

from sparklog.errors import ApiError, ErrorCode
from sparklog.structs import TopicPartition
from sparklog.testing.clock import ManualClock
from sparklog.txn.markers import Marker


class MemoryLog:
    """``__transaction_state`` in memory. ``gate``, when set, holds every append until its future is done."""

    partition_count = 4

    def __init__(self, happened: list[object]) -> None:
        self.logs: dict[int, list[bytes]] = {each: [] for each in range(self.partition_count)}
        self.led = set(range(self.partition_count))
        self.led_elsewhere: set[int] = set()
        self.epoch = 5
        self.errors: list[ErrorCode] = []
        self.gate: Callable[[], asyncio.Future[None]] | None = None
        self.commit_gate: asyncio.Future[None] | None = None
        """What a new leader has is on the other replicas when this is done."""
        self.happened = happened

    def is_leader(self, partition: int) -> bool:
        return partition in self.led

    def is_led_elsewhere(self, partition: int) -> bool:
        return partition in self.led_elsewhere

    def leader_epoch(self, partition: int) -> int:
        return dict.fromkeys(self.logs, self.epoch)[partition]

    async def append(self, partition: int, batch: bytes) -> None:
        if self.errors:
            raise ApiError(self.errors.pop(0))
        self.logs[partition].append(batch)
        if self.gate is not None:
            await self.gate()
        self.happened.append(batch)

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        return False

    def last_marker(self, producer_id: int) -> int:
        return -1

    async def committed(self, partition: int) -> None:
        if self.errors:
            raise ApiError(self.errors.pop(0))
        if self.commit_gate is not None:
            await self.commit_gate

    async def read(self, partition: int) -> AsyncIterator[memoryview]:
        for batch in self.logs[partition]:
            yield memoryview(batch)


class MemoryMarkers:
    """Remembers what was written; ``answers`` are given first, a dict a call."""

    def __init__(self, happened: list[object]) -> None:
        self.written: list[tuple[Marker, set[TopicPartition]]] = []
        self.answers: list[dict[TopicPartition, ErrorCode]] = []
        self.gone: set[TopicPartition] = set()
        self.happened = happened

    async def write(self, marker: Marker, partitions: Collection[TopicPartition]) -> dict[TopicPartition, ErrorCode]:
        self.written.append((marker, set(partitions)))
        self.happened.append(marker)
        codes = dict.fromkeys(partitions, ErrorCode.NONE)
        return codes | (self.answers.pop(0) if self.answers else {})

    async def deleted(self, partitions: Collection[TopicPartition]) -> set[TopicPartition]:
        return self.gone.intersection(partitions)


@pytest.fixture
def happened() -> list[object]:
    """Records and markers, in the order in which they were durable."""
    return []


@pytest.fixture
def log(happened: list[object]) -> MemoryLog:
    return MemoryLog(happened)


@pytest.fixture
def markers(happened: list[object]) -> MemoryMarkers:
    return MemoryMarkers(happened)


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
