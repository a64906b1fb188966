"""Checking a partition: its segments against one another, and its small files against the segments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from uuid import UUID

from sparklog.errors import CorruptRecord
from sparklog.log.checkpoints import LEADER_EPOCHS, PARTITION_METADATA, read_checkpoint, read_topic_id
from sparklog.log.cut import name_some
from sparklog.log.files import CORRUPT_SUFFIX, kept_path
from sparklog.log.inspection.findings import AHEAD, DAMAGE, RESTORE, Finding, error, note, warning
from sparklog.log.inspection.partition_files import PartitionFiles
from sparklog.log.inspection.segment_facts import EpochRun, SegmentFacts
from sparklog.log.inspection.transaction_check import TransactionCheck
from sparklog.log.leader_epochs import EpochEntry
from sparklog.log.producer_snapshot import read_snapshot

_NO_EPOCH = -1
_EPOCHS_BY_HAND = (
    "restore it from a backup, or write it anew: a line 0, the number of entries, then a line EPOCH START each"
)
_SNAPSHOT_REMADE = "delete it while no broker runs here: the next start makes the state anew from the log"


@dataclass(slots=True)
class PartitionContext:
    """What is known of a partition from outside its directory."""

    in_use: bool = False
    was_stopped_cleanly: bool = False
    """The checkpoints were written after the last change."""
    is_compacted: bool = False
    """The cleaner has been at it, so offsets may be missing anywhere."""
    recovery_point: int | None = None
    log_start_offset: int | None = None
    """None if that cannot be known, 0 if the log begins with its first segment."""
    high_watermark: int | None = None


@dataclass(slots=True)
class PartitionCheck:
    """``topic_id`` is known, if there is one, once ``run`` has been exhausted."""

    files: PartitionFiles
    context: PartitionContext
    topic_id: UUID | None = None
    _segments: Sequence[SegmentFacts] = field(default_factory=list)

    def run(self, segments: Sequence[SegmentFacts]) -> Iterator[Finding]:
        """Everything found, in the order of the log."""
        self._segments = segments
        yield from self._in_segments()
        yield from self._between_segments()
        yield from self._transactions()
        yield from self._snapshots()
        yield from self._epochs()
        yield from self._topic_id()
        yield from self._points()
        yield from self.files.findings

    def _in_segments(self) -> Iterator[Finding]:
        """What was found in the segments, with what a start makes of it."""
        cut: int | None = None
        for number, facts in enumerate(self._segments):
            is_scanned = self._is_scanned(facts)
            for finding in facts.findings:
                if finding.advice == AHEAD and is_scanned and not self.context.in_use:
                    yield note(finding.path, finding.what, "nothing: the next start rebuilds it from the .log file")
                elif finding.advice != DAMAGE or self.context.in_use:
                    yield finding
                elif self._is_before_the_start(facts.job.limit):
                    yield finding._replace(advice="nothing: it lies before the start of the log, and is to be removed")
                elif cut is not None:
                    yield finding._replace(advice=f"it goes with what a start cuts off at offset {cut}")
                elif not is_scanned:
                    yield finding._replace(advice=f"{RESTORE}, and a read of them fails")
                else:
                    cut = facts.damaged_at
                    yield finding._replace(advice=self._what_a_start_cuts(number, finding.position or 0))

    def _is_scanned(self, facts: SegmentFacts) -> bool:
        """Whether the next start checks every batch of the segment: see ``LogLoader``."""
        limit = facts.job.limit
        return not self.context.was_stopped_cleanly and (limit is None or limit > (self.context.recovery_point or 0))

    def _is_before_the_start(self, end: int | None) -> bool:
        """Whether nothing before ``end``, where the next segment begins, is part of the log any more."""
        return end is not None and end <= (self.context.log_start_offset or 0)

    def _what_a_start_cuts(self, number: int, position: int) -> str:
        first, later = self._segments[number], [each for each in self._segments[number + 1 :] if each.size]
        behind = first.records - first.records_before_damage
        records = behind + sum(each.records for each in later)
        size = first.size - position + sum(each.size for each in later)
        kept = [f"{first.path.name}.{position}{CORRUPT_SUFFIX}"] if behind else []
        kept += [kept_path(each.path).name for each in later]
        return (
            "restore the file from a replica or a backup before a broker starts here: the last one was not stopped "
            f"cleanly, so the start cuts the log at offset {first.damaged_at}. The good records behind the damage, "
            f"{records}, go with it; the {size} bytes from there on are "
            f"{f'kept in {name_some(kept)}' if kept else 'not kept'}"
        )

    @property
    def _end(self) -> int:
        return self._segments[-1].next_offset if self._segments else 0

    @property
    def _is_whole(self) -> bool:
        return all(facts.is_whole for facts in self._segments)

    @property
    def _is_compacted(self) -> bool:
        return self.context.is_compacted or any(facts.gaps or facts.is_compacted for facts in self._segments)

    def _between_segments(self) -> Iterator[Finding]:
        gaps = sum(facts.gaps for facts in self._segments)
        if gaps:
            what = f"offsets are missing in {gaps} places"
            yield note(self.files.path, what, "nothing, if the topic is compacted; otherwise records were lost")
        for before, after, begin in () if self._is_compacted else self._holes():
            what = f"offsets {before.next_offset} to {begin - 1} are in no segment"
            advice = "a segment file is missing, unless the topic is compacted: restore it from a replica or a backup"
            yield warning(after.path, what, advice, offset=before.next_offset)
        for before, after in pairwise(self._segments):
            last, first = before.epochs[-1:], after.epochs[:1]
            if last and first and first[0].epoch < last[0].epoch:
                what = f"the leader epoch falls from {last[0].epoch} in the segment before to {first[0].epoch}"
                yield error(after.path, what, RESTORE, 0, first[0].first_offset)

    def _holes(self) -> Iterator[tuple[SegmentFacts, SegmentFacts, int]]:
        """Segments between which offsets lack, and where the second one's begin."""
        for before, after in pairwise(self._segments):
            begin = after.job.base_offset if after.first_offset is None else after.first_offset
            is_gone = self._is_before_the_start(after.job.base_offset)
            if before.next_offset < begin and before.is_whole and not is_gone:
                yield before, after, begin

    def _transactions(self) -> Iterator[Finding]:
        is_gapless = not self._is_compacted and not any(True for _ in self._holes())
        has_all = self._is_whole and is_gapless and not any(facts.is_old for facts in self._segments)
        first = self._segments[0].job.base_offset if self._segments else 0
        check = TransactionCheck(first, has_all=has_all)
        for facts in self._segments:
            yield from check.segment(facts, self.files.transaction_indexes.get(facts.job.base_offset))

    def _snapshots(self) -> Iterator[Finding]:
        for offset, path in sorted(self.files.snapshots.items()):
            try:
                producers = read_snapshot(path)
            except FileNotFoundError:
                if not self.context.in_use:
                    yield error(path, "gone since the check began", "run this again")
                continue
            except (CorruptRecord, OSError) as failure:
                yield error(path, f"cannot be read: {failure}", _SNAPSHOT_REMADE)
                continue
            if offset > self._end and self._is_whole and not self.context.in_use:
                yield warning(
                    path, f"lies beyond the end of the log ({self._end})", "nothing: the next start removes it"
                )
            for entry in producers.values():
                last = entry.batches[-1].last_offset if entry.batches else -1
                if max(last, entry.transaction_first_offset) >= offset:
                    what = f"producer {entry.producer_id} is said to have written offset {last}, beyond the snapshot"
                    yield error(path, what, _SNAPSHOT_REMADE, offset=last)
                if any(after.first_offset <= before.last_offset for before, after in pairwise(entry.batches)):
                    what = f"the batches remembered of producer {entry.producer_id} do not stand in their order"
                    yield error(path, what, _SNAPSHOT_REMADE, offset=last)

    def _epochs(self) -> Iterator[Finding]:
        path = self.files.path / LEADER_EPOCHS
        runs = [(facts.path.name, run) for facts in self._segments for run in facts.epochs if run.epoch != _NO_EPOCH]
        try:
            entries = [
                EpochEntry(int(epoch), int(start)) for epoch, start in read_checkpoint(path, 2, may_be_empty=True)
            ]
        except (CorruptRecord, ValueError, OSError) as failure:
            yield error(path, f"cannot be read: {failure}", _EPOCHS_BY_HAND)
            return
        if not entries and runs:
            yield warning(path, "missing or empty, though the log has leader epochs", _EPOCHS_BY_HAND)
        elif not _rise(entries):
            yield error(path, "epochs and start offsets must both rise", _EPOCHS_BY_HAND)
        elif entries and self._begin_late(entries[0]) and not self.context.was_stopped_cleanly:
            what = f"the first epoch begins at {entries[0].start_offset}, the log at {self._begin}"
            yield note(path, what, "nothing: the next start finds the epochs in the batches")
        elif entries:
            yield from self._epochs_beyond_end(entries[-1])
            for segment, run in runs:
                said = _disagreement(entries, self._live_part(run, entries[0]))
                if said:
                    what = f"offsets {run.first_offset} to {run.last_offset} bear leader epoch {run.epoch}; {said}"
                    where = f"({segment}, position {run.position})"
                    yield error(path, f"{what} {where}", _EPOCHS_BY_HAND, offset=run.first_offset)

    def _live_part(self, run: EpochRun, first: EpochEntry) -> EpochRun:
        """The batches of a run without those before the log's start, which the checkpoint has forgotten."""
        if self._begin_late(first):
            return run
        return run._replace(first_offset=max(run.first_offset, first.start_offset))

    @property
    def _begin(self) -> int:
        return max(self.context.log_start_offset or 0, self._segments[0].job.base_offset if self._segments else 0)

    def _begin_late(self, first: EpochEntry) -> bool:
        """Whether the first epoch is known not to begin where the log does."""
        is_known = self.context.log_start_offset is not None and not self.context.in_use
        return is_known and first.start_offset > self._begin

    def _epochs_beyond_end(self, last: EpochEntry) -> Iterator[Finding]:
        if last.start_offset > self._end and self._is_whole and not self.context.in_use:
            what = f"epoch {last.epoch} begins at {last.start_offset}, beyond the log's end ({self._end})"
            yield warning(self.files.path / LEADER_EPOCHS, what, "nothing: the next start drops it")

    def _topic_id(self) -> Iterator[Finding]:
        path = self.files.path / PARTITION_METADATA
        try:
            self.topic_id = read_topic_id(self.files.path)
            text = path.read_text(encoding="utf-8") if self.topic_id is not None else ""
        except (CorruptRecord, ValueError, OSError) as failure:
            yield error(path, f"cannot be read: {failure}", RESTORE)
            return
        if self.topic_id is not None and (self.topic_id.int == 0 or "version: 0" not in text.splitlines()):
            yield error(path, "not of version 0, or the topic id is zero", RESTORE)

    def _points(self) -> Iterator[Finding]:
        """What the checkpoints of the log directory say of this log."""
        context, end = self.context, self._end
        if not self._segments:
            return
        first = self._segments[0].job.base_offset
        say = note if context.in_use else error
        lost = "records that were on the disk are gone: restore the partition from a replica or a backup"
        if context.recovery_point is not None and not 0 <= context.recovery_point <= end:
            what = f"the recovery point is {context.recovery_point}, but the log ends at {end}"
            yield say(self.files.path, what, lost, offset=end)
        if context.high_watermark is not None and not 0 <= context.high_watermark <= end:
            what = f"the high watermark is {context.high_watermark}, but the log ends at {end}"
            yield say(self.files.path, what, lost, offset=end)
        start = context.log_start_offset or 0
        if start > end:
            yield say(self.files.path, f"the log is said to start at {start}, but it ends at {end}", lost, offset=start)
        elif 0 < start < first and context.was_stopped_cleanly:
            what = f"the log is said to start at {start}, but its segments begin at {first}"
            yield error(self.files.path, what, lost, offset=start)


def _rise(entries: list[EpochEntry]) -> bool:
    """Whether epochs and start offsets both do."""
    pairs = pairwise([EpochEntry(-1, -1), *entries])
    return all(a.epoch < b.epoch and a.start_offset < b.start_offset for a, b in pairs)


def _disagreement(entries: list[EpochEntry], run: EpochRun) -> str | None:
    """What the checkpoint says of a run's epoch, if not the same; None if it does."""
    if run.first_offset > run.last_offset:
        return None
    number = next((n for n, entry in enumerate(entries) if entry.epoch == run.epoch), None)
    if number is None:
        return "the checkpoint knows no such epoch"
    start = entries[number].start_offset
    end = entries[number + 1].start_offset if number + 1 < len(entries) else None
    if start <= run.first_offset and (end is None or run.last_offset < end):
        return None
    return f"the checkpoint has that epoch from {start} to {'the end' if end is None else end - 1}"
