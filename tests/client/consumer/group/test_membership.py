"""Members against a coordinator of a few lines, in any order of events; and each error where it can come."""

import contextlib
from random import Random
from types import SimpleNamespace as Answer
from typing import Any

import pytest

from sparklog.client.consumer.assignors import assignors_named
from sparklog.client.consumer.config import ConsumerConfig
from sparklog.client.consumer.group.membership import (
    Assigned,
    Generation,
    GroupSettings,
    Membership,
    MemberState,
    Surrender,
    Verdict,
)
from sparklog.client.consumer.group.membership import group_settings as settings_of
from sparklog.errors import ApiError, ConfigError, ErrorCode
from sparklog.protocol.subscription import decode_assignment, decode_subscription
from sparklog.structs import TopicPartition

COUNTS = {"a": 4, "b": 3}
COMING = [
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REBALANCE_IN_PROGRESS,
]


def group_settings(strategies=("range",), instance=None):
    return GroupSettings("g", instance, None, 10.0, 3.0, 300.0, assignors_named(strategies))


def joined(member, code=ErrorCode.NONE, generation=1, leader=True, protocol="range", members=(), name="m-1"):
    return member.joined(
        Answer(
            error_code=int(code),
            generation_id=generation,
            member_id=name,
            leader=name if leader else "x",
            protocol_name=protocol,
            members=list(members),
        )
    )


def stable(strategies=("range",), instance=None, owned=("a",), now=0.0):
    member = Membership(group_settings(strategies, instance), now)
    member.join(owned, now)
    joined(member, protocol=strategies[0])
    member.synced(member.generation, Answer(error_code=0), now)
    take(member, [TopicPartition(topic, 0) for topic in owned])
    return member


def take(member, partitions, wanted=lambda topic: True):
    assigned = Assigned(member.generation, tuple(partitions))
    change = member.take(assigned, wanted)
    if change is not None:
        member.gave_up(change.revoked)
        member.got(assigned)
    return change


def test_the_way_into_a_generation():
    member = Membership(group_settings(), 0.0)
    assert member.needs_join
    member.join(["a"], 0.0)
    assert joined(member, ErrorCode.MEMBER_ID_REQUIRED) is Verdict.AGAIN
    request = member.join(["a"], 0.0)(5)
    assert (request.member_id, request.rebalance_timeout_ms, request.session_timeout_ms) == ("m-1", 300_000, 10_000)
    assert joined(member, members=[_member_of(request, "m-1")]) is Verdict.GO_ON
    assert member.is_leader
    shares = member.assignments(Answer(protocol_name="range", members=[_member_of(request, "m-1")]), COUNTS)
    sync: Any = member.sync(shares)(5)
    assert (sync.version, sync.generation_id, sync.protocol_name, sync.protocol_type) == (5, 1, "range", "consumer")
    answer = Answer(error_code=0, assignment=sync.assignments[0].assignment)
    assert member.synced(member.generation, answer, 0.0) is Verdict.GO_ON
    change = take(member, decode_assignment(answer.assignment).partitions, lambda topic: topic == "a")
    assert change.added == tuple(TopicPartition("a", number) for number in range(4))
    assert not member.needs_join


def _member_of(request, name, instance=None):
    return Answer(member_id=name, group_instance_id=instance, metadata=request.protocols[0].metadata)


