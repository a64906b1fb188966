"""A partition's log: segments end to end, appended to at the end, read from any offset.

Invariants: offsets rise and are never given twice; ``log_end_offset`` is one past the last batch written; a batch is
either whole in the log or not in it; every batch bears the leader epoch under which it was appended, and epochs never
fall; a transaction's abort is in the transaction index before its marker counts as appended. Durable: everything below
``recovery_point``, with the leader epochs that began there; the rest is as durable as the page cache until ``flush``.
An append as leader never waits for the disk: where ``flush.messages`` wants its batch flushed, ``awaits_flush`` says
so, and no client is to be told of the batch before ``flush`` has returned. Whole: ``docs/adr/0006-the-log-on-disk``.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from sparklog.clock import Clock, monotonic_ms
from sparklog.config.topic import TopicConfig
from sparklog.errors import ApiError, DiskFull, ErrorCode, LogClosed, LogDirFailed, LogError, SegmentsLeased
from sparklog.log.adoption import Adoption, AppendAdoption
from sparklog.log.checkpoints import read_topic_id, write_topic_id
from sparklog.log.durability import Durability, Flushes
from sparklog.log.extents import Extents, find_extents
from sparklog.log.files import MISPLACED, disk_refused, segment_paths, sync_directory
from sparklog.log.indexes.time_index import TimestampOffset
from sparklog.log.indexes.transaction_index import AbortedTransaction
from sparklog.log.lease import HeldBack, Lease, is_giving_way, is_leased
from sparklog.log.loader import Knowledge, Loaded, LogLoader, placed_names, replay
from sparklog.log.origin import AppendOrigin, Verification
from sparklog.log.producer_snapshot import ProducerEntry
from sparklog.log.producer_state import ProducerStateManager
from sparklog.log.replacement import Replacement
from sparklog.log.retention import GivenUp, SegmentView, deletable, given_up, policies_of
from sparklog.log.search import Search
from sparklog.log.segment import MAX_RELATIVE_OFFSET, LogSegment, SegmentFacts
from sparklog.log.segments import MOST_ABORTED, LogPosition
from sparklog.log.validator import PreparedBatch, as_topic_compresses, batches_of_leader, validate_appended
from sparklog.record.batch import RecordBatch, patch_append_time
from sparklog.record.layout import NO_TIMESTAMP
from sparklog.structs import FileSlice, OffsetAndEpoch, TopicPartition

Submit = Callable[[Callable[[], None]], object]
"""Runs something later, off the calling thread (an executor's ``submit``)."""


_DELETED_AT_ONCE = 25
"""Segments: to rename the files of so many takes some milliseconds."""
_PAUSE_S = 0.001
"""Before each step of writing a snapshot, for the threads that wait for the interpreter."""


class Appended(NamedTuple):
    """What an append did."""

    first_offset: int
    last_offset: int
    log_append_time: int
    """ms, or -1 where records keep their producer's time."""
    log_start_offset: int
    """Where the log begins."""


def _load(directory: Path, config: TopicConfig, known: Knowledge, now_ms: int) -> tuple[UUID | None, Loaded]:
    """Whose topic the directory is, and what lies in it. Raises LogError, LogDirFailed."""
    try:
        names = placed_names(directory)
        topic_id = read_topic_id(directory)
        return topic_id, LogLoader(directory, config, known, now_ms, names).load()
    except OSError as error:
        if error.errno in MISPLACED:
            raise LogError(f"cannot open {error.filename or directory}: {error.strerror}; move it away") from error
        raise disk_refused(f"cannot open {directory}", error) from error


class Log:
    """One partition, open. Single writer; see the package's promise."""

    def __init__(
        self,
        directory: Path,
        tp: TopicPartition,
        config: TopicConfig,
        clock: Clock,
        submit: Submit,
        known: Knowledge | None = None,
        *,
        draw: Callable[[int], int] = random.randrange,
        flushes: Flushes | None = None,
    ) -> None:
        """Open or begin the log in ``directory``; ``draw(n)`` is a number from 0 up to, not with, n. ``flushes`` counts
        its flushes.

        Raises LogError where what is there cannot be used, LogDirFailed if the disk refuses.
        """
        known = known or Knowledge()
        self.directory = directory
        self.tp = tp
        self._config = config
        self._clock = clock
        self._held_back = HeldBack()
        self._submit = submit
        self._draw = draw
        topic_id, loaded = _load(directory, config, known, clock.now_ms())
        end = loaded.next_offset
        self.topic_id: UUID | None = topic_id
        """As the directory says; None if it does not."""
        self.epochs = loaded.epochs
        self._segments = loaded.segments
        self._producers = loaded.producers
        self._time_of_producers()
        self._durability = Durability(
            directory,
            self._segments,
            self.epochs,
            clock,
            flushes or Flushes(),
            end,
            recovery_point=end if known.clean else min(known.recovery_point, end),
        )
        self.log_start_offset = loaded.log_start_offset
        self.high_watermark = min(max(known.high_watermark, loaded.log_start_offset), end)
        """Up to where every in-sync replica has the log, as it was told last."""
        self._producers.on_high_watermark(self.high_watermark)
        self.scanned_bytes = loaded.scanned_bytes
        self.recovered_bytes_dropped = loaded.dropped_bytes
        self.replacements = 0
        """How often segments gave way to others since the log was opened: then batches lie elsewhere in the files."""
        self._left_to_cut: Callable[[], None] | None = None
        self._is_held = False
        if self._durability.is_wanted(config.flush_messages):  # what a crash left may be told to be here from now on
            self.flush()

    @property
    def config(self) -> TopicConfig:
        """The topic's settings; setting them takes effect with the next append."""
        return self._config

    @config.setter
    def config(self, config: TopicConfig) -> None:
        self._config = config
        for segment in self._segments:
            segment.config = config

    def assign_topic_id(self, topic_id: UUID) -> None:
        """Record the id of the topic; durable on return. Raises LogDirFailed if the disk refuses."""
        try:
            write_topic_id(self.directory, topic_id)
        except OSError as error:
            raise disk_refused(f"cannot record the topic id in {self.directory}", error) from error
        self.topic_id = topic_id

    def begin_epoch(self, epoch: int) -> None:
        """What is appended from now on is appended under ``epoch``. Nothing for one that is known.

        It is written in the background, and at the latest before what is appended counts as flushed. Raises LogClosed,
        and LogDirFailed if the disk still refuses what a truncation left to do.
        """
        self._check_writable()
        if self.epochs.assign(epoch, self.log_end_offset):
            self._submit(self.write_epochs)

    def write_epochs(self) -> None:
        """The leader epochs are on the disk when this returns. Any thread may call it.

        Raises LogDirFailed if the disk refuses; the next flush tries again.
        """
        self._durability.write_epochs()

    @property
    def size(self) -> int:
        """Bytes of all batches."""
        return self._segments.size

    @property
    def log_end_offset(self) -> int:
        """One past the last batch."""
        return self._durability.end

    @property
    def recovery_point(self) -> int:
        """All below is on the disk."""
        return self._durability.recovery_point

    @property
    def base_offset(self) -> int:
        """Where its first segment begins: at its start or before that."""
        return self._segments.first.base_offset

    @property
    def last_stable_offset(self) -> int:
        """All before is replicated, and of no transaction that is undecided, as far as is known here."""
        unstable = self.first_unstable_offset
        return self.high_watermark if unstable is None else min(unstable, self.high_watermark)

    @property
    def truncations(self) -> int:
        """How often the log was cut since it was opened."""
        return self._durability.truncations

    @property
    def is_over(self) -> bool:
        """Whether it was closed or abandoned."""
        return self._durability.is_over

    @property
    def awaits_snapshot(self) -> bool:
        """Whether a snapshot of its producers is yet to be written: a start after a crash needs their batches."""
        return self._producers.first_unwritten is not None

    def segment_facts(self) -> list[SegmentFacts]:
        """Of every segment, the active one last."""
        return [segment.facts() for segment in self._segments]

    def first_timestamps(self, start: int, end: int) -> list[int]:
        """Those of the first batches (ms) of the segments that hold offsets in ``start`` to ``end``, the active one
        left out. Raises CorruptRecord.
        """
        segments = [each for each in self._segments.from_offset(start) if each.base_offset < end]
        times = [each.timestamp_of_first() for each in segments if each is not self._segments.active]
        return [each for each in times if each is not None]

    @property
    def segment_count(self) -> int:
        return len(self._segments)

    @property
    def producer_count(self) -> int:
        return len(self._producers)

    @property
    def producers(self) -> Collection[ProducerEntry]:
        """Those that are remembered; not to be changed."""
        return self._producers.entries

    @property
    def end(self) -> LogPosition:
        """Where the next batch will begin."""
        if self._left_to_cut is not None:
            found = self._segments.position_of(self.log_end_offset)
            if found is not None:
                return found
        active = self._segments.active
        return LogPosition(self.log_end_offset, active.base_offset, active.size)

    # Appending

    def append_as_leader(
        self,
        records: memoryview | PreparedBatch,
        leader_epoch: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        verification: Verification | None = None,
    ) -> Appended:
        """Give the batch in ``records`` the next offsets and write it; the buffer's header is changed in place.

        One that is prepared is not looked into again, unless settings that matter to it have changed since.

        A batch that an idempotent producer sends again is not written; the offsets of the first time are the answer.
        ``verification`` is asked before a client's transaction begins here; without one it may not begin.
        Raises ApiError if the batch is refused, LogDirFailed if the disk refuses; the log is as before then.
        """
        self._check_appendable(records, origin)
        now = self._clock.now_ms()
        prepared = None
        if isinstance(records, PreparedBatch):
            prepared = records.batch if records.is_good_under(self._config) else None
            records = records.records
        batch = prepared or validate_appended(records, self._config, origin, now)
        repeated = self._producers.check(batch, now, origin)
        if repeated is not None:
            append_time = self._append_time(repeated.timestamp)
            return Appended(repeated.first_offset, repeated.last_offset, append_time, self.log_start_offset)
        if batch.is_transactional and origin is AppendOrigin.CLIENT:
            self._check_begun(batch, verification, now)
        batch = as_topic_compresses(batch, self._config)
        if batch.size_in_bytes > self._config.segment_bytes:
            raise ApiError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"a batch of {batch.size_in_bytes} bytes is larger than segment.bytes={self._config.segment_bytes}",
            )
        batch.assign(self.log_end_offset, leader_epoch)
        append_time = self._append_time(now)
        if append_time == now:
            patch_append_time(batch.buffer, 0, now)
            batch = RecordBatch(batch.buffer)
        try:
            self._append((batch,), batch.buffer, now)
        except LogDirFailed as error:
            if origin is AppendOrigin.CLIENT:
                self._producers.refused(batch, error.code, now)
            raise
        return Appended(batch.base_offset, batch.last_offset, append_time, self.log_start_offset)

    def _check_appendable(self, records: memoryview | PreparedBatch, origin: AppendOrigin) -> None:
        try:
            self._check_writable()
        except LogDirFailed as error:
            self.refused_for_now(records, error.code, origin)
            raise
        if self._is_held:
            self.refused_for_now(records, ErrorCode.NOT_ENOUGH_REPLICAS, origin)
            raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS, f"{self.tp} is adopting segments: send it again")

    def refused_for_now(
        self, records: memoryview | PreparedBatch, code: ErrorCode, origin: AppendOrigin = AppendOrigin.CLIENT
    ) -> None:
        """A producer is told by ``code`` to send ``records`` again, which were not looked at: nothing of it is to
        overtake them.
        """
        if origin is not AppendOrigin.CLIENT:
            return
        now = self._clock.now_ms()
        with suppress(ApiError):  # what cannot be appended ever is not awaited
            if isinstance(records, PreparedBatch):
                batch = records.batch
            else:
                batch = validate_appended(records, self._config, origin, now)
            self._producers.refused(batch, code, now)

    @property
    def awaits_flush(self) -> bool:
        """Whether ``flush.messages`` wants a flush before a client is told of what was appended last."""
        return self._durability.awaits_flush

    def _check_begun(self, batch: RecordBatch, verification: Verification | None, now: int) -> None:
        if self._producers.has_open_transaction(batch.producer_id, batch.producer_epoch):
            return
        if verification is None:
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE, f"producer {batch.producer_id} begins a transaction without its id"
            )
        try:
            verification(batch.producer_id, batch.producer_epoch)
        except ApiError as error:
            if error.code.retriable:
                self._producers.refused(batch, error.code, now)
            raise

    def append_as_follower(self, records: memoryview) -> int:
        """Write batches as the leader gave them, offsets and epochs with them; returns the new end offset. It never
        waits for the disk: where ``flush.messages`` wants a flush, ``awaits_flush`` says so, and the leader is not to
        be told that all is here before ``flush`` has returned.

        Raises CorruptRecord if they do not hold together, LogError if they do not lie behind the end of the log,
        LogDirFailed if the disk refuses.
        """
        self._check_writable()
        batches = batches_of_leader(records, self.log_end_offset)
        if batches:
            size = sum(batch.size_in_bytes for batch in batches)
            self._append(batches, records[:size], self._clock.now_ms())
        return self.log_end_offset

    def _append(self, batches: Sequence[RecordBatch], records: memoryview, now: int) -> None:
        """Write ``batches``, which are all of ``records``, and take note of them."""
        first, last = batches[0], batches[-1]
        newest = first if first is last else max(batches, key=lambda batch: batch.max_timestamp)
        latest = TimestampOffset(newest.max_timestamp, newest.last_offset)
        elapsed_ms = monotonic_ms(self._clock)
        try:
            segment = self._segments.active
            if segment.should_roll(len(records), last.last_offset, latest.timestamp, elapsed_ms):
                segment = self._roll(self._next_base(first, last))
            for batch in batches:
                if self.epochs.assign(batch.partition_leader_epoch, batch.base_offset):
                    self._submit(self.write_epochs)
            if first.is_control if first is last else any(batch.is_control for batch in batches):
                self._append_marked(batches, records, latest, segment, now)
            else:
                segment.append(records, first.base_offset, last.last_offset, latest)
                self._take_note(batches, segment, now)
        except OSError as error:
            raise disk_refused(f"cannot append to {self.directory}", error) from error
        self._durability.note_written(last.next_offset, elapsed_ms, self._config.flush_messages)

    def _next_base(self, first: RecordBatch, last: RecordBatch) -> int:
        """Where a segment for these batches begins: at the end of the log, so that a lost end is told from a hole.

        Only where the leader's log has a hole wider than a segment may be, it begins behind that.
        """
        fits = last.last_offset - self.log_end_offset <= MAX_RELATIVE_OFFSET
        return self.log_end_offset if fits else first.base_offset

    def _append_marked(
        self,
        batches: Sequence[RecordBatch],
        records: memoryview,
        latest: TimestampOffset,
        segment: LogSegment,
        now: int,
    ) -> None:
        """Write batches that end transactions: a marker whose abort is in no index must not be in the log."""
        known, end = self._producers.before(batches), segment.mark()
        segment.append(records, batches[0].base_offset, batches[-1].last_offset, latest)
        try:
            self._take_note(batches, segment, now)
        except (OSError, LogError):
            self._producers.undo(known)
            segment.return_to(end)
            raise

    def _take_note(self, batches: Sequence[RecordBatch], segment: LogSegment, now: int) -> None:
        for batch in batches:
            aborted = self._producers.update(batch, now)
            if aborted is not None:
                segment.txn_index.append(aborted)

    def _replay_producers(self, up_to: int) -> None:
        replay(self._producers, self._segments, self.log_start_offset, up_to, self._clock.now_ms())

    def _append_time(self, timestamp: int) -> int:
        """``timestamp`` where this broker's clock stamps the records, -1 where they keep their producer's time."""
        return timestamp if self._config.message_timestamp_type == "LogAppendTime" else NO_TIMESTAMP

    def roll(self) -> None:
        """Begin a new segment at the end offset, unless the active one is empty.

        Raises LogDirFailed if the disk refuses; appending goes on in the old segment then.
        """
        self._check_writable()
        try:
            if self._segments.active.size:
                self._roll(self.log_end_offset)
        except OSError as error:
            raise disk_refused(f"cannot roll {self.directory}", error) from error

    def _roll(self, base: int) -> LogSegment:
        """Begin a new segment at ``base``, and flush the old one in the background; one that is empty is removed.

        Where all of the old one counts as flushed, its indexes are flushed before a name of the new one may reach the
        disk: a start believes the indexes of a segment that lies below the recovery point and is not the last. It is
        sealed only when the new one is there, so that appends go on in it where the disk refuses that.
        """
        old = self._segments.active
        self._producers.begin_snapshot(self._time_of_producers())
        self._have_snapshots_written()
        try:
            counts_as_flushed = self._durability.begin_roll()
            if counts_as_flushed:  # but its indexes are not, nor is the cutting off of a failed write
                old.finish_indexes()  # not within the sync: one that fails is never tried again, this may be
                self._durability.sync(old.flush_before_seal)
            new = LogSegment(self.directory, base, self._config, active=True, create=True)
            old.seal(flushed=counts_as_flushed)
        except (OSError, LogDirFailed):
            self._unlink_files(base)
            old.reopen_for_append()
            raise
        finally:
            self._durability.end_roll()
        new.created_ms = monotonic_ms(self._clock)
        jitter = min(self._config.segment_jitter_ms, self._config.segment_ms)
        new.jitter_ms = self._draw(jitter) if jitter else 0
        self._segments.add(new)
        if not old.size:
            self._drop_segments([old])
            self.log_start_offset = max(self.log_start_offset, self._segments.first.base_offset)
        self._durability.has_new_names = True
        self._submit(lambda: self._durability.flush_to(base))
        return new

    def _have_snapshots_written(self) -> None:
        if self._producers.is_writer_wanted():
            self._submit(self._write_snapshots)

    def _write_snapshots(self) -> None:
        """A step of it; other work for the disk comes between two, and the thread that appends is not held up."""
        if self._durability.is_over:
            return
        time.sleep(_PAUSE_S)
        try:
            is_more = self._producers.write_some()
        except OSError as error:
            if self._durability.is_over:  # meanwhile: its directory may have another name by now
                return
            raise disk_refused(f"cannot write the producers of {self.directory}", error) from error
        if is_more:
            with suppress(RuntimeError):  # the thread is being stopped: the close of the log writes the last one
                self._submit(self._write_snapshots)

    def _unlink_files(self, base: int) -> None:
        """Of a segment that could not be begun, or the log would be taken to end there."""
        for path in segment_paths(self.directory, base):
            path.unlink()

    # Reading

    def read(
        self, offset: int, max_bytes: int, bound: LogPosition, *, min_one_batch: bool, skips_empty: bool = False
    ) -> FileSlice | None:
        """Batches from the one that holds ``offset`` on, never beyond ``bound``; None if there is none yet.

        See ``LogSegments.read`` for what a slice may begin and end with. Raises ApiError(OFFSET_OUT_OF_RANGE) for an
        offset before the log's start or beyond its end.
        """
        self._check_range(offset)
        if offset >= bound.offset:
            return None
        return self._segments.read(offset, max_bytes, bound, min_one_batch=min_one_batch, skips_empty=skips_empty)

    def read_for_copy(self, offset: int, max_bytes: int) -> FileSlice | None:
        """As ``read``, also of what is deleted and still in a segment; None at the end. Raises LogClosed."""
        self._check_open()
        if offset >= self.log_end_offset:
            return None
        return self._segments.read(offset, max_bytes, self.end, min_one_batch=True)

    def _check_range(self, offset: int) -> None:
        self._check_open()
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} of {self.tp} is not in {self.log_start_offset} to {self.log_end_offset}",
            )

    def read_all(self, block: int) -> Iterator[memoryview]:
        """Every batch of the log whose CRC is right, copied into memory a few at a time; each view holds whole batches.

        What is damaged is left out, and logged. Any thread may go on with it while the log is written to.
        """
        self._check_writable()
        return self._segments.read_all(block)

    def extents(self, start: int, end: int, most: int | None = None, lease: Lease | None = None) -> Extents:
        """The bytes of files that hold ``start`` ≤ o < ``end``, in at most ``most`` files, which ``lease`` holds.

        Raises ApiError(OFFSET_OUT_OF_RANGE) for a start before the log's or beyond its end.
        """
        self._check_range(start)
        return find_extents(self._segments, start, min(end, self.log_end_offset), most, lease)

    def position_of(self, offset: int) -> LogPosition:
        """The place of ``offset``: where its batch begins."""
        found = self._segments.position_of(offset) if offset < self.log_end_offset else None
        return found or self.end

    def bytes_between(self, offset: int, end: LogPosition) -> int:
        """Bytes from ``offset``, or from the log's start where that is later, up to ``end``: see ``LogSegments``."""
        return self._segments.bytes_between(max(offset, self.log_start_offset), end)

    def offset_for_timestamp(self, timestamp: int) -> Search:
        """Finds the first record no earlier than ``timestamp`` (ms), in steps; None if all are earlier."""
        return self._segments.offset_for_timestamp(timestamp, self.log_start_offset)

    def latest_timestamp(self) -> Search:
        """Finds the first record with the greatest timestamp of those that are not deleted, in steps."""
        return self._segments.latest_timestamp(self.log_start_offset)

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch | None:
        """The largest leader epoch known at or below ``epoch``, and the offset at which it ended."""
        return self.epochs.end_offset(epoch, self.log_end_offset)

    # Transactions

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the oldest transaction begins that is open, or whose end is not yet replicated; None without one."""
        first = self._producers.first_unstable_offset
        return None if first is None else max(first, self.log_start_offset)

    def on_high_watermark(self, offset: int) -> None:
        """All in-sync replicas have what lies below ``offset``."""
        self.high_watermark = offset
        self._producers.on_high_watermark(offset)

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether the producer of this epoch has written to the partition since its last marker."""
        return self._producers.has_open_transaction(producer_id, epoch)

    def last_marker(self, producer_id: int) -> int:
        """The offset of the producer's last marker since the log was opened; -1 if there is none."""
        return self._producers.last_marker(producer_id)

    def coordinator_epoch(self, producer_id: int) -> int:
        """Of the coordinator that wrote the producer's last marker, as far as is known; -1 if it is not."""
        return self._producers.coordinator_epoch(producer_id)

    def disbelieve_coordinator(self, producer_id: int) -> None:
        """No coordinator has had the epoch that the producer's last marker bears: the next marker may bear any."""
        self._producers.disbelieve_coordinator(producer_id)

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTransaction]:
        """The aborted transactions with records in ``start <= offset < end``. Raises CorruptRecord."""
        return self._segments.aborted_transactions(start, end)

    def aborted_in(self, piece: FileSlice, start: int, bound: int) -> tuple[FileSlice, list[AbortedTransaction]]:
        """What a read_committed reader of ``piece``, which was read from ``start`` up to ``bound``, must leave out.

        The piece is given too, cut where it has so many aborted transactions that to tell of them would take long.
        """
        return self._segments.aborted_in(piece, start, bound, MOST_ABORTED)

    def remember_producers(self, expiration_ms: int) -> None:
        """Forget a producer, from now on, when it has been silent for so long."""
        self._producers.expiration_ms = expiration_ms

    def expire_producers(self) -> None:
        """Forget the producers that have been silent longer than ``producer.id.expiration.ms``."""
        self._producers.expire(self._time_of_producers())

    def _time_of_producers(self) -> int:
        """Now, in ms; the times at which producers were heard of are by the same clock."""
        now = self._clock.now_ms()
        self._producers.follow_clock(now, monotonic_ms(self._clock))
        return now

    # Giving up the beginning

    def advance_start(self, offset: int) -> None:
        """Records before ``offset`` are part of the log no longer; ``delete_old_segments`` frees their segments."""
        offset = min(offset, self.log_end_offset)
        if offset <= self.log_start_offset:
            return
        self.log_start_offset = offset
        if self.epochs.truncate_from_start(offset):
            self._submit(self.write_epochs)

    def delete_old_segments(self, high_watermark: int, policies: GivenUp | None = None) -> list[Path]:
        """Give up the segments that ``policies`` no longer want, by default the built-in ones that the topic's settings
        name, and return the files, renamed ``.deleted``, that the caller unlinks once no reader can still have them.
        One may be gone already: see ``rename_deleted``.

        No more than ``_DELETED_AT_ONCE``: ask again until there is none. One that is leased stays for now, and those
        behind it; so does one while the snapshot of its producers is yet to be written. The log starts behind all of
        them before the first goes. One that the disk does not let go stays too, with those behind it, and goes when
        this is asked again. Raises LogDirFailed where that is the first.
        """
        self._check_writable()
        count = min(self._let_go(self._deletable(high_watermark, policies)), _DELETED_AT_ONCE)
        if not count:
            return []
        if count == len(self._segments) and not self._is_rolled():
            count -= 1
        segments = list(self._segments)
        count = self._without_unwritten(segments, count)
        if not count:
            return []
        self.advance_start(segments[count].base_offset)
        deleted: list[Path] = []
        try:
            self._delete_from_front(segments[:count], deleted)
        except OSError as error:
            refused = disk_refused(f"cannot delete segments of {self.directory}", error)
            if not (deleted and isinstance(refused, DiskFull)):
                raise refused from error
        return deleted

    def _deletable(self, high_watermark: int, policies: GivenUp | None) -> int:
        segments, now_ms = self.segment_views(), self._clock.now_ms()
        if policies is None:
            wanted = given_up(policies_of(self._config), segments, now_ms)
        else:
            wanted = policies(segments, now_ms)
        return deletable(segments, wanted, self.log_start_offset, high_watermark)

    def _delete_from_front(self, doomed: list[LogSegment], deleted: list[Path]) -> None:
        """From the first to the last, so that neither crash nor refusal leaves a hole; the names go to ``deleted``."""
        gone = []
        try:
            for segment in doomed:
                deleted.append(segment.delete_log())
                gone.append(segment)
                for path in segment.delete_indexes():
                    deleted.append(path)
                self._producers.discard_snapshot(segment.base_offset)
        finally:
            self._segments.remove(*gone)

    def _without_unwritten(self, segments: list[LogSegment], count: int) -> int:
        """How many of the first ``count`` may go: what was remembered of their producers is in a snapshot."""
        unwritten = self._producers.first_unwritten
        if unwritten is None:
            return count
        self._have_snapshots_written()  # where the disk refused it before
        return min(count, max(sum(each.base_offset < unwritten for each in segments) - 1, 0))

    def _is_rolled(self) -> bool:
        """Whether the active segment can go, since another could be begun behind it; an empty one need not."""
        if not self._segments.active.size:
            return False
        try:
            self.roll()
        except DiskFull:
            if len(self._segments) == 1:
                raise
            return False  # the others go, and make room for it
        return True

    def _let_go(self, wanted: int) -> int:
        """How many of the first ``wanted`` segments may go, as no reader has leased them."""
        now, segments = self._clock.monotonic(), list(self._segments)[:wanted]
        free = next((n for n, each in enumerate(segments) if is_leased(each.leases, now)), wanted)
        if free < wanted:
            self._held_back.note([each.leases for each in segments], now)
        else:
            self._held_back.end()
        return free

    def segment_views(self) -> list[SegmentView]:
        """What retention is told of every segment, the active one last."""
        segments = list(self._segments)
        ends = [*(segment.base_offset for segment in segments[1:]), self.log_end_offset]
        return [
            SegmentView(segment.base_offset, end, segment.size, segment.latest_or_mtime())
            for segment, end in zip(segments, ends, strict=True)
        ]

    # Giving up the end

    def lower_recovery_point(self, offset: int) -> None:
        """What lies at or beyond ``offset`` counts as not flushed. To be checkpointed before a truncation."""
        self._durability.lower(offset)

    def end_after_truncation(self, offset: int) -> int:
        """Where ``truncate_to(offset)`` would end the log: before ``offset`` where that is in a batch or in a hole.

        Raises LogDirFailed if the disk refuses.
        """
        if not self._segments.first.base_offset <= offset < self.log_end_offset:
            return min(offset, self.log_end_offset)
        try:
            return self._segments.from_offset(offset)[0].end_before(offset)
        except OSError as error:
            raise disk_refused(f"cannot read {self.directory}", error) from error

    def truncate_to(self, offset: int) -> None:
        """Drop every batch that holds ``offset`` or lies beyond it; durable on return. An epoch that began there, and
        in which nothing was written, is forgotten too.

        Below the start of the log, that is all of it: the log begins anew at ``offset``. Raises LogDirFailed if the
        disk refuses: the log ends there all the same, and what is left to do is done before anything else is written.
        """
        self._check_writable()
        if offset >= self.log_end_offset:
            if self.epochs.truncate_from_end(offset):
                self._submit(self.write_epochs)
            return
        if offset < self._segments.first.base_offset:
            self.restart_at(offset)
            return
        end = self.end_after_truncation(offset)
        self.epochs.truncate_from_end(end)
        self._end_at(end, lambda: self._cut_off(end))

    def _end_at(self, offset: int, cut: Callable[[], None]) -> None:
        """Have the log end at ``offset``, and then its files by ``cut``, which may be called again where it failed."""
        self._durability.end_at(offset)
        self.log_start_offset = min(self.log_start_offset, offset)
        self.high_watermark = min(self.high_watermark, offset)
        self._left_to_cut = cut
        self._finish_cutting()

    def _finish_cutting(self) -> None:
        if self._left_to_cut is not None:
            try:
                self._left_to_cut()
            except OSError as error:
                raise disk_refused(f"cannot truncate {self.directory} to {self.log_end_offset}", error) from error
            self._left_to_cut = None

    def _cut_off(self, end: int) -> None:
        self._drop_segments([each for each in self._segments if each.base_offset > end])
        self._cut_active(end)
        self._producers.discard_snapshots(beyond=end)
        sync_directory(self.directory)  # or a snapshot of what was cut off could come back beside what follows
        self._replay_producers(end)

    def _cut_active(self, end: int) -> None:
        """Of the last segment and of the leader epochs nothing is left at or beyond ``end``; durable on return."""
        survivor = self._segments.active
        survivor.reopen_for_append()
        survivor.truncate_to(end)
        self._durability.sync(survivor.log.flush)  # or bytes that were cut off could come back behind later ones
        self.epochs.write()

    def _drop_segments(self, doomed: list[LogSegment]) -> None:
        """From the last to the first, so that a crash leaves no hole; durable on return."""
        for segment in reversed(doomed):
            gone = segment.delete_log()
            self._segments.remove(segment)
            for path in (gone, *segment.delete_indexes()):
                path.unlink(missing_ok=True)
        if doomed:
            sync_directory(self.directory)

    def truncate_to_epoch_end(self, epoch: int) -> int:
        """Drop what was written under leader epochs above ``epoch``; returns the new end offset.

        Raises LogError if the log knows of no epoch at all.
        """
        found = self.end_offset_for_epoch(epoch)
        if found is None:
            raise LogError(f"{self.tp} knows no leader epoch, so none of its ends")
        self.truncate_to(found.offset)
        return self.log_end_offset

    def restart_at(self, offset: int) -> None:
        """Drop everything and begin anew at ``offset``: a follower whose leader's log begins beyond its own end.

        Raises LogDirFailed if the disk refuses. Where it refuses the new segment, all is as it was; where it refuses
        what follows, as for ``truncate_to``.
        """
        self._check_writable()
        try:
            if offset not in self._segments.bases:
                self._segments.add(self._created(offset))
        except OSError as error:
            raise disk_refused(f"cannot restart {self.directory} at offset {offset}", error) from error
        self._durability.lower(0)
        self.epochs.clear()
        self.log_start_offset = offset
        self._end_at(offset, lambda: self._begin_anew(offset))

    def _begin_anew(self, offset: int) -> None:
        self._drop_segments([each for each in self._segments if each.base_offset != offset])
        self._cut_active(offset)
        sync_directory(self.directory)
        self._producers.restart_at(offset)
        self._durability.recovery_point = offset

    def _created(self, base: int) -> LogSegment:
        """An empty segment, before the others go: a full disk refuses it, and the log is as it was then."""
        try:
            return LogSegment(self.directory, base, self._config, active=True, create=True)
        except OSError:
            self._unlink_files(base)
            raise

    def replace_segments(self, new: Sequence[int], old: Sequence[int]) -> list[Path]:
        """Swap the segments of base offsets ``old`` for those in ``.cleaned`` files of base offsets ``new``.

        Returns the files of the old ones, renamed ``.deleted``; the caller unlinks them. See ``swap`` for a crash.
        Raises SegmentsLeased, with nothing changed, while one of the old ones is leased.
        """
        replacement = self.begin_replacement(new, old)
        try:
            replacement.perform()
        except LogError:
            replacement.end()
            raise
        return self.adopt(replacement)

    def begin_replacement(self, new: Sequence[int], old: Sequence[int]) -> Replacement:
        """The swap of ``replace_segments``, to be performed, and then adopted or ended. Nothing has changed yet.

        Raises LogError unless the log has those of ``old``, SegmentsLeased while one of them is leased.
        """
        self._check_writable()
        wanted = frozenset(old)
        gone = tuple(segment for segment in self._segments if segment.base_offset in wanted)
        if len(gone) != len(old) or not old or not min(old) <= min(new) or self._segments.active in gone:
            raise LogError(f"cannot replace segments {list(old)} of {self.tp} by {list(new)}")
        now = self._clock.monotonic()
        leased = [each.base_offset for each in gone if is_leased(each.leases, now)]
        if leased:
            raise SegmentsLeased(f"segments {leased} of {self.tp} are leased to readers: replace them when that ends")
        behind = min(base for base in self._segments.bases if base > max(old))
        return Replacement(self.directory, self._config, gone, behind, new, now)

    def keep_readers_off(self, bases: Sequence[int], hold: Lease | None) -> Lease:
        """Give no new lease on these segments until the lease that is returned has ended: ``hold``, or a new one."""
        hold = hold or Lease(self._clock.monotonic(), 0.0, is_last=True)
        for segment in self._segments:
            if segment.base_offset in bases and not is_giving_way(segment.leases):
                segment.leases.append(hold)
        return hold

    def adopt(self, replacement: Replacement) -> list[Path]:
        """Serve the new segments from now on; the files of the old ones, for the caller to unlink."""
        replacement.end()
        self._segments.replace(replacement.gone, replacement.fresh)
        self.replacements += 1
        kept = frozenset(self._segments.bases)
        for segment in replacement.gone:
            if segment.base_offset not in kept:
                with suppress(OSError):  # a start removes one that stays
                    self._producers.discard_snapshot(segment.base_offset)
        return replacement.doomed

    # Adopting segments that another process has built: see ``adoption``

    def producers_to_restore(self) -> ProducerStateManager:
        """What is known of the producers at the end of the log: a copy, for code that looks at what is to follow."""
        return self._producers.copy()

    def hold(self, adoption: Adoption, verification: Verification | None = None) -> None:
        """Let nothing be appended until ``release``; the active segment is empty then, and begins at the end.

        Raises ApiError where the producer of what is to be adopted may not write, as ``append_as_leader`` does;
        LogDirFailed if the disk refuses, DiskFull too. Nothing is held then.
        """
        self._check_writable()
        if isinstance(adoption, AppendAdoption):
            now, batch = self._clock.now_ms(), adoption.first_batch
            if self._producers.check(batch, now) is not None:
                raise ApiError(ErrorCode.DUPLICATE_SEQUENCE_NUMBER, "its first batch is in the log already")
            self._check_begun(batch, verification, now)
        self.roll()
        self._is_held = True

    def release(self) -> None:
        """Let be appended again."""
        self._is_held = False

    def take_adopted(self, adoption: Adoption) -> None:
        """Serve the segments of an adoption that is in place; the log was held since."""
        empty = self._segments.active
        self.epochs.truncate_from_end(adoption.base_offset)  # the leader's began there, and no batch bears it
        for epoch, offset in adoption.epochs:
            self.epochs.assign(epoch, offset)
        self.epochs.assign(adoption.leader_epoch, adoption.end_offset)
        self._submit(self.write_epochs)
        adoption.note_producers(self._producers)
        self._segments.replace((empty,), adoption.segments)
        self._segments.active.reopen_for_append()
        empty.txn_index.close()
        self.replacements += 1
        self._durability.note_written(adoption.end_offset, monotonic_ms(self._clock), self._config.flush_messages)
        with suppress(DiskFull):  # then appends go on in the last of them
            self.roll()

    def take_over(self, before: Log) -> None:
        """Stand in for ``before``, of which all batches are here; it is used no more."""
        self.config = before.config
        self._producers.take_over(before._producers)
        self.advance_start(before.log_start_offset)
        self.epochs.replace(before.epochs.entries)
        self.high_watermark = before.high_watermark
        self._durability.take_over(before._durability, monotonic_ms(self._clock))
        self._submit(self.write_epochs)

    # Durability

    def flush(self) -> None:
        """Everything appended so far is on the disk when this returns. Any thread may call it.

        Raises LogDirFailed if the disk refuses: what was written may be lost then, whatever a later fsync says.
        """
        self._durability.flush()

    def flush_is_due(self, now_ms: int) -> bool:
        """Whether something has been unflushed for ``flush.ms``; ``now_ms`` is of ``monotonic_ms``."""
        return self._durability.is_due(now_ms, self._config.flush_ms)

    def close(self) -> None:
        """Flush and let go. Closing twice is closing once. Raises LogDirFailed where the disk refuses that: it is not
        closed then.
        """
        if self._durability.is_over:
            return
        try:
            self._finish_cutting()
            self._segments.active.seal()
            self.flush()
            self._producers.forget_unwritten(beyond=-1)
            self._producers.take_snapshot(self._time_of_producers(), durable=True)
        except (OSError, LogDirFailed) as error:
            self._segments.active.reopen_for_append()
            if isinstance(error, LogDirFailed):
                raise
            raise disk_refused(f"cannot close {self.directory}", error) from error
        for segment in self._segments:
            segment.close()
        self._durability.is_over = True

    def abandon(self) -> None:
        """Serve no more and write nothing: the disk has failed, or the log is to be deleted.

        The files are let go when the last reader lets go of the log.
        """
        self._durability.is_over = True

    def _check_writable(self) -> None:
        """Raises LogClosed, and LogDirFailed if the disk still refuses what a truncation left to do."""
        self._check_open()
        self._finish_cutting()

    def _check_open(self) -> None:
        if self._durability.is_over:
            raise LogClosed(f"{self.tp} is closed")
