"""Kafka's ConfigCommand sets, shows and removes quotas on our broker, and quotas in a tree that changes hands."""

import pytest
from compat.kafka_tools import CONFIGS
from integration import wire

from sparklog.client.admin.admin import Admin
from sparklog.errors import ErrorCode
from sparklog.local.ports import free_port
from sparklog.net.connection import BlockingConnection
from sparklog.net.throttle import throttle_seconds
from sparklog.quota.entity import DEFAULT, Entity, IpEntity
from sparklog.structs import Endpoint, TopicPartition
from sparklog.testing.broker import BrokerHarness
from sparklog.testing.kafka import KafkaBroker

pytestmark = [pytest.mark.peer, pytest.mark.slow]
ODD = "d,=/ e+~*%<default> é"
OF_KAFKA = {
    Entity(ODD): {"producer_byte_rate": 1024.0, "request_percentage": 12.5},
    Entity(ODD, ODD): {"consumer_byte_rate": 1.0},
    Entity(ODD, DEFAULT): {"consumer_byte_rate": 2.0},
    Entity(DEFAULT): {"producer_byte_rate": 1e9},
    Entity(DEFAULT, "c"): {"consumer_byte_rate": 3.0},
    Entity(DEFAULT, DEFAULT): {"controller_mutation_rate": 0.5},
    Entity("ANONYMOUS", "held by kafka"): {"producer_byte_rate": 10.0},
    Entity(client_id=DEFAULT): {"consumer_byte_rate": 4.0},
    IpEntity("10.0.0.7"): {"connection_creation_rate": 20.0},
    IpEntity(DEFAULT): {"connection_creation_rate": 1000.0},
}
OF_OURS = {
    Entity(ODD): {"producer_byte_rate": 2048.0},
    Entity(ODD, ODD): {"consumer_byte_rate": None},
    Entity(f"{ODD} too", DEFAULT): {"consumer_byte_rate": 5.0},
    Entity("ANONYMOUS", "held by us"): {"producer_byte_rate": 10.0},
    Entity(client_id=f"{ODD} too"): {"request_percentage": 99.0},
    IpEntity("10.0.0.8"): {"connection_creation_rate": 21.0},
}


def test_config_command_sets_shows_and_removes_quotas(tool, admin, topic):
    whose = ("--entity-type", "users", "--entity-name", topic, "--entity-type", "clients", "--entity-default")
    tool(CONFIGS, "--alter", *whose, "--add-config", "producer_byte_rate=1024,request_percentage=12.5")
    entity = Entity(topic, DEFAULT)
    assert dict(admin.describe_client_quotas(user=topic)) == {
        entity: {"producer_byte_rate": 1024, "request_percentage": 12.5}
    }
    said = tool(CONFIGS, "--describe", *whose)
    assert "producer_byte_rate=1024.0" in said
    tool(CONFIGS, "--alter", *whose, "--delete-config", "producer_byte_rate,request_percentage")
    assert admin.describe_client_quotas(user=topic) == []


def told(broker):
    with Admin(bootstrap_servers=broker) as admin:
        return dict(admin.describe_client_quotas())


def is_held(broker, client_id, topic):
    """Whether the client is told to wait after 100 KB."""
    host, port = broker.split(":")
    with BlockingConnection(Endpoint(host, int(port)), client_id=client_id) as connection:
        wire.send_produce(connection, TopicPartition(topic, 0), wire.batch_of(b"v" * 100_000))
        return throttle_seconds(*connection.receive()) > 5


def assert_holds(broker, names, topic):
    with wire.connect(broker) as connection:
        assert wire.create_topic(connection, topic)[0] is ErrorCode.NONE
    held = {name: is_held(broker, name, topic) for name in (*names, "held by nobody")}
    assert held == dict.fromkeys(names, True) | {"held by nobody": False}


def test_quotas_hold_where_the_tree_changes_hands(zookeeper, tmp_path):
    connect, port = f"{zookeeper.connect_string}/{tmp_path.name}", free_port()
    kafka, ours = KafkaBroker(tmp_path / "kafka", connect, port), BrokerHarness(tmp_path, connect, port=port)
    with kafka, Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        admin.alter_client_quotas(OF_KAFKA)
        assert_holds(kafka.bootstrap_servers, ["held by kafka"], "of-kafka")
    expected = {entity: dict(quotas) for entity, quotas in OF_KAFKA.items()}
    with ours, Admin(bootstrap_servers=ours.address) as admin:
        assert told(ours.address) == expected
        assert_holds(ours.address, ["held by kafka"], "of-ours")
        admin.alter_client_quotas(OF_OURS)
    for entity, quotas in OF_OURS.items():
        changed = {**expected.get(entity, {}), **quotas}
        expected[entity] = {name: rate for name, rate in changed.items() if rate is not None}
    with kafka:
        assert told(kafka.bootstrap_servers) == {entity: quotas for entity, quotas in expected.items() if quotas}
        assert_holds(kafka.bootstrap_servers, ["held by kafka", "held by us"], "of-kafka-again")
