"""Compaction of the logs that this broker holds: which is next, and putting what a worker wrote in its place.

Invariants: one cleaning a log at a time. Only segments that do not change are cleaned, all below the last stable
offset; a group that was written anew takes its place only while the log is as it was when the cleaning began: not cut,
not moved, not taken away, its policy still ``compact``. The clean section grows when all groups are in place. A worker
that dies, is refused by the disk, or comes too late changes nothing. Source: Kafka 3.9, ``LogCleaner``,
``LogCleanerManager``; ``docs/adr/0026-compaction.md``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterator
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from sparklog.clock import Clock
from sparklog.compaction.plan import LogFacts, Sections, compaction_delay, divide
from sparklog.compaction.process import CleaningFailed, Worker
from sparklog.compaction.rewriting import CleanedGroup
from sparklog.compaction.stats import CleanerStats
from sparklog.compaction.task import Buffers, CleaningTask, Failure
from sparklog.compaction.walk import FileNumber, number_of
from sparklog.config.broker import BrokerConfig
from sparklog.config.topic import OFFSET_STRATEGY, TopicConfig
from sparklog.errors import CorruptRecord, DiskFull, LogDirFailed, LogError, SegmentsLeased
from sparklog.log import swap
from sparklog.log.directories.manager import LogManager
from sparklog.log.drafts import adopt_drafts, check_drafts
from sparklog.log.files import LOG_SUFFIX, remove_drafts, segment_path
from sparklog.log.lease import Lease
from sparklog.log.log import Log
from sparklog.log.producer_snapshot import ProducerEntry
from sparklog.log.replacement import Replacement
from sparklog.net.tasks import Tasks
from sparklog.structs import STATE_TOPICS, TopicPartition

_logger = logging.getLogger(__name__)

_LOOKED_AT_ONCE = 20
"""Logs: to look at so many takes a millisecond or two."""
_OTHERS_A_STEP = 100
"""Logs that are not compacted, of which nothing is to be found out."""
_MOST_MAP_BYTES = (1 << 31) - 1
_LEASE_PAUSE_S = 1.0
_LEASE_PATIENCE_S = 120.0
"""How long a group waits for readers that hold its files; a lease runs 30 s at most."""
_LAST_DATE_MS = int(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()) * 1000
_OF_FILES = (CleaningFailed, LogError, CorruptRecord, OSError)
"""What reading and writing a log may end with."""
_NO_THREADS = "this broker cleans nothing: log.cleaner.enable is false, or log.cleaner.threads is 0"


class NotCleaned(LogError):
    """A cleaning that was asked for did not take place, and why."""


class NothingToClean(NotCleaned):
    """There is nothing in the log that may be cleaned."""


class Abandoned(Exception):
    """The log is not what it was when its cleaning began."""


@dataclass(slots=True)
class Mark:
    """What tells whether a cleaning is still wanted, and its log what it was."""

    log: Log
    truncations: int
    compaction_rule: tuple[str, str] | None = None
    """What it is compacted by; None for what is done whether it is compacted or not."""
    is_given_up: bool = False
    is_certain: bool = False
    """What is to give way is on the disk, and a start after a crash will know it."""

    @classmethod
    def of(cls, log: Log) -> Mark:
        """Of the log as it is now."""
        return cls(log, log.truncations, log.config.compaction_rule)

    def check(self, logs: LogManager) -> None:
        """Raises Abandoned unless the log may still be cleaned."""
        if self.is_given_up:
            raise Abandoned("it is not wanted any more")
        self._check_log(logs)

    def _check_log(self, logs: LogManager) -> None:
        log, tp = self.log, self.log.tp
        if logs.logs.get(tp) is not log:
            raise Abandoned("it was taken away")
        if log.truncations != self.truncations or tp in logs.being_cut:
            raise Abandoned("it was cut")
        if logs.future_of(tp) is not None:
            raise Abandoned("it is being moved to another log directory")
        if self.compaction_rule is None:
            return
        if "compact" not in log.config.cleanup_policy:
            raise Abandoned("its cleanup.policy has changed")
        if log.config.compaction_rule != self.compaction_rule:
            raise Abandoned("its compaction.strategy has changed")

    def blamed(self, error: Exception, logs: LogManager) -> Exception:
        """What ended the work: ``error``, or that the log had changed by then.

        A worker may read files that were cut meanwhile, or that belong to another log by now: that looks like damage.
        """
        if isinstance(error, _OF_FILES):
            try:
                self._check_log(logs)
            except Abandoned as change:
                return change
        return error


@dataclass(frozen=True, slots=True)
class Uncleanable:
    """A log that cannot be cleaned, until it changes or somebody asks for it."""

    why: str
    segment_count: int
    log_start_offset: int
    truncations: int
    bytes: int
    topic_id: UUID | None = None

    @classmethod
    def of(cls, log: Log, why: str) -> Uncleanable:
        """The log as it is now."""
        return cls(why, log.segment_count, log.log_start_offset, log.truncations, log.size, log.topic_id)

    def is_still(self, log: Log) -> bool:
        """Whether nothing has changed since."""
        return (self.topic_id, self.segment_count, self.log_start_offset, self.truncations) == (
            log.topic_id,
            log.segment_count,
            log.log_start_offset,
            log.truncations,
        )


class LastRun(NamedTuple):
    """The last cleaning of a log."""

    ended_ms: int
    stats: CleanerStats
    topic_id: UUID | None = None


class Candidate(NamedTuple):
    """A compacted log as it is now."""

    tp: TopicPartition
    sections: Sections
    delay_ms: int
    """How long it is overdue by ``max.compaction.lag.ms``."""


class Worst(NamedTuple):
    """Of all compacted logs of a broker that can be read."""

    dirty_ratio: float = 0.0
    delay_ms: int = 0

    def with_log(self, each: Candidate, failure: Uncleanable | None) -> Worst:
        """After another log was looked at; one with a ``failure`` does not count."""
        if failure is not None:
            return self
        return Worst(max(self.dirty_ratio, each.sections.dirty_ratio), max(self.delay_ms, each.delay_ms))

    @property
    def dirty_percent(self) -> int:
        """As Kafka's ``max-dirty-percent``."""
        return int(100 * self.dirty_ratio)

    @property
    def delay_s(self) -> int:
        """As Kafka's ``max-compaction-delay-secs``."""
        return self.delay_ms // 1000


