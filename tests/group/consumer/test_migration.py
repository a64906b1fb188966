"""A classic group as a consumer group, and back: what is carried over, and what may not be."""

from dataclasses import replace

import pytest
from group.consumer.samples import FakeTopics, subscription

from sparklog.errors import ApiError, ErrorCode
from sparklog.group.classic.group import Group, GroupState, Member, Protocol
from sparklog.group.classic.subscriptions import read_assignment, write_assignment
from sparklog.group.consumer.group import ConsumerGroup
from sparklog.group.consumer.member import ClassicSide, ConsumerMember
from sparklog.group.consumer.migration import MigrationPolicy, downgraded, is_due, upgraded
from sparklog.structs import TopicPartition

BOTH = MigrationPolicy.BIDIRECTIONAL
PROTOCOLS = (Protocol("other", subscription(["u"])), Protocol("range", subscription(["t"])))


def classic_group(*member_ids, protocol="range", protocol_type="consumer"):
    group = Group("g", GroupState.STABLE, 4, protocol_type, protocol)
    for number, member_id in enumerate(member_ids):
        member = Member(member_id, f"i-{member_id}", "c", "/h", 10_000, 60_000, PROTOCOLS)
        member.assignment = write_assignment(1, [TopicPartition("t", number)])
        group.add(member)
    return group


@pytest.mark.parametrize(("protocol", "topic"), [("range", "t"), ("other", "u"), (None, "u"), ("gone", "u")])
def test_a_member_keeps_all_that_it_said_and_has(protocol, topic):
    topics = FakeTopics(t=2)
    made = upgraded(classic_group("a", protocol=protocol), topics, BOTH, 1)
    member = ConsumerMember(
        "a", "i-a", None, "c", "/h", frozenset({topic}), None, 60_000, None, ClassicSide(10_000, PROTOCOLS), 4, 4,
        assigned=topics.tips("t", 0),
    )  # fmt: skip
    assert made.members == {"a": member}
    assert (made.epoch, made.assignment_epoch, made.target) == (4, 4, {"a": member.assigned})


def test_a_member_without_a_generation_s_protocol_is_read_by_the_first_of_its_own():
    group = classic_group("a", protocol=None)
    group.set_protocols(group.members["a"], PROTOCOLS[:1])
    assert upgraded(group, FakeTopics(t=1), BOTH, 1).members["a"].topics == {"u"}


def test_a_rack_is_carried_over():
    said = subscription(["t"], version=1)
    said = b"\x00\x03" + said[2:] + (-1).to_bytes(4, "big", signed=True) + b"\x00\x01r"
    group = classic_group("a")
    group.set_protocols(group.members["a"], (Protocol("range", said),))
    assert upgraded(group, FakeTopics(t=1), BOTH, 1).members["a"].rack_id == "r"


@pytest.mark.parametrize(
    ("group", "policy", "max_size"),
    [
        (classic_group("a"), MigrationPolicy.DOWNGRADE, 2),
        (classic_group("a", protocol_type="connect"), BOTH, 2),
        (classic_group("a", "b", "c"), BOTH, 2),
    ],
)
def test_what_is_not_upgraded(group, policy, max_size):
    with pytest.raises(ApiError) as refusal:
        upgraded(group, FakeTopics(t=3), policy, max_size)
    assert refusal.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    assert group.group_id in refusal.value.reason


def mixed():
    group = upgraded(classic_group("a", "b"), FakeTopics(t=3), BOTH, 2)
    group.put(ConsumerMember("new", topics=frozenset({"t"})))
    return group


def test_a_downgrade_is_due_when_the_last_new_member_has_gone_and_the_rest_fits():
    before, after = mixed(), mixed()
    after.remove("new")
    assert is_due(before, after, BOTH, 2)
    assert not is_due(before, after, BOTH, 1)
    assert not is_due(before, after, MigrationPolicy.UPGRADE, 2)
    assert not is_due(after, after, BOTH, 2)
    assert not is_due(before, before, BOTH, 3)
    all_new = ConsumerGroup("g", members={"new": before.members["new"]})
    assert is_due(all_new, after, BOTH, 2)
    assert not is_due(all_new, ConsumerGroup("g"), BOTH, 2)


def test_a_downgraded_group_is_the_classic_one_again():
    topics, group = FakeTopics(t=3), mixed()
    group.remove("new")
    del group.target["b"]
    made = downgraded(group, 7, topics)
    assert (made.state, made.generation, made.protocol_type, made.leader) == (GroupState.STABLE, 7, "consumer", None)
    assert (made.protocol, made.subscribed) == ("other", {"u"})
    assert [read_assignment(each.assignment) for each in made.members.values()] == [{TopicPartition("t", 0)}, set()]
    for was in classic_group("a", "b").members.values():
        now = made.members[was.member_id]
        assert replace(now, assignment=was.assignment) == was
