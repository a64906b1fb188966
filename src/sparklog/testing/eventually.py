"""Wait for a condition with a deadline, where nothing can be waited on directly."""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from typing import TypeVar

from sparklog.clock import Clock, SystemClock

T = TypeVar("T")


def eventually(condition: Callable[..., T], timeout: float = 60.0, what: str = "", clock: Clock | None = None) -> T:
    """The first true value of ``condition()``, asked every 20 ms; AssertionError after ``timeout`` seconds."""
    clock = clock or SystemClock()
    deadline = clock.monotonic() + timeout
    while not (value := condition()):
        if clock.monotonic() > deadline:
            raise AssertionError(f"not within {timeout:g} s: {what or condition}; last value: {value!r}")
        clock.sleep(0.02)
    return value


def wait_for_death(pid: int, timeout: float = 60.0) -> None:
    """Return when process ``pid``, a child or not, has ended; AssertionError after ``timeout`` seconds."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        readable, _, _ = select.select([descriptor], [], [], timeout)
    finally:
        os.close(descriptor)
    if not readable:
        raise AssertionError(f"process {pid} was still alive after {timeout:g} s")
