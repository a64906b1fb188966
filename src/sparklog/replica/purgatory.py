"""Where requests wait: a long poll for bytes, acks=all for the in-sync replicas.

An operation waits under every partition that may complete it; ``check`` is called whenever one of them has moved. It is
told which: one that waits for thousands looks at that one alone, or each append to a partition for which many of them
wait would hold up all others. Kafka's name for it (``DelayedOperationPurgatory``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from sparklog.structs import TopicPartition

Condition = Callable[[TopicPartition | None], bool]
"""Whether what is waited for has come about, now that this partition has moved; None: any of them may have."""


class DelayedOperation:
    """Completes once, by its condition or its deadline."""

    __slots__ = ("_purgatory", "_timer", "future", "is_satisfied", "keys")

    def __init__(self, purgatory: Purgatory, keys: list[TopicPartition], is_satisfied: Condition) -> None:
        self._purgatory = purgatory
        self._timer: asyncio.TimerHandle | None = None
        self.keys = keys
        self.is_satisfied = is_satisfied
        self.future: asyncio.Future[bool] = purgatory.loop.create_future()

    def arm(self, seconds: float) -> None:
        self._timer = self._purgatory.loop.call_later(seconds, self.complete, False)

    def complete(self, satisfied: bool) -> None:
        """Wake the waiter: True if the condition came about, False at the deadline."""
        if self._timer is not None:
            self._timer.cancel()
        self._purgatory.forget(self)
        if not self.future.done():
            self.future.set_result(satisfied)


class Purgatory:
    """The waiting operations, by partition."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._waiting: dict[TopicPartition, set[DelayedOperation]] = {}

    def wait(self, keys: Iterable[TopicPartition], is_satisfied: Condition, timeout_ms: int) -> asyncio.Future[bool]:
        """A future that is True once ``is_satisfied`` holds, False after ``timeout_ms``."""
        operation = DelayedOperation(self, list(keys), is_satisfied)
        for key in operation.keys:
            self._waiting.setdefault(key, set()).add(operation)
        operation.arm(timeout_ms / 1000)
        operation.future.add_done_callback(lambda _: operation.complete(False))
        if is_satisfied(None):  # it may have come about since the caller looked, and no other check will come for that
            operation.complete(True)
        return operation.future

    def check(self, key: TopicPartition) -> None:
        """``key`` has moved: complete the requests that waited for that."""
        waiting = self._waiting.get(key)
        if waiting:
            for operation in [each for each in waiting if each.is_satisfied(key)]:
                operation.complete(True)

    def release(self) -> None:
        """Complete everyone as if the time were up."""
        for waiting in list(self._waiting.values()):
            for operation in list(waiting):
                operation.complete(False)

    def forget(self, operation: DelayedOperation) -> None:
        for key in operation.keys:
            waiting = self._waiting.get(key)
            if waiting is not None:
                waiting.discard(operation)
                if not waiting:
                    del self._waiting[key]

    def __len__(self) -> int:
        return len({operation for waiting in self._waiting.values() for operation in waiting})
