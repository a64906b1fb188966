"""Queries that are cancelled let go of their connections; a broker that goes and comes back costs no query."""

import os
import threading
from pathlib import Path

import pytest

from sparklog.client import Producer
from sparklog.spark.options import ReadOptions
from sparklog.spark.reader import SparklogReader
from sparklog.spark.schema import source_schema
from sparklog.testing.cluster import ClusterHarness
from sparklog.testing.eventually import eventually

pytestmark = pytest.mark.spark
_ESTABLISHED = "01"
_RECORDS = 40


@pytest.fixture(scope="module")
def lonely(tmp_path_factory):
    """A broker that nobody else talks to, with 40 MB in the topic ``large``."""
    with ClusterHarness(tmp_path_factory.mktemp("lonely")) as harness:
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

    eventually(lambda: not count(), 30, "nobody talks to the broker")
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


@pytest.mark.timeout(500)
def test_a_cancelled_job_closes_its_connections(spark, lonely, connections, one_by_one, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)

    def wait_at_gate(batches, path=str(gate)):
        for batch in batches:
            Path(path).with_suffix(".reached").touch()
            with open(path):  # for ever: nobody writes to it
                yield batch

    frame = spark.read.format("sparklog").option("kafka.bootstrap.servers", lonely.bootstrap_servers)
    waiting = frame.option("subscribe", "large").load().mapInArrow(wait_at_gate, source_schema(False))
    errors = []

    def run():
        spark.sparkContext.setJobGroup("cancelled", "waits at a gate", interruptOnCancel=True)
        try:
            waiting.count()
        except Exception as error:  # py4j's or Spark's
            errors.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    eventually(gate.with_suffix(".reached").exists, 100, "a batch at the gate")
    assert connections(), "the task is in the middle of its range"
    spark.sparkContext.cancelJobGroup("cancelled")
    thread.join(60)
    assert not thread.is_alive()
    assert "cancelled" in errors[0].lower()
    eventually(lambda: not connections(), 60, "all connections closed")


def test_a_stopped_query_closes_its_connections(spark, lonely, connections, tmp_path):
    frame = spark.readStream.format("sparklog").option("kafka.bootstrap.servers", lonely.bootstrap_servers)
    stream = frame.options(subscribe="large", startingOffsets="latest").load()
    query = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    try:
        eventually(lambda: query.lastProgress, 60, "the first trigger")
        assert connections()
    finally:
        query.stop()
    eventually(lambda: not connections(), 60, "all connections closed")


@pytest.mark.parametrize("way", ["killed", "stopped"])
def test_a_broker_that_restarts_in_the_middle_of_a_read_costs_a_retry(lonely, way):
    schema = source_schema(False)
    options = {"kafka.bootstrap.servers": lonely.bootstrap_servers, "subscribe": "large"}
    reader = SparklogReader(ReadOptions.for_batch(options), schema)
    (task,) = reader.partitions()
    batches = reader.read(task)
    offsets = next(batches)["offset"].to_pylist()
    assert len(offsets) < _RECORDS // 2
    if way == "killed":
        lonely.kill_broker(0)
    else:
        lonely.stop_broker(0)
    starter = threading.Thread(target=lonely.start_broker, args=(0,))
    starter.start()  # while the reader tries
    offsets += [offset for batch in batches for offset in batch["offset"].to_pylist()]
    starter.join()
    assert offsets == list(range(_RECORDS))
