"""A loop in a thread of its own."""

import asyncio
import inspect
import os
import threading
from concurrent.futures import Future

import pytest
from client.interrupts import interruptions

from sparklog.client.cluster.loop_thread import LoopThread, _cancel_all
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


def test_a_close_ends_the_loop_though_another_one_has_cancelled_it_and_was_interrupted(monkeypatch):
    loop = LoopThread()

    def cancelled(work):
        future = Future()
        future.cancel()
        work.close()
        return future

    monkeypatch.setattr(loop, "submit", cancelled)
    closing = threading.Thread(target=loop.close, daemon=True)
    closing.start()
    closing.join(20)
    assert not closing.is_alive()


def test_two_closes_at_once_let_what_runs_come_to_its_end():
    loop, begun, ended, late = LoopThread(), threading.Event(), [], []

    async def slow_to_end():
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            late.append(loop.submit(_cancel_all()))  # a third one
            for _ in range(10):
                await asyncio.sleep(0)
            ended.append(True)

    waiting = loop.submit(slow_to_end())
    assert begun.wait(20)
    loop.call_soon(lambda: [loop._stop() for _ in range(2)])  # both have cancelled each other, and stop it in one turn
    loop._thread.join(20)
    assert ended == [True]
    assert waiting.cancelled()
    assert late[0].cancelled()
    loop.close()


def test_a_close_that_is_about_to_begin_when_another_one_stops_the_loop_does_not_disturb_its_end():
    failed, together = [], threading.Event()
    loop = LoopThread(at_failure=lambda: failed.append(True))
    loop.call_soon(together.wait)
    second = loop.submit(_cancel_all())
    loop.call_soon(loop._stop)
    together.set()
    loop._thread.join(20)
    assert not failed
    assert second.cancelled()


def test_a_callback_cannot_wait_for_its_own_loop(loop):
    async def nested():
        loop.run(_thread())

    with pytest.raises(ClientClosed, match="callback"):
        loop.run(nested())


def _exit():
    raise SystemExit("from a callback")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_nobody_waits_for_a_loop_that_has_ended():
    failed, failures, begun = [], [], threading.Event()
    loop = LoopThread(at_failure=lambda: failed.append(threading.current_thread()))

    async def forever():
        begun.set()
        await asyncio.Event().wait()

    def wait():
        with pytest.raises(ClientClosed, match="meanwhile") as error:
            loop.run(forever())
        failures.append(error.value)

    waiter = threading.Thread(target=wait)
    waiter.start()
    assert begun.wait(20)
    loop.call_soon(_exit)
    waiter.join(20)
    loop._thread.join(20)
    assert (len(failures), failed) == (1, [loop._thread])
    with pytest.raises(ClientClosed, match="was closed"):
        loop.run(_thread())
    loop.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_work_that_ends_the_loop_ends_its_caller_too():
    loop = LoopThread()

    async def leave():
        _exit()

    with pytest.raises(SystemExit):
        loop.run(leave())
    loop._thread.join(20)
    loop.close()


def test_work_that_comes_when_the_loop_has_ended_is_refused(monkeypatch):
    failed = []
    loop = LoopThread(at_failure=lambda: failed.append(True))
    schedule = loop._loop.call_soon_threadsafe

    def close_first(*arguments):
        monkeypatch.undo()
        loop.close()
        schedule(*arguments)

    monkeypatch.setattr(loop._loop, "call_soon_threadsafe", close_first)
    with pytest.raises(ClientClosed, match="was closed"):
        loop.run(_thread())
    assert not failed


def test_work_that_runs_when_its_submission_is_interrupted_is_cancelled(loop, monkeypatch):
    begun, interrupted, ended = (threading.Event() for _ in range(3))
    threads = []
    schedule = loop._loop.call_soon_threadsafe

    async def work():
        begun.set()
        interrupted.wait(20)
        try:
            await asyncio.Event().wait()
        finally:
            threads.append(threading.current_thread())
            ended.set()

    def interrupt(*arguments):
        monkeypatch.undo()
        schedule(*arguments)
        assert begun.wait(20)
        raise KeyboardInterrupt

    monkeypatch.setattr(loop._loop, "call_soon_threadsafe", interrupt)
    with pytest.raises(KeyboardInterrupt):
        loop.run(work())
    interrupted.set()
    assert ended.wait(20)
    assert threads == [loop._thread]


def test_work_whose_submission_is_interrupted_is_not_left_behind(loop):
    async def forever():
        await asyncio.Event().wait()

    def begun():
        work, future = forever(), Future()
        return (work, future), lambda: loop._submit(work, future, waits=True)

    for work, future in interruptions(begun):
        loop._give_up(future)  # as run does
        for _ in range(10):
            loop.run(_thread())
        if inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
            work.close()  # nobody has taken it yet
        assert inspect.getcoroutinestate(work) == inspect.CORO_CLOSED
        assert not loop._unbegun


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
