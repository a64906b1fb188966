"""What an assignor is told, and what it must answer.

An answer names every member; every partition of a subscribed topic is in it exactly once, at a member
that subscribes to the topic; no other partition is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

from sparklog.group.consumer.assignment import RUN, Partitions, TopicIdPartition, in_order
from sparklog.protocol.slices import Steps

Readers = tuple[str, ...]
"""All members that subscribe to some topic, in the order of their names."""


class MemberSpec(NamedTuple):
    """``had`` is the member's share of the last target. Members that read the same have one and the same ``topics``,
    or all that is done for a subscription is done for each of them.
    """

    instance_id: str | None
    topics: frozenset[UUID]
    had: Partitions


class Spec(NamedTuple):
    """The members by id, and how many partitions each topic has; a topic that is not there does not exist."""

    members: dict[str, MemberSpec]
    topics: dict[UUID, int]

    def readers(self) -> Steps[dict[UUID, Readers]]:
        """Those of each topic, in the topics' order: static members by instance id, which outlives member ids, then the
        others. Topics of the same members have one and the same tuple. A step is a run of one subscription, or a topic.
        """
        rank = {member_id: number for number, member_id in enumerate(sorted(self.members, key=self._name))}
        alike: dict[frozenset[UUID], list[str]] = {}
        for member_id in rank:
            alike.setdefault(self.members[member_id].topics, []).append(member_id)
        subscriptions: dict[UUID, list[int]] = {}
        for number, subscription in enumerate(alike):
            for count, topic_id in enumerate(subscription):
                if topic_id in self.topics:
                    subscriptions.setdefault(topic_id, []).append(number)
                if count % RUN == RUN - 1:
                    yield
            yield
        groups = [*alike.values()]
        known: dict[tuple[int, ...], Readers] = {}
        found: dict[UUID, Readers] = {}
        for topic_id in sorted(self.topics, key=in_order):
            numbers = tuple(subscriptions.get(topic_id, ()))
            if numbers not in known:
                known[numbers] = tuple(sorted((each for n in numbers for each in groups[n]), key=rank.__getitem__))
            found[topic_id] = known[numbers]
            yield
        return found

    def _name(self, member_id: str) -> tuple[bool, str]:
        instance_id = self.members[member_id].instance_id
        return (True, member_id) if instance_id is None else (False, instance_id)

    def partitions(self, topic_id: UUID) -> list[TopicIdPartition]:
        return [TopicIdPartition(topic_id, number) for number in range(self.topics[topic_id])]


Assignor = Callable[[Spec], Steps[dict[str, Partitions]]]
"""A step is bounded whatever the group is: some partitions, or a look at the members of one topic."""
