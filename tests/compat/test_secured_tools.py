"""Kafka's own tools with files of settings on a secured broker of ours."""

import pytest
from compat import secured
from compat.kafka_tools import CONFIGS, CONSOLE_CONSUMER, CONSOLE_PRODUCER, GROUPS, MOVED, TOPICS

from sparklog.errors import SparklogError
from sparklog.testing.kafka import run_kafka_tool

pytestmark = [pytest.mark.peer, pytest.mark.slow]


@pytest.fixture
def tool(secured_ours, tmp_path):
    """``tool(settings, class, option, ...)``: run with the settings in the file that ``option`` names."""

    def run(settings, main_class, option, *arguments, stdin=""):
        file = secured.write_properties(tmp_path / "client.properties", settings)
        address = ("--bootstrap-server", settings["bootstrap.servers"])
        name = MOVED["kafka"].get(main_class, main_class)
        return run_kafka_tool(name, *address, option, file, *arguments, stdin=stdin)

    return run


def test_they_make_write_read_and_look_as_a_user(tool, secured_ours, topic):
    alice = secured_ours.with_password("SASL_SSL", "SCRAM-SHA-512")
    tool(alice, TOPICS, "--command-config", "--create", "--topic", topic, "--partitions", "2")
    tool(alice, CONSOLE_PRODUCER, "--producer.config", "--topic", topic, stdin="a\nb\nc\n")
    asked = ("--topic", topic, "--from-beginning", "--max-messages", "3", "--timeout-ms", "30000", "--group", topic)
    assert set(tool(alice, CONSOLE_CONSUMER, "--consumer.config", *asked).splitlines()) == {"a", "b", "c"}
    rows = tool(alice, GROUPS, "--command-config", "--describe", "--group", topic)
    assert topic in rows
    whose = ("--entity-type", "topics", "--entity-name", topic)
    tool(alice, CONFIGS, "--command-config", "--alter", *whose, "--add-config", "retention.ms=7777")
    assert "retention.ms=7777" in tool(alice, CONFIGS, "--command-config", "--describe", *whose)


def test_the_performance_tool_writes_with_a_certificate(secured_ours, stores, tmp_path, topic):
    alice = secured_ours.client("MUTUAL") | stores.own("client.pem")
    file = secured.write_properties(tmp_path / "client.properties", alice)
    load = ("--topic", topic, "--num-records", "20000", "--record-size", "500", "--throughput", "-1")
    said = run_kafka_tool("org.apache.kafka.tools.ProducerPerformance", *load, "--producer.config", file)
    assert "20000 records sent" in said


@pytest.mark.parametrize(
    ("listener", "trusted", "user", "password", "error"),
    [
        ("SASL_SSL", "ca.pem", "alice", "guess", "invalid credentials"),
        ("SASL_SSL", "other-ca.pem", "alice", "alice-secret", "SSL handshake failed"),
        ("SASL_PLAINTEXT", "ca.pem", "mallory", "mallory-secret", "needs CREATE"),
    ],
    ids=["password", "authority", "right"],
)
def test_they_end_with_their_error(tool, secured_ours, stores, topic, listener, trusted, user, password, error):
    settings = secured_ours.with_password(listener, "SCRAM-SHA-256", user, password) | stores.trust(trusted)
    with pytest.raises(SparklogError, match=error) as caught:
        tool(settings, TOPICS, "--command-config", "--create", "--topic", topic)
    assert password not in str(caught.value)


def test_a_user_that_its_tool_wrote_to_zookeeper_is_let_in(tool, zookeeper, secured_ours):
    """As an administrator is made before the first broker."""
    added = ("--add-config", "SCRAM-SHA-256=[password=carols],SCRAM-SHA-512=[iterations=5000,password=carols]")
    where = ("--zookeeper", f"{zookeeper.connect_string}/secured-ours")
    run_kafka_tool(CONFIGS, *where, "--alter", *added, "--entity-type", "users", "--entity-name", "carol")
    carol = secured_ours.with_password("SASL_PLAINTEXT", "SCRAM-SHA-512", "carol", "carols")
    assert tool(carol, TOPICS, "--command-config", "--list").split() == []
