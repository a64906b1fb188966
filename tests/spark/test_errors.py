"""Errors as a Spark user meets them: a stable code, and the option, topic or broker that it is about."""

import json

import pytest
from pyspark.errors import PySparkException

from sparklog.local.ports import free_port

pytestmark = pytest.mark.spark


def _refused(action):
    with pytest.raises(PySparkException) as caught:
        action()
    return str(caught.value)


def test_an_unknown_topic(read, topic):
    message = _refused(read(subscribe=topic).count)
    assert "[SPARKLOG_UNKNOWN_TOPIC]" in message
    assert topic in message


def test_an_unknown_partition(read, make_topic):
    topic = make_topic()
    message = _refused(read(assign=json.dumps({topic: [0, 5]})).count)
    assert "[SPARKLOG_UNKNOWN_TOPIC]" in message
    assert f"{topic}-5" in message


def test_a_name_that_no_topic_can_have(spark, write):
    message = _refused(lambda: write(spark.createDataFrame([("x",)], "value string"), topic="no topic"))
    assert "[SPARKLOG_INVALID_TOPIC]" in message
    assert "no topic" in message


def test_a_write_without_its_save_mode(spark, write, topic):
    """The first is Spark's own words, which name overwriting as well; ours are what one reads then."""
    rows = spark.createDataFrame([("x",)], "value string")
    assert '"Append"' in _refused(lambda: write(rows, mode="errorifexists", topic=topic))
    message = _refused(lambda: write(rows, mode="overwrite", topic=topic))
    assert "[SPARKLOG_UNSUPPORTED_SAVE_MODE]" in message
    assert "mode('append')" in message


def test_a_broker_that_is_not_there(spark):
    address = f"127.0.0.1:{free_port()}"
    reader = spark.read.format("sparklog").option("kafka.bootstrap.servers", address).option("subscribe", "t")
    message = _refused(reader.option("kafka.default.api.timeout.ms", "200").load().count)
    assert "[SPARKLOG_BROKER_UNREACHABLE]" in message
    assert address in message


def test_no_task_of_a_write_begins_where_no_broker_is(spark, tmp_path):
    address, begun = f"127.0.0.1:{free_port()}", tmp_path / "begun"

    def begin(batches):
        begun.touch()
        yield from batches

    rows = spark.createDataFrame([("x",)], "value string").mapInArrow(begin, "value string")
    writer = rows.write.format("sparklog").mode("append").option("kafka.bootstrap.servers", address)
    message = _refused(writer.option("kafka.default.api.timeout.ms", "200").option("topic", "t").save)
    assert "[SPARKLOG_BROKER_UNREACHABLE]" in message
    assert address in message
    assert not begun.exists()


def test_offsets_for_some_of_the_partitions_only(read, make_topic):
    topic = make_topic(partitions=2)
    message = _refused(read(subscribe=topic, startingOffsets=json.dumps({topic: {"0": 0}})).count)
    assert "[SPARKLOG_INVALID_OPTION]" in message
    assert f"missing: {topic}-1" in message


def test_a_timestamp_that_no_record_reaches(read, make_topic, produce):
    topic = make_topic()
    produce(topic, {"value": b"x", "timestamp": 1000})
    message = _refused(read(subscribe=topic, startingTimestamp="2000").count)
    assert "[SPARKLOG_NO_OFFSET_FOR_TIMESTAMP]" in message
    assert "startingOffsetsByTimestampStrategy" in message


def test_offsets_that_are_not_there(read, make_topic, produce):
    topic = make_topic()
    produce(topic, *({"value": b"x"} for _ in range(10)))

    def between(start, end, **options):
        offsets = {"startingOffsets": {topic: {"0": start}}, "endingOffsets": {topic: {"0": end}}}
        return read(subscribe=topic, **{name: json.dumps(value) for name, value in offsets.items()}, **options)

    message = _refused(between(5, 50).count)
    assert "[SPARKLOG_DATA_LOSS_TRUNCATED]" in message
    assert f"{topic}-0 holds the offsets 0 to 10, but was to be read from 5 to 50" in message
    assert "failOnDataLoss" in message
    assert between(5, 50, failOnDataLoss="false").count() == 5
    assert between(40, 50, failOnDataLoss="false").count() == 0


@pytest.mark.parametrize("mode", ["overwrite", "error", "ignore"])
def test_a_topic_can_only_be_appended_to(spark, write, make_topic, mode):
    topic = make_topic()
    frame = spark.createDataFrame([("x",)], "value string")
    assert "append" in _refused(lambda: write(frame, mode=mode, topic=topic)).lower()


def test_a_write_without_a_topic(spark, write):
    frame = spark.createDataFrame([("x",)], "value string")
    assert "[SPARKLOG_MISSING_TOPIC]" in _refused(lambda: write(frame))


def test_a_row_without_a_topic(spark, write, make_topic):
    frame = spark.createDataFrame([("x", make_topic()), ("y", None)], "value string, topic string")
    assert "[SPARKLOG_MISSING_TOPIC]" in _refused(lambda: write(frame))


def test_a_partition_that_is_not_there(spark, write, make_topic):
    topic = make_topic(partitions=2)
    message = _refused(lambda: write(spark.createDataFrame([("x", 2)], "value string, partition int"), topic=topic))
    assert "[SPARKLOG_INVALID_PARTITION]" in message
    assert f"partition 2 of topic '{topic}'" in message


def test_a_record_that_is_too_large(spark, write, make_topic):
    topic = make_topic(max_message_bytes=1000)
    frame = spark.createDataFrame([("x" * 2000,)], "value string")
    message = _refused(lambda: write(frame, topic=topic))
    assert "[SPARKLOG_RECORD_TOO_LARGE]" in message
    assert f"{topic}-0" in message


def test_a_column_that_cannot_be_written(spark, write):
    message = _refused(lambda: write(spark.range(1).withColumnRenamed("id", "value"), topic="t"))
    assert "[SPARKLOG_UNSUPPORTED_SCHEMA]" in message
    assert "bigint" in message
