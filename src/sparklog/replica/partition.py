"""One partition as this broker holds it: leadership, in-sync replicas, high watermark.

Invariants: the high watermark never goes back while this broker leads; it never passes the end of any in-sync
replica; a consumer is shown nothing at or beyond it. With this broker alone in the ISR it is the end of the log; while
``flush.messages`` wants a flush, it is where the last flush ended.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from uuid import UUID

from sparklog.config.topic import TopicConfig
from sparklog.errors import ApiError, ErrorCode
from sparklog.log.extents import Extents
from sparklog.log.indexes.transaction_index import AbortedTransaction
from sparklog.log.lease import Lease
from sparklog.log.log import Appended, Log
from sparklog.log.origin import AppendOrigin, Verification
from sparklog.log.producer_snapshot import ProducerEntry
from sparklog.log.segment import Search
from sparklog.log.segments import LogPosition
from sparklog.log.validator import PreparedBatch
from sparklog.structs import NO_LEADER, FileSlice, IsolationLevel, OffsetAndEpoch, TopicPartition
from sparklog.zk.znodes import PartitionState

_ALL_COMMITTED = -1


class PartitionRead:
    """What a read gave, and how far it could see. Not to be changed."""

    __slots__ = ("aborted", "bound", "high_watermark", "last_stable_offset", "log_start_offset", "records")

    def __init__(
        self,
        records: FileSlice | None,
        aborted: list[AbortedTransaction] | None,
        bound: LogPosition,
        high_watermark: int,
        last_stable_offset: int,
        log_start_offset: int,
    ) -> None:
        self.records = records
        """Whole batches but for the last one; None without any."""
        self.aborted = aborted
        """What of ``records`` a read_committed reader must leave out; None for any other."""
        self.bound = bound
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_start_offset = log_start_offset


class Partition:
    """Changed by LeaderAndIsr requests and by appends, on the broker's one thread.

    ``log`` is for this package: other packages ask the partition, by a method of its own.
    """

    def __init__(self, tp: TopicPartition, broker_id: int, log: Log, topic_id: UUID | None = None) -> None:
        self.tp = tp
        self.topic_id = topic_id
        self.log = log
        self._broker_id = broker_id
        self.leader = int(NO_LEADER)
        self.leader_epoch = -1
        self.isr: tuple[int, ...] = ()
        self.replica_count = 1
        self._high_watermark = log.position_of(log.log_start_offset)

    @property
    def is_leader(self) -> bool:
        return self.leader == self._broker_id

    @property
    def config(self) -> TopicConfig:
        """The topic's settings in force."""
        return self.log.config

    @property
    def log_dir(self) -> Path:
        """The log directory of the broker in which the partition lies."""
        return self.log.directory.parent

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.log.log_end_offset

    @property
    def high_watermark(self) -> LogPosition:
        return self._high_watermark

    @property
    def last_stable_offset(self) -> int:
        """The first offset that a read_committed reader may not see; without open transactions the high watermark."""
        unstable, committed = self.log.first_unstable_offset, self._high_watermark.offset
        return committed if unstable is None else min(unstable, committed)

    def apply(self, state: PartitionState, replica_count: int = 1) -> bool:
        """Take over what the controller decided; False if a newer decision is known already.

        ``replica_count``: how many brokers are to hold the partition, this one among them.
        """
        if state.leader_epoch < self.leader_epoch:
            return False
        if state.leader_epoch > self.leader_epoch and state.leader == self._broker_id:
            self.log.begin_epoch(state.leader_epoch)
        self.leader, self.leader_epoch, self.isr = state.leader, state.leader_epoch, state.isr
        self.replica_count = replica_count
        self._advance()
        return True

    def check_leader(self, current_leader_epoch: int = -1) -> None:
        """Raises ApiError if this broker does not lead, or the asker's epoch is not the current one (-1: not said)."""
        if not self.is_leader:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {self._broker_id} does not lead {self.tp}")
        if 0 <= current_leader_epoch < self.leader_epoch:
            raise ApiError(ErrorCode.FENCED_LEADER_EPOCH, f"leader epoch of {self.tp} is {self.leader_epoch}")
        if current_leader_epoch > self.leader_epoch:
            raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"leader epoch of {self.tp} is {self.leader_epoch}")

    def check_topic(self, topic_id: UUID) -> None:
        """Raises ApiError if the topic bears another id than the one meant; one whose id is not known may be it."""
        if topic_id != self.topic_id and self.topic_id is not None:
            raise ApiError(ErrorCode.INCONSISTENT_TOPIC_ID, f"{self.tp} belongs to topic {self.topic_id}")

    def check_deletion(self, before: int) -> int:
        """The offset below which a client that asks for ``before`` (-1: all committed) may have records deleted.

        Raises ApiError: not the leader, a topic that keeps its records, an offset that is not committed.
        """
        self.check_leader()
        if "delete" not in self.log.config.cleanup_policy:
            raise ApiError(ErrorCode.POLICY_VIOLATION, f"{self.tp} is compacted only: its records are not deleted")
        committed = self._high_watermark.offset
        offset = committed if before == _ALL_COMMITTED else before
        if not 0 <= offset <= committed:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{self.tp} is committed up to {committed}, not {before}")
        return offset

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch | None:
        """The largest leader epoch at or below ``epoch``, and where it ended; None if ``epoch`` is yet to come."""
        latest = self.log.epochs.latest
        return None if latest is None or epoch > latest.epoch else self.log.end_offset_for_epoch(epoch)

    def append_as_leader(
        self,
        records: memoryview | PreparedBatch,
        required_acks: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        verification: Verification | None = None,
    ) -> Appended:
        """Append, and commit at once where no other replica is in sync and no flush is awaited.

        Raises ApiError: not the leader, too few in-sync replicas for acks=all, a refused batch.
        """
        self.check_leader()
        if required_acks == -1 and len(self.isr) < self.replica_count:
            self._check_in_sync()
        appended = self.log.append_as_leader(records, self.leader_epoch, origin, verification)
        self._advance()
        return appended

    @property
    def uncommitted_end(self) -> int | None:
        """The end of the log, which the high watermark has yet to reach; None if it has."""
        end = self.log.log_end_offset
        return end if self._high_watermark.offset < end else None

    @property
    def unflushed_end(self) -> int | None:
        """The end of the log, where ``flush.messages`` wants a flush up to there before a client is told; else None."""
        return self.log.log_end_offset if self.log.awaits_flush else None

    def _check_in_sync(self) -> None:
        """No more replicas can be asked for than the partition has (Kafka 3.9, ``Partition.effectiveMinIsr``)."""
        wanted = min(self.log.config.min_insync_replicas, self.replica_count)
        if len(self.isr) < wanted:
            raise ApiError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{len(self.isr)} of the {self.replica_count} replicas of {self.tp} are in sync, "
                f"min.insync.replicas={self.log.config.min_insync_replicas}",
            )

    def _advance(self) -> None:
        if not self.log.awaits_flush:
            self._advance_to(self.log.end)

    def _advance_to(self, end: LogPosition) -> None:
        if self.is_leader and self.isr == (self._broker_id,):
            self._high_watermark = end
            self.log.on_high_watermark(end.offset)

    def flushed(self) -> None:
        """More of the log is on the disk than before."""
        reached = self.log.recovery_point
        if self.log.awaits_flush and reached > self._high_watermark.offset:
            self._advance_to(self.log.position_of(reached))
        else:
            self._advance()

    def bound(self, isolation: IsolationLevel) -> LogPosition:
        """How far a consumer of this isolation level may see."""
        if isolation is IsolationLevel.READ_COMMITTED:
            stable = self.last_stable_offset
            if stable < self._high_watermark.offset:
                return self.log.position_of(stable)
        return self._high_watermark

    # Reading

    def read(self, offset: int, max_bytes: int, isolation: IsolationLevel, *, min_one_batch: bool) -> PartitionRead:
        """What a consumer may see of the log from ``offset`` on.

        Raises ApiError(OFFSET_OUT_OF_RANGE), and LogClosed, CorruptRecord or OSError where the log cannot be read.
        """
        bound = self.bound(isolation)
        records = self.log.read(offset, max_bytes, bound, min_one_batch=min_one_batch)
        if records is not None and not records.size:
            records = None
        aborted: list[AbortedTransaction] | None = None
        if isolation is IsolationLevel.READ_COMMITTED:
            aborted = []
            if records is not None:
                records, aborted = self.log.aborted_in(records, offset, bound.offset)
        return PartitionRead(
            records,
            aborted,
            bound,
            self._high_watermark.offset,
            self.last_stable_offset,
            self.log.log_start_offset,
        )

    def start_of_readable(self, offset: int, bound: LogPosition) -> LogPosition:
        """Where the batch begins that holds ``offset`` or follows it; ``bound`` where that is not below it."""
        found = self.log.position_of(offset)
        below = (found.segment_base, found.position) < (bound.segment_base, bound.position)
        return found if below else bound

    def epoch_at(self, offset: int) -> int:
        """The leader epoch under which ``offset`` was written; -1 if it is not known."""
        return self.log.epochs.epoch_at(offset)

    def offset_for_timestamp(self, timestamp: int) -> Search:
        """Finds the first record no earlier than ``timestamp`` (ms), in steps; None if all are earlier."""
        return self.log.offset_for_timestamp(timestamp)

    def latest_timestamp(self) -> Search:
        """Finds the first record with the greatest timestamp, in steps; None if there is none."""
        return self.log.latest_timestamp()

    def extents(
        self, start: int, end: int, isolation: IsolationLevel, most: int | None = None, lease: Lease | None = None
    ) -> Extents:
        """The bytes of files that hold what of ``start`` ≤ o < ``end`` a consumer may see, in at most ``most`` files,
        which ``lease`` holds.

        Raises ApiError(OFFSET_OUT_OF_RANGE) for a start before the log's or beyond its end.
        """
        return self.log.extents(start, max(min(end, self.bound(isolation).offset), start), most, lease)

    def read_all(self, block: int) -> Iterator[memoryview]:
        """Every sound batch of the log, some of them in each view; any thread may go on with it."""
        return self.log.read_all(block)

    # Producers and their transactions

    @property
    def producers(self) -> Collection[ProducerEntry]:
        """Those that are remembered; not to be changed."""
        return self.log.producers

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether the producer of this epoch has written to the partition since its last marker."""
        return self.log.has_open_transaction(producer_id, epoch)

    def last_marker(self, producer_id: int) -> int:
        """The offset of the producer's last marker since the log was opened; -1 if there is none."""
        return self.log.last_marker(producer_id)

    def coordinator_epoch(self, producer_id: int) -> int:
        """Of the coordinator that wrote the producer's last marker, as far as is known; -1 if it is not."""
        return self.log.coordinator_epoch(producer_id)

    def disbelieve_coordinator(self, producer_id: int) -> None:
        """No coordinator has had the epoch that the producer's last marker bears: the next marker may bear any."""
        self.log.disbelieve_coordinator(producer_id)

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTransaction]:
        """The aborted transactions with records in ``start <= offset < end``. Raises CorruptRecord."""
        return self.log.aborted_transactions(start, end)
