"""The batch reader without a session: what it does when the log changes between planning and reading."""

import pytest
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from sparklog.client.admin import AdminClient, NewTopic
from sparklog.errors import ApiError, DataSourceError, ErrorCode
from sparklog.spark import columns
from sparklog.spark.options import ReadOptions
from sparklog.spark.reader import SparklogReader
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
        with pytest.raises(DataSourceError, match=r"SPARKLOG_DATA_LOSS.*created again"):
            _offsets(reader(topic, failOnDataLoss=fail), tasks)
    else:
        assert _offsets(reader(topic, failOnDataLoss=fail), tasks) == []


@pytest.mark.parametrize("fail", ["true", "false"])
def test_records_deleted_after_planning(reader, make_topic, produce, monkeypatch, fail):
    topic = make_topic()
    produce(topic, *({"value": b"x"} for _ in range(10)))
    tasks = reader(topic, failOnDataLoss=fail).partitions()
    fetched = {"failOnDataLoss": fail, "directRead": "never"}
    fetch_range = columns.fetch_range

    def as_if_deleted(cluster, tp, start, end, **kwargs):
        if start < 6:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {start} is gone")
        return fetch_range(cluster, tp, start, end, **kwargs)

    monkeypatch.setattr(columns, "fetch_range", as_if_deleted)
    monkeypatch.setattr(columns, "earliest_offsets", lambda cluster, partitions: dict.fromkeys(partitions, 6))
    if fail == "true":
        with pytest.raises(DataSourceError, match=r"SPARKLOG_DATA_LOSS.*offset 0 is gone.*failOnDataLoss"):
            _offsets(reader(topic, **fetched), tasks)
    else:
        assert _offsets(reader(topic, **fetched), tasks) == [6, 7, 8, 9]
