"""Streaming queries, from the source to the sink."""

import json

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.types import StringType
from spark.waits import wait_for

from sparklog.client.admin.admin import Admin, NewTopic
from sparklog.client.cluster.offsets import latest_offsets
from sparklog.client.producer.producer import Producer
from sparklog.structs import TopicPartition
from sparklog.testing.cluster import ClusterHarness

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted")]


@pytest.fixture
def stream(spark, servers, tmp_path):
    """``stream(out, subscribe=..., ...)``: a query that copies to the topic ``out``, under one checkpoint a test."""
    queries = []

    def start(out, trigger=None, **options):
        settings = {"kafka.bootstrap.servers": servers, "startingOffsets": "earliest", **options}
        frame = spark.readStream.format("sparklog").options(**settings).load()
        values = frame.select("key", "value")
        writer = values.writeStream.format("sparklog").option("kafka.bootstrap.servers", servers)
        writer = writer.option("topic", out).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(**(trigger or {"availableNow": True})).start()
        queries.append(query)
        return query

    yield start
    for query in queries:
        query.stop()


@pytest.fixture
def values(read):
    """The values of a topic, sorted."""

    def found(topic):
        return sorted(int(row.value) for row in read("value binary", subscribe=topic).collect())

    return found


def _numbers(*numbers, **rest):
    return [{"value": b"%d" % number, **rest} for number in numbers]


def _sizes(query):
    return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]


def test_available_now_and_a_restart_from_the_checkpoint(stream, make_topic, produce, values):
    source, out = make_topic(partitions=3), make_topic(suffix="-out")
    produce(source, *_numbers(*range(50)))
    stream(out, subscribe=source).awaitTermination()
    assert values(out) == list(range(50))
    produce(source, *_numbers(*range(50, 60)))
    stream(out, subscribe=source).awaitTermination()
    assert values(out) == list(range(60))
    stream(out, subscribe=source).awaitTermination()
    assert values(out) == list(range(60))


def test_a_limit_a_trigger(stream, make_topic, produce, values):
    source, out = make_topic(partitions=2), make_topic(suffix="-out")
    produce(source, *_numbers(*range(50)))
    query = stream(out, subscribe=source, maxOffsetsPerTrigger="20")
    query.awaitTermination()
    assert values(out) == list(range(50))
    assert len(_sizes(query)) >= 3
    assert max(_sizes(query)) <= 20


def test_topics_that_appear_later_are_read_from_their_beginning(stream, make_topic, produce, values, topic):
    first, out = make_topic(suffix="-in1"), make_topic(suffix="-out")
    produce(first, *_numbers(*range(5)))
    stream(out, subscribePattern=f"{topic}-in.*").awaitTermination()
    second = make_topic(partitions=2, suffix="-in2")
    produce(second, *_numbers(*range(5, 20)))
    stream(out, subscribePattern=f"{topic}-in.*", startingOffsets="latest").awaitTermination()
    assert values(out) == list(range(20))


def test_latest_means_from_now_on(stream, metadata, make_topic, produce, values):
    source, out = make_topic(), make_topic(suffix="-out")
    produce(source, *_numbers(1, 2, 3))
    query = stream(out, trigger={"processingTime": "0 seconds"}, subscribe=source, startingOffsets="latest")
    wait_for(query, lambda: query.lastProgress, "the first trigger")
    produce(source, *_numbers(4, 5))
    end = TopicPartition(out, 0)
    wait_for(query, lambda: latest_offsets(metadata, [end])[end] == 2, "two records in the sink")
    assert values(out) == [4, 5]
    produce(source, *_numbers(6))
    wait_for(query, lambda: latest_offsets(metadata, [end])[end] == 3, "three records in the sink")


def test_progress_shows_where_the_source_is(stream, make_topic, produce):
    source, out = make_topic(), make_topic(suffix="-out")
    produce(source, *_numbers(*range(7)))
    query = stream(out, subscribe=source)
    query.awaitTermination()
    (shown,) = query.lastProgress["sources"]
    end = json.loads(shown["endOffset"])
    assert end.pop(source) == {"0": 7}
    said = "the topic's id, the leader epoch and where the first batch begins, as topics without partitions"
    assert list(end.values()) == [{}, {}, {}], said
    assert f"{source}@from:0=0" in end
    assert json.loads(shown["latestOffset"]) == {source: {"0": 7}}


def test_an_aggregation_is_written_in_complete_mode(spark, servers, read, make_topic, produce, tmp_path):
    source, out = make_topic(), make_topic(suffix="-out")
    produce(source, *_numbers(*range(6), key=b"k"))
    frame = spark.readStream.format("sparklog").option("kafka.bootstrap.servers", servers)
    counts = frame.options(subscribe=source, startingOffsets="earliest").load().groupBy("key").count()
    rows = counts.select("key", counts["count"].cast(StringType()).alias("value"))
    writer = rows.writeStream.format("sparklog").option("kafka.bootstrap.servers", servers).outputMode("complete")
    query = writer.options(topic=out, checkpointLocation=str(tmp_path)).trigger(availableNow=True).start()
    query.awaitTermination()
    assert [row.value for row in read(subscribe=out).collect()] == [b"6"]


