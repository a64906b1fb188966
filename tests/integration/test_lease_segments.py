"""LeaseSegments: what a leader tells of its files, to whom it does not, and that they stay as long as it said."""

import os
from pathlib import Path
from typing import Any
from uuid import uuid4

import confluent_kafka
import confluent_kafka.admin
import pytest

from sparklog.client.admin.admin import AdminClient, NewTopic
from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.leases import RangeAsked, end_lease, lease_ranges
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.cluster.offsets import earliest_offsets
from sparklog.client.producer.batch_producer import BatchProducer
from sparklog.errors import ApiError, ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import LeaseSegmentsRequest
from sparklog.protocol.wire import ZERO_UUID
from sparklog.record.builder import RecordBatchBuilder
from sparklog.structs import TopicPartition
from sparklog.testing.cluster import ClusterHarness
from sparklog.testing.eventually import eventually

pytestmark = pytest.mark.integration

SMALL_SEGMENTS = {"segment.bytes": "14000", "retention.ms": "-1"}


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """A broker that looks for what to delete all the time."""
    settings = {"log.retention.check.interval.ms": "50", "log.segment.delete.delay.ms": "0"}
    with ClusterHarness(tmp_path_factory.mktemp("quick"), settings=settings) as harness:
        yield harness


@pytest.fixture(scope="module")
def metadata(quick):
    with ClusterMetadata(ClientConfig(bootstrap_servers=quick.bootstrap_servers)) as cluster:
        yield cluster


def _filled(metadata, name, batches=40):
    """A partition with some segments, ten records a batch."""
    AdminClient(metadata).create_topics([NewTopic(name, 1, 1, SMALL_SEGMENTS)])
    tp = TopicPartition(name, 0)
    with BatchProducer(metadata) as producer:
        for number in range(batches):
            builder = RecordBatchBuilder()
            for _ in range(10):
                builder.append(1000 + number, b"k", bytes(100))
            producer.send(tp, bytearray(builder.build()))
            producer.flush()
    return tp


def _lease(metadata, tp, start, end, topic_id=None, **kwargs):
    (found,) = lease_ranges(metadata, [RangeAsked(tp, start, end, topic_id)], **kwargs)
    if isinstance(found, ApiError):
        raise found
    return found


def _delete_records(metadata, *partitions):
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": metadata.config.bootstrap_servers})
    asked = [confluent_kafka.TopicPartition(tp.topic, tp.partition, 400) for tp in partitions]
    for done in admin.delete_records(asked).values():
        assert done.result(30).low_watermark == 400


def test_files_stay_while_leased_and_go_when_the_lease_is_ended(metadata, topic):
    leased, other = _filled(metadata, topic), _filled(metadata, topic + "-other")
    lease = _lease(metadata, leased, 0, 400)
    kept, free = (Path(each.path) for each in (lease.files[0], _lease(metadata, other, 0, 1, duration_ms=0).files[0]))
    assert len(lease.files) > 2
    assert lease.nbytes == sum(Path(each.path).stat().st_size for each in lease.files)
    _delete_records(metadata, leased, other)
    eventually(lambda: not free.exists(), 60, "the segment that nobody leased is gone")
    assert kept.exists()
    assert earliest_offsets(metadata, [leased]) == {leased: 400}
    end_lease(metadata, lease)
    eventually(lambda: not kept.exists(), 60, "the segment is gone when the lease is ended")


def test_a_lease_ends_at_its_time(metadata, topic):
    tp = _filled(metadata, topic)
    lease = _lease(metadata, tp, 0, 400, duration_ms=1)
    _delete_records(metadata, tp)
    eventually(lambda: not Path(lease.files[0].path).exists(), 60, "the segment is gone when the lease has ended")


def test_what_is_told_are_the_files_themselves(metadata, topic):
    tp = _filled(metadata, topic)
    lease = _lease(metadata, tp, 15, 25, max_files=1)
    (file,) = lease.files
    status = os.stat(file.path)
    assert (status.st_dev, status.st_ino) == (file.device, file.inode)
    assert (file.first_offset, lease.end_offset) == (10, 25)
    assert int.from_bytes(Path(file.path).read_bytes()[file.start : file.start + 8], "big") == 10
    assert file.end - file.start == 2 * file.start


def test_a_lease_goes_no_further_than_what_is_committed(metadata, topic):
    tp = _filled(metadata, topic, batches=2)
    assert _lease(metadata, tp, 5, 1 << 40).end_offset == 20
    assert _lease(metadata, tp, 20, 30)[3:5] == ([], 20)


def test_one_topic_is_not_leased_for_another(metadata, topic):
    tp = _filled(metadata, topic, batches=1)
    with pytest.raises(ApiError, match="deleted and created again") as caught:
        _lease(metadata, tp, 0, 10, topic_id=uuid4())
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_many_ranges_in_one_request(metadata, topic):
    one, other = _filled(metadata, topic, batches=2), _filled(metadata, topic + "-other", batches=3)
    asked = [RangeAsked(one, 0, 10), RangeAsked(other, 20, 30), RangeAsked(one, 10, 20), RangeAsked(one, 30, 40)]
    answers: list[Any] = lease_ranges(metadata, asked)
    first, second, third, refused = answers
    assert first.id == second.id == third.id
    assert [each.files[0].first_offset for each in (first, second, third)] == [0, 20, 10]
    assert (first.files[0].path, first.files[0].end) == (third.files[0].path, third.files[0].start)
    assert refused.code is ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("start", [-1, 11])
def test_offsets_that_are_not_there_are_refused(metadata, topic, start):
    tp = _filled(metadata, topic, batches=1)
    with pytest.raises(ApiError, match=f"lease of partition {tp} from offset {start} .*OFFSET_OUT_OF_RANGE") as caught:
        _lease(metadata, tp, start, 10)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def _asked(metadata, *topics):
    """The error of each partition 0 asked for, of (topic, topic id)."""
    schema = LeaseSegmentsRequest.LeaseTopic
    partition = schema.LeasePartition(partition_index=0, start_offset=0, end_offset=10)
    asked = [schema(topic=name, topic_id=id_, partitions=[partition]) for name, id_ in topics]
    request = LeaseSegmentsRequest(isolation_level=0, duration_ms=1, max_files=-1, topics=asked, ended_leases=[77])
    leader, _ = metadata.leader(TopicPartition(topics[0][0], 0))
    answer = metadata.request(leader, ApiKey.LEASE_SEGMENTS, lambda _: request)
    return [ErrorCode(each.partitions[0].error_code) for each in answer.topics]


def test_each_partition_has_an_answer_of_its_own(metadata, topic):
    right = metadata.topic(_filled(metadata, topic, batches=1).topic).topic_id
    _filled(metadata, topic + "-b", batches=1)
    _filled(metadata, topic + "-c", batches=1)
    asked = [(topic, right), (topic + "-b", uuid4()), (topic + "-none", uuid4()), (topic + "-c", ZERO_UUID)]
    assert _asked(metadata, *asked) == [
        ErrorCode.NONE,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,
    ]