@pytest.mark.parametrize("code", COMING)
@pytest.mark.parametrize("at", ["join", "sync"])
def test_what_passes_is_asked_again_and_loses_nothing(code, at):
    member = stable(("cooperative-sticky",))
    owned = member.owned
    member.join(["a"], 1.0)
    if at == "join":
        verdict = joined(member, code)
    else:
        joined(member, generation=2, protocol="cooperative-sticky")
        verdict = member.synced(member.generation, Answer(error_code=int(code)), 1.0)
    assert verdict is not Verdict.GO_ON
    assert member.needs_join
    assert member.surrender(lambda topic: True) == Surrender((), lost=False)
    assert member.owned == owned


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
@pytest.mark.parametrize("at", ["join", "sync", "heartbeat", "commit"])
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_lost_generation_loses_what_was_owned(code, at, strategy):
    member = stable((strategy,))
    owned = member.owned
    if at in ("join", "sync"):
        owned = _give_up(member)
        member.join(["a"], 1.0)
    if at == "join":
        joined(member, code)
    elif at == "sync":
        joined(member, generation=2, protocol=strategy)
        member.synced(member.generation, Answer(error_code=int(code)), 1.0)
    elif at == "heartbeat":
        member.heartbeat_answered(member.generation, code, 1.0)
    else:
        with pytest.raises(ApiError, match="another generation"):
            member.commit_refused(member.generation, code)
    assert member.needs_join
    assert member.surrender(lambda topic: True) == Surrender(owned, lost=bool(owned))
    assert member.generation.number == -1
    assert (member.generation.member_id == "") == (code is ErrorCode.UNKNOWN_MEMBER_ID)
    with pytest.raises(AssertionError) if owned else _nothing():
        member.join(["a"], 1.0)
    member.gave_up(owned)
    member.join(["a"], 1.0)


def _nothing():
    return contextlib.nullcontext()


def _give_up(member):
    surrendered = member.surrender(lambda topic: True)
    member.gave_up(surrendered.partitions)
    return member.owned


@pytest.mark.parametrize("at", ["join", "sync", "heartbeat", "commit"])
def test_a_fenced_member_is_told_so_with_what_to_do(at):
    member = stable(("cooperative-sticky",), instance="i")
    code = ErrorCode.FENCED_INSTANCE_ID
    if at in ("join", "sync"):
        member.join(["a"], 1.0)
    if at == "sync":
        joined(member, generation=2)
    answer = {
        "join": lambda: joined(member, code),
        "sync": lambda: member.synced(member.generation, Answer(error_code=int(code)), 1.0),
        "heartbeat": lambda: member.heartbeat_answered(member.generation, code, 1.0),
        "commit": lambda: member.commit_refused(member.generation, code),
    }[at]
    with pytest.raises(ApiError, match="give each its own") as raised:
        answer()
    assert raised.value.code is code
    assert member.surrender(lambda topic: True).lost


def test_a_fenced_member_takes_its_place_back_only_after_it_has_left():
    member = stable(("cooperative-sticky",), instance="i")
    with pytest.raises(ApiError):
        member.heartbeat_answered(member.generation, ErrorCode.FENCED_INSTANCE_ID, 1.0)
    _give_up(member)
    for ask in (member.check, lambda: member.join(["a"], 1.0), member.check):
        with pytest.raises(ApiError, match=r"Heartbeat in group 'g': FENCED_INSTANCE_ID: .* give each its own"):
            ask()
    member.leave()
    member.check()
    member.join(["a"], 1.0)


@pytest.mark.parametrize("code", [*COMING, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID])
def test_answers_to_an_earlier_generation_change_nothing(code):
    member = stable()
    before = Generation(0, "m-0", "range")
    assert member.heartbeat_answered(before, code, 1.0) is Verdict.GO_ON
    assert member.synced(before, Answer(error_code=int(code)), 1.0) is Verdict.AGAIN
    assert (member.needs_join, member.state, member.generation.number) == (False, MemberState.STABLE, 1)


@pytest.mark.parametrize("code", ErrorCode)
def test_while_the_assignment_is_awaited_a_heartbeat_tells_that_the_generation_is_lost_and_nothing_else(code):
    member = stable()
    member.request_rejoin("again")
    _give_up(member)
    member.join(["a"], 1.0)
    joined(member, generation=2)
    was = member.generation
    member.heartbeat_answered(was, code, 1.0)
    is_lost = code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
    assert member.state is (MemberState.UNJOINED if is_lost else MemberState.SYNCING)
    assert (member.generation == was) is not is_lost


def test_the_consumer_stays_who_it_was_until_it_takes_another_assignment():
    member = stable()
    was = member.generation
    member.heartbeat_answered(was, ErrorCode.UNKNOWN_MEMBER_ID, 1.0)
    assert member.taken == was
    _give_up(member)
    member.join(["a"], 1.0)
    joined(member, generation=2, name="m-2")
    member.synced(member.generation, Answer(error_code=0), 1.0)
    assert member.taken == was
    take(member, [])
    assert member.taken == Generation(2, "m-2", "range")


