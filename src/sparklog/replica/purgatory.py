"""Where requests wait: a long poll for bytes, acks=all for the in-sync replicas.

An operation waits under every partition that may complete it; ``check`` is called whenever one of them has moved. It is
told which: one that waits for thousands looks at that one alone, or each append to a partition for which many of them
wait would hold up all others. Kafka's name for it (``DelayedOperationPurgatory``).

Invariants: in one turn of the loop about ``SLICE`` operations are looked at or woken, whatever has moved; the others
are in the turns after it. Those of one partition are looked at in the order in which they came, and all of them before
another movement of the same partition is looked at, so that none of them starves. The partitions follow each other as
they moved.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from sparklog.structs import TopicPartition

_logger = logging.getLogger(__name__)

SLICE = 100
"""A look takes 1 µs. One that is followed by waking a request, which takes some 50 µs with its answer, counts twice."""
_KEYS_A_LOOK = 100
"""So many partitions are forgotten for what a look counts."""
_READS_A_LOOK = 3
"""So many partitions are read again by a request that is woken, for what a look counts."""

Condition = Callable[[TopicPartition], bool]
"""Whether what is waited for has come about, now that this partition may have moved."""


class DelayedOperation:
    """Completes once, by its condition or its deadline."""

    __slots__ = ("_purgatory", "_timer", "future", "is_satisfied", "keys")

    def __init__(self, purgatory: Purgatory, is_satisfied: Condition) -> None:
        self._purgatory = purgatory
        self._timer: asyncio.TimerHandle | None = None
        self.keys: list[TopicPartition] = []
        self.is_satisfied = is_satisfied
        self.future: asyncio.Future[bool] = purgatory.loop.create_future()
        self.future.add_done_callback(lambda _: self._given_up())
        purgatory.waiting += 1

    def _given_up(self) -> None:
        """Where the waiter has gone, its partitions are forgotten as those are of which the time is up."""
        self._purgatory.waiting -= 1
        if self.keys:
            self._purgatory.expire(self)

    def wait_for(self, keys: Iterable[TopicPartition]) -> None:
        """Wait under these too; each may have moved since the caller looked, and no other check will come for that."""
        for key in keys:
            if self.future.done():
                return
            self.keys.append(key)
            self._purgatory.enter(key, self)
            if self.has_come_about(key):
                self.complete(True)

    def has_come_about(self, key: TopicPartition) -> bool:
        """Whether it is to be woken now. One whose look fails is woken: the others wait on, and its waiter is told."""
        try:
            return self.is_satisfied(key)
        except Exception:
            _logger.exception("cannot tell whether a request that waits for %s is to be answered", key)
            return True

    def arm(self, timeout_ms: int) -> None:
        if not self.future.done():
            self._timer = self._purgatory.loop.call_later(timeout_ms / 1000, self._purgatory.expire, self)

    def complete(self, satisfied: bool) -> None:
        """Wake the waiter: True if the condition came about, False at the deadline."""
        if self._timer is not None:
            self._timer.cancel()
        self._purgatory.forget(self)
        self.keys = []
        if not self.future.done():
            self.future.set_result(satisfied)


class StandingOperation(DelayedOperation):
    """One request after another waits under the same partitions, which are entered once, not for each of them.

    Between two requests nobody waits, and nothing is looked at.
    """

    __slots__ = ("_watched",)

    def __init__(self, purgatory: Purgatory) -> None:
        super().__init__(purgatory, lambda _: False)
        self._watched: set[TopicPartition] = set()
        self.future.cancel()

    def begin(self, is_satisfied: Condition) -> None:
        """Another request waits from now on; one that still does is woken."""
        if not self.future.done():
            self.complete(False)
        self.is_satisfied = is_satisfied
        self.future = self._purgatory.loop.create_future()
        self.future.add_done_callback(lambda _: self._hush())
        self._purgatory.waiting += 1

    def _hush(self) -> None:
        self._purgatory.waiting -= 1
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def enter(self, key: TopicPartition) -> None:
        """Requests wait under this partition too."""
        if key not in self._watched:
            self._watched.add(key)
            self._purgatory.enter(key, self)

    def wait_for(self, keys: Iterable[TopicPartition]) -> None:
        for key in keys:
            self.enter(key)
            self.look(key)

    def look(self, key: TopicPartition) -> None:
        """The partition may have moved since the request was begun."""
        if not self.future.done() and self.has_come_about(key):
            self.complete(True)

    def leave(self, key: TopicPartition) -> None:
        """No request waits for this partition any more."""
        if key in self._watched:
            self._watched.discard(key)
            self._purgatory.leave(key, self)

    def complete(self, satisfied: bool) -> None:
        if not self.future.done():
            self.future.set_result(satisfied)

    def close(self) -> None:
        """No request will wait any more."""
        self.complete(False)
        for key in self._watched:
            self._purgatory.leave(key, self)
        self._watched.clear()


class Purgatory:
    """The waiting operations, by partition."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.waiting = 0
        """How many wait, or have been woken and not heard of it yet."""
        self._waiting: dict[TopicPartition, dict[DelayedOperation, None]] = {}
        self._looks: dict[TopicPartition, Iterator[DelayedOperation]] = {}
        """Of the partitions that have moved, the operations that have yet to be looked at."""
        self._moved_again: set[TopicPartition] = set()
        self._expired: deque[DelayedOperation] = deque()
        self._left = SLICE
        self._is_due = False

    def wait(self, keys: Iterable[TopicPartition], is_satisfied: Condition, timeout_ms: int) -> asyncio.Future[bool]:
        """A future that is True once ``is_satisfied`` holds, False after ``timeout_ms``."""
        operation = DelayedOperation(self, is_satisfied)
        operation.wait_for(keys)
        operation.arm(timeout_ms)
        return operation.future

    def enter(self, key: TopicPartition, operation: DelayedOperation) -> None:
        self._waiting.setdefault(key, {})[operation] = None

    def check(self, key: TopicPartition) -> None:
        """``key`` has moved: complete the requests that waited for that."""
        if key in self._looks:
            self._moved_again.add(key)
        elif key in self._waiting:
            self._looks[key] = iter(list(self._waiting[key]))
            self._go_on()

    def expire(self, operation: DelayedOperation) -> None:
        """Its time is up, or its waiter has gone."""
        self._expired.append(operation)
        self._go_on()

    def _go_on(self) -> None:
        """Look at as many operations as this turn of the loop has room for."""
        while self._left > 0 and self._expired:
            self._complete(self._expired.popleft(), False)
        while self._left > 0 and self._looks:
            key = next(iter(self._looks))
            operation = next(self._looks[key], None)
            if operation is None:
                self._looked(key)
            elif not operation.future.done():
                self._left -= 1
                if operation.has_come_about(key):
                    self._complete(operation, True)
        if not self._is_due:
            self._is_due = True
            self.loop.call_soon(self._next_turn)

    def _complete(self, operation: DelayedOperation, satisfied: bool) -> None:
        self._left -= 1 + len(operation.keys) // (_KEYS_A_LOOK if operation.future.done() else _READS_A_LOOK)
        operation.complete(satisfied)

    def _looked(self, key: TopicPartition) -> None:
        """All who waited for the partition have been looked at; once more where it has moved meanwhile."""
        del self._looks[key]
        if key in self._moved_again:
            self._moved_again.discard(key)
            if key in self._waiting:
                self._looks[key] = iter(list(self._waiting[key]))

    def _next_turn(self) -> None:
        self._is_due = False
        self._left = SLICE
        if self._expired or self._looks:
            self._go_on()

    def release(self) -> None:
        """Complete everyone as if the time were up."""
        for waiting in list(self._waiting.values()):
            for operation in list(waiting):
                operation.complete(False)

    def forget(self, operation: DelayedOperation) -> None:
        for key in operation.keys:
            self.leave(key, operation)

    def leave(self, key: TopicPartition, operation: DelayedOperation) -> None:
        """The operation waits under this key no longer."""
        waiting = self._waiting.get(key)
        if waiting is not None:
            waiting.pop(operation, None)
            if not waiting:
                del self._waiting[key]

    def __len__(self) -> int:
        found = {operation for waiting in self._waiting.values() for operation in waiting}
        return sum(not isinstance(each, StandingOperation) or not each.future.done() for each in found)
