"""``Stream``: one owner of partitions, and the records of them.

Invariants:

- ``_source``, the consumer that fetches, is used by one thread at a time: by the one that polls while ``_is_busy``,
  else by the one that is in ``exclusively``, which lets no poll begin meanwhile.
- Records are given only while ``desk.is_live`` and of partitions that the stream reads; what was fetched and may not be
  given is fetched again.
- ``done`` of a partition moves on only when the user asks for more, or commits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from threading import Condition

from sparklog.client.consumer.consumer import Consumer
from sparklog.client.consumer.record import ConsumerRecord
from sparklog.client.zookeeper.polled_records import PolledRecords
from sparklog.clock import Clock
from sparklog.errors import WokenUp
from sparklog.structs import TopicPartition


class Desk:
    """What all streams of a consumer share: one lock, and whether records may be given."""

    def __init__(
        self,
        clock: Clock,
        on_done: Callable[[], None],
        commit: Callable[[list[Stream]], dict[TopicPartition, int]],
    ) -> None:
        self.clock = clock
        self.changed = Condition()
        """Holds all that the streams and the member know; told of every change."""
        self.on_done = on_done
        """Told, under the lock, when records that somebody waits for are no longer in hand."""
        self.commit = commit
        self.is_live = False
        self.failure: Exception | None = None
        """Why no records will be given any more."""


class Stream:
    """The records of the partitions that one owner has. For one thread at a time; each stream may have its own."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._source: Consumer | None = None
        self._reads: frozenset[TopicPartition] = frozenset()
        self._done: dict[TopicPartition, int] = {}
        self._polled: PolledRecords | None = None
        self._resume_at: dict[TopicPartition, int] = {}
        self._excluders = 0
        self._is_busy = False

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that it reads now."""
        return self._reads

    def poll(self, timeout: float = 1.0, max_records: int | None = None) -> list[ConsumerRecord]:
        """The next records, at most ``max_records`` (``max.poll.records``); none after ``timeout`` seconds without any.

        What it returned before counts as done. Raises ConsumerIdTaken and LayoutConflict when the consumer cannot be in
        its group any more, ClientClosed after ``close``.
        """
        clock = self._desk.clock
        deadline = clock.monotonic() + timeout
        self.finish()
        while (source := self._begin(deadline)) is not None:
            records: list[ConsumerRecord] = []
            try:
                self._resume(source)
                records = source.poll(max(0.0, deadline - clock.monotonic()), max_records)
            except WokenUp:
                pass
            finally:
                records = self._end(records)
            if records or clock.monotonic() >= deadline:
                return records
        return []

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """One record after another, for ever; each is done with when the next is asked for."""
        while True:
            records = self.poll()
            polled = self._polled
            if polled is None:
                continue
            polled.hold_back()
            for record in records:
                if polled is not self._polled or record.tp not in polled.first:
                    break  # the partition is another's by now
                polled.give(record)
                yield record

    def commit(self) -> dict[TopicPartition, int]:
        """Write the offsets of what this stream gave so far; those that are stored now, by partition.

        A partition that is another's by now is left out: its owner reads those records again. Raises CoordinationError
        where ZooKeeper cannot be written to.
        """
        return self._desk.commit([self])

    def _begin(self, deadline: float) -> Consumer | None:
        """The source, for this thread alone; None if there was nothing to read until then."""
        desk = self._desk

        def may_read() -> bool:
            if desk.failure is not None:
                raise desk.failure
            return desk.is_live and not self._excluders and bool(self._reads)

        with desk.changed:
            if not desk.changed.wait_for(may_read, max(0.0, deadline - desk.clock.monotonic())):
                return None
            self._is_busy = True
            return self._source

    def _resume(self, source: Consumer) -> None:
        for tp, offset in self._resume_at.items():
            source.seek(tp, offset)
        self._resume_at.clear()

    def _end(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        with self._desk.changed:
            polled = PolledRecords(records, self._desk.clock.monotonic()) if records else None
            if polled is not None:
                self._done = polled.first | self._done  # of a partition of which nothing was given yet
            if polled is not None and not self._desk.is_live:
                self._resume_at.update(polled.first)
                polled = None
            self._polled = polled
            self._is_busy = False
            self._desk.changed.notify_all()
            return records if polled is not None else []

    # what is done

    def finish(self) -> None:
        """The user has done with what it got."""
        with self._desk.changed:
            polled, self._polled = self._polled, None
            if polled is not None:
                self._done.update(polled.given)
                self._resume_at.update({tp: at for tp, at in polled.rest.items() if tp in self._reads})
                self._desk.on_done()

    def forget_hand(self) -> None:
        """What is in hand will be given again, here or by the next owner."""
        with self._desk.changed:
            polled, self._polled = self._polled, None
            if polled is not None:
                self._resume_at.update({tp: at for tp, at in polled.first.items() if tp in self._reads})

    def count_given(self) -> None:
        """What the user got counts as done, and stays in hand."""
        with self._desk.changed:
            if self._polled is not None:
                self._done.update(self._polled.given)

    def done(self, tp: TopicPartition) -> int | None:
        """Where the next owner is to begin; None while that is not known."""
        return self._done.get(tp)

    def in_hand_since(self, tp: TopicPartition) -> float | None:
        """When records of the partition were given that the user has not done with; None if there are none."""
        polled = self._polled
        return polled.since if polled is not None and tp in polled.first else None

    # for the member, which owns what the stream reads

    @contextmanager
    def exclusively(self) -> Iterator[None]:
        """No poll is under way, and none begins."""
        desk = self._desk
        with desk.changed:
            self._excluders += 1
        try:
            with desk.changed:
                if self._is_busy and self._source is not None:
                    self._source.wakeup()
                desk.changed.wait_for(lambda: not self._is_busy)
            yield
        finally:
            with desk.changed:
                self._excluders -= 1
                desk.changed.notify_all()

    def learn_beginnings(self) -> None:
        """Where nothing was stored and nothing was given, reading begins where the reset policy says: that is known
        when it was looked up. To be called exclusively.
        """
        unknown = [tp for tp in self._reads if tp not in self._done and self.in_hand_since(tp) is None]
        if unknown and self._source is not None:
            positions = self._source.positions()
            self._done.update({tp: positions[tp].offset for tp in unknown if tp in positions})

    def read(self, source: Consumer, beginnings: Mapping[TopicPartition, int | None]) -> None:
        """Read these partitions too, from there; None: where the reset policy says. To be called exclusively."""
        self._source = source
        source.assign(self._reads | set(beginnings))
        for tp, offset in beginnings.items():
            self._done.pop(tp, None)
            if offset is not None:
                source.seek(tp, offset)
                self._done[tp] = offset
        self._set_reads(self._reads | set(beginnings))

    def stop_reading(self, partitions: Iterable[TopicPartition]) -> None:
        """Give no more of these; what is in hand stays there. To be called exclusively."""
        self.learn_beginnings()
        self._set_reads(self._reads.difference(partitions))
        if self._source is not None:
            self._source.assign(self._reads)

    def _set_reads(self, reads: frozenset[TopicPartition]) -> None:
        with self._desk.changed:
            self._reads = reads
            self._resume_at = {tp: at for tp, at in self._resume_at.items() if tp in reads}
            self._desk.changed.notify_all()

    def forget(self, tp: TopicPartition) -> None:
        """The partition is another's."""
        with self._desk.changed:
            self._done.pop(tp, None)
            if self._polled is not None:
                self._polled.drop(tp)

    @property
    def source(self) -> Consumer | None:
        """What fetches; None before there was anything to fetch."""
        return self._source

    def close(self) -> None:
        """Hang up. To be called exclusively."""
        if self._source is not None:
            self._source.close()
