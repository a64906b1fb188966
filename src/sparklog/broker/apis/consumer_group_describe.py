"""ConsumerGroupDescribe: epochs, members and assignments of groups of the consumer protocol.

A group that is named more than once is described once, as by DescribeGroups.
"""

from __future__ import annotations

from functools import partial

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.errors import ErrorCode
from sparklog.group.consumer.assignment import NONE, Partitions, by_topic
from sparklog.group.consumer.group import ConsumerGroup
from sparklog.group.consumer.member import ConsumerMember
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from sparklog.protocol.slices import Steps, each_in_steps

API = ApiKey.CONSUMER_GROUP_DESCRIBE
VERSIONS = range(0, 2)

_CLASSIC, _CONSUMER = 0, 1
_Described = ConsumerGroupDescribeResponse.DescribedGroup
_Member = _Described.Member
_Assignment = _Member.Assignment


def handle(
    broker: BrokerContext, request: ApiRequest[ConsumerGroupDescribeRequest]
) -> Steps[ConsumerGroupDescribeResponse]:
    groups = yield from each_in_steps(partial(_describe, broker), dict.fromkeys(request.message.group_ids))
    return ConsumerGroupDescribeResponse(groups=groups)


def _describe(broker: BrokerContext, group_id: str) -> Steps[_Described]:
    """The group as it is now, a member a step."""
    error, group = broker.groups.describe_consumer_group(group_id)
    if group is None:
        code = error if error is not ErrorCode.NONE else ErrorCode.GROUP_ID_NOT_FOUND
        reason = None if error is not ErrorCode.NONE else f"there is no group {group_id} of the consumer protocol"
        return _Described(
            error_code=int(code), error_message=reason, group_id=group_id, group_state="", assignor_name="", members=[]
        )
    members = [*group.members.values()]
    described = _Described(
        error_code=0,
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=broker.groups.members.assignor_of(group),
        members=[],
    )
    described.members = yield from each_in_steps(partial(_member, broker, group), members)
    return described


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
