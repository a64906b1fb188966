"""When a state machine on an event loop has its turn."""

import asyncio
import threading

from client.interrupts import interruptions

from sparklog.client.cluster.wakeup import Wakeup


def _run(test):
    async def limited():
        async with asyncio.timeout(60):
            await test()

    asyncio.run(limited())


class Machine:
    """Counts its turns, and asks for what ``delays`` says."""

    def __init__(self, *delays):
        self.delays = list(delays)
        self.had = asyncio.Queue()
        self.turns = Wakeup(self.turn)

    def turn(self):
        self.had.put_nowait(threading.get_ident())
        delay = self.delays.pop(0) if self.delays else None
        if isinstance(delay, Exception):
            raise delay
        return delay


def test_many_wakes_are_one_turn_and_none_is_had_inside_of_wake():
    async def test():
        machine = Machine()
        for _ in range(3):
            machine.turns.wake()
        assert machine.had.empty()
        await machine.had.get()
        await asyncio.sleep(0)
        assert machine.had.empty()
        machine.turns.wake()
        await machine.had.get()

    _run(test)


def test_a_turn_that_wakes_has_another():
    async def test():
        machine = Machine()
        machine.turns._turn = lambda: (machine.turns.wake() if machine.had.empty() else None, machine.turn())[1]
        machine.turns.wake()
        await machine.had.get()
        await machine.had.get()

    _run(test)


def test_a_turn_comes_by_itself_when_its_time_is_over():
    async def test():
        machine = Machine(0.001, 1000.0)
        machine.turns.wake()
        await machine.had.get()
        await machine.had.get()
        timer = machine.turns._timer
        machine.turns.wake()
        await machine.had.get()
        assert timer.cancelled(), "the turn that was woken says anew when the next is"

    _run(test)


def test_other_threads_call_and_the_turn_is_on_the_loop():
    async def test():
        machine = Machine()
        for _ in range(3):
            thread = threading.Thread(target=lambda: [machine.turns.call() for _ in range(100)])
            thread.start()
            assert await machine.had.get() == threading.get_ident()
            thread.join()

    _run(test)


def test_many_calls_are_one_turn(monkeypatch):
    async def test():
        machine, called = Machine(), []
        monkeypatch.setattr(machine.turns._loop, "call_soon_threadsafe", called.append)
        for _ in range(3):
            machine.turns.call()
        assert len(called) == 1
        called[0]()
        machine.turns.call()
        assert len(called) == 2

    _run(test)


def test_a_call_that_is_interrupted_is_not_in_the_way_of_the_next():
    async def test():
        def begun():
            machine = Machine()
            return machine, machine.turns.call

        for machine in interruptions(begun):
            machine.turns.call()
            await machine.had.get()

    _run(test)


def test_a_turn_that_fails_is_not_the_last(caplog, monkeypatch):
    monkeypatch.setattr("sparklog.client.cluster.wakeup._PAUSE_AFTER_FAILURE", 0.001)

    async def test():
        machine = Machine(KeyError("x"))
        machine.turns.wake()
        await machine.had.get()
        await machine.had.get()
        assert "another one follows" in caplog.text

    _run(test)


def test_after_the_end_there_is_none():
    async def test():
        machine = Machine(0.0)
        machine.turns.wake()
        await machine.had.get()
        machine.turns.call()
        machine.turns.end()
        machine.turns.wake()
        for _ in range(5):
            await asyncio.sleep(0)
        assert machine.had.empty()

    _run(test)
