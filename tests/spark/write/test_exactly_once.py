"""Each row once, whatever fails: Spark's own tasks, its replays, its driver."""

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from pyspark import TaskContext
from spark.dying import DyingSource
from spark.write.committed import numbers_in

from sparklog.client.admin.admin import Admin, NewTopic
from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.cluster.offsets import latest_offsets
from sparklog.client.producer.producer import Producer
from sparklog.config.command_config import ENVIRONMENT
from sparklog.structs import IsolationLevel, TopicPartition
from sparklog.testing.cluster import ClusterHarness, SecureClusterHarness
from sparklog.testing.eventually import eventually
from sparklog.testing.librdkafka import librdkafka_settings

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted")]

PARTITIONS = 3


@pytest.fixture
def client(any_client):
    return any_client


@pytest.fixture
def committed(metadata, read):
    """The committed numbers in a topic, sorted; nothing may be open any more."""

    def found(topic):
        tps = [TopicPartition(topic, number) for number in range(PARTITIONS)]

        def is_settled():
            return latest_offsets(metadata, tps, IsolationLevel.READ_COMMITTED) == latest_offsets(metadata, tps)

        eventually(is_settled, what=f"nothing is open in {topic}")
        frame = read("value binary", subscribe=topic, **{"kafka.isolation.level": "read_committed"})
        return sorted(int(row.value) for row in frame.collect())

    return found


@pytest.fixture
def records_in(metadata):
    """How many offsets a topic has used, those of aborted rows and of markers too."""

    def count(topic):
        tps = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        return sum(latest_offsets(metadata, tps).values())

    return count


@pytest.fixture
def numbers(spark):
    """A DataFrame of numbers as text, in two tasks."""

    def frame(*args):
        return spark.range(*args, numPartitions=2).selectExpr(
            "cast(id as string) as key", "cast(id as string) as value"
        )

    return frame


@pytest.fixture
def stream(spark, client_options, tmp_path):
    """``stream(source, out, sink=...)``: copy what there is, a few rows a batch, under one checkpoint a test."""

    def run(source, out, sink="sparklog", checkpoint=tmp_path, **options):
        settings = {**client_options, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "20"}
        frame = spark.readStream.format("sparklog").options(subscribe=source, minPartitions="2", **settings).load()
        writer = frame.select("key", "value").writeStream.format(sink).options(topic=out, **settings, **options)
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()

    return run


@pytest.fixture
def filled(make_topic, produce):
    """A topic with the numbers below ``count``."""

    def fill(count):
        topic = make_topic(partitions=2)
        produce(topic, *({"key": b"%d" % n, "value": b"%d" % n} for n in range(count)))
        return topic

    return fill


def test_a_batch_write_is_whole_and_leaves_nothing_open(numbers, write, read, make_topic, committed, client):
    topic = make_topic(partitions=PARTITIONS)
    write(numbers(1000), topic=topic)
    assert committed(topic) == list(range(1000))
    assert read(subscribe="__spark_decisions").count() > 0
    assert read(subscribePattern="__spark.*").count() == 0
    with Admin(client) as admin:
        names = [each.transactional_id for each in admin.list_transactions(states=["Ongoing"])]
    assert not [name for name in names if name.startswith("sparklog-spark/write-")]


@pytest.fixture
def fails_half_way(client):
    """``frame.mapInArrow(fails_half_way(topic), ...)``: the second task fails once the first has written 50 rows."""

    def failing(topic):
        tps = [TopicPartition(topic, number) for number in range(PARTITIONS)]

        def rows(batches):
            if TaskContext.get().partitionId() == 0:
                yield from batches
                return
            with ClusterMetadata(ClientConfig.from_properties(client)) as cluster:
                eventually(lambda: sum(latest_offsets(cluster, tps).values()) == 50, what="the first task has written")
            raise ValueError("no more")

        return rows

    return failing


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_a_write_that_fails_half_way(numbers, write, make_topic, committed, records_in, fails_half_way, delivery):
    """One task of two fails; the other has written all of its own."""
    topic = make_topic(partitions=PARTITIONS)
    frame = numbers(100).mapInArrow(fails_half_way(topic), "key string, value string")
    with pytest.raises(Exception, match="no more"):
        write(frame, topic=topic, delivery=delivery)
    assert committed(topic) == ([] if delivery == "exactly-once" else list(range(50)))
    if delivery == "exactly-once":
        write(numbers(100), topic=topic)
        assert committed(topic) == list(range(100))
        assert records_in(topic) > 100


def test_a_named_write_is_done_once(numbers, write, make_topic, committed):
    topic = make_topic(partitions=PARTITIONS)
    for version, rows in ((0, (0, 10)), (1, (10, 20)), (1, (10, 20)), (5, (20, 30))):
        write(numbers(*rows), topic=topic, txnAppId=topic, txnVersion=str(version))
    with pytest.raises(Exception, match="SPARKLOG_BATCH_OVERTAKEN"):
        write(numbers(10), topic=topic, txnAppId=topic, txnVersion="0")
    assert committed(topic) == list(range(30))


