"""Calls of ZooKeeper on a thread of their own."""

import asyncio
import threading

import pytest

from sparklog.broker.lifecycle.zookeeper_thread import ZooKeeperThread
from sparklog.clock import SystemClock
from sparklog.errors import ApiError, CoordinationError, ErrorCode, MalformedZnode
from sparklog.zk.holding import HoldingClient


class Client(HoldingClient):
    """Notes how it was asked."""

    def __init__(self):
        self.asked = []

    def lasting(self, call, *args):
        self.asked.append("lasting")
        return call(*args)

    def guarded(self, call, *args):
        self.asked.append("guarded")
        return call(*args)


def fail(error):
    raise error


def run(main):
    async def whole():
        zookeeper = ZooKeeperThread(asyncio.get_running_loop(), SystemClock())
        zookeeper.client = Client()
        try:
            await main(zookeeper)
        finally:
            zookeeper.close()

    asyncio.run(whole())


def test_a_call_outlasts_a_broken_connection_as_long_as_the_thread_is_patient():
    async def main(zookeeper):
        await zookeeper.run(int)
        zookeeper.is_patient = False
        await zookeeper.run(int)
        assert zookeeper.client.asked == ["lasting", "guarded"]

    run(main)


def test_calls_are_on_one_thread_that_is_not_the_loops_and_are_counted():
    async def main(zookeeper):
        threads = await asyncio.gather(*(zookeeper.run(threading.current_thread) for _ in range(3)))
        assert len(set(threads)) == 1
        assert threads[0] is not threading.current_thread()
        assert sum(zookeeper.meter.buckets) == 3

    run(main)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (MalformedZnode("/a is no JSON"), ErrorCode.INVALID_CONFIG),
        (CoordinationError("no connection"), ErrorCode.REQUEST_TIMED_OUT),
    ],
)
def test_a_handler_is_told_whether_its_client_is_to_try_again(error, code):
    async def main(zookeeper):
        with pytest.raises(ApiError) as raised:
            await zookeeper.ask(fail, error)
        assert raised.value.code is code
        assert str(error) in raised.value.reason

    run(main)
