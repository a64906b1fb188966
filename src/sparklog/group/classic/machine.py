"""GroupMachine: what a group does with each request, and when time passes. Pure: no clock, socket, file or loop.

Every method takes the group, changes it, and says in an Outcome what is to be done: answers to held requests, group
metadata to be written, and when to call ``expire``. ``now_ms`` counts on a clock that never goes back. Written after
Kafka 3.9's ``GroupCoordinator`` (the classic protocol).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from sparklog.errors import ErrorCode
from sparklog.group.classic import rebalance
from sparklog.group.classic.group import Group, GroupState, Member, Waiter, size_of
from sparklog.group.classic.requests import (
    NO_MEMBER_ID,
    JoinAnswer,
    JoinRequest,
    LeaveAnswer,
    MemberIdentity,
    Outcome,
    Store,
    SyncAnswer,
    SyncRequest,
)

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
"""A new member cannot heartbeat yet; one whose JoinGroup is held longer than this is taken to be gone."""


MOST_OF_GROUP = 16 << 20
"""Bytes of what members tell of themselves; their leader is told all of it in one answer. A group that has more in each
protocol than ``max.message.bytes``, 1 MB, has no place in ``__consumer_offsets``.
"""


def growth(group: Group, request: JoinRequest) -> int:
    """About how many bytes more the group keeps if the member joins so; less than 0 if these are fewer."""
    member = group.members.get(request.member_id or group.holder(request.instance_id) or NO_MEMBER_ID)
    if member is not None:
        return size_of(request.protocols) - size_of(member.protocols)
    own = 2 * len(request.client_id) + len(request.instance_id or "")  # it is part of the member's id too
    return size_of(request.protocols) + own


def _is_too_large(group: Group, request: JoinRequest) -> bool:
    """A member that tells no more than before is not: assignments, which count too, came after it was let in."""
    more = growth(group, request)
    return more > 0 and group.size + more > MOST_OF_GROUP


class GroupSettings(NamedTuple):
    """The broker's settings of the same names."""

    min_session_timeout_ms: int
    max_session_timeout_ms: int
    initial_rebalance_delay_ms: int
    max_size: int = (1 << 31) - 1


