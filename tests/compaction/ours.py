"""One pass of our cleaner over a partition directory, as a broker and its worker do it, in this process."""

from contextlib import closing

from compaction.logs import TP

from sparklog.compaction.cleaner import LogCleaning
from sparklog.compaction.plan import LogFacts, compaction_delay, divide
from sparklog.compaction.stats import CleanerStats
from sparklog.compaction.task import Buffers, CleaningTask
from sparklog.config.definition import parse
from sparklog.config.topic import TopicConfig
from sparklog.log.loader import Knowledge
from sparklog.log.log import Log
from sparklog.testing.clock import ManualClock

SEED = bytes(range(16))


def opened(directory, config, now_ms, log_start_offset=0):
    known = Knowledge(log_start_offset=log_start_offset, high_watermark=2**62)
    return Log(directory, TP, config, ManualClock(now_ms), lambda work: work(), known)


def task_of(log, sections, now_ms, *, buffer_bytes=1 << 20, load_factor=0.9, read_bytes=1 << 16):
    return CleaningTask(
        directory=str(log.directory),
        name=str(log.tp),
        segments=tuple(log.segment_facts()),
        log_start_offset=log.log_start_offset,
        first_dirty=sections.first_dirty,
        first_uncleanable=sections.first_uncleanable,
        now_ms=now_ms,
        config=log.config,
        buffers=Buffers(buffer_bytes, load_factor, read_bytes, float("inf")),
        last_offsets={each.producer_id: each.batches[-1].last_offset for each in log.producers if each.batches},
        marker_epochs={each.producer_id: each.epoch for each in log.producers if not each.batches},
    )


def sections_of(log, first_dirty, now_ms):
    facts = LogFacts(log.segment_facts(), log.log_start_offset, log.log_end_offset, log.last_stable_offset)
    return divide(facts, first_dirty, log.config, now_ms)


def cleaned(log, task):
    """Clean an open log; the numbers of the pass."""
    cleaning = LogCleaning(CleaningTask.from_json(task.to_json()), ManualClock(), SEED)
    for group in cleaning.run():
        for path in log.replace_segments(group.new, group.old):
            path.unlink()
    return cleaning.stats


def clean(directory, *, config, now_ms, first_dirty=None, log_start_offset=0, **buffers):
    """Clean the log in ``directory``: its sections, and the numbers of the pass."""
    settings = parse(TopicConfig, {"cleanup.policy": "compact", **config})
    with closing(opened(directory, settings, now_ms, log_start_offset)) as log:
        log.expire_producers()
        sections = sections_of(log, first_dirty, now_ms)
        if not sections.cleanable_bytes:
            return sections, CleanerStats(end_offset=sections.first_dirty)
        return sections, cleaned(log, task_of(log, sections, now_ms, **buffers))


def delay_of(directory, *, config, now_ms, first_dirty, log_start_offset=0):
    """How long the log in ``directory`` has been overdue by ``max.compaction.lag.ms``, as a broker says it."""
    settings = parse(TopicConfig, {"cleanup.policy": "compact", **config})
    with closing(opened(directory, settings, now_ms, log_start_offset)) as log:
        sections = sections_of(log, first_dirty, now_ms)
        first_timestamps = log.first_timestamps(sections.first_dirty, log.segment_facts()[-1].base_offset)
        return compaction_delay(first_timestamps, settings, now_ms)
