"""All that this broker copies: a fetcher for each leader, or several."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from zlib import crc32

from sparklog.broker.metadata_cache import MetadataCache
from sparklog.broker.replication.fetcher import Leader, ReplicaFetcher, Ways
from sparklog.clock import Clock
from sparklog.config.broker import BrokerConfig
from sparklog.errors import ApiError
from sparklog.net.tasks import Tasks
from sparklog.net.turns import Turns
from sparklog.net.vigil import Looks, Sight
from sparklog.replica.manager import ReplicaManager
from sparklog.security.connecting import PLAIN, ConnectionSecurity
from sparklog.structs import NO_LEADER, Endpoint, TopicPartition

_logger = logging.getLogger(__name__)
_DOUBTED_S = 5.0
"""Longer than a controller needs to find out that a broker is gone whose process has ended."""


class Fetchers:
    """Belongs to the loop's thread. A fetcher that has nothing left to copy hangs up."""

    def __init__(
        self,
        config: BrokerConfig,
        metadata: MetadataCache,
        replicas: ReplicaManager,
        turns: Turns,
        clock: Clock,
        broker_epoch: Callable[[], int | None],
        looks: Looks,
        security: ConnectionSecurity = PLAIN,
    ) -> None:
        """``security`` is that of the connections to leaders."""
        self._config = config
        self._metadata = metadata
        self._replicas = replicas
        self._turns = turns
        self._clock = clock
        self._broker_epoch = broker_epoch
        self._looks = looks
        self._ways = Ways(self._where, security)
        self._refused_since: dict[int, float] = {}
        self._fetchers: dict[Leader, ReplicaFetcher] = {}
        self._by_partition: dict[TopicPartition, Leader] = {}
        self._closings = Tasks(
            asyncio.get_running_loop(), lambda _, error: _logger.error("hanging up failed", exc_info=error)
        )

    @property
    def max_lag(self) -> int:
        """The most offsets that one partition lacks of what its leader last said to be committed."""
        return max((each.max_lag for each in self._fetchers.values()), default=0)

    def look_at(self, tp: TopicPartition) -> None:
        """Copy the partition from the leader that it has now; no longer, if it has none, or leads, or is gone."""
        try:
            partition = self._replicas.partition(tp)
        except ApiError:
            self.leave(tp)
            return
        if partition.is_leader or partition.leader == NO_LEADER:
            self.leave(tp)
            return
        leader = Leader(partition.leader, crc32(str(tp).encode()) % self._config.num_replica_fetchers)
        if self._by_partition.get(tp) != leader:
            self.leave(tp)
        self._by_partition[tp] = leader
        if leader not in self._fetchers:
            self._fetchers[leader] = self._make(leader)
        self._fetchers[leader].follow(tp, partition.leader_epoch)

    def leave(self, tp: TopicPartition) -> None:
        """Copy the partition no longer."""
        leader = self._by_partition.pop(tp, None)
        if leader is None:
            return
        fetcher = self._fetchers[leader]
        fetcher.leave(tp)
        if not fetcher.partitions:
            del self._fetchers[leader]
            self._see(leader.broker_id, Sight.UNKNOWN)
            self._closings.spawn(fetcher.close())

    def _make(self, leader: Leader) -> ReplicaFetcher:
        return ReplicaFetcher(
            leader,
            self._config,
            self._replicas,
            self._turns,
            self._clock,
            ways=self._ways,
            broker_epoch=self._broker_epoch,
            on_contact=self._contact,
        )

    async def _contact(self, leader_id: int, is_reached: bool) -> None:
        endpoint = self._where(leader_id)
        sight = Sight.UNKNOWN if is_reached or endpoint is None else await self._looks.at(endpoint)
        if any(each.broker_id == leader_id for each in self._fetchers):  # a doubt is taken back by a fetcher
            self._see(leader_id, sight)

    def _see(self, broker_id: int, sight: Sight) -> None:
        """Clients are not sent to a leader that refuses connections. After a while the controller's word counts all the
        same: it may be this broker alone that is refused.
        """
        if sight is not Sight.REFUSED:
            self._refused_since.pop(broker_id, None)
            self._metadata.believe(broker_id)
            return
        now = self._clock.monotonic()
        if now - self._refused_since.setdefault(broker_id, now) < _DOUBTED_S:
            self._metadata.doubt(broker_id)
        else:
            self._metadata.believe(broker_id)

    def _where(self, broker_id: int) -> Endpoint | None:
        info = self._metadata.brokers.get(broker_id)
        return None if info is None else info.endpoint

    async def close(self) -> None:
        """Copy nothing any more."""
        for fetcher in self._fetchers.values():
            self._closings.spawn(fetcher.close())
        self._fetchers.clear()
        self._by_partition.clear()
        await self._closings.finish()
