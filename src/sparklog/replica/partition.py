"""One partition as this broker holds it: leadership, in-sync replicas, high watermark.

Invariants: the high watermark never goes back while this broker leads; it never passes the end of any in-sync
replica; a consumer is shown nothing at or beyond it. With this broker alone in the ISR it is the end of the log; while
``flush.messages`` wants a flush, it is where the last flush ended.
"""

from __future__ import annotations

from uuid import UUID

from sparklog.errors import ApiError, ErrorCode
from sparklog.log.log import Appended, Log
from sparklog.log.origin import AppendOrigin, Verification
from sparklog.log.segments import LogPosition
from sparklog.log.validator import PreparedBatch
from sparklog.protocol.wire import ZERO_UUID
from sparklog.structs import NO_LEADER, IsolationLevel, OffsetAndEpoch, TopicPartition
from sparklog.zk.znodes import PartitionState

_ALL_COMMITTED = -1


class Partition:
    """Changed by LeaderAndIsr requests and by appends, on the broker's one thread."""

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
        """Raises ApiError if the topic bears another id than the one meant; the zero id stands for any."""
        if topic_id != self.topic_id and topic_id != ZERO_UUID and self.topic_id is not None:
            raise ApiError(ErrorCode.INCONSISTENT_TOPIC_ID, f"{self.tp} belongs to topic {self.topic_id}")

    def check_deletion(self, before: int) -> int:
        """The offset below which a client may have the records deleted who asks for ``before`` (-1: all committed).

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

    def _check_in_sync(self) -> None:
        """More replicas than the partition has nobody can ask for (Kafka 3.9, ``Partition.effectiveMinIsr``)."""
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
