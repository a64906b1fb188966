"""Offsets that wait for the end of a transaction: the table, and the coordinator over a log in memory."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from group.scene import COUNT, GROUP, HOME, OTHER, TP, Play, Scene

from sparklog.errors import ApiError, ErrorCode
from sparklog.group.classic.group import CommittedOffset, GroupState
from sparklog.group.classic.requests import NO_GENERATION, CommitRequest, MemberIdentity, TransactionalCommit
from sparklog.group.offsets import OffsetKey
from sparklog.group.pending import PendingOffsets, PlacedOffset
from sparklog.record.control import ControlType, EndTransactionMarker, ProducerIdAndEpoch, build_marker
from sparklog.testing.steps import finish

ANONYMOUS = MemberIdentity("", None, NO_GENERATION)
PRODUCER = ProducerIdAndEpoch(7, 0)
OFFSETS = {TP: PlacedOffset(1, CommittedOffset(5, 0, "", 1)), OTHER: PlacedOffset(1, CommittedOffset(6, 0, "", 1))}


def loaded() -> PendingOffsets:
    pending = PendingOffsets()
    assert pending.loaded({}) == []
    return pending


def test_committed_offsets_come_out_once() -> None:
    pending = loaded()
    pending.add(7, "g", OFFSETS)
    pending.add(8, "g", {TP: PlacedOffset(2, CommittedOffset(9, 0, "", 1))})
    assert Counter(pending.all_keys()) == {OffsetKey("g", TP): 2, OffsetKey("g", OTHER): 1}
    assert pending.of_producer(8) == {"g": [TP]}
    assert pending.of_producer(9) == {}
    assert pending.end(7, commit=True) == {"g": OFFSETS}
    assert pending.end(7, commit=True) == {}
    assert pending.all_keys() == [OffsetKey("g", TP)]


def test_aborted_offsets_do_not_come_out() -> None:
    pending = loaded()
    pending.add(7, "g", OFFSETS)
    assert pending.end(7, commit=False) == {}
    assert pending.all_keys() == []


def test_what_could_not_be_written_is_dropped_unless_it_was_replaced() -> None:
    pending = loaded()
    newer = {TP: PlacedOffset(2, CommittedOffset(8, 0, "", 1))}
    assert pending.add(7, "g", OFFSETS) == [TP, OTHER]
    assert pending.add(7, "g", newer) == []
    assert pending.drop(7, "g", OFFSETS) == [OTHER]
    assert pending.drop(8, "g", OFFSETS) == [], "its transaction has ended"
    assert pending.end(7, commit=True) == {"g": newer}


def test_what_is_forgotten_comes_out_of_every_transaction_that_has_it() -> None:
    pending = loaded()
    pending.add(7, "g", OFFSETS)
    pending.add(8, "g", {OTHER: PlacedOffset(2, CommittedOffset(9, 0, "", 1))})
    assert pending.forget("g", {TP}) == [TP]
    assert pending.forget("g", {TP, OTHER}) == [OTHER, OTHER]
    assert pending.all_keys() == []


def test_what_is_forgotten_of_a_group_leaves_the_others() -> None:
    pending = PendingOffsets()
    pending.loaded({7: {"g": dict(OFFSETS), "h": dict(OFFSETS)}})
    pending.add(8, "g", OFFSETS)
    assert pending.forget("unknown", {TP}) == []
    pending.forget_group("g")
    assert pending.all_keys() == [OffsetKey("h", TP), OffsetKey("h", OTHER)]
    assert pending.add(7, "g", OFFSETS) == [TP, OTHER], "the producer goes on"
    assert pending.end(8, commit=True) == {}
    assert pending.end(7, commit=True) == {"g": OFFSETS, "h": OFFSETS}
    pending.forget_group("g")
    assert pending.forget("h", {TP}) == []


class Looked(dict[int, Any]):
    """Counts how many of its entries are asked for."""

    times = 0

    def __getitem__(self, key: int) -> Any:
        self.times += 1
        return super().__getitem__(key)

    def get(self, key: int, default: Any = None) -> Any:
        self.times += 1
        return super().get(key, default)

    def values(self) -> Any:
        self.times += len(self)
        return super().values()


@pytest.mark.parametrize("what", ["group", "offsets"])
def test_what_goes_costs_no_look_at_the_transactions_of_other_groups(play: Play, what: str) -> None:
    async def body(scene: Scene) -> None:
        await commit(scene, 5)
        pending = scene.groups._groups.led[HOME].pending
        for producer_id in range(1000, 1100):
            pending.add(producer_id, f"g{producer_id}", OFFSETS)
        looked = pending._open = Looked(pending._open)
        if what == "group":
            assert await scene.groups.delete_group(GROUP) is ErrorCode.NONE
        else:
            assert (await scene.groups.delete_offsets(GROUP, [TP])).partitions == {TP: ErrorCode.NONE}
        assert looked.times <= 2

    play(body)


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_during_the_load_is_not_lost(commit: bool) -> None:
    pending = PendingOffsets()
    assert pending.of_producer(7) == {}
    assert pending.end(7, commit=commit) == {}
    found = {7: {"g": {TP: OFFSETS[TP]}}, 8: {"g": {OTHER: OFFSETS[OTHER]}}}
    assert pending.loaded(found) == ([{"g": {TP: OFFSETS[TP]}}] if commit else [{}])
    assert pending.all_keys() == [OffsetKey("g", OTHER)]


async def commit(
    scene: Scene,
    offset: int,
    identity: MemberIdentity = ANONYMOUS,
    code: ErrorCode = ErrorCode.NONE,
    text: str = "md",
    producer: ProducerIdAndEpoch = PRODUCER,
) -> ErrorCode:
    asked = []

    def may_begin(partition: int) -> ErrorCode:
        asked.append(partition)
        return code

    offsets = {TP: CommittedOffset(offset, 3, text, scene.clock.now_ms())}
    request = TransactionalCommit(producer, CommitRequest(identity, offsets), may_begin)
    answer = (await scene.groups.commit_in_transaction(GROUP, request))[TP]
    assert asked in ([HOME], [])
    return answer


async def end(scene: Scene, *, commits: bool, producer: ProducerIdAndEpoch = PRODUCER) -> None:
    kind = ControlType.COMMIT if commits else ControlType.ABORT
    await scene.store.append(HOME, build_marker(EndTransactionMarker(kind, 0), producer, 1))
    scene.groups.end_transaction(HOME, producer.producer_id, commits)


@pytest.mark.parametrize("restart", [False, True])
def test_an_offset_in_two_transactions_is_unstable_until_both_have_ended(play: Play, restart: bool) -> None:
    other = ProducerIdAndEpoch(PRODUCER.producer_id + 1, 0)

    async def body(scene: Scene) -> None:
        await commit(scene, 5)
        await commit(scene, 6, producer=other)
        if restart:
            scene = await scene.restarted()
        await end(scene, commits=True)
        assert scene.groups.unstable_offsets(GROUP, [TP]) == {TP}
        await end(scene, commits=False, producer=other)
        assert scene.groups.unstable_offsets(GROUP, [TP]) == set()
        assert scene.offset() == 5

    play(body)


def test_a_member_that_has_yet_to_synchronise_commits_in_a_transaction_alone(play: Play) -> None:
    """A producer is not told REBALANCE_IN_PROGRESS: Java's gives up for good."""

    async def body(scene: Scene) -> None:
        joined = await scene.join()
        who = MemberIdentity(joined.member_id, None, joined.generation)
        assert scene.state is GroupState.COMPLETING_REBALANCE
        assert await scene.commit(4, who) is ErrorCode.REBALANCE_IN_PROGRESS
        assert await commit(scene, 5, who) is ErrorCode.NONE
        assert await commit(scene, 6, who._replace(generation=joined.generation - 1)) is ErrorCode.ILLEGAL_GENERATION
        await end(scene, commits=True)
        assert scene.offset() == 5

    play(body)


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("restart", ["never", "before the end", "after the end"])
def test_offsets_count_from_the_commit_on(play: Play, commits: bool, restart: str) -> None:
    async def body(scene: Scene) -> None:
        assert await scene.commit(1) is ErrorCode.NONE
        assert await commit(scene, 5) is ErrorCode.NONE
        if restart == "before the end":
            scene = await scene.restarted()
        assert scene.offset() == 1
        assert scene.groups.unstable_offsets(GROUP, [TP, OTHER]) == {TP}
        await end(scene, commits=commits)
        if restart == "after the end":
            scene = await scene.restarted()
        assert scene.offset() == (5 if commits else 1)
        assert scene.groups.unstable_offsets(GROUP, [TP, OTHER]) == set()

    play(body)


