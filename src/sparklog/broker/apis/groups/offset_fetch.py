"""OffsetFetch: how far a group has read, in some partitions or in all; several groups at once from version 8 on.
Version 0 reads what is kept in ZooKeeper.

A group that is named more than once is told once, with all that is asked of it: a short request would have a huge
answer otherwise. (Kafka tells it as often as it is named; clients look for groups by name.)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import NamedTuple, TypeVar

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.authorization import Rights, refusal
from sparklog.broker.handling.zookeeper_offsets import stored_offsets
from sparklog.errors import ErrorCode
from sparklog.group.classic.group import CommittedOffset
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import OffsetFetchRequest, OffsetFetchResponse
from sparklog.protocol.slices import SLICE, Steps, each_of
from sparklog.security.access import Operation, Resource, ResourceType
from sparklog.structs import TopicPartition

API = ApiKey.OFFSET_FETCH
VERSIONS = range(10)

_VERSION_OF_ZOOKEEPER = 0
_FIRST_VERSION_OF_TOP_LEVEL_ERROR = 2
_FIRST_BATCHED_VERSION = 8
_FIRST_VERSION_OF_MEMBER_EPOCH = 9
_NOT_COMMITTED = CommittedOffset(offset=-1, leader_epoch=-1, metadata="", commit_timestamp_ms=-1)

_AskedGroup = OffsetFetchRequest.OffsetFetchRequestGroup
_AskedTopics = list[OffsetFetchRequest.OffsetFetchRequestTopic] | list[_AskedGroup.OffsetFetchRequestTopics]
_Group = OffsetFetchResponse.OffsetFetchResponseGroup
_GroupTopic = _Group.OffsetFetchResponseTopics
_Topic = OffsetFetchResponse.OffsetFetchResponseTopic
_T = TypeVar("_T")
_P = TypeVar("_P")


def handle(
    broker: BrokerContext, request: ApiRequest[OffsetFetchRequest]
) -> Steps[OffsetFetchResponse | Awaitable[OffsetFetchResponse]]:
    message, fetching = request.message, _Fetching(broker, request)
    if request.version == _VERSION_OF_ZOOKEEPER:
        return fetching.from_zookeeper()
    if request.version >= _FIRST_BATCHED_VERSION:
        groups = []
        for each in (yield from _named_once(message.groups)):
            member_id, epoch = each.member_id, each.member_epoch
            if request.version < _FIRST_VERSION_OF_MEMBER_EPOCH:
                member_id, epoch = None, -1
            found = yield from fetching.of(each.group_id, _partitions(each.topics), member_id, epoch)
            told = yield from _topics(_GroupTopic, _GroupTopic.OffsetFetchResponsePartitions, found)
            groups.append(_Group(group_id=each.group_id, topics=told, error_code=int(found.error)))
            yield
        return OffsetFetchResponse(groups=groups)
    partitions = _partitions(message.topics)
    found = yield from fetching.of(message.group_id, partitions)
    if found.error is not ErrorCode.NONE:
        named = partitions or () if request.version < _FIRST_VERSION_OF_TOP_LEVEL_ERROR else found.offsets
        found = _Found(found.error, dict.fromkeys(named), dict.fromkeys(named, found.error))
    topics = yield from _topics(_Topic, _Topic.OffsetFetchResponsePartition, found)
    return OffsetFetchResponse(error_code=int(found.error), topics=topics)


class _Found(NamedTuple):
    """What is told of one group."""

    error: ErrorCode
    offsets: dict[TopicPartition, CommittedOffset | None]
    errors: dict[TopicPartition, ErrorCode]
    """Of some of these partitions."""


class _Fetching:
    """Fetches what one request asks for, as far as the caller may hear of it."""

    def __init__(self, broker: BrokerContext, request: ApiRequest[OffsetFetchRequest]) -> None:
        self._broker = broker
        self._request = request
        self._named = Rights(broker, request, Operation.DESCRIBE)
        self._listed = Rights(broker, request, Operation.DESCRIBE, quietly=True)

    def of(
        self, group_id: str, partitions: list[TopicPartition] | None, member_id: str | None = None, epoch: int = -1
    ) -> Steps[_Found]:
        """The offsets of these partitions, or of all. To ask for rights takes some µs a topic: some a step.

        What is committed, and what of it is not stable, is looked at in one step.
        """
        broker = self._broker
        refused = refusal(broker, self._request, Operation.DESCRIBE, Resource(ResourceType.GROUP, group_id))
        if refused is not ErrorCode.NONE:
            return _Found(refused, {}, {})
        allowed, hidden = None, list[TopicPartition]()
        if partitions is not None:
            allowed, hidden = yield from _parted(self._named, partitions)
        error, offsets = broker.groups.fetch_offsets(group_id, allowed, member_id, epoch)
        errors = _unstable(broker, group_id, offsets, self._request.message)
        if partitions is None:
            listed, _ = yield from _parted(self._listed, offsets)
            return _Found(error, {tp: offsets[tp] for tp in listed}, errors)
        if error is not ErrorCode.NONE:
            return _Found(error, offsets, errors)
        errors |= dict.fromkeys(hidden, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return _Found(error, offsets | dict.fromkeys(hidden), errors)

    async def from_zookeeper(self) -> OffsetFetchResponse:
        broker, group_id = self._broker, self._request.message.group_id
        partitions = _partitions(self._request.message.topics) or []
        refused = refusal(broker, self._request, Operation.DESCRIBE, Resource(ResourceType.GROUP, group_id))
        errors = dict.fromkeys(partitions, refused)
        offsets: dict[TopicPartition, CommittedOffset | None] = dict.fromkeys(partitions)
        if refused is ErrorCode.NONE:
            errors = {tp: self._code_of(tp) async for tp in broker.turns.paced(partitions)}
            known = [tp for tp, code in errors.items() if code is ErrorCode.NONE]
            found, missing = await stored_offsets(broker, group_id, known)
            errors |= missing
            offsets |= {tp: _NOT_COMMITTED._replace(offset=offset) for tp, offset in found.items()}
        told = _topics(_Topic, _Topic.OffsetFetchResponsePartition, _Found(refused, offsets, errors))
        topics = await broker.turns.drive(told, lambda: f"OffsetFetch of group {group_id}")
        return OffsetFetchResponse(topics=topics)

    def _code_of(self, tp: TopicPartition) -> ErrorCode:
        """Why nothing may be told of a partition, or NONE."""
        if not self._named.allows(tp.topic):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        topic = self._broker.metadata.topic(tp.topic)
        if topic is not None and tp.partition in topic.partitions:
            return ErrorCode.NONE
        told = self._broker.metadata.has_been_told
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if told else ErrorCode.NOT_COORDINATOR


def _parted(
    rights: Rights, partitions: Collection[TopicPartition]
) -> Steps[tuple[list[TopicPartition], list[TopicPartition]]]:
    """Those of topics that the caller may hear of, and the others."""
    allowed, hidden = list[TopicPartition](), list[TopicPartition]()
    for number, tp in enumerate(partitions, 1):
        (allowed if rights.allows(tp.topic) else hidden).append(tp)
        if number % SLICE == 0:
            yield
    return allowed, hidden


def _named_once(groups: list[_AskedGroup]) -> Steps[list[_AskedGroup]]:
    """Each group where it is first named, with the topics that are asked of it there and later."""
    first: dict[str, _AskedGroup] = {}
    for each in groups:
        asked = first.setdefault(each.group_id, each)
        if each.topics is None:
            asked.topics = None
        elif asked is not each and asked.topics is not None:
            asked.topics.extend(each.topics)
        yield
    return [*first.values()]


def _unstable(
    broker: BrokerContext,
    group_id: str,
    offsets: dict[TopicPartition, CommittedOffset | None],
    message: OffsetFetchRequest,
) -> dict[TopicPartition, ErrorCode]:
    """The partitions that a consumer which wants stable offsets only must ask for again."""
    if not message.require_stable:
        return {}
    return dict.fromkeys(broker.groups.unstable_offsets(group_id, offsets.keys()), ErrorCode.UNSTABLE_OFFSET_COMMIT)


def _partitions(topics: _AskedTopics | None) -> list[TopicPartition] | None:
    if topics is None:
        return None
    return [TopicPartition(topic.name, index) for topic in topics for index in topic.partition_indexes]


def _topics(
    topic_type: Callable[..., _T],
    partition_type: Callable[..., _P],
    told: _Found,
) -> Steps[list[_T]]:
    by_topic: dict[str, list[_P]] = {}
    for tp, found in told.offsets.items():
        error = told.errors.get(tp, ErrorCode.NONE)
        committed = _NOT_COMMITTED if found is None or error is not ErrorCode.NONE else found
        by_topic.setdefault(tp.topic, []).append(
            partition_type(
                partition_index=tp.partition,
                committed_offset=committed.offset,
                committed_leader_epoch=committed.leader_epoch,
                metadata=committed.metadata,
                error_code=int(error),
            )
        )
        yield
    return (yield from each_of(lambda each: topic_type(name=each[0], partitions=each[1]), by_topic.items()))
