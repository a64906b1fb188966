"""Compaction, as it is told."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from metrics.pages import collected

from sparklog.compaction.stats import CleanerStats
from sparklog.config.broker import BrokerConfig
from sparklog.config.topic import TopicConfig
from sparklog.errors import LogError
from sparklog.log.directories.manager import LogManager
from sparklog.metrics.collectors.cleaner import CleanerCollector
from sparklog.replica.cleaning import LogCleaner, Uncleanable
from sparklog.structs import TopicPartition
from sparklog.testing.clock import ManualClock


def test_what_was_cleaned_and_what_cannot_be(tmp_path):
    async def main():
        with ThreadPoolExecutor(1) as disk:
            logs, clock = LogManager([tmp_path], TopicConfig(), ManualClock(), disk), ManualClock()
            config = BrokerConfig(log_cleaner_threads=1)
            cleaner = LogCleaner(logs, asyncio.Lock(), asyncio.get_running_loop(), clock, config)
            cleaner.start()
            tp = TopicPartition("t", 0)
            stats = CleanerStats(bytes_read=1000, bytes_written=250, buffer_utilization=0.5, seconds=3.0)
            cleaner._succeeded(tp, stats, 0)
            cleaner.failed(tp, None, LogError("no"))
            cleaner.uncleanable[tp] = Uncleanable("broken", 1, 0, 0, 77)
            cleaner.under_way.add(tp)
            page = collected(CleanerCollector(cleaner))
            await cleaner.close()
            logs.close()
            return page

    page = asyncio.run(main())
    assert page.value("kafka_log_logcleaner_max_buffer_utilization_percent") == 50
    assert page.value("kafka_log_logcleaner_max_clean_time_secs") == 3
    assert page.value("kafka_log_logcleaner_cleaner_recopy_percent") == 25
    assert page.value("kafka_log_logcleanermanager_uncleanable_partitions_count") == 1
    assert page.value("kafka_log_logcleanermanager_uncleanable_bytes") == 77
    assert page.value("sparklog_cleanings_total", outcome="done") == 1
    assert page.value("sparklog_cleanings_total", outcome="failed") == 1
    assert page.value("sparklog_cleanings_running") == 1
