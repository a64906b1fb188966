"""sparklog.client behind the seam.

Unlike librdkafka it is not excused when it hangs: the drill counts an actor that does not end in time as crashed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from histories.clients import (
    REQUEST_S,
    SESSION_TIMEOUT_MS,
    ClientFailed,
    Listener,
    Received,
    Tp,
)
from histories.rows import from_wire, on_wire

from sparklog.client import Consumer, Producer
from sparklog.client.cluster.retry import is_retriable
from sparklog.client.consumer.group.metadata import GroupMetadata
from sparklog.client.producer.delivery import RecordMetadata
from sparklog.client.producer.transaction import Severity, severity
from sparklog.errors import ApiError, ErrorCode, SparklogError
from sparklog.structs import TopicPartition

MOST_UNDER_WAY = 2000
_COMMON = {"retry.backoff.ms": 50, "request.timeout.ms": 4000, "default.api.timeout.ms": int(REQUEST_S * 1000)}


@contextmanager
def _failing() -> Iterator[None]:
    """Whatever the client raises, as the seam has it."""
    try:
        yield
    except SparklogError as error:
        abortable = severity(error) is Severity.ABORTABLE
        text = f"{type(error).__name__}: {error}"
        raise ClientFailed(text, retriable=is_retriable(error) and not abortable, abortable=abortable) from error


class OwnProducer:
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
            **_COMMON,
            **cluster,
            "acks": acks,
            "enable.idempotence": acks == "all" and not plain,
            "linger.ms": 2,
            "delivery.timeout.ms": timeout_ms - 1000 if transactional_id else 120_000,
            "max.block.ms": int(REQUEST_S * 1000),
        }
        if transactional_id is not None:
            settings |= {"transactional.id": transactional_id, "transaction.timeout.ms": timeout_ms}
        self._under_way = 0
        self._lock = threading.Lock()
        self._news = threading.Event()
        with _failing():
            self._producer = Producer(settings)
            if transactional_id is not None:
                self._producer.init_transactions()

    def produce(self, tp: Tp, value: str, told: Callable[[int], None]) -> bool:
        """False if there is no room for it now."""

        def delivered(metadata: RecordMetadata | None, error: SparklogError | None) -> None:
            if metadata is not None and metadata.offset >= 0:
                told(metadata.offset)
            self._count(-1)
            self._news.set()

        if self._under_way >= MOST_UNDER_WAY:
            return False
        sent = on_wire(value)
        with _failing():
            self._producer.send(
                tp[0], sent.value, sent.key, headers=sent.headers, partition=tp[1], on_delivery=delivered
            )
        self._count(1)
        return True

    def _count(self, more: int) -> None:
        with self._lock:
            self._under_way += more

    def poll(self, seconds: float) -> None:
        """Deliveries are told on the client's own thread."""
        self._news.wait(seconds)
        self._news.clear()

    def flush(self, seconds: float) -> int:
        if seconds:
            try:
                self._producer.flush(seconds)
            except ApiError as error:
                if error.code is not ErrorCode.REQUEST_TIMED_OUT:
                    raise
        return self._under_way

    def begin(self) -> None:
        with _failing():
            self._producer.begin_transaction()

    def send_offsets(self, offsets: Mapping[Tp, int], consumer: OwnConsumer) -> None:
        with _failing():
            self._producer.send_offsets_to_transaction(_named(offsets), consumer.membership())

    def commit(self) -> None:
        with _failing():
            self._producer.commit_transaction()

    def abort(self) -> None:
        with _failing():
            self._producer.abort_transaction()


def _named(offsets: Mapping[Tp, int]) -> dict[TopicPartition, int]:
    return {TopicPartition(*tp): offset for tp, offset in offsets.items()}


class OwnConsumer:
    def __init__(
        self, cluster: Mapping[str, str], topic: str, group: str, listener: Listener, how: Mapping[str, Any]
    ) -> None:
        self._listener = listener
        settings = {
            **_COMMON,
            **cluster,
            "group.id": group,
            "group.instance.id": how.get("instance"),
            "isolation.level": how["isolation"],
            "partition.assignment.strategy": how["assignor"],
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": SESSION_TIMEOUT_MS // 5,
            "max.poll.interval.ms": 60_000,
            "max.poll.records": 50,
            "fetch.max.wait.ms": 100,
        }
        with _failing():
            self._consumer = Consumer(settings)
            self._consumer.subscribe(
                [topic],
                on_assigned=self._assigned,
                on_revoked=lambda partitions: listener.revoked(_tps(partitions)),
                on_lost=lambda partitions: listener.lost(_tps(partitions)),
            )

    def _assigned(self, partitions: list[TopicPartition]) -> None:
        self.seek(self._listener.assigned(_tps(partitions)))

    def receive(self, seconds: float) -> list[Received]:
        with _failing():
            records = self._consumer.poll(seconds)
        return [
            Received((each.topic, each.partition), each.offset, from_wire(each.key, each.value, each.headers))
            for each in records
        ]

    def committed(self, partitions: list[Tp]) -> dict[Tp, int]:
        """0 where nothing is."""
        if not partitions:
            return {}
        with _failing():
            found = self._consumer.committed(*(TopicPartition(*tp) for tp in partitions))
        return {(tp.topic, tp.partition): 0 if at is None else at.offset for tp, at in found.items()}

    def commit(self, offsets: Mapping[Tp, int]) -> None:
        with _failing():
            self._consumer.commit(_named(offsets))

    def seek(self, offsets: Mapping[Tp, int]) -> None:
        with _failing():
            for tp, offset in _named(offsets).items():
                self._consumer.seek(tp, offset)

    def membership(self) -> GroupMetadata:
        return self._consumer.consumer_group_metadata()

    def identity(self) -> tuple[str, int]:
        """Member id (the instance id of a static one) and generation."""
        group = self.membership()
        return group.group_instance_id or group.member_id, group.generation_id

    def close(self) -> None:
        with _failing():
            self._consumer.close()


def _tps(partitions: list[TopicPartition]) -> list[Tp]:
    return [(each.topic, each.partition) for each in partitions]


PRODUCER, CONSUMER = OwnProducer, OwnConsumer
