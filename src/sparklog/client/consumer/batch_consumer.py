"""Reading partitions as they grow: what the command line drives. One fetch a broker at a time, batches in, rows out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple
from uuid import UUID

from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.cluster.offsets import EARLIEST, LATEST, earliest_offsets, latest_offsets, remote_at
from sparklog.client.cluster.retry import Backoff
from sparklog.client.consumer.record import Header
from sparklog.errors import ApiError, CorruptRecord, ErrorCode, RemoteProtocolError, SparklogError
from sparklog.fetch.position import FetchPositions, Refusal, fed, may_be_gap, refusal_of
from sparklog.fetch.read_replica import ReadReplicas
from sparklog.fetch.scan import unreadable
from sparklog.net.connection import BlockingConnection
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.hot import fetch
from sparklog.protocol.hot.fetch import FetchedPartition, FetchPartition, FetchRequest
from sparklog.protocol.wire import ZERO_UUID
from sparklog.record.batch import RecordBatch
from sparklog.record.columnar import COLUMNS, ColumnarDecoder
from sparklog.record.layout import MAX_INT64
from sparklog.structs import NO_EPOCH, NO_LEADER, Endpoint, LeaderEpoch, TopicPartition

Positions = dict[TopicPartition, int]
Batches = dict[TopicPartition, list[RecordBatch]]


class ConsumedRecord(NamedTuple):
    """One record as a person sees it; ``timestamp`` is milliseconds, ``timestamp_type`` 0 create, 1 log append."""

    tp: TopicPartition
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


class BatchConsumer:
    """Records of some partitions from some positions on, each partition's in order.

    ``positions`` may be offsets, EARLIEST or LATEST. No group, no commits: the caller keeps the offsets. They are of
    the topics that had the names at the first poll: where another has one later, OFFSET_OUT_OF_RANGE is raised.
    """

    def __init__(self, cluster: ClusterMetadata, positions: Mapping[TopicPartition, int]) -> None:
        self._cluster = cluster
        self._config = cluster.config
        self.positions = resolve(cluster, positions)
        self.damaged: dict[TopicPartition, CorruptRecord] = {}
        """Partitions that have a damaged batch at their position: they give nothing more until it is moved."""
        self._topic_ids: dict[str, UUID] = {}
        self._readers = FetchPositions(self._config.isolation_level, check_crcs=self._config.check_crcs)
        self._replicas = ReadReplicas(self._config.client_rack, self._config.metadata_max_age_ms / 1000)

    def poll(self, max_wait_ms: int | None = None, patience_ms: int | None = None) -> Batches:
        """The next batches; brokers without any hold the question for ``fetch.max.wait.ms``, or as said.

        The first batch may begin before the position that was asked for. Positions move when this returns; if it raises
        or is interrupted, they have passed no batch that is visible. Moved leaders and lost connections are
        retried for ``patience_ms`` (``default.api.timeout.ms``); after that the next poll goes on where this one was.
        """
        found, self.positions = self._poll(self.positions, max_wait_ms, patience_ms)
        return found

    def records(self, *, until: Mapping[TopicPartition, int] | None = None) -> Iterator[ConsumedRecord]:
        """One record after another: for ever, or up to these offsets."""
        ends = None if until is None else dict(until)
        while True:
            wanted = self.positions if ends is None else {tp: at for tp, at in self.positions.items() if at < ends[tp]}
            if not wanted:
                return
            before = dict(wanted)
            found, self.positions = self._poll(wanted, None)
            for tp, batches in found.items():
                yield from _rows(tp, batches, before[tp], None if ends is None else ends[tp])

    def _poll(
        self, wanted: Mapping[TopicPartition, int], max_wait_ms: int | None, patience_ms: int | None = None
    ) -> tuple[Batches, Positions]:
        """What is to be given, and all positions after it."""
        backoff = self._cluster.backoff(patience_ms)
        while True:
            at = {tp: self.positions[tp] for tp in wanted}
            try:
                return self._poll_once(at, self._config.fetch_max_wait_ms if max_wait_ms is None else max_wait_ms)
            except SparklogError as error:
                self._recover(error, backoff, wanted)

    def _recover(self, error: SparklogError, backoff: Backoff, wanted: Iterable[TopicPartition]) -> None:
        backoff.wait(error)
        self._forget_leaders(wanted)

    def _poll_once(self, wanted: Mapping[TopicPartition, int], wait_ms: int) -> tuple[Batches, Positions]:
        """What the brokers give that answer; what is wrong with the others is raised where none gives anything."""
        led, leaderless = self._cluster.led(wanted)
        groups = self._by_replica(led)
        failure: SparklogError | None = None
        if leaderless:
            failure = self._why_not(leaderless)
        asked: list[tuple[BlockingConnection, list[TopicPartition]]] = []
        answers: list[FetchedPartition] = []
        for endpoint, partitions in groups.items():
            try:
                asked.append((self._ask(endpoint, {tp: wanted[tp] for tp in partitions}, wait_ms), partitions))
            except SparklogError as error:
                failure = error
                self._forget_replicas(partitions)
        for connection, partitions in asked:
            try:
                answers += self._answer(connection)
            except SparklogError as error:
                connection.close()
                failure = error
                self._forget_replicas(partitions)
            except BaseException:
                for each, _ in asked:
                    each.close()
                raise
        for connection, _ in asked:
            self._cluster.pool.give_back(connection)
        return self._take(answers, wanted, failure)

    def _forget_leaders(self, partitions: Iterable[TopicPartition]) -> None:
        for topic in {tp.topic for tp in partitions}:
            self._cluster.invalidate(topic)

    @property
    def _now(self) -> float:
        return self._cluster.clock.monotonic()

    def _by_replica(self, led: Mapping[Endpoint, list[TopicPartition]]) -> dict[Endpoint, list[TopicPartition]]:
        """The partitions, which are given under their leaders, under the brokers that are to be read."""
        now, brokers = self._now, self._cluster.brokers
        groups: dict[Endpoint, list[TopicPartition]] = {}
        for leader, partitions in led.items():
            for tp in partitions:
                replica = self._replicas.choose(tp, NO_LEADER, brokers, now)
                groups.setdefault(brokers.get(replica, leader), []).append(tp)
        return groups

    def _forget_replicas(self, partitions: Iterable[TopicPartition]) -> None:
        for tp in partitions:
            self._replicas.failed(tp, self._now)
        self._forget_leaders(partitions)

    def _why_not(self, leaderless: list[TopicPartition]) -> ApiError:
        """Why the first of these has no leader; who leads it now is asked for at the next poll."""
        try:
            self._cluster.leader(leaderless[0])
        except ApiError as error:
            return error
        return ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"partition {leaderless[0]} has no leader")

    def _ask(self, endpoint: Endpoint, wanted: Mapping[TopicPartition, int], wait_ms: int) -> BlockingConnection:
        topics = {topic: self._topic_id(topic) for topic in {tp.topic for tp in wanted}}
        connection = self._cluster.pool.take(endpoint)
        by_name = fetch.TOPIC_ID_VERSION - 1 if ZERO_UUID in topics.values() else None
        version = connection.versions.best(ApiKey.FETCH, by_name)
        most = self._config.max_partition_fetch_bytes
        partitions = [
            FetchPartition(tp.topic, topics[tp.topic], tp.partition, at, most, self._epoch(tp))
            for tp, at in wanted.items()
        ]
        request = FetchRequest(
            wait_ms,
            1,
            self._config.fetch_max_bytes,
            partitions,
            isolation=self._config.isolation_level,
            rack_id=self._replicas.rack(self._now),
        )
        connection.send(ApiKey.FETCH, version, fetch.encode_request(request, version))
        return connection

    def _epoch(self, tp: TopicPartition) -> LeaderEpoch:
        info = self._cluster.topic(tp.topic).partition(tp.partition)
        return NO_EPOCH if info is None else info.leader_epoch

    def _topic_id(self, topic: str) -> UUID:
        """That of the topic for which the positions are; zeros where brokers have no ids."""
        now = self._cluster.topic(topic).topic_id
        if now == ZERO_UUID:
            return now
        known = self._topic_ids.setdefault(topic, now)
        if known != now:
            text = f"topic {topic!r} was deleted and created again; the offsets that were reached are of the one before"
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, text)
        return known

    def _answer(self, connection: BlockingConnection) -> list[FetchedPartition]:
        _, version, body = connection.receive()
        error, partitions = fetch.decode_response(body, version)
        if error is not ErrorCode.NONE:
            raise ApiError(error, f"fetch from broker {connection.endpoint}: {error.name}")
        return partitions

    def _remote(
        self, answers: Mapping[TopicPartition, FetchedPartition], wanted: Mapping[TopicPartition, int]
    ) -> set[TopicPartition]:
        """The partitions of which a leader may have given nothing because its remote storage is slow."""
        isolation = self._config.isolation_level
        gaps = {tp: wanted[tp] for tp, answer in answers.items() if may_be_gap(answer, wanted[tp], isolation)}
        found: set[TopicPartition] = set()
        if gaps and not fed(answers.values()):
            try:
                for leader, led in self._cluster.by_leader(gaps).items():
                    with self._cluster.pool.borrow(leader) as connection:
                        places = {tp: gaps[tp] for tp in led}
                        found |= remote_at(connection, places, self._config.request_timeout_ms)
            except SparklogError:  # nobody knows
                return {*gaps}
        return found

    def _take(
        self, told: list[FetchedPartition], wanted: Mapping[TopicPartition, int], failure: SparklogError | None
    ) -> tuple[Batches, Positions]:
        names = {topic_id: topic for topic, topic_id in self._topic_ids.items()}
        answers = {TopicPartition(each.topic or names[each.topic_id], each.partition): each for each in told}
        remote = self._remote(answers, wanted)
        taken: Batches = {}
        positions = dict(self.positions)
        with_records = fed(told)
        for tp, answer in answers.items():
            refusal = refusal_of(answer.error)
            if refusal is not None and self._replicas.back_to_leader(tp) and refusal is Refusal.OUT_OF_RANGE:
                continue
            if refusal is not None:
                failure = ApiError(answer.error, f"partition {tp} at offset {wanted[tp]}: {answer.error.name}")
                if refusal is Refusal.MOVED:
                    self._forget_leaders([tp])
                continue
            if answer.preferred_read_replica >= 0:
                self._replicas.named(tp, answer.preferred_read_replica, self._now)
                continue
            try:
                had_room = with_records == bool(answer.records) and tp not in remote
                found = self._readers.at(tp, wanted[tp]).take(answer, had_room=had_room)
            except CorruptRecord as error:
                self.damaged[tp] = failure = error
                continue
            except RemoteProtocolError as error:
                failure = error
                continue
            positions[tp] = found.next_offset
            if found.batches:
                taken[tp] = found.batches
        if failure is not None and not taken:
            self.positions = positions
            raise failure
        return taken, positions


def resolve(cluster: ClusterMetadata, positions: Mapping[TopicPartition, int]) -> Positions:
    """``positions`` with EARLIEST and LATEST looked up."""
    first = earliest_offsets(cluster, [tp for tp, at in positions.items() if at == EARLIEST])
    last = latest_offsets(cluster, [tp for tp, at in positions.items() if at == LATEST])
    return {**positions, **first, **last}


def _rows(tp: TopicPartition, batches: list[RecordBatch], start: int, end: int | None) -> Iterator[ConsumedRecord]:
    decoder = ColumnarDecoder(COLUMNS)
    for batch in batches:
        try:
            decoder.append(batch, start, MAX_INT64 if end is None else end)
        except CorruptRecord as error:
            raise unreadable(tp, batch, error) from error
    columns = {name: column.to_pylist() for name, column in decoder.finish().items()}
    for key, value, headers, offset, timestamp, kind in zip(*(columns[name] for name in COLUMNS), strict=True):
        pairs = tuple((each["key"], each["value"]) for each in headers or ())
        yield ConsumedRecord(tp, offset, timestamp, kind, key, value, pairs)
