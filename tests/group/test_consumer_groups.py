"""Consumer groups on a coordinator whose loop jumps from timer to timer, over a log in memory (``group/conftest``)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine
from typing import Any

import pytest
from group.consumer.samples import FakeTopics, join_request
from group.scene import COUNT, GROUP, HOME, TP, Play, Scene
from group.test_pending import commit as commit_in_transaction
from group.test_pending import end as end_transaction
from group.test_runtime_removal import refused_deletion, tombstones

from sparklog.errors import ApiError, ErrorCode
from sparklog.group import metadata_manager
from sparklog.group.classic.group import CommittedOffset, Group, GroupState
from sparklog.group.classic.requests import (
    CommitRequest,
    JoinAnswer,
    LeaveAnswer,
    MemberIdentity,
    SyncAnswer,
    SyncRequest,
)
from sparklog.group.classic.subscriptions import read_assignment, write_assignment
from sparklog.group.consumer.group import ConsumerGroup
from sparklog.group.consumer.records import read_consumer_key
from sparklog.group.consumer.requests import ConsumerAnswer, ConsumerHeartbeat
from sparklog.group.offsets import group_key
from sparklog.record.records import iter_batches, iter_records
from sparklog.structs import TopicPartition
from sparklog.testing.steps import finish

EMPTY: frozenset[Any] = frozenset()
SESSION_S = 45


class Member:
    """A client of the consumer protocol that does as it is told when it is asked to heartbeat."""

    def __init__(self, scene: Scene, member_id: str = "", instance_id: str | None = None) -> None:
        self.scene, self.member_id, self.instance_id = scene, member_id, instance_id
        self.epoch = 0
        self.uses = EMPTY

    async def beat(self, epoch: int | None = None, **said: Any) -> ConsumerAnswer:
        epoch = self.epoch if epoch is None else epoch
        if epoch == 0:
            said = {"rebalance_timeout_ms": 5000, "topics": frozenset({"t"}), "owned": EMPTY, **said}
        request = ConsumerHeartbeat(GROUP, self.member_id, epoch, "c", "/h", self.instance_id, **said)
        answer = await self.scene.groups.members.consumer_heartbeat(request)
        if answer.error is ErrorCode.NONE:
            self.member_id, self.epoch = str(answer.member_id), answer.epoch
            if answer.assigned is not None:
                self.uses = answer.assigned
        return answer

    async def acknowledge(self) -> ConsumerAnswer:
        return await self.beat(owned=self.uses)

    async def commit(self, offset: int = 7, epoch: int | None = None) -> ErrorCode:
        identity = MemberIdentity(self.member_id, None, self.epoch if epoch is None else epoch)
        offsets = {TP: CommittedOffset(offset, -1, "", self.scene.clock.now_ms())}
        request = CommitRequest(identity, offsets, knows_epochs=True)
        return (await self.scene.groups.commit_offsets(GROUP, request))[TP]


class Classic:
    """A cooperative consumer of the classic protocol."""

    def __init__(self, scene: Scene, member_id: str = "") -> None:
        self.scene, self.member_id, self.generation = scene, member_id, -1
        self.uses: frozenset[TopicPartition] = frozenset()

    async def join(self, owned: Any = None) -> JoinAnswer:
        request = join_request(self.member_id, owned=sorted(self.uses) if owned is None else owned)
        answer = await self.scene.groups.members.join(GROUP, request)
        self.member_id, self.generation = answer.member_id or self.member_id, answer.generation
        return answer

    async def sync(self, **assignments: bytes) -> SyncAnswer:
        request = SyncRequest(self.member_id, None, self.generation, "consumer", "cooperative-sticky", assignments)
        answer = await self.scene.groups.members.sync(GROUP, request)
        if answer.error is ErrorCode.NONE:
            self.uses = read_assignment(answer.assignment)
        return answer

    def heartbeat(self) -> ErrorCode:
        return self.scene.groups.members.heartbeat(GROUP, MemberIdentity(self.member_id, None, self.generation))

    async def lead(self, count: int = 6) -> None:
        """Form a classic group by oneself."""
        await self.join()
        every = write_assignment(1, [TopicPartition("t", number) for number in range(count)])
        await self.sync(**{self.member_id: every})
        assert len(self.uses) == count

    async def follow(self) -> None:
        """Do what heartbeats ask for until they ask for nothing."""
        for _ in range(10):
            if self.heartbeat() is ErrorCode.NONE:
                return
            await self.join()
            await self.sync()
        raise AssertionError("it never comes to rest")


def group_of(scene: Scene) -> ConsumerGroup | None:
    return scene.groups.describe_consumer_group(GROUP)[1]


def subjects(scene: Scene) -> list[str]:
    """What the log holds of the consumer group, tombstones with a dagger, batch by batch."""
    found = []
    for batch in scene.store.logs[HOME]:
        records = [each for one in iter_batches(memoryview(batch)) for each in iter_records(one)]
        keys = ((read_consumer_key(each.key), each.value) for each in records)
        found.append(" ".join(key.subject.name + ("" if value else "†") for key, value in keys if key))
    return found


async def two(scene: Scene) -> tuple[Member, Member]:
    one, other = Member(scene), Member(scene)
    await one.beat()
    await other.beat()
    await one.beat()
    await one.acknowledge()
    await other.beat()
    assert (len(one.uses), len(other.uses)) == (3, 3)
    return one, other


class TopicsOfABroker(FakeTopics):
    """What was not looked up under this version is not to be matched on the loop."""

    def __init__(self, **counts: int) -> None:
        super().__init__(**counts)
        self.looked_up: set[tuple[str, int]] = set()

    async def look_up(self, regexes: Collection[str]) -> None:
        await asyncio.sleep(0)
        self.looked_up |= {(regex, self.version) for regex in regexes}

    def matching(self, regex: str) -> frozenset[str]:
        assert (regex, self.version) in self.looked_up
        found: frozenset[str] = super().matching(regex)
        return found


def test_expressions_are_looked_up_before_they_are_matched(play: Play) -> None:
    async def body(scene: Scene) -> None:
        one, other, classic = Member(scene), Member(scene), Classic(scene)
        assert (await one.beat(topics=frozenset(), regex="t.*")).error is ErrorCode.NONE
        assert (await other.beat(topics=frozenset(), regex="t|u")).error is ErrorCode.NONE
        scene.topics.make("t2", 1)
        assert (await one.beat()).error is ErrorCode.NONE
        scene.topics.make("t3", 1)
        assert (await classic.join()).error is ErrorCode.NONE
        scene.topics.make("t4", 1)
        assert (
            await scene.groups.members.leave(GROUP, [MemberIdentity(classic.member_id, None)])
        ).error is ErrorCode.NONE
        scene.topics.make("t5", 1)
        await asyncio.sleep(SESSION_S + 1)
        group = group_of(scene)
        assert group is not None
        assert group.members == {}

    play(body, topics=TopicsOfABroker(t=6))


def test_members_go_whose_time_is_up_though_one_batch_cannot_hold_all_that_changes(play: Play) -> None:
    """Member ids are the clients'. Those that stay would keep their partitions from everybody."""

    async def body(scene: Scene) -> None:
        append = scene.store.append

        def bounded(partition: int, batch: bytes) -> Any:
            if len(batch) > scene.store.takes:
                raise ApiError(ErrorCode.MESSAGE_TOO_LARGE)
            return append(partition, batch)

        scene.store.append = bounded
        for number in range(20):
            assert (await Member(scene, f"{number:02}" + "m" * 32_000).beat()).error is ErrorCode.NONE
        await asyncio.sleep(SESSION_S + 60)
        group = group_of(scene)
        assert group is not None
        assert not group.members

    play(body)


