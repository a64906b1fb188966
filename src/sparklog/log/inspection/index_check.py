"""Reading the two indexes of a segment without opening them for writing, and holding them against its batches.

What must be true, so that every search of Kafka's and of ours ends where it should:

- offset index: entries rise; where an entry points a batch begins; no batch before that place reaches the entry's
  offset, and the offset is the last one of the batch there or, where several were appended at once, of a later one;
- time index: entries rise; the entry's offset is the last one of a batch, the entry's timestamp that batch's greatest,
  and no batch before it is later. Older Kafkas wrote the offset of the very record instead.

Zeros at the end of an index are room that was set aside for entries to come. Source: Kafka 3.9, ``OffsetIndex``,
``TimeIndex``, ``LogSegment.append``.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from sparklog.errors import CorruptRecord
from sparklog.log.indexes.offset_index import OffsetIndex
from sparklog.log.indexes.time_index import TimeIndex
from sparklog.log.inspection.findings import AHEAD, REBUILT, Finding, error
from sparklog.record.batch import RecordBatch
from sparklog.record.columnar import ColumnarDecoder
from sparklog.record.layout import MAX_INT64, NO_TIMESTAMP


class IndexFile(NamedTuple):
    """An index as it is on disk: ``entries`` as (relative offset, position) or (timestamp, relative offset)."""

    path: Path
    entries: list[tuple[int, int]]
    unused: int
    """Zero entries at the end."""
    odd_bytes: int
    """Bytes at the end that are no whole entry."""


def read_index(path: Path, form: Struct) -> IndexFile:
    """Raises OSError if the file cannot be read."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        size = os.fstat(descriptor).st_size
        odd = size % form.size
        data = file.read(min(_written(descriptor), size - odd)).rstrip(b"\0")
    count = -(-len(data) // form.size)
    entries: list[tuple[int, int]] = list(form.iter_unpack(data.ljust(count * form.size, b"\0")))
    return IndexFile(path, entries, size // form.size - count, odd)


def _written(descriptor: int) -> int:
    """Where a file's last hole begins, if it ends with one: the room that was set aside need not be read."""
    end = 0
    with suppress(OSError):  # there is nothing but a hole from here on
        while True:
            end = os.lseek(descriptor, os.lseek(descriptor, end, os.SEEK_DATA), os.SEEK_HOLE)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return end


def read_offset_index(path: Path) -> IndexFile:
    return read_index(path, OffsetIndex.FORM)


def read_time_index(path: Path) -> IndexFile:
    return read_index(path, TimeIndex.FORM)


def _time_of(batch: RecordBatch, offset: int) -> int | None:
    """The timestamp of the record at ``offset``; None if there is none."""
    decoder = ColumnarDecoder(("timestamp",))
    try:
        decoder.append(batch, offset, offset + 1)
    except CorruptRecord:
        return None
    times: list[int] = decoder.finish()["timestamp"].to_pylist()
    return times[0] if times else None


class IndexCheck(ABC):
    """Holds the entries of one index against the batches of a segment, which are told in order.

    ``due_position`` and ``due_offset``: a batch that begins before the one and ends before the other need not be told.
    """

    def __init__(self, index: IndexFile | None, base_offset: int, log_size: int) -> None:
        self._index = index
        self._wrong: dict[str, tuple[str, int]] = {}
        """By what is to be done: the first of the wrong entries, and how many they are."""
        self._next = 0
        self._entries: list[tuple[int, int]] = []
        self.due_position = self.due_offset = MAX_INT64
        if index is not None:
            self._entries = self._sane(index, base_offset, log_size)
            self._set_due()

    @abstractmethod
    def _sane(self, index: IndexFile, base_offset: int, log_size: int) -> list[tuple[int, int]]: ...

    @abstractmethod
    def _set_due(self) -> None: ...

    def _say(self, number: int, what: str, advice: str = REBUILT) -> None:
        first, count = self._wrong.get(advice, (f"entry {number} {what}", 0))
        self._wrong[advice] = (first, count + 1)

    def _say_ahead(self, number: int, text: str) -> None:
        self._say(number, f"({text}) lies beyond the end of the log", AHEAD)

    def give_up(self) -> None:
        """The log is damaged from here on: what later entries say is not the index's fault."""
        self._next = len(self._entries)
        self._set_due()

    def findings(self) -> list[Finding]:
        """All that was wrong, an error for each kind; call it behind the last batch."""
        if self._index is None:
            return []
        found = []
        if self._index.odd_bytes:
            what = f"the file ends in the middle of an entry ({self._index.odd_bytes} bytes too many)"
            found.append(error(self._index.path, what, REBUILT))
        for number in range(self._next, len(self._entries)):
            self._say_ahead(number, self._text(*self._entries[number]))
        for advice, (first, count) in self._wrong.items():
            more = f"; {count - 1} more entries are wrong" if count > 1 else ""
            found.append(error(self._index.path, first + more, advice))
        return found

    @staticmethod
    @abstractmethod
    def _text(first: int, second: int, /) -> str: ...


class OffsetIndexCheck(IndexCheck):
    """The ``.index`` file; entries are (offset, position)."""

    _reached = False
    """Whether the batch has been seen that the next entry points to; its offset may belong to a later one."""

    def _sane(self, index: IndexFile, base_offset: int, log_size: int) -> list[tuple[int, int]]:
        kept: list[tuple[int, int]] = []
        for number, (relative, position) in enumerate(index.entries):
            last = kept[-1] if kept else (-1, -1)
            offset = base_offset + relative
            if relative < 0 or position < 0 or offset <= last[0] or position <= last[1]:
                self._say(number, f"({self._text(offset, position)}) does not rise")
            elif position >= log_size:
                self._say_ahead(number, self._text(offset, position))
            else:
                kept.append((offset, position))
        return kept

    def _set_due(self) -> None:
        self.due_position = self.due_offset = MAX_INT64
        if self._next < len(self._entries):
            self.due_offset, position = self._entries[self._next]
            if not self._reached:
                self.due_position = position

    def batch(self, position: int, last_offset: int) -> None:
        """The batch at ``position``, which ends with ``last_offset``."""
        while position >= self.due_position or last_offset >= self.due_offset:
            offset, due = self._entries[self._next]
            if not self._reached and position == due:
                self._reached = True
                self._set_due()
                continue
            if not self._reached:
                where = "in no batch's first byte" if position > due else f"behind that offset (position {position})"
                self._say(self._next, f"points to position {due} for offset {offset}, which is {where}")
            elif last_offset != offset:
                self._say(self._next, f"names offset {offset}, which is not the last of a batch ({last_offset} is)")
            self._advance()

    def skip_to(self, position: int) -> None:
        """What lies before ``position`` is damaged: entries that point there are not the index's fault."""
        while self._next < len(self._entries) and (self._reached or self._entries[self._next][1] < position):
            self._reached = False
            self._next += 1
        self._set_due()

    def positions_beyond(self, position: int) -> list[int]:
        """Where batches should begin behind ``position``."""
        return [each for _, each in self._entries[self._next :] if each > position]

    def _advance(self) -> None:
        self._reached = False
        self._next += 1
        self._set_due()

    @staticmethod
    def _text(offset: int, position: int) -> str:
        return f"offset {offset}, position {position}"


class TimeIndexCheck(IndexCheck):
    """The ``.timeindex`` file; entries are (timestamp, offset)."""

    def _sane(self, index: IndexFile, base_offset: int, log_size: int) -> list[tuple[int, int]]:  # noqa: ARG002
        kept: list[tuple[int, int]] = []
        for number, (timestamp, relative) in enumerate(index.entries):
            last = kept[-1] if kept else (NO_TIMESTAMP, base_offset - 1)
            offset = base_offset + relative
            if timestamp <= last[0] or offset <= last[1]:
                self._say(number, f"({self._text(timestamp, offset)}) does not rise")
            else:
                kept.append((timestamp, offset))
        return kept

    def _set_due(self) -> None:
        self.due_offset = self._entries[self._next][1] if self._next < len(self._entries) else MAX_INT64

    def batch(self, batch: RecordBatch, latest_before: int) -> None:
        """A batch, and the greatest timestamp of all before it."""
        timestamp, last_offset = batch.max_timestamp, batch.last_offset
        while last_offset >= self.due_offset:
            indexed, offset = self._entries[self._next]
            if offset < batch.base_offset:
                self._say(self._next, f"names offset {offset}, which is in no batch")
            elif latest_before > indexed:
                self._say(self._next, f"says {indexed} up to offset {offset}, but a batch before is at {latest_before}")
            elif timestamp != indexed:
                self._say(self._next, f"says {indexed} at offset {offset}, but the batch there is at {timestamp}")
            elif offset != last_offset and _time_of(batch, offset) != indexed:
                self._say(self._next, f"names offset {offset}, which is not the last of a batch ({last_offset} is)")
            self._next += 1
            self._set_due()

    @staticmethod
    def _text(timestamp: int, offset: int) -> str:
        return f"timestamp {timestamp}, offset {offset}"
