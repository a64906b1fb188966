"""``python -m benchmarks.stalls.watched_broker broker ...``: ``sparklog broker`` that also logs its long turns.

A line ``TURN MILLISECONDS GARBAGE`` for each turn of its loop that took more than ``LONG_S`` of the processor: how much
that was, and how much of it the search for cyclic garbage. Unlike a client's wait it does not depend on what else the
machine does. A name that is slow to look up is part of it: ``SLOW_HOST`` takes ``LOOKUP_S``.
"""

from __future__ import annotations

import gc
import re
import selectors
import socket
import sys
import time
from typing import Any, NamedTuple

from sparklog.cli.main import main

LONG_S = 0.002
SLOW_HOST, LOOKUP_S = "slow.invalid", 0.5
_LINE = re.compile(r"^TURN (\S+) (\S+)$", re.MULTILINE)


class Turn(NamedTuple):
    """Milliseconds of processor time of the loop's thread between two looks at the sockets."""

    took: float = 0.0
    garbage: float = 0.0


def turns(log: str) -> list[Turn]:
    """Those that stand in the log of a broker."""
    return [Turn(float(took), float(garbage)) for took, garbage in _LINE.findall(log)]


class _Garbage:
    def __init__(self) -> None:
        self.seconds = self._began = 0.0

    def __call__(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._began = time.thread_time()
        else:
            self.seconds += time.thread_time() - self._began


_garbage = _Garbage()


class _WatchedSelector(selectors.EpollSelector):
    _since = _searched = 0.0

    def select(self, timeout: float | None = None) -> Any:
        took = time.thread_time() - self._since
        if self._since and took > LONG_S:
            sys.stderr.write(f"TURN {took * 1000:.1f} {(_garbage.seconds - self._searched) * 1000:.1f}\n")
        found = super().select(timeout)
        self._since, self._searched = time.thread_time(), _garbage.seconds
        return found


_look_up = socket.getaddrinfo


def _look_up_slowly(host: Any, *rest: Any, **how: Any) -> Any:
    if host != SLOW_HOST:
        return _look_up(host, *rest, **how)
    time.sleep(LOOKUP_S)
    return _look_up("127.0.0.9", *rest, **how)


def run() -> None:
    """Watch, and be a broker."""
    socket.getaddrinfo = _look_up_slowly
    gc.callbacks.append(_garbage)
    selectors.DefaultSelector = _WatchedSelector  # type: ignore[misc, assignment]
    main()


if __name__ == "__main__":
    run()
