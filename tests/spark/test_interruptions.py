"""Queries that are cancelled let go of their connections; a broker that goes and comes back costs no query.

Both where records are fetched and where tasks read the files themselves, in batch queries and in streams.
"""

import os
import threading
from pathlib import Path

import pytest
from spark.waits import wait_for

from sparklog.client import Producer
from sparklog.client.admin.admin import Admin, NewTopic
from sparklog.spark.read import direct, fetch_paths
from sparklog.spark.read.batch_reader import SparklogReader
from sparklog.spark.read.options import ReadOptions
from sparklog.spark.schema import source_schema
from sparklog.spark.stream.reader import SparklogStreamReader
from sparklog.testing.cluster import ClusterHarness
from sparklog.testing.eventually import eventually

pytestmark = pytest.mark.spark
_ESTABLISHED = "01"
_RECORDS = 40


@pytest.fixture(scope="module")
def lonely(tmp_path_factory):
    """A broker that nobody else talks to, with 40 MB in the topic ``large``, in segments of three records."""
    with ClusterHarness(tmp_path_factory.mktemp("lonely")) as harness:
        with Admin(bootstrap_servers=harness.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("large", 1, 1, {"segment.bytes": "3100000", "retention.ms": "-1"})])
        with Producer({"bootstrap.servers": harness.bootstrap_servers, "max.request.size": 2 << 20}) as producer:
            for _ in range(_RECORDS):
                producer.send("large", bytes(1_000_000), partition=0)
            producer.flush()
        yield harness


@pytest.fixture
def connections(lonely):
    """How many connections to the broker others have; those of its controller to itself are left out."""
    port = f":{int(lonely.bootstrap_servers.rpartition(':')[2]):04X}"
    descriptors = Path(f"/proc/{lonely.broker(0).pid}/fd")

    def count():
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        inodes = {row[9] for row in rows if row[2].endswith(port) and row[3] == _ESTABLISHED}
        return len(inodes - set(_sockets(descriptors)))

    eventually(lambda: not count(), 60, "nobody talks to the broker")
    return count


def _sockets(descriptors):
    for each in descriptors.iterdir():
        try:
            kind, _, inode = os.readlink(each).partition(":")
        except FileNotFoundError:  # closed meanwhile
            continue
        if kind == "socket":
            yield inode.strip("[]")


@pytest.fixture
def one_by_one(spark):
    """Rows go to Python functions one by one, so that the first does not wait for the last."""
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(name)
    spark.conf.set(name, "1")
    yield
    spark.conf.set(name, before)


@pytest.fixture
def gate(tmp_path):
    """A path to a gate that never opens, and a function for ``mapInArrow`` that waits there."""
    path = tmp_path / "gate"
    os.mkfifo(path)

    def wait(batches, path=str(path)):
        for batch in batches:
            Path(path).with_suffix(".reached").touch()
            with open(path):  # for ever: nobody writes to it
                yield batch

    return path.with_suffix(".reached"), wait


@pytest.mark.timeout(500)
@pytest.mark.parametrize("way", ["always", "never"])
def test_a_cancelled_job_closes_its_connections(spark, lonely, connections, one_by_one, gate, way):
    reached, wait = gate
    frame = spark.read.format("sparklog").option("kafka.bootstrap.servers", lonely.bootstrap_servers)
    waiting = frame.options(subscribe="large", directRead=way).load().mapInArrow(wait, source_schema(False))
    errors = []

    def run():
        spark.sparkContext.setJobGroup("cancelled", "waits at a gate", interruptOnCancel=True)
        try:
            waiting.count()
        except Exception as error:  # py4j's or Spark's
            errors.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    eventually(reached.exists, 100, "a batch at the gate")
    assert connections(), "the task is in the middle of its range"
    spark.sparkContext.cancelJobGroup("cancelled")
    thread.join(60)
    assert not thread.is_alive()
    assert "cancelled" in errors[0].lower()
    eventually(lambda: not connections(), 60, "all connections closed")


@pytest.mark.timeout(500)
@pytest.mark.parametrize("way", ["always", pytest.param("never", marks=pytest.mark.slow)])
def test_a_query_stopped_in_the_middle_of_a_batch_closes_its_connections(
    spark, lonely, connections, one_by_one, gate, tmp_path, way
):
    reached, wait = gate
    frame = spark.readStream.format("sparklog").option("kafka.bootstrap.servers", lonely.bootstrap_servers)
    stream = frame.options(subscribe="large", startingOffsets="earliest", directRead=way).load()
    waiting = stream.mapInArrow(wait, source_schema(False)).writeStream.format("noop")
    query = waiting.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        wait_for(query, reached.exists, "a batch at the gate")
        assert connections()
    finally:
        query.stop()
    eventually(lambda: not connections(), 60, "all connections closed")


def test_a_stopped_query_closes_its_connections(spark, lonely, connections, tmp_path):
    frame = spark.readStream.format("sparklog").option("kafka.bootstrap.servers", lonely.bootstrap_servers)
    stream = frame.options(subscribe="large", startingOffsets="latest").load()
    query = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    try:
        wait_for(query, lambda: query.lastProgress, "the first trigger")
        assert connections()
    finally:
        query.stop()
    eventually(lambda: not connections(), 60, "all connections closed")


def _batch(options):
    reader = SparklogReader(ReadOptions.for_batch(options), source_schema(False))
    (task,) = reader.partitions()
    return reader.read(task)


def _micro_batch(options):
    reader = SparklogStreamReader(
        ReadOptions.for_stream({**options, "startingOffsets": "earliest"}), source_schema(False)
    )
    start = reader.initialOffset()
    (task,) = reader.partitions(start, reader.latestOffset(start, reader.getDefaultReadLimit()))
    reader.stop()
    return reader.read(task)


@pytest.mark.parametrize("read", [_batch, _micro_batch])
@pytest.mark.parametrize("way", ["always", "never"])
@pytest.mark.parametrize("end", ["kill_broker", "stop_broker"])
def test_a_broker_that_restarts_in_the_middle_of_a_read_costs_a_retry(lonely, monkeypatch, taken, read, way, end):
    monkeypatch.setattr(direct, "_FILES_AT_ONCE", 2)
    batches = read({"kafka.bootstrap.servers": lonely.bootstrap_servers, "subscribe": "large", "directRead": way})
    offsets = next(batches)["offset"].to_pylist()
    assert len(offsets) < _RECORDS // 2
    getattr(lonely, end)(0)
    starter = threading.Thread(target=lonely.start_broker, args=(0,))
    starter.start()  # while the reader tries
    offsets += [offset for batch in batches for offset in batch["offset"].to_pylist()]
    starter.join()
    assert offsets == list(range(_RECORDS))
    assert bool(taken.direct_bytes) == (way == "always")
    assert bool(taken.fetched_bytes) == (way == "never")


@pytest.fixture
def taken(monkeypatch):
    """What the readers of this test did."""
    sums = fetch_paths.ReadPathCounters()
    monkeypatch.setattr(fetch_paths, "PROCESS", sums)
    return sums