class LogCleaner:
    """Belongs to the loop's thread. ``changing`` is the lock of ``ReplicaManager``."""

    def __init__(
        self,
        logs: LogManager,
        changing: asyncio.Lock,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        config: BrokerConfig,
    ) -> None:
        self._logs = logs
        self._changing = changing
        self._loop = loop
        self._clock = clock
        self._config = config
        self._tasks = Tasks(loop, lambda name, error: _logger.error("%s failed", name, exc_info=error))
        self._threads: list[asyncio.Task[None]] = []
        self._wishes: dict[TopicPartition, asyncio.Future[CleanerStats]] = {}
        self._granted: dict[TopicPartition, asyncio.Future[CleanerStats]] = {}  # those whose cleaning is under way
        self._postponed: dict[TopicPartition, float] = {}  # until when, of those that were given up
        self._woken = asyncio.Event()
        self.under_way: set[TopicPartition] = set()
        """The logs that are being cleaned; not to be changed."""
        self.uncleanable: dict[TopicPartition, Uncleanable] = {}
        self.last_runs: dict[TopicPartition, LastRun] = {}
        self.succeeded = self.failures = 0
        """Cleanings of single logs, since the start."""
        self._last_runs_by: dict[int | None, CleanerStats] = {}  # by the thread, or by jobs

    @property
    def threads(self) -> int:
        """How many logs may be cleaned at a time; 0 where this broker cleans none."""
        return len(self._threads)

    def last_of_threads(self) -> list[CleanerStats]:
        """What each thread did last; and the last that a job did, as if jobs were a thread."""
        threads = len(self._threads)
        return [stats for number, stats in self._last_runs_by.items() if number is None or number < threads]

    # Life

    def start(self) -> None:
        """Begin to clean, where ``log.cleaner.enable`` says so."""
        if self._config.log_cleaner_enable:
            self._set_threads(self._config.log_cleaner_threads)

    def configure(self, config: BrokerConfig) -> None:
        """Put other settings in force, from the next log on."""
        self._config = replace(config, log_cleaner_enable=self._config.log_cleaner_enable)
        if self._threads or self._config.log_cleaner_enable:
            self._set_threads(config.log_cleaner_threads)
        self._woken.set()

    def _set_threads(self, count: int) -> None:
        """A worker that is one too many is stopped; what it was writing is given up."""
        while len(self._threads) > count:
            self._threads.pop().cancel()
        if not count:
            self._refuse_wishes()
        while len(self._threads) < count:
            number = len(self._threads)
            self._threads.append(self._tasks.spawn(self._run(number), f"log cleaner thread {number}"))

    def _refuse_wishes(self) -> None:
        for wish in self._wishes.values():
            if not wish.done():
                wish.set_exception(NotCleaned(_NO_THREADS))
        self._wishes.clear()

    async def close(self) -> None:
        """Clean no more. A swap under way is done to its end."""
        for wish in (*self._wishes.values(), *self._granted.values()):
            wish.cancel()
        for thread in self._threads:
            thread.cancel()
        await self._tasks.finish()

    async def _run(self, number: int) -> None:
        worker = Worker()
        try:
            while True:
                self._woken.clear()
                try:
                    candidate = await self._next()
                except Exception:  # a thread that ended here would end compaction, and nobody would see it
                    _logger.exception("log cleaner thread %d could not choose a log, and goes on", number)
                    candidate = None
                if candidate is None:
                    await worker.end()  # it holds the memory of its map
                    await self._pause()
                else:
                    await self._clean(candidate, worker, number)
        finally:
            await worker.end()

    async def _pause(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._config.log_cleaner_backoff_ms / 1000):
                await self._woken.wait()

    # What is next

    async def clean(self, tp: TopicPartition) -> CleanerStats:
        """Clean the log as soon as a worker is free, however little of it is dirty, its active segment too.

        A cleaning that is under way already does not count: another one follows it. Raises NotCleaned.
        """
        log = self._logs.logs.get(tp)
        if log is None or "compact" not in log.config.cleanup_policy:
            raise NotCleaned(f"{tp} is not here, or its cleanup.policy is not compact")
        if not self._threads:
            raise NotCleaned(_NO_THREADS)
        self.forget_failure(tp)
        wish = self._wishes.get(tp)
        if wish is None or wish.done():
            wish = self._wishes[tp] = self._loop.create_future()
        self._woken.set()
        return await asyncio.shield(wish)

    def forget_pause(self, tp: TopicPartition) -> None:
        """A job may try again at once. Raises NotCleaned for a log that cannot be read, and is as it was."""
        self._postponed.pop(tp, None)
        if self.known_failure(tp) is not None:
            raise NotCleaned(self._why_not(tp))

    def known_failure(self, tp: TopicPartition) -> Uncleanable | None:
        """Why the log cannot be cleaned; None for one that has changed since, or is not here, or not compacted."""
        known, log = self.uncleanable.get(tp), self._logs.logs.get(tp)
        if known is not None and (log is None or "compact" not in log.config.cleanup_policy or not known.is_still(log)):
            del self.uncleanable[tp]
            return None
        return known

    def known_failures(self) -> list[Uncleanable]:
        """Of all logs of this broker."""
        return [known for tp in list(self.uncleanable) if (known := self.known_failure(tp)) is not None]

    def last_run(self, tp: TopicPartition) -> LastRun | None:
        """The last cleaning of the log that is here: not of one whose topic had the name before."""
        last, log = self.last_runs.get(tp), self._logs.logs.get(tp)
        if last is not None and log is not None and last.topic_id != log.topic_id:
            del self.last_runs[tp]
            return None
        return last

    def forget_failure(self, tp: TopicPartition) -> None:
        """Somebody asks for a cleaning: it is tried, whatever became of earlier ones."""
        self.uncleanable.pop(tp, None)
        self._postponed.pop(tp, None)

    async def _next(self) -> Candidate | None:
        """The log that is to be cleaned next: one that was asked for, else the dirtiest."""
        for number, tp in enumerate(list(self._wishes)):
            if number % _LOOKED_AT_ONCE == _LOOKED_AT_ONCE - 1:
                await asyncio.sleep(0)
            candidate = self._wished(tp)
            if candidate is not None:
                self._granted[tp] = self._wishes.pop(tp)
                self.under_way.add(tp)
                return candidate
        best: Candidate | None = None
        for number, (tp, log) in enumerate(list(self._logs.logs.items())):
            if number % _LOOKED_AT_ONCE == _LOOKED_AT_ONCE - 1:
                await asyncio.sleep(0)
            candidate = self._candidate(tp, log)
            if (
                candidate is not None
                and self._may_clean(tp, log)
                and candidate.sections.is_due(log.config, candidate.delay_ms)
                and (best is None or candidate.sections.dirty_ratio > best.sections.dirty_ratio)
            ):
                best = candidate
        if best is None:
            return None
        if best.tp in self.under_way:  # another thread has chosen it meanwhile
            return await self._next()
        self.under_way.add(best.tp)
        return best

    def _wished(self, tp: TopicPartition) -> Candidate | None:
        """The log that was asked for, with its active segment rolled; None while it is being cleaned."""
        wish = self._wishes.get(tp)
        if wish is None or wish.done():
            self._wishes.pop(tp, None)
            return None
        if tp in self.under_way:
            return None
        self._postponed.pop(tp, None)
        try:
            return self.examine(tp, rolls=True)
        except LogError as error:
            wish.set_exception(error if isinstance(error, NotCleaned) else NotCleaned(str(error)))
            return None

    def examine(self, tp: TopicPartition, *, rolls: bool) -> Candidate:
        """A log that somebody asks for, however little of it is dirty; ``rolls``: its active segment ends before.

        Raises NotCleaned, NothingToClean, LogError.
        """
        log = self._logs.logs.get(tp)
        if log is None or not self._may_clean(tp, log):
            raise NotCleaned(f"{tp} cannot be cleaned now: it is not here, or is being cut or moved")
        if rolls:
            log.roll()
        candidate = self._candidate(tp, log)
        if candidate is None:
            raise NotCleaned(self._why_not(tp))
        if not candidate.sections.cleanable_bytes:
            raise NothingToClean(f"nothing is to be cleaned below the last stable offset, {log.last_stable_offset}")
        return candidate

    def _why_not(self, tp: TopicPartition) -> str:
        known = self.uncleanable.get(tp)
        return f"{tp} cannot be read: {known.why}" if known else f"the cleanup.policy of {tp} has changed"

    def _may_clean(self, tp: TopicPartition, log: Log) -> bool:
        return (
            self.known_failure(tp) is None
            and self._postponed.get(tp, 0.0) <= self._clock.monotonic()
            and tp not in self.under_way
            and tp not in self._logs.being_cut
            and self._logs.future_of(tp) is None
            and not log.awaits_snapshot
        )

    def is_due(self, candidate: Candidate) -> bool:
        """Whether it is dirty enough, or overdue, to be cleaned without being asked for."""
        log = self._logs.logs.get(candidate.tp)
        return log is not None and candidate.sections.is_due(log.config, candidate.delay_ms)

    def candidates(self) -> Iterator[Candidate | None]:
        """Every compacted log of this broker as it is now, a log a step; None for a step that has found none."""
        others = 0
        for tp, log in list(self._logs.logs.items()):
            if "compact" in log.config.cleanup_policy:
                yield self._candidate(tp, log)
                continue
            others += 1
            if others % _OTHERS_A_STEP == 0:
                yield None

    def _candidate(self, tp: TopicPartition, log: Log) -> Candidate | None:
        config = log.config
        if "compact" not in config.cleanup_policy or self._logs.logs.get(tp) is not log:
            return None
        now = self._clock.now_ms()
        try:
            facts = _facts_of(log)
            sections = divide(facts, self._logs.cleaner_point(tp), config, now)
            delay_ms = 0
            if config.max_compaction_lag_ms < now:  # else no record can be as old
                first_timestamps = log.first_timestamps(sections.first_dirty, facts.segments[-1].base_offset)
                delay_ms = compaction_delay(first_timestamps, config, now)
        except (CorruptRecord, LogError, OSError) as error:
            self._give_up(log, str(error))
            return None
        if sections.is_checkpoint_wrong:
            self._reset_checkpoint(log, sections)
        return Candidate(tp, sections, delay_ms)

    def _reset_checkpoint(self, log: Log, sections: Sections) -> None:
        if "delete" not in log.config.cleanup_policy:
            _logger.warning(
                "the cleaner checkpoint of %s lies outside the log; it is cleaned from %d on",
                log.tp,
                sections.first_dirty,
            )
        self._logs.set_cleaner_point(log.tp, sections.first_dirty)

    # One cleaning

    async def begin(self, candidate: Candidate) -> tuple[CleaningTask, Mark]:
        """What is to be done, told to the log of this broker too. Raises Abandoned."""
        log = self._logs.logs.get(candidate.tp)
        if log is None:
            raise Abandoned("it was taken away")
        mark = Mark.of(log)
        return await self._begin(log, candidate.sections), mark

    async def _begin(self, log: Log, sections: Sections) -> CleaningTask:
        task = await asyncio.to_thread(_with_producers, self._task(log, sections), tuple(log.producers))
        _logger.info("%s", _opening_line(task))
        return task

    async def _clean(self, candidate: Candidate, worker: Worker, number: int) -> None:
        tp = candidate.tp
        log = self._logs.logs.get(tp)
        now = None if log is None else self._candidate(tp, log)
        if log is None or now is None or not now.sections.cleanable_bytes:  # cut or taken away meanwhile
            self._put_back(tp)
            self.under_way.discard(tp)
            return
        mark = Mark.of(log)
        try:
            task = await self._begin(log, now.sections)
            await self._run_task(task, mark, worker)
            mark.check(self._logs)  # since the last group the log may have been cut, or be another
            self._logs.set_cleaner_point(tp, worker.stats.end_offset)
        except Exception as error:
            await self._clear(worker, log)
            self.failed(mark, error)
        except BaseException:
            mark.is_given_up = True  # a group may wait to be put in place
            self._put_back(tp)
            await asyncio.shield(self._tasks.spawn(self._clear(worker, log), f"giving up the cleaning of {tp}"))
            raise
        else:
            self._succeeded(tp, worker.stats, number)
        finally:
            self.under_way.discard(tp)
            if tp in self._wishes:  # a thread that came to it in the meantime left it, and waits
                self._woken.set()

    def _put_back(self, tp: TopicPartition) -> None:
        """Another thread is to do what this one was asked for, if there is one."""
        wish = self._granted.pop(tp, None)
        if wish is not None and not wish.done():
            later = self._wishes.setdefault(tp, wish)
            if later is not wish:
                later.add_done_callback(lambda _: _follow(wish, later))
            if not self._threads:
                self._refuse_wishes()

    def _task(self, log: Log, sections: Sections) -> CleaningTask:
        return CleaningTask(
            directory=str(log.directory),
            name=str(log.tp),
            segments=tuple(log.segment_facts()),
            log_start_offset=log.log_start_offset,
            first_dirty=sections.first_dirty,
            first_uncleanable=sections.first_uncleanable,
            now_ms=self._clock.now_ms(),
            config=_settings_of(log),
            buffers=self._buffers(),
        )

    def _buffers(self) -> Buffers:
        """One worker's part of what the settings allow."""
        config, threads = self._config, max(len(self._threads), 1)
        return Buffers(
            map_bytes=min(config.log_cleaner_dedupe_buffer_size // threads, _MOST_MAP_BYTES),
            load_factor=config.log_cleaner_io_buffer_load_factor,
            read_bytes=max(config.log_cleaner_io_buffer_size // threads // 2, 1),
            bytes_per_second=config.log_cleaner_io_max_bytes_per_second / threads,
            host_bytes_per_second=config.log_cleaner_io_max_bytes_per_second,
        )

    async def _run_task(self, task: CleaningTask, mark: Mark, worker: Worker) -> None:
        await self.undo(mark.log)
        self.check(mark)
        async with aclosing(worker.clean(task)) as groups:
            async for group in groups:
                await self.put_in_place(group, mark)

    async def numbers(self, task: CleaningTask) -> dict[int, FileNumber]:
        """What tells the ``.log`` files of the segments, the active one left out, from others. Raises OSError."""

        def look() -> dict[int, FileNumber]:
            bases = [each.base_offset for each in task.segments[:-1]]
            return {base: number_of(segment_path(Path(task.directory), base, LOG_SUFFIX)) for base in bases}

        return await asyncio.wrap_future(self._logs.run_on_disk(look))

    def check(self, mark: Mark) -> None:
        """Raises Abandoned unless the log may still be cleaned."""
        mark.check(self._logs)

    async def put_in_place(
        self, group: CleanedGroup, mark: Mark, tag: str | None = None, *, keeps_readers_off: bool = False
    ) -> None:
        """Swap the group in, once no reader holds a file of it; ``tag`` is of its drafts, where it was written as such.
        With ``keeps_readers_off`` no other reader is given its files while it waits for those that hold them.

        A caller that gives up meanwhile gives up between two attempts: the files are here as long as one may run.
        Raises Abandoned, where a draft is missing too, and LogError.
        """
        await self._make_certain(mark)
        deadline = self._clock.monotonic() + _LEASE_PATIENCE_S
        hold: Lease | None = None
        try:
            while True:
                attempt = self._tasks.spawn(self._attempt(group, mark, tag), f"replacing segments of {mark.log.tp}")
                refused = await asyncio.shield(attempt)
                if refused is None:
                    return
                if not isinstance(refused, SegmentsLeased) or self._clock.monotonic() > deadline:
                    raise refused
                if keeps_readers_off:
                    hold = mark.log.keep_readers_off(group.old, hold)
                await asyncio.sleep(_LEASE_PAUSE_S)
        finally:
            if hold is not None:
                hold.end()

    async def _make_certain(self, mark: Mark) -> None:
        """Before its first swap: a segment that was cleaned may end before the next begins. A start after a crash is
        not to look for a lost end there, also where the cleaning came to no end and the topic is compacted no longer.

        Raises Abandoned, LogError.
        """
        if mark.is_certain:
            return
        mark.check(self._logs)
        log = mark.log
        try:
            await asyncio.wrap_future(self._logs.run_on_disk(self._logs.make_certain, log, log.end.segment_base))
        except LogDirFailed as error:
            self._logs.report(error, log.directory)
            raise
        mark.is_certain = True

    async def _attempt(self, group: CleanedGroup, mark: Mark, tag: str | None) -> Exception | None:
        """Swap the group in now; why not, if not."""
        async with self._changing:
            try:
                mark.check(self._logs)
                replacement = mark.log.begin_replacement(group.new, group.old)
                await self._swap(mark.log, replacement, group, tag)
            except (Abandoned, LogError) as error:
                return error
        return None

    async def _swap(self, log: Log, replacement: Replacement, group: CleanedGroup, tag: str | None) -> None:
        """Where the disk fails half way, its log directory has failed."""
        if tag is not None:
            try:
                checked = (log.directory, group.new, replacement.end_offset, tag, log.config)
                await asyncio.wrap_future(self._logs.run_on_disk(check_drafts, *checked))
                await asyncio.wrap_future(self._logs.run_on_disk(adopt_drafts, log.directory, group.new, tag))
            except (CorruptRecord, OSError) as error:
                replacement.end()
                raise Abandoned(f"what was written for it cannot be taken: {error}") from error
        try:
            await asyncio.wrap_future(self._logs.run_on_disk(replacement.perform))
        except LogError as error:
            replacement.end()
            if isinstance(error, LogDirFailed):
                self._logs.report(error, log.directory)
            raise
        for path in log.adopt(replacement):
            self._logs.unlink_later(path)

    async def _clear(self, worker: Worker, log: Log | None) -> None:
        """Leave nothing of a cleaning that is given up."""
        await worker.end()
        if log is not None:
            try:
                await self.undo(log)
            except OSError as error:
                _logger.warning("what a cleaning left in %s stays until the next one: %s", log.directory, error)

    async def undo(self, log: Log) -> None:
        """Remove what a cleaning may have left, of this log or of one of its name that is gone. Raises OSError."""
        async with self._changing:
            if self._logs.logs.get(log.tp) is log:
                await asyncio.wrap_future(self._logs.run_on_disk(_leave_nothing, log.directory))

    def release(self, tp: TopicPartition) -> None:
        """Nobody else cleans the log now; what became of it does not concern those that wait for a cleaning here."""
        self.under_way.discard(tp)
        if tp in self._wishes:
            self.forget_failure(tp)
        self._woken.set()

    def finish(self, tp: TopicPartition, stats: CleanerStats) -> None:
        """Somebody else than a thread of this cleaner has cleaned the log up to ``stats.end_offset``."""
        self._logs.set_cleaner_point(tp, stats.end_offset)
        self._succeeded(tp, stats, None)

    def _succeeded(self, tp: TopicPartition, stats: CleanerStats, number: int | None) -> None:
        """``number``: of the thread; None for a job, which has the next one in the log."""
        for line in stats.summary(str(tp), self.threads if number is None else number):
            _logger.info("%s", line)
        if stats.invalid_messages:
            _logger.warning("%s: %d records without a key were dropped", tp, stats.invalid_messages)
        self._postponed.pop(tp, None)
        self.succeeded += 1
        log = self._logs.logs.get(tp)
        if log is not None:  # else its topic has just been deleted
            self.last_runs[tp] = LastRun(self._clock.now_ms(), stats, log.topic_id)
        self._last_runs_by[number] = stats
        wish = self._granted.pop(tp, None)
        if wish is not None and not wish.done():
            wish.set_result(stats)

    def failed(self, mark: Mark, error: Exception) -> None:
        log, tp = mark.log, mark.log.tp
        self.failures += 1
        error = mark.blamed(error, self._logs)
        is_expected = isinstance(error, (Abandoned, *_OF_FILES))
        if not is_expected:
            _logger.error("cleaning %s failed unexpectedly", tp, exc_info=error)
        is_lasting = isinstance(error, CorruptRecord) or (
            isinstance(error, CleaningFailed) and error.kind in (Failure.CORRUPT, Failure.DISK)
        )
        if is_lasting or not is_expected:
            self._give_up(log, str(error))
        elif isinstance(error, DiskFull) or (isinstance(error, CleaningFailed) and error.kind is Failure.NO_ROOM):
            _logger.warning("%s is not cleaned now, and will be tried again: %s", tp, error)
        else:
            _logger.info("the cleaning of %s was given up, and nothing of it is left: %s", tp, error)
        self._postponed[tp] = self._clock.monotonic() + self._config.log_cleaner_backoff_ms / 1000
        wish = self._granted.pop(tp, None)
        if wish is not None and not wish.done():
            wish.set_exception(NotCleaned(f"{tp} was not cleaned: {error}"))

    def _give_up(self, log: Log, why: str) -> None:
        if log.tp not in self.uncleanable:
            _logger.error(
                "%s cannot be cleaned, and grows until it changes or 'sparklog compact run' asks for it: %s",
                log.tp,
                why,
            )
        self.uncleanable[log.tp] = Uncleanable.of(log, why)


def _follow(wish: asyncio.Future[CleanerStats], other: asyncio.Future[CleanerStats]) -> None:
    """Have ``wish`` end as ``other`` has."""
    if wish.done():
        return
    error = None if other.cancelled() else other.exception()
    if other.cancelled():
        wish.cancel()
    elif error is not None:
        wish.set_exception(error)
    else:
        wish.set_result(other.result())


def _leave_nothing(directory: Path) -> None:
    swap.undo(directory)
    remove_drafts(directory)


def _settings_of(log: Log) -> TopicConfig:
    """What coordinators and sinks keep is compacted by offset, whatever a default says: so they read it."""
    if log.tp.topic in STATE_TOPICS:
        return replace(log.config, compaction_strategy=OFFSET_STRATEGY)
    return log.config


def _facts_of(log: Log) -> LogFacts:
    return LogFacts(log.segment_facts(), log.log_start_offset, log.log_end_offset, log.last_stable_offset)


def _with_producers(task: CleaningTask, producers: Collection[ProducerEntry]) -> CleaningTask:
    """Of so many as a log may have it takes long: on any thread."""
    return replace(
        task,
        last_offsets={each.producer_id: each.batches[-1].last_offset for each in producers if each.batches},
        marker_epochs={each.producer_id: each.epoch for each in producers if not each.batches},
    )


def _opening_line(task: CleaningTask) -> str:
    """As Kafka's; the second time is of tombstones in batches of the formats before 2, of which there are none here."""
    cleaned = [each.latest_timestamp for each in task.segments if each.base_offset < task.first_uncleanable]
    prior, horizon = max(cleaned, default=0), max(task.now_ms - task.config.delete_retention_ms, 0)
    until = f"cleaning prior to {_date(prior)}, discarding tombstones prior to {_date(horizon)}"
    return f"Cleaning log {task.name} ({until})..."


def _date(time_ms: int) -> str:
    """A record may bear any time, such as one in microseconds: what lies beyond the last date is told as that."""
    return datetime.fromtimestamp(min(time_ms, _LAST_DATE_MS) / 1000, UTC).isoformat(timespec="seconds")
