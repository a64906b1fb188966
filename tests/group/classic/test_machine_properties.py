"""Random lives of a group. Whatever happens: whoever waits is answered, once, and a generation has one leader."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from sparklog.errors import ErrorCode
from sparklog.group.classic.group import Group, GroupState, Protocol
from sparklog.group.classic.machine import GroupMachine, GroupSettings
from sparklog.group.classic.requests import JoinAnswer, JoinRequest, MemberIdentity, Outcome, Store, SyncRequest

PROTOCOLS = st.sampled_from(
    ["range", "range", "range sticky", "sticky range", "range sticky new", "new sticky", "new"]
).map(lambda names: tuple(Protocol(each, each.encode()) for each in names.split()))
ERRORS = st.sampled_from([ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE])
MAX_STEPS = 2000
MAX_SIZE = 3


class GroupLife(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        ids = itertools.count()
        self.machine = GroupMachine(GroupSettings(1, 1_000_000, 50, MAX_SIZE), lambda: str(next(ids)))
        self.group = Group("g")
        self.now_ms = 0
        self.wake_ms: int | None = None
        self.waiters = itertools.count()
        self.waiting: dict[int, str] = {}
        self.leaders: dict[int, str] = {}
        self.ids = [""]
        self.stores: list[Store] = []
        self.holders: dict[str, set[str]] = {"i": set(), "j": set()}

    def take(self, outcome: Outcome) -> None:
        for waiter, answer in outcome.answers:
            assert waiter in self.waiting, "answered twice, or never asked"
            del self.waiting[waiter]
            if isinstance(answer, JoinAnswer):
                self.note(answer)
        if outcome.store is not None:
            self.stores.append(outcome.store)
        for instance_id, member_id in self.group.instances.items():
            self.holders[instance_id].add(member_id)
        if outcome.wake_ms is not None:
            self.wake_ms = outcome.wake_ms if self.wake_ms is None else min(self.wake_ms, outcome.wake_ms)

    def note(self, answer: JoinAnswer) -> None:
        if answer.member_id:
            self.ids.append(answer.member_id)
        if answer.error is ErrorCode.NONE and answer.leader == answer.member_id and not answer.skip_assignment:
            assert self.leaders.setdefault(answer.generation, answer.member_id) == answer.member_id

    def wait(self, what: str) -> int:
        waiter = next(self.waiters)
        self.waiting[waiter] = what
        return waiter

    def pick(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from([*self.group.members, *self.group.pending, *self.ids[-4:]]))

    @rule(
        data=st.data(),
        instance_id=st.sampled_from([None, None, "i", "j"]),
        protocols=PROTOCOLS,
        flags=st.tuples(st.booleans(), st.booleans()),
        session_ms=st.integers(1, 400),
    )
    def join(self, data: Any, instance_id: str | None, protocols: Any, flags: Any, session_ms: int) -> None:
        member_id = data.draw(st.one_of(st.just(""), st.just(self.pick(data))))
        known = self.group.members.get(member_id)
        request = JoinRequest(
            member_id,
            known.instance_id if known else instance_id,
            "c",
            "/h",
            session_ms,
            data.draw(st.integers(1, 300)),
            "consumer",
            protocols,
            *flags,
        )
        self.take(self.machine.join(self.group, request, self.wait("join"), self.now_ms))

    @rule(data=st.data(), generations_back=st.sampled_from([0, 0, 0, 1]))
    def sync(self, data: Any, generations_back: int) -> None:
        member_id = self.pick(data)
        known = self.group.members.get(member_id)
        request = SyncRequest(
            member_id,
            known.instance_id if known else None,
            self.group.generation - generations_back,
            None,
            None,
            dict.fromkeys(self.group.members, b"x"),
        )
        self.take(self.machine.sync(self.group, request, self.wait("sync"), self.now_ms))

    @rule(data=st.data())
    def heartbeat(self, data: Any) -> None:
        self.machine.heartbeat(self.group, MemberIdentity(self.pick(data), None, self.group.generation), self.now_ms)

    @rule(data=st.data(), instance_id=st.sampled_from([None, "i"]))
    def leave(self, data: Any, instance_id: str | None) -> None:
        identity = MemberIdentity("", instance_id) if instance_id else MemberIdentity(self.pick(data), None)
        _, outcome = self.machine.leave(self.group, [identity], self.now_ms)
        self.take(outcome)

    @rule()
    def the_group_settles(self) -> None:
        """Everybody asks again, the leader assigns, and all goes well."""
        for member in [*self.group.members.values()]:
            request = JoinRequest(
                member.member_id, member.instance_id, "c", "/h", 300, 300, "consumer", member.protocols, True, True
            )
            self.take(self.machine.join(self.group, request, self.wait("join"), self.now_ms))
        while self.group.state is GroupState.PREPARING_REBALANCE:
            self.wake()
        for member in [*self.group.members.values()]:
            shares = {each: each.encode() for each in self.group.members}
            request_sync = SyncRequest(member.member_id, member.instance_id, self.group.generation, None, None, shares)
            self.take(self.machine.sync(self.group, request_sync, self.wait("sync"), self.now_ms))
        while self.stores:
            self.take(self.machine.stored(self.group, self.stores.pop(0), ErrorCode.NONE, self.now_ms))
        assert self.group.state is (GroupState.STABLE if self.group.members else GroupState.EMPTY)

    @rule(data=st.data(), instance_id=st.sampled_from(["i", "j"]))
    def an_earlier_holder_calls(self, data: Any, instance_id: str) -> None:
        """Whoever held an instance id before is fenced, whatever it asks, and changes nothing."""
        earlier = sorted(self.holders[instance_id] - {self.group.holder(instance_id)})
        if not earlier or self.group.holder(instance_id) is None:
            return
        member_id = data.draw(st.sampled_from(earlier))
        identity = MemberIdentity(member_id, instance_id, self.group.generation)
        state, members = self.group.state, [*self.group.members]
        answer, outcome = self.machine.leave(self.group, [identity], self.now_ms)
        errors = [
            self.machine.heartbeat(self.group, identity, self.now_ms),
            self.machine.commit_error(self.group, identity, self.now_ms),
            *answer.members,
        ]
        sync = SyncRequest(member_id, instance_id, self.group.generation, None, None, {})
        outcomes = [outcome, self.machine.sync(self.group, sync, "fenced", self.now_ms)]
        errors += [each.error for outcome in outcomes for _, each in outcome.answers]
        assert errors == [ErrorCode.FENCED_INSTANCE_ID] * 4
        assert (self.group.state, [*self.group.members]) == (state, members)

    @rule(instance_id=st.sampled_from(["i", "j"]), can_skip=st.booleans())
    def a_static_member_restarts(self, instance_id: str, can_skip: bool) -> None:
        """Its place, assignment and the group's generation are as they were; the same asks cost no rebalance."""
        member = self.group.members.get(self.group.holder(instance_id) or "")
        if self.group.state is not GroupState.STABLE or member is None:
            return
        generation, assignment = self.group.generation, member.assignment
        keeps_protocol = self.group.select_protocol() == self.group.protocol
        request = JoinRequest("", instance_id, "c", "/h", 300, 300, "consumer", member.protocols, True, can_skip)
        self.take(self.machine.join(self.group, request, self.wait("join"), self.now_ms))
        if keeps_protocol:
            assert (self.group.state, self.group.generation) == (GroupState.STABLE, generation)
            assert self.group.members[self.group.instances[instance_id]].assignment == assignment

    @rule(error=ERRORS)
    def store_ends(self, error: ErrorCode) -> None:
        if self.stores:
            self.take(self.machine.stored(self.group, self.stores.pop(0), error, self.now_ms))

    @rule(duration_ms=st.integers(0, 500))
    def time_passes(self, duration_ms: int) -> None:
        end_ms = self.now_ms + duration_ms
        for _ in range(MAX_STEPS):
            if self.wake_ms is None or self.wake_ms > end_ms:
                break
            self.wake()
        self.now_ms = end_ms

    def wake(self) -> None:
        """As the runtime: only at the time that was asked for."""
        assert self.wake_ms is not None
        self.now_ms, self.wake_ms = max(self.now_ms, self.wake_ms), None
        self.take(self.machine.expire(self.group, self.now_ms))

    @invariant()
    def the_size_is_that_of_all_that_is_kept(self) -> None:
        members, pending = self.group.members.values(), self.group.pending
        size = sum(each.size for each in members) + sum(map(len, pending))
        assert self.group.size == (size + len("g") if members or pending else 0)

    @invariant()
    def who_waits_can_be_found(self) -> None:
        held: list[Any] = [*self.group.joining.values(), *self.group.syncing.values()]
        assert sorted(held) == sorted(self.waiting)
        assert {*self.group.joining, *self.group.syncing} <= {*self.group.members}

    @invariant()
    def the_books_are_consistent(self) -> None:
        group = self.group
        assert all(member_id == each.member_id for member_id, each in group.members.items())
        static = {each.instance_id: each.member_id for each in group.members.values() if each.instance_id}
        assert group.instances == static
        assert (group.leader in group.members) == bool(group.members)
        assert bool(group.members) or group.state in (GroupState.EMPTY, GroupState.PREPARING_REBALANCE)
        assert group.pending_sync <= {*group.members}
        assert (group.join_deadline_ms is not None) == (group.state is GroupState.PREPARING_REBALANCE)
        for name in ("range", "sticky", "new"):
            expected = sum(any(p.name == name for p in each.protocols) for each in group.members.values())
            assert group._support[name] == expected

    @invariant()
    def the_group_does_not_outgrow_its_limit(self) -> None:
        """Absent static members are kept beyond it."""
        group = self.group
        assert len(group.joining) <= MAX_SIZE
        if group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            assert len(group.members) <= MAX_SIZE + len(group.instances)

    @invariant()
    def whatever_is_due_was_asked_for(self) -> None:
        next_ms = self.group.next_deadline_ms()
        assert next_ms is None or (self.wake_ms is not None and self.wake_ms <= next_ms)

    def teardown(self) -> None:
        """Everybody falls silent: those that wait are answered all the same, and the group ends up empty."""
        for _ in range(MAX_STEPS):
            while self.stores:
                self.take(self.machine.stored(self.group, self.stores.pop(0), ErrorCode.NONE, self.now_ms))
            if self.wake_ms is None:
                break
            self.wake()
        assert not self.waiting
        assert self.group.state is GroupState.EMPTY


TestGroupLife = GroupLife.TestCase
TestGroupLife.settings = settings(max_examples=settings().max_examples, stateful_step_count=40, deadline=None)
