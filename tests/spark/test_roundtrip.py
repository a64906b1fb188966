"""What goes in comes out: through the source, through the sink, and through both."""

import datetime
import json

import pytest
from chispa import assert_df_equality
from pyspark.sql import Row
from pyspark.sql import functions as f
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType

pytestmark = pytest.mark.spark

_RECORD = "key binary, value binary, headers array<struct<key:string,value:binary>>"


def _same(left, right):
    assert_df_equality(left, right, ignore_row_order=True, ignore_nullable=True)


def test_every_column_as_the_producer_sent_it(spark, read, make_topic, produce):
    topic = make_topic(partitions=2)
    when = 1_700_000_000_123
    produce(
        topic,
        {"key": b"k", "value": b"v", "timestamp": when, "partition": 1, "headers": [("h", b"1"), ("h", None)]},
        {"key": None, "value": b"", "timestamp": when + 1, "partition": 1},
        {"key": b"", "value": None, "timestamp": when - 1000, "partition": 1},
        {"key": b"\x00\xff", "value": b"z", "timestamp": 1, "partition": 0},
    )
    zone = datetime.UTC

    def at(ms):
        return datetime.datetime.fromtimestamp(0, zone) + datetime.timedelta(milliseconds=ms)

    frame = read(subscribe=topic, includeHeaders="true")
    expected = spark.createDataFrame(
        [
            (b"k", b"v", topic, 1, 0, at(when), 0, [Row(key="h", value=b"1"), Row(key="h", value=None)]),
            (None, b"", topic, 1, 1, at(when + 1), 0, None),
            (b"", None, topic, 1, 2, at(when - 1000), 0, None),
            (b"\x00\xff", b"z", topic, 0, 0, at(1), 0, None),
        ],
        frame.schema,
    )
    _same(frame, expected)


def test_append_time_has_its_own_timestamp_type(read, make_topic, produce):
    topic = make_topic(message_timestamp_type="LogAppendTime")
    produce(topic, {"value": b"x", "timestamp": 1})
    (row,) = read(subscribe=topic).collect()
    assert row.timestampType == 1
    assert row.timestamp.year > 2000


def test_what_is_written_is_read(spark, read, write, make_topic):
    topic = make_topic(partitions=3)
    rows = [
        (b"a", b"1", None),
        (b"a", b"", [Row(key="x", value=b"y"), Row(key="", value=None)]),
        (None, b"3", []),
        (b"", None, None),
        (None, None, None),
        (b"big", b"z" * 1_000_000, None),
        *((b"%d" % number, b"v%d" % number, None) for number in range(500)),
    ]
    frame = spark.createDataFrame(rows, _RECORD)
    write(frame, topic=topic)
    # A record on the wire has a list of headers, never null; one without any reads as null.
    expected = frame.withColumn("headers", f.when(f.size("headers") > 0, f.col("headers")))
    _same(read(subscribe=topic, includeHeaders="true").select("key", "value", "headers"), expected)


@pytest.mark.parametrize(
    "codec", [*(pytest.param(each, marks=pytest.mark.slow) for each in ("gzip", "snappy", "lz4")), "zstd"]
)
def test_compressed_both_ways(spark, read, write, make_topic, codec):
    topic = make_topic()
    frame = spark.range(2000).select(f.repeat(f.col("id").cast("string"), 20).cast("binary").alias("value"))
    write(frame, topic=topic, **{"kafka.compression.type": codec})
    _same(read(subscribe=topic).select("value"), frame)


def test_strings_are_written_as_utf8(spark, read, write, make_topic):
    topic = make_topic()
    write(spark.createDataFrame([("schlüssel", "wert €")], "key string, value string"), topic=topic)
    (row,) = read(subscribe=topic).collect()
    assert (row.key.decode(), row.value.decode()) == ("schlüssel", "wert €")


def test_keys_go_where_the_java_producer_sends_them(spark, read, write, make_topic, produce):
    ours, theirs = make_topic(partitions=7), make_topic(partitions=7, suffix="-theirs")
    keys = [b"", b"a", *(b"key-%d" % number for number in range(300)), bytes(range(256))]
    produce(theirs, *({"key": key, "value": b"x"} for key in keys))
    write(spark.createDataFrame([(key, b"x") for key in keys], "key binary, value binary"), topic=ours)
    columns = ["key", "partition"]
    # librdkafka treats an empty key as no key, Java and we do not.
    nonempty = f.length("key") > 0
    _same(
        read(subscribe=ours).select(columns).where(nonempty),
        read(subscribe=theirs).select(columns).where(nonempty),
    )


def test_keyless_rows_are_spread(spark, read, write, make_topic):
    topic = make_topic(partitions=4)
    write(spark.range(1000).select(f.lit("x").alias("value")), topic=topic)
    counts = {row.partition: row["count"] for row in read(subscribe=topic).groupBy("partition").count().collect()}
    assert sum(counts.values()) == 1000
    assert len(counts) == 4
    assert max(counts.values()) < 2 * min(counts.values())


