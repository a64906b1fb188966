"""A record's way into its batch: made, routed and added in the thread that sends it. Asks no broker and never waits.

Any thread may append, under the lock under which the sender takes batches and answers them. A signal handler that comes
in the midst of an append, in the same thread, is refused: it would wait for what waits for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from sparklog.client.cluster.arguments import as_timestamp, check_callable
from sparklog.client.producer.accumulator import Accumulator
from sparklog.client.producer.arguments import as_bytes, as_headers
from sparklog.client.producer.batch import Headers, ProducerBatch
from sparklog.client.producer.delivery import OnDelivery, RecordFuture, interrupted
from sparklog.client.producer.router import Router
from sparklog.client.producer.transaction import Transaction
from sparklog.clock import Clock
from sparklog.errors import ClientClosed
from sparklog.record import layout
from sparklog.structs import TopicPartition

if TYPE_CHECKING:
    from typing_extensions import Buffer

Serialize = Callable[[str, Any], "bytes | None"]


class Record:
    """What a program sends, as bytes, and where it wants it: ``partition`` is None where the router is to choose."""

    __slots__ = ("headers", "key", "partition", "timestamp", "topic", "value")

    def __init__(
        self,
        topic: Any,
        partition: Any,
        timestamp: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Headers,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.timestamp = timestamp
        self.key = key
        self.value = value
        self.headers = headers


class Appender:
    """One a producer."""

    def __init__(
        self,
        accumulator: Accumulator,
        router: Router,
        clock: Clock,
        *,
        serialize_key: Serialize | None,
        serialize_value: Serialize | None,
        transaction: Transaction | None,
    ) -> None:
        self._accumulator = accumulator
        self._router = router
        self._monotonic = clock.monotonic
        self._now_ms = clock.now_ms
        self._serialize_key = serialize_key
        self._serialize_value = serialize_value
        self._transaction = transaction
        self.lock = threading.RLock()
        self.is_interrupted: Callable[[], bool] = self.lock._is_owned  # type: ignore[attr-defined]
        """Whether the calling thread is in the midst of an append, so that it is a signal handler that asks."""
        self.is_open = self.is_closed = False
        """Whether the producer was started and not closed since, and whether it was closed."""

    def record(self, topic: Any, value: Any, key: Any, headers: Any, partition: Any, timestamp: Any) -> Record:
        """What is to be appended. Raises TypeError or ValueError for what is no record."""
        if self._serialize_key is not None:
            key = self._serialize_key(topic, key)
        if self._serialize_value is not None:
            value = self._serialize_value(topic, value)
        if key is not None and key.__class__ is not bytes:
            key = as_bytes(key, "key")
        if value is not None and value.__class__ is not bytes:
            value = as_bytes(value, "value")
        if timestamp is None:
            timestamp = self._now_ms()
        elif timestamp.__class__ is not int or not 0 <= timestamp <= layout.MAX_INT64:
            timestamp = as_timestamp(timestamp)
        return Record(topic, partition, timestamp, key, value, () if headers is None else as_headers(headers))

    def route(self, record: Record) -> TopicPartition | None:
        """Where a record goes; None if its topic, or the partition that is asked for, is not known."""
        return self._router.route(record.topic, record.key, record.value, record.partition)

    def offer(self, record: Record, on_delivery: OnDelivery | None) -> RecordFuture | None:
        """Route and append; None if there is no room for it, or it is not known where it goes."""
        tp = self.route(record)
        return None if tp is None else self.append(tp, record, on_delivery)

    def append(self, tp: TopicPartition, record: Record, on_delivery: OnDelivery | None) -> RecordFuture | None:
        """Add a record now; None if there is no room.

        Raises what ``check`` does, and ClientClosed in a signal handler that came in the midst of an append.
        """
        if on_delivery is not None:
            check_callable("on_delivery", on_delivery)
        if self.is_interrupted():
            raise interrupted()
        with self.lock:
            if not self.is_open or self._transaction is not None or self._accumulator.fatal is not None:
                self.check()
            future = self._accumulator.append(
                tp, record.timestamp, record.key, record.value, record.headers, self._monotonic()
            )
            if future is not None:
                if self._transaction is not None:
                    self._transaction.joins(tp)  # though it is being ended by now: that waits for this record
                if on_delivery is not None:
                    future.delivery.will_tell(partial(future.tell, on_delivery))
            return future

    def add(self, tp: TopicPartition, data: bytearray) -> ProducerBatch | None:
        """Add an encoded batch now; None if there is no room. Raises as ``append`` does."""
        if self.is_interrupted():
            raise interrupted()
        with self.lock:
            self.check()
            batch = self._accumulator.add_encoded(tp, data, self._monotonic())
            if batch is not None and self._transaction is not None:
                self._transaction.joins(tp)
            return batch

    def check(self) -> None:
        """Raises ClientClosed unless the producer is open; the error that ended it or spoiled its transaction; ApiError
        where no transaction is open that needs one."""
        self.require_open()
        if self._transaction is not None:
            self._transaction.require_open()
        elif self._accumulator.fatal is not None:
            raise self._accumulator.fatal

    def require_open(self) -> None:
        """Raises ClientClosed unless the producer is open."""
        if not self.is_open:
            raise ClientClosed("the producer is closed" if self.is_closed else "start the producer first")
