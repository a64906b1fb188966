"""When a member's user is told what: rebalances between polls, in polls that are cut short, and in the end."""

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace as Answer
from uuid import uuid4

import pytest

from sparklog.client.cluster.obstacles import Obstacles
from sparklog.client.cluster.retry import Backoff
from sparklog.client.consumer.config import ConsumerConfig
from sparklog.client.consumer.group.coordinator import Callbacks, ConsumerCoordinator
from sparklog.client.consumer.subscription import Position, SubscriptionState
from sparklog.cluster.info import ClusterInfo, TopicInfo
from sparklog.cluster.leaders import Leaders
from sparklog.errors import ConnectionFailed, ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.subscription import Assignment, encode_assignment
from sparklog.structs import NO_LEADER, TopicPartition
from sparklog.testing.clock import ManualClock, jump

A, B, C = (TopicPartition("t", number) for number in range(3))
_VERSIONS = {ApiKey.JOIN_GROUP: 5, ApiKey.SYNC_GROUP: 5, ApiKey.HEARTBEAT: 4, ApiKey.LEAVE_GROUP: 4}


class Rig:
    """A member of a group that another one leads; the test says what each generation assigns to it.

    ``told`` has the callbacks that came to their end, in order: ``+`` assigned, ``-`` revoked, ``!`` lost.
    They wait for ``may`` of the same name, a commit for that of ``commit``, and a join for that of ``coordinator``.
    """

    def __init__(self, auto_commit=False, strategy="cooperative-sticky"):
        self.clock = ManualClock()
        self.leaders = Leaders()
        self.obstacles = Obstacles(self.clock)
        self.config = ConsumerConfig.from_properties(
            {
                "bootstrap.servers": "one:1",
                "group.id": "g",
                "partition.assignment.strategy": strategy,
                "enable.auto.commit": str(auto_commit).lower(),
                "retry.backoff.ms": "0",
            }
        )
        self.subscription = SubscriptionState()
        self.subscription.subscribe(["t"])
        self.news = asyncio.Event()
        self.generation = 0
        self.shares = []
        self.beat_with = ErrorCode.NONE
        self.syncs = True
        self.asked = {api: asyncio.Event() for api in _VERSIONS}
        self.begun = {each: asyncio.Event() for each in ("+", "-", "!", "commit", "coordinator")}
        self.may = {each: asyncio.Event() for each in self.begun}
        for each in self.may.values():
            each.set()
        self.told = []
        self.committed = []
        self.member = ConsumerCoordinator(self, self.config, self.subscription, self.news)
        self.member.callbacks = Callbacks(self.tell("+"), self.tell("-"), self.tell("!"))

    def describe(self, topic_id):
        """A broker tells that the topic is one of this id."""
        topic = TopicInfo("t", topic_id, internal=False, partitions=())
        self.leaders.apply(ClusterInfo(None, NO_LEADER, {}, {"t": topic}, {}))

    def tell(self, sign):
        async def callback(partitions):
            await self.pass_by(sign)
            self.told.append((sign, partitions))

        return callback

    async def pass_by(self, gate):
        self.begun[gate].set()
        await self.may[gate].wait()

    async def cut_short(self, work, gate):
        """Begin ``work``, and cancel it where it waits at this gate, which is open again then."""
        self.begun[gate].clear()
        self.may[gate].clear()
        task = asyncio.create_task(work)
        await self.begun[gate].wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        self.may[gate].set()

    async def assigned_in_background(self, *partitions):
        """One poll, with which a join begins; then it ends, and no poll comes."""
        self.shares.append(partitions)
        await self.member.step()
        await self.joined()

    async def joined(self):
        while self.shares:
            self.news.clear()
            await self.news.wait()

    async def poll_until_assigned(self, *partitions):
        await self.assigned_in_background(*partitions)
        await self.member.step()
        for tp in partitions:
            self.subscription.seek(tp, Position(0))

    async def rebalance(self, *partitions):
        """The member finds that the group is rebalancing, and is assigned these in the background."""
        self.member.subscription_changed()
        await self.assigned_in_background(*partitions)

    async def silence(self, seconds, until):
        self.clock.advance(seconds)
        jump(asyncio.get_running_loop(), seconds)
        await self.asked[until].wait()
        await asyncio.sleep(0)  # for the answer

    # What a Session does.

    async def coordinator(self, kind, key):
        if asyncio.current_task().get_name() == "sparklog join":
            await self.pass_by("coordinator")
        return 1

    def forget_coordinator(self, kind, key):
        pass

    async def refresh(self, topics, *, create=False):
        return Answer(raise_refusal=lambda topics: None)

    def backoff(self, timeout_ms=None):
        return Backoff(self.config, self.clock, timeout_ms or self.config.api_timeout_ms)

    async def request(self, broker, api, build, *, timeout, lane):
        request = build(_VERSIONS[api])
        self.asked[api].set()
        if api is ApiKey.JOIN_GROUP:
            self.generation += 1
            name = request.member_id or f"m-{self.generation}"
            return Answer(
                error_code=0,
                generation_id=self.generation,
                member_id=name,
                leader="x",
                protocol_name=request.protocols[0].name,
            )
        if api is ApiKey.SYNC_GROUP:
            if not self.syncs:
                await asyncio.Event().wait()
            return Answer(error_code=0, assignment=encode_assignment(Assignment(tuple(self.shares.pop(0)))))
        if api is ApiKey.HEARTBEAT and isinstance(self.beat_with, Exception):
            raise self.beat_with
        return Answer(error_code=int(self.beat_with if api is ApiKey.HEARTBEAT else ErrorCode.NONE))

    async def coordinator_request(self, kind, key, api, build, **more):
        await self.pass_by("commit")
        topics = build(9).topics
        self.committed += [
            (TopicPartition(topic.name, each.partition_index), each.committed_offset)
            for topic in topics
            for each in topic.partitions
        ]


