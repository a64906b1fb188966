"""GroupCoordinator: one broker's share of the groups, driven by one event loop.

A group lives in the partition of ``__consumer_offsets`` that its id hashes to, and its coordinator is that partition's
leader. Everything here runs on the loop's thread, so nothing is locked: between two awaits a group does not change.
What the log must hold is appended in the order in which it was decided, and counts (an assignment, an offset) only once
the append has returned.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar
from uuid import uuid4

from sparklog.clock import Clock
from sparklog.config.broker import BrokerConfig
from sparklog.errors import ApiError, ErrorCode
from sparklog.group.loading import GroupLoader
from sparklog.group.machine import GroupMachine, GroupSettings
from sparklog.group.offsets import build_batch, group_record, offset_record, partition_for
from sparklog.group.pending import GroupOffsets, PendingOffsets
from sparklog.group.requests import (
    CommitRequest,
    JoinAnswer,
    JoinRequest,
    LeaveAnswer,
    MemberIdentity,
    Outcome,
    Store,
    SyncAnswer,
    SyncRequest,
    TransactionalCommit,
)
from sparklog.group.state import CommittedOffset, Group
from sparklog.structs import TopicPartition

T = TypeVar("T")
_LOG = logging.getLogger(__name__)

_LONGEST_STRING = (1 << 15) - 1
"""What an id or a text may take in a record, in bytes of UTF-8."""

_GROUP_STORE_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""What a failed append of group metadata means to a member, as in Kafka."""

_COMMIT_ERRORS = {
    **_GROUP_STORE_ERRORS,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}
"""What a failed append of offsets means to the committer, as in Kafka."""


class OffsetsStore(Protocol):
    """``__consumer_offsets`` as this broker sees it."""

    @property
    def partition_count(self) -> int:
        """How many partitions the topic has, or will have when it is made."""

    def is_leader(self, partition: int) -> bool: ...

    async def append(self, partition: int, batch: bytes) -> None:
        """Return once the in-sync replicas have the batch; raise ApiError within bounded time otherwise.

        Batches land in the log in the order of the calls: the log is written before the first await.
        """

    def read(self, partition: int) -> Iterator[memoryview]:
        """The whole log of the partition, from start to end, in pieces of whole batches."""


@dataclass(slots=True, eq=False)
class _Hosted:
    """A group, the timer that wakes it next, and for each of its offsets the number of the commit that set it."""

    group: Group
    partition: _LedPartition
    timer: asyncio.TimerHandle | None = None
    wake_ms: int = 0
    commits: dict[TopicPartition, int] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _LedPartition:
    """A partition that this broker coordinates; a new object each time that leadership arrives."""

    number: int
    is_loading: bool = True
    hosted: dict[str, _Hosted] = field(default_factory=dict)


