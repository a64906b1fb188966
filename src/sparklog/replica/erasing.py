"""Erasure on this broker: which replica is next, what it waits for, and putting what a worker wrote in its place.

Invariants: one cleaning or erasure a log at a time (``LogCleaner.under_way``), with the checks of a cleaning before
each swap. A replica is erased when its high watermark and its last stable offset have reached the end of the last
segment that is touched; for that its active segment ends. One replica at a time, by a worker process of its own.
Nothing happens by itself: a client that asks how far an erasure is has what waited tried again. Keys are in memory
alone, and no longer than there is a replica left to erase. As a whole: ``docs/adr/0028-erasure.md``.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple
from uuid import UUID

from sparklog.clock import Clock
from sparklog.compaction.erasure import ErasureStats, ErasureTask, Progress
from sparklog.compaction.process import CleaningFailed, Worker
from sparklog.compaction.rewriting import CleanedGroup
from sparklog.compaction.task import Buffers, CleaningTask, Failure
from sparklog.config.broker import BrokerConfig
from sparklog.errors import CorruptRecord, LogError, SegmentsLeased
from sparklog.log.directories.manager import LogManager
from sparklog.log.log import Log
from sparklog.log.segment import SegmentFacts
from sparklog.net.tasks import Tasks
from sparklog.replica.cleaning import Abandoned, LogCleaner, Mark
from sparklog.structs import TopicPartition

_logger = logging.getLogger(__name__)

FORGOTTEN_S = 600.0
"""An erasure that nobody has asked about for so long is forgotten."""
_MOST_KEY_BYTES = 64 << 20
"""Of all erasures together."""
_MOST_ROUNDS = 1000
_MOST_REPLICAS = 100_000
"""Of all rounds together, without the replicas of the last round. A client may begin any number of rounds: the broker
forgets the one that no client has asked about for longest. A client that asks about it again is told that its keys are
needed.
"""
_DELETED = "a segment was deleted while it was read"
_MOST_ATTEMPTS = 10
"""Of one replica, where its log changes again and again."""


class State(IntEnum):
    """Where a replica's erasure stands; the numbers are the wire's."""

    WAITING = 0
    RUNNING = 1
    DONE = 2
    FAILED = 3


class RoundId(NamedTuple):
    """An erasure goes through its replicas in rounds: it erases, it searches, and so on until nothing is found."""

    erasure_id: UUID
    number: int


@dataclass(slots=True)
class Erasing:
    """One replica in one round."""

    tp: TopicPartition
    end_offset: int
    state: State = State.WAITING
    why: str = ""
    """What it waits for, or why it failed."""
    progress: Progress = Progress(0, 0)  # noqa: RUF009 (never changed)
    log_start_offset: int = -1
    stats: ErasureStats = field(default_factory=ErasureStats)
    is_queued: bool = False
    attempts: int = 0

    @property
    def is_over(self) -> bool:
        return self.state in (State.DONE, State.FAILED)

    def wait(self, why: str) -> None:
        self.state, self.why = State.WAITING, why

    def fail(self, why: str) -> None:
        self.state, self.why = State.FAILED, why

    def begin_anew(self, why: str) -> None:
        """Its log has changed: it is tried again when somebody asks, though not for ever."""
        self.attempts += 1
        if self.attempts < _MOST_ATTEMPTS:
            self.wait(f"{why}; it begins anew")
        else:
            self.fail(f"{why}, and it was begun anew {self.attempts} times")


@dataclass(slots=True)
class _Round:
    scan_only: bool
    keys: bytes | None = field(repr=False)
    """None once every replica is done."""
    digest: str
    asked: float
    replicas: dict[TopicPartition, Erasing] = field(default_factory=dict)

    @property
    def is_busy(self) -> bool:
        return any(each.is_queued for each in self.replicas.values())


class RoundRefused(LogError):
    """Keys are not taken, and why."""


class LogEraser:
    """Belongs to the loop's thread."""

    def __init__(
        self,
        logs: LogManager,
        cleaner: LogCleaner,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        settings: Callable[[], BrokerConfig],
    ) -> None:
        self._logs = logs
        self._cleaner = cleaner
        self._loop = loop
        self._clock = clock
        self._settings = settings
        self._tasks = Tasks(loop, lambda name, error: _logger.error("%s failed", name, exc_info=error))
        self._rounds: dict[RoundId, _Round] = {}
        self._queue: deque[tuple[_Round, Erasing, Log]] = deque()
        self._running: asyncio.Task[None] | None = None
        self._expiry: asyncio.TimerHandle | None = None

    async def close(self) -> None:
        """Erase no more. A swap under way is done to its end."""
        if self._expiry is not None:
            self._expiry.cancel()
        if self._running is not None:
            self._running.cancel()
        self._rounds.clear()
        self._queue.clear()
        await self._tasks.finish()

    # What is asked

    def begin(self, round_id: RoundId, keys: bytes, digest: bytes, *, scan_only: bool) -> None:
        """Learn the keys of a round, packed; ``scan_only``: they are only searched for. Once more is the same.

        Raises RoundRefused for other keys than the round has, and where keys of too many rounds are held, or too many
        rounds are being done.
        """
        known = self._rounds.get(round_id)
        if known is None:
            self._make_room()
            if sum(len(each.keys or b"") for each in self._rounds.values()) + len(keys) > _MOST_KEY_BYTES:
                raise RoundRefused(f"other erasures are under way, whose keys take {_MOST_KEY_BYTES:,} bytes already")
            self._rounds[round_id] = _Round(scan_only, keys, digest.hex(), self._clock.monotonic())
        elif (known.digest, known.scan_only) != (digest.hex(), scan_only):
            raise RoundRefused("the round was begun with other keys, or for something else")
        elif known.keys is None:
            known.keys = keys
        self._expire()

    def ask(self, round_id: RoundId, tp: TopicPartition, end_offset: int) -> Erasing | None:
        """How far a replica is that is here; one that is new or has waited is tried. None where the keys are needed."""
        known = self._rounds.get(round_id)
        if known is None:
            return None
        known.asked = self._clock.monotonic()
        replica = known.replicas.get(tp)
        if replica is None or replica.end_offset != end_offset:
            if known.keys is None:
                return None
            replica = known.replicas[tp] = Erasing(tp, end_offset)
        if replica.state is State.WAITING and not replica.is_queued:
            self._try(known, replica)
        return replica

    def _make_room(self) -> None:
        """For another round. Raises RoundRefused."""
        count, replicas = len(self._rounds), sum(len(each.replicas) for each in self._rounds.values())
        if count < _MOST_ROUNDS and replicas < _MOST_REPLICAS:
            return
        for round_id, known in sorted(self._rounds.items(), key=lambda each: each[1].asked):
            if known.is_busy:
                continue
            del self._rounds[round_id]
            count, replicas = count - 1, replicas - len(known.replicas)
            if count < _MOST_ROUNDS and replicas < _MOST_REPLICAS:
                return
        raise RoundRefused(f"{count:,} rounds of other erasures are under way here, in {replicas:,} replicas")

    def _expire(self) -> None:
        """Forget the rounds that nobody asks about; look again while there are others."""
        bound = self._clock.monotonic() - FORGOTTEN_S
        for round_id, known in list(self._rounds.items()):
            if known.asked <= bound and not known.is_busy:
                del self._rounds[round_id]
        if self._expiry is not None:
            self._expiry.cancel()
        self._expiry = self._loop.call_later(FORGOTTEN_S, self._expire) if self._rounds else None

    # What a replica waits for

    def _try(self, known: _Round, replica: Erasing) -> None:
        """Put it in the queue, if nothing stands in its way."""
        log = self._logs.logs.get(replica.tp)
        try:
            if log is None:
                replica.wait("its log is not open here now")
            elif self._logs.future_of(replica.tp) is not None:
                replica.fail("it is being moved to another log directory: erase again when that is done")
            else:
                why = self._obstacle(log, replica.end_offset, known.scan_only)
                replica.wait(why or "its turn: this broker erases one replica at a time")
                if why is None:
                    self._put_in_queue(known, replica, log)
        except (LogError, OSError) as error:
            replica.fail(f"its log cannot be written: {error}")

    def _put_in_queue(self, known: _Round, replica: Erasing, log: Log) -> None:
        replica.is_queued = True
        self._queue.append((known, replica, log))
        if self._running is None or self._running.done():
            self._running = self._tasks.spawn(self._run(), "erasing records")

    def _obstacle(self, log: Log, end_offset: int, scan_only: bool) -> str | None:
        """Why what lies below ``end_offset`` may not be touched yet; the active segment ends for it.

        Raises LogError.
        """
        why = self._why_not_below(log, end_offset, scan_only)
        if why is None and not scan_only:
            if log.end.segment_base < end_offset:
                log.roll()
            why = self._why_not_below(log, _bound(log, end_offset), scan_only)
        return why

    def _why_not_below(self, log: Log, needed: int, scan_only: bool) -> str | None:
        tp = log.tp
        if tp in self._logs.being_cut:
            return "its log is being cut"
        if tp in self._cleaner.under_way:
            return "its log is being cleaned, or erased by another call"
        if log.log_end_offset < needed:
            return f"this replica has the log up to offset {log.log_end_offset}, and not yet up to {needed}"
        if log.high_watermark < needed:
            return f"only what lies below offset {log.high_watermark} is known to be replicated, not yet up to {needed}"
        if scan_only or log.last_stable_offset >= needed:
            return None
        return _open_transaction(log)

    # One replica

    async def _run(self) -> None:
        worker = Worker()
        try:
            while self._queue:  # also for what comes while the worker ends
                await self._take_all(worker)
                await worker.end()  # it has the keys in its memory
        finally:
            await worker.end()

    async def _take_all(self, worker: Worker) -> None:
        while self._queue:
            known, replica, log = self._queue.popleft()
            try:
                await self._take(known, replica, log, worker)
            finally:
                replica.is_queued = False
            if all(each.is_over for each in known.replicas.values()):
                known.keys = None

    async def _take(self, known: _Round, replica: Erasing, log: Log, worker: Worker) -> None:
        if self._logs.logs.get(replica.tp) is not log or known.keys is None:
            replica.wait("its log is not open here now")  # what is there instead may be of another topic of the name
            return
        why = self._obstacle(log, replica.end_offset, known.scan_only)
        if why is not None:  # its log was cut or cleaned while it had to wait for its turn
            replica.wait(why)
            return
        mark = Mark(log, log.truncations)
        self._cleaner.under_way.add(replica.tp)
        try:
            await self._erase(known, replica, mark, worker)
        except Exception as error:
            await self._clear(worker, log)
            _conclude(replica, mark.blamed(error, self._logs))
        except BaseException:
            mark.is_given_up = True  # a segment may wait to be put in place
            await asyncio.shield(self._tasks.spawn(self._clear(worker, log), f"giving up the erasure of {log.tp}"))
            raise
        finally:
            self._cleaner.release(replica.tp)

    async def _erase(self, known: _Round, replica: Erasing, mark: Mark, worker: Worker) -> None:
        log = mark.log
        replica.state, replica.why, replica.progress = State.RUNNING, "", Progress(0, 0)
        await self._cleaner.undo(log)
        self._cleaner.check(mark)
        assert known.keys is not None
        task = ErasureTask(self._task(log, replica.end_offset), replica.end_offset, known.keys, known.scan_only)
        stats = ErasureStats()
        async with aclosing(worker.erase(task)) as steps:
            async for step in steps:
                if isinstance(step, CleanedGroup):
                    await self._put_in_place(step, mark)
                elif isinstance(step, Progress):
                    replica.progress = step
                else:
                    stats = step
        self._cleaner.check(mark)
        replica.state, replica.stats, replica.log_start_offset = State.DONE, stats, log.log_start_offset
        _log_done(known, replica)

    async def _put_in_place(self, group: CleanedGroup, mark: Mark) -> None:
        """Raises as ``LogCleaner.put_in_place``, and Abandoned where the segment has been deleted meanwhile."""
        try:
            await self._cleaner.put_in_place(group, mark, keeps_readers_off=True)
        except LogError as error:
            if not {*group.old} <= {each.base_offset for each in mark.log.segment_facts()}:
                raise Abandoned(_DELETED) from error
            raise

    def _task(self, log: Log, end_offset: int) -> CleaningTask:
        """The segments with offsets below the end; of the active one what lies before."""
        config = self._settings()
        return CleaningTask(
            directory=str(log.directory),
            name=str(log.tp),
            segments=tuple(_searched(log, end_offset)),
            log_start_offset=log.log_start_offset,
            first_dirty=0,
            first_uncleanable=end_offset,
            now_ms=self._clock.now_ms(),
            config=log.config,
            buffers=Buffers(
                map_bytes=0,
                load_factor=1.0,
                read_bytes=max(config.log_cleaner_io_buffer_size // 2, 1),
                bytes_per_second=config.log_cleaner_io_max_bytes_per_second,
            ),
        )

    async def _clear(self, worker: Worker, log: Log) -> None:
        """Leave nothing of an erasure that is given up."""
        await worker.end()
        try:
            await self._cleaner.undo(log)
        except OSError as error:
            _logger.warning("what an erasure left in %s stays until the next one: %s", log.directory, error)


def _bound(log: Log, end_offset: int) -> int:
    """Where the last segment ends that holds offsets below ``end_offset``; the active one begins there or behind."""
    return min(each.base_offset for each in log.segment_facts() if each.base_offset >= end_offset)


def _searched(log: Log, end_offset: int) -> list[SegmentFacts]:
    segments = [each for each in log.segment_facts() if each.base_offset < end_offset]
    if segments and segments[-1].base_offset == log.end.segment_base:
        segments[-1] = segments[-1]._replace(size=_position_behind(log, end_offset))
    return segments


def _position_behind(log: Log, end_offset: int) -> int:
    """Where the last batch of the active segment ends that has an offset below ``end_offset``, whatever else it has."""
    positions = [log.position_of(end_offset).position]
    if end_offset > log.log_start_offset:
        positions += (each.end for each in log.extents(end_offset - 1, end_offset).files)
    return max(positions)


def _open_transaction(log: Log) -> str:
    begun = [each for each in log.producers if each.in_transaction]
    first = min(begun, key=lambda each: each.transaction_first_offset, default=None)
    if first is None:
        return f"a transaction from offset {log.last_stable_offset} on is not known to have ended on all replicas"
    (topic, partition), start = log.tp, first.transaction_first_offset
    return (
        f"producer {first.producer_id} has had a transaction open since offset {start}: it has to end;"
        f" 'sparklog txn abort --topic {topic} --partition {partition} --start-offset {start}' ends it"
    )


def _conclude(replica: Erasing, error: Exception) -> None:
    """What becomes of a replica whose erasure ended with ``error``."""
    is_gone = isinstance(error, CleaningFailed) and error.kind is Failure.GONE
    if is_gone or isinstance(error, Abandoned | SegmentsLeased):
        replica.begin_anew(_DELETED if is_gone else str(error))
        return
    if not isinstance(error, CleaningFailed | LogError | CorruptRecord | OSError):
        _logger.error("erasing records of %s failed unexpectedly", replica.tp, exc_info=error)
    else:
        _logger.warning("records of %s are not erased: %s", replica.tp, error)
    replica.fail(str(error) or type(error).__name__)


def _log_done(known: _Round, replica: Erasing) -> None:
    stats = replica.stats
    _logger.info(
        "%s below offset %d of %s %d records of %d keys (SHA-256 %s); %d segments were searched, %d written anew",
        "found" if known.scan_only else "erased",
        replica.end_offset,
        replica.tp,
        stats.records_found,
        stats.keys,
        known.digest,
        replica.progress.segments_total,
        stats.segments_rewritten,
    )
