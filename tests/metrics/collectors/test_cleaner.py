"""Compaction, as it is told."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from uuid import UUID

from compaction.keyed import fill
from metrics.pages import collected

from sparklog.compaction.stats import CleanerStats
from sparklog.config.broker import BrokerConfig
from sparklog.config.definition import parse
from sparklog.config.topic import TopicConfig
from sparklog.errors import LogError
from sparklog.log.directories.manager import LogManager
from sparklog.metrics.collectors.cleaner import CleanerCollector
from sparklog.replica.cleaning import LogCleaner, Mark, Uncleanable
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
            log = logs.get_or_create(tp, parse(TopicConfig, {"cleanup.policy": "compact"}), UUID(int=1))
            cleaner.failed(Mark.of(log), LogError("no"))
            cleaner.uncleanable[tp] = replace(Uncleanable.of(log, "broken"), bytes=77)
            cleaner.under_way.add(tp)
            pages = [collected(CleanerCollector(cleaner))]
            logs.delete(tp)
            pages.append(collected(CleanerCollector(cleaner)))
            await cleaner.close()
            logs.close()
            return pages

    page, after = asyncio.run(main())
    assert page.value("kafka_log_logcleaner_max_buffer_utilization_percent") == 50
    assert page.value("kafka_log_logcleaner_max_clean_time_secs") == 3
    assert page.value("kafka_log_logcleaner_cleaner_recopy_percent") == 25
    assert page.value("kafka_log_logcleanermanager_uncleanable_partitions_count") == 1
    assert page.value("kafka_log_logcleanermanager_uncleanable_bytes") == 77
    assert page.value("sparklog_cleanings_total", outcome="done") == 1
    assert page.value("sparklog_cleanings_total", outcome="failed") == 1
    assert page.value("sparklog_cleanings_running") == 1
    assert after.value("kafka_log_logcleanermanager_uncleanable_partitions_count") == 0, "of a log that is gone"
    assert after.value("kafka_log_logcleanermanager_uncleanable_bytes") == 0


def test_what_jobs_clean_counts_though_no_thread_runs(tmp_path):
    """As where only Spark cleans; beside threads as one more."""
    tp = TopicPartition("t", 0)
    names = ("max_clean_time_secs", "max_buffer_utilization_percent", "cleaner_recopy_percent")

    def told(cleaner):
        page = collected(CleanerCollector(cleaner))
        return tuple(page.value(f"kafka_log_logcleaner_{name}") for name in names)

    async def main():
        with ThreadPoolExecutor(1) as disk:
            logs, config = LogManager([tmp_path], TopicConfig(), ManualClock(), disk), BrokerConfig()
            cleaner = LogCleaner(logs, asyncio.Lock(), asyncio.get_running_loop(), ManualClock(), config)
            logs.get_or_create(tp, parse(TopicConfig, {"cleanup.policy": "compact"}), UUID(int=1))
            at = [told(cleaner)]
            for seconds in (9.0, 4.0):  # the last of a job counts
                cleaner.finish(
                    tp, CleanerStats(bytes_read=80, bytes_written=40, buffer_utilization=0.7, seconds=seconds)
                )
            at.append(told(cleaner))
            cleaner.start()
            cleaner._succeeded(tp, CleanerStats(bytes_read=20, bytes_written=0, buffer_utilization=0.9, seconds=1), 0)
            at.append(told(cleaner))
            cleaner.configure(replace(config, log_cleaner_threads=0))
            at.append(told(cleaner))
            await cleaner.close()
            logs.close()
            return at

    assert asyncio.run(main()) == [(0, 0, 0), (4, 70, 50), (4, 90, 40), (4, 70, 50)]


def test_how_far_the_cleaners_are_behind_is_told_though_none_of_them_runs(tmp_path):
    """So it is where only Spark cleans. Kafka's names: of ``LogCleanerManager`` and of ``LogCleaner``."""
    settings = {"cleanup.policy": "compact", "segment.bytes": "1000", "max.compaction.lag.ms": "60000"}
    compacted, clock = parse(TopicConfig, settings), ManualClock()
    kept, worst, broken = (TopicPartition(name, 0) for name in ("kept", "worst", "broken"))

    def told(cleaner):
        page = collected(CleanerCollector(cleaner))
        percent = page.value("kafka_log_logcleanermanager_max_dirty_percent")
        return percent, page.value("kafka_log_logcleaner_max_compaction_delay_secs")

    async def main():
        with ThreadPoolExecutor(1) as disk, closing(LogManager([tmp_path], TopicConfig(), clock, disk)) as logs:
            cleaner = LogCleaner(logs, asyncio.Lock(), asyncio.get_running_loop(), clock, BrokerConfig())
            at = [told(cleaner)]
            fill(logs.get_or_create(kept, TopicConfig(segment_bytes=1000), UUID(int=1)))
            for number, tp in enumerate((worst, broken), 2):
                log = logs.get_or_create(tp, compacted, UUID(int=number))
                fill(log)
                log.on_high_watermark(log.log_end_offset)
            segments = logs.logs[worst].segment_facts()
            assert len({each.size for each in segments[:4]}) == 1
            logs.set_cleaner_point(worst, segments[1].base_offset)
            log = logs.logs[broken]
            cleaner.uncleanable[broken] = Uncleanable.of(log, "broken")
            at.append(told(cleaner))
            clock.advance(60 + 33)
            at.append(told(cleaner))
            await cleaner.close()
            return at

    assert asyncio.run(main()) == [(0, 0), (75, 0), (75, 33)]
