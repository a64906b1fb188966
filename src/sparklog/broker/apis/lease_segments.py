"""LeaseSegments: which bytes of which files hold ranges of offsets; the files keep their names for as long as granted.

What is told is what a Fetch of the same isolation level would be given. From version 1 on any replica tells it, as far
as it shows its log; a request of version 0 is for the leader. With a duration of 0 nothing is leased: who
plans learns how many bytes there are. Granted leases end at their time, or when a later request of the same principal
says so. A request may
name several ranges of a partition; one that overlaps another before it is refused, so that no file is told for each of
many.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from functools import partial
from typing import NamedTuple

from sparklog.broker.authorization import Rights
from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.leases import LONGEST_S
from sparklog.errors import ApiError, CorruptRecord, ErrorCode, LogClosed
from sparklog.log.extents import Extent, Extents
from sparklog.log.indexes.transaction_index import AbortedTransaction
from sparklog.log.lease import Lease
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import LeaseSegmentsRequest, LeaseSegmentsResponse
from sparklog.protocol.slices import Steps, each_in_steps, each_of
from sparklog.protocol.wire import ZERO_UUID
from sparklog.record.layout import MAX_INT64
from sparklog.security.access import Operation
from sparklog.structs import IsolationLevel, TopicPartition

API = ApiKey.LEASE_SEGMENTS
VERSIONS = range(0, 2)
_FIRST_VERSION_OF_REPLICAS = 1
_NO_LEASE = -1
_SLICE = 100
"""So many files are looked up in one step."""
_AskedTopic = LeaseSegmentsRequest.LeaseTopic
_Topic = LeaseSegmentsResponse.LeasedTopic
_Partition = _Topic.LeasedPartition


class _Found(NamedTuple):
    """What is told of one partition."""

    log_start_offset: int = -1
    extents: Extents = Extents([], -1)
    aborted: list[AbortedTransaction] = []  # noqa: RUF012 (never changed)


class _Ranges:
    """What one request has asked for: ranges of a partition do not overlap."""

    def __init__(self) -> None:
        self._asked: defaultdict[TopicPartition, list[tuple[int, int]]] = defaultdict(list)

    def add(self, tp: TopicPartition, start: int, end: int) -> None:
        """Raises ApiError(INVALID_REQUEST) if an earlier range has an offset of this one."""
        ranges = self._asked[tp]
        place = bisect_right(ranges, (start, end))
        if (place > 0 and ranges[place - 1][1] > start) or (place < len(ranges) and ranges[place][0] < end):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"the request names offsets {start} to {end} of {tp} twice")
        ranges.insert(place, (start, end))


def handle(broker: BrokerContext, request: ApiRequest[LeaseSegmentsRequest]) -> Steps[LeaseSegmentsResponse]:
    message = request.message
    broker.leases.end(message.ended_leases, request.caller.principal)
    number, lease, duration_ms = _NO_LEASE, None, 0
    if message.duration_ms > 0 and message.topics:
        duration_ms = min(message.duration_ms, LONGEST_S * 1000)
        number, lease = broker.leases.grant(duration_ms / 1000, request.caller.principal)
    topics, asked, rights = [], _Ranges(), Rights(broker, request, Operation.READ)
    for topic in message.topics:
        found = _Finder(broker, message, topic, lease, of_leader=request.version < _FIRST_VERSION_OF_REPLICAS)
        answers = yield from each_in_steps(partial(_answer, found, rights, asked), topic.partitions)
        topics.append(_Topic(topic=topic.topic, topic_id=topic.topic_id, partitions=answers))
        yield
    return LeaseSegmentsResponse(throttle_time_ms=0, lease_id=number, duration_ms=duration_ms, topics=topics)


def _answer(finder: _Finder, rights: Rights, ranges: _Ranges, asked: _AskedTopic.LeasePartition) -> Steps[_Partition]:
    code, found = ErrorCode.NONE, _Found()
    try:
        rights.check(finder.partition(asked).topic)
        ranges.add(finder.partition(asked), asked.start_offset, asked.end_offset)
        found = yield from finder.find(asked)
    except ApiError as error:
        code = error.code
    except (CorruptRecord, LogClosed, OSError):
        code = ErrorCode.KAFKA_STORAGE_ERROR
    return _Partition(
        partition_index=asked.partition_index,
        error_code=code,
        log_start_offset=found.log_start_offset,
        end_offset=found.extents.end_offset,
        files=(yield from each_of(_file, found.extents.files)),
        aborted_transactions=[
            _Partition.LeasedAbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
            for each in found.aborted
        ],
    )


class _Finder:
    """Finds what a request asks of the partitions of one topic."""

    def __init__(
        self,
        broker: BrokerContext,
        message: LeaseSegmentsRequest,
        topic: _AskedTopic,
        lease: Lease | None,
        *,
        of_leader: bool,
    ) -> None:
        """``of_leader``: the leader is meant, not any replica."""
        self._broker = broker
        self._topic = topic
        self._lease = lease
        self._of_leader = of_leader
        self._most = None if message.max_files < 0 else message.max_files
        self._is_committed = message.isolation_level == IsolationLevel.READ_COMMITTED

    def partition(self, asked: _AskedTopic.LeasePartition) -> TopicPartition:
        return TopicPartition(self._topic.topic, asked.partition_index)

    def find(self, asked: _AskedTopic.LeasePartition) -> Steps[_Found]:
        """A slice of the files a step. What is told of a slice is of one moment; the next begins where it ends, in the
        files that hold that offset by then.
        """
        files: list[Extent] = []
        aborted: dict[AbortedTransaction, None] = {}
        start = asked.start_offset
        while True:
            wanted = _SLICE if self._most is None else min(_SLICE, self._most - len(files))
            found = self._find_some(asked, start, wanted)
            files += found.extents.files
            aborted |= dict.fromkeys(found.aborted)
            start = found.extents.end_offset
            if len(found.extents.files) < wanted or len(files) == self._most:
                return found._replace(extents=Extents(files, start), aborted=[*aborted])
            yield

    def _find_some(self, asked: _AskedTopic.LeasePartition, start: int, most: int) -> _Found:
        partition = self._broker.held(self.partition(asked))
        if self._topic.topic_id not in (None, ZERO_UUID):
            partition.check_topic(self._topic.topic_id)
        if self._of_leader:
            partition.check_leader()
        else:
            partition.check_epoch(asked.current_leader_epoch)
        isolation = IsolationLevel.READ_COMMITTED if self._is_committed else IsolationLevel.READ_UNCOMMITTED
        extents = partition.extents(start, asked.end_offset, isolation, most, self._lease)
        aborted = []
        if self._is_committed and extents.files:
            aborted = partition.aborted_transactions(start, extents.end_offset)
        return _Found(partition.log_start_offset, extents, aborted)


def _file(extent: Extent) -> _Partition.LeasedFile:
    return _Partition.LeasedFile(
        path=str(extent.path),
        device=extent.device & MAX_INT64,
        inode=extent.inode & MAX_INT64,
        start_position=extent.start,
        end_position=extent.end,
        first_offset=extent.first_offset,
        first_crc=extent.first_crc,
    )
