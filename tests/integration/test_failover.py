"""A broker that is gone is missed at once; one that is merely silent keeps its session's time.

The sessions are far longer than a test waits, so that no test can pass by the end of one.
"""

import os
import signal
from contextlib import ExitStack
from types import SimpleNamespace

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from integration import wire
from integration.proxy import Proxy

from sparklog.client.admin.admin import Admin
from sparklog.errors import ErrorCode
from sparklog.local.ports import free_port
from sparklog.net.vigil import Sight
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import ElectLeadersRequest, ProbeBrokerRequest
from sparklog.structs import TopicPartition
from sparklog.testing.broker import BrokerHarness
from sparklog.testing.cluster import ClusterHarness
from sparklog.testing.eventually import eventually

pytestmark = pytest.mark.integration

NOTICED_S = 60.0
SETTINGS: dict[str, object] = {"zookeeper.session.timeout.ms": 600_000, "replica.lag.time.max.ms": 600_000}
"""Nothing but its address tells of a dead broker: no session ends, and no follower lags for too long."""


@pytest.fixture(scope="module")
def trio(tmp_path_factory):
    class LongSessions(ClusterHarness):
        tick_time_ms = 60_000

    with LongSessions(tmp_path_factory.mktemp("failover"), brokers=3, settings=SETTINGS) as harness:
        yield harness


@pytest.fixture(autouse=True)
def _whole_again(request):
    yield
    harness = request.getfixturevalue("trio")
    for broker in harness.brokers:
        if not broker.alive:
            broker.start()


def make_topic(harness, name, partitions=3, replicas=3, **config):
    admin = AdminClient({"bootstrap.servers": harness.bootstrap_servers, "log_level": 0})
    admin.create_topics([NewTopic(name, partitions, replicas, config=config)])[name].result(60)
    eventually(lambda: all(len(each.isr) == replicas for each in described(harness, name)), NOTICED_S, "all in sync")


def described(harness, name):
    with Admin({"bootstrap.servers": harness.bootstrap_servers}) as admin:
        return admin.describe_topics([name])[name].partitions


def send(harness, topic, values):
    failures = []
    producer = Producer({"bootstrap.servers": harness.bootstrap_servers, "acks": "all", "log_level": 0})
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(60) == 0
    assert not failures


def controller_of(harness):
    with Admin({"bootstrap.servers": harness.bootstrap_servers}) as admin:
        return admin.describe_cluster().controller


def test_a_killed_leader_is_missed_at_once(trio):
    make_topic(trio, "killed", **{"min.insync.replicas": "2"})
    victim = next(id_ for id_ in (0, 1, 2) if id_ != controller_of(trio))
    trio.kill_broker(victim)
    others_lead(trio, "killed", victim)
    send(trio, "killed", [b"after"] * 9)
    trio.start_broker(victim)
    eventually(lambda: all(len(each.isr) == 3 for each in described(trio, "killed")), NOTICED_S, "it is back")


def test_a_killed_controller_is_missed_at_once(trio):
    make_topic(trio, "office", **{"min.insync.replicas": "2"})
    victim = controller_of(trio)
    trio.kill_broker(victim)
    eventually(lambda: controller_of(trio) not in (victim, -1), NOTICED_S, "there is another controller")
    others_lead(trio, "office", victim)
    send(trio, "office", [b"after"] * 9)
    trio.start_broker(victim)
    eventually(lambda: all(len(each.isr) == 3 for each in described(trio, "office")), NOTICED_S, "it is back")


def test_a_stopped_process_is_not_taken_for_dead(trio):
    """It takes no connection, reads nothing and answers nothing, but its address does not refuse."""
    make_topic(trio, "paused")
    before = leaders_and_epochs(trio, "paused")
    victim = next(id_ for id_ in (0, 1, 2) if id_ != controller_of(trio))
    (witness,) = {0, 1, 2} - {victim, controller_of(trio)}
    os.kill(trio.broker(victim).pid, signal.SIGSTOP)
    try:
        with wire.connect(trio.broker(witness).address) as connection:
            assert {probed(connection, trio.broker(victim).address, victim) for _ in range(5)} == {Sight.REACHED}
        assert leaders_and_epochs(trio, "paused", trio.broker(witness).address) == before
    finally:
        os.kill(trio.broker(victim).pid, signal.SIGCONT)
    send(trio, "paused", [b"after"] * 9)
    assert leaders_and_epochs(trio, "paused") == before


def leaders_and_epochs(harness, name, bootstrap=None):
    with Admin({"bootstrap.servers": bootstrap or harness.bootstrap_servers}) as admin:
        return [(each.leader, each.leader_epoch) for each in admin.describe_topics([name])[name].partitions]


def isrs_and_epochs(harness, name):
    return [(set(each.isr), each.leader_epoch) for each in described(harness, name)]


def probed(connection, address, broker_id):
    host, _, port = address.rpartition(":")
    message = ProbeBrokerRequest(broker_id=broker_id, host=host, port=int(port))
    answer = wire.ask(connection, ApiKey.PROBE_BROKER, 0, message)
    assert answer.error_code == ErrorCode.NONE
    return answer.sight


