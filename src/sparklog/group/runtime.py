"""GroupCoordinator: one broker's share of the groups, driven by one event loop.

A group lives in the partition of ``__consumer_offsets`` that its id hashes to, and its coordinator is that partition's
leader. Everything here runs on the loop's thread, so nothing is locked: between two awaits a group does not change.
What the log must hold is appended in the order in which it was decided, and counts (an assignment, an offset) only once
the append has returned.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from uuid import uuid4

from sparklog.clock import Clock
from sparklog.config.broker import BrokerConfig
from sparklog.errors import ErrorCode
from sparklog.group.board import fits
from sparklog.group.consumer.group import ConsumerGroup
from sparklog.group.consumer.topics import Topics
from sparklog.group.hosted import Hosted, LedPartition
from sparklog.group.loading import GroupLoader
from sparklog.group.members import MemberRequests
from sparklog.group.offsets import build_batch, offset_record
from sparklog.group.pending import GroupOffsets
from sparklog.group.removal import OffsetDeletion, delete_error, expired_offsets, offset_deletion
from sparklog.group.requests import (
    CommitRequest,
    TransactionalCommit,
)
from sparklog.group.state import CommittedOffset, Group
from sparklog.group.storage import COMMIT_ERRORS, OffsetsStore
from sparklog.structs import TopicPartition


class GroupCoordinator(MemberRequests):
    """Beside what members ask: offsets, and the coming and going of leadership, of topics and of whole groups."""

    def __init__(
        self,
        config: BrokerConfig,
        store: OffsetsStore,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        topics: Topics,
        new_id: Callable[[], str] = lambda: str(uuid4()),
    ) -> None:
        super().__init__(config, store, clock, loop, topics, new_id)
        self._retention_ms = config.offsets_retention_minutes * 60_000
        self._metadata_limit = config.offset_metadata_max_bytes
        self._commit_number = 0

    # Offsets. ``_status`` first: is the group ours, and loaded?

    async def commit_offsets(self, group_id: str, request: CommitRequest) -> dict[TopicPartition, ErrorCode]:
        """An error code for each offset; NONE once it is replicated, and visible to ``fetch_offsets``."""
        error = self._commit_error(group_id, request)
        if error is not ErrorCode.NONE:
            return dict.fromkeys(request.offsets, error)
        fitting = {tp: each for tp, each in request.offsets.items() if self._metadata_fits(each.metadata)}
        errors = dict.fromkeys(request.offsets, ErrorCode.OFFSET_METADATA_TOO_LARGE)
        if fitting:
            error = await asyncio.shield(self._commit(self._board.hosted(group_id), fitting))
            errors.update(dict.fromkeys(fitting, error))
        return errors

    def _commit_error(self, group_id: str, request: CommitRequest, *, in_transaction: bool = False) -> ErrorCode:
        error = self._status(group_id, allow_empty_id=True)
        if error is not ErrorCode.NONE:
            return error
        identity, hosted = request.identity, self._find(group_id)
        if hosted is None and identity.generation >= 0:
            return ErrorCode.GROUP_ID_NOT_FOUND if request.knows_epochs else ErrorCode.ILLEGAL_GENERATION
        if hosted is not None and hosted.consumer is not None:
            return self._consumers.machine.commit_error(
                hosted.consumer,
                identity.member_id,
                identity.generation,
                knows_epochs=request.knows_epochs,
                in_transaction=in_transaction,
            )
        return self._machine.commit_error(self._peek(group_id), identity, self._now_ms())

    def _metadata_fits(self, metadata: str) -> bool:
        return len(metadata) <= self._metadata_limit and fits(metadata)

    def fetch_offsets(
        self,
        group_id: str,
        partitions: list[TopicPartition] | None,
        member_id: str | None = None,
        member_epoch: int = -1,
    ) -> tuple[ErrorCode, dict[TopicPartition, CommittedOffset | None]]:
        """The group's offsets in these partitions (None: in all that it has one in); None where it has none.

        A member of a group of the consumer protocol may say who it is, and is told if it is not that any more.
        """
        error = self._status(group_id, allow_empty_id=True)
        if error is not ErrorCode.NONE:
            return error, {}
        hosted = self._find(group_id)
        if hosted is not None and hosted.consumer is not None:
            error = self._consumers.machine.fetch_error(hosted.consumer, member_id, member_epoch)
            if error is not ErrorCode.NONE:
                return error, {}
        offsets = self._peek(group_id).offsets
        return error, {tp: offsets.get(tp) for tp in (offsets if partitions is None else partitions)}

    def unstable_offsets(self, group_id: str, partitions: Collection[TopicPartition]) -> set[TopicPartition]:
        """Those with a commit under way or in an open transaction, so that ``fetch_offsets`` may not give the last."""
        if self._status(group_id, allow_empty_id=True) is not ErrorCode.NONE:
            return set()
        return self._peek(group_id).pending_commits.keys() & set(partitions)

    async def delete_group(self, group_id: str) -> ErrorCode:
        """Forget a group that has no members, and its offsets; returns once that is replicated."""
        while True:
            error = self._status(group_id, allow_empty_id=True)
            hosted = self._find(group_id) if error is ErrorCode.NONE else None
            if hosted is None or not hosted.turn.locked():
                break
            async with hosted.turn:
                pass
        if error is ErrorCode.NONE:
            error = delete_error(hosted.group if hosted else None, hosted.consumer if hosted else None)
        if hosted is None or error is not ErrorCode.NONE:
            return error
        doomed = [*(hosted.group.offsets.keys() | hosted.group.pending_commits.keys())]
        keys = hosted.take_out(doomed, self._commit_number) + hosted.end()
        return await asyncio.shield(self._board.bury(hosted.partition, keys))

    async def delete_offsets(self, group_id: str, partitions: Collection[TopicPartition]) -> OffsetDeletion:
        """Forget the group's offsets in these partitions; returns once that is replicated."""
        error = self._status(group_id)
        if error is not ErrorCode.NONE:
            return OffsetDeletion(error, {})
        hosted = self._find(group_id)
        deletion = offset_deletion(hosted.group if hosted else None, partitions, hosted.consumer if hosted else None)
        free = [tp for tp, code in deletion.partitions.items() if code is ErrorCode.NONE]
        if hosted is None or not free:
            return deletion
        keys = hosted.take_out(free, self._commit_number) + hosted.end_if_vacant()
        error = await asyncio.shield(self._board.bury(hosted.partition, keys))
        return OffsetDeletion(deletion.error, {**deletion.partitions, **dict.fromkeys(free, error)})

    def list_groups(self) -> tuple[ErrorCode, list[Group | ConsumerGroup]]:
        """The groups that this broker coordinates, to be read only; the error says if some are still being loaded."""
        led = self._board.led.values()
        loading = any(each.is_loading for each in led)
        groups = [each.consumer or each.group for one in led for each in one.hosted.values() if not each.is_empty]
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if loading else ErrorCode.NONE, groups

    def describe_group(self, group_id: str) -> tuple[ErrorCode, Group | None]:
        """The group of the classic protocol, to be read only; None if there is none of this id."""
        error = self._status(group_id, allow_empty_id=True)
        hosted = self._find(group_id) if error is ErrorCode.NONE else None
        return error, hosted.group if hosted and hosted.consumer is None and not hosted.is_empty else None

    def describe_consumer_group(self, group_id: str) -> tuple[ErrorCode, ConsumerGroup | None]:
        """Likewise one of the consumer protocol."""
        error = self._status(group_id)
        hosted = self._find(group_id) if error is ErrorCode.NONE else None
        return error, hosted.consumer if hosted else None

    def assignor_of(self, group: ConsumerGroup) -> str:
        """Who shares out its partitions."""
        return group.assignor(self._consumers.machine.settings.assignors)

    # Leadership.

    async def load(self, partition: int) -> None:
        """This broker leads the partition now: read its groups. Until that is done they answer that it is under way."""
        self.unload(partition)
        led = self._board.led[partition] = LedPartition(partition)
        loader = GroupLoader()
        try:
            for piece in self._board.store.read(partition):
                loader.add(piece)
                await asyncio.sleep(0)  # let other requests through
                if self._board.led.get(partition) is not led:
                    return
        except BaseException:
            if self._board.led.get(partition) is led:
                del self._board.led[partition]
            raise
        self._take_in(led, loader)
        led.is_loading = False
        for committed in led.pending.loaded(loader.open_offsets()):
            self._adopt(committed)
        for group_id, tp in led.pending.all_keys():
            hosted = self._board.hosted(group_id)
            hosted.group.pending_commits[tp] += 1
            hosted.keep()
        if led.deleted:
            self._clean(led, lambda _: led.deleted)

    def _take_in(self, led: LedPartition, loader: GroupLoader) -> None:
        """The groups that the log describes; a consumer group in whose place the log has a classic one too counts."""
        now_ms = self._now_ms()
        consumers = loader.consumer_groups()
        for group in loader.finish().values():
            hosted = led.hosted[group.group_id] = Hosted(group, led)
            if group.group_id not in consumers:
                self._apply(hosted, self._machine.loaded(group, now_ms))
        for group_id, consumer in consumers.items():
            self._consumers.loaded(led.hosted.get(group_id) or Hosted(Group(group_id), led), consumer)

    def unload(self, partition: int) -> None:
        """Another broker leads the partition now: whoever waits is sent away."""
        led = self._board.led.pop(partition, None)
        for hosted in [*led.hosted.values()] if led else ():
            self._apply(hosted, self._machine.unload(hosted.group))
            if hosted.timer is not None:
                hosted.timer.cancel()

    # What nobody wants any more.

    def forget_topics(self, partitions: Collection[TopicPartition]) -> None:
        """These partitions are deleted: so are all groups' offsets in them."""
        for led in self._board.led.values():
            if led.is_loading:
                led.deleted.update(partitions)
            else:
                self._clean(led, lambda _: partitions)

    def expire_offsets(self) -> None:
        """Forget the offsets that have been unused for too long, and groups that have neither members nor offsets."""
        now_ms = self._board.clock.now_ms()
        for led in self._board.led.values():
            self._clean(led, lambda hosted: expired_offsets(hosted.group, now_ms, self._retention_ms, hosted.consumer))

    def _clean(self, led: LedPartition, doomed: Callable[[Hosted], Collection[TopicPartition]]) -> None:
        keys: list[bytes] = []
        for hosted in [*led.hosted.values()]:
            keys += hosted.take_out(doomed(hosted), self._commit_number) + hosted.end_if_vacant()
        if keys:
            self._board.bury(led, keys)

    async def close(self) -> None:
        """Send everybody away, and let what is being written come to its end."""
        for partition in [*self._board.led]:
            self.unload(partition)
        await self._board.finish()

    # Offsets in transactions.

    async def commit_in_transaction(
        self, group_id: str, request: TransactionalCommit
    ) -> dict[TopicPartition, ErrorCode]:
        """As ``commit_offsets``, but what is committed counts from the transaction's commit marker on."""
        identity, offsets = request.commit.identity, request.commit.offsets
        is_member = identity.generation >= 0 or identity.member_id or identity.instance_id is not None
        error = (
            self._commit_error(group_id, request.commit, in_transaction=True) if is_member else self._status(group_id)
        )
        if error is not ErrorCode.NONE:
            return dict.fromkeys(offsets, error)
        fitting = {tp: each for tp, each in offsets.items() if self._metadata_fits(each.metadata)}
        errors = dict.fromkeys(offsets, ErrorCode.OFFSET_METADATA_TOO_LARGE)
        if fitting:
            led = self._board.led[self.partition_for(group_id)]
            error = await asyncio.shield(self._board.spawn(self._commit_later(led, group_id, request, fitting)))
            errors.update(dict.fromkeys(fitting, error))
        return errors

    async def _commit_later(
        self,
        led: LedPartition,
        group_id: str,
        request: TransactionalCommit,
        offsets: dict[TopicPartition, CommittedOffset],
    ) -> ErrorCode:
        if self._board.led.get(led.number) is not led:
            return ErrorCode.NOT_COORDINATOR
        error = request.may_begin(led.number)
        if error is not ErrorCode.NONE:
            return error
        hosted, producer = self._board.hosted(group_id), request.producer
        hosted.group.pending_commits.update(led.pending.add(producer.producer_id, group_id, offsets))
        hosted.keep()
        batch = build_batch(
            [offset_record(group_id, *each) for each in offsets.items()], self._board.clock.now_ms(), producer
        )
        error = await self._board.append(led, batch, f"offsets of group {group_id}", COMMIT_ERRORS)
        if error is not ErrorCode.NONE:
            hosted.group.settle(led.pending.drop(producer.producer_id, group_id, offsets))
            hosted.keep()
        return error

    def end_transaction(self, partition: int, producer_id: int, commit: bool) -> None:
        """A marker of the producer is in this partition of ``__consumer_offsets``."""
        led = self._board.led.get(partition)
        if led is None:
            return
        ended = led.pending.of_producer(producer_id)
        self._adopt(led.pending.end(producer_id, commit=commit))
        for group_id, tp in ended:
            hosted = self._board.hosted(group_id)
            hosted.group.settle([tp])
            hosted.keep()

    def _adopt(self, offsets_by_group: GroupOffsets) -> None:
        self._commit_number += 1
        for group_id, offsets in offsets_by_group.items():
            hosted = self._board.hosted(group_id)
            hosted.group.offsets.update(offsets)
            hosted.commits.update(dict.fromkeys(offsets, self._commit_number))
            hosted.keep()

    def _commit(self, hosted: Hosted, offsets: dict[TopicPartition, CommittedOffset]) -> asyncio.Task[ErrorCode]:
        self._commit_number += 1
        hosted.group.pending_commits.update(offsets.keys())
        hosted.keep()
        return self._board.spawn(self._store_offsets(hosted, offsets, self._commit_number))

    async def _store_offsets(
        self, hosted: Hosted, offsets: dict[TopicPartition, CommittedOffset], number: int
    ) -> ErrorCode:
        group = hosted.group
        batch = build_batch(
            [offset_record(group.group_id, *each) for each in offsets.items()], self._board.clock.now_ms()
        )
        try:
            error = await self._board.append(
                hosted.partition, batch, f"offsets of group {group.group_id}", COMMIT_ERRORS
            )
        finally:
            group.settle(offsets.keys())
        for tp, committed in offsets.items() if error is ErrorCode.NONE else ():
            # Two commits may be under way; that which comes later in the log wins, whichever is replicated first.
            if hosted.commits.get(tp, 0) < number:
                hosted.commits[tp] = number
                group.offsets[tp] = committed
        hosted.keep()
        return error
