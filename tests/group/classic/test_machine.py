"""The machine by hand: one request after another, and what comes of each."""

from __future__ import annotations

import itertools
from collections.abc import Hashable
from typing import Any

import pytest

from sparklog.errors import ErrorCode
from sparklog.group.classic.group import Group, GroupState, Protocol
from sparklog.group.classic.machine import MOST_OF_GROUP, NEW_MEMBER_JOIN_TIMEOUT_MS, GroupMachine, GroupSettings
from sparklog.group.classic.requests import (
    JoinAnswer,
    JoinRequest,
    MemberIdentity,
    Outcome,
    Store,
    SyncAnswer,
    SyncRequest,
)

DELAY_MS = 3_000
SESSION_MS = 10_000
REBALANCE_MS = 60_000
RANGE = (Protocol("range", b"topics"),)


class Play:
    """One group; waiters are the numbers that ``join`` and ``sync`` give, ``answers`` what each was told."""

    def __init__(self, delay_ms: int = 0, **settings: int) -> None:
        ids = itertools.count(1)
        self.machine = GroupMachine(GroupSettings(6_000, 1_800_000, delay_ms, **settings), lambda: str(next(ids)))
        self.group = Group("g")
        self.now_ms = 1_000_000
        self.answers: dict[Hashable, Any] = {}
        self.stores: list[Store] = []
        self.wake_ms: int | None = None
        self._waiters = itertools.count(1)

    def take(self, outcome: Outcome) -> None:
        """Whoever calls ``expire`` no later than each outcome asked for misses no deadline."""
        asked = [each for each in (self.wake_ms, outcome.wake_ms) if each is not None]
        self.wake_ms = min(asked, default=None)
        due_ms = self.group.next_deadline_ms()
        assert due_ms is None or (self.wake_ms is not None and self.wake_ms <= due_ms), "nobody will be woken in time"
        for waiter, answer in outcome.answers:
            assert waiter not in self.answers, "answered twice"
            self.answers[waiter] = answer
        if outcome.store:
            self.stores.append(outcome.store)

    def join(self, member_id: str = "", instance_id: str | None = None, **fields: Any) -> int:
        waiter = next(self._waiters)
        request = JoinRequest(
            member_id=member_id,
            instance_id=instance_id,
            client_id=fields.pop("client_id", "c"),
            client_host="/127.0.0.1",
            session_timeout_ms=fields.pop("session_timeout_ms", SESSION_MS),
            rebalance_timeout_ms=REBALANCE_MS,
            protocol_type=fields.pop("protocol_type", "consumer"),
            protocols=fields.pop("protocols", RANGE),
            **fields,
        )
        self.take(self.machine.join(self.group, request, waiter, self.now_ms))
        return waiter

    def sync(self, member_id: str, assignments: dict[str, bytes] | None = None, **fields: Any) -> int:
        waiter = next(self._waiters)
        request = SyncRequest(
            member_id=member_id,
            instance_id=fields.pop("instance_id", None),
            generation=fields.pop("generation", self.group.generation),
            protocol_type=fields.pop("protocol_type", None),
            protocol=fields.pop("protocol", None),
            assignments=assignments or {},
        )
        self.take(self.machine.sync(self.group, request, waiter, self.now_ms))
        return waiter

    def store_done(self, error: ErrorCode = ErrorCode.NONE) -> Store:
        store = self.stores.pop(0)
        self.take(self.machine.stored(self.group, store, error, self.now_ms))
        return store

    def heartbeat(self, member_id: str, generation: int | None = None, instance_id: str | None = None) -> ErrorCode:
        generation = self.group.generation if generation is None else generation
        return self.machine.heartbeat(self.group, MemberIdentity(member_id, instance_id, generation), self.now_ms)

    def leave(self, *members: MemberIdentity) -> tuple[ErrorCode, ...]:
        answer, outcome = self.machine.leave(self.group, list(members), self.now_ms)
        self.take(outcome)
        assert answer.error is ErrorCode.NONE
        return answer.members

    def pass_ms(self, duration_ms: int) -> None:
        """Let time pass, expiring whenever an outcome asked for it, as the runtime does."""
        end_ms = self.now_ms + duration_ms
        while self.wake_ms is not None and self.wake_ms <= end_ms:
            self.now_ms, self.wake_ms = max(self.now_ms, self.wake_ms), None
            self.take(self.machine.expire(self.group, self.now_ms))
        self.now_ms = end_ms

    def stable(self, count: int = 2, **fields: Any) -> list[str]:
        """A stable group of ``count`` members, the leader first."""
        waiters = [self.join(**fields) for _ in range(count)]
        self.pass_ms(0)
        members = [self.answers[each].member_id for each in waiters]
        waiting = [self.sync(each, {member: member.encode() for member in members}) for each in members]
        self.store_done()
        assert self.group.state is GroupState.STABLE
        assert [self.answers[each].assignment for each in waiting] == [each.encode() for each in members]
        return members


