"""Which partitions someone has: sets, keyed by topic id, since a topic that is made anew is another one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID


class TopicIdPartition(NamedTuple):
    """A partition of a topic that is known by its id."""

    topic_id: UUID
    partition: int


Partitions = frozenset[TopicIdPartition]
NONE: Partitions = frozenset()


def by_topic(partitions: Iterable[TopicIdPartition]) -> dict[UUID, list[int]]:
    """The partitions of each topic, both in order."""
    found: dict[UUID, list[int]] = {}
    for topic_id, partition in sorted(partitions):
        found.setdefault(topic_id, []).append(partition)
    return found