def test_a_name_counts_in_each_topic(numbers, write, make_topic, committed):
    topics = [make_topic(partitions=PARTITIONS, suffix=suffix) for suffix in ("-a", "-b")]
    for _ in range(2):
        for topic in topics:
            write(numbers(10), topic=topic, txnAppId=topics[0], txnVersion="0")
    assert [committed(topic) for topic in topics] == [list(range(10))] * 2


@pytest.mark.parametrize(
    ("column", "code"),
    [
        pytest.param(
            "repeat('x', 3000) as value", r"RECORD_TOO_LARGE.*row with key 'culprit' and 3007 bytes", id="large"
        ),
        pytest.param("7 as partition", r"INVALID_PARTITION.*row with key 'culprit' and 8 bytes", id="partition"),
        pytest.param("'no such topic' as topic", r"INVALID_TOPIC.*row with key 'culprit' and 8 bytes", id="topic"),
    ],
)
def test_a_row_that_cannot_be_written(spark, numbers, write, make_topic, committed, column, code):
    topic = make_topic(partitions=PARTITIONS, max_message_bytes=2000)
    good = numbers(10).selectExpr("key", "value", "1 as partition", f"'{topic}' as topic")
    bad = spark.range(1).selectExpr("'culprit' as key", "'x' as value", "1 as partition", f"'{topic}' as topic")
    name = column.split()[-1]
    with pytest.raises(Exception, match=code):
        write(good.unionByName(bad.drop(name).selectExpr("*", column)))
    assert committed(topic) == []


def test_a_replayed_batch_adds_nothing(stream, filled, make_topic, committed, records_in, tmp_path):
    """Spark forgot that it had committed the last batch, as when its driver dies at that moment."""
    source, out = filled(50), make_topic(partitions=PARTITIONS, suffix="-out")
    stream(source, out)
    assert committed(out) == list(range(50))
    written = records_in(out)
    last = max(int(each.name) for each in (tmp_path / "commits").iterdir() if each.name.isdigit())
    for name in (f"{last}", f".{last}.crc"):
        (tmp_path / "commits" / name).unlink(missing_ok=True)
    stream(source, out)
    assert records_in(out) == written
    assert committed(out) == list(range(50))


def test_a_checkpoint_that_is_copied_or_set_back_loses_no_rows_in_silence(
    stream, filled, produce, make_topic, committed, tmp_path
):
    source, out, other = filled(50), make_topic(PARTITIONS, "-out"), make_topic(PARTITIONS, "-other")
    checkpoint, copy = tmp_path / "checkpoint", tmp_path / "copy"
    stream(source, out, checkpoint=checkpoint)
    shutil.copytree(checkpoint, copy)
    produce(source, *({"value": b"%d" % number} for number in range(50, 55)))
    with pytest.raises(Exception, match=r"SPARKLOG_OTHER_TOPIC.*writes declare"):
        stream(source, other, checkpoint=copy)
    for part in ("commits", "offsets"):
        for name in ("2", ".2.crc"):
            (checkpoint / part / name).unlink(missing_ok=True)
    with pytest.raises(Exception, match=r"SPARKLOG_REPLAY_DIFFERS.*writes declare"):
        stream(source, out, checkpoint=checkpoint)
    assert (committed(out), committed(other)) == (list(range(50)), [])


@pytest.mark.parametrize(
    ("step", "when"),
    [
        pytest.param("take_over", "before", marks=pytest.mark.slow),
        pytest.param("record", "before", marks=pytest.mark.slow),
        pytest.param("record", "after", marks=pytest.mark.slow),
        ("finish", "amid"),
    ],
)
def test_a_query_whose_commit_does_not_return(spark, stream, filled, make_topic, committed, step, when):
    source, out = filled(60), make_topic(partitions=PARTITIONS, suffix="-out")
    spark.dataSource.register(DyingSource)
    with pytest.raises(Exception, match="the driver dies here"):
        stream(source, out, "sparklog-dying", dieAt=f"{step}/{when}")
    stream(source, out)
    assert committed(out) == list(range(60))


def test_a_batch_written_for_each(spark, client_options, filled, make_topic, committed, tmp_path):
    """foreachBatch is at least once; with a name and a version for each batch the writes in it are exactly once."""
    source, out = filled(20), make_topic(partitions=PARTITIONS, suffix="-out")
    settings = {**client_options, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "20"}
    frame = spark.readStream.format("sparklog").options(subscribe=source, **settings).load().select("key", "value")

    def twice(batch, number):
        for _ in range(2):
            writer = batch.write.format("sparklog").mode("append").option("topic", out).options(**settings)
            writer.options(txnAppId=out, txnVersion=str(number)).save()

    query = frame.writeStream.foreachBatch(twice).option("checkpointLocation", str(tmp_path))
    query.trigger(availableNow=True).start().awaitTermination()
    assert committed(out) == list(range(20))


