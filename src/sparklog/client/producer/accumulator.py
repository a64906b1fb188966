"""Records that wait for their batch to be sent, and batches that wait to be acknowledged. No I/O, no thread, no clock.

Each partition has a queue: batches that wait, oldest first, and batches on the wire. A batch is due when it is full,
when its oldest record has lingered, when a caller flushes or waits for room, or when a retry's pause is over. What is
not settled counts against ``buffer.memory``; a batch on the wire is never expired, so that a future fails only when
the batch will not be sent again.

A record is added in the caller's thread, where a signal handler may raise behind any call. So each step may be the
last: the record is in its batch or is not, a batch that waits is one that the sender finds, and there is no call
between what a batch is charged and what is counted against ``buffer.memory``.
"""

from __future__ import annotations

import logging
from bisect import insort
from collections.abc import Callable, Iterator
from itertools import takewhile
from operator import attrgetter
from typing import TYPE_CHECKING

from sparklog.client.cluster.retry import pause_after
from sparklog.client.producer.batch import Headers, ProducerBatch
from sparklog.client.producer.config import ProducerConfig
from sparklog.client.producer.delivery import RecordFuture
from sparklog.client.producer.sequences import PartitionSequences, ProducerId, Verdict, judge_unnumbered
from sparklog.errors import ApiError, ErrorCode, SparklogError
from sparklog.structs import TopicPartition

if TYPE_CHECKING:
    from typing_extensions import Buffer

_log = logging.getLogger(__name__)
RECORD_OVERHEAD = 48
"""What a record is counted for besides its key, value and headers: never less than it takes."""
_IN_ORDER = attrgetter("order")


class PartitionQueue:
    """The batches of one partition."""

    __slots__ = ("begun", "on_wire", "open", "sequences", "tp", "waiting")

    def __init__(self, tp: TopicPartition) -> None:
        self.tp = tp
        self.waiting: list[ProducerBatch] = []
        self.on_wire: list[ProducerBatch] = []
        self.open: ProducerBatch | None = None
        """The last of ``waiting``, if it still takes records."""
        self.sequences = PartitionSequences()
        self.begun = 0

    def others(self, batch: ProducerBatch) -> list[ProducerBatch]:
        """Every batch but this one."""
        return [each for each in (*self.on_wire, *self.waiting) if each is not batch]


