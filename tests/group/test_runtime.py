"""The coordinator on a loop that jumps from timer to timer, over a log in memory (both from ``conftest``)."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest
from group.scene import ANONYMOUS, COUNT, GROUP, HOME, OTHER, TP, Play, Scene, one_member

from sparklog.errors import ErrorCode, LogError
from sparklog.group import members, runtime
from sparklog.group.classic.group import CommittedOffset, Group, GroupState, Protocol
from sparklog.group.classic.machine import MOST_OF_GROUP
from sparklog.group.classic.requests import CommitRequest, JoinAnswer, MemberIdentity, SyncRequest
from sparklog.group.offsets import partition_for
from sparklog.testing.steps import counted, finish


def test_two_members_form_a_group(play: Play) -> None:
    async def body(scene: Scene) -> None:
        started = scene.clock.monotonic()
        first, second = await asyncio.gather(scene.join(), scene.join())
        assert scene.clock.monotonic() - started == pytest.approx(6, abs=0.01), "delayed once, and once more"
        assert (first.generation, second.generation, first.leader) == (1, 1, first.member_id)
        follower = asyncio.ensure_future(scene.sync(second))
        leader = await scene.sync(first, c_1=b"a", c_2=b"b")
        assert (leader.assignment, (await follower).assignment) == (b"a", b"b")
        assert scene.state is GroupState.STABLE
        identity = MemberIdentity(first.member_id, None, 1)
        assert scene.groups.members.heartbeat(GROUP, identity) is ErrorCode.NONE

    play(body, delay_ms=3000)


def test_a_member_that_falls_silent_is_removed_and_the_group_stored_empty(play: Play) -> None:
    async def body(scene: Scene) -> None:
        member = await one_member(scene)
        await asyncio.sleep(9.9)
        assert scene.groups.members.heartbeat(GROUP, member) is ErrorCode.NONE
        await asyncio.sleep(9.9)
        assert scene.state is GroupState.STABLE
        await asyncio.sleep(0.2)
        assert scene.state is GroupState.EMPTY
        assert scene.groups.members.heartbeat(GROUP, member) is ErrorCode.UNKNOWN_MEMBER_ID
        again = await scene.restarted()
        _, group = again.groups.describe_group(GROUP)
        assert group is not None
        assert (group.generation, group.state, group.members) == (2, GroupState.EMPTY, {})
        assert group.state_timestamp_ms == pytest.approx(scene.clock.now_ms() - 100, abs=5)

    play(body)


def test_offsets_and_members_survive_a_restart(play: Play) -> None:
    async def body(scene: Scene) -> None:
        member = await one_member(scene)
        assert await scene.commit(42, member) is ErrorCode.NONE
        assert await scene.commit(43, member) is ErrorCode.NONE
        again = await scene.restarted()
        assert again.offset() == 43
        _, found = again.groups.fetch_offsets(GROUP, None)
        assert found == {TP: CommittedOffset(43, 3, "md", scene.clock.now_ms())}
        assert again.groups.members.heartbeat(GROUP, member) is ErrorCode.NONE
        assert await again.commit(44, member) is ErrorCode.NONE
        await asyncio.sleep(10.1)
        assert again.state is GroupState.EMPTY, "a loaded member has a session like any other"

    play(body)


def test_an_offset_is_visible_only_once_it_is_replicated(play: Play) -> None:
    async def body(scene: Scene) -> None:
        gates: list[asyncio.Future[None]] = []

        def gate() -> asyncio.Future[None]:
            gates.append(scene.loop.create_future())
            return gates[-1]

        scene.store.gate = gate
        first = asyncio.ensure_future(scene.commit(1))
        second = asyncio.ensure_future(scene.commit(2))
        await asyncio.sleep(0.1)
        assert len(gates) == 2
        assert scene.offset() is None
        gates[1].set_result(None)
        assert await second is ErrorCode.NONE
        gates[0].set_result(None)
        assert await first is ErrorCode.NONE
        assert scene.offset() == 2, "the later commit wins, whichever was replicated first"

    play(body)


def test_a_commit_whose_client_hangs_up_counts_when_it_is_replicated(play: Play) -> None:
    async def body(scene: Scene) -> None:
        gate = scene.loop.create_future()
        scene.store.gate = lambda: gate
        commit = asyncio.ensure_future(scene.commit(7))
        await asyncio.sleep(0.1)
        commit.cancel()
        with pytest.raises(asyncio.CancelledError):
            await commit
        gate.set_result(None)
        await asyncio.sleep(0.1)
        assert scene.offset() == 7

    play(body)


def test_a_commit_that_fails_changes_nothing(play: Play) -> None:
    async def body(scene: Scene) -> None:
        assert await scene.commit(1) is ErrorCode.NONE
        for error, shown in [
            (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
            (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
            (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
            (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT),
        ]:
            scene.store.error = error
            assert await scene.commit(2) is shown
        assert scene.offset() == 1

    play(body)


def test_metadata_that_is_too_long_costs_only_its_own_offset(play: Play) -> None:
    async def body(scene: Scene) -> None:
        offsets = {TP: CommittedOffset(1, -1, "x" * 11, 0), OTHER: CommittedOffset(2, -1, "x" * 10, 0)}
        errors = await scene.groups.commit_offsets(GROUP, CommitRequest(ANONYMOUS, offsets))
        assert errors == {TP: ErrorCode.OFFSET_METADATA_TOO_LARGE, OTHER: ErrorCode.NONE}
        assert (scene.offset(TP), scene.offset(OTHER)) == (None, 2)
        offsets.pop(OTHER)
        await scene.groups.commit_offsets(GROUP, CommitRequest(ANONYMOUS, offsets))
        assert len(scene.store.logs[HOME]) == 1, "nothing was left to write"

    play(body)


def test_who_may_not_commit(play: Play) -> None:
    async def body(scene: Scene) -> None:
        assert await scene.commit(1, MemberIdentity("m", None, 3)) is ErrorCode.ILLEGAL_GENERATION
        assert await scene.commit(1, MemberIdentity("m", None, 0)) is ErrorCode.ILLEGAL_GENERATION
        await one_member(scene)
        assert await scene.commit(1) is ErrorCode.UNKNOWN_MEMBER_ID
        assert scene.offset() is None

    play(body)


def test_groups_of_a_topic_that_was_given_more_partitions_are_named(
    play: Play, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = next(each for each in range(COUNT + 1, COUNT + 9) if partition_for(GROUP, each) != HOME)

    async def body(scene: Scene) -> None:
        await scene.commit(7)
        await scene.restarted()
        assert not caplog.records
        monkeypatch.setattr(type(scene.store), "partition_count", count)
        await scene.restarted()

    play(body)
    (said,) = [each.getMessage() for each in caplog.records]
    assert said.startswith(f"__consumer_offsets-{HOME} holds what 1 group(s) have committed")
    assert f"looked for in other partitions: {GROUP}. The topic has {count} partitions" in said


def test_while_a_partition_loads_its_groups_say_so(play: Play) -> None:
    async def body(scene: Scene) -> None:
        assert (await scene.join()).error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await scene.load()
        await one_member(scene)
        again = Scene(scene.loop, scene.clock, scene.store, 0)
        loading = asyncio.ensure_future(again.groups.load(HOME))
        await asyncio.sleep(0)
        assert not loading.done()
        assert await again.commit(1) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert again.groups.fetch_offsets(GROUP, None) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, {})
        assert finish(again.groups.list_groups()) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])
        assert again.groups.members.heartbeat(GROUP, MemberIdentity("c-1", None, 1)) is ErrorCode.NONE
        assert (await again.sync(JoinAnswer(ErrorCode.NONE, "c-1", 1))).error is ErrorCode.REBALANCE_IN_PROGRESS
        await loading
        assert again.state is GroupState.STABLE
        await again.groups.close()

    play(body, loaded=False)


def test_a_load_is_given_up_when_leadership_goes_again(play: Play) -> None:
    async def body(scene: Scene) -> None:
        await one_member(scene)
        loading = asyncio.ensure_future(scene.groups.load(HOME))
        await asyncio.sleep(0)
        scene.groups.unload(HOME)
        await loading
        assert (await scene.join()).error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await asyncio.sleep(11)
        assert len(scene.store.logs[HOME]) == 1, "no session of the group that was not loaded may expire"

    play(body)


def test_a_load_that_fails_can_be_tried_again(play: Play) -> None:
    async def body(scene: Scene) -> None:
        async def broken(partition: int) -> AsyncIterator[memoryview]:
            raise LogError("disk")
            yield memoryview(b"")

        read, scene.store.read = scene.store.read, broken
        with pytest.raises(LogError):
            await scene.groups.load(HOME)
        assert await scene.commit(1) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        scene.store.read = read
        await scene.groups.load(HOME)
        assert await scene.commit(1) is ErrorCode.NONE

    play(body)


def test_whoever_waits_when_leadership_goes_is_sent_away(play: Play) -> None:
    async def body(scene: Scene) -> None:
        joining = asyncio.ensure_future(scene.join())
        await asyncio.sleep(1)
        scene.store.led.discard(HOME)
        scene.groups.unload(HOME)
        assert (await joining).error is ErrorCode.NOT_COORDINATOR
        assert await scene.join("c-1") == JoinAnswer(ErrorCode.NOT_COORDINATOR, "c-1")
        assert await scene.groups.delete_group(GROUP) is ErrorCode.NOT_COORDINATOR
        assert scene.groups.describe_consumer_group(GROUP) == (ErrorCode.NOT_COORDINATOR, None)
        assert await scene.commit(1) is ErrorCode.NOT_COORDINATOR
        assert scene.groups.describe_group(GROUP) == (ErrorCode.NOT_COORDINATOR, None)
        answer = await scene.groups.members.leave(GROUP, [ANONYMOUS])
        assert answer == (ErrorCode.NOT_COORDINATOR, ())

    play(body, delay_ms=3000)


def names_of(scene: Scene, count: int) -> list[str]:
    """So many groups of the partition ``HOME``."""
    names = (f"g{number}" for number in itertools.count())
    return list(itertools.islice((each for each in names if scene.groups.partition_for(each) == HOME), count))


def test_many_groups_that_wait_when_leadership_goes_are_sent_away_some_at_a_time(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "_SLICE", 2)

    async def body(scene: Scene) -> None:
        joining = [asyncio.ensure_future(scene.join(group_id=each)) for each in names_of(scene, 7)]
        await asyncio.sleep(1)
        groups = [group for group in finish(scene.groups.list_groups())[1] if isinstance(group, Group)]
        scene.store.led.discard(HOME)
        scene.groups.unload(HOME)
        assert sum(each.state is GroupState.DEAD for each in groups) == 2
        assert {(await each).error for each in joining} == {ErrorCode.NOT_COORDINATOR}
        assert all(each.state is GroupState.DEAD for each in groups)

    play(body, delay_ms=3000)


def test_many_groups_are_listed_some_a_step(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "_SLICE", 2)

    async def body(scene: Scene) -> None:
        names = names_of(scene, 7)
        request = CommitRequest(ANONYMOUS, {TP: CommittedOffset(1, -1, "", scene.clock.now_ms())})
        for each in names:
            await scene.groups.commit_offsets(each, request)
        steps, (error, groups) = counted(scene.groups.list_groups())
        assert (steps, error, [each.group_id for each in groups]) == (3, ErrorCode.NONE, names)

    play(body)


def test_groups_are_all_sent_away_before_the_coordinator_is_closed(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "_SLICE", 2)

    async def body(scene: Scene) -> None:
        joining = [asyncio.ensure_future(scene.join(group_id=each)) for each in names_of(scene, 7)]
        await asyncio.sleep(1)
        await scene.groups.close()
        assert {(await each).error for each in joining} == {ErrorCode.NOT_COORDINATOR}

    play(body, delay_ms=3000)


@pytest.mark.parametrize("turns", range(12))
def test_a_topic_deleted_while_groups_are_taken_in_takes_its_offsets_too(
    play: Play, monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    monkeypatch.setattr(runtime, "_SLICE", 1)

    async def body(scene: Scene) -> None:
        request = CommitRequest(ANONYMOUS, {tp: CommittedOffset(1, -1, "", scene.clock.now_ms()) for tp in (TP, OTHER)})
        names = names_of(scene, 7)
        for each in names:
            await scene.groups.commit_offsets(each, request)
        again = Scene(scene.loop, scene.clock, scene.store, 0)
        loading = asyncio.ensure_future(again.groups.load(HOME))
        for _ in range(turns):
            await asyncio.sleep(0)
        finish(again.groups.forget_topics([TP]))
        await loading
        found = [again.groups.fetch_offsets(each, None)[1] for each in names]
        assert [[*each] for each in found] == ([[OTHER]] * 7 if turns else [[TP, OTHER]] * 7)
        await again.groups.close()

    play(body)


def test_an_assignment_under_way_when_leadership_goes_is_dropped(play: Play) -> None:
    async def body(scene: Scene) -> None:
        answer = await scene.join()
        gate = scene.loop.create_future()
        scene.store.gate = lambda: gate
        syncing = asyncio.ensure_future(scene.sync(answer, c_1=b"all"))
        await asyncio.sleep(1)
        scene.groups.unload(HOME)
        assert (await syncing).error is ErrorCode.NOT_COORDINATOR
        gate.set_result(None)
        await asyncio.sleep(1)
        assert finish(scene.groups.list_groups()) == (ErrorCode.NONE, [])

    play(body)


def test_an_assignment_that_cannot_be_stored(play: Play) -> None:
    async def body(scene: Scene) -> None:
        answer = await scene.join()
        scene.store.error = ErrorCode.NOT_ENOUGH_REPLICAS
        assert (await scene.sync(answer)).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        scene.store.error = None
        again = await scene.join(answer.member_id)
        assert again.generation == 2
        assert (await scene.sync(again, c_1=b"all")).assignment == b"all"

    play(body)


def test_a_join_whose_client_hangs_up_does_not_hurt_the_others(play: Play) -> None:
    async def body(scene: Scene) -> None:
        gone, stays = asyncio.ensure_future(scene.join()), asyncio.ensure_future(scene.join())
        await asyncio.sleep(1)
        gone.cancel()
        assert (await stays).generation == 1

    play(body, delay_ms=3000)


def test_a_static_member_returns_after_a_restart_without_a_rebalance(play: Play) -> None:
    async def body(scene: Scene) -> None:
        answer = await scene.join(instance_id="i")
        request = SyncRequest(answer.member_id, "i", 1, None, None, {answer.member_id: b"all"})
        await scene.groups.members.sync(GROUP, request)
        back = await scene.join(instance_id="i", can_skip_assignment=True)
        assert (back.generation, back.skip_assignment) == (1, True)
        again = await scene.restarted()
        _, group = again.groups.describe_group(GROUP)
        assert group is not None
        assert group.instances == {"i": back.member_id}
        assert group.members[back.member_id].assignment == b"all"
        stranger = await again.join(back.member_id, instance_id="j")
        assert stranger.error is ErrorCode.UNKNOWN_MEMBER_ID
        third = await again.join(instance_id="i", can_skip_assignment=True)
        assert (third.error, third.generation, third.leader) == (ErrorCode.NONE, 1, third.member_id)
        assert (await again.sync(third, "i")).assignment == b"all"
        fenced = again.groups.members.heartbeat(GROUP, MemberIdentity(back.member_id, "i", 1))
        assert fenced is ErrorCode.FENCED_INSTANCE_ID

    play(body)


def test_groups_that_came_to_nothing_are_forgotten(play: Play) -> None:
    async def body(scene: Scene) -> None:
        assert (await scene.join("stranger")).error is ErrorCode.UNKNOWN_MEMBER_ID
        assert finish(scene.groups.list_groups()) == (ErrorCode.NONE, [])
        assert await scene.groups.delete_group(GROUP) is ErrorCode.GROUP_ID_NOT_FOUND
        pending = await scene.join(needs_member_id=True)
        assert pending.error is ErrorCode.MEMBER_ID_REQUIRED
        assert [each.group_id for each in finish(scene.groups.list_groups())[1]] == [GROUP]
        await asyncio.sleep(11)
        assert finish(scene.groups.list_groups()) == (ErrorCode.NONE, [])

    play(body)


def test_a_timer_is_brought_nearer_when_something_is_due_earlier(play: Play) -> None:
    async def body(scene: Scene) -> None:
        await scene.sync(await scene.join(session_timeout_ms=1_800_000), c_1=b"all")
        await scene.join(needs_member_id=True)
        _, group = scene.groups.describe_group(GROUP)
        assert group is not None
        assert len(group.pending) == 1
        await asyncio.sleep(11)
        assert group.pending == {}

    play(body)


def test_a_commit_and_a_join_at_once_meet_in_one_group(play: Play) -> None:
    async def body(scene: Scene) -> None:
        commit = asyncio.ensure_future(scene.commit(5))
        await asyncio.sleep(0)
        answer = await scene.join()
        await commit
        assert (await scene.sync(answer, c_1=b"all")).error is ErrorCode.NONE
        assert (scene.offset(), scene.state) == (5, GroupState.STABLE)

    play(body)


@pytest.mark.parametrize(
    ("group_id", "fields", "error"),
    [
        ("", {}, ErrorCode.INVALID_GROUP_ID),
        ("g" * 32_768, {}, ErrorCode.INVALID_GROUP_ID),
        (GROUP, {"instance_id": "é" * 20_000}, ErrorCode.INVALID_REQUEST),
        (GROUP, {"protocols": (Protocol("p" * 32_768, b""),)}, ErrorCode.INVALID_REQUEST),
        (GROUP, {"protocol_type": "p" * 32_767}, ErrorCode.NONE),
    ],
)
def test_names_that_no_record_can_hold_are_refused(
    play: Play, group_id: str, fields: dict[str, Any], error: ErrorCode
) -> None:
    async def body(scene: Scene) -> None:
        assert (await scene.join(group_id=group_id, **fields)).error is error

    play(body)


MB = 1 << 20


async def leave(scene: Scene, group_id: str, answer: Any) -> None:
    who = MemberIdentity(answer.member_id, None, -1)
    await scene.groups.members.leave(group_id, [who])


def large(size: int) -> dict[str, Any]:
    return {"protocols": (Protocol("range", bytes(size)),)}


def test_made_up_groups_have_so_much_memory_together(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    """Each of any number of groups could have 4 MB, for half an hour."""

    async def body(scene: Scene) -> None:
        first = await scene.join(group_id="a", **large(MB // 2))
        assert first.error is ErrorCode.NONE
        for each in "bcd":
            refused = await scene.join(group_id=each, **large(MB // 2 + 1))
            assert refused.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "clients try again after that"
        assert [each.getMessage().partition(" bytes")[0] for each in caplog.records] == [
            f"the members of the groups that this broker coordinates tell {MB // 2 + len('a' + 'c-1' + 'c' + 'range')}"
        ]
        again = await scene.join(first.member_id, "a", **large(MB // 2))
        assert again.error is ErrorCode.NONE, "a member that tells no more than before has its room"
        assert (await scene.join(group_id="e", **large(1000))).error is ErrorCode.NONE
        await leave(scene, "a", again)
        assert (await scene.join(group_id="b", **large(MB // 2 + 1))).error is ErrorCode.NONE

    play(body, group_members_max_bytes=MB)


def test_assignments_count_as_memory_and_members_that_have_no_room_for_theirs_join_anew(play: Play) -> None:
    async def body(scene: Scene) -> None:
        answer = await scene.join()
        refused = await scene.sync(answer, c_1=bytes(MB))
        assert refused.error is ErrorCode.REBALANCE_IN_PROGRESS
        assert (await scene.sync(answer, c_1=bytes(MB - 1000))).error is ErrorCode.NONE
        refused = await scene.join(group_id="b", **large(1000))
        assert refused.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        again = await scene.restarted()
        assert (await again.join(group_id="b", **large(1000))).error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        again.groups.unload(HOME)
        other = next(each for each in "bcdefgh" if partition_for(each, COUNT) != HOME)
        assert (await again.join(group_id=other, **large(1000))).error is ErrorCode.NONE, "gone with the partition"
        await again.groups.close()

    play(body, group_members_max_bytes=MB)


def test_assignments_that_no_record_can_hold_are_refused_before_they_are_copied(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the log would refuse them; the record of 15 MB took 20 ms to be made and checked."""

    async def body(scene: Scene) -> None:
        answer = await scene.join()
        scene.store.takes, before = 1000, scene.store.logs[HOME][:]
        monkeypatch.setattr(members, "group_record", None)
        assert (await scene.sync(answer, c_1=bytes(1001))).error is ErrorCode.UNKNOWN_SERVER_ERROR
        assert scene.store.logs[HOME] == before
        assert scene.state is GroupState.PREPARING_REBALANCE
        monkeypatch.undo()
        answer = await scene.join(answer.member_id)
        assert (await scene.sync(answer, c_1=bytes(1000))).error is ErrorCode.NONE

    play(body)


