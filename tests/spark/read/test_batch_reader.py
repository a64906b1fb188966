"""The batch reader without a session: what it does when the log changes between planning and reading."""

import json
import uuid

import pytest
from confluent_kafka import Producer
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from sparklog.client.admin.admin import Admin, AdminClient, NewTopic
from sparklog.errors import ApiError, DataSourceError, ErrorCode
from sparklog.record.columnar import ColumnarDecoder
from sparklog.spark.read import columns
from sparklog.spark.read.batch_reader import RangesPartition, SparklogReader
from sparklog.spark.read.options import ReadOptions
from sparklog.spark.schema import source_schema
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


@pytest.fixture
def reader_by(request, servers):
    """``reader_by(way, topic, schema)``: a reader that goes this way; of Kafka, which leases nothing, ``auto``."""

    def make(way, topic, schema):
        served = request.node.callspec.params["servers"] == "sparklog"
        options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "directRead": way if served else "auto"}
        return SparklogReader(ReadOptions.for_batch(options), schema)

    return make


def _created(metadata, topic):
    """Whether the topic could be created; for a moment after its deletion a broker may still refuse that."""
    try:
        AdminClient(metadata).create_topics([NewTopic(topic, 1, 1, {"retention.ms": "-1"})])
    except ApiError as error:
        if error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
            return False
        raise
    return True


def _offsets(reader, partitions):
    return [offset for each in partitions for batch in reader.read(each) for offset in batch["offset"].to_pylist()]


_SHAPES = {
    "100 B": (100, 60_000, "none"),
    "100 KB": (100_000, 90, "none"),
    "100 B, compressed": (100, 60_000, "zstd"),
    "100 KB, compressed": (100_000, 90, "gzip"),
    "100 B, compressed, in large batches": (100, 200_000, "lz4"),
}


@pytest.fixture(scope="module")
def shapes(request, servers):
    """Topics of about 8 MB and more, by the name of their shape; made when asked for."""
    made = {}

    def topic(name):
        if name not in made:
            size, count, codec = _SHAPES[name]
            made[name] = f"shape-{list(_SHAPES).index(name)}-{uuid.uuid4().hex}"
            settings = {"linger.ms": 500, "batch.size": 16 << 20, "batch.num.messages": 200_000}
            producer = Producer(
                {
                    "bootstrap.servers": servers,
                    "compression.type": codec,
                    "message.max.bytes": 20 << 20,
                    "queue.buffering.max.messages": 1_000_000,
                    "queue.buffering.max.kbytes": 1 << 20,
                    "log_level": 0,
                    **(settings if "large" in name else {}),
                }
            )
            for _ in range(count):
                producer.produce(made[name], bytes(size), partition=0)
            assert producer.flush(60) == 0
        return made[name]

    return topic


@pytest.mark.parametrize("shape", _SHAPES)
@pytest.mark.parametrize("way", ["always", "never"])
def test_batches_are_a_few_megabytes(reader_by, shapes, shape, way):
    reader = reader_by(way, shapes(shape), source_schema(include_headers=True))
    (task,) = reader.partitions()
    batches = list(reader.read(task))
    size, count, _ = _SHAPES[shape]
    assert sum(batch.num_rows for batch in batches) == count
    assert sum(batch.nbytes for batch in batches) > size * count
    assert len(batches) > 2
    assert all(1 << 20 <= batch.nbytes <= 4 << 20 for batch in batches[:-1])
    assert batches[-1].nbytes <= 4 << 20


@pytest.mark.parametrize("shape", _SHAPES)
@pytest.mark.parametrize("way", ["always", "never"])
def test_only_the_columns_of_the_schema_are_decoded(reader_by, shapes, shape, way, monkeypatch):
    decoded, sizes = set(), []

    class Watched(ColumnarDecoder):
        def __init__(self, names, **options):
            decoded.add(tuple(names))
            super().__init__(names, **options)

        def finish(self):
            sizes.append((self.rows, self.nbytes))
            return super().finish()

    monkeypatch.setattr(columns, "ColumnarDecoder", Watched)
    schema = StructType([field for field in source_schema(False) if field.name in ("offset", "partition")])
    reader = reader_by(way, shapes(shape), schema)
    (task,) = reader.partitions()
    batches = list(reader.read(task))
    count = _SHAPES[shape][1]
    assert decoded == {("offset",)}
    assert sum(rows for rows, _ in sizes) == count
    assert sum(nbytes for _, nbytes in sizes) == 8 * count, "nothing of the values was copied"
    assert all(batch.schema.names == ["partition", "offset"] for batch in batches)


def test_constant_columns_count_in_a_batch_too(servers, shapes):
    """Rows of 12 bytes without the topic's name are rows of 60 with it."""
    options = {"kafka.bootstrap.servers": servers, "subscribe": shapes("100 B, compressed, in large batches")}
    schema = StructType([field for field in source_schema(False) if field.name in ("offset", "topic")])
    reader = SparklogReader(ReadOptions.for_batch(options), schema)
    (task,) = reader.partitions()
    sizes = [batch.nbytes for batch in reader.read(task)]
    assert len(sizes) > 1
    assert all(1 << 20 <= size <= 4 << 20 for size in sizes[:-1])


