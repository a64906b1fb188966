"""The steps of a stop: their order, and what fails among them."""

import asyncio

import pytest

from sparklog.broker.lifecycle.shutdown import Shutdown, Step


def test_steps_are_taken_in_their_order_whatever_was_opened_first():
    taken, shutdown = [], Shutdown()

    async def late():
        await asyncio.sleep(0)
        taken.append("connections")

    shutdown.add(Step.LOGS, lambda: taken.append("logs"))
    shutdown.add(Step.CONNECTIONS, late)
    shutdown.add(Step.CHORES, lambda: taken.append("chores"))
    asyncio.run(shutdown.run())
    assert taken == ["chores", "connections", "logs"]


def test_what_the_last_step_that_failed_has_raised_is_raised_after_all_steps():
    taken, shutdown = [], Shutdown()

    def fail(text):
        raise RuntimeError(text)

    shutdown.add(Step.CHORES, lambda: fail("chores"))
    shutdown.add(Step.PEERS, lambda: fail("peers"))
    shutdown.add(Step.LOGS, lambda: taken.append("logs"))
    with pytest.raises(RuntimeError, match="peers"):
        asyncio.run(shutdown.run())
    assert taken == ["logs"]


def test_a_start_that_has_opened_nothing_has_nothing_to_close():
    asyncio.run(Shutdown().run())
