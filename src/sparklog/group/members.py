"""MemberRequests: what members ask of their groups, of either protocol, over ``GroupMetadataManager``.

A request finds a group of the classic protocol or one of the consumer protocol, in which classic members may take part
too; the first decides in one go, the second in its turn. What the log must hold is appended in the moment in which it
is decided, and counts only once it is replicated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from sparklog.config.broker import BrokerConfig
from sparklog.errors import ApiError, ErrorCode
from sparklog.group.classic.machine import GroupMachine, GroupSettings, growth
from sparklog.group.classic.requests import (
    CommitRequest,
    JoinAnswer,
    JoinRequest,
    LeaveAnswer,
    MemberIdentity,
    Outcome,
    Store,
    SyncAnswer,
    SyncRequest,
)
from sparklog.group.consumer.group import ConsumerGroup
from sparklog.group.consumer.requests import ConsumerAnswer, ConsumerHeartbeat
from sparklog.group.consumer.topics import Topics
from sparklog.group.consumer_groups import ConsumerGroups
from sparklog.group.hosted import Hosted
from sparklog.group.metadata_manager import GroupMetadataManager, fits
from sparklog.group.offsets import build_batch, group_record
from sparklog.group.reserved import reserved_error
from sparklog.group.storage import GROUP_STORE_ERRORS

T = TypeVar("T")
_SLICE = 100
"""So many members leave a group in one step."""


class MemberRequests:
    """All methods belong to the loop's thread. ``new_id`` gives a string never given before, for member ids."""

    def __init__(
        self, config: BrokerConfig, groups: GroupMetadataManager, topics: Topics, new_id: Callable[[], str]
    ) -> None:
        settings = GroupSettings(
            config.group_min_session_timeout_ms,
            config.group_max_session_timeout_ms,
            config.group_initial_rebalance_delay_ms,
            config.group_max_size,
        )
        self._protects = config.internal_topics_protect
        self._groups = groups
        self._machine = GroupMachine(settings, new_id)
        self._consumers = ConsumerGroups(config, groups, topics, self._machine, self._apply, new_id)

    # Requests. ``GroupMetadataManager.status`` first: is the group ours, and loaded?

    async def consumer_heartbeat(self, request: ConsumerHeartbeat) -> ConsumerAnswer:
        """A member of the consumer protocol; returns when the log has what its heartbeat changed."""
        error = reserved_error(request.group_id, self._protects)
        if error is not ErrorCode.NONE:
            return ConsumerAnswer(error)
        return await self._consumers.heartbeat(request)

    async def join(self, group_id: str, request: JoinRequest) -> JoinAnswer:
        """Returns when the member's next generation begins, or at once if there is nothing to wait for."""
        error = reserved_error(group_id, self._protects)
        if error is ErrorCode.NONE:
            error = self._groups.status(group_id)
        texts = (request.member_id, request.instance_id, request.client_id, request.protocol_type)
        if error is ErrorCode.NONE and not all(map(fits, (*texts, *(each.name for each in request.protocols)))):
            error = ErrorCode.INVALID_REQUEST
        if error is not ErrorCode.NONE:
            return JoinAnswer(error, request.member_id)
        if not self._is_plain(group_id):
            try:
                answered = await self._in_turn(group_id, lambda hosted: self._join_consumers(hosted, request))
            except ApiError as failure:
                return JoinAnswer(failure.code, request.member_id)
            if answered is not None:
                return answered
        hosted = self._groups.hosted(group_id)
        if not self._groups.has_room(growth(hosted.group, request)):
            return JoinAnswer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, request.member_id)
        waiter: asyncio.Future[JoinAnswer] = self._groups.loop.create_future()
        self._apply(hosted, self._machine.join(hosted.group, request, waiter, self._groups.now_ms()))
        return await waiter

    async def _join_consumers(self, hosted: Hosted, request: JoinRequest) -> JoinAnswer | None:
        """As a member of the group of the consumer protocol; None if there is none (any more). Raises ApiError."""
        if hosted.consumer is not None and not hosted.consumer.members:
            await self._consumers.dissolve(hosted)
        if hosted.consumer is None:
            return None
        error = self._machine.session_error(request)
        if error is not ErrorCode.NONE:
            raise ApiError(error)
        return await self._consumers.join(hosted, hosted.consumer, request)

    async def sync(self, group_id: str, request: SyncRequest) -> SyncAnswer:
        """Returns when the leader's assignment is stored."""
        error = self._groups.status(group_id)
        if error is not ErrorCode.NONE:
            return _not_synced(error)
        if not self._is_plain(group_id):
            try:
                answered = await self._in_turn(group_id, lambda hosted: self._sync_consumers(hosted, request))
            except ApiError as failure:
                return _not_synced(failure.code)
            if answered is not None:
                return answered
        hosted = self._groups.hosted(group_id)
        brought = sum(map(len, request.assignments.values()))
        if brought and not self._groups.has_room(brought - hosted.group.assigned):
            return _not_synced(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        waiter: asyncio.Future[SyncAnswer] = self._groups.loop.create_future()
        self._apply(hosted, self._machine.sync(hosted.group, request, waiter, self._groups.now_ms()))
        return await waiter

    async def _sync_consumers(self, hosted: Hosted, request: SyncRequest) -> SyncAnswer | None:
        return None if hosted.consumer is None else self._consumers.sync(hosted, hosted.consumer, request)

    def heartbeat(self, group_id: str, identity: MemberIdentity) -> ErrorCode:
        error = self._groups.status(group_id)
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return ErrorCode.NONE  # nothing is known against the member, and its session starts anew after the load
        if error is not ErrorCode.NONE:
            return error
        hosted = self._groups.find(group_id)
        if hosted is not None and hosted.consumer is not None:
            return self._consumers.classic_heartbeat(hosted, hosted.consumer, identity)
        return self._machine.heartbeat(self._groups.peek(group_id), identity, self._groups.now_ms())

    async def leave(self, group_id: str, members: list[MemberIdentity]) -> LeaveAnswer:
        """Of many members a slice leaves at a time, as if each slice were a request of its own."""
        if len(members) <= _SLICE:
            return await self._leave(group_id, members)
        errors: list[ErrorCode] = []
        async for start in self._groups.turns.paced(range(0, len(members), _SLICE)):
            answer = await self._leave(group_id, members[start : start + _SLICE])
            if answer.error is not ErrorCode.NONE:
                return answer
            errors += answer.members
        return LeaveAnswer(ErrorCode.NONE, tuple(errors))

    async def _leave(self, group_id: str, members: list[MemberIdentity]) -> LeaveAnswer:
        error = self._groups.status(group_id)
        if error is not ErrorCode.NONE:
            return LeaveAnswer(error)
        if not self._is_plain(group_id):
            try:
                act = partial(self._leave_consumers, members)
                answered = await self._in_turn(group_id, act, leaving=members)
            except ApiError as failure:
                return LeaveAnswer(failure.code)
            if answered is not None:
                return answered
        hosted = self._groups.hosted(group_id)
        answer, outcome = self._machine.leave(hosted.group, members, self._groups.now_ms())
        self._apply(hosted, outcome)
        return answer

    async def _leave_consumers(self, members: list[MemberIdentity], hosted: Hosted) -> LeaveAnswer | None:
        return None if hosted.consumer is None else await self._consumers.leave(hosted, hosted.consumer, members)

    def _is_plain(self, group_id: str) -> bool:
        """Whether the group is none of the consumer protocol, nor about to become one."""
        hosted = self._groups.find(group_id)
        return hosted is None or (hosted.consumer is None and not hosted.turn.locked())

    async def _in_turn(
        self,
        group_id: str,
        act: Callable[[Hosted], Coroutine[Any, Any, T | None]],
        *,
        leaving: Collection[MemberIdentity] = (),
    ) -> T | None:
        """``GroupMetadataManager.in_turn``. Raises ApiError.

        None leaves it to the machine of the classic protocol, whose group it is, ours and loaded, when this returns.
        """
        answer = await self._groups.in_turn(group_id, act, leaving=leaving)
        if answer is not None:
            return answer
        error = self._groups.status(group_id)  # the turn is over, and with it what was known of the group
        if error is ErrorCode.NONE and not self._is_plain(group_id):
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE  # it became another meanwhile; ask again
        if error is not ErrorCode.NONE:
            raise ApiError(error)
        return None

    # What a member may do with its group's offsets. The group is ours, and loaded.

    def commit_error(self, group_id: str, request: CommitRequest, *, in_transaction: bool) -> ErrorCode:
        """NONE if the client may commit offsets of the group."""
        identity, hosted = request.identity, self._groups.find(group_id)
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
        group, now_ms = self._groups.peek(group_id), self._groups.now_ms()
        return self._machine.commit_error(group, identity, now_ms, in_transaction=in_transaction)

    def fetch_error(self, group_id: str, member_id: str | None, member_epoch: int) -> ErrorCode:
        """NONE unless the group is one of the consumer protocol, and the client is not the member it claims to be."""
        hosted = self._groups.find(group_id)
        if hosted is None or hosted.consumer is None:
            return ErrorCode.NONE
        return self._consumers.machine.fetch_error(hosted.consumer, member_id, member_epoch)

    def assignor_of(self, group: ConsumerGroup) -> str:
        """The assignor that shares out the partitions of a group of the consumer protocol."""
        return group.assignor(self._consumers.machine.settings.assignors)

    # Leadership, and time.

    def loaded(self, hosted: Hosted, consumer: ConsumerGroup | None) -> None:
        """The group was read from the log: the classic one that is hosted, or ``consumer`` in its place."""
        if consumer is None:
            self._apply(hosted, self._machine.loaded(hosted.group, self._groups.now_ms()))
        else:
            self._consumers.loaded(hosted, consumer)

    def unload(self, hosted: Hosted) -> None:
        """Another broker coordinates the group now: held requests are answered so."""
        self._apply(hosted, self._machine.unload(hosted.group))

    def _apply(self, hosted: Hosted, outcome: Outcome) -> None:
        for waiter, answer in outcome.answers:
            if isinstance(waiter, asyncio.Future) and not waiter.done():
                waiter.set_result(answer)
        hosted.keep()
        if outcome.store is not None:
            self._write(hosted, outcome.store)
        if outcome.wake_ms is not None:
            self._groups.wake(hosted, outcome.wake_ms)

    def expire(self, hosted: Hosted) -> None:
        """The time has come that the group was to be looked at."""
        if hosted.consumer is None and not hosted.turn.locked():
            self._apply(hosted, self._machine.expire(hosted.group, self._groups.now_ms()))
        else:
            self._groups.spawn(self._expire_in_turn(hosted.group.group_id))

    async def _expire_in_turn(self, group_id: str) -> None:
        with suppress(ApiError):  # it is not ours any more
            async with self._groups.turn(group_id) as hosted:
                if hosted.consumer is None:
                    self._apply(hosted, self._machine.expire(hosted.group, self._groups.now_ms()))
                else:
                    await self._consumers.expire(hosted, hosted.consumer)

    def _write(self, hosted: Hosted, store: Store) -> None:
        now_ms = self._groups.clock.now_ms()
        hosted.group.state_timestamp_ms = now_ms
        what, size = f"group {hosted.group.group_id}", sum(map(len, store.assignments.values()))
        if self._groups.takes(hosted.partition, size):  # what it does not is not copied to learn that
            batch = build_batch([group_record(hosted.group, store.assignments, store.generation)], now_ms)
            written = self._groups.append(hosted.partition, batch, what, GROUP_STORE_ERRORS)
        else:
            written = self._groups.refused(what, size, GROUP_STORE_ERRORS)
        self._groups.spawn(self._stored(hosted, store, written))

    async def _stored(self, hosted: Hosted, store: Store, written: asyncio.Future[ErrorCode]) -> None:
        self._apply(hosted, self._machine.stored(hosted.group, store, await written, self._groups.now_ms()))


def _not_synced(error: ErrorCode) -> SyncAnswer:
    if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        # The rebalance that this belonged to is lost with the old coordinator, and old clients know no such error.
        return SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS)
    return SyncAnswer(error)
