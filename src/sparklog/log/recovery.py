"""Recovering one segment: its good batches are kept, its indexes made anew, the rest cut away or set aside."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from sparklog.log.files import CORRUPT_SUFFIX, disk_refused, sync_directory
from sparklog.log.offset_index import OffsetIndex
from sparklog.log.scan import Damage, DamageKind, Located, OffsetRange, examine, good_batches
from sparklog.log.segment import MAX_RELATIVE_OFFSET, LogSegment
from sparklog.log.time_index import TimeIndex, TimestampOffset
from sparklog.record.layout import NO_TIMESTAMP

_logger = logging.getLogger(__name__)
_COPY = 4 << 20

Visit = Callable[[LogSegment, Located], None]
"""Is shown each good batch in order; it may add to the segment's transaction index."""


class Recovered(NamedTuple):
    """What a recovery found and did."""

    next_offset: int
    scanned_bytes: int
    dropped_bytes: int
    damage: Damage | None


def recover_segment(segment: LogSegment, limit: int | None, visit: Visit) -> Recovered:
    """Check every batch, length and CRC, and rebuild the indexes; cut the file after the last good one.

    ``limit`` is where the next segment begins: no batch may reach it. Raises LogError for a format of old, DiskFull
    where what stands behind damage cannot be kept; the segment is as it was then but for its indexes.
    """
    end = segment.base_offset + MAX_RELATIVE_OFFSET + 1 if limit is None else limit
    entries = _Entries(segment)
    segment.txn_index.reset()
    position, next_offset, size = 0, segment.base_offset, segment.size
    for found in good_batches(segment.log, OffsetRange(segment.base_offset, end)):
        entries.add(found)
        visit(segment, found)
        position = found.position + found.batch.size_in_bytes
        next_offset = found.batch.next_offset
    damage = None
    if position < size:
        damage = examine(segment.log, position, OffsetRange(next_offset, end))
        _report(segment, damage, next_offset)
        if damage.kind is DamageKind.CORRUPT_MIDDLE:
            keep_rest(segment, position)
        segment.log.truncate(position)
        segment.log.flush()  # or bytes that were cut off could come back behind later ones
    entries.finish()
    return Recovered(next_offset, size, size - position, damage)


def _report(segment: LogSegment, damage: Damage, next_offset: int) -> None:
    if damage.next_good is None:
        _logger.warning(
            "%s: torn tail: %d bytes behind offset %d are no whole batch and are cut off (position %d)",
            segment.log.path,
            damage.size,
            next_offset - 1,
            damage.position,
        )
        return
    good = damage.next_good
    _logger.error(
        "%s: corrupt block in the middle: at position %d, behind offset %d, is no good batch, but good ones begin "
        "again at position %d (offset %d). The log is cut at the damage; the %d bytes behind it are kept in %s "
        "(sparklog log dump shows them; remove the file when you need it no more)",
        segment.log.path,
        damage.position,
        next_offset - 1,
        good.position,
        good.batch.base_offset,
        damage.size,
        rest_path(segment, damage.position).name,
    )


def rest_path(segment: LogSegment, position: int) -> Path:
    """Where the bytes of a segment from ``position`` on are kept when they are cut out of the log."""
    return segment.log.path.with_name(f"{segment.log.path.name}.{position}{CORRUPT_SUFFIX}")


def keep_rest(segment: LogSegment, position: int) -> None:
    """Copy the bytes from ``position`` on to a file of their own; durable on return."""
    path = rest_path(segment, position)
    try:
        with open(path, "wb", buffering=0) as file:
            while position < segment.size:
                position += file.write(segment.log.read(position, _COPY))
            os.fsync(file.fileno())
        sync_directory(path.parent)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise disk_refused(
            f"{segment.log.path} is damaged, and the {segment.size - position} bytes behind the damage cannot be kept",
            error,
        ) from error


class _Entries:
    """The index entries of a segment that is being recovered: the same that appending its batches had made."""

    def __init__(self, segment: LogSegment) -> None:
        self._segment = segment
        self._offsets = bytearray()
        self._times = bytearray()
        self._most_offsets = segment.offset_index.max_bytes
        self._most_times = segment.time_index.max_bytes - TimeIndex.FORM.size  # the last slot is the seal's
        self._last_time = NO_TIMESTAMP
        self._latest = TimestampOffset(NO_TIMESTAMP, segment.base_offset)
        self._since = 0
        self._first_timestamp: int | None = None

    def add(self, found: Located) -> None:
        batch, base = found.batch, self._segment.base_offset
        if batch.max_timestamp > self._latest.timestamp:
            self._latest = TimestampOffset(batch.max_timestamp, batch.last_offset)
        if self._since > self._segment.config.index_interval_bytes and len(self._offsets) < self._most_offsets:
            self._offsets += OffsetIndex.FORM.pack(batch.last_offset - base, found.position)
            if self._latest.timestamp > self._last_time and len(self._times) < self._most_times:
                self._times += TimeIndex.FORM.pack(self._latest.timestamp, self._latest.offset - base)
                self._last_time = self._latest.timestamp
            self._since = 0
        self._since += batch.size_in_bytes
        if self._first_timestamp is None:
            self._first_timestamp = batch.max_timestamp

    def finish(self) -> None:
        self._segment.adopt_indexes(bytes(self._offsets), bytes(self._times), self._latest, self._since)
        self._segment.first_timestamp = self._first_timestamp
