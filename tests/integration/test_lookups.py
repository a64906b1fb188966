"""What clients look up: offsets by their special times, and topics a page at a time."""

import pytest
from integration import wire

from sparklog.errors import ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import (
    DeleteRecordsRequest,
    DescribeTopicPartitionsRequest,
    ListOffsetsRequest,
    decode_response,
    encode,
)
from sparklog.record.batch import patch_max_timestamp
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.compression import CompressionType
from sparklog.structs import TopicPartition

pytestmark = pytest.mark.integration

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
NOTHING = (ErrorCode.NONE, -1, -1, -1)


def at_times(*times):
    builder = RecordBatchBuilder()
    for at in times:
        builder.append(at, b"k", b"v")
    return bytearray(builder.build())


def list_offsets(connection, tp, *times, version=10, replica=-1, epoch=-1):
    """(code, timestamp, offset, epoch) for each time asked for at once."""
    topic = ListOffsetsRequest.ListOffsetsTopic
    asked = [
        topic.ListOffsetsPartition(partition_index=tp.partition, current_leader_epoch=epoch, timestamp=each)
        for each in times
    ]
    message = ListOffsetsRequest(
        replica_id=replica, isolation_level=0, topics=[topic(name=tp.topic, partitions=asked)], timeout_ms=0
    )
    connection.send(ApiKey.LIST_OFFSETS, version, [encode(message, version)])
    _, _, body = connection.receive()
    (answered,) = decode_response(ApiKey.LIST_OFFSETS, version, body).topics
    found = [(ErrorCode(p.error_code), p.timestamp, p.offset, p.leader_epoch) for p in answered.partitions]
    return found[0] if len(times) == 1 else found


def test_the_special_times(connection, tp):
    assert list_offsets(connection, tp, LATEST) == (ErrorCode.NONE, -1, 0, 0)
    assert list_offsets(connection, tp, MAX_TIMESTAMP) == NOTHING
    for times in ((1000, 3000, 2000), (2500,)):
        wire.produce(connection, tp, at_times(*times))
    assert list_offsets(connection, tp, LATEST) == (ErrorCode.NONE, -1, 4, 0)
    assert list_offsets(connection, tp, EARLIEST) == (ErrorCode.NONE, -1, 0, 0)
    assert list_offsets(connection, tp, EARLIEST_LOCAL) == (ErrorCode.NONE, -1, 0, 0)
    assert list_offsets(connection, tp, LATEST_TIERED) == NOTHING
    assert list_offsets(connection, tp, MAX_TIMESTAMP) == (ErrorCode.NONE, 3000, 1, 0)
    assert list_offsets(connection, tp, 2000) == (ErrorCode.NONE, 3000, 1, 0)
    assert list_offsets(connection, tp, 3001) == NOTHING


@pytest.mark.parametrize("codec", list(CompressionType))
def test_a_record_of_a_batch_that_is_large_once_decompressed_is_found(connection, tp, codec):
    """Behind others on the connection, and with others behind it."""
    builder = RecordBatchBuilder(compression=codec)
    for at, value in ((1000, b"v"), (3000, bytes(1_000_000)), (2000, b"v")):
        builder.append(at, None, value)
    for first in (0, 3):
        assert wire.produce(connection, tp, builder.build())[:2] == (ErrorCode.NONE, first)
    assert list_offsets(connection, tp, LATEST) == (ErrorCode.NONE, -1, 6, 0)
    for at, found in ((500, (1000, 0)), (1500, (3000, 1)), (MAX_TIMESTAMP, (3000, 1))):
        assert list_offsets(connection, tp, at) == (ErrorCode.NONE, *found, 0)
    delete_before(connection, tp, 2)
    for at, found in ((1500, (2000, 2)), (2500, (3000, 4)), (MAX_TIMESTAMP, (3000, 4))):
        assert list_offsets(connection, tp, at) == (ErrorCode.NONE, *found, 0)


def test_a_record_is_found_whatever_its_batch_says_of_its_time(connection, tp):
    for told, times in ((1000, (1000, 5000)), (2**62, (4000,))):
        batch = at_times(*times)
        patch_max_timestamp(batch, 0, told)
        wire.produce(connection, tp, batch)
    assert list_offsets(connection, tp, 4500) == (ErrorCode.NONE, 5000, 1, 0)
    assert list_offsets(connection, tp, 5001) == NOTHING
    assert list_offsets(connection, tp, MAX_TIMESTAMP) == (ErrorCode.NONE, 5000, 1, 0)


