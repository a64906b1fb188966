"""Requests by API: how many, how long, how much of the loop's time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from sparklog.clock import Clock
from sparklog.errors import ErrorCode
from sparklog.metrics import families
from sparklog.metrics.collectors.histogram import add_histogram, add_percentiles
from sparklog.metrics.exposition import Exposition
from sparklog.net.request_meter import RequestMeter
from sparklog.protocol.slices import Steps

WINDOW_S: Final = 300.0
"""Percentiles are of so long, or of since the last scrape but one where that is longer."""
_COPY_EVERY_S = 30.0
_FETCH = "Fetch"
_KINDS_OF_FETCH = frozenset({"FetchConsumer", "FetchFollower"})


class Recent:
    """What fell into each meter's buckets in the last minutes, by copies that scrapes make."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._copies: deque[tuple[float, dict[str, list[int]]]] = deque()

    def look(self, buckets: dict[str, list[int]]) -> dict[str, list[int]]:
        """``buckets``, as they are now, without what was in them when the last minutes began."""
        now = self._clock.monotonic()
        while len(self._copies) > 1 and self._copies[1][0] <= now - WINDOW_S:
            self._copies.popleft()
        before = self._copies[0][1] if self._copies and self._copies[0][0] <= now - WINDOW_S else {}
        if not self._copies or now - self._copies[-1][0] >= _COPY_EVERY_S:
            self._copies.append((now, buckets))
        return {
            name: [new - old for new, old in zip(counts, before[name], strict=True)] if name in before else counts
            for name, counts in buckets.items()
        }


class RequestCollector:
    """Kafka's ``RequestMetrics``; an API that nobody has asked for has no series."""

    def __init__(self, meters: Callable[[], Iterator[RequestMeter]], clock: Clock) -> None:
        self._meters = meters
        self._recent = Recent(clock)

    def collect(self, page: Exposition) -> Steps[None]:
        page.lines(families.REQUEST_ERRORS)
        asked = [each for each in self._meters() if any(each.by_version)]
        asked += _fetches(asked)
        recent = self._recent.look({each.name: [*each.buckets] for each in asked})
        for each in asked:
            self._of_api(page, each)
            add_percentiles(page, families.REQUEST_TIME, recent[each.name], each.name)
            yield

    def _of_api(self, page: Exposition, meter: RequestMeter) -> None:
        for version, count in enumerate(meter.by_version):
            if count:
                page.add(families.REQUESTS, count, meter.name, str(version))
        for code, count in sorted(meter.errors.items()):
            page.add(families.REQUEST_ERRORS, count, meter.name, ErrorCode(code).name)
        page.add(families.REQUEST_BYTES, meter.bytes_in, meter.name)
        page.add(families.REQUEST_QUEUED, meter.queued_s, meter.name)
        page.add(families.REQUEST_LOOP, meter.loop_s, meter.name)
        page.add(families.REQUEST_COUNT, sum(meter.buckets), meter.name)
        add_histogram(page, families.REQUEST_DURATION, meter, meter.name)


def _fetches(meters: list[RequestMeter]) -> list[RequestMeter]:
    """All fetches, where there are any: Kafka has them as one, and by who asks."""
    kinds = [each for each in meters if each.name in _KINDS_OF_FETCH]
    if not kinds:
        return []
    whole = RequestMeter(_FETCH, len(kinds[0].by_version))
    for each in kinds:
        whole.add(each)
    return [whole]
