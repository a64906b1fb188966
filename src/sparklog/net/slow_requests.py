"""The log of slow requests: a line for each that took longer than ``limit_s`` from when it was read until it was sent.

Invariants: where nothing is slow nothing is written, and no request is looked at again. A line is bounded, whatever a
client calls itself; ``_MOST`` lines come in ten seconds, and the next says how many were left out. A request is kept
only while it is small (``_SMALL``): of a large one its beginning is, or memory would be held that nobody counts.

A fetch waits for records as long as its client wants it to, and a JoinGroup for the other members. They are slow like
any other, so a limit is to be above the time that clients let their requests wait.
"""

from __future__ import annotations

import math
from typing import Final

from sparklog.protocol.connection import describe_request
from sparklog.rate_limit import RateLimitedLogger
from sparklog.security.caller import Caller

OFF: Final = math.inf
_SMALL = 4096
_MOST = 100
_NAME = 100
"""So many characters of a client's or a user's name are told."""


class Begun:
    """A request that is taken up: its beginning, its bytes, when it was read, and when it was taken up (s)."""

    __slots__ = ("arrived", "head", "size", "taken_up")

    def __init__(self, head: memoryview, size: int, arrived: float, taken_up: float) -> None:
        self.head = head
        self.size = size
        self.arrived = arrived
        self.taken_up = taken_up


class SlowRequests:
    """Of one server. ``limit_s`` may be set at any time; ``OFF`` is none."""

    def __init__(self, warnings: RateLimitedLogger, limit_s: float = OFF) -> None:
        self.limit_s = limit_s
        self._warnings = warnings

    @property
    def is_on(self) -> bool:
        return self.limit_s < OFF

    def tell(self, caller: Caller, address: str, begun: Begun, answered: float, sent: float) -> None:
        """Write the line of a request whose answer was known, and sent, at these times."""
        wait_ms = caller.throttled.pop(_correlation_id(begun.head), 0)
        what, whose = _cut(describe_request(begun.head), 2 * _NAME), _cut(str(caller.principal), _NAME)
        self._warnings.warn(
            "slow",
            f"slow: {what} from {address}, {whose} on {caller.listener}, {begun.size} bytes:"
            f" {_ms(sent - begun.arrived)} ms (waited for its turn {_ms(begun.taken_up - begun.arrived)},"
            f" for its answer {_ms(answered - begun.taken_up)}, until that was sent {_ms(sent - answered)};"
            f" the client was told to wait {wait_ms} ms)",
            most=_MOST,
        )


def head_of(frame: memoryview) -> memoryview:
    """What is kept of a request until its answer is sent."""
    return frame if len(frame) <= _SMALL else memoryview(bytes(frame[:_SMALL]))


def _correlation_id(head: memoryview) -> int:
    return int.from_bytes(head[4:8], "big", signed=True)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[:most] + "…"


def _ms(seconds: float) -> str:
    return f"{max(seconds, 0.0) * 1000:.1f}"
