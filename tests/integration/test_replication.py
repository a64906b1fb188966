"""Three brokers with three replicas each: what is acknowledged outlives the brokers that acknowledged it."""

import pytest
from confluent_kafka import ElectionType, Producer
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from integration.replicated import NOTICED_S, read_all

from sparklog.client.admin.admin import Admin
from sparklog.client.cluster.offsets import EARLIEST
from sparklog.structs import TopicPartition
from sparklog.testing.cluster import ClusterHarness
from sparklog.testing.eventually import eventually

pytestmark = pytest.mark.integration
UNCLEAN = "unclean.leader.election.enable"


@pytest.fixture(scope="module")
def trio(tmp_path_factory):
    settings = {"replica.lag.time.max.ms": 3000}
    with ClusterHarness(tmp_path_factory.mktemp("replicated"), brokers=3, settings=settings) as harness:
        yield harness


@pytest.fixture(autouse=True)
def _whole_again(trio):
    yield
    for broker in trio.brokers:
        if not broker.alive:
            broker.start()


def make_topic(trio, name, partitions=1, **config):
    admin = AdminClient({"bootstrap.servers": trio.bootstrap_servers, "log_level": 0})
    admin.create_topics([NewTopic(name, partitions, 3, config=config)])[name].result(60)
    eventually(lambda: in_sync(trio, name) == {0, 1, 2}, NOTICED_S, "all replicas are in sync")


def described(trio, name, number=0):
    with Admin({"bootstrap.servers": trio.bootstrap_servers}) as admin:
        return admin.describe_topics([name])[name].partitions[number]


def in_sync(trio, name):
    return set(described(trio, name).isr)


def send(trio, topic, values, **config):
    failures = []
    producer = Producer(
        {"bootstrap.servers": trio.bootstrap_servers, "acks": "all", "log_level": 0, "linger.ms": 1, **config}
    )
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(60) == 0
    assert not failures


def numbered(start, end):
    return [b"%d" % number for number in range(start, end)]


def test_what_is_acknowledged_is_with_the_next_leader(trio):
    make_topic(trio, "outlives", **{"min.insync.replicas": "2"})
    send(trio, "outlives", numbered(0, 500))
    first = described(trio, "outlives").leader
    trio.kill_broker(first)
    eventually(lambda: described(trio, "outlives").leader not in (first, -1), NOTICED_S, "another leads")
    send(trio, "outlives", numbered(500, 1_000))
    assert read_all(trio, "outlives", 1_000) == numbered(0, 1_000)
    trio.start_broker(first)
    eventually(lambda: in_sync(trio, "outlives") == {0, 1, 2}, NOTICED_S, "the broker is back in sync")


def test_what_was_deleted_does_not_come_back_with_the_next_leader(trio):
    make_topic(trio, "deleted", **{"min.insync.replicas": "2"})
    send(trio, "deleted", numbered(0, 20))
    first = described(trio, "deleted").leader
    tp = TopicPartition("deleted", 0)
    with Admin({"bootstrap.servers": trio.bootstrap_servers}) as admin:
        assert admin.delete_records({tp: 15}) == {tp: 15}
    trio.kill_broker(first)
    eventually(lambda: described(trio, "deleted").leader not in (first, -1), NOTICED_S, "another leads")
    with Admin({"bootstrap.servers": trio.bootstrap_servers}) as admin:
        (begins,) = admin.list_offsets({tp: EARLIEST}).values()
    assert begins.offset == 15


def test_a_broker_that_stops_hands_over_first(trio):
    """No partition is without a leader when it has gone; a session need not time out for that."""
    make_topic(trio, "handed", partitions=6)
    first = trio.brokers[0]
    led = [each.partition for each in described_all(trio, "handed") if each.leader == 0]
    assert led, "broker 0 leads some"
    trio.stop_broker(0)
    try:
        for each in described_all(trio, "handed"):
            assert each.leader not in (0, -1)
            assert each.isr
    finally:
        first.start()
    eventually(lambda: all(len(each.isr) == 3 for each in described_all(trio, "handed")), NOTICED_S, "it is back")


def described_all(trio, name):
    with Admin({"bootstrap.servers": trio.bootstrap_servers}) as admin:
        return admin.describe_topics([name])[name].partitions


def test_a_rolling_restart_loses_and_doubles_nothing(trio):
    make_topic(trio, "rolled", **{"min.insync.replicas": "2"})
    failures, count = [], 0
    producer = Producer(
        {"bootstrap.servers": trio.bootstrap_servers, "enable.idempotence": True, "log_level": 0, "linger.ms": 5}
    )
    for broker in trio.brokers:
        for stop in (True, False):
            for _ in range(200):
                producer.produce("rolled", b"%d" % count, on_delivery=lambda e, _: failures.append(e) if e else None)
                count += 1
            producer.poll(0)
            if stop:
                broker.stop()
            else:
                broker.start()
                eventually(lambda: in_sync(trio, "rolled") == {0, 1, 2}, NOTICED_S, "all replicas are in sync")
    assert producer.flush(60) == 0
    assert not failures
    assert read_all(trio, "rolled", count) == numbered(0, count)


