"""What is no record: ``send`` refuses it, and nothing else suffers."""

import asyncio
import datetime

import pytest

from sparklog.client import AsyncProducer
from sparklog.client.cluster.arguments import as_timestamp
from sparklog.client.producer.accumulator import Accumulator
from sparklog.client.producer.arguments import as_headers
from sparklog.client.producer.config import ProducerConfig
from sparklog.client.producer.sequences import ProducerId
from sparklog.client.producer.transaction import Transaction
from sparklog.cluster.info import ClusterInfo, PartitionInfo, TopicInfo
from sparklog.errors import ApiError, ConfigError, ConnectionFailed, ErrorCode, LocalProtocolError, SparklogError
from sparklog.protocol.wire import ZERO_UUID
from sparklog.structs import Endpoint, TopicPartition

_TP = TopicPartition("t", 0)
_CLUSTER = ClusterInfo(
    cluster_id="c",
    controller=0,
    brokers={0: Endpoint("127.0.0.1", 1)},
    topics={"t": TopicInfo("t", ZERO_UUID, False, (PartitionInfo(0, 0, 0, (0,), (0,)),))},
    errors={},
)
_NOW = datetime.datetime(2024, 5, 6, tzinfo=datetime.UTC)


@pytest.mark.parametrize("given", [1.7e12, _NOW, "123", b"1"])
def test_a_timestamp_is_an_int(given):
    with pytest.raises(TypeError, match=f"ms since 1970, not {type(given).__name__}"):
        as_timestamp(given)


@pytest.mark.parametrize("given", [-1, 2**63, 2**70])
def test_a_timestamp_fits_its_field(given):
    with pytest.raises(ValueError, match="ms since 1970, from 0 to"):
        as_timestamp(given)


@pytest.mark.parametrize("given", [{"a": 1}, {"a": "b"}, {1: b"b"}, [b"ab"], [("a",)], ["ab"], "ab", 5, {b"a": b"b"}])
def test_what_are_no_headers(given):
    with pytest.raises(TypeError, match="header"):
        as_headers(given)


def test_what_are_headers():
    assert as_headers({"a": bytearray(b"1"), "b": None}) == (("a", b"1"), ("b", None))
    assert as_headers(iter([["a", b"x"], ("a", memoryview(b"y"))])) == (("a", b"x"), ("a", b"y"))


@pytest.mark.parametrize(
    "bad",
    [
        {"timestamp": 1.5},
        {"timestamp": 2**70},
        {"timestamp": -5},
        {"timestamp": _NOW},
        {"headers": {"a": 1}},
        pytest.param({"headers": {"\ud800": b""}}, id="a name that is no text"),
        {"topic": None},
        {"topic": b"t"},
        {"topic": "unheard of", "partition": "0"},
        {"partition": "0"},
        {"partition": 0.0},
        {"on_delivery": 3},
        {"value": 5},
        {"key": 5},
    ],
    ids=repr,
)
@pytest.mark.parametrize("transactional_id", [None, "x"])
def test_a_send_that_raised_has_begun_nothing(transactional_id, bad):
    async def run():
        producer = AsyncProducer(bootstrap_servers="127.0.0.1:1", transactional_id=transactional_id, linger_ms=100_000)
        await producer.start()
        producer._session.leaders.apply(_CLUSTER)
        transaction = producer._transaction
        if transaction is not None:
            _open(transaction)
        with pytest.raises((TypeError, ValueError)):
            await producer.send(**{"topic": "t", "value": b"x", **bad})
        assert producer._accumulator.is_empty
        if transaction is not None:
            assert not transaction.has_begun
            assert not transaction.added
        await producer.close()

    asyncio.run(run())


def test_a_record_that_is_too_large_is_no_part_of_the_transaction():
    async def run():
        producer = AsyncProducer(bootstrap_servers="127.0.0.1:1", transactional_id="x", max_request_size=1000)
        await producer.start()
        producer._session.leaders.apply(_CLUSTER)
        _open(producer._transaction)
        with pytest.raises(ApiError) as raised:
            await producer.send("t", bytes(2000))
        assert raised.value.code is ErrorCode.MESSAGE_TOO_LARGE
        assert not producer._transaction.has_begun
        await producer.close()

    asyncio.run(run())


def test_what_the_format_refuses_begins_no_batch():
    accumulator = Accumulator(ProducerConfig.of(bootstrap_servers="127.0.0.1:1"))
    with pytest.raises((LocalProtocolError, TypeError)):
        accumulator.append(_TP, 0, None, b"x", (("a", 5),), 0.0)
    with pytest.raises((LocalProtocolError, TypeError)):
        accumulator.append(_TP, 0, None, "text", (), 0.0)
    assert accumulator.is_empty
    assert not accumulator.used
    assert not accumulator.has_news


@pytest.mark.parametrize("name", ["key_serializer", "value_serializer", "partitioner"])
def test_what_is_to_be_called_is_a_function(name):
    with pytest.raises(TypeError, match=f"{name} is a function, not 'utf8'"):
        AsyncProducer(bootstrap_servers="h:1", **{name: "utf8"})


def test_an_address_is_no_settings():
    with pytest.raises(ConfigError, match=r"\{'bootstrap.servers': 'host:port'\}, or keywords, not 'h:1'"):
        AsyncProducer("h:1")


def test_without_metadata_it_says_where_there_is_no_broker():
    producer = AsyncProducer(bootstrap_servers="127.0.0.1:1")
    backoff = producer._session.backoff()
    refused = ConnectionFailed("connection refused")
    backoff.next_pause(refused)
    error = producer._still_unknown("t", backoff.last_error)
    assert error.code is ErrorCode.REQUEST_TIMED_OUT
    for part in ("no metadata of topic 't'", "max.block.ms=60000", "127.0.0.1:1", "connection refused"):
        assert part in str(error)


def test_what_no_broker_answers_names_the_brokers_that_were_asked():
    async def run():
        async with AsyncProducer(bootstrap_servers="127.0.0.1:1", max_block_ms=0) as producer:
            with pytest.raises(SparklogError, match=r"127\.0\.0\.1:1"):
                await producer.send("t", b"x")

    asyncio.run(run())


def _open(transaction: Transaction):
    transaction.initialized(ProducerId(7, 3))
    transaction.second_version = True
    transaction.begin()
