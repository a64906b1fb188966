"""Clients from before Kafka 0.11: what they send becomes batches, and what they fetch are message sets."""

import subprocess

import pytest
from fix_programs import lack_of
from integration import wire
from integration.raw_producer import RawProducer
from record.legacy_bytes import entry, wrapper

from sparklog.errors import ErrorCode
from sparklog.group.offsets import partition_for, read_offset
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.hot import produce as produce_wire
from sparklog.protocol.messages import (
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    ListOffsetsRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetForLeaderEpochRequest,
)
from sparklog.record.compression import CompressionType
from sparklog.record.legacy.message_set import iter_messages, unwrap
from sparklog.structs import OFFSETS_TOPIC, TopicPartition
from sparklog.testing.eventually import eventually

pytestmark = pytest.mark.integration

FETCH_VERSIONS = [0, 1, 2, 3]
LARGEST = 1 << 20
"""Bytes of the log for an answer, and a batch more of each partition before version 3."""
LACK = lack_of("kcat")


def send(connection, tp, data, version, acks=1):
    body = produce_wire.encode_request(acks, 20_000, {tp: [data]}, version)
    connection.send(ApiKey.PRODUCE, version, body, expect_response=acks != 0)


def produce(connection, tp, data, version, acks=1):
    send(connection, tp, data, version, acks)
    _, answered, body = connection.receive()
    assert answered == version
    return produce_wire.decode_response(body, version)[tp]


def messages(fetched, **how):
    data = b"".join(fetched.records)
    return [message for each in iter_messages(data, **how) for message in unwrap(each)]


def values(fetched, **how):
    return [None if each.value is None else bytes(each.value) for each in messages(fetched, **how)]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_what_is_sent_is_given_offsets_and_read_by_all(connection, tp, version):
    plain = entry(0, b"k", b"one", magic=1, timestamp=1000) + entry(1, None, None)
    packed = wrapper(1, entry(0, None, b"three", magic=1) + entry(1, None, b"four", magic=1), magic=1)
    assert produce(connection, tp, plain, version)[:2] == (ErrorCode.NONE, 0)
    assert produce(connection, tp, packed, version, acks=-1)[:2] == (ErrorCode.NONE, 2)
    assert wire.read_all(connection, tp) == [b"one", None, b"three", b"four"]
    for each in FETCH_VERSIONS:
        fetched = wire.fetch(connection, tp, 0, version=each)
        assert (fetched.error, fetched.high_watermark) == (ErrorCode.NONE, 4)
        assert values(fetched) == [b"one", None, b"three", b"four"]
        assert {message.magic for message in messages(fetched)} == {0 if each < 2 else 1}


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_a_fetch_begins_where_it_is_asked(connection, tp, version):
    wire.produce(connection, tp, wire.batch_of(b"a", b"b", b"c"))
    fetched = wire.fetch(connection, tp, 1, version=version)
    assert [(each.offset, bytes(each.value)) for each in messages(fetched)] == [(1, b"b"), (2, b"c")]
    assert wire.fetch(connection, tp, 3, version=version).records == []
    assert wire.fetch(connection, tp, 4, version=version).error is ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_a_fetch_waits_for_what_comes(connection, bootstrap, tp, version):
    wire.send_fetch(connection, {tp: 0}, max_wait_ms=60_000, version=version)
    with wire.connect(bootstrap) as other:
        wire.produce(other, tp, wire.batch_of(b"late"))
    assert values(wire.receive_fetch(connection)[tp]) == [b"late"]


@pytest.fixture
def markers(bootstrap, tp):
    """The offset of the first of three markers, with no record before or between them."""
    producer = RawProducer(bootstrap, tp.topic, version=1)
    for _ in range(3):
        assert producer.init() is ErrorCode.NONE
        assert producer.add(tp) is ErrorCode.NONE
        assert producer.end(commit=True) is ErrorCode.NONE
    return 0


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_a_fetch_does_not_return_for_markers_which_it_cannot_tell_of(connection, bootstrap, tp, markers, version):
    """It waits for a record instead: its client could only ask for the same again, at once and for ever."""
    wire.send_fetch(connection, {tp: markers}, max_wait_ms=60_000, version=version)
    with wire.connect(bootstrap) as other:
        wire.produce(other, tp, wire.batch_of(b"behind"))
    assert values(wire.receive_fetch(connection)[tp]) == [b"behind"]


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_a_fetch_gets_beyond_more_markers_than_it_takes_bytes(connection, tp, markers, version):
    wire.produce(connection, tp, wire.batch_of(b"behind"))
    fetched = wire.fetch(connection, tp, markers, partition_max_bytes=100, version=version)
    assert values(fetched) == [b"behind"]


