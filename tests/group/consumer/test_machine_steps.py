"""Decisions about large groups: how much lies between two looks at the others, counted and not timed."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from group.consumer.samples import FakeTopics, Play, join_request
from group.consumer.test_assignors import plain

from sparklog.group.consumer import classic
from sparklog.group.consumer.assignment import RUN, by_topic
from sparklog.group.consumer.assignors import ASSIGNORS
from sparklog.group.consumer.assignors.spec import Spec
from sparklog.group.consumer.assignors.uniform import _Shares
from sparklog.group.consumer.group import ConsumerGroup
from sparklog.group.consumer.member import ConsumerMember, MemberState
from sparklog.group.consumer.records import changes
from sparklog.group.consumer.requests import ConsumerHeartbeat
from sparklog.protocol.wire import WireWriter
from sparklog.testing.steps import counted, finish

MANY = 4 * RUN
NAMES = [f"n{number}" for number in range(MANY)]


class CountingTopics(FakeTopics):
    """Counts how often a topic is asked for."""

    asked = 0

    def topic(self, name):
        self.asked += 1
        return super().topic(name)


def most_in_a_step(steps, count):
    """The greatest rise of ``count()`` between two stops of ``steps``, and how often they stopped."""
    most = stops = 0
    before = count()
    ended = False
    while not ended:
        try:
            next(steps)
            stops += 1
        except StopIteration:
            ended = True
        most, before = max(most, count() - before), count()
    return most, stops


def a_large_play(members=1):
    play = Play(CountingTopics(**dict.fromkeys(NAMES, 1)))
    for _ in range(members):
        play.beat(topics=frozenset(NAMES))
    return play


def test_members_that_name_the_same_share_one_set_that_is_counted_once():
    play = Play(FakeTopics(t=2, u=2))
    for _ in range(3):
        play.beat(topics=frozenset({"t", "u"}))
    play.beat(topics=frozenset({"u"}))
    shared = play.member("m1").topics
    assert all(play.member(each).topics is shared for each in ("m2", "m3"))
    assert play.group.names == {"t": 1, "u": 2}
    for each in ("m1", "m2"):
        play.again(each, topics=frozenset({"u"}))
    assert play.group.names == {"t": 1, "u": 2}, "one still names both"
    play.beat("m3", -1)
    assert play.group.names == {"u": 1}
    assert [each.members for each in play.group.subscriptions.values()] == [3]


def test_a_subscription_that_is_said_again_is_the_one_that_is_known():
    play = Play(FakeTopics(t=2, u=2))
    play.beat(topics=frozenset({"t", "u"}))
    shared = play.member("m1").topics
    play.again("m1", topics=frozenset(["u", "t"]), rebalance_timeout_ms=7)
    assert play.member("m1").topics is shared
    assert [each.members for each in play.group.subscriptions.values()] == [1]


def test_a_step_asks_for_a_bounded_number_of_topics():
    play = a_large_play()
    request = ConsumerHeartbeat("g", "", 0, "c", "/h", None, None, 60_000, frozenset(NAMES), owned=frozenset())
    play.topics.version += 1
    before = play.topics.asked
    deciding = play.machine.heartbeat(play.group, request, play.topics)
    assert play.topics.asked == before, "what is called only refuses"
    assert most_in_a_step(deciding, lambda: play.topics.asked)[0] <= RUN
    assert play.topics.asked == before + MANY


def test_what_is_subscribed_to_is_looked_at_once_for_all_that_share_it():
    play = a_large_play(members=4)
    steps, spec = counted(play.group.spec(play.group.view(play.topics)))
    assert steps == MANY // RUN + 4
    assert len({id(each.topics) for each in spec.members.values()}) == 1


def test_members_of_a_classic_protocol_are_decided_about_in_steps_too():
    play = a_large_play()
    joining = classic.join(play.machine, play.group, join_request(topics=NAMES), "o", play.topics)
    most, stops = most_in_a_step(joining, lambda: play.topics.asked)
    assert most <= RUN
    assert stops >= MANY // RUN


def test_a_decision_shows_nothing_of_itself_before_its_last_step():
    play = a_large_play()
    before, seen = play.group, play.group.copy()
    request = ConsumerHeartbeat("g", "", 0, "c", "/h", None, None, 60_000, frozenset(NAMES), owned=frozenset())
    deciding = play.machine.heartbeat(before, request, play.topics)
    for number, _ in enumerate(deciding):
        if number % RUN == 0:
            assert before == seen
    assert before == seen


def test_topics_that_change_while_a_decision_is_made_are_looked_at_again():
    play = a_large_play()
    request = ConsumerHeartbeat("g", "", 0, "c", "/h", None, None, 60_000, frozenset(NAMES), owned=frozenset())
    deciding = play.machine.heartbeat(play.group, request, play.topics)
    next(deciding)
    play.topics.make("new", 1)
    play.group = finish(deciding).group
    assert play.group.topics_version != play.topics.version
    assert play.machine.quiet_answer(play.group, request._replace(member_id="m1", epoch=1), play.topics) is None


def refuse(*_, **__):
    raise AssertionError("a heartbeat that changes nothing looks at nothing that grows with the group")


def test_who_waits_for_others_is_answered_without_a_look_at_the_group(monkeypatch):
    play = Play(FakeTopics(t=6))
    for _ in range(2):
        play.beat()
    play.again("m1", owned=play.member("m1").assigned)
    waiting, revoking = play.member("m2"), play.member("m1")
    assert (waiting.state, revoking.state) == (MemberState.UNRELEASED_PARTITIONS, MemberState.UNREVOKED_PARTITIONS)
    monkeypatch.setattr(ConsumerGroup, "copy", refuse)
    for member in (waiting, revoking):
        request = ConsumerHeartbeat("g", member.member_id, member.epoch, "c", "/h", owned=member.held)
        answer = play.machine.quiet_answer(play.group, request, play.topics)
        assert answer is not None
        assert (answer.epoch, answer.assigned) == (member.epoch, None)


def test_who_can_go_on_is_not_kept_waiting():
    play = Play(FakeTopics(t=6))
    for _ in range(2):
        play.beat()
    play.again("m1", owned=play.member("m1").assigned)
    given_up = ConsumerHeartbeat("g", "m1", 1, "c", "/h", owned=play.member("m1").assigned)
    assert play.machine.quiet_answer(play.group, given_up, play.topics) is None


def test_a_member_that_changes_costs_what_it_gains_and_loses():
    topics = FakeTopics(t=MANY)
    held = topics.tips("t", *range(MANY))
    group = ConsumerGroup("g")
    group.put(ConsumerMember("m", assigned=held))
    group.owners = Told(group.owners)
    group.put(ConsumerMember("m", epoch=1, assigned=held - topics.tips("t", 7)))
    assert group.owners.lost == [*topics.tips("t", 7)]
    with pytest.raises(AssertionError, match="another one holds"):
        group.put(ConsumerMember("other", assigned=topics.tips("t", 8)))


class Told(dict[Any, str]):
    """Remembers what was taken out."""

    def __init__(self, *args):
        super().__init__(*args)
        self.lost = []

    def __delitem__(self, key):
        self.lost.append(key)
        super().__delitem__(key)


def test_an_assignor_gives_a_bounded_number_of_partitions_in_a_step(monkeypatch):
    given = Counter()
    give = _Shares._give

    def counting(*args):
        given["all"] += 1
        give(*args)

    monkeypatch.setattr(_Shares, "_give", counting)
    spec = plain("a", "b", count=MANY)
    assert most_in_a_step(ASSIGNORS["uniform"](spec), lambda: given["all"])[0] <= RUN
    assert given["all"] == MANY
    kept = Spec(
        {
            each: member._replace(had=share)
            for (each, member), share in zip(
                spec.members.items(), finish(ASSIGNORS["uniform"](spec)).values(), strict=True
            )
        },
        spec.topics,
    )
    given.clear()
    assert most_in_a_step(ASSIGNORS["uniform"](kept), lambda: given["all"])[0] <= RUN


@pytest.mark.parametrize("name", ASSIGNORS)
def test_an_assignor_stops_after_each_topic_and_member(name):
    spec = plain("a", "b", "c", topics=range(1, 101), count=3)
    steps, shares = counted(ASSIGNORS[name](spec))
    assert steps >= 100 + 3
    assert sum(map(len, shares.values())) == 300


def test_a_new_member_takes_over_partition_by_partition():
    topics, before = tuple(range(1, 101)), plain("a", topics=tuple(range(1, 101)), count=2)
    (share,) = finish(ASSIGNORS["uniform"](before)).values()
    joined = plain("a", "b", topics=topics, count=2)
    joined.members["a"] = joined.members["a"]._replace(had=share)
    steps, after = counted(ASSIGNORS["uniform"](joined))
    assert steps >= 100, "a move a step"
    assert after["a"] < share


def test_what_changes_is_written_in_steps(monkeypatch):
    play = Play(FakeTopics(**dict.fromkeys(NAMES, 1)))
    play.beat(topics=frozenset(NAMES))
    written = Counter()

    def counting(name, write):
        def field(writer, value):
            written[name] += 1
            write(writer, value)

        return field

    for name in ("string", "int32", "uuid"):
        monkeypatch.setattr(WireWriter, name, counting(name, getattr(WireWriter, name)))
    most, stops = most_in_a_step(changes(None, play.group), written.total)
    assert most <= 4 * RUN, "an element is three fields at most"
    assert stops >= 4 * MANY // RUN
    assert written["string"] > 2 * MANY


def test_partitions_are_sorted_by_topic_in_steps():
    topics = FakeTopics(t=MANY, u=3)
    steps, found = counted(by_topic(topics.tips("t", *range(MANY)) | topics.tips("u", 2, 0, 1)))
    assert steps == MANY // RUN
    assert {topics.name_of(topic_id): numbers for topic_id, numbers in found.items()} == {
        "t": [*range(MANY)],
        "u": [0, 1, 2],
    }
    assert [*found] == sorted(found)
