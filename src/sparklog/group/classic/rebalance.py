"""How a group gets from one generation to the next. Part of the machine: no clock, no socket, no loop.

A rebalance has two halves. In PREPARING_REBALANCE the members' JoinGroup requests are held until all have come back, or
until the rebalance timeout drops those that have not; then a generation begins, and each request is answered. In
COMPLETING_REBALANCE the followers' SyncGroup requests are held until the leader's brings the assignment and that is
stored. A group that starts from EMPTY holds its first members a little longer (the initial delay), for more to come.

A member whose held request is answered gets a whole session timeout from that moment. Followed from Kafka 3.9's
``GroupCoordinator``, save in one respect: a request that another one replaces is answered, never dropped.
"""

from __future__ import annotations

from sparklog.errors import ErrorCode
from sparklog.group.classic.group import Group, GroupState, Member
from sparklog.group.classic.requests import NO_MEMBER_ID, JoinAnswer, JoinedMember, Outcome, Store, SyncAnswer
from sparklog.group.classic.subscriptions import subscribed_topics

_SHORTEST_RETRY_MS = 1000
"""A rebalance that no member joined is tried again no sooner than this, whatever timeout the members ask for."""


def answer_join(group: Group, member_id: str, answer: JoinAnswer, outcome: Outcome) -> None:
    outcome.answer(group.joining.pop(member_id, None), answer)


def answer_sync(group: Group, member_id: str, answer: SyncAnswer, outcome: Outcome) -> None:
    outcome.answer(group.syncing.pop(member_id, None), answer)


def generation_answer(group: Group, member_id: str, *, with_members: bool) -> JoinAnswer:
    """What a member learns of the current generation; its members too, if it must assign."""
    members = tuple(
        JoinedMember(each.member_id, each.instance_id, each.metadata(group.protocol))
        for each in (group.members.values() if with_members else ())
    )
    return JoinAnswer(
        ErrorCode.NONE,
        member_id,
        group.generation,
        group.protocol_type,
        group.protocol,
        group.leader or NO_MEMBER_ID,
        members,
    )


def prepare(group: Group, initial_delay_ms: int, now_ms: int, outcome: Outcome) -> None:
    """Call for a rebalance, unless one is being called for already."""
    if not group.can_rebalance:
        return
    if group.state is GroupState.COMPLETING_REBALANCE:
        _fail_sync(group, ErrorCode.REBALANCE_IN_PROGRESS, now_ms, outcome)
    group.is_assigned = False
    group.pending_sync.clear()
    group.sync_deadline_ms = None
    timeout_ms = group.rebalance_timeout_ms
    if group.state is GroupState.EMPTY:
        group.initial_delay_left_ms = max(timeout_ms - initial_delay_ms, 0)
        timeout_ms = initial_delay_ms
    group.transition_to(GroupState.PREPARING_REBALANCE)
    _set_join_deadline(group, now_ms + timeout_ms, outcome)


def complete_if_all_joined(group: Group, now_ms: int, outcome: Outcome) -> None:
    """Begin the generation when no member is missing; the initial delay is waited out all the same."""
    if group.state is GroupState.PREPARING_REBALANCE and group.initial_delay_left_ms is None and group.all_joined:
        complete_join(group, now_ms, outcome)


def join_deadline_passed(group: Group, initial_delay_ms: int, now_ms: int, outcome: Outcome) -> None:
    """Wait on if new members keep coming to a new group, or else go on with those that are here."""
    left_ms = group.initial_delay_left_ms
    if left_ms and group.new_member_added:
        group.new_member_added = False
        delay_ms = min(initial_delay_ms, left_ms)
        group.initial_delay_left_ms = left_ms - delay_ms
        _set_join_deadline(group, now_ms + delay_ms, outcome)
    else:
        complete_join(group, now_ms, outcome)


def complete_join(group: Group, now_ms: int, outcome: Outcome) -> None:
    """Begin the next generation, without the members that did not rejoin, except static ones: they may yet return."""
    group.initial_delay_left_ms = None
    group.new_member_added = False
    for member in [*group.members.values()]:
        if member.member_id not in group.joining and member.instance_id is None:
            group.remove(member.member_id)
    if group.members and not group.elect_joined_leader():
        _set_join_deadline(group, now_ms + max(group.rebalance_timeout_ms, _SHORTEST_RETRY_MS), outcome)
        return
    group.join_deadline_ms = None
    group.generation += 1
    if group.members:
        _begin_generation(group, now_ms, outcome)
    else:
        group.protocol = None
        group.subscribed = subscribed_topics(group)
        group.transition_to(GroupState.EMPTY)
        outcome.store = Store(group.generation, {})


def _begin_generation(group: Group, now_ms: int, outcome: Outcome) -> None:
    group.protocol = group.select_protocol()
    group.subscribed = subscribed_topics(group)
    group.transition_to(GroupState.COMPLETING_REBALANCE)
    for member in group.members.values():
        member.is_new = False
        answer = generation_answer(group, member.member_id, with_members=member.member_id == group.leader)
        answer_join(group, member.member_id, answer, outcome)
        outcome.wake(member.touch(now_ms))
    if group.has_new_ids:
        # As of the generation before: a coordinator that has to go on from here calls for a rebalance. If it knew the
        # old ids only, it would take the holders of the new ones for strangers to their own places.
        outcome.store = Store(
            group.generation - 1, {each.member_id: each.assignment for each in group.members.values()}
        )
        group.has_new_ids = False
    group.pending_sync = set(group.members)
    group.sync_deadline_ms = now_ms + group.rebalance_timeout_ms
    outcome.wake(group.sync_deadline_ms)


def propagate_assignment(group: Group, assignments: dict[str, bytes], now_ms: int, outcome: Outcome) -> None:
    """The leader's assignment is stored: the generation is stable, and those that wait learn their share."""
    group.transition_to(GroupState.STABLE)
    for member in group.members.values():
        group.assign(member, assignments.get(member.member_id, b""))
        if member.member_id in group.syncing:
            answer_sync(group, member.member_id, assignment_answer(group, member), outcome)
            outcome.wake(member.touch(now_ms))


def assignment_answer(group: Group, member: Member) -> SyncAnswer:
    return SyncAnswer(ErrorCode.NONE, group.protocol_type, group.protocol, member.assignment)


def fail_assignment(group: Group, error: ErrorCode, initial_delay_ms: int, now_ms: int, outcome: Outcome) -> None:
    """The leader's assignment could not be stored: say so, and rebalance."""
    _fail_sync(group, error, now_ms, outcome)
    prepare(group, initial_delay_ms, now_ms, outcome)


def _fail_sync(group: Group, error: ErrorCode, now_ms: int, outcome: Outcome) -> None:
    for member in group.members.values():
        group.assign(member, b"")
        if member.member_id in group.syncing:
            answer_sync(group, member.member_id, SyncAnswer(error), outcome)
            outcome.wake(member.touch(now_ms))


def remove_member(group: Group, member_id: str, initial_delay_ms: int, now_ms: int, outcome: Outcome) -> None:
    """A member left or was given up for lost: the others share its part."""
    answer_join(group, member_id, JoinAnswer(ErrorCode.UNKNOWN_MEMBER_ID), outcome)
    answer_sync(group, member_id, SyncAnswer(ErrorCode.UNKNOWN_MEMBER_ID), outcome)
    group.remove(member_id)
    prepare(group, initial_delay_ms, now_ms, outcome)


def _set_join_deadline(group: Group, deadline_ms: int, outcome: Outcome) -> None:
    group.join_deadline_ms = deadline_ms
    outcome.wake(deadline_ms)
