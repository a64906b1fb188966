"""The ``.index`` file: from offsets to positions in the ``.log`` file.

Sparse entries of eight bytes, big-endian: offset relative to the segment's base (4), position (4). An entry says that
the batch holding that offset begins at or after the position of the entry before it and at or before its own.
Source: Kafka 3.9, ``OffsetIndex``.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from sparklog.errors import LogError
from sparklog.log.indexes.index_file import IndexFile


class OffsetPosition(NamedTuple):
    """An offset, and where in the ``.log`` file to look for it."""

    offset: int
    position: int


class OffsetIndex(IndexFile):
    """Offsets are absolute in and out, relative in the file."""

    FORM = Struct(">ii")

    def lookup(self, offset: int) -> OffsetPosition:
        """The last entry at or before ``offset``; the start of the segment if there is none."""
        number, entry = self._last_at_most(offset - self.base_offset)
        if number < 0:
            return OffsetPosition(self.base_offset, 0)
        relative, position = entry
        return OffsetPosition(self.base_offset + relative, position)

    def first_at_position(self, position: int) -> int | None:
        """The offset of the first entry at or beyond ``position`` of the ``.log`` file; None if there is none."""
        number = self._last_at_most(position - 1, column=1)[0] + 1
        return self.base_offset + self._entry(number)[0] if number < self.entries else None

    def positions(self) -> Iterator[int]:
        """That of each entry."""
        return (position for _, position in self._entries())

    @property
    def last(self) -> OffsetPosition:
        if not self.entries:
            return OffsetPosition(self.base_offset, 0)
        relative, position = self._last_entry()
        return OffsetPosition(self.base_offset + relative, position)

    def append(self, offset: int, position: int) -> None:
        """Raises LogError if the offset does not lie beyond the last one."""
        if self.entries and offset <= self.last.offset:
            raise LogError(f"{self.path}: offset {offset} after {self.last.offset}")
        self._append(offset - self.base_offset, position)

    def truncate_to(self, offset: int) -> None:
        """Drop every entry at or beyond ``offset``."""
        self.truncate_entries(self._last_at_most(offset - self.base_offset - 1)[0] + 1)
