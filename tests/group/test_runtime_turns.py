"""A coordinator that shares the loop: long work lets others have it, and what they do meanwhile counts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from group.scene import GROUP, HOME, Play, Scene
from group.test_consumer_groups import Member

from sparklog.errors import ErrorCode
from sparklog.group.classic.group import CommittedOffset, GroupState
from sparklog.group.classic.requests import CommitRequest, LeaveAnswer, MemberIdentity, TransactionalCommit
from sparklog.group.consumer.records import read_consumer_key
from sparklog.group.members import _SLICE
from sparklog.group.offsets import read_key
from sparklog.net.turns import SHARE_S
from sparklog.record.control import ProducerIdAndEpoch
from sparklog.record.records import iter_batches, iter_records
from sparklog.structs import TopicPartition
from sparklog.testing.clock import ManualClock
from sparklog.testing.steps import finish

MANY = 400
A_TURN = 5
"""How many steps one turn of the loop has at most, where each takes a share."""
PARTITIONS = [TopicPartition("t", number) for number in range(MANY)]


def slow(scene: Scene) -> None:
    """From now on whatever is done between two looks at the clock takes a share of the loop's time."""
    turns = scene.groups._groups.turns

    def later() -> float:
        scene.clock.advance(SHARE_S)
        return ManualClock.monotonic(scene.clock)

    turns.time = later


def offsets(value: int = 1) -> CommitRequest:
    committed = {tp: CommittedOffset(value, -1, "", 0) for tp in PARTITIONS}
    return CommitRequest(MemberIdentity("", None, -1), committed, knows_epochs=True)


async def looks(work: Any) -> tuple[int, Any]:
    """How often others had the loop before the work was done, and its result."""
    task, number = asyncio.ensure_future(work), 0
    while not task.done():
        number += 1
        await asyncio.sleep(0)
    return number, task.result()


def logged(scene: Scene) -> list[list[bytes]]:
    """The keys of each batch in the group's log."""
    return [
        [bytes(each.key or b"") for each in iter_records(batch)]
        for log in scene.store.logs[HOME]
        for batch in iter_batches(log)
    ]


def test_a_large_commit_is_one_batch_and_lets_others_have_the_loop(play: Play) -> None:
    async def body(scene: Scene) -> None:
        slow(scene)
        number, errors = await looks(scene.groups.commit_offsets(GROUP, offsets()))
        assert number >= MANY // A_TURN
        assert errors == dict.fromkeys(PARTITIONS, ErrorCode.NONE)
        assert [len(batch) for batch in logged(scene)] == [MANY]
        assert scene.offset(PARTITIONS[-1]) == 1

    play(body)


def test_nothing_of_a_commit_counts_before_all_of_it(play: Play) -> None:
    async def body(scene: Scene) -> None:
        slow(scene)
        task = asyncio.ensure_future(scene.groups.commit_offsets(GROUP, offsets()))
        seen = set()
        while not task.done():
            seen.add(sum(scene.offset(tp) is not None for tp in PARTITIONS))
            await asyncio.sleep(0)
        assert seen | {MANY} == {0, MANY}

    play(body)


def test_a_commit_is_refused_if_the_group_got_members_while_it_was_made_ready(play: Play) -> None:
    async def body(scene: Scene) -> None:
        slow(scene)
        task = asyncio.ensure_future(scene.groups.commit_offsets(GROUP, offsets()))
        await asyncio.sleep(0)
        await Member(scene).beat()
        errors = await task
        assert set(errors.values()) == {ErrorCode.UNKNOWN_MEMBER_ID}
        assert not [key for batch in logged(scene) for key in batch if read_key(key)]
        assert scene.offset(PARTITIONS[0]) is None

    play(body)


