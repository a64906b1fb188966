"""Answers to odd requests, each as Kafka 3.9.1 gives it; found by ``tests/differential``, which asks both."""

from uuid import uuid4

import pytest
from integration import wire

from sparklog.errors import ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import (
    CreatePartitionsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    FetchRequest,
    ListOffsetsRequest,
    MetadataRequest,
    ProduceRequest,
    SyncGroupRequest,
)
from sparklog.protocol.wire import ZERO_UUID
from sparklog.record.compression import CompressionType
from sparklog.structs import TopicPartition
from sparklog.testing.eventually import eventually

pytestmark = pytest.mark.integration
_ListTopic = ListOffsetsRequest.ListOffsetsTopic


def fetched(connection, tp, offset, isolation=0):
    place = FetchRequest.FetchTopic.FetchPartition(
        partition=tp.partition, fetch_offset=offset, partition_max_bytes=1000, current_leader_epoch=-1
    )
    asked = FetchRequest.FetchTopic(topic=tp.topic, partitions=[place])
    limits = {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1000, "session_epoch": -1}
    request = FetchRequest(topics=[asked], isolation_level=isolation, **limits)
    return wire.ask(connection, ApiKey.FETCH, 12, request).responses[0].partitions[0]


def test_a_fetch_out_of_range_tells_no_offsets(connection, tp):
    answer = fetched(connection, tp, 5)
    assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (answer.high_watermark, answer.last_stable_offset, answer.log_start_offset) == (-1, -1, -1)


def test_only_read_committed_is_told_of_aborted_transactions(connection, tp):
    assert fetched(connection, tp, 0, isolation=0).aborted_transactions is None
    assert fetched(connection, tp, 0, isolation=1).aborted_transactions == []


def produced(connection, tp, batch, version=9, transactional_id=None):
    """The code, and where the answer says that the log begins."""
    part = ProduceRequest.TopicProduceData.PartitionProduceData(index=tp.partition, records=bytes(batch))
    data = [ProduceRequest.TopicProduceData(name=tp.topic, partition_data=[part])]
    request = ProduceRequest(acks=-1, timeout_ms=20_000, topic_data=data, transactional_id=transactional_id)
    answer = wire.ask(connection, ApiKey.PRODUCE, version, request).responses[0].partition_responses[0]
    return ErrorCode(answer.error_code), answer.log_start_offset


def test_a_refused_batch_is_told_where_the_log_begins_if_it_came_so_far(connection, tp):
    good = bytes(wire.batch_of(b"v"))
    assert produced(connection, tp, wire.batch_of()) == (ErrorCode.INVALID_RECORD, 0)
    assert produced(connection, tp, good + good) == (ErrorCode.INVALID_RECORD, -1)
    assert produced(connection, tp, good[:-1] + b"?") == (ErrorCode.CORRUPT_MESSAGE, -1)
    whose = {"producer_id": 900_001, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
    begins = wire.batch_of(b"v", **whose)
    assert produced(connection, tp, begins) == (ErrorCode.INVALID_TXN_STATE, -1)
    assert produced(connection, tp, begins, transactional_id=tp.topic)[1] == -1, "whatever the coordinator says"


def test_zstd_is_for_clients_that_know_it(connection, tp):
    batch = wire.batch_of(b"v" * 100, compression=CompressionType.ZSTD)
    for version in (5, 6):
        assert produced(connection, tp, batch, version) == (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, -1)
    assert produced(connection, tp, batch, 7) == (ErrorCode.NONE, 0)
    nowhere = TopicPartition(f"{tp.topic}-nowhere", 0)
    assert produced(connection, nowhere, batch, 6) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


@pytest.mark.parametrize(
    ("timestamp", "version", "code"),
    [
        (-3, 6, ErrorCode.UNSUPPORTED_VERSION),
        (-3, 7, ErrorCode.NONE),
        (-4, 7, ErrorCode.UNSUPPORTED_VERSION),
        (-4, 8, ErrorCode.NONE),
        (-5, 8, ErrorCode.UNSUPPORTED_VERSION),
        (-2, 1, ErrorCode.NONE),
    ],
)
def test_special_timestamps_mean_something_from_a_version_on(connection, tp, timestamp, version, code):
    place = _ListTopic.ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=timestamp)
    request = ListOffsetsRequest(replica_id=-1, topics=[_ListTopic(name=tp.topic, partitions=[place])])
    assert wire.ask(connection, ApiKey.LIST_OFFSETS, version, request).topics[0].partitions[0].error_code == code