def test_a_first_generation() -> None:
    play = Play()
    first, second = play.join(), play.join(client_id="d")
    assert play.answers == {}
    play.pass_ms(0)
    leader: JoinAnswer = play.answers[first]
    follower: JoinAnswer = play.answers[second]
    assert (leader.error, leader.generation, leader.protocol_type, leader.protocol) == (0, 1, "consumer", "range")
    assert (leader.member_id, leader.leader, follower.member_id, follower.leader) == ("c-1", "c-1", "d-2", "c-1")
    assert [(each.member_id, each.metadata) for each in leader.members] == [("c-1", b"topics"), ("d-2", b"topics")]
    assert follower.members == ()
    assert play.group.state is GroupState.COMPLETING_REBALANCE

    waiting = play.sync("d-2")
    leading = play.sync("c-1", {"c-1": b"a", "d-2": b"b", "stranger": b"c"})
    assert waiting not in play.answers
    store = play.store_done()
    assert store == Store(1, {"c-1": b"a", "d-2": b"b"})
    assert play.answers[waiting] == SyncAnswer(ErrorCode.NONE, "consumer", "range", b"b")
    assert play.answers[leading].assignment == b"a"
    assert play.answers[play.sync("d-2")].assignment == b"b"
    assert play.heartbeat("d-2") is ErrorCode.NONE


def test_an_assignment_counts_only_once_it_is_stored() -> None:
    play = Play()
    play.join()
    play.pass_ms(0)
    waiter = play.sync("c-1", {"c-1": b"a"})
    retried = play.sync("c-1", {"c-1": b"other"})
    assert len(play.stores) == 1
    assert play.answers[waiter].error is ErrorCode.REBALANCE_IN_PROGRESS
    assert play.group.state is GroupState.COMPLETING_REBALANCE
    play.store_done()
    assert play.answers[retried].assignment == b"a"


def test_an_assignment_that_cannot_be_stored_is_rebalanced_away() -> None:
    play = Play()
    play.join()
    play.pass_ms(0)
    waiter = play.sync("c-1")
    play.store_done(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert play.answers[waiter].error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert play.heartbeat("c-1") is ErrorCode.REBALANCE_IN_PROGRESS
    again = play.join("c-1")
    assert play.answers[again].generation == 2


def test_an_assignment_of_a_generation_gone_by_is_ignored() -> None:
    play = Play()
    play.join()
    play.pass_ms(0)
    waiter = play.sync("c-1", {"c-1": b"old"})
    joining = play.join()
    assert play.answers[waiter].error is ErrorCode.REBALANCE_IN_PROGRESS
    play.join("c-1")
    assert play.answers[joining].generation == 2
    play.store_done()
    assert play.group.state is GroupState.COMPLETING_REBALANCE
    assert play.group.members["c-1"].assignment == b""


def test_a_new_member_must_come_back_with_its_id() -> None:
    play = Play()
    answer = play.answers[play.join(needs_member_id=True)]
    assert (answer.error, answer.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "c-1")
    assert play.group.state is GroupState.EMPTY
    waiter = play.join("c-1", needs_member_id=True)
    play.pass_ms(0)
    assert play.answers[waiter].member_id == "c-1"
    assert not play.group.pending


def test_an_id_that_nobody_comes_back_for_is_forgotten() -> None:
    play = Play()
    play.join(needs_member_id=True)
    waiter = play.join()
    play.pass_ms(SESSION_MS - 1)
    assert play.group.pending, "it may come back yet"
    play.pass_ms(1)
    assert not play.group.pending
    assert play.answers[waiter].generation == 1
    assert play.answers[play.join("c-1")].error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_waits_for_pending_members_until_they_leave() -> None:
    play = Play()
    leader = play.stable(1)[0]
    pending = play.answers[play.join(needs_member_id=True)].member_id
    waiter = play.join(leader)
    assert waiter not in play.answers
    assert play.leave(MemberIdentity(pending, None)) == (ErrorCode.NONE,)
    assert play.answers[waiter].generation == 2


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"session_timeout_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 6_000, "needs_member_id": True}, ErrorCode.MEMBER_ID_REQUIRED),
        ({"session_timeout_ms": 1_800_000, "needs_member_id": True}, ErrorCode.MEMBER_ID_REQUIRED),
        ({"session_timeout_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": (Protocol("other", b""),)}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "stranger", "instance_id": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_join_that_is_refused(fields: dict[str, Any], error: ErrorCode) -> None:
    play = Play()
    play.stable()
    assert play.answers[play.join(**fields)].error is error
    assert play.group.state is GroupState.STABLE


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation": 2}, ErrorCode.ILLEGAL_GENERATION),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": "consumer", "protocol": "range"}, ErrorCode.NONE),
    ],
)
def test_what_a_sync_must_know(fields: dict[str, Any], error: ErrorCode) -> None:
    play = Play()
    play.stable()
    assert play.answers[play.sync(**{"member_id": "c-1", **fields})].error is error


