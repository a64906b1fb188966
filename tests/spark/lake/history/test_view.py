"""A topic with its history in Spark: SQL over both sides, and a stream that begins in the table."""

from collections import Counter

import pytest
from pyspark.errors import AnalysisException

from sparklog.client import Admin, NewTopic, Producer
from sparklog.errors import ConfigError, DataSourceError
from sparklog.spark import table
from sparklog.spark.batch.offload import OffloadOptions, run
from sparklog.spark.lake.delta.raw_table import RawTable
from sparklog.structs import TopicPartition

pytestmark = [pytest.mark.spark, pytest.mark.integration, pytest.mark.timeout(600)]


@pytest.fixture(autouse=True)
def _few_rows(interpreted, delta_jars):
    """The queries here are of a few rows, and need Delta."""


def send(servers, topic, start, count):
    with Producer(bootstrap_servers=servers) as producer:
        for offset in range(start, start + count):
            headers = [("h", b"%d" % offset)] if offset % 2 else []
            producer.send(topic, b"%d" % offset, key=b"k", partition=0, timestamp=offset * 3_600_000, headers=headers)


def test_sql_and_streams_read_both_as_one(spark, cluster, topic, tmp_path):
    servers, path = cluster.bootstrap_servers, str(tmp_path / "table")
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic(topic, 1, 1, {"retention.ms": "-1"})])
        for start in (0, 30):
            send(servers, topic, start, 30)
            run(spark, OffloadOptions(servers, (topic,), RawTable(path, ("day",))))
        log = table_of_log(spark, servers, topic)
        admin.delete_records({TopicPartition(topic, 0): 50})
        send(servers, topic, 60, 20)
    spark.sql(f"OPTIMIZE delta.`{path}`")
    source = {"bootstrap_servers": servers, "history": path}
    frame = table(topic, **source, view="both", includeHeaders="true")
    assert [row.asDict() for row in frame.where("offset < 60").orderBy("offset").collect()] == log
    (counted,) = spark.sql("SELECT count(*), min(offset), max(offset), count(DISTINCT offset) FROM both").collect()
    assert tuple(counted) == (80, 0, 79, 80)

    options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "history": path, "startingOffsets": "earliest"}
    stream = spark.readStream.format("sparklog").options(**options, maxOffsetsPerTrigger="30").load()
    writing = stream.writeStream.format("delta").option("checkpointLocation", str(tmp_path / "checkpoint"))
    writing.trigger(availableNow=True).start(str(tmp_path / "copy")).awaitTermination()
    copied = spark.read.format("delta").load(str(tmp_path / "copy"))
    assert Counter(row.offset for row in copied.select("offset").collect()) == Counter(range(80))

    with pytest.raises(AnalysisException, match="SPARKLOG_UNSUPPORTED_OPTION"):
        table(topic, **source, **{"kafka.isolation.level": "read_uncommitted"}).count()
    with pytest.raises(DataSourceError, match="there is no table lake"):
        table(topic, bootstrap_servers=servers, history="lake")


@pytest.fixture
def settings(spark):
    """Sets settings of the session, for a test."""
    made = []

    def given(**options):
        for name, value in options.items():
            made.append(f"spark.sparklog.{name}")
            spark.conf.set(made[-1], value)

    yield given
    for name in made:
        spark.conf.unset(name)


def test_the_session_may_say_where_brokers_and_tables_are(spark, cluster, topic, tmp_path, settings):
    servers, path = cluster.bootstrap_servers, str(tmp_path / topic)
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic(topic, 1, 1, {"retention.ms": "-1"})])
        send(servers, topic, 0, 5)
        run(spark, OffloadOptions(servers, (topic,), RawTable(path, ())))
        admin.delete_records({TopicPartition(topic, 0): 5})
        send(servers, topic, 5, 2)
    with pytest.raises(
        ConfigError, match=r"say bootstrap_servers=, .* setting spark\.sparklog\.kafka\.bootstrap\.servers"
    ):
        table(topic, history=path)
    with pytest.raises(ConfigError, match=r"say history=, .* setting spark\.sparklog\.history"):
        table(topic, bootstrap_servers=servers)
    settings(**{"kafka.bootstrap.servers": servers, "history": f"{tmp_path}/{{topic}}", "includeHeaders": "true"})
    frame = table(topic)
    assert [row.offset for row in frame.orderBy("offset").collect()] == list(range(7))
    assert "headers" in frame.columns
    assert "headers" not in table(topic, includeheaders="false").columns
    spark.sql(f"CREATE TABLE clicks_of_view USING delta LOCATION '{path}'")
    try:
        assert table(topic, history="clicks_of_view").count() == 7
        settings(history="default.clicks_of_view")
        assert table(topic).count() == 7
    finally:
        spark.sql("DROP TABLE clicks_of_view")


def table_of_log(spark, servers, topic):
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "includeHeaders": "true"}
    frame = spark.read.format("sparklog").options(**options).load()
    return [row.asDict() for row in frame.orderBy("offset").collect()]
