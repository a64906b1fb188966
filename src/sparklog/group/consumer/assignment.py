"""Which partitions someone has: sets, keyed by topic id, since a topic that is made anew is another one."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import NamedTuple
from uuid import UUID

from sparklog.protocol.slices import Steps

RUN = 500
"""How many partitions, or names of a subscription, that are dealt with one by one make a step."""
in_order = attrgetter("int")
"""The order of topic ids: that of their numbers, which are far quicker to compare."""


class TopicIdPartition(NamedTuple):
    """A partition of a topic that is known by its id."""

    topic_id: UUID
    partition: int


Partitions = frozenset[TopicIdPartition]
NONE: Partitions = frozenset()


def by_topic(partitions: Iterable[TopicIdPartition]) -> Steps[dict[UUID, list[int]]]:
    """The partitions of each topic, both in order."""
    found: dict[UUID, list[int]] = {}
    for count, each in enumerate(partitions):
        found.setdefault(each.topic_id, []).append(each.partition)
        if count % RUN == RUN - 1:
            yield
    for numbers in found.values():
        numbers.sort()
    return {topic_id: found[topic_id] for topic_id in sorted(found, key=in_order)}