class GroupMachine:
    """One for all groups; a group's whole state is in the Group. ``new_id`` gives a string never given before."""

    def __init__(self, settings: GroupSettings, new_id: Callable[[], str]) -> None:
        self._settings = settings
        self._new_id = new_id

    def join(self, group: Group, request: JoinRequest, waiter: Waiter, now_ms: int) -> Outcome:
        """Enter the group or its next generation; held until the generation begins."""
        outcome = Outcome()
        error = self._join_error(group, request)
        if error is ErrorCode.GROUP_MAX_SIZE_REACHED:
            self._turn_away(group, request)
            outcome.answer(waiter, JoinAnswer(error))
        elif error is not ErrorCode.NONE:
            outcome.answer(waiter, JoinAnswer(error, request.member_id))
        elif request.member_id == NO_MEMBER_ID:
            self._join_new(group, request, waiter, now_ms, outcome)
        elif request.member_id not in group.members:
            self._add(group, request, request.member_id, waiter, now_ms, outcome)
        else:
            self._rejoin(group, request, waiter, now_ms, outcome)
        rebalance.complete_if_all_joined(group, now_ms, outcome)
        return outcome

    def session_error(self, request: JoinRequest) -> ErrorCode:
        """Whether a member may ask for this session timeout."""
        lowest, highest = self._settings.min_session_timeout_ms, self._settings.max_session_timeout_ms
        fits = lowest <= request.session_timeout_ms <= highest
        return ErrorCode.NONE if fits else ErrorCode.INVALID_SESSION_TIMEOUT

    def _join_error(self, group: Group, request: JoinRequest) -> ErrorCode:
        error = self.session_error(request)
        if error is not ErrorCode.NONE:
            return error
        if group.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if not self._has_room(group, request) or _is_too_large(group, request):
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        if not group.supports(request.protocol_type, request.protocols):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if request.member_id == NO_MEMBER_ID:
            return ErrorCode.NONE
        if request.member_id in group.pending and request.instance_id is None:
            return ErrorCode.NONE
        return _member_error(group, MemberIdentity(request.member_id, request.instance_id))

    def _has_room(self, group: Group, request: JoinRequest) -> bool:
        """In a rebalance the places go to those that come first, lest a group stay too large for ever.

        A static member that returns without its id has its place; Kafka refuses it when the group is full.
        """
        member_id = request.member_id or group.holder(request.instance_id)
        if group.state is GroupState.PREPARING_REBALANCE:
            return member_id in group.joining or len(group.joining) < self._settings.max_size
        return member_id in group.members or len(group.members) < self._settings.max_size

    def _turn_away(self, group: Group, request: JoinRequest) -> None:
        """A member that tells too much keeps its place as it was, and goes as any other: others get its share then."""
        if self._has_room(group, request):
            group.expect_no_more(request.member_id)
        else:
            group.turn_away(request.member_id)

    def _join_new(self, group: Group, request: JoinRequest, waiter: Waiter, now_ms: int, outcome: Outcome) -> None:
        prefix = request.client_id if request.instance_id is None else request.instance_id
        member_id = f"{prefix}-{self._new_id()}"
        if group.holder(request.instance_id) is not None:
            self._replace_static(group, request, member_id, waiter, now_ms, outcome)
        elif request.needs_member_id and request.instance_id is None:
            group.expect(member_id, now_ms + request.session_timeout_ms)
            outcome.wake(group.pending[member_id])
            outcome.answer(waiter, JoinAnswer(ErrorCode.MEMBER_ID_REQUIRED, member_id))
        else:
            self._add(group, request, member_id, waiter, now_ms, outcome)

    def _add(
        self, group: Group, request: JoinRequest, member_id: str, waiter: Waiter, now_ms: int, outcome: Outcome
    ) -> None:
        member = Member(
            member_id,
            request.instance_id,
            request.client_id,
            request.client_host,
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
            request.protocols,
            deadline_ms=now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS,
            is_new=True,
        )
        outcome.wake(member.deadline_ms)
        if not group.members:
            group.protocol_type = request.protocol_type
        if group.state is GroupState.PREPARING_REBALANCE and group.generation == 0:
            group.new_member_added = True
        group.add(member)
        group.joining[member_id] = waiter
        self._prepare(group, now_ms, outcome)

    def _rejoin(self, group: Group, request: JoinRequest, waiter: Waiter, now_ms: int, outcome: Outcome) -> None:
        member = group.members[request.member_id]
        same = member.protocols == request.protocols
        leads = group.leader == member.member_id
        if same and (
            group.state is GroupState.COMPLETING_REBALANCE or (group.state is GroupState.STABLE and not leads)
        ):
            # Nothing changed: the answer to the member's JoinGroup may have been lost, so it is given again. A leader
            # that rejoins a stable group wants a new assignment, for what only it can see (a topic that grew).
            outcome.answer(waiter, rebalance.generation_answer(group, member.member_id, with_members=leads))
            outcome.wake(member.touch(now_ms))
        else:
            self._update(group, member, request, waiter, outcome)
            self._prepare(group, now_ms, outcome)

    def _update(self, group: Group, member: Member, request: JoinRequest, waiter: Waiter, outcome: Outcome) -> None:
        group.set_protocols(member, request.protocols)
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms
        superseded = JoinAnswer(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
        rebalance.answer_join(group, member.member_id, superseded, outcome)
        group.joining[member.member_id] = waiter

    def _replace_static(
        self, group: Group, request: JoinRequest, member_id: str, waiter: Waiter, now_ms: int, outcome: Outcome
    ) -> None:
        old_id, leader = group.instances[str(request.instance_id)], group.leader or NO_MEMBER_ID
        rebalance.answer_join(group, old_id, JoinAnswer(ErrorCode.FENCED_INSTANCE_ID, old_id), outcome)
        rebalance.answer_sync(group, old_id, SyncAnswer(ErrorCode.FENCED_INSTANCE_ID), outcome)
        member = group.replace_id(old_id, member_id)
        outcome.wake(member.touch(now_ms))
        self._update(group, member, request, waiter, outcome)
        if group.state is GroupState.STABLE and group.select_protocol() == group.protocol:
            assignments = {each.member_id: each.assignment for each in group.members.values()}
            outcome.store = Store(group.generation, assignments, member_id, leader, request.can_skip_assignment)
        else:
            group.has_new_ids = True
            self._prepare(group, now_ms, outcome)

    def sync(self, group: Group, request: SyncRequest, waiter: Waiter, now_ms: int) -> Outcome:
        """Ask for the assignment, and bring it, if leader; held until it is there."""
        outcome = Outcome()
        error = _sync_error(group, request)
        if error is not ErrorCode.NONE:
            outcome.answer(waiter, SyncAnswer(error))
            return outcome
        member = group.members[request.member_id]
        group.pending_sync.discard(member.member_id)
        if not group.pending_sync:
            group.sync_deadline_ms = None
        if group.state is GroupState.STABLE:
            outcome.answer(waiter, rebalance.assignment_answer(group, member))
            outcome.wake(member.touch(now_ms))
            return outcome
        superseded = SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS)
        rebalance.answer_sync(group, member.member_id, superseded, outcome)
        group.syncing[member.member_id] = waiter
        if group.leader == member.member_id and not group.is_assigned:
            group.is_assigned = True
            assignments = {each: request.assignments.get(each, b"") for each in group.members}
            outcome.store = Store(group.generation, assignments)
        return outcome

    def stored(self, group: Group, store: Store, error: ErrorCode, now_ms: int) -> Outcome:
        """A Store is committed (NONE), or failed with the error the clients should see."""
        outcome = Outcome()
        if store.generation != group.generation:
            return outcome
        if store.static_member is not None:
            self._static_stored(group, store, error, now_ms, outcome)
        elif group.state is GroupState.COMPLETING_REBALANCE:
            if error is ErrorCode.NONE:
                rebalance.propagate_assignment(group, store.assignments, now_ms, outcome)
            else:
                rebalance.fail_assignment(group, error, self._settings.initial_rebalance_delay_ms, now_ms, outcome)
        return outcome

    def _static_stored(self, group: Group, store: Store, error: ErrorCode, now_ms: int, outcome: Outcome) -> None:
        member = group.members.get(store.static_member or NO_MEMBER_ID)
        if group.state is not GroupState.STABLE or member is None:
            return  # a rebalance began meanwhile; it answers the members that have joined
        if error is not ErrorCode.NONE:
            # The id was never told, so the member comes back without one and takes its place again.
            answer = JoinAnswer(error)
        elif store.can_skip_assignment:
            leads = group.leader == member.member_id
            answer = rebalance.generation_answer(group, member.member_id, with_members=leads)
            answer = answer._replace(skip_assignment=leads)
        else:
            # Such a client, told that it leads, would assign anew, and a stable group would not listen. So it is told
            # who led before it came, which is not its new id.
            answer = rebalance.generation_answer(group, member.member_id, with_members=False)
            answer = answer._replace(leader=store.leader)
        rebalance.answer_join(group, member.member_id, answer, outcome)
        outcome.wake(member.touch(now_ms))

    def heartbeat(self, group: Group, identity: MemberIdentity, now_ms: int) -> ErrorCode:
        """The member is alive; it learns whether a rebalance calls."""
        error = _generation_error(group, identity)
        if error is not ErrorCode.NONE:
            return error
        group.members[identity.member_id].heard_from(now_ms)
        if group.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def commit_error(
        self, group: Group, identity: MemberIdentity, now_ms: int, *, in_transaction: bool = False
    ) -> ErrorCode:
        """Whether these offsets may be committed: by a member of this generation, or by anyone while there is none.

        Between JoinGroup and SyncGroup a member may commit ``in_transaction`` only: to a producer REBALANCE_IN_PROGRESS
        is no reason to try again, and Java's takes it for the end. So does Kafka (``ClassicGroup``).
        """
        if group.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        anonymous = identity.member_id == NO_MEMBER_ID and identity.instance_id is None
        if identity.generation < 0 and (anonymous or group.state is GroupState.EMPTY):
            return ErrorCode.NONE if group.state is GroupState.EMPTY else ErrorCode.UNKNOWN_MEMBER_ID
        error = _generation_error(group, identity)
        if error is not ErrorCode.NONE:
            return error
        if group.state is GroupState.COMPLETING_REBALANCE and not in_transaction:
            return ErrorCode.REBALANCE_IN_PROGRESS
        group.members[identity.member_id].heard_from(now_ms)
        return ErrorCode.NONE

    def leave(self, group: Group, members: list[MemberIdentity], now_ms: int) -> tuple[LeaveAnswer, Outcome]:
        """Members that go of their own accord, or are removed by an administrator, who knows instance ids alone."""
        outcome = Outcome()
        if group.state is GroupState.DEAD:
            return LeaveAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE), outcome
        errors = tuple(self._leave_one(group, each, now_ms, outcome) for each in members)
        rebalance.complete_if_all_joined(group, now_ms, outcome)
        return LeaveAnswer(ErrorCode.NONE, errors), outcome

    def _leave_one(self, group: Group, leaving: MemberIdentity, now_ms: int, outcome: Outcome) -> ErrorCode:
        member_id = leaving.member_id
        if group.expect_no_more(member_id):
            return ErrorCode.NONE
        if member_id == NO_MEMBER_ID and leaving.instance_id is not None:
            member_id = group.holder(leaving.instance_id) or NO_MEMBER_ID
        error = _member_error(group, MemberIdentity(member_id, leaving.instance_id))
        if error is ErrorCode.NONE:
            self._remove(group, member_id, now_ms, outcome)
        return error

    def expire(self, group: Group, now_ms: int) -> Outcome:
        """Time has passed: whatever was due by ``now_ms`` happens. ``wake_ms`` of the outcome is complete."""
        outcome = Outcome()
        for member_id in [each for each, deadline_ms in group.pending.items() if deadline_ms <= now_ms]:
            group.expect_no_more(member_id)
        for member_id in _lost_members(group, now_ms):
            self._remove(group, member_id, now_ms, outcome)
        rebalance.complete_if_all_joined(group, now_ms, outcome)
        if group.join_deadline_ms is not None and group.join_deadline_ms <= now_ms:
            rebalance.join_deadline_passed(group, self._settings.initial_rebalance_delay_ms, now_ms, outcome)
        outcome.wake_ms = group.next_deadline_ms()
        return outcome

    def unload(self, group: Group) -> Outcome:
        """The group moves to another broker: held requests are answered that it is not here."""
        outcome = Outcome()
        for member_id in [*group.joining]:
            rebalance.answer_join(group, member_id, JoinAnswer(ErrorCode.NOT_COORDINATOR, member_id), outcome)
        for member_id in [*group.syncing]:
            rebalance.answer_sync(group, member_id, SyncAnswer(ErrorCode.NOT_COORDINATOR), outcome)
        group.transition_to(GroupState.DEAD)
        return outcome

    def upgrading(self, group: Group, now_ms: int) -> Outcome:
        """The group is about to become one of the consumer protocol: held requests end so that members join."""
        outcome = Outcome()
        self._prepare(group, now_ms, outcome)
        for member_id in [*group.joining]:
            answer = JoinAnswer(ErrorCode.REBALANCE_IN_PROGRESS, member_id)
            rebalance.answer_join(group, member_id, answer, outcome)
        return outcome

    def downgraded(self, group: Group, now_ms: int) -> Outcome:
        """The group was one of the consumer protocol until now: its members shall share out what is free."""
        outcome = self.loaded(group, now_ms)
        self._prepare(group, now_ms, outcome)
        return outcome

    def loaded(self, group: Group, now_ms: int) -> Outcome:
        """The group was read from the log: its members get a session timeout to be heard from."""
        outcome = Outcome()
        for member in group.members.values():
            outcome.wake(member.touch(now_ms))
        has_no_leader = bool(group.members) and group.leader is None
        if has_no_leader or len(group.members) > self._settings.max_size:
            self._prepare(group, now_ms, outcome)  # those that rejoin first stay
        return outcome

    def _remove(self, group: Group, member_id: str, now_ms: int, outcome: Outcome) -> None:
        rebalance.remove_member(group, member_id, self._settings.initial_rebalance_delay_ms, now_ms, outcome)

    def _prepare(self, group: Group, now_ms: int, outcome: Outcome) -> None:
        rebalance.prepare(group, self._settings.initial_rebalance_delay_ms, now_ms, outcome)