def test_a_group_that_has_nothing_but_pending_offsets(play: Play) -> None:
    async def body(scene: Scene) -> None:
        await commit(scene, 5)
        assert scene.state is GroupState.EMPTY
        await end(scene, commits=True)
        assert scene.offset() == 5
        assert await scene.commit(6) is ErrorCode.NONE
        assert scene.offset() == 6

    play(body)


def test_an_aborted_transaction_leaves_no_group_behind(play: Play) -> None:
    async def body(scene: Scene) -> None:
        await commit(scene, 5)
        await commit(scene, 6)
        await end(scene, commits=False)
        assert finish(scene.groups.list_groups()) == (ErrorCode.NONE, [])

    play(body)


def test_an_offset_does_not_expire_while_a_transaction_may_change_it(play: Play) -> None:
    async def body(scene: Scene) -> None:
        await scene.commit(1)
        await commit(scene, 5)
        for coordinator in (scene, await scene.restarted()):
            await asyncio.sleep(61)
            finish(coordinator.groups.expire_offsets())
            assert coordinator.offset() == 1
        await end(scene, commits=False)
        finish(scene.groups.expire_offsets())
        assert scene.offset() is None

    play(body, offsets_retention_minutes=1)


@pytest.mark.parametrize("what", ["group", "offset", "topic"])
@pytest.mark.parametrize("restart", ["never", "before the end", "after the end"])
def test_what_is_deleted_does_not_come_back_with_the_end_of_a_transaction(play: Play, what: str, restart: str) -> None:
    async def body(scene: Scene) -> None:
        await scene.commit(1)
        await commit(scene, 5)
        if what == "group":
            assert await scene.groups.delete_group(GROUP) is ErrorCode.NONE
        elif what == "offset":
            assert (await scene.groups.delete_offsets(GROUP, [TP])).partitions == {TP: ErrorCode.NONE}
        else:
            finish(scene.groups.forget_topics([TP]))
            await asyncio.sleep(0.1)
        assert scene.groups.unstable_offsets(GROUP, [TP]) == set()
        if restart == "before the end":
            scene = await scene.restarted()
        await end(scene, commits=True)
        if restart == "after the end":
            scene = await scene.restarted()
        assert scene.offset() is None
        assert finish(scene.groups.list_groups()) == (ErrorCode.NONE, [])

    play(body)


