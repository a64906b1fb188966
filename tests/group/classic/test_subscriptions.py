"""What is read of the metadata that consumers send each other."""

from __future__ import annotations

import pytest

from sparklog.errors import RemoteProtocolError
from sparklog.group.classic.group import Group, GroupState, Member, Protocol
from sparklog.group.classic.subscriptions import (
    MOST_ELEMENTS,
    is_subscribed,
    read_assignment,
    subscribed_topics,
    write_assignment,
)
from sparklog.protocol.subscription import Subscription, decode_subscription, encode_subscription
from sparklog.protocol.wire import Budget
from sparklog.structs import TopicPartition

TO_A = bytes.fromhex("0000 00000001 0001 61 ffffffff")
TO_A_AND_B_V3 = bytes.fromhex("0003 00000002 0001 61 0001 62 ffffffff 00000000 00000001 ffff")
TO_NOTHING = bytes.fromhex("0001 00000000 ffffffff 00000000")


def group_of(*metadata: bytes, protocol_type: str = "consumer") -> Group:
    group = Group("g", GroupState.STABLE, 1, protocol_type, "range")
    for number, each in enumerate(metadata):
        protocols = (Protocol("sticky", b"?"), Protocol("range", each))
        group.add(Member(f"m{number}", None, "c", "/h", 10_000, 10_000, protocols))
    return group


@pytest.mark.parametrize(
    ("metadata", "topics"),
    [
        ((), set()),
        ((TO_A,), {"a"}),
        ((TO_A, TO_A_AND_B_V3, TO_NOTHING), {"a", "b"}),
        ((TO_A, b""), None),
        ((TO_A, TO_A[:7]), None),
        ((b"\xff\xff" + TO_A[2:],), None),
        ((bytes.fromhex("0000 00000001 0001 ff"),), None),
    ],
)
def test_a_group_subscribes_to_what_its_members_do(metadata: tuple[bytes, ...], topics: set[str] | None) -> None:
    assert subscribed_topics(group_of(*metadata)) == topics


def subscription_to(count: int) -> bytes:
    return bytes(2) + count.to_bytes(4, "big") + bytes(2 * count)


def test_a_group_whose_members_tell_too_much_is_not_read_to_the_end() -> None:
    half = MOST_ELEMENTS // 2
    assert subscribed_topics(group_of(subscription_to(half), subscription_to(half))) == {""}
    assert subscribed_topics(group_of(subscription_to(half), subscription_to(half + 1))) is None


def test_what_a_member_tells_is_read_within_a_budget() -> None:
    whole = encode_subscription(Subscription(("a", "b"), owned=(TopicPartition("a", 0), TopicPartition("a", 1))))
    assert decode_subscription(whole, Budget(5)) == decode_subscription(whole)
    with pytest.raises(RemoteProtocolError):
        decode_subscription(whole, Budget(4))
    given = write_assignment(1, [TopicPartition("a", 0), TopicPartition("a", 1)])
    assert read_assignment(given, Budget(3)) == read_assignment(given)
    with pytest.raises(RemoteProtocolError):
        read_assignment(given, Budget(2))


def test_other_protocol_types_are_not_looked_into() -> None:
    assert subscribed_topics(group_of(TO_A, protocol_type="connect")) is None


def test_a_group_may_read_any_topic_where_nobody_can_tell() -> None:
    group = Group("g", subscribed=frozenset({"a"}))
    assert (is_subscribed(group, "a"), is_subscribed(group, "b")) == (True, False)
    group.subscribed = None
    assert is_subscribed(group, "b")
