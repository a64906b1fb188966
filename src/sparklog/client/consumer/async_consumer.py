"""``AsyncConsumer``: reading topics on the caller's event loop.

One task at a time may wait in it. Heartbeats, joins and fetches run by themselves; what the group takes and gives, and
every callback, happens inside ``poll``.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, TypeVar

import pyarrow as pa

from sparklog.client.cluster.arguments import check_callable
from sparklog.client.cluster.offsets import EARLIEST, LATEST, OffsetAndTimestamp, plain_offsets
from sparklog.client.cluster.retry import retrying_async
from sparklog.client.cluster.session import Session
from sparklog.client.consumer import arguments
from sparklog.client.consumer.config import ConsumerConfig
from sparklog.client.consumer.fetch.buffer import RecordBuffer
from sparklog.client.consumer.fetch.deserializers import Deserializer, Deserializers
from sparklog.client.consumer.fetch.fetcher import Fetcher
from sparklog.client.consumer.fetch.handout import Handout
from sparklog.client.consumer.group.commits import CommitCallback
from sparklog.client.consumer.group.committed import OffsetAndMetadata, Offsets, to_commit
from sparklog.client.consumer.group.coordinator import Callback, Callbacks, ConsumerCoordinator
from sparklog.client.consumer.group.membership import no_group
from sparklog.client.consumer.group.metadata import GroupMetadata
from sparklog.client.consumer.offset_reset import EARLIEST_RESET, LATEST_RESET, OffsetReset
from sparklog.client.consumer.positions import FoundOffsets, Positions
from sparklog.client.consumer.record import ConsumerRecord
from sparklog.client.consumer.subscription import Position, SubscriptionState
from sparklog.clock import Clock
from sparklog.cluster.info import PartitionInfo
from sparklog.errors import ApiError, ClientClosed, ErrorCode, LocalProtocolError, WokenUp
from sparklog.structs import LeaderEpoch, TopicPartition

T = TypeVar("T")
ARROW_BYTES = 8 << 20
_STEP_INTERVAL = 0.05
"""Seconds for which iteration gives what is there before it looks after the group again."""


class AsyncConsumer:
    """Reads records of topics, alone or as a member of a group.

    Settings by Kafka's names, as a mapping or as keywords with underscores (``group_id="g"``). Deserializers are
    called with the bytes of each key or value that is not null, on the loop: one that waits long keeps heartbeats from
    being sent, and the group goes on without this consumer. Use it in ``async with``, or ``close`` it.

    What asks the cluster raises ClientClosed after ``close``. ``poll``, ``unsubscribe`` and ``close`` raise
    LocalProtocolError while another task waits in one of them.
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
        deserializers = Deserializers(key_deserializer, value_deserializer)
        deserializers.check()
        self.config = ConsumerConfig.of(settings, **more)
        self._session = Session(self.config, clock)
        self._clock = self._session.clock
        self._subscription = SubscriptionState()
        self._news = asyncio.Event()
        self._buffer = RecordBuffer(self._subscription, deserializers)
        grouped = bool(self.config.group_id)
        parts = self._session, self.config, self._subscription
        self._coordinator = ConsumerCoordinator(*parts, self._news) if grouped else None
        committed = self._coordinator.offsets.committed if self._coordinator else None
        self._positions = Positions(*parts, committed, self._news)
        self._fetcher = Fetcher(*parts, self._buffer, self._news, self._positions.out_of_range)
        self._handout: Handout | None = None
        self._step_again_at = 0.0
        self._is_started = self._is_closed = self._is_busy = self._is_woken = False

    async def __aenter__(self) -> AsyncConsumer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

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
        """Read these topics, or those whose whole name matches ``pattern``, with the rest of the group.

        Replaces what was subscribed before. The callbacks get a list of partitions and run inside ``poll``; they may
        be coroutine functions.

        Raises LocalProtocolError unless it is topics or a pattern, and while partitions are assigned, ConfigError
        without ``group.id``, TypeError for what is no name or no function, and re.error for a pattern that does not
        compile.
        """
        self._check_open()
        if (topics is None) == (pattern is None):
            raise LocalProtocolError("subscribe takes either topics or a pattern")
        named = arguments.check_topics(() if topics is None else topics)
        callbacks = Callbacks(on_assigned, on_revoked, on_lost)
        for name, function in callbacks._asdict().items():
            check_callable(name, function)
        group = self._group()
        if pattern is not None:
            self._subscription.subscribe_pattern(pattern)
        else:
            self._subscription.subscribe(named)
        group.callbacks = callbacks
        group.subscription_changed()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions, whatever others do. Replaces what was assigned before.

        Raises LocalProtocolError while topics are subscribed to, TypeError for what is no list of TopicPartition.
        """
        self._check_open()
        self._subscription.assign(arguments.check_partitions(partitions))

    async def unsubscribe(self) -> None:
        """Read nothing any more; leaves the group. Raises what a callback raised, when that is done."""
        with self._alone():
            try:
                if self._coordinator is not None and self._subscription.is_group_managed:
                    await self._coordinator.leave()
            except Exception:  # of a callback
                self._subscription.unsubscribe()
                raise
            self._subscription.unsubscribe()

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that this consumer reads now."""
        return self._subscription.assignment

    @property
    def subscription(self) -> frozenset[str]:
        """The topics subscribed to: those named, or those that the pattern matched last."""
        return self._subscription.topics

    # -- reading

    async def poll(self, timeout: float = 1.0, max_records: int | None = None) -> list[ConsumerRecord]:
        """The next records, at most ``max_records`` (``max.poll.records``); none after ``timeout`` seconds without any.

        Within a partition they are in order; partitions take turns. Raises WokenUp after ``wakeup``,
        DeserializationError, CorruptRecord, any other SparklogError that does not pass by itself, LocalProtocolError
        where nothing is subscribed to or assigned, and what a callback raised.
        """
        limit = self.config.max_poll_records if max_records is None else max_records
        return await self._poll(timeout, lambda: self._buffer.take(limit)) or []

    async def poll_arrow(
        self, timeout: float = 1.0, max_bytes: int = ARROW_BYTES, max_rows: int = 1 << 31
    ) -> pa.RecordBatch | None:
        """The next records as columns (those of Spark's Kafka source); None after ``timeout`` seconds without any.

        ``max_bytes`` is looked at between record batches, so the result may be larger by one. Raises as ``poll`` does.
        """
        return await self._poll(timeout, lambda: self._buffer.take_arrow(max_bytes, max_rows))

    async def _poll(self, timeout: float, take: Callable[[], T]) -> T | None:
        arguments.check_seconds(timeout)
        with self._alone():
            self._subscription.check_subscribed()
            deadline = self._clock.monotonic() + timeout
            self._end_handout()
            while True:
                self._news.clear()
                await self._step()
                taken = take()
                self._fetcher.send()
                if taken:
                    return taken
                left = deadline - self._clock.monotonic()
                if left <= 0:
                    return None
                await self._wait(min(left, self._coordinator.commits.seconds_left) if self._coordinator else left)

    async def _step(self) -> None:
        """What is due besides records: the group, commits, positions."""
        if not self._is_started:
            self._is_started = True
            await self._session.start()
        if self._is_woken:
            self._is_woken = False
            raise WokenUp("wakeup() was called")
        if self._coordinator is not None:
            await self._coordinator.commits.tell()
            self._coordinator.commits.start_auto_commit()
            await self._coordinator.step()
        self._positions.settle()
        self._positions.raise_failure()
        self._fetcher.raise_failure()
        self._step_again_at = self._clock.monotonic() + _STEP_INTERVAL

    async def _wait(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()

    def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        """One record after another, for ever; a commit in between is of the records given so far."""
        return self

    async def __anext__(self) -> ConsumerRecord:
        if self._clock.monotonic() < self._step_again_at and not self._is_woken:
            with self._alone():
                if ready := self._buffer.take(1):
                    return ready[0]
        while not (records := await self.poll(timeout=1.0, max_records=1)):
            pass
        return records[0]

    def give_back(self, got: Iterable[ConsumerRecord] = ()) -> None:
        """Have what ``poll`` or ``poll_arrow`` just returned fetched again: no more than ``got`` reached the user."""
        self._buffer.give_back(got)

    def lend(self, records: list[ConsumerRecord]) -> Handout:
        """What ``poll`` just returned, to be given to the user one by one."""
        self._handout = Handout(self._subscription, records)
        return self._handout

    def _end_handout(self) -> None:
        handout, self._handout = self._handout, None
        if handout is not None:
            handout.give_back()

    def wakeup(self) -> None:
        """Have the ``poll`` that waits now, or else the next one, raise WokenUp."""
        self._is_woken = True
        self._news.set()

    # -- positions

    def seek(self, tp: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Go on there.

        Raises ApiError for a partition that is not assigned, LocalProtocolError for an offset that no log can have, and
        TypeError.
        """
        arguments.check_partition(tp)
        at = arguments.check_offset(offset)
        self._subscription.seek(tp, Position(at.offset, LeaderEpoch(at.leader_epoch)))

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go on at the first offset of these, or of all that are assigned.

        Raises ApiError for one that is not assigned.
        """
        self._request_reset(partitions, EARLIEST_RESET)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go on behind the last record of these, or of all that are assigned. Raises ApiError for one that is not."""
        self._request_reset(partitions, LATEST_RESET)

    def _request_reset(self, partitions: Collection[TopicPartition], reset: OffsetReset) -> None:
        for tp in partitions or self._subscription.assignment:
            self._subscription.request_reset(tp, reset)

    async def position(self, tp: TopicPartition) -> int:
        """The offset of the next record of ``tp`` that ``poll`` gives; looked up if need be.

        Raises ApiError for a partition that is not assigned, and after ``default.api.timeout.ms``.
        """
        self._check_open()
        deadline = self._clock.monotonic() + self.config.api_timeout_ms / 1000
        while (at := self._subscription.state(tp).position) is None:
            self._news.clear()
            self._positions.settle()
            self._positions.raise_failure()
            left = deadline - self._clock.monotonic()
            if left <= 0:
                raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"the position in partition {tp} could not be found")
            await self._wait(left)
        return at.offset

    def positions(self) -> Offsets:
        """Where each assigned partition goes on, as ``commit`` stores it; left out while that is not known."""
        return to_commit(self._subscription.positions())

    def pause(self, *partitions: TopicPartition) -> None:
        """Give nothing of these until ``resume``; what was fetched is kept, up to ``fetch.max.bytes`` in all.

        Raises ApiError for one that is not assigned.
        """
        self._subscription.pause(partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        """Let ``poll`` return records of these again, from where it had come to.

        Raises ApiError for one that is not assigned.
        """
        self._subscription.resume(partitions)
        self._news.set()

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """The partitions of which ``poll`` returns nothing now."""
        return self._subscription.paused

    def lag(self) -> dict[TopicPartition, int | None]:
        """Records behind the end of each partition, as of its last fetch; None where that is not known yet."""
        return self._subscription.lag(self.config.isolation_level)

    # -- commits

    async def commit(self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None) -> None:
        """Commit these offsets, or the position of each partition; returns when they are stored. A position in a topic
        that was deleted is left out.

        Raises ApiError if they will not be: the group may have gone on without this consumer.
        """
        group = self._group()
        await group.offsets.commit(_chosen(group, offsets))

    def commit_async(
        self,
        callback: CommitCallback | None = None,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None,
    ) -> None:
        """Commit without waiting; ``callback(offsets, error)`` runs in a later ``poll``, or in ``close``.

        If that poll is cancelled before the callback has returned, the next one calls it again. Raises ConfigError
        without ``group.id``, TypeError and LocalProtocolError for what are no offsets.
        """
        check_callable("callback", callback)
        group = self._group()
        group.commits.start(_chosen(group, offsets), callback)

    async def committed(self, *partitions: TopicPartition) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed for these, or for all that are assigned; None for nothing.

        Raises ConfigError without ``group.id``, ApiError.
        """
        wanted = partitions or self._subscription.assignment
        return dict(await self._group().offsets.committed(list(wanted)))

    def consumer_group_metadata(self) -> GroupMetadata:
        """This consumer's membership, for a producer that commits its offsets in a transaction.

        Raises ConfigError without ``group.id``.
        """
        return self._group().metadata

    # -- what there is

    async def beginning_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset that each partition still has.

        Raises SparklogError: what does not pass by itself, or has not passed after ``default.api.timeout.ms``.
        """
        return plain_offsets(await self._list_offsets(dict.fromkeys(partitions, EARLIEST)))

    async def end_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset behind the last record that this consumer may see. Raises as ``beginning_offsets`` does."""
        return plain_offsets(await self._list_offsets(dict.fromkeys(partitions, LATEST)))

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after each timestamp (ms); None where there is none.

        Raises as ``beginning_offsets`` does, and TypeError.
        """
        return await self._list_offsets(arguments.check_timestamps(timestamps))

    async def _list_offsets(self, wanted: Mapping[TopicPartition, int]) -> FoundOffsets:
        found: FoundOffsets = {}

        async def ask_what_is_left() -> None:
            left = {tp: at for tp, at in wanted.items() if tp not in found}
            await self._positions.list_offsets(left, found)

        def forget_leaders() -> None:
            for tp in wanted.keys() - found.keys():
                self._session.leaders.invalidate(tp.topic)

        self._check_open()
        await retrying_async(self._session.backoff(), ask_what_is_left, between=forget_leaders)
        return found

    def metrics(self) -> dict[str, float]:
        """As ``Consumer.metrics``."""
        return self._session.throttling.metrics()

    async def partitions_for(self, topic: str) -> tuple[PartitionInfo, ...]:
        """The partitions of a topic, with their leaders. Raises ApiError if there is no such topic."""
        self._check_open()
        return (await self._session.topic(topic)).partitions

    # -- the end

    async def close(self, timeout: float = 30.0) -> None:
        """Commit (if auto-commit is on), give up the partitions, leave the group (a static member stays), hang up.

        After ``timeout`` seconds it hangs up whatever is not done. Raises what a callback raised.
        """
        if self._is_closed:
            return
        with self._alone():
            self._end_handout()
            try:
                async with asyncio.timeout(timeout) as limit:
                    await self._say_goodbye()
            except TimeoutError:
                if not limit.expired():  # it is a callback's
                    raise
            finally:
                self._is_closed = True
                try:
                    if self._coordinator is not None:
                        await self._coordinator.stop()
                    await self._positions.close()
                    await self._fetcher.close()
                finally:
                    await self._session.close()

    async def _say_goodbye(self) -> None:
        if self._coordinator is None:
            return
        try:
            await self._coordinator.commits.finish()
        except Exception:  # of a callback
            await self._let_go(self._coordinator)
            raise
        await self._let_go(self._coordinator)

    async def _let_go(self, coordinator: ConsumerCoordinator) -> None:
        if self._subscription.is_group_managed:
            await coordinator.leave()
        else:
            await coordinator.offsets.auto_commit()

    # -- what every call needs

    def _group(self) -> ConsumerCoordinator:
        self._check_open()
        if self._coordinator is None:
            raise no_group()
        return self._coordinator

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosed("this consumer was closed")

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Two tasks in one consumer would take each other's records."""
        self._check_open()
        if self._is_busy:
            raise LocalProtocolError("another task is using this consumer; a consumer is for one at a time")
        self._is_busy = True
        try:
            yield
        finally:
            self._is_busy = False


def _chosen(group: ConsumerCoordinator, offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None) -> Offsets:
    return group.offsets.reached() if offsets is None else arguments.check_offsets(offsets)
