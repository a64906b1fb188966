"""Replicas that move from broker to broker, under clients that write and read."""

import threading

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient, NewTopic

from sparklog.client.admin.admin import Admin
from sparklog.structs import TopicPartition
from sparklog.testing.cluster import ClusterHarness
from sparklog.testing.eventually import eventually

pytestmark = pytest.mark.integration

NOTICED_S = 60.0


@pytest.fixture(scope="module")
def quartet(tmp_path_factory):
    settings = {"replica.lag.time.max.ms": 3000}
    with ClusterHarness(tmp_path_factory.mktemp("moved"), brokers=4, settings=settings) as harness:
        yield harness


@pytest.fixture(autouse=True)
def _whole_again(quartet):
    yield
    for broker in quartet.brokers:
        if not broker.alive:
            broker.start()


@pytest.fixture
def admin(quartet):
    with Admin({"bootstrap.servers": quartet.bootstrap_servers}) as admin:
        yield admin


def make_topic(quartet, admin, name, assignment, **config):
    """A topic of one partition on these brokers."""
    client = AdminClient({"bootstrap.servers": quartet.bootstrap_servers, "log_level": 0})
    client.create_topics([NewTopic(name, 1, len(assignment), config=config)])[name].result(60)
    tp = TopicPartition(name, 0)
    move(admin, tp, assignment)
    await_end(admin, tp, assignment)
    return tp


def described(admin, name):
    return admin.describe_topics([name])[name].partitions[0]


def move(admin, tp, replicas):
    assert admin.alter_partition_reassignments({tp: replicas}) == {tp: None}


def await_end(admin, tp, replicas):
    eventually(lambda: not admin.list_partition_reassignments([tp]), NOTICED_S, f"{tp} has moved")
    found = eventually(
        lambda: tuple(described(admin, tp.topic).replicas) == tuple(replicas) and described(admin, tp.topic),
        NOTICED_S,
        "clients know",
    )
    eventually(lambda: set(described(admin, tp.topic).isr) == set(replicas), NOTICED_S, "all are in sync")
    return found


def holders(quartet, tp):
    """The brokers with files of the partition."""
    return {
        number
        for number, broker in enumerate(quartet.brokers)
        if any(path.is_dir() for path in broker.spec.data_dir.glob(f"{tp.topic}-{tp.partition}"))
    }


def read_all(quartet, topic, count):
    common = {"bootstrap.servers": quartet.bootstrap_servers, "group.id": "reader", "log_level": 0}
    consumer = Consumer(common | {"enable.auto.commit": False})  # or closing waits for a coordinator
    consumer.assign([Position(topic, 0, 0)])
    values = []
    try:
        eventually(lambda: len(_poll(consumer, values)) >= count, NOTICED_S, f"{count} records")
    finally:
        consumer.close()
    return values


def _poll(consumer, values):
    for message in consumer.consume(500, 0.2):
        assert message.error() is None
        values.append(message.value())
    return values


class Writer:
    """Writes all the time, with acks=all; knows what was acknowledged."""

    def __init__(self, quartet, topic):
        self._producer = Producer(
            {
                "bootstrap.servers": quartet.bootstrap_servers,
                "enable.idempotence": True,
                "log_level": 0,
                "linger.ms": 2,
            }
        )
        self._topic = topic
        self.acknowledged = []
        self.failures = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        number = 0
        while not self._over.is_set():
            value = b"%d" % number
            self._producer.produce(
                self._topic, value, on_delivery=lambda error, message: self._told(error, message.value())
            )
            number += 1
            self._producer.poll(0.002)

    def _told(self, error, value):
        (self.failures if error else self.acknowledged).append(value)

    def __enter__(self):
        self._thread.start()
        eventually(lambda: len(self.acknowledged) >= 50, NOTICED_S, "something is written")
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()
        assert self._producer.flush(60) == 0


def test_a_partition_moves_whole_under_a_writer(quartet, admin):
    tp = make_topic(quartet, admin, "moved", [0, 1], **{"min.insync.replicas": "2"})
    with Writer(quartet, tp.topic) as writer:
        move(admin, tp, [3, 2])
        found = await_end(admin, tp, [3, 2])
        before = len(writer.acknowledged)
        eventually(lambda: len(writer.acknowledged) > before + 50, NOTICED_S, "the new leader takes records")
    assert found.leader in (2, 3)
    assert not writer.failures
    assert read_all(quartet, tp.topic, len(writer.acknowledged)) == writer.acknowledged
    eventually(lambda: holders(quartet, tp) == {2, 3}, NOTICED_S, "the old replicas' files are gone")
