"""The other administrative APIs on the wire: partitions added, records deleted, directories, epochs, elections."""

from dataclasses import replace

import pytest
from integration import wire

from sparklog.errors import ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import (
    AlterPartitionReassignmentsRequest,
    CreatePartitionsRequest,
    DeleteRecordsRequest,
    DescribeLogDirsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
    OffsetForLeaderEpochRequest,
    SaslHandshakeRequest,
)
from sparklog.structs import TopicPartition
from sparklog.testing.broker import BrokerHarness
from sparklog.testing.eventually import eventually
from sparklog.zk.client import ZkClient
from sparklog.zk.znodes import encode_partition_state, partition_state_path

pytestmark = pytest.mark.integration

EARLIEST = -2


@pytest.fixture
def alone(tmp_path, chroot):
    """A broker of this test's own."""
    with BrokerHarness(tmp_path, chroot) as harness:
        yield harness


def grow(connection, topic, count, assignments=None, validate_only=False, version=3):
    asked = CreatePartitionsRequest.CreatePartitionsTopic
    chosen = assignments and [asked.CreatePartitionsAssignment(broker_ids=each) for each in assignments]
    request = CreatePartitionsRequest(
        topics=[asked(name=topic, count=count, assignments=chosen)], timeout_ms=20_000, validate_only=validate_only
    )
    (result,) = wire.ask(connection, ApiKey.CREATE_PARTITIONS, version, request).results
    assert result.name == topic
    return ErrorCode(result.error_code), result.error_message or ""


@pytest.mark.parametrize("version", range(4))
def test_partitions_are_added_and_serve_at_once(connection, make_topic, version):
    topic = make_topic()
    assert wire.produce(connection, TopicPartition(topic, 0), wire.batch_of(b"old"))[0] is ErrorCode.NONE
    assert grow(connection, topic, 3, version=version) == (ErrorCode.NONE, "")
    assert wire.leaders(connection, topic) == {0: 0, 1: 0, 2: 0}
    assert wire.produce(connection, TopicPartition(topic, 2), wire.batch_of(b"new"))[0] is ErrorCode.NONE
    assert wire.read_all(connection, TopicPartition(topic, 0)) == [b"old"]
    assert grow(connection, topic, 4, [[0]], version=version) == (ErrorCode.NONE, "")
    assert len(wire.leaders(connection, topic)) == 4


def test_added_partitions_are_only_validated(connection, make_topic):
    topic = make_topic()
    assert grow(connection, topic, 2, validate_only=True) == (ErrorCode.NONE, "")
    assert grow(connection, topic, 1, validate_only=True)[0] is ErrorCode.INVALID_PARTITIONS
    assert len(wire.leaders(connection, topic)) == 1


