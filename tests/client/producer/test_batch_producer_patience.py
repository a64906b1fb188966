"""For how long batches of a partition are tried that nobody leads, while those of another go on."""

import asyncio

import pytest

from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.producer.batch_producer import BatchProducer
from sparklog.client.producer.idempotent_batch_producer import IdempotentBatchProducer
from sparklog.errors import ApiError, ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.hot import produce
from sparklog.protocol.hot.produce import ProduceResult
from sparklog.protocol.messages import InitProducerIdResponse
from sparklog.record.builder import RecordBatchBuilder
from sparklog.structs import TopicPartition
from sparklog.testing.clock import ManualClock
from sparklog.testing.scripted import ScriptedCluster

_LIVING, _DEAD = (TopicPartition("t", number) for number in range(2))
_NOBODY = 7
_PATIENCE = 10


def _batch(size=1):
    builder = RecordBatchBuilder()
    builder.append(1, None, bytes(size))
    return bytearray(builder.build())


def _scene():
    scene = ScriptedCluster()
    scene.topics["t"] = [0, 0]
    scene.on[ApiKey.PRODUCE] = lambda asked: produce.encode_response(
        {tp: ProduceResult(ErrorCode.NONE, 0) for tp, _ in asked.message.records}, asked.version
    )
    scene.on[ApiKey.INIT_PRODUCER_ID] = lambda asked: InitProducerIdResponse(
        version=asked.version, throttle_time_ms=0, error_code=0, producer_id=7, producer_epoch=0
    )
    return scene


@pytest.fixture(params=[BatchProducer, IdempotentBatchProducer])
def proven(request):
    """Runs what it is given in a thread, beside a broker, with a producer to which both partitions have answered."""

    def run(work):
        async def test():
            async with _scene() as scene:
                await asyncio.to_thread(beside, scene, work)

        asyncio.run(test())

    def beside(scene, work):
        config = ClientConfig(bootstrap_servers=scene.bootstrap_servers, delivery_timeout_ms=_PATIENCE * 1000)
        with ClusterMetadata(config, ManualClock()) as cluster:
            waits = []
            producer = request.param(cluster, waits.append)
            for tp in (_LIVING, _DEAD):
                producer.send(tp, _batch())
            producer.flush()
            work(scene, producer, cluster.clock, waits)
            producer.close()

    return run


def _kill(scene, producer):
    scene.topics["t"] = [0, _NOBODY]
    producer._cluster.invalidate("t")


def _send(producer, size=1):
    """As long as it goes; how many batches of each partition were sent before it raised."""
    sent = []

    def send():
        while len(sent) < 100:
            producer.send(_DEAD, _batch(size))
            producer.send(_LIVING, _batch())
            sent.append(size)

    with pytest.raises(ApiError, match="t-1 has no leader"):
        send()
    return len(sent)


def test_a_partition_that_died_is_given_up_in_time_though_others_go_on(proven):
    def work(scene, producer, clock, waits):
        _kill(scene, producer)
        asked, began = len(scene.asked(ApiKey.METADATA)), clock.monotonic()
        _send(producer)
        assert _PATIENCE <= clock.monotonic() - began < _PATIENCE + 1
        assert len(scene.asked(ApiKey.METADATA)) - asked <= len(waits) + 1, "one question a round"

    proven(work)


def test_a_partition_that_gets_on_is_not_given_up(proven):
    def work(scene, producer, clock, waits):
        for _ in range(3):
            _kill(scene, producer)
            producer.send(_DEAD, _batch())
            until = clock.monotonic() + _PATIENCE - 1
            while clock.monotonic() < until:
                producer.send(_LIVING, _batch())
            scene.topics["t"] = [0, 0]
            producer.flush()

    proven(work)


def test_what_waits_for_a_partition_that_died_is_bounded(proven):
    def work(scene, producer, clock, waits):
        _kill(scene, producer)
        assert _send(producer, size=8 << 20) <= 4

    proven(work)