@asynccontextmanager
async def _rig(**settings):
    async with asyncio.timeout(1000):
        rig = Rig(**settings)
        try:
            yield rig
        finally:
            rig.member.callbacks = Callbacks()
            await rig.member.leave()


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
@pytest.mark.parametrize("by", ["a poll that does not come", "the coordinator"])
def test_who_was_put_out_of_the_group_between_two_polls_takes_no_old_assignment(by, strategy):
    async def test():
        async with _rig(strategy=strategy) as rig:
            await rig.assigned_in_background(A, B)
            if by == "the coordinator":
                rig.beat_with = ErrorCode.UNKNOWN_MEMBER_ID
                await rig.silence(4, until=ApiKey.HEARTBEAT)
            else:
                await rig.silence(301, until=ApiKey.LEAVE_GROUP)
            rig.shares.append([C])
            await rig.member.step()
            assert rig.told == []
            assert rig.subscription.assignment == frozenset()
            assert rig.member.metadata.generation_id == -1
            await rig.joined()
            await rig.member.step()
            assert rig.told == [("+", [C])]
            assert (rig.member.metadata.generation_id, rig.member.metadata.member_id) == (2, "m-2")

    asyncio.run(test())


def test_what_a_member_had_is_lost_with_a_later_assignment_that_it_did_not_take():
    async def test():
        async with _rig() as rig:
            await rig.poll_until_assigned(A)
            await rig.rebalance(A, B)
            await rig.silence(301, until=ApiKey.LEAVE_GROUP)
            rig.shares.append([])
            await rig.member.step()
            assert rig.told == [("+", [A]), ("!", [A])]
            assert rig.subscription.assignment == frozenset()
            assert rig.member.metadata.generation_id == 1

    asyncio.run(test())


@pytest.mark.parametrize("gate", ["commit", "-", "+"])
def test_what_a_poll_that_is_cut_short_did_not_tell_the_next_one_tells(gate):
    async def test():
        async with _rig(auto_commit=True) as rig:
            await rig.poll_until_assigned(A, B)
            await rig.rebalance(A, C)
            await rig.cut_short(rig.member.step(), gate)
            assert ("-", [B]) in rig.told or rig.subscription.assignment == {A, B}
            rig.shares.append([A, C])
            await rig.member.step()
            assert rig.told == [("+", [A, B]), ("-", [B]), ("+", [C])]
            assert rig.subscription.assignment == {A, C}
            await rig.joined()  # it gave something up for others, so the group rebalances again
            await rig.member.step()
            assert rig.told[3:] == [("+", [])]

    asyncio.run(test())


@pytest.mark.parametrize("gate", ["commit", "-", "+"])
def test_what_a_poll_that_is_cut_short_did_not_tell_is_lost_with_the_generation(gate):
    async def test():
        async with _rig(auto_commit=True) as rig:
            await rig.poll_until_assigned(A, B)
            await rig.rebalance(A, C)
            await rig.cut_short(rig.member.step(), gate)
            await rig.silence(301, until=ApiKey.LEAVE_GROUP)
            rig.shares.append([])
            await rig.member.step()
            told = [("-", [B]), ("!", [A])] if gate == "+" else [("!", [A, B])]
            assert rig.told == [("+", [A, B]), *told]
            assert rig.subscription.assignment == frozenset()

    asyncio.run(test())