class Accumulator:
    """All partitions' queues."""

    def __init__(self, config: ProducerConfig) -> None:
        self._config = config
        self._batch_size = config.batch_size
        self._memory = config.buffer_memory
        self._linger = config.linger_ms / 1000
        self._patience = config.delivery_timeout_ms / 1000
        self._is_idempotent = config.enable_idempotence
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._busy: dict[TopicPartition, PartitionQueue] = {}
        self._flushes = 0
        self.used = 0
        """Bytes of records not settled."""
        self.appended = 0
        """Bytes of all records there ever were."""
        self.has_news = False
        """A batch was begun or closed since the last look: the sender may have something to do."""
        self.fatal: SparklogError | None = None
        """Why nothing can be sent ever again, as the sender has learnt."""
        self.waiters: list[Callable[[], object]] = []
        """Called, once each, when there is room again."""
        self.settler: int | None = None
        """The thread on which batches are settled, as far as it is known."""
        self.is_interrupted: Callable[[], bool] | None = None
        """Whether a call here is under way in the calling thread: then nothing can be settled."""

    def append(
        self,
        tp: TopicPartition,
        timestamp: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Headers,
        now: float,
    ) -> RecordFuture | None:
        """Add a record to the batch being filled; None if there is no room for it now.

        Raises ApiError(MESSAGE_TOO_LARGE) for one that can never be sent, LocalProtocolError for what is no record;
        then nothing has changed.
        """
        size = RECORD_OVERHEAD + (len(key) if key is not None else 0) + (len(value) if value is not None else 0)  # type: ignore[arg-type]
        if headers:
            size += _headers_size(headers)
        if self.used + size > self._memory or size > self._config.max_request_size:
            self._refuse_if_impossible(size)
            return None
        queue = self._queues.get(tp) or self._queue(tp)
        batch = queue.open
        if batch is None or len(batch.records) + size > self._batch_size:
            batch = ProducerBatch(queue.tp, float(queue.begun + 1), now)
            future = batch.append(timestamp, key, value, headers)
            self._begin(queue, batch)  # only now: what is no record begins no batch
            queue.open = batch
        else:
            future = batch.append(timestamp, key, value, headers)
        batch.charged += size
        self.used += size
        self.appended += size
        return future

    def add_encoded(self, tp: TopicPartition, data: bytearray, now: float) -> ProducerBatch | None:
        """Queue a whole batch, which no record joins; None if there is no room for it now."""
        size = len(data)
        if self.used + size > self._memory:
            self._refuse_if_impossible(size)
            return None
        queue = self._queue(tp)
        batch = ProducerBatch.encoded(tp, float(queue.begun + 1), now, data)
        self._begin(queue, batch)
        batch.charged = size
        self.used += size
        self.appended += size
        return batch

    def _refuse_if_impossible(self, size: int) -> None:
        for name, limit in (("max.request.size", self._config.max_request_size), ("buffer.memory", self._memory)):
            if size > limit:
                raise ApiError(
                    ErrorCode.MESSAGE_TOO_LARGE,
                    f"a record of about {size} bytes is more than {name}={limit} allows; raise it, and the topic's"
                    " max.message.bytes if that is less",
                )

    def _queue(self, tp: TopicPartition) -> PartitionQueue:
        queue = self._queues.get(tp)
        if queue is None:
            queue = self._queues[tp] = PartitionQueue(tp)
        return queue

    def _begin(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Have a batch wait. That it does comes last: then its queue is served, and the sender will be told."""
        batch.delivery.settler, batch.delivery.is_interrupted = self.settler, self.is_interrupted
        queue.begun += 1
        queue.open = None
        self._busy[queue.tp] = queue
        self.has_news = True
        queue.waiting.append(batch)

    # What the sender asks.

    def due(self, now: float) -> Iterator[PartitionQueue]:
        """The queues whose first batch is to be sent, as far as time is concerned; the one served last comes last."""
        for queue in self._busy.values():
            if queue.waiting and self._due_at(queue) <= now:
                yield queue

    def _due_at(self, queue: PartitionQueue) -> float:
        head = queue.waiting[0]
        if head.attempts:
            return head.retry_at
        if head is not queue.open or self._flushes or self.waiters:
            return 0.0
        return head.created + self._linger

    def next_event(self, now: float) -> float | None:
        """Seconds until a batch becomes due or expires by itself; None if none will."""
        soonest = None
        for queue in self._busy.values():
            if not queue.waiting:
                continue
            expiry = queue.waiting[0].created + self._patience
            due = self._due_at(queue)
            at = min(due, expiry) if due > now else expiry
            soonest = at if soonest is None or at < soonest else soonest
        return None if soonest is None else max(soonest - now, 0.0)

    def take(self, queue: PartitionQueue, producer: ProducerId | None) -> ProducerBatch | None:
        """The first batch of a due queue, from now on on the wire and numbered; None if the order forbids it now."""
        if self._is_idempotent:
            if producer is None or not queue.sequences.admits(producer, queue.waiting, queue.on_wire):
                return None
        elif any(each.order < queue.waiting[0].order for each in queue.on_wire) and queue.waiting[0].attempts:
            return None
        batch = queue.waiting.pop(0)
        if batch is queue.open:
            queue.open = None
        if self._is_idempotent:
            queue.sequences.stamp(batch)
        queue.on_wire.append(batch)
        self._busy[queue.tp] = self._busy.pop(queue.tp)
        batch.attempts += 1
        return batch

    def answered(self, batch: ProducerBatch, code: ErrorCode, now: float) -> Verdict:
        """An answer to a batch on the wire. What is to be sent again is queued again; the rest is ``release``d."""
        queue = self._queues[batch.tp]
        queue.on_wire.remove(batch)
        if batch.stamp is None:
            verdict = judge_unnumbered(code, batch)
        else:
            transactional = self._config.is_transactional
            verdict = queue.sequences.judge(code, batch, queue.others(batch), is_transactional=transactional)
        if verdict is Verdict.RETRY and batch.attempts > self._config.retries:
            queue.sequences.give_up(batch)
            verdict = Verdict.FAIL
        if verdict is Verdict.RETRY:
            batch.retry_at = now + pause_after(batch.attempts, self._config)
            insort(queue.waiting, batch, key=_IN_ORDER)
        elif verdict is Verdict.SPLIT:
            for half in batch.halves() or ():
                insort(queue.waiting, half, key=_IN_ORDER)
        else:
            self._release(batch)
        return verdict

    def returned(self, batch: ProducerBatch) -> None:
        """A batch that was taken could not be put on the wire: it waits again, without a pause."""
        queue = self._queues[batch.tp]
        queue.on_wire.remove(batch)
        batch.attempts -= 1
        insort(queue.waiting, batch, key=_IN_ORDER)

    def expire(self, now: float) -> list[ProducerBatch]:
        """Take out the waiting batches whose time is over: those at the head of their queue."""
        return self._drop(
            [
                (queue, batch)
                for queue in self._busy.values()
                for batch in takewhile(lambda each: each.created + self._patience <= now, queue.waiting)
            ]
        )

    def stranded(self) -> list[ProducerBatch]:
        """Take out what may have been written and has lost its place in the sequence: it can never be sent again."""
        return self._drop(
            [
                (queue, batch)
                for queue in self._busy.values()
                if queue.sequences.is_broken
                for batch in queue.waiting
                if queue.sequences.strands(batch)
            ]
        )

    def drop_waiting(self) -> list[ProducerBatch]:
        """Take out every batch that waits."""
        return self._drop([(queue, batch) for queue in self._busy.values() for batch in queue.waiting])

    def _drop(self, doomed: list[tuple[PartitionQueue, ProducerBatch]]) -> list[ProducerBatch]:
        """Take these out, all of them whatever happens to one: what is taken out must be told of."""
        dropped = []
        for queue, batch in doomed:
            dropped.append(batch)
            try:
                queue.waiting.remove(batch)
                if batch is queue.open:
                    queue.open = None
                queue.sequences.give_up(batch)
            except Exception:
                _log.exception("a batch for %s was not taken out in order", queue.tp)
            self._release(batch)
        return dropped

    def _release(self, batch: ProducerBatch) -> None:
        self.used -= batch.charged
        queue = self._queues[batch.tp]
        if not queue.waiting and not queue.on_wire:
            self._busy.pop(batch.tp, None)

    def pop_waiters(self) -> list[Callable[[], object]]:
        """The callers that wait for room, if there may be some."""
        waiters, self.waiters = self.waiters, []
        return waiters

    # Flushing.

    def incomplete(self) -> list[ProducerBatch]:
        """Every batch that is not settled; none of them takes further records."""
        for queue in self._busy.values():
            queue.open = None
        self.has_news = True
        return [batch for queue in self._busy.values() for batch in (*queue.on_wire, *queue.waiting)]

    def flushing(self, by: int) -> None:
        """One flush more (1) or less (-1) is waiting: meanwhile nothing lingers."""
        self._flushes += by
        self.has_news = True

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits and nothing is on the wire."""
        return not self._busy

    @property
    def is_waiting(self) -> bool:
        """Whether a batch is there that is not on the wire."""
        return any(queue.waiting for queue in self._busy.values())

    @property
    def on_wire(self) -> int:
        """Batches that are under way."""
        return sum(len(queue.on_wire) for queue in self._busy.values())

    def needs_new_id(self, producer: ProducerId | None) -> bool:
        """Whether a partition's epochs are used up, so that it can only go on under another id than ``producer``'s."""
        return any(queue.sequences.is_exhausted(producer) for queue in self._busy.values())

    def needs_new_epoch(self, producer: ProducerId | None) -> bool:
        """Whether a partition can only go on under a higher epoch than ``producer``'s."""
        return any(queue.sequences.needs_new_epoch(producer) for queue in self._queues.values())


def _headers_size(headers: Headers) -> int:
    return sum(10 + 4 * len(name) + (0 if value is None else len(value)) for name, value in headers)  # type: ignore[misc, arg-type]
