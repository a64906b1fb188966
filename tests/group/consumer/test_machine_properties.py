"""Random lives of a group of the consumer protocol: clients of both protocols that obey, are late, crash, or lie.

Whatever happens, no two clients that have not been told to let go use one partition, the log's records describe the
group, and when everybody does as told the group comes to rest.
"""

from __future__ import annotations

import itertools
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
from group.consumer.samples import FakeTopics, Play, join_request
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from sparklog.errors import ApiError, ErrorCode
from sparklog.group.classic.requests import MemberIdentity, SyncRequest
from sparklog.group.classic.subscriptions import read_assignment
from sparklog.group.consumer import classic
from sparklog.group.consumer.group import ConsumerGroup
from sparklog.group.consumer.records import changes, read_consumer_group, read_consumer_key
from sparklog.group.consumer.timers import Timers
from sparklog.testing.steps import finish

NAMES = ["t", "u", "v"]
MAX_SIZE = 5
MOVES = {ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID}


@dataclass
class Client:
    """``uses`` is what it reads from, ``told`` what it was last told that it may."""

    member_id: str = ""
    epoch: int = 0
    instance_id: str | None = None
    topics: frozenset[str] = frozenset()
    assignor: str | None = None
    uses: frozenset[Any] = frozenset()
    told: frozenset[Any] = frozenset()
    is_classic: bool = False

    def give_up(self) -> None:
        self.uses = self.told = frozenset()
        self.epoch = 0