def test_a_topic_that_goes_while_the_groups_are_loaded_takes_offsets_of_open_transactions_too(play: Play) -> None:
    async def body(scene: Scene) -> None:
        await scene.commit(1, tp=OTHER)
        await commit(scene, 5)
        again = Scene(scene.loop, scene.clock, scene.store, 0)
        loading = [asyncio.ensure_future(again.groups.load(each)) for each in range(COUNT)]
        await asyncio.sleep(0)
        finish(again.groups.forget_topics([TP]))
        await asyncio.gather(*loading)
        assert again.groups.unstable_offsets(GROUP, [TP]) == set()
        await end(again, commits=True)
        for each in (again, await again.restarted()):
            assert (each.offset(TP), each.offset(OTHER)) == (None, 1)

    play(body)


@pytest.mark.parametrize("what", ["group", "offset", "topic"])
def test_memory_and_log_agree_on_a_commit_and_a_deletion_of_one_turn(play: Play, what: str) -> None:
    async def body(scene: Scene) -> None:
        await scene.commit(1)
        committing = asyncio.ensure_future(commit(scene, 5))
        if what == "group":
            deleting: list[asyncio.Future[Any]] = [asyncio.ensure_future(scene.groups.delete_group(GROUP))]
        elif what == "offset":
            deleting = [asyncio.ensure_future(scene.groups.delete_offsets(GROUP, [TP]))]
        else:
            await asyncio.sleep(0)
            finish(scene.groups.forget_topics([TP]))
            deleting = []
        await asyncio.gather(committing, *deleting)
        await end(scene, commits=True)
        assert (scene.offset(), (await scene.restarted()).offset()) == (None, None)
        assert scene.groups.unstable_offsets(GROUP, [TP]) == set()

    play(body)


