"""SASL on a real broker: the mechanisms with other projects' clients, credentials that come and go, rights by name."""

import subprocess

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer, KafkaProducer

from sparklog.client.admin.admin import Admin, UserScramDeletion, UserScramUpsertion
from sparklog.client.admin.topics import NewTopic
from sparklog.client.consumer.consumer import Consumer
from sparklog.client.producer.producer import Producer
from sparklog.errors import ApiError, AuthenticationFailed, ErrorCode
from sparklog.local.broker import PROGRAM
from sparklog.local.ports import free_port
from sparklog.security.sasl.scram_credential import ScramCredential, ScramMechanism
from sparklog.testing.broker import BrokerHarness
from sparklog.testing.certificates import Certificates
from sparklog.testing.eventually import eventually
from sparklog.zk.client import ZkClient
from sparklog.zk.entities import user_entity

pytestmark = pytest.mark.integration
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"


@pytest.fixture(scope="module")
def zk(zookeeper):
    client = ZkClient(f"{zookeeper.connect_string}/sasl", session_timeout=10, on_session=lambda _: None)
    client.ensure_tree()
    yield client
    client.close()


def set_password(zk, user, password):
    changes = {}
    for mechanism in ScramMechanism:
        credential = None if password is None else ScramCredential.of_password(mechanism, password).format()
        changes[mechanism.title] = credential
    zk.configs.update(user_entity(user), changes)


@pytest.fixture(scope="module")
def ports():
    return {name: free_port() for name in ("SASL_PLAINTEXT", "SASL_SSL")}


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    directory = tmp_path_factory.mktemp("tls")
    certificates = Certificates()
    certificates.server.write_pem(directory / "server.pem")
    certificates.authority.write_pem(directory / "ca.pem")
    return directory


@pytest.fixture(scope="module")
def broker(tmp_path_factory, zookeeper, zk, ports, authority):
    """Its connections to itself come by SASL_SSL with SCRAM, as another broker's would."""
    set_password(zk, "broker", "broker-secret")
    set_password(zk, "alice", "alice-secret")
    settings = {
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
        "security.inter.broker.protocol": "SASL_SSL",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": f'{SCRAM} username="broker" password="broker-secret";',
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{PLAIN} user_bob="bob-secret";',
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{PLAIN} user_bob="bob-secret";',
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": authority / "server.pem",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": authority / "ca.pem",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:broker;User:alice",
    }
    directory = tmp_path_factory.mktemp("broker")
    harness = BrokerHarness(
        directory, f"{zookeeper.connect_string}/sasl", port=ports["SASL_PLAINTEXT"], settings=settings
    )
    harness.start()
    yield harness
    harness.stop()


@pytest.fixture(params=["SCRAM-SHA-512", "PLAIN"])
def pair(request, tmp_path, zookeeper, authority):
    """Two brokers that find each other by SASL_SSL with a password, and the settings of the client ``admin``."""
    mechanism, place = request.param, f"{zookeeper.connect_string}/pair-by-{request.param}"
    passwords = {"broker": "broker-secret", "admin": "admin-secret"}
    module, known = SCRAM, ""
    if mechanism == "PLAIN":
        module, known = PLAIN, "".join(f' user_{user}="{password}"' for user, password in passwords.items())
    else:
        zk = ZkClient(place, session_timeout=10, on_session=lambda _: None)
        zk.ensure_tree()
        for user, password in passwords.items():
            set_password(zk, user, password)
        zk.close()
    stores = {"ssl.truststore.type": "PEM", "ssl.truststore.location": authority / "ca.pem"}
    brokers = []
    for broker_id in range(2):
        port = free_port()
        settings = {
            **stores,
            "listeners": f"SASL_SSL://127.0.0.1:{port}",
            "security.inter.broker.protocol": "SASL_SSL",
            "sasl.mechanism.inter.broker.protocol": mechanism,
            "sasl.enabled.mechanisms": mechanism,
            f"listener.name.sasl_ssl.{mechanism.lower()}.sasl.jaas.config": (
                f'{module} username="broker" password="broker-secret"{known};'
            ),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": authority / "server.pem",
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": "User:broker;User:admin",
        }
        brokers.append(BrokerHarness(tmp_path, place, broker_id, port, settings))
        brokers[-1].start()
    yield {
        **{name: str(value) for name, value in stores.items()},
        "bootstrap.servers": ",".join(each.address for each in brokers),
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{module} username="admin" password="admin-secret";',
    }
    for each in brokers:
        each.stop()


