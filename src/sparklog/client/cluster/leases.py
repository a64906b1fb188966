"""Asking a replica for the files that hold ranges of offsets: the API LeaseSegments, which sparklog's brokers serve."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.cluster.info import TopicInfo
from sparklog.errors import ApiError, ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import LeaseSegmentsRequest, LeaseSegmentsResponse
from sparklog.protocol.wire import ZERO_UUID
from sparklog.structs import NO_EPOCH, Endpoint, TopicPartition

LEASE_MS = 30_000
_Topic = LeaseSegmentsRequest.LeaseTopic
_Leased = LeaseSegmentsResponse.LeasedTopic.LeasedPartition


class LeasedFile(NamedTuple):
    """Bytes ``start`` ≤ b < ``end`` of a file, and what tells that file and its first batch from any other."""

    path: str
    device: int
    inode: int
    start: int
    end: int
    first_offset: int
    first_crc: int


class RangeLease(NamedTuple):
    """What ``broker`` granted: ``files`` hold the offsets of the range up to ``end_offset``.

    ``aborted`` are the aborted transactions among them: producer id and first offset. What is granted in one request
    has one ``id``.
    """

    id: int
    broker: Endpoint
    topic_id: UUID
    files: list[LeasedFile]
    end_offset: int
    aborted: list[tuple[int, int]]

    @property
    def nbytes(self) -> int:
        """Bytes of all files that the range takes."""
        return sum(each.end - each.start for each in self.files)


class RangeAsked(NamedTuple):
    """The offsets ``start`` ≤ o < ``end``, of the topic that has ``topic_id`` if that is known."""

    tp: TopicPartition
    start: int
    end: int
    topic_id: UUID | None = None


def lease_ranges(
    cluster: ClusterMetadata,
    wanted: Sequence[RangeAsked],
    *,
    broker: Endpoint | None = None,
    duration_ms: int = LEASE_MS,
    max_files: int = -1,
) -> list[RangeLease | ApiError]:
    """Lease the files of ranges that have one leader; ``end_offset`` of each may come before its ``end``.

    ``broker`` is the replica that is asked, the leader if it is not said. A follower grants what it shows.
    ``max_files`` is for each. A duration of 0 leases nothing: the answer says what there is to read. One request, not
    repeated: for each range what is granted, or why nothing is: with OFFSET_OUT_OF_RANGE too if the topic is another
    one than ``topic_id``. Raises ApiError, with UNSUPPORTED_VERSION of a broker that does not serve this API;
    ConnectionFailed.
    """
    asked = broker or cluster.leader(wanted[0].tp)[0]
    with cluster.pool.borrow(asked) as connection:
        is_served = connection.versions.serves(ApiKey.LEASE_SEGMENTS)
    if not is_served:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"broker {asked} does not lease segment files")
    topics = [cluster.topic(each.tp.topic) for each in wanted]
    request = LeaseSegmentsRequest(
        isolation_level=int(cluster.config.isolation_level),
        duration_ms=duration_ms,
        max_files=max_files,
        topics=[_asked(each, topic) for each, topic in zip(wanted, topics, strict=True)],
        ended_leases=[],
    )
    answer = cluster.request(asked, ApiKey.LEASE_SEGMENTS, lambda _: request)
    return [
        _granted(asked, answer.lease_id, each, topic.topic_id, told.partitions[0])
        for each, topic, told in zip(wanted, topics, answer.topics, strict=True)
    ]


def _asked(each: RangeAsked, topic: TopicInfo) -> _Topic:
    info = topic.partition(each.tp.partition)
    partition = _Topic.LeasePartition(
        partition_index=each.tp.partition,
        start_offset=each.start,
        end_offset=each.end,
        current_leader_epoch=NO_EPOCH if info is None else info.leader_epoch,
    )
    return _Topic(topic=each.tp.topic, topic_id=topic.topic_id, partitions=[partition])


def _granted(broker: Endpoint, number: int, asked: RangeAsked, topic_id: UUID, found: _Leased) -> RangeLease | ApiError:
    if asked.topic_id not in (None, ZERO_UUID, topic_id):
        text = f"topic {asked.tp.topic!r} was deleted and created again meanwhile"
        return ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, text)
    if found.error_code != ErrorCode.NONE:
        code = ErrorCode(found.error_code)
        return ApiError(
            code, f"lease of partition {asked.tp} from offset {asked.start} at broker {broker}: {code.name}"
        )
    aborted = [(each.producer_id, each.first_offset) for each in found.aborted_transactions]
    return RangeLease(number, broker, topic_id, [_file(each) for each in found.files], found.end_offset, aborted)


def end_lease(cluster: ClusterMetadata, lease: RangeLease) -> None:
    """Let the broker have its files back before the time: all that was granted in that request.

    Raises ConnectionFailed, which does no harm.
    """
    request = LeaseSegmentsRequest(isolation_level=0, duration_ms=0, max_files=0, topics=[], ended_leases=[lease.id])
    cluster.request(lease.broker, ApiKey.LEASE_SEGMENTS, lambda _: request)


def _file(told: _Leased.LeasedFile) -> LeasedFile:
    return LeasedFile(
        told.path,
        told.device,
        told.inode,
        told.start_position,
        told.end_position,
        told.first_offset,
        told.first_crc,
    )