def test_the_latest_record_is_one_that_is_not_deleted(connection, tp):
    wire.produce(connection, tp, at_times(1000, 3000, 2000))
    delete_before(connection, tp, 2)
    assert list_offsets(connection, tp, MAX_TIMESTAMP) == (ErrorCode.NONE, 2000, 2, 0)
    delete_before(connection, tp, 3)
    assert list_offsets(connection, tp, MAX_TIMESTAMP) == NOTHING


def delete_before(connection, tp, offset):
    topic = DeleteRecordsRequest.DeleteRecordsTopic
    asked = topic.DeleteRecordsPartition(partition_index=tp.partition, offset=offset)
    answer = connection.request(
        ApiKey.DELETE_RECORDS,
        lambda _: DeleteRecordsRequest(topics=[topic(name=tp.topic, partitions=[asked])], timeout_ms=20_000),
    )
    assert answer.topics[0].partitions[0].error_code == 0


@pytest.mark.parametrize(("special", "first"), [(MAX_TIMESTAMP, 7), (EARLIEST_LOCAL, 8), (LATEST_TIERED, 9), (-6, 11)])
def test_a_special_time_has_no_meaning_in_older_versions(connection, tp, special, first):
    for version in (1, first - 1, first):
        code, *_ = list_offsets(connection, tp, special, version=min(version, 10))
        assert code is (ErrorCode.NONE if version == first <= 10 else ErrorCode.UNSUPPORTED_VERSION)


def test_a_partition_that_stands_twice_is_refused(connection, tp):
    assert [each[0] for each in list_offsets(connection, tp, LATEST, EARLIEST)] == [ErrorCode.INVALID_REQUEST] * 2


def test_a_leader_epoch_that_is_not_the_current_one(connection, tp):
    assert list_offsets(connection, tp, LATEST, epoch=0)[0] is ErrorCode.NONE
    assert list_offsets(connection, tp, LATEST, epoch=1)[0] is ErrorCode.UNKNOWN_LEADER_EPOCH
    nowhere = TopicPartition(tp.topic, 7)
    assert list_offsets(connection, nowhere, LATEST)[0] is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def describe(connection, *topics, limit=2000, cursor=None):
    """The topics' names with their partitions' numbers or their error, and the cursor."""
    request = DescribeTopicPartitionsRequest
    message = request(
        topics=[request.TopicRequest(name=each) for each in topics],
        response_partition_limit=limit,
        cursor=None if cursor is None else request.Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    answer = connection.request(ApiKey.DESCRIBE_TOPIC_PARTITIONS, lambda _: message)
    following = answer.next_cursor
    return (
        [(t.name, [p.partition_index for p in t.partitions] or ErrorCode(t.error_code)) for t in answer.topics],
        None if following is None else (following.topic_name, following.partition_index),
    )


def test_topics_are_described_a_page_at_a_time(connection, topic):
    names = [f"{topic}-{each}" for each in "abc"]
    for name in names:
        assert wire.create_topic(connection, name, 3)[0] is ErrorCode.NONE
    a, b, c = names
    assert describe(connection, c, a) == ([(a, [0, 1, 2]), (c, [0, 1, 2])], None)
    pages, cursor = [], None
    while not pages or cursor:
        page, cursor = describe(connection, *names, limit=4, cursor=cursor)
        pages.append(page)
    assert pages == [[(a, [0, 1, 2]), (b, [0])], [(b, [1, 2]), (c, [0, 1])], [(c, [2])]]
    assert describe(connection, a, b, limit=3) == ([(a, [0, 1, 2])], (b, 0)), "nothing of the next topic has room"
    assert describe(connection, a, limit=-5) == ([(a, [0])], (a, 1)), "one at least, or nobody would get on"
    everything, _ = describe(connection, cursor=(b, 2))
    assert [each for each in everything if each[0] in names] == [(b, [2]), (c, [0, 1, 2])]


def test_topics_that_are_not_there_are_described_by_their_errors(connection, tp):
    told, cursor = describe(connection, "no such topic", f"{tp.topic}-not", tp.topic)
    assert dict(told) == {
        "no such topic": ErrorCode.INVALID_TOPIC_EXCEPTION,
        f"{tp.topic}-not": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        tp.topic: [0],
    }
    assert cursor is None


@pytest.mark.parametrize("cursor", [("elsewhere", 0), (None, -1)])
def test_a_cursor_that_leads_nowhere_is_refused(connection, tp, cursor):
    told, _ = describe(connection, tp.topic, cursor=(cursor[0] or tp.topic, cursor[1]))
    assert told == [(tp.topic, ErrorCode.INVALID_REQUEST)]
    assert describe(connection, tp.topic, cursor=(tp.topic, 99)) == ([(tp.topic, ErrorCode.NONE)], None)
