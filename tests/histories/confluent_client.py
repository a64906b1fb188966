"""confluent-kafka behind the seam."""

from __future__ import annotations

import signal
import struct
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from histories.clients import (
    REQUEST_S,
    SESSION_TIMEOUT_MS,
    UNKNOWN_OFFSET,
    ClientFailed,
    Listener,
    Received,
    Tp,
)
from histories.rows import from_wire, on_wire

from sparklog.testing.librdkafka import librdkafka_settings

HANGS_S = 15


def _failure(error: KafkaException) -> ClientFailed:
    cause = error.args[0]
    return ClientFailed(str(cause), retriable=cause.retriable(), abortable=cause.txn_requires_abort())


class ConfluentProducer:
    def __init__(
        self,
        cluster: Mapping[str, str],
        transactional_id: str | None,
        timeout_ms: int,
        acks: str = "all",
        *,
        plain: bool = False,
    ) -> None:
        settings: dict[str, Any] = {
            **librdkafka_settings(cluster),
            "acks": acks,
            "enable.idempotence": acks == "all" and not plain,
            "linger.ms": 2,
            "message.timeout.ms": timeout_ms - 1000 if transactional_id else 120_000,
            "queue.buffering.max.messages": 2000,
            "retry.backoff.ms": 50,
            "reconnect.backoff.max.ms": 300,
            "log_level": 0,
        }
        if transactional_id is not None:
            settings |= {"transactional.id": transactional_id, "transaction.timeout.ms": timeout_ms}
        self._producer = Producer(settings)
        self._gave_up = False
        """Whether records of a transaction that was aborted were taken out of the queue."""
        if transactional_id is not None:
            self._call(self._producer.init_transactions, 60.0)

    @staticmethod
    def _call(method: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return method(*arguments)
        except KafkaException as error:
            raise _failure(error) from error

    def produce(self, tp: Tp, value: str, told: Callable[[int], None]) -> bool:
        """False if there is no room for it now."""

        def delivered(error: Any, message: Any) -> None:
            if error is not None and error.code() == KafkaError._PURGE_QUEUE:
                self._gave_up = True
            if error is None:  # of a batch that was sent again the offset may not be known any more
                offset = message.offset()
                told(UNKNOWN_OFFSET if offset is None else offset)

        sent = on_wire(value)
        how: dict[str, Any] = {"partition": tp[1], "headers": sent.headers, "on_delivery": delivered}
        try:
            self._call(lambda: self._producer.produce(tp[0], sent.value, sent.key, **how))
        except BufferError:
            return False
        return True

    def poll(self, seconds: float) -> None:
        self._serve(self._producer.poll, seconds)

    def flush(self, seconds: float) -> int:
        return int(self._serve(self._producer.flush, seconds))

    @classmethod
    def _serve(cls, method: Callable[[float], Any], seconds: float) -> Any:
        """confluent-kafka 2.16 raises a fatal error while it calls back, and SystemError from that where a further
        call back comes after it."""
        try:
            return cls._call(method, seconds)
        except SystemError as error:
            if not isinstance(error.__cause__, KafkaException):
                raise
            raise _failure(error.__cause__) from error

    def begin(self) -> None:
        """Refused for good after records were given up that may have been sent: librdkafka 2.16 gives their sequence
        numbers to the next ones (``rd_kafka_toppar_purge_queues``), though it had taken them back into its queue after
        a connection broke. A broker that has the former ones, Kafka's too, takes the latter for the same if they are as
        many, acknowledges them and drops them. Which of those given up were sent it does not say.

        The alarm ends the process: librdkafka 2.16 was seen never to return from sending offsets where the
        connection to the group's coordinator broke just before, whatever its timeout; the broker is not asked anything
        meanwhile."""
        self.poll(0)
        if self._gave_up:
            raise ClientFailed("the next records would have the sequence numbers of those that were given up")
        signal.alarm(HANGS_S)
        self._call(self._producer.begin_transaction)

    def send_offsets(self, offsets: Mapping[Tp, int], consumer: ConfluentConsumer) -> None:
        self._call(self._producer.send_offsets_to_transaction, _places(offsets), consumer.membership(), REQUEST_S)

    def commit(self) -> None:
        self._call(self._producer.commit_transaction, REQUEST_S)

    def abort(self) -> None:
        self.flush(REQUEST_S)  # what is answered is not given up
        self._call(self._producer.abort_transaction, REQUEST_S)


def _places(offsets: Mapping[Tp, int]) -> list[TopicPartition]:
    return [TopicPartition(*tp, offset) for tp, offset in offsets.items()]


def _tps(partitions: list[TopicPartition]) -> list[Tp]:
    return [(each.topic, each.partition) for each in partitions]


class ConfluentConsumer:
    def __init__(
        self, cluster: Mapping[str, str], topic: str, group: str, listener: Listener, how: Mapping[str, Any]
    ) -> None:
        settings: dict[str, Any] = {
            **librdkafka_settings(cluster),
            "group.id": group,
            "isolation.level": how["isolation"],
            "partition.assignment.strategy": how["assignor"],
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": SESSION_TIMEOUT_MS // 5,
            "max.poll.interval.ms": 60_000,
            "fetch.wait.max.ms": 100,
            "reconnect.backoff.max.ms": 300,
            "log_level": 0,
        }
        if how.get("instance"):
            settings["group.instance.id"] = how["instance"]
        self._consumer = Consumer(settings)
        self._cooperative = "cooperative" in how["assignor"]
        self._listener = listener
        self._consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        where = self._listener.assigned(_tps(partitions))
        assign = consumer.incremental_assign if self._cooperative else consumer.assign
        assign(_places(where))

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._listener.revoked(_tps(partitions))
        self._unassign(consumer, partitions)

    def _lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._listener.lost(_tps(partitions))
        self._unassign(consumer, partitions)

    def _unassign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if self._cooperative:
            consumer.incremental_unassign(partitions)
        else:
            consumer.unassign()

    def receive(self, seconds: float) -> list[Received]:
        try:
            messages = self._consumer.consume(50, seconds)
        except KafkaException as failed:
            raise _failure(failed) from failed
        received = []
        for message in messages:
            error = message.error()
            if error is None:
                text = from_wire(message.key(), message.value(), message.headers())
                received.append(Received((message.topic(), message.partition()), message.offset(), text))
            elif error.fatal():
                raise ClientFailed(str(error))
        return received

    def committed(self, partitions: list[Tp]) -> dict[Tp, int]:
        """0 where nothing is."""
        asked = [TopicPartition(*tp) for tp in partitions]
        try:
            found = self._consumer.committed(asked, REQUEST_S) if asked else []
        except KafkaException as error:
            raise _failure(error) from error
        for each in found:
            if each.error is not None:
                raise ClientFailed(str(each.error))
        return {(each.topic, each.partition): max(each.offset, 0) for each in found}

    def commit(self, offsets: Mapping[Tp, int]) -> None:
        try:
            answers = self._consumer.commit(offsets=_places(offsets), asynchronous=False)
        except KafkaException as error:
            raise _failure(error) from error
        for each in answers or ():
            if each.error is not None:
                raise ClientFailed(str(each.error))

    def seek(self, offsets: Mapping[Tp, int]) -> None:
        for (topic, partition), offset in offsets.items():
            try:
                self._consumer.seek(TopicPartition(topic, partition, offset or OFFSET_BEGINNING))
            except KafkaException as error:
                raise _failure(error) from error

    def membership(self) -> bytes:
        return bytes(self._consumer.consumer_group_metadata())

    def identity(self) -> tuple[str, int]:
        """Member id (the instance id of a static one) and generation, from what librdkafka hands to a producer:
        a mark, the generation in the machine's byte order, group, member, a byte that is 1 if there is no instance,
        instance; the texts each ended by a zero."""
        data = self.membership().removeprefix(b"CGMDv2:")
        _, member, rest = data[4:].split(b"\0", 2)
        instance = rest[1:].rstrip(b"\0")
        return (instance or member).decode(), struct.unpack("=i", data[:4])[0]

    def close(self) -> None:
        """confluent-kafka 2.16 sometimes raises a text, which Python cannot, where a commit in its own close failed."""
        try:
            self._consumer.close()
        except SystemError as error:
            if "is not a BaseException subclass" not in str(error):
                raise


PRODUCER, CONSUMER = ConfluentProducer, ConfluentConsumer
