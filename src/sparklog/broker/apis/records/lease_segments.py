"""LeaseSegments: which bytes of which files hold ranges of offsets; the files keep their names for as long as granted.

What is told is what a Fetch of the same isolation level would be given. From version 1 on any replica tells it, as far
as it shows its log; a request of version 0 is for the leader. With a duration of 0 nothing is leased: a
client that plans learns how many bytes there are. Granted leases end at their time, or when a later request of the same
principal says so. A request may name several ranges of a partition; one that overlaps another before it is refused, so
that no file is told for each of many.

What is leased counts as consumed. A client with a quota is told as much as it may have at once, and then how long to
wait; while it waits every range is refused with THROTTLING_QUOTA_EXCEEDED.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from math import inf
from typing import NamedTuple

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.authorization import Rights
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


class _Room:
    """How many bytes the request may lease. What nobody is limited in has room for anything."""

    def __init__(self, broker: BrokerContext, request: ApiRequest[LeaseSegmentsRequest], *, is_counted: bool) -> None:
        self._quotas = broker.quotas
        self._caller, self._client_id = request.caller, request.client_id
        self._leased = 0
        self._left, self._wait_ms = inf, 0
        self._is_counted = is_counted and broker.quotas.is_on
        if self._is_counted:
            self._left, self._wait_ms = broker.quotas.room_for_lease(request.caller, request.client_id)

    def check(self) -> None:
        """Raises ApiError(THROTTLING_QUOTA_EXCEEDED) where nothing may be leased now."""
        if self._wait_ms or self._left <= 0:
            raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "the quota of consumed bytes is used up for now")

    def admits(self, extents: Extents) -> bool:
        """Whether there is room for all of it."""
        return self._left == inf or _size_of(extents) <= self._left

    def take(self, extents: Extents) -> None:
        """This is leased."""
        if self._is_counted:
            size = _size_of(extents)
            self._left -= size
            self._leased += size

    def close(self) -> int:
        """Count what was leased; for how many milliseconds the next lease is to wait."""
        if self._leased:
            self._wait_ms = max(self._wait_ms, self._quotas.charge_lease(self._caller, self._client_id, self._leased))
        return self._wait_ms


def _size_of(extents: Extents) -> int:
    return sum(each.end - each.start for each in extents.files)


def handle(broker: BrokerContext, request: ApiRequest[LeaseSegmentsRequest]) -> Steps[LeaseSegmentsResponse]:
    message = request.message
    broker.leases.end(message.ended_leases, request.caller.principal)
    number, lease, duration_ms = _NO_LEASE, None, 0
    if message.duration_ms > 0 and message.topics:
        duration_ms = min(message.duration_ms, LONGEST_S * 1000)
        number, lease = broker.leases.grant(duration_ms / 1000, request.caller.principal)
    room = _Room(broker, request, is_counted=lease is not None)
    topics, asked, rights = [], _Ranges(), Rights(broker, request, Operation.READ)
    for topic in message.topics:
        found = _Finder(broker, message, topic, lease, room, of_leader=request.version < _FIRST_VERSION_OF_REPLICAS)
        answers = yield from each_in_steps(partial(_answer, found, rights, asked), topic.partitions)
        topics.append(_Topic(topic=topic.topic, topic_id=topic.topic_id, partitions=answers))
        yield
    return LeaseSegmentsResponse(throttle_time_ms=room.close(), lease_id=number, duration_ms=duration_ms, topics=topics)


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
        room: _Room,
        *,
        of_leader: bool,
    ) -> None:
        """``of_leader``: the leader is meant, not any replica."""
        self._broker = broker
        self._topic = topic
        self._lease = lease
        self._room = room
        self._is_cut = False
        self._of_leader = of_leader
        self._most = None if message.max_files < 0 else message.max_files
        self._is_committed = message.isolation_level == IsolationLevel.READ_COMMITTED

    def partition(self, asked: _AskedTopic.LeasePartition) -> TopicPartition:
        return TopicPartition(self._topic.topic, asked.partition_index)

    def find(self, asked: _AskedTopic.LeasePartition) -> Steps[_Found]:
        """A slice of the files a step. What is told of a slice is of one moment; the next begins where it ends, in the
        files that hold that offset by then.
        """
        self._room.check()
        self._is_cut = False
        files: list[Extent] = []
        aborted: dict[AbortedTransaction, None] = {}
        start = asked.start_offset
        while True:
            wanted = _SLICE if self._most is None else min(_SLICE, self._most - len(files))
            found = self._find_some(asked, start, wanted)
            files += found.extents.files
            aborted |= dict.fromkeys(found.aborted)
            start = found.extents.end_offset
            if self._is_cut or len(found.extents.files) < wanted or len(files) == self._most:
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
        extents = self._within_room(
            start, asked.end_offset, lambda end: partition.extents(start, end, isolation, most, self._lease)
        )
        aborted = []
        if self._is_committed and extents.files:
            aborted = partition.aborted_transactions(start, extents.end_offset)
        return _Found(partition.log_start_offset, extents, aborted)

    def _within_room(self, start: int, end: int, find: Callable[[int], Extents]) -> Extents:
        """The extents from ``start`` to ``end`` that there is room for, at least those of one offset."""
        found = find(end)
        while not self._room.admits(found) and found.end_offset > start + 1:
            self._is_cut = True
            halfway = start + (found.end_offset - start) // 2
            found = _without_last_file(found) if len(found.files) > 1 else find(halfway)
        self._room.take(found)
        return found


def _without_last_file(extents: Extents) -> Extents:
    return Extents(extents.files[:-1], extents.files[-1].first_offset)


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
