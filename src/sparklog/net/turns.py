"""Fair queueing of the loop's time among connections: the connection that has had the least is next.

Invariants:

1. In one turn of the loop requests are served for ``TURN_S`` at most, and for one piece of work beyond that. A
   connection with more to do waits in the queue while the loop looks at sockets and timers.
2. Every other turn from the queue goes to the connection with the smallest share so far. It is served for ``SHARE_S``,
   or for what is left of the turn where no other waits.
3. The turns between go to the connection that has waited longest. So a connection waits for at most twice as long as
   those before it take, however many clients ask for little or for much.
4. A connection that comes to the queue counts as having had about as much as the one served last: at least that less
   ``_CREDIT_S``, at most that and ``_DEBT_S``. So a pause is worth a little and is not saved up; what a connection had
   while no other wanted it is not held against it; and no connection waits for all newcomers to catch up with it.
5. A turn that is likely to be short comes before long ones. To its share a connection's key adds ``_PATIENCE`` times
   the mean of its last turns, and ``_PATIENCE`` times ``SHARE_S`` before its first, which is more than all its credit.
   Else many newcomers would each be served once before a client that had asked for little all the time.
6. A turn counts for what it took, up to ``SHARE_S``. What it took beyond counts in the proportion that the mean of the
   last turns has to ``SHARE_S``: it may be the request's, or the machine has done something else meanwhile. So a client
   that asks for much in every other request counts as one that asks for much, and one that asks for little and was
   interrupted now and then does not.
7. What a coroutine does for a request before it first waits is part of the turn in which the request is begun, and
   ``paced`` begins no element outside a turn.
"""

from __future__ import annotations

import heapq
import logging
import types
from asyncio import AbstractEventLoop, CancelledError, Future, Task, current_task
from asyncio.tasks import _enter_task, _leave_task
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, Generic, Protocol, TypeVar, cast

from sparklog.clock import Clock, SystemClock
from sparklog.rate_limit import RateLimitedLogger

T = TypeVar("T")

_logger = logging.getLogger(__name__)

TURN_S = 0.005
SHARE_S = 0.001
SLOW_S = 0.05
"""A piece of work that takes longer is told of in the log."""
_CREDIT_S = 0.01
_PATIENCE = 3 * _CREDIT_S / SHARE_S
_DEBT_S = 0.1
_COUNTED_FROM_S = TURN_S / 2
_GONE_AT_MOST = 100
_TURNS = 8
"""The mean of a connection's turns is that of about so many, the last ones."""


class Usage:
    """What a worker has had of the loop's time. ``Turns.count`` is told of each turn."""

    __slots__ = ("served_s", "turn_s", "turns")

    def __init__(self) -> None:
        self.served_s = 0.0
        """What all turns count for."""
        self.turn_s = SHARE_S
        """The mean of the last turns, none of which is more than a share; a share before the first."""
        self.turns = 0
        """How many the mean is of."""


class Worker(Protocol):
    """A connection with something to do."""

    usage: Usage

    def work(self, seconds: float) -> None:
        """Do what there is to do, for so long; ask for another turn if something is left."""


class _Queue:
    """Workers under keys; given by the least key, or by age."""

    def __init__(self) -> None:
        self._by_key: list[tuple[float, int]] = []
        self._by_age: OrderedDict[int, Worker] = OrderedDict()  # by arrival
        self._arrivals = count()

    def __len__(self) -> int:
        return len(self._by_age)

    def put(self, key: float, worker: Worker) -> None:
        arrival = next(self._arrivals)
        self._by_age[arrival] = worker
        heapq.heappush(self._by_key, (key, arrival))

    def least(self) -> Worker:
        while True:
            _, arrival = heapq.heappop(self._by_key)
            worker = self._by_age.pop(arrival, None)
            if worker is not None:
                return worker

    def oldest(self) -> Worker:
        _, worker = self._by_age.popitem(last=False)
        if len(self._by_key) > 2 * len(self._by_age) + _GONE_AT_MOST:
            self._by_key = [each for each in self._by_key if each[1] in self._by_age]
            heapq.heapify(self._by_key)
        return worker


