"""Fetch where there are replicas: who is sent to whom, and how soon a follower hears what may be shown."""

import asyncio
import random
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace

import pytest

from sparklog.broker.apis.records import fetch
from sparklog.broker.client_quotas import ClientQuotas
from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.fetch_sessions import FetchAnswer, FetchSessions
from sparklog.broker.metadata_cache import MetadataCache
from sparklog.config.broker import BrokerConfig
from sparklog.config.topic import TopicConfig
from sparklog.errors import ErrorCode
from sparklog.log.directories.manager import LogManager
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.hot.fetch import FetchPartition, FetchRequest, LeaderHint
from sparklog.protocol.wire import ZERO_UUID
from sparklog.record.builder import RecordBatchBuilder
from sparklog.replica.manager import ReplicaManager
from sparklog.security.access import AllowEverything
from sparklog.security.caller import Caller
from sparklog.structs import NO_LEADER, Endpoint, TopicPartition
from sparklog.testing.clock import ManualClock
from sparklog.zk.znodes import BrokerInfo, PartitionState

TP = TopicPartition("t", 0)
ME, NEAR, FAR = 1, 2, 3
RACKS = {ME: "home", NEAR: "near", FAR: "far"}
PATIENT_MS = 3_600_000
"""Longer than a test may take: an answer was not waited for."""


def batch():
    builder = RecordBatchBuilder()
    builder.append(0, b"k", b"v")
    return memoryview(bytearray(builder.build()))


class Broker:
    """What Fetch needs of one that leads a partition, whose followers are NEAR and FAR."""

    authorizer = AllowEverything()

    def __init__(self, home, disk, by_rack):
        loop = asyncio.get_running_loop()
        self.clock = ManualClock()
        self.logs = LogManager([home], TopicConfig(), self.clock, disk)
        self.replicas = ReplicaManager(ME, self.logs, loop)
        self.config = SimpleNamespace(fetch_max_bytes=55 << 20, selects_by_rack=by_rack)
        self.quotas = ClientQuotas(BrokerConfig(), self.clock)
        self.fetch_sessions = FetchSessions(10, 1000, random.Random(1).randrange)
        self.metadata = MetadataCache()
        self.metadata.brokers = {id_: BrokerInfo(id_, Endpoint("h", id_), rack) for id_, rack in RACKS.items()}
        self.leader_hint = partial(BrokerContext.leader_hint, self)
        self.decide(ME, 0)

    def decide(self, leader, epoch):
        state = PartitionState(leader, epoch, (ME, NEAR, FAR), 1)
        self.replicas.apply(TP, state, TopicConfig(), None, replicas=(ME, NEAR, FAR))

    def ask(
        self, offset, *, rack="", replica=-1, wait_ms=0, session=0, epoch=-1, version=12, leader_epoch=-1, names=True
    ):
        asked = FetchPartition("t", ZERO_UUID, 0, offset, 1 << 20, leader_epoch)
        message = FetchRequest(
            wait_ms,
            1,
            1 << 20,
            [asked] if names else [],
            replica_id=replica,
            session_id=session,
            session_epoch=epoch,
            rack_id=rack,
        )
        return fetch.handle(self, ApiRequest(ApiKey.FETCH, version, "c", Caller("h"), message))

    def follow(self, replica, offset, **how):
        return self.ask(offset, replica=replica, leader_epoch=0, **how)


def with_broker(home, scenario, *, by_rack=True):
    async def run():
        with ThreadPoolExecutor(1) as disk:
            broker = Broker(home, disk, by_rack)
            await asyncio.wait_for(scenario(broker), 60)
        broker.logs.close()

    asyncio.run(run())


def told(answer):
    [only] = answer.partitions
    return only.error, only.preferred_read_replica, bool(only.records)


SENT, SERVED = (ErrorCode.NONE, NEAR, False), (ErrorCode.NONE, -1, True)


@pytest.mark.parametrize(
    ("by_rack", "rack", "answer"),
    [
        (True, "near", SENT),
        (True, "home", SERVED),
        (True, "", SERVED),
        (True, "elsewhere", SERVED),
        (False, "near", SERVED),
    ],
)
def test_a_consumer_is_sent_to_the_replica_in_its_rack(tmp_path, by_rack, rack, answer):
    async def scenario(broker):
        broker.replicas.append(TP, batch(), 1)
        for follower in (NEAR, FAR):
            broker.follow(follower, 1)
        assert told(broker.ask(0, rack=rack)) == answer
        if answer == SENT:
            assert told(broker.ask(1, rack=rack, wait_ms=PATIENT_MS)) == SENT, "at once, though there is nothing"

    with_broker(tmp_path, scenario, by_rack=by_rack)