def test_a_marker_in_the_turn_of_a_deletion_brings_nothing_back(play: Play) -> None:
    async def body(scene: Scene) -> None:
        await commit(scene, 5)
        ending = asyncio.ensure_future(end(scene, commits=True))
        assert await scene.groups.delete_group(GROUP) is ErrorCode.NONE
        await ending
        assert (scene.offset(), (await scene.restarted()).offset()) == (None, None)

    play(body)


@pytest.mark.parametrize("restart", ["never", "before the end", "after the end"])
def test_the_later_record_wins_whenever_its_transaction_commits(play: Play, restart: str) -> None:
    async def body(scene: Scene) -> None:
        await commit(scene, 5)
        assert await scene.commit(6) is ErrorCode.NONE
        if restart == "before the end":
            scene = await scene.restarted()
        assert scene.groups.unstable_offsets(GROUP, [TP]) == {TP}
        await end(scene, commits=True)
        if restart == "after the end":
            scene = await scene.restarted()
        assert scene.offset() == 6, "compaction keeps no other"
        await commit(scene, 7)
        await end(scene, commits=True)
        assert (scene.offset(), (await scene.restarted()).offset()) == (7, 7)

    play(body)


def test_a_commit_after_a_restart_is_later_than_those_of_a_transaction_before(play: Play) -> None:
    async def body(scene: Scene) -> None:
        await commit(scene, 5)
        await commit(scene, 6)
        scene = await scene.restarted()
        assert await scene.commit(7) is ErrorCode.NONE
        await end(scene, commits=True)
        assert (scene.offset(), (await scene.restarted()).offset()) == (7, 7)

    play(body)


def test_a_commit_whose_replication_lasts_past_the_end_of_a_transaction_is_the_later_one_still(play: Play) -> None:
    async def body(scene: Scene) -> None:
        await commit(scene, 5)
        gate = scene.loop.create_future()
        scene.store.gate = lambda: gate
        plain = asyncio.ensure_future(scene.commit(6))
        await asyncio.sleep(0.1)
        scene.store.gate = None
        await end(scene, commits=True)
        assert scene.offset() == 5
        gate.set_result(None)
        assert await plain is ErrorCode.NONE
        assert (scene.offset(), (await scene.restarted()).offset()) == (6, 6)

    play(body)


def test_a_transaction_that_its_coordinator_does_not_count_in_leaves_nothing(play: Play) -> None:
    async def body(scene: Scene) -> None:
        assert await commit(scene, 5, code=ErrorCode.INVALID_TXN_STATE) is ErrorCode.INVALID_TXN_STATE
        assert scene.store.logs[HOME] == []
        assert scene.groups.unstable_offsets(GROUP, [TP]) == set()

    play(body)


