"""ConsumerGroupDescribe: epochs, members and assignments of groups of the consumer protocol.

A group that is named more than once is described once, as by DescribeGroups.
"""

from __future__ import annotations

from functools import partial

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.authorization import Rights, authorized_operations, refusal
from sparklog.broker.handling.permissions import Allowed
from sparklog.errors import ErrorCode
from sparklog.group.consumer.assignment import NONE, Partitions, by_topic
from sparklog.group.consumer.group import ConsumerGroup
from sparklog.group.consumer.member import ConsumerMember
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from sparklog.protocol.slices import Steps, each_in_steps, each_of
from sparklog.security.access import Operation, Resource, ResourceType

API = ApiKey.CONSUMER_GROUP_DESCRIBE
VERSIONS = range(0, 2)

_CLASSIC, _CONSUMER = 0, 1
_Described = ConsumerGroupDescribeResponse.DescribedGroup
_Member = _Described.Member
_Assignment = _Member.Assignment


def handle(
    broker: BrokerContext, request: ApiRequest[ConsumerGroupDescribeRequest]
) -> Steps[ConsumerGroupDescribeResponse]:
    topics = Rights(broker, request, Operation.DESCRIBE)
    named = dict.fromkeys(request.message.group_ids)
    groups = yield from each_in_steps(partial(_describe_to, broker, request, topics), named)
    return ConsumerGroupDescribeResponse(groups=groups)


def _describe_to(
    broker: BrokerContext, request: ApiRequest[ConsumerGroupDescribeRequest], topics: Rights, group_id: str
) -> Steps[_Described]:
    resource = Resource(ResourceType.GROUP, group_id)
    refused = refusal(broker, request, Operation.DESCRIBE, resource)
    if refused is not ErrorCode.NONE:
        return _without_members(group_id, refused, None)
    is_asked = request.message.include_authorized_operations
    allowed = authorized_operations(broker, request, resource, asked=is_asked)
    described = yield from _describe(broker, group_id, allowed)
    if described.error_code != ErrorCode.NONE:
        return described
    names = yield from each_of(_topics_of, described.members)
    if not all(topics.allows(each) for each in set().union(*names)):
        why = "its members read topics that may not be described"
        return _without_members(group_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED, why)
    return described


def _topics_of(member: _Member) -> set[str]:
    assignments = (*member.assignment.topic_partitions, *member.target_assignment.topic_partitions)
    return {each.topic_name for each in assignments}


def _describe(broker: BrokerContext, group_id: str, allowed: Allowed) -> Steps[_Described]:
    """The group as it is now, a member a step."""
    error, group = broker.groups.describe_consumer_group(group_id)
    if group is None:
        code = error if error is not ErrorCode.NONE else ErrorCode.GROUP_ID_NOT_FOUND
        reason = None if error is not ErrorCode.NONE else f"there is no group {group_id} of the consumer protocol"
        return _without_members(group_id, code, reason)
    members = [*group.members.values()]
    described = _Described(
        error_code=0,
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=broker.groups.members.assignor_of(group),
        members=[],
        authorized_operations=allowed,
    )
    described.members = yield from each_in_steps(partial(_member, broker, group), members)
    return described


def _without_members(group_id: str, code: ErrorCode, why: str | None) -> _Described:
    return _Described(
        error_code=int(code), error_message=why, group_id=group_id, group_state="", assignor_name="", members=[]
    )


def _member(broker: BrokerContext, group: ConsumerGroup, member: ConsumerMember) -> Steps[_Member]:
    return _Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.regex,
        assignment=(yield from _assignment(broker, member.assigned)),
        target_assignment=(yield from _assignment(broker, group.target.get(member.member_id, NONE))),
        member_type=_CONSUMER if member.classic is None else _CLASSIC,
    )


def _assignment(broker: BrokerContext, partitions: Partitions) -> Steps[_Assignment]:
    """As far as the topics exist."""
    topics = [
        _Assignment.TopicPartitions(topic_id=topic_id, topic_name=name, partitions=numbers)
        for topic_id, numbers in (yield from by_topic(partitions)).items()
        if (name := broker.metadata.name_of(topic_id)) is not None
    ]
    return _Assignment(topic_partitions=topics)
