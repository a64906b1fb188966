"""GroupCoordinator: one broker's share of the groups, driven by one event loop.

A group lives in the partition of ``__consumer_offsets`` that its id hashes to, and its coordinator is that partition's
leader. Everything here runs on the loop's thread, so nothing is locked: between two awaits a group does not change.

The invariant that lets the next coordinator find in the log what this one has in memory: a record is in the log in the
turn of the loop in which it is decided, so records, tombstones and markers lie there in the order in which they took
effect here. What is decided to be there (an assignment, an offset) counts only once it is replicated; what is decided
to go is forgotten at once, also where it is still on its way or in an open transaction. Of two offsets of a partition
the one whose own record comes later counts, whichever is replicated first and wherever the marker of a transaction
stands: compaction will keep no other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from uuid import uuid4

from sparklog.clock import Clock
from sparklog.config.broker import BrokerConfig
from sparklog.errors import ApiError, ErrorCode
from sparklog.group.classic.group import CommittedOffset, Group
from sparklog.group.classic.requests import CommitRequest, TransactionalCommit
from sparklog.group.consumer.group import ConsumerGroup
from sparklog.group.consumer.topics import Topics
from sparklog.group.deletion_epoch import DeletionEpoch
from sparklog.group.hosted import Hosted, LedPartition
from sparklog.group.loading import GroupLoader
from sparklog.group.members import MemberRequests
from sparklog.group.metadata_manager import GroupMetadataManager, fits
from sparklog.group.offsets import (
    Record,
    build_tombstones,
    building,
    building_tombstones,
    offset_key,
    offset_record,
)
from sparklog.group.pending import GroupOffsets, PlacedOffset
from sparklog.group.removal import OffsetDeletion, delete_error, expired_offsets, in_question, in_steps, offset_deletion
from sparklog.group.reserved import reserved_error
from sparklog.group.storage import COMMIT_ERRORS, OffsetsStore
from sparklog.net.misplaced_names import MisplacedNames, misplaced_in
from sparklog.net.turns import Turns
from sparklog.protocol.slices import Steps
from sparklog.record.control import ProducerIdAndEpoch
from sparklog.structs import TopicPartition

_logger = logging.getLogger(__name__)
_SLICE = 200
"""So many groups are listed in one step, and taken in or sent away in one turn of the loop."""

Offsets = dict[TopicPartition, CommittedOffset]
Errors = dict[TopicPartition, ErrorCode]


class GroupCoordinator:
    """Offsets, and the coming and going of leadership, of topics and of whole groups; ``members`` is what members ask.

    All methods belong to the loop's thread. ``new_id`` gives a string never given before, for member ids. What takes
    long shares the loop's time by ``turns``. ``deletion_epoch`` is the one that lasts.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: OffsetsStore,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        topics: Topics,
        new_id: Callable[[], str] = lambda: str(uuid4()),
        turns: Turns | None = None,
    ) -> None:
        self.deletion_epoch = DeletionEpoch()
        self._protects = config.internal_topics_protect
        turns = turns or Turns(loop, clock)
        most = config.group_members_max_bytes
        self._groups = GroupMetadataManager(store, clock, loop, turns, lambda hosted: self.members.expire(hosted), most)
        self.members = MemberRequests(config, self._groups, topics, new_id)
        self._retention_ms = config.offsets_retention_minutes * 60_000
        self._metadata_limit = config.offset_metadata_max_bytes
        self._loading = asyncio.Lock()

    def partition_for(self, group_id: str) -> int:
        """The partition of ``__consumer_offsets`` whose leader coordinates the group."""
        return self._groups.partition_for(group_id)

    # Offsets. ``GroupMetadataManager.status`` first: is the group ours, and loaded?

    async def commit_offsets(self, group_id: str, request: CommitRequest) -> Errors:
        """An error code for each offset; NONE once it is replicated, and visible to ``fetch_offsets``."""
        error = reserved_error(group_id, self._protects)
        if error is ErrorCode.NONE:
            error = self._commit_error(group_id, request)
        if error is not ErrorCode.NONE:
            return dict.fromkeys(request.offsets, error)
        fitting, batch, errors = await self._prepare(group_id, request)
        if fitting:
            error = self._commit_error(group_id, request)  # the group may have changed while the batch was made
            if error is ErrorCode.NONE:
                error = await asyncio.shield(self._commit(self._groups.hosted(group_id), fitting, batch))
            errors.update(dict.fromkeys(fitting, error))
        return errors

    async def _prepare(
        self, group_id: str, request: CommitRequest, producer: ProducerIdAndEpoch | None = None
    ) -> tuple[Offsets, bytes, Errors]:
        """Those of the offsets that a record can hold, the batch of them, and what is wrong with the others. Nothing is
        decided yet. In the turn in which this returns none of their partitions has been deleted since it was looked up.
        """
        errors = dict.fromkeys(request.offsets, ErrorCode.OFFSET_METADATA_TOO_LARGE)
        fitting, batch = await self._build(group_id, request.offsets, producer)
        while deleted := request.deletion_epoch.deleted_since(fitting.keys()):
            errors.update(dict.fromkeys(deleted, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            left = {tp: each for tp, each in fitting.items() if tp not in deleted}
            fitting, batch = await self._build(group_id, left, producer)
        return fitting, batch, errors

    async def _build(
        self, group_id: str, offsets: Offsets, producer: ProducerIdAndEpoch | None
    ) -> tuple[Offsets, bytes]:
        fitting: Offsets = {}

        def records() -> Iterator[Record]:
            for tp, each in offsets.items():
                if self._metadata_fits(each.metadata):
                    fitting[tp] = each
                    yield offset_record(group_id, tp, each)

        steps = building(records(), self._groups.clock.now_ms(), producer)
        return fitting, await self._groups.take(steps, group_id)

    def _commit_error(self, group_id: str, request: CommitRequest, *, in_transaction: bool = False) -> ErrorCode:
        error = self._groups.status(group_id, allow_empty_id=True)
        if error is not ErrorCode.NONE:
            return error
        return self.members.commit_error(group_id, request, in_transaction=in_transaction)

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
        error = self._groups.status(group_id, allow_empty_id=True)
        if error is ErrorCode.NONE:
            error = self.members.fetch_error(group_id, member_id, member_epoch)
        if error is not ErrorCode.NONE:
            return error, {}
        offsets = self._groups.peek(group_id).offsets
        return error, {tp: offsets.get(tp) for tp in (offsets if partitions is None else partitions)}

    def unstable_offsets(self, group_id: str, partitions: Collection[TopicPartition]) -> set[TopicPartition]:
        """Those with a commit under way or in an open transaction, so that ``fetch_offsets`` may not give the last."""
        if self._groups.status(group_id, allow_empty_id=True) is not ErrorCode.NONE:
            return set()
        return self._groups.peek(group_id).pending_commits.keys() & set(partitions)

    async def delete_group(self, group_id: str) -> ErrorCode:
        """Forget a group that has no members, and its offsets; returns once that is replicated."""
        error = self._groups.status(group_id, allow_empty_id=True)
        if error is not ErrorCode.NONE:
            return error
        if self._groups.find(group_id) is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        try:
            buried = await self._groups.in_turn(group_id, self._delete)  # so it gets no members meanwhile
        except ApiError as failure:
            return failure.code
        return await asyncio.shield(buried)

    async def _delete(self, hosted: Hosted) -> asyncio.Task[ErrorCode]:
        """The tombstones are made ready while others have the loop, and nothing has changed; then the group goes whole,
        in one turn of the loop. Raises ApiError.
        """
        group_id = hosted.group.group_id
        error = delete_error(None if hosted.is_empty else hosted.group, hosted.consumer)
        if error is not ErrorCode.NONE:
            raise ApiError(error)
        ready = {tp: offset_key(group_id, tp) async for tp in self._groups.turns.paced(hosted.group.partitions)}
        now_ms = self._groups.clock.now_ms()
        batches = await self._groups.take(building_tombstones(ready.values(), now_ms), group_id)
        if not self._groups.is_current(hosted):
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        late = [offset_key(group_id, tp) for tp in hosted.group.partitions if tp not in ready]
        late += hosted.end()
        batches += build_tombstones(late, now_ms)
        return self._groups.bury_built(hosted.partition, [*ready.values(), *late], batches)

    async def delete_offsets(self, group_id: str, partitions: Collection[TopicPartition]) -> OffsetDeletion:
        """Forget the group's offsets in these partitions, some hundred at most; returns once that is replicated."""
        error = reserved_error(group_id, self._protects)
        if error is ErrorCode.NONE:
            error = self._groups.status(group_id)
        if error is not ErrorCode.NONE:
            return OffsetDeletion(error, {})
        hosted = self._groups.find(group_id)
        deletion = offset_deletion(hosted.group if hosted else None, partitions, hosted.consumer if hosted else None)
        free = [tp for tp, code in deletion.partitions.items() if code is ErrorCode.NONE]
        if hosted is None or not free:
            return deletion
        keys = hosted.take_out(free) + hosted.end_if_vacant()
        error = await asyncio.shield(self._groups.bury(hosted.partition, keys))
        return OffsetDeletion(deletion.error, {**deletion.partitions, **dict.fromkeys(free, error)})

    def list_groups(self) -> Steps[tuple[ErrorCode, list[Group | ConsumerGroup]]]:
        """The groups that this broker coordinates, to be read only; the error says if some are still being loaded.

        Some groups are looked at a step.
        """
        led = [*self._groups.led.values()]
        loading = any(each.is_loading for each in led)
        groups: list[Group | ConsumerGroup] = []
        for one in led:
            for number, each in enumerate([*one.hosted.values()]):
                if not each.is_empty:
                    groups.append(each.consumer or each.group)
                if number % _SLICE == _SLICE - 1:
                    yield
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if loading else ErrorCode.NONE, groups

    def each(self) -> Iterator[Hosted]:
        """The groups that this broker coordinates and has loaded, at the time when each is come to; to be read only."""
        for led in [*self._groups.led.values()]:
            for hosted in [*led.hosted.values()] if not led.is_loading else ():
                if not hosted.is_empty:
                    yield hosted

    def describe_group(self, group_id: str) -> tuple[ErrorCode, Group | None]:
        """The group of the classic protocol, to be read only; None if there is none of this id."""
        error = self._groups.status(group_id, allow_empty_id=True)
        hosted = self._groups.find(group_id) if error is ErrorCode.NONE else None
        return error, hosted.group if hosted and hosted.consumer is None and not hosted.is_empty else None

    def describe_consumer_group(self, group_id: str) -> tuple[ErrorCode, ConsumerGroup | None]:
        """Likewise one of the consumer protocol."""
        error = self._groups.status(group_id)
        hosted = self._groups.find(group_id) if error is ErrorCode.NONE else None
        return error, hosted.consumer if hosted else None

    # Leadership.

    async def load(self, partition: int) -> None:
        """This broker leads the partition now: read its groups. Until that is done they answer that it is under way.

        A broker may lead before it hears how many partitions there are, so nothing before its end asks where a group
        belongs.
        """
        begun = self._groups.led.get(partition)
        self.unload(partition)
        led = self._groups.led[partition] = LedPartition(partition)
        if begun is not None and begun.is_loading:  # it came to no end: what went is still there
            led.deleted = [*begun.deleted]
        async with self._loading:  # one after another, so that each turn of the loop is short
            found = await self._read(led)
        if found is None:
            return
        loader, classic = found
        self._take_in(led, loader, classic)
        led.is_loading = False
        for committed in led.pending.loaded(loader.open_offsets):
            self._adopt(led, committed)
        for group_id, tp in led.pending.all_keys():
            hosted = led.host(group_id)
            hosted.group.pending_commits[tp] += 1
            hosted.keep()
        store = self._groups.store
        misplaced = await misplaced_in(store, led.number, led.hosted, lambda: self._is_current(led))
        if misplaced is not None:
            _say_misplaced(led.number, misplaced)

    async def _read(self, led: LedPartition) -> tuple[GroupLoader, dict[str, Hosted]] | None:
        """What the log says, without what was deleted up to this turn: from then on clients may commit offsets in
        topics of the same names. None if another broker leads the log by now.

        With it the classic groups, and those that have offsets only, to be hosted.
        """
        loader = GroupLoader(f"__consumer_offsets-{led.number}")
        async for piece in self._groups.store.read(led.number):
            loader.add(piece)
            await asyncio.sleep(0)  # let other requests through
            if not self._is_current(led):
                return None
        for _ in loader.parse():
            await asyncio.sleep(0)
        hosted: dict[str, Hosted] = {}
        for number, group in enumerate(loader.groups.values()):
            hosted[group.group_id] = Hosted(group, led)
            if number % _SLICE == _SLICE - 1:
                await asyncio.sleep(0)
        while led.deleted:
            for keys in loader.forget(led.deleted[0]):
                if not self._is_current(led):
                    return None
                if keys:
                    self._groups.bury(led, keys)
                await asyncio.sleep(0)
            del led.deleted[0]
        return (loader, hosted) if self._is_current(led) else None

    def _is_current(self, led: LedPartition) -> bool:
        return self._groups.led.get(led.number) is led

    def _take_in(self, led: LedPartition, loader: GroupLoader, classic: dict[str, Hosted]) -> None:
        """The groups that the log describes; a consumer group in whose place the log has a classic one too counts."""
        led.last_place = loader.last_place
        led.hosted = classic
        for hosted in [*classic.values()]:
            group = hosted.group
            has_offsets_only = group.offsets and not group.members  # there is nothing to time, nor to forget
            if not has_offsets_only and group.group_id not in loader.consumers:
                self.members.loaded(hosted, None)
        for group_id, consumer in loader.consumers.items():
            self.members.loaded(led.host(group_id), consumer)

    def unload(self, partition: int) -> None:
        """Another broker leads the partition now: held requests are answered so, those of some groups a step."""
        led = self._groups.led.pop(partition, None)
        if led is not None:
            self._send_some_away(led)
            if led.hosted:
                self._groups.spawn(self._send_away(led))

    async def _send_away(self, led: LedPartition) -> None:
        while led.hosted:
            await asyncio.sleep(0)
            self._send_some_away(led)

    def _send_some_away(self, led: LedPartition) -> None:
        """Of a partition that is led no more: its next groups answer, and are forgotten."""
        for _ in range(min(len(led.hosted), _SLICE)):
            _, hosted = led.hosted.popitem()
            self.members.unload(hosted)
            if hosted.timer is not None:
                hosted.timer.cancel()

    # What is not wanted any more.

    def forget_topics(self, partitions: Collection[TopicPartition]) -> Generator[None, None, None]:
        """These partitions are deleted: so are all groups' offsets in them; some offsets a step of what this returns.

        From now on a commit of partitions that were looked up before is refused for these, by its ``deletion_epoch``,
        and until the last step one for a topic of the same name. So the steps are to be taken to their end.
        """
        deleted = frozenset(partitions)
        self.deletion_epoch = self.deletion_epoch.end(deleted)
        return self._forget_topics(deleted)

    def _forget_topics(self, deleted: frozenset[TopicPartition]) -> Generator[None, None, None]:
        listed = [*deleted]

        def candidates(group: Group) -> Sequence[TopicPartition]:
            return in_question(group, listed)

        def doomed(_: Hosted, some: Sequence[TopicPartition]) -> list[TopicPartition]:
            return [tp for tp in some if tp in deleted]

        done: set[LedPartition] = set()
        try:
            while left := [led for led in self._groups.led.values() if led not in done]:  # some come meanwhile
                for led in left:
                    if led.is_loading and self._is_current(led):
                        led.deleted.append(deleted)
                    else:
                        yield from self._clean(led, candidates, doomed)
                    done.add(led)
        finally:
            self.deletion_epoch.forgotten(deleted)

    def expire_offsets(self) -> Generator[None, None, None]:
        """Forget the offsets that have been unused for too long, and groups that have neither members nor offsets; some
        a step.
        """
        now_ms = self._groups.clock.now_ms()

        def expired(hosted: Hosted, some: Sequence[TopicPartition]) -> list[TopicPartition]:
            return expired_offsets(hosted.group, now_ms, self._retention_ms, hosted.consumer, some)

        for led in [*self._groups.led.values()]:
            yield from self._clean(led, lambda group: [*group.offsets], expired)

    def _clean(
        self,
        led: LedPartition,
        candidates: Callable[[Group], Sequence[TopicPartition]],
        doomed: Callable[[Hosted, Sequence[TopicPartition]], Iterable[TopicPartition]],
    ) -> Generator[None, None, None]:
        """Take out what is ``doomed`` of each group's ``candidates``, looking at some a step; groups that have gone
        meanwhile are passed over. What goes is buried in its step.
        """
        for step in in_steps((hosted, candidates(hosted.group)) for hosted in [*led.hosted.values()]):
            if not self._is_current(led):
                return
            keys: list[bytes] = []
            for hosted, some in step:
                if led.hosted.get(hosted.group.group_id) is hosted:
                    keys += hosted.take_out(doomed(hosted, some)) + hosted.end_if_vacant()
            if keys:
                self._groups.bury(led, keys)
            yield

    async def close(self) -> None:
        """Answer all held requests, and let the writes under way come to their end."""
        for partition in [*self._groups.led]:
            self.unload(partition)
        await self._groups.finish()

    # Offsets in transactions.

    async def commit_in_transaction(self, group_id: str, request: TransactionalCommit) -> Errors:
        """As ``commit_offsets``, but what is committed counts from the transaction's commit marker on."""
        identity, offsets = request.commit.identity, request.commit.offsets
        is_member = identity.generation >= 0 or identity.member_id or identity.instance_id is not None

        def check() -> ErrorCode:
            if is_member:
                return self._commit_error(group_id, request.commit, in_transaction=True)
            return self._groups.status(group_id)

        error = check()
        if error is not ErrorCode.NONE:
            return dict.fromkeys(offsets, error)
        fitting, batch, errors = await self._prepare(group_id, request.commit, request.producer)
        if fitting:
            error = check()  # the group may have changed while the batch was made
            if error is ErrorCode.NONE:
                error = request.may_begin(self.partition_for(group_id))
            if error is ErrorCode.NONE:
                hosted = self._groups.hosted(group_id)
                error = await asyncio.shield(self._commit_later(hosted, request.producer, fitting, batch))
            errors.update(dict.fromkeys(fitting, error))
        return errors

    def _commit_later(
        self, hosted: Hosted, producer: ProducerIdAndEpoch, offsets: Offsets, batch: bytes
    ) -> asyncio.Future[ErrorCode]:
        """Write offsets that count, if they do, when the producer's transaction ends."""
        group, led = hosted.group, hosted.partition
        written = self._append(hosted, batch)
        if written.done():
            return written  # in the turn of a refusal, lest a marker find what is not in the log
        place = led.place()
        placed = {tp: PlacedOffset(place, each) for tp, each in offsets.items()}
        group.pending_commits.update(led.pending.add(producer.producer_id, group.group_id, placed))
        hosted.keep()

        async def finish() -> ErrorCode:
            error = await written
            if error is not ErrorCode.NONE:
                group.settle(led.pending.drop(producer.producer_id, group.group_id, placed))
                hosted.keep()
            return error

        return self._groups.spawn(finish())

    def end_transaction(self, partition: int, producer_id: int, commit: bool) -> None:
        """A marker of the producer is in this partition of ``__consumer_offsets``."""
        led = self._groups.led.get(partition)
        if led is None:
            return
        ended = led.pending.of_producer(producer_id)
        self._adopt(led, led.pending.end(producer_id, commit=commit))
        for group_id, partitions in ended.items():
            hosted = led.host(group_id)
            hosted.group.settle(partitions)
            hosted.keep()

    @staticmethod
    def _adopt(led: LedPartition, offsets_by_group: GroupOffsets) -> None:
        for group_id, offsets in offsets_by_group.items():
            hosted = led.host(group_id)
            hosted.put((tp, place, each) for tp, (place, each) in offsets.items())
            hosted.keep()

    def _commit(self, hosted: Hosted, offsets: Offsets, batch: bytes) -> asyncio.Task[ErrorCode]:
        """Write offsets that count as soon as they are replicated."""
        written = self._append(hosted, batch)
        place = hosted.partition.place()
        hosted.group.pending_commits.update(offsets.keys())
        hosted.keep()

        async def finish() -> ErrorCode:
            try:
                error = await written
            finally:
                hosted.group.settle(offsets.keys())
            if error is ErrorCode.NONE:
                hosted.put((tp, place, each) for tp, each in offsets.items())
            hosted.keep()
            return error

        return self._groups.spawn(finish())

    def _append(self, hosted: Hosted, batch: bytes) -> asyncio.Future[ErrorCode]:
        """All offsets of a request are one batch, as in Kafka: the log takes all of them, or none."""
        group_id = hosted.group.group_id
        return self._groups.append(hosted.partition, batch, f"offsets of group {group_id}", COMMIT_ERRORS)


def _say_misplaced(partition: int, misplaced: MisplacedNames) -> None:
    _logger.error(
        "__consumer_offsets-%d holds what %d group(s) have committed that are looked for in other partitions: %s. The "
        "topic has %d partitions, and had another number when they committed. To these groups it is as if they had "
        "committed nothing. 'sparklog log dump' shows their offsets, 'sparklog group reset-offsets' sets them",
        *(partition, misplaced.number, misplaced, misplaced.partition_count),
    )
