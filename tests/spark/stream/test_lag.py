"""Lag from what Spark tells of a query's progress; one real query at the end."""

import json
from types import SimpleNamespace

import pytest
from spark.waits import wait_for

from sparklog.spark import LagListener, watch
from sparklog.spark.stream.lag import PartitionLag, QueryLag
from sparklog.structs import TopicPartition
from sparklog.testing.eventually import eventually

_A, _B = TopicPartition("t", 0), TopicPartition("t", 1)


def _event(second, reached, latest, batch=0):
    offsets = [
        None if each is None else json.dumps({"t": each, "t@0b7e0000-0000-4000-8000-000000000000": {}} if each else {})
        for each in (reached, latest)
    ]
    source = SimpleNamespace(endOffset=offsets[0], latestOffset=offsets[1])
    progress = SimpleNamespace(
        id="q", name="mine", batchId=batch, timestamp=f"2024-01-01T00:00:{second:02}.000Z", sources=[source]
    )
    return SimpleNamespace(progress=progress)


@pytest.fixture
def listener():
    return LagListener()


def test_records_behind_and_sparks_three_figures(listener):
    listener.onQueryProgress(_event(0, {"0": 4, "1": 10}, {"0": 10, "1": 10}))
    lag = listener.lag("q")
    assert (lag.query_id, lag.name, lag.batch_id) == ("q", "mine", 0)
    assert lag.partitions == {_A: PartitionLag(6, None, 0), _B: PartitionLag(0, None, 0)}
    assert (lag.minOffsetsBehindLatest, lag.maxOffsetsBehindLatest, lag.avgOffsetsBehindLatest) == (0, 6, 3)


def test_seconds_count_from_when_the_log_first_held_what_is_not_read(listener):
    for second, reached, latest in ((0, 0, 10), (5, 4, 20), (9, 10, 20), (11, 15, 30), (20, 20, 30), (21, 30, 30)):
        listener.onQueryProgress(_event(second, {"0": reached}, {"0": latest}))
        seconds = listener.lag("q").partitions[_A].seconds
        assert seconds == {0: 0, 5: 5, 9: 4, 11: 6, 20: 9, 21: 0}[second]


def test_records_of_a_topic_that_was_made_again_wait_from_when_they_came(listener):
    for second, reached, latest in ((0, 100, 200), (30, 0, 10), (40, 5, 10)):
        listener.onQueryProgress(_event(second, {"0": reached}, {"0": latest}))
        assert listener.lag("q").partitions[_A].seconds == {0: 0, 30: 0, 40: 10}[second]


def test_a_partition_of_which_nothing_is_read_yet(listener):
    listener.onQueryProgress(_event(0, {"0": 4}, {"0": 4, "1": 7}))
    assert listener.lag("q").partitions[_B].records == 7


def test_bytes_where_sizes_are_known(monkeypatch):
    listener = LagListener({"kafka.bootstrap.servers": "a:1"})
    monkeypatch.setattr(listener._sizes, "bytes_per_offset", lambda tps: dict.fromkeys(tps, 100.0))
    listener.onQueryProgress(_event(0, {"0": 4}, {"0": 10}))
    assert listener.lag("q").partitions[_A].bytes == 600


@pytest.mark.parametrize("told", [None, {}])
def test_a_source_that_tells_no_end_is_left_out(listener, told):
    listener.onQueryProgress(_event(0, {"0": 4}, told))
    assert listener.lag("q") is None


def test_a_source_of_another_kind_is_left_out(listener):
    event = _event(0, None, None)
    event.progress.sources[0].latestOffset = '{"logOffset": 3}'
    listener.onQueryProgress(event)
    assert listener.lag("q") is None


def test_of_two_sources_of_one_topic_the_slower_counts(listener):
    for second, one, other, records, seconds in (
        (0, 4, 10, 6, 0),
        (5, 10, 4, 6, 5),
        (9, 4, 10, 6, 9),
        (10, 10, 10, 0, 0),
    ):
        event = _event(second, {"0": one}, {"0": 10})
        event.progress.sources += _event(second, {"0": other}, {"0": 10}).progress.sources
        listener.onQueryProgress(event)
        assert listener.lag("q").partitions[_A] == PartitionLag(records, None, seconds)


class _OfSources:
    """Offsets as the JVM has them: a map of each source's."""

    def __init__(self, *offsets):
        self._offsets = offsets

    def valuesIterator(self):
        left = [SimpleNamespace(json=lambda told=each: json.dumps({"t": {"0": told}})) for each in self._offsets]
        return SimpleNamespace(hasNext=lambda: bool(left), next=lambda: left.pop(0))


@pytest.mark.parametrize("reached", [(4, 10), (10, 4)])
def test_of_two_sources_of_one_topic_the_slower_counts_when_the_query_is_idle(reached):
    running = SimpleNamespace(
        committedOffsets=lambda: _OfSources(*reached),
        latestOffsets=lambda: _OfSources(12, 11),
        getLatestExecutionContext=lambda: SimpleNamespace(batchId=lambda: 3),
    )
    query = SimpleNamespace(name="mine", _jsq=SimpleNamespace(streamingQuery=lambda: running))
    listener = LagListener(spark=SimpleNamespace(streams=SimpleNamespace(get={"q": query}.get)))
    listener.onQueryIdle(SimpleNamespace(id="q", timestamp="2024-01-01T00:00:00.000Z"))
    assert listener.lag("q").partitions == {_A: PartitionLag(8, None, 0)}


@pytest.mark.spark
@pytest.mark.usefixtures("interpreted")
def test_a_query_is_watched(spark, servers, make_topic, produce, tmp_path):
    topic = make_topic()
    produce(topic, *({"value": bytes(1000)} for _ in range(10)))
    seen = []
    settings = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}
    listener = watch(spark, settings, seen.append)
    try:
        frame = spark.readStream.format("sparklog").options(**settings, maxOffsetsPerTrigger="4").load()
        query = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
        query = query.trigger(availableNow=True).start()
        query.awaitTermination()
        eventually(lambda: len(seen) >= 3, 60, "three batches")
        assert [lag.maxOffsetsBehindLatest for lag in seen[:3]] == [6, 2, 0]
        assert 6000 < seen[0].partitions[TopicPartition(topic, 0)].bytes < 12_000
        assert listener.lag(query.id) == seen[-1]
    finally:
        spark.streams.removeListener(listener)


@pytest.fixture
def soon_idle(spark):
    """A query without new data says so at once, where Spark's default is after ten seconds."""
    name = "spark.sql.streaming.noDataProgressEventInterval"
    spark.conf.set(name, "100")
    yield
    spark.conf.unset(name)


@pytest.mark.spark
@pytest.mark.usefixtures("interpreted", "soon_idle")
def test_a_query_that_starts_again_and_finds_nothing_new_is_not_behind(spark, servers, make_topic, produce, tmp_path):
    topic = make_topic()
    produce(topic, *({"value": b"x"} for _ in range(3)))
    settings = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}
    frame = spark.readStream.format("sparklog").options(**settings).load()
    writer = frame.writeStream.format("noop").queryName("idle").option("checkpointLocation", str(tmp_path))
    writer.trigger(availableNow=True).start().awaitTermination()
    listener = watch(spark)
    query = writer.trigger(processingTime="0 seconds").start()
    try:
        wait_for(query, lambda: listener.lag(query.id) is not None, "the query is known to be idle")
        found = listener.lag(query.id)
        assert found == QueryLag(query.id, "idle", 0, {TopicPartition(topic, 0): PartitionLag(0, None, 0)})
    finally:
        query.stop()
        spark.streams.removeListener(listener)