def test_a_rebalance_is_noticed_by_heartbeat_and_by_commit():
    for notice in (
        lambda each: each.heartbeat_answered(each.generation, ErrorCode.REBALANCE_IN_PROGRESS, 1.0),
        _refused_commit,
    ):
        member = stable()
        notice(member)
        assert member.needs_join
        assert member.state is MemberState.STABLE  # heartbeats go on until JoinGroup
        assert member.surrender(lambda topic: True) == Surrender(member.owned, lost=False)


def _refused_commit(member):
    with pytest.raises(ApiError, match="another generation"):
        member.commit_refused(member.generation, ErrorCode.REBALANCE_IN_PROGRESS)


def test_cooperative_gives_up_only_what_is_not_wanted_any_more():
    member = stable(("cooperative-sticky",), owned=("a", "b"))
    assert member.surrender(lambda topic: topic == "b").partitions == (TopicPartition("a", 0),)


def test_an_assignment_of_topics_that_are_not_wanted_any_more_is_not_taken():
    member = stable()
    _give_up(member)
    member.join(["a"], 1.0)
    joined(member, generation=2)
    member.synced(member.generation, Answer(error_code=0), 1.0)
    assert take(member, [TopicPartition("a", 0)], lambda topic: topic == "b") is None
    assert member.needs_join
    assert member.owned == ()


def test_what_is_claimed_counts_for_the_generation_that_gave_it():
    member = stable(("cooperative-sticky",))
    member.join(["a"], 1.0)
    joined(member, generation=2, protocol="cooperative-sticky")
    member.synced(member.generation, Answer(error_code=int(ErrorCode.REBALANCE_IN_PROGRESS)), 1.0)
    claim = decode_subscription(member.join(["a"], 2.0)(9).protocols[0].metadata)
    assert (claim.owned, claim.generation) == (member.owned, 1)


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, None])
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_an_assignment_whose_generation_is_lost_before_it_is_taken_is_not_taken(code, strategy):
    member = Membership(group_settings((strategy,)), 0.0)
    member.join(["a"], 0.0)
    joined(member, protocol=strategy)
    member.synced(member.generation, Answer(error_code=0), 0.0)
    late = Assigned(member.generation, (TopicPartition("a", 0),))
    if code is None:
        member.leave()
    else:
        member.heartbeat_answered(member.generation, code, 1.0)
    assert member.take(late, lambda topic: True) is None
    assert (member.owned, member.taken) == ((), Generation())
    member.join(["a"], 1.0)
    joined(member, protocol=strategy, generation=2)
    assert member.take(late, lambda topic: True) is None
    member.synced(member.generation, Answer(error_code=0), 1.0)
    assert member.take(late, lambda topic: True) is None
    assert take(member, late.partitions) == (late.partitions, ())
    assert member.taken.number == 2


def test_one_eager_strategy_makes_the_member_eager():
    assert not Membership(group_settings(("range", "cooperative-sticky")), 0.0).cooperative
    assert Membership(group_settings(("cooperative-sticky",)), 0.0).cooperative


def test_heartbeats_are_due_while_stable():
    member = stable(now=100.0)
    member.polled(100.0)
    assert member.wait_for_heartbeat(101.0) == 2.0
    member.heartbeat(103.0)
    assert member.wait_for_heartbeat(103.0) == 3.0
    assert not member.is_stuck(400.0)
    assert member.is_stuck(400.1)
    assert not member.has_expired(110.0)
    assert member.has_expired(110.1)
    member.lose("test")
    assert member.wait_for_heartbeat(500.0) is None


def test_heartbeats_are_due_while_the_leader_assigns():
    member = stable()
    _give_up(member)
    member.join(["a"], 1.0)
    assert member.wait_for_heartbeat(1.0) is None
    joined(member, generation=2)
    assert member.wait_for_heartbeat(1.0) == 3.0
    assert member.wait_for_heartbeat(500.0) == 0.0
    member.heartbeat(500.0)
    assert member.wait_for_heartbeat(500.0) == 3.0
    assert not member.is_stuck(500.0)