class GroupCoordinator:
    """All methods belong to the loop's thread. ``new_id`` gives a string never given before, for member ids."""

    def __init__(
        self,
        config: BrokerConfig,
        store: OffsetsStore,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        new_id: Callable[[], str] = lambda: str(uuid4()),
    ) -> None:
        settings = GroupSettings(
            config.group_min_session_timeout_ms,
            config.group_max_session_timeout_ms,
            config.group_initial_rebalance_delay_ms,
        )
        self._machine = GroupMachine(settings, new_id)
        self._metadata_limit = config.offset_metadata_max_bytes
        self._store = store
        self._clock = clock
        self._loop = loop
        self._led: dict[int, _LedPartition] = {}
        self._pending: dict[int, PendingOffsets] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._commit_number = 0

    def partition_for(self, group_id: str) -> int:
        """The partition of ``__consumer_offsets`` whose leader coordinates the group."""
        return partition_for(group_id, self._store.partition_count)

    # Requests. ``_status`` first: is the group ours, and loaded?

    async def join(self, group_id: str, request: JoinRequest) -> JoinAnswer:
        """Returns when the member's next generation begins, or at once if there is nothing to wait for."""
        error = self._status(group_id)
        texts = (request.member_id, request.instance_id, request.client_id, request.protocol_type)
        if error is ErrorCode.NONE and not all(map(_fits, (*texts, *(each.name for each in request.protocols)))):
            error = ErrorCode.INVALID_REQUEST
        if error is not ErrorCode.NONE:
            return JoinAnswer(error, request.member_id)
        hosted = self._hosted(group_id)
        waiter: asyncio.Future[JoinAnswer] = self._loop.create_future()
        self._apply(hosted, self._machine.join(hosted.group, request, waiter, self._now_ms()))
        return await waiter

    async def sync(self, group_id: str, request: SyncRequest) -> SyncAnswer:
        """Returns when the leader's assignment is stored."""
        error = self._status(group_id)
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            # The rebalance that this belonged to is lost with the old coordinator, and old clients know no such error.
            error = ErrorCode.REBALANCE_IN_PROGRESS
        if error is not ErrorCode.NONE:
            return SyncAnswer(error)
        hosted = self._hosted(group_id)
        waiter: asyncio.Future[SyncAnswer] = self._loop.create_future()
        self._apply(hosted, self._machine.sync(hosted.group, request, waiter, self._now_ms()))
        return await waiter

    def heartbeat(self, group_id: str, identity: MemberIdentity) -> ErrorCode:
        error = self._status(group_id)
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return ErrorCode.NONE  # nothing is known against the member, and its session starts anew after the load
        if error is not ErrorCode.NONE:
            return error
        return self._machine.heartbeat(self._peek(group_id), identity, self._now_ms())

    def leave(self, group_id: str, members: list[MemberIdentity]) -> LeaveAnswer:
        error = self._status(group_id)
        if error is not ErrorCode.NONE:
            return LeaveAnswer(error)
        hosted = self._hosted(group_id)
        answer, outcome = self._machine.leave(hosted.group, members, self._now_ms())
        self._apply(hosted, outcome)
        return answer

    async def commit_offsets(self, group_id: str, request: CommitRequest) -> dict[TopicPartition, ErrorCode]:
        """An error code for each offset; NONE once it is replicated, and visible to ``fetch_offsets``."""
        error = self._commit_error(group_id, request.identity)
        if error is not ErrorCode.NONE:
            return dict.fromkeys(request.offsets, error)
        fitting = {tp: each for tp, each in request.offsets.items() if self._metadata_fits(each.metadata)}
        errors = dict.fromkeys(request.offsets, ErrorCode.OFFSET_METADATA_TOO_LARGE)
        if fitting:
            error = await asyncio.shield(self._spawn(self._commit(self._hosted(group_id), fitting)))
            errors.update(dict.fromkeys(fitting, error))
        return errors

    def _commit_error(self, group_id: str, identity: MemberIdentity) -> ErrorCode:
        error = self._status(group_id, allow_empty_id=True)
        if error is not ErrorCode.NONE:
            return error
        if identity.generation >= 0 and self._find(group_id) is None:
            return ErrorCode.ILLEGAL_GENERATION
        return self._machine.commit_error(self._peek(group_id), identity, self._now_ms())

    def _metadata_fits(self, metadata: str) -> bool:
        return len(metadata) <= self._metadata_limit and _fits(metadata)

    def fetch_offsets(
        self, group_id: str, partitions: list[TopicPartition] | None
    ) -> tuple[ErrorCode, dict[TopicPartition, CommittedOffset | None]]:
        """The group's offsets in these partitions (None: in all that it has one in); None where it has none."""
        error = self._status(group_id, allow_empty_id=True)
        if error is not ErrorCode.NONE:
            return error, {}
        offsets = self._peek(group_id).offsets
        return error, {tp: offsets.get(tp) for tp in (offsets if partitions is None else partitions)}

    def list_groups(self) -> tuple[ErrorCode, list[Group]]:
        """The groups that this broker coordinates, to be read only; the error says if some are still being loaded."""
        loading = any(each.is_loading for each in self._led.values())
        groups = [hosted.group for partition in self._led.values() for hosted in partition.hosted.values()]
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if loading else ErrorCode.NONE, groups

    def describe_group(self, group_id: str) -> tuple[ErrorCode, Group | None]:
        """The group, to be read only; None if there is none of this id."""
        error = self._status(group_id, allow_empty_id=True)
        hosted = self._find(group_id) if error is ErrorCode.NONE else None
        return error, hosted.group if hosted else None

    # Leadership.

    async def load(self, partition: int) -> None:
        """This broker leads the partition now: read its groups. Until that is done they answer that it is under way."""
        self.unload(partition)
        led = self._led[partition] = _LedPartition(partition)
        pending = self._pending[partition] = PendingOffsets()
        loader = GroupLoader()
        try:
            for piece in self._store.read(partition):
                loader.add(piece)
                await asyncio.sleep(0)  # let other requests through
                if self._led.get(partition) is not led:
                    return
        except BaseException:
            if self._led.get(partition) is led:
                del self._led[partition]
            raise
        now_ms = self._now_ms()
        for group in loader.finish().values():
            hosted = led.hosted[group.group_id] = _Hosted(group, led)
            self._apply(hosted, self._machine.loaded(group, now_ms))
        led.is_loading = False
        for committed in pending.loaded(loader.open_offsets()):
            self._adopt(committed)

    def unload(self, partition: int) -> None:
        """Another broker leads the partition now: whoever waits is sent away."""
        led = self._led.pop(partition, None)
        self._pending.pop(partition, None)
        for hosted in led.hosted.values() if led else ():
            self._apply(hosted, self._machine.unload(hosted.group))
            if hosted.timer is not None:
                hosted.timer.cancel()

    async def close(self) -> None:
        """Send everybody away, and let what is being written come to its end."""
        for partition in [*self._led]:
            self.unload(partition)
        if self._tasks:
            await asyncio.wait(self._tasks)

    # Offsets in transactions.

    async def commit_in_transaction(
        self, group_id: str, request: TransactionalCommit
    ) -> dict[TopicPartition, ErrorCode]:
        """As ``commit_offsets``, but what is committed counts from the transaction's commit marker on."""
        identity, offsets = request.commit
        is_member = identity.generation >= 0 or identity.member_id or identity.instance_id is not None
        error = self._commit_error(group_id, identity) if is_member else self._status(group_id)
        if error is not ErrorCode.NONE:
            return dict.fromkeys(offsets, error)
        fitting = {tp: each for tp, each in offsets.items() if self._metadata_fits(each.metadata)}
        errors = dict.fromkeys(offsets, ErrorCode.OFFSET_METADATA_TOO_LARGE)
        if fitting:
            hosted = self._hosted(group_id)
            error = await asyncio.shield(self._spawn(self._commit_later(hosted, request, fitting)))
            errors.update(dict.fromkeys(fitting, error))
        return errors

    async def _commit_later(
        self, hosted: _Hosted, request: TransactionalCommit, offsets: dict[TopicPartition, CommittedOffset]
    ) -> ErrorCode:
        group_id, partition = hosted.group.group_id, hosted.partition.number
        if self._led.get(partition) is not hosted.partition:
            return ErrorCode.NOT_COORDINATOR
        error = request.may_begin(partition)
        if error is not ErrorCode.NONE:
            return error
        pending, producer = self._pending[partition], request.producer
        pending.add(producer.producer_id, group_id, offsets)
        records = [offset_record(group_id, tp, committed) for tp, committed in offsets.items()]
        batch = build_batch(records, self._clock.now_ms(), producer)
        error = await self._append(hosted, batch, _COMMIT_ERRORS)
        if error is not ErrorCode.NONE:
            pending.drop(producer.producer_id, group_id, offsets)
        return error

    def end_transaction(self, partition: int, producer_id: int, commit: bool) -> None:
        """A marker of the producer is in this partition of ``__consumer_offsets``."""
        pending = self._pending.get(partition)
        if pending is not None:
            self._adopt(pending.end(producer_id, commit=commit))

    def _adopt(self, offsets_by_group: GroupOffsets) -> None:
        self._commit_number += 1
        for group_id, offsets in offsets_by_group.items():
            hosted = self._hosted(group_id)
            hosted = hosted.partition.hosted.setdefault(group_id, hosted)
            hosted.group.offsets.update(offsets)
            hosted.commits.update(dict.fromkeys(offsets, self._commit_number))

    def unstable_offsets(self, group_id: str, partitions: Collection[TopicPartition]) -> set[TopicPartition]:
        """Those of ``partitions`` where a transaction that is still open may change the group's offset."""
        if self._status(group_id, allow_empty_id=True) is not ErrorCode.NONE:
            return set()
        return self._pending[self.partition_for(group_id)].of_group(group_id).intersection(partitions)

    # The machinery.

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    def _status(self, group_id: str, *, allow_empty_id: bool = False) -> ErrorCode:
        """Offsets may be kept under the empty id, as they always could; a group cannot be formed under it."""
        if not _fits(group_id) or not (group_id or allow_empty_id):
            return ErrorCode.INVALID_GROUP_ID
        partition = self.partition_for(group_id)
        if not self._store.is_leader(partition):
            return ErrorCode.NOT_COORDINATOR
        led = self._led.get(partition)
        if led is None or led.is_loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ErrorCode.NONE

    def _find(self, group_id: str) -> _Hosted | None:
        return self._led[self.partition_for(group_id)].hosted.get(group_id)

    def _peek(self, group_id: str) -> Group:
        """The group, or an empty one in its place that is not kept."""
        hosted = self._find(group_id)
        return hosted.group if hosted else Group(group_id)

    def _hosted(self, group_id: str) -> _Hosted:
        """The group, made if need be; ``_apply`` keeps it if something came of it."""
        return self._find(group_id) or _Hosted(Group(group_id), self._led[self.partition_for(group_id)])

    def _apply(self, hosted: _Hosted, outcome: Outcome) -> None:
        for waiter, answer in outcome.answers:
            if isinstance(waiter, asyncio.Future) and not waiter.done():
                waiter.set_result(answer)
        self._keep(hosted)
        if outcome.store is not None:
            self._write(hosted, outcome.store)
        if outcome.wake_ms is not None:
            self._wake(hosted, outcome.wake_ms)

    def _keep(self, hosted: _Hosted) -> None:
        """Remember the group exactly while there is something to remember."""
        kept = hosted.partition.hosted
        if not hosted.group.is_unused:
            kept.setdefault(hosted.group.group_id, hosted)
        elif kept.get(hosted.group.group_id) is hosted:
            del kept[hosted.group.group_id]

    def _wake(self, hosted: _Hosted, wake_ms: int) -> None:
        if hosted.timer is not None:
            if hosted.wake_ms <= wake_ms:
                return
            hosted.timer.cancel()
        hosted.wake_ms = wake_ms
        hosted.timer = self._loop.call_later(max(wake_ms - self._now_ms(), 0) / 1000, self._expire, hosted)

    def _expire(self, hosted: _Hosted) -> None:
        hosted.timer = None
        self._apply(hosted, self._machine.expire(hosted.group, self._now_ms()))

    def _write(self, hosted: _Hosted, store: Store) -> None:
        now_ms = self._clock.now_ms()
        hosted.group.state_timestamp_ms = now_ms
        batch = build_batch([group_record(hosted.group, store.assignments)], now_ms)
        self._spawn(self._store_group(hosted, store, batch))

    async def _store_group(self, hosted: _Hosted, store: Store, batch: bytes) -> None:
        error = await self._append(hosted, batch, _GROUP_STORE_ERRORS)
        self._apply(hosted, self._machine.stored(hosted.group, store, error, self._now_ms()))

    async def _commit(self, hosted: _Hosted, offsets: dict[TopicPartition, CommittedOffset]) -> ErrorCode:
        group_id = hosted.group.group_id
        self._commit_number += 1
        number = self._commit_number
        records = [offset_record(group_id, tp, committed) for tp, committed in offsets.items()]
        error = await self._append(hosted, build_batch(records, self._clock.now_ms()), _COMMIT_ERRORS)
        if error is not ErrorCode.NONE:
            return error
        hosted = hosted.partition.hosted.setdefault(group_id, hosted)
        for tp, committed in offsets.items():
            # Two commits may be under way; that which comes later in the log wins, whichever is replicated first.
            if hosted.commits.get(tp, 0) < number:
                hosted.commits[tp] = number
                hosted.group.offsets[tp] = committed
        return ErrorCode.NONE

    async def _append(self, hosted: _Hosted, batch: bytes, meanings: dict[ErrorCode, ErrorCode]) -> ErrorCode:
        try:
            await self._store.append(hosted.partition.number, batch)
        except ApiError as error:
            _LOG.warning("group %s: cannot write to __consumer_offsets: %s", hosted.group.group_id, error)
            return meanings.get(error.code, error.code)
        return ErrorCode.NONE

    def _spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Work that goes on when whoever asked for it hangs up."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _fits(text: str | None) -> bool:
    return text is None or len(text) * 4 <= _LONGEST_STRING or len(text.encode()) <= _LONGEST_STRING