class _Job:
    """A driver in a process of its own."""

    def __init__(self, arguments, log, environment):
        self._arguments = [*map(str, arguments)]
        self._log = log
        self._environment = environment

    def run(self, die_at, *conf):
        """Until it dies or is done; its exit code."""
        here = Path(__file__).parents[1]
        environment = {**os.environ, **self._environment}
        environment |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        command = [sys.executable, str(here / "dying_job.py"), *self._arguments, die_at, *conf]
        with self._log.open("ab") as log:
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
            try:
                return process.wait(900)
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()


@pytest.fixture
def job(request, spark, client, tmp_path, quick_spark):
    environment = dict(quick_spark)
    if "security.protocol" in client:
        environment[ENVIRONMENT] = str(request.getfixturevalue("secure_cluster").client_file("spark"))

    def make(source, out):
        places = [client["bootstrap.servers"], source, out, tmp_path / "checkpoint"]
        return _Job(places, tmp_path / "job.log", environment)

    return make


def _die_and_go_on(job, source, out, step, when, log):
    dying = job(source, out)
    assert dying.run(f"{step}/{when}") != 0, log.read_text()[-4000:]
    assert dying.run("never") == 0, log.read_text()[-4000:]


_DEATHS = [
    ("take_over", "before"),
    ("take_over", "after"),
    ("record", "before"),
    ("finish", "before"),
    ("finish", "after"),
    ("commit", "after"),
]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("step", "when"), _DEATHS)
def test_a_killed_driver_and_failing_tasks(job, filled, make_topic, committed, tmp_path, step, when):
    """SIGKILL for the JVM at a step of batch 1, while every second task needs a second attempt."""
    source, out = filled(100), make_topic(partitions=PARTITIONS, suffix="-out")
    _die_and_go_on(job, source, out, step, when, tmp_path / "job.log")
    assert committed(out) == list(range(100))


@pytest.mark.slow  # a JVM of its own; a query that goes no further at this step is above
@pytest.mark.timeout(900)
def test_a_killed_driver(job, stream, filled, make_topic, committed, tmp_path):
    """SIGKILL after the decision was recorded, in the middle of making it so; another driver goes on."""
    source, out = filled(60), make_topic(partitions=PARTITIONS, suffix="-out")
    checkpoint = tmp_path / "checkpoint"
    assert job(source, out).run("finish/amid", "spark.dying.tasks=2") != 0
    assert (checkpoint / "offsets" / "1").exists(), (tmp_path / "job.log").read_text()[-4000:]
    assert not (checkpoint / "commits" / "1").exists()
    stream(source, out, checkpoint=checkpoint)
    assert committed(out) == list(range(60))


_STEPS = ("take_over/before", "record/before", "record/after", "finish/before", "finish/amid", "commit/after")


def _disturb(cluster, chance, is_over):
    """Kills the broker now and then, and starts it again."""
    while not is_over.wait(chance.uniform(5, 20)):
        cluster.kill_broker(0)
        is_over.wait(chance.uniform(0, 2))
        cluster.start_broker(0)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_under_fire(tmp_path, seed, quick_spark):
    """Killed drivers, failing tasks, and a broker that is killed again and again."""
    with ClusterHarness(tmp_path / "cluster") as cluster:
        _is_exact_under_fire(cluster, {"bootstrap.servers": cluster.bootstrap_servers}, tmp_path, seed, quick_spark)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_under_fire_on_a_secure_cluster(tmp_path, quick_spark):
    """As above, by the user spark; no secret is in what Spark keeps or says."""
    with SecureClusterHarness(tmp_path / "cluster") as cluster:
        environment = {**quick_spark, ENVIRONMENT: str(cluster.client_file("spark"))}
        _is_exact_under_fire(cluster, cluster.client("spark"), tmp_path, 4, environment)
        password = librdkafka_settings(cluster.client("spark"))["sasl.password"].encode()
        kept = [tmp_path / "job.log", *(each for each in (tmp_path / "checkpoint").rglob("*") if each.is_file())]
        assert [str(path) for path in kept if password in path.read_bytes()] == []


def _is_exact_under_fire(cluster, client, tmp_path, seed, environment):
    chance = random.Random(seed)
    over = threading.Event()
    with Admin(client) as admin:
        admin.create_topics([NewTopic("in", 2), NewTopic("out", PARTITIONS)])
    with Producer(client) as producer:
        for number in range(300):
            producer.send("in", b"%d" % number, key=b"%d" % number)
    fire = threading.Thread(target=_disturb, args=(cluster, random.Random(seed), over))
    fire.start()
    try:
        places = [cluster.bootstrap_servers, "in", "out", tmp_path / "checkpoint"]
        job = _Job(places, tmp_path / "job.log", environment)
        # Each death is of a later batch than the one before, so all of them are died.
        deaths = [f"{step}/{3 * number}" for number, step in enumerate(chance.sample(_STEPS, 4))]
        is_done = any(job.run(death) == 0 for death in [*deaths, *["never"] * 20])
    finally:
        over.set()
        fire.join()
    assert is_done, (tmp_path / "job.log").read_text()[-4000:]
    assert numbers_in(client, "out", PARTITIONS) == list(range(300))
