"""Three brokers in three racks: consumers read from the replica beside them, and see what the leader shows."""

import time

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient, NewTopic
from integration import wire

from sparklog.client.admin.admin import Admin
from sparklog.client.consumer.consumer import Consumer as OwnConsumer
from sparklog.config.broker import RACK_AWARE_SELECTOR
from sparklog.errors import ErrorCode
from sparklog.structs import IsolationLevel, TopicPartition
from sparklog.testing.cluster import ClusterHarness
from sparklog.testing.eventually import eventually

pytestmark = pytest.mark.integration

NOTICED_S = 60.0
LONG_POLL_S = 10.0
RACKS = ("r0", "r1", "r2")
COUNT = 100


@pytest.fixture(scope="module")
def trio(tmp_path_factory):
    settings = {
        "replica.fetch.wait.max.ms": int(LONG_POLL_S * 1000),
        "replica.lag.time.max.ms": int(LONG_POLL_S * 2000),
        "replica.selector.class": RACK_AWARE_SELECTOR,
    }
    with ClusterHarness(tmp_path_factory.mktemp("near"), brokers=3, settings=settings, racks=RACKS) as harness:
        yield harness


def described(trio, topic):
    with Admin({"bootstrap.servers": trio.bootstrap_servers}) as admin:
        return admin.describe_topics([topic])[topic].partitions[0]


@pytest.fixture
def made(trio, topic):
    """A topic whose replicas are all in sync, with records; its name."""
    admin = AdminClient({"bootstrap.servers": trio.bootstrap_servers, "log_level": 0})
    admin.create_topics([NewTopic(topic, 1, 3)])[topic].result(60)
    eventually(lambda: set(described(trio, topic).isr) == {0, 1, 2}, NOTICED_S, "all replicas are in sync")
    send(trio, topic, numbered(0, COUNT))
    return topic


def numbered(start, end):
    return [b"%d" % number for number in range(start, end)]


def send(trio, topic, values):
    producer = Producer({"bootstrap.servers": trio.bootstrap_servers, "acks": "all", "log_level": 0, "linger.ms": 0})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(60) == 0


def transaction(trio, topic, values, name):
    """A producer that has sent these in a transaction, which is open yet."""
    producer = Producer({"bootstrap.servers": trio.bootstrap_servers, "transactional.id": name, "log_level": 0})
    producer.init_transactions(60)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value)
    producer.flush(60)
    return producer


def follower_of(trio, topic):
    leader = described(trio, topic).leader
    return next(number for number in range(3) if number != leader)


class Connections:
    """To the leader of a topic, and to a follower."""

    def __init__(self, trio, topic):
        self.follower_id = follower_of(trio, topic)
        self.leader = wire.connect(trio.broker(described(trio, topic).leader).address)
        self.follower = wire.connect(trio.broker(self.follower_id).address)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.leader.close()
        self.follower.close()


def follower_shows(connections, tp, end, **how):
    """Wait until the follower shows all below ``end``."""

    def shows():
        return wire.fetch(connections.follower, tp, 0, max_wait_ms=0, **how).high_watermark >= end

    eventually(shows, NOTICED_S, f"the follower shows {end} offsets")


