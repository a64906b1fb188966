"""Which leader epoch began at which offset: the ``leader-epoch-checkpoint`` of a partition.

Epochs and start offsets both rise. A follower compares these to find where its log parts from the leader's.
Source: KIP-101; Kafka 3.9, ``LeaderEpochFileCache``.

Invariant: every change counts in memory at once, and is on the disk after the next ``write``, which may run on another
thread. The log writes before its recovery point rises, so that what the file does not know yet stands in batches that
a start after a crash scans. It writes what a truncation took back before the truncation is over.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from sparklog.errors import CorruptRecord
from sparklog.log.checkpoints import LEADER_EPOCHS, read_checkpoint, whole_number, write_checkpoint
from sparklog.record.layout import MAX_INT32
from sparklog.structs import OffsetAndEpoch


class EpochEntry(NamedTuple):
    """An epoch and the first offset written under it."""

    epoch: int
    start_offset: int


def read_epochs(path: Path) -> list[EpochEntry]:
    """The entries of a ``leader-epoch-checkpoint``. Raises CorruptRecord if it does not hold together."""
    try:
        entries = [
            EpochEntry(whole_number(epoch, MAX_INT32), whole_number(offset))
            for epoch, offset in read_checkpoint(path, 2, may_be_empty=True)
        ]
    except ValueError as error:
        raise CorruptRecord(f"{path}: {error}") from error
    for before, after in pairwise(entries):
        if before.epoch >= after.epoch or before.start_offset > after.start_offset:
            raise CorruptRecord(f"{path}: {after} follows {before}")
    return entries


class LeaderEpochCache:
    """Changed on the log's thread, written on any."""

    def __init__(self, directory: Path, *, anew: bool = False) -> None:
        """``anew`` looks at no file. Raises CorruptRecord if the file does not hold together."""
        self._path = directory / LEADER_EPOCHS
        self._entries = [] if anew else read_epochs(self._path)  # a change makes another list
        self._written = self._entries
        self._writing = threading.Lock()

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        """All that are known, rising."""
        return tuple(self._entries)

    @property
    def latest(self) -> EpochEntry | None:
        return self._entries[-1] if self._entries else None

    def assign(self, epoch: int, start_offset: int) -> bool:
        """``start_offset`` is the first offset of ``epoch``; False, with nothing changed, if the epoch is known."""
        if epoch < 0 or (self._entries and epoch <= self._entries[-1].epoch):
            return False
        kept = [entry for entry in self._entries if entry.start_offset < start_offset]
        self._entries = [*kept, EpochEntry(epoch, start_offset)]
        return True

    def end_offset(self, epoch: int, log_end_offset: int) -> OffsetAndEpoch | None:
        """The largest epoch at or below ``epoch`` and where it ended; None if no epoch is known or asked for.

        An ``epoch`` before the first one known has ended where that begins.
        """
        if not self._entries or epoch < 0:
            return None
        if epoch < self._entries[0].epoch:
            return OffsetAndEpoch(self._entries[0].start_offset, epoch)
        for entry, after in zip(self._entries, [*self._entries[1:], None], strict=True):
            if after is None or after.epoch > epoch:
                return OffsetAndEpoch(after.start_offset if after else log_end_offset, entry.epoch)
        return None

    def epoch_at(self, offset: int) -> int:
        """The epoch under which ``offset`` was written, -1 if unknown."""
        return next((entry.epoch for entry in reversed(self._entries) if entry.start_offset <= offset), -1)

    def truncate_from_end(self, offset: int) -> bool:
        """Forget epochs that began at or beyond ``offset``. False if that changes nothing."""
        kept = [entry for entry in self._entries if entry.start_offset < offset]
        if kept == self._entries:
            return False
        self._entries = kept
        return True

    def truncate_from_start(self, offset: int) -> bool:
        """Forget epochs that ended at or before ``offset``; the one that holds it begins there from now on. False if
        that changes nothing.
        """
        before = [entry for entry in self._entries if entry.start_offset <= offset]
        kept = [EpochEntry(before[-1].epoch, offset), *self._entries[len(before) :]] if before else self._entries
        if kept == self._entries:
            return False
        self._entries = kept
        return True

    def clear(self) -> None:
        """Forget all epochs."""
        if self._entries:
            self._entries = []

    def replace(self, entries: Iterable[tuple[int, int]]) -> None:
        """Hold these (epoch, start offset) and no others."""
        new = [EpochEntry(*entry) for entry in entries]
        if new != self._entries:
            self._entries = new

    def write(self) -> None:
        """The file knows what is known here when this returns. Any thread may call it."""
        with self._writing:
            entries = self._entries
            if entries is not self._written:
                write_checkpoint(self._path, entries)
                self._written = entries
