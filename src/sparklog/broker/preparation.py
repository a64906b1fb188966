"""Batches that take long to look into are looked into off the loop, and appended in the order in which they came.

A request is long to look into if its batches, decompressed, may come to more than half a MB, or to an eighth of that
where their topics want them recompressed or their records decoded; or if it brings message sets, to be made batches.
Such a request is prepared on a thread and appended afterwards on the loop. To hand it over costs more than to look into
one that is shorter.

Invariants: the requests that write to a partition are appended in the order of their arrival: one that comes while
another for the same partition is being prepared waits for it, prepared or not; so does one behind it on the same
connection. It waits until that is appended, not until it is answered. What was found on the thread counts only under
settings that would have it found again. So when it is a request's turn, what is to be prepared by the settings and the
leaders of then, and is not, is prepared; only where they change again and again, the log looks itself. A request that
is given up is not appended, and those behind it wait for those before it. One thread prepares, so that what is
decompressed at one time is one batch's; a batch that a search by time has to look into is decompressed there too.
Message sets, which take a hundred times as long, are converted on a second thread, so that only their like wait for
them.

A request that gets no answer (acks=0) is not given up when its client hangs up, for a client hangs up as soon as it has
sent the last one; what such requests hold in memory on no connection's account is bounded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from sparklog.clock import Clock
from sparklog.config.topic import TopicConfig
from sparklog.errors import ApiError
from sparklog.log.message_sets import prepare_message_set
from sparklog.log.validator import LONG, PreparedBatch, has_to_be_prepared, is_short, prepare, size_to_prepare
from sparklog.protocol.slices import SLICE
from sparklog.replica.manager import ReplicaManager
from sparklog.structs import TopicPartition

T = TypeVar("T")
Records = list[tuple[TopicPartition, memoryview | None]]
Prepared = dict[int, PreparedBatch | ApiError]
"""By place in the request, what is to be appended or why it is refused; what is not there needs no preparation. Not by
partition: a request may name one twice.
"""
_LOOKS_AGAIN = 3
_KEPT_AT_MOST = 64 << 20
"""Bytes of requests without an answer that are appended though their client has hung up."""


class Preparation:
    """Of the requests of one broker, on its loop."""

    def __init__(self, replicas: ReplicaManager, clock: Clock) -> None:
        self._replicas = replicas
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="prepare")
        self._converting = ThreadPoolExecutor(1, thread_name_prefix="convert")
        self._last: dict[TopicPartition, asyncio.Future[None]] = {}
        self._kept = 0

    def is_needed(self, records: Records, after: asyncio.Future[Any] | None = None) -> bool:
        """Whether the request has to wait: for its own preparation, for another's, to come ``after`` something, or
        between the steps in which it is appended.
        """
        if len(records) > SLICE or (after is not None and not after.done()):
            return True
        waited_for, size = self._last, 0
        for tp, batch in records:
            if waited_for and tp in waited_for:
                return True
            if batch is not None and not is_short(batch) and self._replicas.leads(tp):
                size += size_to_prepare(batch, self._replicas.partition(tp).config)
                if size > LONG:
                    return True
        return False

    def append_in_order(
        self,
        records: Records,
        append: Callable[[Prepared], Coroutine[None, None, T]],
        after: asyncio.Future[Any] | None = None,
        *,
        answered: bool = True,
        are_sets: bool = False,
    ) -> asyncio.Future[T]:
        """The result of ``append``, which is handed what was prepared when it is the request's turn, and ``after``.

        To cancel it gives the request up, unless it is not to be ``answered``. ``are_sets``: they may be message sets,
        all of which are prepared.
        """
        before: set[asyncio.Future[Any]] = {self._last[tp] for tp, _ in records if tp in self._last}
        if after is not None and not after.done():
            before.add(after)
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for tp, _ in records:
            self._last[tp] = place
        work = asyncio.ensure_future(self._append(records, before, append, are_sets=are_sets))
        work.add_done_callback(lambda _: self._leave(place, [tp for tp, _ in records], before))
        return work if answered else self._kept_on(work, sum(len(batch or b"") for _, batch in records))

    def _kept_on(self, work: asyncio.Future[T], size: int) -> asyncio.Future[T]:
        """The same as ``work``, which goes on when this is cancelled, unless too much does so already."""
        if self._kept + size > _KEPT_AT_MOST:
            return work
        self._kept += size

        def done(kept: asyncio.Future[T]) -> None:
            self._kept -= size
            if not kept.cancelled():
                kept.exception()  # or asyncio reports it as never retrieved, once the shield is cancelled

        work.add_done_callback(done)
        return asyncio.shield(work)

    async def _append(
        self,
        records: Records,
        before: set[asyncio.Future[Any]],
        append: Callable[[Prepared], Coroutine[None, None, T]],
        *,
        are_sets: bool,
    ) -> T:
        prepared: Prepared = {}
        long = [
            (number, tp, batch)
            for number, (tp, batch) in enumerate(records)
            if batch is not None and (are_sets or not is_short(batch))
        ]
        await self._look_into(long, prepared, are_sets=are_sets)
        if before:
            await asyncio.wait(before)
        for _ in range(_LOOKS_AGAIN):
            if not await self._look_into(long, prepared, are_sets=are_sets):
                break
        return await append(prepared)

    async def _look_into(
        self, long: Sequence[tuple[int, TopicPartition, memoryview]], prepared: Prepared, *, are_sets: bool
    ) -> bool:
        """Prepare those that are not, as far as that is known now. Whether there were any: others had the loop then."""
        has_looked = False
        for number, tp, batch in long:
            known = prepared.get(number)
            if isinstance(known, ApiError) or not self._replicas.leads(tp):
                continue
            config = self._replicas.partition(tp).config
            if known is not None and known.is_good_under(config):
                continue
            if are_sets:
                prepared[number] = await self._look(self._converting, prepare_message_set, batch, config)
            elif has_to_be_prepared(batch, config):
                prepared[number] = await self._look(self._thread, prepare, batch, config)
            else:
                continue
            has_looked = True
        return has_looked

    async def _look(
        self,
        thread: ThreadPoolExecutor,
        at: Callable[[memoryview, TopicConfig, int], PreparedBatch],
        batch: memoryview,
        config: TopicConfig,
    ) -> PreparedBatch | ApiError:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(thread, at, batch, config, self._clock.now_ms())
        except ApiError as refused:
            return refused

    async def run(self, work: Callable[[], T]) -> T:
        """What ``work`` gives, which decompresses a large batch: done on the thread, after what is there already."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def convert(self, work: Callable[[], T]) -> T:
        """What ``work`` gives, which makes message sets of batches: done on the thread for that."""
        return await asyncio.get_running_loop().run_in_executor(self._converting, work)

    def _leave(
        self, place: asyncio.Future[None], partitions: Iterable[TopicPartition], before: set[asyncio.Future[Any]]
    ) -> None:
        """The place is free when the request is done with and all those before it are."""
        earlier = next((each for each in before if not each.done()), None)
        if earlier is not None:
            earlier.add_done_callback(lambda _: self._leave(place, partitions, before))
            return
        place.set_result(None)
        for tp in partitions:
            if self._last.get(tp) is place:
                del self._last[tp]

    def close(self) -> None:
        """No request is served any more."""
        self._thread.shutdown()
        self._converting.shutdown()
