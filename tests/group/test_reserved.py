"""The groups of Spark's sinks: only what their own transactions commit counts."""

import pytest
from group.scene import ANONYMOUS, COUNT, TP, Play, Scene

from sparklog.errors import ErrorCode
from sparklog.group.classic.group import CommittedOffset
from sparklog.group.classic.requests import CommitRequest, TransactionalCommit
from sparklog.group.consumer.requests import ConsumerHeartbeat
from sparklog.group.offsets import partition_for
from sparklog.record.control import ProducerIdAndEpoch

pytest.importorskip("pyspark")
from sparklog.group.reserved import PREFIX
from sparklog.spark.write import decisions

GROUP = "spark-decisions.orders"
REFUSED = ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_the_names_are_the_sinks() -> None:
    assert decisions.Scope("orders").decider_id == GROUP
    assert GROUP.startswith(PREFIX)


def commit(offset: int) -> CommitRequest:
    return CommitRequest(ANONYMOUS, {TP: CommittedOffset(offset, 0, "", 1)})


async def commit_in_transaction(scene: Scene, offset: int) -> ErrorCode:
    asked = TransactionalCommit(ProducerIdAndEpoch(7, 0), commit(offset), lambda _: ErrorCode.NONE)
    (error,) = (await scene.groups.commit_in_transaction(GROUP, asked)).values()
    scene.groups.end_transaction(partition_for(GROUP, COUNT), 7, commit=True)
    return error


def stored(scene: Scene) -> int | None:
    _, found = scene.groups.fetch_offsets(GROUP, [TP])
    committed = found[TP]
    return committed.offset if committed else None


def test_a_stranger_is_refused_and_the_sink_is_not(play: Play) -> None:
    async def body(scene: Scene) -> None:
        assert await commit_in_transaction(scene, 5) is ErrorCode.NONE
        assert await scene.groups.commit_offsets(GROUP, commit(9)) == {TP: REFUSED}
        assert (await scene.groups.delete_offsets(GROUP, [TP])).error is REFUSED
        assert (await scene.join(group_id=GROUP)).error is REFUSED
        beat = ConsumerHeartbeat(GROUP, "", 0, "c", "/h", rebalance_timeout_ms=1000, topics=frozenset({"t"}))
        assert (await scene.groups.members.consumer_heartbeat(beat)).error is REFUSED
        assert stored(scene) == 5
        assert await commit_in_transaction(scene, 6) is ErrorCode.NONE
        assert stored(scene) == 6

    play(body)


def test_the_group_of_a_write_that_is_over_is_deleted(play: Play) -> None:
    async def body(scene: Scene) -> None:
        await commit_in_transaction(scene, 5)
        assert await scene.groups.delete_group(GROUP) is ErrorCode.NONE
        assert stored(scene) is None

    play(body)


def test_an_operator_may_lift_it(play: Play) -> None:
    async def body(scene: Scene) -> None:
        assert await scene.groups.commit_offsets(GROUP, commit(9)) == {TP: ErrorCode.NONE}
        assert (await scene.groups.delete_offsets(GROUP, [TP])).error is ErrorCode.NONE

    play(body, internal_topics_protect=False)