def test_what_does_not_fit_is_cut_off_before_version_3_and_given_whole_from_then_on(connection, tp):
    """A client of before sees by the cut end that it has to ask for more."""
    wire.produce(connection, tp, wire.batch_of(bytes(1000), b"behind"))
    for version in (0, 1, 2):
        fetched = wire.fetch(connection, tp, 0, partition_max_bytes=100, version=version)
        assert sum(map(len, fetched.records)) == 100
        assert messages(fetched) == []
    for most in (0, 100):
        fetched = wire.fetch(connection, tp, 0, partition_max_bytes=most, version=3)
        assert values(fetched, partial_tail=False) == [bytes(1000), b"behind"]


def test_the_first_of_each_partition_comes_before_version_3_however_large(connection, topic):
    tps = [TopicPartition(topic, number) for number in range(2)]
    assert wire.create_topic(connection, topic, 2)[0] is ErrorCode.NONE
    for tp in tps:
        wire.produce(connection, tp, wire.batch_of(bytes(1000)))
    wire.send_fetch(connection, dict.fromkeys(tps, 0), partition_max_bytes=100, version=2)
    found = wire.receive_fetch(connection)
    assert [sum(map(len, found[tp].records)) for tp in tps] == [100, 100]


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_an_answer_takes_little_memory_however_much_is_asked_for(connection, topic, version):
    """It is not sent from the file, as others are: it waits in memory until its client reads it."""
    tps = [TopicPartition(topic, number) for number in range(2)]
    assert wire.create_topic(connection, topic, 2)[0] is ErrorCode.NONE
    for _ in range(4):
        for tp in tps:
            wire.produce(connection, tp, wire.batch_of(bytes(400_000)))
    wire.send_fetch(connection, dict.fromkeys(tps, 0), version=version)
    found = wire.receive_fetch(connection)
    sizes = [sum(map(len, found[tp].records)) for tp in tps]
    assert 400_000 < sum(sizes) < 2 * LARGEST
    assert all(sizes) or version == 3
    rest = wire.fetch(connection, tps[0], len(values(found[tps[0]])), version=version)
    assert values(rest)[:1] == [bytes(400_000)]


def test_a_topic_may_forbid_it(connection, make_topic):
    tp = TopicPartition(make_topic(message_downconversion_enable="false"), 0)
    wire.produce(connection, tp, wire.batch_of(b"x"))
    for version in FETCH_VERSIONS:
        fetched = wire.fetch(connection, tp, 0, version=version)
        assert (fetched.error, fetched.records) == (ErrorCode.UNSUPPORTED_VERSION, [])
    assert wire.values_in(wire.fetch(connection, tp, 0)) == [b"x"]


def test_zstd_has_no_old_form(connection, tp):
    wire.produce(connection, tp, wire.batch_of(b"x", compression=CompressionType.ZSTD))
    for version in FETCH_VERSIONS:
        fetched = wire.fetch(connection, tp, 0, version=version)
        assert (fetched.error, fetched.records) == (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, [])


def test_what_lies_before_a_batch_in_zstd_is_given(connection, tp):
    wire.produce(connection, tp, wire.batch_of(b"a", b"b"))
    wire.produce(connection, tp, wire.batch_of(b"c", compression=CompressionType.GZIP))
    wire.produce(connection, tp, wire.batch_of(b"d", compression=CompressionType.ZSTD))
    for version in FETCH_VERSIONS:
        fetched = wire.fetch(connection, tp, 0, version=version)
        assert (fetched.error, values(fetched)) == (ErrorCode.NONE, [b"a", b"b", b"c"])
        fetched = wire.fetch(connection, tp, 3, version=version)
        assert (fetched.error, fetched.records) == (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, [])


def test_the_log_may_give_the_time(connection, make_topic):
    tp = TopicPartition(make_topic(message_timestamp_type="LogAppendTime"), 0)
    result = produce(connection, tp, entry(0, None, b"x", magic=1, timestamp=5), 2)
    assert result.log_append_time_ms > 5
    for version, expected in ((1, (-1, -1)), (3, (result.log_append_time_ms, 1))):
        (message,) = messages(wire.fetch(connection, tp, 0, version=version))
        assert (message.timestamp, message.timestamp_type) == expected


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (entry(0, None, b"x")[:-1] + b"y", ErrorCode.CORRUPT_MESSAGE),
        (wrapper(0, entry(0, None, b"x")) * 2, ErrorCode.INVALID_RECORD),
        (b"", ErrorCode.INVALID_RECORD),
        (entry(0, None, bytes(2 << 20)), ErrorCode.MESSAGE_TOO_LARGE),
    ],
)
@pytest.mark.parametrize("version", [0, 2])
def test_what_is_refused_is_not_stored(connection, tp, data, code, version):
    assert produce(connection, tp, data, version)[:2] == (code, -1)
    assert wire.fetch(connection, tp, 0).high_watermark == 0


