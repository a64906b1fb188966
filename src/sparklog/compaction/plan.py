"""Which part of a log may be cleaned, whether it is worth it, and which segments are written together.

A log is a *clean* section, up to the offset in ``cleaner-offset-checkpoint``, then a *dirty* one. The dirty section is
*cleanable* up to the first segment that must stay as it is: the active one, one that holds records younger than
``min.compaction.lag.ms``, one that reaches the last stable offset. Source: Kafka 3.9, ``LogCleanerManager``,
``LogToClean``, ``Cleaner.groupSegmentsBySize``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sparklog.config.topic import TopicConfig
from sparklog.log.segment import MAX_RELATIVE_OFFSET, SegmentFacts


class LogFacts(NamedTuple):
    """What a plan needs to know of a log."""

    segments: Sequence[SegmentFacts]
    """All of them, the active one last."""
    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int
    """The high watermark, or where the first undecided transaction begins if that is lower."""


@dataclass(frozen=True, slots=True)
class Sections:
    """The three sections of a log."""

    first_dirty: int
    """The clean section ends here."""
    first_uncleanable: int
    """The first offset of the first segment that must stay as it is. It may lie before ``first_dirty``, in the segment
    that holds both.
    """
    clean_bytes: int
    cleanable_bytes: int
    is_checkpoint_wrong: bool
    """The checkpoint lies outside the log, and is to be set to ``first_dirty``."""

    @property
    def dirty_ratio(self) -> float:
        """The share of the cleanable bytes in all that a cleaning would write anew; 0 for an empty log."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    def is_due(self, config: TopicConfig, delay_ms: int) -> bool:
        """Whether the log is to be cleaned: dirty enough, or overdue by ``delay_ms`` (``compaction_delay``)."""
        if not self.cleanable_bytes:
            return False
        return delay_ms > 0 or self.dirty_ratio > config.min_cleanable_dirty_ratio


def divide(log: LogFacts, checkpoint: int | None, config: TopicConfig, now_ms: int) -> Sections:
    """The sections of ``log``; ``checkpoint`` is where its last cleaning ended, None if it never was cleaned."""
    known = log.log_start_offset if checkpoint is None else checkpoint
    is_wrong = not log.log_start_offset <= known <= log.log_end_offset
    first_dirty = log.log_start_offset if is_wrong else known
    bound = max(first_dirty, min(_uncleanable(log, first_dirty, config, now_ms)))
    segments = log.segments
    first_uncleanable = max((each.base_offset for each in segments if each.base_offset <= bound), default=bound)
    clean = sum(each.size for each in _between(segments, None, first_dirty))
    cleanable = sum(each.size for each in _between(segments, min(first_dirty, first_uncleanable), first_uncleanable))
    return Sections(first_dirty, first_uncleanable, clean, cleanable, is_wrong)


def _uncleanable(log: LogFacts, first_dirty: int, config: TopicConfig, now_ms: int) -> Iterator[int]:
    """Offsets at or before which cleaning has to stop."""
    yield log.last_stable_offset
    yield log.segments[-1].base_offset
    lag_ms = config.min_compaction_lag_ms
    if lag_ms > 0:
        for each in _between(log.segments[:-1], first_dirty, None):
            if each.latest_timestamp > now_ms - lag_ms:
                yield each.base_offset
                return


def _between(segments: Sequence[SegmentFacts], start: int | None, end: int | None) -> Sequence[SegmentFacts]:
    """The segments from the one that holds ``start`` up to, not with, the first that begins at ``end`` or beyond.

    As Kafka's ``LogSegments.values(from, to)``; none where ``start`` is ``end``.
    """
    if start is not None and start == end:
        return ()
    held = max((n for n, each in enumerate(segments) if start is not None and each.base_offset <= start), default=0)
    return [each for each in segments[held:] if end is None or each.base_offset < end]


def compaction_delay(first_timestamps: Sequence[int], config: TopicConfig, now_ms: int) -> int:
    """How long a log has been overdue by ``max.compaction.lag.ms``, in ms; 0 if it is not.

    ``first_timestamps`` are those of the first batches of its dirty segments, without the active one.
    """
    first = min((each for each in first_timestamps if each > 0), default=None)
    clean_until = now_ms - config.max_compaction_lag_ms
    return clean_until - first if first is not None and first < clean_until else 0


def group_segments(segments: Sequence[SegmentFacts], config: TopicConfig, first_uncleanable: int) -> list[list[int]]:
    """The base offsets of the segments that become one, group after group.

    A group has no more bytes than ``segment.bytes``, no larger indexes than ``segment.index.bytes``, and no offset that
    an index entry cannot hold. ``segments`` all lie before ``first_uncleanable``.
    """
    groups: list[list[int]] = []
    room = _Room(0, 0, 0, 0)
    for number, each in enumerate(segments):
        behind = segments[number + 1].base_offset if number + 1 < len(segments) else first_uncleanable
        if groups and room.has(each, behind - 1, config):
            groups[-1].append(each.base_offset)
            room = room.with_segment(each)
        else:
            groups.append([each.base_offset])
            room = _Room(each.base_offset, each.size, each.index_size, each.time_index_size)
    return groups


class _Room(NamedTuple):
    """What a group holds already."""

    base_offset: int
    size: int
    index_size: int
    time_index_size: int

    def has(self, segment: SegmentFacts, last_offset: int, config: TopicConfig) -> bool:
        largest = config.segment_index_bytes
        return (
            self.size + segment.size <= config.segment_bytes
            and self.index_size + segment.index_size <= largest
            and self.time_index_size + segment.time_index_size <= largest
            and (segment.size == 0 or last_offset - self.base_offset <= MAX_RELATIVE_OFFSET)
        )

    def with_segment(self, segment: SegmentFacts) -> _Room:
        return self._replace(
            size=self.size + segment.size,
            index_size=self.index_size + segment.index_size,
            time_index_size=self.time_index_size + segment.time_index_size,
        )
