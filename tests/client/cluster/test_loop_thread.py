"""A loop in a thread of its own."""

import asyncio
import os
import threading

import pytest

from sparklog.client.cluster.loop_thread import LoopThread
from sparklog.errors import ApiError, ClientClosed


@pytest.fixture
def loop():
    loop = LoopThread("test loop")
    yield loop
    loop.close()


async def _thread():
    return threading.current_thread()


def test_it_runs_elsewhere_and_ends(loop):
    thread = loop.run(_thread())
    assert thread is not threading.current_thread()
    assert thread.daemon
    loop.close()
    assert not thread.is_alive()
    loop.close()


def test_errors_come_through(loop):
    async def fail():
        raise KeyError("x")

    with pytest.raises(KeyError):
        loop.run(fail())


def test_what_takes_too_long_is_cancelled(loop):
    cancelled = threading.Event()

    async def forever():
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    with pytest.raises(ApiError, match="REQUEST_TIMED_OUT"):
        loop.run(forever(), 0.01)
    assert cancelled.wait(20)


def test_a_timeout_of_the_work_itself_is_its_own(loop):
    async def fail():
        raise TimeoutError("mine")

    with pytest.raises(TimeoutError, match="mine"):
        loop.run(fail(), 20)


def test_close_ends_what_others_wait_for():
    loop = LoopThread()
    failures = []
    started = threading.Event()

    async def forever():
        started.set()
        await asyncio.Event().wait()

    def wait():
        try:
            loop.run(forever())
        except ClientClosed as error:
            failures.append(error)

    waiter = threading.Thread(target=wait)
    waiter.start()
    assert started.wait(20)
    loop.close()
    waiter.join(20)
    assert len(failures) == 1
    with pytest.raises(ClientClosed, match="was closed"):
        loop.run(_thread())
    with pytest.raises(ClientClosed, match="was closed"):
        loop.call_soon(print)


def test_a_callback_cannot_wait_for_its_own_loop(loop):
    async def nested():
        loop.run(_thread())

    with pytest.raises(ClientClosed, match="callback"):
        loop.run(nested())


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_is_told_so(loop):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            loop.run(_thread())
        except ClientClosed as error:
            os.write(writer, str(error).encode())
        finally:
            loop.close()
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        assert b"make one in the child" in pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    assert loop.run(_thread()).is_alive()
