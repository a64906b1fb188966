"""A search through the records of a topic: bounded, and given up when nobody waits for it any more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from sparklog.client.consumer.async_consumer import AsyncConsumer
from sparklog.client.consumer.record import ConsumerRecord
from sparklog.clock import Clock
from sparklog.structs import TopicPartition
from sparklog.web.extents import Offsets
from sparklog.web.visitors import Visitor

MOST_RECORDS: Final = 500
_LONGEST_S: Final = 20.0
_LARGEST: Final = 256 << 20
"""Bytes of keys, values and headers that are looked at."""
_LARGEST_FOUND: Final = 16 << 20
_A_HEADER: Final = 100
"""Bytes that a header takes beside its name and its value."""
_A_POLL: Final = 500
_POLL_S: Final = 0.25
_FETCH: Final = {"fetch.max.bytes": 8 << 20, "max.partition.fetch.bytes": 1 << 20}

Matching = Callable[[ConsumerRecord], bool]


def reader(visitor: Visitor, isolation: str = "read_uncommitted") -> AsyncConsumer:
    """A consumer with the visitor's rights. It has no group, commits nothing and creates no topic."""
    more = {"allow.auto.create.topics": "false", "auto.offset.reset": "earliest", "isolation.level": isolation}
    return AsyncConsumer({**visitor.config.reaching(), **_FETCH, **more})


@dataclass
class Scan:
    """``run`` it; what it found is in it then. ``next`` is where each partition goes on."""

    start: Offsets
    end: Offsets
    matches: Matching
    limit: int
    clock: Clock
    found: list[ConsumerRecord] = field(default_factory=list)
    looked_at: int = 0
    bytes: int = 0
    stopped: str = "end"
    """Why it stopped: at the ``end``, or at its limit of ``records``, ``bytes`` or ``time``."""

    def __post_init__(self) -> None:
        self.next = dict(self.start)
        self._found_bytes = 0

    async def run(self, consumer: AsyncConsumer) -> None:
        """Look at records until it has enough. Raises ApiError where a partition may not be read."""
        if not self._left():
            return
        consumer.assign(self._left())
        for tp in self._left():
            consumer.seek(tp, self.start[tp])
        until = self.clock.monotonic() + _LONGEST_S
        while left := self._left():
            if self.clock.monotonic() > until:
                self.stopped = "time"
                return
            records = await consumer.poll(timeout=_POLL_S, max_records=_A_POLL)
            if not self._take(records):
                return
            self._note_positions(consumer)
            consumer.pause(*(tp for tp in left if self.next[tp] >= self.end[tp]))

    def _left(self) -> list[TopicPartition]:
        return [tp for tp, at in self.next.items() if at < self.end[tp]]

    def _take(self, records: list[ConsumerRecord]) -> bool:
        """Whether to go on."""
        for record in records:
            if record.offset < self.end[record.tp]:
                self._look_at(record)
                if self._has_enough():
                    return False
        return True

    def _look_at(self, record: ConsumerRecord) -> None:
        size = len(record.key or b"") + len(record.value or b"") + _size_of_headers(record)
        self.next[record.tp] = record.offset + 1
        self.looked_at += 1
        self.bytes += size
        if self.matches(record):
            self.found.append(record)
            self._found_bytes += size

    def _has_enough(self) -> bool:
        if len(self.found) >= self.limit:
            self.stopped = "records" if self._left() else "end"
            return True
        if self.bytes >= _LARGEST or self._found_bytes >= _LARGEST_FOUND:
            self.stopped = "bytes" if self._left() else "end"
            return True
        return False

    def _note_positions(self, consumer: AsyncConsumer) -> None:
        """Behind the last record there may be markers, or what compaction left of others."""
        for tp, at in consumer.positions().items():
            self.next[tp] = max(self.next[tp], at.offset)


def _size_of_headers(record: ConsumerRecord) -> int:
    return sum(len(name) + len(value or b"") + _A_HEADER for name, value in record.headers)


def matching(text: str, where: str) -> Matching:
    """Whether a record has the text, in its ``key``, its ``value`` or ``anywhere``; ``is-key``: whether it is its key.

    Raises ValueError for another place.
    """
    wanted = text.encode()
    tests: dict[str, Matching] = {
        "anywhere": lambda record: wanted in (record.value or b"") or wanted in (record.key or b""),
        "key": lambda record: wanted in (record.key or b""),
        "value": lambda record: wanted in (record.value or b""),
        "is-key": lambda record: bool(record.key == wanted),
    }
    if where not in tests:
        raise ValueError(f"where is one of {', '.join(tests)}")
    return tests[where] if text else _any


def _any(_: Any) -> bool:
    return True