def test_brokers_replicate_by_a_password_over_tls(pair):
    values = {number: b"%d" % number for number in range(4)}
    with Admin(pair) as admin, Producer({**pair, "acks": "all"}) as producer:
        admin.create_topics([NewTopic("t", 4, 2, configs={"min.insync.replicas": "2"})])
        for number, value in values.items():
            producer.send("t", value, partition=number).result(60)
        partitions = admin.describe_topics(["t"])["t"].partitions
    assert {each.leader for each in partitions} == {0, 1}, "each follows the other"
    assert all(sorted(each.isr) == [0, 1] for each in partitions)


def named(ports, authority, protocol, mechanism, user, password):
    return {
        "bootstrap.servers": f"127.0.0.1:{ports[protocol]}",
        "security.protocol": protocol,
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
        **({"ssl.ca.location": str(authority / "ca.pem")} if protocol == "SASL_SSL" else {}),
    }


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_who_has_a_credential_is_served(broker, ports, authority, protocol, mechanism):
    admin = AdminClient(named(ports, authority, protocol, mechanism, "alice", "alice-secret"))
    (found,) = admin.list_topics(timeout=60).brokers.values()
    assert found.port == ports[protocol]


@pytest.mark.parametrize(
    ("mechanism", "user", "password"),
    [("SCRAM-SHA-256", "alice", "guess"), ("SCRAM-SHA-512", "nobody", "guess"), ("PLAIN", "bob", "guess")],
)
def test_who_has_not_is_told_nothing_more(broker, ports, authority, mechanism, user, password):
    errors = []
    settings = named(ports, authority, "SASL_PLAINTEXT", mechanism, user, password)
    admin = AdminClient({**settings, "error_cb": errors.append})
    eventually(lambda: admin.poll(0.1) or errors)
    assert any("invalid credentials" in each.str() for each in errors), errors
    assert password not in broker.output()


def test_who_has_no_right_sees_nothing(broker, ports, authority):
    bob = AdminClient(named(ports, authority, "SASL_SSL", "PLAIN", "bob", "bob-secret"))
    alice = AdminClient(named(ports, authority, "SASL_SSL", "SCRAM-SHA-256", "alice", "alice-secret"))
    producer = KafkaProducer(
        bootstrap_servers=f"localhost:{ports['SASL_SSL']}",
        security_protocol="SASL_SSL",
        ssl_cafile=str(authority / "ca.pem"),
        sasl_mechanism="SCRAM-SHA-512",
        sasl_plain_username="alice",
        sasl_plain_password="alice-secret",
    )
    assert producer.send("secret-topic", b"for alice").get(60).offset == 0
    producer.close()
    assert "secret-topic" in alice.list_topics(timeout=60).topics
    assert bob.list_topics(timeout=60).topics == {}


def test_a_credential_that_is_taken_away_counts_no_more(broker, zk, ports, authority):
    def is_served(password):
        consumer_settings = {
            "bootstrap_servers": f"localhost:{ports['SASL_PLAINTEXT']}",
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "SCRAM-SHA-256",
            "sasl_plain_username": "carol",
            "sasl_plain_password": password,
            "bootstrap_timeout_ms": 5000,
        }
        try:
            KafkaConsumer(**consumer_settings).close()
        except Exception:  # of several kinds
            return False
        return True

    set_password(zk, "carol", "first")
    eventually(lambda: is_served("first"))
    set_password(zk, "carol", "second")
    eventually(lambda: is_served("second"))
    assert not is_served("first")
    set_password(zk, "carol", None)
    eventually(lambda: not is_served("second"))


def test_a_plain_client_is_hung_up_on(broker, ports):
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{ports['SASL_PLAINTEXT']}"})
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=3)
    eventually(lambda: "before it has authenticated" in broker.output())


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_our_client_writes_and_reads(broker, ports, authority, protocol, mechanism):
    settings = {
        "bootstrap.servers": f"localhost:{ports[protocol]}",
        "security.protocol": protocol,
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{SCRAM} username="alice" password="alice-secret";',
        **({"ssl.truststore.type": "PEM"} if protocol == "SASL_SSL" else {}),
        **({"ssl.truststore.location": str(authority / "ca.pem")} if protocol == "SASL_SSL" else {}),
    }
    topic = f"ours-{protocol}-{mechanism}"
    with Admin(settings) as admin:
        admin.create_topics([NewTopic(topic, 2)])
    values = [b"%d" % number * 100 for number in range(2000)]
    with Producer(settings) as producer:
        for value in values:
            producer.send(topic, value, partition=1)
        producer.flush()
    with Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe([topic])
        found = []
        eventually(lambda: found.extend(each.value for each in consumer.poll(1.0)) or len(found) >= len(values))
    assert found == values


