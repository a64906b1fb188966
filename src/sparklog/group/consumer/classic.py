"""Members of the classic protocol in a group of the consumer protocol. Pure.

To such a member the group looks like one that another member leads: a generation is its member epoch, JoinGroup is
answered at once, SyncGroup brings what the coordinator assigns. When a Heartbeat says REBALANCE_IN_PROGRESS it joins
again, and says what it still holds on to, which is how it gives partitions up. Written after Kafka 3.9.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from sparklog.errors import ApiError, ErrorCode, ProtocolError
from sparklog.group.classic.group import Protocol
from sparklog.group.classic.requests import JoinAnswer, JoinRequest, MemberIdentity, SyncAnswer, SyncRequest
from sparklog.group.classic.subscriptions import MOST_ELEMENTS, write_assignment
from sparklog.group.consumer.assignment import Partitions, TopicIdPartition
from sparklog.group.consumer.group import ConsumerGroup
from sparklog.group.consumer.machine import ConsumerMachine, expect_static, replace_static, unknown_member
from sparklog.group.consumer.member import ClassicSide, ConsumerMember, MemberState
from sparklog.group.consumer.topics import Topics
from sparklog.protocol.slices import Steps, done, then
from sparklog.protocol.subscription import PROTOCOL_TYPE, Subscription, decode_subscription
from sparklog.protocol.wire import Budget
from sparklog.structs import TopicPartition


class Joined(NamedTuple):
    """The group as it is to be, and the answer to give once the log has what changed."""

    group: ConsumerGroup
    answer: JoinAnswer


class Left(NamedTuple):
    """Likewise; an error for each that was to leave."""

    group: ConsumerGroup
    errors: tuple[ErrorCode, ...]
    member_ids: tuple[str, ...]


def join(
    machine: ConsumerMachine, group: ConsumerGroup, request: JoinRequest, new_id: str, topics: Topics
) -> Steps[Joined]:
    """Enter the group or go on in it. Raises ApiError at once."""
    member_id = request.member_id or new_id
    machine.check_room(group, member_id, request.instance_id)
    if not _supports(group, request):
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "no protocol that all classic members know")
    if request.needs_member_id and request.instance_id is None and not request.member_id:
        return done(Joined(group, JoinAnswer(ErrorCode.MEMBER_ID_REQUIRED, member_id)))
    said = _subscription(request.protocols)
    draft = group.copy()
    member = _claim(draft, request, member_id)
    updated = replace(
        member,
        instance_id=request.instance_id or member.instance_id,
        rack_id=said.rack or member.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        topics=frozenset(said.topics),
        regex=None,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        classic=ClassicSide(request.session_timeout_ms, request.protocols),
    )
    settling = machine.settle(draft, member, updated, topics, by_id(said.owned, topics))
    protocol = request.protocols[0].name
    return then(
        settling,
        lambda moved: Joined(draft, JoinAnswer(ErrorCode.NONE, moved.member_id, moved.epoch, PROTOCOL_TYPE, protocol)),
    )


def _supports(group: ConsumerGroup, request: JoinRequest) -> bool:
    if request.protocol_type != PROTOCOL_TYPE:
        return False
    known = [
        {each.name for each in member.classic.protocols}
        for member in group.members.values()
        if member.classic is not None
    ]
    return any(all(each.name in names for names in known) for each in request.protocols)


def _claim(draft: ConsumerGroup, request: JoinRequest, member_id: str) -> ConsumerMember:
    if request.instance_id is None:
        return draft.members.get(member_id) or ConsumerMember(member_id)
    holder = draft.static_member(request.instance_id)
    if request.member_id:
        return expect_static(holder, member_id, request.instance_id)
    return ConsumerMember(member_id) if holder is None else replace_static(draft, holder, member_id)


def _subscription(protocols: tuple[Protocol, ...]) -> Subscription:
    try:
        return decode_subscription(protocols[0].metadata, Budget(MOST_ELEMENTS))
    except ProtocolError as error:
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the subscription cannot be read: {error}") from error


def by_id(partitions: Iterable[TopicPartition], topics: Topics) -> Partitions:
    """Those whose topics exist."""
    found = ((topics.topic(topic), number) for topic, number in partitions)
    return frozenset(TopicIdPartition(topic.topic_id, number) for topic, number in found if topic is not None)


def by_name(partitions: Partitions, topics: Topics) -> frozenset[TopicPartition]:
    """Those whose topics exist."""
    found = ((topics.name_of(topic_id), number) for topic_id, number in partitions)
    return frozenset(TopicPartition(name, number) for name, number in found if name is not None)


def sync(group: ConsumerGroup, request: SyncRequest, topics: Topics) -> SyncAnswer:
    """What the member may use. Raises ApiError."""
    member, classic = find(group, MemberIdentity(request.member_id, request.instance_id, request.generation))
    protocol = classic.protocols[0].name
    if request.protocol_type not in (None, PROTOCOL_TYPE) or request.protocol not in (None, protocol):
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the member's protocol is {protocol}")
    if group.epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS, "the member must join again")
    version = _subscription(classic.protocols).version
    assignment = write_assignment(version, by_name(member.assigned, topics))
    return SyncAnswer(ErrorCode.NONE, request.protocol_type, request.protocol, assignment)


def must_rejoin(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether there is something to do for the member: to catch up, to give up, or to take what is free now."""
    if member.epoch < group.epoch or member.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    return member.state is MemberState.UNRELEASED_PARTITIONS and not group.awaits_others(member)


def find(group: ConsumerGroup, identity: MemberIdentity) -> tuple[ConsumerMember, ClassicSide]:
    """The classic member that speaks, in its generation. Raises ApiError."""
    member, classic = _known(group, identity)
    if identity.generation != member.epoch:
        raise ApiError(ErrorCode.ILLEGAL_GENERATION, f"{member.member_id} is in generation {member.epoch}")
    return member, classic


def _known(group: ConsumerGroup, identity: MemberIdentity) -> tuple[ConsumerMember, ClassicSide]:
    if identity.instance_id is None:
        member = group.members.get(identity.member_id)
    else:
        member = expect_static(group.static_member(identity.instance_id), identity.member_id, identity.instance_id)
    if member is None or member.classic is None:
        raise unknown_member(identity.member_id)
    return member, member.classic


def leave(machine: ConsumerMachine, group: ConsumerGroup, leaving: list[MemberIdentity], topics: Topics) -> Steps[Left]:
    """Classic members that go, or are removed by an administrator, who knows instance ids alone."""
    errors: list[ErrorCode] = []
    gone: dict[str, None] = {}
    for identity in leaving:
        try:
            gone[_to_remove(group, identity).member_id] = None
            errors.append(ErrorCode.NONE)
        except ApiError as error:
            errors.append(error.code)
    removing = machine.remove(group, gone, topics) if gone else done(group)
    return then(removing, lambda after: Left(after, tuple(errors), tuple(gone)))


def _to_remove(group: ConsumerGroup, identity: MemberIdentity) -> ConsumerMember:
    if identity.instance_id is not None and not identity.member_id:
        holder = group.static_member(identity.instance_id)
        identity = identity._replace(member_id=holder.member_id if holder else "")
    return _known(group, identity)[0]
