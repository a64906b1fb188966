"""AsyncProducer: records to topics, on the caller's event loop.

``send`` gives a future of where the record is. It succeeds only when the leader has acknowledged the batch (with
``acks=0``: when it was written to the socket) and fails only when the batch will never be sent again. With
idempotence, which is the default, the records of a partition are written in the order of ``send``, each once. Records
wait in at most ``buffer.memory`` bytes; beyond that ``send`` waits, ``max.block.ms`` at most.

A transactional producer (``transactional.id``) writes between ``begin_transaction`` and ``commit_transaction``. After
an error that spoils the transaction every call raises until ``abort_transaction``; after one that ends the producer,
such as PRODUCER_FENCED, for good.

A signal handler may come in the midst of a ``send`` of the blocking producer, in the same thread. Its own calls of that
producer, and a wait for a future, then raise ClientClosed, for they would wait for the ``send`` that waits for them. So
set a flag in the handler, or raise; flush and close where the program goes on.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

from sparklog.client.cluster.arguments import check_callable
from sparklog.client.cluster.retry import OutOfTime
from sparklog.client.cluster.session import Session
from sparklog.client.consumer.group.metadata import GroupMetadata
from sparklog.client.producer.accumulator import Accumulator
from sparklog.client.producer.appender import Appender, Record
from sparklog.client.producer.arguments import Serializer, check_target, serializing
from sparklog.client.producer.batch import ProducerBatch
from sparklog.client.producer.config import ProducerConfig
from sparklog.client.producer.delivery import BatchFuture, OnDelivery, RecordFuture, queueing
from sparklog.client.producer.router import Partitioning, Router
from sparklog.client.producer.sender import Sender
from sparklog.client.producer.transaction import Step, Transaction
from sparklog.client.producer.transaction_driver import Positions, TransactionDriver
from sparklog.clock import Clock
from sparklog.cluster.info import PartitionInfo, no_such_partition
from sparklog.errors import ApiError, ConfigError, ErrorCode, SparklogError
from sparklog.structs import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger(__name__)
_CREATION_PATIENCE = 15.0
"""Seconds that ``send`` asks for a topic that no broker knows: it may be about to be created."""
_REST_INTERVAL = 0.005
"""Seconds for which a loop of sends that never waits may have the event loop to itself."""


class AsyncProducer:
    """A producer on the caller's event loop. ``async with`` starts and closes it.

    Settings by Kafka's names, in a mapping or as keywords with underscores. ``key_serializer`` and ``value_serializer``
    make bytes of what is sent: functions of a key or value, or objects with ``serialize(topic, value)``; without one,
    bytes, str (as UTF-8) and None are taken. ``partitioner`` is called with
    topic, key, value and the number of partitions, and returns one; the default is Kafka's (murmur2 of the key; without
    a key one partition for a batch, then another).
    """

    def __init__(
        self,
        settings: Mapping[str, Any] | None = None,
        *,
        key_serializer: Serializer | None = None,
        value_serializer: Serializer | None = None,
        partitioner: Partitioning | None = None,
        clock: Clock | None = None,
        **more: Any,
    ) -> None:
        """Raises ConfigError for settings that it does not know or cannot use, TypeError for what is no function."""
        serialize_key = serializing("key_serializer", key_serializer)
        serialize_value = serializing("value_serializer", value_serializer)
        check_callable("partitioner", partitioner)
        self.config = ProducerConfig.of(settings, **more)
        self._session = Session(self.config, clock)
        self._clock = self._session.clock
        self._monotonic = self._clock.monotonic
        self._accumulator = Accumulator(self.config)
        self._transaction: Transaction | None = None
        if self.config.is_transactional:
            self._transaction = Transaction(self.config.transactional_id, two_phase=self.config.two_phase_commit)
        self._appender = Appender(
            self._accumulator,
            Router(self._session.leaders, self.config.batch_size, partitioner),
            self._clock,
            serialize_key=serialize_key,
            serialize_value=serialize_value,
            transaction=self._transaction,
        )
        self._lock = self._appender.lock
        self._accumulator.is_interrupted = self._appender.is_interrupted
        self._rest_at, self._rest_by = self.config.batch_size, 0.0
        self._closing: asyncio.Timeout | None = None
        """The time of the first close, if there was one."""
        self._closed = asyncio.Event()

    async def start(self) -> None:
        """Begin to send. Asks no broker yet."""
        self._sender = Sender(self._session, self.config, self._accumulator, self._lock, self._transaction)
        if self._transaction is not None:
            self._driver = TransactionDriver(
                self._session, self.config, self._transaction, self._accumulator, self._sender
            )
        self._accumulator.settler = threading.get_ident()
        self._appender.is_open = True
        await self._session.start()

    async def __aenter__(self) -> AsyncProducer:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self, timeout: float | None = None) -> None:
        """Send what waits, for at most ``timeout`` seconds, and hang up; what is left fails with ClientClosed.

        An open transaction is aborted. Records that fail here are counted in a warning. A call while another one is
        under way waits for that, and ends its waiting when its own time is over.
        """
        was_open = self._appender.is_open
        self._end()
        if not was_open:
            await self._join_close(timeout)
            return
        self._closing = asyncio.timeout(timeout)
        try:
            await self._send_rest_and_hang_up(self._closing)
        finally:
            self._closed.set()

    async def _send_rest_and_hang_up(self, in_time: asyncio.Timeout) -> None:
        with self._lock:
            left = self._accumulator.incomplete()
        try:
            async with in_time:
                if self._transaction is not None and self._transaction.step in (Step.OPEN, Step.ABORTABLE):
                    await self._driver.end(commit=False)
                await self._sender.flush()
        except (TimeoutError, SparklogError):
            pass  # what is left is failed below
        finally:
            try:
                await self._sender.stop()
            finally:
                await self._session.close()
            self._warn_of_lost(left)

    async def _join_close(self, timeout: float | None) -> None:
        """Wait for the close that is under way, if one is or was."""
        if self._closing is None:
            return
        if timeout is not None:
            deadline, before = asyncio.get_running_loop().time() + timeout, self._closing.when()
            with suppress(RuntimeError):  # it waits no more
                self._closing.reschedule(deadline if before is None else min(deadline, before))
        await self._closed.wait()

    def _end(self) -> None:
        """Take no more."""
        self._appender.is_open, self._appender.is_closed = False, True

    def _warn_of_lost(self, batches: list[ProducerBatch]) -> None:
        """The caller may have no future of what waited then; what a transaction gave up was never to be seen."""
        lost = [batch for batch in batches if batch.delivery.error is not None]
        if lost and self._transaction is None:
            _log.warning(
                "%d records were not delivered when the producer was closed: %s",
                sum(batch.count for batch in lost),
                lost[0].delivery.error,
            )

    def abandon(self) -> None:
        """The program ends: log how much is lost, if it is anything, and send no more; from any thread."""
        if self._appender.is_open:
            self._sender.abandon()
        with self._lock:
            left = 0 if self._appender.is_closed else sum(batch.count for batch in self._accumulator.incomplete())
        if left:
            _log.warning("%d records were not sent: close the producer, or flush it, before the program ends", left)

    def loop_failed(self) -> None:
        """The event loop has ended: fail all that waits for the producer. Called on the thread that ran the loop."""
        with self._lock:
            self._end()
            left = self._accumulator.incomplete()
        self._sender.abandon()
        self._sender.fail_rest()
        self._warn_of_lost(left)

    # Sending.

    async def send(
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
        """Queue a record; await the future that this gives for where it is. Waits for metadata and for room.

        ``headers`` is a mapping or pairs, ``timestamp`` ms since 1970 (now if None). ``on_delivery`` is called with the
        metadata and None, or None and the error; what it raises is logged, whatever it is. Raises ApiError if there is
        no room or no such partition, TypeError or ValueError for what is no record, ClientClosed. A call that a signal
        handler interrupts has queued the record or has not; then ``on_delivery`` may never be called.
        """
        appender = self._appender
        record = appender.record(topic, value, key, headers, partition, timestamp)
        now = self._monotonic()
        if self._accumulator.appended >= self._rest_at or now >= self._rest_by:
            await self._rest(now)
        future = appender.offer(record, on_delivery)
        if future is None:
            future = await self._append_later(record, on_delivery, now + self.config.max_block_ms / 1000)
        if self._accumulator.has_news:
            self._sender.wake()  # it is on this loop
            self._accumulator.has_news = False
        return future

    async def _append_later(self, record: Record, on_delivery: OnDelivery | None, deadline: float) -> RecordFuture:
        """Append what waits for metadata or for room."""
        while True:
            tp = self._appender.route(record)
            if tp is None:
                await self.learn(record.topic, record.partition, deadline)
                continue
            future = self._appender.append(tp, record, on_delivery)
            if future is not None:
                return future
            room = asyncio.Event()
            self.await_room(room.set)
            await self.within(deadline, room.wait())

    async def _rest(self, now: float) -> None:
        """Let the sender have its turn, once a batch's worth of bytes and every few milliseconds: a coroutine that
        sends in a loop may wait for nothing else. It comes before a record is queued, so that one whose ``send`` was
        cancelled is not."""
        self._rest_at = self._accumulator.appended + self.config.batch_size
        self._rest_by = now + _REST_INTERVAL
        await asyncio.sleep(0)

    def await_room(self, told: Callable[[], object]) -> None:
        """Call ``told`` when there may be room, and let what is queued go meanwhile; once, and on any thread.

        Another thread than the loop's looks for room again before it waits: some may have been made since it looked.
        """
        with self._lock:
            is_over = self._accumulator.is_empty or not self._appender.is_open  # nobody will make any room
            if not is_over:
                self._accumulator.waiters.append(told)
                self._accumulator.has_news = True
        if is_over:
            told()
        else:
            self.wake_if_news()

    def wake_if_news(self) -> None:
        """Tell the sender, from any thread, if there may be something for it to do."""
        if self._accumulator.has_news:
            try:
                self._accumulator.has_news = False
                self._sender.call()
            except BaseException:  # an interrupt: the news may be another thread's
                self._accumulator.has_news = True
                self._sender.call()
                raise

    async def learn(self, topic: str, partition: int | None, deadline: float) -> None:
        """Find out how many partitions a topic has. Raises ApiError if it, or ``partition``, is not there in time,
        TypeError for what can be neither."""
        check_target(topic, partition)
        left = max(deadline - self._monotonic(), 0.0)
        backoff = self._session.backoff(int(left * 1000), patience=min(left, _CREATION_PATIENCE))
        known = self._session.leaders.last_known(topic)
        if known is not None and partition is not None:
            self._session.leaders.invalidate(topic)
        try:
            info = await self._session.topic(topic, create=True, backoff=backoff)
        except OutOfTime:
            raise self._still_unknown(topic, backoff.last_error) from None
        if partition is not None and not 0 <= partition < len(info.partitions):
            raise no_such_partition(info, partition)

    async def within(self, deadline: float, work: Any) -> Any:
        """What ``work`` gives. Raises ApiError(REQUEST_TIMED_OUT) when it takes longer than ``max.block.ms`` allows."""
        try:
            async with asyncio.timeout(max(deadline - self._monotonic(), 0.0)):
                return await work
        except TimeoutError:
            raise self.blocked() from None

    def blocked(self) -> ApiError:
        """``send`` waited too long for room."""
        return ApiError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"no room in buffer.memory={self.config.buffer_memory}"
            f" within max.block.ms={self.config.max_block_ms}: is the broker up, and as fast as the program?",
        )

    def _still_unknown(self, topic: str, error: SparklogError | None) -> ApiError:
        text = f"no metadata of topic {topic!r} within max.block.ms={self.config.max_block_ms}"
        why = "no broker has answered" if error is None else str(error)
        return ApiError(ErrorCode.REQUEST_TIMED_OUT, f"{text} from {self.config.bootstrap_servers}: {why}")

    async def send_arrow(self, topic: str, rows: pa.RecordBatch | pa.Table) -> list[BatchFuture]:
        """Queue all rows; columns: ``key``, ``value``, ``headers``, ``partition``, ``timestamp``, as far as given.

        Batches are encoded column by column; the futures are theirs, in the order of their making. Each batch waits for
        room for ``max.block.ms`` at most. Raises ConfigError for other columns and ApiError for a partition that is not
        there before anything is queued; PartlyQueued, with the futures there are, for what comes later.
        """
        deadline = self._monotonic() + self.config.max_block_ms / 1000
        while self._session.leaders.last_known(topic) is None:
            await self.learn(topic, None, deadline)
        futures: list[BatchFuture] = []
        with queueing(futures):
            for tp, data in self.encode_arrow(topic, rows):
                await self._rest(self._monotonic())
                while (batch := self._appender.add(tp, data)) is None:
                    room = asyncio.Event()
                    self.await_room(room.set)
                    await self.within(self._monotonic() + self.config.max_block_ms / 1000, room.wait())
                self.wake_if_news()
                futures.append(BatchFuture(batch.delivery, batch.count))
        return futures

    def encode_arrow(self, topic: str, rows: pa.RecordBatch | pa.Table) -> Any:
        """The encoded batches of ``rows``, each with its partition, one after another."""
        from sparklog.client.producer.arrow import encoded_batches

        leaders = self._session.leaders
        info = leaders.last_known(topic)
        assert info is not None
        numbers = [each.partition for each in info.partitions]
        led = [each for each in numbers if leaders.leader(TopicPartition(topic, each)) is not None]
        return encoded_batches(self.config, topic, len(numbers), rows, self._clock.now_ms(), led)

    async def flush(self) -> None:
        """Return when every record sent before is settled, well or badly.

        Raises ClientClosed, but no record's error.
        """
        self._appender.require_open()
        await self._sender.flush()

    async def partitions_for(self, topic: str) -> tuple[PartitionInfo, ...]:
        """The topic's partitions. Raises ApiError if there is no such topic."""
        self._appender.require_open()
        backoff = self._session.backoff(self.config.max_block_ms)
        return (await self._session.topic(topic, backoff=backoff)).partitions

    def metrics(self) -> dict[str, float]:
        """What brokers have asked this client to wait for its quotas, since it began.

        ``throttle-count`` is the number of answers that did; ``throttle-time-avg``, ``throttle-time-max`` and
        ``throttle-time-total`` are ms, of these answers. Nothing was sent to the broker meanwhile.
        """
        return self._session.throttling.metrics()

    # Transactions. Each raises ConfigError without ``transactional.id``, ApiError(INVALID_TXN_STATE) out of its place.

    async def init_transactions(self, *, keep_prepared: bool = False) -> None:
        """Take over the transactional id: fence its last owner, and end what that left open.

        With ``keep_prepared`` (two-phase commit) a prepared transaction is kept for ``complete_transaction``. Raises
        ApiError: what the coordinator refuses, REQUEST_TIMED_OUT after ``max.block.ms``.
        """
        self._transactional()
        await self._driver.init(keep_prepared)

    async def begin_transaction(self) -> None:
        """What is sent from now on is one transaction, until it is committed or aborted. Asks no broker."""
        self._transactional().begin()

    async def send_offsets_to_transaction(self, offsets: Positions, group: GroupMetadata | str) -> None:
        """Commit a group's offsets with the transaction: the next offset to read of each partition.

        Raises ApiError: what a coordinator refuses, REQUEST_TIMED_OUT after ``max.block.ms``.
        """
        self._transactional()
        named = GroupMetadata(group) if isinstance(group, str) else GroupMetadata(*group)
        await self._driver.send_offsets(offsets, named)

    async def commit_transaction(self) -> None:
        """Return when all of it is decided. Raises ApiError; if that is retriable, call it again."""
        self._transactional()
        await self._driver.end(commit=True)

    async def abort_transaction(self) -> None:
        """Give the transaction up; what was written in it is never seen under ``read_committed``. Raises ApiError."""
        self._transactional()
        await self._driver.end(commit=False)

    async def prepare_transaction(self) -> str:
        """Two-phase commit: write everything; returns the text by which ``complete_transaction`` will know it.

        Raises ApiError if a record was not written, ConfigError without ``transaction.two.phase.commit.enable``.
        """
        transaction = self._transactional()
        while True:
            await self._sender.flush()
            await self._driver.offsets_sent()
            transaction.check()
            with self._lock:
                if not self._accumulator.incomplete():  # else another thread, or task, has sent meanwhile
                    return transaction.prepare()

    async def complete_transaction(self, state: str) -> bool:
        """Commit the prepared transaction if ``state`` names it, else abort it; returns which. Raises ApiError."""
        commit = self._transactional().decide(state)
        await self._driver.end(commit)
        return commit

    def _transactional(self) -> Transaction:
        self._appender.require_open()
        if self._transaction is None:
            raise ConfigError("transactions need transactional.id")
        return self._transaction
