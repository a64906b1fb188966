"""Recovering one segment: its good batches are kept, its indexes made anew, the rest cut away or set aside."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from sparklog.log.files import CORRUPT_SUFFIX, disk_refused, kept_path, sync_directory
from sparklog.log.indexes.time_index import TimestampOffset
from sparklog.log.scan import Damage, DamageKind, OffsetRange, examine, scan_batches
from sparklog.log.segment import MAX_RELATIVE_OFFSET, LogSegment, index_interval
from sparklog.record.batch import RecordBatch
from sparklog.record.scanner import ScanLimits, make_scanner

_logger = logging.getLogger(__name__)
_COPY = 4 << 20

Visit = Callable[[LogSegment, RecordBatch], None]
"""Is shown each good batch that bears a producer's id, in order; it may add to the segment's transaction index."""


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
    scanner = make_scanner(
        ScanLimits(
            segment.base_offset,
            end,
            index_interval(segment.config),
            segment.offset_index.max_entries,
            segment.time_index.max_entries - 1,  # the last slot is the seal's
        )
    )
    segment.txn_index.reset()
    scan_batches(segment.log, scanner, lambda batch: visit(segment, batch))
    size, damage = segment.size, None
    if scanner.position < size:
        damage = examine(segment.log, scanner.position, OffsetRange(scanner.next_offset, end))
        _report(segment, damage, scanner.next_offset)
        if damage.kind is DamageKind.CORRUPT_MIDDLE:
            keep_rest(segment, scanner.position)
        segment.log.truncate(scanner.position)
        segment.log.flush()  # or bytes that were cut off could come back behind later ones
    latest = TimestampOffset(scanner.latest_timestamp, scanner.latest_offset)
    segment.adopt_indexes(*scanner.entries(), latest, scanner.bytes_since_entry)
    segment.first_timestamp = scanner.first_timestamp
    return Recovered(scanner.next_offset, size, size - scanner.position, damage)


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
    """Copy the bytes from ``position`` on to a file of their own; durable on return.

    Raises LogDirFailed, DiskFull; no such file is left then but what an earlier damage has left.
    """
    path, has_way = rest_path(segment, position), False
    try:
        _make_way(path, segment, position)
        has_way = True
        with open(path, "wb", buffering=0) as file:
            while position < segment.size:
                position += file.write(segment.log.read(position, _COPY))
            os.fsync(file.fileno())
        sync_directory(path.parent)
    except OSError as error:
        if has_way:
            path.unlink(missing_ok=True)
        raise disk_refused(
            f"{segment.log.path} is damaged, and the {segment.size - position} bytes behind the damage cannot be kept",
            error,
        ) from error


def _make_way(path: Path, segment: LogSegment, position: int) -> None:
    """What an earlier damage at the same position has left is kept under another name. The same bytes, all or the first
    of them, are those of a recovery that did not come to its end.
    """
    if not path.is_file():
        return
    with open(path, "rb", buffering=0) as file:
        while kept := file.read(_COPY):
            if segment.log.read(position, len(kept)) != kept:
                path.rename(kept_path(path.with_suffix("")))
                return
            position += len(kept)
