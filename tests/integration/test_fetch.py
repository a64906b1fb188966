"""Fetch over the wire: what comes, how much of it, when, and in which order."""

import threading
import time

import pytest
from integration import wire

from sparklog.errors import ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.hot import fetch as fetch_wire
from sparklog.protocol.hot.fetch import FetchPartition, FetchRequest
from sparklog.protocol.messages import MetadataRequest, decode_response, encode
from sparklog.protocol.wire import ZERO_UUID
from sparklog.record.compression import CompressionType
from sparklog.structs import TopicPartition

pytestmark = pytest.mark.integration

PATIENT_MS = 600_000
"""Longer than a connection waits for an answer: one that comes was woken."""


def fill(connection, tp, *sizes):
    """A batch a size, one record each; returns the batches' sizes in bytes."""
    batches = [wire.batch_of(b"v" * size) for size in sizes]
    for batch in batches:
        assert wire.produce(connection, tp, batch)[0] is ErrorCode.NONE
    return [len(batch) for batch in batches]


def record_bytes(fetched):
    """How many bytes of records came."""
    return sum(map(len, fetched.records))


def test_a_long_poll_is_answered_when_enough_has_come(bootstrap, connection, tp):
    with wire.connect(bootstrap) as reader:
        one = len(wire.batch_of(b"v" * 100))
        wire.send_fetch(reader, {tp: 0}, max_wait_ms=PATIENT_MS, min_bytes=3 * one)
        arrived = []
        waiting = threading.Thread(target=lambda: arrived.append(wire.receive_fetch(reader)[tp]))
        waiting.start()
        fill(connection, tp, 100, 100)
        assert not arrived
        fill(connection, tp, 100)
        waiting.join()
        assert [wire.offsets_in(each) for each in arrived] == [[0, 1, 2]]


def test_a_long_poll_is_answered_with_what_there_is_when_time_is_up(connection, tp):
    fill(connection, tp, 10)
    started = time.monotonic()
    fetched = wire.fetch(connection, tp, 0, max_wait_ms=300, min_bytes=1 << 20)
    assert time.monotonic() - started >= 0.29
    assert wire.offsets_in(fetched) == [0]
    started = time.monotonic()
    fetched = wire.fetch(connection, tp, 1, max_wait_ms=300)
    assert time.monotonic() - started >= 0.29
    assert (fetched.error, fetched.high_watermark, fetched.records) == (ErrorCode.NONE, 1, [])


def test_a_poll_without_waiting_is_answered_at_once(connection, tp):
    fetched = wire.fetch(connection, tp, 0, max_wait_ms=0, min_bytes=1 << 20)
    assert (fetched.error, fetched.records) == (ErrorCode.NONE, [])


def test_an_error_in_one_partition_ends_the_wait(connection, tp):
    nowhere = TopicPartition(tp.topic, 9)
    wire.send_fetch(connection, {tp: 0, nowhere: 0}, max_wait_ms=PATIENT_MS)
    fetched = wire.receive_fetch(connection)
    assert fetched[nowhere].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert fetched[tp].error is ErrorCode.NONE


def test_a_long_poll_of_two_partitions_is_woken_by_either(bootstrap, connection, make_topic):
    topic = make_topic(partitions=2)
    both = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    with wire.connect(bootstrap) as reader:
        for quiet, lively in (both, reversed(both)):
            ends = {each: wire.fetch(reader, each, 0).high_watermark for each in both}
            wire.send_fetch(reader, ends, max_wait_ms=PATIENT_MS)
            fill(connection, lively, 10)
            fetched = wire.receive_fetch(reader)
            assert wire.offsets_in(fetched[lively]) == [ends[lively]]
            assert wire.offsets_in(fetched[quiet]) == []


@pytest.mark.parametrize("codec", [CompressionType.NONE, CompressionType.ZSTD])
def test_a_fetch_from_inside_a_batch_gives_the_whole_batch(connection, tp, codec):
    first = wire.batch_of(*(b"a%d" % n for n in range(10)), compression=codec)
    second = wire.batch_of(*(b"b%d" % n for n in range(10)), compression=codec)
    for batch in (first, second):
        wire.produce(connection, tp, batch)
    for offset, whole in ((0, 0), (5, 0), (9, 0), (10, 10), (19, 10)):
        assert wire.offsets_in(wire.fetch(connection, tp, offset)) == list(range(whole, 20))


def test_a_message_larger_than_asked_for_comes_all_the_same(connection, make_topic):
    tp = TopicPartition(make_topic(max_message_bytes=2 << 20), 0)
    sizes = fill(connection, tp, 1 << 20, 10)
    for limits in ({"max_bytes": 100}, {"partition_max_bytes": 100}, {"max_bytes": 0}, {"partition_max_bytes": 1}):
        fetched = wire.fetch(connection, tp, 0, **limits)
        assert wire.offsets_in(fetched) == [0]
        assert record_bytes(fetched) == sizes[0]