@pytest.fixture
def logs_in(ports):
    """Whether a user is let in with a password by a mechanism."""

    def attempt(user, password, mechanism="SCRAM-SHA-512"):
        try:
            with Admin(scram(ports, user, password, mechanism)) as admin:
                admin.list_transactions()
        except AuthenticationFailed:
            return False
        return True

    return attempt


def scram(ports, user, password, mechanism="SCRAM-SHA-512"):
    return {
        "bootstrap.servers": f"localhost:{ports['SASL_PLAINTEXT']}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }


def test_an_administrator_gives_and_takes_passwords(broker, ports, logs_in):
    both = ("SCRAM-SHA-256", "SCRAM-SHA-512")
    with Admin(scram(ports, "alice", "alice-secret")) as admin:
        admin.alter_user_scram_credentials([UserScramUpsertion("d,=ä", each, "first", 5000) for each in both])
        assert all(logs_in("d,=ä", "first", each) for each in both)  # the controller knows it when it answers
        assert admin.describe_user_scram_credentials(["d,=ä"]) == {"d,=ä": dict.fromkeys(both, 5000)}
        admin.alter_user_scram_credentials([UserScramUpsertion("d,=ä", both[1], "second")])
        assert not logs_in("d,=ä", "first", both[1])
        assert logs_in("d,=ä", "second", both[1])
        assert logs_in("d,=ä", "first", both[0])
        admin.alter_user_scram_credentials([UserScramDeletion("d,=ä", each) for each in both])
        assert not any(logs_in("d,=ä", each, both[1]) for each in ("first", "second"))
    eventually(lambda: "removed: 'SCRAM-SHA-512 of User:d,=ä' by 'User:alice' from 127.0.0.1" in broker.output())
    assert "second" not in broker.output()


def test_who_may_not_administer_is_refused_and_told_nothing(broker, zk, ports, logs_in):
    set_password(zk, "erin", "erin-secret")
    eventually(lambda: logs_in("erin", "erin-secret"))
    with Admin(scram(ports, "erin", "erin-secret")) as admin:
        for refused in (
            lambda: admin.alter_user_scram_credentials([UserScramUpsertion("erin", "SCRAM-SHA-512", "new")]),
            lambda: admin.alter_user_scram_credentials([UserScramDeletion("alice", "SCRAM-SHA-512")]),
            lambda: admin.describe_user_scram_credentials(),
            lambda: admin.describe_user_scram_credentials(["nobody"]),
        ):
            with pytest.raises(ApiError) as caught:
                refused()
            assert caught.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert logs_in("erin", "erin-secret")


@pytest.mark.parametrize("way", ["zookeeper", "broker"])
def test_whom_the_command_line_adds_is_let_in(broker, zookeeper, ports, tmp_path, logs_in, way):
    administrator = tmp_path / "administrator.properties"
    settings = scram(ports, "alice", "alice-secret")
    administrator.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    where = ("--command-config", administrator)
    if way == "zookeeper":
        where = ("--zookeeper", f"{zookeeper.connect_string}/sasl")

    def user(*arguments):
        subprocess.run([*PROGRAM, "user", *arguments, *where], check=True, capture_output=True, timeout=60)

    secret, name = tmp_path / "secret", f"by-{way}"
    for command, password in (("add", "first"), ("set-password", "second")):
        secret.write_text(password)
        user(command, name, "--password-file", secret)
        eventually(lambda password=password: logs_in(name, password))
    assert not logs_in(name, "first")
    user("delete", name, "--yes")
    eventually(lambda: not logs_in(name, "second"))


def test_our_client_stops_at_once_where_it_is_not_let_in(broker, ports):
    settings = {
        "bootstrap.servers": f"localhost:{ports['SASL_PLAINTEXT']}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.jaas.config": f'{SCRAM} username="alice" password="guess";',
    }
    with Admin(settings) as admin, pytest.raises(AuthenticationFailed, match="invalid credentials") as caught:
        admin.create_topics([NewTopic("t", 1)])
    assert "guess" not in str(caught.value)
    with Consumer({**settings, "group.id": "g"}) as consumer:
        consumer.subscribe(["t"])
        with pytest.raises(AuthenticationFailed):
            consumer.poll(60.0)
    with Producer(settings) as producer, pytest.raises(AuthenticationFailed):
        producer.send("t", b"v").result(60)
