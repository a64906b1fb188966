"""Waiting for a condition on partitions: woken once, in time, and nothing left behind."""

import asyncio

import pytest

from sparklog.replica.purgatory import Purgatory
from sparklog.structs import TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
LONG_MS = 60_000


def on_loop(test):
    """Run ``test(purgatory)`` on a loop of its own, and see that nobody waits at the end."""

    async def run():
        purgatory = Purgatory(asyncio.get_running_loop())
        await asyncio.wait_for(test(purgatory), 10)
        assert len(purgatory) == 0
        assert not purgatory._waiting

    asyncio.run(run())


def test_a_check_wakes_whoever_is_satisfied():
    async def test(purgatory):
        moved = set()
        one = purgatory.wait([A], lambda _: "one" in moved, LONG_MS)
        two = purgatory.wait([A], lambda _: "two" in moved, LONG_MS)
        purgatory.check(A)
        assert not one.done()
        moved.add("one")
        purgatory.check(A)
        assert await one is True
        assert not two.done()
        moved.add("two")
        purgatory.check(A)
        assert await two is True

    on_loop(test)


def test_a_check_of_another_partition_wakes_nobody():
    async def test(purgatory):
        satisfied = False
        waiting = purgatory.wait([A], lambda _: satisfied, LONG_MS)
        satisfied = True
        purgatory.check(B)
        assert not waiting.done()
        purgatory.check(A)
        assert await waiting

    on_loop(test)


@pytest.mark.parametrize("moved", [A, B])
def test_any_of_its_partitions_wakes_an_operation(moved):
    async def test(purgatory):
        satisfied = False
        waiting = purgatory.wait([A, B], lambda _: satisfied, LONG_MS)
        assert len(purgatory) == 1
        satisfied = True
        purgatory.check(moved)
        assert await waiting

    on_loop(test)


def test_what_came_about_before_the_wait_is_not_waited_for():
    # Else a produce between a fetch's look and its wait would be seen only when the time is up.
    async def test(purgatory):
        assert await purgatory.wait([A], lambda _: True, LONG_MS) is True

    on_loop(test)


def test_the_deadline_wakes_with_false():
    async def test(purgatory):
        assert await purgatory.wait([A, B], lambda _: False, 10) is False
        assert await purgatory.wait([], lambda _: False, 0) is False

    on_loop(test)


def test_a_waiter_that_gives_up_is_forgotten():
    async def test(purgatory):
        waiting = purgatory.wait([A, B], lambda _: False, LONG_MS)
        waiting.cancel()
        await asyncio.sleep(0)

    on_loop(test)


def test_an_operation_is_told_which_partition_has_moved():
    async def test(purgatory):
        told = []

        def satisfied(moved):
            told.append(moved)
            return len(told) == 3

        waiting = purgatory.wait([A, B], satisfied, LONG_MS)
        purgatory.check(B)
        purgatory.check(A)
        assert await waiting is True
        assert told == [None, B, A]

    on_loop(test)
