"""From a group of the classic protocol to one of the consumer protocol, and back. Pure.

A member of the new protocol that joins a classic group of consumers turns it into a consumer group, with each member
holding what the last leader gave; when the last such member is gone, those that are left go on as a classic group,
which rebalances. Which of the two may happen is the broker's ``group.consumer.migration.policy``. Written after Kafka
3.9.
"""

from __future__ import annotations

from enum import Enum

from sparklog.errors import ApiError, ErrorCode, ProtocolError
from sparklog.group.classic.group import Group, GroupState, Member
from sparklog.group.classic.subscriptions import MOST_ELEMENTS, read_assignment, subscribed_topics, write_assignment
from sparklog.group.consumer.assignment import NONE
from sparklog.group.consumer.classic import by_id, by_name
from sparklog.group.consumer.group import ConsumerGroup
from sparklog.group.consumer.member import ClassicSide, ConsumerMember
from sparklog.group.consumer.topics import Topics
from sparklog.protocol.subscription import PROTOCOL_TYPE, decode_subscription
from sparklog.protocol.wire import Budget


class MigrationPolicy(Enum):
    """The values of ``group.consumer.migration.policy``."""

    DISABLED = "disabled"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    BIDIRECTIONAL = "bidirectional"

    @property
    def upgrades(self) -> bool:
        return self in (MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL)

    @property
    def downgrades(self) -> bool:
        return self in (MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL)


def upgraded(group: Group, topics: Topics, policy: MigrationPolicy, max_size: int) -> ConsumerGroup:
    """The classic group as a consumer group. Raises ApiError (GROUP_ID_NOT_FOUND) where that may not be."""
    if not policy.upgrades or group.protocol_type != PROTOCOL_TYPE or len(group.members) > max_size:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"{group.group_id} is a group of the classic protocol")
    made = ConsumerGroup(group.group_id, epoch=group.generation, assignment_epoch=group.generation)
    budget = Budget(MOST_ELEMENTS)
    try:
        for member in group.members.values():
            taken = _upgraded_member(group, member, topics, made, budget)
            made.put(taken)
            made.target[taken.member_id] = taken.assigned
    except ProtocolError as error:
        raise ApiError(
            ErrorCode.GROUP_ID_NOT_FOUND, f"{group.group_id} is a classic group whose members cannot be read: {error}"
        ) from error
    return made


def _upgraded_member(
    group: Group, member: Member, topics: Topics, made: ConsumerGroup, budget: Budget
) -> ConsumerMember:
    said = decode_subscription(member.metadata(group.protocol) or member.protocols[0].metadata, budget)
    had = by_id(read_assignment(member.assignment, budget), topics)
    return ConsumerMember(
        member.member_id,
        instance_id=member.instance_id,
        rack_id=said.rack,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=frozenset(said.topics),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicSide(member.session_timeout_ms, member.protocols),
        epoch=group.generation,
        previous_epoch=group.generation,
        assigned=frozenset(each for each in had if made.is_free(each)),  # a leader may have given one to two
    )


def is_due(before: ConsumerGroup, after: ConsumerGroup, policy: MigrationPolicy, max_size: int) -> bool:
    """Whether only classic members are left, and the group goes on as theirs."""
    was_mixed = any(each.classic is None for each in before.members.values())
    return policy.downgrades and was_mixed and after.has_only_classic_members and len(after.members) <= max_size


def downgraded(group: ConsumerGroup, generation: int, topics: Topics) -> Group:
    """The members, all of them classic, as a classic group. Raises ProtocolError.

    ``generation`` is the epoch before the last of the others went: those that had caught up are in it, so they are told
    to join again and keep what they have, where another generation would make them give up everything. None of them
    leads: it is for the next generation to share out what the others had, also where another coordinator reads this.
    """
    made = Group(group.group_id, generation=generation, protocol_type=PROTOCOL_TYPE)
    for member in group.members.values():
        if member.classic is not None:
            made.add(
                Member(
                    member.member_id,
                    member.instance_id,
                    member.client_id,
                    member.client_host,
                    member.classic.session_timeout_ms,
                    member.rebalance_timeout_ms,
                    member.classic.protocols,
                )
            )
    made.protocol, made.leader = made.select_protocol(), None
    made.state = GroupState.STABLE
    made.subscribed = subscribed_topics(made)
    budget = Budget(MOST_ELEMENTS)
    for taken in made.members.values():
        version = decode_subscription(taken.metadata(made.protocol), budget).version
        made.assign(taken, write_assignment(version, by_name(group.target.get(taken.member_id, NONE), topics)))
    return made
