"""Sending encoded batches to the leaders of their partitions: several requests in flight."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from types import TracebackType

from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.cluster.retry import Backoff, is_retriable
from sparklog.client.producer.refusal import Refusal, refusal_of
from sparklog.cluster.leader_errors import is_leader_error
from sparklog.errors import ApiError, BatchRefused, ErrorCode, SparklogError
from sparklog.net.connection import BlockingConnection
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.hot import produce
from sparklog.protocol.hot.produce import ProduceResult
from sparklog.record.batch import RecordBatch
from sparklog.record.layout import RECORD_COUNT
from sparklog.structs import Endpoint, TopicPartition

Batch = bytes | bytearray
_Batches = dict[TopicPartition, Batch]
OnWait = Callable[[SparklogError], object]
"""Told, before each pause, of what is to be tried again and may pass by itself."""
_MOST_WAITING = 32 << 20
"""Bytes of batches to be sent again, beyond which no further one is taken."""
Reroute = Callable[[TopicPartition], TopicPartition]
"""Where a batch goes that is to be sent again: to its partition, or to another where nothing binds it."""


class _Pipeline:
    """One broker: a connection, the request being filled, those in flight."""

    def __init__(self, connection: BlockingConnection) -> None:
        self.connection = connection
        self.filling: _Batches = {}
        self.filled_bytes = 0
        self.in_flight: deque[_Batches] = deque()


class BatchProducer:
    """Takes one record batch (v2, whole, with its CRC) at a time; ``flush`` returns when all are acknowledged.

    A request carries at most one batch a partition, as brokers demand. A batch is sent again after a retriable error
    for ``delivery.timeout.ms``, counted anew with each success of its partition, whatever others do; an error that is
    not retriable raises ApiError naming the partition. While many bytes wait to be sent again, ``send`` blocks. These
    batches have no numbers: one that is sent again may be written twice, and change places with others of its
    partition. An IdempotentBatchProducer's are written once and in order. Not for several threads.
    """

    _transactional_id: str | None = None
    _ceiling: int | None = None
    """The newest version of Produce to use."""

    def __init__(self, cluster: ClusterMetadata, on_wait: OnWait | None = None, reroute: Reroute | None = None) -> None:
        self._cluster = cluster
        self._on_wait = on_wait
        self._reroute = reroute
        self._config = cluster.config
        self._acks = cluster.config.required_acks
        self._pipelines: dict[Endpoint, _Pipeline] = {}
        self._retries: deque[tuple[TopicPartition, Batch]] = deque()
        self._backoff: Backoff | None = None
        self._last_error: SparklogError | None = None
        self._failures: dict[int, tuple[float, SparklogError]] = {}
        """Since when a batch, by its ``id``, is sent again, and why the last time."""
        self._acknowledged_at: dict[TopicPartition, float] = {}
        """The last success of each partition while anything was sent again."""
        self._moved: set[str] = set()
        """Topics of which metadata is to be asked before the next try."""
        self._broken_off: set[int] = set()
        self.acknowledged_bytes = 0
        self.acknowledged_records = 0

    def __enter__(self) -> BatchProducer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.flush()
        finally:
            self.close()

    def send(self, tp: TopicPartition, batch: Batch) -> None:
        """Queue a batch; blocks while its broker has as many requests in flight as are allowed."""
        self._resend()
        while sum(len(waiting) for _, waiting in self._retries) > _MOST_WAITING:
            self._resend()
        self._enqueue(tp, batch)

    def will_send(self, partitions: Iterable[TopicPartition]) -> None:
        """Batches of these follow; nothing comes of that here."""

    def flush(self) -> None:
        """Wait until everything is acknowledged (for ``acks=0``: sent). Raises ApiError when something will not be."""
        while True:
            for endpoint in list(self._pipelines):
                self._dispatch(endpoint)
            for endpoint in list(self._pipelines):
                self._drain(endpoint, 0)
            if not self._retries:
                return
            self._resend()

    def close(self) -> None:
        """Give the connections back; what was not flushed may or may not have been written."""
        for pipeline in self._pipelines.values():
            if pipeline.in_flight:
                pipeline.connection.close()
            self._cluster.pool.give_back(pipeline.connection)
        self._pipelines.clear()

    def _enqueue(self, tp: TopicPartition, batch: Batch) -> SparklogError | None:
        """Have a batch sent with the next request to its leader. Returns what is in the way of that, if anything is."""
        try:
            endpoint, _ = self._cluster.leader(tp)
            pipeline = self._pipeline(endpoint)
        except SparklogError as error:
            self._retry_later({tp: batch}, error)
            return error
        full = pipeline.filled_bytes + len(batch) > self._config.max_request_size
        if pipeline.filling and (full or tp in pipeline.filling):
            self._dispatch(endpoint)
            pipeline = self._pipelines.get(endpoint, pipeline)
            if pipeline.connection.closed:
                self._retries.append((tp, batch))
                return None
        pipeline.filling[tp] = batch
        pipeline.filled_bytes += len(batch)
        return None

    def _pipeline(self, endpoint: Endpoint) -> _Pipeline:
        pipeline = self._pipelines.get(endpoint)
        if pipeline is None:
            pipeline = self._pipelines[endpoint] = _Pipeline(self._cluster.pool.take(endpoint))
        return pipeline

    def _dispatch(self, endpoint: Endpoint) -> None:
        """Send what has been filled, once there is room in flight."""
        self._drain(endpoint, self._config.max_in_flight - 1)
        pipeline = self._pipelines.get(endpoint)
        if pipeline is None or not pipeline.filling:
            return
        sent = pipeline.filling
        pipeline.filling, pipeline.filled_bytes = {}, 0
        pipeline.in_flight.append(sent)
        try:
            version = pipeline.connection.versions.best(ApiKey.PRODUCE, self._ceiling)
            body = produce.encode_request(
                self._acks,
                self._config.request_timeout_ms,
                {tp: [batch] for tp, batch in sent.items()},
                version,
                self._transactional_id,
            )
            pipeline.connection.send(ApiKey.PRODUCE, version, body, expect_response=self._acks != 0)
        except SparklogError as error:
            self._hang_up(endpoint, error)
            return
        if self._acks == 0:
            self._acknowledge(pipeline.in_flight.popleft())

    def _drain(self, endpoint: Endpoint, allowed: int) -> None:
        """Take answers until at most ``allowed`` requests are in flight."""
        pipeline = self._pipelines.get(endpoint)
        while pipeline is not None and len(pipeline.in_flight) > allowed:
            try:
                _, version, body = pipeline.connection.receive()
                results = produce.decode_response(body, version)
            except SparklogError as error:
                self._hang_up(endpoint, error)
                return
            self._settle(pipeline.in_flight.popleft(), results)

    def _settle(self, sent: _Batches, results: Mapping[TopicPartition, ProduceResult]) -> None:
        for tp, batch in sent.items():
            result = results.get(tp)
            if result is None:
                lost = ApiError(ErrorCode.NETWORK_EXCEPTION, f"the broker did not say what became of {tp}")
                self._retry_later({tp: batch}, lost)
            else:
                refusal = refusal_of(result.error, is_transactional=self._transactional_id is not None)
                self._answered(tp, batch, result, refusal)

    def _answered(self, tp: TopicPartition, batch: Batch, result: ProduceResult, refusal: Refusal | None) -> None:
        """What became of one batch."""
        if refusal is None:
            self._acknowledge({tp: batch})
            return
        error = _refused(tp, batch, result.error, result.message, refusal)
        if refusal is not Refusal.PASSING:
            raise error
        self._retry_later({tp: batch}, error)

    def _acknowledge(self, batches: _Batches) -> None:
        self._backoff = None
        if self._failures:
            self._acknowledged_at.update(dict.fromkeys(batches, self._cluster.clock.monotonic()))
        for batch in batches.values():
            self._failures.pop(id(batch), None)
            self.acknowledged_bytes += len(batch)
            self.acknowledged_records += int.from_bytes(batch[RECORD_COUNT : RECORD_COUNT + 4])

    def _hang_up(self, endpoint: Endpoint, error: SparklogError) -> None:
        """The connection is broken: whatever it carried is sent again."""
        pipeline = self._pipelines.pop(endpoint)
        pipeline.connection.close()
        self._cluster.pool.forget(endpoint)
        for sent in pipeline.in_flight:
            self._check_taken(sent, error)
            self._retry_later(sent, error)
        self._retry_later(pipeline.filling, error)

    def _check_taken(self, sent: _Batches, error: SparklogError) -> None:
        """A broker hangs up on a client that sends more than it takes at once, and says nothing: the second time that
        is believed of a batch beyond ``max.request.size``, which is alone in its request. Raises BatchRefused then."""
        for tp, batch in sent.items():
            if len(batch) <= self._config.max_request_size:
                continue
            if id(batch) in self._broken_off:
                silence = f"the broker hung up on it twice: {error}"
                raise _refused(tp, batch, ErrorCode.MESSAGE_TOO_LARGE, silence, Refusal.TOO_LARGE)
            self._broken_off.add(id(batch))

    def _retry_later(self, batches: _Batches, error: SparklogError) -> None:
        if not is_retriable(error):
            raise error
        self._last_error = error
        now = self._cluster.clock.monotonic()
        for tp, batch in batches.items():
            if is_leader_error(error):
                self._moved.add(tp.topic)
            since, _ = self._failures.get(id(batch), (now, error))
            self._failures[id(batch)] = since, error
            self._retries.append((tp, batch))

    def _resend(self) -> None:
        """Try once more after a pause; one question of metadata, for all whose leader may have moved."""
        if not self._retries or self._last_error is None:
            return
        self._raise_expired()
        if self._backoff is None:
            self._backoff = self._cluster.backoff(self._config.delivery_timeout_ms)
        if self._on_wait is not None:
            self._on_wait(self._last_error)
        self._backoff.wait(self._last_error)
        waiting = self._take_retries()
        for topic in self._moved:
            self._cluster.invalidate(topic)
        self._moved.clear()
        again = [(tp if self._reroute is None else self._reroute(tp), batch) for tp, batch in waiting]
        obstacles = self._obstacles({tp for tp, _ in again})
        for tp, batch in again:
            error = obstacles.get(tp)
            if error is not None:
                self._retry_later({tp: batch}, error)
            elif (error := self._enqueue(tp, batch)) is not None:
                obstacles[tp] = error

    def _raise_expired(self) -> None:
        now = self._cluster.clock.monotonic()
        for tp, batch in self._retries:
            since, error = self._failures.get(id(batch), (now, None))
            since = max(since, self._acknowledged_at.get(tp, since))
            if error is not None and now - since >= self._config.delivery_timeout_ms / 1000:
                raise error

    def _obstacles(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, SparklogError]:
        """Why some of these cannot be sent to now."""
        try:
            return dict(self._cluster.leaderless(partitions))
        except ApiError:
            return {}  # of one topic: each is asked about by itself then
        except SparklogError as error:
            return dict.fromkeys(partitions, error)

    def _take_retries(self) -> Iterable[tuple[TopicPartition, Batch]]:
        """What is to be sent again, in order."""
        again, self._retries = self._retries, deque()
        return again


def _refused(tp: TopicPartition, batch: Batch, code: ErrorCode, message: str | None, refusal: Refusal) -> BatchRefused:
    text = f"partition {tp} refused a batch of {len(batch)} bytes: {code.name}"
    if message:
        text += f" ({message})"
    if refusal is Refusal.TOO_LARGE:
        text += _remedy(batch)
    elif refusal is Refusal.OUT_OF_SEQUENCE:
        text += "; the leader has lost what it knew of this producer's batches, and may have this one already"
    return BatchRefused(code, text, batch)


def _remedy(batch: Batch) -> str:
    """What lets a batch in that is too large: one record cannot be divided."""
    if RecordBatch(batch).record_count == 1:
        return "; it is a single record: raise the topic's max.message.bytes, or make the record smaller"
    return "; raise the topic's max.message.bytes or lower batch.size"
