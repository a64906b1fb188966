"""What the coordinator forgets: on demand, with its topic, with time; in memory and in the log."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from group.scene import ANONYMOUS, COUNT, GROUP, HOME, OTHER, TP, Play, Scene, one_member
from group.test_pending import commit as commit_in_transaction
from group.test_pending import end as end_transaction

from sparklog.errors import ApiError, ErrorCode
from sparklog.group.classic.group import CommittedOffset, GroupState, Protocol
from sparklog.group.classic.requests import CommitRequest, MemberIdentity
from sparklog.group.offsets import group_key, offset_key, partition_for
from sparklog.record.records import iter_batches, iter_records
from sparklog.structs import TopicPartition
from sparklog.testing.steps import counted, finish

TO_T = (Protocol("range", bytes.fromhex("0000 00000001 0001 74 ffffffff")),)
TO_NOTHING = (Protocol("range", bytes.fromhex("0000 00000000 ffffffff")),)
RETENTION_S = 60.0


def partition_of(group_id: str) -> int:
    return partition_for(group_id, COUNT)


def tombstones(scene: Scene) -> list[bytes]:
    """The keys that the log takes back, in order."""
    batches = [batch for each in scene.store.logs[HOME] for batch in iter_batches(memoryview(each))]
    return [each.key or b"" for batch in batches for each in iter_records(batch) if each.value is None]


async def left_group(scene: Scene) -> None:
    """A group with two offsets, whose only member has left."""
    member = await one_member(scene)
    for tp in (TP, OTHER):
        assert await scene.commit(3, member, tp) is ErrorCode.NONE
    await scene.groups.members.leave(GROUP, [member])
    assert scene.state is GroupState.EMPTY
    await asyncio.sleep(0)


async def is_forgotten(scene: Scene) -> bool:
    """Whether neither this coordinator nor the next knows the group."""
    again = await scene.restarted()
    known = [finish(each.groups.list_groups())[1] for each in (scene, again)]
    assert bool(known[0]) == bool(known[1]), "memory and log disagree"
    return not any(known)


def test_a_deletion_that_a_full_disk_refused_is_written_when_there_is_room(play: Play) -> None:
    async def body(scene: Scene) -> None:
        await left_group(scene)
        await refused_deletion(scene)

    play(body)


async def refused_deletion(scene: Scene) -> None:
    """Delete the group while the log refuses all. The deletion is written when the log takes it again, and once."""
    before = tombstones(scene)
    scene.store.error = ErrorCode.KAFKA_STORAGE_ERROR
    assert await scene.groups.delete_group(GROUP) is not ErrorCode.NONE
    await asyncio.sleep(60)
    assert tombstones(scene) == before
    scene.store.error = None
    await asyncio.sleep(60)
    written = tombstones(scene)
    assert await is_forgotten(scene)
    await asyncio.sleep(60)
    assert tombstones(scene) == written != before


def test_what_is_committed_after_a_refused_deletion_stays(play: Play) -> None:
    async def body(scene: Scene) -> None:
        await left_group(scene)
        scene.store.error = ErrorCode.KAFKA_STORAGE_ERROR
        assert await scene.groups.delete_group(GROUP) is not ErrorCode.NONE
        scene.store.error = None
        assert await scene.commit(7, ANONYMOUS, TP) is ErrorCode.NONE
        await asyncio.sleep(60)
        assert tombstones(scene) == [offset_key(GROUP, OTHER), group_key(GROUP)]
        again = await scene.restarted()
        for each in (scene, again):
            assert each.groups.fetch_offsets(GROUP, None)[1].keys() == {TP}

    play(body)


@pytest.mark.parametrize("counts", [True, False])
@pytest.mark.parametrize("in_transaction", [True, False])
def test_a_refused_deletion_waits_for_what_is_being_committed(play: Play, in_transaction: bool, counts: bool) -> None:
    async def body(scene: Scene) -> None:
        await scene.commit(3)
        scene.store.error = ErrorCode.KAFKA_STORAGE_ERROR
        assert (await scene.groups.delete_offsets(GROUP, [TP])).partitions != {TP: ErrorCode.NONE}
        scene.store.error = None
        if in_transaction:
            await commit_in_transaction(scene, 5)
        else:
            gate = gated(scene)
            commit = asyncio.ensure_future(scene.commit(5))
        await asyncio.sleep(60)
        assert tombstones(scene) == []
        if in_transaction:
            await end_transaction(scene, commits=counts)
        else:
            scene.store.gate = None
            if counts:
                gate.set_result(None)
            else:
                gate.set_exception(ApiError(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND))
            await commit
        await asyncio.sleep(60)
        assert tombstones(scene) == ([] if counts else [offset_key(GROUP, TP)])
        expected = 5 if counts else None
        assert (scene.offset(), (await scene.restarted()).offset()) == (expected, expected)

    play(body)


def test_a_deleted_group_is_gone_with_its_offsets(play: Play) -> None:
    async def body(scene: Scene) -> None:
        await left_group(scene)
        assert await scene.groups.delete_group(GROUP) is ErrorCode.NONE
        assert scene.groups.describe_group(GROUP) == (ErrorCode.NONE, None)
        assert sorted(tombstones(scene)) == sorted([offset_key(GROUP, TP), offset_key(GROUP, OTHER), group_key(GROUP)])
        assert await is_forgotten(scene)
        assert await scene.groups.delete_group(GROUP) is ErrorCode.GROUP_ID_NOT_FOUND
        assert (await scene.join()).generation == 1, "and it may begin anew"

    play(body)


def test_offsets_without_a_group_are_deleted_as_one(play: Play) -> None:
    async def body(scene: Scene) -> None:
        await scene.commit(1)
        assert await scene.groups.delete_group(GROUP) is ErrorCode.NONE
        assert tombstones(scene) == [offset_key(GROUP, TP)], "the log has no group to take back"
        assert await is_forgotten(scene)

    play(body)


def test_a_group_with_members_is_not_deleted(play: Play) -> None:
    async def body(scene: Scene) -> None:
        await one_member(scene)
        assert await scene.groups.delete_group(GROUP) is ErrorCode.NON_EMPTY_GROUP
        assert scene.state is GroupState.STABLE
        scene.store.led.discard(HOME)
        assert await scene.groups.delete_group(GROUP) is ErrorCode.NOT_COORDINATOR

    play(body)


def test_a_deletion_that_cannot_be_written_is_told(play: Play) -> None:
    async def body(scene: Scene) -> None:
        await left_group(scene)
        scene.store.error = ErrorCode.NOT_ENOUGH_REPLICAS
        assert await scene.groups.delete_group(GROUP) is ErrorCode.COORDINATOR_NOT_AVAILABLE

    play(body)


def gated(scene: Scene) -> asyncio.Future[None]:
    """Whatever is appended from now on is replicated when this is set."""
    gate: asyncio.Future[None] = scene.loop.create_future()
    scene.store.gate = lambda: gate
    return gate


@pytest.mark.parametrize("how", ["group", "offset", "topic"])
def test_a_commit_under_way_does_not_outlive_a_deletion(play: Play, how: str) -> None:
    async def body(scene: Scene) -> None:
        gate = gated(scene)
        commit = asyncio.ensure_future(scene.commit(7))
        await asyncio.sleep(0.1)
        if how == "group":
            deletion: Any = asyncio.ensure_future(scene.groups.delete_group(GROUP))
        elif how == "offset":
            deletion = asyncio.ensure_future(scene.groups.delete_offsets(GROUP, [TP]))
        else:
            finish(scene.groups.forget_topics([TP]))
        await asyncio.sleep(0.1)
        gate.set_result(None)
        assert await commit is ErrorCode.NONE
        if how != "topic":
            await deletion
        assert scene.offset() is None
        assert (await scene.restarted()).offset() is None
        scene.store.gate = None
        assert await scene.commit(8) is ErrorCode.NONE
        assert (scene.offset(), (await scene.restarted()).offset()) == (8, 8)

    play(body)


def test_a_commit_after_a_deletion_outlives_it_however_many_offsets_went(play: Play) -> None:
    async def body(scene: Scene) -> None:
        tps = [TopicPartition("x" * 200, number) for number in range(2000)]  # more than one batch of tombstones
        offsets = dict.fromkeys([*tps, TP], CommittedOffset(1, 3, "md", scene.clock.now_ms()))
        await scene.groups.commit_offsets(GROUP, CommitRequest(ANONYMOUS, offsets))
        gate = gated(scene)
        deletion = asyncio.ensure_future(scene.groups.delete_group(GROUP))
        await asyncio.sleep(0.1)
        commits = [asyncio.ensure_future(scene.commit(8, tp=tp)) for tp in (*tps[:1], *tps[-1:], TP)]
        await asyncio.sleep(0.1)
        gate.set_result(None)
        await asyncio.gather(deletion, *commits)
        again = await scene.restarted()
        for tp in (tps[0], tps[-1], TP):
            assert (scene.offset(tp), again.offset(tp)) == (8, 8)

    play(body)


def test_offsets_are_deleted_but_not_what_members_read(play: Play) -> None:
    async def body(scene: Scene) -> None:
        reader = await scene.join(protocols=TO_T)
        await scene.sync(reader, c_1=b"all")
        who = MemberIdentity(reader.member_id, None, 1)
        await scene.commit(1, who)
        deletion = await scene.groups.delete_offsets(GROUP, [TP])
        assert deletion == (ErrorCode.NONE, {TP: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC})
        again = await scene.restarted()
        assert await again.groups.delete_offsets(GROUP, [TP]) == deletion, "a restart knows what the members read"
        await scene.groups.members.leave(GROUP, [who])
        await asyncio.sleep(0)
        await scene.commit(2, tp=OTHER)
        assert await scene.groups.delete_offsets(GROUP, [TP]) == (ErrorCode.NONE, {TP: ErrorCode.NONE})
        assert (scene.offset(TP), scene.offset(OTHER)) == (None, 2)
        assert scene.state is GroupState.EMPTY
        assert await scene.groups.delete_offsets(GROUP, [OTHER]) == (ErrorCode.NONE, {OTHER: ErrorCode.NONE})
        assert await is_forgotten(scene)
        assert await scene.groups.delete_offsets(GROUP, [TP]) == (ErrorCode.GROUP_ID_NOT_FOUND, {})
        assert await scene.groups.delete_offsets("", [TP]) == (ErrorCode.INVALID_GROUP_ID, {})

    play(body)


def test_offsets_go_with_their_topic_even_those_that_members_read(play: Play) -> None:
    async def body(scene: Scene) -> None:
        reader = await scene.join(protocols=TO_T)
        await scene.sync(reader, c_1=b"all")
        for tp in (TP, OTHER):
            await scene.commit(1, MemberIdentity(reader.member_id, None, 1), tp)
        finish(scene.groups.forget_topics([TP]))
        await asyncio.sleep(0)
        assert (scene.offset(TP), scene.offset(OTHER)) == (None, 1)
        assert tombstones(scene) == [offset_key(GROUP, TP)]
        assert scene.state is GroupState.STABLE

    play(body)


def test_a_topic_deleted_while_the_groups_are_loaded_takes_its_offsets_too(play: Play) -> None:
    async def body(scene: Scene) -> None:
        for tp in (TP, OTHER):
            await scene.commit(1, tp=tp)
        again = Scene(scene.loop, scene.clock, scene.store, 0)
        loading = [asyncio.ensure_future(again.groups.load(each)) for each in range(COUNT)]
        await asyncio.sleep(0)
        assert not loading[HOME].done()
        finish(again.groups.forget_topics([TP]))
        await asyncio.gather(*loading)
        assert (again.offset(TP), again.offset(OTHER)) == (None, 1)
        await again.groups.close()
        assert tombstones(scene) == [offset_key(GROUP, TP)]

    play(body)


@pytest.mark.parametrize("ends", ["before", "in between"])
def test_a_topic_deleted_during_a_load_takes_its_offsets_too_if_the_groups_are_loaded_again(
    play: Play, ends: str
) -> None:
    async def body(scene: Scene) -> None:
        tps = await commit_many(scene, 1001)
        again = Scene(scene.loop, scene.clock, scene.store, 0)
        for each in range(COUNT):
            if each != HOME:
                await again.groups.load(each)
        loading = asyncio.ensure_future(again.groups.load(HOME))
        await asyncio.sleep(0)
        finish(again.groups.forget_topics(tps[1:]))
        while ends == "in between" and not tombstones(scene):
            await asyncio.sleep(0)
        assert len(tombstones(scene)) <= MOST_A_STEP
        await again.groups.load(HOME)
        await loading
        assert [tp for tp in tps if again.offset(tp) is not None] == tps[:1]
        assert sorted(tombstones(scene)) == sorted(offset_key(GROUP, tp) for tp in tps[1:])

    play(body)


def test_a_topic_deleted_while_the_groups_come_back_takes_its_offsets_too(play: Play) -> None:
    async def body(scene: Scene) -> None:
        others = [each for each in (f"g{number}" for number in range(2000)) if scene.groups.partition_for(each) == HOME]
        request = CommitRequest(ANONYMOUS, {TP: CommittedOffset(1, -1, "", scene.clock.now_ms())})
        for each in others:
            assert await scene.groups.commit_offsets(each, request) == {TP: ErrorCode.NONE}
        steps = scene.groups.forget_topics([TP])
        while not tombstones(scene):
            next(steps)
        assert len(tombstones(scene)) < len(others)
        await scene.groups.load(HOME)
        finish(steps)
        await asyncio.sleep(0.1)
        assert sorted(tombstones(scene)) == sorted(offset_key(each, TP) for each in others)

    play(body)


def test_a_topic_deleted_while_more_groups_come_takes_their_offsets_too(play: Play) -> None:
    async def body(scene: Scene) -> None:
        elsewhere = next(each for each in map(str, range(100)) if scene.groups.partition_for(each) != HOME)
        await commit_many(scene, 1, elsewhere)
        assert await scene.commit(1) is ErrorCode.NONE
        again = Scene(scene.loop, scene.clock, scene.store, 0)
        await again.groups.load(scene.groups.partition_for(elsewhere))
        steps = again.groups.forget_topics([TP])
        next(steps)
        await again.groups.load(HOME)
        assert again.offset() == 1
        finish(steps)
        assert again.offset() is None
        await again.groups.close()
        assert tombstones(scene) == [offset_key(GROUP, TP)]

    play(body)


def test_until_a_deleted_topic_is_forgotten_no_offset_is_taken_under_its_name(play: Play) -> None:
    """It would be forgotten with the others, though its topic was made since."""

    async def body(scene: Scene) -> None:
        async def commit() -> ErrorCode:
            offsets = {TP: CommittedOffset(8, -1, "", scene.clock.now_ms())}
            request = CommitRequest(ANONYMOUS, offsets, deletion_epoch=scene.groups.deletion_epoch)
            return (await scene.groups.commit_offsets(GROUP, request))[TP]

        for each in [each for each in (f"g{number}" for number in range(2000)) if partition_of(each) == HOME]:
            await commit_many(scene, 1, each)
        assert await scene.commit(1) is ErrorCode.NONE
        steps = scene.groups.forget_topics([TP])
        while not tombstones(scene):
            next(steps)
        assert scene.offset() == 1, "its turn has not come"
        assert await commit() is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        finish(steps)
        assert scene.offset() is None
        assert await commit() is ErrorCode.NONE
        assert (scene.offset(), (await scene.restarted()).offset()) == (8, 8)

    play(body)


async def commit_many(scene: Scene, count: int, group_id: str = GROUP) -> list[TopicPartition]:
    tps = [TopicPartition("t", number) for number in range(count)]
    offsets = dict.fromkeys(tps, CommittedOffset(1, -1, "", scene.clock.now_ms()))
    assert set((await scene.groups.commit_offsets(group_id, CommitRequest(ANONYMOUS, offsets))).values()) == {
        ErrorCode.NONE
    }
    return tps


MOST_A_STEP = 200


@pytest.mark.parametrize("why", ["they expire", "their topic is deleted"])
def test_of_a_group_with_many_offsets_some_go_in_a_step(play: Play, why: str) -> None:
    async def body(scene: Scene) -> None:
        tps = await commit_many(scene, 1001)
        if why == "they expire":
            await asyncio.sleep(RETENTION_S)
        gone = 0
        for _ in scene.groups.expire_offsets() if why == "they expire" else scene.groups.forget_topics(tps[1:]):
            before, gone = gone, len(tombstones(scene))
            assert 0 <= gone - before <= MOST_A_STEP
        await asyncio.sleep(0.1)
        doomed = tps if why == "they expire" else tps[1:]
        assert sorted(tombstones(scene)) == sorted(offset_key(GROUP, tp) for tp in doomed)
        again = await scene.restarted()
        for each in (scene, again):
            assert each.offset(tps[0]) == (None if why == "they expire" else 1)
            assert [each.offset(tp) for tp in tps[1:]] == [None] * 1000

    play(body, offsets_retention_minutes=1)


def test_a_commit_between_two_steps_keeps_its_offset_from_expiring(play: Play) -> None:
    async def body(scene: Scene) -> None:
        tps = await commit_many(scene, 1000)
        await asyncio.sleep(RETENTION_S)
        steps = scene.groups.expire_offsets()
        while not tombstones(scene):
            next(steps)
        assert await scene.commit(2, tp=tps[0]) is ErrorCode.NONE, "it had gone"
        assert await scene.commit(2, tp=tps[-1]) is ErrorCode.NONE, "it was to go"
        finish(steps)
        await asyncio.sleep(0.1)
        again = await scene.restarted()
        for each in (scene, again):
            assert [tp for tp in tps if each.offset(tp) is not None] == [tps[0], tps[-1]]

    play(body, offsets_retention_minutes=1)


class Asked(TopicPartition):
    """A partition that counts how often it is looked up."""

    times = 0

    def __hash__(self) -> int:
        Asked.times += 1
        return super().__hash__()


def test_a_group_costs_no_look_at_each_deleted_partition(play: Play) -> None:
    async def body(scene: Scene) -> None:
        others = [f"g{number}" for number in range(100)]
        for each in others:
            await commit_many(scene, 1, each)
        deleted = [Asked("u", number) for number in range(1000)]
        Asked.times = 0
        finish(scene.groups.forget_topics(deleted))
        assert Asked.times < 10 * len(deleted)
        assert len(finish(scene.groups.list_groups())[1]) == len(others)

    play(body)


@pytest.mark.parametrize("ends", ["with the load", "in between"])
def test_what_went_while_many_offsets_were_loaded_goes_some_a_turn(play: Play, ends: str) -> None:
    async def body(scene: Scene) -> None:
        tps = await commit_many(scene, 1001)
        again = Scene(scene.loop, scene.clock, scene.store, 0)
        loading = [asyncio.ensure_future(again.groups.load(each)) for each in range(COUNT)]
        await asyncio.sleep(0)
        finish(again.groups.forget_topics(tps[2:]))
        gone = 0
        while not loading[HOME].done():
            await asyncio.sleep(0)
            before, gone = gone, len(tombstones(scene))
            assert 0 <= gone - before <= MOST_A_STEP
            if before == 0 and gone:
                finish(again.groups.forget_topics(tps[1:2]))  # another one, before the first is through
                if ends == "in between":
                    again.groups.unload(HOME)
            if not loading[HOME].done() and ends == "with the load":
                assert again.groups.fetch_offsets(GROUP, None)[0] is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await asyncio.gather(*loading)
        if ends == "in between":
            assert 0 < len(tombstones(scene)) <= MOST_A_STEP, "whoever leads next writes there, nobody else"
            return
        assert sorted(tombstones(scene)) == sorted(offset_key(GROUP, tp) for tp in tps[1:])
        for each in (again, await scene.restarted()):
            assert [tp for tp in tps if each.offset(tp) is not None] == tps[:1]

    play(body)


def test_an_empty_groups_offsets_expire_a_while_after_the_last_member_left(play: Play) -> None:
    async def body(scene: Scene) -> None:
        member = await one_member(scene)
        await scene.commit(3, member)
        for _ in range(10):
            await asyncio.sleep(9)
            assert scene.groups.members.heartbeat(GROUP, member) is ErrorCode.NONE
        finish(scene.groups.expire_offsets())
        assert scene.offset() == 3, "whoever is there keeps it"
        await scene.groups.members.leave(GROUP, [member])
        await asyncio.sleep(RETENTION_S - 1)
        finish(scene.groups.expire_offsets())
        again = await scene.restarted()
        finish(again.groups.expire_offsets())
        assert (scene.offset(), again.offset()) == (3, 3)
        await asyncio.sleep(1)
        finish(scene.groups.expire_offsets())
        await asyncio.sleep(0)
        assert tombstones(scene) == [offset_key(GROUP, TP), group_key(GROUP)]
        assert await is_forgotten(scene)

    play(body, offsets_retention_minutes=1)


def test_a_stable_groups_offsets_of_topics_that_it_no_longer_reads_expire(play: Play) -> None:
    async def body(scene: Scene) -> None:
        reader = await scene.join(protocols=TO_NOTHING, session_timeout_ms=1_800_000)
        await scene.sync(reader, c_1=b"all")
        await scene.commit(1, MemberIdentity(reader.member_id, None, 1))
        await asyncio.sleep(RETENTION_S)
        finish(scene.groups.expire_offsets())
        await asyncio.sleep(0)
        assert (scene.offset(), scene.state) == (None, GroupState.STABLE)

    play(body, offsets_retention_minutes=1)


def test_a_member_about_to_come_keeps_an_empty_group(play: Play) -> None:
    async def body(scene: Scene) -> None:
        await left_group(scene)
        await asyncio.sleep(RETENTION_S)
        pending = await scene.join(needs_member_id=True)
        finish(scene.groups.expire_offsets())
        assert scene.state is GroupState.EMPTY
        assert (await scene.join(pending.member_id)).generation == 3

    play(body, offsets_retention_minutes=1)


def test_an_offset_is_unstable_while_a_commit_of_it_is_under_way(play: Play) -> None:
    async def body(scene: Scene) -> None:
        await scene.commit(1)
        gate = gated(scene)
        commit = asyncio.ensure_future(scene.commit(2))
        await asyncio.sleep(0.1)
        assert scene.groups.unstable_offsets(GROUP, [TP, OTHER]) == {TP}
        gate.set_result(None)
        await commit
        assert scene.groups.unstable_offsets(GROUP, [TP, OTHER]) == set()
        scene.store.error = ErrorCode.NOT_ENOUGH_REPLICAS
        assert await scene.commit(3) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert scene.groups.unstable_offsets(GROUP, [TP]) == set()

    play(body)


def test_a_commit_that_fails_leaves_no_group_behind(play: Play) -> None:
    async def body(scene: Scene) -> None:
        scene.store.error = ErrorCode.NOT_ENOUGH_REPLICAS
        assert await scene.commit(3, ANONYMOUS) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert finish(scene.groups.list_groups()) == (ErrorCode.NONE, [])

    play(body)


@pytest.mark.parametrize("why", ["they expire", "their topic is deleted"])
def test_the_offsets_of_several_groups_go_at_once(play: Play, why: str) -> None:
    async def body(scene: Scene) -> None:
        others = [each for each in (f"g{number}" for number in range(200)) if scene.groups.partition_for(each) == HOME]
        request = CommitRequest(ANONYMOUS, {TP: CommittedOffset(1, -1, "", scene.clock.now_ms())})
        for each in others:
            assert await scene.groups.commit_offsets(each, request) == {TP: ErrorCode.NONE}
        if why == "they expire":
            await asyncio.sleep(RETENTION_S)
        going = scene.groups.expire_offsets() if why == "they expire" else scene.groups.forget_topics([TP])
        steps, _ = counted(going)
        assert 1 <= steps < len(others), "of some groups a step"
        await asyncio.sleep(0.1)
        assert tombstones(scene) == [offset_key(each, TP) for each in others]
        assert await is_forgotten(scene)

    play(body, offsets_retention_minutes=1)
