"""A record as ``poll`` gives it."""

from __future__ import annotations

from typing import Any, NamedTuple

from sparklog.structs import TopicPartition

Header = tuple[str, bytes | None]


class ConsumerRecord(NamedTuple):
    """One record. ``timestamp`` is milliseconds, ``timestamp_type`` 0 create, 1 log append.

    ``key`` and ``value`` are bytes, or what the consumer's deserializers made of them; None stays None.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: Any
    value: Any
    headers: tuple[Header, ...]
    leader_epoch: int

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)
