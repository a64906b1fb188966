"""The segments of a log, in order, and reading across them.

Copy-on-write: a reader that holds a snapshot of the list walks it undisturbed while segments are added and deleted.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from operator import attrgetter
from typing import NamedTuple

from sparklog.log.indexes.time_index import TimestampOffset
from sparklog.log.indexes.transaction_index import AbortedTransaction
from sparklog.log.scan import good_batches
from sparklog.log.search import Search
from sparklog.log.segment import LogSegment
from sparklog.record import layout
from sparklog.structs import FileSlice

_base_offset = attrgetter("base_offset")

MOST_ABORTED = 4000
"""Aborted transactions that end in what is read at once; to find and tell of so many takes some milliseconds."""


_MOST_SKIPPED = 4 << 20
"""Bytes of batches without records that one read passes over."""
_LEAST_SKIPPED = _MOST_SKIPPED // 64
"""As which a segment counts that has nothing else, however small it is."""


class LogPosition(NamedTuple):
    """An offset, and the place in a segment file where its batch begins or will begin."""

    offset: int
    segment_base: int
    position: int


class LogSegments:
    """At least one segment once the log is loaded; the last is the active one."""

    def __init__(self) -> None:
        self._segments: tuple[LogSegment, ...] = ()

    def __iter__(self) -> Iterator[LogSegment]:
        return iter(self._segments)

    def __len__(self) -> int:
        return len(self._segments)

    def __bool__(self) -> bool:
        return bool(self._segments)

    def add(self, segment: LogSegment) -> None:
        """Put the segment where its base offset belongs."""
        self.replace((), (segment,))

    def remove(self, *gone: LogSegment) -> None:
        self.replace(gone, ())

    def replace(self, gone: tuple[LogSegment, ...], new: tuple[LogSegment, ...]) -> None:
        """Take ``gone`` out and put ``new`` in, in one step."""
        leaving = frozenset(gone)
        kept = (segment for segment in self._segments if segment not in leaving)
        self._segments = tuple(sorted((*kept, *new), key=_base_offset))

    @property
    def active(self) -> LogSegment:
        return self._segments[-1]

    @property
    def first(self) -> LogSegment:
        return self._segments[0]

    @property
    def bases(self) -> tuple[int, ...]:
        """The base offset of each."""
        return tuple(segment.base_offset for segment in self._segments)

    def from_offset(self, offset: int) -> tuple[LogSegment, ...]:
        """The segment that would hold ``offset`` and all after it."""
        segments = self._segments
        return segments[max(bisect_right(segments, offset, key=_base_offset) - 1, 0) :]

    @property
    def size(self) -> int:
        """Bytes of all ``.log`` files."""
        segments = self._segments
        return segments[0].size if len(segments) == 1 else sum([segment.size for segment in segments])

    def read(
        self, offset: int, max_bytes: int, bound: LogPosition, *, min_one_batch: bool, skips_empty: bool = False
    ) -> FileSlice | None:
        """Batches from the one that holds ``offset`` on, never beyond ``bound``; None if there is none yet.

        See ``LogSegment.read`` for what a slice may begin and end with. ``skips_empty``: it begins with a batch that
        has records, if there is one, and if the batches before it that have none are not too many.
        """
        skips = _MOST_SKIPPED if skips_empty else 0
        empty: FileSlice | None = None
        for segment in self.from_offset(offset):
            if segment.base_offset > bound.segment_base:
                return empty
            end = segment.size  # less than the bound's where the segment was cleaned since
            if segment.base_offset == bound.segment_base:
                end = min(end, bound.position)
            found = segment.read(offset, max_bytes, end, min_one_batch=min_one_batch, skips=skips)
            if found is None:
                continue
            if not found.size and empty is not None:
                return empty
            if not skips or found.size != layout.HEADER_SIZE or found.position + found.size < end:
                return found
            empty = found
            skips = max(skips - max(segment.size, _LEAST_SKIPPED), 0)
        return empty

    def read_all(self, block: int) -> Iterator[memoryview]:
        """Every good batch, copied into memory a few at a time; each view holds whole batches."""
        for segment in self._segments:
            yield from good_batches(segment.log, segment.base_offset, block)

    def position_of(self, offset: int) -> LogPosition | None:
        """The place of ``offset``: where the batch that holds it begins; None if there is none."""
        for segment in self.from_offset(offset):
            batch = segment.find(offset)
            if batch is not None:
                return LogPosition(offset, segment.base_offset, batch.position)
        return None

    def bytes_between(self, offset: int, end: LogPosition) -> int:
        """How many bytes of files there are from ``offset`` up to ``end``, as sizes and the offset index tell it.

        Up to an interval of the index and a batch too many, for they are counted from the last entry at or before
        ``offset``.
        """
        first, *_ = segments = self.from_offset(offset)
        size = 0
        for segment in segments:
            if segment.base_offset > end.segment_base:
                break
            last = segment.base_offset == end.segment_base
            size += min(segment.size, end.position) if last else segment.size
        return max(size - first.offset_index.lookup(offset).position, 0)

    def offset_for_timestamp(self, timestamp: int, log_start_offset: int) -> Search:
        """Finds the first record no earlier than ``timestamp`` (ms), in steps."""
        for segment, start_offset in self._as_they_come(log_start_offset):
            if segment.latest.timestamp >= timestamp:
                found = yield from segment.offset_for_timestamp(timestamp, start_offset)
                if found is not None:
                    return found
            yield None
        return None

    def _as_they_come(self, offset: int) -> Iterator[tuple[LogSegment, int]]:
        """The segments from ``offset`` on that are there when it is their turn, and from which offset on to look."""
        while True:
            segments = self._segments
            behind = max(bisect_right(segments, offset, key=_base_offset), 1)
            yield segments[behind - 1], offset
            if behind == len(segments):
                return
            offset = segments[behind].base_offset

    def latest_timestamp(self, log_start_offset: int) -> Search:
        """Finds the first record with the greatest timestamp at or beyond the log start, in steps."""
        best: TimestampOffset | None = None
        for segment in sorted(self.from_offset(log_start_offset), key=lambda each: -each.latest.timestamp):
            if best is not None and _rank(segment.latest.timestamp, segment.base_offset) < _rank(*best):
                break  # in it and behind it is no later record, nor an earlier one of the same time
            if segment not in self._segments:  # it was deleted or replaced between two steps
                return (yield from self.latest_timestamp(log_start_offset))
            found = yield from segment.latest_from(log_start_offset)
            if found is not None and (best is None or _rank(*found) > _rank(*best)):
                best = found
            yield None
        return best

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTransaction]:
        """The aborted transactions with records in ``start <= offset < end``."""
        found: list[AbortedTransaction] = []
        for segment in self.from_offset(start):
            some, is_all = segment.txn_index.overlapping(start, end)
            found += some
            if is_all:
                break
        return found

    def aborted_in(
        self, piece: FileSlice, start: int, bound: int, most: int
    ) -> tuple[FileSlice, list[AbortedTransaction]]:
        """``piece`` up to where ``most`` transactions have been aborted, and the aborted ones that a reader of it from
        offset ``start`` on, below ``bound``, may meet.
        """
        segments = self.from_offset(start)
        for number, segment in enumerate(segments, 1):
            if segment.log is piece.file:
                beyond = segment.offset_index.first_at_position(piece.position + piece.size)
                if beyond is not None:
                    end = min(bound, beyond + 1)
                else:
                    end = min(bound, segments[number].base_offset) if number < len(segments) else bound
                marker = segment.txn_index.marker_behind(start, most)
                if marker is not None and marker < end:
                    end, size = marker, segment.position_after(marker) - piece.position
                    piece = segment.log.slice(piece.position, min(piece.size, size))
                return piece, self.aborted_transactions(start, end)
        return piece, self.aborted_transactions(start, bound)

    def epochs_from(self, offset: int) -> Iterator[tuple[int, int]]:
        """(leader epoch, its first offset) as the batches from ``offset`` on bear them, epochs rising."""
        latest = -1
        for segment in self.from_offset(offset):
            for batch in segment.log.batches():
                if batch.leader_epoch > latest and batch.last_offset >= offset:
                    latest = batch.leader_epoch
                    yield latest, max(batch.base_offset, offset)

    def last_epoch(self) -> int:
        """The leader epoch of the last batch; -1 if there is none, or it bears none."""
        for segment in reversed(self._segments):
            if segment.size:
                return max(batch.leader_epoch for batch in segment.log.batches(segment.offset_index.last.position))
        return -1


def _rank(timestamp: int, offset: int) -> tuple[int, int]:
    """By which the first of the latest records is the greatest."""
    return timestamp, -offset
