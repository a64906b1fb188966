"""``option("path", DIR)``: log directories of brokers that do not run, ours and Kafka's."""

import json
import logging
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from sparklog.client.admin.admin import AdminClient, NewTopic
from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.errors import DataSourceError
from sparklog.spark.read.batch_reader import SparklogReader
from sparklog.spark.read.options import ReadOptions
from sparklog.spark.schema import source_schema
from sparklog.testing.cluster import ClusterHarness
from sparklog.testing.kafka import KafkaBroker

pytestmark = pytest.mark.integration
GOLDEN = Path(__file__).parents[2] / "golden"
_SCHEMA = source_schema(include_headers=True)


def _read(**options):
    """The rows, read in this process."""
    reader = SparklogReader(ReadOptions.for_batch(options), _SCHEMA)
    batches = [batch for each in reader.partitions() for batch in reader.read(each)]
    return pa.Table.from_batches(batches, batches[0].schema).combine_chunks() if batches else None


def _files(directory):
    return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in sorted(directory.rglob("*"))}


def _fill(bootstrap, plain, transactional):
    """Compressed records with headers, and transactions, of which one stays open. Returns its producer."""
    with ClusterMetadata(ClientConfig(bootstrap_servers=bootstrap)) as cluster:
        AdminClient(cluster).create_topics(
            [NewTopic(topic, 1, 1, {"retention.ms": "-1"}) for topic in (plain, transactional)]
        )
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": "lz4", "log_level": 0})
    for number in range(1000):
        headers = [("h", b"%d" % number)] if number % 2 else None
        producer.produce(plain, b"value %d" % number, b"k%d" % (number % 9), headers=headers, timestamp=1000 + number)
    assert producer.flush(30) == 0
    sender = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional, "log_level": 0})
    sender.init_transactions(30)
    for end in (sender.commit_transaction, sender.abort_transaction, sender.commit_transaction, None):
        sender.begin_transaction()
        for number in range(10):
            sender.produce(transactional, b"%d" % number)
        assert sender.flush(30) == 0
        if end is not None:
            end(30)
    return sender