class Turns:
    """Which connection may work now, and which is next. ``spend`` is told of all work on the loop for a request."""

    def __init__(self, loop: AbstractEventLoop, clock: Clock | None = None) -> None:
        self._loop = loop
        self.time: Callable[[], float] = (clock or SystemClock()).monotonic
        """Seconds on a clock that never goes back."""
        self._warnings = RateLimitedLogger(_logger, self.time)
        self._waiting = _Queue()
        self._reached_s = 0.0
        self._spent_s = 0.0
        self._is_due = False
        self._is_oldest_next = False
        self.until = 0.0
        """When the turn begun last is to end: a worker sets it. What goes on by itself outside of it is to pause."""

    @property
    def left_s(self) -> float:
        """How long a connection may go on at once; 0 where it is to ask for a turn."""
        return 0.0 if self._waiting else max(TURN_S - self._spent_s, 0.0)

    @property
    def waiting(self) -> int:
        """How many wait for their turn."""
        return len(self._waiting)

    def ask(self, worker: Worker) -> None:
        """Have ``worker.work`` called when it is its turn."""
        usage, reached = worker.usage, self._reached_s
        usage.served_s = min(max(usage.served_s, reached - _CREDIT_S), reached + _DEBT_S)
        behind = _PATIENCE * usage.turn_s
        self._waiting.put(usage.served_s + behind, worker)
        self._end_turn_soon()

    def spend(self, began: float) -> float:
        """Some work that began then is done; returns how long it took."""
        seconds = self.time() - began
        self._spent_s += seconds
        if self._spent_s > _COUNTED_FROM_S:
            self._end_turn_soon()
        return seconds

    def count(self, usage: Usage, took_s: float) -> None:
        """A turn of this one took so long."""
        within = min(took_s, SHARE_S)
        usage.turns = min(usage.turns + 1, _TURNS)
        usage.turn_s += (within - usage.turn_s) / usage.turns
        usage.served_s += within + (took_s - within) * usage.turn_s / SHARE_S
        if not self._waiting:
            self._reached_s = max(self._reached_s, usage.served_s)

    def tell(self, seconds: float, what: Callable[[], str]) -> None:
        """One piece of work took so long that the log is to name it."""
        self._warnings.warn("slow", f"{what()} held up all others for {seconds * 1000:.0f} ms")

    @contextmanager
    def watched(self, what: Callable[[], str]) -> Iterator[None]:
        """A piece of work is done meanwhile that cannot be parted."""
        began = self.time()
        try:
            yield
        finally:
            seconds = self.spend(began)
            if seconds > SLOW_S:
                self.tell(seconds, what)

    def _end_turn_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._is_due = False
        self._spent_s = 0.0
        while self._waiting and self._spent_s < TURN_S:
            if self._is_oldest_next:
                worker = self._waiting.oldest()
            else:
                worker = self._waiting.least()
                self._reached_s = max(self._reached_s, worker.usage.served_s)
            self._is_oldest_next = not self._is_oldest_next
            before = self._spent_s
            try:
                worker.work(SHARE_S if self._waiting else TURN_S - self._spent_s)
            except Exception:  # the others are not to wait for ever
                _logger.exception("%s failed in its turn", worker)
            if self._spent_s == before:  # a clock that stands still: no connection may have the loop for itself
                self._spent_s += SHARE_S
        if self._waiting:
            self._end_turn_soon()

    async def paced(self, items: Iterable[T]) -> AsyncIterator[T]:
        """The ``items``, with a pause for others before each that would begin when the turn is over."""
        until, usage = self.until, Usage()
        for each in items:
            if self.time() >= until:
                pause = _Pause(self, usage, self._loop.create_future())
                self.ask(pause)
                await pause.over
                until = self.time() + SHARE_S
            yield each

    def begin(self, work: Coroutine[Any, Any, T], what: Callable[[], str]) -> Future[T]:
        """What ``work`` comes to. It is begun at once, in the turn under way; what it does later is ``timed``.

        Done on return if it waits for nothing. To cancel it cancels the work.
        """
        begun = _Begun(self, work, what, self._loop.create_future())
        task: Task[T] = self._loop.create_task(begun)
        with _as_current(task, self._loop):
            begun.begin()
        return begun.outcome if begun.outcome.done() else task

    @types.coroutine
    def timed(self, work: Coroutine[Any, Any, T], what: Callable[[], str]) -> Generator[Any, Any, T]:
        """To be awaited in place of ``work``: each of its stretches on the loop is told to ``spend``."""
        resume, given = work.send, None
        while True:
            try:
                with self.watched(what):
                    awaited = resume(given)
            except StopIteration as end:
                return cast("T", end.value)
            try:
                given, resume = (yield awaited), work.send
            except BaseException as error:  # the awaiter's, or a cancellation: it is the work's to deal with
                given, resume = error, work.throw

    async def drive(self, steps: Generator[None, None, T], what: Callable[[], str]) -> T:
        """The result of ``steps``, which are taken a share at a time among the connections' turns."""
        driver: _Driver[T] = _Driver(self, steps, what, self._loop.create_future())
        driver.work(SHARE_S)
        try:
            return await driver.done
        finally:
            steps.close()

    async def outcome(
        self, work: T | Awaitable[T] | Generator[None, None, T | Awaitable[T]], what: Callable[[], str]
    ) -> T:
        """What ``work`` comes to. Steps are driven; an awaitable is awaited, also one that steps come to."""
        given: Any = work
        if isinstance(given, Generator) and not isinstance(given, Awaitable):  # a compiled coroutine looks like one
            given = await self.drive(given, what)
        return cast("T", await given if isinstance(given, Awaitable) else given)