def test_impossible_options_stop_the_query_with_their_code(stream, make_topic):
    topic = make_topic()
    with pytest.raises(Exception, match=r"SPARKLOG_UNSUPPORTED_OPTION.*endingOffsets"):
        stream(topic, subscribe=topic, endingOffsets="latest").awaitTermination()


def test_a_topic_that_is_not_there_stops_the_query_with_its_code(stream, make_topic, topic):
    with pytest.raises(StreamingQueryException, match=f"SPARKLOG_UNKNOWN_TOPIC.*{topic}-missing"):
        stream(make_topic(), subscribe=f"{topic}-missing").awaitTermination()


def test_a_task_that_fails_stops_the_query_with_its_code(stream, make_topic, produce):
    source, out = make_topic(), make_topic(suffix="-out", max_message_bytes=100)
    produce(source, {"value": bytes(1000)})
    with pytest.raises(StreamingQueryException, match=f"SPARKLOG_RECORD_TOO_LARGE.*{out}-0"):
        stream(out, subscribe=source).awaitTermination()


def test_two_queries_never_share_a_checkpoint(stream, make_topic, produce, values):
    source, out = make_topic(), make_topic(suffix="-out")
    produce(source, *_numbers(1))
    first = stream(out, trigger={"processingTime": "0 seconds"}, subscribe=source)
    wait_for(first, lambda: first.lastProgress, "the first trigger")
    second = stream(out, trigger={"processingTime": "0 seconds"}, subscribe=source)
    produce(source, *_numbers(2))
    second.processAllAvailable()
    assert not first.isActive, "Spark stops the one that it finds running"
    assert values(out) == [1, 2]


@pytest.mark.slow  # tests/demo/test_delays.py has a job that does so
def test_foreach_batch_to_delta_and_a_restart(spark, servers, delta_jars, make_topic, produce, tmp_path):
    source, table = make_topic(partitions=2), (tmp_path / "table").as_uri()

    def append(rows, batch_id):
        writer = rows.write.format("delta").mode("append").option("txnAppId", "test").option("txnVersion", batch_id)
        writer.save(table)

    def run():
        frame = spark.readStream.format("sparklog").option("kafka.bootstrap.servers", servers)
        frame = frame.options(subscribe=source, startingOffsets="earliest", maxBytesPerTrigger="1k").load()
        query = frame.writeStream.foreachBatch(append).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination()
        return sorted(int(row.value) for row in spark.read.format("delta").load(table).select("value").collect())

    produce(source, *_numbers(*range(40)))
    assert run() == list(range(40))
    produce(source, *_numbers(*range(40, 50)))
    assert run() == list(range(50))


@pytest.mark.slow
def test_a_query_goes_on_when_the_broker_restarts(spark, tmp_path, topic):
    with ClusterHarness(tmp_path / "cluster") as harness, Admin(bootstrap_servers=harness.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(topic, 2, 1)])
        settings = {"kafka.bootstrap.servers": harness.bootstrap_servers, "subscribe": topic}
        frame = spark.readStream.format("sparklog").options(**settings, startingOffsets="earliest").load()
        writer = frame.selectExpr("CAST(value AS STRING) AS value").writeStream.format("memory").queryName("restarted")
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()

        try:
            for number in range(3):
                with Producer(bootstrap_servers=harness.bootstrap_servers) as producer:
                    producer.send(topic, b"%d" % number)
                wait_for(query, lambda count=number + 1: spark.table("restarted").count() == count, "it is read")
                harness.stop_broker(0)
                harness.start_broker(0)
            assert query.isActive, query.exception()
        finally:
            query.stop()


def test_a_first_batch_that_failed_reads_the_same_whatever_the_options_say_by_then(
    spark, servers, make_topic, produce, tmp_path
):
    source, found = make_topic(), []

    def run(copy, starting):
        settings = {"kafka.bootstrap.servers": servers, "subscribe": source, "startingOffsets": starting}
        frame = spark.readStream.format("sparklog").options(**settings).load()
        writer = frame.writeStream.foreachBatch(copy).option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()

    def refused(batch, number):
        raise ValueError("not now")

    produce(source, *_numbers(*range(5)))
    with pytest.raises(StreamingQueryException, match="not now"):
        run(refused, "earliest")
    produce(source, *_numbers(*range(5, 9)))
    run(lambda batch, number: found.append((number, sorted(row.offset for row in batch.collect()))), "latest")
    assert found == [(0, [0, 1, 2, 3, 4]), (1, [5, 6, 7, 8])]
