"""What the controller says of a partition, handed on to its replica."""

import asyncio
from types import SimpleNamespace

from sparklog.broker.apis import leader_and_isr
from sparklog.broker.context import ApiRequest
from sparklog.config.topic import TopicConfig
from sparklog.errors import ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import LeaderAndIsrRequest
from sparklog.structs import TopicPartition
from sparklog.zk.znodes import PartitionState

_Topic = LeaderAndIsrRequest.LeaderAndIsrTopicState


def test_a_replica_is_told_how_many_there_are():
    applied = {}

    def apply(tp, state, config, topic_id, **how):
        applied[tp] = (state, how)
        return ErrorCode.NONE

    async def topic_config(topic):
        return TopicConfig()

    broker = SimpleNamespace(
        fence=SimpleNamespace(check=lambda message: ErrorCode.NONE),
        topic_config=topic_config,
        replicas=SimpleNamespace(apply=apply, leads=lambda tp: False),
    )
    partition = _Topic.LeaderAndIsrPartitionState(
        partition_index=0, controller_epoch=1, leader=2, leader_epoch=3, isr=[2], replicas=[2, 5, 7], is_new=True
    )
    request = LeaderAndIsrRequest(topic_states=[_Topic(topic_name="t", partition_states=[partition])])
    asked = ApiRequest(ApiKey.LEADER_AND_ISR, 6, "controller", "h", request)
    assert asyncio.run(leader_and_isr.handle(broker, asked)).error_code == ErrorCode.NONE
    state = PartitionState(2, 3, (2,), 1)
    assert applied == {TopicPartition("t", 0): (state, {"replica_count": 3, "is_new": True})}
