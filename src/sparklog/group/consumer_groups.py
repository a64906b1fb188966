"""ConsumerGroups: drives the groups of the consumer protocol over ``GroupMetadataManager``.

A change takes the group's turn: it decides, writes what the decision changes, and puts the new group in the place
of the old when every in-sync replica has that. All of it is done in steps, and others have the loop in between: until
then they see the old group, and no other change of it begins. So what is in memory follows the log, nobody is told what
the log does not have, and a write that fails changes nothing. (One that may yet be replicated, REQUEST_TIMED_OUT, is in
the log: the group changes, and the member is told to ask again.)
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from sparklog.config.broker import ASSIGNOR_CLASSES, BrokerConfig
from sparklog.errors import ApiError, ErrorCode, ProtocolError
from sparklog.group.classic.group import Group
from sparklog.group.classic.machine import GroupMachine
from sparklog.group.classic.requests import (
    JoinAnswer,
    JoinRequest,
    LeaveAnswer,
    MemberIdentity,
    Outcome,
    SyncAnswer,
    SyncRequest,
)
from sparklog.group.consumer import classic
from sparklog.group.consumer.group import ConsumerGroup
from sparklog.group.consumer.machine import ConsumerMachine, ConsumerSettings, unknown_member
from sparklog.group.consumer.member import JOIN_EPOCH, ConsumerMember
from sparklog.group.consumer.migration import MigrationPolicy, downgraded, is_due, upgraded
from sparklog.group.consumer.records import Record, changes
from sparklog.group.consumer.requests import ConsumerAnswer, ConsumerHeartbeat
from sparklog.group.consumer.timers import Timers
from sparklog.group.consumer.topics import Topics
from sparklog.group.hosted import Hosted
from sparklog.group.metadata_manager import GroupMetadataManager, fits
from sparklog.group.offsets import building, group_key, group_record
from sparklog.group.storage import CONSUMER_STORE_ERRORS

_LOG = logging.getLogger(__name__)
_AS_IT_IS: dict[ErrorCode, ErrorCode] = {}
_RETRY_MS = 1000
"""How long a member whose time is up stays if that could not be written."""


class ConsumerGroups:
    """``apply`` does what a machine of the classic protocol wants done with a group."""

    def __init__(
        self,
        config: BrokerConfig,
        groups: GroupMetadataManager,
        topics: Topics,
        classic_machine: GroupMachine,
        apply: Callable[[Hosted, Outcome], None],
        new_id: Callable[[], str],
    ) -> None:
        settings = ConsumerSettings(
            config.group_consumer_session_timeout_ms,
            config.group_consumer_heartbeat_interval_ms,
            config.group_consumer_max_size,
            tuple(dict.fromkeys(ASSIGNOR_CLASSES.get(each, each) for each in config.group_consumer_assignors)),
        )
        self.machine = ConsumerMachine(settings, new_id)
        self.is_served = "consumer" in config.group_coordinator_rebalance_protocols
        self._policy = MigrationPolicy(config.group_consumer_migration_policy)
        self._classic_max_size = config.group_max_size
        self._groups = groups
        self._topics = topics
        self._classic_machine = classic_machine
        self._apply = apply
        self._new_id = new_id

    async def heartbeat(self, request: ConsumerHeartbeat) -> ConsumerAnswer:
        """Returns when the log has what the heartbeat changed."""
        try:
            self._check(request)
            quiet = self._quiet(request)
            if quiet is not None:
                return quiet
            said, leaving = request, list[MemberIdentity]()
            if request.leaves:
                said, leaving = request.farewell, [MemberIdentity(request.member_id, request.instance_id)]
            act = partial(self._heartbeat, said)
            return await self._groups.in_turn(said.group_id, act, leaving=leaving)
        except ApiError as error:
            return ConsumerAnswer(error.code, error.reason or None)

    def _check(self, request: ConsumerHeartbeat) -> None:
        if not self.is_served:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "group.coordinator.rebalance.protocols leaves consumer out")
        self.machine.check(request)
        ids = (request.group_id, request.member_id, request.instance_id, request.rack_id, request.client_id)
        if not all(map(fits, (*ids, request.regex, *(request.topics or ())))):
            raise ApiError(ErrorCode.INVALID_REQUEST, "a text of the request is longer than 32767 bytes")
        error = self._groups.status(request.group_id)
        if error is not ErrorCode.NONE:
            raise ApiError(error)
        self._check_topics()

    def _check_topics(self) -> None:
        """A broker leads partitions before it hears of all topics; until then it must not think them deleted."""
        if self._topics.version == 0:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the broker has not heard of the topics yet")

    def _quiet(self, request: ConsumerHeartbeat) -> ConsumerAnswer | None:
        """The answer that most heartbeats get: go on."""
        hosted = self._groups.find(request.group_id)
        if hosted is None or hosted.consumer is None or request.leaves:
            return None
        answer = self.machine.quiet_answer(hosted.consumer, request, self._topics)
        if answer is not None:
            self._touch(hosted, hosted.consumer.members[request.member_id])
        return answer

    async def _heartbeat(self, request: ConsumerHeartbeat, hosted: Hosted) -> ConsumerAnswer:
        await self._look_up(hosted.consumer, request.regex)
        before, upgrade = self._begin(hosted, request)
        decide = self.machine.leave if request.leaves else self.machine.heartbeat
        deciding = decide(before, request, self._topics)  # what is refused is so in this turn of the loop
        if hosted.group.members:
            self._apply(hosted, self._classic_machine.upgrading(hosted.group, self._groups.now_ms()))
        decision = await self._groups.take(deciding, request.group_id)
        await self._replace(hosted, decision.group, upgrade=upgrade)
        if hosted.consumer is not None and not request.leaves:
            self._touch(hosted, hosted.consumer.members[str(decision.answer.member_id)])
        return decision.answer

    async def _look_up(self, group: ConsumerGroup | None, regex: str | None = None) -> None:
        """Have what the members' expressions match at hand for what is decided in this turn of the loop."""
        members = group.members.values() if group is not None else ()
        regexes = {each for each in (regex, *(member.regex for member in members)) if each}
        if regexes:
            await self._topics.look_up(regexes)

    def _begin(self, hosted: Hosted, request: ConsumerHeartbeat) -> tuple[ConsumerGroup, bool]:
        """The group to act on, and whether it takes the place of a classic one. Raises ApiError."""
        if hosted.consumer is not None:
            return hosted.consumer, False
        if request.epoch != JOIN_EPOCH:
            raise unknown_member(request.member_id)
        group = hosted.group
        if not group.members:
            return ConsumerGroup(group.group_id), bool(group.generation)
        return upgraded(group, self._topics, self._policy, self.machine.settings.max_size), True

    async def _replace(self, hosted: Hosted, after: ConsumerGroup, *, upgrade: bool = False) -> None:
        """Write what changes, then let it count. Raises ApiError."""
        before = hosted.consumer
        if before is not None and is_due(before, after, self._policy, self._classic_max_size):
            group = self._readable(after, before.epoch)
            if group is not None:
                await self._downgrade(hosted, group)
                return
        records = await self._groups.take(changes(before, after), after.group_id)
        if upgrade:
            records.insert(0, (group_key(after.group_id), None))
        error = await self._write(hosted, records)
        if error in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT):
            self._install(hosted, after)
        self._raise(error)

    def _readable(self, after: ConsumerGroup, generation: int) -> Group | None:
        """The group as a classic one; None if its members cannot be read as such."""
        try:
            return downgraded(after, generation, self._topics)
        except ProtocolError as error:
            _LOG.warning("group %s stays one of the consumer protocol: %s", after.group_id, error)
            return None

    async def _downgrade(self, hosted: Hosted, group: Group) -> None:
        """Go on as this classic group, which rebalances. Raises ApiError."""
        group.state_timestamp_ms = self._groups.clock.now_ms()
        assignments = {each.member_id: each.assignment for each in group.members.values()}
        gone = await self._groups.take(changes(hosted.consumer, None), group.group_id)
        error = await self._write(hosted, [*gone, group_record(group, assignments)])
        if error in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT):
            hosted.group.become(group)
            hosted.consumer = None
            hosted.timers = Timers()
            self._apply(hosted, self._classic_machine.downgraded(hosted.group, self._groups.now_ms()))
        self._raise(error)

    async def _write(self, hosted: Hosted, records: list[Record]) -> ErrorCode:
        """Returns what the log said, not what that means to a client."""
        if not records:
            return ErrorCode.NONE
        group_id = hosted.group.group_id
        batch = await self._groups.take(building(records, self._groups.clock.now_ms()), group_id)
        if not self._groups.is_current(hosted):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER  # and what it was decided on may not be so any more
        return await self._groups.append(hosted.partition, batch, f"consumer group {group_id}", _AS_IT_IS)

    @staticmethod
    def _raise(error: ErrorCode) -> None:
        if error is not ErrorCode.NONE:
            raise ApiError(CONSUMER_STORE_ERRORS.get(error, error), "the group could not be written")

    # Time.

    def _install(self, hosted: Hosted, after: ConsumerGroup) -> None:
        """The log has the group as it is now; new members get all the time there is to be heard from."""
        if hosted.consumer is None:
            hosted.group.become(Group(after.group_id))
        hosted.timers.follow(hosted.consumer, after, self._groups.now_ms())
        hosted.consumer = after
        for member_id in after.members.keys() - hosted.timers.sessions.keys():
            self._touch(hosted, after.members[member_id])
        self._wake(hosted, hosted.timers.next_ms())

    def loaded(self, hosted: Hosted, group: ConsumerGroup) -> None:
        """The group was read from the log."""
        self._install(hosted, group)
        hosted.keep()

    def _touch(self, hosted: Hosted, member: ConsumerMember) -> None:
        """The member is alive."""
        own_ms = self.machine.settings.session_timeout_ms
        timeout_ms = own_ms if member.classic is None else member.classic.session_timeout_ms
        hosted.timers.sessions[member.member_id] = deadline_ms = self._groups.now_ms() + timeout_ms
        self._wake(hosted, deadline_ms)

    def _wake(self, hosted: Hosted, wake_ms: int | None) -> None:
        if wake_ms is not None:
            self._groups.wake(hosted, wake_ms)

    async def expire(self, hosted: Hosted, group: ConsumerGroup) -> None:
        """Remove some members that missed their deadlines; look again at the next deadline. In the group's turn."""
        await self._look_up(group)
        missed = [each for each in hosted.timers.missed(self._groups.now_ms()) if each in group.members]
        next_ms = hosted.timers.next_ms()
        if missed and self._topics.version == 0:
            next_ms = self._groups.now_ms() + _RETRY_MS
            for member_id in missed:
                self._touch(hosted, group.members[member_id])  # it could not make itself heard
        elif missed:
            going = missed[: hosted.timers.at_once]
            _LOG.info("group %s loses %d member(s) whose time is up, such as %s", group.group_id, len(going), going[0])
            try:
                removing = self.machine.remove(group, going, self._topics)
                await self._replace(hosted, await self._groups.take(removing, group.group_id))
                next_ms = hosted.timers.next_ms()
                hosted.timers.put_out(len(going), is_done=True)
            except ApiError:
                next_ms = self._groups.now_ms() + _RETRY_MS
                hosted.timers.put_out(len(going), is_done=False)
        if hosted.consumer is not None:
            self._wake(hosted, next_ms)

    # Members of the classic protocol. The caller has the group's turn, save where nothing is written.

    async def join(self, hosted: Hosted, group: ConsumerGroup, request: JoinRequest) -> JoinAnswer:
        try:
            await self._look_up(group)
            self._check_topics()
            joining = classic.join(self.machine, group, request, self._member_id(request), self._topics)
            joined = await self._groups.take(joining, group.group_id)
            await self._replace(hosted, joined.group)
        except ApiError as error:
            return JoinAnswer(error.code, request.member_id)
        if joined.answer.error is ErrorCode.NONE and hosted.consumer is not None:
            timers, member_id = hosted.timers, joined.answer.member_id
            timers.joins.pop(member_id, None)
            timers.syncs[member_id] = self._groups.now_ms() + request.rebalance_timeout_ms
            self._wake(hosted, timers.syncs[member_id])
            self._touch(hosted, hosted.consumer.members[member_id])
        return joined.answer

    def _member_id(self, request: JoinRequest) -> str:
        return f"{request.instance_id or request.client_id}-{self._new_id()}"

    def sync(self, hosted: Hosted, group: ConsumerGroup, request: SyncRequest) -> SyncAnswer:
        if self._topics.version == 0:
            return SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS)  # old clients know no other that makes them ask again
        try:
            answer = classic.sync(group, request, self._topics)
        except ApiError as error:
            if error.code is ErrorCode.REBALANCE_IN_PROGRESS:
                self._expect_join(hosted, group.members[request.member_id])
            return SyncAnswer(error.code)
        hosted.timers.syncs.pop(request.member_id, None)
        self._touch(hosted, group.members[request.member_id])
        return answer

    def classic_heartbeat(self, hosted: Hosted, group: ConsumerGroup, identity: MemberIdentity) -> ErrorCode:
        try:
            member, _ = classic.find(group, identity)
        except ApiError as error:
            return error.code
        self._touch(hosted, member)
        if not classic.must_rejoin(group, member):
            return ErrorCode.NONE
        self._expect_join(hosted, member)
        return ErrorCode.REBALANCE_IN_PROGRESS

    def _expect_join(self, hosted: Hosted, member: ConsumerMember) -> None:
        deadline_ms = self._groups.now_ms() + member.rebalance_timeout_ms
        self._wake(hosted, hosted.timers.joins.setdefault(member.member_id, deadline_ms))

    async def leave(self, hosted: Hosted, group: ConsumerGroup, leaving: list[MemberIdentity]) -> LeaveAnswer:
        try:
            await self._look_up(group)
            self._check_topics()
            parting = classic.leave(self.machine, group, leaving, self._topics)
            left = await self._groups.take(parting, group.group_id)
            if left.member_ids:
                await self._replace(hosted, left.group)
        except ApiError as error:
            return LeaveAnswer(error.code)
        return LeaveAnswer(ErrorCode.NONE, left.errors)

    async def dissolve(self, hosted: Hosted) -> None:
        """The group has no members, and a classic one takes its place. Raises ApiError."""
        gone = await self._groups.take(changes(hosted.consumer, None), hosted.group.group_id)
        error = await self._write(hosted, gone)
        if error in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT):
            hosted.consumer = None
        self._raise(error)