@pytest.mark.parametrize("code", [ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION])
@pytest.mark.parametrize("at", ["join", "sync"])
def test_a_commit_that_is_refused_on_the_way_into_a_generation_does_not_hold_it_up(code, at):
    member = stable(("cooperative-sticky",))
    owned = member.owned
    member.join(["a"], 1.0)
    if at == "sync":
        joined(member, generation=2, protocol="cooperative-sticky")
    with pytest.raises(ApiError, match="another generation"):
        member.commit_refused(member.generation, code)
    if at == "join":
        joined(member, generation=2, protocol="cooperative-sticky")
    assert member.synced(member.generation, Answer(error_code=0), 1.0) is Verdict.GO_ON
    assert take(member, owned) == ((), ())
    assert not member.needs_join


def test_a_coordinator_that_has_moved_is_not_a_sign_of_life():
    member = stable()
    member.heartbeat_answered(member.generation, ErrorCode.NOT_COORDINATOR, 9.0)
    assert member.has_expired(10.1)
    member.heartbeat_answered(member.generation, ErrorCode.NONE, 9.0)
    assert not member.has_expired(10.1)


def test_a_static_member_does_not_say_that_it_leaves():
    assert stable(instance="i").leave() is None
    request = stable().leave()(5)
    assert [each.member_id for each in request.members] == ["m-1"]
    assert Membership(group_settings(), 0.0).leave() is None


def test_a_returning_static_leader_keeps_the_assignment():
    member = stable(instance="i")
    assert member.assignments(Answer(skip_assignment=True, protocol_name="range", members=[]), COUNTS) == {}


def test_a_commit_that_is_refused_for_its_content_does_not_end_the_membership():
    member = stable()
    with pytest.raises(ApiError) as raised:
        member.commit_refused(member.generation, ErrorCode.OFFSET_METADATA_TOO_LARGE)
    assert raised.value.code is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert not member.needs_join


class Node:
    """One consumer: what it believes to own, as its user was told."""

    def __init__(self, number, strategies):
        self.number = number
        self.member = Membership(group_settings(strategies), 0.0)
        self.topics = frozenset("a")
        self.told = set()
        self.asked = None
        self.assigned = None

    def wants(self, topic):
        return topic in self.topics

    def give_up(self, counts_as_lost=False):
        surrendered = self.member.surrender(self.wants)
        self.told -= set(surrendered.partitions)
        self.member.gave_up(surrendered.partitions)


