from collections import Counter
from typing import NoReturn

import pytest

from sparklog.group.classic.group import PREDECESSORS, Group, GroupState, Member, Protocol
from sparklog.structs import TopicPartition


def member(member_id: str, *protocols: str, instance_id: str | None = None) -> Member:
    return Member(
        member_id, instance_id, "client", "/host", 10_000, 30_000, tuple(Protocol(each, b"") for each in protocols)
    )


def group_of(*members: Member) -> Group:
    group = Group("g", protocol_type="consumer", state=GroupState.STABLE)
    for each in members:
        group.add(each)
    return group


LEGAL = [
    ("PREPARING_REBALANCE", "EMPTY"),
    ("EMPTY", "PREPARING_REBALANCE"),
    ("COMPLETING_REBALANCE", "PREPARING_REBALANCE"),
    ("STABLE", "PREPARING_REBALANCE"),
    ("PREPARING_REBALANCE", "COMPLETING_REBALANCE"),
    ("COMPLETING_REBALANCE", "STABLE"),
    *((state.name, "DEAD") for state in GroupState),
]


@pytest.mark.parametrize("before", GroupState)
@pytest.mark.parametrize("after", GroupState)
def test_only_kafkas_transitions_are_legal(before: GroupState, after: GroupState) -> None:
    group = Group("g", state=before)
    if (before.name, after.name) in LEGAL:
        group.transition_to(after)
        assert group.state is after
    else:
        with pytest.raises(AssertionError, match=after.value):
            group.transition_to(after)
    assert set(PREDECESSORS) == set(GroupState)


@pytest.mark.parametrize(
    ("preferences", "expected"),
    [
        ([("range", "sticky"), ("sticky", "range"), ("sticky", "range")], "sticky"),
        ([("new", "range"), ("range",)], "range"),
        ([("a", "b"), ("b", "a")], "a"),
        ([("range", "range")], "range"),
    ],
)
def test_the_protocol_most_members_prefer_of_those_all_support(
    preferences: list[tuple[str, ...]], expected: str
) -> None:
    group = group_of(*(member(f"m{number}", *each) for number, each in enumerate(preferences)))
    assert group.select_protocol() == expected


def test_support_follows_members_in_and_out() -> None:
    group = group_of(member("a", "range"), member("b", "range", "sticky"))
    assert not group.supports("consumer", (Protocol("sticky", b""),))
    group.remove("a")
    assert group.supports("consumer", (Protocol("sticky", b""),))
    assert not group.supports("connect", (Protocol("sticky", b""),))
    group.set_protocols(group.members["b"], (Protocol("other", b""),))
    assert not group.supports("consumer", (Protocol("sticky", b""),))
    assert group.select_protocol() == "other"


def test_the_lead_passes_on_when_the_leader_goes() -> None:
    group = group_of(member("a", "range"), member("b", "range"))
    assert group.leader == "a"
    group.pending_sync = {"a", "b"}
    group.remove("a")
    assert (group.leader, group.pending_sync) == ("b", {"b"})
    group.remove("b")
    assert group.leader is None


def test_a_static_member_keeps_its_place_under_a_new_id() -> None:
    group = group_of(member("a-1", "range", instance_id="a"), member("b", "range"))
    group.members["a-1"].assignment = b"share"
    group.pending_sync = {"a-1", "b"}
    group.replace_id("a-1", "a-2")
    assert (group.leader, group.instances, group.pending_sync) == ("a-2", {"a": "a-2"}, {"a-2", "b"})
    assert group.members["a-2"].assignment == b"share"
    assert "a-1" not in group.members


def test_a_waiting_member_owes_no_heartbeat_unless_it_is_new() -> None:
    old, new = member("old", "range"), member("new", "range")
    group = group_of(old, new)
    old.deadline_ms, new.deadline_ms, new.is_new = 100, 200, True
    assert group.next_deadline_ms() == 100
    group.joining = {"old": 1, "new": 2}
    assert group.next_deadline_ms() == 200
    group.pending["p"], group.sync_deadline_ms, group.join_deadline_ms = 150, 140, 130
    assert group.next_deadline_ms() == 130


class Unwalked(Counter[TopicPartition]):
    """Whoever looks at all of it fails: a marker settles thousands, one by one."""

    def items(self) -> NoReturn:
        raise AssertionError("all commits are looked at to settle one")

    __iter__ = keys = values = items


def test_a_commit_is_settled_without_a_look_at_the_others() -> None:
    group, (once, twice, never) = Group("g"), (TopicPartition("t", number) for number in range(3))
    group.pending_commits = Unwalked()
    for tp in (once, twice, twice):
        group.pending_commits[tp] += 1
    group.settle([once, twice, never])
    assert (len(group.pending_commits), group.pending_commits[twice]) == (1, 1)
    group.settle([twice])
    assert not group.pending_commits
