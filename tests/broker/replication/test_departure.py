"""A broker that is about to stop, and a scripted controller."""

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest

from sparklog.broker.replication.departure import hand_over
from sparklog.errors import ErrorCode
from sparklog.net.peers import Peers
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import ControlledShutdownResponse
from sparklog.structs import TopicPartition
from sparklog.testing.scripted import HangUp, ScriptedCluster
from sparklog.zk.znodes import BrokerInfo

US, EPOCH = 7, 70
LONG = 60.0
LED = {TopicPartition("t", 0), TopicPartition("t", 1)}


class Stage:
    def __init__(self, cluster, peers):
        self.cluster = cluster
        self.replicas = SimpleNamespace(broker_id=US, led_with_others=LED)
        brokers = {each.broker_id: BrokerInfo(each.broker_id, each.endpoint) for each in cluster.brokers}
        self.metadata = SimpleNamespace(brokers=brokers, controller_id=0)
        self.epoch = EPOCH
        self.answers, self.asked = [], asyncio.Queue()
        self._peers = peers
        for broker in cluster.brokers:
            broker.on[ApiKey.CONTROLLED_SHUTDOWN] = self._answer

    def _answer(self, asked):
        self.asked.put_nowait(asked)
        answer = self.answers.pop(0)
        if answer is HangUp:
            raise HangUp
        if callable(answer):
            answer = answer()
        code, left = answer if isinstance(answer, tuple) else (answer, 0)
        remaining = [
            ControlledShutdownResponse.RemainingPartition(topic_name="t", partition_index=number)
            for number in range(left)
        ]
        return ControlledShutdownResponse(error_code=code, remaining_partitions=remaining)

    def start(self, timeout=LONG):
        return asyncio.create_task(hand_over(self.replicas, self.metadata, self._peers, lambda: self.epoch, timeout))

    @property
    def count(self):
        return len(self.cluster.asked(ApiKey.CONTROLLED_SHUTDOWN))


@asynccontextmanager
async def on_stage(brokers=1):
    async with asyncio.timeout(50), ScriptedCluster(brokers) as cluster:
        peers = Peers("us")
        try:
            yield Stage(cluster, peers)
        finally:
            await peers.close()


def run(test):
    asyncio.run(test())


def test_it_is_over_when_others_lead_and_this_broker_has_heard_of_it():
    async def test():
        async with on_stage() as stage:
            stage.answers = [ErrorCode.NONE]
            leaving = stage.start()
            asked = (await stage.asked.get()).message
            assert (asked.broker_id, asked.broker_epoch) == (US, EPOCH)
            await asyncio.sleep(0.05)
            assert not leaving.done(), "the controller has decided, and this broker has not heard of it"
            stage.replicas.led_with_others = set()
            await leaving
            assert stage.count == 1

    run(test)


def test_who_leads_nothing_that_others_could_asks_nobody():
    async def test():
        async with on_stage() as stage:
            stage.replicas.led_with_others = set()
            await stage.start()
            assert stage.count == 0

    run(test)


@pytest.mark.parametrize("first", [ErrorCode.NOT_CONTROLLER, ErrorCode.STALE_BROKER_EPOCH, HangUp])
def test_it_is_asked_again_until_a_controller_answers(first):
    async def test():
        async with on_stage() as stage:

            def let_go():
                stage.replicas.led_with_others = set()
                return ErrorCode.NONE

            stage.answers = [first, first, let_go]
            await stage.start()
            assert stage.count == 3

    run(test)


def test_what_no_other_can_lead_is_not_waited_for():
    async def test():
        async with on_stage() as stage:
            stage.answers = [(ErrorCode.NONE, 1)]
            leaving = stage.start()
            await stage.asked.get()
            await asyncio.sleep(0.05)
            assert not leaving.done(), "of two partitions one is to be led by another, and is not yet"
            stage.replicas.led_with_others = {TopicPartition("t", 0)}
            await leaving
            assert stage.count == 1

    run(test)


@pytest.mark.parametrize("lacking", ["a controller", "a registration"])
def test_it_waits_for_a_controller_and_for_a_registration(lacking):
    async def test():
        async with on_stage() as stage:
            if lacking == "a controller":
                stage.metadata.controller_id = -1
            else:
                stage.epoch = None
            stage.answers = [ErrorCode.NONE]
            leaving = stage.start()
            await asyncio.sleep(0.15)
            assert stage.count == 0
            stage.metadata.controller_id, stage.epoch = 0, 71
            assert (await stage.asked.get()).message.broker_epoch == 71
            stage.replicas.led_with_others = set()
            await leaving

    run(test)


def test_the_next_controller_is_asked():
    async def test():
        async with on_stage(2) as stage:

            def step_down():
                stage.metadata.controller_id = 1
                return ErrorCode.NOT_CONTROLLER

            def let_go():
                stage.replicas.led_with_others = set()
                return ErrorCode.NONE

            stage.answers = [step_down, let_go]
            await stage.start()
            assert [each.broker for each in stage.cluster.asked(ApiKey.CONTROLLED_SHUTDOWN)] == [0, 1]

    run(test)


@pytest.mark.parametrize("answer", [ErrorCode.NONE, (ErrorCode.NONE, 1), ErrorCode.UNKNOWN_SERVER_ERROR])
def test_a_broker_that_nobody_relieves_stops_all_the_same(answer):
    async def test():
        async with on_stage() as stage:
            stage.answers = [answer] * 100
            await stage.start(timeout=0.3)
            assert stage.replicas.led_with_others == LED

    run(test)
