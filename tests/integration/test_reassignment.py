"""Replicas that move from broker to broker, under clients that write and read."""

import json
import threading

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from integration.replicated import NOTICED_S, read_all
from kazoo.client import KazooClient

from sparklog.client.admin.admin import Admin
from sparklog.errors import ApiError, ErrorCode
from sparklog.structs import TopicPartition
from sparklog.testing.cluster import ClusterHarness
from sparklog.testing.eventually import eventually
from sparklog.zk.znodes import encode_reassignments

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def quartet(tmp_path_factory):
    settings = {"replica.lag.time.max.ms": 3000, "replication.quota.window.num": 1000}  # no pause ends by itself
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


def test_more_replicas_and_fewer(quartet, admin):
    tp = make_topic(quartet, admin, "sized", [0])
    with Writer(quartet, tp.topic) as writer:
        move(admin, tp, [0, 1, 2])
        await_end(admin, tp, [0, 1, 2])
        move(admin, tp, [2])
        assert await_end(admin, tp, [2]).leader == 2
        before = len(writer.acknowledged)
        eventually(lambda: len(writer.acknowledged) > before, NOTICED_S, "the only one takes records")
    assert not writer.failures
    assert read_all(quartet, tp.topic, len(writer.acknowledged)) == writer.acknowledged
    eventually(lambda: holders(quartet, tp) == {2}, NOTICED_S, "the other replicas' files are gone")


THROTTLED = {"leader.replication.throttled.replicas": "*", "follower.replication.throttled.replicas": "*"}
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")


@pytest.fixture
def slowly(quartet, admin):
    """Next to nothing is copied of throttled replicas that are not in sync."""
    for broker in range(4):
        admin.alter_broker_configs(broker, dict.fromkeys(RATES, "1"))
    yield
    for broker in range(4):
        admin.alter_broker_configs(broker, dict.fromkeys(RATES))


def fill(quartet, topic):
    """With more than one fetch brings."""
    producer = Producer({"bootstrap.servers": quartet.bootstrap_servers, "log_level": 0, "linger.ms": 2})
    for _ in range(40):
        producer.produce(topic, bytes(100_000))
        producer.poll(0)
    assert producer.flush(60) == 0


def begin_slowly(quartet, admin, name):
    """A move that is under way until the throttle is taken away."""
    tp = make_topic(quartet, admin, name, [0, 1])
    fill(quartet, name)
    admin.alter_topic_configs(name, THROTTLED)
    move(admin, tp, [2, 3])
    eventually(lambda: holders(quartet, tp) == {0, 1, 2, 3}, NOTICED_S, "the new replicas are made")
    found = admin.list_partition_reassignments()[tp]
    assert found == ((2, 3, 0, 1), (2, 3), (0, 1))
    return tp


def test_a_move_that_is_given_up_leaves_all_as_it_was(quartet, admin, slowly):
    tp = begin_slowly(quartet, admin, "given-up")
    with pytest.raises(ApiError) as refused:
        admin.create_partitions({tp.topic: 3})
    assert refused.value.code is ErrorCode.REASSIGNMENT_IN_PROGRESS
    move(admin, tp, None)
    await_end(admin, tp, [0, 1])
    eventually(lambda: holders(quartet, tp) == {0, 1}, NOTICED_S, "what was copied is gone")
    (again,) = admin.alter_partition_reassignments({tp: None}).values()
    assert again.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_a_throttled_move_goes_on_when_the_throttle_is_taken_away(quartet, admin, slowly):
    tp = begin_slowly(quartet, admin, "throttled")
    assert set(described(admin, tp.topic).isr) == {0, 1}
    admin.alter_topic_configs(tp.topic, dict.fromkeys(THROTTLED))
    await_end(admin, tp, [2, 3])
    assert len(read_all(quartet, tp.topic, 40)) == 40


def test_a_move_outlives_the_controller_and_a_broker_of_the_target(quartet, admin, slowly):
    tp = begin_slowly(quartet, admin, "outlives")
    controller = admin.describe_cluster().controller
    for broker in {int(controller), 3}:
        quartet.kill_broker(broker)
    eventually(lambda: admin.describe_cluster().controller not in (controller, -1), NOTICED_S, "another controls")
    for broker in {int(controller), 3}:
        quartet.start_broker(broker)
    assert admin.list_partition_reassignments([tp])[tp].removing == (0, 1)
    admin.alter_topic_configs(tp.topic, dict.fromkeys(THROTTLED))
    await_end(admin, tp, [2, 3])
    assert len(read_all(quartet, tp.topic, 40)) == 40


def test_a_topic_is_deleted_while_it_moves(quartet, admin, slowly):
    tp = begin_slowly(quartet, admin, "deleted")
    admin.delete_topics([tp.topic])
    eventually(lambda: holders(quartet, tp) == set(), NOTICED_S, "no file is left")
    assert not admin.list_partition_reassignments()


@pytest.fixture
def zookeeper(quartet):
    client = KazooClient(quartet.zookeeper.connect_string)
    client.start()
    yield client
    client.stop()
    client.close()


def test_what_stands_in_zookeeper_is_taken_over_and_removed(quartet, admin, zookeeper):
    tp = make_topic(quartet, admin, "asked", [0, 1])
    path = "/admin/reassign_partitions"
    gone = TopicPartition("not-there", 0)
    zookeeper.create(path, encode_reassignments({tp: (3, 1), gone: (1,)}))
    eventually(lambda: zookeeper.exists(path) is None, NOTICED_S, "what is asked for is done")
    await_end(admin, tp, [3, 1])
    found = json.loads(zookeeper.get("/brokers/topics/asked")[0])
    assert (found["partitions"], found["adding_replicas"], found["removing_replicas"]) == ({"0": [3, 1]}, {}, {})


def test_a_client_comes_before_what_stands_in_zookeeper(quartet, admin, zookeeper, slowly):
    tp = make_topic(quartet, admin, "twice", [0, 1])
    fill(quartet, tp.topic)
    admin.alter_topic_configs(tp.topic, THROTTLED)
    path = "/admin/reassign_partitions"
    zookeeper.create(path, encode_reassignments({tp: (2, 3)}))
    eventually(lambda: admin.list_partition_reassignments([tp]), NOTICED_S, "it is taken over")
    assert zookeeper.exists(path) is not None, "until it is done"
    move(admin, tp, None)
    assert zookeeper.exists(path) is None
    await_end(admin, tp, [0, 1])