class ConsumerLife(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.play = Play(FakeTopics(t=4, u=3), max_size=MAX_SIZE)
        self.clients: list[Client] = []
        self.log: dict[bytes, bytes | None] = {}
        self.timers = Timers()
        self.now_ms = 0
        self.ids = itertools.count()

    @initialize(count=st.integers(1, 4))
    def some_join(self, count: int) -> None:
        for _ in range(count):
            self.join(frozenset({"t", "u"}), None, None)

    @rule(
        topics=st.frozensets(st.sampled_from(NAMES), min_size=1),
        instance_id=st.sampled_from([None, None, "i", "j"]),
        assignor=st.sampled_from([None, "range", "uniform"]),
        brings_id=st.booleans(),
    )
    def join(
        self, topics: frozenset[str], instance_id: str | None, assignor: str | None, brings_id: bool = False
    ) -> None:
        member_id = f"c{next(self.ids)}" if brings_id else ""
        client = Client(member_id, instance_id=instance_id, topics=topics, assignor=assignor)
        self.clients.append(client)
        if not self.beat(client):
            self.clients.remove(client)

    @rule(topics=st.frozensets(st.sampled_from(NAMES), min_size=1))
    def join_in_the_classic_way(self, topics: frozenset[str]) -> None:
        if not self.play.group.members:
            return  # that would be a group of the classic protocol
        client = Client(topics=topics, is_classic=True)
        self.clients.append(client)
        if not self.rejoin(client):
            self.clients.remove(client)

    def rejoin(self, client: Client) -> bool:
        """JoinGroup and SyncGroup of a cooperative consumer; whether it is in the group after them."""
        play, before = self.play, self.play.group
        owned = [(play.topics.name_of(each.topic_id), each.partition) for each in client.uses & client.told]
        request = join_request(client.member_id, client.topics, [each for each in owned if each[0]])
        known = client.member_id in before.members
        if len(before.members) == MAX_SIZE and not known:
            with pytest.raises(ApiError, match="GROUP_MAX_SIZE_REACHED"):
                classic.join(play.machine, before, request, "too-many", play.topics)
            return False
        joined = finish(classic.join(play.machine, before, request, f"o{next(self.ids)}", play.topics))
        play.group = joined.group
        self.write(before)
        client.member_id, client.epoch = joined.answer.member_id, joined.answer.generation
        client.uses &= client.told
        self.fetch_assignment(client)
        return True

    def fetch_assignment(self, client: Client) -> None:
        play = self.play
        request = SyncRequest(client.member_id, None, client.epoch, None, None, {})
        with suppress(ApiError):
            answer = classic.sync(play.group, request, play.topics)
            client.told = classic.by_id(read_assignment(answer.assignment), play.topics)
            client.uses |= client.told if client.told >= client.uses else frozenset()

    def classic_heartbeat(self, client: Client) -> bool:
        """It hears whether to join again; whether it is in the group after it."""
        identity = MemberIdentity(client.member_id, None, client.epoch)
        try:
            member, _ = classic.find(self.play.group, identity)
        except ApiError:
            client.give_up()
            return self.rejoin(client)
        gave_up = not client.uses <= client.told
        return self.rejoin(client) if gave_up or classic.must_rejoin(self.play.group, member) else True

    def beat(self, client: Client, *, answer_lost: bool = False, says_owned: bool = True) -> bool:
        """One heartbeat; whether the client is in the group after it."""
        if client.is_classic:
            return self.classic_heartbeat(client)
        joins = client.epoch == 0
        fields: dict[str, Any] = {"instance_id": client.instance_id, "owned": client.uses if says_owned else None}
        if joins or says_owned:
            fields |= {"topics": client.topics, "rebalance_timeout_ms": 100, "assignor": client.assignor}
        if joins:
            fields["owned"] = frozenset()
        before = self.play.group
        try:
            answer = self.play.beat(client.member_id, client.epoch, **fields)
        except ApiError as error:
            assert self.play.group is before, "who is refused changes nothing"
            if error.code in MOVES:
                client.give_up()
            return False
        self.write(before)
        if answer_lost:
            return True
        client.member_id, client.epoch = answer.member_id, answer.epoch
        if answer.assigned is not None:
            client.told = answer.assigned
        client.uses |= client.told - client.uses if client.told >= client.uses else frozenset()
        return True

    def write(self, before: ConsumerGroup) -> None:
        known = before if before.epoch else None
        self.log.update(finish(changes(known, self.play.group)))
        self.timers.follow(before, self.play.group, self.now_ms)

    @rule(data=st.data(), lost=st.booleans(), says=st.booleans())
    def heartbeat(self, data: Any, lost: bool, says: bool) -> None:
        if self.clients:
            self.beat(data.draw(st.sampled_from(self.clients)), answer_lost=lost, says_owned=says or lost)

    @rule(data=st.data())
    def let_go(self, data: Any) -> None:
        """A client stops using what it was told to stop using."""
        if self.clients:
            client = data.draw(st.sampled_from(self.clients))
            client.uses &= client.told

    @rule(data=st.data(), topics=st.frozensets(st.sampled_from(NAMES), min_size=1))
    def subscribe_anew(self, data: Any, topics: frozenset[str]) -> None:
        if self.clients:
            data.draw(st.sampled_from(self.clients)).topics = topics

    @rule(data=st.data(), comes_back=st.booleans())
    def leave(self, data: Any, comes_back: bool) -> None:
        if not self.clients:
            return
        client = data.draw(st.sampled_from(self.clients))
        self.clients.remove(client)
        before = self.play.group
        if client.is_classic:
            leaving = [MemberIdentity(client.member_id, None)]
            self.play.group = finish(classic.leave(self.play.machine, before, leaving, self.play.topics)).group
            self.write(before)
            return
        epoch = -2 if comes_back and client.instance_id else -1
        with suppress(ApiError):
            self.play.beat(client.member_id, epoch, instance_id=client.instance_id)
        assert client.epoch == 0 or client.member_id not in self.play.group.members or epoch == -2
        self.write(before)

    @rule(name=st.sampled_from(NAMES), count=st.integers(0, 6))
    def topics_change(self, name: str, count: int) -> None:
        """Created, given more partitions, or deleted."""
        known = self.play.topics.topic(name)
        if count == 0:
            self.play.topics.delete(name)
        elif known is None or known.partition_count < count:
            self.play.topics.make(name, count)

    @rule(duration_ms=st.integers(0, 150))
    def time_passes(self, duration_ms: int) -> None:
        """Who does not let go in time is put out; its client hears of it in time, or loses its session."""
        self.now_ms += duration_ms
        missed = self.timers.missed(self.now_ms)
        if missed:
            before = self.play.group
            self.play.group = finish(self.play.machine.remove(before, missed, self.play.topics))
            self.write(before)
            for client in self.clients:
                if client.member_id in missed:
                    client.give_up()

    @rule(data=st.data(), epoch=st.integers(-3, 9))
    def somebody_lies(self, data: Any, epoch: int) -> None:
        """An epoch out of nowhere: refused, or that of the member itself."""
        member_id = data.draw(st.sampled_from([*self.play.group.members, "nobody"]))
        member = self.play.group.members.get(member_id)
        if epoch in (0, -1, -2) or (member and epoch in (member.epoch, member.previous_epoch)):
            return
        before = self.play.group
        with pytest.raises(ApiError) as refusal:
            self.play.beat(member_id, epoch, owned=frozenset())
        assert refusal.value.code in {*MOVES, ErrorCode.INVALID_REQUEST}
        assert self.play.group is before

    @rule()
    def all_settles(self) -> None:
        """Everybody heartbeats and does as told: soon nothing moves any more."""
        for _ in range(30):
            for client in [*self.clients]:
                client.uses &= client.told
                if not self.beat(client) and not self.beat(client):
                    self.clients.remove(client)
            awaited = [each for each in self.play.group.members.values() if each.epoch == -2]
            if self.play.group.state.value in ("Stable", "Empty") or awaited or self.strangers():
                break
        else:
            raise AssertionError(f"it does not come to rest: {self.play.group}")

    def strangers(self) -> set[str]:
        """Members whose client is gone, or has never heard of its membership."""
        return self.play.group.members.keys() - {each.member_id for each in self.clients}

    @invariant()
    def subscriptions_are_counted(self) -> None:
        group = self.play.group
        named = [each.topics for each in group.members.values()]
        assert {names: each.members for names, each in group.subscriptions.items()} == Counter(named)
        assert group.names == Counter(name for names in set(named) for name in names)
        assert all(group.subscriptions[each].names is each for each in named)

    @invariant()
    def nobody_shares(self) -> None:
        users: dict[Any, str] = {}
        for client in self.clients:
            for each in client.uses:
                assert users.setdefault(each, client.member_id) == client.member_id, f"{each} is used by two"
        for client in self.clients:
            member = self.play.group.members.get(client.member_id)
            if member is not None and client.epoch in (member.epoch, member.previous_epoch):
                assert self.known(client) <= member.held

    def known(self, client: Client) -> frozenset[Any]:
        """What the coordinator can know that the client uses: a classic one cannot name a topic that is deleted."""
        if not client.is_classic:
            return client.uses
        return frozenset(each for each in client.uses if self.play.topics.name_of(each.topic_id) is not None)

    @invariant()
    def the_group_is_sound(self) -> None:
        group = self.play.group
        assert group.target.keys() <= group.members.keys()
        assert group.assignment_epoch <= group.epoch
        held = [each for member in group.members.values() for each in member.held]
        assert len(held) == len(set(held))
        assert group.owners == {each: one.member_id for one in group.members.values() for each in one.held}
        assert all(member.epoch <= group.assignment_epoch for member in group.members.values())

    @invariant()
    def the_log_says_the_same(self) -> None:
        group = self.play.group
        if not group.epoch:
            return
        values = {read_consumer_key(key): value for key, value in self.log.items() if value is not None}
        loaded = read_consumer_group("g", values)
        assert loaded == group


TestConsumerLife = ConsumerLife.TestCase
TestConsumerLife.settings = settings(max_examples=settings().max_examples // 2, stateful_step_count=40, deadline=None)