def test_ids_that_were_given_out_count_as_memory(play: Play) -> None:
    async def body(scene: Scene) -> None:
        for number in range(40):
            answer = await scene.join(group_id=f"g{number}", client_id="c" * 30_000, needs_member_id=True)
            known = answer.error is ErrorCode.MEMBER_ID_REQUIRED
            assert known == (number < 33), number

    play(body, group_members_max_bytes=MB)


def test_a_group_is_as_large_as_its_leader_can_be_told_at_once(play: Play) -> None:
    """And no larger, for all of it is in one answer, and could be in no record."""

    async def body(scene: Scene) -> None:
        first = await scene.join(**large(MOST_OF_GROUP // 2))
        refused = await scene.join(**large(MOST_OF_GROUP // 2))
        assert refused.error is ErrorCode.GROUP_MAX_SIZE_REACHED
        assert (await scene.join(first.member_id, **large(MOST_OF_GROUP // 2))).error is ErrorCode.NONE

    play(body)


def test_offsets_may_be_kept_under_the_empty_id(play: Play) -> None:
    async def body(scene: Scene) -> None:
        request = CommitRequest(ANONYMOUS, {TP: CommittedOffset(1, -1, "", 0)})
        assert await scene.groups.commit_offsets("", request) == {TP: ErrorCode.NONE}
        assert scene.groups.fetch_offsets("", [TP])[1][TP] == CommittedOffset(1, -1, "", 0)
        gate = scene.loop.create_future()
        scene.store.gate = lambda: gate
        committing = asyncio.ensure_future(scene.groups.commit_offsets("", request))
        await asyncio.sleep(0.1)
        assert scene.groups.unstable_offsets("", [TP]) == {TP}
        scene.store.gate = None
        gate.set_result(None)
        await committing
        error, group = scene.groups.describe_group("")
        assert (error, group and group.state) == (ErrorCode.NONE, GroupState.EMPTY)
        assert await scene.groups.delete_group("") is ErrorCode.NONE
        assert scene.groups.fetch_offsets("", [TP])[1][TP] is None

    play(body)


def test_a_broker_that_allows_smaller_groups_makes_them_smaller(play: Play) -> None:
    async def body(scene: Scene) -> None:
        member = await one_member(scene)
        second = asyncio.ensure_future(scene.join())
        await asyncio.sleep(0)
        first = await scene.join(member.member_id)
        follower = asyncio.ensure_future(scene.sync(await second))
        await scene.sync(first)
        assert (await follower).error is ErrorCode.NONE
        again = await scene.restarted(group_max_size=1)
        assert again.state is GroupState.PREPARING_REBALANCE
        rejoining = asyncio.ensure_future(again.join(first.member_id))
        await asyncio.sleep(0)
        assert (await again.join((await second).member_id)).error is ErrorCode.GROUP_MAX_SIZE_REACHED
        assert (await rejoining).generation == 3
        await again.groups.close()

    play(body)


@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "later"])
def test_whoever_waits_is_answered_whatever_the_log_does(play: Play, at_once: bool) -> None:
    async def body(scene: Scene) -> None:
        async def fail() -> None:
            raise OSError("odd")

        def broken(partition: int, batch: bytes) -> Any:
            if at_once:
                raise OSError("odd")
            return fail()

        answer = await scene.join()
        scene.store.append = broken
        assert (await scene.sync(answer, c_1=b"all")).error is ErrorCode.UNKNOWN_SERVER_ERROR
        assert await scene.commit(1, MemberIdentity(answer.member_id, None, 1)) is ErrorCode.UNKNOWN_SERVER_ERROR

    play(body)


def test_a_static_member_whose_id_is_new_is_no_stranger_to_the_next_coordinator(play: Play) -> None:
    """It got the id in a rebalance, and its broker died before the rebalance was over."""

    async def body(scene: Scene) -> None:
        alone = await scene.join(instance_id="i")
        await scene.sync(alone, "i", **{alone.member_id: b"all"})
        another = asyncio.ensure_future(scene.join(instance_id="j"))
        await asyncio.sleep(0)
        returned = await scene.join(instance_id="i")
        await another
        assert (returned.error, returned.generation) == (ErrorCode.NONE, alone.generation + 1)
        assert returned.member_id != alone.member_id
        scene = await scene.restarted()
        mine = MemberIdentity(returned.member_id, "i", returned.generation)
        assert scene.groups.members.heartbeat(GROUP, mine) is ErrorCode.ILLEGAL_GENERATION
        zombie = MemberIdentity(alone.member_id, "i", alone.generation)
        assert scene.groups.members.heartbeat(GROUP, zombie) is ErrorCode.FENCED_INSTANCE_ID
        again = asyncio.ensure_future(scene.join(returned.member_id, instance_id="i"))
        await asyncio.sleep(0)
        await scene.join((await another).member_id, instance_id="j")
        assert (await again).error is ErrorCode.NONE

    play(body)


def test_metadata_that_no_record_can_hold_is_refused_whatever_the_limit(play: Play) -> None:
    async def body(scene: Scene) -> None:
        for text, error in [("é" * 16_384, ErrorCode.OFFSET_METADATA_TOO_LARGE), ("é" * 16_383, ErrorCode.NONE)]:
            request = CommitRequest(ANONYMOUS, {TP: CommittedOffset(1, -1, text, 0)})
            assert await scene.groups.commit_offsets(GROUP, request) == {TP: error}

    play(body, offset_metadata_max_bytes=100_000)


def test_whoever_waits_when_the_broker_stops_is_sent_away(play: Play) -> None:
    async def body(scene: Scene) -> None:
        joining = asyncio.ensure_future(scene.join())
        await asyncio.sleep(1)
        await scene.groups.close()
        assert joining.done() or await asyncio.wait_for(joining, 1)
        assert joining.result().error is ErrorCode.NOT_COORDINATOR

    play(body, delay_ms=3000)
