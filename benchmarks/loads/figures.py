"""What a load measured."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable

Figures = dict[str, float]


def rates(records: int, size: int, seconds: float) -> Figures:
    """``records`` of ``size`` bytes in so many seconds."""
    return {"records/s": records / seconds, "MB/s": records * size / seconds / 1e6}


def percentiles(seconds: Iterable[float]) -> Figures:
    """Median, 99th and 99.9th percentile, in milliseconds."""
    took = sorted(seconds)
    shares = {"p50 ms": 0.5, "p99 ms": 0.99, "p99.9 ms": 0.999}
    return {name: took[int(len(took) * share)] * 1e3 for name, share in shares.items()}


def latencies(once: Callable[[], object], requests: int) -> Figures:
    """Percentiles of the time that ``once`` takes, the first tenth of ``requests`` left out."""
    took = []
    for _ in range(requests):
        start = time.perf_counter()
        once()
        took.append(time.perf_counter() - start)
    return percentiles(took[requests // 10 :])


async def latencies_async(once: Callable[[], Awaitable[object]], requests: int) -> Figures:
    """``latencies`` of what is awaited."""
    took = []
    for _ in range(requests):
        start = time.perf_counter()
        await once()
        took.append(time.perf_counter() - start)
    return percentiles(took[requests // 10 :])
