"""The loop's time shared out, on a clock that moves only while somebody works."""

import asyncio
import gc
import logging
from collections.abc import Generator

import pytest

from sparklog.net.turns import SHARE_S, SLOW_S, TURN_S, Turns, Usage
from sparklog.testing.clock import ManualClock

STEP_S = SHARE_S / 4
HALF_A_SHARE = SHARE_S / 2


class Busy:
    """A worker with so many steps to do, each of which takes some time; ``diary`` is told of each stretch."""

    def __init__(self, name, turns, clock, diary, steps, step_s=STEP_S):
        self.name, self.turns, self.clock, self.diary = name, turns, clock, diary
        self.left, self.step_s, self.usage = steps, step_s, Usage()

    def work(self, seconds):
        began = self.turns.time()
        while self.left and self.turns.time() < began + seconds:
            self.clock.advance(self.step_s)
            self.left -= 1
        self.diary.append((self.name, self.turns.time() - began))
        self.turns.count(self.usage, self.turns.spend(began))
        if self.left:
            self.turns.ask(self)


@pytest.fixture
def clock():
    return ManualClock()


def run(body):
    return asyncio.run(body())


async def turn_of_the_loop():
    await asyncio.sleep(0)


def test_a_turn_of_the_loop_serves_for_a_bounded_time_however_many_ask(clock):
    async def body():
        turns, diary = Turns(asyncio.get_running_loop(), clock), []
        for number in range(200):
            turns.ask(Busy(number, turns, clock, diary, steps=8))
        in_a_turn = []
        while len(diary) < 400:
            before = clock.monotonic()
            await turn_of_the_loop()
            in_a_turn.append(clock.monotonic() - before)
        assert max(in_a_turn) <= TURN_S + SHARE_S
        assert {name for name, _ in diary[:200]} == set(range(200)), "everyone is served once before anyone twice"

    run(body)


async def asks_and_waits_for_one_turn_at_most(worker):
    before = len(worker.diary)
    worker.turns.ask(worker)
    await turn_of_the_loop()
    assert worker.name in {name for name, _ in worker.diary[before : before + 2]}


def crowd(turns, clock, diary, many, steps):
    for number in range(many):
        turns.ask(Busy(number, turns, clock, diary, steps))


def test_who_asks_now_and_then_is_served_before_those_who_ask_without_end(clock):
    async def body():
        turns, diary = Turns(asyncio.get_running_loop(), clock), []
        crowd(turns, clock, diary, 200, steps=4000)
        for _ in range(100):
            await turn_of_the_loop()
        for _ in range(20):
            await asks_and_waits_for_one_turn_at_most(Busy("ping", turns, clock, diary, steps=1))

    run(body)


def test_who_has_had_short_turns_does_not_wait_for_the_first_of_many_newcomers(clock):
    async def body():
        turns, diary = Turns(asyncio.get_running_loop(), clock), []
        ping = Busy("ping", turns, clock, diary, steps=1)
        turns.ask(ping)
        await turn_of_the_loop()
        crowd(turns, clock, diary, 200, steps=4000)
        for _ in range(15):
            await turn_of_the_loop()
            ping.left = 1
            await asks_and_waits_for_one_turn_at_most(ping)
        assert len({name for name, _ in diary}) < 200, "they have come to no second turn"

    run(body)


def test_what_a_client_had_alone_does_not_put_it_behind_newcomers(clock):
    async def body():
        turns, diary = Turns(asyncio.get_running_loop(), clock), []
        ping = Busy("ping", turns, clock, diary, steps=0)
        for _ in range(10_000):  # as a connection is served at once while nobody waits
            ping.left = 1
            ping.work(turns.left_s)
            await turn_of_the_loop()
        crowd(turns, clock, diary, 4, steps=100_000)
        for _ in range(100):
            await turn_of_the_loop()
            ping.left = 1
            await asks_and_waits_for_one_turn_at_most(ping)

    run(body)


@pytest.mark.parametrize("clients", [30, 300])
def test_many_who_ask_for_little_shut_no_newcomer_out(clock, clients):
    """Nor what is done in pauses for a request of somebody else."""

    class Asking(Busy):
        def work(self, seconds):
            super().work(seconds)
            self.left = 1
            self.turns._loop.call_soon(self.turns.ask, self)  # its next request is there in the next round

    async def body():
        turns, round_s = Turns(asyncio.get_running_loop(), clock), clients * STEP_S
        for number in range(clients):
            turns.ask(Asking(number, turns, clock, [], steps=1))
        while clock.monotonic() < 20 * round_s:
            await turn_of_the_loop()
        diary, began = [], clock.monotonic()
        turns.ask(Busy("new", turns, clock, diary, steps=1))
        while not diary:
            await turn_of_the_loop()
        assert clock.monotonic() - began < 3 * round_s
        began = clock.monotonic()
        async for _ in turns.paced(range(4)):
            clock.advance(SHARE_S)
        assert clock.monotonic() - began < 3 * 4 * round_s

    run(body)


