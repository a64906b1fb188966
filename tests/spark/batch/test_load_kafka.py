"""Loads into a real Kafka, which adopts no segments: the rows are produced in one transaction, once whatever dies."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparklog.client import Admin, Consumer, NewTopic
from sparklog.record.partitioning import partition_for
from sparklog.spark.batch import load
from sparklog.spark.batch.load import LoadOptions, run
from sparklog.spark.batch.sources import Source
from sparklog.structs import TopicPartition
from sparklog.testing.eventually import eventually

pytestmark = [pytest.mark.peer, pytest.mark.spark, pytest.mark.timeout(400)]
PARTITIONS, ROWS = 2, 100


@pytest.fixture
def options(kafka, topic, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    for part in range(2):
        numbers = range(part, ROWS, 2)
        rows = {"k": [b"k%d" % number for number in numbers], "v": [b"%d" % number for number in numbers]}
        rows["at"] = pa.array([1_000_000 - number for number in numbers], pa.int64())
        pq.write_table(pa.table(rows), source / f"{part}.parquet")
    with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(topic, PARTITIONS, 1, {"retention.ms": "-1"})])
        assert admin.adopting_brokers() == set()
    return LoadOptions(kafka.bootstrap_servers, topic, Source(str(source), "parquet", "k", "v", "at"), topic)


def read(options, isolation="read_committed"):
    """What each partition has, in its order."""
    settings = {"bootstrap.servers": options.bootstrap_servers, "isolation.level": isolation}
    with Consumer(settings | {"auto.offset.reset": "earliest"}) as consumer:
        tps = [TopicPartition(options.topic, number) for number in range(PARTITIONS)]
        consumer.assign(tps)
        ends = consumer.end_offsets(tps)
        found = [[] for _ in tps]
        while any(consumer.position(tp) < ends[tp] for tp in tps):
            for each in consumer.poll(0.2):
                found[each.partition].append((each.key, each.value, each.timestamp))
        return found


def assert_has_all(options):
    """Kafka answers a commit before its markers are written: until then readers of committed records see none."""
    eventually(lambda: all(read(options)), 60, "the markers of the commit")
    assert read(options) == expected()


def expected():
    """By time, in the partition of the key."""
    rows = [(b"k%d" % number, b"%d" % number, 1_000_000 - number) for number in reversed(range(ROWS))]
    return [[row for row in rows if partition_for(row[0], PARTITIONS) == number] for number in range(PARTITIONS)]


@pytest.mark.parametrize("via", ["produce", "adopt"])
def test_rows_become_records_of_kafka_once(spark, interpreted, options, via):
    """Where adoption is asked for they are produced all the same."""
    asked = LoadOptions(options.bootstrap_servers, options.topic, options.source, options.name, via=via)
    loaded = run(spark, asked)
    assert (loaded.records, loaded.adopted, loaded.produced, loaded.was_done) == (ROWS, 0, PARTITIONS, False)
    assert_has_all(options)
    assert run(spark, asked).was_done
    assert_has_all(options)


@pytest.mark.parametrize("step", ["_build", "_commit"])
def test_a_run_that_dies_behind_a_step_is_taken_back_or_done(spark, interpreted, options, monkeypatch, step):
    """It dies as a process does, taking nothing back."""

    class Death(BaseException):
        pass

    real = getattr(load._Load, step)

    def deadly(*arguments):
        real(*arguments)
        raise Death

    with monkeypatch.context() as patch:
        patch.setattr(load._Load, step, deadly)
        patch.setattr(load._Load, "_take_back", lambda *_: None)
        patch.setattr(load, "_as_told", lambda error, _: error)
        with pytest.raises(Death):
            run(spark, options)
    is_done = step == "_commit"
    if is_done:
        assert_has_all(options)
    else:
        assert read(options) == [[]] * PARTITIONS
    assert run(spark, options).was_done is is_done
    assert_has_all(options)
    assert sum(map(len, read(options, "read_uncommitted"))) == ROWS * (1 if is_done else 2)
