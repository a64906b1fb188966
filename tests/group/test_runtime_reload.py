"""A partition that is led elsewhere, or loaded again, while one of its groups is being changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from group.scene import GROUP, HOME, Play, Scene
from group.test_consumer_groups import SESSION_S, Classic, Member, group_of, waiting_requests

from sparklog.errors import ErrorCode
from sparklog.group.classic.group import GroupState
from sparklog.group.classic.requests import JoinAnswer, LeaveAnswer, SyncAnswer


def hold_writes(scene: Scene) -> asyncio.Future[None]:
    """What is appended from now on is replicated when this is set."""
    gate: asyncio.Future[None] = scene.loop.create_future()
    scene.store.gate = lambda: gate
    return gate


def hold_reads(scene: Scene) -> asyncio.Future[None]:
    """The log is read when this is set."""
    gate: asyncio.Future[None] = scene.loop.create_future()
    read = scene.store.read

    async def held(partition: int) -> AsyncIterator[memoryview]:
        await gate
        async for each in read(partition):
            yield each

    scene.store.read = held
    return gate


async def empty_consumer_group(scene: Scene) -> None:
    """One with an offset, so that it stays."""
    member = Member(scene)
    await member.beat()
    assert await member.commit() is ErrorCode.NONE
    await member.beat(-1)


async def dissolving(scene: Scene) -> tuple[asyncio.Future[None], list[asyncio.Task[Any]]]:
    """A classic member joins an empty consumer group, whose end is replicated when the future is set; other requests
    wait behind it.
    """
    await empty_consumer_group(scene)
    replicated = hold_writes(scene)
    classic, other = Classic(scene), Classic(scene)
    requests = [asyncio.ensure_future(classic.join())]
    await asyncio.sleep(0.1)
    requests += waiting_requests(scene, classic, other)
    await asyncio.sleep(0.1)
    scene.store.gate = None
    assert not any(each.done() for each in requests)
    return replicated, requests


def test_no_group_begins_in_a_partition_that_is_being_loaded(play: Play) -> None:
    async def body(scene: Scene) -> None:
        replicated, requests = await dissolving(scene)
        read = hold_reads(scene)
        loading = asyncio.ensure_future(scene.groups.load(HOME))
        await asyncio.sleep(0.1)
        replicated.set_result(None)
        wait = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert await asyncio.gather(*requests) == [
            JoinAnswer(wait, ""),
            JoinAnswer(wait, ""),
            SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS),
            LeaveAnswer(wait),
        ]
        read.set_result(None)
        await loading
        classic = Classic(scene)
        await classic.lead()
        await asyncio.sleep(9)
        assert classic.heartbeat() is ErrorCode.NONE
        again = await scene.restarted()
        found = [each.groups.describe_group(GROUP)[1] for each in (scene, again)]
        assert [each and (each.state, each.generation) for each in found] == [(GroupState.STABLE, 1)] * 2

    play(body)


@pytest.mark.parametrize("turns", range(12))
def test_requests_that_wait_for_a_group_to_end_are_answered_whenever_it_is_led_elsewhere(
    play: Play, turns: int
) -> None:
    async def body(scene: Scene) -> None:
        replicated, requests = await dissolving(scene)
        replicated.set_result(None)
        for _ in range(turns):
            await asyncio.sleep(0)
        scene.groups.unload(HOME)
        scene.store.led.discard(HOME)
        away = ErrorCode.NOT_COORDINATOR
        answers = await asyncio.gather(*requests)
        assert answers[0].error is away or turns
        assert {each.error for each in answers} <= {away, ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID}

    play(body)


def test_a_group_of_a_coordinator_that_is_no_more_is_not_woken(play: Play) -> None:
    async def body(scene: Scene) -> None:
        classic, new = Classic(scene), Member(scene)
        await classic.lead()
        await new.beat()
        await classic.follow()
        replicated = hold_writes(scene)
        for _ in range(5):
            assert classic.heartbeat() is ErrorCode.NONE
            await asyncio.sleep(SESSION_S / 5)
        await asyncio.sleep(0.1)
        scene.store.gate = None
        assert group_of(scene) is not None, "its end is being written: the last member of its protocol is lost"
        await scene.groups.load(HOME)
        replicated.set_result(None)
        await asyncio.sleep(0.1)
        assert group_of(scene) is None
        await classic.lead()
        for _ in range(4):
            await asyncio.sleep(5)
            assert classic.heartbeat() is ErrorCode.NONE
        again = await scene.restarted()
        found = [each.groups.describe_group(GROUP)[1] for each in (scene, again)]
        assert [each and (each.state, each.generation) for each in found] == [
            (GroupState.STABLE, classic.generation)
        ] * 2

    play(body)