def test_what_a_client_says_of_a_living_broker_changes_nothing(trio):
    make_topic(trio, "forged")
    before = leaders_and_epochs(trio, "forged")
    for broker in trio.brokers:
        with wire.connect(broker.address) as connection:
            for asked in (0, 1, 2):
                assert probed(connection, trio.broker(asked).address, asked) == Sight.REACHED
            elsewhere = ProbeBrokerRequest(broker_id=0, host="127.0.0.1", port=1)
            assert wire.ask(connection, ApiKey.PROBE_BROKER, 0, elsewhere).error_code == ErrorCode.BROKER_NOT_AVAILABLE
    assert leaders_and_epochs(trio, "forged") == before


def test_a_broker_that_lives_behind_an_address_that_refuses_loses_nothing(trio, tmp_path):
    """Brokers of a cluster of their own; the third is reached by a proxy alone, which refuses for a while."""
    zookeeper = f"{trio.zookeeper.connect_string}/proxied"
    port = free_port()
    with ExitStack() as stack:
        proxy = stack.enter_context(Proxy(port))
        hidden = {"advertised.listeners": f"PLAINTEXT://{proxy.address}"}
        brokers = [
            stack.enter_context(BrokerHarness(tmp_path, zookeeper, 0, settings=SETTINGS)),
            stack.enter_context(BrokerHarness(tmp_path, zookeeper, 1, settings=SETTINGS)),
            stack.enter_context(BrokerHarness(tmp_path, zookeeper, 2, port, settings=SETTINGS | hidden)),
        ]
        cluster = SimpleNamespace(bootstrap_servers=",".join(each.address for each in brokers[:2]))
        make_topic(cluster, "hidden", **{"min.insync.replicas": "2"})
        send(cluster, "hidden", numbered(0, 90))
        led = next(each.partition for each in described(cluster, "hidden") if each.leader == 2)
        proxy.refuse()
        others_lead(cluster, "hidden", 2)
        with wire.connect(brokers[2].address) as connection:  # it thinks that it leads, and may acknowledge nothing
            wire.send_produce(connection, TopicPartition("hidden", led), wire.batch_of(b"to nobody"))
            send(cluster, "hidden", numbered(90, 180))
            proxy.accept_again()
            eventually(
                lambda: all(len(each.isr) == 3 for each in described(cluster, "hidden")), NOTICED_S, "it is back"
            )
            assert wire.receive_produced(connection)[0] is not ErrorCode.NONE
        values = []
        for number in range(3):
            leader = described(cluster, "hidden")[number].leader
            with wire.connect(brokers[leader].address) as connection:
                values += wire.read_all(connection, TopicPartition("hidden", number))
        assert sorted(values) == sorted(numbered(0, 180))


def numbered(start, end):
    return [b"%d" % number for number in range(start, end)]


@pytest.mark.parametrize("count", [1, 2])
def test_a_small_cluster(trio, tmp_path, count):
    """With two brokers nobody else can be asked, and with one there is nobody to miss it."""
    zookeeper = f"{trio.zookeeper.connect_string}/small-{count}"
    with ExitStack() as stack:
        brokers = [
            stack.enter_context(BrokerHarness(tmp_path, zookeeper, number, settings=SETTINGS))
            for number in range(count)
        ]
        cluster = SimpleNamespace(bootstrap_servers=",".join(each.address for each in brokers))
        make_topic(cluster, "small", partitions=2, replicas=count)
        for is_controller in [True, False][:count]:
            victim = next(each for each in brokers if (each.spec.broker_id == controller_of(cluster)) is is_controller)
            victim.kill()
            if count == 2:
                others_lead(cluster, "small", victim.spec.broker_id)
                send(cluster, "small", [b"meanwhile"])
            victim.start()
            eventually(lambda: all(len(each.isr) == count for each in described(cluster, "small")), NOTICED_S, "back")
            send(cluster, "small", [b"after"])


def others_lead(harness, name, victim):
    eventually(
        lambda: all(each.leader not in (victim, -1) for each in described(harness, name)), NOTICED_S, "others lead"
    )


@pytest.mark.slow
def test_where_it_is_switched_off_a_session_is_waited_for(trio, tmp_path):
    zookeeper = f"{trio.zookeeper.connect_string}/patient"
    settings = SETTINGS | {"sparklog.failover.fast": "false"}
    all_preferred = ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=60_000)
    with ExitStack() as stack:
        brokers = [
            stack.enter_context(BrokerHarness(tmp_path, zookeeper, number, settings=settings)) for number in range(2)
        ]
        cluster = SimpleNamespace(bootstrap_servers=",".join(each.address for each in brokers))
        make_topic(cluster, "patient", partitions=2, replicas=2)
        before = isrs_and_epochs(cluster, "patient")
        victim = next(each for each in brokers if each.spec.broker_id != controller_of(cluster))
        (other,) = (each for each in brokers if each is not victim)
        victim.kill()
        with wire.connect(other.address) as connection:
            for _ in range(30):
                assert probed(connection, victim.address, victim.spec.broker_id) == Sight.REFUSED
                connection.request(ApiKey.ELECT_LEADERS, lambda _: all_preferred)  # answered by another look
        assert isrs_and_epochs(cluster, "patient") == before, "clients may be told of no leader, but no other leads"
        victim.start()
