"""What brokers and clients ask of a broker several times at once, on one connection: none waits for the one before."""

import asyncio
from types import SimpleNamespace

import pytest

from sparklog.broker.client_quotas import ClientQuotas
from sparklog.broker.dispatch import Dispatcher
from sparklog.broker.registry import OFFERED
from sparklog.compaction.stats import CleanerStats
from sparklog.config.broker import BrokerConfig
from sparklog.errors import ErrorCode
from sparklog.net.async_connection import AsyncConnection
from sparklog.net.limits import Limits
from sparklog.net.server import SocketServer
from sparklog.net.turns import Turns
from sparklog.net.vigil import Sight
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import (
    AdoptSegmentsRequest,
    CompactPartitionsRequest,
    ProbeBrokerRequest,
    WriteTxnMarkersRequest,
)
from sparklog.replica.adopting import Adopted
from sparklog.security.access import AllowEverything
from sparklog.structs import Endpoint
from sparklog.testing.clock import ManualClock

PEERS = {number: SimpleNamespace(id=number, endpoint=Endpoint("localhost", number)) for number in (1, 2)}
LONG_MS = 1_000_000


class Broker:
    """Does nothing of what it is asked for before ``go_on``; ``begun`` counts what it has begun."""

    authorizer = AllowEverything()
    offered = OFFERED

    def __init__(self):
        self.clock = ManualClock()
        self.quotas = ClientQuotas(BrokerConfig(), self.clock)
        self.loop = asyncio.get_running_loop()
        self.go_on = asyncio.Event()
        self.begun = asyncio.Semaphore(0)
        self.turns = None
        self.metadata = SimpleNamespace(brokers=PEERS)
        self.looks = SimpleNamespace(at=self._sees)
        self.txn_markers = SimpleNamespace(take=self._takes)
        self.cleaner = SimpleNamespace(clean=self._cleans, last_run=lambda tp: None)
        self.adopter = SimpleNamespace(adopt=self._adopts, bytes_to_count=lambda wish: 0)
        self.replicas = SimpleNamespace(replicated=self._waits)

    def held(self, tp):
        return SimpleNamespace(config=SimpleNamespace(cleanup_policy=("compact",)))

    async def _waits(self, *_):
        self.begun.release()
        await self.go_on.wait()

    async def _sees(self, endpoint):
        await self._waits()
        return Sight.REFUSED

    async def _takes(self, marker, tps):
        await self._waits()
        return dict.fromkeys(tps, ErrorCode.NONE)

    async def _cleans(self, tp):
        await self._waits()
        return CleanerStats(seconds=1.0)

    async def _adopts(self, wish, ask):
        return Adopted(0, 1, 0, 0, 10)


def markers(number):
    marker = WriteTxnMarkersRequest.WritableTxnMarker
    topics = [marker.WritableTxnMarkerTopic(name="t", partition_indexes=[number])]
    return WriteTxnMarkersRequest(
        markers=[
            marker(producer_id=number, producer_epoch=0, transaction_result=True, topics=topics, coordinator_epoch=0)
        ]
    )


def compaction(number):
    topics = [CompactPartitionsRequest.CompactedTopic(name="t", partitions=[number])]
    return CompactPartitionsRequest(version=0, topics=topics, timeout_ms=LONG_MS, since_ms=-1)


def adoption(number):
    return AdoptSegmentsRequest(
        topic="t",
        partition_index=number,
        current_leader_epoch=-1,
        mode=1,
        transactional_id=None,
        tag=f"tag{number}",
        bases=[0],
        end_offset=2,
        log_start_offset=-1,
        timeout_ms=LONG_MS,
    )


def probe(number):
    return ProbeBrokerRequest(broker_id=number, host="localhost", port=number)


def made(asked, number):
    return lambda _version: asked(number)


@pytest.mark.parametrize(
    ("api", "asked"),
    [
        (ApiKey.WRITE_TXN_MARKERS, markers),
        (ApiKey.COMPACT_PARTITIONS, compaction),
        (ApiKey.ADOPT_SEGMENTS, adoption),
        (ApiKey.PROBE_BROKER, probe),
    ],
)
def test_what_waits_for_replicas_or_other_brokers_does_not_wait_for_the_request_before_it(api, asked):
    """A coordinator ends many transactions at once: the replicas of one's partitions kept the markers of all others."""

    async def scenario():
        broker = Broker()
        server = SocketServer(broker.loop, Dispatcher(broker, Turns(broker.loop)), Limits(1 << 20, 10))
        broker.turns = server.turns
        server.dispatch = Dispatcher(broker, server.turns)
        endpoint = server.bind("127.0.0.1", 0)
        server.start()
        connection = await AsyncConnection.open(endpoint)
        try:
            requests = [connection.request(api, made(asked, number)) for number in PEERS]
            answers = asyncio.gather(*requests)
            async with asyncio.timeout(60):
                for _ in PEERS:
                    await broker.begun.acquire()
            broker.go_on.set()
            assert len(await answers) == len(PEERS)
        finally:
            connection.abort()
            server.close()
            await asyncio.sleep(0)

    asyncio.run(scenario())