def test_topic_and_partition_by_column(spark, read, write, make_topic):
    one, two = make_topic(partitions=3), make_topic(partitions=3, suffix="-two")
    schema = StructType(
        [
            StructField("value", BinaryType()),
            StructField("topic", StringType()),
            StructField("partition", IntegerType()),
        ]
    )
    rows = [(b"%d" % number, one if number % 2 else two, number % 3) for number in range(60)]
    write(spark.createDataFrame(rows, schema))
    _same(read(subscribe=f"{one},{two}").select("value", "topic", "partition"), spark.createDataFrame(rows, schema))


def test_a_row_without_partition_goes_by_its_key(spark, read, write, make_topic):
    topic = make_topic(partitions=2)
    frame = spark.createDataFrame([("k", "a", 1), ("k", "b", None)], "key string, value string, partition int")
    write(frame, topic=topic)
    places = {row.value: row.partition for row in read(subscribe=topic).collect()}
    assert places[b"a"] == 1
    assert len(places) == 2


def test_the_option_goes_before_the_column(spark, read, write, make_topic):
    topic = make_topic()
    write(spark.createDataFrame([("x", "elsewhere")], "value string, topic string"), topic=topic)
    assert read(subscribe=topic).count() == 1


def test_a_schema_is_a_projection(read, make_topic, produce):
    topic = make_topic()
    produce(topic, {"key": b"k", "value": b"v"}, {"key": b"l", "value": b"w"})
    frame = read("offset long, value binary", subscribe=topic)
    assert frame.columns == ["offset", "value"]
    assert [tuple(row) for row in frame.orderBy("offset").collect()] == [(0, b"v"), (1, b"w")]
    assert [tuple(row) for row in read("topic string, partition int", subscribe=topic).collect()] == [(topic, 0)] * 2


def test_selections(read, make_topic, produce, topic):
    one, two = make_topic(partitions=2), make_topic(suffix="-b")
    produce(one, {"value": b"0", "partition": 0}, {"value": b"1", "partition": 1})
    produce(two, {"value": b"2"})
    assert read(subscribe=f"{one}, {two}").count() == 3
    assert read(subscribePattern=f"{topic}(-b)?").count() == 3
    assert read(subscribePattern=f"{topic}-.").count() == 1
    assert [row.value for row in read(assign=json.dumps({one: [1]})).collect()] == [b"1"]
    assert read(subscribePattern="no-such-topic.*").count() == 0


def test_starting_and_ending(read, make_topic, produce):
    topic = make_topic(partitions=2)
    start = 1_700_000_000_000
    for partition in (0, 1):
        produce(
            topic,
            *({"value": b"%d" % n, "timestamp": start + n * 1000, "partition": partition} for n in range(10)),
        )

    def offsets(**options):
        found = {0: [], 1: []}
        for row in read(subscribe=topic, **options).orderBy("partition", "offset").collect():
            found[row.partition].append(row.offset)
        return found[0], found[1]

    def each(*values):
        return json.dumps({topic: {str(number): value for number, value in enumerate(values)}})

    whole = list(range(10))
    assert offsets() == (whole, whole)
    assert offsets(startingOffsets=each(8, -2), endingOffsets=each(-1, 3)) == ([8, 9], [0, 1, 2])
    assert offsets(startingTimestamp=str(start + 7500)) == ([8, 9], [8, 9])
    assert offsets(endingTimestamp=str(start + 1500)) == ([0, 1], [0, 1])
    assert offsets(endingTimestamp=str(start + 99_000)) == (whole, whole)
    by_time = each(start + 8000, start + 9000)
    assert offsets(startingOffsetsByTimestamp=by_time) == ([8, 9], [9])
    assert offsets(endingOffsetsByTimestamp=by_time, startingOffsets=each(6, 9)) == ([6, 7], [])
    late = str(start + 99_000)
    assert offsets(startingTimestamp=late, startingOffsetsByTimestampStrategy="latest") == ([], [])


def test_min_partitions_and_max_records(read, make_topic, produce):
    topic = make_topic()
    produce(topic, *({"value": b"%d" % n} for n in range(1000)))
    for options, tasks in (({"minPartitions": "4"}, 4), ({"maxRecordsPerPartition": "300"}, 4), ({}, 1)):
        frame = read(subscribe=topic, **options)
        assert frame.rdd.getNumPartitions() == tasks
        assert frame.select("offset").distinct().count() == 1000


def test_a_self_join_and_a_union_see_the_whole_topic(read, make_topic, produce):
    topic = make_topic(partitions=4)
    produce(topic, *({"value": b"%d" % n, "partition": n % 4} for n in range(40)))
    frame = read(subscribe=topic)
    assert frame.where("partition = 1").count() == 10
    assert frame.count() == 40
    assert frame.where("partition = 0").union(frame.where("partition = 3")).count() == 20
    assert frame.alias("a").join(frame.alias("b"), "value").count() == 40
