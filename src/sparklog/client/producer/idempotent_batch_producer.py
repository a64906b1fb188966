"""Encoded batches that are numbered, so that each is written once and in order however often it is sent."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.cluster.retry import is_retriable, retrying
from sparklog.client.producer.batch_producer import Batch, BatchProducer, OnWait
from sparklog.client.producer.config import MOST_IN_FLIGHT
from sparklog.client.producer.refusal import Refusal
from sparklog.client.producer.sequences import Numbering, ProducerId
from sparklog.errors import ApiError, ConfigError, ErrorCode, SparklogError
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.hot.produce import ProduceResult
from sparklog.protocol.messages import InitProducerIdRequest
from sparklog.record.batch import RecordBatch, patch_producer
from sparklog.record.layout import MAX_INT32
from sparklog.structs import Endpoint, TopicPartition


class _Line:
    """The numbers of one partition's batches."""

    def __init__(self, producer: ProducerId) -> None:
        self.numbering = Numbering(producer)
        self._count = 0
        self._unsettled: dict[int, int] = {}
        """Those given and not acknowledged, in their order; of each, how many batches were numbered before it."""
        self._refused: int | None = None
        """The number that was refused at its turn."""

    def stamp(self, batch: bytearray) -> None:
        stamp = self.numbering.stamp(RecordBatch(batch).record_count)
        patch_producer(batch, 0, *stamp)
        self._unsettled[stamp.sequence] = self._count
        self._count += 1

    def acknowledge(self, batch: Batch) -> None:
        sent = RecordBatch(batch)
        self.numbering.acknowledge(sent.base_sequence, sent.record_count)
        del self._unsettled[sent.base_sequence]
        self._refused = None

    def place(self, batch: Batch) -> int:
        """How many before this one are not acknowledged."""
        return list(self._unsettled).index(RecordBatch(batch).base_sequence)

    def places(self) -> dict[int, int]:
        """``place`` of each, by its first number."""
        return {sequence: place for place, sequence in enumerate(self._unsettled)}

    def is_in_memory(self, batch: Batch) -> bool:
        """Whether the leader still remembers the first that is not acknowledged when it has written this one."""
        first = next(iter(self._unsettled.values()))
        return self._unsettled[RecordBatch(batch).base_sequence] - first < MOST_IN_FLIGHT

    def is_behind(self, batch: Batch) -> bool:
        """Whether those before it were missing when it was refused; believed of a batch at its turn once."""
        first = next(iter(self._unsettled))
        if RecordBatch(batch).base_sequence != first:
            return True
        is_second_time = self._refused == first
        self._refused = first
        return not is_second_time