def test_message_sets_are_refused_of_later_clients(connection, tp):
    for version in (3, 7, wire.PRODUCE_VERSION):
        assert produce(connection, tp, entry(0, None, b"x"), version).error is ErrorCode.INVALID_RECORD
    assert wire.fetch(connection, tp, 0).high_watermark == 0


def test_a_topic_that_is_not_there(connection):
    nowhere = TopicPartition("nowhere", 0)
    assert produce(connection, nowhere, entry(0, None, b"x"), 1).error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert wire.fetch(connection, nowhere, 0, version=1).error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_sets_of_one_connection_keep_their_order_and_acks_0_is_not_answered(connection, tp):
    inner = b"".join(entry(number, None, bytes(1000), magic=1) for number in range(1000))
    expected = []
    for number in range(10):
        large = number % 2 == 0
        send(connection, tp, wrapper(999, inner, magic=1) if large else entry(0, None, b"%d" % number), 1, acks=0)
        expected += [bytes(1000)] * 1000 if large else [b"%d" % number]
    assert produce(connection, tp, entry(0, None, b"last"), 1).base_offset == len(expected)
    assert wire.read_all(connection, tp) == [*expected, b"last"]


def offsets(connection, tp, timestamp, most, version=0):
    topic = ListOffsetsRequest.ListOffsetsTopic
    asked = topic.ListOffsetsPartition(partition_index=tp.partition, timestamp=timestamp, max_num_offsets=most)
    request = ListOffsetsRequest(replica_id=-1, topics=[topic(name=tp.topic, partitions=[asked])])
    (result,) = wire.ask(connection, ApiKey.LIST_OFFSETS, version, request).topics[0].partitions
    return ErrorCode(result.error_code), list(result.old_style_offsets)


def test_offsets_are_the_beginnings_of_segments_and_the_end(connection, make_topic):
    tp = TopicPartition(make_topic(segment_bytes="1024", retention_ms="-1"), 0)
    for _ in range(3):
        wire.produce(connection, tp, wire.batch_of(bytes(900), b"second"))
    assert offsets(connection, tp, -1, 1) == (ErrorCode.NONE, [6])
    assert offsets(connection, tp, -1, 10) == (ErrorCode.NONE, [6, 4, 2, 0])
    assert offsets(connection, tp, -2, 10) == (ErrorCode.NONE, [0])
    assert offsets(connection, tp, wire.FIRST_TIMESTAMP, 10) == (ErrorCode.NONE, [])
    assert offsets(connection, tp, wire.FIRST_TIMESTAMP + 1, 2) == (ErrorCode.NONE, [4, 2])
    assert offsets(connection, tp, 2**62, 2) == (ErrorCode.NONE, [6, 4])
    assert offsets(connection, tp, -1, 0) == (ErrorCode.NONE, [])


def test_of_an_empty_log_both_ends_are_one(connection, tp):
    assert offsets(connection, tp, -1, 5) == (ErrorCode.NONE, [0])
    assert offsets(connection, tp, -2, 5) == (ErrorCode.NONE, [0])


def test_topics_are_made_described_and_deleted_by_the_first_versions(connection, topic):
    asked = CreateTopicsRequest.CreatableTopic
    settings = [asked.CreatableTopicConfig(name="retention.ms", value="5000")]
    new = asked(name=topic, num_partitions=2, replication_factor=1, assignments=[], configs=settings)
    create = CreateTopicsRequest(topics=[new], timeout_ms=20_000)
    codes = [wire.ask(connection, ApiKey.CREATE_TOPICS, 0, create).topics[0].error_code for _ in range(2)]
    assert codes == [ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS]
    assert set(wire.leaders(connection, topic)) == {0, 1}

    resource = DescribeConfigsRequest.DescribeConfigsResource
    names = ["retention.ms", "segment.bytes"]
    describe = DescribeConfigsRequest(
        resources=[resource(resource_type=2, resource_name=topic, configuration_keys=names)]
    )
    (result,) = wire.ask(connection, ApiKey.DESCRIBE_CONFIGS, 0, describe).results
    assert {each.name: (each.value, each.is_default) for each in result.configs} == {
        "retention.ms": ("5000", False),
        "segment.bytes": (str(1 << 30), True),
    }
    delete = DeleteTopicsRequest(topic_names=[topic], timeout_ms=20_000)
    (gone,) = wire.ask(connection, ApiKey.DELETE_TOPICS, 0, delete).responses
    assert (gone.name, gone.error_code) == (topic, ErrorCode.NONE)
    assert topic not in wire.topic_names(connection)


