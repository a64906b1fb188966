"""What ``send`` gives back: futures of where records ended up, kept by the batch that carries them.

A batch settles once, for all its records; a future is three words that point to it, and is made for every record.

The client logs what a callback raises. It logs SystemExit and KeyboardInterrupt too, which would end the client's own
thread. Only a callback that the user's thread calls at once lets these two through.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from sparklog.errors import ApiError, ClientClosed, ErrorCode, PartlyQueued, PartlyWritten, SparklogError
from sparklog.structs import TopicPartition

_log = logging.getLogger(__name__)


class RecordMetadata(NamedTuple):
    """Where a record is. ``offset`` is -1 where the broker does not say: with ``acks=0``, and for a batch that it had
    long before; ``timestamp`` is in ms."""

    topic: str
    partition: int
    offset: int
    timestamp: int


OnDelivery = Callable[["RecordMetadata | None", "SparklogError | None"], object]


class BatchMetadata(NamedTuple):
    """Where the records of a batch are: so many ``records`` from ``offset`` on.

    ``offset`` is -1 as for a record, and where the batch was sent in parts that do not stand one behind the other.
    """

    topic: str
    partition: int
    offset: int
    records: int


class Delivery:
    """How a batch ends: ``succeed`` or ``fail``, whichever is called first; the other then does nothing.

    One thread settles it, any may ask to be told. There is no lock between them: a signal handler that came while its
    thread held one would wait for ever for the thread that settles.
    """

    __slots__ = (
        "_listeners",
        "_middle",
        "_parts",
        "append_time",
        "base_offset",
        "error",
        "is_interrupted",
        "is_settled",
        "settler",
        "tp",
    )

    def __init__(self, tp: TopicPartition) -> None:
        self.tp = tp
        self.is_settled = False
        self.settler: int | None = None
        """The thread that settles it, which cannot wait for itself; None if that is not known."""
        self.is_interrupted: Callable[[], bool] | None = None
        """Whether the calling thread holds up the one that settles it; None if that is not known."""
        self.base_offset = -1
        self.append_time = -1
        self.error: SparklogError | None = None
        self._listeners: list[Callable[[], object]] = []
        self._middle = 0
        self._parts: tuple[Delivery, Delivery] | None = None

    def succeed(self, base_offset: int, append_time: int) -> None:
        self._settle(base_offset, append_time, None)

    def fail(self, error: SparklogError) -> None:
        self._settle(-1, -1, error)

    def _settle(self, base_offset: int, append_time: int, error: SparklogError | None) -> None:
        if self.is_settled:
            return
        self.base_offset, self.append_time, self.error = base_offset, append_time, error
        self._listeners.reverse()  # they are called from the end
        self.is_settled = True
        self._tell(BaseException)

    def _tell(self, caught: type[BaseException]) -> None:
        """Call the listeners, each of them once, though another thread may do the same."""
        while self._listeners:
            try:
                listener = self._listeners.pop()
            except IndexError:  # the other took the last one
                return
            _call(listener, caught)

    def split(self, middle: int, first: Delivery, second: Delivery) -> None:
        """From now on the records before ``middle`` share ``first``'s fate, the others ``second``'s."""
        self._middle, self._parts = middle, (first, second)

        def settle() -> None:
            if first.is_settled and second.is_settled:
                joins_up = 0 <= first.base_offset == second.base_offset - middle
                base_offset = first.base_offset if joins_up else -1
                self._settle(base_offset, first.append_time, first.error or second.error)

        first.on_settled(settle)
        second.on_settled(settle)

    def part(self, index: int) -> tuple[Delivery, int]:
        """The delivery that carried record ``index``, and its index there."""
        if self._parts is None:
            return self, index
        first, second = self._parts
        return first.part(index) if index < self._middle else second.part(index - self._middle)

    def written(self, count: int, index: int = 0) -> Iterator[range]:
        """Which of its ``count`` records are in the log, numbered from ``index`` on; once it is settled."""
        if self._parts is not None:
            first, second = self._parts
            yield from first.written(self._middle, index)
            yield from second.written(count - self._middle, index + self._middle)
        elif self.error is None:
            yield range(index, index + count)

    def will_tell(self, listener: Callable[[], object]) -> None:
        """``on_settled`` under the accumulator's lock, so that the batch cannot settle meanwhile."""
        self._listeners.append(listener)

    def on_settled(self, listener: Callable[[], object]) -> None:
        """Call ``listener`` when it is settled, on whichever thread that happens; at once if it is."""
        self._listeners.append(listener)
        if self.is_settled:  # perhaps only now, and without this listener
            self._tell(Exception)

    def wait(self, timeout: float | None) -> None:
        """Block until it is settled. Raises ApiError(REQUEST_TIMED_OUT) after ``timeout`` seconds.

        Raises ClientClosed on the thread that is to settle it: in a callback, and on an asynchronous producer's loop;
        and in a signal handler that came in the midst of a ``send``.
        """
        if not self.is_settled:
            if self.settler == threading.get_ident():
                raise ClientClosed(
                    "a callback, or a task, cannot block until its own producer has sent: await the future"
                )
            if self.is_interrupted is not None and self.is_interrupted():
                raise interrupted()
            settled = threading.Lock()  # an Event is three of them, and Python code
            settled.acquire()
            self.on_settled(settled.release)
            if not settled.acquire(timeout=-1 if timeout is None else min(max(timeout, 0.0), threading.TIMEOUT_MAX)):
                raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"a batch for {self.tp} was not settled in {timeout:g} s")

    async def settled(self) -> None:
        """``wait`` on an event loop."""
        if not self.is_settled:
            loop, thread = asyncio.get_running_loop(), threading.get_ident()
            done: asyncio.Future[None] = loop.create_future()

            def tell() -> None:
                if threading.get_ident() == thread:
                    _finish(done)
                else:
                    loop.call_soon_threadsafe(_finish, done)

            self.on_settled(tell)
            await done


