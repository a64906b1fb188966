"""Java's and librdkafka's clients at a broker where an authentication lasts two seconds.

They go on for three times as long, on the connections that they had: the broker closes none, and no record is lost.
"""

import time

import pytest
from compat import secured
from compat.test_secured_python_clients import of_librdkafka
from confluent_kafka import Consumer, Producer
from integration import wire

from sparklog.client import Admin
from sparklog.client.admin.admin import NewTopic
from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.cluster.offsets import latest_offsets
from sparklog.errors import ConnectionFailed
from sparklog.net.connection import BlockingConnection
from sparklog.structs import TopicPartition
from sparklog.testing.eventually import eventually
from sparklog.testing.kafka import run_kafka_tool

pytestmark = [pytest.mark.peer, pytest.mark.slow]

LASTS_S = 2
RUNS_S = 3.5 * LASTS_S
A_SECOND = 20
COUNT = int(RUNS_S * A_SECOND)
PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
EXPIRED = "its authentication has expired"
WAYS = [("SASL_PLAINTEXT", "SCRAM-SHA-256"), ("SASL_SSL", "SCRAM-SHA-512"), ("SASL_SSL", "PLAIN")]


@pytest.fixture(scope="module")
def short_lived(zookeeper, tmp_path_factory, stores):
    home = tmp_path_factory.mktemp("short-lived")
    settings = {"connections.max.reauth.ms": LASTS_S * 1000}
    with secured.ours(home, f"{zookeeper.connect_string}/our-short-lived", stores, **settings) as found:
        yield found


@pytest.fixture
def stored(short_lived, topic):
    """How many records there are of the topic, that is made."""
    with Admin(short_lived.client("PLAINTEXT")) as admin:
        admin.create_topics([NewTopic(topic, 1)])
    tp = TopicPartition(topic, 0)
    with ClusterMetadata(ClientConfig.from_properties(short_lived.client("PLAINTEXT"))) as cluster:
        yield lambda: latest_offsets(cluster, [tp])[tp]


@pytest.fixture
def none_expired(short_lived):
    """Says whether the broker has closed no connection in this test for want of an authentication."""
    before = short_lived.broker.output().count(EXPIRED)
    return lambda: short_lived.broker.output().count(EXPIRED) == before


def test_a_client_that_does_not_is_served_no_more(short_lived, none_expired, monkeypatch):
    """So the broker says it where it closes a connection."""
    monkeypatch.setattr(BlockingConnection, "_log_in_again", lambda _: None)
    config = ClientConfig.from_properties(short_lived.with_password("SASL_PLAINTEXT", "PLAIN"))
    with ClusterMetadata(config) as cluster, cluster.pool.borrow(config.bootstrap[0]) as connection:
        wire.metadata(connection)
        time.sleep(LASTS_S + 1)
        with pytest.raises(ConnectionFailed):
            wire.metadata(connection)
    assert not none_expired()


@pytest.mark.parametrize(("listener", "mechanism"), WAYS)
def test_java(short_lived, stored, none_expired, topic, listener, mechanism, tmp_path):
    file = secured.write_properties(tmp_path / "client", short_lived.with_password(listener, mechanism))
    pace = ("--throughput", str(A_SECOND), "--num-records", str(COUNT), "--record-size", "100")
    told = run_kafka_tool(PERFORMANCE, "--topic", topic, *pace, "--producer.config", file)
    assert f"{COUNT} records sent" in told
    assert stored() == COUNT
    assert none_expired()


@pytest.mark.parametrize(("listener", "mechanism"), WAYS)
def test_librdkafka(short_lived, stored, none_expired, topic, listener, mechanism):
    login = {"sasl.username": "alice", "sasl.password": secured.PASSWORDS["alice"], "sasl.mechanism": mechanism}
    errors = []
    settings = of_librdkafka(short_lived, listener, **login, error_cb=errors.append)
    producer = Producer(settings)
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found, sent, end = [], 0, time.monotonic() + RUNS_S
    while time.monotonic() < end:
        producer.produce(topic, b"%d" % sent, partition=0)
        sent += 1
        producer.poll(0)
        found.extend(each.value() for each in consumer.consume(10, 1 / A_SECOND))
    assert producer.flush(60) == 0
    eventually(lambda: found.extend(each.value() for each in consumer.consume(10, 0.1)) or len(found) >= sent)
    consumer.close()
    assert found == [b"%d" % number for number in range(sent)]
    assert errors == []
    assert stored() == sent
    assert none_expired()