class Group:
    """A coordinator in a few lines: JoinGroup waits for all members it knows, SyncGroup for the leader."""

    def __init__(self, strategies):
        self.strategies = strategies
        self.nodes = [Node(number, strategies) for number in range(3)]
        self.known = {}  # member id → node
        self.generation, self.rebalancing, self.shares, self.named = 0, False, None, 0

    # -- the coordinator

    def _rebalance(self):
        self.rebalancing = True
        self.shares = None

    def _id_of(self, node):
        return node.member.generation.member_id

    def _join(self, node):
        node.give_up()
        request = node.member.join(node.topics, 0.0)(5)
        if request.member_id == "":
            self.named += 1
            joined(node.member, ErrorCode.MEMBER_ID_REQUIRED, name=f"m{self.named}")
            request = node.member.join(node.topics, 0.0)(5)
            self.known[self._id_of(node)] = node
        elif request.member_id not in self.known:
            joined(node.member, ErrorCode.UNKNOWN_MEMBER_ID)
            return
        node.asked = request
        self._rebalance()

    def poll(self, which):
        """The consumer polls: it takes what has come, and joins if it must."""
        self.take(which)
        node = self.nodes[which]
        if node.asked is None and node.member.state is not MemberState.SYNCING and node.member.needs_join:
            self._join(node)

    def beat(self, which):
        node = self.nodes[which]
        if node.asked is None and node.member.state is MemberState.STABLE:
            code = ErrorCode.NONE
            if self._id_of(node) not in self.known:
                code = ErrorCode.UNKNOWN_MEMBER_ID
            elif self.generation != node.member.generation.number:
                code = ErrorCode.ILLEGAL_GENERATION
            elif self.rebalancing:
                code = ErrorCode.REBALANCE_IN_PROGRESS
            node.member.heartbeat_answered(node.member.generation, code, 0.0)

    def complete(self):
        """All have joined: the generation begins, and the leader assigns."""
        if not self.rebalancing or not self.known or any(each.asked is None for each in self.known.values()):
            return
        self.generation, self.rebalancing = self.generation + 1, False
        members = [
            Answer(member_id=name, group_instance_id=None, metadata=node.asked.protocols[0].metadata)
            for name, node in sorted(self.known.items())
        ]
        for name, node in sorted(self.known.items()):
            leads = name == members[0].member_id
            node.asked = None
            joined(node.member, generation=self.generation, leader=leads, protocol=self.strategies[0], name=name)
            if leads:
                answer = Answer(protocol_name=self.strategies[0], members=members)
                self.coming = node.member.assignments(answer, COUNTS)

    def gather(self, who):
        """Those who are members already, and these, join; the generation begins."""
        for which in who:
            self.poll(which)
        for which, node in enumerate(self.nodes):
            if self._id_of(node) in self.known:
                self.beat(which)
                self.poll(which)
        self.complete()

    def sync(self, which):
        node = self.nodes[which]
        if node.member.state is not MemberState.SYNCING:
            return
        answer = Answer(error_code=0, assignment=b"")
        if self._id_of(node) not in self.known:
            answer.error_code = int(ErrorCode.UNKNOWN_MEMBER_ID)
        elif node.member.generation.number != self.generation:
            answer.error_code = int(ErrorCode.ILLEGAL_GENERATION)
        elif self.rebalancing:
            answer.error_code = int(ErrorCode.REBALANCE_IN_PROGRESS)
        else:
            answer.assignment = self.coming[self._id_of(node)]
        if node.member.synced(node.member.generation, answer, 0.0) is Verdict.GO_ON:
            node.assigned = Assigned(node.member.generation, decode_assignment(answer.assignment).partitions)

    def take(self, which):
        """The consumer polls, perhaps long after its assignment has come."""
        node = self.nodes[which]
        assigned, node.assigned = node.assigned, None
        change = None if assigned is None else node.member.take(assigned, node.wants)
        if change is not None:
            node.told -= set(change.revoked)
            node.member.gave_up(change.revoked)
            node.told |= set(change.added)
            node.member.got(assigned)

    def expire(self, which):
        """The coordinator gives a member up, which does not know it yet."""
        node = self.nodes[which]
        if self.known.pop(self._id_of(node), None) is not None:
            node.asked = None
            if node.member.state is MemberState.JOINING:
                joined(node.member, ErrorCode.UNKNOWN_MEMBER_ID)
            self._rebalance()

    def leave(self, which):
        node = self.nodes[which]
        if node.asked is None:
            request = node.member.leave()
            node.told.clear()
            node.member.gave_up(node.member.owned)
            if request is not None and self.known.pop(request(5).members[0].member_id, None):
                self._rebalance()

    def subscribe(self, which, topics):
        node = self.nodes[which]
        node.topics = frozenset(topics)
        node.member.request_rejoin("the subscription has changed")

    def an_owner_is_alone(self):
        owners = [node for node in self.nodes if self._id_of(node) in self.known]
        told = [tp for node in owners for tp in node.told]
        assert len(told) == len(set(told)), [(node.number, node.told) for node in self.nodes]

    def members_own_what_their_users_were_told(self):
        for node in self.nodes:
            assert set(node.member.owned) == node.told

    def comes_to_rest(self):
        """Left alone, the group comes to rest with every partition that somebody wants assigned."""
        for _ in range(40):
            for which in range(3):
                self.beat(which)
                self.poll(which)
            self.complete()
            for which in range(3):
                self.sync(which)
        for node in self.nodes:
            assert node.told == set(decode_assignment(self.coming[self._id_of(node)]).partitions)
        wanted = frozenset().union(*(node.topics for node in self.nodes))
        told = sorted(tp for node in self.nodes for tp in node.told)
        assert told == sorted(TopicPartition(topic, number) for topic in wanted for number in range(COUNTS[topic]))