def test_a_partition_gives_no_more_than_asked_for(connection, tp):
    one, *_ = fill(connection, tp, *[100] * 10)
    for count in (1, 2, 5):
        fetched = wire.fetch(connection, tp, 3, partition_max_bytes=one * count + one // 2)
        assert wire.offsets_in(fetched) == list(range(3, 3 + count))
        assert record_bytes(fetched) <= one * count + one // 2


def test_two_partitions_share_the_bytes_of_a_request(connection, make_topic):
    topic = make_topic(partitions=2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    (one, *_), _ = fill(connection, first, *[1000] * 5), fill(connection, second, *[1000] * 5)
    for budget, shares in ((one * 7, (5, 2)), (one * 5, (5, 0)), (one * 2, (2, 0)), (one * 10, (5, 5))):
        wire.send_fetch(connection, {first: 0, second: 0}, max_bytes=budget)
        fetched = wire.receive_fetch(connection)
        assert tuple(len(wire.offsets_in(fetched[each])) for each in (first, second)) == shares
        assert sum(map(record_bytes, fetched.values())) <= budget
    wire.send_fetch(connection, {second: 0, first: 0}, max_bytes=one)
    fetched = wire.receive_fetch(connection)
    assert [len(wire.offsets_in(fetched[each])) for each in (first, second)] == [0, 1]


def test_pipelined_requests_are_answered_in_the_order_of_asking(connection, tp):
    fill(connection, tp, 10)
    hello = encode(MetadataRequest(topics=[], allow_auto_topic_creation=False), 9)
    started = time.monotonic()
    wire.send_fetch(connection, {tp: 1}, max_wait_ms=300)
    connection.send(ApiKey.METADATA, 9, [hello])
    wire.send_fetch(connection, {tp: 0})
    connection.send(ApiKey.METADATA, 9, [hello])
    assert wire.receive_fetch(connection)[tp].records == []
    assert time.monotonic() - started >= 0.29, "the first request did not wait, so it proves nothing"
    for api in (ApiKey.METADATA, ApiKey.FETCH, ApiKey.METADATA):
        answered, version, body = connection.receive()
        assert answered is api
        if api is ApiKey.METADATA:
            assert [each.node_id for each in decode_response(api, version, body).brokers] == [0]


def test_a_hundred_pipelined_produces_get_consecutive_offsets(connection, tp):
    for number in range(100):
        wire.send_produce(connection, tp, wire.batch_of(b"%d" % number))
    offsets = []
    for _ in range(100):
        _, version, body = connection.receive()
        offsets.append(decode_response(ApiKey.PRODUCE, version, body).responses[0].partition_responses[0].base_offset)
    assert offsets == list(range(100))
    assert wire.read_all(connection, tp) == [b"%d" % number for number in range(100)]


def test_a_fetch_behind_a_produce_sees_what_waits_for_the_disk(connection, make_topic):
    tp = TopicPartition(make_topic(flush_messages=1), 0)
    for number in range(20):
        for _ in range(3):  # which may wait for one flush together
            wire.send_produce(connection, tp, wire.batch_of(b"v"))
        wire.send_fetch(connection, {tp: 3 * number + 2})
        for _ in range(3):
            connection.receive()
        assert wire.offsets_in(wire.receive_fetch(connection)[tp]) == [3 * number + 2]


def test_a_reader_that_pauses_gets_every_byte(bootstrap, connection, make_topic):
    tp = TopicPartition(make_topic(max_message_bytes=2 << 20, segment_bytes=4 << 20), 0)
    values = [bytes([n]) * (1 << 20) for n in range(1, 25)]
    for value in values:
        assert wire.produce(connection, tp, wire.batch_of(value))[0] is ErrorCode.NONE
    with wire.connect(bootstrap) as slow:
        for offset in range(len(values)):
            wire.send_fetch(slow, {tp: offset}, partition_max_bytes=1)
        wire.fetch(connection, tp, 0)
        for value in values:
            assert wire.values_in(wire.receive_fetch(slow)[tp]) == [value]


def test_fetching_crosses_segments(connection, make_topic):
    tp = TopicPartition(make_topic(segment_bytes=2000), 0)
    fill(connection, tp, *[500] * 20)
    assert wire.read_all(connection, tp) == [b"v" * 500] * 20
    for offset in range(20):
        assert wire.offsets_in(wire.fetch(connection, tp, offset))[0] == offset


def test_a_leader_epoch_of_the_future_is_unknown(connection, tp):
    for epoch, error in ((0, ErrorCode.NONE), (7, ErrorCode.UNKNOWN_LEADER_EPOCH)):
        asked = FetchPartition(tp.topic, ZERO_UUID, tp.partition, 0, wire.MANY, current_leader_epoch=epoch)
        body = fetch_wire.encode_request(FetchRequest(0, 1, wire.MANY, [asked]), wire.BY_NAME)
        connection.send(ApiKey.FETCH, wire.BY_NAME, body)
        assert wire.receive_fetch(connection)[tp].error is error
