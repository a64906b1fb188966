"""How a member gets from the partitions it has to those it shall have. Pure.

A member gives up first, in its old epoch; then it enters the target's epoch and takes what is free; what others still
hold it gets when they have let go of it. So at no time do two members hold one partition. As in Kafka 3.9
(``CurrentAssignmentBuilder``).
"""

from __future__ import annotations

from sparklog.group.consumer.assignment import Partitions, TopicIdPartition
from sparklog.group.consumer.member import ConsumerMember, MemberState

Owners = dict[TopicIdPartition, str]
"""Which member holds each partition that is not free. A set and a dict compare at the speed of C, without a hash of
theirs worked out anew.
"""


def reconcile(
    member: ConsumerMember, assignment_epoch: int, target: Partitions, owners: Owners, owned: Partitions | None
) -> ConsumerMember:
    """The member one step further, or as it is. ``owned`` is what it says it uses now, None if it does not say."""
    if member.state is MemberState.STABLE:
        if member.epoch == assignment_epoch:
            return member
        return _advance(member, member.epoch, assignment_epoch, target, owners, owned)
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        if _still_uses(owned, member.revoking):
            return member
        return _advance(member, member.epoch + 1, assignment_epoch, target, owners, owned)
    return _advance(member, member.epoch, assignment_epoch, target, owners, owned)


def _advance(
    member: ConsumerMember,
    epoch: int,
    assignment_epoch: int,
    target: Partitions,
    owners: Owners,
    owned: Partitions | None,
) -> ConsumerMember:
    keeps = member.assigned & target
    revoking = member.assigned - target
    if revoking and _still_uses(owned, revoking):
        moved = member.moved_to(epoch, MemberState.UNREVOKED_PARTITIONS, keeps, revoking)
    else:
        missing = target - keeps
        gets = missing.difference(owners)
        state = MemberState.STABLE if gets == missing else MemberState.UNRELEASED_PARTITIONS
        moved = member.moved_to(assignment_epoch, state, keeps | gets)
    # Waiting on is no change: the epoch before the last must stay the one that a lost answer left the member in.
    unchanged = (moved.epoch, moved.state, moved.assigned, moved.revoking) == member.progress[:1] + member.progress[2:]
    return member if unchanged else moved


def _still_uses(owned: Partitions | None, partitions: Partitions) -> bool:
    return owned is None or not owned.isdisjoint(partitions)
