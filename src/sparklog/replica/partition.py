"""One partition as this broker holds it, as its leader or as a follower: in-sync replicas, high watermark.

Invariants: the high watermark never goes back while this broker leads; it never passes the end of any in-sync
replica; a consumer is shown nothing at or beyond it. Where there is one replica it is the end of the log; while
``flush.messages`` wants a flush, it is not beyond where the last flush ended. More: ``docs/adr/0019-replicas.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Final
from uuid import UUID

from sparklog.clock import Clock, SystemClock, monotonic_ms
from sparklog.config.topic import TopicConfig
from sparklog.errors import ApiError, ErrorCode
from sparklog.log.extents import Extents
from sparklog.log.indexes.transaction_index import AbortedTransaction
from sparklog.log.lease import Lease
from sparklog.log.log import Appended, Log
from sparklog.log.origin import AppendOrigin, Verification
from sparklog.log.producer_snapshot import ProducerEntry
from sparklog.log.retention import SegmentView
from sparklog.log.search import Search
from sparklog.log.segments import LogPosition
from sparklog.log.validator import PreparedBatch
from sparklog.replica.in_sync import UNKNOWN, FollowerProgress, InSyncReplicas, Proposal
from sparklog.replica.traffic import TopicTraffic
from sparklog.structs import NO_LEADER, FileSlice, IsolationLevel, OffsetAndEpoch, TopicPartition
from sparklog.zk.znodes import PartitionState

NO_REPLICA: Final = -1
_ALL_COMMITTED = -1


class PartitionRead:
    """What a read gave, and how far it could see. Not to be changed."""

    __slots__ = (
        "aborted",
        "bound",
        "diverging",
        "high_watermark",
        "last_stable_offset",
        "log_start_offset",
        "preferred",
        "records",
    )

    def __init__(
        self,
        records: FileSlice | None,
        aborted: list[AbortedTransaction] | None,
        bound: LogPosition,
        high_watermark: int,
        last_stable_offset: int,
        log_start_offset: int,
        diverging: OffsetAndEpoch | None = None,
        preferred: int = NO_REPLICA,
    ) -> None:
        self.records = records
        """Whole batches but for the last one; None without any."""
        self.aborted = aborted
        """What of ``records`` a read_committed reader must leave out; None for any other."""
        self.bound = bound
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_start_offset = log_start_offset
        self.diverging = diverging
        """Where the follower's history leaves the leader's: the last epoch that both may have, and its end here."""
        self.preferred = preferred
        """The broker that the consumer is to ask instead; NO_REPLICA for none."""


class Partition:
    """Changed by LeaderAndIsr requests, appends and followers' fetches, on the broker's one thread.

    ``log`` is for this package: other packages ask the partition, by a method of its own.
    """

    def __init__(
        self,
        tp: TopicPartition,
        broker_id: int,
        log: Log,
        topic_id: UUID | None = None,
        *,
        high_watermark: int = 0,
        clock: Clock | None = None,
        max_lag_ms: int = 30_000,
        lives: Callable[[int], bool] = lambda _: True,
    ) -> None:
        """``high_watermark`` as the last checkpoint knew it; a follower that was silent for ``max_lag_ms`` lags.
        ``lives`` says of a broker whether the cluster has it.
        """
        self.tp = tp
        self.topic_id = topic_id
        self.log = log
        self._broker_id = broker_id
        self._clock = clock or SystemClock()
        self._max_lag_ms = max_lag_ms
        self._lives = lives
        self.traffic = TopicTraffic()
        """What is counted of all partitions of the topic that are here."""
        self.leader = int(NO_LEADER)
        self.leader_epoch = -1
        self.is_here = True
        """Until another object, or none, stands for the partition."""
        self.replicas: tuple[int, ...] = (broker_id,)
        self._isr: tuple[int, ...] = ()
        self._in_sync: InSyncReplicas | None = None  # while this broker leads
        known = min(max(high_watermark, log.log_start_offset), log.log_end_offset)
        self._high_watermark = log.position_of(known)
        self._replacements = log.replacements

    def stand_on(self, log: Log) -> None:
        """The same log in another directory is the partition's from now on."""
        self.log = log
        self._replacements = log.replacements
        self._advance_to(log.position_of(self._high_watermark.offset))

    def leave(self) -> None:
        """The partition is served here no longer."""
        self.leader, self.is_here = int(NO_LEADER), False

    @property
    def is_leader(self) -> bool:
        return self.leader == self._broker_id

    @property
    def isr(self) -> tuple[int, ...]:
        """The replicas in sync, as ZooKeeper has them, as far as is known here."""
        return self._isr if self._in_sync is None else self._in_sync.isr

    @property
    def config(self) -> TopicConfig:
        """The topic's settings in force."""
        return self.log.config

    @property
    def extent(self) -> tuple[int, int, int, int]:
        """Of its log: bytes, start offset, end offset, segments."""
        log = self.log
        return log.size, log.log_start_offset, log.log_end_offset, log.segment_count

    @property
    def standing(self) -> tuple[int, int, int]:
        """How many replicas are in sync, how many must be for ``acks=all``, how many there are; the leader knows."""
        return len(self.isr), self.min_in_sync, len(self.replicas)

    @property
    def log_dir(self) -> Path:
        """The log directory of the broker in which the partition lies."""
        return self.log.directory.parent

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def low_watermark(self) -> int:
        """Where the replica begins that begins first of those that live, as far as the leader knows; UNKNOWN before all
        of them have said it.

        Source: Kafka 3.9, ``Partition.lowWatermarkIfLeader``.
        """
        followers = {} if self._in_sync is None else self._in_sync.followers
        starts = [progress.start_offset for replica, progress in followers.items() if self._lives(replica)]
        return min([self.log.log_start_offset, *starts])

    @property
    def log_end_offset(self) -> int:
        return self.log.log_end_offset

    def bytes_from(self, offset: int) -> int:
        """Bytes from ``offset`` to the high watermark, up to an interval of the index and a batch too many."""
        end = self._high_watermark
        return self.log.bytes_between(offset, end) if offset < end.offset else 0

    @property
    def high_watermark(self) -> LogPosition:
        return self._high_watermark

    @property
    def last_stable_offset(self) -> int:
        """The first offset that a read_committed reader may not see; without open transactions the high watermark."""
        unstable, committed = self.log.first_unstable_offset, self._high_watermark.offset
        return committed if unstable is None else min(unstable, committed)

    def apply(self, state: PartitionState, replicas: Sequence[int] = ()) -> bool:
        """Take over what the controller decided; False if a newer decision is known already.

        ``replicas``: the brokers that are to hold the partition, this one among them; without any it is this one alone.
        """
        if state.leader_epoch < self.leader_epoch:
            return False
        is_new_epoch = state.leader_epoch > self.leader_epoch
        if is_new_epoch and state.leader == self._broker_id:
            self.log.begin_epoch(state.leader_epoch)
        self.replicas = tuple(replicas) or (self._broker_id,)
        self.leader, self.leader_epoch = state.leader, state.leader_epoch
        if not self.is_leader:
            self._isr, self._in_sync = state.isr, None
        elif is_new_epoch or self._in_sync is None:
            self._lead(state)
        elif state.version > self._in_sync.partition_epoch:
            self._in_sync.settled(state.isr, state.version)
        self._advance()
        return True

    def _lead(self, state: PartitionState) -> None:
        before = self._in_sync
        if before is not None and state.leader_epoch > before.leader_epoch + 1:
            before = None  # another may have led between, and followers may have dropped what they had from here
        self._in_sync = InSyncReplicas(
            self._broker_id,
            state.leader_epoch,
            self.replicas,
            state.isr,
            partition_epoch=state.version,
            epoch_start=self.log.log_end_offset,
            now=monotonic_ms(self._clock),
            before=before,
        )

    def check_leader(self, current_leader_epoch: int = -1) -> None:
        """Raises ApiError if the asker's epoch is not the current one (-1: not said), or this broker does not lead."""
        self.check_epoch(current_leader_epoch)
        if not self.is_leader:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {self._broker_id} does not lead {self.tp}")

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Raises ApiError if the asker believes in another leader epoch (-1: it does not say)."""
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
        if required_acks == -1 and len(self.isr) < len(self.replicas):
            try:
                self.check_enough_in_sync()
            except ApiError as few:
                self.log.refused_for_now(records, few.code, origin)
                raise
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

    @property
    def min_in_sync(self) -> int:
        """How many replicas in sync ``acks=all`` needs. No more can be asked for than the partition has.

        Source: Kafka 3.9, ``Partition.effectiveMinIsr``.
        """
        return min(self.log.config.min_insync_replicas, len(self.replicas))

    @property
    def _least_to_show(self) -> int:
        """How many replicas must be in sync for readers to be shown more."""
        return 1 if self.log.config.min_isr_visibility == "immediate" else self.min_in_sync

    def check_enough_in_sync(self) -> None:
        """Raises ApiError(NOT_ENOUGH_REPLICAS) where a produce with acks=all is refused."""
        if len(self.isr) < self.min_in_sync:
            raise ApiError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{len(self.isr)} of the {len(self.replicas)} replicas of {self.tp} are in sync, "
                f"min.insync.replicas={self.log.config.min_insync_replicas}",
            )

    def adopted(self) -> None:
        """Segments are in the log now that were not; commit them where no other replica is in sync."""
        self._advance()

    @property
    def has_enough_in_sync(self) -> bool:
        """Whether what is committed now is on as many replicas as ``min.insync.replicas`` asks for.

        They are those of which ZooKeeper knows: before it knows of one that joins, another may be elected that has
        less. Kafka 3.9 counts that one too, but has no eligible replicas beside the ISR.
        """
        return self._in_sync is not None and len(self._in_sync.isr) >= self.min_in_sync

    def is_committed(self, offset: int) -> bool:
        """Whether as many replicas have the record as ``min.insync.replicas`` asks for; readers may be shown it before
        (``sparklog.min.isr.visibility``).
        """
        shown = self._high_watermark.offset > offset
        return shown and (self._least_to_show >= self.min_in_sync or self.has_enough_in_sync)

    def _advance(self) -> bool:
        """Raise the high watermark as far as it may be; whether it moved."""
        in_sync = self._in_sync
        if in_sync is None:
            return False
        if len(self.replicas) == 1:
            return not self.log.awaits_flush and in_sync.isr == self.replicas and self._advance_to(self.log.end)
        if not in_sync.may_show(self._least_to_show):
            return False
        now = monotonic_ms(self._clock)
        end = in_sync.common_end(self.log.log_end_offset, now, self._max_lag_ms, self._lives)
        if self.log.awaits_flush:
            end = min(end, self.log.recovery_point)
        return end > self._high_watermark.offset and self._advance_to(self.log.position_of(end))

    def _advance_to(self, end: LogPosition) -> bool:
        moved = end.offset > self._high_watermark.offset
        self._high_watermark = end
        self.log.on_high_watermark(end.offset)
        return moved

    def flushed(self) -> None:
        """More of the log is on the disk than before."""
        reached = self.log.recovery_point
        if self.isr == self.replicas == (self.leader,) and self.log.awaits_flush:
            if reached > self._high_watermark.offset:
                self._advance_to(self.log.position_of(reached))
        else:
            self._advance()

    # The leader and its followers

    def still_leads(self, leader_epoch: int) -> bool:
        """Whether this broker leads, under this epoch or one that followed without another leader between."""
        return self.is_leader and self._in_sync is not None and self._in_sync.first_epoch <= leader_epoch

    @property
    def knows_end(self) -> bool:
        """Whether the high watermark has reached what was there when this broker began to lead: clients may be told."""
        return self._in_sync is None or self._high_watermark.offset >= min(
            self._in_sync.epoch_start, self.log.log_end_offset
        )

    def check_follower(self, replica: int, broker_epoch: int, current_leader_epoch: int) -> None:
        """Raises ApiError unless the broker of this epoch follows here: NOT_LEADER_OR_FOLLOWER, or UNKNOWN_LEADER_EPOCH
        to one that names the current leader epoch, for it may know of more replicas than are known here.

        Source: Kafka 3.9, ``Partition.followerReplicaOrThrow``.
        """
        progress = None if self._in_sync is None else self._in_sync.followers.get(replica)
        if progress is None:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER if current_leader_epoch < 0 else ErrorCode.UNKNOWN_LEADER_EPOCH
            raise ApiError(code, f"broker {replica} is no follower of {self.tp}")
        if 0 <= broker_epoch < progress.broker_epoch:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {replica} has started again since")

    def fetched(self, replica: int, offset: int, broker_epoch: int, start: int = NO_REPLICA) -> bool:
        """A follower has asked for what is at ``offset``: it has all from ``start`` on, where it says so. Whether the
        high watermark has moved.
        """
        in_sync = self._in_sync
        if in_sync is None or not self.log.log_start_offset <= offset <= self.log.log_end_offset:
            return False
        now = monotonic_ms(self._clock)
        in_sync.followers[replica].fetched(offset, self.log.log_end_offset, now, broker_epoch, start)
        return offset > self._high_watermark.offset and self._advance()

    def progress_of(self, replica: int) -> FollowerProgress | None:
        """What is known of a follower that is in sync and has all that there is; else None."""
        in_sync = self._in_sync
        progress = None if in_sync is None or replica not in in_sync.isr else in_sync.followers.get(replica)
        return None if progress is None or progress.end_offset != self.log.log_end_offset else progress

    def preferred_replica(self, offset: int, rack: str, rack_of: Callable[[int], str | None]) -> int:
        """The follower that a consumer in ``rack`` is to read ``offset`` from; NO_REPLICA where it is this broker.

        Source: Kafka 3.9, ``RackAwareReplicaSelector``.
        """
        in_sync = self._in_sync
        if in_sync is None or rack_of(self._broker_id) == rack:
            return NO_REPLICA
        found = in_sync.furthest_with(offset, lambda replica: rack_of(replica) == rack)
        return NO_REPLICA if found is None else found

    def wants_to_join(self, replica: int) -> Proposal | None:
        """The change of the ISR that the follower is due, which is under way from now on; None if none is."""
        in_sync = self._in_sync
        if in_sync is None or in_sync.proposal is not None:
            return None
        if not in_sync.may_join(replica, self._high_watermark.offset):
            return None
        return in_sync.propose((*in_sync.isr, replica))

    def look_again(self) -> bool:
        """Time has passed, brokers have gone, or settings changed, so that fewer may count.

        Returns whether the high watermark has moved.
        """
        return self.uncommitted_end is not None and self._advance()

    def leave_out_lagging(self) -> Proposal | None:
        """The change of the ISR without those that lag, which is under way from now on; None if none does."""
        in_sync = self._in_sync
        if in_sync is None or in_sync.proposal is not None:
            return None
        lagging = in_sync.lagging(self.log.log_end_offset, monotonic_ms(self._clock), self._max_lag_ms)
        return in_sync.propose(each for each in in_sync.isr if each not in lagging) if lagging else None

    def settle(self, proposal: Proposal, isr: Sequence[int], partition_epoch: int) -> bool:
        """The controller has written the ISR. Whether the high watermark has moved."""
        in_sync = self._in_sync
        if in_sync is None or in_sync.proposal != proposal or partition_epoch <= in_sync.partition_epoch:
            return False
        in_sync.settled(isr, partition_epoch)
        return self._advance()

    def proposes(self, proposal: Proposal) -> bool:
        """Whether this change of the ISR is under way."""
        return self._in_sync is not None and self._in_sync.proposal == proposal

    def give_up(self, proposal: Proposal) -> None:
        """The controller refuses the change. One that is due may be proposed again."""
        if self._in_sync is not None and self._in_sync.proposal == proposal:
            self._in_sync.refused()

    def follower_lags(self) -> Iterator[tuple[int, int]]:
        """Each follower that has asked, and how many offsets it has yet to copy."""
        in_sync = self._in_sync
        if in_sync is not None:
            end = self.log.log_end_offset
            for replica, progress in in_sync.followers.items():
                if progress.end_offset != UNKNOWN:
                    yield replica, max(end - progress.end_offset, 0)

    def divergence(self, offset: int, last_epoch: int) -> OffsetAndEpoch | None:
        """Where a follower that has all before ``offset``, the last of it of ``last_epoch``, left this log's history;
        None if it has not. Raises ApiError(OFFSET_OUT_OF_RANGE) where nothing is known of that epoch.

        Source: Kafka 3.9, ``Partition.readRecords``.
        """
        if last_epoch < 0:
            return None
        end = self.end_offset_for_epoch(last_epoch)
        if end is None or end.epoch < 0 or offset < self.log.log_start_offset:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{self.tp} knows nothing of epoch {last_epoch} at {offset}")
        return end if end.epoch < last_epoch or end.offset < offset else None

    # The follower

    def check_follows(self, leader_epoch: int) -> None:
        """Raises ApiError(FENCED_LEADER_EPOCH) unless this broker follows the leader of this epoch."""
        if self.is_leader or self.leader_epoch != leader_epoch:
            raise ApiError(ErrorCode.FENCED_LEADER_EPOCH, f"{self.tp} is in epoch {self.leader_epoch} here")

    def append_as_follower(self, records: memoryview) -> None:
        """Write what the leader sent behind the end. Raises CorruptRecord, LogError or LogDirFailed."""
        self.log.append_as_follower(records)

    def follow(self, high_watermark: int, log_start_offset: int) -> bool:
        """Take over how far the leader's log may be seen, and where it begins, as far as there is so much here. Whether
        the high watermark has risen.

        A new leader may not know yet how far the last one was: what was shown here stays visible, unless it is cut off.
        Kafka's follower takes over the lower one, with a warning (``UnifiedLog.updateHighWatermarkMetadata``).

        Raises LogDirFailed if the disk refuses.
        """
        known = min(high_watermark, self.log.log_end_offset)
        moved = known > self._high_watermark.offset and self._advance_to(self.log.position_of(known))
        if self.log.log_start_offset < log_start_offset <= self._high_watermark.offset:
            self.log.advance_start(log_start_offset)
        return moved

    def shared_end(self, diverging: OffsetAndEpoch) -> int:
        """Where to cut a log of which the leader says that ``diverging`` is the last epoch that both may have.

        Source: Kafka 3.9, ``AbstractFetcherThread.getOffsetTruncationState``.
        """
        end = min(diverging.offset, self.log_end_offset)
        here = self.end_offset_for_epoch(diverging.epoch)
        if here is None:
            return end
        return min(end, here.offset) if here.epoch == diverging.epoch else min(here.offset, self.log_end_offset)

    def truncated(self) -> None:
        """The log ends where it did not: nothing is visible beyond."""
        end = self.log.log_end_offset
        if self._high_watermark.offset > end or self._high_watermark.offset < self.log.log_start_offset:
            self._high_watermark = self.log.position_of(max(end, self.log.log_start_offset))

    @property
    def latest_epoch(self) -> int:
        """The leader epoch of the last batch; -1 without any."""
        latest = self.log.epochs.latest
        return -1 if latest is None else latest.epoch

    def bound(self, isolation: IsolationLevel | None) -> LogPosition:
        """How far a consumer of this isolation level may see; a follower, which has none, sees all."""
        if isolation is None:
            return self.log.end
        if isolation is IsolationLevel.READ_COMMITTED:
            stable = self.last_stable_offset
            if stable < self._high_watermark.offset:
                return self.log.position_of(stable)
        if self._replacements != self.log.replacements:
            self._replacements = self.log.replacements
            self._high_watermark = self.log.position_of(self._high_watermark.offset)
        return self._high_watermark

    # Reading

    def unread(self, diverging: OffsetAndEpoch | None = None, preferred: int = NO_REPLICA) -> PartitionRead:
        """What a reader is told that is given no records, for it is to do something else first."""
        ends = self._high_watermark.offset, self.last_stable_offset, self.log.log_start_offset
        return PartitionRead(None, None, self._high_watermark, *ends, diverging, preferred)

    def read(
        self, offset: int, max_bytes: int, isolation: IsolationLevel | None, *, min_one_batch: bool
    ) -> PartitionRead:
        """What a consumer, or a follower, may see of the log from ``offset`` on.

        A consumer is not shown batches without records alone: librdkafka takes them for one that is too large for it.
        Raises ApiError(OFFSET_OUT_OF_RANGE), and LogClosed, CorruptRecord or OSError where the log cannot be read.
        """
        bound, is_consumer = self.bound(isolation), isolation is not None
        records = self.log.read(offset, max_bytes, bound, min_one_batch=min_one_batch, skips_empty=is_consumer)
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
        """Where the batch begins that holds ``offset`` or follows it; ``bound`` where that is not below it.

        An offset beyond the bound is one that another replica has shown already: nothing is readable until there.
        """
        found = self.log.position_of(offset)
        if offset > bound.offset:
            return found
        below = (found.segment_base, found.position) < (bound.segment_base, bound.position)
        return found if below else bound

    def segment_views(self) -> list[SegmentView]:
        """Of every segment where it begins and how new it is, the active one last."""
        return self.log.segment_views()

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
