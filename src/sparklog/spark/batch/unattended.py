"""Doing a job in rounds that nobody watches: what goes wrong is a line with its time, and the next round goes on.

``run_rounds`` goes on whatever a round met; ``keep_on`` ends with what does not pass by itself, such as a table that
does not suit. Both end where Spark itself has stopped: no round could do anything any more. Ctrl-C and SIGTERM end a
round as an exception does, so that it gives back what it holds, and then end the rounds.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from types import FrameType
from typing import Protocol

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from sparklog.client.cluster.retry import is_retriable
from sparklog.clock import Clock, SystemClock
from sparklog.errors import ApiError, DataSourceError, ErrorCode, PeerBusy, SparklogError
from sparklog.spark.sessions import SparkStopped, has_jvm_ended

_LASTING = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
"""A client asks again for a topic that was made a moment ago; a job has been told a wrong name, or it was deleted."""
_PASSING = frozenset(
    {
        "SPARKLOG_BROKER_UNREACHABLE",
        "SPARKLOG_BROKER_ERROR",
        "SPARKLOG_TOKEN_ENDED",
        "SPARKLOG_TABLE_CHANGED",
        "SPARKLOG_TABLE_NOT_WRITTEN",
        "SPARKLOG_DATABASE_UNREACHABLE",
    }
)
_STOPPED = ("stopped SparkContext", "LiveListenerBus is stopped")
"""What Spark says when it has stopped, of whatever it is asked."""


class Outcome(Protocol):
    """What a round did, in words."""

    @property
    def has_failed(self) -> bool: ...


def run_rounds(
    numbers: Iterable[int], once: Callable[[], Outcome], say: Callable[[str], None], clock: Clock | None = None
) -> int:
    """Do ``once`` for each number; the exit code: 1 if the last round failed, and 0 if somebody ended the rounds."""
    code = 0
    try:
        with _ended_by_sigterm():
            for _ in numbers:
                said, code = _round(once)
                say(f"{_time(clock or SystemClock())} {said}")
    except KeyboardInterrupt:
        return 0
    except SparkStopped as error:
        say(f"{_time(clock or SystemClock())} {_failed(error)}")
        return 1
    return code


def keep_on(
    numbers: Iterable[int], once: Callable[[], object], say: Callable[[str], None], clock: Clock | None = None
) -> int:
    """Do ``once`` for each number, and say what passes by itself when it fails.

    The exit code: 1 if the last round failed, and 0 if somebody ended the rounds. Raises what does not pass.
    """
    code = 0
    try:
        with _ended_by_sigterm():
            for _ in numbers:
                failure = _failure(once)
                code = int(failure is not None)
                if failure is not None:
                    say(f"{_time(clock or SystemClock())} {failure}; it is tried again")
    except KeyboardInterrupt:
        return 0
    return code


def _failure(once: Callable[[], object]) -> str | None:
    """Why the round failed; None if it did not. Raises what does not pass."""
    try:
        once()
    except Exception as error:
        _check_spark(error)
        if not passes(error):
            raise
        return _failed(error)
    return None


def _check_spark(error: Exception) -> None:
    """Raises SparkStopped."""
    said = line_of(error)
    if isinstance(error, Py4JJavaError) and any(each in said for each in _STOPPED):
        raise SparkStopped(f"Spark has stopped, start the job again: {said}") from error
    is_of_jvm = isinstance(error, (Py4JError, OSError)) and not isinstance(error, (Py4JJavaError, SparklogError))
    if is_of_jvm and has_jvm_ended():
        raise SparkStopped(f"Spark's JVM has ended, start the job again: {said}") from error


def passes(error: Exception) -> bool:
    """Whether the same job may do what it could not, later: a broker is away, a disk is full, a worker was killed."""
    if isinstance(error, DataSourceError):
        return error.error_code in _PASSING
    if isinstance(error, ApiError) and error.code in _LASTING:
        return False
    if isinstance(error, SparklogError):
        return is_retriable(error) or isinstance(error, PeerBusy)
    return isinstance(error, (Py4JJavaError, PySparkException))


def _round(once: Callable[[], Outcome]) -> tuple[str, int]:
    try:
        outcome = once()
    except Exception as error:
        _check_spark(error)
        return _failed(error), 1
    return str(outcome), int(outcome.has_failed)


def _failed(error: Exception) -> str:
    """Spark's errors have as many lines as their stack is deep."""
    return f"failed: {error if isinstance(error, SparklogError) else line_of(error)}"


def line_of(error: BaseException) -> str:
    """The first line of what an error says, with its class; of Java's the second, for the first is Python's call."""
    lines = str(error).strip().splitlines()
    if isinstance(error, Py4JJavaError) and len(lines) > 1:
        return lines[1].removeprefix(": ")
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _time(clock: Clock) -> str:
    return datetime.fromtimestamp(clock.now_ms() / 1000, UTC).isoformat(timespec="seconds")


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    def end(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    root = logging.getLogger()
    root.addFilter(_is_no_interruption)
    try:
        yield
    finally:
        root.removeFilter(_is_no_interruption)
        signal.signal(signal.SIGTERM, before)


def _is_no_interruption(record: logging.LogRecord) -> bool:
    """Whether it is to be logged. Py4J logs as an error, with its stack, that somebody ended what it waited for."""
    return record.exc_info is None or record.exc_info[0] is not KeyboardInterrupt