@pytest.mark.parametrize("version", [0, 1])
def test_the_end_of_an_epoch_is_told_in_the_first_versions(connection, tp, version):
    wire.produce(connection, tp, wire.batch_of(b"a", b"b"))
    topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    asked = topic(topic=tp.topic, partitions=[topic.OffsetForLeaderPartition(partition=0, leader_epoch=0)])
    request = OffsetForLeaderEpochRequest(topics=[asked])
    (told,) = wire.ask(connection, ApiKey.OFFSET_FOR_LEADER_EPOCH, version, request).topics[0].partitions
    assert (told.error_code, told.end_offset, told.leader_epoch) == (ErrorCode.NONE, 2, 0 if version else -1)


def commit(connection, group, tp, offset, version, **how):
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    fields = {"partition_index": tp.partition, "committed_offset": offset, "committed_metadata": "", **how}
    asked = topic(name=tp.topic, partitions=[topic.OffsetCommitRequestPartition(**fields)])
    request = OffsetCommitRequest(group_id=group, topics=[asked])
    (told,) = wire.ask(connection, ApiKey.OFFSET_COMMIT, version, request).topics[0].partitions
    return told.error_code


def committed(connection, group, tp, version):
    topic = OffsetFetchRequest.OffsetFetchRequestTopic
    request = OffsetFetchRequest(group_id=group, topics=[topic(name=tp.topic, partition_indexes=[tp.partition])])
    (told,) = wire.ask(connection, ApiKey.OFFSET_FETCH, version, request).topics[0].partitions
    return told.error_code, told.committed_offset


def test_offsets_of_the_first_version_are_apart_from_those_of_the_coordinator(connection, tp):
    group = f"g-{tp.topic}"
    eventually(lambda: wire.find_coordinator(connection, group) >= 0, 60, "the coordinator")
    none = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert committed(connection, group, tp, 0) == none
    assert commit(connection, group, tp, 5, 0) == ErrorCode.NONE
    assert commit(connection, group, tp, 6, 0, committed_metadata="x" * 5000) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert (committed(connection, group, tp, 0), committed(connection, group, tp, 1)) == ((0, 5), (0, -1))
    assert commit(connection, group, tp, 7, 1) == ErrorCode.NONE
    assert (committed(connection, group, tp, 0), committed(connection, group, tp, 1)) == ((0, 5), (0, 7))
    nowhere = TopicPartition(tp.topic, 9)
    assert commit(connection, group, nowhere, 5, 0) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert committed(connection, group, nowhere, 0) == none


def test_offsets_are_of_the_time_that_the_client_says(connection, tp):
    group = f"g-{tp.topic}"
    eventually(lambda: wire.find_coordinator(connection, group) >= 0, 60, "the coordinator")
    home = TopicPartition(OFFSETS_TOPIC, partition_for(group, len(wire.leaders(connection, OFFSETS_TOPIC))))
    _, end, _ = wire.list_offset(connection, home, -1)
    assert commit(connection, group, tp, 7, 1, commit_timestamp=1234) == ErrorCode.NONE
    stored = wire.values_in(wire.fetch(connection, home, end))
    assert [read_offset(each).commit_timestamp_ms for each in stored] == [1234]


@pytest.mark.skipif(bool(LACK), reason=LACK)
@pytest.mark.parametrize("kafka", ["0.8.2", "0.9.0"])
def test_kcat_as_a_client_of(bootstrap, make_topic, kafka):
    topic = make_topic()
    old = ["-b", bootstrap, "-t", topic, "-X", "api.version.request=false", "-X", f"broker.version.fallback={kafka}"]

    def kcat(*arguments, stdin=""):
        run = ["kcat", *old, *arguments]
        done = subprocess.run(run, input=stdin, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    lines = []
    for codec in ("none", "gzip", "snappy", "lz4"):
        sent = [f"key-{number}\t{codec} {number}\n" for number in range(100)]
        lines += sent
        kcat("-P", "-K", "\t", "-z", codec, stdin="".join(sent))
    assert kcat("-C", "-o", "beginning", "-e", "-q", "-f", "%k\t%s\n") == "".join(lines)
    assert kcat("-C", "-o", "beginning", "-c", "1", "-q", "-f", "%T") == "0"