def test_a_lone_replica_takes_no_records_that_two_are_to_have(trio):
    make_topic(trio, "lone", **{"min.insync.replicas": "2"})
    send(trio, "lone", numbered(0, 10))
    leader = described(trio, "lone").leader
    for other in {0, 1, 2} - {leader}:
        trio.kill_broker(other)
    eventually(lambda: in_sync(trio, "lone") == {leader}, NOTICED_S, "the leader is alone")
    producer = Producer({"bootstrap.servers": trio.broker(leader).address, "message.timeout.ms": 3000, "log_level": 0})
    errors = []
    producer.produce("lone", b"refused", on_delivery=lambda error, _: errors.append(error))
    producer.flush(30)
    assert [error is not None for error in errors] == [True]
    for broker in trio.brokers:
        if not broker.alive:
            broker.start()
    eventually(lambda: in_sync(trio, "lone") == {0, 1, 2}, NOTICED_S, "all replicas are in sync")
    send(trio, "lone", numbered(10, 20))
    assert read_all(trio, "lone", 20)[:20] == numbered(0, 20)


def allow_unclean(trio, name):
    admin = AdminClient({"bootstrap.servers": trio.bootstrap_servers, "log_level": 0})
    entry = ConfigEntry(UNCLEAN, "true", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=[entry])
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(60)


@pytest.mark.parametrize("wanted", ["never", "always", pytest.param("in the end", marks=pytest.mark.slow)])
def test_a_replica_out_of_sync_leads_only_where_the_topic_wants_it(trio, wanted):
    name = f"unclean-{wanted.replace(' ', '-')}"
    make_topic(trio, name, **{UNCLEAN: str(wanted == "always").lower()})
    send(trio, name, numbered(0, 5))
    leader = described(trio, name).leader
    others = {0, 1, 2} - {leader}
    for other in others:
        trio.kill_broker(other)
    eventually(lambda: in_sync(trio, name) == {leader}, NOTICED_S, "the leader is alone")
    send(trio, name, [b"with the leader alone"])
    trio.kill_broker(leader)
    for other in others:
        trio.start_broker(other)
    if wanted == "in the end":
        eventually(lambda: described(trio, name).leader == -1, NOTICED_S, "nobody leads")
        allow_unclean(trio, name)
    if wanted != "never":
        eventually(lambda: described(trio, name).leader in others, NOTICED_S, "a replica leads that lacks a record")
        assert read_all(trio, name, 5) == numbered(0, 5)
        trio.start_broker(leader)
    else:
        eventually(lambda: described(trio, name).leader == -1, NOTICED_S, "nobody leads")
        trio.start_broker(leader)
        eventually(lambda: described(trio, name).leader == leader, NOTICED_S, "who has everything leads again")
        assert read_all(trio, name, 6) == [*numbered(0, 5), b"with the leader alone"]
    eventually(lambda: in_sync(trio, name) == {0, 1, 2}, NOTICED_S, "all replicas are in sync")


def test_an_operator_may_have_a_replica_out_of_sync_lead(trio):
    make_topic(trio, "forced")
    leader = described(trio, "forced").leader
    others = {0, 1, 2} - {leader}
    for other in others:
        trio.kill_broker(other)
    eventually(lambda: in_sync(trio, "forced") == {leader}, NOTICED_S, "the leader is alone")
    trio.kill_broker(leader)
    for other in others:
        trio.start_broker(other)
    eventually(lambda: described(trio, "forced").leader == -1, NOTICED_S, "nobody leads")
    admin = AdminClient({"bootstrap.servers": trio.bootstrap_servers, "log_level": 0})
    elected = admin.elect_leaders(ElectionType.UNCLEAN, [Position("forced", 0)]).result(60)
    assert [error is None for error in elected.values()] == [True]
    eventually(lambda: described(trio, "forced").leader in others, NOTICED_S, "a replica leads")


def test_the_first_replica_is_given_back_what_it_is_to_lead(trio):
    make_topic(trio, "preferred", partitions=3)
    trio.stop_broker(1)
    trio.start_broker(1)
    eventually(lambda: all(len(each.isr) == 3 for each in described_all(trio, "preferred")), NOTICED_S, "it is back")
    moved = [each for each in described_all(trio, "preferred") if each.leader != each.replicas[0]]
    assert [each.replicas[0] for each in moved] == [1]
    admin = AdminClient({"bootstrap.servers": trio.bootstrap_servers, "log_level": 0})
    elected = admin.elect_leaders(ElectionType.PREFERRED, [Position("preferred", moved[0].partition)]).result(60)
    assert [error is None for error in elected.values()] == [True]
    eventually(lambda: described(trio, "preferred", moved[0].partition).leader == 1, NOTICED_S, "broker 1 leads")