def test_a_partition_is_listed_once(connection, tp):
    places = [_ListTopic.ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=-1)] * 2
    request = ListOffsetsRequest(replica_id=-1, topics=[_ListTopic(name=tp.topic, partitions=places)])
    found = wire.ask(connection, ApiKey.LIST_OFFSETS, 8, request).topics[0].partitions
    assert [each.error_code for each in found] == [ErrorCode.INVALID_REQUEST] * 2


def test_a_topic_is_described_once(connection, tp):
    answer = wire.metadata(connection, tp.topic, tp.topic)
    assert [each.name for each in answer.topics] == [tp.topic]
    asked = MetadataRequest.MetadataRequestTopic(name=None, topic_id=answer.topics[0].topic_id)
    by_id = wire.ask(connection, ApiKey.METADATA, 12, MetadataRequest(topics=[asked, asked]))
    assert [each.name for each in by_id.topics] == [tp.topic]


def test_partitions_asked_for_twice_are_refused_once(connection, tp):
    asked = CreatePartitionsRequest.CreatePartitionsTopic(name=tp.topic, count=3, assignments=None)
    request = CreatePartitionsRequest(topics=[asked, asked], timeout_ms=20_000, validate_only=False)
    (answer,) = wire.ask(connection, ApiKey.CREATE_PARTITIONS, 3, request).results
    assert answer.error_code == ErrorCode.INVALID_REQUEST


def test_a_topic_is_not_deleted_by_name_and_id(connection, tp):
    topic_id = wire.metadata(connection, tp.topic).topics[0].topic_id

    def deleted(**names):
        request = DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(**names)], timeout_ms=20_000)
        return wire.ask(connection, ApiKey.DELETE_TOPICS, 6, request).responses[0].error_code

    assert deleted(name=tp.topic, topic_id=topic_id) == ErrorCode.INVALID_REQUEST
    assert tp.topic in wire.topic_names(connection)
    assert deleted(name=tp.topic, topic_id=ZERO_UUID) == ErrorCode.NONE


def test_to_be_deleted_by_id_a_topic_is_named_by_its_own(connection, tp):
    topic_id = wire.metadata(connection, tp.topic).topics[0].topic_id

    def deleted(topic_id):
        asked = DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=topic_id)
        request = DeleteTopicsRequest(topics=[asked], timeout_ms=20_000)
        return wire.ask(connection, ApiKey.DELETE_TOPICS, 6, request).responses[0].error_code

    assert deleted(uuid4()) == ErrorCode.UNKNOWN_TOPIC_ID
    assert tp.topic in wire.topic_names(connection)
    assert deleted(topic_id) == ErrorCode.NONE
    assert tp.topic not in wire.topic_names(connection)


def test_a_topic_that_nobody_waits_for_is_made_and_answered_as_one_that_is_not_ready(connection, tp):
    name = f"{tp.topic}-soon"
    code, _ = wire.create_topic(connection, name, timeout_ms=0)
    assert code is ErrorCode.REQUEST_TIMED_OUT
    eventually(lambda: set(wire.leaders(connection, name).values()) not in ({-1}, set()))
    assert wire.delete_topic(connection, name) is ErrorCode.NONE


def test_to_name_no_settings_is_to_name_all(connection, tp):
    def described(name, keys):
        resource = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=2, resource_name=name, configuration_keys=keys
        )
        return wire.ask(connection, ApiKey.DESCRIBE_CONFIGS, 4, DescribeConfigsRequest(resources=[resource])).results[0]

    everything = {each.name for each in described(tp.topic, None).configs}
    assert {each.name for each in described(tp.topic, []).configs} == everything
    assert [each.name for each in described(tp.topic, ["retention.ms"]).configs] == ["retention.ms"]
    assert described("a/b", None).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_member_says_what_it_takes_part_in(connection, topic):
    def synced(version, **names):
        request = SyncGroupRequest(group_id=topic, generation_id=1, member_id="m", assignments=[], **names)
        return ErrorCode(wire.ask(connection, ApiKey.SYNC_GROUP, version, request).error_code)

    wire.find_coordinator(connection, topic)
    known = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
    assert synced(4) in known
    assert synced(5, protocol_type="consumer", protocol_name="range") in known
    assert synced(5, protocol_type="consumer", protocol_name=None) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert synced(5, protocol_type=None, protocol_name="range") is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_names_that_differ_in_dots_only_collide(connection, topic):
    assert wire.create_topic(connection, f"{topic}.x")[0] is ErrorCode.NONE
    assert wire.create_topic(connection, f"{topic}_x")[0] is ErrorCode.INVALID_TOPIC_EXCEPTION
    (answer,) = wire.metadata(connection, f"{topic}_x", create=True).topics
    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
