"""Asking a leader for the files that hold a range of offsets: the API LeaseSegments, which sparklog's brokers serve."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from sparklog.client.metadata import ClusterMetadata
from sparklog.errors import ApiError, ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import LeaseSegmentsRequest, Message
from sparklog.protocol.wire import ZERO_UUID
from sparklog.structs import Endpoint, TopicPartition

LEASE_MS = 30_000
_Topic = LeaseSegmentsRequest.LeaseTopic


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
    """What a leader granted: ``files`` hold the offsets of the range up to ``end_offset``.

    ``aborted`` are the aborted transactions among them: producer id and first offset.
    """

    id: int
    leader: Endpoint
    topic_id: UUID
    files: list[LeasedFile]
    end_offset: int
    aborted: list[tuple[int, int]]

    @property
    def nbytes(self) -> int:
        """Bytes of all files that the range takes."""
        return sum(each.end - each.start for each in self.files)


def lease_range(
    cluster: ClusterMetadata,
    tp: TopicPartition,
    start: int,
    end: int,
    *,
    topic_id: UUID | None = None,
    duration_ms: int = LEASE_MS,
    max_files: int = -1,
) -> RangeLease:
    """Lease the files with the offsets ``start`` ≤ o < ``end``; ``end_offset`` may come before ``end``.

    A duration of 0 leases nothing: the answer says what there is to read. Asked once; raises ApiError, with
    OFFSET_OUT_OF_RANGE too if the topic is another one than ``topic_id``, with UNSUPPORTED_VERSION of a broker that
    does not serve this API; ConnectionFailed.
    """
    leader, topic = cluster.leader(tp)
    if topic_id not in (None, ZERO_UUID, topic.topic_id):
        raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"topic {tp.topic!r} was deleted and created again meanwhile")
    with cluster.pool.borrow(leader) as connection:
        is_served = connection.versions.serves(ApiKey.LEASE_SEGMENTS)
    if not is_served:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"broker {leader} does not lease segment files")
    partition = _Topic.LeasePartition(partition_index=tp.partition, start_offset=start, end_offset=end)
    request = LeaseSegmentsRequest(
        isolation_level=int(cluster.config.isolation_level),
        duration_ms=duration_ms,
        max_files=max_files,
        topics=[_Topic(topic=tp.topic, topic_id=topic.topic_id, partitions=[partition])],
        ended_leases=[],
    )
    answer = cluster.request(leader, ApiKey.LEASE_SEGMENTS, lambda _: request)
    (found,) = answer.topics[0].partitions
    if found.error_code != ErrorCode.NONE:
        code = ErrorCode(found.error_code)
        raise ApiError(code, f"lease of partition {tp} from offset {start} at broker {leader}: {code.name}")
    aborted = [(each.producer_id, each.first_offset) for each in found.aborted_transactions]
    files = [_file(each) for each in found.files]
    return RangeLease(answer.lease_id, leader, topic.topic_id, files, found.end_offset, aborted)


def end_lease(cluster: ClusterMetadata, lease: RangeLease) -> None:
    """Let the broker have its files back before the time. Raises ConnectionFailed, which does no harm."""
    request = LeaseSegmentsRequest(isolation_level=0, duration_ms=0, max_files=0, topics=[], ended_leases=[lease.id])
    cluster.request(lease.leader, ApiKey.LEASE_SEGMENTS, lambda _: request)


def _file(told: Message) -> LeasedFile:
    return LeasedFile(
        told.path,
        told.device,
        told.inode,
        told.start_position,
        told.end_position,
        told.first_offset,
        told.first_crc,
    )