def test_a_sync_during_a_rebalance() -> None:
    play = Play()
    _, follower = play.stable()
    play.join()
    assert play.answers[play.sync(follower)].error is ErrorCode.REBALANCE_IN_PROGRESS


def test_what_a_heartbeat_must_know() -> None:
    play = Play()
    assert play.heartbeat("c-1") is ErrorCode.UNKNOWN_MEMBER_ID
    leader, _ = play.stable()
    assert play.heartbeat(leader) is ErrorCode.NONE
    assert play.heartbeat(leader, generation=0) is ErrorCode.ILLEGAL_GENERATION
    assert play.heartbeat("stranger") is ErrorCode.UNKNOWN_MEMBER_ID
    play.join()
    assert play.heartbeat(leader) is ErrorCode.REBALANCE_IN_PROGRESS


def test_the_initial_delay_is_extended_while_members_keep_coming() -> None:
    play = Play(DELAY_MS)
    first = play.join()
    play.pass_ms(DELAY_MS - 1)
    second = play.join()
    play.pass_ms(1)
    assert first not in play.answers
    play.pass_ms(DELAY_MS)
    assert {play.answers[first].generation, play.answers[second].generation} == {1}


def test_the_initial_delay_ends_with_the_rebalance_timeout() -> None:
    play = Play(DELAY_MS)
    first = play.join()
    for _ in range(REBALANCE_MS // DELAY_MS):
        assert first not in play.answers
        play.join()
        play.pass_ms(DELAY_MS)
    assert play.answers[first].generation == 1


def test_a_member_that_does_not_rejoin_is_dropped() -> None:
    play = Play()
    leader, follower = play.stable()
    waiter = play.join()
    while play.heartbeat(follower) is ErrorCode.REBALANCE_IN_PROGRESS:
        play.heartbeat(leader)
        play.pass_ms(SESSION_MS // 2)
    assert play.answers[waiter].leader == play.answers[waiter].member_id
    assert [*play.group.members] == [play.answers[waiter].member_id]


def test_followers_with_nothing_new_rejoin_without_a_rebalance() -> None:
    play = Play()
    leader, follower = play.stable()
    answer = play.answers[play.join(follower)]
    assert (answer.error, answer.generation, answer.leader, answer.members) == (0, 1, leader, ())
    assert play.group.state is GroupState.STABLE
    play.join(follower, protocols=(Protocol("range", b"more topics"),))
    assert play.group.state is GroupState.PREPARING_REBALANCE


def test_a_leader_that_rejoins_wants_a_rebalance() -> None:
    play = Play()
    leader, follower = play.stable()
    waiter = play.join(leader)
    play.join(follower)
    assert play.answers[waiter].generation == 2


def test_a_join_answer_that_was_lost_is_given_again() -> None:
    play = Play()
    waiter = play.join()
    play.pass_ms(0)
    assert play.answers[play.join("c-1")] == play.answers[waiter]


def test_a_join_that_is_retried_takes_the_place_of_the_first() -> None:
    play = Play()
    leader, follower = play.stable()
    first = play.join(leader)
    second = play.join(leader)
    assert play.answers[first] == JoinAnswer(ErrorCode.REBALANCE_IN_PROGRESS, leader)
    play.join(follower)
    assert play.answers[second].generation == 2


def test_a_session_that_expires_causes_a_rebalance() -> None:
    play = Play()
    leader, _ = play.stable()
    play.pass_ms(SESSION_MS - 1)
    play.heartbeat(leader)
    play.pass_ms(1)
    assert [*play.group.members] == [leader]
    assert play.group.state is GroupState.PREPARING_REBALANCE


def test_when_all_sessions_expire_the_group_is_stored_empty() -> None:
    play = Play()
    play.stable()
    play.pass_ms(SESSION_MS)
    assert play.group.state is GroupState.EMPTY
    assert play.stores == [Store(2, {})]
    assert (play.group.protocol, play.group.leader) == (None, None)
    assert play.group.next_deadline_ms() is None


def test_a_new_member_that_waits_too_long_is_taken_to_be_gone() -> None:
    play = Play()
    leader, _ = play.stable()
    waiter = play.join(session_timeout_ms=1_800_000)
    play.group.join_deadline_ms = play.now_ms + 2 * NEW_MEMBER_JOIN_TIMEOUT_MS
    for member in play.group.members.values():
        if not member.is_new:
            member.deadline_ms = play.now_ms + 3 * NEW_MEMBER_JOIN_TIMEOUT_MS
    play.pass_ms(NEW_MEMBER_JOIN_TIMEOUT_MS)
    assert play.answers[waiter].error is ErrorCode.UNKNOWN_MEMBER_ID
    assert leader in play.group.members


def test_the_time_to_sync_is_asked_for_when_a_generation_begins_early() -> None:
    play = Play()
    members = [play.join(session_timeout_ms=1_800_000) for _ in range(2)]
    play.pass_ms(0)
    leaving, staying = (play.answers[each].member_id for each in members)
    play.group.members[staying].rebalance_timeout_ms = 7_000
    play.join()
    play.join(staying, protocols=RANGE, session_timeout_ms=1_800_000)
    for member in play.group.members.values():
        member.rebalance_timeout_ms = 7_000
    _, outcome = play.machine.leave(play.group, [MemberIdentity(leaving, None)], play.now_ms)
    assert play.group.state is GroupState.COMPLETING_REBALANCE
    assert outcome.wake_ms == play.now_ms + 7_000


def test_a_member_that_does_not_sync_in_time_is_dropped() -> None:
    play = Play()
    waiters = [play.join(session_timeout_ms=1_800_000) for _ in range(2)]
    play.pass_ms(0)
    leader, follower = (play.answers[each].member_id for each in waiters)
    waiting = play.sync(follower)
    play.pass_ms(REBALANCE_MS)
    assert play.answers[waiting].error is ErrorCode.REBALANCE_IN_PROGRESS
    assert [*play.group.members] == [follower]
    assert leader not in play.group.pending_sync


@pytest.mark.parametrize("instance", [False, True])
def test_leaving(instance: bool) -> None:
    play = Play()
    first = play.join(instance_id="i")
    second = play.join()
    play.pass_ms(0)
    static, dynamic = (play.answers[each].member_id for each in (first, second))
    waiting = play.sync(static)
    who = MemberIdentity("", "i") if instance else MemberIdentity(static, "i")
    errors = play.leave(MemberIdentity("stranger", None), who, MemberIdentity("", "nobody"))
    assert errors == (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID)
    assert play.answers[waiting].error is ErrorCode.UNKNOWN_MEMBER_ID
    assert [*play.group.members] == [dynamic]
    assert play.group.state is GroupState.PREPARING_REBALANCE
    play.leave(MemberIdentity(dynamic, None))
    assert play.group.state is GroupState.EMPTY


def static_group(protocols: tuple[Protocol, ...] = RANGE) -> tuple[Play, str, str]:
    play = Play()
    waiters = [play.join(instance_id=each, protocols=protocols) for each in ("lead", "follow")]
    play.pass_ms(0)
    leader, follower = (play.answers[each].member_id for each in waiters)
    play.sync(leader, {leader: b"l", follower: b"f"})
    play.store_done()
    play.sync(follower)
    return play, leader, follower


def test_a_static_member_takes_its_own_place_without_a_rebalance() -> None:
    play, leader, follower = static_group()
    waiter = play.join(instance_id="follow", needs_member_id=True)
    assert waiter not in play.answers
    store = play.store_done()
    answer = play.answers[waiter]
    assert (answer.error, answer.generation, answer.leader, answer.members) == (0, 1, leader, ())
    assert answer.member_id not in (leader, follower)
    assert store.assignments == {leader: b"l", answer.member_id: b"f"}
    assert play.answers[play.sync(answer.member_id, instance_id="follow")].assignment == b"f"
    assert play.heartbeat(follower, instance_id="follow") is ErrorCode.FENCED_INSTANCE_ID
    assert play.heartbeat(follower) is ErrorCode.UNKNOWN_MEMBER_ID
    assert play.answers[play.join(follower, instance_id="follow")].error is ErrorCode.FENCED_INSTANCE_ID


@pytest.mark.parametrize("can_skip", [False, True])
def test_a_static_leader_that_returns_does_not_assign(can_skip: bool) -> None:
    play, leader, _ = static_group()
    waiter = play.join(instance_id="lead", can_skip_assignment=can_skip)
    play.store_done()
    answer = play.answers[waiter]
    assert answer.leader == (answer.member_id if can_skip else leader), "an old client must not think that it leads"
    assert play.heartbeat(answer.member_id, instance_id="lead") is ErrorCode.NONE
    assert answer.skip_assignment is can_skip
    assert len(answer.members) == (2 if can_skip else 0)


def test_a_static_member_that_could_not_be_stored_is_told() -> None:
    play, _, _ = static_group()
    waiter = play.join(instance_id="follow")
    play.store_done(ErrorCode.NOT_COORDINATOR)
    assert play.answers[waiter] == JoinAnswer(ErrorCode.NOT_COORDINATOR)
    again = play.join(instance_id="follow")
    play.store_done()
    assert play.answers[again].error is ErrorCode.NONE


def test_a_static_member_with_another_protocol_causes_a_rebalance() -> None:
    both = (Protocol("range", b""), Protocol("sticky", b""))
    play, _, _ = static_group(both)
    play.join(instance_id="follow", protocols=both[::-1])
    assert play.group.state is GroupState.STABLE, "the eldest member's choice wins a tie"
    play.store_done()
    play.join(instance_id="lead", protocols=both[::-1])
    assert play.group.state is GroupState.PREPARING_REBALANCE


def test_a_static_member_replaced_while_it_waits_is_fenced() -> None:
    play = Play()
    first = play.join(instance_id="i")
    second = play.join(instance_id="i")
    assert play.answers[first] == JoinAnswer(ErrorCode.FENCED_INSTANCE_ID, "i-1")
    play.pass_ms(0)
    syncing = play.sync(play.answers[second].member_id, instance_id="i")
    third = play.join(instance_id="i")
    assert play.answers[syncing].error is ErrorCode.FENCED_INSTANCE_ID
    assert play.answers[third].generation == 2


def test_a_rebalance_that_overtakes_a_returning_static_member_answers_it() -> None:
    play, leader, _ = static_group()
    returning, newcomer = play.join(instance_id="follow"), play.join()
    play.store_done()
    assert returning not in play.answers
    play.join(leader, instance_id="lead")
    assert {play.answers[each].generation for each in (returning, newcomer)} == {2}


def test_a_pending_id_cannot_be_claimed_by_a_static_member() -> None:
    play, leader, _ = static_group()
    pending = play.answers[play.join(needs_member_id=True)].member_id
    assert play.answers[play.join(pending, instance_id="lead")].error is ErrorCode.FENCED_INSTANCE_ID
    assert play.group.instances["lead"] == leader


def test_a_static_member_that_is_away_is_waited_for_until_its_session_ends() -> None:
    play, leader, follower = static_group()
    play.group.members[follower].session_timeout_ms = 3 * REBALANCE_MS
    play.heartbeat(follower, instance_id="follow")
    play.join(leader, instance_id="lead")
    play.pass_ms(REBALANCE_MS)
    assert play.group.generation == 2
    assert follower in play.group.members


def fenced(play: Play, member_id: str, instance_id: str) -> list[ErrorCode]:
    """What each request that carries the instance id is told."""
    identity = MemberIdentity(member_id, instance_id, play.group.generation)
    return [
        play.answers[play.join(member_id, instance_id=instance_id)].error,
        play.answers[play.sync(member_id, instance_id=instance_id)].error,
        play.heartbeat(member_id, instance_id=instance_id),
        play.machine.commit_error(play.group, identity, play.now_ms),
        *play.leave(identity),
    ]


@pytest.mark.parametrize("instance_id", ["lead", "follow"])
def test_the_first_holder_of_an_instance_id_is_fenced_everywhere(instance_id: str) -> None:
    play, leader, follower = static_group()
    first = {"lead": leader, "follow": follower}[instance_id]
    waiter = play.join(instance_id=instance_id, can_skip_assignment=True)
    play.store_done()
    second = play.answers[waiter].member_id
    assert set(fenced(play, first, instance_id)) == {ErrorCode.FENCED_INSTANCE_ID}
    assert play.group.state is GroupState.STABLE
    assert set(fenced(play, first, "nobody's")) == {ErrorCode.UNKNOWN_MEMBER_ID}
    assert play.heartbeat(second, instance_id=instance_id) is ErrorCode.NONE


def test_static_members_are_removed_by_instance_id_several_at_once() -> None:
    play, _, _ = static_group()
    removed = play.leave(
        *(MemberIdentity("", each) for each in ("lead", "stranger", "follow")), MemberIdentity("", None)
    )
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert removed == (ErrorCode.NONE, unknown, ErrorCode.NONE, unknown)
    assert play.group.state is GroupState.EMPTY


def test_the_group_knows_what_it_reads_once_a_generation_begins() -> None:
    play = Play()
    to_t = bytes.fromhex("0000 00000001 0001 74 ffffffff")
    play.join(protocols=(Protocol("range", to_t),))
    assert play.group.subscribed is None
    play.pass_ms(0)
    assert play.group.subscribed == {"t"}
    play.pass_ms(REBALANCE_MS)
    assert (play.group.state, play.group.subscribed) == (GroupState.EMPTY, frozenset())


FULL = ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_full_group_takes_nobody_in() -> None:
    play = Play(max_size=2)
    leader, follower = play.stable(2)
    refused = play.join()
    assert play.answers[refused] == JoinAnswer(FULL)
    assert play.group.state is GroupState.STABLE
    assert play.answers[play.join(follower)].error is ErrorCode.NONE, "who is in may ask again"
    play.leave(MemberIdentity(follower, None))
    waiter = play.join()
    play.join(leader)
    assert play.answers[waiter].generation == 2


def test_an_id_that_was_given_out_is_forgotten_when_the_group_is_full() -> None:
    play = Play(max_size=2)
    play.stable(1)
    ids = [play.answers[play.join(needs_member_id=True)].member_id for _ in range(2)]
    first = play.join(ids[0])
    assert play.group.pending.keys() == {ids[1]}
    play.join(next(iter(play.group.members)))
    assert first not in play.answers, "the second may yet come"
    assert play.answers[play.join(ids[1])] == JoinAnswer(FULL)
    assert play.answers[first].generation == 2
    assert not play.group.pending


LARGE = (Protocol("range", bytes(MOST_OF_GROUP)),)


def test_a_member_that_tells_too_much_keeps_its_place_as_it_was_and_goes_as_any_other() -> None:
    play = Play()
    leader, other = play.stable(2)
    assert play.answers[play.join(other, protocols=LARGE)] == JoinAnswer(FULL)
    assert play.group.state is GroupState.STABLE
    assert play.heartbeat(other) is ErrorCode.NONE
    play.pass_ms(SESSION_MS // 2)
    assert play.heartbeat(leader) is ErrorCode.NONE
    play.pass_ms(SESSION_MS // 2 + 1)
    assert play.heartbeat(leader) is ErrorCode.REBALANCE_IN_PROGRESS, "so that its share is given to others"


def test_a_member_that_tells_too_much_is_in_nobodys_way_in_a_rebalance() -> None:
    play = Play()
    leader, other = play.stable(2)
    held = play.join(leader)
    assert play.answers[play.join(leader, protocols=LARGE)] == JoinAnswer(FULL)
    late = play.join(other)
    assert (play.answers[held].error, play.answers[late].error) == (ErrorCode.NONE, ErrorCode.NONE)
    assert play.group.members.keys() == {leader, other}


def test_a_member_that_tells_no_more_than_before_is_let_in_though_assignments_have_come() -> None:
    play = Play()
    protocols = (Protocol("range", bytes(MOST_OF_GROUP - 1000)),)
    joining = play.join(protocols=protocols)
    play.pass_ms(0)
    member = play.answers[joining].member_id
    play.sync(member, {member: bytes(2000)})
    play.store_done()
    again = play.join(member, protocols=protocols)
    play.pass_ms(0)
    assert play.answers[again].error is ErrorCode.NONE


def test_a_group_that_was_allowed_to_be_larger_shrinks_to_those_that_rejoin_first() -> None:
    play = Play()
    members = play.stable(3)
    play.machine = GroupMachine(GroupSettings(6_000, 1_800_000, 0, max_size=2), lambda: "new")
    play.take(play.machine.loaded(play.group, play.now_ms))
    assert play.group.state is GroupState.PREPARING_REBALANCE
    waiters = [play.join(each) for each in members[:2]]
    late = play.join(members[2])
    assert play.answers[late] == JoinAnswer(FULL)
    assert [play.answers[each].generation for each in waiters] == [2, 2]
    assert {*play.group.members} == {*members[:2]}


def test_a_group_that_fits_is_loaded_without_a_rebalance() -> None:
    play = Play(max_size=2)
    play.stable(2)
    play.take(play.machine.loaded(play.group, play.now_ms))
    assert play.group.state is GroupState.STABLE


def test_a_static_member_returns_to_its_place_in_a_full_group() -> None:
    play, _, _ = static_group()
    play.machine = GroupMachine(GroupSettings(6_000, 1_800_000, 0, max_size=2), lambda: "new")
    waiter = play.join(instance_id="follow")
    play.store_done()
    assert play.answers[waiter].error is ErrorCode.NONE
    assert play.answers[play.join(instance_id="another")] == JoinAnswer(FULL)


def test_absent_static_members_do_not_keep_the_broker_busy() -> None:
    play, leader, follower = static_group()
    for member in play.group.members.values():
        member.rebalance_timeout_ms = 0
    play.leave(MemberIdentity(follower, "follow"))
    play.take(play.machine.expire(play.group, play.now_ms))
    assert play.group.join_deadline_ms == play.now_ms + 1000
    assert leader in play.group.members


@pytest.mark.parametrize(
    ("identity", "error"),
    [
        (MemberIdentity("", None, -1), ErrorCode.UNKNOWN_MEMBER_ID),
        (MemberIdentity("c-1", None, -1), ErrorCode.ILLEGAL_GENERATION),
        (MemberIdentity("c-1", None, 0), ErrorCode.ILLEGAL_GENERATION),
        (MemberIdentity("c-1", None, 1), ErrorCode.NONE),
        (MemberIdentity("stranger", None, 1), ErrorCode.UNKNOWN_MEMBER_ID),
        (MemberIdentity("c-1", "i", 1), ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_who_may_commit_in_a_stable_group(identity: MemberIdentity, error: ErrorCode) -> None:
    play = Play()
    play.stable()
    assert play.machine.commit_error(play.group, identity, play.now_ms) is error


def test_who_may_commit_while_there_is_no_generation() -> None:
    play = Play()
    anonymous = MemberIdentity("", None, -1)
    assert play.machine.commit_error(play.group, anonymous, play.now_ms) is ErrorCode.NONE
    assert play.machine.commit_error(play.group, MemberIdentity("m", None, -1), play.now_ms) is ErrorCode.NONE
    assert (
        play.machine.commit_error(play.group, MemberIdentity("m", None, 1), play.now_ms) is ErrorCode.UNKNOWN_MEMBER_ID
    )
    play.join()
    play.pass_ms(0)
    member = MemberIdentity("c-1", None, 1)
    assert play.machine.commit_error(play.group, member, play.now_ms) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_commit_keeps_the_session_alive() -> None:
    play = Play()
    leader, _ = play.stable()
    play.pass_ms(SESSION_MS - 1)
    play.machine.commit_error(play.group, MemberIdentity(leader, None, 1), play.now_ms)
    play.pass_ms(1)
    assert [*play.group.members] == [leader]


def test_whoever_waits_when_the_group_moves_away_is_sent_after_it() -> None:
    play = Play()
    joining = play.join()
    play.take(play.machine.unload(play.group))
    assert play.answers[joining] == JoinAnswer(ErrorCode.NOT_COORDINATOR, "c-1")
    assert play.group.state is GroupState.DEAD
    assert play.answers[play.join()].error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert play.heartbeat("c-1") is ErrorCode.COORDINATOR_NOT_AVAILABLE
    answer, _ = play.machine.leave(play.group, [], play.now_ms)
    assert answer.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (
        play.machine.commit_error(play.group, MemberIdentity("", None), play.now_ms)
        is ErrorCode.COORDINATOR_NOT_AVAILABLE
    )


def test_a_waiting_sync_when_the_group_moves_away() -> None:
    play = Play()
    play.join()
    play.pass_ms(0)
    syncing = play.sync("c-1")
    play.take(play.machine.unload(play.group))
    assert play.answers[syncing].error is ErrorCode.NOT_COORDINATOR
    play.store_done()
    assert play.group.state is GroupState.DEAD


def test_a_loaded_group_gives_its_members_a_session() -> None:
    play = Play()
    play.stable()
    play.now_ms += 10 * SESSION_MS
    outcome = play.machine.loaded(play.group, play.now_ms)
    assert outcome.wake_ms == play.now_ms + SESSION_MS
    play.pass_ms(SESSION_MS - 1)
    assert len(play.group.members) == 2


def test_a_member_rejoins_with_new_timeouts_and_protocols() -> None:
    play = Play()
    (leader,) = play.stable(1)
    both = (Protocol("sticky", b"new"), Protocol("range", b"topics"))
    waiter = play.join(leader, session_timeout_ms=2 * SESSION_MS, protocols=both)
    assert (play.answers[waiter].generation, play.answers[waiter].protocol) == (2, "sticky")
    assert [each.metadata for each in play.answers[waiter].members] == [b"new"]
    play.pass_ms(2 * SESSION_MS - 1)
    assert [*play.group.members] == [leader]
    play.pass_ms(1)
    assert play.group.state is GroupState.EMPTY


@pytest.mark.parametrize("instance_id", [None, "i"])
def test_a_member_that_returns_with_a_shorter_session_is_given_up_by_that(instance_id: str | None) -> None:
    play = Play()
    waiter = play.join(instance_id=instance_id, session_timeout_ms=1_800_000)
    play.pass_ms(0)
    member_id = play.answers[waiter].member_id
    play.sync(member_id, instance_id=instance_id)
    play.store_done()
    play.pass_ms(2 * REBALANCE_MS)
    returned = play.join("" if instance_id else member_id, instance_id=instance_id)
    if instance_id:
        play.store_done()
    assert play.answers[returned].error is ErrorCode.NONE
    play.pass_ms(SESSION_MS - 1)
    assert len(play.group.members) == 1
    play.pass_ms(1)
    assert play.group.state is GroupState.EMPTY


def test_every_request_that_is_answered_at_once_keeps_the_session_alive() -> None:
    play = Play()
    leader, follower = play.stable()
    for _ in range(3):
        play.pass_ms(SESSION_MS - 1)
        play.heartbeat(leader)
        assert play.answers[play.join(follower)].error is ErrorCode.NONE
        play.pass_ms(SESSION_MS - 1)
        play.heartbeat(leader)
        assert play.answers[play.sync(follower)].error is ErrorCode.NONE
    assert [*play.group.members] == [leader, follower]
    play.pass_ms(SESSION_MS)
    assert play.group.state is GroupState.EMPTY