def _member_error(group: Group, identity: MemberIdentity) -> ErrorCode:
    """Whether the member is in the group, and is the one that holds its instance id."""
    if identity.instance_id is not None:
        holder = group.holder(identity.instance_id)
        if holder is not None and holder != identity.member_id:
            return ErrorCode.FENCED_INSTANCE_ID
        if holder is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if identity.member_id in group.members else ErrorCode.UNKNOWN_MEMBER_ID


def _lost_members(group: Group, now_ms: int) -> set[str]:
    """Those whose session is over, and those that did not fetch their assignment in time."""
    lost = {
        each.member_id for each in group.members.values() if each.deadline_ms <= now_ms and not group.is_waiting(each)
    }
    if group.sync_deadline_ms is not None and group.sync_deadline_ms <= now_ms:
        group.sync_deadline_ms = None
        lost |= group.pending_sync
    return lost


def _generation_error(group: Group, identity: MemberIdentity) -> ErrorCode:
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    error = _member_error(group, identity)
    if error is ErrorCode.NONE and identity.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return error


def _sync_error(group: Group, request: SyncRequest) -> ErrorCode:
    error = _generation_error(group, MemberIdentity(request.member_id, request.instance_id, request.generation))
    if error is not ErrorCode.NONE:
        return error
    if request.protocol_type is not None and request.protocol_type != group.protocol_type:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if request.protocol is not None and request.protocol != group.protocol:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state is GroupState.PREPARING_REBALANCE else ErrorCode.NONE
