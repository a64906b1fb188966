"""What goes into the machine of consumer groups and what comes out: plain values, free of wire versions."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from sparklog.errors import ErrorCode
from sparklog.group.consumer.assignment import Partitions
from sparklog.group.consumer.group import ConsumerGroup
from sparklog.group.consumer.member import JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH, ConsumerMember

UNCHANGED_MS = -1


class ConsumerHeartbeat(NamedTuple):
    """What a member says; None (and -1 for the timeout) where nothing changed since it last said it.

    ``owned`` are the partitions that it uses. ``brings_id``: members of this version choose their own ids.
    """

    group_id: str
    member_id: str
    epoch: int
    client_id: str
    client_host: str
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = UNCHANGED_MS
    topics: frozenset[str] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: Partitions | None = None
    brings_id: bool = False

    @property
    def leaves(self) -> bool:
        return self.epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH)

    @property
    def farewell(self) -> ConsumerHeartbeat:
        """As much of it as counts where the member leaves."""
        return ConsumerHeartbeat(self.group_id, self.member_id, self.epoch, "", "", self.instance_id)

    @property
    def is_full(self) -> bool:
        """Whether the member says everything: it joins, or is not sure that its last request arrived."""
        subscribes = self.topics is not None or self.regex is not None
        said_all = subscribes and self.rebalance_timeout_ms != UNCHANGED_MS and self.owned is not None
        return self.epoch == JOIN_EPOCH or said_all

    def update(self, member: ConsumerMember) -> ConsumerMember:
        """The member as it is now; a member that heartbeats is of the consumer protocol, whatever it was before."""
        return replace(
            member,
            instance_id=self.instance_id or member.instance_id,
            rack_id=self.rack_id or member.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            topics=member.topics if self.topics is None else self.topics,
            regex=member.regex if self.regex is None else self.regex or None,
            rebalance_timeout_ms=(
                member.rebalance_timeout_ms if self.rebalance_timeout_ms == UNCHANGED_MS else self.rebalance_timeout_ms
            ),
            assignor=self.assignor or member.assignor,
            classic=None,
        )


class ConsumerAnswer(NamedTuple):
    """``assigned`` is None where the member knows already."""

    error: ErrorCode
    message: str | None = None
    member_id: str | None = None
    epoch: int = 0
    heartbeat_interval_ms: int = 0
    assigned: Partitions | None = None


class Decision(NamedTuple):
    """The group as it is to be, and the answer to give once the log has what changed."""

    group: ConsumerGroup
    answer: ConsumerAnswer
