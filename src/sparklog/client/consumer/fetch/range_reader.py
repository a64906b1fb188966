"""Reading one range of one partition: whole batches, the next request under way while the last answer is used."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from uuid import UUID

from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.cluster.offsets import earliest_offsets, latest_offsets, remote_at
from sparklog.cluster.info import TopicInfo
from sparklog.cluster.leader_errors import is_leader_error
from sparklog.errors import ApiError, ConnectionFailed, ErrorCode, SparklogError
from sparklog.fetch.position import FetchPosition, Refusal, may_be_gap, refusal_of
from sparklog.fetch.read_replica import ReadReplicas
from sparklog.net.connection import BlockingConnection
from sparklog.net.throttle import throttle_seconds
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.hot import fetch
from sparklog.protocol.hot.fetch import FetchedPartition, FetchPartition, FetchRequest
from sparklog.protocol.wire import ZERO_UUID
from sparklog.record.batch import RecordBatch
from sparklog.structs import NO_EPOCH, Endpoint, IsolationLevel, TopicPartition

_FIRST_GUESS = 1024
"""Bytes an offset takes, as long as no answer has shown it."""

_LEAST_FETCH = 64 * 1024


def fetch_range(
    cluster: ClusterMetadata,
    tp: TopicPartition,
    start: int,
    end: int,
    *,
    isolation: IsolationLevel | None = None,
    topic_id: UUID | None = None,
) -> Iterator[RecordBatch]:
    """The batches that hold the offsets ``start`` ≤ o < ``end``; the first and the last may hold others besides.

    ``end`` must be committed already. Moved leaders and lost connections are retried from the next offset. Raises
    ApiError(OFFSET_OUT_OF_RANGE) if records of the range are gone, or the topic is another one than ``topic_id``.
    """
    level = cluster.config.isolation_level if isolation is None else isolation
    fetcher = _RangeReader(cluster, tp, start, end, level)
    fetcher.topic_id = topic_id
    try:
        yield from fetcher.batches()
    finally:
        fetcher.hang_up()


def fetch_everything(
    cluster: ClusterMetadata, tp: TopicPartition, start: int, end: int, topic_id: UUID
) -> Generator[RecordBatch, None, None]:
    """The batches that hold the offsets ``start`` ≤ o < ``end``, and none besides, as the log has them: markers and
    those of aborted transactions too; of those without records some are left out. All CRCs are checked. Raises as
    ``fetch_range`` does. Close it.
    """
    fetcher = _RangeReader(cluster, tp, start, end, IsolationLevel.READ_UNCOMMITTED, everything=True)
    fetcher.topic_id = topic_id
    try:
        for batch in fetcher.batches():
            if start < batch.next_offset and batch.base_offset < end:
                yield batch
    finally:
        fetcher.hang_up()


class _RangeReader:
    def __init__(
        self,
        cluster: ClusterMetadata,
        tp: TopicPartition,
        start: int,
        end: int,
        isolation: IsolationLevel,
        *,
        everything: bool = False,
    ) -> None:
        self.topic_id: UUID | None = None
        self._cluster = cluster
        self._config = cluster.config
        self._tp = tp
        self._start = start
        self._end = end
        self._isolation = isolation
        check_crcs = everything or cluster.config.check_crcs
        self._position = FetchPosition(tp, start, isolation, check_crcs=check_crcs, everything=everything)
        self._bytes_seen = 0
        self._connection: BlockingConnection | None = None
        self._version = 0
        self._leader_epoch = NO_EPOCH
        self._in_flight = False
        self._is_throttled = False
        """The last answer had nothing but a wait, for a quota."""
        self._is_remote = False
        """The last answer had nothing, and what was asked for is in the leader's remote storage."""
        self._replicas = ReadReplicas(self._config.client_rack, self._config.metadata_max_age_ms / 1000)

    def batches(self) -> Iterator[RecordBatch]:
        backoff = self._cluster.backoff()
        while self._position.offset < self._end:
            try:
                batches = self._advance()
            except SparklogError as error:
                self.hang_up()
                if isinstance(error, ConnectionFailed):
                    self._replicas.failed(self._tp, self._now)
                else:
                    self._replicas.back_to_leader(self._tp)
                backoff.wait(error)
                if is_leader_error(error):
                    self._cluster.invalidate(self._tp.topic)
                continue
            if batches is None:
                if self._is_throttled:  # the leader is there, and goes on when the wait is over: not a failure
                    backoff.reset()
                elif backoff.expired:
                    raise self._stalled()
                continue
            backoff.reset()
            yield from batches

    def hang_up(self) -> None:
        """Give the connection back, or close it if an answer is still to come on it."""
        if self._connection is not None:
            if self._in_flight:
                self._connection.close()
            self._cluster.pool.give_back(self._connection)
        self._connection = None
        self._in_flight = False

    def _advance(self) -> list[RecordBatch] | None:
        """The next answer's batches with the request after it sent; None if the answer brought nothing."""
        if not self._in_flight:
            self._ask()
        fetched = self._answer()
        if fetched is None:
            return None
        before = self._position.offset
        self._is_remote = may_be_gap(fetched, before, self._isolation) and self._is_before_the_log()
        found = self._position.take(fetched, had_room=not self._is_remote)
        if found.next_offset == before:
            if self._replicas.failed(self._tp, self._now):  # the end of the range is committed: the leader shows it
                self.hang_up()
            return None
        self._bytes_seen += sum(batch.size_in_bytes for batch in found.batches)
        if found.next_offset < self._end:
            self._ask_ahead()
        return found.batches

    def _is_before_the_log(self) -> bool:
        assert self._connection is not None
        wanted = {self._tp: self._position.offset}
        return bool(remote_at(self._connection, wanted, self._config.request_timeout_ms))

    def _ask_ahead(self) -> None:
        """Ask while what came is used. What fails here fails again, and is judged, when the answer is wanted."""
        try:
            self._ask()
        except SparklogError:
            self.hang_up()

    @property
    def _now(self) -> float:
        return self._cluster.clock.monotonic()

    def _ask(self) -> None:
        if self._connection is None:
            leader, topic = self._cluster.leader(self._tp)
            if self.topic_id not in (None, ZERO_UUID, topic.topic_id):
                raise ApiError(
                    ErrorCode.OFFSET_OUT_OF_RANGE, f"topic {self._tp.topic!r} was deleted and created again meanwhile"
                )
            self.topic_id = topic.topic_id
            endpoint = self._replica(topic) or leader
            self._connection = self._cluster.pool.take(endpoint)
            by_name = fetch.TOPIC_ID_VERSION - 1 if topic.topic_id == ZERO_UUID else None
            self._version = self._connection.versions.best(ApiKey.FETCH, by_name)
        body = fetch.encode_request(self._request(self._bytes_to_ask()), self._version)
        self._connection.send(ApiKey.FETCH, self._version, body)
        self._in_flight = True

    def _replica(self, topic: TopicInfo) -> Endpoint | None:
        """Where the replica that is to be read listens; None where nothing is known of it."""
        info, brokers = topic.partition(self._tp.partition), self._cluster.brokers
        if info is None:
            return None
        self._leader_epoch = info.leader_epoch
        return brokers.get(self._replicas.choose(self._tp, info.leader, brokers, self._now))

    def _request(self, max_bytes: int) -> FetchRequest:
        asked = FetchPartition(
            self._tp.topic,
            self.topic_id or ZERO_UUID,
            self._tp.partition,
            self._position.offset,
            max_bytes,
            self._leader_epoch,
        )
        return FetchRequest(
            max_wait_ms=self._config.fetch_max_wait_ms,
            min_bytes=1,
            max_bytes=self._config.fetch_max_bytes,
            partitions=[asked],
            isolation=self._isolation,
            rack_id=self._replicas.rack(self._now),
        )

    def _bytes_to_ask(self) -> int:
        """Enough for what is left, judged by what came so far: a short range must not fetch megabytes past its end."""
        position = self._position.offset
        done = position - self._start
        bytes_per_offset = self._bytes_seen / done if done else _FIRST_GUESS
        enough = int((self._end - position) * bytes_per_offset * 1.05) + _LEAST_FETCH
        return min(enough, self._config.max_partition_fetch_bytes)

    def _answer(self) -> FetchedPartition | None:
        """What the partition gave; None where another broker is to be asked, or the same one again."""
        assert self._connection is not None
        api, version, body = self._connection.receive()
        self._in_flight = False
        error, partitions = fetch.decode_response(body, version)
        if error is ErrorCode.NONE and not partitions:
            self._is_throttled = throttle_seconds(api, version, body) > 0  # the connection waits before it sends again
            if self._is_throttled:
                return None
            error = ErrorCode.THROTTLING_QUOTA_EXCEEDED
        self._is_throttled = False
        code = error if error is not ErrorCode.NONE else partitions[0].error
        refusal = refusal_of(code)
        if refusal is Refusal.OUT_OF_RANGE and self._replicas.back_to_leader(self._tp):
            self.hang_up()
            return None
        if refusal is Refusal.OUT_OF_RANGE:
            raise self._out_of_range()
        if refusal is not None:
            raise ApiError(code, f"fetch of partition {self._tp} at offset {self._position.offset}: {code.name}")
        if partitions[0].preferred_read_replica >= 0:
            self._replicas.named(self._tp, partitions[0].preferred_read_replica, self._now)
            self.hang_up()
            return None
        return partitions[0]

    def _out_of_range(self) -> ApiError:
        first = earliest_offsets(self._cluster, [self._tp])[self._tp]
        last = latest_offsets(self._cluster, [self._tp], self._isolation)[self._tp]
        return ApiError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"partition {self._tp}: offset {self._position.offset} of the range {self._start} to {self._end} is asked"
            f" for, but the partition holds {first} to {last}",
        )

    def _stalled(self) -> ApiError:
        why = "its high watermark has not come back that far"
        if self._isolation is IsolationLevel.READ_COMMITTED:
            why = f"a transaction is open there, or {why}"
        if self._is_remote:
            why = "it is in the leader's remote storage, which is slow"
        return ApiError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"partition {self._tp} gave nothing at offset {self._position.offset} (of {self._start} to {self._end})"
            f" for {self._config.api_timeout_ms} ms: {why}",
        )
