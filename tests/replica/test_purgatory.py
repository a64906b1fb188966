"""Waiting for a condition on partitions: woken once, in time, and nothing left behind."""

import asyncio
from functools import partial

import pytest

from sparklog.replica.purgatory import SLICE, Purgatory
from sparklog.structs import TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
LONG_MS = 60_000


def on_loop(test):
    """Run ``test(purgatory)`` on a loop of its own, and see that nobody waits at the end."""

    async def run():
        purgatory = Purgatory(asyncio.get_running_loop())
        await asyncio.wait_for(test(purgatory), 120)
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
            return len(told) == 4

        waiting = purgatory.wait([A, B], satisfied, LONG_MS)
        purgatory.check(B)
        purgatory.check(A)
        assert await waiting is True
        assert told == [A, B, B, A], "each of them when the wait begins, then the one that has moved"

    on_loop(test)


MANY = 10 * SLICE


class Polls:
    """Requests that wait for a partition until there is something; how many are woken in each turn of the loop."""

    def __init__(self, purgatory, number=MANY, key=A, timeout_ms=LONG_MS):
        self.is_there = False
        self.looks_at, self.woken = [0] * number, []
        self.waiting = [purgatory.wait([key], partial(self._look, place), timeout_ms) for place in range(number)]
        for place, each in enumerate(self.waiting):
            each.add_done_callback(lambda _, place=place: self.woken.append(place))
        self.looks_at = [0] * number

    @property
    def looks(self):
        return sum(self.looks_at)

    def _look(self, place, _moved):
        self.looks_at[place] += 1
        return self.is_there

    async def turn(self):
        """What one turn of the loop adds: looks, and requests that are woken."""
        looks, woken = self.looks, len(self.woken)
        await asyncio.sleep(0)
        return self.looks - looks, len(self.woken) - woken


def test_many_are_woken_a_slice_a_turn_and_in_order():
    async def test(purgatory):
        polls = Polls(purgatory)
        polls.is_there = True
        purgatory.check(A)
        while len(polls.woken) < MANY:
            looks, woken = await polls.turn()
            assert looks <= SLICE
            assert woken <= SLICE
        assert polls.woken == list(range(MANY))

    on_loop(test)


def test_what_waits_for_other_partitions_shares_the_turn():
    async def test(purgatory):
        polls = [Polls(purgatory, SLICE - 1, TopicPartition("t", number)) for number in range(10)]
        for number, each in enumerate(polls):
            each.is_there = True
            purgatory.check(TopicPartition("t", number))
        while not all(each.done() for all_of in polls for each in all_of.waiting):
            before = sum(each.looks for each in polls)
            await asyncio.sleep(0)
            assert sum(each.looks for each in polls) - before <= SLICE

    on_loop(test)


def test_a_partition_that_moves_all_the_time_is_looked_at_to_the_last_of_its_waiters():
    async def test(purgatory):
        polls = Polls(purgatory)
        for _ in range(10 * MANY // SLICE):
            purgatory.check(A)
            await asyncio.sleep(0)
        assert max(polls.looks_at) - min(polls.looks_at) <= 1
        assert min(polls.looks_at) >= 9
        polls.is_there = True
        purgatory.check(A)
        await asyncio.gather(*polls.waiting)

    on_loop(test)


def test_what_moves_during_a_look_is_seen_by_those_looked_at_already():
    async def test(purgatory):
        polls = Polls(purgatory)
        purgatory.check(A)
        polls.is_there = True
        purgatory.check(A)
        await asyncio.gather(*polls.waiting)

    on_loop(test)


def test_many_deadlines_at_one_time_are_a_slice_a_turn():
    async def test(purgatory):
        polls = Polls(purgatory, timeout_ms=0)
        while len(polls.woken) < MANY:
            assert (await polls.turn())[1] <= SLICE
        assert polls.looks == 0

    on_loop(test)


def test_one_that_waits_for_very_many_counts_as_many():
    async def test(purgatory):
        is_there = False
        keys = [TopicPartition("t", number) for number in range(100 * SLICE)]
        waiting = [purgatory.wait(keys, lambda _: is_there, LONG_MS) for _ in range(5)]
        is_there = True
        purgatory.check(keys[0])
        for number in range(5):
            assert sum(each.done() for each in waiting) == number + 1
            await asyncio.sleep(0)

    on_loop(test)


def test_many_that_are_given_up_together_are_forgotten_a_slice_a_turn():
    async def test(purgatory):
        keys = [TopicPartition("t", number) for number in range(100 * SLICE)]
        waiting = [purgatory.wait(keys, lambda _: False, LONG_MS) for _ in range(5)]
        for each in waiting:
            each.cancel()
        for left in range(4, -1, -1):
            await asyncio.sleep(0)
            assert len(purgatory) == left

    on_loop(test)


def test_those_that_read_many_again_are_woken_a_few_a_turn():
    async def test(purgatory):
        is_there = False
        keys = [TopicPartition("t", number) for number in range(50)]
        waiting = [purgatory.wait(keys, lambda _: is_there, LONG_MS) for _ in range(SLICE)]
        is_there, woken = True, 0
        purgatory.check(keys[0])
        while not waiting[-1].done():
            await asyncio.sleep(0)
            before, woken = woken, sum(each.done() for each in waiting)
            assert woken - before <= SLICE / 5

    on_loop(test)


def test_one_whose_look_fails_is_woken_and_holds_up_no_other(caplog):
    async def test(purgatory):
        is_broken = is_there = False

        def broken(_):
            if is_broken:
                raise ValueError("damaged")
            return False

        damaged = purgatory.wait([A], broken, LONG_MS)
        behind, other = (purgatory.wait([key], lambda _: is_there, LONG_MS) for key in (A, B))
        is_broken = is_there = True
        purgatory.check(A)
        purgatory.check(B)
        assert await asyncio.gather(damaged, behind, other) == [True, True, True]
        assert await purgatory.wait([A], broken, LONG_MS) is True

    on_loop(test)
    assert "cannot tell whether a request that waits for a-0" in caplog.text
