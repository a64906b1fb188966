"""How long who copies is made to wait."""

import asyncio

import pytest

from sparklog.replica.copy_rate import CopyRate
from sparklog.testing.clock import ManualClock


def run(test):
    asyncio.run(asyncio.wait_for(test, 60))


async def turns():
    for _ in range(3):
        await asyncio.sleep(0.11)


def test_what_the_rate_allows_is_not_waited_for():
    rate = CopyRate(ManualClock(), 1 << 40)
    run(rate.pay(1 << 20))


@pytest.mark.parametrize("size", [1000, 5000])
def test_the_next_waits_for_what_was_copied(size):
    async def test():
        clock = ManualClock()
        rate = CopyRate(clock, 1000)
        paid = asyncio.ensure_future(rate.pay(size))
        await asyncio.sleep(0)
        clock.advance(size / 1000 - 0.5)
        await turns()
        assert not paid.done()
        clock.advance(0.5)
        await paid

    run(test())


def test_two_who_copy_share_the_rate():
    async def test():
        clock = ManualClock()
        rate = CopyRate(clock, 1000)
        paid = [asyncio.ensure_future(rate.pay(1000)) for _ in range(2)]
        await turns()
        clock.advance(1)
        await turns()
        assert not any(each.done() for each in paid)
        clock.advance(1)
        await asyncio.gather(*paid)

    run(test())


def test_another_rate_counts_at_once():
    async def test():
        rate = CopyRate(ManualClock(), 0)
        paid = asyncio.ensure_future(rate.pay(1 << 20))
        await turns()
        assert not paid.done()
        rate.bytes_per_second = 1 << 40
        await paid

    run(test())


def test_who_is_to_copy_no_more_is_not_kept():
    async def test():
        over = []
        paid = asyncio.ensure_future(CopyRate(ManualClock(), 0).pay(1, lambda: bool(over)))
        await turns()
        over.append(True)
        await paid

    run(test())