def test_a_silent_member_is_put_out_and_the_others_get_its_part(play: Play) -> None:
    async def body(scene: Scene) -> None:
        one, other = await two(scene)
        for _ in range(6):
            await asyncio.sleep(10)
            await other.beat()
        assert (await one.beat()).error is ErrorCode.UNKNOWN_MEMBER_ID
        await other.beat()
        assert len(other.uses) == 6
        await asyncio.sleep(SESSION_S + 1)
        group = group_of(scene)
        assert group is not None
        assert (group.state.value, group.members) == ("Empty", {})

    play(body)


def test_who_does_not_revoke_in_time_is_put_out(play: Play) -> None:
    async def body(scene: Scene) -> None:
        one, other = Member(scene), Member(scene)
        await one.beat()
        await other.beat()
        await one.beat()
        await asyncio.sleep(4.9)
        assert (await one.beat()).error is ErrorCode.NONE, "heartbeats do not help"
        await asyncio.sleep(0.2)
        assert (await one.beat()).error is ErrorCode.UNKNOWN_MEMBER_ID
        await other.beat()
        assert len(other.uses) == 6

    play(body)


def test_a_group_goes_on_after_a_restart(play: Play) -> None:
    async def body(scene: Scene) -> None:
        one, other = await two(scene)
        assert await one.commit() is ErrorCode.NONE
        again = await scene.restarted()
        assert group_of(again) == group_of(scene)
        one.scene = other.scene = again
        assert (await one.beat()).assigned is None
        assert await one.commit(8) is ErrorCode.NONE
        assert again.offset() == 8
        await asyncio.sleep(SESSION_S + 1)
        assert group_of(again).members == {}

    play(body)


