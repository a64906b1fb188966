"""What metrics and the log of slow requests cost a request: the additions on its way, in CPU nanoseconds.

``python -m benchmarks.counting``. The additions are run from the interpreter, which is slower than the compiled modules
that hold them, so a figure is an upper bound.
"""

from __future__ import annotations

import logging
import sys
import time
import timeit
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace

from sparklog.log.log import Appended
from sparklog.net.request_meter import RequestMeter
from sparklog.net.slow_requests import OFF, Begun, SlowRequests, head_of
from sparklog.rate_limit import RateLimitedLogger
from sparklog.replica.traffic import TopicTraffic, Traffic
from sparklog.security.caller import Caller

_TIMES, _ROUNDS = 100_000, 15
_SIZE, _VERSION, _SECONDS = 500, 9, 1e-4


def _request(meters: dict[int, RequestMeter], caller: Caller) -> Callable[[], None]:
    answer = SimpleNamespace(error_code=0)

    def count() -> None:
        """As ``Dispatcher`` and ``ServerChannel`` do."""
        meter = meters[0]
        meter.begin(_VERSION, _SIZE)
        caller.meter = meter
        found = caller.meter
        if found is not None:
            found.queued_s += _SECONDS
        code = getattr(answer, "error_code", 0)
        if code:
            meter.fail(code)
        found = caller.meter
        if found is not None:
            found.loop_s += _SECONDS
            found.answer(_SECONDS)

    return count


def _follow(limit_s: float) -> Callable[[], None]:
    """As ``ServerChannel`` does for the log of slow requests, where none is slow."""
    slow = SlowRequests(RateLimitedLogger(logging.getLogger(__name__), time.monotonic), limit_s)
    sending: deque[tuple[int, float, Begun]] = deque()
    served = memoryview(bytes(_SIZE))

    def follow() -> None:
        begun = Begun(head_of(served), _SIZE, 0.0, 0.0) if slow.is_on else None
        if begun is not None:
            sending.append((_SIZE, time.monotonic(), begun))
        while sending and sending[0][0] <= _SIZE:
            _, _, last = sending.popleft()
            if _SECONDS - last.arrived > slow.limit_s:
                raise AssertionError("nothing is slow here")

    return follow


def _append(traffic: TopicTraffic) -> Callable[[], None]:
    appended = Appended(0, 9, -1, 0)

    def count() -> None:
        """As ``ReplicaManager`` does for each partition of a Produce."""
        traffic.produces += 1
        traffic.records_in += appended.last_offset - appended.first_offset + 1
        traffic.bytes_in += _SIZE

    return count


def _send(traffic: Traffic, of_topic: TopicTraffic) -> Callable[[], None]:
    def count() -> None:
        """As ``ReplicaManager`` and the handler do for each partition of a Fetch."""
        of_topic.fetches += 1
        traffic.send("topic", _SIZE, to_follower=False)

    return count


REQUEST, NO_LOG, LOG = "a request", "a request without a log of slow ones", "a request with it, and none is slow"
PRODUCED, FETCHED = "a partition of a Produce", "a partition of a Fetch"


def costs(times: int = _TIMES, rounds: int = _ROUNDS) -> dict[str, float]:
    """CPU seconds of each: the least of so many ``rounds``, each of so many ``times``."""
    traffic = Traffic()
    of_topic = traffic.enter("topic")
    cases = {
        REQUEST: _request({0: RequestMeter("Produce", _VERSION + 1)}, Caller("127.0.0.1")),
        NO_LOG: _follow(OFF),
        LOG: _follow(60.0),
        PRODUCED: _append(of_topic),
        FETCHED: _send(traffic, of_topic),
    }

    def seconds(count: Callable[[], None]) -> float:
        return min(timeit.repeat(count, number=times, repeat=rounds, timer=time.thread_time)) / times

    nothing = seconds(lambda: None)
    return {name: seconds(count) - nothing for name, count in cases.items()}


def main() -> None:
    for name, seconds in costs().items():
        sys.stdout.write(f"{name}: {seconds * 1e9:.0f} ns\n")


if __name__ == "__main__":
    main()