def test_what_is_lost_while_the_user_is_told_of_it_is_lost_at_once():
    async def test():
        async with _rig() as rig:
            await rig.assigned_in_background(A)
            rig.may["+"].clear()
            poll = asyncio.create_task(rig.member.step())
            await rig.begun["+"].wait()
            await rig.silence(301, until=ApiKey.LEAVE_GROUP)
            rig.shares.append([])
            rig.may["+"].set()
            await poll
            assert rig.told == [("+", [A]), ("!", [A])]

    asyncio.run(test())


def test_what_is_lost_while_a_join_looks_for_the_coordinator_is_given_up_first():
    async def test():
        async with _rig() as rig:
            await rig.poll_until_assigned(A)
            rig.may["coordinator"].clear()
            rig.member.subscription_changed()
            await rig.member.step()
            await rig.begun["coordinator"].wait()
            rig.beat_with = ErrorCode.UNKNOWN_MEMBER_ID
            await rig.silence(4, until=ApiKey.HEARTBEAT)
            rig.news.clear()
            rig.may["coordinator"].set()
            await rig.news.wait()
            rig.shares.append([C])
            await rig.member.step()
            assert rig.told == [("+", [A]), ("!", [A])]
            await rig.joined()
            await rig.member.step()
            assert rig.told[2:] == [("+", [C])]

    asyncio.run(test())


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
@pytest.mark.parametrize(
    "beat_with", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ConnectionFailed("it does not answer")]
)
def test_an_assignment_that_a_frozen_coordinator_owes_is_waited_for_as_long_as_heartbeats_go_well(strategy, beat_with):
    async def test():
        async with _rig(strategy=strategy) as rig:
            await rig.poll_until_assigned(A)
            rig.syncs = False
            rig.asked[ApiKey.SYNC_GROUP].clear()
            rig.member.subscription_changed()
            await rig.member.step()
            await rig.asked[ApiKey.SYNC_GROUP].wait()
            await rig.silence(4, until=ApiKey.HEARTBEAT)
            assert (rig.generation, rig.member._joining.done()) == (2, False)
            rig.beat_with, rig.syncs = beat_with, True
            rig.asked[ApiKey.HEARTBEAT].clear()
            rig.news.clear()
            rig.shares.append([C])
            await rig.silence(4, until=ApiKey.HEARTBEAT)
            rig.beat_with = ErrorCode.NONE
            async with asyncio.timeout(20):
                while rig.told[-1] != ("+", [C]):
                    await rig.news.wait()
                    rig.news.clear()
                    await rig.member.step()
            assert rig.generation == 3
            assert rig.subscription.assignment == {C}

    asyncio.run(test())


def test_what_was_reached_in_a_topic_that_was_deleted_is_not_committed_in_the_next_of_its_name():
    """The group would go on there, in the midst of records that it has never read."""

    async def test():
        async with _rig(auto_commit=True) as rig:
            await rig.poll_until_assigned(A, B)
            before, now = uuid4(), uuid4()
            rig.describe(before)
            for tp in (A, B):
                rig.subscription.fetched_from(tp, before)
                rig.subscription.consumed(tp, Position(1000))
            await rig.member.offsets.auto_commit()
            assert rig.committed == [(A, 1000), (B, 1000)]
            rig.describe(now)
            rig.subscription.seek(B, Position(3))
            await rig.member.offsets.auto_commit()
            assert rig.committed[2:] == [(B, 3)]

    asyncio.run(test())


@pytest.mark.parametrize("gate", ["commit", "-"])
def test_a_member_whose_leaving_was_cut_short_reads_on_when_it_polls(gate):
    async def test():
        async with _rig(auto_commit=True) as rig:
            await rig.poll_until_assigned(A)
            await rig.cut_short(rig.member.leave(), gate)
            assert rig.subscription.fetchable() == []
            rig.shares.append([A])
            await rig.member.step()
            assert rig.subscription.fetchable() == [A]
            assert rig.told == [("+", [A])]

    asyncio.run(test())


def test_a_member_whose_leaving_was_cut_short_at_its_very_end_is_a_member_again_when_it_polls():
    """Else nobody would send heartbeats for it, and the group would go on without it."""

    async def test():
        async with _rig() as rig:
            await rig.poll_until_assigned(A)
            leaving = asyncio.create_task(rig.member.leave())
            await rig.asked[ApiKey.LEAVE_GROUP].wait()
            leaving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await leaving
            rig.asked[ApiKey.HEARTBEAT].clear()
            await rig.poll_until_assigned(A)
            async with asyncio.timeout(60):
                await rig.silence(4, until=ApiKey.HEARTBEAT)

    asyncio.run(test())
