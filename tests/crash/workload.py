"""A broker's day in the log directory, drawn by lot, and the ledgers of what it promised."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from uuid import UUID

from crash.ledger import Ledger, unique_batch
from log.samples import abandon

from sparklog.config.definition import parse
from sparklog.config.topic import TopicConfig
from sparklog.errors import DiskFull, LogDirFailed
from sparklog.log.directories.manager import LogManager
from sparklog.log.files import CLEAN_SHUTDOWN_MARKER
from sparklog.structs import TopicPartition
from sparklog.testing.clock import ManualClock
from sparklog.testing.steps import finish

_SMALL = {"segment.bytes": "2500", "index.interval.bytes": "200", "segment.index.bytes": "400"}
DEFAULTS = parse(TopicConfig, _SMALL)
FLUSH_MESSAGES = 3
FLUSH_MS = 5000
TOPICS = {
    "plain": DEFAULTS,
    "short": parse(TopicConfig, {**_SMALL, "retention.bytes": "4000", "flush.ms": str(FLUSH_MS)}),
    "synced": parse(TopicConfig, {**_SMALL, "flush.messages": str(FLUSH_MESSAGES)}),
}
PARTITIONS = [
    TopicPartition("plain", 0),
    TopicPartition("plain", 1),
    TopicPartition("short", 0),
    TopicPartition("synced", 0),
]


class Later(Executor):
    """Work in the background, done when the workload says so."""

    def __init__(self) -> None:
        self._work: deque[Callable[[], object]] = deque()

    def submit(self, call, /, *args, **kwargs):
        self._work.append(lambda: call(*args, **kwargs))
        return Future()

    def do_one(self) -> None:
        if self._work:
            self._work.popleft()()

    def do_all(self) -> None:
        while self._work:
            self.do_one()


@contextmanager
def reported() -> Iterator[None]:
    """What the disk refused, as its caller in the broker would have it."""
    try:
        yield
    except OSError as error:
        raise LogDirFailed(str(error)) from error


class Workload:
    """``ledgers`` outlives the directory; the rest is one process's."""

    def __init__(self, chance: Random) -> None:
        self.ledgers: dict[TopicPartition, Ledger] = {}
        self.deleted: set[TopicPartition] = set()
        self.in_doubt: set[TopicPartition] = set()
        """Partitions that were being made or deleted when the process ended."""
        self.clock = ManualClock()
        self._chance = chance
        self._number = 0
        self._epoch = 0
        self.manager: LogManager | None = None

    def open(self, home: Path) -> LogManager:
        self.background = Later()
        self.manager = None
        self.manager = LogManager([home], DEFAULTS, self.clock, self.background)
        self.manager.own("cluster", 1)
        self.manager.load(TOPICS)
        return self.manager

    def run(self, home: Path, steps: int) -> None:
        """Open the directory and work in it."""
        self._epoch += 1
        self.open(home)
        for tp in sorted(self.in_doubt & set(self.manager.logs)):
            self._delete(tp)
        self.in_doubt.clear()
        kinds, weights = zip(*self._weights(), strict=True)
        for kind in self._chance.choices(kinds, weights, k=steps):
            if self.manager.unusable:  # the disk failed
                return
            self._step(kind, self._chance.choice(PARTITIONS), home)

    def _step(self, kind, tp, home):
        if kind == self._restart:
            self._restart(home)
        elif tp not in self.ledgers:
            self._create(tp)
        else:
            kind(tp)

    def _weights(self):
        return [
            (self._append, 60), (self._in_background, 15), (self._checkpoint, 5), (self._flush, 4), (self._truncate, 4),
            (self._retain, 5), (self._advance_start, 3), (self._roll, 3), (self._unlink, 3), (self._next_epoch, 3),
            (self._delete, 1), (self._flush_due, 2), (self._restart, 2),
        ]  # fmt: skip

    def _log(self, tp):
        return self.manager.logs[tp]

    def _create(self, tp):
        identity = UUID(int=self._chance.getrandbits(128))
        self.in_doubt.add(tp)
        self.deleted.discard(tp)
        log = self.manager.get_or_create(tp, TOPICS[tp.topic], identity)
        self.in_doubt.discard(tp)
        self.ledgers[tp] = Ledger(identity, FLUSH_MESSAGES if tp.topic == "synced" else None)
        self.ledgers[tp].settle(log)

    def _append(self, tp):
        log, ledger = self._log(tp), self.ledgers[tp]
        self._number += 1
        producer = ledger.next_sequence() if self._number % 2 else None
        records = unique_batch(self._number, self._chance.randint(1, 3), self._chance.choice((20, 100, 600)), producer)
        first = log.log_end_offset
        try:
            appended = log.append_as_leader(records, self._epoch)
        except DiskFull:
            assert log.log_end_offset == first
            return
        finally:
            ledger.attempt(bytes(records))
        assert appended.first_offset == first
        if log.awaits_flush:
            with suppress(DiskFull):  # an epoch cannot be written
                log.flush()
        ledger.appended(bytes(records), log, answered=not log.awaits_flush)

    def _flush(self, tp):
        self._log(tp).flush()
        self._settle()

    def _roll(self, tp):
        if self._log(tp).end.position:  # an empty segment is not rolled
            with reported():
                self._log(tp).roll()

    def _truncate(self, tp):
        log, ledger = self._log(tp), self.ledgers[tp]
        if not ledger.batches:
            return
        offset = self._chance.randint(log.log_start_offset, log.log_end_offset)
        ledger.truncating(offset)
        self.manager.truncate_to(tp, offset)
        ledger.truncated(log)

    def _advance_start(self, tp):
        log = self._log(tp)
        self.manager.advance_start(tp, self._chance.randint(log.log_start_offset, log.log_end_offset))
        self.manager.checkpoint()
        self.ledgers[tp].certain_start = log.log_start_offset
        self._settle()

    def _retain(self, tp):
        self.ledgers[tp].retaining = True
        self.manager.delete_old_segments(tp, self._log(tp).log_end_offset)
        self.ledgers[tp].retaining = False
        self._settle()

    def _unlink(self, tp):
        self.clock.advance(61)
        finish(self.manager.unlink_due())

    def _flush_due(self, tp):
        self.clock.advance(FLUSH_MS / 1000)
        self.manager.flush_due()

    def _in_background(self, tp):
        self.background.do_one()
        self._settle()

    def _next_epoch(self, tp):
        self._epoch += 1

    def _checkpoint(self, tp):
        starts = {each: log.log_start_offset for each, log in self.manager.logs.items()}
        self.manager.checkpoint()
        for each, start in starts.items():
            self.ledgers[each].certain_start = start

    def _delete(self, tp):
        self.in_doubt.add(tp)
        self.ledgers.pop(tp, None)
        self.manager.delete(tp)
        self.in_doubt.discard(tp)
        self.deleted.add(tp)

    def _restart(self, home):
        self.background.do_all()
        starts = {tp: log.log_start_offset for tp, log in self.manager.logs.items()}
        logs = dict(self.manager.logs)
        self.manager.close()
        self.manager = None
        for tp, start in starts.items():
            self.ledgers[tp].settle(logs[tp])
            self.ledgers[tp].certain_start = start
        if not (home / CLEAN_SHUTDOWN_MARKER).exists():
            # An fsync failed. The page cache may hold what the disk does not, and says nothing of it any more.
            raise LogDirFailed("the disk failed, and a start of the machine is due")
        self.open(home)

    def _settle(self):
        for tp, log in self.manager.logs.items():
            if tp in self.ledgers:
                self.ledgers[tp].settle(log)

    def restarted(self, found: dict[TopicPartition, list[bytes]]) -> None:
        """The power is back, and the directory was found to hold this."""
        for tp, batches in found.items():
            self.ledgers[tp].restarted(batches)

    def died(self) -> None:
        """The process is gone: settle what it had promised, and let go of its files."""
        if self.manager is not None:
            self._settle()
            let_go(self.manager)


def let_go(manager: LogManager) -> None:
    """Leave a directory as a killed process does."""
    for log in manager.logs.values():
        abandon(log)
        # A killed process holds no descriptors; here they would stay open until the garbage collector comes by.
        log._segments.remove(*log._segments)
    for log_dir in manager.dirs.in_service:
        log_dir.close()
