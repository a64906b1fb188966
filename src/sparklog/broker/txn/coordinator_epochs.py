"""CoordinatorEpochs: which epochs a transaction's coordinator can have.

A coordinator's epoch is the leader epoch of its partition of ``__transaction_state``. A partition of data does not know
which of these partitions coordinates a producer, but none of them has an epoch above the highest that ZooKeeper names,
and ZooKeeper names an epoch before any leader has it. So no coordinator has written a marker that bears a higher one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from sparklog.broker.metadata_cache import MetadataCache
from sparklog.structs import TRANSACTIONS_TOPIC, TopicPartition
from sparklog.zk.client import ZkClient

_FIRST = 0


class CoordinatorEpochs:
    """``run_zk`` raises ApiError if ZooKeeper does not answer."""

    def __init__(self, metadata: MetadataCache, zk: ZkClient, run_zk: Callable[..., Awaitable[Any]]) -> None:
        self._metadata = metadata
        self._zk = zk
        self._run_zk = run_zk

    async def can_be(self, epoch: int) -> bool:
        """Whether a coordinator may have ``epoch``. ZooKeeper is asked only about one that is news. Raises ApiError."""
        return epoch <= self._known() or epoch <= await self.highest()

    def _known(self) -> int:
        topic = self._metadata.topic(TRANSACTIONS_TOPIC)
        return max((each.leader_epoch for each in topic.partitions.values()), default=_FIRST) if topic else _FIRST

    async def highest(self) -> int:
        """The highest of now, as ZooKeeper has it. Raises ApiError."""
        return int(await self._run_zk(self._read))

    def _read(self) -> int:
        assignment = self._zk.topics.assignment(TRANSACTIONS_TOPIC)
        numbers = assignment.partitions if assignment else ()
        states = self._zk.states.read(TopicPartition(TRANSACTIONS_TOPIC, each) for each in numbers)
        return max((each.leader_epoch for each in states.values()), default=_FIRST)
