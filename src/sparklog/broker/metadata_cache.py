"""What this broker tells clients about the cluster: kept current by the controller's UpdateMetadata requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

from sparklog.protocol.hot.fetch import LeaderHint
from sparklog.protocol.messages import Message
from sparklog.protocol.wire import ZERO_UUID
from sparklog.structs import Endpoint, TopicPartition
from sparklog.zk.znodes import BrokerInfo

_LEADER_DURING_DELETE = -2


@dataclass(slots=True)
class PartitionMetadata:
    """One partition as the controller last described it."""

    leader: int
    leader_epoch: int
    isr: list[int]
    replicas: list[int]
    offline: list[int]


@dataclass(slots=True)
class TopicMetadata:
    """A topic and its partitions by number."""

    name: str
    topic_id: UUID
    partitions: dict[int, PartitionMetadata] = field(default_factory=dict)


class MetadataCache:
    """Read by every Metadata request; changed only by ``update``."""

    def __init__(self) -> None:
        self.brokers: dict[int, BrokerInfo] = {}
        self.controller_id = -1
        self.controller_epoch = -1
        self.topics_version = 0
        """Goes up with every update that names a topic."""
        self._topics: dict[str, TopicMetadata] = {}
        self._names: dict[UUID, str] = {}
        self._waiting: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []

    @property
    def has_been_told(self) -> bool:
        """Whether a controller has described the cluster since this broker's start. Until then a topic that is not here
        may well exist, and a client that is told otherwise may give up for good.
        """
        return self.controller_epoch >= 0

    def topics(self) -> list[TopicMetadata]:
        return list(self._topics.values())

    def topic(self, name: str) -> TopicMetadata | None:
        return self._topics.get(name)

    def knows(self, tp: TopicPartition) -> bool:
        """Whether the partition exists."""
        topic = self._topics.get(tp.topic)
        return topic is not None and tp.partition in topic.partitions

    def name_of(self, topic_id: UUID) -> str | None:
        return self._names.get(topic_id)

    def leader(self, tp: TopicPartition) -> BrokerInfo | None:
        """The live broker that leads the partition."""
        topic = self._topics.get(tp.topic)
        found = topic.partitions.get(tp.partition) if topic else None
        return self.brokers.get(found.leader) if found else None

    def leader_hint(self, tp: TopicPartition) -> LeaderHint | None:
        """Where a client that asked the wrong broker finds the partition."""
        topic = self._topics.get(tp.topic)
        found = topic.partitions.get(tp.partition) if topic else None
        leader = self.brokers.get(found.leader) if found else None
        if found is None or leader is None:
            return None
        return LeaderHint(leader.id, found.leader_epoch, leader.endpoint, leader.rack)

    def update(self, request: Message) -> list[TopicPartition]:
        """Take over an UpdateMetadata request; whoever waits for what it brings is woken. Returns what it deletes."""
        self.controller_id = request.controller_id
        self.controller_epoch = request.controller_epoch
        self.brokers = {
            each.id: BrokerInfo(each.id, Endpoint(each.endpoints[0].host, each.endpoints[0].port), each.rack)
            for each in request.live_brokers
        }
        for state in request.topic_states:
            self._update_topic(state)
            self.topics_version += 1
        self._wake()
        return [
            TopicPartition(topic.topic_name, each.partition_index)
            for topic in request.topic_states
            for each in topic.partition_states
            if each.leader == _LEADER_DURING_DELETE
        ]

    def _update_topic(self, state: Message) -> None:
        topic = self._topics.get(state.topic_name)
        topic_id = state.topic_id or ZERO_UUID  # the decoder gives None for it
        if topic is None or topic.topic_id != topic_id:
            if topic is not None:
                self._names.pop(topic.topic_id, None)
            topic = TopicMetadata(state.topic_name, topic_id)
        for each in state.partition_states:
            if each.leader == _LEADER_DURING_DELETE:
                topic.partitions.pop(each.partition_index, None)
            else:
                topic.partitions[each.partition_index] = PartitionMetadata(
                    each.leader, each.leader_epoch, list(each.isr), list(each.replicas), list(each.offline_replicas)
                )
        if topic.partitions:
            self._topics[topic.name] = topic
            if topic.topic_id != ZERO_UUID:
                self._names[topic.topic_id] = topic.name
        else:
            self._topics.pop(topic.name, None)
            self._names.pop(topic.topic_id, None)

    def _wake(self) -> None:
        still = []
        for condition, future in self._waiting:
            if future.done():
                continue
            if condition():
                future.set_result(None)
            else:
                still.append((condition, future))
        self._waiting = still

    async def wait_for(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Wait until ``condition`` holds after an update; False after ``timeout`` seconds."""
        if condition():
            return True
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((condition, future))
        try:
            await asyncio.wait_for(future, timeout)
        except TimeoutError:
            return False
        return True

    def is_ready(self, topic: str) -> bool:
        """Whether every known partition of the topic has a live leader."""
        found = self._topics.get(topic)
        return found is not None and all(each.leader in self.brokers for each in found.partitions.values())
