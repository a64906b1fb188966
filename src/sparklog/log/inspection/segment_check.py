"""Checking one segment: every batch of its ``.log`` file, and its two indexes against them.

A batch is checked whole: length, magic, CRC-32C, counts; and what no CRC covers, its base offset and its leader epoch,
against its neighbours and, later, against ``leader-epoch-checkpoint``. No record is looked at unless that is asked for.
Behind bytes that are no batch the check goes on where the next good one begins.

The indexes are read before the log: an append writes the log first, so an index may lag but not lead.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import crc32c

from sparklog.errors import CorruptRecord
from sparklog.log.files import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, segment_path
from sparklog.log.inspection.batch_walk import BatchWalk, Header, Tail, TailKind
from sparklog.log.inspection.findings import DAMAGE, RECOVERS, RESTORE, WAIT, Finding, error, note
from sparklog.log.inspection.index_check import (
    IndexFile,
    OffsetIndexCheck,
    TimeIndexCheck,
    read_offset_index,
    read_time_index,
)
from sparklog.log.inspection.old_formats import check_old_format, is_old_format
from sparklog.log.inspection.segment_facts import EpochRun, SegmentFacts, SegmentJob, TransactionEvent
from sparklog.record import layout
from sparklog.record.batch import RecordBatch
from sparklog.record.columnar import ColumnarDecoder
from sparklog.record.control import read_marker

_DECODED = 4 << 20
_IN_TRANSACTION = layout.TRANSACTIONAL_BIT | layout.CONTROL_BIT


def check_segment(job: SegmentJob, advance: Callable[[int], None] | None = None) -> SegmentFacts:
    """Never raises for what it finds; a file that cannot be read is a finding."""
    path = segment_path(job.directory, job.base_offset, LOG_SUFFIX)
    facts = SegmentFacts(job, path, job.base_offset)
    index = _index(facts, segment_path(job.directory, job.base_offset, OFFSET_INDEX_SUFFIX), read_offset_index)
    times = _index(facts, segment_path(job.directory, job.base_offset, TIME_INDEX_SUFFIX), read_time_index)
    try:
        with BatchWalk(path, advance=advance) as walk:
            if is_old_format(walk):
                check_old_format(facts, walk)
            else:
                SegmentCheck(facts, walk, index, times).run()
    except OSError as failure:
        facts.is_whole = False
        facts.findings = [_unreadable(job, path, failure)]
    if facts.suppressed:
        facts.findings.append(error(path, f"{facts.suppressed} more findings in this segment", RESTORE))
    return facts


def _index(facts: SegmentFacts, path: Path, read: Callable[[Path], IndexFile]) -> IndexFile | None:
    try:
        found = read(path)
    except FileNotFoundError:
        facts.report(note(path, "the index is missing", "nothing: the next start rebuilds it from the .log file"))
        return None
    except OSError as failure:
        facts.report(_unreadable(facts.job, path, failure))
        return None
    if found.unused and facts.job.limit is not None and not facts.job.in_use:
        what = f"{found.unused} unused entries at the end, left by a broker that was killed"
        facts.report(note(path, what, "nothing: the next start rebuilds it from the .log file"))
    return found


def _unreadable(job: SegmentJob, path: Path, failure: OSError) -> Finding:
    if job.in_use and isinstance(failure, FileNotFoundError):
        return note(path, "gone since the check began", "nothing: the broker that is at work here has removed it")
    return error(path, f"cannot be read: {failure.strerror}", "check its owner and mode, and the disk")


class SegmentCheck:
    """One walk through a ``.log`` file."""

    def __init__(self, facts: SegmentFacts, walk: BatchWalk, index: IndexFile | None, times: IndexFile | None) -> None:
        self._facts = facts
        self._walk = walk
        self._job = facts.job
        self._index = OffsetIndexCheck(index, self._job.base_offset, walk.size)
        self._times = TimeIndexCheck(times, self._job.base_offset, walk.size)
        self._latest = layout.NO_TIMESTAMP
        self._epoch: int | None = None
        self._epoch_start = (0, 0)
        self._in_transaction: set[int] = set()
        self._after_damage = False
        self._decoder = ColumnarDecoder(("offset",)) if self._job.records else None

    def run(self) -> None:
        """Fill in the facts."""
        facts, position = self._facts, 0
        facts.size = self._walk.size
        while True:
            self._check_from(position)
            tail = self._walk.tail()
            if tail is None:
                break
            resume = self._resume_point(tail.position)
            self._report_damage(tail, resume)
            if resume is None:
                break
            self._index.skip_to(resume)
            position = resume
        self._end_epoch()
        for finding in (*self._index.findings(), *self._times.findings()):
            facts.report(finding)

    def _check_from(self, position: int) -> None:
        facts, index, times, crc_of = self._facts, self._index, self._times, crc32c.crc32c
        limit = self._job.base_offset + layout.MAX_INT32 + 1 if self._job.limit is None else self._job.limit
        for at, fields, view in self._walk.batches(position):
            base, _, epoch, _, crc, attributes, delta, _, timestamp, producer, _, _, count = fields
            last = base + delta
            if crc_of(view[layout.ATTRIBUTES :]) != crc or not 0 <= count <= delta + 1:
                self._bad_batch(at, fields, view)
                continue
            facts.batches += 1
            facts.records += count
            if (base != facts.next_offset or last >= limit) and not self._jump(at, base, last, limit):
                continue
            if epoch != self._epoch:
                self._new_epoch(at, base, epoch)
            if attributes & _IN_TRANSACTION:
                self._transaction(at, producer, view)
            if at >= index.due_position or last >= index.due_offset:
                index.batch(at, last)
            if last >= times.due_offset:
                times.batch(RecordBatch(view), self._latest)
            if timestamp > self._latest:
                self._latest = timestamp
            facts.is_compacted |= count <= delta
            self._decode(at, view)
            facts.next_offset = last + 1

    def _bad_batch(self, at: int, fields: Header, view: memoryview) -> None:
        base, _, _, _, crc, _, delta, *_, count = fields
        computed = crc32c.crc32c(view[layout.ATTRIBUTES :])
        what = f"a batch of {len(view)} bytes has CRC {crc}, its bytes have {computed}"
        if crc == computed:
            what = f"a batch claims {count} records and a last offset delta of {delta}"
        self._facts.report(error(self._facts.path, what, DAMAGE, at, base))
        self._damaged()
        if base == self._facts.next_offset and 0 <= delta < len(view):
            self._index.batch(at, base + delta)
            self._facts.next_offset = base + delta + 1

    def _damaged(self) -> None:
        """What follows from damage is not said again of the offsets and times behind it."""
        self._after_damage = True
        if self._facts.is_whole:
            self._facts.is_whole = False
            self._facts.damaged_at = self._facts.next_offset
            self._facts.records_before_damage = self._facts.records
        self._times.give_up()

    def _jump(self, at: int, base: int, last: int, limit: int) -> bool:
        """The batch at ``at`` does not follow the one before; returns whether its offsets can be true nevertheless."""
        facts = self._facts
        if last >= limit or base < facts.next_offset:
            what = f"a batch begins at offset {base}, but {facts.next_offset} or more is due"
            if last >= limit:
                what = f"a batch ends at offset {last}, but the segment must end before {limit}"
            facts.report(error(facts.path, what, DAMAGE, at, base))
            self._damaged()
            if last >= limit:
                facts.next_offset += last - base + 1
                return False
            return True
        if facts.first_offset is None:
            facts.first_offset = base
        elif not self._after_damage:
            facts.gaps += 1
        self._after_damage = False
        return True

    def _new_epoch(self, at: int, base: int, epoch: int) -> None:
        if self._facts.first_offset is None:
            self._facts.first_offset = base
        self._end_epoch()
        if self._epoch is not None and epoch < self._epoch:
            what = f"the leader epoch falls from {self._epoch} to {epoch}"
            self._facts.report(error(self._facts.path, what, RESTORE, at, base))
        self._epoch, self._epoch_start = epoch, (base, at)

    def _end_epoch(self) -> None:
        if self._epoch is not None:
            base, position = self._epoch_start
            self._facts.epochs.append(EpochRun(self._epoch, base, self._facts.next_offset - 1, position))

    def _transaction(self, at: int, producer: int, view: memoryview) -> None:
        batch = RecordBatch(view)
        if not batch.is_transactional or not batch.record_count:
            return
        if not batch.is_control:
            if producer not in self._in_transaction:
                self._in_transaction.add(producer)
                self._facts.events.append(TransactionEvent(producer, batch.base_offset, None))
            return
        self._in_transaction.discard(producer)
        try:
            marker = read_marker(batch)
        except CorruptRecord as failure:
            self._facts.report(error(self._facts.path, str(failure), RESTORE, at, batch.base_offset))
        else:
            self._facts.events.append(TransactionEvent(producer, batch.last_offset, marker.type))

    def _decode(self, at: int, view: memoryview) -> None:
        if self._decoder is None:
            return
        batch = RecordBatch(view)
        if batch.is_control:
            return
        try:
            count = self._decoder.append(batch, batch.base_offset, batch.next_offset)
            if count != batch.record_count:
                raise CorruptRecord(f"{batch.record_count - count} records have offsets that are not the batch's")
        except CorruptRecord as failure:
            what = f"a batch's CRC is right but its records are not: {failure}"
            self._facts.report(error(self._facts.path, what, RESTORE, at, batch.base_offset))
        if self._decoder.nbytes > _DECODED:
            self._decoder.finish()

    def _resume_point(self, position: int) -> int | None:
        """Where a batch begins behind ``position`` that is good: as the offset index has it, or else by searching."""
        first = self._facts.next_offset
        indexed = (each for each in self._index.positions_beyond(position) if self._walk.is_good(each, first))
        return next(indexed, None) or self._walk.next_good(position, first)

    def _report_damage(self, tail: Tail, resume: int | None) -> None:
        facts, at_end = self._facts, self._job.limit is None
        self._damaged()
        if resume is not None:
            what = f"{resume - tail.position} bytes are not batches; good ones follow at position {resume}"
            facts.report(error(facts.path, what, DAMAGE, tail.position, facts.next_offset))
            return
        self._index.give_up()
        changed = self._walk.current_size() != self._walk.size
        what = f"the last {tail.size} bytes are {tail.kind}"
        if at_end and tail.kind is not TailKind.FOREIGN and (self._job.in_use or changed):
            facts.report(note(facts.path, f"{what}: being written", WAIT, tail.position, facts.next_offset))
            return
        what = f"torn tail: {what}" if tail.kind is TailKind.CUT else what
        advice = RECOVERS if at_end else DAMAGE
        facts.report(error(facts.path, f"{what}: {tail.head.hex(' ', 4)}", advice, tail.position, facts.next_offset))