def test_a_leader_names_the_follower_in_the_rack_and_that_one_serves(trio, made):
    tp = TopicPartition(made, 0)
    with Connections(trio, made) as connections:
        named = wire.fetch(connections.leader, tp, 0, rack_id=RACKS[connections.follower_id])
        assert (named.preferred_read_replica, named.records) == (connections.follower_id, [])
        assert named.high_watermark == COUNT
        follower_shows(connections, tp, COUNT)
        served = wire.fetch(connections.follower, tp, 0, rack_id=RACKS[connections.follower_id])
        assert wire.values_in(served) == numbered(0, COUNT)
        assert wire.fetch(connections.follower, tp, COUNT + 1).error is ErrorCode.OFFSET_OUT_OF_RANGE
        old = wire.fetch(connections.follower, tp, 0, version=10)
        assert old.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert wire.list_offset(connections.follower, tp, -1)[0] is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_follower_shows_a_record_soon_after_it_is_acknowledged(trio, made):
    """Each round waits for the record at the follower, whose leader has nothing more to send that could tell it so.
    Without being told at once each would take as long as a follower's long poll.
    """
    tp, rounds = TopicPartition(made, 0), 5
    with Connections(trio, made) as connections, wire.connect(trio.broker(described(trio, made).leader).address) as own:
        follower_shows(connections, tp, COUNT)
        took = []
        for number in range(rounds):
            wire.send_fetch(connections.follower, {tp: COUNT + number}, max_wait_ms=30_000)
            begun = time.monotonic()
            assert wire.produce(own, tp, wire.batch_of(b"late"))[0] is ErrorCode.NONE
            found = wire.receive_fetch(connections.follower)[tp]
            took.append(time.monotonic() - begun)
            assert wire.offsets_in(found) == [COUNT + number]
        assert sorted(took)[rounds // 2] < LONG_POLL_S / 2, took


def test_transactions_are_at_a_follower_what_they_are_at_the_leader(trio, made):
    tp, committed = TopicPartition(made, 0), {"isolation": IsolationLevel.READ_COMMITTED}
    transaction(trio, made, [b"gone"] * 3, f"{made}-1").abort_transaction(60)
    transaction(trio, made, [b"kept"] * 2, f"{made}-2").commit_transaction(60)
    still_open = transaction(trio, made, [b"open"], f"{made}-3")
    with Connections(trio, made) as connections:
        end = wire.fetch(connections.leader, tp, 0).high_watermark
        follower_shows(connections, tp, end)
        both = [wire.fetch(each, tp, 0, **committed) for each in (connections.leader, connections.follower)]
        assert both[0].aborted
        assert both[0].aborted == both[1].aborted
        assert both[0].last_stable_offset == both[1].last_stable_offset == end - 1
        assert wire.offsets_in(both[0]) == wire.offsets_in(both[1])
        assert own_values(trio, made, COUNT + 2, rack=RACKS[connections.follower_id], isolation="read_committed") == [
            *numbered(0, COUNT),
            b"kept",
            b"kept",
        ]
        still_open.commit_transaction(60)
        follower_shows(connections, tp, end + 1, **committed)


def own_values(trio, topic, count, *, rack, isolation="read_uncommitted"):
    settings = {"bootstrap.servers": trio.bootstrap_servers, "client.rack": rack, "isolation.level": isolation}
    values = []
    with OwnConsumer(settings) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek(TopicPartition(topic, 0), 0)

        def have():
            values.extend(each.value for each in consumer.poll(0.5))
            return len(values) >= count

        eventually(have, NOTICED_S, f"{count} records")
    return values


class Lines:
    """A logger that keeps what librdkafka says of replicas."""

    def __init__(self):
        self.found = []

    def log(self, _level, text, *arguments):
        line = text % arguments if arguments else text
        if "preferred replica" in line.lower():
            self.found.append(line)


def test_librdkafka_reads_from_the_replica_in_its_rack(trio, made):
    follower, lines, values = follower_of(trio, made), Lines(), []
    settings = {"bootstrap.servers": trio.bootstrap_servers, "group.id": made, "client.rack": RACKS[follower]}
    consumer = Consumer(settings | {"enable.auto.commit": False, "debug": "fetch", "log_level": 7}, logger=lines)
    consumer.assign([Position(made, 0, 0)])

    def have():
        values.extend(each.value() for each in consumer.consume(500, 0.2) if each.error() is None)
        return len(values) >= COUNT

    try:
        eventually(have, NOTICED_S, f"{COUNT} records")
    finally:
        consumer.close()
    assert values == numbered(0, COUNT)
    assert any(f" to {follower} (leader" in line for line in lines.found), lines.found


@pytest.mark.slow
def test_our_consumer_reads_on_when_its_replica_dies_and_when_the_leader_does(trio, made):
    follower, leader = follower_of(trio, made), described(trio, made).leader
    settings = {"bootstrap.servers": trio.bootstrap_servers, "client.rack": RACKS[follower]}
    with OwnConsumer(settings) as consumer:
        consumer.assign([TopicPartition(made, 0)])
        consumer.seek(TopicPartition(made, 0), 0)
        values = []

        def have(count):
            values.extend(each.value for each in consumer.poll(0.5))
            return len(values) >= count

        eventually(lambda: have(COUNT), NOTICED_S, "what is there")
        trio.kill_broker(follower)
        send(trio, made, numbered(COUNT, 2 * COUNT))
        eventually(lambda: have(2 * COUNT), NOTICED_S, "what came after the follower's death")
        trio.start_broker(follower)
        eventually(lambda: set(described(trio, made).isr) == {0, 1, 2}, NOTICED_S, "it is back in sync")
        trio.kill_broker(leader)
        send(trio, made, numbered(2 * COUNT, 3 * COUNT))
        eventually(lambda: have(3 * COUNT), NOTICED_S, "what came after the leader's death")
    trio.start_broker(leader)
    assert values == numbered(0, 3 * COUNT)