@pytest.mark.parametrize(
    ("count", "assignments", "code"),
    [
        (2, None, ErrorCode.INVALID_PARTITIONS),
        (1, None, ErrorCode.INVALID_PARTITIONS),
        (-1, None, ErrorCode.INVALID_PARTITIONS),
        (1_000_000, None, ErrorCode.INVALID_PARTITIONS),
        (3, [[0], [0]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, [[7]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, [[]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, [[0, 0]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_partitions_that_cannot_be_added(connection, make_topic, count, assignments, code):
    topic = make_topic(partitions=2)
    assert grow(connection, topic, count, assignments)[0] is code
    assert len(wire.leaders(connection, topic)) == 2


def test_topics_that_cannot_grow(connection):
    assert grow(connection, "no-such-topic", 2)[0] is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert grow(connection, "__consumer_offsets", 99)[0] is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_topic_has_its_added_partitions_and_its_id_after_a_restart(alone):
    with wire.connect(alone.address) as connection:
        assert wire.create_topic(connection, "t")[0] is ErrorCode.NONE
        before = wire.metadata(connection, "t").topics[0].topic_id
        assert grow(connection, "t", 5)[0] is ErrorCode.NONE
    alone.restart()
    with wire.connect(alone.address) as connection:
        eventually(lambda: wire.leaders(connection, "t") == dict.fromkeys(range(5), 0), 60)
        assert wire.metadata(connection, "t").topics[0].topic_id == before


def delete(connection, tp, before, version=2):
    """Code and low watermark."""
    asked = DeleteRecordsRequest.DeleteRecordsTopic
    partition = asked.DeleteRecordsPartition(partition_index=tp.partition, offset=before)
    request = DeleteRecordsRequest(topics=[asked(name=tp.topic, partitions=[partition])], timeout_ms=20_000)
    (topic,) = wire.ask(connection, ApiKey.DELETE_RECORDS, version, request).topics
    (result,) = topic.partitions
    return ErrorCode(result.error_code), result.low_watermark


def fill(connection, tp, count):
    for number in range(count):
        assert wire.produce(connection, tp, wire.batch_of(b"%d" % number))[0] is ErrorCode.NONE


@pytest.mark.parametrize("version", range(3))
def test_deleted_records_are_out_of_range_at_once(connection, tp, version):
    fill(connection, tp, 5)
    assert delete(connection, tp, 3, version) == (ErrorCode.NONE, 3)
    assert wire.fetch(connection, tp, 2).error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert wire.values_in(wire.fetch(connection, tp, 3)) == [b"3", b"4"]
    assert wire.list_offset(connection, tp, EARLIEST)[:2] == (ErrorCode.NONE, 3)
    assert delete(connection, tp, 1, version) == (ErrorCode.NONE, 3)  # nothing comes back
    assert delete(connection, tp, -1, version) == (ErrorCode.NONE, 5)
    assert wire.list_offset(connection, tp, EARLIEST)[:2] == (ErrorCode.NONE, 5)
    assert wire.produce(connection, tp, wire.batch_of(b"next"))[:2] == (ErrorCode.NONE, 5)


@pytest.mark.parametrize("before", [6, -2, 1 << 62])
def test_records_that_are_not_there_are_not_deleted(connection, tp, before):
    fill(connection, tp, 5)
    assert delete(connection, tp, before) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert wire.list_offset(connection, tp, EARLIEST)[:2] == (ErrorCode.NONE, 0)


def test_records_that_are_kept(connection, make_topic):
    compacted = TopicPartition(make_topic(cleanup_policy="compact"), 0)
    assert delete(connection, compacted, -1) == (ErrorCode.POLICY_VIOLATION, -1)
    assert delete(connection, TopicPartition("no-such", 0), -1) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    eventually(lambda: wire.find_coordinator(connection, "g") == 0)
    assert delete(connection, TopicPartition("__consumer_offsets", 0), -1)[0] is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_deleted_records_do_not_come_back_after_a_kill(alone):
    tp = TopicPartition("t", 0)
    with wire.connect(alone.address) as connection:
        assert wire.create_topic(connection, "t")[0] is ErrorCode.NONE
        fill(connection, tp, 5)
        assert delete(connection, tp, 3) == (ErrorCode.NONE, 3)
    alone.kill()
    alone.start()
    with wire.connect(alone.address) as connection:
        assert wire.list_offset(connection, tp, EARLIEST)[:2] == (ErrorCode.NONE, 3)
        assert wire.fetch(connection, tp, 2).error is ErrorCode.OFFSET_OUT_OF_RANGE
        assert wire.values_in(wire.fetch(connection, tp, 3)) == [b"3", b"4"]


def log_dirs(connection, asked=None, version=4):
    topic = DescribeLogDirsRequest.DescribableLogDirTopic
    topics = asked and [topic(topic=name, partitions=partitions) for name, partitions in asked.items()]
    return wire.ask(connection, ApiKey.DESCRIBE_LOG_DIRS, version, DescribeLogDirsRequest(topics=topics)).results


@pytest.mark.parametrize("version", range(1, 5))
def test_log_directories_tell_sizes_and_room(connection, make_topic, cluster, version):
    topic = make_topic(partitions=2)
    fill(connection, TopicPartition(topic, 1), 3)
    (directory,) = log_dirs(connection, {topic: [0, 1, 9]}, version)
    assert directory.error_code == ErrorCode.NONE
    (described,) = directory.topics
    sizes = {each.partition_index: each.partition_size for each in described.partitions}
    stored = wire.files_of(cluster.broker(0).spec.data_dir, TopicPartition(topic, 1), ".log")
    assert sizes == {0: 0, 1: sum(each.stat().st_size for each in stored)}
    assert sizes[1] > 200
    assert {(each.offset_lag, each.is_future_key) for each in described.partitions} == {(0, False)}
    assert directory.log_dir == str(stored[0].parents[1].absolute())
    if version >= 4:
        assert 0 < directory.usable_bytes <= directory.total_bytes
    (everything,) = log_dirs(connection, version=version)
    assert topic in {each.name for each in everything.topics}


def epoch_end(connection, tp, epoch, current=-1, version=4):
    """Code, epoch and end offset."""
    topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    asked = topic.OffsetForLeaderPartition(partition=tp.partition, current_leader_epoch=current, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic(topic=tp.topic, partitions=[asked])])
    (answered,) = wire.ask(connection, ApiKey.OFFSET_FOR_LEADER_EPOCH, version, request).topics
    (result,) = answered.partitions
    return ErrorCode(result.error_code), result.leader_epoch, result.end_offset


def raise_epoch(chroot, tp, epoch):
    """As elections do that nobody here took part in."""
    zk = ZkClient(chroot, session_timeout=10.0, on_session=lambda _: None)
    try:
        state = zk.states.read([tp])[tp]
        zk.kazoo.set(partition_state_path(tp), encode_partition_state(replace(state, leader_epoch=epoch)))
    finally:
        zk.close()


@pytest.mark.parametrize("version", range(2, 5))
def test_where_leader_epochs_ended(alone, chroot, version):
    tp = TopicPartition("t", 0)
    with wire.connect(alone.address) as connection:
        assert wire.create_topic(connection, "t")[0] is ErrorCode.NONE
        fill(connection, tp, 3)
        assert epoch_end(connection, tp, 0, version=version) == (ErrorCode.NONE, 0, 3)
    alone.stop()
    current = 7
    raise_epoch(chroot, tp, current)
    alone.start()
    with wire.connect(alone.address) as connection:
        fill(connection, tp, 2)
        assert epoch_end(connection, tp, 0, current, version) == (ErrorCode.NONE, 0, 3)
        assert epoch_end(connection, tp, current, current, version) == (ErrorCode.NONE, current, 5)
        assert epoch_end(connection, tp, current + 1, version=version) == (ErrorCode.NONE, -1, -1)
        assert epoch_end(connection, tp, -1, version=version) == (ErrorCode.NONE, -1, -1)
        assert epoch_end(connection, tp, 0, current - 1, version) == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)
        assert epoch_end(connection, tp, 0, current + 1, version) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)
        nowhere = TopicPartition("t", 1)
        assert epoch_end(connection, nowhere, 0, version=version) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)


def elect(connection, partitions, kind=0, version=2):
    """The top-level code, and each partition's."""
    topic = ElectLeadersRequest.TopicPartitions
    asked = partitions and [topic(topic=tp.topic, partitions=[tp.partition]) for tp in partitions]
    request = ElectLeadersRequest(election_type=kind, topic_partitions=asked, timeout_ms=20_000)
    answer = wire.ask(connection, ApiKey.ELECT_LEADERS, version, request)
    codes = {
        TopicPartition(each.topic, one.partition_id): ErrorCode(one.error_code)
        for each in answer.replica_election_results
        for one in each.partition_result
    }
    return ErrorCode(answer.error_code), codes


@pytest.mark.parametrize(("kind", "version"), [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2)])
def test_the_only_replica_leads_already(connection, tp, kind, version):
    unknown = TopicPartition(tp.topic, 1)
    assert elect(connection, [tp, unknown], kind, version) == (
        ErrorCode.NONE,
        {tp: ErrorCode.ELECTION_NOT_NEEDED, unknown: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION},
    )
    assert elect(connection, None, kind, version) == (ErrorCode.NONE, {})


def test_there_are_two_kinds_of_election(connection, tp):
    assert elect(connection, [tp], kind=2)[0] is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("replicas", "number", "code"),
    [
        ([0], 0, ErrorCode.NONE),
        (None, 0, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        ([0], 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ([], 0, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([0, 0], 0, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1], 0, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_replicas_stay_where_they_are(connection, tp, replicas, number, code):
    topic = AlterPartitionReassignmentsRequest.ReassignableTopic
    asked = topic.ReassignablePartition(partition_index=number, replicas=replicas)
    request = AlterPartitionReassignmentsRequest(timeout_ms=20_000, topics=[topic(name=tp.topic, partitions=[asked])])
    answer = wire.ask(connection, ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, request)
    assert answer.error_code == ErrorCode.NONE
    (result,) = answer.responses[0].partitions
    assert (result.partition_index, result.error_code) == (number, code)
    listing = ListPartitionReassignmentsRequest(timeout_ms=20_000, topics=None)
    listed = wire.ask(connection, ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, listing)
    assert (listed.error_code, listed.topics) == (ErrorCode.NONE, [])


@pytest.mark.parametrize("version", [0, 1])
def test_nobody_has_to_prove_who_he_is(connection, version):
    answer = wire.ask(connection, ApiKey.SASL_HANDSHAKE, version, SaslHandshakeRequest(mechanism="PLAIN"))
    assert (answer.error_code, answer.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