def test_what_cannot_be_written_does_not_happen(play: Play) -> None:
    async def body(scene: Scene) -> None:
        one = Member(scene)
        for error, shown in [
            (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
            (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
            (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
            (ErrorCode.POLICY_VIOLATION, ErrorCode.POLICY_VIOLATION),
        ]:
            scene.store.error = error
            assert (await one.beat()).error is shown
            assert group_of(scene) is None
            assert finish(scene.groups.list_groups()) == (ErrorCode.NONE, [])
        scene.store.error = None
        await one.beat()
        before = group_of(scene)
        scene.store.error = ErrorCode.KAFKA_STORAGE_ERROR
        assert (await one.beat(-1)).error is ErrorCode.NOT_COORDINATOR
        assert (await Member(scene).beat()).error is ErrorCode.NOT_COORDINATOR
        assert group_of(scene) is before
        assert (await one.beat()).error is ErrorCode.NONE, "what writes nothing works"
        await asyncio.sleep(SESSION_S + 1)
        assert group_of(scene) is before
        scene.store.error = None
        await asyncio.sleep(2)
        assert group_of(scene).members == {}

    play(body)


def test_what_may_yet_be_replicated_counts_but_the_member_must_ask_again(play: Play) -> None:
    async def body(scene: Scene) -> None:
        def gate() -> asyncio.Future[None]:
            failed = scene.loop.create_future()
            failed.set_exception(ApiError(ErrorCode.REQUEST_TIMED_OUT))
            return failed

        one = Member(scene, "mine")
        scene.store.gate = gate
        assert (await one.beat()).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        scene.store.gate = None
        assert (await one.beat()).epoch == 1
        assert group_of(await scene.restarted()) == group_of(scene)

    play(body)


def test_a_group_changes_once_at_a_time(play: Play) -> None:
    async def body(scene: Scene) -> None:
        gates: list[asyncio.Future[None]] = []

        def gate() -> asyncio.Future[None]:
            gates.append(scene.loop.create_future())
            return gates[-1]

        scene.store.gate = gate
        members = [Member(scene, f"m{number}") for number in range(3)]
        joins = [asyncio.ensure_future(each.beat()) for each in members]
        for number in range(3):
            await asyncio.sleep(0.1)
            assert len(gates) == number + 1, "the next is decided when the last is written"
            assert len(group_of(scene).members if number else ()) == number
            gates[number].set_result(None)
        assert [(await each).epoch for each in joins] == [1, 2, 3]

    play(body)


def test_who_hangs_up_is_in_the_group_all_the_same(play: Play) -> None:
    async def body(scene: Scene) -> None:
        gate = scene.loop.create_future()
        scene.store.gate = lambda: gate
        join = asyncio.ensure_future(Member(scene, "mine").beat())
        await asyncio.sleep(0.1)
        join.cancel()
        with pytest.raises(asyncio.CancelledError):
            await join
        gate.set_result(None)
        await asyncio.sleep(0.1)
        assert group_of(scene).members.keys() == {"mine"}

    play(body)


async def hold_turn(scene: Scene) -> Callable[[], Coroutine[Any, Any, None]]:
    """The group's turn is held until the result is called."""
    gate = scene.loop.create_future()
    scene.store.gate = lambda: gate
    join = asyncio.ensure_future(Member(scene, "holds the turn").beat())
    await asyncio.sleep(0.1)
    scene.store.gate = None

    async def end() -> None:
        gate.set_result(None)
        await join
        await asyncio.sleep(0.1)

    return end


async def give_up(work: Coroutine[Any, Any, Any]) -> None:
    """The client asks, and hangs up while its request waits for the group's turn."""
    asked = asyncio.ensure_future(work)
    await asyncio.sleep(0.1)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked


def test_who_hangs_up_before_the_groups_turn_was_his_is_forgotten(play: Play) -> None:
    """Else the requests of those who come and go are in memory without an end."""

    async def body(scene: Scene) -> None:
        end_turn = await hold_turn(scene)
        for number in range(50):
            await give_up(Member(scene, f"m{number}").beat(topics=frozenset({"x" * 30_000})))
            await give_up(Classic(scene).join())
        await end_turn()
        assert group_of(scene).members.keys() == {"holds the turn"}

    play(body)


@pytest.mark.parametrize("is_classic", [False, True])
def test_who_leaves_and_hangs_up_has_left_the_group(play: Play, is_classic: bool) -> None:
    async def body(scene: Scene) -> None:
        leaves: Any = Classic(scene, "leaves") if is_classic else Member(scene, "leaves")
        stays = Member(scene, "stays")
        await stays.beat()
        await (leaves.join() if is_classic else leaves.beat())
        end_turn = await hold_turn(scene)
        members = scene.groups.members
        leaving = [MemberIdentity(leaves.member_id, None)]
        await give_up(members.leave(GROUP, leaving) if is_classic else leaves.beat(-1))
        await end_turn()
        assert group_of(scene).members.keys() == {"stays", "holds the turn"}

    play(body)


def test_who_hangs_up_leaves_in_memory_only_so_much_of_his_leave(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_manager, "_KEPT_AT_MOST", 2500)

    async def body(scene: Scene) -> None:
        leaving = [Member(scene, name) for name in "abc"]
        for each in leaving:
            await each.beat()
        for left in ({"c"}, EMPTY):  # what was kept before takes no room
            end_turn = await hold_turn(scene)
            for each in leaving:
                if each.member_id in group_of(scene).members:
                    await give_up(each.beat(-1, topics=frozenset({"x" * 3000})))
            await end_turn()
            assert group_of(scene).members.keys() - {"holds the turn"} == left

    play(body)


def test_a_decision_of_a_coordinator_that_is_no_more_is_not_written(play: Play) -> None:
    async def body(scene: Scene) -> None:
        gate = scene.loop.create_future()
        scene.store.gate = lambda: gate
        first = asyncio.ensure_future(Member(scene, "one").beat())
        second = asyncio.ensure_future(Member(scene, "two").beat())
        await asyncio.sleep(0.1)
        scene.store.gate = None
        await scene.groups.load(HOME)
        gate.set_result(None)
        assert (await first).error is ErrorCode.NONE, "it was written before"
        assert (await second).error is ErrorCode.NONE, "it is decided on what was loaded"
        assert group_of(scene).members.keys() == {"one", "two"}
        assert group_of(await scene.restarted()) == group_of(scene)

    play(body)


def test_offsets_are_committed_in_the_members_epoch(play: Play) -> None:
    async def body(scene: Scene) -> None:
        one = Member(scene)
        assert await one.commit(epoch=3) is ErrorCode.GROUP_ID_NOT_FOUND
        await one.beat()
        assert await one.commit() is ErrorCode.NONE
        assert await one.commit(epoch=0) is ErrorCode.STALE_MEMBER_EPOCH
        fetch = scene.groups.fetch_offsets
        assert fetch(GROUP, [TP], one.member_id, one.epoch)[0] is ErrorCode.NONE
        assert fetch(GROUP, [TP], one.member_id, 9)[0] is ErrorCode.STALE_MEMBER_EPOCH
        assert fetch(GROUP, [TP], "who", 1)[0] is ErrorCode.UNKNOWN_MEMBER_ID

    play(body)


def test_a_group_is_deleted_when_its_members_are_gone(play: Play) -> None:
    async def body(scene: Scene) -> None:
        one = Member(scene)
        await one.beat()
        await one.commit()
        assert await scene.groups.delete_group(GROUP) is ErrorCode.NON_EMPTY_GROUP
        deletion = await scene.groups.delete_offsets(GROUP, [TP])
        assert deletion.partitions == {TP: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}
        await one.beat(-1)
        assert await scene.groups.delete_group(GROUP) is ErrorCode.NONE
        again = await scene.restarted()
        for each in (scene, again):
            assert finish(each.groups.list_groups()) == (ErrorCode.NONE, [])
            assert each.offset() is None
        assert (await one.beat()).error is ErrorCode.UNKNOWN_MEMBER_ID
        one.epoch = 0
        assert (await one.beat()).epoch == 1

    play(body)


def test_offsets_that_nobody_reads_expire_and_the_empty_group_with_them(play: Play) -> None:
    async def body(scene: Scene) -> None:
        one = Member(scene)
        await one.beat()
        await one.commit()
        for _ in range(5):
            await asyncio.sleep(40)
            await one.beat()
        finish(scene.groups.expire_offsets())
        assert scene.offset() == 7, "a member reads the topic"
        await one.beat(-1)
        finish(scene.groups.expire_offsets())
        await asyncio.sleep(0.1)
        assert finish(scene.groups.list_groups()) == (ErrorCode.NONE, [])
        assert finish((await scene.restarted()).groups.list_groups()) == (ErrorCode.NONE, [])

    play(body, offsets_retention_minutes=1)


def test_the_protocol_can_be_switched_off(play: Play) -> None:
    async def body(scene: Scene) -> None:
        assert (await Member(scene).beat()).error is ErrorCode.UNSUPPORTED_VERSION

    play(body, group_coordinator_rebalance_protocols=("classic",))


def test_a_group_of_another_coordinator_or_not_loaded_yet_is_not_touched(play: Play) -> None:
    async def body(scene: Scene) -> None:
        assert (await Member(scene).beat()).error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        scene.store.led.clear()
        assert (await Member(scene).beat()).error is ErrorCode.NOT_COORDINATOR

    play(body, loaded=False)


def test_a_deletion_that_the_log_refused_is_written_later(play: Play) -> None:
    async def body(scene: Scene) -> None:
        member = Member(scene)
        await member.beat()
        await member.beat(epoch=-1)
        await refused_deletion(scene)

    play(body)


async def left_and_not_deleted(scene: Scene) -> None:
    """An empty group whose deletion the log has refused."""
    member = Member(scene)
    await member.beat()
    await member.beat(epoch=-1)
    scene.store.error = ErrorCode.KAFKA_STORAGE_ERROR
    assert await scene.groups.delete_group(GROUP) is not ErrorCode.NONE
    scene.store.error = None


def test_a_classic_group_after_a_refused_deletion_is_not_taken_for_the_deleted_one(play: Play) -> None:
    async def body(scene: Scene) -> None:
        await left_and_not_deleted(scene)
        classic = Classic(scene)
        await classic.lead()
        await asyncio.sleep(9)
        assert classic.heartbeat() is ErrorCode.NONE
        await asyncio.sleep(9)
        again = await scene.restarted()
        assert group_of(again) is None
        found = [each.groups.describe_group(GROUP)[1] for each in (scene, again)]
        assert [group and group.members.keys() for group in found] == [{classic.member_id}] * 2

    play(body)


def test_a_refused_deletion_does_not_overtake_a_group_that_is_being_written(play: Play) -> None:
    async def body(scene: Scene) -> None:
        await left_and_not_deleted(scene)
        gate = scene.loop.create_future()
        scene.store.gate = lambda: gate
        joining = asyncio.ensure_future(Member(scene).beat())
        await asyncio.sleep(15)
        scene.store.gate = None
        gate.set_result(None)
        assert (await joining).error is ErrorCode.NONE
        await asyncio.sleep(15)
        assert group_of(scene) is not None
        assert group_of(await scene.restarted()) == group_of(scene)

    play(body)


def test_members_that_join_around_a_deletion_join_one_group(play: Play) -> None:
    async def body(scene: Scene) -> None:
        first, second, third = Member(scene, "one"), Member(scene, "two"), Member(scene, "three")
        await first.beat()
        gates: list[asyncio.Future[None]] = []

        def gate() -> asyncio.Future[None]:
            gates.append(scene.loop.create_future())
            return gates[-1]

        scene.store.gate = gate
        leaving = asyncio.ensure_future(first.beat(epoch=-1))
        await asyncio.sleep(0.1)
        deleting = asyncio.ensure_future(scene.groups.delete_group(GROUP))
        await asyncio.sleep(0.1)
        joining = [asyncio.ensure_future(second.beat())]
        await asyncio.sleep(0.1)
        gates[0].set_result(None)
        await asyncio.sleep(0.1)
        joining.append(asyncio.ensure_future(third.beat()))
        await asyncio.sleep(0.1)
        scene.store.gate = None
        for each in gates[1:]:
            each.set_result(None)
        assert (await leaving).error is ErrorCode.NONE
        assert await deleting is ErrorCode.NONE
        assert [(await each).error for each in joining] == [ErrorCode.NONE] * 2
        assert group_of(scene).members.keys() == {second.member_id, third.member_id}
        again = await scene.restarted()
        assert group_of(again).members.keys() == {second.member_id, third.member_id}

    play(body)


def test_topics_that_the_broker_has_not_heard_of_yet_are_not_taken_for_deleted(play: Play) -> None:
    async def body(scene: Scene) -> None:
        classic, new = Classic(scene), Member(scene)
        await classic.lead()
        await new.beat()
        await classic.follow()
        await new.beat()
        before = group_of(scene)
        known, scene.topics.described, scene.topics.version = scene.topics.described, {}, 0
        classic.scene = new.scene = again = await scene.restarted()
        assert (await new.beat()).error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert (await classic.join()).error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert (await classic.sync()).error is ErrorCode.REBALANCE_IN_PROGRESS
        left = await again.groups.members.leave(GROUP, [MemberIdentity(classic.member_id, None)])
        assert left.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await asyncio.sleep(SESSION_S + 1)
        assert group_of(again) == before, "nobody could be heard"
        scene.topics.described, scene.topics.version = known, 9
        assert (await new.beat()).error is ErrorCode.NONE
        assert len(new.uses) == 3
        assert new.uses <= group_of(again).members[new.member_id].assigned

    play(body)


# Members of both protocols.


def test_a_new_member_turns_a_classic_group_into_a_consumer_group(play: Play) -> None:
    async def body(scene: Scene) -> None:
        classic, new = Classic(scene), Member(scene)
        await classic.lead()
        assert await scene.commit(5, MemberIdentity(classic.member_id, None, 1)) is ErrorCode.NONE
        await new.beat()
        assert new.uses == EMPTY, "the classic member holds all"
        assert classic.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
        await classic.follow()
        await new.beat()
        assert (len(classic.uses), len(new.uses)) == (3, 3)
        again = await scene.restarted()
        for each in (scene, again):
            assert [type(one) for one in finish(each.groups.list_groups())[1]] == [ConsumerGroup]
            assert each.offset() == 5
            assert each.groups.describe_group(GROUP) == (ErrorCode.NONE, None)
        assert group_of(again) == group_of(scene)
        assert await scene.commit(6, MemberIdentity(classic.member_id, None, 1)) is ErrorCode.ILLEGAL_GENERATION
        assert await scene.commit(6, MemberIdentity(classic.member_id, None, classic.generation)) is ErrorCode.NONE

    play(body)


def test_whoever_waits_in_the_classic_group_is_told_to_join_again(play: Play) -> None:
    async def body(scene: Scene) -> None:
        first, second, new = Classic(scene), Classic(scene), Member(scene)
        await first.lead()
        join = asyncio.ensure_future(second.join())
        await asyncio.sleep(0.1)
        assert scene.state is GroupState.PREPARING_REBALANCE
        await new.beat()
        assert (await join).error is ErrorCode.REBALANCE_IN_PROGRESS
        assert (await second.join()).error is ErrorCode.NONE
        for _ in range(4):
            await first.follow()
            await new.acknowledge()
            await second.sync()
            await second.follow()
        assert sorted(map(len, (first.uses, second.uses, new.uses))) == [2, 2, 2]

    play(body)


@pytest.mark.parametrize("leaves", [True, False], ids=["leaves", "is lost"])
def test_the_last_new_member_that_goes_leaves_a_classic_group(play: Play, leaves: bool) -> None:
    async def body(scene: Scene) -> None:
        classic, new = Classic(scene), Member(scene)
        await classic.lead()
        await new.beat()
        await classic.follow()
        if leaves:
            assert (await new.beat(-1)).error is ErrorCode.NONE
        for _ in range(0 if leaves else 6):
            assert classic.heartbeat() is not ErrorCode.ILLEGAL_GENERATION
            await asyncio.sleep(9)
        assert group_of(scene) is None
        assert scene.state is GroupState.PREPARING_REBALANCE
        found = (await scene.restarted()).groups.describe_group(GROUP)[1]
        assert isinstance(found, Group)
        assert found.members.keys() == {classic.member_id}
        assert read_assignment(found.members[classic.member_id].assignment) == classic.uses
        assert classic.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
        await classic.lead()
        another = Member(scene)
        assert (await another.beat()).error is ErrorCode.NONE, "and back again"
        assert (await another.beat(-1)).error is ErrorCode.NONE
        await classic.lead()
        left = await scene.groups.members.leave(GROUP, [MemberIdentity(classic.member_id, None)])
        assert left == LeaveAnswer(ErrorCode.NONE, (ErrorCode.NONE,))

    play(body)


def test_the_next_coordinator_of_a_group_that_became_classic_calls_for_its_rebalance_too(play: Play) -> None:
    """Else nobody would read what the member that went had."""

    async def body(scene: Scene) -> None:
        classic, new = Classic(scene), Member(scene)
        await classic.lead()
        await new.beat()
        await classic.follow()
        await new.beat()
        await new.beat(-1)
        assert len(classic.uses) == 3
        classic.scene = again = await scene.restarted()
        assert classic.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS, "and it keeps what it has until then"
        await classic.lead()
        classic.scene = await again.restarted()
        assert classic.heartbeat() is ErrorCode.NONE

    play(body)


def test_an_upgrade_that_cannot_be_written_leaves_the_classic_group(play: Play) -> None:
    async def body(scene: Scene) -> None:
        classic, new = Classic(scene), Member(scene)
        await classic.lead()
        scene.store.error = ErrorCode.NOT_ENOUGH_REPLICAS
        assert (await new.beat()).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        scene.store.error = None
        assert group_of(scene) is None
        assert classic.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
        await classic.lead()
        assert scene.state is GroupState.STABLE
        await new.beat()
        assert group_of(scene) is not None

    play(body)


def test_classic_requests_wait_for_an_upgrade_that_is_being_written(play: Play) -> None:
    async def body(scene: Scene) -> None:
        classic, other, new = Classic(scene), Classic(scene), Member(scene)
        await classic.lead()
        gate = scene.loop.create_future()
        scene.store.gate = lambda: gate
        upgrade = asyncio.ensure_future(new.beat())
        await asyncio.sleep(0.1)
        requests: list[Any] = [
            asyncio.ensure_future(each)
            for each in (other.join(), classic.sync(), scene.groups.members.leave(GROUP, []))
        ]
        await asyncio.sleep(0.1)
        assert not any(each.done() for each in (upgrade, *requests))
        scene.store.gate = None
        gate.set_result(None)
        assert (await upgrade).error is ErrorCode.NONE
        joined, synced, left = [await each for each in requests]
        assert (joined.error, left) == (ErrorCode.NONE, LeaveAnswer(ErrorCode.NONE))
        assert synced.error in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS)
        assert group_of(scene).members.keys() == {classic.member_id, other.member_id, new.member_id}

    play(body)


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_the_policy_may_forbid_an_upgrade(play: Play, policy: str) -> None:
    async def body(scene: Scene) -> None:
        classic = Classic(scene)
        await classic.lead()
        assert (await Member(scene).beat()).error is ErrorCode.GROUP_ID_NOT_FOUND
        assert classic.heartbeat() is ErrorCode.NONE, "and nothing happened"

    play(body, group_consumer_migration_policy=policy)


def test_the_policy_may_forbid_a_downgrade(play: Play) -> None:
    async def body(scene: Scene) -> None:
        classic, new = Classic(scene), Member(scene)
        await classic.lead()
        await new.beat()
        await classic.follow()
        await new.beat(-1)
        assert group_of(scene) is not None
        await classic.follow()
        assert len(classic.uses) == 6, "it has one member, of the classic protocol"

    play(body, group_consumer_migration_policy="upgrade")


def test_a_classic_group_of_another_kind_is_not_upgraded(play: Play) -> None:
    async def body(scene: Scene) -> None:
        await scene.join(protocol_type="connect")
        assert (await Member(scene).beat()).error is ErrorCode.GROUP_ID_NOT_FOUND
        other = await scene.restarted()
        await other.join()
        assert (await Member(other).beat()).error is ErrorCode.GROUP_ID_NOT_FOUND, "its subscription is no such thing"

    play(body)


def test_an_empty_group_is_of_whichever_kind_the_next_member_is(play: Play) -> None:
    async def body(scene: Scene) -> None:
        classic, new = Classic(scene), Member(scene)
        await classic.lead()
        await scene.commit(5, MemberIdentity(classic.member_id, None, 1))
        await scene.groups.members.leave(GROUP, [MemberIdentity(classic.member_id, None)])
        await new.beat()
        assert new.epoch == 1
        assert scene.groups.describe_group(GROUP) == (ErrorCode.NONE, None)
        await new.beat(-1)
        classic = Classic(scene)
        await classic.lead()
        assert group_of(scene) is None
        assert scene.offset() == 5
        again = await scene.restarted()
        assert again.state is GroupState.STABLE
        assert group_of(again) is None

    play(body)


def test_a_classic_member_that_does_not_come_back_is_put_out(play: Play) -> None:
    async def body(scene: Scene) -> None:
        classic, new = Classic(scene), Member(scene)
        await new.beat()
        await classic.join()
        await asyncio.sleep(61)
        assert classic.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID, "its session is over"
        classic = Classic(scene)
        new.epoch = 0
        await new.beat()
        await classic.join()
        for _ in range(7):
            assert classic.heartbeat() is not ErrorCode.UNKNOWN_MEMBER_ID
            await new.acknowledge()
            await new.acknowledge()
            await asyncio.sleep(9)
        assert classic.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID, "it never fetched its assignment"

    play(body)


def test_classic_members_are_checked_like_anywhere(play: Play) -> None:
    async def body(scene: Scene) -> None:
        await Member(scene).beat()
        join = scene.groups.members.join
        assert (await join(GROUP, join_request(session_timeout_ms=1))).error is ErrorCode.INVALID_SESSION_TIMEOUT
        mismatch = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert (await join(GROUP, join_request(protocol_type="connect"))).error is mismatch
        assert (await join(GROUP, join_request(protocols=()))).error is mismatch
        named = await join(GROUP, join_request(needs_member_id=True))
        assert named.error is ErrorCode.MEMBER_ID_REQUIRED
        assert (await join(GROUP, join_request(named.member_id, needs_member_id=True))).error is ErrorCode.NONE
        wrong = join_request(named.member_id, protocol_type="connect")
        assert await join(GROUP, wrong) == JoinAnswer(mismatch, named.member_id)
        short = join_request(named.member_id, session_timeout_ms=1)
        assert await join(GROUP, short) == JoinAnswer(ErrorCode.INVALID_SESSION_TIMEOUT, named.member_id)
        assert (await Classic(scene, "stranger").sync()).error is ErrorCode.UNKNOWN_MEMBER_ID
        static = await join(GROUP, join_request(instance_id="i"))
        assert (named.member_id[:2], static.member_id[:2]) == ("c-", "i-")
        again = await join(GROUP, join_request(instance_id="i"))
        assert again.member_id != static.member_id
        fenced = await join(GROUP, join_request(static.member_id, instance_id="i"))
        assert fenced.error is ErrorCode.FENCED_INSTANCE_ID
        errors = await scene.groups.members.leave(GROUP, [MemberIdentity("", "i"), MemberIdentity("who", None)])
        assert errors.members == (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID)

    play(body)


def test_all_partitions_of_the_offsets_topic_are_the_same_to_it(play: Play) -> None:
    async def body(scene: Scene) -> None:
        for number in range(COUNT * 3):
            request = ConsumerHeartbeat(
                f"g{number}", "", 0, "c", "/h", rebalance_timeout_ms=1, topics=frozenset({"t"}), owned=EMPTY
            )
            assert (await scene.groups.members.consumer_heartbeat(request)).epoch == 1
        assert all(scene.store.logs.values())
        assert len(finish((await scene.restarted()).groups.list_groups())[1]) == COUNT * 3

    play(body, topics=FakeTopics(t=1))


def test_the_log_holds_only_what_changed(play: Play) -> None:
    async def body(scene: Scene) -> None:
        one = Member(scene)
        await one.beat()
        await one.beat()
        await one.beat(-1)
        assert subjects(scene) == [
            "MEMBER TOPICS EPOCH TARGET TARGET_EPOCH PROGRESS",
            "PROGRESS† TARGET† MEMBER† TOPICS EPOCH",
        ]
        assert group_key(GROUP) not in tombstones(scene), "it never was a classic one"

    play(body)


@pytest.mark.parametrize("is_left", [True, False], ids=["when it was empty", "with its member"])
def test_a_classic_group_that_was_upgraded_and_deleted_does_not_come_back(play: Play, is_left: bool) -> None:
    async def body(scene: Scene) -> None:
        classic, new = Classic(scene), Member(scene)
        await classic.lead()
        if is_left:
            await scene.groups.members.leave(GROUP, [MemberIdentity(classic.member_id, None)])
        await new.beat()
        if not is_left:
            await scene.groups.members.leave(GROUP, [MemberIdentity(classic.member_id, None)])
        await new.beat(-1)
        assert await scene.groups.delete_group(GROUP) is ErrorCode.NONE
        for each in (scene, await scene.restarted()):
            assert finish(each.groups.list_groups()) == (ErrorCode.NONE, [])

    play(body)


def test_offsets_of_an_open_transaction_stay_unstable_when_the_group_changes_its_kind(play: Play) -> None:
    async def body(scene: Scene) -> None:
        classic, new = Classic(scene), Member(scene)
        await classic.lead()
        assert await commit_in_transaction(scene, 5) is ErrorCode.NONE
        await new.beat()
        assert scene.groups.unstable_offsets(GROUP, [TP]) == {TP}
        await new.beat(-1)
        assert scene.groups.unstable_offsets(GROUP, [TP]) == {TP}
        await end_transaction(scene, commits=True)
        assert scene.groups.unstable_offsets(GROUP, [TP]) == set()
        assert scene.offset() == 5

    play(body)


def test_members_commit_in_a_transaction_in_their_epoch(play: Play) -> None:
    async def body(scene: Scene) -> None:
        one = Member(scene)
        await one.beat()
        who = MemberIdentity(one.member_id, None, one.epoch)
        assert await commit_in_transaction(scene, 5, who) is ErrorCode.NONE
        assert await commit_in_transaction(scene, 5, who._replace(generation=9)) is ErrorCode.ILLEGAL_GENERATION

    play(body)


def test_a_group_with_members_and_no_offsets_is_not_cleaned_away(play: Play) -> None:
    async def body(scene: Scene) -> None:
        await Member(scene, "mine").beat()
        finish(scene.groups.expire_offsets())
        finish(scene.groups.forget_topics([TP]))
        await asyncio.sleep(0.1)
        for each in (scene, await scene.restarted()):
            assert group_of(each).members.keys() == {"mine"}

    play(body)


def test_a_heartbeat_that_changes_something_keeps_the_session_alive(play: Play) -> None:
    async def body(scene: Scene) -> None:
        one = Member(scene)
        await one.beat()
        for number in range(6):
            await asyncio.sleep(SESSION_S - 1)
            assert (await one.beat(topics=frozenset({"t", f"t{number}"}))).error is ErrorCode.NONE

    play(body)


def test_a_heartbeat_that_says_everything_is_told_everything(play: Play) -> None:
    async def body(scene: Scene) -> None:
        one = Member(scene)
        await one.beat()
        assert (await one.beat()).assigned is None
        said = await one.beat(rebalance_timeout_ms=5000, topics=frozenset({"t"}), owned=one.uses)
        assert said.assigned == one.uses
        assert len(one.uses) == 6

    play(body)


def test_a_text_that_no_record_can_hold_is_refused(play: Play) -> None:
    async def body(scene: Scene) -> None:
        for said in ({"rack_id": "r" * 32_768}, {"topics": frozenset({"t" * 32_768})}):
            assert (await Member(scene).beat(**said)).error is ErrorCode.INVALID_REQUEST
        assert (await Member(scene).beat(rack_id="r" * 32_767)).error is ErrorCode.NONE

    play(body)


def test_only_the_assignors_of_the_setting_are_offered_by_either_name(play: Play) -> None:
    async def body(scene: Scene) -> None:
        assert (await Member(scene).beat(assignor="uniform")).error is ErrorCode.UNSUPPORTED_ASSIGNOR
        assert (await Member(scene).beat(assignor="range")).error is ErrorCode.NONE

    play(body, group_consumer_assignors=("org.apache.kafka.coordinator.group.assignor.RangeAssignor",))


def test_a_classic_member_has_its_own_session_timeout(play: Play) -> None:
    async def body(scene: Scene) -> None:
        classic, new = Classic(scene), Member(scene)
        await new.beat()
        await classic.join()
        await classic.sync()
        await asyncio.sleep(9.9)
        assert classic.heartbeat() is not ErrorCode.UNKNOWN_MEMBER_ID
        await asyncio.sleep(10.1)
        assert classic.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID

    play(body)


def test_a_classic_member_that_does_as_it_is_told_is_not_put_out(play: Play) -> None:
    async def body(scene: Scene) -> None:
        classic, new = Classic(scene), Member(scene)
        await new.beat()
        await classic.join()
        await classic.sync()
        for number in range(16):
            if number == 8:
                await new.beat(topics=frozenset({"t", "new"}))
            await new.acknowledge()
            await new.acknowledge()
            await classic.follow()
            await asyncio.sleep(9)
        assert classic.heartbeat() is ErrorCode.NONE
        assert (len(classic.uses), len(new.uses)) == (3, 3)

    play(body)


@pytest.mark.parametrize("what", ["sync", "join"])
def test_a_classic_member_has_its_rebalance_timeout_for_each_step(play: Play, what: str) -> None:
    async def body(scene: Scene) -> None:
        new, classic = Member(scene), Classic(scene)
        await new.beat()
        request = join_request(session_timeout_ms=30_000, rebalance_timeout_ms=3_000)
        joined = await scene.groups.members.join(GROUP, request)
        classic.member_id, classic.generation = joined.member_id, joined.generation
        if what == "join":
            await classic.sync()
            await new.beat(topics=frozenset({"t", "new"}))
            await new.acknowledge()
            assert classic.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
        await asyncio.sleep(2.9)
        assert classic.member_id in group_of(scene).members
        await asyncio.sleep(0.2)
        assert classic.member_id not in group_of(scene).members

    play(body)


def waiting_requests(scene: Scene, classic: Classic, other: Classic) -> list[asyncio.Task[Any]]:
    """A classic member's, and another's that wants to be one."""
    who = MemberIdentity("stranger", None)
    return [
        asyncio.ensure_future(each) for each in (other.join(), classic.sync(), scene.groups.members.leave(GROUP, [who]))
    ]


def test_classic_requests_that_waited_for_an_upgrade_that_failed_are_the_classic_groups(play: Play) -> None:
    async def body(scene: Scene) -> None:
        classic, other, new = Classic(scene), Classic(scene), Member(scene)
        await classic.lead()
        gate = scene.loop.create_future()
        scene.store.gate = lambda: gate
        upgrade = asyncio.ensure_future(new.beat())
        await asyncio.sleep(0.1)
        joining, syncing, leaving = waiting_requests(scene, classic, other)
        await asyncio.sleep(0.1)
        scene.store.gate = None
        gate.set_exception(ApiError(ErrorCode.NOT_ENOUGH_REPLICAS))
        assert (await upgrade).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (await syncing).error is ErrorCode.REBALANCE_IN_PROGRESS
        assert await leaving == LeaveAnswer(ErrorCode.NONE, (ErrorCode.UNKNOWN_MEMBER_ID,))
        await classic.join()
        assert (await joining).generation == classic.generation == 2

    play(body)


def test_classic_requests_that_waited_for_an_upgrade_follow_the_group_to_another_broker(play: Play) -> None:
    async def body(scene: Scene) -> None:
        classic, other, new = Classic(scene), Classic(scene, "mine"), Member(scene)
        await classic.lead()
        gate = scene.loop.create_future()
        scene.store.gate = lambda: gate
        upgrade = asyncio.ensure_future(new.beat())
        await asyncio.sleep(0.1)
        requests = waiting_requests(scene, classic, other)
        await asyncio.sleep(0.1)
        scene.groups.unload(HOME)
        scene.store.led.discard(HOME)
        gate.set_result(None)
        await asyncio.wait([upgrade])
        away = ErrorCode.NOT_COORDINATOR
        assert await asyncio.gather(*requests) == [JoinAnswer(away, "mine"), SyncAnswer(away), LeaveAnswer(away)]

    play(body)


@pytest.mark.parametrize("is_led", [True, False])
def test_a_session_that_ends_while_an_upgrade_is_written_ends_when_that_has_failed(
    play: Play, is_led: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def body(scene: Scene) -> None:
        classic, new = Classic(scene), Member(scene)
        await classic.lead()
        gate = scene.loop.create_future()
        scene.store.gate = lambda: gate
        upgrade = asyncio.ensure_future(new.beat())
        await asyncio.sleep(11)
        _, group = scene.groups.describe_group(GROUP)
        assert group is not None
        assert group.members.keys() == {classic.member_id}, "nobody else changes it meanwhile"
        scene.store.gate = None
        if not is_led:
            scene.groups.unload(HOME)
            scene.store.led.discard(HOME)
        gate.set_exception(ApiError(ErrorCode.NOT_ENOUGH_REPLICAS))
        await asyncio.wait([upgrade])
        await asyncio.sleep(0.1)
        assert scene.state is (GroupState.EMPTY if is_led else None)

    play(body)
    assert not any(each.exc_info for each in caplog.records)


def test_a_request_that_fails_in_the_middle_is_told_to_the_log(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    failure = OSError("odd")

    async def body(scene: Scene) -> None:
        def broken(name: str) -> Any:
            raise failure

        scene.topics.topic = broken
        with pytest.raises(OSError, match="odd"):
            await Member(scene).beat()
        await asyncio.sleep(0.1)
        assert [each.exc_info[1] for each in caplog.records if each.exc_info] == [failure]

    play(body)
