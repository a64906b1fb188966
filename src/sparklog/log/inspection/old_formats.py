"""Checking a segment whose messages are from before the record batch: every CRC, and that offsets rise.

Such a file is read into memory whole; there are few of them, and none grows any more. Their indexes are not checked.
"""

from __future__ import annotations

from typing import NamedTuple

from sparklog.errors import CorruptRecord
from sparklog.log.inspection.batch_walk import BatchWalk
from sparklog.log.inspection.findings import RESTORE, error, note
from sparklog.log.inspection.segment_facts import SegmentFacts
from sparklog.record import layout
from sparklog.record.batch import RecordBatch
from sparklog.record.legacy.message import Format, LegacyMessage
from sparklog.record.legacy.segment import detect_format, iter_entries, unwrap

_PROBE = 1 << 20


def is_old_format(walk: BatchWalk) -> bool:
    """Whether the file begins with a good message of a format before v2."""
    head = walk.read(0, _PROBE)
    if len(head) <= layout.MAGIC or head[layout.MAGIC] == layout.MAGIC_V2:
        return False
    with_offset = layout.OFFSET_AND_LENGTH.unpack_from(head)[1] + layout.LOG_OVERHEAD
    without = layout.INT32.unpack_from(head)[0] + layout.INT32.size
    for size in (_PROBE, with_offset, without):
        if size > max(walk.size, _PROBE):
            continue
        try:
            # More than the probe only where the first message claims to be larger.
            return detect_format(head if size <= len(head) else walk.read(0, size)) is not Format.V2
        except CorruptRecord:
            continue
    return False


class Span(NamedTuple):
    """The room that an entry takes."""

    first_offset: int
    last_offset: int
    next_offset: int
    """What may follow; in the first format offsets are byte positions."""
    size: int


def span_of(entry: LegacyMessage | RecordBatch) -> Span:
    """A wrapper of magic 0 or 1 says only where it ends: ``first_offset`` is that."""
    if not isinstance(entry, LegacyMessage):
        return Span(entry.base_offset, entry.last_offset, entry.next_offset, entry.size_in_bytes)
    step = entry.size if entry.format is Format.FIRST else 1
    return Span(entry.offset, entry.offset, entry.offset + step, entry.size)


def check_old_format(facts: SegmentFacts, walk: BatchWalk) -> None:
    """Fill in the facts, as far as these formats have them."""
    facts.is_old = True
    facts.size = walk.size
    data = walk.read(0, walk.size)
    advice = "nothing; sparklog log dump shows it, and a Kafka before 4.0 can rewrite it"
    facts.report(note(facts.path, f"format {detect_format(data).value}, from before Kafka 0.11", advice))
    position = 0
    try:
        for entry in iter_entries(data, base_offset=facts.job.base_offset, partial_tail=True):
            _check_entry(facts, entry, position)
            position += span_of(entry).size
    except CorruptRecord as failure:
        facts.is_whole = False
        facts.report(error(facts.path, str(failure), RESTORE, position, facts.next_offset))
        return
    if position < walk.size:
        facts.is_whole = False
        what = f"torn tail: the last {walk.size - position} bytes are a message that is cut short"
        facts.report(error(facts.path, what, RESTORE, position, facts.next_offset))


def _check_entry(facts: SegmentFacts, entry: LegacyMessage | RecordBatch, position: int) -> None:
    first, _, next_offset, _ = span_of(entry)
    try:
        entry.validate()
        facts.records += _count(facts, entry)
    except CorruptRecord as failure:
        facts.is_whole = False
        facts.report(error(facts.path, str(failure), RESTORE, position, first))
    if first < facts.next_offset:
        what = f"offset {first} where {facts.next_offset} or more is due"
        facts.report(error(facts.path, what, RESTORE, position, first))
    if facts.first_offset is None:
        facts.first_offset = facts.job.base_offset
    facts.next_offset = next_offset
    facts.batches += 1


def _count(facts: SegmentFacts, entry: LegacyMessage | RecordBatch) -> int:
    """Records in the entry; a wrapper counts as one unless its records are looked at."""
    if not isinstance(entry, LegacyMessage):
        return entry.record_count
    return sum(1 for _ in unwrap(entry)) if facts.job.records else 1
