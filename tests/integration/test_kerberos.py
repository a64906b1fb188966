"""GSSAPI on a cluster whose brokers find each other by it: clients with keytabs and ticket caches, rights by name."""

import asyncio
import subprocess
from pathlib import Path

import pytest
from fix_programs import lack_of, lack_of_kerberos
from integration.test_kcat import kcat

from sparklog.client import Admin, AsyncAdmin, AsyncConsumer, AsyncProducer, Consumer, NewTopic, Producer
from sparklog.client.admin.admin import AclBinding, AclEntry, Operation, ResourcePattern, ResourceType
from sparklog.client.cluster.config import ClientConfig
from sparklog.errors import ApiError, AuthenticationFailed, ErrorCode
from sparklog.local.broker import PROGRAM
from sparklog.local.ports import free_port
from sparklog.net.async_connection import AsyncConnection
from sparklog.net.connection import BlockingConnection
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import MetadataRequest
from sparklog.security.connecting import ConnectionSecurity
from sparklog.structs import Endpoint
from sparklog.testing.broker import BrokerHarness
from sparklog.testing.clock import ManualClock
from sparklog.testing.eventually import eventually

LACK = lack_of_kerberos()
pytestmark = [pytest.mark.integration, pytest.mark.skipif(bool(LACK), reason=LACK)]
HAS_PLUGIN = any(Path("/usr/lib").glob("*/sasl2/libgssapiv2.so"))
LACK_OF_KCAT = lack_of("kcat") or (
    "" if HAS_PLUGIN else "kcat has no GSSAPI; type: sudo apt-get install -y libsasl2-modules-gssapi-mit"
)
VALUES = [b"%d" % number * 100 for number in range(500)]


def module(**options):
    told = " ".join(f'{name}="{value}"' for name, value in options.items())
    return f"com.sun.security.auth.module.Krb5LoginModule required {told};"


@pytest.fixture(scope="module")
def brokers(kdc, zookeeper, tmp_path_factory):
    """Two; how long an authentication lasts is an hour."""
    keytab = kdc.add("kafka/localhost")
    ports = [free_port(), free_port()]
    found = [
        BrokerHarness(
            tmp_path_factory.mktemp("brokers"),
            f"{zookeeper.connect_string}/kerberos",
            broker_id,
            port,
            {
                "listeners": f"SASL_PLAINTEXT://localhost:{port}",
                "security.inter.broker.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism.inter.broker.protocol": "GSSAPI",
                "sasl.enabled.mechanisms": "GSSAPI",
                "sasl.kerberos.service.name": "kafka",
                "sasl.jaas.config": module(
                    useKeyTab="true", storeKey="true", keyTab=keytab, principal="kafka/localhost"
                ),
                "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
                "super.users": "User:kafka;User:admin",
                "connections.max.reauth.ms": 3_600_000,
                "offsets.topic.replication.factor": 2,
            },
        )
        for broker_id, port in enumerate(ports)
    ]
    for each in found:
        each.start()
    yield found
    for each in found:
        each.stop()


@pytest.fixture(scope="module")
def client(kdc, brokers):
    """The settings of a user by a way: ``keytab`` or ``cache``."""
    keytabs = {user: kdc.add(user) for user in ("admin", "alice", "bob")}

    def settings(user, way="keytab"):
        keytab = keytabs[user]
        if way == "cache":
            jaas = module(useTicketCache="true", ticketCache=kdc.ticket(user, keytab))
        else:
            jaas = module(useKeyTab="true", keyTab=keytab, principal=user)
        return {
            "bootstrap.servers": ",".join(f"localhost:{each.spec.port}" for each in brokers),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            "sasl.jaas.config": jaas,
        }

    return settings


@pytest.fixture(scope="module")
def topic(client):
    """One that both brokers have, and ``alice`` may read and write."""
    with Admin(client("admin")) as admin:
        admin.create_topics([NewTopic("clicks", 2, 2, configs={"min.insync.replicas": "2"})])
        allowed = [
            AclBinding(ResourcePattern(kind, "*"), AclEntry("User:alice", "*", operation))
            for kind, operation in (
                (ResourceType.TOPIC, Operation.READ),
                (ResourceType.TOPIC, Operation.WRITE),
                (ResourceType.GROUP, Operation.READ),
            )
        ]
        admin.create_acls(allowed)
    return "clicks"


