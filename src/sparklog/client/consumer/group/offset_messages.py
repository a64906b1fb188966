"""The requests about offsets of a group, as values to messages and back. No I/O.

From version 10 on OffsetCommit and OffsetFetch name topics by id; ``ids`` then holds the id of each topic. Where one
is not known, ``ceiling`` keeps to the versions that name topics by name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol, TypeVar
from uuid import UUID

from sparklog.client.consumer.group.committed import OffsetAndMetadata, Offsets
from sparklog.client.consumer.group.membership import Generation
from sparklog.errors import ApiError, ErrorCode
from sparklog.protocol.messages import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    TxnOffsetCommitRequest,
)
from sparklog.protocol.wire import ZERO_UUID
from sparklog.structs import LeaderEpoch, TopicPartition, by_topic

Ids = Mapping[str, UUID]
LAST_VERSION_BY_NAME = 9
"""The newest OffsetFetch and OffsetCommit in which topics go by their names."""


def ceiling(ids: Ids) -> int | None:
    """The newest version in which all these topics can be named; None: any."""
    return None if ids and ZERO_UUID not in ids.values() else LAST_VERSION_BY_NAME


class _Partition(Protocol):
    partition_index: int


T = TypeVar("T", bound=_Partition)


class _Topic(Protocol[T]):
    """A topic of an answer that may go by its id."""

    name: str
    topic_id: UUID | None
    partitions: list[T]


class Asker(NamedTuple):
    """For which group offsets are committed, and as which member of it."""

    group_id: str
    generation: Generation
    instance_id: str | None


def commit_request(asker: Asker, offsets: Offsets, ids: Ids) -> Callable[[int], OffsetCommitRequest]:
    """Store these offsets."""
    topic_partitions = _by_topic(offsets)

    def build(version: int) -> OffsetCommitRequest:
        topics = [
            _CommitTopic(
                name=topic,
                topic_id=ids.get(topic, ZERO_UUID),
                partitions=[_committed(tp, offsets[tp]) for tp in partitions],
            )
            for topic, partitions in topic_partitions.items()
        ]
        return OffsetCommitRequest(
            version=version,
            group_id=asker.group_id,
            generation_id_or_member_epoch=asker.generation.number,
            member_id=asker.generation.member_id,
            group_instance_id=asker.instance_id,
            retention_time_ms=-1,
            topics=topics,
        )

    return build


_CommitTopic = OffsetCommitRequest.OffsetCommitRequestTopic


def _committed(tp: TopicPartition, at: OffsetAndMetadata) -> _CommitTopic.OffsetCommitRequestPartition:
    return _CommitTopic.OffsetCommitRequestPartition(
        partition_index=tp.partition,
        committed_offset=at.offset,
        committed_leader_epoch=at.leader_epoch,
        committed_metadata=at.metadata,
    )


_TxnTopic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic


def txn_commit_topics(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> list[_TxnTopic]:
    """These offsets, as TxnOffsetCommit has them."""
    return [
        _TxnTopic(name=topic, partitions=[_txn_committed(tp, offsets[tp]) for tp in partitions])
        for topic, partitions in _by_topic(offsets).items()
    ]


def _txn_committed(tp: TopicPartition, at: OffsetAndMetadata) -> _TxnTopic.TxnOffsetCommitRequestPartition:
    return _TxnTopic.TxnOffsetCommitRequestPartition(
        partition_index=tp.partition,
        committed_offset=at.offset,
        committed_leader_epoch=at.leader_epoch,
        committed_metadata=at.metadata,
    )


def commit_errors(answer: OffsetCommitResponse, ids: Ids) -> dict[TopicPartition, ErrorCode]:
    """The partitions whose offsets were refused."""
    return {tp: ErrorCode(each.error_code) for tp, each in _partitions(answer.topics, ids) if each.error_code}


def fetch_request(
    group_id: str, partitions: Collection[TopicPartition] | None, ids: Ids, *, require_stable: bool = True
) -> Callable[[int], OffsetFetchRequest]:
    """What is committed for these, or for all for None.

    With ``require_stable`` it is refused with UNSTABLE_OFFSET_COMMIT while a transaction may change it.
    """
    numbers = by_topic(partitions or ())

    def build(version: int) -> OffsetFetchRequest:
        if version < 8:
            older = [_FetchTopic(name=name, partition_indexes=each) for name, each in numbers.items()]
            return OffsetFetchRequest(
                version=version,
                group_id=group_id,
                topics=None if partitions is None else older,
                require_stable=require_stable,
            )
        topics = [
            _FetchGroup.OffsetFetchRequestTopics(name=name, topic_id=ids.get(name, ZERO_UUID), partition_indexes=each)
            for name, each in numbers.items()
        ]
        groups = [_FetchGroup(group_id=group_id, topics=None if partitions is None else topics)]
        return OffsetFetchRequest(version=version, groups=groups, require_stable=require_stable)

    return build


_FetchTopic = OffsetFetchRequest.OffsetFetchRequestTopic
_FetchGroup = OffsetFetchRequest.OffsetFetchRequestGroup
_Fetched = (
    OffsetFetchResponse.OffsetFetchResponseGroup.OffsetFetchResponseTopics.OffsetFetchResponsePartitions
    | OffsetFetchResponse.OffsetFetchResponseTopic.OffsetFetchResponsePartition
)


def fetched_offsets(answer: OffsetFetchResponse, ids: Ids) -> dict[TopicPartition, OffsetAndMetadata | None]:
    """What is committed, None for nothing. Raises ApiError for the first error in it."""
    group = answer.groups[0] if answer.groups else answer
    _raise("the group's offsets", group.error_code)
    found: dict[TopicPartition, OffsetAndMetadata | None] = {}
    for tp, each in _fetched_partitions(answer, ids):
        _raise(f"the committed offset of partition {tp}", each.error_code)
        found[tp] = None
        if each.committed_offset >= 0:
            epoch = LeaderEpoch(each.committed_leader_epoch)
            found[tp] = OffsetAndMetadata(each.committed_offset, epoch, each.metadata or "")
    return found


def _fetched_partitions(answer: OffsetFetchResponse, ids: Ids) -> Iterator[tuple[TopicPartition, _Fetched]]:
    if answer.groups:
        yield from _partitions(answer.groups[0].topics, ids)
        return
    for topic in answer.topics:
        for each in topic.partitions:
            yield TopicPartition(topic.name, each.partition_index), each


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    topics: dict[str, list[TopicPartition]] = {}
    for tp in partitions:
        topics.setdefault(tp.topic, []).append(tp)
    return topics


def _partitions(topics: Iterable[_Topic[T]], ids: Ids) -> Iterator[tuple[TopicPartition, T]]:
    names = {topic_id: name for name, topic_id in ids.items() if topic_id != ZERO_UUID}
    for topic in topics:
        name = topic.name or names[topic.topic_id or ZERO_UUID]
        for each in topic.partitions:
            yield TopicPartition(name, each.partition_index), each


_HINTS = {
    ErrorCode.UNSTABLE_OFFSET_COMMIT: (
        "; a transaction with other offsets for it is open until it ends or times out: sparklog txn list shows it"
    ),
}


def _raise(what: str, error_code: int) -> None:
    code = ErrorCode(error_code)
    if code is not ErrorCode.NONE:
        raise ApiError(code, f"{what}: {code.name}{_HINTS.get(code, '')}")
