"""What may go, and when."""

from __future__ import annotations

import pytest

from sparklog.errors import ErrorCode
from sparklog.group.classic.group import NO_TIMESTAMP, CommittedOffset, Group, GroupState
from sparklog.group.consumer.group import ConsumerGroup
from sparklog.group.consumer.member import ConsumerMember
from sparklog.group.removal import delete_error, expired_offsets, offset_deletion
from sparklog.structs import TopicPartition

READ, UNREAD = TopicPartition("read", 0), TopicPartition("unread", 0)
RETENTION_MS = 1_000
COMMITTED_MS = 10_000
REBALANCING = (GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE)
NONE, SUBSCRIBED = ErrorCode.NONE, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


def a_group(state: GroupState, protocol_type: str | None = "consumer", since_ms: int = NO_TIMESTAMP) -> Group:
    group = Group("g", state, protocol_type=protocol_type, state_timestamp_ms=since_ms)
    group.subscribed = frozenset({"read"}) if protocol_type == "consumer" else None
    group.offsets = {tp: CommittedOffset(5, -1, "", COMMITTED_MS) for tp in (READ, UNREAD)}
    return group


@pytest.mark.parametrize(
    ("group", "left_until_ms"),
    [
        # Nobody ever was a member: since the commit.
        (a_group(GroupState.EMPTY, None), {READ: 11_000, UNREAD: 11_000}),
        (a_group(GroupState.EMPTY, None, since_ms=500), {READ: 11_000, UNREAD: 11_000}),
        # Members have left: since they did, or since the commit where an old record does not say.
        (a_group(GroupState.EMPTY, since_ms=20_000), {READ: 21_000, UNREAD: 21_000}),
        (a_group(GroupState.EMPTY, since_ms=2_000), {READ: 3_000, UNREAD: 3_000}),
        (a_group(GroupState.EMPTY, "connect", since_ms=20_000), {READ: 21_000, UNREAD: 21_000}),
        (a_group(GroupState.EMPTY), {READ: 11_000, UNREAD: 11_000}),
        # Members are there: what they do not read, since the commit.
        (a_group(GroupState.STABLE, since_ms=20_000), {UNREAD: 11_000}),
        (a_group(GroupState.STABLE, "connect"), {}),
        *((a_group(state), {}) for state in REBALANCING),
    ],
)
def test_an_offset_expires_when_nobody_has_used_it_for_long(
    group: Group, left_until_ms: dict[TopicPartition, int]
) -> None:
    for tp in (READ, UNREAD):
        end_ms = left_until_ms.get(tp)
        if end_ms is None:
            assert tp not in expired_offsets(group, 1 << 50, RETENTION_MS)
        else:
            assert tp not in expired_offsets(group, end_ms - 1, RETENTION_MS)
            assert tp in expired_offsets(group, end_ms, RETENTION_MS)


def test_which_offsets_of_a_consumer_group_may_be_deleted() -> None:
    consumer = ConsumerGroup("g")
    consumer.put(ConsumerMember("m", topics=frozenset({"read"})))
    expected = {READ: SUBSCRIBED, UNREAD: NONE}
    assert offset_deletion(a_group(GroupState.EMPTY), [READ, UNREAD], consumer) == (NONE, expected)
    assert expired_offsets(a_group(GroupState.EMPTY), 11_000, RETENTION_MS, consumer) == [UNREAD]


def test_topics_that_cannot_be_told_are_not_taken_to_be_unread() -> None:
    group = a_group(GroupState.STABLE)
    group.subscribed = None
    assert expired_offsets(group, 1 << 50, RETENTION_MS) == []


def test_an_offset_that_names_its_time_goes_by_that() -> None:
    group = a_group(GroupState.EMPTY, since_ms=20_000)
    group.offsets[READ] = group.offsets[READ]._replace(expire_timestamp_ms=15_000)
    assert expired_offsets(group, 14_999, RETENTION_MS) == []
    assert expired_offsets(group, 15_000, RETENTION_MS) == [READ]


def test_an_offset_that_is_being_committed_does_not_expire() -> None:
    group = a_group(GroupState.EMPTY)
    group.pending_commits[READ] = 1
    assert expired_offsets(group, 1 << 50, RETENTION_MS) == [UNREAD]


@pytest.mark.parametrize(
    ("group", "error"),
    [
        (None, ErrorCode.GROUP_ID_NOT_FOUND),
        (a_group(GroupState.EMPTY), ErrorCode.NONE),
        *((a_group(state), ErrorCode.NON_EMPTY_GROUP) for state in (*REBALANCING, GroupState.STABLE)),
    ],
)
def test_which_groups_may_be_deleted(group: Group | None, error: ErrorCode) -> None:
    assert delete_error(group) is error


@pytest.mark.parametrize(
    ("group", "error", "of_each"),
    [
        (None, ErrorCode.GROUP_ID_NOT_FOUND, None),
        (a_group(GroupState.EMPTY), NONE, (NONE, NONE)),
        (a_group(GroupState.EMPTY, "connect"), NONE, (NONE, NONE)),
        (a_group(GroupState.STABLE, "connect"), ErrorCode.NON_EMPTY_GROUP, None),
        *((a_group(state), NONE, (SUBSCRIBED, NONE)) for state in (*REBALANCING, GroupState.STABLE)),
    ],
)
def test_which_offsets_may_be_deleted(
    group: Group | None, error: ErrorCode, of_each: tuple[ErrorCode, ErrorCode] | None
) -> None:
    expected = {} if of_each is None else dict(zip((READ, UNREAD), of_each, strict=True))
    assert offset_deletion(group, [READ, UNREAD]) == (error, expected)
