"""Several listeners of a real broker: who is told which address, and TLS with other projects' clients."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import Producer as ConfluentProducer
from confluent_kafka.admin import AdminClient
from integration import wire
from kafka import KafkaConsumer

from sparklog.client.admin.admin import Admin
from sparklog.client.cluster.config import ClientConfig
from sparklog.clock import SystemClock
from sparklog.local.ports import free_port
from sparklog.net.connection import BlockingConnection
from sparklog.net.throttle import throttle_seconds
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import MetadataRequest
from sparklog.quota.entity import Entity
from sparklog.security.certificates import CertificateAuthority
from sparklog.structs import Endpoint, TopicPartition
from sparklog.testing.broker import BrokerHarness
from sparklog.testing.certificates import Certificates
from sparklog.testing.eventually import eventually

pytestmark = pytest.mark.integration
CLOCK = SystemClock()


@pytest.fixture(scope="module")
def certificates():
    return Certificates()


@pytest.fixture(scope="module")
def ports():
    return {"PLAINTEXT": free_port(), "SSL": free_port()}


@pytest.fixture(scope="module")
def files(certificates, tmp_path_factory):
    directory = tmp_path_factory.mktemp("tls")
    return {
        "server": certificates.server.write_pem(directory / "server.pem"),
        "client": certificates.client.write_pem(directory / "client.pem"),
        "authority": certificates.authority.write_pem(directory / "ca.pem"),
    }


@pytest.fixture(scope="module")
def broker(tmp_path_factory, zookeeper, ports, files):
    settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:{ports['PLAINTEXT']},SSL://127.0.0.1:{ports['SSL']}",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": files["server"],
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": files["authority"],
        "ssl.client.auth": "required",
    }
    harness = BrokerHarness(
        tmp_path_factory.mktemp("broker"),
        f"{zookeeper.connect_string}/listeners",
        port=ports["PLAINTEXT"],
        settings=settings,
    )
    harness.start()
    yield harness
    harness.stop()


@pytest.fixture
def secured(ports, files):
    return {
        "bootstrap.servers": f"127.0.0.1:{ports['SSL']}",
        "security.protocol": "SSL",
        "ssl.ca.location": str(files["authority"]),
        "ssl.certificate.location": str(files["client"]),
        "ssl.key.location": str(files["client"]),
    }


def test_clients_are_told_the_address_of_their_listener(broker, ports, secured):
    for settings, name in (({"bootstrap.servers": f"127.0.0.1:{ports['PLAINTEXT']}"}, "PLAINTEXT"), (secured, "SSL")):
        (found,) = AdminClient(settings).list_topics(timeout=60).brokers.values()
        assert found.port == ports[name]


def test_records_go_in_and_out_by_tls(broker, secured, files, ports):
    topic = f"by-tls-{time.time_ns()}"
    producer = ConfluentProducer({**secured, "batch.size": 1 << 20, "linger.ms": 5})
    values = [b"%d" % number * 200 for number in range(5000)]
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(60) == 0
    consumer = ConfluentConsumer({**secured, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found = []
    eventually(lambda: found.extend(m.value() for m in consumer.consume(1000, 1.0)) or len(found) >= len(values))
    consumer.close()
    assert found == values
    theirs = KafkaConsumer(
        topic,
        bootstrap_servers=f"localhost:{ports['SSL']}",
        security_protocol="SSL",
        ssl_cafile=str(files["authority"]),
        ssl_certfile=str(files["client"]),
        auto_offset_reset="earliest",
        consumer_timeout_ms=60_000,
        ssl_check_hostname=True,
    )
    assert [next(theirs).value for _ in values] == values
    theirs.close()


def test_who_shows_no_certificate_is_not_served(broker, secured):
    plain = {name: value for name, value in secured.items() if "certificate" not in name and "key" not in name}
    errors = []
    client = AdminClient({**plain, "error_cb": errors.append})
    eventually(lambda: client.poll(0.1) or errors)
    assert any("certificate" in str(each).lower() or "handshake" in str(each).lower() for each in errors), errors


@pytest.fixture
def strange(broker, files, certificates):
    """``with strange():`` the broker has a certificate of a stranger meanwhile."""

    def has_taken(certified):
        before = broker.log_path.read_text().count(taken)
        certified.write_pem(files["server"])
        eventually(lambda: broker.log_path.read_text().count(taken) > before, timeout=90)

    @contextmanager
    def shown():
        has_taken(certificates.stranger)
        try:
            yield
        finally:
            has_taken(certificates.server)

    taken = "listener SSL has a new certificate"
    return shown


@pytest.fixture
def team_broker(tmp_path, zookeeper, ports, files, monkeypatch):
    """A broker that finds an installed builder; its listeners ask nobody for SASL."""
    installed = tmp_path / "site" / "teams-1.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: teams\nVersion: 1\n")
    (installed / "entry_points.txt").write_text("[sparklog.principal_builders]\nteams = teams:build\n")
    installed.with_name("teams.py").write_text(
        "from sparklog.security.principal import Principal\n"
        "def build(peer):\n"
        "    known = 'unknown' if peer.certificate is None else 'known'\n"
        "    return Principal('Team', f'{peer.listener}, {known}: {peer.principal.name}')\n"
    )
    before = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(installed.parent), before))))
    plain, tls = free_port(), free_port()
    settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},SSL://127.0.0.1:{tls}",
        "ssl.keystore.location": files["server"],
        "ssl.truststore.location": files["authority"],
        "ssl.client.auth": "required",
        "principal.builder.class": "teams",
    }
    harness = BrokerHarness(tmp_path / "broker", f"{zookeeper.connect_string}/teams", port=plain, settings=settings)
    harness.start()
    yield harness, tls
    harness.stop()


def test_a_builder_decides_who_comes_by_listeners_without_sasl(team_broker, files):
    """The quotas tell who somebody is taken for."""
    broker, tls = team_broker
    by_tls = {
        "bootstrap.servers": f"127.0.0.1:{tls}",
        "security.protocol": "SSL",
        "ssl.keystore.location": str(files["client"]),
        "ssl.truststore.location": str(files["authority"]),
    }
    security = ClientConfig.from_properties(by_tls).connection_security(CLOCK)
    tp, batch = TopicPartition("t", 0), wire.batch_of(b"v" * 100_000)
    users = {
        "PLAINTEXT, unknown: ANONYMOUS": lambda: wire.connect(broker.address),
        "SSL, known: CN=alice,O=sparklog": lambda: wire.connect(f"127.0.0.1:{tls}", security=security),
    }
    with Admin({"bootstrap.servers": broker.address}) as admin, wire.connect(broker.address) as connection:
        wire.create_topic(connection, tp.topic)
        for user, connect in users.items():
            with connect() as held:
                for is_limited in (False, True):
                    if is_limited:
                        admin.alter_client_quotas({Entity(user): {"producer_byte_rate": 10}})
                    wire.send_produce(held, tp, batch)
                    assert (throttle_seconds(*held.receive()) > 1000) == is_limited, user


def test_a_new_certificate_is_taken_over_without_a_dropped_connection(strange, ports, secured, files):
    """The connection is one of ours: librdkafka closes its own, and opens others, as it likes."""
    settings = {
        "security.protocol": "SSL",
        "ssl.keystore.location": str(files["client"]),
        "ssl.truststore.location": str(files["authority"]),
    }
    security = ClientConfig.from_properties(
        {**settings, "bootstrap.servers": f"127.0.0.1:{ports['SSL']}"}
    ).connection_security(CLOCK)
    with BlockingConnection(Endpoint("127.0.0.1", ports["SSL"]), security=security) as connection, strange():
        assert wire.ask(connection, ApiKey.METADATA, 12, MetadataRequest(topics=[])).brokers
        errors = []
        other = AdminClient({**secured, "error_cb": errors.append})
        eventually(lambda: other.poll(0.1) or errors)


def test_a_broker_that_starts_with_an_expired_certificate_takes_the_renewed_one(tmp_path, zookeeper):
    long_ago, now = datetime(2020, 1, 1, tzinfo=UTC), datetime.now(UTC)
    authority = CertificateAuthority.make("an authority", long_ago, 36500)
    authority_file, server_file = tmp_path / "ca.pem", tmp_path / "server.pem"
    authority_file.write_bytes(authority.credential.certificate)
    server_file.write_bytes(authority.issue_broker("broker", ["127.0.0.1"], long_ago, 30).key_store)
    port = free_port()
    settings = {
        "listeners": f"SSL://127.0.0.1:{port}",
        "security.inter.broker.protocol": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": server_file,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": authority_file,
    }
    harness = BrokerHarness(tmp_path / "broker", f"{zookeeper.connect_string}/expired", port=port, settings=settings)
    with ThreadPoolExecutor(1) as threads:
        started = threads.submit(harness.start)
        try:
            eventually(lambda: harness.log_path.exists() and "certificate has expired" in harness.log_path.read_text())
            server_file.write_bytes(authority.issue_broker("broker", ["127.0.0.1"], now, 30).key_store)
            started.result()
        finally:
            harness.stop()
