"""Who is asked to delete a part of a topic."""

import asyncio
from types import SimpleNamespace
from typing import Any

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


class Stage:
    """A topic that is to be deleted, a part of which has yet to go from broker 2 after a move."""

    def __init__(self):
        self.forgotten = []
        self.channels: dict[int, Any] = {each: Channel(each) for each in (1, 2)}
        self.context = ControllerContext(9, 0, brokers={id_: each.broker for id_, each in self.channels.items()})
        self.context.assign(TopicAssignment("t", {0: (1,), 1: (1,)}))
        self.context.states = {tp: PartitionState(1, 5, (1,), 9) for tp in (MOVED, STILL)}
        self.context.departures[MOVED] = Departure(ReplicaAssignment((1, 2), (), (2,)), {2}, {2})
        self.context.deleting = {"t"}
        zk = SimpleNamespace(topics=SimpleNamespace(forget=None))
        self.deletions = TopicDeletions(1, zk, self._run_zk, ManualClock(), lambda: None, self._tell)

    async def _run_zk(self, _forget, topic, _version):
        self.forgotten.append(topic)

    async def _tell(self, _context, _channel, _partitions):
        pass


def test_a_replica_that_has_yet_to_go_after_a_move_goes_with_its_topic():
    async def test():
        stage = Stage()
        await stage.deletions.advance(stage.context, stage.channels)
        assert {id_: each.asked for id_, each in stage.channels.items()} == {1: {("t", 0), ("t", 1)}, 2: {("t", 0)}}
        for number, channel in enumerate(stage.channels.values()):
            assert not stage.forgotten
            channel.answer.set_result(StopReplicaResponse(error_code=0, partition_errors=[]))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            await stage.deletions.advance(stage.context, stage.channels)
            assert stage.forgotten == (["t"] if number else [])

    asyncio.run(test())


def test_for_whom_a_deletion_waits_is_told_when_it_changes(caplog):
    async def test():
        stage = Stage()
        caplog.set_level("INFO")
        for there in ((1,), (1,), (), (), (1,), (1, 2)):
            await stage.deletions.advance(stage.context, {each: stage.channels[each] for each in there})

    asyncio.run(test())
    said = [each.getMessage() for each in caplog.records]
    assert [each.partition("brokers ")[2] for each in said] == ["[2] are back", "[1, 2] are back", "[2] are back"]
