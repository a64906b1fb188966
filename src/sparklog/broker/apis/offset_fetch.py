"""OffsetFetch: how far a group has read, in some partitions or in all; several groups at once from version 8 on.

A group that is named more than once is told once, with all that is asked of it: a short request would have a huge
answer otherwise. (Kafka tells it as often as it is named; clients look for groups by name.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.errors import ErrorCode
from sparklog.group.classic.group import CommittedOffset
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import OffsetFetchRequest, OffsetFetchResponse
from sparklog.protocol.slices import Steps, each_of
from sparklog.structs import TopicPartition

API = ApiKey.OFFSET_FETCH
VERSIONS = range(1, 10)

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


def handle(broker: BrokerContext, request: ApiRequest[OffsetFetchRequest]) -> Steps[OffsetFetchResponse]:
    message = request.message
    if request.version >= _FIRST_BATCHED_VERSION:
        groups = []
        for each in (yield from _named_once(message.groups)):
            member_id, epoch = each.member_id, each.member_epoch
            if request.version < _FIRST_VERSION_OF_MEMBER_EPOCH:
                member_id, epoch = None, -1
            error, offsets = broker.groups.fetch_offsets(each.group_id, _partitions(each.topics), member_id, epoch)
            errors = _unstable(broker, each.group_id, offsets, message)
            told = yield from _topics(_GroupTopic, _GroupTopic.OffsetFetchResponsePartitions, offsets, errors)
            groups.append(_Group(group_id=each.group_id, topics=told, error_code=int(error)))
            yield
        return OffsetFetchResponse(groups=groups)
    partitions = _partitions(message.topics)
    error, offsets = broker.groups.fetch_offsets(message.group_id, partitions)
    if error is not ErrorCode.NONE and request.version < _FIRST_VERSION_OF_TOP_LEVEL_ERROR:
        offsets = dict.fromkeys(partitions or ())
    errors = dict.fromkeys(offsets, error) if error else _unstable(broker, message.group_id, offsets, message)
    topics = yield from _topics(_Topic, _Topic.OffsetFetchResponsePartition, offsets, errors)
    return OffsetFetchResponse(error_code=int(error), topics=topics)


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
    offsets: dict[TopicPartition, CommittedOffset | None],
    errors: dict[TopicPartition, ErrorCode],
) -> Steps[list[_T]]:
    by_topic: dict[str, list[_P]] = {}
    for tp, found in offsets.items():
        error = errors.get(tp, ErrorCode.NONE)
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
