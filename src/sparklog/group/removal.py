"""What may be taken out of a group, and when: unused offsets, and the group itself. Pure.

An offset ages only while it is unused, as in Kafka 3.9 (``removeExpiredOffsets``): in a group that has lost its
members, all offsets from that moment on; in a stable group of consumers, an offset of a topic that none of them reads,
since its commit; in a group that never had members, each since its commit. In the middle of a rebalance nothing
expires, and never what is being committed. Old commits that name their own time go by that. In a group of the consumer
protocol an offset ages since its commit, while no member reads its topic.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from sparklog.errors import ErrorCode
from sparklog.group.classic.group import NO_TIMESTAMP, CommittedOffset, Group, GroupState
from sparklog.group.classic.subscriptions import is_subscribed
from sparklog.group.consumer.group import ConsumerGroup
from sparklog.protocol.subscription import PROTOCOL_TYPE
from sparklog.structs import TopicPartition

Owner = TypeVar("Owner")
Each = TypeVar("Each")
_A_STEP = 100
"""Offsets; a group or what else owns them counts as one more. What goes of them is buried together."""


def in_steps(owned: Iterable[tuple[Owner, Sequence[Each]]]) -> Iterator[list[tuple[Owner, Sequence[Each]]]]:
    """What is owned, in pieces small enough for a step; those without anything have one piece too."""
    step, size = list[tuple[Owner, Sequence[Each]]](), 0
    for owner, all_of_it in owned:
        for first in range(0, max(len(all_of_it), 1), _A_STEP):
            piece = all_of_it[first : first + _A_STEP]
            step.append((owner, piece))
            size += 1 + len(piece)
            if size >= _A_STEP:
                yield step
                step, size = [], 0
    if step:
        yield step


def in_question(group: Group, partitions: Sequence[TopicPartition]) -> Sequence[TopicPartition]:
    """Where to look for what the group has in ``partitions``: there or among its own, whichever are fewer."""
    return group.partitions if len(group.offsets) + len(group.pending_commits) < len(partitions) else partitions


class OffsetDeletion(NamedTuple):
    """An error for the group, or else one for each partition."""

    error: ErrorCode
    partitions: dict[TopicPartition, ErrorCode]


def delete_error(group: Group | None, consumer: ConsumerGroup | None = None) -> ErrorCode:
    """Whether the group may be deleted; None is one that does not exist."""
    if group is None:
        return ErrorCode.GROUP_ID_NOT_FOUND
    if consumer is not None and consumer.members:
        return ErrorCode.NON_EMPTY_GROUP
    return ErrorCode.NONE if group.state is GroupState.EMPTY else ErrorCode.NON_EMPTY_GROUP


def offset_deletion(
    group: Group | None, partitions: Iterable[TopicPartition], consumer: ConsumerGroup | None = None
) -> OffsetDeletion:
    """Which of these offsets may be deleted: those that no member is about to commit again."""
    if group is None:
        return OffsetDeletion(ErrorCode.GROUP_ID_NOT_FOUND, {})
    if consumer is not None:
        subscribed, free = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE
        return OffsetDeletion(
            ErrorCode.NONE, {tp: subscribed if consumer.reads(tp.topic) else free for tp in partitions}
        )
    if group.state is GroupState.EMPTY:
        return OffsetDeletion(ErrorCode.NONE, dict.fromkeys(partitions, ErrorCode.NONE))
    if group.protocol_type != PROTOCOL_TYPE:
        return OffsetDeletion(ErrorCode.NON_EMPTY_GROUP, {})
    subscribed, free = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE
    return OffsetDeletion(
        ErrorCode.NONE, {tp: subscribed if is_subscribed(group, tp.topic) else free for tp in partitions}
    )


def expired_offsets(
    group: Group,
    now_ms: int,
    retention_ms: int,
    consumer: ConsumerGroup | None = None,
    among: Collection[TopicPartition] | None = None,
) -> list[TopicPartition]:
    """The partitions, of all or ``among`` these, whose offset has been unused for too long, by the wall clock."""
    if not _offsets_age(group):
        return []

    def is_read(topic: str) -> bool:
        if consumer is not None:
            return consumer.reads(topic)
        return group.state is GroupState.STABLE and is_subscribed(group, topic)

    left_ms = group.state_timestamp_ms if group.protocol_type and group.state is GroupState.EMPTY else NO_TIMESTAMP

    def is_over(committed: CommittedOffset) -> bool:
        if committed.expire_timestamp_ms != NO_TIMESTAMP:
            return now_ms >= committed.expire_timestamp_ms
        unused_since_ms = committed.commit_timestamp_ms if left_ms == NO_TIMESTAMP else left_ms
        return now_ms - unused_since_ms >= retention_ms

    return [
        tp
        for tp in (group.offsets if among is None else among)
        if (committed := group.offsets.get(tp)) is not None
        and tp not in group.pending_commits
        and not is_read(tp.topic)
        and is_over(committed)
    ]


def _offsets_age(group: Group) -> bool:
    """Whether the group is in a state in which its unused offsets can be told."""
    if group.state is GroupState.EMPTY:
        return True
    return group.state is GroupState.STABLE and group.protocol_type == PROTOCOL_TYPE
