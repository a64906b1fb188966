"""Two brokers on three ZooKeepers: what goes on when one is killed, and what waits when two are."""

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Position

from sparklog.client.admin.admin import Admin, NewTopic
from sparklog.testing.cluster import ClusterHarness
from sparklog.testing.eventually import eventually
from sparklog.zk.client import ZkClient

pytestmark = pytest.mark.integration

NOTICED_S = 120.0
"""Members elect a leader, and brokers find it, within this time, however busy the machine is."""


@pytest.fixture(scope="module")
def six(tmp_path_factory):
    # Sessions that last: a broker is to lose its own neither to a member's death nor to a busy machine.
    settings = {"replica.lag.time.max.ms": 2000, "zookeeper.session.timeout.ms": 30_000}
    directory = tmp_path_factory.mktemp("ensemble")
    with ClusterHarness(directory, brokers=2, settings=settings, zookeepers=3) as harness:
        yield harness


def epochs(six):
    """Each broker's epoch: it is another when the broker has registered again."""
    client = ZkClient(six.zookeeper_connect, session_timeout=30.0, connect_timeout=60.0, on_session=lambda _: None)
    try:
        return {broker: info.epoch for broker, info in client.lasting(client.brokers.live).items()}
    finally:
        client.close()


def make_topic(six, name, leader):
    """A topic of one partition with two replicas that ``leader`` leads."""
    with Admin(bootstrap_servers=six.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(name, 2, 2)])
        eventually(lambda: len(admin.describe_topics([name])[name].partitions[0].isr) == 2, NOTICED_S)
        partitions = admin.describe_topics([name])[name].partitions
        return next(each.partition for each in partitions if each.leader == leader)


class Sender:
    """An idempotent producer that counts up in one partition."""

    def __init__(self, six, topic, partition):
        self._topic, self._partition, self._count = topic, partition, 0
        self.failures = []
        common = {"bootstrap.servers": six.bootstrap_servers, "log_level": 0, "linger.ms": 5}
        self._producer = Producer(common | {"enable.idempotence": True, "message.timeout.ms": 300_000})

    def send(self, count):
        for _ in range(count):
            self._producer.produce(
                self._topic, b"%d" % self._count, partition=self._partition,
                on_delivery=lambda error, _: self.failures.append(error) if error else None,
            )  # fmt: skip
            self._count += 1
        self._producer.poll(0)

    def flush(self, seconds):
        """How many are still not acknowledged."""
        return self._producer.flush(seconds)

    def sent(self):
        return [b"%d" % number for number in range(self._count)]


def read(six, topic, partition, count):
    consumer = Consumer({"bootstrap.servers": six.bootstrap_servers, "group.id": "r", "enable.auto.commit": False})
    consumer.assign([Position(topic, partition, 0)])
    values = []

    def poll():
        values.extend(message.value() for message in consumer.consume(500, 0.2))
        return len(values) >= count

    try:
        eventually(poll, NOTICED_S, f"{count} records")
    finally:
        consumer.close()
    return values


def test_each_member_may_be_killed_in_turn(six, topic):
    """Whichever a broker is connected to, and whichever leads: sessions go on at another, and nothing is lost."""
    before = epochs(six)
    partition = make_topic(six, topic, 0)
    sender = Sender(six, topic, partition)
    for number, member in enumerate(six.zookeepers):
        sender.send(100)
        member.kill()
        sender.send(100)
        make_topic(six, f"{topic}-{number}", 0)  # it takes a controller, and a majority
        assert sender.flush(60) == 0
        member.start()
        assert epochs(six) == before
    assert not sender.failures
    assert read(six, topic, partition, len(sender.sent())) == sender.sent()


def test_without_a_majority_nothing_is_acknowledged_that_another_leader_would_not_have(six, topic):
    before = epochs(six)
    with Admin(bootstrap_servers=six.bootstrap_servers) as admin:
        leader = admin.describe_cluster().controller
    follower = 1 - leader
    partition = make_topic(six, topic, leader)
    sender = Sender(six, topic, partition)
    sender.send(100)
    assert sender.flush(60) == 0
    for member in six.zookeepers[1:]:
        member.kill()
    six.kill_broker(follower)
    sender.send(100)
    assert sender.flush(4) == 100, "the follower is in sync, for all that ZooKeeper knows"
    for member in six.zookeepers[1:]:
        member.spawn()
    for member in six.zookeepers:
        member.wait_until_ready()
    assert sender.flush(NOTICED_S) == 0, "the follower is taken out of the ISR"
    assert not sender.failures
    six.start_broker(follower)
    assert epochs(six)[leader] == before[leader], "its session went on"
    assert read(six, topic, partition, 200) == sender.sent()