@pytest.mark.parametrize("in_transaction", [False, True])
def test_what_is_deleted_while_a_commit_is_made_ready_is_left_out(play: Play, in_transaction: bool) -> None:
    async def body(scene: Scene) -> None:
        slow(scene)
        asked = offsets()._replace(deletion_epoch=scene.groups.deletion_epoch)
        if in_transaction:
            request = TransactionalCommit(ProducerIdAndEpoch(7, 0), asked, lambda _: ErrorCode.NONE)
            task = asyncio.ensure_future(scene.groups.commit_in_transaction(GROUP, request))
        else:
            task = asyncio.ensure_future(scene.groups.commit_offsets(GROUP, asked))
        deleted = [PARTITIONS[0], PARTITIONS[-1]]
        for each in deleted:  # the second one while the batch without the first is made
            for _ in range(MANY // A_TURN):
                await asyncio.sleep(0)
            assert not task.done()
            finish(scene.groups.forget_topics([each]))
        errors = await task
        assert {tp for tp, error in errors.items() if error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION} == {*deleted}
        assert {errors[tp] for tp in PARTITIONS[1:-1]} == {ErrorCode.NONE}
        assert [len(batch) for batch in logged(scene)] == [MANY - len(deleted)]
        scene.groups.end_transaction(HOME, 7, True)
        assert [tp for tp in PARTITIONS if scene.offset(tp) is None] == deleted
        assert scene.groups.unstable_offsets(GROUP, PARTITIONS) == set()

    play(body)


def test_a_group_is_deleted_whole_with_what_was_committed_meanwhile(play: Play) -> None:
    async def body(scene: Scene) -> None:
        await scene.groups.commit_offsets(GROUP, offsets())
        slow(scene)
        task = asyncio.ensure_future(scene.groups.delete_group(GROUP))
        seen, number, late = set(), 0, TopicPartition("t", MANY + 1)
        while scene.groups._groups.find(GROUP) is not None:
            seen.add(sum(scene.offset(tp) is not None for tp in PARTITIONS))
            if number == 3:
                assert await scene.commit(9, tp=late) is ErrorCode.NONE
            number += 1
            await asyncio.sleep(0)
        assert (seen, number >= MANY // A_TURN) == ({MANY}, True)
        assert await task is ErrorCode.NONE
        restarted = await scene.restarted()
        assert restarted.groups.fetch_offsets(GROUP, None) == (ErrorCode.NONE, {})

    play(body)


def test_a_member_that_joins_a_group_while_it_is_deleted_joins_a_new_one(play: Play) -> None:
    async def body(scene: Scene) -> None:
        await scene.groups.commit_offsets(GROUP, offsets())
        slow(scene)
        deleting = asyncio.ensure_future(scene.groups.delete_group(GROUP))
        await asyncio.sleep(0)
        answer = await Member(scene).beat()
        assert (await deleting, answer.error) == (ErrorCode.NONE, ErrorCode.NONE)
        assert scene.offset(PARTITIONS[0]) is None
        restarted = await scene.restarted()
        assert restarted.offset(PARTITIONS[0]) is None
        assert len(restarted.groups.describe_consumer_group(GROUP)[1].members) == 1

    play(body)


def test_of_two_deletions_at_once_the_second_finds_nothing(play: Play) -> None:
    async def body(scene: Scene) -> None:
        await scene.groups.commit_offsets(GROUP, offsets())
        slow(scene)
        answers = await asyncio.gather(*(scene.groups.delete_group(GROUP) for _ in range(2)))
        assert answers == [ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND]

    play(body)


def test_a_deletion_is_dropped_if_another_broker_leads_by_then(play: Play) -> None:
    async def body(scene: Scene) -> None:
        await scene.groups.commit_offsets(GROUP, offsets())
        slow(scene)
        before = logged(scene)
        deleting = asyncio.ensure_future(scene.groups.delete_group(GROUP))
        for _ in range(A_TURN):
            await asyncio.sleep(0)
        scene.groups.unload(HOME)
        assert await deleting is ErrorCode.NOT_COORDINATOR
        assert logged(scene) == before

    play(body)


def test_many_members_leave_a_slice_at_a_time(play: Play) -> None:
    async def body(scene: Scene) -> None:
        joined = await scene.join()
        slow(scene)
        strangers = [MemberIdentity(f"stranger-{number}", None) for number in range(10 * MANY)]
        leaving = [*strangers, MemberIdentity(joined.member_id, None), *strangers]
        number, answer = await looks(scene.groups.members.leave(GROUP, leaving))
        assert number >= 20 * MANY / _SLICE
        assert answer.error is ErrorCode.NONE
        assert [place for place, error in enumerate(answer.members) if error is ErrorCode.NONE] == [len(strangers)]
        assert set(answer.members) == {ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID}
        assert len(answer.members) == len(leaving)
        assert scene.state is not GroupState.STABLE

    play(body)


def test_members_that_leave_hear_if_another_broker_leads_meanwhile(play: Play) -> None:
    async def body(scene: Scene) -> None:
        joined = await scene.join()
        slow(scene)
        strangers = [MemberIdentity(f"stranger-{number}", None) for number in range(10 * MANY)]
        leaving = [MemberIdentity(joined.member_id, None), *strangers]
        task = asyncio.ensure_future(scene.groups.members.leave(GROUP, leaving))
        while scene.groups.members.heartbeat(GROUP, leaving[0]) is not ErrorCode.UNKNOWN_MEMBER_ID:
            await asyncio.sleep(0)
        scene.store.led.clear()
        assert await task == LeaveAnswer(ErrorCode.NOT_COORDINATOR)

    play(body)


def test_who_heartbeats_while_a_member_joins_is_answered_as_before(play: Play) -> None:
    """A look at the group during the decision sees the whole of what was before, and one after it all that is new."""

    async def body(scene: Scene) -> None:
        scene.topics.make("t", MANY)
        first = Member(scene)
        await first.beat()
        before = scene.groups.describe_consumer_group(GROUP)[1]
        slow(scene)
        second, third = Member(scene), Member(scene)
        joining = asyncio.ensure_future(second.beat()), asyncio.ensure_future(third.beat())
        answers = 0
        while scene.groups.describe_consumer_group(GROUP)[1] is before:
            answer = await first.beat()
            assert (answer.error, answer.epoch, answer.assigned) == (ErrorCode.NONE, 1, None)
            answers += 1
            await asyncio.sleep(0)
        assert answers >= MANY // 2 // A_TURN, "moves are made one a step"
        epochs = [answer.epoch for answer in await asyncio.gather(*joining)]
        assert epochs == [2, 3], "one change after the other"
        held = [each.held for each in scene.groups.describe_consumer_group(GROUP)[1].members.values()]
        assert sum(map(len, held)) == len(frozenset().union(*held)) == MANY

    play(body)


def test_a_group_that_comes_to_rest_step_by_step_is_in_the_log(play: Play) -> None:
    async def body(scene: Scene) -> None:
        scene.topics.make("t", MANY)
        slow(scene)
        members = [Member(scene) for _ in range(4)]
        await asyncio.gather(*(each.beat() for each in members))
        for _ in range(4):
            await asyncio.gather(*(each.acknowledge() for each in members))
        assert sorted(len(each.uses) for each in members) == [MANY // 4] * 4
        assert len(frozenset().union(*(each.uses for each in members))) == MANY
        restarted = await scene.restarted()
        now, then = (each.groups.describe_consumer_group(GROUP)[1] for each in (scene, restarted))
        assert now == then

    play(body)


def test_a_change_of_another_leader_is_not_written(play: Play) -> None:
    async def body(scene: Scene) -> None:
        await Member(scene).beat()
        slow(scene)
        before = logged(scene)
        joining = asyncio.ensure_future(Member(scene).beat())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        scene.groups.unload(HOME)
        assert (await joining).error is ErrorCode.NOT_COORDINATOR
        assert logged(scene) == before
        assert all(read_consumer_key(key) for batch in before for key in batch)

    play(body)