_STEPS = {
    "gather": 6,
    "sync": 12,
    "take": 12,
    "poll": 2,
    "beat": 2,
    "complete": 2,
    "expire": 1,
    "leave": 1,
    "subscribe": 1,
}


def _step(group, random):
    (name,) = random.choices(list(_STEPS), list(_STEPS.values()))
    which = random.randrange(3)
    arguments = {
        "gather": [random.sample(range(3), random.randint(1, 3))],
        "complete": [],
        "subscribe": [which, random.choice(["a", "b", "ab"])],
    }.get(name, [which])
    getattr(group, name)(*arguments)


@pytest.mark.parametrize("strategies", [("cooperative-sticky",), ("sticky", "range"), ("range", "cooperative-sticky")])
@pytest.mark.parametrize("seed", range(5))
def test_random_lives_of_a_group(strategies, seed):
    random = Random(seed)
    for _ in range(30):
        group = Group(strategies)
        for _ in range(60):
            _step(group, random)
            group.an_owner_is_alone()
            group.members_own_what_their_users_were_told()
        group.comes_to_rest()


@pytest.mark.parametrize("version", [0, 4])
def test_a_static_member_does_not_join_as_a_dynamic_one(version):
    static = Membership(group_settings(instance="i"), 0.0)
    with pytest.raises(ApiError, match=r"knows no static members.*leave group\.instance\.id out") as refused:
        static.join(["a"], 0.0)(version)
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
    assert static.join(["a"], 0.0)(5).group_instance_id == "i"
    assert Membership(group_settings(), 0.0).join(["a"], 0.0)(version).member_id == ""


def test_a_member_begins_outside_of_the_group():
    member = Membership(group_settings(), 5.0)
    assert (member.state, member.generation, member.taken, member.owned) == (
        MemberState.UNJOINED,
        Generation(-1, "", ""),
        Generation(-1, "", ""),
        (),
    )
    assert (member.is_leader, member.is_member, member.needs_join) == (False, False, True)
    assert member.wait_for_heartbeat(5.0) is None
    assert member.surrender(lambda topic: True) == Surrender((), lost=False)


def test_silence_counts_only_beyond_its_limit_and_only_in_a_generation():
    member = stable(now=5.0)
    assert [member.has_expired(now) for now in (15.0, 15.1)] == [False, True]
    assert [member.is_stuck(now) for now in (305.0, 305.1)] == [False, True]
    member.polled(100.0)
    assert [member.is_stuck(now) for now in (400.0, 400.1)] == [False, True]
    member.heartbeat_answered(member.generation, ErrorCode.NONE, 10.0)
    assert [member.has_expired(now) for now in (20.0, 20.1)] == [False, True]
    member.gave_up(member.owned)
    member.join(["a"], 10.0)
    assert not member.has_expired(1e6)
    assert not member.is_stuck(1e6)


def test_the_consumer_is_found_stuck_in_time():
    member = stable(now=0.0)
    member.heartbeat(299.0)
    assert member.wait_for_heartbeat(299.0) == 1.0  # the poll interval ends before the next heartbeat
    assert member.wait_for_heartbeat(301.0) == 0.0


@pytest.mark.parametrize("version", [5, 7])
def test_what_a_member_says_of_itself(version):
    member = stable(("cooperative-sticky",), instance="i", owned=("b", "a"))
    join = member.join(["b", "a"], 1.0)(version)
    assert (join.group_id, join.member_id, join.group_instance_id, join.protocol_type) == ("g", "m-1", "i", "consumer")
    assert [each.name for each in join.protocols] == ["cooperative-sticky"]
    subscription = decode_subscription(join.protocols[0].metadata)
    assert subscription.topics == ("a", "b")
    assert set(subscription.owned) == {TopicPartition("a", 0), TopicPartition("b", 0)}
    joined(member, generation=4, leader=False, protocol="cooperative-sticky", name="m-2")
    assert not member.is_leader
    sync = member.sync({"m-2": b"x", "m-3": b"y"})(5)
    assert (sync.group_id, sync.member_id, sync.group_instance_id, sync.generation_id) == ("g", "m-2", "i", 4)
    assert [(each.member_id, each.assignment) for each in sync.assignments] == [("m-2", b"x"), ("m-3", b"y")]
    beat = member.heartbeat(2.0)(4)
    assert (beat.group_id, beat.member_id, beat.group_instance_id, beat.generation_id) == ("g", "m-2", "i", 4)