def test_a_row_that_is_larger_is_a_batch_of_its_own(servers, make_topic):
    topic = make_topic(max_message_bytes=20 << 20)
    producer = Producer({"bootstrap.servers": servers, "message.max.bytes": 20 << 20, "log_level": 0})
    for size in (10, 6 << 20, 10, 6 << 20):
        producer.produce(topic, bytes(size), partition=0)
    assert producer.flush(60) == 0
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic}
    reader = SparklogReader(ReadOptions.for_batch(options), _SCHEMA)
    (task,) = reader.partitions()
    batches = list(reader.read(task))
    assert [offset for batch in batches for offset in batch["offset"].to_pylist()] == [0, 1, 2, 3]
    assert max(batch.nbytes for batch in batches) < 7 << 20


def test_what_came_after_planning_is_not_read(reader, make_topic, produce):
    topic = make_topic()
    produce(topic, {"value": b"a"})
    tasks = reader(topic).partitions()
    produce(topic, {"value": b"b"})
    assert _offsets(reader(topic), tasks) == [0]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"endingTimestamp": "-1"}, [0, 1, 2]),
        ({"endingTimestamp": "-2"}, []),
        ({"startingTimestamp": "-2"}, [0, 1, 2]),
        ({"startingTimestamp": "-1"}, []),
        ({"endingOffsetsByTimestamp": '{"$t": {"0": -1}}'}, [0, 1, 2]),
        ({"startingOffsetsByTimestamp": '{"$t": {"0": -2}}'}, [0, 1, 2]),
    ],
)
def test_minus_two_and_minus_one_are_the_ends_as_times_too(reader, make_topic, produce, options, expected):
    topic = make_topic()
    produce(topic, *({"value": b"x"} for _ in range(3)))
    asked = reader(topic, **{name: text.replace("$t", topic) for name, text in options.items()})
    assert _offsets(asked, asked.partitions()) == expected


@pytest.mark.parametrize(
    ("loss", "limit"),
    [
        ("TRUNCATED.*holds the offsets 3 to 5, but was to be read from 9 to 5", {"startingOffsets": 9}),
        ("EXPIRED.*holds the offsets 3 to 5, but was to be read from 3 to 1", {"endingOffsets": 1}),
    ],
)
def test_a_read_that_would_end_before_it_begins_tells_of_loss(
    reader, metadata, make_topic, produce, caplog, loss, limit
):
    topic = make_topic()
    produce(topic, *({"value": b"x"} for _ in range(5)))
    with Admin(metadata.config) as admin:
        admin.delete_records({TopicPartition(topic, 0): 3})
    options = {name: json.dumps({topic: {"0": offset}}) for name, offset in limit.items()}
    with pytest.raises(DataSourceError, match=f"SPARKLOG_DATA_LOSS_{loss}"):
        reader(topic, **options).partitions()
    lenient = reader(topic, **options, failOnDataLoss="false")
    assert _offsets(lenient, lenient.partitions()) == []
    assert "SPARKLOG_DATA_LOSS" in caplog.text


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_topic_created_again_is_not_the_one_that_was_planned(reader, metadata, make_topic, produce, fail):
    topic = make_topic()
    produce(topic, *({"value": b"old"} for _ in range(5)))
    tasks = reader(topic, failOnDataLoss=fail).partitions()
    AdminClient(metadata).delete_topics([topic])
    eventually(lambda: _created(metadata, topic), 60, "the topic can be created again")
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


@pytest.mark.parametrize("fail", ["true", "false"])
def test_what_is_not_committed_yet_is_not_lost(reader, make_topic, servers, fail):
    topic = make_topic()
    producer = Producer({"bootstrap.servers": servers, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"x", partition=0)
    producer.flush(30)
    tasks = reader(topic).partitions()
    options = {"kafka.isolation.level": "read_committed", "kafka.default.api.timeout.ms": "500", "failOnDataLoss": fail}
    with pytest.raises(DataSourceError, match=r"SPARKLOG_BROKER_ERROR.*a transaction is open there"):
        _offsets(reader(topic, **options), tasks)
    producer.abort_transaction(30)


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_batch_may_name_offsets_that_are_not_committed_yet(reader, make_topic, produce, servers, fail):
    topic = make_topic()
    producer = Producer({"bootstrap.servers": servers, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"a", partition=0)
    producer.flush(30)
    produce(topic, {"value": b"b"}, {"value": b"c"})
    options = {"kafka.isolation.level": "read_committed", "failOnDataLoss": fail}
    start, end = json.dumps({topic: {"0": 2}}), json.dumps({topic: {"0": 3}})
    open_now = reader(topic, startingOffsets=start, **options)
    assert _offsets(open_now, open_now.partitions()) == [], "up to what is committed"
    to_the_end = reader(topic, startingOffsets=start, endingOffsets=end, **options)
    tasks = to_the_end.partitions()
    producer.commit_transaction(30)
    assert _offsets(to_the_end, tasks) == [2]


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
