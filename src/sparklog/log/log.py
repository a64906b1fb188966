"""A partition's log: segments end to end, appended to at the end, read from any offset.

Invariants: offsets rise and are never given twice; ``log_end_offset`` is one past the last batch written; a batch is
either whole in the log or not in it; every batch bears the leader epoch under which it was appended, and epochs never
fall. Durable: everything below ``recovery_point``; the rest is as durable as the page cache until ``flush``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from sparklog.clock import Clock
from sparklog.config.topic import TopicConfig
from sparklog.errors import ApiError, ErrorCode, LogClosed, LogDirFailed
from sparklog.log.checkpoints import read_topic_id, write_topic_id
from sparklog.log.leader_epochs import LeaderEpochCache
from sparklog.log.loader import load_segments
from sparklog.log.producer_state import ProducerStateManager
from sparklog.log.retention import SegmentView, deletable, policies_of
from sparklog.log.segment import LogSegment
from sparklog.log.time_index import TimestampOffset
from sparklog.log.validator import as_topic_compresses, validate_produced
from sparklog.record.batch import RecordBatch, patch_append_time, patch_header
from sparklog.record.layout import NO_TIMESTAMP
from sparklog.structs import FileSlice, TopicPartition

Submit = Callable[[Callable[[], None]], object]
"""Runs something later, off the calling thread (an executor's ``submit``)."""


class LogPosition(NamedTuple):
    """An offset, and the place in a segment file where its batch begins or will begin."""

    offset: int
    segment_base: int
    position: int


class Appended(NamedTuple):
    """What an append did."""

    first_offset: int
    last_offset: int
    log_append_time: int
    """ms, or -1 where records keep their producer's time."""


class Log:
    """One partition, open. Single writer; see the package's promise."""

    def __init__(
        self,
        directory: Path,
        tp: TopicPartition,
        config: TopicConfig,
        clock: Clock,
        submit: Submit,
        *,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        clean: bool = True,
    ) -> None:
        self.directory = directory
        self.tp = tp
        self.config = config
        self._clock = clock
        self._submit = submit
        self.epochs = LeaderEpochCache(directory)
        loaded = load_segments(directory, config, recovery_point=recovery_point, clean=clean)
        self._segments = loaded.segments
        self.log_end_offset = loaded.next_offset
        self.recovery_point = min(recovery_point, self.log_end_offset) if not clean else self.log_end_offset
        self.log_start_offset = min(max(log_start_offset, self._segments.first.base_offset), self.log_end_offset)
        self.epochs.truncate_from_end(self.log_end_offset)
        self.recovered_bytes_dropped = loaded.dropped_bytes
        self._producers = ProducerStateManager(directory)
        self._load_producers(replay=not clean or self._producers.has_snapshots())
        self._closed = False

    def _load_producers(self, *, replay: bool) -> None:
        """Bring the producers' state to the end of the log; a log closed before there were snapshots knows none."""
        self._producers.load(self.log_start_offset, self.log_end_offset)
        start = self._producers.end_offset if replay else self.log_end_offset
        for segment in self._segments.from_offset(start) if start < self.log_end_offset else ():
            for found in segment.batches_from(start):
                batch = RecordBatch(segment.log.read(found.position, found.size))
                self._producers.update(batch, self._clock.now_ms())
        self._producers.end_offset = self.log_end_offset

    @property
    def topic_id(self) -> UUID | None:
        return read_topic_id(self.directory)

    def assign_topic_id(self, topic_id: UUID) -> None:
        """Record the id of the topic; durable on return."""
        write_topic_id(self.directory, topic_id)

    @property
    def size(self) -> int:
        """Bytes of all batches."""
        return self._segments.size

    @property
    def segment_count(self) -> int:
        return len(self._segments)

    @property
    def end(self) -> LogPosition:
        """Where the next batch will begin."""
        active = self._segments.active
        return LogPosition(self.log_end_offset, active.base_offset, active.size)

    def append_as_leader(self, records: memoryview, leader_epoch: int) -> Appended:
        """Give the batch in ``records`` the next offsets and write it; the buffer's header is changed in place.

        A batch that an idempotent producer sends again is not written; the offsets of the first time are the answer.
        Raises ApiError if the batch is refused, LogDirFailed if the disk is; the log is as before then.
        """
        self._check_open()
        batch = validate_produced(records, self.config)
        repeated = self._producers.check(batch)
        if repeated is not None:
            return Appended(repeated.first_offset, repeated.last_offset, self._append_time(repeated.timestamp))
        records = as_topic_compresses(batch, self.config)
        first = self.log_end_offset
        last = first + batch.last_offset_delta
        now = self._clock.now_ms()
        patch_header(records, 0, first, leader_epoch)
        stamped = self._append_time(now) == now
        if stamped:
            patch_append_time(records, 0, now)
        segment = self._segments.active
        try:
            if segment.should_roll(len(records), last, now if stamped else batch.max_timestamp):
                segment = self.roll()
            self.epochs.assign(leader_epoch, first)
            appended = RecordBatch(records)
            segment.append(records, appended)
        except OSError as error:
            raise LogDirFailed(f"cannot append to {self.directory}: {error}") from error
        self.log_end_offset = last + 1
        self._producers.update(appended, now)
        return Appended(first, last, self._append_time(now))

    def _append_time(self, timestamp: int) -> int:
        """``timestamp`` where this broker's clock stamps the records, -1 where they keep their producer's time."""
        return timestamp if self.config.message_timestamp_type == "LogAppendTime" else NO_TIMESTAMP

    def roll(self) -> LogSegment:
        """Begin a new segment at the end offset; the old one is flushed in the background."""
        old = self._segments.active
        self._producers.take_snapshot(self._clock.now_ms(), durable=False)
        new = LogSegment(self.directory, self.log_end_offset, self.config, active=True, create=True)
        old.seal()
        self._segments.add(new)
        self._submit(lambda: self._flush_sealed(new.base_offset))
        return new

    def _flush_sealed(self, up_to: int) -> None:
        for segment in self._segments.from_offset(self.recovery_point):
            if segment.base_offset < up_to:
                segment.flush()
        self.recovery_point = max(self.recovery_point, up_to)

    def read(self, offset: int, max_bytes: int, bound: LogPosition, *, min_one_batch: bool) -> FileSlice | None:
        """Batches from the one that holds ``offset`` on, never beyond ``bound``; None if there is none yet.

        See ``LogSegment.read`` for what a slice may begin and end with. Raises ApiError(OFFSET_OUT_OF_RANGE) for an
        offset before the log's start or beyond its end.
        """
        self._check_open()
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} of {self.tp} is not in {self.log_start_offset} to {self.log_end_offset}",
            )
        if offset >= bound.offset:
            return None
        for segment in self._segments.from_offset(offset):
            if segment.base_offset > bound.segment_base:
                return None
            end = bound.position if segment.base_offset == bound.segment_base else segment.size
            found = segment.read(offset, max_bytes, end, min_one_batch=min_one_batch)
            if found is not None:
                return found
        return None

    def read_all(self, block: int) -> Iterator[memoryview]:
        """Every batch of the log, copied into memory a few at a time; each view holds whole batches."""
        self._check_open()
        for segment in self._segments:
            start = end = 0
            for batch in segment.log.batches():
                if end > start and batch.end - start > block:
                    yield segment.log.read(start, end - start)
                    start = end
                end = batch.end
            if end > start:
                yield segment.log.read(start, end - start)

    def position_of(self, offset: int) -> LogPosition:
        """The place of ``offset``: where its batch begins."""
        if offset >= self.log_end_offset:
            return self.end
        for segment in self._segments.from_offset(offset):
            batch = segment.find(offset)
            if batch is not None:
                return LogPosition(offset, segment.base_offset, batch.position)
        return self.end

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record no earlier than ``timestamp`` (ms); None if all are earlier."""
        for segment in self._segments:
            if segment.latest.timestamp >= timestamp:
                found = segment.offset_for_timestamp(timestamp, self.log_start_offset)
                if found is not None:
                    return found
        return None

    def latest_timestamp(self) -> TimestampOffset | None:
        """The record with the greatest timestamp; None if the log is empty."""
        best = max(self._segments, key=lambda segment: segment.latest.timestamp).latest
        return self.offset_for_timestamp(best.timestamp) if best.timestamp >= 0 else None

    def advance_start(self, offset: int) -> None:
        """Records before ``offset`` are part of the log no longer; ``delete_old_segments`` frees their segments."""
        self.log_start_offset = min(max(self.log_start_offset, offset), self.log_end_offset)

    def delete_old_segments(self, high_watermark: int) -> list[Path]:
        """Give up the segments that the topic's retention no longer wants and return their files, renamed ``.deleted``.

        The caller unlinks the files once nobody can still be reading them.
        """
        self._check_open()
        now = self._clock.now_ms()
        policies = policies_of(self.config, self.log_start_offset)
        count = deletable(self._segment_views(), policies, high_watermark, now)
        if count == len(self._segments):
            if not self._segments.active.size:
                count -= 1
            else:
                self.roll()
        doomed = list(self._segments)[:count]
        self._segments.remove(*doomed)
        self.log_start_offset = max(self.log_start_offset, self._segments.first.base_offset)
        return [path for segment in doomed for path in segment.rename_deleted()]

    def _segment_views(self) -> list[SegmentView]:
        segments = list(self._segments)
        ends = [*(segment.base_offset for segment in segments[1:]), self.log_end_offset]
        return [
            SegmentView(segment.base_offset, end, segment.size, segment.latest_or_mtime())
            for segment, end in zip(segments, ends, strict=True)
        ]

    def truncate_to(self, offset: int) -> None:
        """Drop every batch that holds ``offset`` or lies beyond it."""
        self._check_open()
        if offset >= self.log_end_offset:
            return
        for segment in reversed(list(self._segments)):
            if segment.base_offset > offset or (segment.base_offset == offset and len(self._segments) > 1):
                self._segments.remove(segment)
                for path in segment.rename_deleted():
                    path.unlink()
        survivor = self._segments.active
        survivor.reopen_for_append()
        survivor.truncate_to(offset)
        self.log_end_offset = survivor.next_offset()
        self.recovery_point = min(self.recovery_point, self.log_end_offset)
        self.epochs.truncate_from_end(self.log_end_offset)
        self._load_producers(replay=True)

    def flush(self) -> None:
        """Everything appended so far is on the disk when this returns."""
        end = self.log_end_offset
        for segment in self._segments.from_offset(self.recovery_point):
            segment.flush()
        self.recovery_point = max(self.recovery_point, end)

    def close(self) -> None:
        """Flush and let go. Closing twice is closing once."""
        if self._closed:
            return
        self.flush()
        for segment in self._segments:
            segment.close()
        self._producers.take_snapshot(self._clock.now_ms(), durable=True)
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise LogClosed(f"{self.tp} is closed")
