"""All partitions that this broker holds, and the way in and out of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Generator, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import UUID

from sparklog.clock import Clock, SystemClock
from sparklog.config.topic import TopicConfig
from sparklog.errors import (
    ApiError,
    CorruptRecord,
    DiskFull,
    ErrorCode,
    InconsistentTopicId,
    LogClosed,
    LogDirFailed,
    LogError,
)
from sparklog.log.directories.departures import Departure
from sparklog.log.directories.making import MadePartition, NewPartition
from sparklog.log.directories.manager import LogManager
from sparklog.log.directories.usage import DirectoryRoom, DirectoryUse
from sparklog.log.durability import Flushes
from sparklog.log.files import disk_refused
from sparklog.log.log import Appended, Log
from sparklog.log.origin import AppendOrigin, Verification
from sparklog.log.segments import LogPosition
from sparklog.log.validator import PreparedBatch
from sparklog.rate_limit import RateLimitedLogger
from sparklog.replica.caught_up_state import CaughtUpState
from sparklog.replica.following import Following
from sparklog.replica.future import FutureReplicas
from sparklog.replica.in_sync import Proposal
from sparklog.replica.partition import NO_REPLICA, Partition, PartitionRead
from sparklog.replica.purgatory import Purgatory
from sparklog.replica.retention import Retention
from sparklog.replica.throttle import ReplicationThrottle, names_replica
from sparklog.replica.traffic import Traffic
from sparklog.structs import NO_LEADER, IsolationLevel, TopicPartition
from sparklog.zk.znodes import PartitionState

_logger = logging.getLogger(__name__)

ENDLESS: Final = 1 << 31
"""More bytes than a request can ask for."""
_REFUSALS_TOLD = 100
"""In ten seconds."""


class Follower(NamedTuple):
    """A broker that asks as a replica, and the epoch of its registration; -1 where it does not say."""

    id: int
    epoch: int = -1


class ReplicaFetch(NamedTuple):
    """What a follower asks of one partition."""

    offset: int
    """It has all before."""
    latest_epoch: int
    """The leader epoch of the last batch that it has; -1 without any."""
    leader_epoch: int
    """Under which it believes to follow."""
    max_bytes: int
    log_start_offset: int = -1
    """Where its log begins; -1 where it does not say."""


class ReplicaManager:
    """Single-threaded; every method returns without waiting for disk or network beyond the page cache.

    What ``flush.messages`` wants flushed is flushed on the disk thread, one flush of a log at a time: appends that come
    meanwhile share the next.
    """

    def __init__(
        self,
        broker_id: int,
        logs: LogManager,
        loop: asyncio.AbstractEventLoop,
        *,
        clock: Clock | None = None,
        max_lag_ms: int = 30_000,
        throttle_windows: tuple[int, int] = (11, 1000),
        moving_threads: int = 1,
    ) -> None:
        """A follower that has not been at its leader's end for ``max_lag_ms`` is no longer in sync. Throttled copying
        is measured over so many windows of so many ms.
        """
        self.broker_id = broker_id
        self._logs = logs
        self._clock = clock or SystemClock()
        self._warnings = RateLimitedLogger(_logger, self._clock.monotonic)
        self._max_lag_ms = max_lag_ms
        self.on_proposal: Callable[[TopicPartition, Proposal], None] = lambda _tp, _proposal: None
        """Told of each change of an ISR that the controller is to write."""
        self.lives: Callable[[int], bool] = lambda _broker_id: True
        """Whether the cluster has a broker: one that is gone is not waited for as one that is about to join an ISR."""
        self.leader_throttle = ReplicationThrottle(self._clock, *throttle_windows)
        """For what is sent to followers that are not in sync."""
        self.follower_throttle = ReplicationThrottle(self._clock, *throttle_windows)
        """For what is copied from leaders while not in sync."""
        self.traffic = Traffic()
        self.isr_shrinks = self.isr_expands = self.isr_refusals = 0
        """ISRs that the controller has written as leaders here proposed them, and proposals that it has refused."""
        self._partitions: dict[TopicPartition, Partition] = {}
        self._departing: set[TopicPartition] = set()
        self._loop = loop
        self.flushing: dict[Partition, asyncio.Future[BaseException | None]] = {}
        """The flushes under way; not to be changed."""
        self.fetch_purgatory = Purgatory(loop)
        self.produce_purgatory = Purgatory(loop)
        self.deletion_purgatory = Purgatory(loop)
        """Of requests that wait for the low watermark of partitions."""
        self.changing = asyncio.Lock()
        """Held while partitions are made, taken away or cut over more than one turn of the loop."""
        self.following = Following(self, logs, self._clock)
        self.retention = Retention(self._clock)
        self.futures = FutureReplicas(self, logs, loop, self._clock, moving_threads)

    def partition(self, tp: TopicPartition) -> Partition:
        """Raises ApiError: UNKNOWN_TOPIC_OR_PARTITION if it is not here, KAFKA_STORAGE_ERROR if its disk failed."""
        found = self._partitions.get(tp)
        if found is None:
            if tp in self._logs.unusable and tp not in self._departing:
                raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{tp} is not served: {self._logs.unusable[tp]}")
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"broker {self.broker_id} does not hold {tp}")
        return found

    def leads(self, tp: TopicPartition) -> bool:
        found = self._partitions.get(tp)
        return found is not None and found.is_leader

    def leader_epoch(self, tp: TopicPartition) -> int:
        """Under which the partition is led or followed here; -1 if it is not."""
        return self.epoch_and_leader(tp)[0]

    def epoch_and_leader(self, tp: TopicPartition) -> tuple[int, int]:
        """The partition's leader epoch and leader, as the controller last told; -1 and nobody if it is not here."""
        found = self._partitions.get(tp)
        return (-1, int(NO_LEADER)) if found is None else (found.leader_epoch, found.leader)

    def apply(
        self,
        tp: TopicPartition,
        state: PartitionState,
        config: TopicConfig | None,
        topic_id: UUID | None,
        *,
        replicas: Sequence[int] = (),
        is_new: bool = True,
        made: MadePartition | None = None,
    ) -> ErrorCode:
        """Lead or follow the partition as the controller decided; one that ``is_new`` may be made here, unless it was
        ``made`` ahead. One that is here goes on with the settings that it has; any other is to have some.

        INCONSISTENT_TOPIC_ID, with nothing changed, if what is here under that name is another topic's.
        """
        try:
            partition = self._partitions.get(tp)
            if partition is None:
                assert config is not None
                log = self._logs.get_or_create(tp, config, topic_id, is_new=is_new, made=made)
                log.config = config
                partition = self._partitions[tp] = Partition(
                    tp,
                    self.broker_id,
                    log,
                    topic_id,
                    high_watermark=log.high_watermark,
                    clock=self._clock,
                    max_lag_ms=self._max_lag_ms,
                    lives=lambda broker_id: self.lives(broker_id),
                )
                partition.traffic = self.traffic.enter(tp.topic)
            if topic_id is not None:
                partition.check_topic(topic_id)
            before = partition.leader, partition.leader_epoch, partition.high_watermark.offset
            taken = partition.apply(state, replicas)
            self.futures.resume(tp)
            if before != (partition.leader, partition.leader_epoch, partition.high_watermark.offset):
                self._wake(tp)
            return ErrorCode.NONE if taken else ErrorCode.STALE_CONTROLLER_EPOCH
        except (ApiError, InconsistentTopicId) as error:
            _logger.error("%s is not served: %s", tp, error)
            return error.code
        except (LogError, OSError) as error:
            self._say("cannot open", tp, error)
            self._report(error, tp, self._logs.logs.get(tp))
            return ErrorCode.KAFKA_STORAGE_ERROR

    def stop(self, tp: TopicPartition, *, delete: bool) -> ErrorCode:
        """Serve the partition no longer; with ``delete`` its log goes too. Requests that wait for it are woken.

        KAFKA_STORAGE_ERROR if the log is still there, for the disk refused: it is served no longer, and ``stop`` may be
        tried again.
        """
        return self._leave(tp, self._logs.delete if delete else None)

    def set_aside(self, tp: TopicPartition, why: str) -> ErrorCode:
        """As ``stop`` with ``delete``, for a partition that the cluster does not know: its files are kept aside."""
        return self._leave(tp, lambda tp: self._logs.set_aside(tp, why))

    def _leave(self, tp: TopicPartition, take_away: Callable[[TopicPartition], None] | None) -> ErrorCode:
        self._unserve(tp)
        code = ErrorCode.NONE
        try:
            if take_away is not None:
                take_away(tp)
        except LogDirFailed as error:
            code = self._still_there(tp, error)
        self._wake(tp)
        return code

    def _unserve(self, tp: TopicPartition) -> None:
        self.futures.leave(tp)
        partition = self._partitions.pop(tp, None)
        if partition is not None:
            partition.leave()
            self.traffic.leave(tp.topic)

    def moved(self, tp: TopicPartition, log: Log) -> None:
        """The partition lies in another log directory from now on; requests that wait for it are looked at anew."""
        self._partitions[tp].stand_on(log)
        self._wake(tp)

    def _wake(self, tp: TopicPartition) -> None:
        self.fetch_purgatory.check(tp)
        self.produce_purgatory.check(tp)
        self.deletion_purgatory.check(tp)

    @staticmethod
    def _still_there(tp: TopicPartition, error: LogDirFailed) -> ErrorCode:
        _logger.error("%s is served no longer, but its log is still there: %s", tp, error)
        return error.code

    @property
    def served(self) -> list[Partition]:
        """All that are here, led and followed."""
        return list(self._partitions.values())

    def holds(self, tp: TopicPartition) -> bool:
        """Whether the partition is served here, as its leader or as a follower."""
        return tp in self._partitions

    def plan(self, asked: Iterable[NewPartition]) -> Callable[[], dict[TopicPartition, MadePartition]]:
        """What makes those of the partitions that are not here, on another thread: for ``apply``, or ``discard``."""
        return self._logs.plan(each for each in asked if each.tp not in self._partitions)

    def discard(self, unwanted: Mapping[TopicPartition, MadePartition]) -> None:
        """Remove what was made and not applied; on any thread."""
        self._logs.discard(unwanted)

    def depart(self, tp: TopicPartition, why: str | None) -> Departure:
        """As ``stop`` with ``delete``, or as ``set_aside`` if there is a reason why, in three parts: this, then
        ``rename_away`` on any thread, then ``departed``.
        """
        self._unserve(tp)
        self._departing.add(tp)
        return self._logs.depart(tp, why)

    def rename_away(self, departures: Iterable[Departure]) -> None:
        """Give the partitions' directories their last names; on any thread."""
        self._logs.rename_away(departures)

    def departed(self, departure: Departure) -> ErrorCode:
        """What ``stop`` answers. Requests that wait for the partition are woken."""
        code = ErrorCode.NONE
        self._departing.discard(departure.tp)
        try:
            self._logs.departed(departure)
        except LogDirFailed as error:
            code = self._still_there(departure.tp, error)
        self._wake(departure.tp)
        return code

    def strays(self, named: Collection[TopicPartition]) -> dict[TopicPartition, UUID | None]:
        """The partitions that are here and not among those ``named``, with the topic id that each bears on the disk."""
        here = {*self._logs.logs, *self._logs.unusable}
        return {tp: self.topic_id(tp) for tp in sorted(here.difference(named))}

    def topic_id(self, tp: TopicPartition) -> UUID | None:
        """Which topic the partition that is here belongs to, as its directory says; None if it does not."""
        return self._logs.topic_id(tp)

    def log_end(self, tp: TopicPartition, topic_id: UUID | None) -> tuple[int, int]:
        """The leader epoch of the last record of the log that is here, or was (-1 if unknown), and the log end offset.

        Raises ApiError: KAFKA_STORAGE_ERROR if it cannot be served, or may lie in a directory that is out of service;
        UNKNOWN_TOPIC_OR_PARTITION if there is none of the topic with that id.
        """
        log = self._logs.logs.get(tp)
        if log is None and tp in self._logs.unusable:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, self._logs.unusable[tp])
        if log is None or log.topic_id not in (None, topic_id):
            if self._logs.dirs.failed:
                raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{tp} may lie in a directory that is out of service")
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"nothing of {tp} is here")
        end = log.log_end_offset
        return log.epochs.epoch_at(max(end - 1, log.log_start_offset)), end

    def _say(self, what: str, tp: TopicPartition, error: LogError | OSError) -> None:
        """Of a disk that is full or out of service the log tells by directory, not by partition."""
        if not isinstance(error, DiskFull) and not self._logs.unusable.is_out_of_service(tp):
            _logger.error("%s %s: %s", what, tp, error)

    def _report(self, error: LogError | OSError, tp: TopicPartition, log: Log | None) -> None:
        """If it is the disk that refused, its log directory has failed."""
        failure = disk_refused(f"cannot open {tp}", error) if isinstance(error, OSError) else error
        if log is not None and isinstance(failure, LogDirFailed):
            self._logs.report(failure, log.directory)

    def refused(self, partition: Partition, error: LogError | OSError) -> ApiError:
        """The error to raise where the disk, or the partition's log, refused something; a failed disk is reported."""
        self._report(error, partition.tp, partition.log)
        return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))

    def append(
        self,
        tp: TopicPartition,
        records: memoryview | PreparedBatch,
        required_acks: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        verification: Verification | None = None,
    ) -> Appended:
        """Append as leader and wake the readers that wait for it. Raises ApiError with the code to answer."""
        partition = self.partition(tp)
        traffic = partition.traffic
        traffic.produces += 1
        try:
            appended = partition.append_as_leader(records, required_acks, origin, verification)
        except (LogDirFailed, LogClosed) as error:
            traffic.failed_produces += 1
            if isinstance(error, LogDirFailed):
                self._logs.report(error, partition.log.directory)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        traffic.records_in += appended.last_offset - appended.first_offset + 1
        traffic.bytes_in += len(records.records if isinstance(records, PreparedBatch) else records)
        self._logs.written(partition.log.directory)
        if partition.log.awaits_flush:
            self._flush(partition)
        self.fetch_purgatory.check(tp)
        return appended

    def adopted(self, partition: Partition) -> None:
        """Its log has adopted segments; the readers that wait for it are woken."""
        partition.adopted()
        if partition.log.awaits_flush:
            self._flush(partition)
        self.fetch_purgatory.check(partition.tp)

    def _flush(self, partition: Partition) -> asyncio.Future[BaseException | None]:
        """Done, with what went wrong, when the flush is over that is under way, or begins now."""
        over = self.flushing.get(partition)
        if over is None:
            over = self.flushing[partition] = self._loop.create_future()
            flush = asyncio.wrap_future(self._logs.start_flush(partition.log), loop=self._loop)
            flush.add_done_callback(lambda flush: over.set_result(self._flushed(partition, flush)))
        return over

    def _flushed(self, partition: Partition, flush: asyncio.Future[None]) -> BaseException | None:
        """Requests from now on are served by another flush; returns what went wrong with this one."""
        del self.flushing[partition]
        error = asyncio.CancelledError() if flush.cancelled() else flush.exception()
        if error is None and self._partitions.get(partition.tp) is partition:
            self._show(partition)
            if partition.log.awaits_flush:
                self._flush(partition)
        return error

    def show(self, tp: TopicPartition) -> None:
        """Let be seen what is on the disk of a partition that awaits no flush."""
        self._show(self.partition(tp))

    def _show(self, partition: Partition) -> None:
        """Let be seen what is on the disk."""
        partition.flushed()
        self._wake(partition.tp)

    async def flushed(self, tp: TopicPartition, end: int) -> None:
        """Return when all below ``end`` is on the disk, and may be seen as far as that goes. Raises ApiError if that
        will not be.
        """
        partition = self.partition(tp)
        while partition.log.recovery_point < end:
            error = await asyncio.shield(self._flush(partition))
            if error is not None:
                raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
            if self.partition(tp) is not partition or partition.log_end_offset < end:
                raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{tp} was cut off below offset {end}")
        if partition.high_watermark.offset < end:
            self._show(partition)

    def append_replicated(
        self, tp: TopicPartition, batch: bytes, timeout_ms: int, origin: AppendOrigin = AppendOrigin.COORDINATOR
    ) -> Coroutine[Any, Any, None]:
        """Append a coordinator's batch now; to be awaited until every in-sync replica has it, and those are enough for
        ``min.insync.replicas``. Both raise ApiError, the second REQUEST_TIMED_OUT if the replicas do not follow within
        ``timeout_ms`` from now, whenever it is awaited.
        """
        appended = self.append(tp, memoryview(bytearray(batch)), -1, origin)
        held = self.partition(tp)
        return self._replicated(tp, held, held.leader_epoch, appended.last_offset, timeout_ms)

    async def replicated(self, tp: TopicPartition, leader_epoch: int, offset: int, timeout_ms: int) -> None:
        """Return when every in-sync replica has ``offset``, written under this epoch. Raises ApiError, as above."""
        await self._replicated(tp, self.partition(tp), leader_epoch, offset, timeout_ms)

    def _replicated(
        self, tp: TopicPartition, held: Partition, leader_epoch: int, offset: int, timeout_ms: int
    ) -> Coroutine[Any, Any, None]:
        """The time begins now."""

        def is_settled(_: TopicPartition) -> bool:
            return held.is_committed(offset) or not held.still_leads(leader_epoch)

        waiting = None if is_settled(tp) else self.produce_purgatory.wait([tp], is_settled, timeout_ms)
        return self._settled(tp, held, leader_epoch, offset, waiting)

    async def _settled(
        self, tp: TopicPartition, held: Partition, leader_epoch: int, offset: int, waiting: asyncio.Future[bool] | None
    ) -> None:
        if waiting is not None:
            await waiting
        if not held.still_leads(leader_epoch):
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{tp} has another leader since")
        if not held.is_committed(offset):
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"{tp} was not replicated in time")

    # Followers of this broker

    def read_as_follower(
        self,
        tp: TopicPartition,
        topic_id: UUID | None,
        follower: Follower,
        asked: ReplicaFetch,
        *,
        min_one_batch: bool,
        is_news: bool,
    ) -> PartitionRead:
        """What a follower gets. Where it ``is_news`` that it has come so far, what all have now that are in sync is
        committed. Raises ApiError with the code to answer.
        """
        partition = self.partition(tp)
        if topic_id is not None:
            partition.check_topic(topic_id)
        partition.check_leader(asked.leader_epoch)
        self._check_follower(partition, follower, asked.leader_epoch)
        diverging = partition.divergence(asked.offset, asked.latest_epoch)
        if diverging is None:
            if is_news:
                self._has_fetched(partition, follower, asked)
            return self._read(partition, asked.offset, asked.max_bytes, None, min_one_batch=min_one_batch)
        return partition.unread(diverging)

    def is_throttled(self, tp: TopicPartition) -> bool:
        """Whether what is sent of the partition to followers counts for ``leader_throttle``, or what is copied of it
        for ``follower_throttle``.
        """
        partition = self._partitions.get(tp)
        if partition is None:
            return False
        config = partition.log.config
        throttled = (
            config.leader_replication_throttled_replicas
            if partition.is_leader
            else config.follower_replication_throttled_replicas
        )
        return names_replica(throttled, tp.partition, self.broker_id)

    def holds_back(self, tp: TopicPartition, follower: int) -> bool:
        """Whether a follower is to be sent nothing of a throttled partition for now; one in sync is never kept waiting.

        Source: Kafka 3.9, ``ReplicaManager.shouldLeaderThrottle``.
        """
        partition = self._partitions.get(tp)
        return partition is not None and follower not in partition.isr and self.leader_throttle.is_exceeded()

    def _check_follower(self, partition: Partition, follower: Follower, leader_epoch: int) -> None:
        """Raises ApiError, and says so in the log."""
        try:
            partition.check_follower(follower.id, follower.epoch, leader_epoch)
        except ApiError as error:
            self._warnings.warn(error.code.name, f"refused a fetch of a replica: {error}", most=_REFUSALS_TOLD)
            raise

    def _has_fetched(self, partition: Partition, follower: Follower, asked: ReplicaFetch) -> None:
        if partition.fetched(follower.id, asked.offset, follower.epoch, asked.log_start_offset):
            self._wake(partition.tp)
        self.deletion_purgatory.check(partition.tp)
        proposal = partition.wants_to_join(follower.id)
        if proposal is not None:
            self.on_proposal(partition.tp, proposal)

    def leave_out_lagging(self) -> Generator[None, None, None]:
        """Propose to shrink each ISR by the followers that lag, and wait no longer for others that do; a partition a
        step.
        """
        for tp, partition in list(self._partitions.items()):
            if self._partitions.get(tp) is partition:
                if partition.look_again():
                    self._wake(tp)
                self.deletion_purgatory.check(tp)
                proposal = partition.leave_out_lagging()
                if proposal is not None:
                    self.on_proposal(tp, proposal)
            yield

    def settle(self, tp: TopicPartition, proposal: Proposal, isr: Sequence[int], partition_epoch: int) -> None:
        """The controller has written the ISR."""
        partition = self._partitions.get(tp)
        if partition is not None:
            before = len(partition.isr)
            partition.settle(proposal, isr, partition_epoch)
            self.isr_shrinks += len(partition.isr) < before
            self.isr_expands += len(partition.isr) > before
            self._wake(tp)

    def proposes(self, tp: TopicPartition, proposal: Proposal) -> bool:
        """Whether the partition still waits for the controller's answer to this proposal."""
        partition = self._partitions.get(tp)
        return partition is not None and partition.proposes(proposal)

    def give_up(self, tp: TopicPartition, proposal: Proposal) -> None:
        """The controller refuses the change of the ISR."""
        partition = self._partitions.get(tp)
        if partition is not None:
            self.isr_refusals += partition.proposes(proposal)
            partition.give_up(proposal)

    def topics(self) -> set[str]:
        """The topics of which a partition is held here."""
        return {tp.topic for tp in self._partitions}

    def configure(self, topic: str, config: TopicConfig) -> None:
        """Put other settings in force for the topic's partitions."""
        for tp, partition in self._partitions.items():
            if tp.topic == topic:
                partition.log.config = config
                if partition.look_again():
                    self._wake(tp)

    def remember_producers(self, expiration_ms: int) -> None:
        """Forget a producer, from now on, when it has been silent for so long."""
        self._logs.remember_producers(expiration_ms)

    def delete_records(self, tp: TopicPartition, before: int) -> int:
        """Let the partition begin at offset ``before`` (-1: at its high watermark): after a crash too, as soon as one
        of ``start_checkpoints`` of later has been written, and under another leader as soon as ``low_watermark`` has
        come so far.

        Returns where it begins here now: no earlier, for nothing comes back. Raises ApiError with the code to answer.
        """
        partition = self.partition(tp)
        offset = partition.check_deletion(before)
        try:
            self._logs.advance_start(tp, offset)
        except LogDirFailed as error:
            self._logs.report(error, partition.log.directory)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        return partition.log.log_start_offset

    def low_watermark(self, tp: TopicPartition) -> int:
        """Below it no replica that lives has a record of the partition any more; -1 while that is not known. Raises
        ApiError unless this broker leads.
        """
        partition = self.partition(tp)
        partition.check_leader()
        return partition.low_watermark

    def start_checkpoints(self) -> list[tuple[Path, Callable[[], None], Callable[[LogDirFailed], None]]]:
        """What makes durable where the partitions begin now: by log directory a write for another thread, in their
        order, and what is to be told on this one if it raised LogDirFailed.
        """
        checkpoints = self._logs.checkpoints()
        return [(path.parent, write, partial(self._logs.report, directory=path)) for path, write in checkpoints]

    def log_dirs(self) -> Generator[None, None, list[DirectoryUse]]:
        """The broker's log directories and what lies in them; steps."""
        return self._logs.usage()

    @property
    def flushes(self) -> Flushes:
        """Of all logs, since the broker started."""
        return self._logs.flushes

    def rooms(self) -> list[DirectoryRoom]:
        """How large the disk of each log directory is, and how much of it is free; those that failed left out."""
        return self._logs.dirs.rooms()

    def forget_unusable(self) -> list[TopicPartition]:
        """Serve no more the partitions whose disk has failed; requests that wait for them are woken. Returns which."""
        gone = [tp for tp in self._partitions if tp in self._logs.unusable]
        for tp in gone:
            self.stop(tp, delete=False)
        return gone

    def read(
        self,
        tp: TopicPartition,
        topic_id: UUID | None,
        offset: int,
        max_bytes: int,
        isolation: IsolationLevel,
        *,
        leader_epoch: int = -1,
        of_leader: bool = True,
        min_one_batch: bool,
    ) -> PartitionRead:
        """What a consumer gets of the partition from ``offset`` on; unless it is to be ``of_leader``, followers give it
        too, as far as they know it to be committed.

        Raises ApiError with the code to answer, also where ``topic_id`` or ``leader_epoch`` (-1) is said and another.
        """
        partition = self.partition(tp)
        if topic_id is not None:
            partition.check_topic(topic_id)
        if of_leader:
            partition.check_leader(leader_epoch)
        else:
            partition.check_epoch(leader_epoch)
        return self._read(partition, offset, max_bytes, isolation, min_one_batch=min_one_batch)

    def sent_away(
        self,
        tp: TopicPartition,
        topic_id: UUID | None,
        offset: int,
        rack: str,
        rack_of: Callable[[int], str | None],
        *,
        leader_epoch: int = -1,
    ) -> PartitionRead | None:
        """What a consumer in ``rack`` is told that a follower there is to serve; None if it is to be served here.

        Raises ApiError with the code to answer.
        """
        partition = self.partition(tp)
        preferred = partition.preferred_replica(offset, rack, rack_of)
        if preferred == NO_REPLICA:
            return None
        if topic_id is not None:
            partition.check_topic(topic_id)
        partition.check_leader(leader_epoch)
        return partition.unread(preferred=preferred)

    def _read(
        self,
        partition: Partition,
        offset: int,
        max_bytes: int,
        isolation: IsolationLevel | None,
        *,
        min_one_batch: bool,
    ) -> PartitionRead:
        if partition.tp in self._logs.being_cut:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{partition.tp} is being cut to its leader's log")
        partition.traffic.fetches += 1
        try:
            return partition.read(offset, max_bytes, isolation, min_one_batch=min_one_batch)
        except LogClosed as error:
            partition.traffic.failed_fetches += 1
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        except (CorruptRecord, OSError) as error:
            self._cannot_read(partition, offset, error)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

    def _cannot_read(self, partition: Partition, offset: int, error: CorruptRecord | OSError) -> None:
        """Damage concerns one partition; a disk that cannot be read takes its log directory out of service."""
        partition.traffic.failed_fetches += 1
        _logger.error("cannot read %s at offset %d: %s", partition.tp, offset, error)
        if isinstance(error, OSError):
            self._logs.report(disk_refused("cannot read", error), partition.log.directory)

    def caught_up(
        self, tp: TopicPartition, bound: LogPosition, follower: Follower | None = None
    ) -> CaughtUpState | None:
        """What to compare with later, of a reader that has been told all up to ``bound``, and has nothing left to
        read there; None of a follower that is not in sync: each time that it asks, it may join.
        """
        partition = self._partitions.get(tp)
        if partition is None:
            return None
        if follower is None:
            return CaughtUpState(partition, bound)
        progress = partition.progress_of(follower.id)
        return None if progress is None else CaughtUpState(partition, bound, progress)

    def start_of_readable(self, tp: TopicPartition, offset: int, bound: LogPosition) -> LogPosition:
        """Where the first batch begins that a reader from ``offset`` on may see; ``bound`` where there is none."""
        partition = self._partitions.get(tp)
        if partition is None or offset == bound.offset:
            return bound
        try:
            return partition.start_of_readable(offset, bound)
        except (LogClosed, CorruptRecord, OSError):  # whoever reads it is told
            return bound

    def available(
        self,
        tp: TopicPartition,
        since: LogPosition,
        isolation: IsolationLevel | None,
        *,
        leader_epoch: int = -1,
        of_leader: bool = True,
    ) -> int:
        """Bytes that may be seen from ``since`` on; ENDLESS from an earlier segment, and where a reader is refused."""
        partition = self._partitions.get(tp)
        if partition is None or (of_leader and not partition.is_leader):
            return ENDLESS
        if 0 <= leader_epoch != partition.leader_epoch:
            return ENDLESS
        try:
            bound = partition.bound(isolation)
        except (LogClosed, CorruptRecord, OSError):
            return ENDLESS
        if bound.offset <= since.offset:
            return 0 if since.offset <= partition.log_end_offset else ENDLESS
        if bound.segment_base != since.segment_base:
            return ENDLESS
        return bound.position - since.position

    def shows_until(self, tp: TopicPartition) -> int:
        """The high watermark; -1 of a partition that is not here."""
        partition = self._partitions.get(tp)
        return -1 if partition is None else partition.high_watermark.offset

    def bytes_from(self, tp: TopicPartition, offset: int) -> int:
        """Bytes from ``offset`` to the high watermark; -1 of a partition that is not here, or whose log is closed."""
        partition = self._partitions.get(tp)
        if partition is None:
            return -1
        try:
            return partition.bytes_from(offset)
        except LogClosed:
            return -1

    def apply_retention(self) -> Generator[None, None, None]:
        """Delete the segments that their topics' retention no longer wants, and the files deleted long enough ago; some
        segments of one partition, or a file, a step.
        """
        for tp, partition in list(self._partitions.items()):
            try:
                while self._partitions.get(tp) is partition and tp not in self._logs.being_cut:
                    policies = self.retention.given_up(partition)
                    more = self._logs.delete_old_segments(tp, partition.high_watermark.offset, policies)
                    yield
                    if not more:
                        break
            except LogError as error:
                self._say("cannot apply the retention of", tp, error)
                self._report(error, tp, partition.log)
        yield from self._logs.unlink_due()

    @property
    def led_with_others(self) -> set[TopicPartition]:
        """The partitions that this broker leads, and others could."""
        return {tp for tp, each in self._partitions.items() if each.is_leader and len(each.isr) > 1}

    @property
    def failed_dirs(self) -> int:
        """How many log directories are out of service."""
        return len(self._logs.dirs.failed)

    @property
    def offline_count(self) -> int:
        """How many partitions are here that cannot be served."""
        return len(self._logs.unusable)

    @property
    def leader_count(self) -> int:
        return sum(partition.is_leader for partition in self._partitions.values())