def test_who_has_had_much_alone_does_not_wait_for_all_newcomers_to_catch_up(clock):
    async def body():
        turns, diary = Turns(asyncio.get_running_loop(), clock), []
        old = Busy("old", turns, clock, diary, steps=10_000)
        old.usage.served_s = 1_000_000.0
        turns.ask(old)
        turns.ask(Busy("new", turns, clock, diary, steps=100_000))
        while not any(name == "old" for name, _ in diary):
            await turn_of_the_loop()
            assert clock.monotonic() < 5, "a bound, of a clock that only work moves"

    run(body)


def test_steps_are_driven_a_share_at_a_time_and_their_end_is_the_result(clock):
    async def body():
        turns, taken = Turns(asyncio.get_running_loop(), clock), []

        def steps():
            for number in range(40):
                clock.advance(STEP_S)
                taken.append(number)
                yield
            return "done"

        driving = asyncio.ensure_future(turns.drive(steps(), lambda: "it"))
        await turn_of_the_loop()
        assert len(taken) == 4
        assert await driving == "done"

    run(body)


def test_steps_that_fail_or_are_given_up_are_closed(clock):
    async def body():
        turns, closed = Turns(asyncio.get_running_loop(), clock), []

        def steps(fails):
            try:
                while True:
                    clock.advance(SHARE_S)
                    yield
                    if fails:
                        raise ValueError("no")
            finally:
                closed.append(fails)

        with pytest.raises(ValueError, match="no"):
            await turns.drive(steps(True), lambda: "it")
        driving = asyncio.ensure_future(turns.drive(steps(False), lambda: "it"))
        await turn_of_the_loop()
        driving.cancel()
        await asyncio.gather(driving, return_exceptions=True)
        assert closed == [True, False]

    run(body)


class CompiledCoroutine(Generator[object, object, object]):
    """As mypyc makes a coroutine: it has what a generator has too."""

    def __init__(self, work):
        self._work = work

    def send(self, value):
        return self._work.send(value)

    def throw(self, *error):
        return self._work.throw(*error)

    def __await__(self):
        return self


def test_work_comes_to_what_its_steps_or_its_coroutine_come_to(clock):
    async def body():
        turns = Turns(asyncio.get_running_loop(), clock)

        async def waits():
            await asyncio.sleep(0)
            return "done"

        def steps(end):
            yield
            return end()

        for work in (
            "done",
            waits(),
            CompiledCoroutine(waits()),
            steps(lambda: "done"),
            steps(waits),
            steps(lambda: CompiledCoroutine(waits())),
        ):
            assert await turns.outcome(work, lambda: "it") == "done", work
        assert await turns.outcome(None, lambda: "it") is None

    run(body)


def test_a_long_loop_pauses_once_a_share(clock):
    async def body():
        turns, diary = Turns(asyncio.get_running_loop(), clock), []
        turns.ask(Busy("other", turns, clock, diary, steps=10_000))

        async def long():
            async for number in turns.paced(range(8)):
                clock.advance(HALF_A_SHARE)
                diary.append(("long", number))

        await asyncio.wait_for(long(), None)
        stretches = "".join("l" if name == "long" else "o" for name, _ in diary)
        assert "lll" not in stretches

    run(body)


def test_what_goes_on_outside_a_turn_asks_for_one_before_it_begins(clock):
    async def body():
        turns, diary = Turns(asyncio.get_running_loop(), clock), []
        turns.ask(Busy("other", turns, clock, diary, steps=4))
        async for _ in turns.paced([1]):
            diary.append(("paced", 0.0))
        assert [name for name, _ in diary] == ["other", "paced"]

    run(body)


def test_coroutines_begin_in_their_turns_and_go_on_in_others(clock):
    """As many clients as ask at once, each for what takes longer than a turn."""

    class Asking(Busy):
        def work(self, seconds):
            began = self.turns.time()
            self.turns.until = began + seconds
            self.found = self.turns.begin(self.look(), lambda: "it")
            self.turns.count(self.usage, self.turns.spend(began))

        async def look(self):
            async for _ in self.turns.paced(range(self.left)):
                self.clock.advance(self.step_s)
            return self.name

    async def body():
        turns = Turns(asyncio.get_running_loop(), clock)
        clients = [Asking(number, turns, clock, [], steps=10) for number in range(200)]
        for each in clients:
            turns.ask(each)
        longest = 0.0
        while not all(hasattr(each, "found") and each.found.done() for each in clients):
            before = clock.monotonic()
            await turn_of_the_loop()
            longest = max(longest, clock.monotonic() - before)
        assert longest <= 2 * (TURN_S + SHARE_S), "a turn, and what the last one let go on"
        assert [each.found.result() for each in clients] == list(range(200))

    run(body)


def test_what_is_begun_is_done_at_once_if_it_waits_for_nothing(clock):
    async def answer():
        return 7

    async def fail():
        raise ValueError("no")

    async def give_up():
        raise asyncio.CancelledError

    async def body():
        turns = Turns(asyncio.get_running_loop(), clock)
        done, failed, given_up = (turns.begin(each(), lambda: "it") for each in (answer, fail, give_up))
        assert done.result() == 7
        assert str(failed.exception()) == "no"
        assert given_up.cancelled()
        await turn_of_the_loop()

    run(body)


