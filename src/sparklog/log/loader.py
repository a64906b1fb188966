"""Opening a partition directory: which segments it has, and how far each can be believed.

After a clean stop the indexes are trusted once they pass their sanity check. Otherwise every segment that holds offsets
at or beyond the recovery point is scanned, length and CRC of each batch, its indexes rebuilt; the log ends after the
last good batch, and segments behind a bad one are set aside under ``.deleted``.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from sparklog.config.topic import TopicConfig
from sparklog.errors import CorruptRecord
from sparklog.log.files import (
    DELETED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    base_offset_of,
    segment_path,
)
from sparklog.log.segment import LogSegment
from sparklog.log.segments import LogSegments

_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Loaded:
    """What a directory held."""

    segments: LogSegments
    next_offset: int
    dropped_bytes: int


def load_segments(directory: Path, config: TopicConfig, *, recovery_point: int, clean: bool) -> Loaded:
    """Open every segment of ``directory``; an empty directory gets its first."""
    for leftover in directory.glob(f"*{DELETED_SUFFIX}"):
        leftover.unlink()
    bases = sorted(base_offset_of(path) for path in directory.glob(f"*{LOG_SUFFIX}"))
    loaded = Loaded(LogSegments(), 0, 0)
    if not bases:
        loaded.segments.add(LogSegment(directory, 0, config, active=True, create=True))
        return loaded
    torn = False
    for base, after in zip(bases, [*bases[1:], None], strict=True):
        indexed = _has_indexes(directory, base)
        segment = LogSegment(directory, base, config, active=after is None or not clean)
        if torn:
            loaded.dropped_bytes += segment.size
            segment.rename_deleted()
            continue
        needs_scan = not clean and (after is None or after > recovery_point)
        size = segment.size
        if needs_scan or not indexed or not _can_be_believed(segment, is_last=after is None):
            loaded.next_offset = _recover(segment, after)
            torn = segment.size < size
            loaded.dropped_bytes += size - segment.size
        else:
            loaded.next_offset = segment.next_offset() if after is None else after
        if after is not None and not torn:
            segment.seal()
        loaded.segments.add(segment)
    return loaded


def _has_indexes(directory: Path, base: int) -> bool:
    return all(segment_path(directory, base, suffix).exists() for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX))


def _can_be_believed(segment: LogSegment, *, is_last: bool) -> bool:
    """Whether the indexes hold together, and the end of the log, where appends go on, can be read.

    A batch that went bad in an older segment since a clean stop is not cut away with all that follows it: it is left,
    said in the log, and fails whoever reads it.
    """
    try:
        segment.check_indexes()
    except CorruptRecord as error:
        _logger.warning("rebuilding the indexes of %s: %s", segment.log.path, error)
        return False
    try:
        segment.next_offset()
        segment.load_latest()
    except CorruptRecord as error:
        _logger.error("%s is damaged: %s", segment.log.path, error)
        return not is_last
    return True


def _recover(segment: LogSegment, limit: int | None) -> int:
    next_offset = segment.base_offset
    size = segment.size
    for batch in segment.recover(limit):
        next_offset = batch.next_offset
    if segment.size < size:
        _logger.warning(
            "%s: cut from %d to %d bytes after offset %d", segment.log.path, size, segment.size, next_offset - 1
        )
    return next_offset
