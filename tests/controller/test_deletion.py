"""Who is asked to delete a part of a topic."""

import asyncio
from types import SimpleNamespace

from sparklog.controller.context import ControllerContext, Departure
from sparklog.controller.deletion import TopicDeletions
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import StopReplicaResponse
from sparklog.structs import Endpoint, TopicPartition
from sparklog.testing.clock import ManualClock
from sparklog.zk.znodes import BrokerInfo, PartitionState, ReplicaAssignment, TopicAssignment

MOVED, STILL = TopicPartition("t", 0), TopicPartition("t", 1)


class Channel:
    """To a broker that deletes what it is asked to, when the test says so."""

    def __init__(self, broker_id):
        self.broker = BrokerInfo(broker_id, Endpoint("h", broker_id))
        self.asked = set()
        self.answer = asyncio.get_running_loop().create_future()

    def send(self, api, message):
        assert api is ApiKey.STOP_REPLICA
        self.asked |= {
            (topic.topic_name, each.partition_index)
            for topic in message.topic_states
            for each in topic.partition_states
        }
        return self.answer


def test_a_replica_that_has_yet_to_go_after_a_move_goes_with_its_topic():
    async def test():
        forgotten = []

        async def run_zk(_forget, topic, _version):
            forgotten.append(topic)

        async def tell(_context, _channel, _partitions):
            pass

        zk = SimpleNamespace(topics=SimpleNamespace(forget=None))
        channels = {each: Channel(each) for each in (1, 2)}
        context = ControllerContext(9, 0, brokers={id_: each.broker for id_, each in channels.items()})
        context.assign(TopicAssignment("t", {0: (1,), 1: (1,)}))
        context.states = {tp: PartitionState(1, 5, (1,), 9) for tp in (MOVED, STILL)}
        context.departures[MOVED] = Departure(ReplicaAssignment((1, 2), (), (2,)), {2}, {2})
        context.deleting = {"t"}
        deletions = TopicDeletions(1, zk, run_zk, ManualClock(), lambda: None, tell)
        await deletions.advance(context, channels)
        assert {id_: each.asked for id_, each in channels.items()} == {1: {("t", 0), ("t", 1)}, 2: {("t", 0)}}
        for number, channel in enumerate(channels.values()):
            assert not forgotten
            channel.answer.set_result(StopReplicaResponse(error_code=0, partition_errors=[]))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            await deletions.advance(context, channels)
            assert forgotten == (["t"] if number else [])

    asyncio.run(test())
