"""What an assignor is told, and what it must answer.

An answer names every member; every partition of a subscribed topic is in it exactly once, at a member
that subscribes to the topic; no other partition is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

from sparklog.group.consumer.assignment import Partitions, TopicIdPartition


class MemberSpec(NamedTuple):
    """``had`` is the member's share of the last target."""

    instance_id: str | None
    topics: frozenset[UUID]
    had: Partitions


class Spec(NamedTuple):
    """The members by id, and how many partitions each topic has; a topic that is not there does not exist."""

    members: dict[str, MemberSpec]
    topics: dict[UUID, int]

    def subscribers(self, topic_id: UUID) -> list[str]:
        """In the order of their names: that of the static ones by instance id, which outlives member ids."""
        found = [each for each, member in self.members.items() if topic_id in member.topics]
        return sorted(found, key=self._name)

    def _name(self, member_id: str) -> tuple[bool, str]:
        instance_id = self.members[member_id].instance_id
        return (True, member_id) if instance_id is None else (False, instance_id)

    def partitions(self, topic_id: UUID) -> list[TopicIdPartition]:
        return [TopicIdPartition(topic_id, number) for number in range(self.topics[topic_id])]


Assignor = Callable[[Spec], dict[str, Partitions]]
