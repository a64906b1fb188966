"""What clients of each kind wait for beside others, on a clock that moves only while somebody works or all wait."""

import heapq
from itertools import count, cycle, islice, repeat

import pytest

from sparklog.net.turns import SHARE_S, TURN_S, Turns, Usage
from sparklog.testing.clock import ManualClock

SHORT_S = SHARE_S / 20
PIECE_S = SHARE_S / 4
PING_EVERY_S = 0.005
ENDLESS_S = 1000.0
ONE_TURN_S = SHARE_S + PIECE_S + SHORT_S
"""What a request takes that waits for one turn of somebody else."""


class Loop:
    """Rounds of callbacks and timers, as an event loop has them."""

    def __init__(self):
        self.clock = ManualClock()
        self.turns = Turns(self, self.clock)
        self._ready, self._timers, self._order = [], [], count()

    def call_soon(self, callback):
        self._ready.append(callback)

    def call_later(self, seconds, callback):
        heapq.heappush(self._timers, (self.clock.monotonic() + seconds, next(self._order), callback))

    def run(self, seconds):
        until = self.clock.monotonic() + seconds
        while (now := self.clock.monotonic()) < until:
            while self._timers and self._timers[0][0] <= now:
                self._ready.append(heapq.heappop(self._timers)[2])
            if self._ready:
                ready, self._ready = self._ready, []
                for callback in ready:
                    callback()
            else:
                self.clock.advance((self._timers[0][0] if self._timers else until) - now)


class Client:
    """Sends a request, waits for its answer, and sends the next after ``pause_s``: each takes the next of ``costs``.

    They are served in pieces of ``piece_s``, as a channel serves them: at once if nobody waits.
    """

    def __init__(self, loop, costs, pause_s=0.0, piece_s=PIECE_S):
        self._loop, self._costs, self._pause_s, self._piece_s = loop, iter(costs), pause_s, piece_s
        self.usage, self.waits, self.had_s = Usage(), [], 0.0
        self._ask()

    def _ask(self):
        self._left_s = next(self._costs, None)
        if self._left_s is None:
            return
        self._asked_at = self._loop.clock.monotonic()
        seconds = self._loop.turns.left_s
        if seconds > 0:
            self.work(seconds)
        else:
            self._loop.turns.ask(self)

    def work(self, seconds):
        turns, clock = self._loop.turns, self._loop.clock
        began = clock.monotonic()
        while self._left_s > 0 and clock.monotonic() < began + seconds:
            piece_s = min(self._piece_s, self._left_s)
            clock.advance(piece_s)
            self._left_s -= piece_s
        self.had_s += clock.monotonic() - began
        turns.count(self.usage, turns.spend(began))
        if self._left_s > 0:
            turns.ask(self)
            return
        self.waits.append(clock.monotonic() - self._asked_at)
        if self._pause_s:
            self._loop.call_later(self._pause_s, self._ask)
        else:
            self._loop.call_soon(self._ask)


@pytest.fixture
def loop():
    return Loop()


def clients(loop, many, *costs, **how):
    """So many, which differ in where in ``costs`` they begin."""
    return [Client(loop, islice(cycle(costs), number % len(costs), None), **how) for number in range(many)]


def pinging(loop, costs=(SHORT_S,)):
    """A client that asks for little now and then, and has done so for a while."""
    ping = Client(loop, cycle(costs), PING_EVERY_S)
    loop.run(1)
    ping.waits.clear()
    return ping


def share_of_waits(waits, within_s):
    return sum(each <= within_s for each in waits) / len(waits)


@pytest.mark.parametrize("many", [12, 200, 1000])
def test_who_asks_now_and_then_waits_for_one_turn_of_busy_ones(loop, many):
    ping = pinging(loop)
    clients(loop, many, ENDLESS_S)
    loop.run(20)
    assert max(ping.waits) <= ONE_TURN_S


@pytest.mark.parametrize("request_s", [SHORT_S, 20 * SHARE_S])
def test_newcomers_wait_for_their_share_beside_busy_ones(loop, request_s):
    many = 12
    clients(loop, many, ENDLESS_S)
    newcomers = []
    for _ in range(20):
        loop.run(0.5)
        newcomers.append(Client(loop, [request_s]))
    loop.run(0.5)
    turns = max(request_s / SHARE_S, 1)
    assert max(each.waits[0] for each in newcomers) <= turns * (many + 1) * SHARE_S


@pytest.mark.parametrize("many", [30, 300, 1000])
def test_many_with_short_requests_keep_no_newcomer_waiting(loop, many):
    clients(loop, many, PIECE_S)
    loop.run(2)
    newcomer = Client(loop, repeat(SHARE_S))
    loop.run(10)
    assert max(newcomer.waits) <= 2 * (many + 1) * PIECE_S + TURN_S


@pytest.mark.parametrize("many", [300, 1000])
def test_who_asks_for_little_does_not_wait_for_those_who_ask_for_little_and_much_in_turn(loop, many):
    """Whether it was there before them or comes later."""
    costs_s = (SHORT_S, SHARE_S)
    ping = pinging(loop)
    clients(loop, many, *costs_s, piece_s=SHARE_S)
    loop.run(2 * many * sum(costs_s))
    assert max(ping.waits) <= many * sum(costs_s) / 5, "until it is known of them all that they ask for much"
    ping.waits.clear()
    late = Client(loop, repeat(SHORT_S), PING_EVERY_S)
    loop.run(10)
    assert late.waits[0] <= many * sum(costs_s), "it is a newcomer, of which there may be many"
    for each in (ping, late):
        assert share_of_waits(each.waits, ONE_TURN_S) > 0.98


def test_who_is_interrupted_now_and_then_does_not_wait_for_busy_ones(loop):
    interrupted_s = 8 * SHARE_S
    ping = pinging(loop, (SHORT_S, SHORT_S, SHORT_S, SHORT_S, interrupted_s))
    ping._piece_s = interrupted_s
    clients(loop, 200, ENDLESS_S)
    loop.run(10)
    assert max(ping.waits) <= ONE_TURN_S + interrupted_s


def test_who_asks_for_little_does_not_wait_for_a_stream_of_newcomers(loop):
    ping = pinging(loop)

    def come():
        Client(loop, [3 * SHARE_S])
        loop.call_later(2 * SHARE_S, come)

    come()
    loop.run(10)
    assert max(ping.waits) <= ONE_TURN_S


def test_who_has_had_much_alone_has_its_share_beside_newcomers(loop):
    (old,) = clients(loop, 1, 20 * SHARE_S)
    loop.run(100)
    old.had_s = 0.0
    newcomers = clients(loop, 12, ENDLESS_S)
    loop.run(3)
    assert old.had_s >= 0.9 * min(each.had_s for each in newcomers)


def test_work_of_many_steps_has_its_share_beside_short_requests_and_busy_ones(loop):
    shorts, busy = clients(loop, 50, SHORT_S), clients(loop, 10, ENDLESS_S)
    loop.run(1)
    (work,) = clients(loop, 1, 100 * SHARE_S)
    loop.run(30)
    round_s = len(shorts) * SHORT_S + (len(busy) + 1) * (SHARE_S + PIECE_S)
    assert max(work.waits) <= 2 * 100 * round_s
    assert share_of_waits(shorts[0].waits, 2 * round_s) == 1
