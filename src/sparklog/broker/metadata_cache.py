"""What this broker tells clients about the cluster: kept current by the controller's UpdateMetadata requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from uuid import UUID

from sparklog.config.listeners import PLAINTEXT, Listener, unless_plain
from sparklog.config.security_protocol import SecurityProtocol
from sparklog.protocol.hot.fetch import LeaderHint
from sparklog.protocol.messages import FULL, INCREMENTAL, UpdateMetadataRequest
from sparklog.protocol.slices import Shared, Steps, each_of
from sparklog.protocol.wire import ZERO_UUID
from sparklog.structs import Endpoint, TopicPartition
from sparklog.zk.znodes import BrokerInfo

_LEADER_DURING_DELETE = -2

EpochAndLeader = tuple[int, int]
"""A leader epoch, and who leads in it; the later of two is the greater."""


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


@dataclass(slots=True)
class TopicUpdate:
    """What an UpdateMetadata says of a topic; ``can_be``: no partition has a number that none can have."""

    name: str
    topic_id: UUID
    partitions: dict[int, PartitionMetadata] = field(default_factory=dict)
    deleted: list[int] = field(default_factory=list)
    can_be: bool = True

    def take(self, state: UpdateMetadataRequest.UpdateMetadataTopicState.UpdateMetadataPartitionState) -> None:
        number = state.partition_index
        self.can_be = self.can_be and number >= 0
        if state.leader == _LEADER_DURING_DELETE:
            self.partitions.pop(number, None)
            self.deleted.append(number)
            return
        self.partitions[number] = PartitionMetadata(
            state.leader, state.leader_epoch, list(state.isr), list(state.replicas), list(state.offline_replicas)
        )


def describe(states: Iterable[UpdateMetadataRequest.UpdateMetadataTopicState]) -> Steps[list[TopicUpdate]]:
    """What an UpdateMetadata says of its topics, a partition a step."""
    topics = []
    for state in states:
        topic = TopicUpdate(state.topic_name, state.topic_id or ZERO_UUID)  # the decoder gives None for it
        topics.append(topic)
        yield from each_of(topic.take, state.partition_states)
        yield
    return topics


def _described(broker: UpdateMetadataRequest.UpdateMetadataBroker, between_brokers: str) -> BrokerInfo:
    listeners = tuple(
        Listener(each.listener, SecurityProtocol(each.security_protocol), Endpoint(each.host, each.port))
        for each in broker.endpoints
    )
    endpoint = next((each.endpoint for each in listeners if each.name == between_brokers), listeners[0].endpoint)
    return BrokerInfo(broker.id, endpoint, broker.rack, listeners=unless_plain(listeners))


class MetadataCache:
    """Read by every Metadata request; changed only by ``update``."""

    def __init__(self, between_brokers: str = PLAINTEXT) -> None:
        self._between_brokers = between_brokers
        self.brokers: dict[int, BrokerInfo] = {}
        self.controller_id = -1
        self.controller_epoch = -1
        self.has_been_told = False
        """Whether a controller has described the cluster since this broker's start. Until then a topic that is not here
        may well exist, and a client that is told otherwise may give up for good. Our controllers tell of the brokers
        first, then what this one leads and follows, then of everything; Kafka's do not say which of them it is.
        """
        self.topics_version = 0
        """Goes up with every update that names a topic."""
        self.answers: dict[tuple[int, bool, bool, str], Shared[bytes]] = {}
        """Whole answers, encoded or still being so, by what was asked; good until the next update, which puts another
        dict here.
        """
        self._topics: dict[str, TopicMetadata] = {}
        self._left_out: dict[str, TopicMetadata] = {}
        """Topics that a full update did not name. What is kept for them stays until the controller tells of a topic of
        the name under another id.
        """
        self._names: dict[UUID, str] = {}
        self._doubted: set[int] = set()
        self._waiting: dict[asyncio.Future[None], Callable[[], bool]] = {}

    def knows_broker(self, broker_id: int) -> bool:
        """Whether a controller has described the cluster, and this broker lives in it."""
        return self.has_been_told and broker_id in self.brokers

    def doubt(self, broker_id: int) -> None:
        """This broker was refused a connection to a live one: clients are not sent there for the time being.

        A client that is sent to a leader that does not answer may wait a second before it asks again (librdkafka). A
        client that is told of no leader asks again at once. The controller hears nothing of a doubt.
        """
        if broker_id not in self._doubted:
            self._doubted.add(broker_id)
            self.answers = {}

    def believe(self, broker_id: int) -> None:
        """What the controller says of a broker counts again."""
        if broker_id in self._doubted:
            self._doubted.remove(broker_id)
            self.answers = {}

    def takes_clients(self, broker_id: int) -> bool:
        """Whether the broker lives, as far as is known here."""
        return broker_id in self.brokers and broker_id not in self._doubted

    def on(self, listener: str) -> Iterator[tuple[BrokerInfo, Endpoint]]:
        """The live brokers that clients of this listener can reach, and where."""
        for each in self.brokers.values():
            endpoint = each.endpoint_on(listener)
            if endpoint is not None:
                yield each, endpoint

    def is_on(self, broker_id: int, listener: str) -> bool:
        """Whether a live broker has this listener."""
        return self.brokers[broker_id].endpoint_on(listener) is not None

    def offline(self, partition: PartitionMetadata) -> list[int]:
        """The replicas that cannot be reached: the controller said so, or their broker has gone since."""
        told = partition.offline
        return [each for each in partition.replicas if each in told or each not in self.brokers]

    def topics(self) -> list[TopicMetadata]:
        return list(self._topics.values())

    def topic(self, name: str) -> TopicMetadata | None:
        return self._topics.get(name)

    def id_kept_for(self, name: str) -> UUID | None:
        """The id of the topic of which something is kept under this name; None if nothing is."""
        topic = self._topics.get(name) or self._left_out.get(name)
        return None if topic is None else topic.topic_id

    def knows(self, tp: TopicPartition) -> bool:
        """Whether the partition exists."""
        topic = self._topics.get(tp.topic)
        return topic is not None and tp.partition in topic.partitions

    def name_of(self, topic_id: UUID | None) -> str | None:
        return None if topic_id is None else self._names.get(topic_id)

    def leader(self, tp: TopicPartition) -> BrokerInfo | None:
        """The live broker that leads the partition."""
        topic = self._topics.get(tp.topic)
        found = topic.partitions.get(tp.partition) if topic else None
        return self.brokers.get(found.leader) if found else None

    def rack_of(self, broker_id: int) -> str | None:
        """Where a live broker stands; None of one that is not there, or does not say."""
        broker = self.brokers.get(broker_id)
        return None if broker is None else broker.rack

    def leader_hint(self, tp: TopicPartition, followed: EpochAndLeader, listener: str) -> LeaderHint | None:
        """Where a client of ``listener`` that asked the wrong broker finds the partition; None if that is not known.

        ``followed`` is what this broker's own replica was told, which may be newer than what is told of all partitions.
        Source: Kafka 3.9, ``KafkaApis.getCurrentLeader``.
        """
        topic = self._topics.get(tp.topic)
        found = topic.partitions.get(tp.partition) if topic else None
        epoch, leader_id = followed if found is None else max(followed, (found.leader_epoch, found.leader))
        leader = self.brokers.get(leader_id) if self.takes_clients(leader_id) else None
        endpoint = None if leader is None else leader.endpoint_on(listener)
        return None if leader is None or endpoint is None else LeaderHint(leader.id, epoch, endpoint, leader.rack)

    def update(self, request: UpdateMetadataRequest, topics: Iterable[TopicUpdate]) -> list[TopicPartition]:
        """Take over an UpdateMetadata request, whose topics are described already, in one turn of the loop; whoever
        waits for what it brings is woken. Where it is full there are no other topics than it names.

        Returns what it deletes, and what was of a topic that bears another id now.
        """
        self.answers = {}
        self.controller_id = request.controller_id
        self.controller_epoch = request.controller_epoch
        self.brokers = {each.id: _described(each, self._between_brokers) for each in request.live_brokers}
        self.has_been_told = self.has_been_told or request.type != INCREMENTAL
        if request.type == FULL:
            self._left_out.update(self._topics)
            self._topics, self._names = {}, {}
            self.topics_version += 1
        deleted = []
        for topic in topics:
            deleted += [TopicPartition(topic.name, number) for number in self._update_topic(topic)]
            self.topics_version += 1
        self._wake()
        return deleted

    def _update_topic(self, update: TopicUpdate) -> Iterable[int]:
        """Returns which partitions are gone."""
        gone = dict.fromkeys(update.deleted)
        topic = self._topics.get(update.name)
        before = topic or self._left_out.pop(update.name, None)
        if before is not None and before.topic_id != update.topic_id:
            self._names.pop(before.topic_id, None)
            gone |= dict.fromkeys(before.partitions)
            topic = None
        if topic is None:
            topic = TopicMetadata(update.name, update.topic_id)
        for number in update.deleted:
            topic.partitions.pop(number, None)
        topic.partitions.update(update.partitions)
        if topic.partitions:
            self._topics[topic.name] = topic
            if topic.topic_id != ZERO_UUID:
                self._names[topic.topic_id] = topic.name
        else:
            self._topics.pop(topic.name, None)
            self._names.pop(topic.topic_id, None)
        return gone

    def _wake(self) -> None:
        for future, condition in self._waiting.items():
            if not future.done() and condition():
                future.set_result(None)

    async def wait_for(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Wait until ``condition`` holds after an update; False after ``timeout`` seconds."""
        if condition():
            return True
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[future] = condition
        try:
            async with asyncio.timeout(timeout):
                await future
        except TimeoutError:
            return False
        finally:
            del self._waiting[future]
        return True

    def is_ready(self, topic: str) -> bool:
        """Whether every known partition of the topic has a live leader."""
        found = self._topics.get(topic)
        return found is not None and all(each.leader in self.brokers for each in found.partitions.values())