def test_who_leaves_names_itself_and_owns_nothing_any_more():
    member = stable()
    leave = member.leave()(4)
    assert (leave.group_id, leave.members[0].member_id) == ("g", "m-1")
    assert (leave.version, stable().leave()(2).version, stable().leave()(2).member_id) == (4, 2, "m-1")
    assert (member.is_member, member.state, member.needs_join) == (False, MemberState.UNJOINED, True)
    assert member.surrender(lambda topic: True).lost
    assert Membership(group_settings(), 0.0).leave() is None


def test_what_an_assignment_changes():
    member = stable(("cooperative-sticky",), owned=("a", "b"))
    kept, gone, new = TopicPartition("a", 0), TopicPartition("b", 0), TopicPartition("a", 1)
    change = take(member, [kept, new])
    assert (change.added, change.revoked, member.owned) == ((new,), (gone,), (kept, new))
    assert member.needs_join  # another member waits for what was given up
    steady = stable(("cooperative-sticky",))
    assert take(steady, [TopicPartition("a", 0)]) == ((), ())
    assert not steady.needs_join


def test_an_answer_that_nobody_waits_for_is_asked_again():
    member = stable()
    generation = member.generation
    assert joined(member, generation=9) is Verdict.AGAIN
    assert member.synced(generation, Answer(error_code=0), 1.0) is Verdict.AGAIN
    assert (member.generation, member.state) == (generation, MemberState.STABLE)


def test_the_first_reason_to_join_again_is_told():
    member = stable()
    member.request_rejoin("one")
    member.request_rejoin("two")
    assert member.reason == "one"
    member.gave_up(member.owned)
    assert member.join(["a"], 1.0)(8).reason == "one"
    assert member.reason == ""


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, Verdict.BACK_OFF),
        (ErrorCode.REQUEST_TIMED_OUT, Verdict.BACK_OFF),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, Verdict.FIND_COORDINATOR),
        (ErrorCode.NOT_COORDINATOR, Verdict.FIND_COORDINATOR),
        (ErrorCode.NETWORK_EXCEPTION, Verdict.FIND_COORDINATOR),
    ],
)
def test_what_passes_says_how_to_ask_again(code, verdict):
    member = stable()
    assert member.commit_refused(member.generation, code) is verdict
    assert member.heartbeat_answered(member.generation, code, 1.0) is verdict
    assert (member.state, member.needs_join) == (MemberState.STABLE, False)


def test_how_to_be_a_member_is_in_the_settings():
    config = ConsumerConfig.of(
        bootstrap_servers="h:1",
        group_id="g",
        group_instance_id="i",
        client_rack="r",
        session_timeout_ms=45_000,
        heartbeat_interval_ms=1500,
        max_poll_interval_ms=7000,
        partition_assignment_strategy=["sticky", "range"],
    )
    found = settings_of(config)
    assert found[:-1] == ("g", "i", "r", 45.0, 1.5, 7.0)
    assert [each.name for each in found.assignors] == ["sticky", "range"]
    dynamic = settings_of(ConsumerConfig.of(bootstrap_servers="h:1", group_id="g"))
    assert (dynamic.instance_id, dynamic.rack) == (None, None)


def test_nobody_is_a_member_of_no_group():
    with pytest.raises(ConfigError, match=r"^group\.id is not set"):
        settings_of(ConsumerConfig.of(bootstrap_servers="h:1"))


