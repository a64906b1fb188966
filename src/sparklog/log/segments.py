"""The segments of a log, in order; copy-on-write, so that whoever holds a snapshot may walk it undisturbed."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from sparklog.log.segment import LogSegment


class LogSegments:
    """At least one segment once the log is loaded; the last is the active one."""

    def __init__(self) -> None:
        self._segments: tuple[LogSegment, ...] = ()
        self._bases: tuple[int, ...] = ()

    def __iter__(self) -> Iterator[LogSegment]:
        return iter(self._segments)

    def __len__(self) -> int:
        return len(self._segments)

    def __bool__(self) -> bool:
        return bool(self._segments)

    def _set(self, segments: tuple[LogSegment, ...]) -> None:
        self._segments = segments
        self._bases = tuple(segment.base_offset for segment in segments)

    def add(self, segment: LogSegment) -> None:
        """Put the segment where its base offset belongs."""
        self._set(tuple(sorted((*self._segments, segment), key=lambda each: each.base_offset)))

    def remove(self, *gone: LogSegment) -> None:
        self._set(tuple(segment for segment in self._segments if segment not in gone))

    @property
    def active(self) -> LogSegment:
        return self._segments[-1]

    @property
    def first(self) -> LogSegment:
        return self._segments[0]

    def from_offset(self, offset: int) -> tuple[LogSegment, ...]:
        """The segment that would hold ``offset`` and all after it."""
        return self._segments[max(bisect_right(self._bases, offset) - 1, 0) :]

    @property
    def size(self) -> int:
        """Bytes of all ``.log`` files."""
        return sum(segment.size for segment in self._segments)
