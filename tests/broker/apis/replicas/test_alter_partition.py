"""A leader's wish for another ISR, handed to the controller, and the answer."""

import asyncio
from types import SimpleNamespace
from uuid import UUID

import pytest

from sparklog.broker.apis.replicas import alter_partition
from sparklog.broker.context import ApiRequest
from sparklog.controller.context import ControllerContext
from sparklog.controller.isr_change import IsrChange
from sparklog.errors import ApiError, ErrorCode
from sparklog.net.turns import Turns
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import AlterPartitionRequest, decode_answer, decode_request, encode
from sparklog.security.access import AllowEverything
from sparklog.security.caller import Caller
from sparklog.structs import TopicPartition
from sparklog.zk.znodes import PartitionState, TopicAssignment

T0, T1, ID, UNKNOWN = TopicPartition("t", 0), TopicPartition("t", 1), UUID(int=1), UUID(int=9)
Topic = AlterPartitionRequest.TopicData


def partition(number, *isr, epochs=None):
    state = Topic.PartitionData.BrokerState
    members = zip(isr, epochs or (100 + each for each in isr), strict=True)
    return Topic.PartitionData(
        partition_index=number,
        leader_epoch=5,
        new_isr_with_epochs=[state(broker_id=each, broker_epoch=epoch) for each, epoch in members],
        leader_recovery_state=0,
        partition_epoch=7,
    )


def topic(*partitions, topic_id=ID):
    return Topic(topic_id=topic_id, partitions=list(partitions))


class Controller:
    """Notes what it is asked, and answers as the test says."""

    def __init__(self, answers, *, in_office=True):
        self.asked, self._answers = None, answers
        self.context = ControllerContext(1, 0) if in_office else None
        if self.context is not None:
            self.context.assign(TopicAssignment("t", {0: (1, 2), 1: (1, 2)}, ID))

    async def change_isrs(self, leader, broker_epoch, asked):
        self.asked = leader, broker_epoch, asked
        if isinstance(self._answers, ApiError):
            raise self._answers
        return {tp: self._answers[tp] for tp in asked}


def handle(controller, *topics):
    """What the leader is told, by way of the wire."""
    message = AlterPartitionRequest(broker_id=1, broker_epoch=101, topics=list(topics))

    async def handled():
        broker = SimpleNamespace(
            authorizer=AllowEverything(), controller=controller, turns=Turns(asyncio.get_running_loop())
        )
        return await alter_partition.handle(broker, ApiRequest(ApiKey.ALTER_PARTITION, 3, "c", Caller("h"), message))

    return decode_answer(message, 3, memoryview(bytes(encode(asyncio.run(handled()), 3))))


def test_a_leader_of_kafkas_may_say_no_epochs():
    controller = Controller({T0: PartitionState(1, 5, (1, 2), 4, version=8)})
    state = Topic.PartitionData(partition_index=0, leader_epoch=5, new_isr=[1, 2], partition_epoch=7)
    message = AlterPartitionRequest(broker_id=1, broker_epoch=101, topics=[topic(state)])
    decoded = decode_request(ApiKey.ALTER_PARTITION, 2, memoryview(encode(message, 2)))

    async def handled():
        broker = SimpleNamespace(
            authorizer=AllowEverything(), controller=controller, turns=Turns(asyncio.get_running_loop())
        )
        return await alter_partition.handle(broker, ApiRequest(ApiKey.ALTER_PARTITION, 2, "c", Caller("h"), decoded))

    assert asyncio.run(handled()).topics[0].partitions[0].partition_epoch == 8
    assert controller.asked == (1, 101, {T0: IsrChange(1, 5, (1, 2), (-1, -1), 7, ID)})


def told(answer):
    return {
        (each_topic.topic_id, each.partition_index): ErrorCode(each.error_code)
        for each_topic in answer.topics
        for each in each_topic.partitions
    }


def test_the_controller_is_asked_for_what_the_leader_wants_and_the_state_is_told():
    controller = Controller({T0: PartitionState(1, 5, (1, 2), 4, version=8)})
    answer = handle(controller, topic(partition(0, 1, 2, epochs=(101, -1))))
    assert controller.asked == (1, 101, {T0: IsrChange(1, 5, (1, 2), (101, -1), 7, ID)})
    (found,) = answer.topics[0].partitions
    assert (answer.error_code, found.error_code, found.leader_id, found.leader_epoch) == (0, 0, 1, 5)
    assert (list(found.isr), found.partition_epoch, found.leader_recovery_state) == ([1, 2], 8, 0)


def test_each_partition_has_an_answer_of_its_own():
    states = {T0: ErrorCode.FENCED_LEADER_EPOCH, T1: PartitionState(1, 5, (1,), 4, version=8)}
    answer = handle(Controller(states), topic(partition(0, 1)), topic(partition(1, 1)))
    assert told(answer) == {(ID, 0): ErrorCode.FENCED_LEADER_EPOCH, (ID, 1): ErrorCode.NONE}
    refused = answer.topics[0].partitions[0]
    assert (refused.leader_id, refused.leader_epoch, list(refused.isr), refused.partition_epoch) == (-1, -1, [], -1)


def test_a_topic_that_nobody_knows_is_not_asked_for():
    controller = Controller({T0: ErrorCode.INELIGIBLE_REPLICA})
    answer = handle(controller, topic(partition(0, 1)), topic(partition(0, 1), partition(3, 1), topic_id=UNKNOWN))
    assert controller.asked[2].keys() == {T0}
    assert told(answer) == {
        (ID, 0): ErrorCode.INELIGIBLE_REPLICA,
        (UNKNOWN, 0): ErrorCode.UNKNOWN_TOPIC_ID,
        (UNKNOWN, 3): ErrorCode.UNKNOWN_TOPIC_ID,
    }


@pytest.mark.parametrize("code", [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER])
def test_what_the_controller_refuses_whole_is_refused_whole(code):
    answer = handle(Controller(ApiError(code, "no")), topic(partition(0, 1)))
    assert (answer.error_code, list(answer.topics)) == (code, [])


def test_a_broker_that_is_not_the_controller_says_so():
    controller = Controller({}, in_office=False)
    answer = handle(controller, topic(partition(0, 1)))
    assert (answer.error_code, list(answer.topics)) == (ErrorCode.NOT_CONTROLLER, [])
    assert controller.asked is None