def _check(bootstrap, log_dir, stop, plain, transactional):
    """What a broker gave by Fetch is what its directory holds once it has stopped, and nothing there was changed."""
    sender = _fill(bootstrap, plain, transactional)
    both = f"{plain},{transactional}"
    asked = {"kafka.bootstrap.servers": bootstrap, "subscribe": both, "directRead": "never"}
    fetched = {
        level: _read(**asked, **{"kafka.isolation.level": level}) for level in ("read_committed", "read_uncommitted")
    }
    assert [len(fetched[level]) for level in fetched] == [1020, 1040]
    late = _read(**asked | {"subscribe": plain}, startingTimestamp="1900")
    stop()
    del sender
    before = _files(log_dir)
    for level, expected in fetched.items():
        assert _read(path=str(log_dir), subscribe=both, **{"kafka.isolation.level": level}) == expected
    assert _read(path=f"file:{log_dir}", subscribePattern=f"{plain}", startingTimestamp="1900") == late
    assert len(_read(path=str(log_dir), subscribe=plain, startingTimestamp="-2", endingTimestamp="-1")) == 1000
    assert _files(log_dir) == before


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A cluster that a test may stop."""
    with ClusterHarness(tmp_path_factory.mktemp("own")) as harness:
        yield harness


def _log_dir(harness):
    return next(harness.directory.broker(0).rglob("meta.properties")).parent


def test_the_directory_of_a_broker_of_ours(own):
    _check(own.bootstrap_servers, _log_dir(own), lambda: own.stop_broker(0), "plain", "transactional")


@pytest.mark.peer
def test_the_directory_of_a_kafka_broker(zookeeper, tmp_path):
    with KafkaBroker(tmp_path, f"{zookeeper.connect_string}/directories") as broker:
        _check(broker.bootstrap_servers, broker.log_dir, broker.stop, "plain", "transactional")


@pytest.mark.parametrize(
    ("name", "topic"), [("stopped", "txn"), ("killed", "txn-killed"), ("stopped", "compacted"), ("stopped", "trimmed")]
)
@pytest.mark.parametrize("level", ["committed", "uncommitted"])
def test_directories_that_kafka_left(name, topic, level):
    said = json.loads((GOLDEN / f"kafka-3.9-{name}.json").read_text())[f"{topic} {level}"]
    rows = _read(path=str(GOLDEN / f"kafka-3.9-{name}"), subscribe=topic, **{"kafka.isolation.level": f"read_{level}"})
    found = [] if rows is None else list(zip(rows["offset"].to_pylist(), rows["key"].to_pylist(), strict=True))
    assert found == [(offset, key.encode()) for offset, _, key, _ in said]


def test_offsets_and_partitions_are_chosen_as_of_a_cluster(tmp_path):
    path = str(GOLDEN / "kafka-3.9-stopped")
    cut = {"startingOffsets": '{"txn": {"0": 11}}', "endingOffsets": '{"txn": {"0": 17}}'}
    assert _read(path=path, assign='{"txn": [0]}', **cut)["offset"].to_pylist() == [11, 13, 14, 15, 16]
    whole = _read(path=path, subscribe="txn")
    assert _read(path=path, subscribe="txn", minPartitions="5") == whole
    shutil.copytree(GOLDEN / "kafka-3.9-killed" / "txn-killed-0", tmp_path / "txn-killed-0")
    both = _read(path=f"{path}, {tmp_path}", subscribePattern="txn.*")
    assert set(both["topic"].to_pylist()) == {"txn", "txn-killed"}
    assert len(both) > len(whole)


def test_a_pattern_leaves_internal_topics_out(tmp_path):
    path = GOLDEN / "kafka-3.9-stopped"
    shutil.copytree(path / "txn-0", tmp_path / "__spark_decisions-0")
    found = _read(path=f"{path}, {tmp_path}", subscribePattern=".*")
    assert set(found["topic"].to_pylist()) == {"compacted", "epochs", "trimmed", "txn"}
    assert set(_read(path=str(path), subscribe="__transaction_state")["topic"].to_pylist()) == {"__transaction_state"}


def _refused(**options):
    with pytest.raises(DataSourceError) as caught:
        _read(**options)
    return str(caught.value)


def test_what_cannot_be_read_is_refused(tmp_path):
    path = str(GOLDEN / "kafka-3.9-stopped")
    for name, selection in (("none", {"subscribe": "none"}), ("txn-3", {"assign": '{"txn": [3]}'})):
        message = _refused(path=path, **selection)
        assert "[SPARKLOG_UNKNOWN_TOPIC]" in message
        assert f"'{name}' is not in {path}" in message
    assert "No such file or directory" in _refused(path=str(tmp_path / "none"), subscribe="txn")
    assert "[SPARKLOG_INVALID_OPTION] option 'path'" in _refused(path="hdfs://host/dir", subscribe="txn")
    assert "[SPARKLOG_INVALID_OPTION] option 'path'" in _refused(path=" , ", subscribe="txn")
    assert "partition epochs-0 is both in" in _refused(path=f"{path},{GOLDEN / 'kafka-3.9-killed'}", subscribe="epochs")
    both = {"path": path, "kafka.bootstrap.servers": "a:1"}
    assert "[SPARKLOG_CONFLICTING_OPTIONS]" in _refused(**both, subscribe="txn")
    with pytest.raises(DataSourceError, match=r"SPARKLOG_UNSUPPORTED_OPTION.*'path'"):
        ReadOptions.for_stream({"path": path, "subscribe": "txn"})


@pytest.mark.parametrize("selection", [{"subscribe": "txn"}, {"subscribePattern": ".*"}], ids=lambda each: min(each))
def test_a_directory_one_too_high_or_too_low_names_the_right_one(tmp_path, selection):
    for name in ("broker-0", "broker-1"):
        shutil.copytree(GOLDEN / "kafka-3.9-stopped", tmp_path / name)
    (tmp_path / "zookeeper" / "version-2").mkdir(parents=True)
    (tmp_path / "zookeeper" / "version-2" / "log.1").touch()
    refused = _refused(path=str(tmp_path), **selection)
    assert "[SPARKLOG_INVALID_OPTION] option 'path'" in refused
    assert refused.endswith(f"directories below it do: pass {tmp_path}/broker-0,{tmp_path}/broker-1")
    refused = _refused(path=str(tmp_path / "broker-0" / "txn-0"), **selection)
    assert refused.endswith(f"it is the directory of one partition: pass {tmp_path}/broker-0")


def test_a_damaged_batch_fails_the_query_with_the_place(tmp_path):
    source = GOLDEN / "kafka-3.9-stopped"
    shutil.copytree(source / "txn-0", tmp_path / "txn-0")
    first = min((tmp_path / "txn-0").glob("*.log"))
    data = bytearray(first.read_bytes())
    data[100] ^= 0xFF
    first.write_bytes(data)
    (tmp_path / "recovery-point-offset-checkpoint").write_bytes(
        (source / "recovery-point-offset-checkpoint").read_bytes()
    )
    (tmp_path / ".kafka_cleanshutdown").touch()
    assert f"[SPARKLOG_CORRUPT_RECORD] {first}" in _refused(path=str(tmp_path), subscribe="txn")


def test_a_broker_at_work_is_said_in_the_log(cluster, make_topic, produce, caplog):
    topic = make_topic()
    produce(topic, {"value": b"x"})
    assert len(_read(path=str(_log_dir(cluster)), subscribe=topic)) == 1
    assert "a broker is at work in" in caplog.text
    caplog.clear()
    caplog.set_level(logging.WARNING)
    _read(path=str(GOLDEN / "kafka-3.9-stopped"), subscribe="txn")
    assert "at work" not in caplog.text


@pytest.fixture
def servers(cluster):
    return cluster.bootstrap_servers


@pytest.mark.spark
def test_a_query_of_the_session(spark):
    frame = spark.read.format("sparklog").option("subscribe", "txn").load(os.fspath(GOLDEN / "kafka-3.9-stopped"))
    said = json.loads((GOLDEN / "kafka-3.9-stopped.json").read_text())["txn uncommitted"]
    assert frame.count() == len(said)
