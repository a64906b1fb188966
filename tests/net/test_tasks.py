"""Work that nobody waits for."""

import asyncio
import gc

import pytest

from sparklog.net.tasks import Tasks, to_its_end


@pytest.fixture
def failures():
    return []


def run(body, failures):
    async def go():
        loop = asyncio.get_running_loop()
        await body(Tasks(loop, lambda name, error: failures.append((name, error))), loop)

    asyncio.run(go())


def test_a_task_is_held_until_it_is_done(failures):
    async def body(tasks, loop):
        gate, done = loop.create_future(), []

        async def work(gate):
            await gate
            done.append(True)

        tasks.spawn(work(gate))
        await asyncio.sleep(0)
        gc.collect()
        gate.set_result(None)
        await tasks.finish()
        assert done == [True]

    run(body, failures)
    assert failures == []


def test_a_failure_is_told_and_a_cancellation_is_none(failures):
    error = ValueError("no")

    async def body(tasks, loop):
        async def fail():
            raise error

        tasks.spawn(fail(), "failing")
        tasks.spawn(asyncio.sleep(3600), "sleeping")
        await asyncio.sleep(0)
        await tasks.cancel()
        await tasks.cancel()  # nothing is left

    run(body, failures)
    assert failures == [("failing", error)]


@pytest.mark.parametrize("is_awaited", [True, False])
def test_work_goes_to_its_end_though_its_caller_does_not_wait_and_its_failure_is_his_alone(is_awaited):
    told, seen = [], []

    async def work(gate):
        await gate
        seen.append("done")
        raise ValueError("no")

    async def body():
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: told.append(context["message"]))
        gate = loop.create_future()
        caller = loop.create_task(to_its_end(work(gate)))
        await asyncio.sleep(0)
        if not is_awaited:
            caller.cancel()
        await asyncio.sleep(0)
        gate.set_result(None)
        outcome: object = (await asyncio.gather(caller, return_exceptions=True))[0]
        await asyncio.sleep(0)
        seen.append(type(outcome).__name__)

    asyncio.run(body())
    gc.collect()
    assert seen == ["done", "ValueError" if is_awaited else "CancelledError"]
    assert told == []
