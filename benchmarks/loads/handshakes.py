"""Connections that are opened, asked which versions they speak, and closed: what a crowd of returning clients costs.

TLS makes a new session each time, as with Kafka's clients. Several threads open them: one would mostly wait.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

from benchmarks.loads.figures import Figures, percentiles
from benchmarks.loads.raw import connect

_TOGETHER = 4
_FIRST = 20
"""Not timed."""


def handshakes(bootstrap: str, topic: str, requests: int, client: dict[str, str]) -> Figures:  # noqa: ARG001 (all have it)
    """``requests`` connections; each is open when the broker has said which versions it speaks, and let it in."""

    def once(_: int) -> float:
        start = time.perf_counter()
        with connect(bootstrap, client) as connection:
            if not connection.versions:
                raise RuntimeError("the broker speaks nothing")
        return time.perf_counter() - start

    with ThreadPoolExecutor(_TOGETHER) as threads:
        list(threads.map(once, range(_FIRST)))
        start = time.perf_counter()
        took = list(threads.map(once, range(requests)))
        seconds = time.perf_counter() - start
    return {"connections/s": requests / seconds, **percentiles(took)}
