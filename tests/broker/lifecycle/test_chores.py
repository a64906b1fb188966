"""What a broker does again and again."""

import asyncio
from types import SimpleNamespace
from unittest.mock import MagicMock

from sparklog.broker.lifecycle.chores import Chores
from sparklog.config.broker import parse_broker_config
from sparklog.net.turns import Turns
from sparklog.testing.clock import jump


def run(main):
    async def rounds():
        chores = Chores(Turns(asyncio.get_running_loop()))
        try:
            await main(chores)
        finally:
            chores.cancel()

    asyncio.run(rounds())


def test_a_chore_that_fails_is_done_again_and_the_log_says_so(caplog):
    async def main(chores):
        done, count = asyncio.Event(), 0

        def work():
            nonlocal count
            count += 1
            if count == 1:
                raise RuntimeError("the disk is away")
            done.set()

        chores.begin(0, work)
        await done.wait()

    run(main)
    (told,) = caplog.records
    assert told.getMessage().endswith("failed")
    assert "the disk is away" in told.exc_text


def test_a_chore_may_be_a_function_or_steps_or_a_coroutine():
    async def main(chores):
        function, steps, coroutine = asyncio.Event(), asyncio.Event(), asyncio.Event()

        def in_steps():
            yield
            steps.set()

        async def waits():
            await asyncio.sleep(0)
            coroutine.set()

        for work in (function.set, in_steps, waits):
            chores.begin(0, work)
        for each in (function, steps, coroutine):
            await each.wait()

    run(main)


def test_no_chore_begins_once_they_are_cancelled():
    async def main(chores):
        begun = []
        chores.begin(0, lambda: begun.append(True))
        chores.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert begun == []

    run(main)


def given_back(seconds, **settings):
    """What the controller is asked, after each of these pauses, by the chores of a broker with these settings."""
    asked, told = [], []
    parts = dict.fromkeys(("replicas", "groups", "transactions", "cleaning_grants", "adopter"), MagicMock())
    parts |= dict.fromkeys(("metadata", "peers", "turns", "clock"), MagicMock())

    def rebalance(percentage):
        yield
        asked.append(percentage)

    async def main(chores):
        loop = asyncio.get_running_loop()
        now = loop.time()
        loop.time = lambda: now  # it stands still from here on, but for jumps
        config = parse_broker_config({"broker.id": "1", **settings})
        controller = SimpleNamespace(rebalance=rebalance, is_active=False)
        broker = SimpleNamespace(config=config, controller=controller, tokens=None, **parts)
        chores.begin_all(broker, MagicMock(), MagicMock())
        for each in (0, *seconds):
            jump(loop, each)
            for _ in range(50):
                await asyncio.sleep(0)
            told.append(tuple(asked))

    run(main)
    return told[1:]


def test_leaders_are_given_back_after_each_interval_as_far_as_the_percentage_says():
    settings = {"leader.imbalance.check.interval.seconds": "600", "leader.imbalance.per.broker.percentage": "25"}
    assert given_back((599, 2, 598, 3), **settings) == [(), (25,), (25,), (25, 25)]
    assert given_back((299, 2, 301)) == [(), (10,), (10, 10)], "as Kafka does by default"


def test_leaders_are_not_given_back_where_that_is_switched_off():
    assert given_back((301, 301), **{"auto.leader.rebalance.enable": "false"}) == [(), ()]
