"""A cluster as a broker describes it: the values, and how they are asked for and read."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

from sparklog.errors import ApiError, ErrorCode
from sparklog.protocol.messages import MetadataRequest, MetadataResponse
from sparklog.protocol.wire import ZERO_UUID
from sparklog.structs import BrokerId, Endpoint, LeaderEpoch


class PartitionInfo(NamedTuple):
    """One partition: its leader (NO_LEADER while there is none) and where its copies are.

    ``offline``: replicas whose broker, or whose log directory, is gone; none where a broker does not tell.
    """

    partition: int
    leader: BrokerId
    leader_epoch: LeaderEpoch
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...] = ()


class TopicInfo(NamedTuple):
    """One topic. ``partitions`` is ordered by number; ``topic_id`` is zero where the broker does not tell."""

    name: str
    topic_id: UUID
    internal: bool
    partitions: tuple[PartitionInfo, ...]

    def partition(self, number: int) -> PartitionInfo | None:
        """The partition of this number, if the topic has it."""
        partitions = self.partitions
        if 0 <= number < len(partitions) and partitions[number].partition == number:
            return partitions[number]
        return next((each for each in partitions if each.partition == number), None)


def no_such_partition(topic: TopicInfo, partition: int) -> ApiError:
    """What to raise for a number that is none of the topic's partitions."""
    return ApiError(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        f"topic {topic.name!r} has no partition {partition}, only 0 to {len(topic.partitions) - 1}",
    )


class ClusterInfo(NamedTuple):
    """One answer to a Metadata request; ``errors`` are the topics that it could not describe.

    ``racks`` has the brokers that say where they stand (``broker.rack``).
    """

    cluster_id: str | None
    controller: BrokerId
    brokers: dict[BrokerId, Endpoint]
    topics: dict[str, TopicInfo]
    errors: dict[str, ErrorCode]
    racks: Mapping[BrokerId, str] = MappingProxyType({})

    def topic(self, name: str) -> TopicInfo:
        """Raises ApiError (retriable) where the answer leaves the topic out."""
        if name not in self.topics:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"the broker's answer leaves topic {name!r} out")
        return self.topics[name]

    def raise_refusal(self, topics: Collection[str]) -> None:
        """Raise what will not pass for these: a name that no topic can have, a topic that may not be read."""
        for topic, code in self.errors.items():
            if topic in topics and not code.retriable:
                raise ApiError(code, f"topic {topic!r}: {code.name}")


def metadata_request(version: int, topics: Collection[str] | None, create: bool) -> MetadataRequest:
    """Ask for these topics, or all for None; ``create`` lets a broker that is configured so make the missing ones."""
    every: list[_Topic] | None = [] if version == 0 else None
    return MetadataRequest(
        version=version,
        topics=every if topics is None else [_Topic(name=topic, topic_id=ZERO_UUID) for topic in topics],
        allow_auto_topic_creation=create,
    )


_Topic = MetadataRequest.MetadataRequestTopic


def read_metadata(answer: MetadataResponse) -> ClusterInfo:
    """The values of a Metadata response of any version."""
    topics: dict[str, TopicInfo] = {}
    errors: dict[str, ErrorCode] = {}
    for topic in answer.topics:
        name, code = topic.name or "", ErrorCode(topic.error_code)
        if code is ErrorCode.NONE:
            topics[name] = _read_topic(name, topic)
        else:
            errors[name] = code
    return ClusterInfo(
        answer.cluster_id,
        BrokerId(answer.controller_id),
        {BrokerId(each.node_id): Endpoint(each.host, each.port) for each in answer.brokers},
        topics,
        errors,
        _read_racks(answer),
    )


def _read_racks(answer: MetadataResponse) -> dict[BrokerId, str]:
    return {BrokerId(each.node_id): each.rack for each in answer.brokers if each.rack is not None}


def _read_topic(name: str, topic: MetadataResponse.MetadataResponseTopic) -> TopicInfo:
    partitions = [
        PartitionInfo(
            each.partition_index,
            BrokerId(each.leader_id),
            LeaderEpoch(each.leader_epoch),
            tuple(each.replica_nodes),
            tuple(each.isr_nodes),
            tuple(each.offline_replicas),
        )
        for each in topic.partitions
    ]
    return TopicInfo(name, topic.topic_id or ZERO_UUID, topic.is_internal, tuple(sorted(partitions)))
