"""The batch reader without a session: what it does when the log changes between planning and reading."""

import pytest
from confluent_kafka import Producer
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from sparklog.client.admin import Admin, AdminClient, NewTopic
from sparklog.errors import ApiError, DataSourceError, ErrorCode
from sparklog.spark.options import ReadOptions
from sparklog.spark.reader import RangesPartition, SparklogReader
from sparklog.structs import TopicPartition
from sparklog.testing.eventually import eventually

pytestmark = pytest.mark.integration
_SCHEMA = StructType([StructField("offset", LongType()), StructField("value", BinaryType())])


@pytest.fixture
def reader(servers):
    def make(topic, **options):
        settings = {"kafka.bootstrap.servers": servers, "subscribe": topic, **options}
        return SparklogReader(ReadOptions.for_batch(settings), _SCHEMA)

    return make


def _created(metadata, topic):
    """Whether the topic could be created; for a moment after its deletion a broker may still refuse that."""
    try:
        AdminClient(metadata).create_topics([NewTopic(topic, 1, 1)])
    except ApiError as error:
        if error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
            return False
        raise
    return True


def _offsets(reader, partitions):
    return [offset for each in partitions for batch in reader.read(each) for offset in batch["offset"].to_pylist()]


def test_batches_are_a_few_megabytes(reader, make_topic, produce):
    topic = make_topic()
    produce(topic, *({"value": bytes(1000)} for _ in range(10_000)))
    (task,) = reader(topic).partitions()
    sizes = [batch.nbytes for batch in reader(topic).read(task)]
    assert sum(sizes) > 10_000_000
    assert all(1 << 20 <= size <= 4 << 20 for size in sizes[:-1])


def test_what_came_after_planning_is_not_read(reader, make_topic, produce):
    topic = make_topic()
    produce(topic, {"value": b"a"})
    tasks = reader(topic).partitions()
    produce(topic, {"value": b"b"})
    assert _offsets(reader(topic), tasks) == [0]


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_topic_created_again_is_not_the_one_that_was_planned(reader, metadata, make_topic, produce, fail):
    topic = make_topic()
    produce(topic, *({"value": b"old"} for _ in range(5)))
    tasks = reader(topic, failOnDataLoss=fail).partitions()
    AdminClient(metadata).delete_topics([topic])
    eventually(lambda: _created(metadata, topic), 30, "the topic can be created again")
    produce(topic, *({"value": b"new"} for _ in range(5)))
    if fail == "true":
        with pytest.raises(DataSourceError, match=r"SPARKLOG_DATA_LOSS_RECREATED.*offsets 0 to 5.*created again"):
            _offsets(reader(topic, failOnDataLoss=fail), tasks)
    else:
        assert _offsets(reader(topic, failOnDataLoss=fail), tasks) == []


@pytest.mark.parametrize("fail", ["true", "false"])
def test_records_deleted_after_planning(reader, metadata, make_topic, produce, fail):
    topic = make_topic()
    produce(topic, *({"value": b"x"} for _ in range(10)))
    tasks = reader(topic, failOnDataLoss=fail).partitions()
    with Admin(metadata.config) as admin:
        admin.delete_records({TopicPartition(topic, 0): 6})
    if fail == "true":
        lost = rf"SPARKLOG_DATA_LOSS_EXPIRED.*offsets 0 to 10 of partition {topic}-0 .* begins at 6.*failOnDataLoss"
        with pytest.raises(DataSourceError, match=lost):
            _offsets(reader(topic, failOnDataLoss=fail), tasks)
    else:
        assert _offsets(reader(topic, failOnDataLoss=fail), tasks) == [6, 7, 8, 9]


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_topic_deleted_after_planning(reader, metadata, make_topic, produce, fail):
    gone, there = make_topic(suffix="-gone"), make_topic(suffix="-there")
    produce(gone, {"value": b"x"})
    produce(there, *({"value": b"x"} for _ in range(3)))
    both, options = f"{gone},{there}", {"failOnDataLoss": fail, "kafka.default.api.timeout.ms": "500"}
    tasks = reader(both, **options).partitions()
    AdminClient(metadata).delete_topics([gone])
    if fail == "true":
        with pytest.raises(DataSourceError, match=rf"SPARKLOG_DATA_LOSS_DELETED.*offsets 0 to 1 of partition {gone}-0"):
            _offsets(reader(both, **options), tasks)
    else:
        assert _offsets(reader(both, **options), tasks) == [0, 1, 2]


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_log_that_is_cut_off_after_planning(reader, make_topic, produce, fail):
    topic = make_topic()
    produce(topic, *({"value": b"x"} for _ in range(10)))
    options = {"failOnDataLoss": fail, "kafka.default.api.timeout.ms": "500"}
    (task,) = reader(topic, **options).partitions()
    longer = RangesPartition((task.ranges[0]._replace(end=15),))
    if fail == "true":
        with pytest.raises(DataSourceError, match=r"SPARKLOG_DATA_LOSS_TRUNCATED.*10 to 15 of .* ends at 10"):
            _offsets(reader(topic, **options), [longer])
    else:
        assert _offsets(reader(topic, **options), [longer]) == list(range(10))


def test_offsets_that_hold_no_records_are_no_loss(reader, make_topic, servers):
    topic = make_topic()
    producer = Producer({"bootstrap.servers": servers, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(30)
    for _ in range(3):
        producer.begin_transaction()
        producer.produce(topic, b"x", partition=0)
        producer.commit_transaction(30)
    assert _offsets(reader(topic), reader(topic).partitions()) == [0, 2, 4]


def test_tasks_are_of_even_bytes_however_skewed_the_partitions(reader, make_topic, produce):
    topic = make_topic(partitions=3)
    produce(topic, *({"value": bytes(10_000), "partition": 0} for _ in range(100)))
    produce(topic, *({"value": b"x", "partition": number % 2 + 1} for number in range(100)))
    tasks = reader(topic, maxBytesPerPartition="300k").partitions()
    heavy = [part for task in tasks for part in task.ranges if part.tp.partition == 0]
    assert [part.size for part in heavy] == [25, 25, 25, 25]
    assert len(tasks) == 4, "the light ones share a task with a piece of the heavy one"
    assert len(_offsets(reader(topic), tasks)) == 200
    assert len(reader(topic, minPartitions="8").partitions()) >= 8
