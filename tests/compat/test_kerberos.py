"""GSSAPI between Java and us: Kafka's console tools at our broker, our client at Kafka's, brokers of both kinds."""

from contextlib import ExitStack

import pytest
from compat.kafka_tools import CONSOLE_CONSUMER, CONSOLE_PRODUCER, MOVED, TOPICS
from compat.mixed import JAVA, SETTINGS
from fix_programs import lack_of_kerberos
from integration.test_kerberos import module

from sparklog.client import Admin, Consumer, NewTopic, Producer
from sparklog.client.admin.admin import UserScramUpsertion
from sparklog.errors import ApiError, SparklogError
from sparklog.local.ports import free_port
from sparklog.testing.broker import BrokerHarness
from sparklog.testing.eventually import eventually
from sparklog.testing.kafka import KafkaBroker, run_kafka_tool

LACK = lack_of_kerberos()
pytestmark = [pytest.mark.peer, pytest.mark.slow, pytest.mark.skipif(bool(LACK), reason=LACK)]
RULES = "RULE:[1:$1](alice)s/^/user-/,DEFAULT"


@pytest.fixture(scope="module")
def cluster(kdc, zookeeper, tmp_path_factory):
    """The ports of Kafka's broker, which is 1, and of ours: they find each other by GSSAPI."""
    directory = tmp_path_factory.mktemp("kerberos")
    connect = f"{zookeeper.connect_string}/{directory.name}"
    keytab = kdc.add("kafka/localhost")
    ports = {"kafka": free_port(), "ours": free_port()}

    def settings(port):
        return {
            **SETTINGS,
            "listeners": f"SASL_PLAINTEXT://localhost:{port}",
            "advertised.listeners": f"SASL_PLAINTEXT://localhost:{port}",
            "security.inter.broker.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism.inter.broker.protocol": "GSSAPI",
            "sasl.enabled.mechanisms": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            "sasl.kerberos.principal.to.local.rules": RULES,
            "listener.name.sasl_plaintext.gssapi.sasl.jaas.config": module(
                useKeyTab="true", storeKey="true", keyTab=keytab, principal="kafka/localhost@EXAMPLE.COM"
            ),
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": "User:kafka;User:user-alice",
        }

    java = (*JAVA, kdc.java_option)
    with ExitStack() as stack:
        kafka = KafkaBroker(
            directory / "kafka", connect, ports["kafka"], 1, settings(ports["kafka"]), host="localhost", java=java
        )
        stack.enter_context(kafka)
        stack.enter_context(BrokerHarness(directory, connect, 2, ports["ours"], settings(ports["ours"])))
        yield ports


@pytest.fixture(scope="module")
def settings(kdc, cluster):
    """Of a user's clients, at one of the brokers, by a keytab or a ticket cache."""
    keytabs = {user: kdc.add(user) for user in ("alice", "bob")}

    def told(user, at, way="keytab"):
        principal = f"{user}@EXAMPLE.COM"
        if way == "keytab":
            jaas = module(useKeyTab="true", storeKey="true", keyTab=keytabs[user], principal=principal)
        else:
            jaas = module(useTicketCache="true", ticketCache=kdc.ticket(user, keytabs[user]), doNotPrompt="true")
        return {
            "bootstrap.servers": f"localhost:{cluster[at]}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            "sasl.jaas.config": jaas,
        }

    return told


@pytest.fixture
def tool(kdc, settings, tmp_path, monkeypatch):
    """One of Kafka's tools, as a user, at one of the brokers."""
    monkeypatch.setenv("JDK_JAVA_OPTIONS", kdc.java_option)

    def run(user, at, way, program, option, *arguments, stdin=""):
        path = tmp_path / "client.properties"
        told = settings(user, at, way)
        path.write_text("".join(f"{name}={value}\n" for name, value in told.items()))
        where = ("--bootstrap-server", told["bootstrap.servers"], option, str(path))
        return run_kafka_tool(MOVED["kafka"].get(program, program), *where, *arguments, stdin=stdin)

    return run


def consumed(settings, topic, count):
    with Consumer({**settings, "group.id": f"g-{topic}", "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe([topic])
        found = []
        eventually(lambda: found.extend(each.value for each in consumer.poll(1.0)) or len(found) >= count)
    return found


@pytest.mark.parametrize("way", ["keytab", "cache"])
def test_javas_clients_write_and_read_at_our_broker(tool, settings, way):
    topic = f"java-{way}"
    made = ("--create", "--topic", topic, "--partitions", "1", "--replication-factor", "2")
    tool("alice", "ours", way, TOPICS, "--command-config", *made)
    tool("alice", "ours", way, CONSOLE_PRODUCER, "--producer.config", "--topic", topic, stdin="one\ntwo\n")
    asked = ("--topic", topic, "--from-beginning", "--max-messages", "2", "--timeout-ms", "30000")
    assert tool("alice", "ours", way, CONSOLE_CONSUMER, "--consumer.config", *asked).split() == ["one", "two"]


@pytest.mark.parametrize("way", ["keytab", "cache"])
@pytest.mark.parametrize("at", ["kafka", "ours"])
def test_our_client_writes_and_reads_where_both_kinds_hold_a_topic(settings, way, at):
    """Acknowledged is what both have, so that they have fetched from each other."""
    topic = f"both-{way}-{at}"
    told = settings("alice", at, way)
    with Admin(told) as admin:
        admin.create_topics([NewTopic(topic, 4, 2, configs={"min.insync.replicas": "2"})])
    with Producer({**told, "acks": "all"}) as producer:
        for number in range(40):
            producer.send(topic, b"%d" % number, partition=number % 4)
        producer.flush()
    assert sorted(consumed(told, topic, 40)) == sorted(b"%d" % number for number in range(40))


@pytest.mark.parametrize("at", ["kafka", "ours"])
def test_rights_are_of_the_user_that_a_rule_makes(tool, settings, at):
    with pytest.raises(SparklogError, match="Authorization"):
        tool("bob", at, "keytab", TOPICS, "--command-config", "--create", "--topic", "bobs", "--partitions", "1")
    with Admin(settings("bob", at)) as admin, pytest.raises(ApiError):
        admin.alter_user_scram_credentials([UserScramUpsertion("bob", "SCRAM-SHA-512", "new")])
