"""Compaction: what runs, what was done, what cannot be."""

from __future__ import annotations

from sparklog.metrics import families
from sparklog.metrics.exposition import Exposition
from sparklog.protocol.slices import Steps
from sparklog.replica.cleaning import LogCleaner, Worst

_PERCENT = 100


class CleanerCollector:
    """Kafka's ``LogCleaner`` and ``LogCleanerManager``."""

    def __init__(self, cleaner: LogCleaner) -> None:
        self._cleaner = cleaner

    def collect(self, page: Exposition) -> Steps[None]:
        cleaner, last = self._cleaner, self._cleaner.last_of_threads()
        read, written = sum(each.bytes_read for each in last), sum(each.bytes_written for each in last)
        fullest = max((each.buffer_utilization for each in last), default=0.0)
        page.add(families.CLEANER_UTILIZATION, int(_PERCENT * fullest))
        page.add(families.CLEANER_TIME, max((each.seconds for each in last), default=0.0))
        page.add(families.CLEANER_RECOPY, int(_PERCENT * written / read) if read else 0)
        broken = cleaner.known_failures()
        page.add(families.UNCLEANABLE, len(broken))
        page.add(families.UNCLEANABLE_BYTES, sum(each.bytes for each in broken))
        page.add(families.CLEANINGS, cleaner.succeeded, "done")
        page.add(families.CLEANINGS, cleaner.failures, "failed")
        page.add(families.CLEANINGS_RUNNING, len(cleaner.under_way))
        yield
        worst = yield from self._worst()
        page.add(families.CLEANER_DELAY, worst.delay_s)
        page.add(families.DIRTIEST, worst.dirty_percent)

    def _worst(self) -> Steps[Worst]:
        """Kafka takes what it saw when it last chose a log; here it is looked at, though Spark may do the cleaning."""
        cleaner, worst = self._cleaner, Worst()
        for candidate in cleaner.candidates():
            if candidate is not None:
                worst = worst.with_log(candidate, cleaner.known_failure(candidate.tp))
            yield
        return worst
