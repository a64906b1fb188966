"""A record's way into its batch; no broker, no loop."""

import pytest

from sparklog.client.producer.accumulator import Accumulator
from sparklog.client.producer.appender import Appender
from sparklog.client.producer.config import ProducerConfig
from sparklog.client.producer.router import Router
from sparklog.client.producer.transaction import Step, Transaction
from sparklog.cluster.info import ClusterInfo, PartitionInfo, TopicInfo
from sparklog.cluster.leaders import Leaders
from sparklog.errors import ApiError, ClientClosed, ErrorCode
from sparklog.protocol.wire import ZERO_UUID
from sparklog.structs import Endpoint, TopicPartition
from sparklog.testing.clock import ManualClock

_ONE = TopicPartition("t", 0)


def _appender(transaction=None, serialize_key=None, serialize_value=None, **settings):
    config = ProducerConfig.of({"bootstrap.servers": "127.0.0.1:1"}, **settings)
    leaders, accumulator = Leaders(), Accumulator(config)
    topic = TopicInfo("t", ZERO_UUID, False, (PartitionInfo(0, 0, 0, (0,), (0,)),))
    leaders.apply(ClusterInfo("c", 0, {0: Endpoint("127.0.0.1", 1)}, {"t": topic}, {}))
    appender = Appender(
        accumulator,
        Router(leaders, config.batch_size),
        ManualClock(now_ms=1234),
        serialize_key=serialize_key,
        serialize_value=serialize_value,
        transaction=transaction,
    )
    appender.is_open = True
    return appender, accumulator


def _record(appender, topic="t", value=b"v", key=None, partition=None, timestamp=None):
    return appender.record(topic, value, key, {"h": b"1"}, partition, timestamp)


def test_a_record_is_bytes_and_has_a_time():
    appender, _ = _appender()
    record = _record(appender, value="x", key=bytearray(b"k"))
    assert (record.value, record.key, record.headers, record.timestamp) == (b"x", b"k", (("h", b"1"),), 1234)
    assert _record(appender, timestamp=7).timestamp == 7


def test_serializers_make_key_and_value():
    appender, _ = _appender(
        serialize_key=lambda topic, key: f"{topic}{key}".encode(), serialize_value=lambda _, value: bytes(value)
    )
    record = _record(appender, key=1, value=2)
    assert (record.key, record.value) == (b"t1", b"\0\0")


def test_what_is_offered_is_in_its_batch():
    appender, accumulator = _appender()
    told = []
    future = appender.offer(_record(appender), lambda *outcome: told.append(outcome))
    (batch,) = accumulator.incomplete()
    assert (batch.tp, batch.count) == (_ONE, 1)
    batch.delivery.succeed(5, -1)
    assert told == [(future.result(0), None)]
    assert future.result(0).offset == 5


@pytest.mark.parametrize("where", [{"topic": "unknown"}, {"partition": 1}])
def test_what_has_no_place_yet_is_not_taken(where):
    appender, accumulator = _appender()
    record = _record(appender, **where)
    assert appender.route(record) is None
    assert appender.offer(record, None) is None
    assert accumulator.is_empty


def test_what_finds_no_room_is_not_taken():
    appender, accumulator = _appender(buffer_memory=200)
    assert appender.offer(_record(appender, value=bytes(100)), None) is not None
    assert appender.offer(_record(appender, value=bytes(100)), None) is None
    assert [batch.count for batch in accumulator.incomplete()] == [1]


def test_a_callback_that_cannot_be_called_is_refused():
    appender, accumulator = _appender()
    with pytest.raises(TypeError, match="on_delivery"):
        appender.offer(_record(appender), "no function")
    assert accumulator.is_empty


def test_a_producer_that_is_not_open_takes_nothing():
    appender, accumulator = _appender()
    appender.is_open = False
    with pytest.raises(ClientClosed, match="start the producer first"):
        appender.offer(_record(appender), None)
    appender.is_closed = True
    for call in (lambda: appender.offer(_record(appender), None), lambda: appender.add(_ONE, bytearray(100))):
        with pytest.raises(ClientClosed, match="the producer is closed"):
            call()
    assert accumulator.is_empty


def test_what_ended_the_producer_is_raised():
    appender, accumulator = _appender()
    accumulator.fatal = ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "no id")
    with pytest.raises(ApiError, match="no id"):
        appender.offer(_record(appender), None)
    assert accumulator.is_empty


def test_a_record_joins_the_transaction_that_is_open():
    transaction = Transaction("x", two_phase=False)
    appender, accumulator = _appender(transaction, transactional_id="x")
    with pytest.raises(ApiError, match="INVALID_TXN_STATE"):
        appender.offer(_record(appender), None)
    assert accumulator.is_empty
    assert not transaction.pending
    transaction.step = Step.OPEN
    assert appender.offer(_record(appender), None) is not None
    assert transaction.pending == {_ONE}
