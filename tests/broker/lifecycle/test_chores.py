"""What a broker does again and again."""

import asyncio

from sparklog.broker.lifecycle.chores import Chores
from sparklog.net.turns import Turns


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
