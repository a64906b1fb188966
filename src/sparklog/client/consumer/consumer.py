"""``Consumer``: an AsyncConsumer on a loop in a thread of its own, for programs that block.

The caller's thread waits; callbacks (of rebalances and of commits) and deserializers run in it, inside the call that
led to them, while the loop goes on: heartbeats are sent however long they take, and they may use the consumer. The
thread ends with ``close``.

An exception may end the wait at any time: Ctrl-C, or what a signal handler raises. The call is then cancelled, and
records that it had taken already are given by the next poll.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import re
import threading
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from contextlib import suppress
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Generic, TypeVar, overload

import pyarrow as pa

from sparklog.client.cluster.arguments import check_callable
from sparklog.client.cluster.loop_thread import LoopThread
from sparklog.client.cluster.offsets import OffsetAndTimestamp
from sparklog.client.consumer.async_consumer import ARROW_BYTES, AsyncConsumer
from sparklog.client.consumer.config import ConsumerConfig
from sparklog.client.consumer.fetch.deserializers import Deserializer, Deserializers
from sparklog.client.consumer.fetch.handout import Handout
from sparklog.client.consumer.group.commits import CommitCallback
from sparklog.client.consumer.group.committed import OffsetAndMetadata, Offsets
from sparklog.client.consumer.group.coordinator import Callback
from sparklog.client.consumer.group.metadata import GroupMetadata
from sparklog.client.consumer.record import ConsumerRecord
from sparklog.clock import Clock
from sparklog.cluster.info import PartitionInfo
from sparklog.errors import ClientClosed, LocalProtocolError
from sparklog.structs import TopicPartition

T = TypeVar("T")
R = TypeVar("R")
_Job = Callable[[], None]
_THREAD = "thread"
_END_PATIENCE = 1.0
"""Seconds for which an interrupted call waits until it has ended on the loop, so that the next is not refused."""


class _Call(Generic[T]):
    """One call of the user, which the loop works on. ``undo`` takes back what it did if the user got no result."""

    def __init__(self, work: Coroutine[Any, Any, T], undo: Callable[[], object] | None) -> None:
        self.work = work
        self._undo = undo
        self._task: asyncio.Task[Any] | None = None
        self._has_result = self._is_given_up = False

    async def run(self) -> T:
        if self._is_given_up:
            raise asyncio.CancelledError
        self._task = asyncio.current_task()
        result = await self.work
        self._has_result = True
        if self._is_given_up:
            self._take_back()
        return result

    def give_up(self) -> None:
        """The user waits for it no longer. To be called on the loop."""
        if self._is_given_up:
            return
        self._is_given_up = True
        if self._task is None:
            self.work.close()
        elif self._has_result:
            self._take_back()
        else:
            self._task.cancel()

    def _take_back(self) -> None:
        if self._undo is not None:
            self._undo()


class Consumer:
    """Reads records of topics, alone or as a member of a group.

    Settings by Kafka's names, as a mapping or as keywords with underscores (``group_id="g"``). Deserializers are
    called with the bytes of each key or value that is not null, in the thread that polls. Use it in ``with``, or
    ``close`` it. It is for one thread at a time; only ``wakeup`` may be called by any.

    A call raises ClientClosed after ``close``, and LocalProtocolError while another thread is in one.
    """

    def __init__(
        self,
        settings: Mapping[str, Any] | None = None,
        *,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
        clock: Clock | None = None,
        **more: Any,
    ) -> None:
        """Raises ConfigError for settings that it does not know or cannot use, TypeError for what is no function."""
        self._deserializers = Deserializers(key_deserializer, value_deserializer)
        self._deserializers.check()
        self.config = ConsumerConfig.of(settings, **more)
        self._loop = LoopThread("sparklog consumer")
        self._jobs: tuple[SimpleQueue[_Job | None], ...] = ()
        """What is to be done in the caller's thread: of each call under way, the innermost last."""
        self._user: dict[str, int] = {}
        """The thread that is in a call, under ``_THREAD``; empty while there is none."""
        self._is_closed = False

        async def make() -> AsyncConsumer:
            return AsyncConsumer(settings, clock=clock, **more)

        try:
            self._consumer = self._loop.run(make())
        except BaseException:
            self._loop.close()
            raise

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- what to read

    def subscribe(
        self,
        topics: Iterable[str] | None = None,
        *,
        pattern: str | re.Pattern[str] | None = None,
        on_assigned: Callback | None = None,
        on_revoked: Callback | None = None,
        on_lost: Callback | None = None,
    ) -> None:
        """As ``AsyncConsumer.subscribe``; the callbacks run in the thread that calls ``poll``."""
        self._call_on_loop(
            self._consumer.subscribe,
            topics,
            pattern=pattern,
            on_assigned=self._here(on_assigned),
            on_revoked=self._here(on_revoked),
            on_lost=self._here(on_lost),
        )

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions, whatever others do. Replaces what was assigned before.

        Raises LocalProtocolError while topics are subscribed to, TypeError for what is no list of TopicPartition.
        """
        self._call_on_loop(self._consumer.assign, partitions)

    def unsubscribe(self) -> None:
        """Read nothing any more; leaves the group. Raises what a callback raised, when that is done."""
        self._call(self._consumer.unsubscribe())

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that this consumer reads now."""
        return self._consumer.assignment

    @property
    def subscription(self) -> frozenset[str]:
        """The topics subscribed to: those named, or those that the pattern matched last."""
        return self._consumer.subscription

    # -- reading

    def poll(self, timeout: float = 1.0, max_records: int | None = None) -> list[ConsumerRecord]:
        """The next records, at most ``max_records`` (``max.poll.records``); none after ``timeout`` seconds without any.

        Within a partition they are in order; partitions take turns. Raises WokenUp after ``wakeup``,
        DeserializationError, CorruptRecord, any other SparklogError that does not pass by itself, LocalProtocolError
        where nothing is subscribed to or assigned, and what a callback raised.
        """
        return self._call(self._consumer.poll(timeout, max_records), self._consumer.give_back, self._deserialized)

    def _deserialized(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        """The records up to the first that cannot be read; raises DeserializationError where there are none."""
        read, failure = self._deserializers.applied(records)
        if failure is not None and not read:
            raise failure
        if failure is not None:
            self._call_on_loop(self._consumer.give_back, read)
        return read

    def poll_arrow(
        self, timeout: float = 1.0, max_bytes: int = ARROW_BYTES, max_rows: int = 1 << 31
    ) -> pa.RecordBatch | None:
        """The next records as columns (those of Spark's Kafka source); None after ``timeout`` seconds without any.

        ``max_bytes`` is looked at between record batches, so the result may be larger by one. Raises as ``poll`` does.
        """
        return self._call(self._consumer.poll_arrow(timeout, max_bytes, max_rows), undo=self._consumer.give_back)

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """One record after another, for ever; a commit in between is of the records given so far.

        Records are taken from ``poll`` many at a time. What is left of them when something else polls or seeks, or of
        a partition that is paused, is not given: iteration goes on at the consumer's positions.
        """

        def lent(records: list[ConsumerRecord]) -> Handout:
            return self._consumer.lend(self._deserialized(records))  # which moves positions here, as iterating does

        while True:
            handout = self._call(self._consumer.poll(1.0), self._consumer.give_back, lent)
            try:
                yield from handout
            finally:
                if not handout.is_given:
                    self._call_on_loop(handout.give_back)

    def wakeup(self) -> None:
        """Have the ``poll`` that waits now, or else the next one, raise WokenUp. Any thread may call it."""
        self._loop.call_soon(self._consumer.wakeup)

    # -- positions

    def seek(self, tp: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Go on there.

        Raises ApiError for a partition that is not assigned, LocalProtocolError for an offset that no log can have, and
        TypeError.
        """
        self._call_on_loop(self._consumer.seek, tp, offset)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go on at the first offset of these, or of all that are assigned.

        Raises ApiError for one that is not assigned.
        """
        self._call_on_loop(self._consumer.seek_to_beginning, *partitions)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go on behind the last record of these, or of all that are assigned. Raises ApiError for one that is not."""
        self._call_on_loop(self._consumer.seek_to_end, *partitions)

    def position(self, tp: TopicPartition) -> int:
        """The offset of the next record of ``tp`` that ``poll`` gives; looked up if need be.

        Raises ApiError for a partition that is not assigned, and after ``default.api.timeout.ms``.
        """
        return self._call(self._consumer.position(tp))

    def positions(self) -> Offsets:
        """Where each assigned partition goes on, as ``commit`` stores it; left out while that is not known."""
        return self._call_on_loop(self._consumer.positions)

    def pause(self, *partitions: TopicPartition) -> None:
        """Give nothing of these until ``resume``; what was fetched is kept, up to ``fetch.max.bytes`` in all.

        Raises ApiError for one that is not assigned.
        """
        self._call_on_loop(self._consumer.pause, *partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        """As ``AsyncConsumer.resume``."""
        self._call_on_loop(self._consumer.resume, *partitions)

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """As ``AsyncConsumer.paused``."""
        return self._consumer.paused

    def lag(self) -> dict[TopicPartition, int | None]:
        """Records behind the end of each partition, as of its last fetch; None where that is not known yet."""
        return self._call_on_loop(self._consumer.lag)

    # -- commits

    def commit(self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None) -> None:
        """Commit these offsets, or the position of each partition; returns when they are stored. A position in a topic
        that was deleted is left out.

        Raises ApiError if they will not be: the group may have gone on without this consumer.
        """
        self._call(self._consumer.commit(offsets))

    def commit_async(
        self,
        callback: CommitCallback | None = None,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None,
    ) -> None:
        """Commit without waiting; ``callback(offsets, error)`` runs in a later ``poll``, or in ``close``.

        Raises ConfigError without ``group.id``, TypeError and LocalProtocolError for what are no offsets.
        """
        self._call_on_loop(self._consumer.commit_async, self._here(callback), offsets)

    def committed(self, *partitions: TopicPartition) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed for these, or for all that are assigned; None for nothing.

        Raises ConfigError without ``group.id``, ApiError.
        """
        return self._call(self._consumer.committed(*partitions))

    def consumer_group_metadata(self) -> GroupMetadata:
        """This consumer's membership, for a producer that commits its offsets in a transaction.

        Raises ConfigError without ``group.id``.
        """
        return self._call_on_loop(self._consumer.consumer_group_metadata)

    # -- what there is

    def beginning_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset that each partition still has.

        Raises SparklogError: what does not pass by itself, or has not passed after ``default.api.timeout.ms``.
        """
        return self._call(self._consumer.beginning_offsets(partitions))

    def end_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset behind the last record that this consumer may see. Raises as ``beginning_offsets`` does."""
        return self._call(self._consumer.end_offsets(partitions))

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after each timestamp (ms); None where there is none.

        Raises as ``beginning_offsets`` does, and TypeError.
        """
        return self._call(self._consumer.offsets_for_times(timestamps))

    def partitions_for(self, topic: str) -> tuple[PartitionInfo, ...]:
        """The partitions of a topic, with their leaders. Raises ApiError if there is no such topic."""
        return self._call(self._consumer.partitions_for(topic))

    def metrics(self) -> dict[str, float]:
        """What brokers have asked this client to wait for its quotas, since it began.

        ``throttle-count`` is the number of answers that did; ``throttle-time-avg``, ``throttle-time-max`` and
        ``throttle-time-total`` are ms, of these answers. Nothing was sent to the broker meanwhile.
        """
        return self._consumer.metrics()

    # -- the end

    def close(self, timeout: float = 30.0) -> None:
        """Commit (if auto-commit is on), give up the partitions, leave the group (a static member stays), hang up.

        After ``timeout`` seconds it hangs up whatever is not done. Raises what a callback raised. Refused, with nothing
        closed, while another call is under way: in another thread (``wakeup`` ends a poll), or around a callback. That
        raises LocalProtocolError.
        """
        if self._is_closed:
            return
        mine = {_THREAD: threading.get_ident()}
        if self._user == mine:
            raise LocalProtocolError("a callback cannot close its consumer; close it when the call has returned")
        try:
            self._enter(mine)
            self._close(timeout)
        finally:
            if self._user == mine:  # no call up to ``clear``: a signal handler has no place between
                self._user.clear()

    def _close(self, timeout: float) -> None:
        self._is_closed = True
        try:
            self._call(self._consumer.close(timeout))
        finally:
            self._loop.close()

    # -- between the caller's thread and the loop's

    @overload
    def _call(self, work: Coroutine[Any, Any, T], undo: Callable[[], object] | None = None) -> T: ...

    @overload
    def _call(self, work: Coroutine[Any, Any, T], undo: Callable[[], object] | None, then: Callable[[T], R]) -> R: ...

    def _call(
        self,
        work: Coroutine[Any, Any, Any],
        undo: Callable[[], object] | None = None,
        then: Callable[[Any], Any] | None = None,
    ) -> Any:
        """The result of ``work`` on the loop; what it wants done in this thread meanwhile is done.

        ``then`` makes the result of it, in this thread; where it raises, ``undo`` is done.
        """
        call = _Call(work, undo)
        try:
            return self._run(call, then)
        except BaseException:  # which may have come from a signal handler, at any step
            self._give_up(call)
            raise

    def _give_up(self, call: _Call[Any]) -> None:
        try:
            self._loop.call_soon(call.give_up)
        except ClientClosed:
            call.work.close()

    def _run(self, call: _Call[Any], then: Callable[[Any], Any] | None) -> Any:
        jobs: SimpleQueue[_Job | None] = SimpleQueue()
        mine = {_THREAD: threading.get_ident()}
        is_inner = self._user == mine
        outer = self._jobs if is_inner else ()
        try:
            self._enter(mine)
            self._jobs = (*outer, jobs)
            future = self._loop.submit(call.run(), waits=True)
            future.add_done_callback(lambda _: jobs.put(None))
            self._attend(call, jobs)
            result = future.result()
            if then is not None:
                result = then(result)
        finally:
            if self._user == mine:  # no call up to ``clear``: a signal handler has no place between
                self._jobs = outer
                if not is_inner:
                    self._user.clear()
        return result

    def _enter(self, mine: dict[str, int]) -> None:
        """Take the consumer for this thread. The caller gives it back, even if this was interrupted, in code that makes
        no call before it does: it alone knows whether an outer call of the thread has it."""
        if self._user.setdefault(_THREAD, mine[_THREAD]) != mine[_THREAD]:
            raise LocalProtocolError("another thread is using this consumer; a consumer is for one at a time")

    def _attend(self, call: _Call[Any], jobs: SimpleQueue[_Job | None]) -> None:
        try:
            while (job := jobs.get()) is not None:
                job()
        except BaseException:
            self._give_up(call)
            with suppress(Empty):
                while jobs.get(timeout=_END_PATIENCE) is not None:
                    pass
            raise

    def _call_on_loop(self, function: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """Call something short on the loop."""

        async def do() -> T:
            return function(*arguments, **named)

        return self._call(do())

    def _here(self, callback: Callable[..., Any] | None) -> Callable[..., Any] | None:
        """The callback, run in the thread that waits for the loop; a coroutine function runs on the loop itself."""
        check_callable("a callback", callback)
        if callback is None or inspect.iscoroutinefunction(callback):
            return callback

        async def relay(*arguments: Any) -> None:
            jobs = self._jobs
            if not jobs:  # the call was interrupted; what it does on the loop is cancelled soon
                raise asyncio.CancelledError
            loop = asyncio.get_running_loop()
            done: asyncio.Future[None] = loop.create_future()

            def job() -> None:
                failure: Exception | None = None
                try:
                    callback(*arguments)
                except Exception as error:
                    failure = error
                loop.call_soon_threadsafe(functools.partial(_settle, done, failure))

            jobs[-1].put(job)
            await done

        return relay


def _settle(done: asyncio.Future[None], failure: Exception | None) -> None:
    if done.cancelled():
        return
    if failure is None:
        done.set_result(None)
    else:
        done.set_exception(failure)