def test_a_member_says_in_which_rack_it_is_and_why_it_joins():
    member = Membership(group_settings()._replace(rack="r"), 0.0)
    assert member.reason == "the consumer subscribed"
    member.lose("x" * 300)
    request = member.join(["a"], 0.0)(8)
    assert decode_subscription(request.protocols[0].metadata).rack == "r"
    assert request.reason == "x" * 255


def test_an_eager_member_tells_what_it_had_though_it_owns_nothing_any_more():
    member = stable(("sticky", "range"), owned=("a", "b"))
    _give_up(member)
    sticky, ranged = (decode_subscription(each.metadata) for each in member.join(["a"], 1.0)(5).protocols)
    had = [TopicPartition("a", 0), TopicPartition("b", 0)]
    assert sticky.user_data == member.settings.assignors[0].user_data(had, 1)
    assert (ranged.user_data, sticky.owned, ranged.owned) == (None, (), ())
    assert (sticky.generation, ranged.generation) == (1, 1)


def test_a_leader_is_none_any_more_when_it_joins_again():
    member = stable()
    assert member.is_leader
    _give_up(member)
    member.join(["a"], 1.0)
    assert not member.is_leader
    joined(member, generation=2, leader=False, protocol=None)
    assert (member.is_leader, member.generation) == (False, Generation(2, "m-1", ""))


@pytest.mark.parametrize("code", [*COMING, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID])
def test_a_commit_of_an_earlier_generation_says_nothing_of_this_one(code):
    member = stable()
    was = member.generation, member.owned
    with contextlib.suppress(ApiError):
        member.commit_refused(Generation(0, "m-0", "range"), code)
    assert (member.generation, member.owned, member.state, member.needs_join) == (*was, MemberState.STABLE, False)
    assert not member.surrender(lambda topic: True).lost


def test_a_commit_that_a_newer_member_of_that_name_fences_is_refused_as_such():
    with pytest.raises(ApiError, match="OffsetCommit of group 'g': FENCED_INSTANCE_ID") as refused:
        stable(instance="i").commit_refused(Generation(0, "m-0", "range"), ErrorCode.FENCED_INSTANCE_ID)
    assert refused.value.code is ErrorCode.FENCED_INSTANCE_ID


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_who_is_no_coordinator_gives_no_sign_of_life(code):
    member = stable()
    member.heartbeat_answered(member.generation, code, 9.0)
    assert member.has_expired(10.1)
    member.heartbeat_answered(member.generation, ErrorCode.REBALANCE_IN_PROGRESS, 9.0)
    assert not member.has_expired(10.1)


def test_what_is_told_when_its_generation_is_over_is_lost_at_once():
    member = stable(("cooperative-sticky",))
    _give_up(member)
    member.gave_up(member.owned)
    assigned = Assigned(member.generation, (TopicPartition("a", 1),))
    assert member.take(assigned, lambda topic: True) is not None
    member.heartbeat_answered(member.generation, ErrorCode.ILLEGAL_GENERATION, 1.0)
    assert member.surrender(lambda topic: True) == Surrender((), lost=False)
    member.got(assigned)
    assert member.surrender(lambda topic: True) == Surrender(assigned.partitions, lost=True)
    member.got(Assigned(member.generation, ()))
    member.gave_up(())
    member.gave_up(assigned.partitions)
    assert member.surrender(lambda topic: True) == Surrender((), lost=False)


def test_what_is_lost_stays_lost_until_the_last_of_it_is_given_up():
    member = stable(("cooperative-sticky",), owned=("a", "b"))
    member.lose("test")
    member.gave_up([TopicPartition("a", 0)])
    assert member.surrender(lambda topic: True) == Surrender((TopicPartition("b", 0),), lost=True)
    member.gave_up([TopicPartition("b", 0)])
    assert member.surrender(lambda topic: True) == Surrender((), lost=False)


def test_why_a_member_joins_again_is_told():
    member = stable(("cooperative-sticky",), owned=("a", "b"))
    take(member, [])
    assert member.reason == "gave up 2 partitions for others"
    member.join(["a"], 1.0)
    joined(member, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert (member.state, member.reason) == (MemberState.UNJOINED, "JoinGroup: COORDINATOR_LOAD_IN_PROGRESS")