def test_what_the_log_refuses_is_not_pending(play: Play) -> None:
    async def body(scene: Scene) -> None:
        scene.store.error = ErrorCode.NOT_ENOUGH_REPLICAS
        committing = asyncio.ensure_future(commit(scene, 5))
        await asyncio.sleep(0)
        scene.groups.end_transaction(HOME, PRODUCER.producer_id, True)
        assert scene.offset() is None
        assert await committing is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert scene.groups.unstable_offsets(GROUP, [TP]) == set()

    play(body)


def test_what_is_not_replicated_is_pending_no_more(play: Play) -> None:
    async def body(scene: Scene) -> None:
        gate = scene.loop.create_future()
        scene.store.gate = lambda: gate
        committing = asyncio.ensure_future(commit(scene, 5))
        await asyncio.sleep(0.1)
        assert scene.groups.unstable_offsets(GROUP, [TP]) == {TP}
        gate.set_exception(ApiError(ErrorCode.NOT_ENOUGH_REPLICAS))
        assert await committing is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert scene.groups.unstable_offsets(GROUP, [TP]) == set()
        assert finish(scene.groups.list_groups()) == (ErrorCode.NONE, [])
        scene.groups.end_transaction(HOME, PRODUCER.producer_id, True)
        assert scene.offset() is None

    play(body)


def test_only_members_of_this_generation_commit_as_members(play: Play) -> None:
    async def body(scene: Scene) -> None:
        joined = await scene.join()
        await scene.sync(joined, c_1=b"all")
        member = MemberIdentity(joined.member_id, None, joined.generation)
        assert await commit(scene, 1, member) is ErrorCode.NONE
        assert await commit(scene, 1, member._replace(generation=9)) is ErrorCode.ILLEGAL_GENERATION
        assert await commit(scene, 1, member._replace(member_id="x")) is ErrorCode.UNKNOWN_MEMBER_ID
        assert await commit(scene, 1) is ErrorCode.NONE, "older clients do not say who they are"
        for who in (("x", None, -1), ("", "i", -1), ("", None, 0)):
            assert await commit(scene, 1, MemberIdentity(*who)) is ErrorCode.UNKNOWN_MEMBER_ID, "but these do"
        assert await commit(scene, 1, text="x" * 11) is ErrorCode.OFFSET_METADATA_TOO_LARGE

    play(body)


def test_requests_to_the_wrong_broker_and_before_the_load(play: Play) -> None:
    async def body(scene: Scene) -> None:
        assert await commit(scene, 1) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert scene.groups.unstable_offsets(GROUP, [TP]) == set()
        scene.store.led.clear()
        assert await commit(scene, 1) is ErrorCode.NOT_COORDINATOR
        scene.groups.end_transaction(HOME, 7, True)

    play(body, loaded=False)


def test_leadership_that_moves_during_a_commit(play: Play) -> None:
    async def body(scene: Scene) -> None:
        committing = asyncio.ensure_future(commit(scene, 1))
        await asyncio.sleep(0)
        await scene.groups.load(HOME)
        assert await committing is ErrorCode.NONE
        assert scene.groups.unstable_offsets(GROUP, [TP]) == {TP}, "it was in the log, and is found there"
        await end(scene, commits=True)
        assert scene.offset() == 1

    play(body)


def test_a_load_needs_no_count_of_partitions(play: Play) -> None:
    """A broker may be told that it leads before it is told of the topic, and plans with another count until then."""

    async def body(scene: Scene) -> None:
        assert await commit(scene, 5) is ErrorCode.NONE
        count, scene.store.partition_count = scene.store.partition_count, 97
        scene = await scene.restarted()
        scene.store.partition_count = count
        scene.groups.end_transaction(HOME, PRODUCER.producer_id, commit=True)
        assert scene.offset() == 5

    play(body)
