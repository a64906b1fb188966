"""The ``.timeindex`` file: from timestamps to offsets.

Entries of twelve bytes, big-endian: timestamp in ms (8), offset relative to the segment's base (4). An entry says that
no record before that offset is later than the timestamp. Source: Kafka 3.9, ``TimeIndex``.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from sparklog.log.indexes.index_file import IndexFile
from sparklog.record.layout import NO_TIMESTAMP


class TimestampOffset(NamedTuple):
    """A timestamp, and an offset from which later ones are found."""

    timestamp: int
    offset: int


class TimeIndex(IndexFile):
    """Timestamps never fall; offsets are absolute in and out, relative in the file."""

    FORM = Struct(">qi")

    def lookup(self, timestamp: int) -> TimestampOffset:
        """The last entry at or before ``timestamp``; the start of the segment if there is none."""
        number, entry = self._last_at_most(timestamp)
        return self._of(entry) if number >= 0 else TimestampOffset(NO_TIMESTAMP, self.base_offset)

    def first_from(self, timestamp: int) -> TimestampOffset | None:
        """The first entry at or beyond ``timestamp``; None if there is none."""
        number = self._last_at_most(timestamp - 1)[0] + 1
        return self._of(self._entry(number)) if number < self.entries else None

    @property
    def last(self) -> TimestampOffset:
        return self._of(self._last_entry()) if self.entries else TimestampOffset(NO_TIMESTAMP, self.base_offset)

    def _of(self, entry: tuple[int, int]) -> TimestampOffset:
        timestamp, relative = entry
        return TimestampOffset(timestamp, self.base_offset + relative)

    def maybe_append(self, timestamp: int, offset: int, *, beyond_full: bool = False) -> None:
        """Add an entry unless its timestamp is no later than the last one's.

        ``beyond_full`` takes the slot that is kept free for a segment's last entry, written when it is rolled.
        """
        has_room = self.entries < self._max_entries - (0 if beyond_full else 1)
        if has_room and timestamp > self.last.timestamp and timestamp >= 0:
            self._append(timestamp, offset - self.base_offset)

    @property
    def is_full(self) -> bool:
        return self.entries >= self._max_entries - 1

    def truncate_to(self, offset: int) -> None:
        """Drop every entry at or beyond ``offset``."""
        self.truncate_entries(self._last_at_most(offset - self.base_offset - 1, column=1)[0] + 1)
