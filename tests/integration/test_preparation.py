"""Batches that are looked into off the loop, from clients that do not wait or say something twice."""

import pytest
from integration import wire

from sparklog.errors import ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.hot.produce import decode_response
from sparklog.protocol.wire import WireWriter
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.compression import CompressionType
from sparklog.testing.eventually import eventually

pytestmark = pytest.mark.integration
SMALL = 5
LARGE = 4 << 20
LATEST = -1


def long_batch():
    builder = RecordBatchBuilder(CompressionType.ZSTD)
    builder.append(0, b"k", bytes(LARGE))
    return bytearray(builder.build())


def test_what_is_sent_last_without_an_answer_is_appended(connection, bootstrap, tp):
    times = 3
    for _ in range(times):
        with wire.connect(bootstrap) as leaving:
            wire.send_produce(leaving, tp, long_batch(), acks=0)
    eventually(lambda: wire.list_offset(connection, tp, LATEST)[1] == times)


def test_of_a_partition_that_stands_twice_nothing_is_stored(connection, tp):
    writer = WireWriter(flexible=True)
    writer.string(None)
    writer.int16(-1)
    writer.int32(20_000)
    writer.array_length(1)
    writer.string(tp.topic)
    writer.array_length(2)
    for batch in (wire.batch_of(b"x" * SMALL), long_batch()):
        writer.int32(tp.partition)
        writer.records([batch])
        writer.tags()
    writer.tags()
    writer.tags()
    connection.send(ApiKey.PRODUCE, wire.PRODUCE_VERSION, writer.chunks())
    _, version, body = connection.receive()
    assert decode_response(body, version)[tp].error is ErrorCode.INVALID_REQUEST
    assert wire.read_all(connection, tp) == []


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_what_comes_behind_a_long_batch_on_its_connection_sees_it(connection, tp, acks):
    for count in range(1, 4):
        wire.send_produce(connection, tp, long_batch(), acks)
        wire.send_fetch(connection, {tp: count - 1})
        if acks:
            connection.receive()
        assert wire.offsets_in(wire.receive_fetch(connection)[tp]) == [count - 1]