def interrupted() -> ClientClosed:
    """A signal handler came in the midst of a call, and asks for what that call holds up."""
    return ClientClosed(
        "a signal handler cannot use a producer in the midst of whose send it came: set a flag in the handler, or"
        " raise, and flush or close where the program goes on"
    )


@contextmanager
def queueing(futures: Sequence[BatchFuture]) -> Iterator[None]:
    """What fails in here after some batches were queued is raised as PartlyQueued, with their ``futures``."""
    try:
        yield
    except SparklogError as error:
        if futures:
            raise PartlyQueued(error, futures) from error
        raise


def _finish(done: asyncio.Future[None]) -> None:
    if not done.done():  # the task that waited may have been cancelled
        done.set_result(None)


def _call(listener: Callable[[], object], caught: type[BaseException] = BaseException) -> None:
    try:
        listener()
    except caught:
        _log.exception("a delivery callback failed")


class _Future:
    """What both kinds of future share."""

    __slots__ = ("delivery",)
    delivery: Delivery

    def done(self) -> bool:
        """Whether it is settled."""
        return self.delivery.is_settled

    def exception(self, timeout: float | None = None) -> SparklogError | None:
        """Why it failed, None if it did not; waits up to ``timeout`` seconds."""
        self.delivery.wait(timeout)
        return self._error()

    def _error(self) -> SparklogError | None:
        raise NotImplementedError

    def add_done_callback(self, callback: Callable[[Any], object]) -> None:
        """Call ``callback`` with this future when it is settled, on the client's thread; at once if it is."""
        self.delivery.on_settled(lambda: callback(self))


class RecordFuture(_Future):
    """One record's fate. Wait with ``result``, or ``await`` it."""

    __slots__ = ("_index", "_timestamp")

    def __init__(self, delivery: Delivery, index: int, timestamp: int) -> None:
        self.delivery = delivery
        self._index = index
        self._timestamp = timestamp

    def tell(self, on_delivery: OnDelivery) -> None:
        """Call ``on_delivery`` with the outcome; only once it is settled."""
        try:
            metadata = self._outcome()
        except SparklogError as error:
            on_delivery(None, error)
        else:
            on_delivery(metadata, None)

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Where the record is; raises why it is nowhere. Waits up to ``timeout`` seconds."""
        self.delivery.wait(timeout)
        return self._outcome()

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        yield from self.delivery.settled().__await__()
        return self._outcome()

    def _error(self) -> SparklogError | None:
        return self.delivery.part(self._index)[0].error

    def _outcome(self) -> RecordMetadata:
        delivery, index = self.delivery.part(self._index)
        if delivery.error is not None:
            raise delivery.error.with_traceback(None)
        offset = delivery.base_offset + index if delivery.base_offset >= 0 else -1
        timestamp = delivery.append_time if delivery.append_time >= 0 else self._timestamp
        return RecordMetadata(*delivery.tp, offset, timestamp)


class BatchFuture(_Future):
    """One batch's fate, as ``RecordFuture``."""

    __slots__ = ("_count",)

    def __init__(self, delivery: Delivery, count: int) -> None:
        self.delivery = delivery
        self._count = count

    def result(self, timeout: float | None = None) -> BatchMetadata:
        """Where the records are; raises why they are not all there. Waits up to ``timeout`` seconds.

        Raises PartlyWritten where the batch was sent in parts and some of them are in the log.
        """
        self.delivery.wait(timeout)
        return self._outcome()

    def __await__(self) -> Generator[Any, None, BatchMetadata]:
        yield from self.delivery.settled().__await__()
        return self._outcome()

    def _error(self) -> SparklogError | None:
        error = self.delivery.error
        written = [] if error is None else list(self.delivery.written(self._count))
        return PartlyWritten(error, self._count, written) if error is not None and written else error

    def _outcome(self) -> BatchMetadata:
        error = self._error()
        if error is not None:
            raise error.with_traceback(None)
        return BatchMetadata(*self.delivery.tp, self.delivery.base_offset, self._count)
