"""What is on the disks and not in the cluster is set aside where ZooKeeper says so, and nowhere else."""

import asyncio
from types import SimpleNamespace
from uuid import UUID

import pytest

from sparklog.broker import strays
from sparklog.errors import ApiError, ErrorCode
from sparklog.log.directories.departures import Departure
from sparklog.net.turns import Turns
from sparklog.protocol.messages import LeaderAndIsrRequest, decode, encode
from sparklog.protocol.wire import ZERO_UUID
from sparklog.structs import TopicPartition
from sparklog.zk.znodes import TopicAssignment

ME = 1
TP = TopicPartition("t", 0)
OLD, NEW = UUID(int=1), UUID(int=2)
INCREMENTAL, FULL = 1, 2
_Topic = LeaderAndIsrRequest.LeaderAndIsrTopicState


class Replicas:
    """The partitions on the disk, by the topic ids that they bear."""

    def __init__(self, here):
        self.here = here
        self.aside = {}
        self.changing = asyncio.Lock()

    def topic_id(self, tp):
        return self.here.get(tp)

    def strays(self, named):
        return {tp: topic_id for tp, topic_id in self.here.items() if tp not in named}

    def leads(self, tp):
        return True

    def depart(self, tp, why):
        self.aside[tp] = why
        return Departure(tp, why, None, None)

    def rename_away(self, departures):
        assert [each.tp for each in departures] == list(self.aside)

    def departed(self, departure):
        return ErrorCode.NONE


def looked(here, in_zookeeper, named, *, kind=FULL, fence=ErrorCode.NONE):
    """What is set aside when a request names ``named``; and of what the broker no longer coordinates."""

    async def run_zk(call, topic):
        found = call(topic)
        if isinstance(found, ApiError):
            raise found
        return found

    async def run_disk(call, *args):
        return call(*args)

    replicas, unloaded = Replicas(here), []
    broker = SimpleNamespace(
        replicas=replicas,
        run_zk=run_zk,
        zk=SimpleNamespace(topics=SimpleNamespace(assignment=in_zookeeper.get)),
        config=SimpleNamespace(broker_id=ME),
        stop_coordinating=unloaded.append,
        run_disk=run_disk,
        fetchers=SimpleNamespace(leave=lambda _: None),
        fence=SimpleNamespace(check=lambda _: fence),
    )
    state = _Topic.LeaderAndIsrPartitionState
    topics = [
        _Topic(topic_name=tp.topic, topic_id=topic_id, partition_states=[state(partition_index=tp.partition)])
        for tp, topic_id in named.items()
    ]

    async def make_way():
        broker.turns = Turns(asyncio.get_running_loop())
        sent = encode(LeaderAndIsrRequest(type=kind, topic_states=topics), 6)
        await strays.make_way(broker, decode(LeaderAndIsrRequest, 6, memoryview(sent)))

    asyncio.run(make_way())
    assert unloaded == list(replicas.aside)
    return replicas.aside


def assigned(topic_id, *brokers, partition=0):
    return {"t": TopicAssignment("t", {partition: brokers or (ME,)}, topic_id)}


@pytest.mark.parametrize("kind", [INCREMENTAL, FULL])
def test_what_zookeeper_gives_another_id_is_set_aside(kind):
    aside = looked({TP: OLD}, assigned(NEW), {TP: NEW}, kind=kind)
    assert list(aside) == [TP]
    assert "AAAAAAAAAAAAAAAAAAAAAQ" in aside[TP]
    assert "AAAAAAAAAAAAAAAAAAAAAg" in aside[TP]


@pytest.mark.parametrize("topic_id", [OLD, None])
@pytest.mark.parametrize(
    "in_zookeeper",
    [{}, assigned(None, ME + 1), assigned(OLD, ME + 1), assigned(OLD, partition=1)],
)
def test_what_is_not_named_and_not_this_brokers_is_set_aside(topic_id, in_zookeeper):
    assert list(looked({TP: topic_id}, in_zookeeper, {})) == [TP]
    assert not looked({TP: topic_id}, in_zookeeper, {}, kind=INCREMENTAL)


@pytest.mark.parametrize(
    ("named", "in_zookeeper"),
    [
        ({TP: NEW}, assigned(OLD)),
        ({TP: OLD}, assigned(NEW)),
        ({TP: ZERO_UUID}, assigned(NEW)),
        ({}, assigned(OLD)),
        ({}, assigned(None)),
        ({}, {"t": ApiError(ErrorCode.REQUEST_TIMED_OUT, "ZooKeeper did not answer")}),
    ],
)
def test_what_zookeeper_does_not_deny_stays(named, in_zookeeper):
    assert not looked({TP: OLD}, in_zookeeper, named)


def test_nothing_is_set_aside_for_a_controller_that_was_replaced_while_zookeeper_was_asked():
    """The next one may have given the partition back to this broker meanwhile, under the same topic id."""
    assert not looked({TP: OLD}, assigned(OLD, ME + 1), {}, fence=ErrorCode.STALE_CONTROLLER_EPOCH)