@contextmanager
def _as_current(task: Task[Any], loop: AbstractEventLoop) -> Iterator[None]:
    """What is done meanwhile is done by ``task``, though the loop has not come to it."""
    outer = current_task(loop)
    if outer is not None:
        _leave_task(loop, outer)
    _enter_task(loop, task)
    try:
        yield
    finally:
        _leave_task(loop, task)
        if outer is not None:
            _enter_task(loop, outer)


class _Begun(Coroutine[Any, Any, T]):
    """Work whose first stretch is done before the loop comes to its task.

    What the work then awaits is the first that the task hears of; ``outcome`` is done if it awaits nothing.
    """

    def __init__(self, turns: Turns, work: Coroutine[Any, Any, T], what: Callable[[], str], outcome: Future[T]) -> None:
        self._turns = turns
        self._work = work
        self._what = what
        self.outcome = outcome
        self._awaited: Any = None
        self._is_heard_of = False

    def begin(self) -> None:
        """Do the first stretch."""
        try:
            self._awaited = self._work.send(None)
            if isinstance(self._awaited, Future):
                self._awaited._asyncio_future_blocking = False  # taken: others may await it
        except StopIteration as end:
            self.outcome.set_result(end.value)
        except CancelledError:
            self.outcome.cancel()
        except Exception as error:
            self.outcome.set_exception(error)

    def send(self, value: Any) -> Any:
        if self.outcome.done():
            raise StopIteration
        if not self._is_heard_of:
            self._is_heard_of = True
            if isinstance(self._awaited, Future):
                self._awaited._asyncio_future_blocking = True
            return self._awaited
        with self._turns.watched(self._what):
            return self._work.send(value)

    def throw(self, *error: Any) -> Any:
        if self.outcome.done():
            return super().throw(*error)
        if not self._is_heard_of:
            self._is_heard_of = True
            if isinstance(self._awaited, Future) and self._awaited.cancel():
                self._awaited._asyncio_future_blocking = True
                return self._awaited  # the work hears of it from what it awaits, as that of any task does
        with self._turns.watched(self._what):
            return self._work.throw(*error)

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[Any, Any, T]:
        raise TypeError("only a task awaits it")


class _Pause:
    """A worker that waits for a turn, and uses up a share outside of it."""

    def __init__(self, turns: Turns, usage: Usage, over: Future[None]) -> None:
        self._turns = turns
        self.usage = usage
        self.over = over

    def work(self, _seconds: float) -> None:
        self._turns.count(self.usage, SHARE_S)
        if not self.over.done():
            self.over.set_result(None)


class _Driver(Generic[T]):
    """Steps that are taken for a task that awaits their end."""

    def __init__(self, turns: Turns, steps: Generator[None, None, T], what: Callable[[], str], done: Future[T]) -> None:
        self._turns = turns
        self._steps = steps
        self._what = what
        self.done = done
        self.usage = Usage()

    def work(self, seconds: float) -> None:
        if self.done.done():
            return
        began = self._turns.time()
        until = self._turns.until = began + seconds
        with self._turns.watched(self._what):
            try:
                take(self._steps, until, self._turns.time)
            except StopIteration as end:
                self.done.set_result(end.value)
            except Exception as error:
                self.done.set_exception(error)
        self._turns.count(self.usage, self._turns.time() - began)
        if not self.done.done():
            self._turns.ask(self)


def take(steps: Generator[None, None, T], until: float, time: Callable[[], float]) -> None:
    """Take steps until the time has come. Raises StopIteration with their result at the end."""
    next(steps)
    while time() < until:
        next(steps)
