"""Producer: ``AsyncProducer`` for code that blocks. What both promise is said there."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from sparklog.client.cluster.loop_thread import LoopThread
from sparklog.client.consumer.group.metadata import GroupMetadata
from sparklog.client.producer.appender import Record
from sparklog.client.producer.async_producer import AsyncProducer
from sparklog.client.producer.delivery import BatchFuture, OnDelivery, RecordFuture, interrupted, queueing
from sparklog.client.producer.transaction_driver import Positions
from sparklog.cluster.info import PartitionInfo
from sparklog.structs import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

_process = os.getpid()
"""This process. ``os.getpid`` is a system call, too slow to make for every record."""


def _forked() -> None:
    global _process
    _process = os.getpid()


os.register_at_fork(after_in_child=_forked)


class Producer:
    """``AsyncProducer`` for code that blocks, from any number of threads; its loop runs in a thread of its own.

    The arguments are AsyncProducer's. Callbacks run on its thread and must not wait for it. ``with`` closes it; what is
    neither flushed nor closed when the program ends is lost, and a warning says how much. After a fork it works in the
    parent only: in the child, as after ``close``, what sends raises ClientClosed.
    """

    def __init__(self, settings: Mapping[str, Any] | None = None, **more: Any) -> None:
        self._producer = AsyncProducer(settings, **more)
        self._appender, self._accumulator = self._producer._appender, self._producer._accumulator
        self.config = self._producer.config
        self._process = _process
        self._thread = LoopThread(
            "sparklog producer",
            at_exit=self._producer.abandon,
            at_failure=self._producer.loop_failed,
            check_wait=self._check_wait,
        )
        self._thread.run(self._producer.start())

    def _check_wait(self) -> None:
        if self._appender.is_interrupted():
            raise interrupted()

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self, timeout: float | None = None) -> None:
        """Send what waits, for at most ``timeout`` seconds, and hang up; what is left fails with ClientClosed.

        A call while another thread closes waits for that, and ends its waiting when its own time is over.
        """
        if self._thread.is_usable:
            self._thread.check(waits=True)  # what may not wait now closes nothing
            try:
                self._thread.run(self._producer.close(timeout))
            finally:
                self._thread.close()

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        headers: Any = None,
        partition: int | None = None,
        timestamp: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> RecordFuture:
        """As ``AsyncProducer.send``; returns at once if there is room and the topic is known.

        Raises what that raises.
        """
        if self._process != _process:
            self._thread.check()
        appender = self._appender
        record = appender.record(topic, value, key, headers, partition, timestamp)
        future = appender.offer(record, on_delivery)
        if future is None:
            future = self._append_later(record, on_delivery)
        if self._accumulator.has_news:
            self._producer.wake_if_news()
        return future

    def _append_later(self, record: Record, on_delivery: OnDelivery | None) -> RecordFuture:
        """Append what waits for metadata or for room."""
        deadline, room = self._deadline(), None
        while True:
            tp = self._appender.route(record)
            future = None if tp is None else self._appender.append(tp, record, on_delivery)
            if future is not None:
                return future
            if tp is None:
                self._learn(record.topic, record.partition, deadline)
            elif room is None:
                room = self._asked_for_room()
            else:
                self._await(room, deadline)
                room = None

    def _deadline(self) -> float:
        """Up to when a call that begins to wait now may wait."""
        return self._producer._monotonic() + self.config.max_block_ms / 1000

    def _learn(self, topic: str, partition: int | None, deadline: float) -> None:
        self._thread.run(self._producer.learn(topic, partition, deadline))

    def _asked_for_room(self) -> threading.Lock:
        """What is released when there may be room. Look for room again, then wait: some may be there by now."""
        self._thread.check(waits=True)
        room = threading.Lock()  # no Event: a signal handler in its Python code would hold up the thread that sets it
        room.acquire()
        self._producer.await_room(room.release)
        return room

    def _await(self, room: threading.Lock, deadline: float) -> None:
        left = max(deadline - self._producer._monotonic(), 0.0)
        if not room.acquire(timeout=min(left, threading.TIMEOUT_MAX)):
            raise self._producer.blocked()

    def send_arrow(self, topic: str, rows: pa.RecordBatch | pa.Table) -> list[BatchFuture]:
        """As ``AsyncProducer.send_arrow``; encodes in the caller's thread."""
        self._thread.check()
        producer = self._producer
        deadline = self._deadline()
        while producer._session.leaders.last_known(topic) is None:
            self._learn(topic, None, deadline)
        futures: list[BatchFuture] = []
        with queueing(futures):
            for tp, data in producer.encode_arrow(topic, rows):
                futures.append(self._queued(tp, data))
        return futures

    def _queued(self, tp: TopicPartition, data: bytearray) -> BatchFuture:
        producer = self._producer
        deadline = room = None
        while (batch := self._appender.add(tp, data)) is None:
            deadline = self._deadline() if deadline is None else deadline
            if room is None:
                room = self._asked_for_room()
            else:
                self._await(room, deadline)
                room = None
        producer.wake_if_news()
        return BatchFuture(batch.delivery, batch.count)

    def flush(self, timeout: float | None = None) -> None:
        """Return when every record sent before is settled, well or badly. Raises ApiError after ``timeout`` seconds."""
        self._thread.run(self._producer.flush(), timeout)

    def partitions_for(self, topic: str) -> tuple[PartitionInfo, ...]:
        """As ``AsyncProducer.partitions_for``."""
        return self._thread.run(self._producer.partitions_for(topic))

    def metrics(self) -> dict[str, float]:
        """As ``AsyncProducer.metrics``."""
        return self._producer.metrics()

    def init_transactions(self, *, keep_prepared: bool = False) -> None:
        """As ``AsyncProducer.init_transactions``."""
        self._thread.run(self._producer.init_transactions(keep_prepared=keep_prepared))

    def begin_transaction(self) -> None:
        """As ``AsyncProducer.begin_transaction``."""
        self._thread.run(self._producer.begin_transaction())

    def send_offsets_to_transaction(self, offsets: Positions, group: GroupMetadata | str) -> None:
        """As ``AsyncProducer.send_offsets_to_transaction``."""
        self._thread.run(self._producer.send_offsets_to_transaction(offsets, group))

    def commit_transaction(self) -> None:
        """As ``AsyncProducer.commit_transaction``."""
        self._thread.run(self._producer.commit_transaction())

    def abort_transaction(self) -> None:
        """As ``AsyncProducer.abort_transaction``."""
        self._thread.run(self._producer.abort_transaction())

    def prepare_transaction(self) -> str:
        """As ``AsyncProducer.prepare_transaction``."""
        return self._thread.run(self._producer.prepare_transaction())

    def complete_transaction(self, state: str) -> bool:
        """As ``AsyncProducer.complete_transaction``."""
        return self._thread.run(self._producer.complete_transaction(state))