@pytest.mark.parametrize("when", ["before its task has begun", "after"])
@pytest.mark.parametrize("how", ["result", "error", "cancel"])
def test_what_is_begun_is_a_task_of_its_own_when_it_waits(clock, when, how):
    async def body():
        loop = asyncio.get_running_loop()
        turns, future, heard = Turns(loop, clock), loop.create_future(), []

        async def work():
            heard.append(asyncio.current_task())
            try:
                async with asyncio.timeout(60):
                    return await future
            except ValueError as error:
                return str(error)
            except asyncio.CancelledError:
                heard.append("cancelled")
                raise
            finally:
                heard.append(asyncio.current_task())

        begun, beside = turns.begin(work(), lambda: "it"), asyncio.ensure_future(asyncio.wait([future]))
        assert heard == [begun]
        assert asyncio.current_task() not in (None, begun)
        if when == "after":
            await turn_of_the_loop()
        if how == "cancel":
            begun.cancel()
        elif how == "error":
            future.set_exception(ValueError("no"))
        else:
            future.set_result("yes")
        await beside
        await asyncio.gather(begun, return_exceptions=True)
        if how == "cancel":
            assert begun.cancelled()
            assert future.cancelled()
            assert heard[1] == "cancelled"
        else:
            assert begun.result() == ("yes" if how == "result" else "no")
        assert heard[-1] is begun

    run(body)


@pytest.mark.parametrize("when", ["before its task has begun", "after"])
def test_of_what_was_begun_and_cancelled_nothing_is_left_that_nobody_asked_for(clock, when):
    async def body():
        loop = asyncio.get_running_loop()
        turns, complaints, heard = Turns(loop, clock), [], []
        loop.set_exception_handler(lambda _, context: complaints.append(context["message"]))

        async def work():
            try:
                await asyncio.gather(loop.create_future(), loop.create_future())
            except asyncio.CancelledError:
                heard.append("cancelled")
                raise

        begun = turns.begin(work(), lambda: "it")
        if when == "after":
            await turn_of_the_loop()
        begun.cancel()
        await asyncio.wait([begun])
        assert (begun.cancelled(), heard) == (True, ["cancelled"])
        del begun
        gc.collect()
        assert complaints == []

    run(body)


def test_several_may_be_begun_that_wait_for_one_future(clock):
    async def body():
        loop = asyncio.get_running_loop()
        turns, future = Turns(loop, clock), loop.create_future()

        async def work():
            await asyncio.sleep(0)
            return await future

        async def at_once():
            return await future

        begun = [turns.begin(each(), lambda: "it") for each in (work, at_once, at_once, work)]
        waiting = asyncio.ensure_future(at_once())
        loop.call_soon(future.set_result, 7)
        assert await asyncio.gather(*begun, waiting) == [7] * 5

    run(body)


def test_what_holds_up_everybody_is_told_with_its_name(clock, caplog):
    async def body():
        turns = Turns(asyncio.get_running_loop(), clock)

        async def slow():
            clock.advance(SLOW_S * 2)
            await asyncio.sleep(0)
            return 7

        assert await turns.timed(slow(), lambda: "METADATA of client 'me'") == 7
        with turns.watched(lambda: "retention"):
            clock.advance(SLOW_S / 2)

    with caplog.at_level(logging.WARNING, "sparklog.net.turns"):
        run(body)
    assert [record.getMessage() for record in caplog.records] == [
        "METADATA of client 'me' held up all others for 100 ms"
    ]


def test_timed_work_is_told_what_its_awaiter_is_told(clock):
    async def body():
        turns = Turns(asyncio.get_running_loop(), clock)
        future = asyncio.get_running_loop().create_future()

        async def work():
            try:
                return await future
            except ValueError as error:
                return str(error)

        waiting = asyncio.ensure_future(turns.timed(work(), lambda: "it"))
        await turn_of_the_loop()
        future.set_exception(ValueError("told"))
        assert await waiting == "told"
        cancelled = asyncio.ensure_future(turns.timed(asyncio.sleep(1000), lambda: "it"))
        await turn_of_the_loop()
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled

    run(body)


@pytest.mark.parametrize("waiting", [1, 200])
def test_a_worker_that_fails_holds_up_no_other(clock, caplog, waiting):
    class Broken(Busy):
        def work(self, seconds):
            super().work(seconds)
            raise ZeroDivisionError

    async def body():
        turns, diary = Turns(asyncio.get_running_loop(), clock), []
        turns.ask(Broken("broken", turns, clock, diary, steps=1))
        for number in range(waiting):
            turns.ask(Busy(number, turns, clock, diary, steps=1))
        while len(diary) < waiting + 1:
            await turn_of_the_loop()
        assert turns.left_s > 0

    run(body)
    assert "failed in its turn" in caplog.text