@pytest.mark.parametrize("way", ["keytab", "cache"])
def test_our_clients_write_and_read(client, topic, way):
    settings = client("alice", way)
    with Producer({**settings, "acks": "all"}) as producer:
        start = producer.send(topic, VALUES[0], partition=0).result(60).offset
        for value in VALUES[1:]:
            producer.send(topic, value, partition=0)
        producer.flush()
    with Consumer({**settings, "group.id": way, "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe([topic])
        found = []
        eventually(
            lambda: (
                found.extend(each for each in consumer.poll(1.0) if each.partition == 0)
                or len(found) >= start + len(VALUES)
            )
        )
    assert [each.value for each in found[start:]] == VALUES


@pytest.mark.parametrize("way", ["keytab", "cache"])
def test_our_clients_on_an_event_loop_write_and_read(client, topic, way):
    async def run():
        settings = client("alice", way)
        async with AsyncProducer(settings) as producer:
            sent = await (await producer.send(topic, b"by the loop", partition=1))
        async with AsyncConsumer({**settings, "group.id": f"loop-{way}", "auto.offset.reset": "earliest"}) as consumer:
            consumer.subscribe([topic])
            while not any(each.partition == 1 and each.offset == sent.offset for each in await consumer.poll(1.0)):
                pass
        async with AsyncAdmin(client("admin", way)) as admin:
            assert topic in {each.name for each in await admin.list_topics()}

    asyncio.run(asyncio.wait_for(run(), 60))


def test_who_has_no_right_is_refused_by_the_short_name(brokers, client, topic):
    with Producer(client("bob")) as producer, pytest.raises(ApiError) as caught:
        producer.send(topic, b"v").result(60)
    assert caught.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    eventually(lambda: any("to 'User:bob' from" in each.output() for each in brokers))


@pytest.mark.skipif(bool(LACK_OF_KCAT), reason=LACK_OF_KCAT)
def test_kcat_writes_and_reads(kdc, client, topic, monkeypatch):
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{kdc.directory / 'kcat.cache'}")
    told = client("alice")
    options = {
        **{name: told[name] for name in told if "jaas" not in name},
        "sasl.kerberos.keytab": kdc.directory / "alice.keytab",
        "sasl.kerberos.principal": "alice",
    }
    common = ("-b", options.pop("bootstrap.servers"), *(f"-X{name}={value}" for name, value in options.items()))
    with Admin(client("admin")) as admin:
        admin.create_topics([NewTopic("kcat", 1, 2)])
    kcat("-P", "-t", "kcat", *common, stdin="one\ntwo\n")
    assert kcat("-C", "-t", "kcat", "-o", "beginning", "-e", "-q", *common) == "one\ntwo\n"


def test_the_command_line_takes_a_ticket_cache(client, topic, tmp_path):
    file = tmp_path / "admin.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in client("admin", "cache").items()))
    done = subprocess.run(
        [*PROGRAM, "topic", "list", "--command-config", file], check=True, capture_output=True, text=True, timeout=60
    )
    assert topic in done.stdout


def test_who_is_not_let_in_is_told_nothing_of_keytabs(brokers, client, kdc):
    """The broker's own log has the reason."""

    class Garbage:
        name, token_id, may_wait = "GSSAPI", None, False

        def begin(self, host):
            return self

        def first(self):
            return b"garbage"

    endpoint = Endpoint("localhost", brokers[0].spec.port)
    with pytest.raises(AuthenticationFailed, match=r"invalid credentials with SASL mechanism GSSAPI$") as caught:
        BlockingConnection(endpoint, security=ConnectionSecurity(None, Garbage()))
    assert "keytab" not in str(caught.value).lower()
    eventually(lambda: "a client is not believed by GSSAPI: Kerberos: " in brokers[0].output())


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"sasl.kerberos.service.name": "nobody"}, "not found in Kerberos database"),
        ({"sasl.jaas.config": module(useTicketCache="true")}, "we have no ticket"),
        ({"sasl.mechanism": "PLAIN", "sasl.username": "a", "sasl.password": "b"}, "it takes GSSAPI"),
    ],
)
def test_a_client_that_cannot_get_in_stops_at_once(client, changed, said):
    settings = {**client("alice"), **changed}
    if "sasl.username" in changed:
        del settings["sasl.jaas.config"]
    with Admin(settings) as admin, pytest.raises(AuthenticationFailed, match=said):
        admin.list_topics()


def asked(version):
    return MetadataRequest(version=version, topics=[])


def test_a_connection_authenticates_again(brokers, client):
    endpoint = Endpoint("localhost", brokers[0].spec.port)
    clock = ManualClock()
    security = ClientConfig.from_properties(client("alice")).connection_security(clock)
    with BlockingConnection(endpoint, security=security, clock=clock) as connection:
        connection.request(ApiKey.METADATA, asked)
        for _ in range(2):
            clock.advance(3_600)
            connection.request(ApiKey.METADATA, asked)
        another = ClientConfig.from_properties(client("bob")).connection_security(clock)
        security.mechanism = another.mechanism
        clock.advance(3_600)
        with pytest.raises(AuthenticationFailed, match="another principal's"):
            connection.request(ApiKey.METADATA, asked)


def test_a_connection_on_a_loop_authenticates_again(brokers, client):
    async def run():
        security = ClientConfig.from_properties(client("alice")).connection_security(ManualClock())
        connection = await AsyncConnection.open(Endpoint("localhost", brokers[0].spec.port), security=security)
        try:
            for _ in range(2):
                connection._begin_again(security.mechanism)
                await connection.request(ApiKey.METADATA, asked)
        finally:
            connection.abort()

    asyncio.run(asyncio.wait_for(run(), 60))