def test_a_consumer_that_says_its_rack_later_is_sent_there_though_nothing_has_moved(tmp_path):
    async def scenario(broker):
        for follower in (NEAR, FAR):
            broker.follow(follower, 0)
        session = broker.ask(0, epoch=0).session_id
        for epoch in (1, 2):
            assert broker.ask(0, session=session, epoch=epoch, names=False).partitions == []
        assert told(broker.ask(0, session=session, epoch=3, rack="near", wait_ms=PATIENT_MS, names=False)) == SENT

    with_broker(tmp_path, scenario)


def test_one_with_a_wrong_epoch_is_sent_nowhere(tmp_path):
    async def scenario(broker):
        broker.follow(NEAR, 0)
        assert told(broker.ask(0, rack="near", leader_epoch=1))[0] is ErrorCode.UNKNOWN_LEADER_EPOCH

    with_broker(tmp_path, scenario)


@pytest.mark.parametrize(("version", "code"), [(10, ErrorCode.NOT_LEADER_OR_FOLLOWER), (11, ErrorCode.NONE)])
def test_a_follower_serves_consumers_that_know_of_replicas(tmp_path, version, code):
    async def scenario(broker):
        broker.decide(FAR, 1)
        assert told(broker.ask(0, version=version))[0] is code

    with_broker(tmp_path, scenario)


@pytest.mark.parametrize("leader", [FAR, NO_LEADER])
def test_one_that_asks_the_former_leader_is_sent_to_the_next_before_all_brokers_have_heard_of_it(tmp_path, leader):
    """To be sent back to the former one costs librdkafka a second."""

    async def scenario(broker):
        assert broker.leader_hint(TP, "PLAINTEXT").broker_id == ME
        broker.decide(leader, 1)
        [only] = broker.ask(0, version=10).partitions
        assert only.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        hint = LeaderHint(FAR, 1, Endpoint("h", FAR), RACKS[FAR]) if leader == FAR else None
        assert only.leader == hint

    with_broker(tmp_path, scenario)


def test_a_consumer_that_waits_at_a_follower_hears_that_the_epoch_is_another(tmp_path):
    async def scenario(broker):
        broker.decide(FAR, 1)
        waiting = asyncio.ensure_future(broker.ask(0, wait_ms=PATIENT_MS, leader_epoch=1))
        await asyncio.sleep(0)
        broker.decide(FAR, 2)
        assert told(await waiting)[0] is ErrorCode.FENCED_LEADER_EPOCH

    with_broker(tmp_path, scenario)


async def session_of(broker, follower):
    """One that has been told that nothing is committed, and waits; the epoch after that."""
    granted = broker.follow(follower, 0, epoch=0)
    return granted.session_id


def test_a_follower_that_waits_hears_at_once_what_may_be_shown(tmp_path):
    async def scenario(broker):
        session = await session_of(broker, NEAR)
        broker.replicas.append(TP, batch(), 1)
        taken = broker.follow(NEAR, 0, session=session, epoch=1, wait_ms=PATIENT_MS)
        assert isinstance(taken, FetchAnswer)
        waiting = asyncio.ensure_future(broker.follow(NEAR, 1, session=session, epoch=2, wait_ms=PATIENT_MS))
        await asyncio.sleep(0)
        assert not waiting.done()
        broker.follow(FAR, 1)
        answer = await waiting
        assert [each.high_watermark for each in answer.partitions] == [1]
        again = asyncio.ensure_future(broker.follow(NEAR, 1, session=session, epoch=3, wait_ms=PATIENT_MS))
        for _ in range(3):
            await asyncio.sleep(0)
        assert not again.done(), "it has heard"
        again.cancel()

    with_broker(tmp_path, scenario)


def test_a_follower_hears_of_what_rose_while_its_answer_was_on_its_way(tmp_path):
    async def scenario(broker):
        session = await session_of(broker, NEAR)
        broker.replicas.append(TP, batch(), 1)
        broker.follow(NEAR, 0, session=session, epoch=1)
        broker.follow(FAR, 1)
        answer = broker.follow(NEAR, 1, session=session, epoch=2, wait_ms=PATIENT_MS)
        assert [each.high_watermark for each in answer.partitions] == [1]

    with_broker(tmp_path, scenario)


def test_without_a_selector_no_follower_is_woken_for_that(tmp_path):
    async def scenario(broker):
        session = await session_of(broker, NEAR)
        broker.replicas.append(TP, batch(), 1)
        broker.follow(NEAR, 0, session=session, epoch=1)
        waiting = asyncio.ensure_future(broker.follow(NEAR, 1, session=session, epoch=2, wait_ms=PATIENT_MS))
        await asyncio.sleep(0)
        broker.follow(FAR, 1)
        for _ in range(3):
            await asyncio.sleep(0)
        assert not waiting.done()
        waiting.cancel()

    with_broker(tmp_path, scenario, by_rack=False)
