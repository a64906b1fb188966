"""A new leader: nothing to a query if it has all the records; noticed, by leader epochs, if it has not.

That is so however far the log has grown again.
"""

import json
import os

import pytest
from spark.micro_batches import Query

from sparklog.client.admin.admin import Admin, NewTopic
from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.producer.producer import Producer
from sparklog.errors import DataSourceError
from sparklog.spark.read.batch_reader import SparklogReader
from sparklog.spark.read.options import ReadOptions
from sparklog.spark.schema import source_schema
from sparklog.spark.stream.reader import SparklogStreamReader
from sparklog.structs import NO_LEADER
from sparklog.testing.cluster import ClusterHarness
from sparklog.testing.eventually import eventually
from sparklog.testing.kafka import KafkaBroker

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]


@pytest.fixture
def pair(chroot, tmp_path):
    """Two brokers of Kafka, by number, and their addresses."""
    settings = {"controlled.shutdown.enable": "false"}
    with (
        KafkaBroker(tmp_path / "0", chroot, 0, 0, settings) as first,
        KafkaBroker(tmp_path / "1", chroot, 0, 1, settings) as second,
    ):
        yield [first, second], f"{first.bootstrap_servers},{second.bootstrap_servers}"


def _state(servers, topic):
    """The leader of the topic's partition, and its in-sync replicas."""
    with ClusterMetadata(ClientConfig(bootstrap_servers=servers)) as cluster:
        found = cluster.fetch([topic]).topics.get(topic)
    return (found.partitions[0].leader, sorted(found.partitions[0].isr)) if found else None


def _in_sync(servers, topic):
    """``_state``, once both replicas are in sync."""
    eventually(lambda: len(_state(servers, topic)[1]) == 2, 60, "both in sync")
    return _state(servers, topic)


def _produce(servers, topic, values):
    with Producer(bootstrap_servers=servers) as producer:
        for value in values:
            producer.send(topic, value, partition=0)


def _check(servers, topic, checkpoint):
    """A log of which a query has read 20 records was cut off after 10 and then got 30 others."""
    cut_off = rf"SPARKLOG_DATA_LOSS_TRUNCATED.*{topic}-0 was cut off at offset 10, before 20, .* ends at offset 40"
    with pytest.raises(DataSourceError, match=cut_off):
        _once(Query(servers, checkpoint, subscribe=topic))
    without_epochs = json.dumps({topic: {"0": 20}})
    assert _once(Query(servers, without_epochs, subscribe=topic)) == [b"new"] * 20, "as the Kafka source would"
    lenient = Query(servers, checkpoint, subscribe=topic, failOnDataLoss="false")
    assert lenient.batch() == [b"new"] * 30
    assert _once(lenient) == []


def _once(query):
    try:
        return query.batch()
    finally:
        query.stop()


def test_a_leader_that_comes_back_without_the_end_of_its_log(tmp_path, topic):
    with ClusterHarness(tmp_path, brokers=2) as harness:
        servers = harness.bootstrap_servers
        _produce(servers, topic, [b"first"] * 10)
        query = Query(servers, subscribe=topic)
        assert query.batch() == [b"first"] * 10
        (log,) = tmp_path.rglob(f"{topic}-0/{0:020}.log")
        whole = log.stat().st_size
        _produce(servers, topic, [b"lost"] * 10)
        assert query.batch() == [b"lost"] * 10
        query.stop()
        leader, _ = _state(servers, topic)
        harness.kill_broker(leader)
        eventually(lambda: _state(servers, topic)[0] == NO_LEADER, 60, "nobody leads")
        os.truncate(log, whole)
        harness.start_broker(leader)
        eventually(lambda: _state(servers, topic)[0] == leader, 60, "it leads again")
        _produce(servers, topic, [b"new"] * 30)
        _check(servers, topic, query.checkpoint)


@pytest.mark.peer
def test_an_unclean_election(pair, topic):
    brokers, servers = pair
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic(topic, 1, 2, {"unclean.leader.election.enable": "true"})])
    _produce(servers, topic, [b"first"] * 10)
    query = Query(servers, subscribe=topic)
    assert query.batch() == [b"first"] * 10
    leader, _ = _in_sync(servers, topic)
    brokers[1 - leader].stop()
    eventually(lambda: _state(servers, topic) == (leader, [leader]), 60, "the leader is alone")
    _produce(servers, topic, [b"lost"] * 10)
    assert query.batch() == [b"lost"] * 10
    assert query.batch() == []
    query.stop()
    brokers[leader].stop()
    brokers[1 - leader].start()
    eventually(lambda: _state(servers, topic) == (1 - leader, [1 - leader]), 60, "the other leads")
    _produce(servers, topic, [b"new"] * 30)
    _check(servers, topic, query.checkpoint)


@pytest.mark.peer
def test_a_leader_that_dies_in_the_middle_of_a_read_costs_a_retry(pair, topic):
    brokers, servers = pair
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic(topic, 1, 2)])
    _produce(servers, topic, [bytes(900_000)] * 20)
    leader, _ = _in_sync(servers, topic)
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic}
    reader = SparklogReader(ReadOptions.for_batch(options), source_schema(False))
    stream = SparklogStreamReader(
        ReadOptions.for_stream({**options, "startingOffsets": "earliest"}), source_schema(False)
    )
    (task,) = reader.partitions()
    start = stream.initialOffset()
    (micro_batch,) = stream.partitions(start, stream.latestOffset(start, stream.getDefaultReadLimit()))
    both = [reader.read(task), stream.read(micro_batch)]
    offsets = [next(batches)["offset"].to_pylist() for batches in both]
    assert max(map(len, offsets)) < 10
    brokers[leader].kill()
    for found, batches in zip(offsets, both, strict=True):
        found += [offset for batch in batches for offset in batch["offset"].to_pylist()]
        assert found == list(range(20))
    end = stream.latestOffset(start, stream.getDefaultReadLimit())
    assert end[topic] == {"0": 20}
    stream.stop()
