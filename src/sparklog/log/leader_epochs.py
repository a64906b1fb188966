"""Which leader epoch began at which offset: the ``leader-epoch-checkpoint`` of a partition.

Epochs and start offsets both rise. A follower compares these to find where its log parts from the leader's.
Source: KIP-101; Kafka 3.9, ``LeaderEpochFileCache``.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from sparklog.errors import CorruptRecord
from sparklog.log.checkpoints import LEADER_EPOCHS, read_checkpoint, write_checkpoint
from sparklog.structs import OffsetAndEpoch


class EpochEntry(NamedTuple):
    """An epoch and the first offset written under it."""

    epoch: int
    start_offset: int


class LeaderEpochCache:
    """Kept in memory, written through to the file at each change."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / LEADER_EPOCHS
        try:
            self._entries = [EpochEntry(int(e), int(o)) for e, o in read_checkpoint(self._path, 2)]
        except ValueError as error:
            raise CorruptRecord(f"{self._path}: {error}") from error

    @property
    def latest(self) -> EpochEntry | None:
        return self._entries[-1] if self._entries else None

    def assign(self, epoch: int, start_offset: int) -> None:
        """``start_offset`` is the first offset of ``epoch``; nothing changes if the epoch is known already."""
        if epoch < 0 or (self._entries and epoch <= self._entries[-1].epoch):
            return
        kept = [entry for entry in self._entries if entry.start_offset < start_offset]
        self._replace([*kept, EpochEntry(epoch, start_offset)])

    def end_offset(self, epoch: int, log_end_offset: int) -> OffsetAndEpoch | None:
        """The largest epoch at or below ``epoch`` and where it ended; None if the cache begins later."""
        if not self._entries or epoch < self._entries[0].epoch:
            return None
        for entry, after in zip(self._entries, [*self._entries[1:], None], strict=True):
            if after is None or after.epoch > epoch:
                return OffsetAndEpoch(after.start_offset if after else log_end_offset, entry.epoch)
        return None

    def epoch_at(self, offset: int) -> int:
        """The epoch under which ``offset`` was written, -1 if unknown."""
        return next((entry.epoch for entry in reversed(self._entries) if entry.start_offset <= offset), -1)

    def truncate_from_end(self, offset: int) -> None:
        """Forget epochs that began at or beyond ``offset``."""
        kept = [entry for entry in self._entries if entry.start_offset < offset]
        if kept != self._entries:
            self._replace(kept)

    def _replace(self, entries: list[EpochEntry]) -> None:
        write_checkpoint(self._path, entries)
        self._entries = entries