class IdempotentBatchProducer(BatchProducer):
    """A BatchProducer that writes each batch once, those of a partition in the order of ``send``. They are bytearrays.

    The numbers are those of ``sequences``, under a producer id that any broker gives for the first batch. A second
    batch waits until the first of its partition is acknowledged. From then on a batch is sent behind those before it,
    on one connection; where they are sent again, or the leader has moved meanwhile, it waits for its turn. It is never
    more than four behind the first that is not acknowledged: five are what a leader remembers.

    A number that is refused at its turn is tried once more. Refused again, it raises BatchRefused: the leader has lost
    what it knew of the producer, and nobody can tell whether it has the batch. A failed producer is of no further use.
    """

    _purpose = "writing each batch once"

    def __init__(self, cluster: ClusterMetadata, on_wait: OnWait | None = None) -> None:
        """Raises ConfigError where the settings do not allow it."""
        if not allows_numbering(cluster.config):
            raise ConfigError(
                f"{self._purpose} needs acks=all, and max.in.flight.requests.per.connection of at most {MOST_IN_FLIGHT}"
            )
        super().__init__(cluster, on_wait)
        self._producer: ProducerId | None = None
        self._lines: dict[TopicPartition, _Line] = {}

    def send(self, tp: TopicPartition, batch: Batch) -> None:
        assert isinstance(batch, bytearray)
        line = self._lines.get(tp)
        if line is None:
            self.will_send([tp])
            line = self._lines[tp] = _Line(self._identity())
        elif not line.numbering.is_proven:
            self.flush()
        line.stamp(batch)
        super().send(tp, batch)

    def _identity(self) -> ProducerId:
        if self._producer is None:
            backoff = self._cluster.backoff(self._config.delivery_timeout_ms)

            def in_time() -> ProducerId:
                with self._cluster.pool.within(lambda: backoff.seconds_left):
                    return self._new_identity()

            self._producer = retrying(backoff, in_time)
        return self._producer

    def _new_identity(self) -> ProducerId:
        try:
            answer = self._cluster.request_any(
                ApiKey.INIT_PRODUCER_ID,
                lambda version: InitProducerIdRequest(
                    version=version, transactional_id=None, transaction_timeout_ms=MAX_INT32
                ),
            )
            code = ErrorCode(answer.error_code)
            if code is not ErrorCode.NONE:
                raise ApiError(code, f"no producer id is given: {code.name}")
        except SparklogError as error:
            if self._on_wait is not None and is_retriable(error):
                self._on_wait(error)
            raise
        return ProducerId(answer.producer_id, answer.producer_epoch)

    def _dispatch(self, endpoint: Endpoint) -> None:
        self._drain(endpoint, self._config.max_in_flight - 1)
        self._hold_back(endpoint)
        super()._dispatch(endpoint)

    def _hold_back(self, endpoint: Endpoint) -> None:
        """Let what is not to be sent yet wait: one before it is neither acknowledged nor in flight to this broker, or
        would be forgotten by its leader."""
        pipeline = self._pipelines.get(endpoint)
        if pipeline is None:
            return
        for tp, batch in list(pipeline.filling.items()):
            in_flight = sum(tp in sent for sent in pipeline.in_flight)
            line = self._lines[tp]
            if line.place(batch) != in_flight or not line.is_in_memory(batch):
                del pipeline.filling[tp]
                pipeline.filled_bytes -= len(batch)
                self._wait_behind(tp, batch)

    def _wait_behind(self, tp: TopicPartition, batch: Batch) -> None:
        """It is sent again with those before it; what these wait for is what the user is told."""
        if self._last_error is None:
            self._last_error = _not_now(tp, "waits for an earlier batch")
        self._retries.append((tp, batch))

    def _answered(self, tp: TopicPartition, batch: Batch, result: ProduceResult, refusal: Refusal | None) -> None:
        line = self._lines[tp]
        if refusal is Refusal.OUT_OF_SEQUENCE and line.is_behind(batch):
            if line.place(batch):
                self._wait_behind(tp, batch)
            else:
                self._retry_later({tp: batch}, _not_now(tp, f"refused the number of a batch: {result.error.name}"))
            return
        if refusal is None:
            line.acknowledge(batch)
        super()._answered(tp, batch, result, refusal)

    def _take_retries(self) -> Iterable[tuple[TopicPartition, Batch]]:
        """All that is unsettled, in order: what is in flight to other brokers is waited for first."""
        for endpoint in list(self._pipelines):
            self._drain(endpoint, 0)
        for pipeline in self._pipelines.values():
            self._retries.extend(pipeline.filling.items())
            pipeline.filling, pipeline.filled_bytes = {}, 0
        again, self._retries = self._retries, deque()
        places = {tp: self._lines[tp].places() for tp in {tp for tp, _ in again}}
        return sorted(again, key=lambda each: places[each[0]][RecordBatch(each[1]).base_sequence])


def allows_numbering(config: ClientConfig) -> bool:
    """Whether brokers can keep a producer's promise to write once: all replicas answer, and remember all in flight."""
    return config.required_acks == -1 and config.max_in_flight <= MOST_IN_FLIGHT


def best_producer(cluster: ClusterMetadata, on_wait: OnWait | None = None) -> BatchProducer:
    """One that writes each batch once and in order where the settings allow it, otherwise a plain one."""
    if allows_numbering(cluster.config):
        return IdempotentBatchProducer(cluster, on_wait)
    return BatchProducer(cluster, on_wait)


def _not_now(tp: TopicPartition, text: str) -> ApiError:
    return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"partition {tp} {text}")
