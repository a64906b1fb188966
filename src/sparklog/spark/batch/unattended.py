"""Doing a job in rounds that nobody watches: what goes wrong is a line with its time, and the next round goes on.

Ctrl-C and SIGTERM end a round as an exception does, so that it gives back what it holds, and then end the rounds.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from types import FrameType
from typing import Protocol

from sparklog.clock import Clock, SystemClock
from sparklog.errors import SparklogError


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
    return code


def _round(once: Callable[[], Outcome]) -> tuple[str, int]:
    try:
        outcome = once()
    except SparklogError as error:
        return f"failed: {error}", 1
    except Exception as error:  # of Spark, in as many lines as its stack is deep
        return f"failed: {line_of(error)}", 1
    return str(outcome), int(outcome.has_failed)


def line_of(error: BaseException) -> str:
    """The first line of what an error says, with its class."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _time(clock: Clock) -> str:
    return datetime.fromtimestamp(clock.now_ms() / 1000, UTC).isoformat(timespec="seconds")


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    def end(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
