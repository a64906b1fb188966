"""Which partition a record of ``send`` goes to.

With a key Kafka's murmur2 decides. Without one, records stick to a partition until a batch's worth of bytes went
there, then go to another at random: batches fill up, and no partition is favoured. A partitioner of the caller's
replaces both.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from sparklog.client.producer.arguments import check_target
from sparklog.cluster.leaders import Leaders
from sparklog.errors import ApiError, ErrorCode
from sparklog.record import layout
from sparklog.record.codec import murmur2
from sparklog.structs import TopicPartition

Partitioning = Callable[[str, "bytes | None", "bytes | None", int], int]


class _Topic:
    """What routing remembers of a topic."""

    __slots__ = ("count", "generation", "partitions", "sticky", "stuck")

    def __init__(self, name: str, count: int) -> None:
        self.partitions = [TopicPartition(name, number) for number in range(count)]
        self.count = count
        self.generation = -1
        self.sticky = self.partitions[0]
        self.stuck = 0


class Router:
    """Picks partitions from what is known of topics; asks no broker. For any number of threads."""

    def __init__(self, leaders: Leaders, sticky_bytes: int, partitioner: Partitioning | None = None) -> None:
        self._leaders = leaders
        self._sticky_bytes = sticky_bytes
        self._partitioner = partitioner
        self._topics: dict[str, _Topic] = {}

    def route(self, topic: str, key: Any, value: Any, partition: int | None) -> TopicPartition | None:
        """Where a record goes; None if the topic, or the partition that is asked for, is not known."""
        known = self._topics.get(topic)
        if known is None or known.generation != self._leaders.generation:
            known = self._look_up(topic, known)
            if known is None:
                return None
        if partition is not None:
            if partition.__class__ is not int:
                check_target(topic, partition)
            return known.partitions[partition] if 0 <= partition < known.count else None
        if self._partitioner is not None:
            return self._chosen(known, topic, key, value)
        if key is not None:
            return known.partitions[(murmur2(key) & layout.MAX_INT32) % known.count]
        known.stuck -= 32 if value is None else len(value) + 32
        if known.stuck < 0:
            known.sticky = self._next(known)
            known.stuck = self._sticky_bytes
        return known.sticky

    def _look_up(self, topic: str, known: _Topic | None) -> _Topic | None:
        generation = self._leaders.generation
        info = self._leaders.last_known(topic)
        if info is None or not info.partitions:
            return None
        if known is None or known.count != len(info.partitions):
            known = self._topics[topic] = _Topic(topic, len(info.partitions))
        if self._leaders.leader(known.sticky) is None:
            known.stuck = 0  # its leader has gone: the next record without a key goes elsewhere
        known.generation = generation  # last: until then all of this is done again
        return known

    def _next(self, known: _Topic) -> TopicPartition:
        """Another partition, one with a leader if there is any."""
        led = [tp for tp in known.partitions if self._leaders.leader(tp) is not None] or known.partitions
        others = [tp for tp in led if tp is not known.sticky]
        return random.choice(others or led)

    def _chosen(self, known: _Topic, topic: str, key: Any, value: Any) -> TopicPartition:
        assert self._partitioner is not None
        chosen = self._partitioner(topic, key, value, known.count)
        if not 0 <= chosen < known.count:
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"the partitioner chose {chosen} of the partitions 0 to {known.count - 1} of topic {topic!r}",
            )
        return known.partitions[chosen]
